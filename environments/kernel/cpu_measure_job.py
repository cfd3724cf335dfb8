"""Timing a C++ candidate against PyTorch at a task's true shapes. Run in a sandboxed child of a worker with torch.

Three processes, pinned to the same cores: the job itself, which coordinates and runs nobody's code; a child that holds
the candidate's library; a child that holds the task's ``Model``. The coordinator asks one after the other for a round
of calls, in random order, so that what disturbs the machine disturbs both. Every round uses other inputs than the one
before. Places of the outputs, chosen anew for every round, are poisoned before it and looked at after it; what the
children claim is held against the processor time that the system accounts to them. Expected outputs lie in memory that
the candidate's process has never had.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.cpu_buffers import Arguments, as_tensor, byte_count, floating, load_forward

#: Outputs looked at after each round, places per tensor.
SAMPLES = 2048
#: A round lasts at least this long, seconds, so that its clock readings weigh nothing.
ROUND_S = 0.002
#: Longest time for ``torch.compile`` of a model, seconds.
COMPILE_S = 90
FEWEST_ROUNDS, MOST_ROUNDS = 5, 60
_PAGE = mmap.PAGESIZE
_clock = time.perf_counter


def measure(message: Message) -> Message:
    """Time a candidate and the reference in alternating rounds.

    Header in: ``task`` (source), ``inputs``, ``state``, ``outputs`` (descriptions at the true shapes), ``threads``,
    ``cpus``, ``seconds`` (budget of the timed part), ``seed``, ``cache_bytes`` (inputs rotate over more than this),
    ``compiled`` (time ``torch.compile`` of the model as well, which takes many seconds).
    The blob is the library. Header out: ``rounds`` (seconds a call: candidate, reference, compiled; outside: processor
    time by thread as the system accounts it; preempted: how often it interrupted one of them), ``calls``, ``sets``,
    ``checks`` (worst deviation of looked-at outputs by round), ``full`` (of one whole set), ``flops``, or ``error``.
    """
    header = message.header
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, header["cpus"])
    arena = _Arena(header)
    candidate = _Child(lambda: _candidate(message.blobs[0], arena, header))
    # Made after the candidate's process was forked: it has never had these pages.
    expected = [[_shared(byte_count(spec)) for spec in arena.outputs] for _ in range(arena.sets)]
    reference = _Child(lambda: _reference(arena, expected, header, compiled=False))
    third = _Child(lambda: _reference(arena, expected, header, compiled=True)) if header.get("compiled") else None
    try:
        flops = reference.ask({"do": "prepare"}, limit=60)
        candidate.ask({"do": "prepare"}, limit=60)
        why = ""
        if third is not None:
            try:
                third.ask({"do": "prepare"}, limit=COMPILE_S)
            except _Gone as error:
                third.end()
                third, why = None, str(error)
        answer = _Rounds(arena, expected, candidate, reference, header, third).run()
        return Message({**answer, "flops": flops, "not_compiled": why})
    except _Gone as error:
        who = "reference" if error.child is reference else "candidate"
        return Message({"error": {"kind": error.kind, "message": f"the {who} {error}", "by": who}})
    finally:
        for child in (candidate, reference, third):
            if child is not None:
                child.end()


def _shared(nbytes: int) -> mmap.mmap:
    return mmap.mmap(-1, max(_PAGE, -(-nbytes // _PAGE) * _PAGE))


class _Arena:
    """Inputs and outputs in memory that all processes share: several sets, so that rounds do not repeat."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.raw_inputs = header["inputs"]
        self.inputs = [as_tensor(spec)[0] for spec in header["inputs"]]
        self.state = [dict(spec) for spec in header["state"]]
        self.outputs = [dict(spec) for spec in header["outputs"]]
        one = sum(byte_count(spec) for spec in [*self.inputs, *self.outputs])
        self.sets = max(2, min(32, -(-2 * int(header["cache_bytes"]) // max(1, one))))
        self.held = [[_shared(byte_count(spec)) for spec in self.inputs] for _ in range(self.sets)]
        self.parameters = [_shared(byte_count(spec)) for spec in self.state]
        self.results = [[_shared(byte_count(spec)) for spec in self.outputs] for _ in range(self.sets)]


def _preemptions() -> int:
    """Return how often the system has taken a core away from this process's threads."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class _Gone(Exception):
    """A child ended or did not answer."""

    def __init__(self, child: _Child, kind: str, text: str) -> None:
        super().__init__(text)
        self.child, self.kind = child, kind


class _Child:
    """A forked process that answers requests, one line of JSON each."""

    def __init__(self, serve: Callable[[], Callable[[Mapping[str, Any]], Any]]) -> None:
        there, self._write = os.pipe()
        self._read, here = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._write)
            os.close(self._read)
            with contextlib.suppress(BaseException):
                _serve(serve, there, here)
            os._exit(1)
        os.close(there)
        os.close(here)
        self._rest = b""

    def ask(self, request: Mapping[str, Any], limit: float) -> Any:
        """Send a request and return the answer.

        Raises:
            _Gone: the process ended, or took longer than ``limit`` seconds.
        """
        import select

        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, json.dumps(request).encode() + b"\n")
        until = _clock() + limit
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - _clock()))
            if not ready:
                raise _Gone(self, "timeout", f"did not answer within {limit:.0f} s at the task's shapes")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise _Gone(self, "crash", "ended its process at the task's shapes")
            self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise _Gone(self, "runtime", f"failed at the task's shapes: {answer['error']}")
        return answer["value"]

    def end(self) -> None:
        """Kill the process."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _serve(serve: Callable[[], Callable[[Mapping[str, Any]], Any]], read: int, write: int) -> None:
    # Freed memory stays with the process: the reference allocates its outputs anew in every call and would otherwise
    # pay for fresh pages, which the candidate's outputs, allocated once, do not need.
    libc = ctypes.CDLL(None)
    for option, value in ((-1, 1 << 40), (-4, 0)):
        libc.mallopt(option, ctypes.c_int(min(value, 2**31 - 1)))
    answer: Callable[[Mapping[str, Any]], Any] | None = None
    with os.fdopen(read) as requests:
        for line in requests:
            try:
                if answer is None:
                    answer = serve()
                reply = {"value": answer(json.loads(line))}
            except Exception as error:
                text = " ".join(str(error).split())
                short = text if len(text) < 400 else f"{text[:150]} ... {text[-250:]}"
                reply = {"error": f"{type(error).__name__}: {short}"}
            os.write(write, json.dumps(reply).encode() + b"\n")


def _candidate(library: bytes, arena: _Arena, header: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    libc = ctypes.CDLL(None)
    for memory in [*arena.parameters, *(item for held in arena.held for item in held)]:
        libc.mprotect(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(len(memory)), mmap.PROT_READ)
    forward = load_forward(library)
    state = Arguments(arena.state, [_address(memory) for memory in arena.parameters])
    inputs, outputs = [], []
    for held, results in zip(arena.held, arena.results, strict=True):
        places = [0 if s["dtype"] == "none" else _address(m) for s, m in zip(arena.inputs, held, strict=True)]
        inputs.append(Arguments(arena.inputs, places))
        outputs.append(Arguments(arena.outputs, [_address(memory) for memory in results]))
    threads = ctypes.c_int(header["threads"])
    parameters = ctypes.c_void_p(state.address)
    calls = [
        (ctypes.c_void_p(one.address), parameters, ctypes.c_void_p(other.address), threads)
        for one, other in zip(inputs, outputs, strict=True)
    ]

    kept = (state, inputs, outputs)

    def answer(request: Mapping[str, Any]) -> Any:
        if request["do"] == "prepare":
            return len(kept)
        chosen = [calls[number] for number in request["sets"]]
        before, began = _preemptions(), _clock()
        for arguments in chosen:
            forward(*arguments)
        return [(_clock() - began) / len(chosen), _preemptions() - before]

    return answer


def _reference(
    arena: _Arena, expected: Sequence[Sequence[mmap.mmap]], header: Mapping[str, Any], compiled: bool
) -> Callable[[Mapping[str, Any]], Any]:
    import torch
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    from orienteer.environments.kernel.load import init_arguments, load_task

    torch.set_num_threads(header["threads"])
    torch.manual_seed(header["seed"])
    task = load_task(header["task"])
    arguments, keywords = init_arguments(task)
    model = task.Model(*arguments, **keywords)
    held: list[list[Any]] = []
    called = model
    if compiled:
        import torch._inductor.config as inductor

        inductor.cpp_cache_precompile_headers = False  # larger than the job's disk
        inductor.compile_threads = 1
        called = torch.compile(model)

    def place(memory: mmap.mmap, spec: Mapping[str, Any], value: Any) -> Any:
        count = byte_count(spec)
        if count == 0:
            return value
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=count)
        tensor = flat.view(getattr(torch, spec["dtype"])).reshape(tuple(spec["shape"]))
        return tensor.copy_(value)

    def prepare() -> float:
        counter = FlopCounterMode(display=False)
        with torch.no_grad():
            for (name, value), memory, spec in zip(
                model.state_dict(keep_vars=True).items(), arena.parameters, arena.state, strict=True
            ):
                if name != spec["name"]:
                    raise ValueError("the parameters came in another order")
                value.data = place(memory, spec, value.detach().contiguous())
        for number in range(arena.sets):
            torch.manual_seed(header["seed"] + number)
            given = list(task.get_inputs())
            own = []
            for value, memory, spec, raw in zip(given, arena.held[number], arena.inputs, arena.raw_inputs, strict=True):
                plain = as_tensor(raw)[1]
                if plain is None:
                    own.append(place(memory, spec, value.contiguous()))
                else:
                    memory[: len(plain)] = plain
                    own.append(value)
            held.append(own)
            counted = counter if number == 0 and not compiled else contextlib.nullcontext()
            with torch.inference_mode(), counted:
                leaves = [leaf for leaf in tree_leaves(called(*own)) if isinstance(leaf, torch.Tensor)]
                for leaf, memory, spec in zip(leaves, expected[number], arena.outputs, strict=True):
                    place(memory, spec, leaf.contiguous())
        return float(counter.get_total_flops()) if not compiled else 0.0

    def answer(request: Mapping[str, Any]) -> Any:
        if request["do"] == "prepare":
            return prepare()
        chosen = [held[number] for number in request["sets"]]
        with torch.inference_mode():
            before, began = _preemptions(), _clock()
            for inputs in chosen:
                called(*inputs)
            return [(_clock() - began) / len(chosen), _preemptions() - before]

    return answer


class _Rounds:
    """The alternating rounds and the checks between them."""

    def __init__(
        self,
        arena: _Arena,
        expected: Sequence[Sequence[mmap.mmap]],
        candidate: _Child,
        reference: _Child,
        header: Mapping[str, Any],
        compiled: _Child | None = None,
    ) -> None:
        self.arena, self.expected = arena, expected
        self.candidate, self.reference, self.compiled = candidate, reference, compiled
        self.budget = float(header["seconds"])
        self.threads = int(header["threads"])
        self.random = random.Random(os.urandom(8))
        self.chance = np.random.default_rng(self.random.getrandbits(63))
        self.limit = max(20.0, 10 * self.budget)

    def _pick(self, calls: int) -> list[int]:
        """Return which sets a round uses: a run from a random place, so that neighbours differ."""
        start = self.random.randrange(self.arena.sets)
        return [(start + i) % self.arena.sets for i in range(calls)]

    def _timed(self, who: _Child, sets: Sequence[int]) -> tuple[float, float, int]:
        """Return what a process says a call took, its processor time by thread, and how often it was preempted."""
        # The system's own account of the process, which waiting for a core does not lengthen: CPUCLOCK_SCHED of a pid.
        account = (~who.pid << 3) | 2
        before = time.clock_gettime(account)
        claimed, preempted = who.ask({"do": "time", "sets": list(sets)}, self.limit)
        used = time.clock_gettime(account) - before
        return float(claimed), used / len(sets) / self.threads, int(preempted)

    def run(self) -> dict[str, Any]:
        """Warm up, measure, check."""
        first = {
            who: min(self._timed(who, [number])[0] for number in (0, 1)) for who in (self.candidate, self.reference)
        }
        slower = max(max(first.values()), 1e-7)
        calls = max(1, min(1000, round(ROUND_S / max(1e-7, min(first.values())))))
        # A round of the slower one may not eat the budget: both make the same number of calls.
        calls = max(1, min(calls, int(self.budget / FEWEST_ROUNDS / slower)))
        rounds: list[dict[str, float]] = []
        checks: list[float] = []
        until = _clock() + self.budget
        while len(rounds) < MOST_ROUNDS:
            enough = FEWEST_ROUNDS if slower <= self.budget / 4 else 2
            over = _clock() - until
            quiet = sum(item["preempted"] == 0 for item in rounds)
            # On a busy machine a little longer, for rounds in which nobody was interrupted.
            if over > 0 and len(rounds) >= enough and (quiet >= enough or over > self.budget):
                break
            sets = self._pick(calls)
            places = self._poison(sorted(set(sets)))
            order = [self.candidate, self.reference, *([self.compiled] if self.compiled is not None else [])]
            self.random.shuffle(order)
            seen = {}
            for who in order:
                seen[who] = self._timed(who, sets if who is self.candidate else self._pick(calls))
            checks.append(self._look(places))
            rounds.append(
                {
                    "candidate": seen[self.candidate][0],
                    "reference": seen[self.reference][0],
                    "outside": seen[self.candidate][1],
                    "preempted": sum(item[2] for item in seen.values()),
                    **({"compiled": seen[self.compiled][0]} if self.compiled is not None else {}),
                }
            )
        return {
            "rounds": rounds,
            "calls": calls,
            "sets": self.arena.sets,
            "checks": checks,
            "full": self._whole(self.random.choice(sets)),
            "load": list(os.getloadavg()),
        }

    def _views(self, held: Sequence[mmap.mmap]) -> list[np.ndarray[Any, Any]]:
        out = []
        for memory, spec in zip(held, self.arena.outputs, strict=True):
            kind = {"bfloat16": "uint16", "bool": "uint8"}.get(spec["dtype"], spec["dtype"])
            count = byte_count(spec) // np.dtype(kind).itemsize
            out.append(np.frombuffer(memory, dtype=kind, count=count))
        return out

    def _poison(self, sets: Sequence[int]) -> dict[int, list[np.ndarray[Any, Any]]]:
        places: dict[int, list[np.ndarray[Any, Any]]] = {}
        for number in sets[:4]:
            places[number] = []
            for view, spec in zip(self._views(self.arena.results[number]), self.arena.outputs, strict=True):
                chosen = self.chance.integers(0, view.size, SAMPLES) if view.size else np.zeros(0, dtype=np.int64)
                places[number].append(chosen)
                if floating(spec["dtype"]):
                    view.view(f"u{view.dtype.itemsize}")[chosen] = np.iinfo(f"u{view.dtype.itemsize}").max
                else:
                    view[chosen] ^= 0x55 if spec["dtype"] != "bool" else 1
        return places

    def _look(self, places: Mapping[int, Sequence[np.ndarray[Any, Any]]]) -> float:
        worst = 0.0
        for number, chosen in places.items():
            mine, theirs = self._views(self.arena.results[number]), self._views(self.expected[number])
            for got, want, where, spec in zip(mine, theirs, chosen, self.arena.outputs, strict=True):
                worst = max(worst, _deviation(got[where], want[where], spec["dtype"]))
        return worst

    def _whole(self, number: int) -> float:
        mine, theirs = self._views(self.arena.results[number]), self._views(self.expected[number])
        return max(
            (_deviation(g, w, s["dtype"]) for g, w, s in zip(mine, theirs, self.arena.outputs, strict=True)),
            default=0.0,
        )


def _deviation(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: str) -> float:
    """Return the largest deviation as a share of the value plus the root mean square; infinite where NaN differs."""
    if not floating(dtype):
        return 0.0 if bool((got == want).all()) else float("inf")
    if dtype == "bfloat16":
        got, want = ((part.astype(np.uint32) << 16).view(np.float32) for part in (got, want))
    if dtype == "float16":
        got, want = got.astype(np.float32), want.astype(np.float32)
    plain = np.isfinite(want)
    if not bool((np.isnan(got) == np.isnan(want)).all()) or not bool(
        (got[~plain] == want[~plain])[~np.isnan(want[~plain])].all()
    ):
        return float("inf")
    if not plain.any():
        return 0.0
    got, want = got[plain], want[plain]
    scale = float(np.sqrt(np.mean(np.square(want, dtype=np.float64)))) or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(got - want) / (np.abs(want) + scale)
    worst = float(off.max())
    return worst if worst == worst else float("inf")
