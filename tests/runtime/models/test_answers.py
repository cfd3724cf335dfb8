"""What an answer may look like, and what is made of it."""

from __future__ import annotations

import gzip
import json

import pytest

from orienteer.errors import BudgetReached

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["code"],
}
GOOD = {"code": "x = 1", "score": 3}


# --- what an answer may look like -------------------------------------------------------------------------------------


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
    assert b.failure().kind == kind
    assert len(b.server.requests) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>hello</html>", b"null", b"[1]", b"\xff\xfe", b'{"choices"', b"[" * 100_000]
)
def test_garbage_is_a_failed_proposal(bench, kit, body):
    b = bench()
    b.server.play(kit.Act(body, media="text/html"))
    assert b.failure().kind in ("not_json", "no_choices")


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
    assert b.failure().kind == "too_large"
    b.server.play(kit.Act(megabytes=50, status=400))
    assert b.failure().kind == "refused"
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
        assert b.failure(f"bomb {status}").kind == kind
    for encoding, body in (("gzip, gzip", gzip.compress(bomb)), ("zstd", b"x"), ("gzip", b"not gzip")):
        b.server.play(kit.Act(body, headers={"Content-Encoding": encoding}))
        assert b.failure(encoding + body[:3].hex()).kind == "invalid"


def test_other_model_and_finish_reason_are_recorded(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion("hi", model="other-model", finish_reason="novel")))
    reply = b.ask()
    assert (reply.model, reply.finish_reason) == ("other-model", "novel")
    assert len(reply.warnings) == 2


# --- limits of tokens -------------------------------------------------------------------------------------------------


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
    failed = b.failure("another")
    assert failed.kind == "truncated" and "while reasoning" in failed.message
    assert len(b.server.requests) == 2


@pytest.mark.parametrize("content", ["```python\nx = 1", '{"code": "x = 1', "plain text that st"])
def test_a_truncated_reply_is_never_used(bench, kit, content):
    b = bench()
    b.server.play(kit.Act(kit.completion(content, finish_reason="length")))
    schema = SCHEMA if content.startswith("{") else None
    assert b.failure(schema=schema).kind == "truncated"


def test_a_larger_limit_that_the_budget_forbids_fails_the_proposal_only(bench, kit):
    b = bench(tokens=1000)
    b.server.play(kit.Act(kit.completion("half", finish_reason="length")), kit.Act(kit.completion("hi")))
    assert b.failure(max_tokens=500).kind == "truncated"
    assert b.ask("next", max_tokens=500).text == "hi"


def test_whole_json_is_whole_whatever_the_finish_reason(bench, kit):
    b = bench()
    b.server.play(kit.Act(kit.completion(json.dumps(GOOD), finish_reason="length")))
    assert b.ask(schema=SCHEMA).data == GOOD


# --- counting ---------------------------------------------------------------------------------------------------------


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
