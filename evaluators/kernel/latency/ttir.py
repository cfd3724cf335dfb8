"""Counting what a Triton kernel moves and computes, from its Triton IR at a launch's sizes.

Index arithmetic is followed as far as it is linear in the positions of a block, so that masks, strides and repeated
addresses are known; a loop's first and last turns are walked and its middle is taken as their mean. Memory is counted
in sectors of 32 bytes, the least that a GPU's cache moves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orienteer.evaluators.kernel.latency import linear, scalars
from orienteer.evaluators.kernel.latency.core import Unmodelled
from orienteer.evaluators.kernel.latency.mlir import Function, Op, bits_of, buffer_type, read

_SKIPPED = {
    "tt.assert",
    "tt.print",
    "gpu.barrier",
    "ttg.barrier",
    "llvm.intr.assume",
    "ub.poison",
    "cf.assert",
}
_LOOP = re.compile(r"\s*(%[\w.$-]+) = (%[\w.$#-]+) to (%[\w.$#-]+) step (%[\w.$#-]+)")
_AXES = {"x": 0, "y": 1, "z": 2}


@dataclass
class Counts:
    """What a program instance does."""

    #: By argument: bytes read and written in whole sectors.
    read: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)
    #: Bytes that were asked for, without what fills the sectors.
    wanted: float = 0.0
    #: Operations of matrix products by the class of their inputs: ``16``, ``tf32``, ``32``, ``8``, ``64``.
    products: dict[str, float] = field(default_factory=dict)
    #: Operations on single elements.
    simple: float = 0.0
    #: Transfers whose addresses are not linear in the block: counted without the rest of their sectors.
    irregular: float = 0.0

    def flat(self) -> dict[tuple[str, str], float]:
        """Return all numbers by name."""
        out = {("read", k): v for k, v in self.read.items()}
        out.update({("written", k): v for k, v in self.written.items()})
        out.update({("products", k): v for k, v in self.products.items()})
        for name in ("wanted", "simple", "irregular"):
            out["one", name] = getattr(self, name)
        return out

    def add(self, other: Mapping[tuple[str, str], float], times: float) -> None:
        """Add numbers as :meth:`flat` returns them."""
        for (kind, name), value in other.items():
            if kind == "one":
                setattr(self, name, getattr(self, name) + value * times)
            else:
                table = getattr(self, kind)
                table[name] = table.get(name, 0.0) + value * times


def count(text: str, kernel: Mapping[str, Any]) -> Counts:
    """Count a whole launch.

    Args:
        text: the kernel's Triton IR.
        kernel: its ``name``, ``signature``, ``scalars`` and ``grid``.

    Raises:
        Unmodelled, NotRead: something that decides the count is not known.
    """
    function = read(text).functions.get(kernel["name"])
    if function is None:
        raise Unmodelled("a module without the kernel")
    grid = [int(size) for size in kernel["grid"]]
    size = math.prod(grid)
    total = Counts()
    programs = sorted({0, size // 3, 2 * size // 3, size - 1})
    for program in programs:
        one = _Instance(function, kernel, grid, program).run()
        total.add(one.flat(), size / len(programs))
    return total


class _Instance:
    """One program instance."""

    def __init__(self, function: Function, kernel: Mapping[str, Any], grid: Sequence[int], program: int) -> None:
        self.env: dict[str, Any] = {}
        own = [name for name, kind in kernel["signature"].items() if kind != "constexpr"]
        if len(own) != len(function.arguments):
            raise Unmodelled("a function whose arguments are not those of the launch")
        for (name, kind), parameter in zip(function.arguments, own, strict=True):
            pointer = re.match(r"!tt\.ptr<(\w+)>", kind)
            if pointer:
                self.env[name] = linear.Linear((), 0, (), parameter, bits_of(pointer[1]))
            else:
                value = kernel["scalars"].get(parameter)
                self.env[name] = int(value) if isinstance(value, (bool, int)) else None
        self.grid = grid
        self.program = [program % grid[0], program // grid[0] % grid[1], program // (grid[0] * grid[1])]
        self.counts = Counts()
        self.body = function.body
        self.steps = 0

    def run(self) -> Counts:
        self._block(self.body)
        return self.counts

    def _block(self, ops: Sequence[Op]) -> list[Any]:
        self.steps += len(ops)
        if self.steps > 100_000:
            raise Unmodelled("more than 100,000 operations")
        for op in ops:
            if op.name in ("scf.yield", "tt.return"):
                return [self.env.get(name) for name in op.operands()]
            self._operation(op)
        return []

    # -- operations ----------------------------------------------------------------------------------------------------

    def _operation(self, op: Op) -> None:
        name = op.name
        if name == "scf.for":
            self._loop(op)
        elif name == "scf.if":
            self._branch(op)
        elif name in ("tt.load", "tt.store"):
            self._access(op, writes=name == "tt.store")
        elif name in ("tt.atomic_rmw", "tt.atomic_cas"):
            self._access(op, writes=True, pointer=0)
            self._access(op, writes=False)
        elif name in ("tt.descriptor_load", "tt.descriptor_store"):
            self._described(op, writes=name == "tt.descriptor_store")
        elif name == "tt.dot":
            self._dot(op)
        elif name in _SKIPPED:
            return
        elif op.results:
            value = self._value(op)
            for result in op.results:
                self.env[result] = value
        elif name not in ("tt.reduce.return", "tt.scan.return", "block"):
            raise Unmodelled(f"the operation {name}")

    def _value(self, op: Op) -> Any:
        name, args = op.name, [self.env.get(item) for item in op.operands()]
        if name == "tt.get_program_id":
            return self.program[_AXES[op.text.split()[0]]]
        if name == "tt.get_num_programs":
            return self.grid[_AXES[op.text.split()[0]]]
        if name == "tt.make_range":
            start = re.search(r"start = (\d+)", op.text)
            return linear.Linear(linear.block_shape(op), int(start[1]) if start else 0, (1,))
        if name in ("tt.call", "scf.while", "tt.extern_elementwise"):
            raise Unmodelled(f"the operation {name}")
        if name == "tt.make_tensor_descriptor":
            return args[0]
        if name == "arith.constant":
            return linear.constant(op)
        if name in ("tt.splat", "tt.broadcast", "tt.expand_dims"):
            return linear.spread(op, args[0])
        if name == "tt.addptr":
            return linear.add(args[0], args[1], 1)
        if name == "arith.cmpi":
            return self._compare(op, args)
        if name in ("tt.reduce", "tt.scan"):
            source = re.search(r": \((tensor<[^>]*>)", op.text)
            self.counts.simple += linear.numel(buffer_type(source[1])) if source else 0
            return None
        result = linear.block_type(op)
        if result is None:
            return self._scalar(op, args)
        dialect, _, short = name.partition(".")
        if dialect == "math" or (dialect == "arith" and short.endswith("f")):
            self.counts.simple += linear.numel(result)
        return linear.arithmetic(short, args) if dialect == "arith" else None

    def _scalar(self, op: Op, args: Sequence[Any]) -> Any:
        if op.name.partition(".")[0] in ("arith", "math"):
            if any(isinstance(item, (linear.Linear, linear.Mask)) for item in args):
                return None
            scalars.compile_op(op, {})(None, self.env)  # type: ignore[arg-type]
            return self.env.get(op.results[0])
        return None

    def _compare(self, op: Op, args: Sequence[Any]) -> Any:
        left, right = args[:2]
        result = linear.block_type(op)
        if result is None or not isinstance(left, linear.Linear) or not isinstance(right, linear.Linear):
            return self._scalar(op, args) if result is None else None
        difference = linear.add(left, right, -1)
        moving = [d for d, step in enumerate(difference.steps) if step != 0]
        predicate = op.text.strip().partition(",")[0]
        if difference.base is None or len(moving) > 1 or any(difference.steps[d] is None for d in moving):
            return None
        test = scalars.COMPARE[predicate]
        counts = list(difference.shape)
        if moving:
            step, size = difference.steps[moving[0]], difference.shape[moving[0]]
            counts[moving[0]] = sum(test(difference.base + (step or 0) * i, 0) for i in range(size))
        elif not test(difference.base, 0):
            counts = [0] * len(counts)
        return linear.Mask(difference.shape, tuple(counts))

    # -- memory and products -------------------------------------------------------------------------------------------

    def _access(self, op: Op, writes: bool, pointer: int = 0) -> None:
        names = op.operands()
        address = self.env.get(names[pointer])
        for result in op.results:
            self.env[result] = None
        if not isinstance(address, linear.Linear) or not address.argument:
            raise Unmodelled("an address that depends on data in an unknown way")
        masks = [item for name in names[1:] if isinstance(item := self.env.get(name), linear.Mask)]
        counts = list(masks[-1].counts) if masks and masks[-1].shape == address.shape else list(address.shape)
        wanted, moved, regular = linear.sectors(address, counts)
        self.counts.wanted += wanted
        table = self.counts.written if writes else self.counts.read
        table[address.argument] = table.get(address.argument, 0.0) + moved
        self.counts.irregular += 0 if regular else wanted

    def _described(self, op: Op, writes: bool) -> None:
        base = self.env.get(op.operands()[0])
        for result in op.results:
            self.env[result] = None
        if not isinstance(base, linear.Linear):
            raise Unmodelled("a descriptor of an unknown tensor")
        buffer = buffer_type(op.text)
        moved = linear.numel(buffer) * buffer.bits / 8
        self.counts.wanted += moved
        table = self.counts.written if writes else self.counts.read
        table[base.argument] = table.get(base.argument, 0.0) + moved

    def _dot(self, op: Op) -> None:
        found = re.search(r": (tensor<[^>]*>) \* (tensor<[^>]*>) -> (tensor<[^>]*>)", op.text)
        if found is None:
            raise Unmodelled("a product of an unknown form")
        left, result = buffer_type(found[1]), buffer_type(found[3])
        depth = left.sizes[-1] or 0
        kind = {8: "8", 16: "16", 64: "64"}.get(left.bits, "tf32" if "inputPrecision = tf32" in op.text else "32")
        flops = 2.0 * linear.numel(result) * depth
        self.counts.products[kind] = self.counts.products.get(kind, 0.0) + flops
        self.env[op.results[0]] = None

    # -- control ------------------------------------------------------------------------------------------------------

    def _branch(self, op: Op) -> None:
        condition = self.env.get(op.operands()[0])
        if condition is None:
            raise Unmodelled("a branch depends on data")
        values: list[Any] = []
        if condition:
            values = self._block(op.regions[0])
        elif len(op.regions) > 1:
            values = self._block(op.regions[1])
        for name, value in zip(op.results, values, strict=False):
            self.env[name] = value

    def _loop(self, op: Op) -> None:
        found = _LOOP.match(op.text)
        if found is None:
            raise Unmodelled("a loop of an unknown form")
        low, high, step = (self.env.get(found[position]) for position in (2, 3, 4))
        if low is None or high is None or not step:
            raise Unmodelled("a trip count depends on data")
        trips = max(0, -((low - high) // step))
        carried = re.search(r"iter_args\((.*?)\) ->", op.text)
        pairs = re.findall(r"(%[\w.$-]+) = (%[\w.$#-]+)", carried[1]) if carried else []
        values = [self.env.get(first) for _, first in pairs]

        def turn(number: int, given: Sequence[Any]) -> list[Any]:
            self.env[found[1]] = low + number * step
            for (name, _), value in zip(pairs, given, strict=True):
                self.env[name] = value
            result = self._block(op.regions[0])
            return result if pairs else []

        walked = list(range(trips)) if trips <= 4 else [0, 1, trips - 2, trips - 1]
        parts = []
        outer = self.counts
        before: list[Any] = values
        for number in walked:
            if trips > 4 and number == trips - 2:
                values = [linear.moved_on(old, new, trips - 4) for old, new in zip(before, values, strict=True)]
            self.counts = Counts()
            before = values
            values = turn(number, values)
            parts.append(self.counts.flat())
        self.counts = outer
        for part in parts:
            self.counts.add(part, 1)
        if trips > 4:
            for part in parts[1:3]:
                self.counts.add(part, (trips - 4) / 2)
        for name, value in zip(op.results, values, strict=False):
            self.env[name] = value
