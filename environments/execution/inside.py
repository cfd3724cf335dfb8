"""Bootstrap of the supervisor: run as a file by the sandbox's Python, finds the package without an installation.

``python inside.py FD PACKAGE PATHS``: ``FD`` is the control socket (``-`` for standard input and output), ``PACKAGE``
the folder of ``orienteer``, ``PATHS`` the caller's module search path, joined by ``:``. The editable install of a
package whose root is the repository works through a finder in site-packages that ``-S`` leaves out; hence by hand.
"""

import importlib.util
import os
import sys


def main() -> None:
    """Make ``orienteer`` importable and hand over to the supervisor."""
    channel, package, paths = sys.argv[1:4]
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - before any import that costs
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path.extend(path for path in paths.split(":") if path and path not in sys.path)
    if "orienteer" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "orienteer",
            package + "/__init__.py",
            submodule_search_locations=[package],
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["orienteer"] = module
        spec.loader.exec_module(module)
    from orienteer.environments.execution import supervisor

    supervisor.main(channel)


main()
