"""One door to Python's own parser, for threads.

CPython counts the depth of a syntax tree in a place that all threads share, and switches threads while it builds one
(CPython issue 106905, mended in 3.11.8 and 3.12.2): two threads that parse at once may meet ``SystemError: AST
constructor recursion depth mismatch``. A lock keeps them apart.
"""

from __future__ import annotations

import ast
import threading

_LOCK = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a file.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _LOCK:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """Return the syntax tree of one expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _LOCK:
        return ast.parse(source, mode="eval").body
