"""Finds an installed KLayout: the program, its libraries, ``strmrun``, its version."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from orienteer.errors import MissingPrerequisite

#: Names a folder with an installation: ``klayout`` and ``strmrun`` in it, or in ``bin`` and ``lib`` below it.
VARIABLE = "KLAYOUT_HOME"
CURE = f"apt-get install klayout (or see klayout.de/build.html), or set {VARIABLE} to the folder that holds the program"
_LIBRARIES = ("/usr/lib/klayout", "/usr/lib64/klayout", "/usr/local/lib/klayout", "/opt/klayout", "/opt/klayout/lib")
#: How long the program may take to say its version, seconds.
_PATIENCE_S = 60


@dataclass(frozen=True)
class Installation:
    """An installed KLayout.

    Attributes:
        program: the ``klayout`` executable itself, not a wrapper.
        libraries: the folder of its shared libraries.
        strmrun: the tool that runs scripts without the application, if it is there.
        version: as ``klayout -v`` says it, for example ``0.28.5``.
    """

    program: Path
    libraries: Path
    strmrun: Path | None
    version: str

    @property
    def stamp(self) -> str:
        """Tell this installation from another, or a newer build, of the same version."""
        facts = self.program.stat()
        return f"{self.program}:{facts.st_size}:{facts.st_mtime_ns}"

    @property
    def environment(self) -> dict[str, str]:
        """What its programs need in their environment."""
        return {"LD_LIBRARY_PATH": str(self.libraries), "QT_QPA_PLATFORM": "offscreen"}

    @property
    def folders(self) -> tuple[Path, ...]:
        """What a sandbox has to show besides /usr."""
        wanted = {self.libraries, self.program.parent}
        return tuple(sorted(folder for folder in wanted if not folder.is_relative_to("/usr")))


def find() -> Installation:
    """Return the installed KLayout: ``$KLAYOUT_HOME``, else beside the program on PATH, else the usual folders.

    Raises:
        MissingPrerequisite: there is none, or it does not start.
    """
    named = os.environ.get(VARIABLE)
    for program, libraries in _candidates(named):
        facts = program.stat()
        return _examined(program, libraries, facts.st_mtime_ns)
    where = f"{VARIABLE}={named} holds no klayout program" if named else "KLayout is not installed"
    raise MissingPrerequisite(where, CURE)


def _candidates(named: str | None) -> Iterator[tuple[Path, Path]]:
    tops: list[Path] = []
    if named:
        top = Path(named).expanduser()
        tops = [top, top / "bin", top / "lib", top / "lib" / "klayout"]
    else:
        on_path = shutil.which("klayout")
        if on_path:
            tops.append(Path(on_path).resolve().parent)
        tops += [Path(folder) for folder in _LIBRARIES]
    # The program in /usr/bin of a Debian package is a shell script; the real one lies with its libraries.
    places = [folder for top in tops for folder in (top, top.parent / "lib" / "klayout")]
    for folder in places:
        program = folder / "klayout"
        if program.is_file() and os.access(program, os.X_OK) and _binary(program):
            for libraries in (folder, folder.parent / "lib", folder.parent / "lib" / "klayout"):
                if next(libraries.glob("libklayout_db.so*"), None) is not None:
                    yield program.resolve(), libraries.resolve()
                    break


def _binary(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


@lru_cache(maxsize=8)
def _examined(program: Path, libraries: Path, _changed: int) -> Installation:
    tool = next((folder / "strmrun" for folder in (program.parent, libraries) if (folder / "strmrun").is_file()), None)
    draft = Installation(program, libraries, tool, "")
    with tempfile.TemporaryDirectory(prefix="orienteer-klayout-") as home:
        try:
            done = subprocess.run(
                [str(program), "-v"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
                stdin=subprocess.DEVNULL, env={**draft.environment, "HOME": home, "PATH": os.defpath},
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise MissingPrerequisite(f"{program} does not start: {error}", CURE) from None
    words = done.stdout.split()
    if done.returncode != 0 or len(words) < 2 or words[0] != "KLayout":
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise MissingPrerequisite(f"{program} does not say its version: {said[-1][:200]}", CURE)
    return Installation(program, libraries, tool, words[1])
