"""A deck to a plan: every statement is evaluated once per database unit, with layers as operations still to be run.

The language has no conditions, so the kinds of all layers and all numbers are known before any layout is looked at. A
deck is thus refused, or found wrong, as a whole: nothing is half-executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from orienteer.environments.layout.dsl import functions, universal
from orienteer.environments.layout.dsl.antenna import Connections
from orienteer.environments.layout.dsl.methods import METHODS
from orienteer.environments.layout.dsl.plan import Output, Plan, Planner, ordered
from orienteer.environments.layout.dsl.tree import (
    Assign,
    Binary,
    Call,
    DeckError,
    Global,
    Literal,
    Node,
    Number,
    Program,
    Range,
    Refusal,
    Symbol,
    Text,
    Unary,
)
from orienteer.environments.layout.dsl.universal import Limits, Rule
from orienteer.environments.layout.dsl.values import (
    MOST_TEXT,
    Arguments,
    Input,
    Layer,
    Name,
    Nothing,
    SourceValue,
    Span,
    describe,
    is_number,
)

#: Units: the factor to micrometres or square micrometres, and whether a whole number keeps exact (Ruby's ``to_f``).
_UNITS: dict[str, float | None] = {
    "um": None,
    "micron": None,
    "degree": None,
    "um2": None,
    "micron2": None,
    "nm": 0.001,
    "mm": 1000.0,
    "m": 1000000.0,
    "nm2": 1e-6,
    "mm2": 1.0e6,
    "m2": 1.0e12,
}


def compile_program(program: Program, dbu: float, planner: Planner) -> Plan:
    """Return the plan of a deck for layouts with this database unit.

    Raises:
        Refusal: the deck has something outside the subset.
        DeckError: the deck is wrong; KLayout would end it with an error.
    """
    deck = Deck(dbu, planner)
    for statement in program.statements:
        value = deck.evaluate(statement.value)
        if isinstance(statement, Assign):
            deck.assign(statement, value)
    outputs = tuple(deck.outputs)
    return Plan(ordered(outputs), outputs, deck.title, deck.reported, deck.source.cell if deck.source else None)


class Deck:
    """The state of a deck while it is evaluated."""

    def __init__(self, dbu: float, planner: Planner) -> None:
        self.dbu = dbu
        self.planner = planner
        self.names: dict[str, Any] = {}
        self.outputs: list[Output] = []
        self.title: str | None = None
        self.reported = False
        self.source: SourceValue | None = None
        self.connections = Connections()

    def assign(self, statement: Assign, value: Any) -> None:
        """Give a value its name, or a pair of values their two names."""
        if isinstance(value, Nothing):
            raise Refusal(statement.line, value.of, "its result cannot be used")
        names = statement.names
        if len(names) == 1:
            targets = [(names[0], value)]
        elif isinstance(value, tuple) and len(value) == len(names):
            targets = list(zip(names, value, strict=True))
        else:
            raise Refusal(statement.line, ", ".join(names), f"{len(names)} names for another number of values")
        for name, item in targets:
            if name.startswith("$") and name[1:] in ("input", "output"):
                raise Refusal(statement.line, name, "the layout and the report are given")
            self.names[name] = item

    # --- expressions --------------------------------------------------------------------------------------------------

    def evaluate(self, node: Node) -> Any:
        """Return the value of an expression; walks down the left spine first, as the parser does."""
        spine: list[Binary | Call] = []
        while True:
            if isinstance(node, Binary) and node.operator not in ("||", "&&"):
                spine.append(node)
                node = node.left
            elif isinstance(node, Call) and node.receiver is not None:
                spine.append(node)
                node = node.receiver
            else:
                break
        value = self._start(node)
        for outer in reversed(spine):
            if isinstance(outer, Binary):
                value = self._binary(outer, value, self.evaluate(outer.right))
            else:
                value = self._method(outer, value)
        return value

    def _start(self, node: Node) -> Any:
        if isinstance(node, Number):
            return node.value
        if isinstance(node, Call):
            return self._function(node)
        if isinstance(node, Text):
            return self._text(node)
        if isinstance(node, Literal):
            return node.value
        if isinstance(node, Symbol):
            return Name(node.name)
        if isinstance(node, Global):
            if node.name in ("input", "output"):
                return Input(node.name)
            found = self.names.get("$" + node.name, self)
            if found is self:
                raise Refusal(node.line, "$" + node.name, "not set in this deck")
            return found
        if isinstance(node, Range):
            low = None if node.low is None else self.evaluate(node.low)
            high = None if node.high is None else self.evaluate(node.high)
            return Span(low, high, node.exclusive)
        if isinstance(node, Unary):
            return self._unary(node)
        assert isinstance(node, Binary)
        left = self.evaluate(node.left)
        decided = left is not None and left is not False
        if node.operator == "&&":
            decided = not decided
        return left if decided else self.evaluate(node.right)

    def _arguments(self, node: Call) -> Arguments:
        values = [self.evaluate(item) for item in node.arguments]
        options = {key: self.evaluate(item) for key, item in node.options}
        for value in (*values, *options.values()):
            if isinstance(value, Nothing):
                raise Refusal(node.line, value.of, "its result cannot be used")
        return Arguments(node.name, values, options, node.line, self.dbu)

    def _text(self, node: Text) -> str:
        parts: list[str] = []
        for part in node.parts:
            parts.append(part if isinstance(part, str) else self._shown(self.evaluate(part), node.line))
        return _short("".join(parts), node.line)

    def _shown(self, value: Any, line: int) -> str:
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if is_number(value):
            return ruby_number(value)
        raise Refusal(line, "#{}", f"{describe(value)} cannot be shown")

    def _unary(self, node: Unary) -> Any:
        value = self.evaluate(node.operand)
        if node.operator == "-":
            if not is_number(value):
                raise Refusal(node.line, "-", f"of {describe(value)}")
            return -value
        if isinstance(value, Rule):
            return universal.invert(Arguments("!", [value], {}, node.line, self.dbu), value)
        if isinstance(value, (bool, type(None))):
            return not value
        raise Refusal(node.line, "!", f"of {describe(value)}")

    def _binary(self, node: Binary, left: Any, right: Any) -> Any:
        operator, line = node.operator, node.line
        args = Arguments(operator, [right], {}, line, self.dbu)
        if isinstance(left, Layer):
            named = {"&": "and", "-": "not", "|": "or", "^": "xor", "+": "join"}.get(operator)
            if named is None:
                raise Refusal(line, operator, "of layers")
            if isinstance(right, Rule) and operator in "&-|+":
                raise args.error("the other layer is expected")
            return self._call_method(Arguments(named, [right], {}, line, self.dbu), left)
        comparison = operator in ("<", "<=", ">", ">=", "==", "!=")
        if isinstance(left, (Rule, Limits)) or isinstance(right, (Rule, Limits)):
            if comparison:
                return universal.compare(args, operator, left, right)
            if isinstance(left, Rule):
                return universal.combine(args, operator, left, right)
            raise Refusal(line, operator, f"of {describe(left)}")
        if isinstance(left, str) and isinstance(right, str) and operator == "+":
            return _short(left + right, line)
        if is_number(left) and is_number(right) and not comparison:
            return self._arithmetic(args, left, right)
        raise Refusal(line, operator, f"of {describe(left)} and {describe(right)}")

    def _arithmetic(self, args: Arguments, left: Any, right: Any) -> int | float:
        left, right = args.number(left), args.number(right)
        whole = isinstance(left, int) and isinstance(right, int)
        if args.name in ("/", "%") and right == 0:
            raise args.error("divided by 0")
        made: int | float
        if args.name == "+":
            made = left + right
        elif args.name == "-":
            made = left - right
        elif args.name == "*":
            made = left * right
        elif args.name == "/":
            made = left // right if whole else left / right
        elif args.name == "%":
            made = left % right if whole else _modulo(float(left), float(right))
        else:
            raise args.refuse("of numbers")
        return args.number(made)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _function(self, node: Call) -> Any:
        """Return a variable, an option word, or what a function gives."""
        name = node.name
        if name in self.names:
            if node.brackets:
                raise Refusal(node.line, name, "a variable is called like a function")
            return self.names[name]
        if not node.brackets and name in functions.WORDS:
            return functions.WORDS[name]
        args = self._arguments(node)
        if args.values and isinstance(args.values[0], Layer) and name in METHODS and name in functions.LAYER_FUNCTIONS:
            two = name in functions.TWO_LAYER_FUNCTIONS
            if not two or (len(args.values) > 1 and isinstance(args.values[1], Layer)):
                rest = Arguments(name, args.values[1:], args.options, node.line, self.dbu)
                return self._call_method(rest, args.values[0])
        handler: Callable[[Deck, Arguments], Any] | None = functions.FUNCTIONS.get(name)
        if handler is None:
            raise Refusal(node.line, name, "not known")
        return handler(self, args)

    def _method(self, node: Call, receiver: Any) -> Any:
        args = self._arguments(node)
        if isinstance(receiver, Layer):
            if node.name == "output":
                return functions.output(self, receiver, args)
            return self._call_method(args, receiver)
        if isinstance(receiver, Rule):
            return functions.expression_method(args, receiver)
        if is_number(receiver):
            return self._number_method(args, receiver)
        if isinstance(receiver, SourceValue):
            return functions.source_method(self, receiver, args)
        if isinstance(receiver, tuple) and node.name == "[]":
            index = args.values[0]
            if not 0 <= index < len(receiver):
                raise Refusal(node.line, f"[{index}]", f"there are {len(receiver)} values")
            return receiver[index]
        if isinstance(receiver, str) and node.name == "to_s":
            args.count(0, 0)
            return receiver
        what = receiver.of if isinstance(receiver, Nothing) else describe(receiver)
        raise Refusal(node.line, node.name, f"not known on {what}")

    def _call_method(self, args: Arguments, layer: Layer) -> Any:
        method = METHODS.get(args.name)
        if method is None:
            raise args.refuse("not known on a layer")
        if layer.kind not in method.kinds:
            raise args.error(f"not for a layer of {layer.kind}")
        return method.handler(self.planner, layer, args)

    def _number_method(self, args: Arguments, value: Any) -> int | float:
        args.count(0, 0)
        name = args.name
        if name in _UNITS:
            factor = _UNITS[name]
            return float(value) if factor is None else args.number(value * factor)
        if name == "dbu":
            self.need_source(args)
            return args.number(value * self.dbu)
        if name == "to_f":
            return float(value)
        if name == "to_i":
            return int(value)
        if name == "abs":
            return args.number(abs(value))
        raise args.refuse("not known on a number")

    def need_source(self, args: Arguments) -> SourceValue:
        """Return the deck's layout.

        Raises:
            DeckError: ``source`` was not called yet.
        """
        if self.source is None:
            raise args.error("no layout: source($input) must come first")
        return self.source


def _modulo(left: float, right: float) -> float:
    made = math.fmod(left, right)
    return made + right if made and (made < 0) != (right < 0) else made


def _short(text: str, line: int) -> str:
    if len(text) > MOST_TEXT:
        raise Refusal(line, "string", f"longer than {MOST_TEXT} characters")
    return text


def ruby_number(value: int | float) -> str:
    """Write a number as Ruby's ``to_s`` does: ``1.0e-05`` where Python writes ``1e-05``."""
    text = repr(value)
    if isinstance(value, float) and "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    return text


__all__ = ["Deck", "DeckError", "compile_program", "ruby_number"]
