"""``agent doctor``: what works on this machine and how to enable what does not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

Check = dict[str, Any]


def examine(home: Path) -> list[Check]:
    """Try every part for real and return a plain dict for each.

    Keys: ``area``, ``name``, ``works`` (None: absent and not needed), ``detail``, ``cure``.
    """
    checks = [*_python(), *_store(home), *_sandboxes(), *_compilers(home), *_devices(), *_klayout(), *_models()]
    return checks


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
    writable = os.access(place, os.W_OK)
    free = shutil.disk_usage(place).free >> 20
    cure = "" if writable else "set ORIENTEER_HOME to a folder that you may write"
    return [_check("store", "home", writable, f"{home} ({free} MiB free)", cure)]


def _sandboxes() -> list[Check]:
    from orienteer.environments.execution.probe import probe

    return [_check("sandbox", c.name, c.works, c.detail, c.cure) for c in probe()]


def _compilers(home: Path) -> list[Check]:
    from orienteer.environments.kernel import toolchain

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
    hivmc = shutil.which("hivmc")
    cann = _check(
        "compiler", "hivmc (CANN)", True if hivmc else None, hivmc or "absent: kernels end at HIVM, not at a binary"
    )
    return [ascend, gpu, cann]


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


def _klayout() -> list[Check]:
    program, wheel = shutil.which("klayout"), _version("klayout")
    detail = ", ".join(x for x in (program or "", f"wheel {wheel}" if wheel else "") if x)
    return [_check("layout", "KLayout", True if detail else None, detail or "absent (no method needs it yet)")]


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
