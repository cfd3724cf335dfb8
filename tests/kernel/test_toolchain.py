"""Installing the Ascend compiler: with the real pip, from a folder of small wheels instead of the index."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import resource
import signal
import sys
import threading
import time
import zipfile

import pytest

from orienteer.environments.kernel import toolchain
from orienteer.environments.kernel.toolchain import Wheel, find, folder, install
from orienteer.errors import MissingPrerequisite, StoreError

MACHINE = platform.machine()
FORK = multiprocessing.get_context("fork")


def build(index, project, members, version="1.0"):
    """Write a wheel into the index folder and return its pin."""
    stem = project.replace("-", "_")
    path = index / f"{stem}-{version}-cp311-cp311-manylinux_2_28_{MACHINE}.whl"
    info = f"{stem}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in members.items():
            package.writestr(name, content)
        package.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        tag = f"cp311-cp311-manylinux_2_28_{MACHINE}"
        package.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        package.writestr(f"{info}/RECORD", "")
    return Wheel(project, version, {MACHINE: hashlib.sha256(path.read_bytes()).hexdigest()}, ("prog/bin/", "prog/lib/"))


@pytest.fixture
def index(tmp_path, monkeypatch):
    """An index folder that the real pip uses instead of any other."""
    place = tmp_path / "index"
    place.mkdir()
    monkeypatch.delenv("ORIENTEER_TOOLCHAINS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    return place


@pytest.fixture
def wheels(index):
    members = {
        "prog/bin/tool": b"#!/bin/sh\necho hello\n",
        "prog/lib/data": b"d" * 300_000,
        "prog/other": b"not wanted",
    }
    return [build(index, "first-part", members), build(index, "second-part", {"prog/lib/more": b"m"})]


def quiet(*_):
    pass


def leftovers(home):
    """Return everything in the toolchains folder besides the lock."""
    place = home / "toolchains"
    return sorted(p.name for p in place.iterdir() if not p.name.endswith(".lock")) if place.exists() else []


def test_install_unpacks_what_is_wanted(tmp_path, wheels):
    said, seen = [], []
    found = install(tmp_path, said.append, lambda *step: seen.append(step), wheels=wheels)
    assert found.folder == folder(tmp_path) and find(tmp_path) == found
    assert os.access(found.folder / "prog/bin/tool", os.X_OK)
    assert (found.folder / "prog/lib/more").read_bytes() == b"m"
    assert not (found.folder / "prog/other").exists()
    assert seen[-1][1] == seen[-1][2] and any("verifying" in line for line in said)
    assert leftovers(tmp_path) == [folder(tmp_path).name]
    again = []
    install(tmp_path, again.append, quiet, wheels=wheels)
    assert again == []


def test_another_file_than_the_pinned_one(tmp_path, index, wheels):
    wrong = Wheel("first-part", "1.0", {MACHINE: "0" * 64}, ("prog/",))
    with pytest.raises(MissingPrerequisite, match="expected 0000") as caught:
        install(tmp_path, quiet, quiet, wheels=[wrong])
    assert "do not use it" in caught.value.cure
    assert leftovers(tmp_path) == [] and find(tmp_path) is None


def test_no_such_wheel_and_no_pip(tmp_path, wheels):
    missing = Wheel("not-there", "9.9", {MACHINE: "0" * 64}, ("prog/",))
    with pytest.raises(MissingPrerequisite, match=r"not-there==9\.9") as caught:
        install(tmp_path, quiet, quiet, wheels=[missing])
    assert "agent setup npu" in caught.value.cure
    with pytest.raises(MissingPrerequisite, match="No module named"):
        install(tmp_path, quiet, quiet, wheels=wheels, pip=(sys.executable, "-m", "no_such_pip"))
    with pytest.raises(MissingPrerequisite, match="cannot be started"):
        install(tmp_path, quiet, quiet, wheels=wheels, pip=(str(tmp_path / "no-python"),))
    assert leftovers(tmp_path) == []


def test_no_wheel_for_this_machine(tmp_path):
    with pytest.raises(MissingPrerequisite, match=f"no alien 1.0 wheel for {MACHINE}"):
        install(tmp_path, quiet, quiet, wheels=[Wheel("alien", "1.0", {"vax": "0" * 64}, ("prog/",))])


def test_a_path_that_leads_outside(tmp_path, index):
    evil = build(index, "evil", {"prog/lib/../../../../evil.txt": b"x"})
    with pytest.raises(MissingPrerequisite, match="leads outside"):
        install(tmp_path, quiet, quiet, wheels=[evil])
    assert not list(tmp_path.rglob("evil.txt")) and leftovers(tmp_path) == []


def test_interrupt_while_unpacking_leaves_nothing(tmp_path, wheels):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(tmp_path, quiet, interrupt, wheels=wheels)
    assert leftovers(tmp_path) == [] and find(tmp_path) is None
    assert install(tmp_path, quiet, quiet, wheels=wheels) == find(tmp_path)


def test_what_a_killed_installation_left_is_cleared(tmp_path, wheels):
    reached = FORK.Event()

    def install_and_wait():
        def stop(*_):
            reached.set()
            time.sleep(60)

        install(tmp_path, quiet, stop, wheels=wheels)

    process = FORK.Process(target=install_and_wait)
    process.start()
    assert reached.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert find(tmp_path) is None and leftovers(tmp_path) != []
    install(tmp_path, quiet, quiet, wheels=wheels)
    assert leftovers(tmp_path) == [folder(tmp_path).name]


def test_two_at_once_install_once(tmp_path, wheels):
    said, found = [], []

    def one():
        found.append(install(tmp_path, said.append, quiet, wheels=wheels))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    assert sum("downloading first-part" in line for line in said) == 1


@pytest.mark.parametrize("damage", ["truncated", "missing", "no list", "broken list"])
def test_a_damaged_installation_is_replaced(tmp_path, wheels, damage):
    place = install(tmp_path, quiet, quiet, wheels=wheels).folder
    if damage == "truncated":
        (place / "prog/lib/data").write_bytes(b"d")
    elif damage == "missing":
        (place / "prog/lib/data").unlink()
    elif damage == "no list":
        (place / "files.json").unlink()
    else:
        (place / "files.json").write_text(json.dumps([1, 2]))
    assert find(tmp_path) is None
    with pytest.raises(MissingPrerequisite, match="agent setup npu"):
        toolchain.require(tmp_path)
    install(tmp_path, quiet, quiet, wheels=wheels)
    assert (place / "prog/lib/data").stat().st_size == 300_000


def test_no_room_for_the_files(tmp_path, wheels):
    results = FORK.Queue()

    def limited():
        # A limit on file sizes fails a write as a full disk does, without filling one.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            install(tmp_path, quiet, quiet, wheels=wheels)
        except StoreError as error:
            results.put((error.problem, error.cure))
        except BaseException as error:
            results.put((repr(error), ""))

    process = FORK.Process(target=limited)
    process.start()
    problem, cure = results.get(timeout=60)
    process.join()
    assert "cannot be unpacked" in problem and "free 600 MB" in cure
    assert leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path, wheels):
    (tmp_path / "toolchains").write_text("a file")
    with pytest.raises(StoreError, match="cannot be unpacked") as caught:
        install(tmp_path, quiet, quiet, wheels=wheels)
    assert "ORIENTEER_TOOLCHAINS" in caught.value.cure
