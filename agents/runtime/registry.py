"""Finds a method by its name or its import path."""

from __future__ import annotations

import difflib
import importlib
import sys
from importlib.metadata import EntryPoint, entry_points

from orienteer.agents.runtime.method import Method
from orienteer.errors import UsageError

GROUP = "orienteer.methods"


def names() -> list[str]:
    """Return the names of all installed methods, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find(name_or_path: str) -> type[Method]:
    """Return the class of a method.

    Args:
        name_or_path: a name of the ``orienteer.methods`` entry points, or ``package.module:Class``.

    Raises:
        UsageError: there is none of that name, or it cannot be imported.
    """
    if ":" in name_or_path:
        found = _by_path(name_or_path)
    else:
        points = [point for point in entry_points(group=GROUP) if point.name == name_or_path]
        if not points:
            known = names()
            near = difflib.get_close_matches(name_or_path, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"there is no method {name_or_path!r}",
                f"{hint}known: {', '.join(known) or 'none'}, or package.module:Class",
            )
        found = _load(points[0])
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise UsageError(f"{name_or_path} is no method", "a method is a subclass of orienteer.agents.runtime.Method")
    return found


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as exc:
        raise UsageError(
            f"method {point.name} ({point.value}) cannot be imported: {type(exc).__name__}: {exc}", "mend its package"
        ) from exc


def _by_path(path: str) -> object:
    module_name, _, attribute = path.partition(":")
    try:
        # A method under development usually lies in the folder where the command is given.
        if "" not in sys.path:
            sys.path.append("")
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except Exception as exc:
        raise UsageError(
            f"method {path} cannot be imported: {type(exc).__name__}: {exc}", "check package.module:Class"
        ) from exc
