"""HIVM of the 950 series: functions of basic blocks that jump, and vector functions of single instructions.

The compiler for the 950 ends one step lower than that for the 910: loops are jumps, and the vector unit's work stands
in functions of their own (one instruction for a register of 256 bytes). A loop is recognised by the block that compares
its counter; when it has become steady its middle is skipped, as for ``scf.for``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orienteer.evaluators.kernel.latency.core import Core, Unmodelled
from orienteer.evaluators.kernel.latency.mlir import Function, Op

_LABEL = re.compile(r"\^(\w+)(?:\((.*?)\))?:")
_TARGET = re.compile(r"\^(\w+)(?:\(([^)]*?)(?: : [^)]*)?\))?")
_SSA = re.compile(r"%[\w.$-]+(?:#\d+)?")
#: Cycles of a vector function that do not depend on its data: its call and its first instructions.
_CALL = 30.0
#: Instructions that take more than a cycle for a register; assumed.
_SLOW = {"vexp": 2.0, "vexpdif": 2.0, "vln": 2.0, "vsqrt": 2.0, "vdiv": 2.0, "vcadd": 2.0, "vcmax": 2.0, "vcmin": 2.0}
#: Predicates have a unit of their own.
_PREDICATES = ("pge", "plt", "pset", "pand", "por", "pnot", "pxor", "ppack", "punpack")
MAX_INSTRUCTIONS = 200_000


@dataclass
class Jump:
    """The end of a block: for a condition two targets, else one; none returns."""

    condition: str | None
    #: Label and the values that are handed over.
    targets: list[tuple[str, list[str]]]


@dataclass
class BasicBlock:
    """Operations between a label and a jump."""

    label: str
    parameters: list[str]
    ops: list[Op] = field(default_factory=list)
    jump: Jump = field(default_factory=lambda: Jump(None, []))


def split(function: Function) -> list[BasicBlock]:
    """Split a function into its basic blocks, in the order in which they are printed.

    Raises:
        Unmodelled: a jump of an unknown form.
    """
    blocks = [BasicBlock("bb0", [])]
    for op in function.body:
        if op.name == "block":
            found = _LABEL.match(op.text)
            if found is None:
                raise Unmodelled("a label of an unknown form")
            blocks.append(BasicBlock(found[1], _SSA.findall(found[2] or "")))
        elif op.name in ("cf.br", "cf.cond_br"):
            targets = [(label, _SSA.findall(values)) for label, values in _TARGET.findall(op.text)]
            condition = op.operands()[0] if op.name == "cf.cond_br" else None
            if len(targets) != (2 if condition else 1):
                raise Unmodelled("a jump of an unknown form")
            blocks[-1].jump = Jump(condition, targets)
        elif op.name not in ("return", "func.return"):
            blocks[-1].ops.append(op)
    return blocks


def is_jumping(function: Function) -> bool:
    """Return whether a function is made of basic blocks."""
    return any(op.name == "block" for op in function.body)


def counter(block: BasicBlock) -> tuple[str, str] | None:
    """Return the counter and the bound of a loop's head, or None when the block is not one."""
    if not block.parameters or block.jump.condition is None:
        return None
    for op in block.ops:
        if op.name == "arith.cmpi" and op.results[0] == block.jump.condition:
            left, right = op.operands()[:2]
            if left == block.parameters[0] and op.text.strip().startswith("slt"):
                return left, right
    return None


def loops_with(blocks: Sequence[BasicBlock], labels: set[str]) -> set[str]:
    """Return the heads of loops that hold one of some blocks."""
    order = {block.label: number for number, block in enumerate(blocks)}
    found = set()
    for number, block in enumerate(blocks):
        for target, _ in block.jump.targets:
            start = order.get(target, number + 1)
            if start <= number and any(one.label in labels for one in blocks[start : number + 1]):
                found.add(target)
    return found


class VectorFunction:
    """A function that runs on the vector unit.

    Args:
        function: it.
        compute: runs a scalar operation on an environment.
    """

    def __init__(self, function: Function, compute: Any) -> None:
        self.function = function
        self._blocks = {block.label: block for block in split(function)}
        self._compute = compute
        self._known: dict[tuple[int | None, ...], float] = {}

    def run(self, core: Core, arguments: Sequence[Any]) -> None:
        """Occupy the vector unit."""
        key = tuple(value if isinstance(value, int) else None for value in arguments)
        if key not in self._known:
            self._known[key] = self._cycles(arguments)
        core.issue("V", self._known[key], _CALL)

    def _cycles(self, arguments: Sequence[Any]) -> float:
        env: dict[str, Any] = dict(zip((name for name, _ in self.function.arguments), arguments, strict=True))
        moves = computes = 0.0
        walked = 0
        block: BasicBlock | None = self._blocks["bb0"]
        while block is not None:
            walked += len(block.ops) + 1
            if walked > MAX_INSTRUCTIONS:
                raise Unmodelled(f"a vector function of more than {MAX_INSTRUCTIONS} instructions")
            for op in block.ops:
                kind = instruction(op)
                if kind is None:
                    self._compute(op, env)
                elif kind.startswith(("vld", "vst", "vsst", "vgather", "vscatter", "vload", "masked_store")):
                    moves += 1
                elif not kind.startswith(_PREDICATES):
                    computes += _SLOW.get(kind.partition(".")[0], 1.0)
            block = follow(block, self._blocks, env)
        # Loads and stores are issued beside computing.
        return max(moves, computes) + _CALL


def instruction(op: Op) -> str | None:
    """Return the name of a vector instruction, or None for scalar operations.

    Raises:
        Unmodelled: a call that is not known to be one.
    """
    if op.name.startswith("hivm_regbaseintrins.intr.hivm."):
        return op.name.removeprefix("hivm_regbaseintrins.intr.hivm.")
    if op.name in ("call", "func.call"):
        found = re.match(r"\s*@(?:_mlir_ciface_)?(v[a-z]+|masked_store)\w*\(", op.text)
        if found is None:
            raise Unmodelled(f"a call in a vector function:{op.text[:60]}")
        return found[1]
    return None


def follow(block: BasicBlock, blocks: Mapping[str, BasicBlock], env: dict[str, Any]) -> BasicBlock | None:
    """Take a block's jump: hands values over and returns the next block, or None at the end.

    Raises:
        Unmodelled: the condition depends on data.
    """
    jump = block.jump
    if not jump.targets:
        return None
    chosen = jump.targets[0]
    if jump.condition is not None:
        condition = env.get(jump.condition)
        if condition is None:
            raise Unmodelled("a branch depends on data")
        chosen = jump.targets[0 if condition else 1]
    target = blocks[chosen[0]]
    values = [env.get(name) for name in chosen[1]]
    for name, value in zip(target.parameters, values, strict=True):
        env[name] = value
    return target


def walk(
    blocks: Sequence[BasicBlock],
    steps: Mapping[str, Any],
    core: Core,
    env: dict[str, Any],
    run: Any,
    skip: Any,
) -> Iterator[int]:
    """Walk a function of basic blocks on a core.

    Args:
        blocks: in order; the first one is the entry.
        steps: by label, what ``run`` takes for the block's operations.
        core: where.
        env: values by name.
        run: runs steps; a generator of the flags that the core waits for.
        skip: called at a loop's head with its history, the counter's value, its bound and whether the loop was entered
            anew; may move everything on and returns how far the counter moved.
    """
    named = {block.label: block for block in blocks}
    order = {block.label: number for number, block in enumerate(blocks)}
    history: dict[str, list[Any]] = {}
    block: BasicBlock | None = blocks[0]
    came_from = -1
    while block is not None:
        bound = counter(block)
        if bound is not None:
            entered = came_from < order[block.label]
            if entered:
                history[block.label] = []
            skip(history[block.label], block, env.get(bound[1]), core, env)
        came_from = order[block.label]
        yield from run(steps[block.label], core, env)
        block = follow(block, named, env)
