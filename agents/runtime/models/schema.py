"""JSON schema: stated to the model, sent to the endpoint, checked on every reply."""

from __future__ import annotations

import json
from typing import Any

from orienteer.agents.runtime.models.parsing import BadJson, json_values, loads, split_reasoning
from orienteer.agents.runtime.models.text import Scrubber, shorten


class Mismatch(ValueError):
    """A reply that is not what the schema asks for; the text says what is wrong.

    Args:
        reason: one line.
        was_json: the reply was JSON, only not of this shape.
    """

    def __init__(self, reason: str, was_json: bool) -> None:
        super().__init__(reason)
        self.was_json = was_json


def problem_with(value: Any, schema: dict[str, Any]) -> str:
    """Return what is wrong with ``value``, or the empty string when it matches ``schema``."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from referencing import Registry

    # An empty registry: a schema is never a reason to fetch something.
    error = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
    if error is None:
        return ""
    where = "/".join(str(part) for part in error.absolute_path)
    return shorten(f"at {where}: {error.message}" if where else error.message)


def read_reply(text: str, schema: dict[str, Any]) -> Any:
    """Return the one value in ``text`` that matches ``schema``.

    Reasoning is not looked at. Text around the value, a code fence and a trailing comma are forgiven; two different
    values that both match are not.

    Raises:
        Mismatch: with the reason that a repair request can state.
    """
    try:
        values = [loads(text.strip())]
    except BadJson as error:
        split = split_reasoning(text)
        if split.unclosed:
            raise Mismatch("the reply ends inside its reasoning", False) from None
        values = list(json_values(split.content))
        if not values:
            raise Mismatch(f"the reply is not JSON ({error})", False) from None
    problems = [problem_with(value, schema) for value in values]
    good = [value for value, problem in zip(values, problems, strict=True) if not problem]
    if not good:
        raise Mismatch(problems[0], True)
    if any(value != good[0] for value in good):
        raise Mismatch(f"the reply holds {len(good)} different JSON values, one was asked for", True)
    # Escapes in JSON may stand for characters that no store takes.
    return Scrubber().clean_value(good[0])


def instruction(schema: dict[str, Any]) -> str:
    """Return the sentence that tells a model the form of its reply."""
    form = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return f"Answer with one JSON value and nothing else. It must match this JSON schema:\n{form}"


def is_strict(schema: Any) -> bool:
    """Say whether a schema keeps the rules of strict structured output: every property required, no others allowed."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) or schema.get("type") == "object":
        names = set(properties or {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
        if not all(is_strict(part) for part in (properties or {}).values()):
            return False
    return all(
        is_strict(part) for key, part in schema.items() if key not in ("properties", "enum", "const", "required")
    )
