"""From a traced operator graph to Triton kernels: what to fuse, what to store, in which order.

Everything that can be recomputed per element (arithmetic, views, gathers, pooling windows) is written into the kernel
that needs it; reductions, scans and matrix products anchor a kernel of their own shape. An anchor that the kernel at
hand cannot compute in its own iteration space is stored to memory by a kernel before it, so every graph of known
operators has a lowering.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orienteer.kernels.blocks.direct import DirectNest
from orienteer.kernels.blocks.emit import (
    CONVOLUTIONS,
    JOINS,
    MATMULS,
    ORDERED,
    REDUCTIONS,
    SELECTIONS,
    Kernel,
    NeedsBuffer,
    Unsupported,
)
from orienteer.kernels.blocks.graph import Graph, Node
from orienteer.kernels.blocks.nests import ElementNest, JoinNest, MatmulNest, RowNest, TileNest
from orienteer.kernels.blocks.rewrite import rewrite
from orienteer.kernels.blocks.schedule import Schedule
from orienteer.kernels.blocks.topk import TopKNest

__all__ = ["Lowering", "Plan", "Unsupported", "lower"]


_ANCHORS = REDUCTIONS | ORDERED | MATMULS | CONVOLUTIONS


@dataclass
class Plan:
    """The kernels of a candidate in launch order."""

    kernels: list[Kernel] = field(default_factory=list)
    #: Values that a kernel stores (intermediates and outputs), in the order of their kernels.
    stored: list[str] = field(default_factory=list)
    #: Which building blocks were used, for the record.
    blocks: list[str] = field(default_factory=list)
    #: The graph that was lowered (convolutions rewritten).
    graph: Graph | None = None


class Lowering:
    """One graph under one schedule."""

    def __init__(self, graph: Graph, schedule: Schedule, name: str) -> None:
        self.graph = graph
        self.schedule = schedule
        self.name = name
        self.plan = Plan(graph=graph)
        self.buffers = {node.name for node in graph.nodes.values() if node.is_leaf}

    def run(self) -> Plan:
        """Lower every output.

        Raises:
            Unsupported: an operator has no building block; the message names it.
        """
        for output in self.graph.outputs:
            if output not in self.plan.stored:
                self._store(output, frozenset())
        return self.plan

    def _store(self, name: str, above: frozenset[str]) -> None:
        if name in above:
            raise Unsupported(f"the value {name} cannot be stored by any building block")
        while True:
            try:
                kernel = self._build(self.graph.nodes[name])
            except NeedsBuffer as need:
                if need.name == name:
                    raise Unsupported(f"no building block computes {self.graph.nodes[name].op}") from None
                self._store(need.name, above | {name})
                continue
            break
        self.plan.kernels.append(kernel)
        self.plan.stored.append(name)
        self.plan.blocks.append(kernel.block)
        self.buffers.add(name)

    def _build(self, node: Node) -> Kernel:
        kernel_name = self.name if node.name in self.graph.outputs[:1] else f"{self.name}_{node.name}"
        kernel = Kernel(kernel_name, self.graph, self.buffers, self.schedule)
        kernel.stores = node.name
        if node.op in JOINS:
            return JoinNest(kernel, node).build()
        if node.op in SELECTIONS:
            return TopKNest(kernel, node).build()
        anchor = self._anchor(node)
        if anchor is None:
            if TileNest.fits(kernel, node):
                return TileNest(kernel, node).build()
            return ElementNest(kernel, node).build()
        if anchor.op in MATMULS:
            return MatmulNest(kernel, node, anchor).build()
        if anchor.op in CONVOLUTIONS:
            return DirectNest(kernel, node, anchor).build()
        return RowNest(kernel, node, anchor).build()

    def _anchor(self, node: Node) -> Node | None:
        """Return the nearest reduction, scan or matrix product that is not in memory yet."""
        queue, seen = [node.name], set()
        while queue:
            name = queue.pop(0)
            if name in seen or (name in self.buffers and name != node.name):
                continue
            seen.add(name)
            current = self.graph.nodes[name]
            if current.is_leaf:
                continue
            if current.op in _ANCHORS:
                return current
            queue.extend(current.refs())
        return None


def lower(graph: Graph, schedule: Schedule, name: str) -> Plan:
    """Lower a graph to kernels; see :class:`Lowering`."""
    plan = Lowering(rewrite(graph, schedule), schedule, name).run()
    for kernel in plan.kernels:
        kernel.tidy()
    return plan
