"""Looks whether the environment's endpoint answers, without spending a token; for ``agent doctor``."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from orienteer.agents.runtime.models.choose import choose_model, endpoint_of_environment
from orienteer.agents.runtime.models.text import DEFAULT_URL, Scrubber, shorten
from orienteer.errors import OrienteerError

#: Largest list of models that is read, bytes.
_MOST = 4 << 20


@dataclass(frozen=True)
class EndpointProbe:
    """What was seen of the endpoint."""

    #: ``ok``; ``absent``: the environment names none; ``wrong``: it cannot serve runs as things are; ``unsure``: it
    #: answers, but does not list models, so only a run will tell.
    state: Literal["ok", "absent", "wrong", "unsure"]
    #: One line.
    detail: str
    #: What to do about it; empty when there is nothing to do.
    cure: str = ""


def probe_endpoint(seconds: float = 5.0) -> EndpointProbe:
    """Ask the environment's endpoint for its models; takes at most ``seconds`` and raises nothing."""
    chosen, why = choose_model(None)
    if not any(os.environ.get(name, "").strip() for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")):
        return EndpointProbe("absent", why, "set OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL")
    try:
        url, key = endpoint_of_environment()
    except OrienteerError as error:
        return EndpointProbe("wrong", error.problem, error.cure)
    from orienteer.agents.runtime.models.transport import Transport

    where = urlsplit(url or DEFAULT_URL)
    host = f"{where.hostname}{f':{where.port}' if where.port else ''}"
    transport = Transport(url or DEFAULT_URL, key, _MOST)
    try:
        raw = transport.models(seconds, threading.Event())
    finally:
        transport.close()
    if raw.status is None:
        return EndpointProbe("wrong", f"{host} does not answer ({raw.detail})", "check OPENAI_BASE_URL")
    if raw.status in (401, 403):
        return EndpointProbe("wrong", f"{host} refuses the key ({raw.status})", "set OPENAI_API_KEY to a valid key")
    names = _names(bytes(raw.body)) if raw.status == 200 and not raw.fault else None
    if names is None:
        return EndpointProbe("unsure", f"{host} answers, but lists no models (status {raw.status})")
    name = chosen.removeprefix("openai/")
    if chosen == name:
        shown = shorten(Scrubber(key).clean(", ".join(sorted(names))), 120)
        return EndpointProbe("unsure", f"{host} answers; no model is chosen", f"set OPENAI_MODEL to one of: {shown}")
    if name not in names:
        return EndpointProbe("unsure", f"{host} answers, but does not list {name}", "check OPENAI_MODEL")
    return EndpointProbe("ok", f"{host} serves {name}")


def _names(body: bytes) -> set[str] | None:
    try:
        document = json.loads(body)
        return {str(item["id"]) for item in document["data"]} or None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
