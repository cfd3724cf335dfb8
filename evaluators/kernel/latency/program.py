"""Running a HIVM function on the model of a core: scalars are computed, buffers are sizes and strides, calls cost.

Integers are computed exactly, so trip counts, tails and masks are those of the launch. What depends on the tensors'
values is unknown; a size, a trip count or a branch that needs it ends the run with :class:`Unmodelled`. A loop that has
become steady (each turn moves every clock by the same amount) is not walked to its end: its middle is skipped, its last
turns are walked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orienteer.evaluators.kernel.latency import blocks, scalars, steady
from orienteer.evaluators.kernel.latency.chips import ASSUMED
from orienteer.evaluators.kernel.latency.core import Core, Ref, Unmodelled
from orienteer.evaluators.kernel.latency.costs import Cost, cost_of
from orienteer.evaluators.kernel.latency.mlir import AffineMap, Function, NotRead, Op, bits_of, buffer_type

#: Most operations that are walked for one program instance.
MAX_STEPS = 400_000
_SSA = re.compile(r"%[\w.$-]+(?:#\d+)?")
_PIPE = re.compile(r"<PIPE_(\w+)>")
_EVENT = re.compile(r"<EVENT_ID(\d+)>")
_FLAG = re.compile(r"flag = (%[\w.$-]+|\d+)")

Env = dict[Any, Any]
Step = Callable[[Core, Env], None]
#: What a core waits for that another core must signal: the number of the flag.
Waiting = Iterator[int]


@dataclass
class Loop:
    """A compiled ``scf.for``."""

    variable: str
    low: str
    high: str
    step: str
    carried: list[tuple[str, str]]
    results: tuple[str, ...]
    body: Block
    #: It talks to another core, so no turn can be skipped.
    crosses: bool


@dataclass
class Branch:
    """A compiled ``scf.if``."""

    condition: str
    results: tuple[str, ...]
    then: Block
    other: Block
    unlikely: bool
    #: Nothing in it reaches a pipe.
    scalar: bool


@dataclass
class CrossWait:
    """Waiting for a flag of another core."""

    flag: str | int


@dataclass
class Block:
    """A compiled region."""

    steps: list[Step | Loop | Branch | CrossWait] = field(default_factory=list)
    yields: tuple[str, ...] = ()
    scalar: bool = True
    crosses: bool = False


class Program:
    """A compiled function.

    Raises:
        Unmodelled: an operation or a library function is not known.
    """

    def __init__(
        self, function: Function, maps: dict[str, AffineMap], others: Mapping[str, Function] | None = None
    ) -> None:
        self.function = function
        self._others = others or {}
        self._vector: dict[str, blocks.VectorFunction] = {}
        self._single: dict[int, Step] = {}
        self._maps = maps
        #: What an equal text computed before, and the values of the regions round it: the back end computes these once.
        self._known: list[dict[str, str]] = []
        self._depth: dict[str, int] = {name: 0 for name, _ in function.arguments}
        self._canonical: dict[str, str] = {}
        self._jumping = blocks.split(function) if blocks.is_jumping(function) else []
        self._parts = {part.label: self._block(part.ops) for part in self._jumping}
        self.body = Block() if self._jumping else self._block(function.body)
        self._crossing = blocks.loops_with(self._jumping, {n for n, part in self._parts.items() if part.crosses})
        #: Outermost loops that talk to another core.
        self.crossing_loops = sum(isinstance(step, Loop) and step.crosses for step in self.body.steps)

    # -- compiling -------------------------------------------------------------------------------------------------

    def _block(self, ops: Sequence[Op]) -> Block:
        block = Block()
        self._known.append({})
        for op in ops:
            self._compile(op, block)
        self._known.pop()
        return block

    def _compile(self, op: Op, block: Block) -> None:
        depth = len(self._known)
        for name in op.results:
            self._depth[name] = depth
        if op.name in ("scf.yield", "return", "func.return"):
            block.yields = tuple(op.operands())
            return
        if op.name == "scf.for":
            self._loop(op, block)
            return
        if op.name == "scf.if":
            self._branch(op, block)
            return
        if op.name.startswith("hivm."):
            self._instruction(op, block)
            return
        if op.name in ("func.call", "call"):
            found = re.match(r"\s*@([\w.$]+)\(([^)]*)\)(?: \{[^}]*\})? : \((.*)\) -> ", op.text)
            if found is None:
                raise Unmodelled("a call that is not read")
            names, types = _SSA.findall(found[2]), _split(found[3])
            if len(names) != len(types):
                raise Unmodelled(f"the arguments of {found[1]}")
            run = self._called(found[1])
            block.steps.append(lambda core, env: run(core, [env.get(name) for name in names], types))
            block.scalar = False
            return
        step = scalars.compile_op(op, self._maps)
        cost = self._scalar_cost(op)
        if cost:
            block.steps.append(lambda core, env: core.scalar(cost))
        block.steps.append(step)
        if op.name in ("memref.load", "memref.store"):
            block.scalar = False

    def _called(self, name: str) -> Cost:
        function = self._others.get(name)
        if function is None:
            return cost_of(name)
        if "hivm.vector_function" not in function.attributes:
            raise Unmodelled(f"the function {name}")
        if name not in self._vector:
            self._vector[name] = blocks.VectorFunction(function, self._compute)
        vector = self._vector[name]
        return lambda core, arguments, types: vector.run(core, arguments)

    def _compute(self, op: Op, env: Env) -> None:
        """Run a scalar operation by itself."""
        if op.results or op.name.startswith("memref."):
            step = self._single.get(id(op))
            if step is None:
                step = self._single[id(op)] = scalars.compile_op(op, self._maps)
            step(None, env)  # type: ignore[arg-type]

    def _scalar_cost(self, op: Op) -> float:
        """Return the scalar unit's cycles; equal computations and those of outer regions are done once."""
        cost = scalars.cost(op)
        if not cost or not op.results or op.name == "memref.load":
            return cost
        key = op.name + _SSA.sub(lambda found: self._canonical.get(found[0], found[0]), op.text)
        for known in self._known:
            if key in known:
                self._canonical[op.results[0]] = known[key]
                return 0.0
        # A value that no loop round it changes is computed before that loop.
        depth = max([self._depth.get(name, 0) for name in op.operands()], default=0)
        self._known[max(0, min(depth, len(self._known)) - 1)][key] = op.results[0]
        self._depth[op.results[0]] = max(1, depth)
        return cost if depth >= len(self._known) else 0.0

    def _instruction(self, op: Op, block: Block) -> None:
        short = op.name.removeprefix("hivm.hir.")
        block.scalar = block.scalar and short in _SILENT | {"pointer_cast", "bitcast", "get_block_idx"}
        if short in _SILENT:
            return
        if short in ("set_flag", "wait_flag"):
            pipes = _PIPE.findall(op.text)
            event = _EVENT.search(op.text)
            name = next(iter(op.operands()), None)
            if len(pipes) != 2 or (event is None and name is None):
                raise Unmodelled(f"{op.name} with another form than expected")
            block.steps.append(_flag(short == "set_flag", pipes[0], pipes[1], int(event[1]) if event else str(name)))
            return
        if short == "pipe_barrier":
            pipe = _PIPE.findall(op.text)[0]
            block.steps.append(lambda core, env: core.barrier(pipe))
            return
        if short in ("sync_block_set", "sync_block_wait"):
            found, pipes = _FLAG.search(op.text), _PIPE.findall(op.text)
            if found is None or not pipes:
                raise Unmodelled(f"{op.name} with another form than expected")
            number: str | int = found[1] if found[1].startswith("%") else int(found[1])
            block.crosses = True
            if short == "sync_block_wait":
                block.steps.append(CrossWait(number))
            else:
                block.steps.append(_cross_set(pipes[0], number))
            return
        if short in ("get_block_idx", "get_sub_block_idx"):
            result = op.results[0]
            if short == "get_block_idx":
                block.steps.append(lambda core, env: env.__setitem__(result, core.block))
            else:
                block.steps.append(lambda core, env: env.__setitem__(result, core.sub_block))
            return
        if short in ("pointer_cast", "bitcast"):
            block.steps.append(scalars.compile_op(op, self._maps))
            return
        raise Unmodelled(f"the operation {op.name}")

    def _loop(self, op: Op, block: Block) -> None:
        found = re.match(r"\s*(%[\w.$-]+) = (%[\w.$#-]+) to (%[\w.$#-]+) step (%[\w.$#-]+)", op.text)
        if found is None or len(op.regions) != 1:
            raise Unmodelled("a loop of another form than expected")
        carried = re.search(r"iter_args\((.*?)\) ->", op.text)
        pairs = re.findall(r"(%[\w.$-]+) = (%[\w.$#-]+)", carried[1]) if carried else []
        depth = len(self._known) + 1
        for name in (found[1], *(pair[0] for pair in pairs)):
            self._depth[name] = depth
        body = self._block(op.regions[0])
        block.steps.append(Loop(found[1], found[2], found[3], found[4], list(pairs), op.results, body, body.crosses))
        block.scalar, block.crosses = block.scalar and body.scalar, block.crosses or body.crosses

    def _branch(self, op: Op, block: Block) -> None:
        then = self._block(op.regions[0])
        other = self._block(op.regions[1]) if len(op.regions) > 1 else Block()
        scalar, crosses = then.scalar and other.scalar, then.crosses or other.crosses
        condition = op.operands()[0]
        unlikely = "unlikely_condition" in op.tail or "unlikely_condition" in op.text
        block.steps.append(Branch(condition, op.results, then, other, unlikely, scalar))
        block.scalar, block.crosses = block.scalar and scalar, block.crosses or crosses

    # -- running ---------------------------------------------------------------------------------------------------

    def start(self, core: Core, arguments: Sequence[Any]) -> Waiting:
        """Run on a core; yields the number of a flag whenever the core waits for another core.

        Args:
            core: where.
            arguments: a value for each argument of the function: an integer, a :class:`Ref` or None.
        """
        env: Env = {name: value for (name, _), value in zip(self.function.arguments, arguments, strict=True)}
        if self._jumping:
            yield from blocks.walk(self._jumping, self._parts, core, env, _run, self._skip_turns)
        else:
            yield from _run(self.body, core, env)

    def _skip_turns(
        self, history: list[steady.Snapshot], head: blocks.BasicBlock, bound: int | None, core: Core, env: Env
    ) -> None:
        """Move everything on at the head of a loop that has become steady."""
        cells = [key for key in env if isinstance(key, tuple)]
        names: list[Any] = [*head.parameters, *cells]
        values = [env.get(name) for name in names]
        history.append(steady.Snapshot(core, values))
        if head.label in self._crossing or bound is None or values[0] is None:
            return
        period = steady.steady(history)
        if not period:
            if len(history) > 4 * max(steady.PERIODS):
                history.pop(0)
            return
        stride = values[0] - history[-1 - period].values[0]
        if stride <= 0:
            return
        turns = -(-(bound - values[0]) * period // stride) - steady.LAST_TURNS
        if turns >= 2 * period:
            for name, value in zip(names, steady.skip(core, history, period, turns // period), strict=True):
                env[name] = value
            history.clear()


_SILENT = {"set_mask_norm", "set_ffts_base_addr", "set_ctrl", "annotation", "debug", "set_mask_count"}


def _split(text: str) -> list[str]:
    """Split a list of types at its own commas."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _number(value: str | int, env: Env) -> int:
    number = env.get(value) if isinstance(value, str) else value
    if number is None:
        raise Unmodelled("the number of a flag depends on data")
    return int(number)


def _flag(sets: bool, source: str, target: str, event: str | int) -> Step:
    if sets:
        return lambda core, env: core.set_flag(source, target, _number(event, env))
    return lambda core, env: core.wait_flag(source, target, _number(event, env))


def _cross_set(pipe: str, flag: str | int) -> Step:
    def run(core: Core, env: Env) -> None:
        time = max(core.clock["S"], core.clock.get(f"{pipe}!", 0.0))
        core.tokens.setdefault(("out", "core", _number(flag, env)), []).append(time + ASSUMED.core_flag)
        core.scalar(ASSUMED.scalar)

    return run


def _run(block: Block, core: Core, env: Env) -> Waiting:
    core.steps += len(block.steps)
    if core.steps > MAX_STEPS:
        raise Unmodelled(f"more than {MAX_STEPS} operations before its loops became steady")
    for step in block.steps:
        if callable(step):
            step(core, env)
        elif isinstance(step, Loop):
            yield from _run_loop(step, core, env)
        elif isinstance(step, Branch):
            yield from _run_branch(step, core, env)
        else:
            yield _number(step.flag, env)


def _run_branch(branch: Branch, core: Core, env: Env) -> Waiting:
    condition = env.get(branch.condition)
    core.scalar(ASSUMED.scalar)
    if condition is None:
        if branch.scalar or branch.unlikely:
            for name in branch.results:
                env[name] = None
            return
        raise Unmodelled("a branch depends on data")
    chosen = branch.then if condition else branch.other
    yield from _run(chosen, core, env)
    for name, value in zip(branch.results, chosen.yields, strict=False):
        env[name] = env.get(value)


def _run_loop(loop: Loop, core: Core, env: Env) -> Waiting:
    low, high, step = (env.get(name) for name in (loop.low, loop.high, loop.step))
    if low is None or high is None or not step:
        raise Unmodelled("a trip count depends on data")
    trips = max(0, -((low - high) // step))
    outermost = loop.crosses and not core.in_crossing
    if outermost:
        core.in_crossing, core.crossing_trips = True, trips
        trips = min(trips, core.turn_limit or trips)
    values = [env.get(first) for _, first in loop.carried]
    history: list[steady.Snapshot] = []
    turn = 0
    while turn < trips:
        env[loop.variable] = low + turn * step
        for (name, _), value in zip(loop.carried, values, strict=True):
            env[name] = value
        yield from _run(loop.body, core, env)
        core.scalar(2 * ASSUMED.scalar)
        values = [env.get(name) for name in loop.body.yields] if loop.carried else []
        turn += 1
        left = trips - turn - steady.LAST_TURNS
        if loop.crosses or left < 2:
            continue
        history.append(steady.Snapshot(core, values))
        period = steady.steady(history)
        if period and left >= period:
            skipped = left // period
            values = steady.skip(core, history, period, skipped)
            turn += skipped * period
            history.clear()
        elif len(history) > 4 * max(steady.PERIODS):
            history.pop(0)
    if outermost:
        core.in_crossing = False
    for name, value in zip(loop.results, values, strict=False):
        env[name] = value


def argument_ref(kind: str, name: str) -> Ref:
    """Return the buffer behind an argument that is a pointer."""
    try:
        buffer = buffer_type(kind)
    except NotRead as error:
        raise Unmodelled(str(error)) from None
    return Ref("gm", bits_of(buffer.element), (None,), (1,), name)
