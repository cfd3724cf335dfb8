"""From the building blocks' expressions to C++.

The building blocks of ``kernels/blocks`` write values as Triton expressions. All of them are plain arithmetic over
scalars in C++, so that one table of operators serves both languages: this module translates the text.
"""

from __future__ import annotations

import ast
import math
from functools import lru_cache

from orienteer.kernels.blocks.emit import Unsupported
from orienteer.syntax import parse_expression

#: C++ types in which values of a dtype are computed and by which they are stored.
COMPUTED = {
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int64_t",
    "int16": "int64_t",
    "int8": "int64_t",
    "uint8": "int64_t",
    "bool": "bool",
}
STORED = {
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
_CASTS = {"float16": "float", "bfloat16": "float", "int1": "bool"}
_CALLS = {
    "exp": "fast_exp",
    "exp2": "fast_exp2",
    "log": "fast_log",
    "log2": "fast_log2",
    "erf": "fast_erf",
    "sin": "fast_sin",
    "cos": "fast_cos",
    "sqrt": "std::sqrt",
    "floor": "std::floor",
    "ceil": "std::ceil",
    "abs": "absolute",
    "minimum": "smaller",
    "maximum": "larger",
    "fma": "std::fma",
}
_OPERATORS: dict[type[ast.AST], tuple[str, int]] = {
    ast.BitOr: ("|", 3),
    ast.BitXor: ("^", 4),
    ast.BitAnd: ("&", 5),
    ast.Eq: ("==", 6),
    ast.NotEq: ("!=", 6),
    ast.Lt: ("<", 7),
    ast.LtE: ("<=", 7),
    ast.Gt: (">", 7),
    ast.GtE: (">=", 7),
    ast.LShift: ("<<", 8),
    ast.RShift: (">>", 8),
    ast.Add: ("+", 9),
    ast.Sub: ("-", 9),
    ast.Mult: ("*", 10),
    ast.Div: ("/", 10),
    ast.FloorDiv: ("/", 10),
    ast.Mod: ("%", 10),
}
_TERNARY, _UNARY, _ATOM = 1, 11, 12


@lru_cache(maxsize=4096)
def translate(text: str, dtype: str = "float32", wide: bool = False) -> str:
    """Translate an expression to C++.

    Args:
        text: an expression as the building blocks write it.
        dtype: what it is computed in; decides what a division is.
        wide: literals are doubles (a kernel with float64 values).

    Raises:
        Unsupported: it uses something that has no C++ form here.
    """
    try:
        tree = parse_expression(text)
    except SyntaxError:
        raise Unsupported(f"the expression {text!r} has no C++ form") from None
    return _Writer(dtype, wide).write(tree)[0]


class _Writer:
    def __init__(self, dtype: str, wide: bool) -> None:
        self.dtype, self.wide = dtype, wide

    def _below(self, node: ast.AST, level: int) -> str:
        text, own = self.write(node)
        return f"({text})" if own < level else text

    def write(self, node: ast.AST) -> tuple[str, int]:
        """Return the text of a node and how tightly it binds."""
        if isinstance(node, ast.Constant):
            return literal(node.value, self.wide), _ATOM
        if isinstance(node, ast.Name):
            return node.id, _ATOM
        if isinstance(node, ast.Subscript):
            return ast.unparse(node), _ATOM
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sign, level = _OPERATORS[type(node.ops[0])]
            left, right = self._below(node.left, level + 1), self._below(node.comparators[0], level + 1)
            return f"{left} {sign} {right}", level
        if isinstance(node, ast.Call):
            return self._call(node)
        raise Unsupported(f"the expression {ast.unparse(node)!r} has no C++ form")

    def _unary(self, node: ast.UnaryOp) -> tuple[str, int]:
        inner = self._below(node.operand, _UNARY)
        if isinstance(node.op, ast.USub):
            return f"-{inner}" if not inner.startswith("-") else f"-({inner})", _UNARY
        if isinstance(node.op, ast.Invert):
            return f"{'!' if self.dtype == 'bool' else '~'}{inner}", _UNARY
        raise Unsupported(f"the expression {ast.unparse(node)!r} has no C++ form")

    def _binary(self, node: ast.BinOp) -> tuple[str, int]:
        if isinstance(node.op, ast.Pow):
            return f"std::pow((double){self._below(node.left, _ATOM)}, {self._below(node.right, 0)})", _ATOM
        if isinstance(node.op, ast.Add):
            whole = _joined(node)
            if whole is not None:
                return self.write(whole)
        sign, level = _OPERATORS[type(node.op)]
        left, right = self._below(node.left, level), self._below(node.right, level + 1)
        if isinstance(node.op, ast.Div):
            # Division of whole numbers is true division.
            left = (
                f"({'double' if self.wide else 'float'}){self._below(node.left, _UNARY)}"
                if self.dtype == "size" or _whole(node)
                else left
            )
        return f"{left} {sign} {right}", level

    def _call(self, node: ast.Call) -> tuple[str, int]:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "float" and isinstance(node.args[0], ast.Constant):
            return literal(float(str(node.args[0].value)), self.wide), _ATOM
        if isinstance(function, ast.Name) and function.id in ("max", "min"):
            out = self._below(node.args[0], 0)
            for argument in node.args[1:]:
                out = f"{'larger' if function.id == 'max' else 'smaller'}({out}, {self._below(argument, 0)})"
            return out, _ATOM
        if not isinstance(function, ast.Attribute):
            raise Unsupported(f"the expression {ast.unparse(node)!r} has no C++ form")
        if function.attr == "to" and isinstance(node.args[0], ast.Attribute):
            kind = node.args[0].attr
            target = _CASTS.get(kind) or COMPUTED.get(kind)
            if target == "float" and self.wide:
                target = "double"
            if target is None:
                raise Unsupported(f"a value of type {kind}")
            return f"({target}){self._below(function.value, _UNARY)}", _UNARY
        if function.attr == "where":
            test, yes, no = (self._below(item, _TERNARY + 1) for item in node.args)
            return f"{test} ? {yes} : {no}", _TERNARY
        name = _CALLS.get(function.attr)
        if name is None:
            raise Unsupported(f"the function {function.attr} has no C++ form")
        return f"{name}({', '.join(self.write(item)[0] for item in node.args)})", _ATOM


def _joined(node: ast.BinOp) -> ast.expr | None:
    """Return ``a + x`` for ``a + x // w * w + x % w`` (``a`` may be missing), else None: quotient and remainder."""
    rest, quotient = node.left, node.left
    if isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Add):
        quotient = rest.right
    else:
        rest = None  # type: ignore[assignment]
    remainder = node.right
    if not (isinstance(remainder, ast.BinOp) and isinstance(remainder.op, ast.Mod)):
        return None
    value, width = ast.dump(remainder.left), ast.dump(remainder.right)
    if not (isinstance(quotient, ast.BinOp) and isinstance(quotient.op, ast.Mult)):
        return None
    divided = quotient.left
    if not (isinstance(divided, ast.BinOp) and isinstance(divided.op, ast.FloorDiv)):
        return None
    if (ast.dump(divided.left), ast.dump(divided.right), ast.dump(quotient.right)) != (value, width, width):
        return None
    if rest is None:
        return remainder.left
    assert isinstance(rest, ast.BinOp)
    return ast.BinOp(rest.left, ast.Add(), remainder.left)


def _whole(node: ast.BinOp) -> bool:
    """Say whether the quotient may be of two whole numbers: literals, sizes and positions."""
    return all(_is_whole(item) for item in (node.left, node.right))


def _is_whole(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    if isinstance(node, ast.Name):
        return not node.id.startswith(("v", "x", "s", "acc", "p", "run"))
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.Div) and _is_whole(node.left) and _is_whole(node.right)
    return False


def literal(value: object, wide: bool) -> str:
    """Write a number in C++."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 2**31 else f"{value}LL"
    if not isinstance(value, float):
        raise Unsupported(f"the literal {value!r} has no C++ form")
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(value) if wide else f"{value!r}f"
