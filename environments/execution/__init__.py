"""Where candidate code runs: sandboxes, limits, warm workers. Import from here.

>>> sandbox = open_sandbox("auto")                                    # doctest: +SKIP
>>> sandbox.exec(["python3", "-c", "print(1)"]).stdout                # doctest: +SKIP
b'1\\n'
"""

from orienteer.environments.execution.limits import ExitCause, Limits
from orienteer.environments.execution.results import ExecResult, JobResult, Message

__all__ = [
    "ExecResult",
    "ExitCause",
    "JobResult",
    "Limits",
    "Message",
    "Sandbox",
    "WorkerPool",
    "open_sandbox",
]


def __getattr__(name: str) -> object:
    # The supervisor imports this package inside every sandbox; it must not pay for the caller's half.
    if name in ("Sandbox", "open_sandbox"):
        from orienteer.environments.execution import sandbox

        return getattr(sandbox, name)
    if name == "WorkerPool":
        from orienteer.environments.execution.pool import WorkerPool

        return WorkerPool
    raise AttributeError(name)
