"""What is cut off yields nothing; what is whole is found."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.agents.runtime.models import ModelFailure, code_from, fences, split_reasoning
from orienteer.agents.runtime.models.parsing import BadJson, loads
from orienteer.agents.runtime.models.schema import Mismatch, is_strict, read_reply
from orienteer.agents.runtime.models.text import HIDDEN, Scrubber, estimate_tokens, storable

PIECES = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "<thinking>",
            "</thinking>",
            "[THINK]",
            "[/THINK]",
            "```python\n",
            "```\n",
            "x = 1\n",
            "a ",
        ]
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize(
    ("text", "content", "reasoning", "unclosed"),
    [
        ("plain", "plain", "", False),
        ("  indented\n", "  indented\n", "", False),
        ("<think>a</think>b", "b", "a", False),
        ("<THINK>a</THINK>b", "b", "a", False),
        ("<think></think>b", "b", "", False),
        ("a</think>b", "b", "a", False),
        ("<think>a</think>b<think>c</think>d", "bd", "a\nc", False),
        ("<think>a<think>b</think>c</think>d", "d", "a<think>b\nc", False),
        ("[THINK]a[/THINK]b", "b", "a", False),
        ("<think>a", "", "a", True),
        ("b<think>a", "", "ba", True),
        ("<think>a</think>b<think>c", "", "a\nbc", True),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>b", "b", None, False),
        ("<|channel|>analysis<|message|>hm", "", None, True),
    ],
)
def test_split(text, content, reasoning, unclosed):
    split = split_reasoning(text)
    assert (split.content, split.unclosed) == (content, unclosed)
    if reasoning is not None:
        assert split.reasoning == reasoning


@given(PIECES, st.sampled_from(["<think>", "<thinking>", "[THINK]"]), st.text(max_size=30))
def test_nothing_of_an_unclosed_block_is_content(before, tag, secret):
    inside = secret.replace("<", "").replace("[", "")
    assert split_reasoning(before + tag + inside).content == ""


@given(PIECES)
def test_content_has_no_tags_left(text):
    content = split_reasoning(text).content
    assert not any(tag in content for tag in ("<think>", "</think>", "[THINK]", "[/THINK]"))


@given(PIECES, st.text(alphabet="xyz=\n ", min_size=1))
def test_an_unclosed_fence_is_never_code(before, body):
    closed = before.count("```python\n") == before.count("```\n") == 0
    text = (before if closed else "") + "\n```python\n" + body
    if split_reasoning(text).unclosed:
        return
    with pytest.raises(ModelFailure) as caught:
        code_from(text)
    assert caught.value.kind == "truncated"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=60))
def test_a_fenced_body_comes_back(body):
    if body.lstrip(" ").startswith(("```", "~~~")):
        return
    found = fences(f"text\n````py\n{body}\n````\nmore")
    assert [(f.language, f.body, f.closed) for f in found] == [("py", body + "\n", True)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nbye", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```bash\npip\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("~~~python\nx = '```'\n~~~", "x = '```'\n"),
        ("````python\n'''\n```\n'''\n````", "'''\n```\n'''\n"),
        ("```python\nx = 1\n```\nagain\n```python\nx = 1\n```", "x = 1\n"),
        ("the ```x``` is prose", "the ```x``` is prose"),
    ],
)
def test_code_from(text, code):
    assert code_from(text) == code


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("```python\nx = 1", "truncated"),
        ("```python\nx = 1\n```\n```python\ny = 2", "truncated"),
        ("```python\nx = 1\n```\n```python\ny = 2\n```", "ambiguous"),
        ("```a\nx\n```\n```b\ny\n```", "ambiguous"),
        ("```python\n```", "empty"),
        ("  \n", "empty"),
    ],
)
def test_no_code(text, kind):
    with pytest.raises(ModelFailure) as caught:
        code_from(text)
    assert caught.value.kind == kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(alphabet='ab",]}{[\\ <>', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "text", ["1e999", "-1e999", '{"a": [1e999]}', "NaN", "Infinity", '{"a": 1, "a": 2}', "01", "{'a': 1}"]
)
def test_what_is_no_json_or_leaves_a_doubt(text):
    with pytest.raises(BadJson):
        loads(text)


@given(JSON)
def test_json_survives_and_trailing_commas_are_forgiven(value):
    text = json.dumps(value, indent=1)
    assert loads(text) == value
    assert loads(text.replace("\n}", ",\n}") if text.endswith("\n}") and '"' not in text[-3:] else text) == value


@given(st.dictionaries(st.sampled_from("abc"), JSON, min_size=1))
def test_a_prefix_of_an_object_is_never_accepted(value):
    text = json.dumps(value)
    for cut in range(1, len(text)):
        with pytest.raises(BadJson):
            loads(text[:cut])


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_cut_reply_yields_no_value(a, b):
    text = "Sure:\n" + json.dumps({"code": "x" * a, "more": {"code": "y" * b}})
    schema = {"type": "object", "properties": {"code": {"type": "string"}, "more": {}}, "required": ["code", "more"]}
    assert read_reply(text, schema)["code"] == "x" * a
    with pytest.raises(Mismatch):
        read_reply(text[:-1], schema)


def test_schema_problems_say_where():
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    with pytest.raises(Mismatch, match="at a/1"):
        read_reply('{"a": [1, "x"]}', schema)


def test_a_schema_never_fetches():
    with pytest.raises(Exception, match=r"(?i)unresolvable|retriev"):
        read_reply("{}", {"$ref": "http://127.0.0.1:1/schema"})


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "string"}, True),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
    ],
)
def test_strict(schema, strict):
    assert is_strict(schema) is strict


@given(st.text(alphabet=st.characters(), max_size=50))
def test_any_text_becomes_storable(text):
    clean = storable(text)
    clean.encode("utf-8")
    assert "\x00" not in clean and len(clean) == len(text)
    assert storable(clean) == clean
    assert estimate_tokens(text) >= 0


def test_scrubber():
    secret = "sk-0123456789"
    scrub = Scrubber(secret)
    assert scrub.clean_value({"a": [f"x {secret}", 1], secret: None}) == {"a": [f"x {HIDDEN}", 1], HIDDEN: None}
    assert secret not in repr(scrub)
    assert Scrubber("EMPTY").clean("if EMPTY:") == "if EMPTY:"
