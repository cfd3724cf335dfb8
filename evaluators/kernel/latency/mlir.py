"""Reading the text of MLIR modules: operations with their operands and regions, types of buffers, affine maps.

Only the printed form that the two compilers write is read (one operation a line). The text comes out of a sandbox and
is never trusted: nothing of it is evaluated as Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from orienteer.syntax import parse_expression

#: Longest module that is read, characters.
MAX_TEXT = 8 << 20
_LINE = re.compile(r"^((?:%[\w.$#:-]+(?:, )?)+) = (.*)$")
_NAME = re.compile(r'^"?([A-Za-z_][\w.$]*)"?')
_SSA = re.compile(r"%[\w.$-]+(?:#\d+)?")
_MAP = re.compile(r"^#(\w+) = affine_map<\(([^)]*)\)(?:\[([^\]]*)\])? -> \((.*)\)>$")
_FUNC = re.compile(r"^(?:func\.func|tt\.func)(?: public| private)? @([\w.$]+)\((.*)$")


class NotRead(Exception):
    """The text has a form that is not read; the message says which."""


@dataclass
class Op:
    """One operation."""

    name: str
    results: tuple[str, ...]
    #: Everything after the name, with attributes and types.
    text: str
    regions: list[list[Op]] = field(default_factory=list)
    #: What stands after the last closing brace: attributes of loops and branches.
    tail: str = ""

    def operands(self) -> list[str]:
        """Return the values that are read, in the order in which they are printed; types hold none."""
        return _SSA.findall(self.text)


@dataclass
class Function:
    """A function with a body."""

    name: str
    #: Names of the arguments with the text of their types.
    arguments: list[tuple[str, str]]
    #: Text of the attributes.
    attributes: str
    body: list[Op]


@dataclass
class Module:
    """What was read of a module."""

    functions: dict[str, Function]
    maps: dict[str, AffineMap]


def read(text: str) -> Module:
    """Read a module.

    Raises:
        NotRead: the text is too long or its braces do not match.
    """
    if len(text) > MAX_TEXT:
        raise NotRead(f"the module has {len(text)} characters, at most {MAX_TEXT} are read")
    maps: dict[str, AffineMap] = {}
    functions: dict[str, Function] = {}
    #: (operation whose last region is open, or None for the module, or a function)
    stack: list[Op | Function | None] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("//", "#loc", "^")):
            if line.startswith("^"):
                _current(stack).append(Op("block", (), line))
            continue
        if line.startswith("#"):
            found = _MAP.match(line)
            if found:
                maps[found[1]] = AffineMap(_names(found[2]), _names(found[3] or ""), found[4])
            continue
        line = _without_location(line)
        if line.startswith("module"):
            stack.append(None)
        elif line.startswith("}"):
            _close(line, stack)
        elif found := _FUNC.match(line):
            if line.endswith("{"):
                arguments, attributes = _signature(found[2])
                function = Function(found[1], arguments, attributes, [])
                functions[found[1]] = function
                stack.append(function)
        else:
            opens = line.endswith("{")
            op = _operation(line[:-1].rstrip() if opens else line)
            _current(stack).append(op)
            if opens:
                op.regions.append([])
                stack.append(op)
    if stack:
        raise NotRead("the module's braces do not match")
    return Module(functions, maps)


def _current(stack: Sequence[Op | Function | None]) -> list[Op]:
    if not stack or stack[-1] is None:
        return []
    top = stack[-1]
    return top.body if isinstance(top, Function) else top.regions[-1]


def _close(line: str, stack: list[Op | Function | None]) -> None:
    if not stack:
        raise NotRead("the module's braces do not match")
    top = stack[-1]
    if line.endswith("{") and isinstance(top, Op):  # "} else {", "} do {", "}, {"
        top.regions.append([])
        return
    if isinstance(top, Op):
        top.tail = line[1:].strip()
        if line.startswith("}) "):
            top.text += line[1:]
    stack.pop()


def _without_location(line: str) -> str:
    """Cut Triton's ``loc(...)`` at the end of a line; the brace that opens a region stays."""
    while True:
        cut = re.sub(r" loc\((?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\")*\))*\)(?=[,):]| \{|$)", "", line)
        if cut == line:
            return line
        line = cut


def _operation(line: str) -> Op:
    found = _LINE.match(line)
    results: tuple[str, ...] = ()
    if found:
        results = tuple(_results(found[1]))
        line = found[2]
    name = _NAME.match(line)
    if name is None:
        return Op("?", results, line)
    return Op(name[1], results, line[name.end() :])


def _results(text: str) -> Iterator[str]:
    for item in text.split(", "):
        base, _, count = item.partition(":")
        if count:
            yield from (f"{base}#{n}" for n in range(int(count)))
        else:
            yield base


def _signature(text: str) -> tuple[list[tuple[str, str]], str]:
    arguments = [
        (found[1], found[2])
        for found in re.finditer(r"(%[\w.$-]+): ((?:memref|tensor)<[^>]*(?:<[^>]*>[^>]*)*>|[!\w.<>]+)", text)
    ]
    _, _, attributes = text.partition(") attributes ")
    return arguments, attributes


def _names(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


# -- types -------------------------------------------------------------------------------------------------------------

_BITS = re.compile(r"(?:bf|f|i|u|ui|si|index)(\d*)")
_FLOAT8 = re.compile(r"f8\w*")


@dataclass(frozen=True)
class Buffer:
    """The type of a memref or tensor; None is an extent or a stride that is not written."""

    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    bits: int
    space: str
    element: str


def buffer_type(text: str) -> Buffer:
    """Read the last ``memref<...>`` or ``tensor<...>`` of a text.

    Raises:
        NotRead: there is none.
    """
    start = max(text.rfind("memref<"), text.rfind("tensor<"))
    if start < 0:
        raise NotRead(f"no buffer type in {text[:80]!r}")
    inner = text[start + 7 :]
    head = re.match(r"((?:(?:\d+|\?)x)*)(!?[\w.]+(?:<\w+>)?)", inner)
    if head is None:
        raise NotRead(f"no buffer type in {text[:80]!r}")
    sizes = tuple(None if item == "?" else int(item) for item in head[1].split("x") if item)
    strided = re.search(r"strided<\[([^\]]*)\]", inner)
    strides = None
    if strided:
        strides = tuple(None if item == "?" else int(item) for item in _names(strided[1]))
    space = re.search(r"address_space<(\w+)>", inner)
    return Buffer(sizes, strides, bits_of(head[2]), space[1] if space else "", head[2])


def bits_of(element: str) -> int:
    """Return the width of an element type in memory, bits."""
    pointer = re.fullmatch(r"!tt\.ptr<(\w+)>", element)
    if pointer:
        return bits_of(pointer[1])
    if _FLOAT8.fullmatch(element):
        return 8
    found = _BITS.fullmatch(element)
    if found is None:
        raise NotRead(f"element type {element!r}")
    return int(found[1]) if found[1] else 64


# -- affine maps -------------------------------------------------------------------------------------------------------


class AffineMap:
    """An affine map as a function from integers to integers.

    Args:
        dims: names of the dimensions.
        symbols: names of the symbols.
        body: the results, as printed.

    Raises:
        NotRead: an operator that affine expressions do not have.
    """

    def __init__(self, dims: Sequence[str], symbols: Sequence[str], body: str) -> None:
        self.names = [*dims, *symbols]
        # Python's own grammar has the same precedence; "@" stands for the division that rounds up.
        text = body.replace("floordiv", "//").replace("ceildiv", "@").replace(" mod ", " % ")
        try:
            tree = parse_expression(f"({text},)")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise NotRead(f"affine map {body[:80]!r}") from error
        position = {name: number for number, name in enumerate(self.names)}
        assert isinstance(tree, ast.Tuple)
        self.results = [_expression(item, position) for item in tree.elts]

    def __call__(self, values: Sequence[int]) -> list[int]:
        """Apply the map to its dimensions and symbols, in order."""
        return [result(values) for result in self.results]


_Value = Callable[[Sequence[int]], int]


def _expression(node: ast.AST, position: dict[str, int]) -> _Value:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        constant = node.value
        return lambda values: constant
    if isinstance(node, ast.Name) and node.id in position:
        number = position[node.id]
        return lambda values: values[number]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _expression(node.operand, position)
        return lambda values: -inner(values)
    if isinstance(node, ast.BinOp):
        left, right = _expression(node.left, position), _expression(node.right, position)
        if isinstance(node.op, ast.Add):
            return lambda values: left(values) + right(values)
        if isinstance(node.op, ast.Sub):
            return lambda values: left(values) - right(values)
        if isinstance(node.op, ast.Mult):
            return lambda values: left(values) * right(values)
        if isinstance(node.op, ast.FloorDiv):
            return lambda values: left(values) // right(values)
        if isinstance(node.op, ast.MatMult):
            return lambda values: -(-left(values) // right(values))
        if isinstance(node.op, ast.Mod):
            return lambda values: left(values) % right(values)
    raise NotRead("an affine expression of an unknown form")
