"""Run pytest as user 65534: ``unshare -m python as_nobody.py REPOSITORY HOME ARGUMENTS...``; needs root.

Root's checkout and interpreter may lie below folders that nobody else can enter. In the private mount namespace such a
folder is replaced by an empty one with only the needed paths in it, so that all paths stay what they are.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def open_up(needed):
    closed = {}
    for path in needed:
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 0o001:
                closed.setdefault(parent, []).append(path)
                break
    stage = Path(tempfile.mkdtemp(prefix="stage-"))
    for top, paths in closed.items():
        staged = []
        for number, path in enumerate(dict.fromkeys(paths)):
            place = stage / f"{len(staged)}-{number}-{top.name}"
            place.mkdir()
            subprocess.run(["mount", "--rbind", str(path), str(place)], check=True)
            staged.append((path, place))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(top)], check=True)
        for path, place in staged:
            path.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--rbind", str(place), str(path)], check=True)


def main():
    repository, home, *arguments = sys.argv[1:]
    needed = [Path(repository), Path(sys.base_prefix), Path(sys.prefix), Path(sys.executable).resolve().parents[1]]
    open_up([path.resolve() for path in needed])
    os.chown(home, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    os.chdir("/")
    env = {"HOME": home, "PATH": os.environ["PATH"], "TMPDIR": home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *arguments], env)


main()
