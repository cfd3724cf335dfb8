"""Design-rule tasks as Rule2DRC lays them out: a ``spec.yaml`` with rules, layers, categories; labelled layouts."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orienteer.errors import UsageError

#: GDS layer and datatype.
LayerNumber = tuple[int, int]


@dataclass(frozen=True)
class Rule:
    """One design rule: its sentence, and the report category that its violations go to."""

    text: str
    category: str


@dataclass(frozen=True)
class LabelledLayout:
    """A layout with its true answer per category (True: there is a violation)."""

    path: Path
    labels: Mapping[str, bool]


@dataclass(frozen=True)
class RuleTask:
    """What a deck is wanted for.

    Attributes:
        id: names the task.
        title: a line.
        description: the whole request in words, with what derived layers mean.
        layers: drawn layers by name.
        rules: the rules, each with its category.
        categories: the report categories wanted, in order.
        layouts: labelled layouts; empty where there are none (a session).
        gold: path of the reference deck, if any.
    """

    id: str
    title: str
    description: str
    layers: Mapping[str, LayerNumber]
    rules: tuple[Rule, ...]
    categories: tuple[str, ...]
    layouts: tuple[LabelledLayout, ...] = ()
    gold: Path | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


#: Names that the files of a problem folder have.
SPEC = "spec.yaml"
_MOST_SPEC = 1 << 20


def find_tasks(paths: Sequence[str], rejected: dict[str, str] | None = None) -> list[RuleTask]:
    """Return the tasks of spec files, problem folders and folders of problem folders, in order of their names.

    Args:
        paths: each a ``spec.yaml``, a folder with one, or a folder (or its ``problems`` folder) of such folders.
        rejected: takes tasks that cannot be read, with the reason, where there is more than one; without it, and for a
            single task, the error is raised.

    Raises:
        UsageError: nothing is there, or a task cannot be read.
    """
    found: list[RuleTask] = []
    for text in paths:
        specs = _specs(Path(text))
        for spec in specs:
            try:
                found.append(read_task(spec))
            except UsageError as exc:
                if rejected is None or len(specs) == 1:
                    raise
                rejected[spec.parent.name] = str(exc)
    seen: set[str] = set()
    for task in found:
        if task.id in seen:
            raise UsageError(f"two tasks have the id {task.id!r}", "give every task its own id")
        seen.add(task.id)
    return found


def read_task(path: Path) -> RuleTask:
    """Read one ``spec.yaml`` and the labels it names.

    Raises:
        UsageError: the file or what it names cannot be read or contradicts itself.
    """
    import yaml

    path = Path(path)
    try:
        if path.stat().st_size > _MOST_SPEC:
            raise UsageError(f"{path} is no spec: it has more than {_MOST_SPEC >> 20} MiB", "give a spec.yaml")
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}", "give a spec.yaml") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as exc:
        raise UsageError(f"{path} is no YAML: {exc}", "mend the file") from None
    return task_of(document, path)


def task_of(document: Any, path: Path) -> RuleTask:
    """Return the task that a spec's document describes; files are found from ``path``.

    Raises:
        UsageError: something is missing or wrong; the message names it.
    """
    where = str(path)
    if not isinstance(document, dict):
        raise UsageError(f"{where} is no spec", "a spec is a mapping with id, layers and rules")
    rules = tuple(_rule(item, where, number) for number, item in enumerate(_list(document, "rules", where), 1))
    if not rules:
        raise UsageError(f"{where} has no rules", "give rules: [{text: ..., category: ...}]")
    categories = tuple(str(c) for c in document.get("categories") or dict.fromkeys(rule.category for rule in rules))
    for rule in rules:
        if rule.category not in categories:
            raise UsageError(f"{where}: the category {rule.category!r} of a rule is not among its categories")
    task = RuleTask(
        id=str(document.get("id") or path.parent.name),
        title=str(document.get("title") or ""),
        description=str(document.get("nl_description") or " ".join(rule.text for rule in rules)),
        layers=_layers(document.get("layers"), where),
        rules=rules,
        categories=categories,
        notes=dict(document.get("source") or {}) if isinstance(document.get("source"), dict) else {},
    )
    gold = _beside(path, document.get("deck"))
    return replace(task, gold=gold, layouts=_labelled(path, document.get("data_dir"), task))


def _specs(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / SPEC).is_file():
        return [path / SPEC]
    found = sorted(path.glob(f"*/{SPEC}")) or sorted(path.glob(f"problems/*/{SPEC}"))
    if not found:
        raise UsageError(
            f"{path} has no {SPEC}, nor have the folders in it", "give a spec.yaml or a folder of problems"
        )
    return found


def _list(document: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list):
        raise UsageError(f"{where}: {name} is missing or no list")
    return value


def _rule(item: Any, where: str, number: int) -> Rule:
    if isinstance(item, dict) and isinstance(item.get("text"), str) and item["text"].strip():
        return Rule(" ".join(item["text"].split()), str(item.get("category") or f"R{number}"))
    raise UsageError(f"{where}: rule {number} has no text", "a rule is {text: ..., category: ...}")


def _layers(value: Any, where: str) -> dict[str, LayerNumber]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"{where} has no layers", "give layers: {name: [layer, datatype]}")
    return {str(name): layer_number(item, str(name)) for name, item in value.items()}


def layer_number(value: Any, name: str = "") -> LayerNumber:
    """Return a layer's numbers from ``[68, 20]``, ``"68/20"`` or ``68``.

    Raises:
        UsageError: it is none of them.
    """
    parts = value if isinstance(value, list | tuple) else str(value).split("/")
    try:
        numbers = [int(part) for part in parts] + [0] * (len(parts) == 1)
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2 or not all(0 <= number < 1 << 31 for number in numbers):
        raise UsageError(
            f"{value!r} is no layer" + (f" for {name}" if name else ""), "write layer/datatype, as in 68/20"
        )
    return numbers[0], numbers[1]


def _beside(spec: Path, name: Any) -> Path | None:
    """Return the file or folder that a spec names: from the folder that holds ``problems``, or from the spec's own."""
    if not isinstance(name, str) or not name:
        return None
    for base in (*spec.resolve().parents[2:3], *spec.resolve().parents[:1]):
        if (base / name).exists():
            return base / name
    tail = Path(name)
    # An unpacked problem folder was moved or renamed: what follows its own name still holds.
    if spec.resolve().parent.name in tail.parts:
        rest = tail.parts[tail.parts.index(spec.resolve().parent.name) + 1 :]
        if (spec.resolve().parent / Path(*rest)).exists():
            return spec.resolve().parent / Path(*rest)
    return None


def _labelled(spec: Path, data_dir: Any, task: RuleTask) -> tuple[LabelledLayout, ...]:
    folder = _beside(spec, data_dir)
    if data_dir and folder is None:
        raise UsageError(f"{spec}: the folder {data_dir} is not there", "keep problems in the layout of Rule2DRC")
    if folder is None or not (folder / "labels.csv").is_file():
        return ()
    with (folder / "labels.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    missing = [c for c in task.categories if rows and c not in rows[0]]
    if missing:
        raise UsageError(f"{folder / 'labels.csv'} has no column {missing[0]!r}", "its columns are the categories")
    found = []
    for row in rows:
        place = _layout(spec, folder, row.get("filename") or "")
        labels = {category: _bit(row[category], folder) for category in task.categories}
        found.append(LabelledLayout(place, labels))
    return tuple(found)


def _layout(spec: Path, folder: Path, name: str) -> Path:
    place = _beside(spec, name)
    if place is None:
        place = next(
            (p for p in (folder / "pass" / Path(name).name, folder / "fail" / Path(name).name) if p.exists()), None
        )
    if place is None:
        raise UsageError(f"{folder / 'labels.csv'} names {name!r}, which is not there", "bring the layouts along")
    return place


def _bit(value: str | None, folder: Path) -> bool:
    if value is not None and value.strip() in ("0", "1"):
        return value.strip() == "1"
    raise UsageError(f"{folder / 'labels.csv'} has the label {value!r}", "labels are 0 and 1")
