"""One stretch of a run in this process: from the claim to the report, the interrupt or the error."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from langgraph.types import Command

from orienteer.agents.runtime.budget import Budget
from orienteer.agents.runtime.checkpoint import Checkpoints
from orienteer.agents.runtime.config import RunConfig, RunReport
from orienteer.agents.runtime.events import EventLog, Listener
from orienteer.agents.runtime.ledger import RunLedger
from orienteer.agents.runtime.loop import RUN_VERSION, Loop, RunBroken, describe
from orienteer.agents.runtime.method import Method, Question, Settings
from orienteer.agents.runtime.models import ModelSession, open_model
from orienteer.agents.runtime.owner import Heartbeat
from orienteer.agents.runtime.run import PLACE, Run
from orienteer.agents.runtime.stopping import stoppable
from orienteer.errors import BudgetReached, Interrupted, OrienteerError, StoreError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.calls import Calls
from orienteer.memory.catalogue import Catalogue
from orienteer.memory.faults import from_database
from orienteer.memory.home import Home
from orienteer.memory.journal import Journal
from orienteer.memory.plain import dumps, plain
from orienteer.memory.rundb import RunDB

#: Asks a person and returns the answer; None when they left. The event is set when the run is to stop.
AskSomebody = Callable[[Question, threading.Event], str | None]

#: The loop ends by its own rules; langgraph's guard against endless graphs is not wanted.
_NO_LIMIT = 2**31


class Session:
    """Drives one claimed run.

    Args:
        run_id: the run, whose row exists and carries our claim.
        claim: our claim.
        config: the request.
        method: the policy, fresh.
        settings: its checked settings.
        home: where checkpoints and the run's folder are.
        db, store: the stores.
        listener: hears all events.
        ask: asks a person; None: nobody is there.
        versions: facts for the provenance.
    """

    def __init__(
        self,
        *,
        run_id: str,
        claim: str,
        config: RunConfig,
        method: Method,
        settings: Settings,
        home: Home,
        db: RunDB,
        store: ArtifactStore,
        listener: Listener | None,
        ask: AskSomebody | None,
        versions: Mapping[str, Any],
    ) -> None:
        self._id = run_id
        self._claim = claim
        self._config = config
        self._method = method
        self._home = home
        self._db = db
        self._catalogue = Catalogue(db)
        self._journal = Journal(db, store, run_id)
        self._events = EventLog(self._journal, listener)
        self._ask = ask
        #: True once the person left a question open.
        self._left = False
        self._versions = dict(versions)
        self._budget = Budget(config.budgets)
        #: True once something was done that is worth keeping.
        self.worked = False
        self.run = Run(
            run_id=run_id,
            seed=config.seed,
            settings=settings,
            target=config.target,
            tasks=config.tasks,
            options=config.options,
            journal=self._journal,
            events=self._events,
            method=method,
            cancel=threading.Event(),
            folder=home.run_folder(run_id),
            sandbox=config.sandbox,
            allow_unsafe=config.allow_unsafe,
            workers=config.workers or os.cpu_count() or 1,
        )
        db.cancel = self.run.cancel
        self._hint = f"go on with: agent runs resume {run_id}"

    def start(self) -> RunReport:
        """Go from the beginning."""
        return self._drive(0.0, lambda: 0)

    def resume(self, row: Any, changes: Mapping[str, Any]) -> RunReport:
        """Go on from what the database holds.

        Args:
            row: the run's row as it was before the claim.
            changes: what the request asks differently from before.
        """
        self.worked = True
        self.run.provenance(**json.loads(row.provenance_json))

        def prepare() -> int:
            lost = Calls(self._db, self._id).lose_sent()
            step, reopened = self._next_step()
            facts = {"from_step": step, "changed": changes, "lost_calls": lost, "reopened": reopened}
            self._events.emit(step, "run.resume", facts)
            self._catalogue.update(self._id, config_json=dumps(self._config.document()))
            return step

        return self._drive(row.active_s, prepare)

    def unfinished(self) -> bool:
        """Say whether a run that is ``done`` has results in its last step that broken machinery spoiled."""
        last = self._journal.last_state()
        return last is not None and bool(self._spoiled(last.step))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _drive(self, active_s: float, prepare: Any) -> RunReport:
        with ExitStack() as stack:
            stack.callback(self._close_method)
            stack.enter_context(stoppable(self.run.cancel, self._mark, enabled=self._config.handle_signals))
            self._beat = Heartbeat(
                self._catalogue,
                self._id,
                self._claim,
                lambda: self._budget.active_s,
                self.run.cancel,
                self._journal.flush,
            )
            try:
                self._open_budget(active_s)
                first = prepare()
                stack.callback(self._open_model())
                stack.enter_context(self._beat)
                self._begin()
                loop = Loop(
                    self.run, self._method, self._journal, self._budget, self._events,
                    reuse=self._config.reuse_evaluations,
                )  # fmt: skip
                self._turn(loop, first)
                assert loop.stop is not None
                return self._finish(loop.stop.status, loop.stop.reason)
            except RunBroken as broken:
                where = self._write_traceback(broken.traceback_sha)
                return self._finish("failed", f"{broken.reason} (traceback: {where})")
            except Interrupted as stop:
                reason = self._beat.reason or "stopped"
                self._end("interrupted", reason)
                self._db.check_place()
                raise Interrupted(
                    f"run {self._id} was stopped" + (f" ({self._beat.reason})" if self._beat.reason else ""),
                    self._hint,
                ) from stop
            except BudgetReached as reached:
                return self._finish("budget", str(reached))
            except OrienteerError as exc:
                if isinstance(exc, StoreError) and self.run.cancel.is_set():
                    # Stopped while the store was in another's hands: there is no waiting for it any more.
                    self._end("interrupted", "stopped")
                    raise Interrupted(f"run {self._id} was stopped ({exc.problem})", self._hint) from exc
                self._end("failed", str(exc))
                raise
            except KeyboardInterrupt:
                self.run.cancel.set()
                self._end("interrupted", "stopped")
                raise
            except Exception as exc:
                sha = self._journal.keep(traceback.format_exc(), "text/plain")
                where = self._write_traceback(sha)
                return self._finish("failed", f"the runtime itself failed: {describe(exc)} (traceback: {where})")

    def _begin(self) -> None:
        """Let the method check the request (at a resume too); keep its first state unless there is one."""
        PLACE.set(("start", None, None))
        try:
            state = plain(self._method.start(self.run), "the state")
        except OrienteerError:
            raise
        except (Exception, SystemExit) as exc:
            sha = self._journal.keep(traceback.format_exc(), "text/plain")
            raise RunBroken(f"{type(self._method).__name__}.start raised {describe(exc)}", sha) from exc
        if self._journal.state(-1) is None:
            facts = {"method": self._config.method, "tasks": list(self._config.tasks), "seed": self._config.seed}
            self._events.emit(0, "run.start", facts | {"proposer": self.run.proposer})
            self._journal.save_state(-1, dumps(state), complete=True)
        self.worked = True
        self._catalogue.update(
            self._id, proposer=self.run.proposer, provenance_json=dumps(self._provenance()), budget_json=self._spent()
        )

    def _turn(self, loop: Loop, first: int) -> None:
        """Let the graph go from where its checkpoint says, or from ``first`` when that is of no use."""
        checkpoints = self._open_checkpoints()
        try:
            graph = loop.graph().compile(checkpointer=checkpoints)
            config: Any = {
                "configurable": {"thread_id": self._id},
                "recursion_limit": _NO_LIMIT,
                "max_concurrency": self.run.workers,
            }
            start: Any = {"run": self._id, "version": RUN_VERSION, "step": first, "stop": ""}
            try:
                kept = graph.get_state(config)
                values = kept.values
                usable = bool(kept.next) and values.get("version") == RUN_VERSION and values.get("step") == first
            except Exception:
                usable = False
                checkpoints.delete_thread(self._id)
                self._events.emit(first, "checkpoint.rebuilt", {})
            value: Any = None if usable else start
            while True:
                ended = graph.invoke(value, config, durability="sync")
                asked = ended.get("__interrupt__", ())
                if not asked:
                    break
                value = Command(resume=self._answers(asked))
            with suppress(StoreError, sqlite3.Error):
                checkpoints.trim(self._id)
        finally:
            checkpoints.close()

    def _answers(self, asked: Sequence[Any]) -> dict[str, str]:
        """Return a person's answers to langgraph's interrupts, by their ids: as many as they give.

        Raises:
            Interrupted: they gave none, or nobody is there; the run waits.
        """
        answers: dict[str, str] = {}
        for item in asked:
            question = Question(**item.value)
            answer = None
            if self._ask is not None and not self._left:
                self._events.emit(self.run.step, "question", {"task": question.task, "text": question.text[:500]})
                self._journal.flush()
                answer = self._ask(question, self.run.cancel)
            if answer is None:
                # What was answered already is written down first; then the run stops at what is open.
                self._left = True
                continue
            self._events.emit(self.run.step, "answer", {"task": question.task, "text": answer[:500]})
            answers[item.id] = answer
        if not answers:
            if not self.run.cancel.is_set():
                self._beat.reason = f"waits for an answer on {Question(**asked[0].value).task}"
            raise Interrupted(f"run {self._id} waits for an answer", self._hint)
        return answers

    def _open_checkpoints(self) -> Checkpoints:
        path = self._home.checkpoints
        try:
            return Checkpoints(path)
        except sqlite3.DatabaseError as exc:
            error = from_database(exc, f"the checkpoint file {path}")
            if isinstance(exc, sqlite3.OperationalError):
                raise error from exc
            # Damaged: nothing is lost by moving it away, the run database holds all that matters.
            aside = path.with_name(f"{path.name}.damaged-{int(time.time())}")
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            path.replace(aside)
            self._events.emit(self.run.step, "checkpoint.rebuilt", {"damaged": str(aside)})
            return Checkpoints(path)

    def _next_step(self) -> tuple[int, int]:
        """Return the step to go on with, and how many results of broken machinery will be tried again."""
        last = self._journal.last_state()
        if last is None or last.step < 0:
            step = 0
        elif self._spoiled(last.step) and not self._journal.asks(last.step + 1):
            # The last thing this run learnt was learnt from failures of ours.
            if self._journal.state(last.step - 1) is None:
                step = last.step + 1
            else:
                self._journal.reopen_step(last.step)
                step = last.step
        else:
            step = last.step + 1
        spoiled = self._spoiled(step)
        self._journal.reopen_proposals(step)
        return step, spoiled

    def _spoiled(self, step: int) -> int:
        rows = self._journal.asks(step)
        ids = {row.candidate_id for row in rows if row.candidate_id}
        ours = {row.candidate_id for row in self._journal.evaluations() if row.status == "machinery"}
        return sum(row.status == "machinery" for row in rows) + len(ids & ours)

    def _open_budget(self, active_s: float) -> None:
        tokens, cost, _ = Calls(self._db, self._id).spent()
        self._budget = Budget(
            self._config.budgets,
            tokens=tokens,
            cost=cost,
            active_s=active_s,
            cancel=self.run.cancel,
            on_event=lambda kind, facts: self._events.emit(self.run.step, kind, facts),
        )

    def _open_model(self) -> Any:
        model = open_model(self._config.model, **self._config.model_options)
        if model is None:
            return lambda: None
        ledger = RunLedger(self._journal, self._budget, PLACE.get, anywhere=self._config.reuse_replies)
        session = ModelSession(
            model,
            ledger,
            self._budget,
            self.run.cancel,
            lambda kind, facts: self._events.emit(self.run.step, kind, facts),
        )
        self.run.model = session
        return session.close

    def _finish(self, status: str, reason: str) -> RunReport:
        """Write the end of a run that ended by its own rules, and report it."""
        # Writing to a file that somebody deleted works to the end, and then all is gone.
        self._db.check_place()
        newest = self._journal.last_state(complete=False)
        result: dict[str, Any] = {}
        if newest is not None:
            try:
                result = plain(self._method.result(self.run, json.loads(newest.state_json)), "result", lenient=True)
            except Exception as exc:
                status, reason = "failed", f"{type(self._method).__name__}.result raised {describe(exc)}"
        self._end(status, "" if status == "done" else reason, result)
        from orienteer.agents.runtime.records import REPORT, put_report, report

        try:
            put_report(self._db, self._home, self._id, type(self._method), self._home.run_folder(self._id) / REPORT)
        except Exception as exc:
            # A report can be written again at any time; the run is what counts.
            text = exc.problem if isinstance(exc, OrienteerError) else describe(exc)
            self._events.emit(self.run.step, "note", {"message": f"the report was not written: {text}"})
            with suppress(StoreError):
                self._journal.flush()
        return report(self._db, self._home, self._id)

    def _end(self, status: str, reason: str, result: dict[str, Any] | None = None) -> None:
        last = self._journal.last_state(complete=False)
        steps = 0 if last is None else last.step + 1
        self._events.emit(self.run.step, "run.end", {"status": status, "reason": reason, "steps": steps})
        values: dict[str, Any] = {
            "status": status,
            "reason": reason,
            "ended": time.time(),
            "active_s": self._budget.active_s,
            "budget_json": self._spent(),
            "provenance_json": dumps(self._provenance()),
            "proposer": self.run.proposer,
        }
        if result is not None:
            values["result_json"] = dumps(result)
        # The store may be what ended the run; then its error is the one to show.
        with suppress(StoreError):
            self._journal.flush()
            self._catalogue.update(self._id, owner=self._claim, **values)

    def _mark(self) -> None:
        """Called when the process is about to be ended by a second signal."""
        self._events.emit(self.run.step, "run.cut", {})
        with suppress(Exception):
            self._catalogue.update(self._id, status="interrupted", reason="stopped twice", ended=time.time())

    def _close_method(self) -> None:
        try:
            self._method.close()
        except Exception as exc:
            self._events.emit(self.run.step, "method.close_failed", {"message": describe(exc)})

    def _provenance(self) -> dict[str, Any]:
        return self._versions | {
            "method": self._config.method,
            "class": f"{type(self._method).__module__}:{type(self._method).__qualname__}",
            "proposer": self.run.proposer,
            "model": self._config.model,
            "seed": self._config.seed,
            "sandbox": self._config.sandbox,
            "evaluator": self._method.evaluator,
            "minimise": self._method.minimise,
            "evaluations_reused": self._config.reuse_evaluations,
            "replies_reused": self._config.reuse_replies,
        } | self.run.facts  # fmt: skip

    def _spent(self) -> str:
        return dumps(self._budget.document())

    def _write_traceback(self, sha: str) -> Path:
        path = self.run.folder / "traceback.txt"
        with suppress(OSError):
            path.write_text(self._journal.store.text(sha), errors="replace")
        return path
