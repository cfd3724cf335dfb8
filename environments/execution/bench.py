"""Measures what a candidate's start costs in a warm worker. For ``agent bench``, not for tests."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Sequence
from typing import Any

from orienteer.environments.execution.limits import ExitCause, Limits
from orienteer.environments.execution.pool import WorkerPool
from orienteer.environments.execution.results import Message
from orienteer.environments.execution.sandbox import open_sandbox


def nothing(message: Message) -> Message:
    """Return the message: a job that costs only its start and end."""
    return message


def measure_worker_start(
    choice: str = "auto",
    *,
    preload: Sequence[str] = ("torch", "triton"),
    rounds: int = 30,
    allow_unsafe: bool = False,
) -> dict[str, Any]:
    """Run an empty job ``rounds`` times in a warm worker and return what it cost.

    Returns:
        Plain data: ``backend``, ``isolation``, ``preload``, ``rounds``, ``worker_start_s`` (once, imports included),
        ``worker_mb`` (resident), ``job_wall_ms`` (minimum, median and 90th percentile from call to result),
        ``job_cpu_ms`` (processor time per job: ours, the worker's and the job's together), ``load`` (1 minute).

    Raises:
        MissingPrerequisite: there is no sandbox of that choice here.
        RuntimeError: a job of the measurement failed.
    """
    sandbox = open_sandbox(choice, allow_unsafe=allow_unsafe)
    walls: list[float] = []
    try:
        with WorkerPool(sandbox, preload=preload, env={"TRITON_INTERPRET": "1"}) as pool:
            began = time.monotonic()
            facts = pool.warm()
            started = time.monotonic() - began
            job = f"{__name__}:nothing"
            pool.run(job, Message({}), Limits())
            inside = pool.warm()["cpu_s"]
            before = resource.getrusage(resource.RUSAGE_SELF)
            for _ in range(rounds):
                began = time.perf_counter()
                result = pool.run(job, Message({}), Limits())
                walls.append((time.perf_counter() - began) * 1000)
                if result.cause != ExitCause.OK or result.value is None:
                    raise RuntimeError(f"an empty job failed: {result.cause} {result.error}")
            after = resource.getrusage(resource.RUSAGE_SELF)
            inside = pool.warm()["cpu_s"] - inside
    finally:
        sandbox.close()
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    walls.sort()
    return {
        "backend": result.backend,
        "isolation": result.isolation,
        "preload": list(preload),
        "rounds": rounds,
        "worker_start_s": round(started, 3),
        "worker_mb": round(float(facts["rss_mb"]), 1),
        "job_wall_ms": {
            "min": round(walls[0], 2),
            "median": round(statistics.median(walls), 2),
            "p90": round(walls[int(len(walls) * 0.9)], 2),
        },
        "job_cpu_ms": round((own + inside) * 1000 / rounds, 2),
        "load": round(os.getloadavg()[0], 2),
    }
