"""The traced operator graph: what the offline kernel proposer reads.

The kernel world traces a task's ``Model`` to core ATen operators with symbolic sizes (in a sandboxed child) and sends
the result as plain JSON; this module is its typed form. Sizes are Python expressions over size names (``s0`` ...), each
of which is a dimension of an input or parameter, so that one generated kernel serves every shape.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orienteer.syntax import parse_expression

#: A size: an expression over size names and integer constants, e.g. ``"s0"``, ``"8"``, ``"(s1 // 2)"``.
Size = str


@dataclass(frozen=True)
class Ref:
    """A reference to another node's value inside an operator's arguments."""

    name: str


@dataclass(frozen=True)
class SizeArg:
    """A size used as an operator's argument (``view`` sizes, ``mean``'s divisor)."""

    expr: Size


@dataclass(frozen=True)
class Node:
    """One value: an input, a parameter or the result of an operator."""

    name: str
    #: ``input``, ``state`` (parameter or buffer) or an ATen name such as ``aten.add.Tensor``.
    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[Size, ...] = ()
    #: ``float32``, ``int64`` ...
    dtype: str = "float32"

    @property
    def is_leaf(self) -> bool:
        """True for values that exist before the first kernel runs."""
        return self.op in ("input", "state")

    def permutation(self) -> list[int]:
        """Return which source dimension each dimension of a ``permute``, ``transpose`` or ``t`` comes from."""
        rank = len(self.shape)
        if self.op == "aten.permute":
            return [int(d) % rank for d in self.args[1]]
        order = list(range(rank))
        first, second = (int(self.args[1]) % rank, int(self.args[2]) % rank) if len(self.args) > 2 else (0, rank - 1)
        order[first], order[second] = order[second], order[first]
        return order

    def refs(self) -> Iterator[str]:
        """Yield the names of the values that this operator reads."""
        yield from _refs(self.args)
        yield from _refs(tuple(self.kwargs.values()))


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _refs(item)


@dataclass(frozen=True)
class Graph:
    """A traced operator."""

    nodes: Mapping[str, Node]
    #: Names of the output values, in order.
    outputs: tuple[str, ...]
    #: Positional inputs of ``forward`` by node name, in order; None where an argument is unused or not a tensor.
    inputs: tuple[str | None, ...]
    #: State names by node name: ``{"arg0_1": "linear.weight"}``.
    state: Mapping[str, str]
    #: Size name -> (node name, dimension) that defines it.
    sizes: Mapping[str, tuple[str, int]]
    #: Size name -> its value at the task's true shapes.
    hints: Mapping[str, int]
    #: True when ``forward`` returns one tensor rather than a tuple of them.
    single_output: bool = True
    #: Names that ``forward`` gives its arguments, by node name.
    labels: Mapping[str, str] = field(default_factory=dict)

    def value(self, size: Size) -> int:
        """Return a size at the task's true shapes."""
        return evaluate_size(size, self.hints)

    def numel(self, shape: Sequence[Size]) -> int:
        """Return the number of elements of a shape at the task's true shapes."""
        total = 1
        for size in shape:
            total *= self.value(size)
        return total


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def evaluate_size(size: Size, values: Mapping[str, int]) -> int:
    """Evaluate a size expression; only names, numbers, arithmetic, ``max`` and ``min`` are possible in it."""

    def walk(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            found = [walk(item) for item in node.args]
            return max(found) if node.func.id == "max" else min(found)
        raise ValueError(f"not a size expression: {size!r}")

    return int(walk(parse_expression(size)))


def graph_from_json(data: Mapping[str, Any]) -> Graph:
    """Build a graph from the plain form that the tracing child sends."""
    nodes = {}
    for item in data["nodes"]:
        nodes[item["name"]] = Node(
            name=item["name"],
            op=item["op"],
            args=tuple(_decode(arg) for arg in item["args"]),
            kwargs={key: _decode(value) for key, value in item["kwargs"].items()},
            shape=tuple(item["shape"]),
            dtype=item["dtype"],
        )
    return Graph(
        nodes=nodes,
        outputs=tuple(data["outputs"]),
        inputs=tuple(data["inputs"]),
        state=dict(data["state"]),
        sizes={key: (value[0], int(value[1])) for key, value in data["sizes"].items()},
        hints={key: int(value) for key, value in data["hints"].items()},
        single_output=bool(data["single_output"]),
        labels=dict(data.get("labels", {})),
    )


def _decode(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "ref" in value:
            return Ref(value["ref"])
        if "size" in value:
            return SizeArg(value["size"])
        if "float" in value:
            return float(value["float"])
        if "dtype" in value:
            return value["dtype"]
        raise ValueError(f"unknown argument in a traced graph: {value!r}")
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    return value
