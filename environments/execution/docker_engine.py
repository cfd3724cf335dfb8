"""Docker: a container per sandbox, on any engine that answers and shares this machine's file system.

No image is pulled. The image is made here: the links of the root folder and empty mount points, a few hundred bytes;
/usr, Python and what is bound are shown read-only from the host, so that the same software is inside as outside.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import struct
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orienteer.environments.execution import cgroups, paths
from orienteer.environments.execution.channel import Channel
from orienteer.environments.execution.limits import DEFAULT_LIMITS, Limits
from orienteer.environments.execution.results import ExecResult
from orienteer.environments.execution.sandbox import BASE_ENV, cancelled, run_program
from orienteer.environments.execution.session import SandboxFault, Session, Spec, never, python_flags
from orienteer.errors import MissingPrerequisite

IMAGE = "orienteer-empty"
LABEL = "orienteer.owner"
START_CURE = "start a Docker engine, or set DOCKER_HOST to one that answers, or use --sandbox bwrap"
#: Time for one request to the engine, seconds.
REQUEST_S = 30
#: What the supervisor itself needs beside its job, MiB.
_OWN_MB = 48
#: Room for a worker's imports while it starts, MiB.
_WORKER_MB = 1536
_trials: dict[str, str] = {}


class DockerSandbox:
    """Programs in containers: no network, no capabilities, user 65534, read-only root, sized temporary folders."""

    name = "docker"
    isolation = "container+seccomp+cgroup"

    def __init__(self) -> None:
        works, detail, cure = answers()
        if not works:
            raise MissingPrerequisite(detail, cure)
        self._client = _client()
        self._closed = False
        try:
            _reap_orphans(self._client)
            self._image = _image(self._client)
            host = str(self._client.api.base_url) + os.environ.get("DOCKER_HOST", "")
            if _trials.get(host) is None:
                trial = self.exec(["/usr/bin/env", "true"], limits=Limits(wall_s=30))
                _trials[host] = "" if trial.returncode == 0 else trial.error or trial.stderr.decode("utf-8", "replace")
        except _engine_errors() as error:
            raise MissingPrerequisite(f"the Docker engine cannot be used: {_line(error)}", START_CURE) from None
        if _trials[host]:
            raise MissingPrerequisite(
                f"containers do not run here: {_trials[host]}",
                "the engine must run on this machine and see its files; else use --sandbox bwrap",
            )

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] = {},
        binds: Sequence[str | Path] = (),
        env: Mapping[str, str] = {},
        limits: Limits = DEFAULT_LIMITS,
        collect: Sequence[str] = (),
        cancel: threading.Event | None = None,
    ) -> ExecResult:
        """Run a program; see :meth:`Sandbox.exec`."""
        spec = Spec({**BASE_ENV, **env}, paths.checked(list(binds)), disk_mb=limits.disk_mb, limits=limits)
        return run_program(self, argv, stdin, files, spec, limits, collect, cancelled(cancel))

    def launch(self, spec: Spec, check: Callable[[], None] = never) -> Session:
        """Start a container with a supervisor as its process 1.

        Raises:
            SandboxFault: the engine refused, died, or the supervisor did not start.
        """
        try:
            return self._launch(spec, check)
        except _engine_errors() as error:
            raise SandboxFault(f"the Docker engine failed: {_line(error)}") from None

    def _launch(self, spec: Spec, check: Callable[[], None]) -> Session:
        api = self._client.api
        memory = spec.limits.memory_mb + (_WORKER_MB if spec.worker else _OWN_MB)
        made = api.create_container(
            self._image,
            command=_command(spec),
            user="65534:65534",
            hostname="sandbox",
            working_dir="/",
            environment=dict(spec.env),
            stdin_open=True,
            labels={LABEL: _owner()},
            host_config=_walls(api, spec, memory),
        )
        name = made["Id"]
        done = threading.Event()

        def remove() -> None:
            done.set()
            with contextlib.suppress(*_engine_errors()):
                api.remove_container(name, force=True, v=True)

        try:
            attached = api.attach_socket(name, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            pump = _Pump(attached)
            api.start(name)
        except BaseException:
            remove()
            raise

        def kill() -> None:
            remove()
            pump.close()

        session = Session("docker", Channel.over(pump.ours), kill, pump.complaint)
        session.disk_mb = spec.disk_mb
        config = {
            "backend": "docker",
            "base": "/tmp",
            "grouped": ["memory", "pids"],
            "paths": paths.search_path() if spec.worker else [],
            "preload": list(spec.preload),
            "shown": paths.below_tmp(spec.binds),
            "nest": spec.worker,
        }
        try:
            session.configure(config, check)
        except BaseException:
            session.close()
            raise
        if spec.worker:
            session.adjust = _adjuster(api, name, float(session.facts["rss_mb"]))
        return session

    def close(self) -> None:
        """Close the connection to the engine."""
        with contextlib.suppress(*_engine_errors()):
            self._client.close()


def answers() -> tuple[bool, str, str]:
    """Return whether an engine answers, what it is (or why not), and the cure."""
    try:
        import docker
    except ImportError:
        return False, "the docker package is not installed", "pip install 'orienteer[docker]'"
    try:
        client = docker.from_env(timeout=5)
        try:
            client.ping()
            facts = client.version()
        finally:
            client.close()
    except _engine_errors() as error:
        where = os.environ.get("DOCKER_HOST", "the default socket")
        return False, f"no Docker engine answers at {where} ({_line(error)})", START_CURE
    return True, f"engine {facts.get('Version')}, API {facts.get('ApiVersion')}", ""


def _client() -> Any:
    import docker

    return docker.from_env(timeout=REQUEST_S)


def _engine_errors() -> tuple[type[BaseException], ...]:
    """Return what a request to an engine may raise: its own errors, the HTTP library's, the socket's."""
    try:
        import docker.errors
        import requests
        import urllib3.exceptions

        return (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
            EOFError,
            KeyError,
            ValueError,
        )
    except ImportError:
        return (OSError,)


def _line(error: BaseException) -> str:
    return " ".join(str(getattr(error, "explanation", None) or error).split())[:300] or type(error).__name__


def _command(spec: Spec) -> list[str]:
    inside = str(Path(__file__).with_name("inside.py"))
    flags = python_flags(spec)
    known = ":".join(paths.search_path()) if spec.worker else ""
    return [paths.interpreter(), *flags, inside, "-", str(paths.package_root()), known]


def _walls(api: Any, spec: Spec, memory_mb: int) -> Any:
    from docker.types import Mount, Ulimit

    shown = [Path("/usr"), *(Path(place) for place in paths.ETC if Path(place).exists())]
    shown += [*paths.software(), *spec.binds]
    shown += [top for name in _TOPS if (top := Path("/") / name).is_dir() and not top.is_symlink()]
    # `mounts`, not `binds`: a missing source is refused there, here it would silently become an empty folder.
    mounts = [Mount(str(place), str(place), type="bind", read_only=True) for place in dict.fromkeys(shown)]
    return api.create_host_config(
        mounts=mounts,
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        read_only=True,
        tmpfs={"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={spec.disk_mb}m,nr_inodes=65536"},
        shm_size=spec.disk_mb << 20,
        mem_limit=memory_mb << 20,
        memswap_limit=memory_mb << 20,
        pids_limit=spec.limits.pids + 1,
        ulimits=[Ulimit(name="core", soft=0, hard=0), Ulimit(name="nofile", soft=4096, hard=4096)],
        auto_remove=True,
        log_config={"Type": "none"},
    )


def _adjuster(api: Any, name: str, base_mb: float) -> Callable[[Limits], None]:
    """Return what sets a warm worker's container to the limits of the next job."""
    current: list[tuple[int, int]] = []

    def adjust(limits: Limits) -> None:
        wanted = (limits.memory_mb, limits.pids)
        if current == [wanted]:
            return
        size = (int(base_mb) + _OWN_MB + limits.memory_mb) << 20
        try:
            # docker-py's update_container has no pids limit; the engine's own call has.
            answer = api._post_json(
                api._url("/containers/{0}/update", name),
                data={"Memory": size, "MemorySwap": size, "PidsLimit": limits.pids + 1},
            )
            api._result(answer, True)
        except _engine_errors() as error:
            raise SandboxFault(f"the Docker engine failed: {_line(error)}") from None
        current[:] = [wanted]

    return adjust


_TOPS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def _image(client: Any) -> str:
    """Return our image's name; make it if the engine does not have it."""
    import docker.errors

    data = _rootfs()
    import hashlib

    tag = hashlib.sha256(data).hexdigest()[:12]
    name = f"{IMAGE}:{tag}"
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        client.api.import_image_from_data(data, repository=IMAGE, tag=tag)
    return name


def _rootfs() -> bytes:
    """Return a tar archive: the root folder's links as on this machine, mount points, nobody's account."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:

        def add(name: str, kind: bytes, content: bytes = b"", link: str = "", mode: int = 0o755) -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size, entry.mode = kind, link, len(content), mode
            archive.addfile(entry, io.BytesIO(content))

        for name in ("usr", "etc", "proc", "sys", "dev", "tmp"):
            add(name, tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
        for name in _TOPS:
            top = Path("/") / name
            if top.is_symlink():
                add(name, tarfile.SYMTYPE, link=str(top.readlink()))
        add("etc/passwd", tarfile.REGTYPE, paths.PASSWD, mode=0o644)
        add("etc/group", tarfile.REGTYPE, paths.GROUP, mode=0o644)
    return buffer.getvalue()


def _owner() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{os.getpid()}:{cgroups.start_time(os.getpid())}"


def _reap_orphans(client: Any) -> None:
    """Remove containers whose process was killed before it could."""
    boot = _owner().split(":")[0]
    for container in client.api.containers(all=True, filters={"label": LABEL}):
        parts = str(container["Labels"].get(LABEL, "")).split(":")
        alive = len(parts) == 3 and parts[0] == boot and cgroups.start_time(int(parts[1])) == parts[2]
        if not alive:
            with contextlib.suppress(*_engine_errors()):
                client.api.remove_container(container["Id"], force=True, v=True)


class _Pump:
    """Two threads between the engine's multiplexed stream and an ordinary socket."""

    def __init__(self, attached: Any) -> None:
        self._attached = attached
        self._raw: socket.socket = getattr(attached, "_sock", attached)
        self._raw.settimeout(None)
        self.ours, self._theirs = socket.socketpair()
        self._said = bytearray()
        for work in (self._inward, self._outward):
            threading.Thread(target=work, daemon=True, name="orienteer-docker").start()

    def complaint(self) -> str:
        deadline = time.monotonic() + 0.5
        while not self._said and time.monotonic() < deadline:
            time.sleep(0.02)
        return bytes(self._said[-4096:]).decode("utf-8", "replace")

    def _inward(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while piece := self._theirs.recv(1 << 18):
                self._raw.sendall(piece)
        with contextlib.suppress(OSError):
            self._raw.shutdown(socket.SHUT_WR)  # end of file for the supervisor

    def _outward(self) -> None:
        with contextlib.suppress(OSError, ValueError, EOFError):
            while True:
                stream, size = struct.unpack(">BxxxI", self._exactly(8))
                while size:
                    piece = self._raw.recv(min(size, 1 << 18))
                    if not piece:
                        raise EOFError
                    size -= len(piece)
                    if stream == 1:
                        self._theirs.sendall(piece)
                    else:
                        self._said = (self._said + piece)[-8192:]
        with contextlib.suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._raw.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def close(self) -> None:
        for end in (self._raw, self._theirs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                end.close()
        with contextlib.suppress(OSError, ValueError):
            self._attached.close()
