"""Endpoints that refuse or ignore what they are asked for."""

from __future__ import annotations

import json

import pytest

SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["code"],
}
GOOD = {"code": "x = 1", "score": 3}


# --- dialects ---------------------------------------------------------------------------------------------------------


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
    b.server.script = kit.refusing((lambda body: rule in body, words), status=status)
    reply = b.ask(temperature=0.5, seed=3)
    assert reply.text == "hi" and reply.calls == 2
    assert absent not in reply.sent and present in reply.sent
    assert {k: v for k, v in b.server.requests[-1].items() if k != "messages"} == reply.sent
    # Remembered for the run, and said once.
    assert b.ask("next", temperature=0.5, seed=3).calls == 1
    assert b.kinds().count("model.adapted") == 1


def test_refused_roles_and_formats_that_blame_the_model(bench, kit):
    b = bench()
    b.server.script = kit.refusing(
        (lambda body: body["messages"][0]["role"] == "system", "for this model the system role is not supported"),
        (lambda body: "response_format" in body, "model tiny: response_format is not supported"),
    )
    reply = b.ask(schema=SCHEMA)
    assert reply.data == GOOD and reply.sent["response_format"] == "plain"


def test_several_refusals_in_a_row(bench, kit):
    b = bench()
    b.server.script = kit.refusing(
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
    b.server.script = kit.refusing((lambda body: True, "temperature max_tokens system schema stream seed"))
    assert b.failure(temperature=1.0, seed=1, schema=SCHEMA).kind == "refused"
    assert len(b.server.requests) <= 10


def test_token_limit_above_the_models(bench, kit):
    b = bench()
    words = "max_tokens is too large: 4096. This model supports at most 2048 completion tokens"
    b.server.script = kit.refusing((lambda body: body["max_tokens"] > 2048, words))
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
    b.server.script = kit.refusing((lambda body: body["max_tokens"] > 3096, words), status=status)
    if shrinks:
        reply = b.ask("word " * 1000)
        assert reply.sent["max_tokens"] == 3096 and reply.warnings
    else:
        failed = b.failure("word " * 1000)
        assert failed.kind == "context" and "tokens" in failed.message
        assert len(b.server.requests) == 1


def test_a_context_error_with_a_server_status_is_not_repeated(bench, kit):
    b = bench()
    b.server.play(kit.Act({"error": {"message": "prompt exceeds the available context size"}}, status=500))
    assert b.failure().kind == "context"
    assert len(b.server.requests) == 1


def test_what_did_not_help_is_not_remembered(bench, kit):
    b = bench()
    b.server.script = kit.refusing((lambda body: "odd" in str(body["messages"]), "bad request"))
    assert b.failure("odd", temperature=0.5, schema=SCHEMA).kind == "refused"
    assert "model.adapted" not in b.kinds()
    reply = b.ask("even", temperature=0.5, schema=SCHEMA)
    assert reply.calls == 1
    assert (reply.sent["temperature"], reply.sent["response_format"]) == (0.5, "json_schema")


def test_content_policy_refusal(bench, kit):
    b = bench()
    b.server.script = kit.refusing((lambda body: True, "blocked by the content management policy"))
    assert b.failure().kind == "content_filter"


# --- structured output ------------------------------------------------------------------------------------------------


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
    failed = b.failure(schema=SCHEMA)
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
