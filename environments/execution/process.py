"""The process backend: limits and a clean environment, but no wall. For trusted candidates only."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orienteer.environments.execution import paths
from orienteer.environments.execution.channel import Channel
from orienteer.environments.execution.limits import DEFAULT_LIMITS, Limits
from orienteer.environments.execution.results import ExecResult
from orienteer.environments.execution.sandbox import BASE_ENV, cancelled, run_program
from orienteer.environments.execution.session import (
    SandboxFault,
    Session,
    Spec,
    never,
    python_flags,
    scratch,
    spawner,
    tail_of,
)

log = logging.getLogger(__name__)
WARNING = (
    "the process sandbox isolates nothing: candidate code runs with your rights and can read your files; "
    "every result is stamped isolation=none"
)
_warned = threading.Event()


class ProcessSandbox:
    """Ends, limits and cleans up what a candidate starts; does not keep it from reading or harming your files."""

    name = "process"
    isolation = "none"

    def __init__(self) -> None:
        if not _warned.is_set():
            _warned.set()
            print(f"warning: {WARNING}", file=sys.stderr, flush=True)

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
        """Run a program; see :meth:`Sandbox.exec`. ``binds`` are visible anyway."""
        spec = Spec({**BASE_ENV, **env}, paths.checked(list(binds)), disk_mb=limits.disk_mb, limits=limits)
        return run_program(self, argv, stdin, files, spec, limits, collect, cancelled(cancel))

    def launch(self, spec: Spec, check: Callable[[], None] = never) -> Session:
        """Start a supervisor as an ordinary child of ours.

        Raises:
            SandboxFault: it did not start.
        """
        ours, theirs = socket.socketpair()
        complaints = scratch()
        base = Path(tempfile.mkdtemp(prefix="orienteer-"))
        inside = str(Path(__file__).with_name("inside.py"))
        flags = python_flags(spec)
        command = [paths.interpreter(), *flags, inside, str(theirs.fileno()), str(paths.package_root())]
        command.append(":".join(paths.search_path()) if spec.worker else "")
        try:
            process = spawner.popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                env=dict(spec.env),
                cwd=base,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            shutil.rmtree(base, ignore_errors=True)
            raise SandboxFault(f"cannot start a process: {error}") from None
        finally:
            theirs.close()

        def kill() -> None:
            # End of file on the channel makes the supervisor kill what is below it; only then is it killed itself.
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
            complaints.close()
            shutil.rmtree(base, ignore_errors=True)

        session = Session("process", Channel.over(ours), kill, lambda: tail_of(complaints))
        config = {
            "backend": "process",
            "base": str(base),
            "grouped": [],
            "paths": paths.search_path() if spec.worker else [],
            "preload": list(spec.preload),
            "shown": [],
            "nest": False,
        }
        try:
            session.configure(config, check)
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        """Nothing is held between runs."""
