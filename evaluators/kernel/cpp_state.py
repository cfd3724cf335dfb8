"""State in C++ text: variables that outlive a call of ``forward``.

A declaration is read as far as needed to tell a function from a variable. What may stand outside functions: functions,
types, templates, ``constexpr`` and ``const`` values. Inside functions ``static`` must be ``constexpr``. What this
reading misses (``T x(3);`` reads like a function) shows in the object file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from orienteer.evaluators.kernel.cpp_tokens import Token

_F = TypeVar("_F")
_TYPES = frozenset({"struct", "class", "union", "enum"})
_NO_VARIABLE = frozenset({"using", "typedef", "static_assert", "friend", "public", "private", "protected"})
_TEXT = "keeps values between calls: use local variables, or constexpr for tables"


def state_findings(found: Sequence[Token], make: Callable[[str, int, str], _F]) -> list[_F]:
    """Return what keeps values between calls. ``make`` builds a finding from code, line and message."""
    return [make("state", token.line, f"{token.text} {_TEXT}") for token in _scope(found, False)]


def _scope(found: Sequence[Token], members: bool) -> Iterator[Token]:
    """Yield the offending tokens of a namespace's or, with ``members``, a type's declarations."""
    head: list[Token] = []
    at, depth = 0, 0
    while at < len(found):
        token = found[at]
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text == "{" and depth <= 0:
            end = _closing(found, at)
            body = found[at + 1 : end]
            kind = _kind(head)
            if kind == "namespace":
                yield from _scope(body, False)
                head = []
            elif kind == "function":
                yield from _body(body)
                head = []
            else:
                if kind == "type":
                    yield from _scope(body, True)
                head.append(Token("mark", "{}", token.line))
            at = end
        elif token.text == ";" and depth <= 0:
            yield from _declaration(head, members)
            head = []
        else:
            head.append(token)
        at += 1


def _closing(found: Sequence[Token], start: int) -> int:
    depth = 0
    for at in range(start, len(found)):
        depth += (found[at].text == "{") - (found[at].text == "}")
        if depth == 0:
            return at
    return len(found)


def _kind(head: Sequence[Token]) -> str:
    """Say what a brace after ``head`` opens."""
    texts = [token.text for token in _without_template(head)]
    if "namespace" in texts or (texts[:1] == ["extern"] and len(texts) == 2):
        return "namespace"
    if "=" in texts and "operator" not in texts:
        return "value"
    if "(" in texts and not (_TYPES & set(texts[:2]) and ")" not in texts):
        return "function"
    return "type" if _TYPES & set(texts) else "value"


def _without_template(head: Sequence[Token]) -> Sequence[Token]:
    """Drop ``template <...>`` from the front."""
    while head and head[0].text == "template":
        depth = 0
        for at, token in enumerate(head):
            depth += token.text.count("<") - token.text.count(">") if token.text in ("<", ">", ">>", "<<") else 0
            if at > 0 and depth <= 0:
                head = head[at + 1 :]
                break
        else:
            return []
    return head


def _declaration(head: Sequence[Token], members: bool) -> Iterator[Token]:
    head = _without_template(head)
    texts = [token.text for token in head]
    if not texts or texts[0] in _NO_VARIABLE or "constexpr" in texts or "extern" in texts:
        return
    if members and "static" not in texts:
        return
    before = texts[: texts.index("=")] if "=" in texts else texts
    if "(" in [text for text in before if text not in ("alignas", "__attribute__")] and not _only_attributes(before):
        return
    if _TYPES & set(texts[:2]) and (texts[-1] == "{}" or len(texts) <= 2):
        return
    if texts[0] == "{}" or "operator" in texts:
        return
    if "const" in before and not {"*", "&"} & set(before):
        return
    yield next((token for token in reversed(head[: len(before)]) if token.kind == "name"), head[0])


def _only_attributes(texts: Sequence[str]) -> bool:
    """Say whether every parenthesis belongs to an attribute or an alignment."""
    depth = 0
    for at, text in enumerate(texts):
        if text == "(" and depth == 0 and texts[at - 1 : at] not in (["alignas"], ["__attribute__"], ["decltype"]):
            return False
        depth += (text == "(") - (text == ")")
    return True


def _body(body: Sequence[Token]) -> Iterator[Token]:
    """Yield every ``static`` of a function that is no constant of the compiler."""
    for at, token in enumerate(body):
        if token.text == "static" and "constexpr" not in [t.text for t in body[max(0, at - 1) : at + 3]]:
            yield token
