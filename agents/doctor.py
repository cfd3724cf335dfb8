"""``agent doctor``: what works on this machine and how to enable what does not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

Check = dict[str, Any]


#: How long all checks together may take (seconds).
DEADLINE = 25.0


def examine(home: Path, deadline: float = DEADLINE) -> list[Check]:
    """Try every part for real, all at once, and return a plain dict for each; never raises, never hangs.

    Keys: ``area``, ``name``, ``works`` (None: absent and not needed, or not known), ``detail``, ``cure``.

    Args:
        home: Orienteer's folder.
        deadline: seconds; a part that does not answer by then is reported as such.
    """
    parts: list[tuple[str, Callable[[], list[Check]]]] = [
        ("python", _python), ("store", partial(_store, home)), ("sandbox", _sandboxes),
        ("memory", partial(_memory, home)), ("compiler", partial(_compilers, home)), ("device", _devices),
        ("layout", partial(_klayout, home)), ("model", _models),
    ]  # fmt: skip
    found: dict[str, list[Check]] = {}
    until = time.monotonic() + deadline
    # Daemons: one that hangs (a dead network drive, an engine that does not answer) must not hold the process.
    threads = [threading.Thread(target=_try, args=(found, area, part), daemon=True) for area, part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = f"did not answer within {deadline:g} s"
    return [check for area, _ in parts for check in found.get(area, [_check(area, area, False, late, "try it alone")])]


def _try(found: dict[str, list[Check]], area: str, part: Callable[[], list[Check]]) -> None:
    try:
        found[area] = part()
    except Exception as error:
        said = f"cannot be examined: {type(error).__name__}: {error}"
        found[area] = [_check(area, area, False, said, "please report it")]


def _check(area: str, name: str, works: bool | None, detail: str, cure: str = "") -> Check:
    return {"area": area, "name": name, "works": works, "detail": " ".join(detail.split()), "cure": cure}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> list[Check]:
    version = ".".join(str(n) for n in sys.version_info[:3])
    out = [_check("python", "python", sys.version_info >= (3, 11), version, "use Python 3.11 or newer")]
    for package, extra in (("torch", "npu"), ("triton", "npu"), ("docker", "docker"), ("xllamacpp", "local")):
        found = _version(package)
        needed = package in ("torch", "triton")
        works = True if found else (False if needed else None)
        out.append(
            _check("python", package, works, found or "absent", "" if found else f"pip install 'orienteer[{extra}]'")
        )
    return out


def _store(home: Path) -> list[Check]:
    place = home
    while not place.exists() and place != place.parent:
        place = place.parent
    cure = "set ORIENTEER_HOME to a folder that you may write"
    if not place.is_dir():
        return [_check("store", "home", False, f"{place} is no folder", cure)]
    writable = os.access(place, os.W_OK | os.X_OK)
    detail = f"{home} ({shutil.disk_usage(place).free >> 20} MiB free{'' if writable else ', not writable'})"
    out = [_check("store", "home", writable, detail, "" if writable else cure)]
    if (home / "runs.sqlite").exists():
        out.append(_database(home / "runs.sqlite"))
    return out


def _database(path: Path) -> Check:
    from orienteer.errors import OrienteerError
    from orienteer.memory.rundb import RunDB

    try:
        with RunDB(path, create=False, readonly=True) as db:
            return _check("store", "run database", True, f"{path}, schema {db.schema_version}")
    except OrienteerError as error:
        return _check("store", "run database", False, error.problem, error.cure)


def _memory(home: Path) -> list[Check]:
    from orienteer.memory.experience.embedding import CURE, minilm_missing

    chroma, missing = _version("chromadb"), minilm_missing()
    exact = "absent: every search is exact, and slower from some ten thousand items on"
    out = [
        _check("memory", "chromadb", True if chroma else None, chroma or exact, "" if chroma else CURE),
        _check(
            "memory",
            "MiniLM",
            None if missing else True,
            f"texts are compared by hashed n-grams ({missing} is not installed)" if missing else "all-MiniLM-L6-v2",
            CURE if missing else "",
        ),
    ]
    if (home / "runs.sqlite").exists():
        out.append(_items(home / "runs.sqlite"))
    return out


def _items(path: Path) -> Check:
    from orienteer.errors import OrienteerError
    from orienteer.memory.experience.records import statistics
    from orienteer.memory.rundb import RunDB

    try:
        with RunDB(path, create=False, readonly=True) as db:
            found = {store["store"]: int(store["items"]) for store in statistics(db)}
    except OrienteerError as error:
        return _check("memory", "items", False, error.problem, error.cure)
    shared = found.pop("shared", 0)
    return _check("memory", "items", True, f"{shared} shared, {sum(found.values())} of {len(found)} runs' own")


def _sandboxes() -> list[Check]:
    from orienteer.environments.execution.probe import probe

    return [_check("sandbox", c.name, c.works, c.detail, c.cure) for c in probe()]


def _compilers(home: Path) -> list[Check]:
    from orienteer.environments.kernel import toolchain
    from orienteer.environments.kernel.device_ascend import detect

    found = toolchain.find(home)
    if found is None:
        ascend = _check("compiler", "Ascend (HIVM)", False, "not installed", toolchain.CURE)
    else:
        ascend = _ascend(found)
    triton = importlib.util.find_spec("triton") is not None
    gpu = _check(
        "compiler",
        "NVIDIA and AMD (Triton)",
        triton,
        "cubin and hsaco without a device" if triton else "triton is absent",
        "" if triton else "pip install 'orienteer[npu]'",
    )
    out = [ascend, gpu, _cpp()]
    hivmc = detect().hivmc
    cann = _check(
        "compiler", "hivmc (CANN)", True if hivmc else None, hivmc or "absent: kernels end at HIVM, not at a binary"
    )
    return [*out, cann]


def _cpp() -> Check:
    from orienteer.environments.kernel.cpu_compile import find
    from orienteer.errors import MissingPrerequisite

    try:
        compiler = find()
    except MissingPrerequisite as error:
        return _check("compiler", "C++ (cpu target)", False, error.problem, error.cure)
    return _check("compiler", "C++ (cpu target)", True, compiler.version)


def _ascend(found: Any) -> Check:
    try:
        done = subprocess.run(
            [str(found.compiler()), "--version"], capture_output=True, text=True, timeout=20, check=False
        )
        works = done.returncode == 0
        detail = f"{found.versions['ascendnpu-ir']} in {found.folder}"
        if not works:
            detail = (
                (done.stderr or done.stdout).strip().splitlines()[-1]
                if (done.stderr or done.stdout).strip()
                else "fails"
            )
    except (OSError, subprocess.SubprocessError) as error:
        works, detail = False, f"cannot be started: {error}"
    return _check(
        "compiler", "Ascend (HIVM)", works, detail, "" if works else "remove that folder and run `agent setup npu`"
    )


def _devices() -> list[Check]:
    nvidia = sorted(str(p) for p in Path("/dev").glob("nvidia[0-9]*"))
    amd = Path("/dev/kfd").exists()
    ascend = sorted(str(p) for p in Path("/dev").glob("davinci[0-9]*"))
    gpu = ", ".join(nvidia) or ("/dev/kfd" if amd else "")
    return [
        _check(
            "device", "GPU", True if gpu else None, gpu or "none: kernels are interpreted and compiled, not measured"
        ),
        _check("device", "Ascend NPU", True if ascend else None, ", ".join(ascend) or "none: same"),
    ]


def _klayout(home: Path) -> list[Check]:
    from orienteer.environments.layout import finding, ruby_engine
    from orienteer.environments.layout.runner import choose
    from orienteer.errors import OrienteerError

    wheel = _version("klayout")
    out = [
        _check(
            "layout", "klayout wheel", bool(wheel), wheel or "absent", "" if wheel else "pip install 'orienteer[drc]'"
        )
    ]
    try:
        found = finding.find()
        out.append(_check("layout", "KLayout", True, f"{found.version} in {found.program.parent}"))
        if found.strmrun is None:
            raise OrienteerError("absent: decks run by the embedded interpreter or a process each", finding.CURE)
        engine = ruby_engine.engine(found, home / "cache")
        out.append(_check("layout", "strmrun", True, f"{found.strmrun}, with the engine in {engine}"))
    except OrienteerError as error:
        name = "strmrun" if len(out) > 1 else "KLayout"
        out.append(_check("layout", name, None, error.problem, error.cure))
    out.append(_check("layout", "deck backend", True, f"auto takes {choose(home)[1]}"))
    return out


def _models() -> list[Check]:
    from orienteer.agents.runtime.models import choose_model
    from orienteer.agents.runtime.models.probe import probe_endpoint
    from orienteer.errors import OrienteerError

    try:
        chosen, why = choose_model(None)
    except OrienteerError as error:
        return [_check("model", "default model", False, error.problem, error.cure)]
    found = probe_endpoint()
    works = {"ok": True, "wrong": False}.get(found.state)
    return [
        _check("model", "endpoint", works, found.detail, found.cure),
        _check("model", "default model", True, f"{chosen} ({why})"),
    ]
