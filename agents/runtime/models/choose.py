"""From ``--model`` and the environment to a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orienteer.agents.runtime.models.text import DEFAULT_URL
from orienteer.errors import MissingPrerequisite, UsageError

if TYPE_CHECKING:
    from orienteer.agents.runtime.models.openai_endpoint import EndpointOptions
    from orienteer.agents.runtime.models.types import Model

KINDS = "openai/NAME, local/smollm2, scripted/FILE or offline"


def choose_model(spec: str | None = None) -> tuple[str, str]:
    """Return the model to use and, in one line, why.

    Args:
        spec: what ``--model`` said; None applies the default rule: the environment's endpoint when it names one and a
            model (OPENAI_MODEL or ORIENTEER_MODEL), else the offline proposer.

    Raises:
        UsageError: ``spec`` is not a model.
    """
    if spec is not None:
        return _checked(spec), "as asked"
    own = os.environ.get("ORIENTEER_MODEL", "").strip()
    if ("/" in own and own.split("/", 1)[0] in ("openai", "local", "scripted")) or own == "offline":
        return _checked(own), "named by ORIENTEER_MODEL"
    name, variable = (own, "ORIENTEER_MODEL") if own else (os.environ.get("OPENAI_MODEL", "").strip(), "OPENAI_MODEL")
    endpoint = [v for v in ("OPENAI_BASE_URL", "OPENAI_API_KEY") if os.environ.get(v, "").strip()]
    if name and endpoint:
        return f"openai/{name}", f"{variable} and {endpoint[0]} are set"
    if name:
        return "offline", f"{variable} is set, but neither OPENAI_BASE_URL nor OPENAI_API_KEY"
    if endpoint:
        return "offline", f"{endpoint[0]} is set, but no model: set OPENAI_MODEL or give --model openai/NAME"
    return "offline", "no model endpoint in the environment"


def _checked(spec: str) -> str:
    spec = spec.strip()
    if spec == "offline":
        return spec
    kind, slash, name = spec.partition("/")
    if kind not in ("openai", "local", "scripted"):
        hint = f"did you mean openai/{spec}?" if spec and not slash else f"a model is {KINDS}"
        raise UsageError(f"unknown model {spec!r}", hint)
    if not name.strip():
        raise UsageError(f"the model {spec!r} has no name after {kind}/", f"a model is {KINDS}")
    return spec


def open_model(spec: str | None, **options: Any) -> Model | None:
    """Open the model that ``spec`` names; None is the offline proposer.

    Args:
        spec: ``openai/NAME``, ``local/smollm2``, ``scripted/FILE``, ``offline``, or None for the default rule.
        options: for endpoints: ``timeout``, ``deadline`` (seconds), ``retries``, ``backoff`` (seconds before the first
            retry), ``stream``, ``max_bytes``, ``patience``; ``prices`` (a file); ``threads`` for local models.

    Raises:
        UsageError: unknown model or option, bad script, bad price file, bad OPENAI_BASE_URL.
        MissingPrerequisite: no key for the public endpoint, or the ``local`` extra is missing.
    """
    chosen, _ = choose_model(spec)
    kind, _, name = chosen.partition("/")
    if kind == "offline":
        return None
    if kind == "scripted":
        from orienteer.agents.runtime.models.scripted import ScriptedModel

        return ScriptedModel(Path(name))
    prices = options.pop("prices", None)
    threads = options.pop("threads", 1)
    if kind == "local":
        from orienteer.agents.runtime.models.local import LocalModel

        return LocalModel(name, _options(options) if options else None, threads)
    return _open_endpoint(name, prices, _options(options))


def _options(options: dict[str, Any]) -> EndpointOptions:
    from orienteer.agents.runtime.models.openai_endpoint import EndpointOptions
    from orienteer.agents.runtime.models.retry import RetryPolicy

    known = {"timeout", "deadline", "stream", "max_bytes", "patience"}
    unknown = set(options) - known - {"retries", "backoff"}
    if unknown:
        raise UsageError(f"unknown model option {sorted(unknown)[0]!r}", f"known are {', '.join(sorted(known))}")
    default = RetryPolicy()
    retry = RetryPolicy(options.get("retries", default.retries), options.get("backoff", default.base), default.cap)
    return EndpointOptions(retry=retry, **{k: v for k, v in options.items() if k in known})


def endpoint_of_environment() -> tuple[str | None, str]:
    """Return address (None for the default one) and key of the environment's endpoint. The key is for a client only.

    Raises:
        UsageError: one of them cannot be what it says.
        MissingPrerequisite: the default endpoint needs a key and there is none.
    """
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        # Not shown: whatever it is, it may be a secret.
        raise UsageError("OPENAI_API_KEY holds characters that no key has", "set it to the key alone")
    url = os.environ.get("OPENAI_BASE_URL", "").strip() or None
    try:
        parts = urlsplit(url or DEFAULT_URL)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise UsageError("OPENAI_BASE_URL is not an http(s) address", "set it to something like http://host:8000/v1")
    if url is None and not key:
        raise MissingPrerequisite(
            f"no API key for {parts.hostname}", "set OPENAI_API_KEY, or OPENAI_BASE_URL for another endpoint"
        )
    return url, key


def _open_endpoint(name: str, prices: str | None, options: EndpointOptions) -> Model:
    from orienteer.agents.runtime.models.openai_endpoint import OpenAIEndpoint
    from orienteer.agents.runtime.models.prices import load_prices

    url, key = endpoint_of_environment()
    return OpenAIEndpoint(name, base_url=url, key=key, prices=load_prices(prices), options=options)
