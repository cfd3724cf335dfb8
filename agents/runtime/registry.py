"""Finds a method by its name or its import path."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

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


def describe(name_or_path: str) -> dict[str, Any]:
    """Return what a person wants to know of a method before using it, as plain data.

    Returns:
        ``name``, ``text`` (one line), ``settings``: ``name``, ``type``, ``default``, ``text`` of each.

    Raises:
        UsageError: as :func:`find`.
    """
    kind = find(name_or_path)
    own = inspect.cleandoc(kind.__doc__ or "").splitlines()
    module = inspect.cleandoc(sys.modules[kind.__module__].__doc__ or "").splitlines()
    # A module that holds one method says more about it than the class does.
    text = next((lines[0] for lines in (module, own) if lines), "")
    settings = []
    for name, field in kind.Settings.model_fields.items():
        written = re.sub(r"typing\.|<class '(.*?)'>", r"\1", repr(field.annotation))
        # The words that may be given say more than that there is a choice.
        written = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace("'", ""), written)
        default = "required" if field.is_required() else str(field.get_default(call_default_factory=True))
        settings.append({"name": name, "type": written, "default": default, "text": field.description or ""})
    return {"name": name_or_path, "text": text, "settings": settings}


def describe_all() -> list[dict[str, Any]]:
    """Describe every installed method; one that cannot be imported says so in its ``text``."""
    found = []
    for name in names():
        try:
            found.append(describe(name))
        except UsageError as error:
            found.append({"name": name, "text": f"BROKEN: {error}", "settings": []})
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
