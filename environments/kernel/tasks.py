"""Kernel tasks: PyTorch operators in KernelBench's form, shipped ones by name and a user's own by path."""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orienteer.errors import UsageError
from orienteer.syntax import parse

#: A task file larger than this is not one.
MAX_BYTES = 1 << 20
#: Folders of a KernelBench checkout that hold single operators, fusions and networks.
_LEVEL = re.compile(r"level\d+")
_LEVELS = ("level1", "level2", "level3")


@dataclass(frozen=True)
class KernelTask:
    """One operator to write a kernel for: a file with ``Model``, ``get_inputs`` and ``get_init_inputs``."""

    name: str
    source: str
    #: What it is counted with: the level of a KernelBench problem, else empty.
    group: str = ""

    @property
    def sha(self) -> str:
        """SHA-256 of the source."""
        return hashlib.sha256(self.source.encode()).hexdigest()


def shipped_folder() -> Path:
    """Return the folder of the tasks that come with Orienteer."""
    import orienteer.kernels.tasks as package

    return Path(package.__path__[0])


def shipped_names() -> list[str]:
    """Return the names of the tasks that come with Orienteer."""
    return sorted(path.stem for path in shipped_folder().glob("*.py") if path.stem != "__init__")


def find_tasks(specs: Iterable[str], problems: dict[str, str] | None = None) -> list[KernelTask]:
    """Return the tasks that the given names, files and folders mean; none given means all shipped ones.

    Args:
        specs: names of shipped tasks, paths of files and folders.
        problems: takes what is wrong with single files of a folder (file name -> reason), so that the others go on;
            without it the first such file is an error.

    Raises:
        UsageError: an unknown name, an unreadable or empty file or folder, a file without ``Model``, two tasks of one
        name.
    """
    wanted = list(specs) or shipped_names()
    tasks: dict[str, KernelTask] = {}
    for spec in wanted:
        for task in _expand(spec, problems):
            known = tasks.get(task.name)
            if known is not None and known.source != task.source:
                raise UsageError(f"two different tasks are called {task.name!r}", "rename one of the files")
            tasks[task.name] = task
    return list(tasks.values())


def _expand(spec: str, problems: dict[str, str] | None) -> list[KernelTask]:
    path, is_folder, is_file = _looked_up(spec)
    if is_folder:
        files = _files(path)
        if not files:
            raise UsageError(
                f"the folder {spec} holds no task", "a task is a Python file with a class Model and get_inputs"
            )
        found = []
        for file in files:
            try:
                found.append(_read(file))
            except UsageError as error:
                if problems is None:
                    raise
                problems[file.stem] = error.problem
        return found
    if is_file:
        return [_read(path)]
    names = shipped_names()
    if spec in names:
        return [_read(shipped_folder() / f"{spec}.py")]
    near = difflib.get_close_matches(spec, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"no task {spec!r}, and no file or folder of that name", f"{hint}there are: {', '.join(names)}")


def _files(folder: Path) -> list[Path]:
    """Return the task files of a folder in order; of a KernelBench checkout those of its levels 1 to 3."""
    for root in (folder, folder / "KernelBench"):
        levels = [root / name for name in _LEVELS if (root / name).is_dir()]
        if levels:
            found = [path for level in levels for path in level.glob("*.py")]
            return sorted((path for path in found if _looks_like_task(path)), key=_place)
    found = [path for path in folder.rglob("*.py") if path.name != "__init__.py" and _looks_like_task(path)]
    return sorted(found, key=_place)


def _place(path: Path) -> tuple[str, int, str]:
    number = re.match(r"\d+", path.name)
    return str(path.parent), int(number[0]) if number else 0, path.name


def _looked_up(spec: str) -> tuple[Path, bool, bool]:
    """Return the path that a name may be, and whether it is a folder or a file."""
    try:
        path = Path(spec).expanduser()
        return path, path.is_dir(), path.is_file()
    except OSError as error:  # too long, or behind a folder that is closed to us
        raise UsageError(f"{spec} cannot be read ({error.strerror})", "check the path and its permissions") from error
    except RuntimeError:  # ~nobody-of-that-name
        return Path(spec), False, False


def _looks_like_task(path: Path) -> bool:
    try:
        with path.open("rb") as handle:
            text = handle.read(MAX_BYTES + 1)
    except OSError:
        return False
    return b"class Model" in text and b"def get_inputs" in text


def _read(path: Path) -> KernelTask:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES >> 10} KiB", "a task is a small Python file")
        source = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})", "check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text", "save the file as UTF-8") from error
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{path} is no Python{line} ({type(error).__name__})", "mend the syntax") from error
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for name, kind in (("Model", "class"), ("get_inputs", "function")):
        if name not in defined:
            raise UsageError(
                f"{path} defines no {kind} {name}",
                "a task has Model, get_inputs and get_init_inputs (KernelBench's form)",
            )
    level = path.resolve().parent.name
    if _LEVEL.fullmatch(level):
        return KernelTask(f"{level}_{path.stem}", source, level)
    return KernelTask(path.stem, source)


def describe_shipped() -> list[dict[str, str]]:
    """Return name and first docstring line of every shipped task."""
    out = []
    for name in shipped_names():
        source = (shipped_folder() / f"{name}.py").read_text(encoding="utf-8")
        text = ast.get_docstring(parse(source)) or ""
        out.append({"name": name, "text": text.splitlines()[0] if text else ""})
    return out
