"""Streams, faults between here and the endpoint, cancelling, things that are no endpoint."""

from __future__ import annotations

import email.utils
import json
import socket
import threading
import time

import pytest

from orienteer.agents.runtime.models import ModelFailure, ModelRequest, open_model
from orienteer.errors import EndpointError, Interrupted

# --- streams ----------------------------------------------------------------------------------------------------------


def stream_act(kit, body, **options):
    return kit.Act(body, media="text/event-stream", **options)


def test_stream_with_everything(bench, kit):
    b = bench(stream=True)
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6}}
    events = (
        ": comment\n\n",
        kit.chunk(role="assistant"),
        kit.chunk(reasoning_content="hm"),
        kit.chunk("he"),
        ": keep-alive\r\n\r\n",
        kit.chunk("llo"),
        kit.chunk(finish="stop"),
        usage,
    )
    b.server.play(stream_act(kit, kit.sse(*events)))
    reply = b.ask()
    assert (reply.text, reply.reasoning, reply.tokens_in, reply.tokens_out) == ("hello", "hm", 5, 6)
    assert b.server.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("events", "done", "kind"),
    [
        (["a", "b"], False, "cut"),
        (["a", "b"], True, "cut"),
        ([], True, "cut"),
        (["a", {"error": {"message": "engine died"}}], False, "error_body"),
        (["a", 'event: error\ndata: {"message": "engine died"}\n\n'], False, "error_body"),
        (["a", "data: {broken\n\n", "STOP"], True, "cut"),
    ],
)
def test_stream_that_is_not_whole(bench, kit, events, done, kind):
    b = bench(stream=True)
    made = []
    for event in events:
        if event == "STOP":
            event = kit.chunk(finish="stop")
        elif isinstance(event, str) and len(event) == 1:
            event = kit.chunk(event)
        made.append(event)
    b.server.play(stream_act(kit, kit.sse(*made, done=done)))
    failed = b.failure()
    assert failed.kind == kind
    if kind == "cut":
        assert failed.tokens_in > 0


def test_stream_without_usage_or_done(bench, kit):
    b = bench(stream=True)
    b.server.play(stream_act(kit, kit.sse(kit.chunk("hello"), kit.chunk(finish="stop"), done=False)))
    reply = b.ask()
    assert reply.text == "hello" and reply.estimated


@pytest.mark.parametrize("done", [True, False])
def test_stream_that_stays_open_after_its_end(bench, kit, done):
    b = bench(stream=True, timeout=2.0)
    b.server.play(stream_act(kit, kit.sse(kit.chunk("hello"), kit.chunk(finish="stop"), done=done), hang=True))
    assert b.ask().text == "hello"


def test_stream_ignored_and_stream_unasked(bench, kit):
    b = bench(stream=True)
    assert b.ask().text == "hello"
    b = bench()
    b.server.play(stream_act(kit, kit.sse(kit.chunk("hey"), kit.chunk(finish="stop"))))
    assert b.ask("other").text == "hey"


def test_stream_options_refused(bench, kit):
    b = bench(stream=True)
    b.server.script = kit.refusing((lambda body: "stream_options" in body, "stream_options: unexpected"))
    assert "stream_options" not in b.ask().sent


# --- faults in transit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_retried_statuses(bench, kit, status):
    b = bench()
    bad = kit.Act(b"<html><h1>Bad Gateway</h1></html>", status=status, media="text/html")
    b.server.play(bad, bad, kit.Act(kit.completion("hi")))
    reply = b.ask()
    assert (reply.text, reply.calls) == ("hi", 3)
    assert b.kinds() == ["model.price_unknown", "model.retry", "model.retry"]


@pytest.mark.parametrize("fault", ["reset", "short", "timeout"])
def test_retried_faults(bench, kit, fault):
    b = bench(timeout=2.0)
    act = {
        "reset": kit.Act(reset=True),
        "short": kit.Act(json.dumps(kit.completion("half"))[:-30].encode(), short=100),
        "timeout": kit.Act(kit.completion("late"), wait=5),
    }[fault]
    b.server.play(act, kit.Act(kit.completion("hi")))
    reply = b.ask()
    assert (reply.text, reply.calls) == ("hi", 2)


def test_a_rate_limit_that_advertises_billing_is_retried(bench, kit):
    b = bench()
    words = "Rate limit reached. Add a payment method at https://platform.example/account/billing to raise it"
    b.server.play(kit.Act({"error": {"message": words}}, status=429), kit.Act(kit.completion("hi")))
    assert b.ask().calls == 2


def test_error_status_inside_a_body_is_retried(bench, kit):
    b = bench()
    b.server.play(kit.Act({"error": {"message": "busy", "code": 429}}), kit.Act(kit.completion("hi")))
    assert b.ask().calls == 2


@pytest.mark.parametrize("form", ["seconds", "ms", "date", "nonsense"])
def test_retry_after(bench, kit, form):
    b = bench()
    headers = {
        "seconds": {"Retry-After": "0.3"},
        "ms": {"Retry-After-Ms": "300"},
        "date": {"Retry-After": email.utils.formatdate(time.time() + 2, usegmt=True)},
        "nonsense": {"Retry-After": "soon"},
    }[form]
    b.server.play(kit.Act({}, status=429, headers=headers), kit.Act(kit.completion("hi")))
    assert b.ask().text == "hi"
    wait = next(facts["wait"] for kind, facts in b.events if kind == "model.retry")
    low, high = {"seconds": (0.3, 0.32), "ms": (0.3, 0.32), "date": (0.0, 2.1), "nonsense": (0.0, 0.02)}[form]
    assert low <= wait <= high


def test_retry_after_beyond_the_deadline_gives_up_at_once(bench, kit):
    b = bench(deadline=3.0)
    b.server.play(kit.Act({}, status=429, headers={"Retry-After": "3600"}))
    assert b.failure().kind == "rate_limit"
    assert len(b.server.requests) == 1


@pytest.mark.parametrize(("act", "kind"), [({"wait": 30.0}, "timeout"), ({"drip": 0.2}, "timeout")])
def test_slow_first_byte_and_slow_drip_end_at_the_deadline(bench, kit, act, kind):
    b = bench(timeout=0.4, deadline=1.0, retries=1)
    b.server.play(kit.Act(kit.completion("hi"), **act))
    started = time.monotonic()
    assert b.failure().kind == kind
    # Bounded from outside; the server would have taken far longer.
    assert time.monotonic() - started < 20


def test_bounded_retries_then_failure_then_the_endpoint_is_given_up(bench, kit):
    b = bench(retries=2, patience=2)
    b.server.play(kit.Act(b"oops", status=500))
    assert b.failure("one").kind == "unavailable"
    assert len(b.server.requests) == b.ledger.rows[0]["calls"] == 3
    with pytest.raises(EndpointError, match="in a row"):
        b.ask("two")


@pytest.mark.parametrize(
    ("status", "body", "cure"),
    [
        (401, {"error": {"message": "Incorrect API key"}}, "OPENAI_API_KEY"),
        (403, {"error": {"message": "no access"}}, "access"),
        (402, {"error": {"message": "pay"}}, "top up"),
        (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, "top up"),
        (404, {"error": {"message": "The model `tiny` does not exist", "code": "model_not_found"}}, "choose a model"),
        (400, {"error": {"message": "unknown model tiny"}}, "choose a model"),
        (404, {"detail": "Not Found"}, "/v1"),
        (405, {"detail": "Method Not Allowed"}, "/v1"),
    ],
)
def test_what_ends_the_run_at_once(bench, kit, status, body, cure):
    b = bench()
    b.server.play(kit.Act(body, status=status))
    with pytest.raises(EndpointError) as caught:
        b.ask()
    assert cure in caught.value.cure
    assert "\n" not in str(caught.value)
    assert len(b.server.requests) == 1
    assert b.ledger.rows[0]["state"] == "failed" and b.budget.held == 0


def test_dead_host(bench, server):
    b = bench(retries=1)
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(EndpointError, match="cannot reach") as caught:
        b.ask()
    assert "OPENAI_BASE_URL" in caught.value.cure


# --- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "status"),
    [({"wait": 60.0}, 200), ({"drip": 0.5}, 200), ({"headers": {"Retry-After": "60"}}, 429)],
)
def test_cancel_during_a_slow_answer(bench, kit, act, status):
    b = bench(timeout=100.0, deadline=100.0)
    b.server.play(kit.Act(kit.completion("hi"), status=status, **act))
    threading.Timer(0.3, b.cancel.set).start()
    started = time.monotonic()
    with pytest.raises(Interrupted):
        b.ask()
    # One second is the promise; the rest is for a busy machine. The server would hold on for a minute.
    assert time.monotonic() - started < 10
    assert b.ledger.rows[0]["state"] == "failed" and b.budget.held == 0
    with pytest.raises(Interrupted):
        b.ask("next")


# --- things that are no endpoint --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"HTTP/1.1 999 odd\r\n\r\n", b"HTTP/1.1 200 OK\r\n\0\0"]
)
def test_a_port_where_something_else_answers(monkeypatch, greeting):
    def talk(connection):
        with connection:
            connection.recv(100)
            connection.sendall(greeting)

    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def accept():
        while not stop.is_set():
            try:
                talk(listener.accept()[0])
            except OSError:
                continue

    threading.Thread(target=accept, daemon=True).start()
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    model = open_model("openai/tiny", retries=1, backoff=0.01, patience=1, timeout=5.0)
    try:
        with pytest.raises((EndpointError, ModelFailure)) as caught:
            model.complete(ModelRequest((("user", "hi"),)), threading.Event(), lambda kind, facts: None)
    finally:
        stop.set()
        model.close()
        listener.close()
    assert "\n" not in str(caught.value) and str(caught.value)


def test_https_to_a_plain_server(bench, server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("http:", "https:"))
    model = open_model("openai/tiny", retries=0, timeout=5.0)
    try:
        with pytest.raises(EndpointError, match="cannot reach"):
            model.complete(ModelRequest((("user", "hi"),)), threading.Event(), lambda kind, facts: None)
    finally:
        model.close()


def test_a_redirect_is_followed_but_not_for_ever(bench, kit):
    b = bench()
    b.server.play(kit.Act({}, status=307, headers={"Location": "/v1/chat/completions"}), kit.Act(kit.completion("hi")))
    assert b.ask("one").text == "hi"
    b.server.play(kit.Act({}, status=307, headers={"Location": "/v1/chat/completions"}))
    assert b.failure("two").kind == "invalid"


def test_closing_ends_a_call_in_flight(bench, kit):
    b = bench(timeout=100.0)
    b.server.play(kit.Act(kit.completion("hi"), wait=60))
    threading.Timer(0.3, b.session.close).start()
    with pytest.raises(Interrupted):
        b.ask()
