"""Many threads that read syntax trees at once, as the workers of a run do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from orienteer.environments.kernel import shapes
from orienteer.environments.kernel.tasks import find_tasks
from orienteer.evaluators.kernel import cheats


def test_reading_syntax_trees_from_many_threads():
    source = find_tasks(["conv_bn_relu"])[0].source * 8

    def read(_: int) -> bool:
        return bool(shapes.dimensions(source)) and bool(cheats.check(source))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))
