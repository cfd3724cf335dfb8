"""The C++ candidate file: helpers, one function a kernel, and ``forward`` that calls them in order."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orienteer.kernels.blocks.emit import JOINS, MATMULS, Unsupported
from orienteer.kernels.blocks.graph import Graph, Node, Size
from orienteer.kernels.blocks.lower import Lowering, Plan
from orienteer.kernels.blocks.rewrite import rewrite
from orienteer.kernels.blocks.schedule import Schedule
from orienteer.kernels.cpp.expression import STORED, translate
from orienteer.kernels.cpp.functions import headers, needed
from orienteer.kernels.cpp.kernel import CppKernel, fractional, unrolled_taps
from orienteer.kernels.cpp.matmul import MatmulNest
from orienteer.kernels.cpp.nests import ElementNest, JoinNest, TileNest
from orienteer.kernels.cpp.rows import RowNest
from orienteer.kernels.cpp.schedule import CpuSchedule


class CppLowering(Lowering):
    """One graph under one schedule; what to fuse and what to store is decided as for Triton."""

    def __init__(self, graph: Graph, schedule: CpuSchedule, name: str) -> None:
        super().__init__(graph, Schedule(), name)
        self.cpu = schedule

    def _anchor(self, node: Node) -> Node | None:
        anchor = super()._anchor(node)
        if anchor is None or unrolled_taps(self.graph, anchor) is None:
            return anchor
        # A small window is written out where it is needed: look on behind it.
        self.buffers.add(anchor.name)
        try:
            return self._anchor(node) if node.name != anchor.name else None
        finally:
            self.buffers.discard(anchor.name)

    def _build(self, node: Node) -> CppKernel:
        name = self.name if node.name in self.graph.outputs[:1] else f"{self.name}_{node.name}"
        kernel = CppKernel(name, self.graph, self.buffers, self.cpu)
        kernel.stores = node.name
        if node.op in JOINS:
            return JoinNest(kernel, node).build()
        anchor = self._anchor(node)
        if anchor is None:
            nest = TileNest if TileNest.fits(kernel, node) else ElementNest
            built = nest(kernel, node).build()
        elif anchor.op in MATMULS:
            built = MatmulNest(kernel, node, anchor).build()
        else:
            built = RowNest(kernel, node, anchor).build()
        assert isinstance(built, CppKernel)
        return built


def lower(graph: Graph, schedule: CpuSchedule, name: str) -> Plan:
    """Lower a graph to C++ kernels.

    Raises:
        Unsupported: an operator has no building block.
    """
    return CppLowering(rewrite(graph), schedule, name).run()


def assemble(graph: Graph, plan: Plan, title: str) -> str:
    """Return the source of a candidate.

    Args:
        graph: the traced operator.
        plan: its kernels in the order of their calls.
        title: first line of the file.
    """
    graph = plan.graph or graph
    kernels = [kernel for kernel in plan.kernels if isinstance(kernel, CppKernel)]
    own = sorted({text for kernel in kernels for text in kernel.helpers})
    functions = "\n".join([*own, *(kernel.source() for kernel in kernels), _forward(graph, plan, kernels)])
    wide = any(kernel.wide for kernel in kernels)
    helpers = needed(functions, wide)
    text = helpers + "\n" + functions
    return "\n".join([f"// {title}", *headers(text), "", text]).rstrip() + "\n"


def _forward(graph: Graph, plan: Plan, kernels: Sequence[CppKernel]) -> str:
    places: dict[str, str] = {}
    for position, node in enumerate(graph.inputs):
        if node is not None:
            places[node] = f"inputs[{position}]"
    for position, node in enumerate(graph.state):
        places[node] = f"state[{position}]"
    lines = [f"const int64_t {name} = {places[node]}.sizes[{dim}];" for name, (node, dim) in _sizes(graph, plan)]
    outputs = {name: position for position, name in reversed(list(enumerate(graph.outputs)))}
    pointers: dict[str, str] = {}
    for kernel, stored in zip(kernels, plan.stored, strict=True):
        kind = STORED[graph.nodes[stored].dtype]
        if stored in outputs:
            pointers[stored] = f"({kind}*)outputs[{outputs[stored]}].data"
        else:
            count = " * ".join(f"({_host(size)})" for size in graph.nodes[stored].shape) or "1"
            local = re.sub(r"\W", "_", stored)
            lines.append(f"Scratch<{kind}> {local}_memory({count});")
            pointers[stored] = f"{local}_memory.data"
        arguments = []
        for node in kernel.pointers:
            read = f"(const {STORED[graph.nodes[node].dtype]}*)"
            arguments.append(pointers.get(node) or f"{read}{places[node]}.data")
        arguments += [_host(size) for size in kernel.size_args]
        lines.append(f"{kernel.name}({', '.join([*arguments, 'threads'])});")
    body = "".join(f"    {line}\n" for line in lines)
    head = 'extern "C" void forward(const Tensor* inputs, const Tensor* state, const Tensor* outputs, int threads) {\n'
    return head + body + "}\n"


def _host(size: Size) -> str:
    if fractional(size):
        return f"(float)({translate(size, 'size', True)})"
    return translate(size, "int64")


def _sizes(graph: Graph, plan: Plan) -> list[tuple[str, tuple[str, int]]]:
    text = " ".join(
        [
            *(size for kernel in plan.kernels for size in kernel.size_args),
            *(size for stored in plan.stored for size in graph.nodes[stored].shape),
        ]
    )
    return [(name, origin) for name, origin in graph.sizes.items() if re.search(rf"\b{name}\b", text)]


__all__ = ["CppLowering", "Unsupported", "assemble", "lower"]
