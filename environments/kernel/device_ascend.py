"""Ascend devices and CANN: what is installed, the profiler's commands, and its table of operators.

Level E3 (a binary) needs ``hivmc`` of CANN; level E4 needs ``torch_npu`` with a device, or ``msprof``. A measurement
is three passes of the profiler after a warm-up, one for each set of the hardware's counters (EvoKernel, arXiv
2603.10846: Pipe, Memory, Resource); the latency is the mean of the three.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Counters of the three passes, as ``msprof --aic-metrics`` names them.
PASSES = ("PipeUtilization", "Memory", "ResourceConflictRatio")
_DEVICES = Path("/dev")


@dataclass(frozen=True)
class AscendSystem:
    """What of CANN and of devices this machine has."""

    #: The closed back end of the kernel compiler: E3.
    hivmc: str | None
    #: The profiler.
    msprof: str | None
    torch_npu: bool
    devices: int
    #: Where CANN says that it is installed.
    toolkit: str | None

    def missing(self, level: str) -> str:
        """Return what a level needs and is not here, or nothing.

        Args:
            level: ``E3`` or ``E4``.
        """
        if level == "E3":
            return "" if self.hivmc else "hivmc of CANN is not on PATH: source set_env.sh of the CANN toolkit"
        lacking = [
            text
            for there, text in (
                (self.devices > 0, "no Ascend device (/dev/davinci0)"),
                (self.torch_npu, "torch_npu is not installed"),
                (self.msprof is not None, "msprof of CANN is not on PATH"),
            )
            if not there
        ]
        return "; ".join(lacking)


def detect(devices: Path = _DEVICES) -> AscendSystem:
    """Look for CANN and for devices; nothing is started or imported.

    Args:
        devices: the folder of device files.
    """
    return AscendSystem(
        hivmc=shutil.which("hivmc"),
        msprof=shutil.which("msprof"),
        torch_npu=importlib.util.find_spec("torch_npu") is not None,
        devices=sum(1 for path in devices.glob("davinci[0-9]*")) if devices.is_dir() else 0,
        toolkit=os.environ.get("ASCEND_TOOLKIT_HOME") or os.environ.get("ASCEND_HOME_PATH"),
    )


def profile_commands(application: Sequence[str], output: Path, msprof: str = "msprof") -> list[list[str]]:
    """Return the command lines of the three passes; each writes below a folder of its own.

    Args:
        application: the command that runs the candidate, with its own warm-up.
        output: where the profiler writes.
        msprof: the profiler.
    """
    return [
        [
            msprof,
            f"--output={output / name}",
            "--task-time=l1",
            "--ai-core=on",
            "--aic-mode=task-based",
            f"--aic-metrics={name}",
            *application,
        ]
        for name in PASSES
    ]


def summaries(output: Path) -> list[Path]:
    """Return the profiler's ``op_summary`` tables below a folder, oldest first."""
    return sorted(output.rglob("op_summary*.csv"), key=lambda path: (path.stat().st_mtime, path.name))


@dataclass(frozen=True)
class TaskTime:
    """One task of the device in a table of operators."""

    name: str
    #: ``AI_CORE``, ``AI_VECTOR_CORE``, ``MIX_AIC`` ...
    kind: str
    seconds: float
    blocks: int
    #: Seconds by pipe, in the words of the latency model; the longest of cube and vector cores.
    units: Mapping[str, float] = field(default_factory=dict)

    @property
    def bottleneck(self) -> str:
        """The pipe that works longest; empty when the table has no counters of pipes."""
        return max(self.units, key=lambda name: self.units[name]) if self.units else ""


class BadTable(Exception):
    """A table of operators that cannot be read; the message says why."""


_DURATION = ("Task Duration(us)", "Duration(us)")
_NAME = ("Op Name", "Name")
_KIND = ("Task Type", "Accelerator Core")
_BLOCKS = ("Block Dim", "Block Num")
_UNITS = {
    "mac": "cube",
    "vec": "vector",
    "scalar": "scalar",
    "mte1": "mte1",
    "mte2": "mte2",
    "mte3": "mte3",
    "fixpipe": "fixpipe",
}


def read_summary(text: str) -> list[TaskTime]:
    """Read a profiler's table (``op_summary_*.csv`` of msprof, or ``kernel_details.csv`` of torch_npu's profiler).

    Raises:
        BadTable: a column is missing or a duration is not a number.
    """
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    if not rows:
        raise BadTable("the profiler's table has no rows")
    columns = list(rows[0])
    duration, name, kind = (_column(columns, names) for names in (_DURATION, _NAME, _KIND))
    blocks = next((item for item in _BLOCKS if item in columns), "")
    out = []
    for number, row in enumerate(rows, 2):
        try:
            seconds = float((row[duration] or "").strip()) * 1e-6
        except ValueError:
            raise BadTable(f"line {number}: the duration {row[duration]!r} is not a number") from None
        units: dict[str, float] = {}
        for core in ("aic", "aiv"):
            for short, word in _UNITS.items():
                value = _number(row.get(f"{core}_{short}_time(us)"))
                if value is not None:
                    units[word] = max(units.get(word, 0.0), value * 1e-6)
        out.append(
            TaskTime(
                (row[name] or "").strip(),
                (row[kind] or "").strip(),
                seconds,
                int(_number(row.get(blocks)) or 0),
                {word: value for word, value in units.items() if value > 0},
            )
        )
    return out


def _column(columns: Sequence[str], names: Sequence[str]) -> str:
    for name in names:
        if name in columns:
            return name
    raise BadTable(f"the profiler's table has no column {names[0]!r}")


def _number(text: str | None) -> float | None:
    """Return a number; the profiler writes ``N/A`` where a counter is not valid."""
    try:
        return float((text or "").strip())
    except ValueError:
        return None
