"""Scripts: deterministic under any order and number of threads; and the request hash that all caching stands on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.agents.runtime.models import ModelFailure, ModelRequest, ModelSession, choose_model, open_model
from orienteer.agents.runtime.models.prices import load_prices
from orienteer.agents.runtime.models.retry import RetryPolicy, retry_after
from orienteer.errors import EndpointError, Interrupted, UsageError

SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


@pytest.fixture
def script(tmp_path, kit):
    """Return a maker of sessions on a script of these entries."""

    def make(*entries, ledger=None):
        file = tmp_path / "script.jsonl"
        file.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in entries))
        ledger = ledger or kit.MemoryLedger()
        model = open_model(f"scripted/{file}")
        session = ModelSession(model, ledger, None, threading.Event(), lambda kind, facts: None)
        session.ledger = ledger
        return session

    return make


def ask(session, text="hi", **options):
    return session.ask(ModelRequest((("user", text),), **options))


def test_first_entry_that_applies(script):
    session = script(
        "# a comment",
        {"match": "softmax", "sample": "2", "reply": "second softmax"},
        {"match": "softmax", "reply": {"code": "softmax"}},
        "",
        {"reply": "anything"},
    )
    assert ask(session, "a softmax", sample="2").text == "second softmax"
    assert ask(session, "a softmax", schema=SCHEMA).data == {"code": "softmax"}
    assert ask(session, "gelu").text == "anything"
    assert ask(session, "gelu").cached
    assert ask(session, "gelu", sample="9").cost == 0.0


def test_replies_are_chosen_by_the_sample(script):
    session = script({"replies": ["a", "b", "c"]})
    assert [ask(session, sample=f"s{i}").text for i in range(4)] == ["a", "b", "c", "a"]
    assert ask(session, "unnumbered").text in "abc"


def test_any_order_of_threads_gives_the_same(script):
    entries = [{"match": "q1", "replies": ["x", "y"]}, {"replies": ["a", "b", "c"], "delay": 0.001}]
    requests = [(f"q{i}", str(j)) for i in range(5) for j in range(5)]

    def run(order, workers):
        session = script(*entries)
        with ThreadPoolExecutor(workers) as pool:
            texts = list(pool.map(lambda r: ask(session, r[0], sample=r[1]).text, order))
        return dict(zip(order, texts, strict=True))

    assert run(requests, 1) == run(requests[::-1], 8)


def test_failures_and_repair_are_played(script):
    session = script(
        {"match": "broken", "fail": "refusal", "message": "no"},
        {"match": "dead", "fail": "endpoint", "message": "gone"},
        {"turn": 2, "reply": {"code": "repaired"}},
        {"match": "bad twice", "reply": "not json"},
        {"match": "malformed", "reply": "not json"},
        {"match": "cut", "reply": "half", "finish_reason": "length"},
        {"match": "think", "reply": "<think>hm"},
    )
    with pytest.raises(ModelFailure, match="refusal: no"):
        ask(session, "broken")
    with pytest.raises(EndpointError, match="gone"):
        ask(session, "dead")
    repaired = ask(session, "malformed", schema=SCHEMA)
    assert repaired.data == {"code": "repaired"} and repaired.calls == 2
    for text, kind in (("cut", "truncated"), ("think", "empty"), ("nothing", "script")):
        with pytest.raises(ModelFailure) as caught:
            ask(session, text)
        assert caught.value.kind == kind
    states = [row["state"] for row in session.ledger.rows]
    assert "sent" not in states


def test_a_delay_can_be_cancelled(tmp_path):
    file = tmp_path / "s.jsonl"
    file.write_text('{"reply": "late", "delay": 600}\n')
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    with pytest.raises(Interrupted):
        open_model(f"scripted/{file}").complete(ModelRequest((("user", "x"),)), cancel, lambda kind, facts: None)


def test_an_edited_script_is_another_model(tmp_path):
    file = tmp_path / "s.jsonl"
    file.write_text('{"reply": "a"}\n')
    first = open_model(f"scripted/{file}").identity
    file.write_text('{"reply": "b"}\n')
    assert open_model(f"scripted/{file}").identity != first


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no entries"),
        (b"\n# only a comment\n", "no entries"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"reply": "a"}\n{"reply": \n', "line 2: not JSON"),
        (b'{"reply": "a"}\n[1]\n', "line 2: an entry is"),
        (b'{"replay": "a"}\n', "line 1: unknown key 'replay'"),
        (b'{"match": "a"}\n', "exactly one of"),
        (b'{"reply": "a", "fail": "b"}\n', "exactly one of"),
        (b'{"replies": []}\n', "at least one"),
        (b'{"reply": "a", "delay": -1}\n', "'delay'"),
        (b'{"reply": "a", "turn": "x"}\n', "'turn'"),
        (b'{"reply": "a", "match": 3}\n', "'match'"),
        (b'{"reply": "a", "finish_reason": 3}\n', "'finish_reason'"),
    ],
)
def test_bad_scripts(tmp_path, content, words):
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=words) as caught:
        open_model(f"scripted/{file}")
    assert "\n" not in str(caught.value)


def test_missing_script(tmp_path):
    for name in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            open_model(f"scripted/{name}")


# --- the request hash ------------------------------------------------------------------------------------------------

REQUESTS = st.builds(
    ModelRequest,
    messages=st.lists(
        st.tuples(st.sampled_from(["system", "user"]), st.text(alphabet=st.characters())), max_size=3
    ).map(tuple),
    schema=st.none() | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3),
    max_tokens=st.integers(1, 10_000),
    temperature=st.none() | st.floats(0, 2),
    seed=st.none() | st.integers(0, 2**31),
    sample=st.text(max_size=5),
)


@given(REQUESTS, st.text(max_size=5))
def test_sha_survives_json_and_key_order(request, model):
    plain = json.loads(json.dumps(request.to_plain()))
    schema = None if plain["schema"] is None else dict(reversed(list(plain["schema"].items())))
    again = ModelRequest(
        tuple((r, c) for r, c in plain["messages"]),
        schema,
        plain["schema_name"],
        plain["max_tokens"],
        plain["temperature"],
        plain["seed"],
        plain["sample"],
    )
    assert again.sha(model) == request.sha(model)


@given(REQUESTS, REQUESTS)
def test_sha_tells_requests_apart(one, other):
    assert (one.sha("m") == other.sha("m")) == (one.to_plain() == other.to_plain())
    assert one.sha("m") != one.sha("n")


def test_sha_is_equal_in_other_processes():
    code = (
        "from orienteer.agents.runtime.models import ModelRequest as R;"
        "print(R((('user','hi \\u00e9'),),{'b':1,'a':{'d':2,'c':3}},sample='1',temperature=0.1).sha('m'))"
    )
    shas = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    here = ModelRequest((("user", "hi é"),), {"a": {"c": 3, "d": 2}, "b": 1}, sample="1", temperature=0.1).sha("m")
    assert shas == {here + "\n"}


def test_importing_costs_no_client():
    code = (
        "import sys, orienteer.agents.runtime.models as m;"
        "assert not {'openai','httpx2','jsonschema'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- choice, prices, waits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "spec", "why"),
    [
        ({}, "offline", "no model endpoint"),
        ({"OPENAI_API_KEY": "k"}, "offline", "no model"),
        ({"OPENAI_MODEL": "m"}, "offline", "neither"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}, "openai/m", "OPENAI_API_KEY"),
        ({"OPENAI_BASE_URL": "http://h/v1", "OPENAI_MODEL": "org/m"}, "openai/org/m", "OPENAI_BASE_URL"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m", "ORIENTEER_MODEL": "n"}, "openai/n", "ORIENTEER_MODEL"),
        ({"ORIENTEER_MODEL": "local/smollm2"}, "local/smollm2", "ORIENTEER_MODEL"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m", "ORIENTEER_MODEL": "offline"}, "offline", "ORIENTEER_MODEL"),
    ],
)
def test_default_rule(monkeypatch, env, spec, why):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ORIENTEER_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    chosen, reason = choose_model(None)
    assert chosen == spec and why in reason and "\n" not in reason


@pytest.mark.parametrize("spec", ["gpt-4o", "openai/", "openai", "", "scripted/", "foo/bar", "local/other"])
def test_unknown_models(spec):
    with pytest.raises(UsageError):
        open_model(spec)


def test_unknown_option(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(UsageError, match="unknown model option 'speed'"):
        open_model("openai/m", speed=3)


def test_offline_is_no_model():
    assert open_model("offline") is None


def test_prices(tmp_path, monkeypatch):
    monkeypatch.delenv("ORIENTEER_PRICES", raising=False)
    shipped = load_prices()
    assert shipped.find("gpt-4o-2024-08-06", "api.openai.com") == shipped.find("gpt-4o", "api.openai.com")
    assert shipped.find("gpt-4o", "proxy.example") is None
    assert shipped.find("unheard-of", "api.openai.com") is None
    mine = tmp_path / "p.json"
    mine.write_text('{"models": {"gpt-4o": {"input": 1, "output": 2}}}')
    assert load_prices(mine).find("gpt-4o", "proxy.example") == (1.0, 2.0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"models": []}',
        '{"models": {"m": 3}}',
        '{"models": {"m": {"input": -1, "output": 1}}}',
        '{"models": {"m": {"input": NaN, "output": 1}}}',
        '{"models": {"m": {"input": 1}}}',
        '{"models": {"m": {"input": 1, "output": 1, "host": 3}}}',
    ],
)
def test_bad_price_files(tmp_path, content):
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(UsageError):
        load_prices(file)
    with pytest.raises(UsageError):
        load_prices(tmp_path / "none.json")


@given(st.integers(0, 12), st.text(max_size=5))
def test_waits_grow_are_bounded_and_repeat(attempt, key):
    policy = RetryPolicy()
    wait = policy.wait(attempt, key, {})
    assert wait == policy.wait(attempt, key, {})
    top = min(policy.cap, policy.base * 2**attempt)
    assert top / 2 <= wait <= top


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3.0), (" 0.5 ", 0.5), ("-1", None), ("inf", None), ("nan", None), ("x", None), ("", None),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 99 Oct 2015 07:28:00 GMT", None)],
)  # fmt: skip
def test_retry_after_forms(value, seconds):
    assert retry_after({"Retry-After": value}) == seconds
