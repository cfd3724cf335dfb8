"""The look at the environment's endpoint that `agent doctor` prints."""

from __future__ import annotations

import pytest

from orienteer.agents.runtime.models import probe_endpoint


@pytest.fixture(autouse=True)
def environment(server, kit, monkeypatch):
    for name in ("OPENAI_MODEL", "ORIENTEER_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", kit.KEY)
    monkeypatch.setenv("OPENAI_MODEL", "tiny")


@pytest.mark.parametrize(
    ("act", "state", "words"),
    [
        ({"body": {"object": "list", "data": [{"id": "tiny"}, {"id": "big"}]}}, "ok", "serves tiny"),
        ({"body": {"object": "list", "data": [{"id": "big"}]}}, "unsure", "does not list tiny"),
        ({"body": {"data": []}}, "unsure", "lists no models"),
        ({"body": b"<html>"}, "unsure", "lists no models"),
        ({"body": b"[" * 100_000}, "unsure", "lists no models"),
        ({"body": {"data": [None]}}, "unsure", "lists no models"),
        ({"body": {}, "status": 404}, "unsure", "status 404"),
        ({"body": {}, "status": 401}, "wrong", "refuses the key"),
        ({"reset": True}, "wrong", "does not answer"),
        ({"body": {}, "wait": 30.0}, "wrong", "does not answer"),
    ],
)
def test_probe(server, kit, act, state, words):
    server.play(kit.Act(**act))
    probe = probe_endpoint(seconds=2.0)
    assert probe.state == state and words in probe.detail
    assert kit.KEY not in repr(probe) and "\n" not in probe.detail + probe.cure


def test_no_model_chosen(server, kit, monkeypatch):
    monkeypatch.delenv("OPENAI_MODEL")
    server.play(kit.Act({"data": [{"id": "big"}, {"id": "tiny"}]}))
    probe = probe_endpoint(seconds=5.0)
    assert probe.state == "unsure" and "big, tiny" in probe.cure


def test_nothing_named_or_wrongly_named(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "nonsense")
    assert probe_endpoint().state == "wrong"
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert probe_endpoint().state == "absent"
    assert server.requests == []
