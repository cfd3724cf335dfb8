"""Tracing a task's operator to core ATen with symbolic sizes. Run in a sandboxed child.

The graph is what the offline proposer reads (``kernels/blocks/graph.py`` is its typed form). Sizes that the task's file
fixes to numbers (a norm's width) are recognised because tracing runs at distinct primes: a number in the graph that is
a multiple of exactly one input dimension stands for that dimension.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.load import TaskError, describe_error, init_arguments, load_task
from orienteer.environments.kernel.shapes import SMALL
from orienteer.kernels.blocks.graph import evaluate_size

#: Operators that are kept whole although core ATen has a decomposition: a building block knows them better.
_KEEP = ("aten.max_pool2d_with_indices", "aten.avg_pool2d", "aten.embedding", "aten.cumsum", "aten.clamp", "aten.tanh")
_EXTRA = (
    "clamp_min_",
    "split_with_sizes",
    "upsample_nearest2d",
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit_functional",
    "gelu",
    "addmm",
    "baddbmm",
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "nll_loss_forward",
    "silu",
    "mish",
    "std",
    "var_mean",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "softplus",
    "leaky_relu",
    "elu",
    "log_sigmoid_forward",
    "logsumexp",
    "norm",
    "linalg_vector_norm",
    "t",
    "mv",
    "dot",
    "masked_fill",
    "rsub",
    "native_dropout",
    "tril",
    "triu",
    "addcmul",
    "addcdiv",
    "lerp",
    "glu",
)
_SYMBOL = re.compile(r"\b[su]\d+\b")
#: Most elements of inputs and state of an assignment that is traced.
_MOST_ELEMENTS = 1 << 27


class _NotTraceable(Exception):
    """The graph has something that has no plain form."""


def trace_task(message: Message) -> Message:
    """Trace a task to a graph.

    Header in: ``cases`` (rewritten sources to try in turn), ``true_inputs``, ``true_state`` and ``true_outputs`` (true
    shapes by position and by name). Header out: ``graph``, or ``error`` with the reason why there is none.
    """
    reasons: list[str] = []
    header = message.header
    for source in header["cases"]:
        try:
            graph = _trace(source, header["true_inputs"], header["true_state"], header["true_outputs"])
        except _NotTraceable as error:
            return Message({"error": str(error)})
        except BaseException as error:
            text = str(error) if isinstance(error, TaskError) else describe_error(error, "task.py")
            reasons.append(text)
            continue
        return Message({"graph": graph})
    return Message({"error": f"the operator cannot be traced: {reasons[0] if reasons else 'no shapes to try'}"})


def decompositions() -> dict[Any, Any]:
    """Return the decomposition table: core ATen plus the composites that the building blocks need taken apart."""
    import torch
    from torch._decomp import core_aten_decompositions, get_decompositions

    table = dict(core_aten_decompositions())
    table.update(get_decompositions([getattr(torch.ops.aten, n) for n in _EXTRA if hasattr(torch.ops.aten, n)]))
    for overload in list(table):
        if str(overload).rsplit(".", 1)[0] in _KEEP:
            del table[overload]
    return table


def _trace(
    source: str, true_inputs: Sequence[Any], true_state: Mapping[str, Any], true_outputs: Sequence[Any]
) -> dict[str, Any]:
    import torch
    from torch.func import functional_call, functionalize
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_leaves

    torch.manual_seed(0)
    task = load_task(source)
    _small_enough(task)
    arguments, keywords = init_arguments(task)
    model = task.Model(*arguments, **keywords)
    inputs = list(task.get_inputs())
    state = dict(model.state_dict())
    tensors = [item for item in inputs if isinstance(item, torch.Tensor)]
    single = [True]

    def operator(values: dict[str, torch.Tensor], *given: torch.Tensor) -> list[torch.Tensor]:
        queue = iter(given)
        full = [next(queue) if isinstance(item, torch.Tensor) else item for item in inputs]
        result = functional_call(model, values, tuple(full), tie_weights=False)
        single[0] = isinstance(result, torch.Tensor)
        return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Without in-place operators: a running statistic that is updated becomes a value that nobody reads.
        pure = functionalize(operator, remove="mutations")
        with _lines_as_planes():
            traced = make_fx(pure, decomposition_table=decompositions(), tracing_mode="symbolic")(state, *tensors)
    names = list(inspect.signature(model.forward).parameters)
    graph = _Export(traced, inputs, state, true_inputs, true_state, single[0], names).graph()
    by_name = {node["name"]: node for node in graph["nodes"]}
    for name, true in zip(graph["outputs"], true_outputs, strict=True):
        shape = [evaluate_size(size, graph["hints"]) for size in by_name[name]["shape"]]
        if shape != list(true["shape"]):
            raise _NotTraceable(f"its sizes became numbers in tracing (an output of {shape} for {true['shape']})")
    return graph


def _small_enough(task: Any) -> None:
    """Refuse shapes that are large, or that the constructor does not take, before memory is spent on them."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        arguments, keywords = init_arguments(task)
        model = task.Model(*arguments, **keywords)
        tensors = [item for item in task.get_inputs() if isinstance(item, torch.Tensor)]
        total = sum(item.numel() for item in [*tensors, *model.state_dict().values()])
    if total > _MOST_ELEMENTS:
        raise TaskError(f"{total} elements are too many to trace")


def _lines_as_planes() -> Any:
    """Return a mode in which one-dimensional max-pooling is a plane's with one row.

    PyTorch computes the one-dimensional form on plain numbers, so its sizes could not be followed.
    """
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    def one(value: Any) -> Any:
        return value[0] if isinstance(value, (tuple, list)) else value

    class Planes(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func in (torch.max_pool1d, functional.max_pool1d, functional.max_pool1d_with_indices):
                names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
                given = {**dict(zip(names, args, strict=False)), **kwargs}
                window = one(given["kernel_size"])
                stride = one(given.get("stride"))
                pooled = functional.max_pool2d_with_indices(
                    given["input"].unsqueeze(-2),
                    (1, window),
                    (1, window if stride in (None, ()) else stride),
                    (0, one(given.get("padding", 0))),
                    (1, one(given.get("dilation", 1))),
                    bool(given.get("ceil_mode", False)),
                )
                values, places = (item.squeeze(-2) for item in pooled)
                both = func is functional.max_pool1d_with_indices or given.get("return_indices", False)
                return (values, places) if both else values
            return func(*args, **kwargs)

    return Planes()


class _Export:
    """Turns a traced module into the plain graph."""

    def __init__(
        self,
        traced: Any,
        inputs: Sequence[Any],
        state: Mapping[str, Any],
        true_inputs: Sequence[Any],
        true_state: Mapping[str, Any],
        single: bool,
        arguments: Sequence[str],
    ) -> None:
        self.module = traced
        self.inputs, self.state = inputs, state
        self.true_inputs, self.true_state = true_inputs, true_state
        self.single = single
        self.arguments = arguments
        self.symbols: dict[str, tuple[str, int]] = {}
        self.renamed: dict[str, str] = {}
        #: Symbols that are fixed numbers of the operator.
        self.constants: dict[str, str] = {}
        self.by_value: dict[int, str] = {}
        self.hints: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.items: dict[str, str] = {}

    def graph(self) -> dict[str, Any]:
        """Return the plain form."""
        nodes: list[dict[str, Any]] = []
        placeholders = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        state_names = list(self.state)
        input_nodes: list[str | None] = []
        state_nodes: dict[str, str] = {}
        ordered = iter(placeholders)
        for name in state_names:
            node = next(ordered)
            state_nodes[node.name] = name
            nodes.append(self._leaf(node, "state", self.true_state[name]["shape"]))
        for position, item in enumerate(self.inputs):
            if not hasattr(item, "shape"):
                input_nodes.append(None)
                continue
            node = next(ordered)
            input_nodes.append(node.name)
            nodes.append(self._leaf(node, "input", self.true_inputs[position]["shape"]))
        outputs: list[str] = []
        problems: dict[str, str] = {}
        for node in self.module.graph.nodes:
            if node.op == "output":
                outputs = [self._target(item) for item in node.args[0]]
            elif node.op == "get_attr":
                problems[node.name] = "the operator holds a constant tensor that is no parameter"
            elif node.op == "call_function":
                try:
                    plain = self._operator(node)
                except _NotTraceable as error:
                    # It matters only when an output depends on it.
                    problems[node.name] = str(error)
                    continue
                if plain is not None:
                    nodes.append(plain)
        used = self._used(nodes, outputs)
        for name in sorted(used & set(problems)):
            raise _NotTraceable(problems[name])
        return {
            "nodes": [n for n in nodes if n["name"] in used or n["op"] in ("input", "state")],
            "outputs": outputs,
            "inputs": input_nodes,
            "state": state_nodes,
            "sizes": {name: list(origin) for name, origin in self.symbols.items()},
            "hints": self.hints,
            "single_output": self.single,
            "labels": {
                node: self.arguments[position]
                for position, node in enumerate(input_nodes)
                if node is not None and position < len(self.arguments)
            },
        }

    @staticmethod
    def _used(nodes: Sequence[Mapping[str, Any]], outputs: Sequence[str]) -> set[str]:
        by_name = {n["name"]: n for n in nodes}
        seen: set[str] = set()
        queue = list(outputs)
        while queue:
            name = queue.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in by_name:
                continue
            stack = [by_name[name]["args"], by_name[name]["kwargs"]]
            while stack:
                value = stack.pop()
                if isinstance(value, Mapping):
                    if "ref" in value:
                        queue.append(value["ref"])
                    else:
                        stack.extend(value.values())
                elif isinstance(value, list):
                    stack.extend(value)
        return seen

    def _leaf(self, node: Any, kind: str, true_shape: Sequence[int]) -> dict[str, Any]:
        value = node.meta["val"]
        shape: list[str] = []
        for dimension, size in enumerate(value.shape):
            text = str(size)
            true = int(true_shape[dimension])
            if text.isdigit():
                number = int(text)
                if number == true and number <= 16:
                    shape.append(text)
                    continue
                name = self.by_value.get(number)
                if name is None:
                    name = self._new_symbol(node.name, dimension, true)
                    self.by_value[number] = name
                elif self.hints[name] != true:
                    # Equal at the traced shapes only by chance.
                    raise TaskError("two dimensions coincide at the traced shapes")
                shape.append(name)
            elif _SYMBOL.fullmatch(text):
                if int(size.node.hint) == true and true <= SMALL and kind == "state":
                    # The same small number at the traced shapes as at the true ones: a window, not a size.
                    self.constants[text] = str(true)
                    shape.append(str(true))
                    continue
                if text not in self.renamed:
                    self.renamed[text] = self._new_symbol(node.name, dimension, true)
                    self.by_value[int(size.node.hint)] = self.renamed[text]
                shape.append(self.renamed[text])
            else:
                raise _NotTraceable("an input's size depends on another's")
        return {
            "name": node.name,
            "op": kind,
            "args": [],
            "kwargs": {},
            "shape": shape,
            "dtype": str(value.dtype).removeprefix("torch."),
        }

    def _new_symbol(self, node: str, dimension: int, true: int) -> str:
        name = f"s{len(self.symbols)}"
        self.symbols[name] = (node, dimension)
        self.hints[name] = true
        return name

    def _size(self, size: Any) -> str:
        """Write a size over our names."""
        text = str(size)
        if re.fullmatch(r"-?\d+", text):
            number = int(text)
            return self._factored(number)
        return self._expression(size.node.expr)

    def _expression(self, expression: Any) -> str:
        """Write a symbolic size, or a number made of sizes, as Python over our names."""
        import sympy

        for symbol, number in self.constants.items():
            known = [item for item in expression.free_symbols if str(item) == symbol]
            expression = expression.subs({item: sympy.Integer(int(number)) for item in known})
        return self._python(expression)

    def _python(self, expression: Any) -> str:
        if expression.is_Symbol:
            name = self.renamed.get(str(expression))
            if name is None:
                raise _NotTraceable(f"a size that is no dimension of an input ({expression})")
            return name
        if expression.is_Number:
            # A dimension that tracing fixed to its prime may stand inside an expression as well.
            return self._factored(int(expression)) if expression.is_Integer else repr(float(expression))
        kind = type(expression).__name__
        parts = [self._python(item) for item in expression.args]
        wrapped = [part if re.fullmatch(r"[\w.]+", part) else f"({part})" for part in parts]
        if kind == "Add":
            return " + ".join(wrapped).replace("+ -", "- ")
        if kind == "Mul":
            return " * ".join(wrapped)
        if kind in ("FloorDiv", "CleanDiv", "PythonFloorDiv"):
            return f"{wrapped[0]} // {wrapped[1]}"
        if kind in ("Mod", "PythonMod"):
            return f"{wrapped[0]} % {wrapped[1]}"
        if kind in ("FloatTrueDiv", "IntTrueDiv"):
            return f"{wrapped[0]} / {wrapped[1]}"
        if kind in ("Pow", "FloatPow", "PowByNatural"):
            return f"{wrapped[0]} ** {wrapped[1]}"
        if kind == "ToFloat":
            return wrapped[0]
        if kind in ("Max", "Min"):
            return f"{kind.lower()}({', '.join(parts)})"
        raise _NotTraceable(f"a size that the wrapper cannot compute ({expression})")

    def _factored(self, number: int) -> str:
        """Write a number as the dimensions that it is made of: traced sizes are distinct primes above 16."""
        parts: list[str] = []
        for value, name in sorted(self.by_value.items(), reverse=True):
            while value > SMALL and number > SMALL and number % value == 0:
                parts.append(name)
                number //= value
        if number != 1 or not parts:
            parts.append(str(number))
        return " * ".join(parts)

    def _number_of_size(self, number: float) -> str | None:
        """Recognise a number that Python computed from a size while tracing, such as ``1 / math.sqrt(d)``."""
        for value, name in self.by_value.items():
            if value <= SMALL:
                continue
            for power in (0.5, -0.5, -1.0, 2.0, -2.0):
                if math.isclose(number, value**power, rel_tol=1e-9):
                    return f"{name} ** {power}"
        return None

    def _target(self, item: Any) -> str:
        return self.items.get(item.name, item.name)

    def _operator(self, node: Any) -> dict[str, Any] | None:
        import operator

        import torch

        value = node.meta.get("val")
        if node.target is operator.getitem:
            source, position = node.args
            base = source.meta.get("orienteer")
            if base is None:
                raise _NotTraceable("an item of something that is not an operator's result")
            if position == 0:
                plain = {**base, "name": node.name, "kwargs": {**base["kwargs"], "item": 0}}
            else:
                plain = {**base, "name": node.name, "kwargs": {**base["kwargs"], "item": position}}
            plain["shape"] = [self._size(size) for size in value.shape]
            plain["dtype"] = str(value.dtype).removeprefix("torch.")
            return plain
        if not isinstance(node.target, torch._ops.OpOverload):
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
                return None
            raise _NotTraceable(f"a call of {node.target}")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            return None
        name = node.target.name().replace("::", ".")
        parts = name.split(".")
        plain = {
            "name": node.name,
            "op": ".".join(parts[:2]),
            "args": [self._argument(item) for item in node.args],
            "kwargs": {
                key: self._argument(item)
                for key, item in node.kwargs.items()
                if key not in ("device", "layout", "pin_memory", "memory_format")
            },
            "shape": [],
            "dtype": "float32",
        }
        if isinstance(value, (tuple, list)):
            node.meta["orienteer"] = plain
            return None
        if value is None:
            return None
        plain["shape"] = [self._size(size) for size in value.shape]
        plain["dtype"] = str(value.dtype).removeprefix("torch.")
        return plain

    def _argument(self, item: Any) -> Any:
        import torch
        import torch.fx

        if isinstance(item, torch.fx.Node):
            value = item.meta.get("val")
            if isinstance(value, torch.Tensor):
                return {"ref": self._target(item)}
            if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
                return {"size": self._size(value)}
            if isinstance(value, torch.SymFloat):
                return {"size": self._expression(value.node.expr)}
            raise _NotTraceable(f"an argument of type {type(value).__name__}")
        if isinstance(item, torch.SymInt):
            return {"size": self._size(item)}
        if isinstance(item, torch.SymFloat):
            return {"size": self._expression(item.node.expr)}
        if isinstance(item, bool) or item is None or isinstance(item, str):
            return item
        if isinstance(item, int):
            text = self._size(item) if item > 16 else str(item)
            return item if text == str(item) else {"size": text}
        if isinstance(item, float):
            if math.isfinite(item) and item > 16 and item == int(item):
                text = self._size(int(item))
                if not text.isdigit():
                    return {"size": text}
            known = self._number_of_size(item)
            return {"float": repr(item)} if known is None else {"size": known}
        if isinstance(item, torch.dtype):
            return {"dtype": str(item).removeprefix("torch.")}
        if isinstance(item, (list, tuple)):
            return [self._argument(part) for part in item]
        raise _NotTraceable(f"an argument of type {type(item).__name__}")
