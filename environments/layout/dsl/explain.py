"""A deck in an engineer's words: what each category flags, of which drawn layers, by which limit, what it lets pass."""

from __future__ import annotations

from orienteer.environments.layout.dsl.methods import METHODS
from orienteer.environments.layout.dsl.tree import (
    Assign,
    Binary,
    Call,
    Global,
    Literal,
    Node,
    Number,
    Program,
    Range,
    Symbol,
    Text,
    Unary,
)

_UNITS = {"um": "um", "micron": "um", "nm": "nm", "mm": "mm", "um2": "um2", "micron2": "um2", "nm2": "nm2"}
_UNITS |= {"degree": "degrees", "dbu": "database units", "m": "m", "mm2": "mm2", "m2": "m2"}

#: One-layer checks: what is flagged.
_CHECKS = {
    "width": "where {a} is narrower than {v}",
    "space": "where the space of {a} is less than {v}, between shapes and within one",
    "notch": "notches of {a} narrower than {v}, within one shape",
    "isolated": "where two shapes of {a} are closer than {v}",
}
#: Two-layer checks.
_PAIRS = {
    "separation": "where {a} is closer than {v} to {b}",
    "enclosing": "where {a} reaches less than {v} beyond {b} inside it",
    "enclosed": "where {a} lies less than {v} inside {b}",
    "overlap": "where {a} and {b} overlap by less than {v}",
}
_SHORT = {"iso": "isolated", "sep": "separation", "enc": "enclosing"}
#: What a check lets pass.
_GAPS = {
    "isolated": "isolated does not see notches of one shape (space does)",
    "notch": "notch does not see the space between shapes (space does)",
    "separation": "separation does not flag overlaps, nor shapes that lie one within the other",
    "enclosing": "enclosing does not flag what lies outside or crosses by far; that takes a coverage clause",
    "enclosed": "enclosed does not flag what lies outside or crosses by far; that takes a coverage clause",
    "overlap": "overlap does not flag shapes that do not overlap at all",
}
_BOOLEANS = {
    "and": "and",
    "&": "and",
    "not": "outside of",
    "-": "outside of",
    "or": "or",
    "|": "or",
    "xor": "xor",
    "^": "xor",
}
_BOOLEANS |= {"join": "together with", "+": "together with"}
_SELECTIONS = {
    "interacting": "touching or overlapping",
    "not_interacting": "neither touching nor overlapping",
    "overlapping": "overlapping",
    "not_overlapping": "not overlapping",
    "inside": "wholly inside",
    "not_inside": "not wholly inside",
    "outside": "wholly outside",
    "not_outside": "not wholly outside",
    "covering": "wholly covering",
    "not_covering": "not wholly covering",
    "in": "that are also shapes of",
    "not_in": "that are not shapes of",
    "inside_part": "cut to the inside of",
    "outside_part": "cut to the outside of",
    "pull_interacting": "picking the shapes that touch them from",
}
_SELECTIONS |= {f"select_{name}": words for name, words in list(_SELECTIONS.items()) if "part" not in name}
_WORDS = {
    "projection": "measured by projection",
    "square": "measured with square corners",
    "whole_edges": "whole edges are shown",
    "transparent": "through other shapes",
    "negative": "turned round: what passes is flagged",
}
_METRICS = ("euclidian", "projection", "square")


def explain(program: Program) -> list[str]:
    """Return lines that say what a deck reports: one per category, and below it what to know of it (indented)."""
    return _Words().lines(program)


class _Words:
    def __init__(self) -> None:
        self.named: dict[str, str] = {}
        self.notes: dict[str, list[str]] = {}
        self.current: list[str] = []
        self.sizes = 0

    def lines(self, program: Program) -> list[str]:
        made: list[str] = []
        for statement in program.statements:
            self.current = []
            if isinstance(statement, Assign):
                words = self.value(statement.value)
                for name in statement.names:
                    self.named[name] = words if len(words) <= 1200 else name
                    self.notes[name] = list(self.current)
                continue
            value = statement.value
            if not isinstance(value, Call):
                continue
            if value.name == "report" and value.arguments:
                made.append(f"report {self.value(value.arguments[0])}")
            elif value.name == "output":
                made += self._output(value)
            elif value.receiver is not None:
                # A call for its own sake changes a variable in place.
                words = self.value(value)
                if isinstance(value.receiver, Call) and value.receiver.name in self.named:
                    self.named[value.receiver.name] = words
        return made or ["the deck reports nothing"]

    def _output(self, call: Call) -> list[str]:
        arguments = list(call.arguments)
        layer = call.receiver if call.receiver is not None else arguments.pop(0) if arguments else None
        if layer is None or not arguments:
            return []
        words = self.value(layer)
        lines = [f"{self.value(arguments[0]).strip(chr(34))} (line {call.line}): {words}"]
        if len(arguments) > 1:
            lines.append(f"  the deck says: {self.value(arguments[1])}")
        lines += [f"  note: {note}" for note in dict.fromkeys(self.current)]
        return [line.replace(_RAW, "") for line in lines]

    # --- expressions --------------------------------------------------------------------------------------------------

    def value(self, node: Node) -> str:
        """Return an expression in words; left spines by a loop, since chains may be long."""
        spine: list[Call | Binary] = []
        while True:
            if isinstance(node, Binary):
                spine.append(node)
                node = node.left
            elif isinstance(node, Call) and node.receiver is not None:
                spine.append(node)
                node = node.receiver
            else:
                break
        words, number = self._start(node), _literal(node)
        for outer in spine[::-1]:
            if isinstance(outer, Binary):
                joined = outer.operator if number else _BOOLEANS.get(outer.operator, outer.operator)
                words = f"({words} {joined} {self.value(outer.right)})"
            elif number and outer.name in _UNITS:
                words = f"{number} {_UNITS[outer.name]}"
                number = ""
            else:
                words = self._method(outer, words)
            if len(words) > 2000:
                words = words[:1997] + "..."
        return words

    def _start(self, node: Node) -> str:
        if isinstance(node, Number):
            # A whole number without a unit counts database units where a length is meant.
            return f"{node.value}{_RAW}" if isinstance(node.value, int) else f"{node.value} um"
        if isinstance(node, Text):
            return '"' + "".join(part if isinstance(part, str) else self.value(part) for part in node.parts) + '"'
        if isinstance(node, Symbol):
            return node.name
        if isinstance(node, Literal):
            return {None: "nothing", True: "yes", False: "no"}[node.value]
        if isinstance(node, Global):
            return "$" + node.name
        if isinstance(node, Range):
            low = "any" if node.low is None else self.value(node.low)
            high = "any" if node.high is None else self.value(node.high)
            return f"{low} to {high}"
        if isinstance(node, Unary):
            return ("-" if node.operator == "-" else "not ") + self.value(node.operand)
        assert isinstance(node, Call)
        if node.name in self.named and not node.brackets:
            self.current += self.notes.get(node.name, [])
            return self.named[node.name]
        if node.name in ("input", "polygons", "edges", "labels", "edge_pairs"):
            numbers = "/".join(self.value(item).removesuffix(_RAW) for item in node.arguments).strip('"')
            kind = {"input": "layer", "polygons": "polygons of layer", "labels": "texts of layer"}.get(node.name)
            return (
                f"{kind or node.name.replace('_', ' ') + ' of layer'} {numbers if '/' in numbers else numbers + '/0'}"
            )
        if node.name == "extent":
            return "the layout's extent"
        name = _SHORT.get(node.name, node.name)
        if node.arguments and (name in _CHECKS or name in _PAIRS or name in METHODS) and self._layer(node.arguments[0]):
            first = self.value(node.arguments[0])
            return self._method(Call(None, node.name, node.arguments[1:], node.options, True, node.line), first)
        arguments = ", ".join(self.value(item) for item in node.arguments)
        return f"{node.name.replace('_', ' ')}({arguments})" if node.brackets else node.name.replace("_", " ")

    def _layer(self, node: Node) -> bool:
        while isinstance(node, Call) and node.receiver is not None:
            node = node.receiver
        if not isinstance(node, Call):
            return False
        # A name may stand for a length too.
        return node.name == "input" or not self.named.get(node.name, "0")[:1].isdigit()

    def _method(self, node: Call, words: str) -> str:
        name = _SHORT.get(node.name, node.name)
        if name in _CHECKS or name in _PAIRS:
            return self._check(name, node, words)
        arguments = [self.value(item) for item in node.arguments]
        arguments += [f"{key} {self.value(item)}" for key, item in node.options]
        if name in _BOOLEANS and arguments:
            return f"({words} {_BOOLEANS[name]} {arguments[0]})"
        if name in _SELECTIONS and arguments:
            counts = (
                f" (count {' to '.join(item.removesuffix(_RAW) for item in arguments[1:])})" if arguments[1:] else ""
            )
            return f"({words} {_SELECTIONS[name]} {arguments[0]}{counts})"
        if name == "drc" and arguments:
            if any("==" in item or "<=" in item or "!=" in item for item in arguments):
                self.current.append("two bounds, ==, and != of a check give edges, not edge pairs")
            return f"{words} where {arguments[0]}"
        if name.startswith(("with_", "without_")):
            return self._filter(name, arguments, words)
        if name == "sized" or name == "size":
            return f"{words} grown by {', '.join(arguments)}".replace("grown by -", "shrunk by ")
        if name == "polygons":
            return words
        if name in ("raw", "clean"):
            return f"{words} ({'shapes as drawn, not merged' if name == 'raw' else 'merged'})"
        if name in ("first_edges", "second_edges", "edges"):
            return f"{name.replace('_', ' ')} of {words}"
        plain = name.replace("_", " ")
        return f"{plain}({', '.join(arguments)}) of {words}" if arguments else f"{plain} of {words}"

    def _check(self, name: str, node: Call, words: str) -> str:
        limit, other, extra = "?", "?", []
        metric = "euclidian"
        for argument in node.arguments:
            word = argument.name if isinstance(argument, Call) and argument.receiver is None else ""
            if word in _METRICS:
                metric = word
            elif word in _WORDS:
                extra.append(_WORDS[word])
            elif self._layer(argument):
                other = self.value(argument)
            elif isinstance(argument, Number) or _is_length(argument):
                limit = self.value(argument)
                if isinstance(argument, Number) and isinstance(argument.value, int):
                    self.current.append(f"{argument.value} has no unit: it counts database units (0.001 um as a rule)")
            else:
                extra.append(self.value(argument))
        if limit == "?" and node.arguments:
            # A limit that is computed, or has a name.
            for argument in node.arguments:
                if (
                    isinstance(argument, Call)
                    and argument.name in self.named
                    and self.named[argument.name][:1].isdigit()
                ):
                    limit = self.named[argument.name]
        limit = limit.removesuffix(_RAW) + (" database units" if limit.endswith(_RAW) else "")
        if metric != "euclidian":
            extra.insert(0, _WORDS[metric])
            if metric == "projection":
                self.current.append("projection does not see corners that lie diagonally from each other")
        if name in _GAPS:
            self.current.append(_GAPS[name])
        template = _CHECKS.get(name) or _PAIRS[name]
        made = template.format(a=words, b=other, v=limit)
        return made + (f" ({', '.join(extra)})" if extra else "")

    def _filter(self, name: str, arguments: list[str], words: str) -> str:
        quantity = name.removeprefix("without_").removeprefix("with_").replace("_", " ")
        verb = "with no" if name.startswith("without_") else "with"
        if len(arguments) == 2 and "density" not in name:
            low, high = arguments
            self.current.append(f"the upper bound of {quantity} is exclusive: a value equal to it is not selected")
            if low == "nothing":
                return f"{words} {verb} {quantity} below {high}"
            if high == "nothing":
                return f"{words} {verb} {quantity} of {low} or more"
            return f"{words} {verb} {quantity} from {low} to below {high}"
        return f"{words} {verb} {quantity} {', '.join(arguments)}".rstrip()


#: Marks a whole number that no unit follows.
_RAW = "\u200b"


def _literal(node: Node) -> str:
    """Return a number as written, with its sign; nothing for another node."""
    if isinstance(node, Unary) and node.operator == "-" and isinstance(node.operand, Number):
        return f"-{node.operand.value}"
    return str(node.value) if isinstance(node, Number) else ""


def _is_length(node: Node) -> bool:
    while isinstance(node, Call) and node.receiver is not None and node.name in _UNITS:
        node = node.receiver
    if isinstance(node, Binary):
        return _is_length(node.left) and node.operator in "+-*/"
    return isinstance(node, Number)
