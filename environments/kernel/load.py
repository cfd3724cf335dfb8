"""Loading a task or a candidate file inside a sandboxed child.

The text is executed as a module of its own; its lines are registered so that tracebacks and ``inspect`` (which Triton
needs) find them without a file on disk.
"""

from __future__ import annotations

import importlib.util
import io
import linecache
import sys
import traceback
import types
from typing import Any


class TaskError(Exception):
    """The task file cannot be used; the message says why."""


class TaskDefect(TaskError):
    """The operator itself cannot be judged, at whatever shapes."""


def source_lines(source: str) -> list[str]:
    r"""Return the lines of a source text with their ends, counted as Python counts them.

    Only ``\n``, ``\r\n`` and ``\r`` end a line; ``str.splitlines`` knows eight more separators and would make
    ``inspect`` find another text than the one that was compiled.
    """
    return list(io.StringIO(source, newline=None))


def load_module(name: str, source: str) -> types.ModuleType:
    """Execute a source text as the module ``name``."""
    filename = f"{name}.py"
    linecache.cache[filename] = (len(source), None, source_lines(source), filename)
    spec = importlib.util.spec_from_loader(name, loader=None, origin=filename)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = filename
    sys.modules[name] = module
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


def load_task(source: str) -> types.ModuleType:
    """Execute a task file and check that it has KernelBench's form.

    Raises:
        TaskError: it raises, or has no ``Model``, ``get_inputs`` or ``get_init_inputs``.
    """
    try:
        module = load_module("task", source)
    except BaseException as error:
        raise TaskError(f"the task file raises {describe_error(error, 'task.py')}") from None
    for name in ("Model", "get_inputs"):
        if not callable(getattr(module, name, None)):
            raise TaskError(f"the task file defines no {name}")
    if not hasattr(module, "get_init_inputs"):
        module.__dict__["get_init_inputs"] = lambda: []
    return module


def init_arguments(module: types.ModuleType) -> tuple[list[Any], dict[str, Any]]:
    """Return what ``get_init_inputs`` gives as positional and keyword arguments (KernelBench allows both forms)."""
    given = module.get_init_inputs()
    if isinstance(given, dict):
        return [], given
    if isinstance(given, (list, tuple)):
        if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], dict):
            return list(given[0]), dict(given[1])
        return list(given), {}
    raise TaskError("get_init_inputs must return a list")


def describe_error(error: BaseException, filename: str) -> str:
    """Describe an exception in one line with the innermost line of the given file."""
    text = " ".join(str(error).split())[:600]
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == filename:
            line = f" at line {frame.lineno}: {(frame.line or '').strip()[:160]}"
    if isinstance(error, SyntaxError) and error.lineno:
        line = f" at line {error.lineno}"
    return f"{type(error).__name__}: {text}{line}" if text else f"{type(error).__name__}{line}"
