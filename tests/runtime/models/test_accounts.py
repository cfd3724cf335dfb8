"""Answers are paid for once, and the key is nowhere."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from orienteer.agents.runtime.models import ModelFailure, ModelRequest, open_model
from orienteer.errors import EndpointError, MissingPrerequisite, UsageError

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["code"],
}
GOOD = {"code": "x = 1", "score": 3}


# --- cache ------------------------------------------------------------------------------------------------------------


def test_an_answer_is_paid_for_once(bench, kit):
    b = bench()
    first = b.ask("one", schema=None)
    again = b.ask("one")
    assert again.text == first.text and again.cached and not first.cached
    assert (again.tokens_in, again.tokens_out, again.cost, again.calls) == (0, 0, 0.0, 0)
    b.ask("one", sample="2")
    resumed = bench(ledger=b.ledger)
    assert resumed.ask("one").cached
    assert len(b.server.requests) == 2


def test_a_resumed_run_walks_through_a_recorded_repair(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("prose")), kit.Act(kit.completion(json.dumps(GOOD))))
    b.ask(schema=SCHEMA)
    resumed = bench(ledger=b.ledger)
    reply = resumed.ask(schema=SCHEMA)
    assert reply.data == GOOD and reply.cached
    assert len(b.server.requests) == 2


def test_equal_requests_in_flight_are_sent_once(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("hi"), wait=0.3))
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(b.ask("same").text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["hi"] * 4
    assert len(b.server.requests) == 1


def test_parallel_asks(bench, kit):
    b = bench()
    b.server.script = lambda body, n: kit.Act(kit.completion(body["messages"][-1]["content"].upper()), wait=0.1)
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.setdefault(i, b.ask(f"ask {i}").text)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: f"ASK {i}" for i in range(8)}
    assert b.budget.used == 8 * 18 and b.budget.held == 0


# --- the key ----------------------------------------------------------------------------------------------------------


def test_the_key_is_nowhere(bench, kit, caplog):
    caplog.set_level(logging.DEBUG)
    key = kit.KEY
    b = bench(retries=1)
    echo = {"X-Echo": f"Bearer {key}"}
    errors = []
    for n, act in enumerate(
        [
            kit.Act(kit.completion(f"your key is {key}", reasoning=key, model=f"m-{key}"), headers=echo),
            kit.Act(kit.completion(f'{{"code": "{key}"}}'), headers=echo),
            kit.Act({"error": {"message": f"bad: {key}"}}, status=400, headers=echo),
            kit.Act(f"<html>{key}</html>".encode(), headers=echo, media=f"text/{key}"),
            kit.Act({"error": {"message": f"bad: {key}"}}, status=500),
            kit.Act({"error": {"message": f"bad: {key}"}}, status=401),
        ]
    ):
        b.server.play(act)
        try:
            b.ask(f"ask {n}", schema=SCHEMA if n == 1 else None)
        except (ModelFailure, EndpointError) as error:
            errors.append(f"{error!r} {error} {vars(error)}")
    assert b.server.headers[0]["authorization"] == f"Bearer {key}"
    seen = [repr(b.ledger.rows), repr(b.events), *errors, repr(b.session._model), repr(vars(b.session))]
    seen.append(repr(vars(b.session._model)))
    assert len(errors) == 4
    assert not [text for text in seen if key in text]
    # The clients' own logs at DEBUG: the server's echo in a header is outside of what we print.
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("orienteer")]
    sent = [
        r.getMessage()
        for r in caplog.records
        if "send_request" in r.getMessage() or "Request options" in r.getMessage()
    ]
    assert sent and not [text for text in ours + sent if key in text]


@pytest.mark.parametrize(
    ("env", "error"),
    [
        ({"OPENAI_API_KEY": "two words here", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, UsageError),
        ({"OPENAI_API_KEY": "schlüssel-123456", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, UsageError),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "ftp://host/v1"}, UsageError),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://host:99999/v1"}, UsageError),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "localhost:8000"}, UsageError),
        ({"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}, MissingPrerequisite),
    ],
)
def test_bad_environment(monkeypatch, env, error):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error) as caught:
        open_model("openai/tiny")
    assert "schlüssel" not in str(caught.value) and "two words" not in str(caught.value)


def test_credentials_in_the_address_are_not_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:geheim@127.0.0.1:9/v1")
    model = open_model("openai/tiny", retries=0)
    try:
        with pytest.raises(EndpointError) as caught:
            model.complete(ModelRequest((("user", "hi"),)), threading.Event(), lambda kind, facts: None)
    finally:
        model.close()
    assert "geheim" not in f"{model!r} {model.identity} {caught.value}"


def test_an_endpoint_without_a_key(bench, monkeypatch):
    b = bench()
    monkeypatch.setenv("OPENAI_API_KEY", "")
    keyless = bench()
    assert keyless.ask().text == "hello"
    assert b.server.headers[0]["authorization"] == "Bearer none"
