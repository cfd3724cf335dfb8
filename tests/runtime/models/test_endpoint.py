"""Every way in which endpoints misbehave, through the real client against a real server."""

from __future__ import annotations

import email.utils
import gzip
import json
import logging
import socket
import threading
import time

import pytest

from orienteer.agents.runtime.models import ModelFailure, ModelRequest, open_model
from orienteer.errors import BudgetReached, EndpointError, Interrupted, MissingPrerequisite, UsageError

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["code"],
}
GOOD = {"code": "x = 1", "score": 3}


def failure(bench, text="question", **options):
    with pytest.raises(ModelFailure) as caught:
        bench.ask(text, **options)
    assert all(row["state"] != "sent" for row in bench.ledger.rows)
    assert bench.budget.held == 0
    return caught.value


# --- what an answer may look like ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text", "reasoning"),
    [
        ({"content": "hi", "reasoning_content": "hm"}, "hi", "hm"),
        ({"content": "hi", "reasoning": "hm"}, "hi", "hm"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", ""),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}]}, "b", "hm"),
        ({"content": ["a", {"type": "image_url", "image_url": {}}, {"type": "text", "text": None}]}, "a", ""),
        ({"content": "<think>hm\n```python\nbad\n```</think>\n\nhi"}, "hi", "hm\n```python\nbad\n```"),
        ({"content": "hm, let me see</think>hi"}, "hi", "hm, let me see"),
        ({"content": "hi", "tool_calls": [{"id": "1"}]}, "hi", ""),
        ({"content": "hi", "finish_reason": "eos_of_a_new_kind"}, "hi", ""),
        ({"content": "hi", "finish_reason": None}, "hi", ""),
        ({"content": "hi", "model": "something-else"}, "hi", ""),
        ({"content": "a\ud800b\x00c"}, "a\ufffdb\ufffdc", ""),
    ],
)
def test_readable(bench, kit, body, text, reasoning):
    b = bench()
    b.server.play(kit.Act(kit.completion(**body)))
    reply = b.ask()
    assert (reply.text, reply.reasoning) == (text, reasoning)
    assert reply.calls == 1
    json.dumps(b.ledger.rows).encode("utf-8")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"content": None}, "empty"),
        ({"content": ""}, "empty"),
        ({"content": None, "reasoning_content": "hm"}, "empty"),
        ({"content": 17}, "empty"),
        ({"content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}, "tool_call"),
        ({"content": None, "refusal": "I cannot"}, "refusal"),
        ({"content": "half", "finish_reason": "content_filter"}, "content_filter"),
        ({"choices": []}, "no_choices"),
        ({"choices": None}, "no_choices"),
        ({"choices": "x"}, "no_choices"),
        ({"choices": [None]}, "no_choices"),
        ({"error": {"message": "odd"}}, "error_body"),
        ({"error": "odd"}, "error_body"),
        ({"content": "<think>def f():\n```python\nx=1\n```\n"}, "empty"),
        ({"content": "fine ```python\nx=1\n``` <think>or not"}, "empty"),
    ],
)
def test_unusable(bench, kit, body, kind):
    b = bench()
    b.server.play(kit.Act(kit.completion(**body)))
    assert failure(b).kind == kind
    assert len(b.server.requests) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>hello</html>", b"null", b"[1]", b"\xff\xfe", b'{"choices"', b"[" * 100_000]
)
def test_garbage_is_a_failed_proposal(bench, kit, body):
    b = bench()
    b.server.play(kit.Act(body, media="text/html"))
    assert failure(b).kind in ("not_json", "no_choices")


def test_json_under_another_content_type(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("hi"), media="text/plain"))
    reply = b.ask()
    assert reply.text == "hi"
    assert any("content type" in w for w in reply.warnings)
    assert "model.warning" in b.kinds()


def test_invalid_utf8_is_replaced(bench, kit):
    b = bench()
    b.server.play(kit.Act(json.dumps(kit.completion("h@i")).encode().replace(b"@", b"\xff")))
    assert b.ask().text == "h\ufffdi"


def test_oversized_answers_are_refused_without_being_read(bench, kit):
    b = bench(max_bytes=100_000)
    b.server.play(kit.Act(megabytes=50))
    assert failure(b).kind == "too_large"
    b.server.play(kit.Act(megabytes=50, status=400))
    assert failure(b).kind == "refused"
    # Socket buffers hold some megabytes; most of both bodies never left the server.
    assert b.server.sent_bytes < 50 << 20


def test_compressed_answers(bench, kit):
    b = bench(max_bytes=1_000_000)
    good = gzip.compress(json.dumps(kit.completion("hi")).encode())
    b.server.play(kit.Act(good, headers={"Content-Encoding": "gzip"}))
    assert b.ask("one").text == "hi"
    bomb = gzip.compress(b" " * 20_000_000)
    for status, kind in ((200, "too_large"), (400, "refused")):
        b.server.play(kit.Act(bomb, status=status, headers={"Content-Encoding": "gzip"}))
        assert failure(b, f"bomb {status}").kind == kind
    for encoding, body in (("gzip, gzip", gzip.compress(bomb)), ("zstd", b"x"), ("gzip", b"not gzip")):
        b.server.play(kit.Act(body, headers={"Content-Encoding": encoding}))
        assert failure(b, encoding + body[:3].hex()).kind == "invalid"


def test_other_model_and_finish_reason_are_recorded(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("hi", model="other-model", finish_reason="novel")))
    reply = b.ask()
    assert (reply.model, reply.finish_reason) == ("other-model", "novel")
    assert len(reply.warnings) == 2


# --- limits of tokens ------------------------------------------------------------------------------------------------


def test_cut_off_while_reasoning_gets_one_larger_limit(bench, kit):
    b = bench()
    cut = kit.completion(None, reasoning_content="hm " * 50, finish_reason="length")
    b.server.play(kit.Act(cut), kit.Act(kit.completion("hi")))
    reply = b.ask(max_tokens=100)
    assert (reply.text, reply.calls, reply.tokens_in) == ("hi", 2, 22)
    assert [r["max_tokens"] for r in b.server.requests] == [100, 400]
    assert b.budget.used == 36

    b.server.requests.clear()
    b.server.play(kit.Act(cut))
    failed = failure(b, "another")
    assert failed.kind == "truncated" and "while reasoning" in failed.message
    assert len(b.server.requests) == 2


@pytest.mark.parametrize("content", ["```python\nx = 1", '{"code": "x = 1', "plain text that st"])
def test_a_truncated_reply_is_never_used(bench, kit, content):
    b = bench()
    b.server.play(kit.Act(kit.completion(content, finish_reason="length")))
    schema = SCHEMA if content.startswith("{") else None
    assert failure(b, schema=schema).kind == "truncated"


def test_a_larger_limit_that_the_budget_forbids_fails_the_proposal_only(bench, kit):
    b = bench(tokens=1000)
    b.server.play(kit.Act(kit.completion("half", finish_reason="length")), kit.Act(kit.completion("hi")))
    assert failure(b, max_tokens=500).kind == "truncated"
    assert b.ask("next", max_tokens=500).text == "hi"


def test_whole_json_is_whole_whatever_the_finish_reason(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion(json.dumps(GOOD), finish_reason="length")))
    assert b.ask(schema=SCHEMA).data == GOOD


# --- counting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": "12", "completion_tokens": -4},
        {"prompt_tokens": 1e300, "completion_tokens": 0.5},
        {"prompt_tokens": True, "completion_tokens": [1]},
        "none",
    ],
)
def test_usage_that_is_no_usage_is_estimated(bench, kit, usage):
    b = bench()
    b.server.play(kit.Act(kit.completion("hello there", usage=usage)))
    reply = b.ask("x" * 400)
    assert reply.estimated
    assert 100 <= reply.tokens_in <= 120
    assert reply.tokens_out == 3
    assert b.budget.used == reply.tokens_in + reply.tokens_out


def test_budget_counts_work_in_flight_and_stops(bench, kit):
    b = bench(tokens=1000)
    b.server.play(kit.Act(kit.completion("hi", usage=None)))
    b.ask("one", max_tokens=900)
    with pytest.raises(BudgetReached):
        b.ask("two", max_tokens=990)
    assert len(b.server.requests) == 1


def test_silent_truncation_is_warned_about(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("hi", usage={"prompt_tokens": 2048, "completion_tokens": 2})))
    assert any("cut the prompt" in w for w in b.ask("word " * 4000).warnings)


def test_unknown_price_is_said_once_and_known_price_is_used(bench, kit, tmp_path, monkeypatch):
    b = bench()
    assert b.ask("one").cost is None and b.ask("two").cost is None
    assert b.kinds().count("model.price_unknown") == 1
    table = tmp_path / "prices.json"
    table.write_text(json.dumps({"models": {"tiny": {"input": 1.0, "output": 10.0}}}))
    monkeypatch.setenv("ORIENTEER_PRICES", str(table))
    priced = bench()
    assert priced.ask("three").cost == pytest.approx((11 * 1.0 + 7 * 10.0) / 1e6)
    assert "model.price_unknown" not in priced.kinds()


# --- dialects --------------------------------------------------------------------------------------------------------


def refusing(kit, *rules, status=400):
    """Return a script that refuses requests for which one of the rules (predicate, words) holds."""

    def script(body, n):
        for holds, words in rules:
            if holds(body):
                return kit.Act({"error": {"message": words, "type": "invalid_request_error"}}, status=status)
        form = body.get("response_format")
        return kit.Act(kit.completion(json.dumps(GOOD) if form or "schema" in str(body["messages"]) else "hi"))

    return script


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("rule", "words", "absent", "present"),
    [
        (
            "max_tokens",
            "Unsupported 'max_tokens', use 'max_completion_tokens'",
            "max_tokens",
            "max_completion_tokens",
        ),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5", "temperature", "max_tokens"),
        ("seed", "unknown field: seed", "seed", "temperature"),
        ("seed", "Extra inputs are not permitted (body.seed)", "seed", "temperature"),
        ("seed", "bad request", "seed", "max_tokens"),
        ("temperature", "model tiny: temperature is not supported", "temperature", "max_tokens"),
        ("max_tokens", "with this model max_tokens is not available", "max_tokens", "max_completion_tokens"),
    ],
)
def test_refused_parameters(bench, kit, status, rule, words, absent, present):
    b = bench()
    b.server.script = refusing(kit, (lambda body: rule in body, words), status=status)
    reply = b.ask(temperature=0.5, seed=3)
    assert reply.text == "hi" and reply.calls == 2
    assert absent not in reply.sent and present in reply.sent
    assert {k: v for k, v in b.server.requests[-1].items() if k != "messages"} == reply.sent
    # Remembered for the run, and said once.
    assert b.ask("next", temperature=0.5, seed=3).calls == 1
    assert b.kinds().count("model.adapted") == 1


def test_refused_roles_and_formats_that_blame_the_model(bench, kit):
    b = bench()
    b.server.script = refusing(
        kit,
        (lambda body: body["messages"][0]["role"] == "system", "for this model the system role is not supported"),
        (lambda body: "response_format" in body, "model tiny: response_format is not supported"),
    )
    reply = b.ask(schema=SCHEMA)
    assert reply.data == GOOD and reply.sent["response_format"] == "plain"


def test_several_refusals_in_a_row(bench, kit):
    b = bench()
    b.server.script = refusing(
        kit,
        (lambda body: "max_tokens" in body, "max_tokens: unknown parameter"),
        (lambda body: "max_completion_tokens" in body, "max_completion_tokens: unknown parameter"),
        (lambda body: "temperature" in body, "temperature is fixed"),
        (lambda body: any(m["role"] == "system" for m in body["messages"]), "role 'system' is not supported"),
        (lambda body: body.get("response_format", {}).get("type") == "json_schema", "json_schema is not supported"),
        (lambda body: "response_format" in body, "response_format is not supported"),
    )
    reply = b.ask(temperature=0.5, schema=SCHEMA)
    assert reply.data == GOOD
    assert reply.calls == 7
    assert reply.sent["response_format"] == "plain"
    last = b.server.requests[-1]
    assert [m["role"] for m in last["messages"]] == ["user"]
    assert last["messages"][0]["content"].startswith("be short\n\nquestion")
    assert set(last) == {"model", "messages"}


def test_never_more_than_one_choice_is_asked_for(bench):
    b = bench()
    b.ask()
    assert "n" not in b.server.requests[0]


def test_a_refusal_without_an_end_is_bounded(bench, kit):
    b = bench()
    b.server.script = refusing(kit, (lambda body: True, "temperature max_tokens system schema stream seed"))
    assert failure(b, temperature=1.0, seed=1, schema=SCHEMA).kind == "refused"
    assert len(b.server.requests) <= 10


def test_token_limit_above_the_models(bench, kit):
    b = bench()
    words = "max_tokens is too large: 4096. This model supports at most 2048 completion tokens"
    b.server.script = refusing(kit, (lambda body: body["max_tokens"] > 2048, words))
    assert b.ask().sent["max_tokens"] == 2048


@pytest.mark.parametrize(
    ("status", "words", "shrinks"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, your prompt is 9000 tokens", False),
        (413, "payload too large", False),
        (400, "the request exceeds the available context size", False),
        (
            400,
            "maximum context length is 4096 tokens. However, you requested 5096 tokens "
            "(1000 in the messages, 4096 in the completion)",
            True,
        ),
    ],
)
def test_context_too_long(bench, kit, status, words, shrinks):
    b = bench()
    b.server.script = refusing(kit, (lambda body: body["max_tokens"] > 3096, words), status=status)
    if shrinks:
        reply = b.ask("word " * 1000)
        assert reply.sent["max_tokens"] == 3096 and reply.warnings
    else:
        failed = failure(b, "word " * 1000)
        assert failed.kind == "context" and "tokens" in failed.message
        assert len(b.server.requests) == 1


def test_a_context_error_with_a_server_status_is_not_repeated(bench, kit):
    b = bench()
    b.server.play(kit.Act({"error": {"message": "prompt exceeds the available context size"}}, status=500))
    assert failure(b).kind == "context"
    assert len(b.server.requests) == 1


def test_what_did_not_help_is_not_remembered(bench, kit):
    b = bench()
    b.server.script = refusing(kit, (lambda body: "odd" in str(body["messages"]), "bad request"))
    assert failure(b, "odd", temperature=0.5, schema=SCHEMA).kind == "refused"
    assert "model.adapted" not in b.kinds()
    reply = b.ask("even", temperature=0.5, schema=SCHEMA)
    assert reply.calls == 1
    assert (reply.sent["temperature"], reply.sent["response_format"]) == (0.5, "json_schema")


def test_content_policy_refusal(bench, kit):
    b = bench()
    b.server.script = refusing(kit, (lambda body: True, "blocked by the content management policy"))
    assert failure(b).kind == "content_filter"


# --- structured output -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD)}\n```",
        f"Here it is:\n```\n{json.dumps(GOOD)}\n```\nIs that all?",
        f"Sure. {json.dumps(GOOD)} Done.",
        '{"code": "x = 1", "score": 3,}',
        f"<think>{{}}</think>{json.dumps(GOOD)}",
        "\ufeff" + json.dumps(GOOD),
    ],
)
def test_json_in_its_disguises(bench, kit, content):
    b = bench()
    b.server.play(kit.Act(kit.completion(content)))
    reply = b.ask(schema=SCHEMA)
    assert reply.data == GOOD and reply.calls == 1


@pytest.mark.parametrize(
    "content",
    [
        "no json at all",
        '{"score": 3}',
        '{"code": 3}',
        '{"code": "a", "score": NaN}',
        '{"code": "a", "code": "b"}',
        '{"code": "a", "score": 1e999}',
        "[" * 5000,
        '{"code": "a"} or rather {"code": "b"}',
        '```json\n{"code": "a"}\n```\n```json\n{"code": "b"}\n```',
        '```json\n{"code": "a"',
        "7" * 5000,
    ],
)
def test_one_repair_then_failure_both_accounted(bench, kit, content):
    b = bench()
    b.server.play(kit.Act(kit.completion(content)))
    failed = failure(b, schema=SCHEMA)
    assert failed.kind == "malformed"
    assert len(b.server.requests) == 2
    assert (failed.calls, failed.tokens_in, b.budget.used) == (2, 22, 36)
    assert [row["state"] for row in b.ledger.rows] == ["done", "done"]
    repair = b.server.requests[1]["messages"]
    assert repair[-2]["role"] == "assistant" and "could not be used" in repair[-1]["content"]


def test_repair_succeeds_and_schema_steps_down(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("prose")), kit.Act(kit.completion(json.dumps(GOOD))))
    reply = b.ask(schema=SCHEMA)
    assert reply.data == GOOD and reply.calls == 2
    forms = [r.get("response_format", {}).get("type") for r in b.server.requests]
    assert forms == ["json_schema", "json_object"]
    assert "model.repair" in b.kinds()


def test_surrogates_in_json_strings(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion('{"code": "a\\ud800b\\u0000"}')))
    reply = b.ask(schema=SCHEMA)
    reply.data["code"].encode("utf-8")
    assert "\x00" not in reply.data["code"]


# --- streams ---------------------------------------------------------------------------------------------------------


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
    failed = failure(b)
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
    b.server.script = refusing(kit, (lambda body: "stream_options" in body, "stream_options: unexpected"))
    assert "stream_options" not in b.ask().sent


# --- faults in transit -----------------------------------------------------------------------------------------------


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
    assert failure(b).kind == "rate_limit"
    assert len(b.server.requests) == 1


@pytest.mark.parametrize(("act", "kind"), [({"wait": 30.0}, "timeout"), ({"drip": 0.2}, "timeout")])
def test_slow_first_byte_and_slow_drip_end_at_the_deadline(bench, kit, act, kind):
    b = bench(timeout=0.4, deadline=1.0, retries=1)
    b.server.play(kit.Act(kit.completion("hi"), **act))
    started = time.monotonic()
    assert failure(b).kind == kind
    # Bounded from outside; the server would have taken far longer.
    assert time.monotonic() - started < 20


def test_bounded_retries_then_failure_then_the_endpoint_is_given_up(bench, kit):
    b = bench(retries=2, patience=2)
    b.server.play(kit.Act(b"oops", status=500))
    assert failure(b, "one").kind == "unavailable"
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


# --- cancel ----------------------------------------------------------------------------------------------------------


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


# --- cache -----------------------------------------------------------------------------------------------------------


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


# --- the key ---------------------------------------------------------------------------------------------------------


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


# --- things that are no endpoint -------------------------------------------------------------------------------------


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
    assert failure(b, "two").kind == "invalid"


def test_closing_ends_a_call_in_flight(bench, kit):
    b = bench(timeout=100.0)
    b.server.play(kit.Act(kit.completion("hi"), wait=60))
    threading.Timer(0.3, b.session.close).start()
    with pytest.raises(Interrupted):
        b.ask()
