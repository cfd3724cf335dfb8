"""KLayout's own DRC engine, taken once per installation from the program's resources into the user's cache.

``strmrun`` has the classes that the engine works with but not the engine, which is Ruby text inside the ``klayout``
program. It is read from there at run time and never shipped with us.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

from orienteer.environments.layout.finding import Installation
from orienteer.errors import MissingPrerequisite

#: Without these there is no engine; an installation may have more.
PARTS = ("complex_ops", "cop_integration", "engine", "layer", "netter", "patch", "source", "tags")
_CURE = "use --backend py or --backend klayout, or install a KLayout with Qt bindings (the Debian package has them)"
_PATIENCE_S = 120
_SCRIPT = """
def flag
  RBA::QIODevice.const_defined?(:ReadOnly) ? RBA::QIODevice::ReadOnly : RBA::QIODeviceBase::ReadOnly
end

unless RBA.const_defined?(:QFile)
  puts "NO-QT"
  exit(0)
end
RBA::QDir.new(":/built-in-macros").entryList.grep(/\\A_drc_\\w+\\.rb\\z/).each do |name|
  file = RBA::QFile.new(":/built-in-macros/#{name}")
  file.open(flag) || raise("cannot open #{name}")
  text = file.readAll
  File.binwrite("#{$into}/#{name}", text.respond_to?(:data) ? text.data : text.to_s)
  puts "FILE #{name} #{file.size}"
end
puts "END"
"""


def engine(installation: Installation, cache: Path) -> Path:
    """Return the folder with the engine's sources of this installation; takes them out (1 s) the first time.

    Safe for two at once: the folder appears whole or not at all. What is found there is checked by content.

    Args:
        installation: where from.
        cache: the folder for things that can be made again.

    Raises:
        MissingPrerequisite: this KLayout has no Qt bindings, or the cache cannot be written.
    """
    key = hashlib.sha256(installation.stamp.encode()).hexdigest()[:12]
    place = cache / "klayout-engine" / f"{installation.version}-{key}"
    if intact(place):
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=place.parent) as made:
            new = Path(made) / "engine"
            new.mkdir()
            _extract(installation, new, Path(made))
            if place.exists() and not intact(place):  # half deleted, or changed by somebody
                aside = Path(made) / "damaged"
                with contextlib.suppress(OSError):
                    place.rename(aside)
            with contextlib.suppress(OSError):  # another of us was first
                new.rename(place)
    except OSError as error:
        raise MissingPrerequisite(
            f"cannot keep KLayout's engine in {place.parent}: {error.strerror or error}",
            "set ORIENTEER_HOME to a folder that you may write",
        ) from None
    if not intact(place):
        raise MissingPrerequisite(f"KLayout's engine in {place} is damaged", f"remove {place} and try again")
    return place


def intact(place: Path) -> bool:
    """Say whether the folder holds every part as it was taken out."""
    try:
        sums = json.loads((place / "sums.json").read_text())
        return {f"_drc_{part}.rb" for part in PARTS} <= set(sums) and all(
            hashlib.sha256((place / name).read_bytes()).hexdigest() == value for name, value in sums.items()
        )
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _extract(installation: Installation, into: Path, home: Path) -> None:
    script = home / "extract.rb"
    script.write_text(_SCRIPT)
    command = [str(installation.program), "-b", "-r", str(script), "-rd", f"into={into}"]
    env = {**installation.environment, "HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False,
            stdin=subprocess.DEVNULL, env=env, cwd=home,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingPrerequisite(f"{installation.program} does not start: {error}", _CURE) from None
    lines = done.stdout.splitlines()
    if "NO-QT" in lines:
        raise MissingPrerequisite(f"KLayout {installation.version} has no Qt bindings to read its own engine by", _CURE)
    sizes = {line.split()[1]: int(line.split()[2]) for line in lines if line.startswith("FILE ")}
    missing = [part for part in PARTS if f"_drc_{part}.rb" not in sizes]
    wrong = [name for name, size in sizes.items() if size == 0 or (into / name).stat().st_size != size]
    if done.returncode != 0 or "END" not in lines or missing or wrong:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        what = f"parts {', '.join(missing or wrong)} are not there" if missing or wrong else said[-1][:200]
        raise MissingPrerequisite(f"the engine of KLayout {installation.version} cannot be read: {what}", _CURE)
    sums = {name: hashlib.sha256((into / name).read_bytes()).hexdigest() for name in sizes}
    (into / "sums.json").write_text(json.dumps(sums, sort_keys=True))
    into.chmod(0o755)
    for name in into.iterdir():
        name.chmod(0o644)
