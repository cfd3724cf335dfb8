"""The ``agent`` command's front: signals, errors and exit statuses. The commands are in ``agents/command``.

Exit statuses: 0 done, 1 failed, 2 wrong usage, 3 something is missing, 4 a budget is reached, 5 a store cannot be used,
6 the model endpoint cannot serve, 130 interrupted. Results go to stdout, one JSON document with ``--json`` (on errors
too); everything else goes to stderr. No error that a person can mend shows a traceback.

Only the standard library is imported here at first: signals are caught before anything slow is loaded.
"""

from __future__ import annotations

import os
import signal
import sys


def _early(number: int, frame: object) -> None:
    os.write(2, b"agent: interrupted\n")
    os._exit(130)


if os.path.basename(sys.argv[0] if sys.argv else "").startswith("agent"):  # noqa: PTH119 (pathlib is slow to load)
    # We are the command, not a module that somebody imports: even the imports below end in one line.
    signal.signal(signal.SIGINT, _early)

import re  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from orienteer.agents.command import now  # noqa: E402
from orienteer.agents.plainly import clean, shortened  # noqa: E402
from orienteer.errors import OrienteerError  # noqa: E402

INTERRUPTED = 130
#: How long the main thread may take to come to rest after the first signal (seconds).
_GRACE = 0.8
#: Signals so soon after the first are its echo: a terminal and a wrapper like ``make`` both pass Ctrl-C on (seconds).
_ECHO = 0.3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Longest problem or cure that is printed (characters).
_LONGEST = 600


def main() -> NoReturn:
    """Run the command and leave with its exit status."""
    arguments = sys.argv[1:]
    stops = _Stops("--json" in arguments)
    try:
        # First, so that no descriptor of ours takes the number of a standard stream that is closed.
        _mend_streams()
        stops.install()
        code = _guarded(arguments, stops)
        if stops.heard:
            code = INTERRUPTED if stops.spoken else code
    except KeyboardInterrupt:
        code = stops.speak()
    code = _flushed(code)
    if code == INTERRUPTED:
        # Threads that still wait for something must not hold the process.
        _end_at_once(code)
    stops.retire(code)
    sys.exit(code)


def _guarded(arguments: list[str], stops: _Stops) -> int:
    """Run the command; every error becomes one line and a status. KeyboardInterrupt passes."""
    try:
        from orienteer.agents.command.app import app

        code = app(arguments, prog_name="agent", standalone_mode=False)
        if stops.raised:
            # The parser turns an interrupt into a status of its own.
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except OrienteerError as error:
        if error.exit_code == INTERRUPTED:
            stops.spoken = True
        return fail(error.problem, error.cure, error.exit_code, stops.wants_json)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except OSError as error:
        if error.filename is None and error.errno is not None and stops.output_failed():
            return fail(f"the output cannot be written ({error.strerror})", "", 1, False)
        return _crash(error, stops.wants_json)
    except Exception as error:
        if stops.raised:
            raise KeyboardInterrupt from None
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _misused(error, stops.wants_json)
        return _crash(error, stops.wants_json)


def _misused(error: Any, wants_json: bool) -> int:
    """Say what the parser did not understand."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return 2
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "agent"
    text = error.format_message().strip().rstrip(".")
    text = re.sub(r" \(Possible options: (.*)\)$", r" (did you mean \1?)", text)
    return fail(text[:1].lower() + text[1:], f"see `{command} --help`", 2, wants_json)


def fail(problem: str, cure: str, code: int, wants_json: bool) -> int:
    """Print one line (and the JSON document, where one is owed); return the status."""
    problem, cure = (shortened(clean(text), _LONGEST) for text in (problem, cure))
    # A request that could not be served has left no run behind.
    run = now.run_id if code not in (2, 3) else ""
    if run and run not in problem + cure:
        cure += ("; " if cure else "") + f"go on with: agent runs resume {run}"
    if wants_json and not now.json_written:
        from orienteer.agents.command.output import print_json

        document: dict[str, Any] = {"error": {"problem": problem, "cure": cure, "exit_code": code}}
        if run:
            document["run"] = run
        print_json(document)
    print(f"agent: {problem}" + (f": {cure}" if cure else ""), file=sys.stderr, flush=True)
    return code


def _crash(error: Exception, wants_json: bool) -> int:
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="orienteer-", suffix=".traceback", delete=False) as handle:
            handle.write(traceback.format_exc())
        where = f"the traceback is in {handle.name}; please report it"
    except OSError:
        where = "please report it"
    return fail(f"internal error: {type(error).__name__}: {error}", where, 1, wants_json)


def _mend_streams() -> None:
    """Make the standard streams usable whatever we were started with: closed, or unable to show a character."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _flushed(code: int) -> int:
    """Bring out what was printed. A reader that went away (`agent runs ls | head`) is no fault."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _silence(stream)
        except OSError as error:
            _silence(stream)
            if stream is sys.stdout:
                code = fail(f"the output cannot be written ({error.strerror})", "free the disk it goes to", 1, False)
    return code


def _silence(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _end_at_once(code: int) -> NoReturn:
    """Leave now, and take what we started along."""
    from contextlib import suppress
    from pathlib import Path

    with suppress(OSError):
        for listing in Path("/proc/self/task").glob("*/children"):
            for child in listing.read_text().split():
                with suppress(OSError):
                    os.kill(int(child), signal.SIGKILL)
    os._exit(code)


class _Stops:
    """SIGINT, SIGTERM and SIGHUP: one line and 130, within about a second, whatever the main thread is doing.

    The first raises KeyboardInterrupt in the main thread. A thread of ours hears it as well (by the wake-up descriptor,
    at once) and ends the process when the main thread does not come to rest: it may wait in foreign code, where no
    Python handler runs. A second signal ends it at once. While a run goes on the runtime has handlers of its own.
    """

    def __init__(self, wants_json: bool) -> None:
        self.wants_json = wants_json
        #: A signal came.
        self.heard = False
        #: KeyboardInterrupt was raised for it.
        self.raised = False
        #: The line was printed.
        self.spoken = False
        self._writing = threading.Lock()

    def install(self) -> None:
        """Take the signals, except those that are ignored (``nohup``, background jobs of a shell)."""
        taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in taken:
            signal.signal(number, self._raise)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader, set(taken)), daemon=True).start()

    def retire(self, code: int) -> None:
        """The work is done and printed: a signal now only ends the process, with the status that it has earned."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            if signal.getsignal(number) == self._raise:
                signal.signal(number, lambda *_: os._exit(code))

    def speak(self) -> int:
        """Print the line, once."""
        with self._writing:
            if not self.spoken:
                self.spoken = True
                fail("interrupted", "", INTERRUPTED, self.wants_json)
        return INTERRUPTED

    @staticmethod
    def output_failed() -> bool:
        """Say whether stdout is what broke."""
        try:
            sys.stdout.flush()
        except OSError:
            return True
        return False

    def _raise(self, number: int, frame: Any) -> None:
        self.heard = True
        if not self.raised:
            self.raised = True
            raise KeyboardInterrupt

    def _watch(self, reader: int, numbers: set[int]) -> None:
        first: float | None = None
        while data := os.read(reader, 64):
            if not any(number in numbers for number in data):
                continue
            moment = time.monotonic()
            if first is None:
                first = moment
                threading.Thread(target=self._expect, daemon=True).start()
            elif moment - first > _ECHO:
                self._cut()

    def _expect(self) -> None:
        time.sleep(_GRACE)
        self._cut()

    def _cut(self) -> None:
        speaker = threading.Thread(target=self.speak, daemon=True)
        speaker.start()
        speaker.join(_ECHO)
        _end_at_once(INTERRUPTED)


if __name__ == "__main__":
    main()
