"""Many threads that read syntax trees at once, as the workers of a run do."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from orienteer.syntax import parse, parse_expression

SOURCE = "x = 1 + (2 * (3 + 4))\n" * 50


@pytest.fixture
def switching():
    """Let threads change places while the parser builds a tree: in the garbage collections that this sets off."""

    def pause(*_):
        time.sleep(0.00005)

    before = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(pause)
    yield
    gc.callbacks.remove(pause)
    gc.set_threshold(*before)


def test_trees_are_built_one_thread_at_a_time(switching):
    def read(number: int) -> int:
        return len(parse(SOURCE).body) + len(ast_names(parse_expression(f"a + b * {number}")))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(300))) == {52}


def ast_names(tree):
    import ast

    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
