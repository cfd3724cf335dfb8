"""What nothing can beat: bytes that must move and products that must be computed, at peak rates (Williams et al. 2009).

A floor must never be above what an honest kernel needs, so it counts only what is certain: each output once, each input
and parameter once as far as every element is needed, and matrix products. Element-wise arithmetic is not counted, nor
are parts of tables that may not be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orienteer.environments.kernel.targets import AscendChip, GpuArch
from orienteer.environments.kernel.world import TaskInfo
from orienteer.evaluators.kernel.latency.chips import ASCEND, GPUS, cube_share
from orienteer.kernels.blocks.graph import Graph, Node

_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_PRODUCTS = {"aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm"}
_CONVOLUTIONS = {"aten.convolution"}
#: Operators that may leave elements of their first argument unread.
_PARTIAL = {
    "aten.embedding",
    "aten.index",
    "aten.gather",
    "aten.index_select",
    "aten.slice",
    "aten.select",
    "aten.diagonal",
    "aten.triu",
    "aten.tril",
    "aten.where",
    "aten.avg_pool2d",
    "aten.max_pool2d_with_indices",
    "aten.convolution",
    "aten.constant_pad_nd",
    "aten.as_strided",
    "aten.topk",
    "aten.max_pool2d",
    "aten.max_pool1d",
    "aten.avg_pool1d",
    "aten.avg_pool3d",
    "aten.max_pool3d_with_indices",
    "aten.split_with_sizes",
    "aten.unbind",
    "aten.narrow",
}
_VIEWS = {"aten.view", "aten.reshape", "aten.permute", "aten.transpose", "aten.t", "aten.unsqueeze", "aten.squeeze"}


@dataclass(frozen=True)
class Floor:
    """The least work of a task at its true shapes."""

    #: Bytes that must cross the memory's bus.
    bytes: int
    #: Operations of matrix products (a product and a sum are two) by width of the inputs, bits.
    products: Mapping[int, int]

    def seconds(self, target: AscendChip | GpuArch) -> float:
        """Return the time at the target's peak rates."""
        if isinstance(target, AscendChip):
            rates = ASCEND[target.name]
            peak = target.cube_cores * 16**3 * 2 * rates.clock_hz
            # Float32 may be rounded to HF32 inside, at half the rate of float16.
            compute = sum(
                count / (peak * (0.5 if bits == 32 else cube_share(bits))) for bits, count in self.products.items()
            )
            return max(self.bytes / rates.hbm, compute)
        gpu = GPUS[target.name]
        speed = {8: gpu.tensor8, 16: gpu.tensor16, 32: gpu.tensor32, 64: gpu.tensor32}
        compute = sum(count / speed.get(bits, gpu.tensor8) for bits, count in self.products.items())
        return max(self.bytes / gpu.hbm, compute)


def floor(info: TaskInfo, graph: Graph | None = None) -> Floor:
    """Count a task's least work.

    Args:
        info: the task at its true shapes.
        graph: its traced operators. Without it only the outputs are certain, and no products.
    """
    outputs = sum(_size(item) for item in info.outputs if "shape" in item)
    if graph is None:
        return Floor(outputs, {})
    read = sum(_least_read(graph, name) for name, node in graph.nodes.items() if node.is_leaf)
    products: dict[int, int] = {}
    for node in graph.nodes.values():
        count = _products(graph, node)
        if count:
            bits = 8 * _BYTES.get(_first(graph, node).dtype, 1)
            products[bits] = products.get(bits, 0) + count
    return Floor(outputs + read, products)


def _size(item: Mapping[str, Any]) -> int:
    return math.prod(item["shape"]) * _BYTES.get(str(item["dtype"]), 1)


def _base(op: str) -> str:
    return ".".join(op.split(".")[:2])


def _first(graph: Graph, node: Node) -> Node:
    names = list(node.refs())
    products = names[1:] if _base(node.op) in ("aten.addmm", "aten.baddbmm") and len(names) > 2 else names
    return graph.nodes[products[0]]


def _least_read(graph: Graph, name: str) -> int:
    """Return the bytes of a leaf that are certainly read."""
    leaf = graph.nodes[name]
    whole = graph.numel(leaf.shape) * _BYTES.get(leaf.dtype, 1)
    frontier, least = [name], 0
    seen = {name}
    while frontier:
        current = frontier.pop()
        if current in graph.outputs:
            return whole
        for node in graph.nodes.values():
            if current not in node.refs() or node.name in seen:
                continue
            if _base(node.op) in _VIEWS:
                seen.add(node.name)
                frontier.append(node.name)
            elif _base(node.op) not in _PARTIAL:
                # An element that no output needs could still be left out; that is the task's own waste.
                least = whole
    return least


def _products(graph: Graph, node: Node) -> int:
    base = _base(node.op)
    if base in _PRODUCTS:
        depth = graph.value(_first(graph, node).shape[-1])
        return 2 * graph.numel(node.shape) * depth
    if base in _CONVOLUTIONS:
        names = list(node.refs())
        weight = graph.nodes[names[1]]
        # Winograd's transform needs 2.25 times fewer products for 3x3 windows, at most 4 times fewer in practice.
        taps = math.prod(graph.value(size) for size in weight.shape[1:])
        return 2 * graph.numel(node.shape) * taps // 4
    return 0
