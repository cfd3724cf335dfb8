"""Access to models: one request and reply form for any endpoint, a script or a local model.

``openai`` is imported when an endpoint is opened, not before.
"""

from orienteer.agents.runtime.models.choose import choose_model, open_model
from orienteer.agents.runtime.models.parsing import code_from, fences, split_reasoning
from orienteer.agents.runtime.models.probe import EndpointProbe, probe_endpoint
from orienteer.agents.runtime.models.session import ModelSession
from orienteer.agents.runtime.models.types import (
    Model,
    ModelFailure,
    ModelLedger,
    ModelReply,
    ModelRequest,
    TokenBudget,
)

__all__ = [
    "EndpointProbe",
    "Model",
    "ModelFailure",
    "ModelLedger",
    "ModelReply",
    "ModelRequest",
    "ModelSession",
    "TokenBudget",
    "choose_model",
    "code_from",
    "fences",
    "open_model",
    "probe_endpoint",
    "split_reasoning",
]
