"""The k largest or smallest elements of a row, without sorting.

Elements are ordered by value, equal ones by position, and NaN counts as the largest value, as in PyTorch. The next
element is the first one behind the last that was taken, so nothing has to be marked and a row of any length can be
walked in blocks.
"""

from __future__ import annotations

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import Kernel, Scope, Unsupported, Value, indent
from orienteer.kernels.blocks.graph import Node, SizeArg
from orienteer.kernels.blocks.index import ZERO, Index, product, split

#: A position behind every element.
_NOWHERE = "2147483647"


class TopKNest:
    """One program instance takes one row after another and writes its k elements, or their positions."""

    block = "top-k"

    def __init__(self, kernel: Kernel, node: Node) -> None:
        self.kernel, self.node = kernel, node

    def build(self) -> Kernel:
        """Write the kernel.

        Raises:
            Unsupported: the elements are no floating-point numbers.
        """
        kernel, node = self.kernel, self.node
        kernel.block = self.block
        source = kernel.graph.nodes[next(node.refs())]
        if source.dtype not in ops.FLOATS:
            raise Unsupported(f"{node.op} of {source.dtype}")
        rank = len(source.shape)
        axis = int(node.args[2]) % rank if len(node.args) > 2 else rank - 1
        largest = bool(node.args[3]) if len(node.args) > 3 else True
        wanted = node.args[1]
        count = kernel.size(wanted.expr) if isinstance(wanted, SizeArg) else str(wanted)
        shape = kernel.shape(source)
        outer = [i for i in range(rank) if i != axis]
        index: list[Index] = [ZERO] * rank
        setup = []
        for dimension, item in zip(outer, split(Index("row"), [shape[i] for i in outer]), strict=True):
            index[dimension] = item
            if item.text not in ("0", "row"):
                setup.append(f"o{dimension} = {item.text}")
                index[dimension] = Index(f"o{dimension}", item.variables, item.part)
        index[axis] = Index("r", frozenset({"r"}))
        length = shape[axis]
        hint = 1 << max(0, kernel.graph.value(source.shape[axis]) - 1).bit_length()
        whole = hint <= kernel.schedule.whole_row
        kernel.constants["BLOCK"] = (
            f"triton.next_power_of_2({source.shape[axis]})" if whole else str(kernel.schedule.row_block)
        )
        kernel.masks = {"r": f"r < {length}"}
        kernel.loop_variables = frozenset({"r"})
        kernel.scope = scope = Scope(parent=kernel.top)
        value = kernel.value(source.name, index)
        kernel.scope = kernel.top
        target = list(index)
        target[axis] = Index("j")
        result = ("best", node.dtype) if node.kwargs.get("item", 0) == 0 else ("taken.to(tl.int64)", "int64")
        store = Scope(parent=kernel.top)
        kernel.store(node.name, target, Value(*result), store)
        worst, better, reduce = ('float("-inf")', ">", "max") if largest else ('float("inf")', "<", "min")
        behind = f"({value.text} {'<' if largest else '>'} last) | (({value.text} == last) & (r > taken))"
        start = 'float("inf")' if largest else 'float("-inf")'
        if largest:
            plain, odd, first_odd = f"((was_nan > 0) | {behind})", "(was_nan > 0) & (r > taken)", "nan_at < " + _NOWHERE
        else:
            plain, odd, first_odd = (
                f"(was_nan == 0) & ({behind})",
                "((was_nan == 0) | (r > taken))",
                f"at == {_NOWHERE}",
            )
        walk = [
            "r = start + tl.arange(0, BLOCK)",
            *scope.lines,
            f"odd = {value.text} != {value.text}",
            f"plain_left = (r < {length}) & (odd == 0) & {plain}",
            f"odd_left = (r < {length}) & odd & {odd}",
            f"top = tl.{reduce}(tl.where(plain_left, {value.text}, {worst}), axis=0)",
            f"top_at = tl.min(tl.where(plain_left & ({value.text} == top), r, {_NOWHERE}), axis=0)",
            f"nan_at = tl.minimum(nan_at, tl.min(tl.where(odd_left, r, {_NOWHERE}), axis=0))",
            f"is_better = (top_at < {_NOWHERE}) & ((top {better} best) | (at == {_NOWHERE}))",
            "at = tl.where(is_better, top_at, at)",
            "best = tl.where(is_better, top, best)",
        ]
        each = [
            f"best = tl.full((), {worst}, dtype={ops.COMPUTE[source.dtype]})",
            f"at = tl.full((), {_NOWHERE}, dtype=tl.int32)",
            f"nan_at = tl.full((), {_NOWHERE}, dtype=tl.int32)",
            f"for start in range(0, {length}, BLOCK):",
            *indent(walk),
            f"is_nan = {first_odd}",
            'best = tl.where(is_nan, float("nan"), best)',
            "taken = tl.where(is_nan, nan_at, at)",
            "last = best",
            "was_nan = tl.where(is_nan, 1, 0)",
            *store.lines,
        ]
        body = [
            *setup,
            f"last = tl.full((), {start}, dtype={ops.COMPUTE[source.dtype]})",
            "taken = tl.full((), -1, dtype=tl.int32)",
            f"was_nan = tl.full((), {1 if largest else 0}, dtype=tl.int32)",
            *kernel.top_lines(),
            f"for j in range(0, {count}):",
            *indent(each),
        ]
        lead = product([source.shape[i] for i in outer])
        kernel.lines = [
            f"for row in range({kernel.first}, {kernel.size(lead)}, tl.num_programs(0)):",
            *indent(body),
        ]
        kernel.work = lead
        return kernel
