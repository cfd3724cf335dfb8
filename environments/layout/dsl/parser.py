"""Deck text to tree: the grammar is tree-sitter's Ruby, the choice of what is let through is ours.

Hostile text is met with limits: of the whole deck, of nesting, of a chain, of a number's and a string's length. Chains
of methods and of operators are unrolled by a loop, so Python's own stack grows with brackets only.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from orienteer.environments.layout.dsl.tree import (
    Assign,
    Binary,
    Call,
    Evaluate,
    Global,
    Literal,
    Node,
    Number,
    Program,
    Range,
    Refusal,
    Statement,
    Symbol,
    Text,
    Unary,
)

#: Limits of one deck.
MOST_BYTES = 512 * 1024
MOST_DEPTH = 48
MOST_CHAIN = 2000
MOST_NODES = 100_000
MOST_DIGITS = 40

_BINARY = frozenset({"+", "-", "*", "/", "%", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "||", "&&"})
_INTEGER = re.compile(r"(0|[1-9](_?[0-9])*)\Z")
_FLOAT = re.compile(r"[0-9](_?[0-9])*(\.[0-9](_?[0-9])*)?([eE][+-]?[0-9]+)?\Z")
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "r": "\r", "0": "\0", "e": "\x1b", "\\": "\\", '"': '"', "'": "'", "#": "#"}

_own = threading.local()


def parse(deck: str) -> Program:
    """Read a deck.

    Raises:
        Refusal: the deck has something outside the subset, is no valid Ruby, or is larger than the limits.
    """
    if len(deck) > MOST_BYTES:
        raise Refusal(1, "deck", f"longer than {MOST_BYTES // 1024} KiB")
    try:
        data = deck.encode()
    except UnicodeEncodeError:
        raise Refusal(1, "deck", "not valid text") from None
    if len(data) > MOST_BYTES or b"\0" in data:
        raise Refusal(1, "deck", "not a text, or too long")
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    root = _parser().parse(data).root_node
    return Program(_Reader(data).statements(root), deck)


def _parser() -> Any:
    """One parser per thread: a parser object is not for two threads at once."""
    parser = getattr(_own, "parser", None)
    if parser is None:
        import tree_sitter
        import tree_sitter_ruby

        parser = _own.parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_ruby.language()))
    return parser


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._nodes = 0

    def _word(self, node: Any) -> str:
        return self._data[node.start_byte : min(node.end_byte, node.start_byte + 400)].decode(errors="replace")

    def _whole(self, node: Any) -> str:
        return self._data[node.start_byte : node.end_byte].decode()

    def _no(self, node: Any, why: str) -> Refusal:
        return Refusal(node.start_point[0] + 1, self._word(node), why)

    def statements(self, root: Any) -> tuple[Statement, ...]:
        if root.type == "ERROR":
            raise self._no(root, "no valid Ruby")
        made: list[Statement] = []
        for node in root.children:
            if node.type in ("comment", ";", "empty_statement"):
                continue
            if node.type == "__END__" or node.type == "uninterpreted":
                break
            made.append(self._statement(node))
        return tuple(made)

    def _statement(self, node: Any) -> Statement:
        line = node.start_point[0] + 1
        if node.type != "assignment":
            return Evaluate(self._expression(node, 0), line)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or (node.has_error and self._broken(node)):
            raise self._no(node, "no valid Ruby")
        several = left.type == "left_assignment_list"
        targets = [part for part in _solid(left) if part.type != ","] if several else [left]
        for target in targets:
            if target.type not in ("identifier", "constant", "global_variable"):
                raise self._no(target, "only plain names can be assigned")
        names = tuple(self._whole(target) for target in targets)
        return Assign(names, self._expression(right, 0), line)

    def _broken(self, node: Any) -> bool:
        return any(child.is_error or child.is_missing for child in node.children)

    def _expression(self, node: Any, depth: int) -> Node:
        """Read an expression: walk down its left spine, then build it up again."""
        if depth > MOST_DEPTH:
            raise self._no(node, f"nested more than {MOST_DEPTH} deep")
        spine: list[Any] = []
        while True:
            self._nodes += 1
            if self._nodes > MOST_NODES or len(spine) > MOST_CHAIN:
                raise self._no(node, "too long")
            if node.is_error or node.is_missing or (node.has_error and self._broken(node)):
                raise self._no(node, "no valid Ruby")
            if node.type == "binary":
                spine.append(node)
                node = node.child_by_field_name("left")
            elif node.type == "call" and node.child_by_field_name("receiver") is not None:
                spine.append(node)
                node = node.child_by_field_name("receiver")
            elif node.type == "element_reference":
                spine.append(node)
                node = node.child_by_field_name("object")
            elif node.type == "parenthesized_statements":
                inside = [child for child in _solid(node) if child.type not in ("(", ")", ";")]
                if len(inside) != 1:
                    raise self._no(node, "one expression is expected in brackets")
                if not spine:
                    depth += 1
                    if depth > MOST_DEPTH:
                        raise self._no(node, f"nested more than {MOST_DEPTH} deep")
                    node = inside[0]
                    continue
                made = self._expression(inside[0], depth + 1)
                break
            else:
                made = self._leaf(node, depth)
                break
        for outer in reversed(spine):
            if outer.type == "binary":
                made = self._binary(outer, made, depth)
            elif outer.type == "call":
                made = self._call(outer, made, depth)
            else:
                made = self._element(outer, made)
        return made

    def _element(self, node: Any, receiver: Node) -> Node:
        inside = [child for child in _solid(node)[1:] if child.type not in ("[", "]")]
        if len(inside) != 1 or inside[0].type != "integer":
            raise self._no(node, "only [0] and [1] are known")
        return Call(receiver, "[]", (self._number(inside[0]),), (), True, node.start_point[0] + 1)

    def _binary(self, node: Any, left: Node, depth: int) -> Node:
        operator = self._word(node.child_by_field_name("operator"))
        if operator not in _BINARY:
            raise self._no(node, f"the operator {operator} is not known")
        right = self._expression(node.child_by_field_name("right"), depth + 1)
        return Binary(operator, left, right, node.start_point[0] + 1)

    def _call(self, node: Any, receiver: Node | None, depth: int) -> Node:
        method = node.child_by_field_name("method")
        if node.child_by_field_name("block") is not None:
            raise self._no(node, "blocks are not known")
        operator = node.child_by_field_name("operator")
        if method is None or (operator is not None and self._word(operator) != "."):
            raise self._no(node, "only plain method calls are known")
        if method.type not in ("identifier", "constant"):
            raise self._no(method, "only plain method names are known")
        arguments: list[Node] = []
        options: list[tuple[str, Node]] = []
        listed = node.child_by_field_name("arguments")
        if listed is not None and self._glued(method, listed):
            # The grammar takes a&b for a call with a block; for a layer it is a boolean.
            operand = self._expression(listed.children[0].children[1], depth + 1)
            line = method.start_point[0] + 1
            return Binary("&", Call(receiver, self._whole(method), (), (), False, line), operand, line)
        if listed is not None:
            if self._broken(listed):
                raise self._no(listed, "no valid Ruby")
            for child in _solid(listed):
                if child.type in ("(", ")", ","):
                    continue
                if child.type == "pair":
                    options.append(self._pair(child, depth))
                elif options:
                    raise self._no(child, "an argument after the options")
                else:
                    arguments.append(self._expression(child, depth + 1))
        line = method.start_point[0] + 1
        return Call(receiver, self._whole(method), tuple(arguments), tuple(options), listed is not None, line)

    def _glued(self, method: Any, listed: Any) -> bool:
        """Say whether a call is an ``a&b`` with a simple right side, without a space between."""
        inside = listed.children
        if len(inside) != 1 or inside[0].type != "block_argument" or listed.start_byte != method.end_byte:
            return False
        parts = inside[0].children
        return (len(parts) == 2 and parts[1].type in ("identifier", "parenthesized_statements")) or (
            len(parts) == 2 and parts[1].type == "call" and parts[1].child_by_field_name("operator") is not None
        )

    def _pair(self, node: Any, depth: int) -> tuple[str, Node]:
        key, value = node.child_by_field_name("key"), node.child_by_field_name("value")
        if key is None or value is None or key.type not in ("hash_key_symbol", "simple_symbol"):
            raise self._no(node, "only name: value options are known")
        return self._whole(key).lstrip(":"), self._expression(value, depth + 1)

    def _leaf(self, node: Any, depth: int) -> Node:
        line, kind = node.start_point[0] + 1, node.type
        if kind in ("identifier", "constant"):
            return Call(None, self._whole(node), (), (), False, line)
        if kind == "call":
            return self._call(node, None, depth)
        if kind in ("integer", "float"):
            return self._number(node)
        if kind == "global_variable":
            return Global(self._whole(node)[1:], line)
        if kind in ("true", "false", "nil"):
            return Literal({"true": True, "false": False, "nil": None}[kind], line)
        if kind == "simple_symbol":
            return Symbol(self._whole(node)[1:], line)
        if kind == "string":
            return self._text(node, depth)
        if kind == "unary":
            operator = self._word(node.child_by_field_name("operator"))
            if operator not in ("-", "!", "not"):
                raise self._no(node, f"the operator {operator} is not known")
            operand = self._expression(node.child_by_field_name("operand"), depth + 1)
            return Unary("!" if operator == "not" else operator, operand, line)
        if kind == "range":
            low, high = node.child_by_field_name("begin"), node.child_by_field_name("end")
            exclusive = self._word(node.child_by_field_name("operator")) == "..."
            return Range(
                None if low is None else self._expression(low, depth + 1),
                None if high is None else self._expression(high, depth + 1),
                exclusive,
                line,
            )
        raise self._no(node, f"{kind.replace('_', ' ')} is not known here")

    def _number(self, node: Any) -> Number:
        word = self._word(node)
        if len(word) > MOST_DIGITS:
            raise self._no(node, "too many digits")
        line = node.start_point[0] + 1
        if node.type == "integer" and _INTEGER.match(word):
            return Number(int(word.replace("_", "")), line)
        if node.type == "float" and _FLOAT.match(word):
            value = float(word.replace("_", ""))
            if value != value or value in (float("inf"), float("-inf")):
                raise self._no(node, "too large a number")
            return Number(value, line)
        raise self._no(node, "only decimal numbers are known")

    def _text(self, node: Any, depth: int) -> Text:
        opening = self._word(node.children[0])
        if opening not in ("'", '"'):
            raise self._no(node, "only plain quotes are known")
        parts: list[str | Node] = []
        if opening == "'":
            raw = self._data[node.start_byte + 1 : node.end_byte - 1].decode()
            parts.append(re.sub(r"\\([\\'])", r"\1", raw))
        else:
            for child in node.children[1:-1]:
                if child.type == "string_content":
                    parts.append(self._whole(child))
                elif child.type == "escape_sequence":
                    parts.append(self._escape(child))
                elif child.type == "interpolation":
                    inside = [part for part in _solid(child) if part.type not in ("#{", "}")]
                    if len(inside) != 1:
                        raise self._no(child, "one expression is expected in #{}")
                    parts.append(self._expression(inside[0], depth + 1))
                else:
                    raise self._no(child, "not known in a string")
        return Text(tuple(parts), node.start_point[0] + 1)

    def _escape(self, node: Any) -> str:
        word = self._whole(node)
        if len(word) == 2 and word[1] in _ESCAPES:
            return _ESCAPES[word[1]]
        raise self._no(node, "this escape is not known")


def _solid(node: Any) -> list[Any]:
    return [child for child in node.children if child.type != "comment"]
