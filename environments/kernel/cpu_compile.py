"""The system's C++ compiler: found at run time, used in the sandbox, its answer in one line.

Candidates are compiled without ``-ffast-math``: NaN and infinity must survive, and sums keep the order in which they
are written. What may differ is contraction to fused multiply-add and the absence of ``errno`` and of traps.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache

from orienteer.environments.execution import ExitCause, Limits
from orienteer.environments.execution.sandbox import Sandbox
from orienteer.environments.kernel.jobs import MachineryFault
from orienteer.errors import MissingPrerequisite
from orienteer.kernels.cpp.abi import HEADER, HEADER_NAME

CURE = "apt-get install g++ (or clang with libomp-dev)"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    "-fstack-protector-strong",
    "-fPIC",
    "-shared",
    "-Wl,-z,now,-z,noexecstack",
)
LIMITS = Limits(wall_s=60, memory_mb=3072, disk_mb=128, pids=32, result_mb=32, output_bytes=1 << 18)
SOURCE, LIBRARY, PREPROCESSED = "candidate.cpp", "candidate.so", "candidate.ii"


@dataclass(frozen=True)
class CppCompiler:
    """A compiler that works here."""

    path: str
    #: First line of ``--version``.
    version: str
    flags: tuple[str, ...] = FLAGS

    def describe(self) -> dict[str, object]:
        """Return what a result must name."""
        return {"compiler": self.version, "flags": " ".join(self.flags)}


@dataclass(frozen=True)
class Compiled:
    """What the compiler gave."""

    ok: bool
    library: bytes = b""
    #: The candidate's own lines after the preprocessor, for the static check.
    expanded: str = ""
    #: ``error``, ``timeout``, ``oom`` ... and one useful line when it failed.
    kind: str = ""
    message: str = ""
    log: str = ""


@lru_cache(maxsize=1)
def find() -> CppCompiler:
    """Return the system's compiler: g++, else clang++.

    Raises:
        MissingPrerequisite: there is none.
    """
    for name in ("g++", "clang++"):
        path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
        if said.returncode == 0 and said.stdout:
            return CppCompiler(path, said.stdout.splitlines()[0].strip())
    raise MissingPrerequisite("no C++ compiler was found (g++ or clang++)", CURE)


def compile_library(sandbox: Sandbox, compiler: CppCompiler, source: str, extra: tuple[str, ...] = ()) -> Compiled:
    """Compile a candidate to a shared object in the sandbox.

    Raises:
        MachineryFault: the sandbox failed.
    """
    argv = [compiler.path, *compiler.flags, *extra, "-save-temps", "-fdiagnostics-color=never", "-fmax-errors=5"]
    argv += ["-I.", SOURCE, "-o", LIBRARY]
    done = sandbox.exec(
        argv,
        files={SOURCE: source.encode(), HEADER_NAME: HEADER.encode()},
        env={"LC_ALL": "C"},
        limits=LIMITS,
        collect=[LIBRARY, PREPROCESSED],
    )
    log = done.stderr.decode("utf-8", "replace")
    if done.cause is ExitCause.SANDBOX_ERROR:
        raise MachineryFault(f"the sandbox failed: {done.error}")
    if done.cause is not ExitCause.OK:
        return Compiled(False, kind=done.cause.value, message=f"the compiler was stopped ({done.cause.value})", log=log)
    expanded = own_lines(done.files.get(PREPROCESSED, b"").decode("utf-8", "replace"))
    library = done.files.get(LIBRARY, b"")
    if done.returncode != 0 or not library:
        return Compiled(False, expanded=expanded, kind="error", message=first_error(log), log=log)
    return Compiled(True, library, expanded, log=log)


def first_error(log: str) -> str:
    """Return the line of a compiler's output that says what is wrong, with the line of the candidate.

    An error deep in a header is put down to the line of the candidate that asked for it.
    """
    lines = log.splitlines()
    own = re.compile(rf"(?:^|[\s/]){re.escape(SOURCE)}:(\d+)")
    error = re.compile(r"^(?P<file>[^:\s]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")
    for position, line in enumerate(lines):
        found = error.match(line)
        if found is None:
            continue
        if found["file"].endswith(SOURCE):
            return f"line {found['line']}: {found['text']}"
        for other in [*reversed(lines[:position]), *lines[position:]]:
            hit = own.search(other)
            if hit is not None:
                return f"line {hit[1]}: {found['text']}"
        return found["text"]
    for line in lines:
        if "undefined reference" in line or "cannot find" in line or "error:" in line:
            return line.split(": ", 1)[-1].strip()
    return lines[-1].strip() if lines else "the compiler gave no library and no message"


def own_lines(preprocessed: str) -> str:
    """Return what the candidate's own lines became, each at its own number; what headers brought in is left out."""
    marker = re.compile(r'^# (\d+) "([^"]*)"')
    lines: dict[int, str] = {}
    number, own = 0, False
    for line in preprocessed.splitlines():
        found = marker.match(line)
        if found is not None:
            number, own = int(found[1]), found[2].rsplit("/", 1)[-1] == SOURCE
            continue
        if own:
            lines[number] = lines.get(number, "") + line
        number += 1
    return "\n".join(lines.get(i, "") for i in range(1, max(lines, default=0) + 1))


def cache_key(compiler: CppCompiler, source: str) -> str:
    """Return the key under which a compiled candidate may be kept within a process."""
    text = "\0".join([compiler.path, compiler.version, *compiler.flags, HEADER, source])
    return hashlib.sha256(text.encode()).hexdigest()
