"""What a person asks of a run, and what the run reports back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orienteer.errors import UsageError
from orienteer.memory.plain import plain

if TYPE_CHECKING:
    from orienteer.agents.runtime.method import Settings

#: Exit status of the command for each status of a run that came to an end by its own rules.
EXIT_CODES = {"done": 0, "failed": 1, "budget": 4}

#: More than anybody can spend; keeps numbers within what databases and JSON readers hold.
_MOST = 1e15


@dataclass(frozen=True)
class Budgets:
    """Limits of a run; None means no limit.

    Attributes:
        evals: evaluations really performed (reused ones are free).
        tokens: tokens of model calls, in and out together.
        cost: money, in the currency of the price table.
        time: seconds of activity, resumes added up.
    """

    evals: int | None = None
    tokens: int | None = None
    cost: float | None = None
    time: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value <= _MOST):
                shown = f"{value:g}" if isinstance(value, float) else str(value)[:40]
                raise UsageError(
                    f"the budget {item.name}={shown} is no number from 0 to {_MOST:.0e}", f"mend --{item.name}"
                )


@dataclass(frozen=True)
class RunConfig:
    """The request for one run; everything but ``home``, ``database`` and ``handle_signals`` is kept with the run."""

    #: A name of the ``orienteer.methods`` entry points, or ``package.module:Class``.
    method: str
    tasks: Sequence[str] = ()
    target: str = ""
    #: The method's settings by name; values may be text from ``--set`` or already typed.
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    #: ``openai/NAME``, ``local/NAME``, ``scripted/FILE``, ``offline``, or None for the default rule.
    model: str | None = None
    #: Further options of ``open_model`` (plain data; never a key).
    model_options: Mapping[str, Any] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    #: Proposals and evaluations in flight at once; None: as many as there are cores.
    workers: int | None = None
    sandbox: str = "auto"
    allow_unsafe: bool = False
    #: Options for the method that are not settings (plain data), as the command understood them.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Take verdicts of other runs on the same content under the same settings; said in the provenance.
    reuse_evaluations: bool = False
    #: Take answers of other runs to the same model request; said in the provenance.
    reuse_replies: bool = False
    home: str | Path | None = None
    #: Path or SQLAlchemy URL of the run database; None: ``HOME/runs.sqlite``.
    database: str | Path | None = None
    #: Turn SIGINT and SIGTERM into a clean stop (only possible in the main thread).
    handle_signals: bool = True

    def __post_init__(self) -> None:
        if not (isinstance(self.seed, int) and -(2**63) <= self.seed < 2**63):
            raise UsageError(f"the seed {self.seed!r} is no whole number of 64 bits", "give for example --seed 7")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"{self.workers} workers cannot work", "give --workers 1 or more")

    def document(self) -> dict[str, Any]:
        """Return the part that is kept with the run, as plain data."""
        kept = {k: v for k, v in asdict(self).items() if k not in ("home", "database", "handle_signals")}
        try:
            found: dict[str, Any] = plain(kept, "the request")
        except ValueError as exc:
            raise UsageError(str(exc), "give settings and options as plain values") from exc
        return found

    @classmethod
    def from_document(cls, document: Mapping[str, Any], **extra: Any) -> RunConfig:
        """Rebuild a request from what was kept."""
        known = {item.name for item in fields(cls)}
        values = {k: v for k, v in document.items() if k in known}
        values["budgets"] = Budgets(**values.get("budgets", {}))
        return cls(**values | extra)

    def overridden(self, overrides: Mapping[str, Any]) -> RunConfig:
        """Return the request with changes for a resume.

        Args:
            overrides: any of ``evals``, ``tokens``, ``cost``, ``time`` (None lifts the limit), ``model``,
                ``model_options``, ``workers``, ``sandbox``, ``allow_unsafe``, ``reuse_evaluations``, ``reuse_replies``.

        Raises:
            UsageError: something else is to be changed; a run keeps its method, tasks, target, settings and seed.
        """
        limits = {k: v for k, v in overrides.items() if k in {item.name for item in fields(Budgets)}}
        others = {k: v for k, v in overrides.items() if k not in limits}
        allowed = {"model", "model_options", "workers", "sandbox", "allow_unsafe", "reuse_evaluations", "reuse_replies"}
        for name in sorted(set(others) - allowed):
            raise UsageError(f"{name} of a run cannot be changed by a resume", "start a new run")
        return replace(self, budgets=replace(self.budgets, **limits), **others)


@dataclass(frozen=True)
class RunReport:
    """How a run ended."""

    id: str
    #: ``done``, ``budget`` or ``failed`` (others end by an exception).
    status: str
    #: One line that says why, where ``status`` alone does not.
    reason: str
    method: str
    #: The method's own document.
    result: dict[str, Any]
    #: Best candidate per task: candidate id, score, step, slot, evidence, content sha.
    best: dict[str, dict[str, Any]]
    #: Candidates, evaluations by status, model calls, tokens, money.
    counts: dict[str, Any]
    provenance: dict[str, Any]
    folder: Path
    steps: int

    @property
    def exit_code(self) -> int:
        """Exit status for the command: 0 done, 4 budget reached, 1 failed."""
        return EXIT_CODES.get(self.status, 1)


def parse_set(pairs: Sequence[str]) -> dict[str, Any]:
    """Turn ``["a.b=c", ...]`` into ``{"a": {"b": "c"}}``; the values stay text until the settings' types are known.

    Raises:
        UsageError: a pair has no ``=`` or contradicts another.
    """
    result: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        parts = name.strip().split(".")
        if not sign or not all(parts):
            raise UsageError(f"--set {pair!r} is not of the form name=value", "write for example --set beam=4")
        place = result
        for part in parts[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {name} goes into {part}, which was given a value", "remove one of the two")
        if isinstance(place.get(parts[-1]), dict):
            raise UsageError(f"--set {name} overwrites settings below it", "remove one of the two")
        place[parts[-1]] = value
    return result


def build_settings(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Check the values against a method's settings. Text is read as the field's type, or as JSON where it has to be.

    Raises:
        UsageError: an unknown name (with the nearest one) or a value of the wrong type.
    """
    import difflib
    import json

    from pydantic import ValidationError

    try:
        return kind.model_validate(dict(values))
    except ValidationError as first:
        # "[1, 2]" or "{...}" for a list or an object: try once more with JSON read where the type asked for it.
        retried = _read_json(values, [e["loc"] for e in first.errors()], json.loads)
        try:
            return kind.model_validate(retried)
        except ValidationError as exc:
            error = exc.errors()[0]
            name = ".".join(str(part) for part in error["loc"])
            if error["type"] == "extra_forbidden":
                known = sorted(kind.model_fields)
                near = difflib.get_close_matches(str(error["loc"][-1]), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
                raise UsageError(f"there is no setting {name}", hint) from exc
            message = error["msg"][:1].lower() + error["msg"][1:]
            raise UsageError(f"setting {name}={error['input']!r} is not right", message) from exc


def _read_json(values: Mapping[str, Any], places: Sequence[tuple[Any, ...]], read: Any) -> dict[str, Any]:
    wrong = {str(place[0]) for place in places if place}
    result: dict[str, Any] = {}
    for name, value in values.items():
        result[name] = value
        if name in wrong and isinstance(value, str):
            try:
                result[name] = read(value)
            except ValueError:
                continue
    return result
