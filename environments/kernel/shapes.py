"""Scaling a task down: hidden small shapes from the integer constants of its file.

A task in KernelBench's form fixes its shapes by integers at module level and inside ``get_inputs`` and
``get_init_inputs``. Those integers are its *dimensions*. Rewriting them consistently gives the same operator at other
shapes; whether an assignment is valid (divisibility, matching sizes) is decided by running the reference on it.
Only the syntax tree is touched here, nothing is executed.
"""

from __future__ import annotations

import ast
import math
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orienteer.syntax import parse

#: Integers up to this are hyperparameters (window, stride, groups, heads ...), not sizes to scale.
SMALL = 16
#: Primes for tracing: distinct, so that every size of the traced graph names its origin.
TRACE_PRIMES = (17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_SHAPE_FUNCTIONS = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Dimension:
    """An integer of the task file that decides a shape."""

    #: The constant's name, or ``literal:4096@30:12`` for a number written inside the two functions.
    name: str
    value: int
    #: True when the constructor is given it: a number of channels, often a multiple of a number of groups.
    constructor: bool = True


def dimensions(source: str) -> tuple[Dimension, ...]:
    """Return the scalable dimensions of a task file in the order of their appearance."""
    found: dict[str, int] = {}
    tree = parse(source)
    only_inputs = _names_in(tree, "get_inputs") - _names_in(tree, "get_init_inputs")
    for name, value, _ in _constants(tree):
        # A small number that no constructor sees is a size (a batch), not a hyperparameter.
        if value > SMALL or (value > 1 and name in only_inputs):
            found[name] = value  # the last one that is assigned counts
    inside = {name for name, _, _ in _shape_literals(tree, ("get_inputs",))}
    for name, value, _ in _shape_literals(tree):
        if value > SMALL:
            found[name] = value
    free = only_inputs | inside
    return tuple(Dimension(name, value, name.split("[")[0] not in free) for name, value in found.items())


def rewrite(source: str, assignment: Mapping[str, int]) -> str:
    """Return the task file with the dimensions of ``assignment`` replaced.

    Positions of everything else are kept, so that tracebacks still name the right line.
    """
    tree = parse(source)
    edits: list[tuple[ast.expr, str]] = []
    for name, _, node in _constants(tree):
        if name in assignment:
            edits.append((node, str(assignment[name])))
    for name, _, literal in _shape_literals(tree):
        if name in assignment:
            edits.append((literal, str(assignment[name])))
    # Lines as Python counts them; other separators (a form feed) are characters of a line.
    lines = [line.encode() for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)]
    for node, text in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        end = node.end_lineno or node.lineno
        head = lines[node.lineno - 1][: node.col_offset]
        tail = lines[end - 1][node.end_col_offset :]
        lines[node.lineno - 1 : end] = [head + text.encode() + tail, *[b""] * (end - node.lineno)]
    return b"".join(lines).decode()


_FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def folded(node: ast.expr) -> int | None:
    """Return the value of an integer, or of arithmetic on integers such as ``1024 * 4`` or ``2 ** 12``, else None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        return folded(node.args[0])
    if isinstance(node, ast.BinOp):
        left, right = folded(node.left), folded(node.right)
        if left is None or right is None or max(abs(left), abs(right)) > 1 << 40:
            return None
        if isinstance(node.op, ast.Pow):
            return left**right if 0 <= right <= 40 and abs(left) <= 16 else None
        if type(node.op) in _FOLDED and (right != 0 or isinstance(node.op, (ast.Add, ast.Sub, ast.Mult))):
            return _FOLDED[type(node.op)](left, right)
    return None


def _constants(tree: ast.Module) -> list[tuple[str, int, ast.expr]]:
    """Module-level ``NAME = integer`` (also annotated, and tuples of integers as ``NAME[0]`` ...)."""
    out: list[tuple[str, int, ast.expr]] = []

    def add(name: str, node: ast.expr) -> None:
        value = folded(node)
        if value is not None:
            out.append((name, value, node))

    for node in tree.body:
        if isinstance(node, ast.Assign):
            # `height = width = 32` is one dimension: both names stand for the same number.
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            add(target.id, value)
            if isinstance(value, (ast.Tuple, ast.List)):
                for position, item in enumerate(value.elts):
                    add(f"{target.id}[{position}]", item)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for name, item in zip(target.elts, value.elts, strict=True):
                if isinstance(name, ast.Name):
                    add(name.id, item)
    return out


def _shape_literals(
    tree: ast.Module, functions: Sequence[str] = _SHAPE_FUNCTIONS
) -> list[tuple[str, int, ast.Constant]]:
    """Numbers inside the shape functions; equal ones are told apart, for a height need not be a width."""
    out: list[tuple[str, int, ast.Constant]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            for item in ast.walk(node):
                if isinstance(item, ast.Constant) and type(item.value) is int:
                    out.append((f"literal:{item.value}@{item.lineno}:{item.col_offset}", item.value, item))
    return out


def _names_in(tree: ast.Module, function: str) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return set()


def assignments(dims: Sequence[Dimension], rng: random.Random) -> list[tuple[str, dict[str, int]]]:
    """Propose hidden assignments of small sizes, most telling first, each with the reason for it.

    They include size 1, primes, sizes that are no multiple of any block, one long dimension (so that kernels with a
    loop over blocks take more than one turn), and shapes in the task's own proportions, which satisfy divisibility.
    Not every one is valid for every task: the reference decides.
    """
    if not dims:
        return [("as given", {})]
    out: list[tuple[str, dict[str, int]]] = []
    primes = [3, 5, 7, 11, 13, 17, 19, 23]

    def each(draw: object) -> dict[str, int]:
        return {dim.name: draw(dim) for dim in dims}  # type: ignore[operator]

    def tied(values: Mapping[int, int]) -> dict[str, int]:
        return {dim.name: values[dim.value] for dim in dims}

    distinct = sorted({dim.value for dim in dims})
    shuffled = rng.sample(primes, k=len(primes))
    out.append(("primes", {dim.name: shuffled[i % len(shuffled)] for i, dim in enumerate(dims)}))
    for position in range(len(dims) - 1, -1, -1):
        # One long dimension after another, the last one longer than the blocks in which rows are usually walked.
        long = rng.choice([2053, 4099, 4129]) if position == len(dims) - 1 else rng.choice([263, 521])
        out.append(
            (
                f"long {dims[position].name}",
                {dim.name: long if i == position else rng.choice([2, 3]) for i, dim in enumerate(dims)},
            )
        )
    if len(dims) <= 2:
        # More elements than a launch of a few dozen blocks covers in one turn.
        out.append(
            ("many", {dim.name: rng.choice([41, 43, 47]) if i < len(dims) - 1 else 2111 for i, dim in enumerate(dims)})
        )
    out.append(("first is one", {dim.name: 1 if i == 0 else rng.choice([9, 15, 33]) for i, dim in enumerate(dims)}))
    out.append(("last is one", {d.name: 1 if i == len(dims) - 1 else rng.choice([9, 17]) for i, d in enumerate(dims)}))
    out.append(
        ("off the block", each(lambda dim: rng.choice([33, 47, 65, 67]) if len(dims) <= 3 else rng.choice([9, 17])))
    )
    if len(dims) >= 3:
        out.append(("few", each(lambda dim: rng.choice([3, 4, 5]))))
        out.append(("few, odd", each(lambda dim: rng.choice([5, 7]))))
    out.append(("tied primes", tied({value: shuffled[i % len(shuffled)] for i, value in enumerate(distinct)})))
    out.append(("tied off the block", tied({value: rng.choice([18, 34, 66]) for value in distinct})))
    for divisor_target in (64, 32, 16, 128):
        # In proportion: powers of two keep the divisibility that the task relies on.
        factor = max(1, distinct[-1] // divisor_target)
        out.append((f"in proportion, largest {divisor_target}", tied({v: max(1, v // factor) for v in distinct})))
        floor = tied({v: max(SMALL, v // factor) if v % SMALL == 0 else max(1, v // factor) for v in distinct})
        out.append((f"in proportion, at least {SMALL}", floor))
    out.append(("powers of two", each(lambda dim: rng.choice([16, 32]))))
    if any(dim.constructor for dim in dims) and any(not dim.constructor for dim in dims):
        # Channels keep the divisibility by a number of groups; batches and pictures may be anything.
        for most, sizes in ((8, (2, 3, 7)), (16, (5, 9)), (32, (3, 11)), (8, (13, 17)), (4, (2, 19, 23))):
            out.append(
                (
                    f"divisible by {most}",
                    each(
                        lambda dim, most=most, sizes=sizes: (
                            math.gcd(dim.value, most) * rng.choice([1, 1, 3]) if dim.constructor else rng.choice(sizes)
                        )
                    ),
                )
            )
    unique: list[tuple[str, dict[str, int]]] = []
    for reason, assignment in out:
        if all(assignment != other for _, other in unique):
            unique.append((reason, assignment))
    return unique


def trace_assignments(dims: Sequence[Dimension]) -> list[dict[str, int]]:
    """Propose assignments for tracing: distinct primes first, then forms that satisfy divisibility or equality."""
    if not dims:
        return [{}]
    values = sorted({dim.value for dim in dims})
    by_name = {dim.name: TRACE_PRIMES[i % len(TRACE_PRIMES)] for i, dim in enumerate(dims)}
    by_value = {dim.name: TRACE_PRIMES[values.index(dim.value) % len(TRACE_PRIMES)] for dim in dims}
    out = [by_name, by_value]
    # A group count or a number of heads divides one size, or several; those that a constructor is given come first.
    channels = [dim for dim in dims if dim.constructor]
    for base in (by_name, by_value):
        for factor in (2, 4, 8, 16, 32, 64):
            out.extend({**base, dim.name: factor * base[dim.name]} for dim in dims)
            out.append({**base, **{dim.name: factor * base[dim.name] for dim in channels}})
            out.append({name: factor * value for name, value in base.items()})
    unique: list[dict[str, int]] = []
    for item in out:
        if item not in unique:
            unique.append(item)
    return unique
