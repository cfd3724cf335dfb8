"""KLayout DRC decks from design rules: readings of the sentence, told apart by layouts, chosen by what they do.

First the candidates: the offline proposer reads the sentence in every way that it can be meant, a model is asked for
samples. Then a selector (``selectors``) tells them apart: it asks for layouts, for what is right on one, for a
judgement, until it chooses. Labelled layouts of a benchmark only score what was chosen; no selector sees them.
(Rule2DRC and SplitTester, arXiv 2605.15669.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from orienteer.agents.drc import case, prompting, proposing, telling, verdicts
from orienteer.agents.drc.selectors import SELECTORS, Answer, Chosen, Selector, Test
from orienteer.agents.runtime.method import (
    Ask,
    Candidate,
    Evaluation,
    Method,
    Outcome,
    Plain,
    Proposal,
    ProposalFailed,
    Settings,
)
from orienteer.agents.runtime.models import code_from
from orienteer.agents.runtime.run import Run
from orienteer.environments.layout.tasks import RuleTask, find_tasks, task_of
from orienteer.errors import UsageError


class DrcSettings(Settings):
    """Options of ``agent run drc``."""

    rule: list[str] = Field([], description="a design rule in a sentence; may be repeated (instead of --task)")
    layer: list[str] = Field([], description="a drawn layer, NAME=LAYER/DATATYPE; may be repeated (with --rule)")
    spec: list[str] = Field([], description="a spec.yaml, or a folder of problems; the same as --task")
    candidates: int = Field(8, ge=1, le=200, description="decks per task")
    sample: int = Field(0, ge=0, description="number of the first sample of a model, or of the first reading")
    selector: Literal["split", "splittester", "sstar", "codemonkeys", "judge", "tests", "first"] = Field(
        "split", description="how one of them is chosen"
    )
    budget: int = Field(
        8, ge=0, le=200, description="further layouts (splittester, sstar, codemonkeys), labels (split)"
    )
    early_stop: int = Field(1, ge=1, description="splittester: stop after so many layouts that split nothing")
    reps: int = Field(3, ge=2, description="splittester: decks of the cluster that the tester is shown")
    suite: int = Field(8, ge=1, le=64, description="shared tests at most")
    answers: Literal["auto", "person", "model", "gold", "nobody"] = Field(
        "auto",
        description="who says what is right on a layout: the engineer at the terminal, the model, the reference deck",
    )
    interactive: bool = Field(False, description="a session: ask the engineer (the same as --answers person)")
    votes: int = Field(3, ge=1, le=15, description="how often a model is asked for one label")
    reference: str = Field(
        "short", description="what a model is told of the deck language: none, short, or a text file"
    )
    backend: Literal["auto", "strmrun", "klayout", "py"] = Field("auto", description="what runs the decks")
    isolate: Literal["deck", "run"] = Field(
        "deck", description="strmrun: a process of its own for each deck, or each run"
    )
    timeout: float = Field(120.0, gt=0, le=36000, description="seconds of one run of a deck")
    pictures: int = Field(
        5, ge=0, description="draw what tells the chosen deck from the others, for so many tasks at most"
    )
    max_tokens: int = Field(16384, ge=256, description="upper limit of a model's reply in tokens")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature; the endpoint's own if unset")


class Drc(Method):
    """See the module's text."""

    name: ClassVar[str] = "drc"
    Settings: ClassVar[type[Settings]] = DrcSettings
    evaluator: ClassVar[str] = "drc-runs"

    def __init__(self) -> None:
        self._tasks: dict[str, RuleTask] = {}
        self._runner: Any = None
        self._sandbox: Any = None

    # -- the request -------------------------------------------------------------------------------------------------

    def start(self, run: Run) -> Plain:
        """Read the tasks, open what runs decks, and read the sentences where there is no model."""
        from orienteer.environments.execution.sandbox import open_sandbox
        from orienteer.environments.layout.runner import open_runner

        settings = _settings(run)
        self._answers(run)
        kept = run.first_state()
        rejected: dict[str, str] = dict(kept["rejected"]) if kept is not None else {}
        if kept is None:
            tasks = _asked(run, settings, rejected)
        else:
            # A resume works on what the run began with, whatever became of the files.
            tasks = [case.task_from(json.loads(run.artifacts.text(t["spec"]))) for t in kept["tasks"].values()]
        self._runner = open_runner(
            settings.backend,
            sandbox=run.sandbox_choice,
            allow_unsafe=run.allow_unsafe,
            timeout_s=settings.timeout,
            isolate=settings.isolate,
            home=run.home,
            workers=run.workers,
            cancel=run.cancel,
        )
        if run.model is not None:
            self._sandbox = open_sandbox(run.sandbox_choice, allow_unsafe=run.allow_unsafe)
        run.provenance(deck_backend=self._runner.name, klayout=self._runner.version, backend_choice=self._runner.why)
        run.emit(
            "note", message=f"decks run by {self._runner.name}, KLayout {self._runner.version} ({self._runner.why})"
        )
        states: dict[str, Plain] = {}
        for task in tasks:
            try:
                wanted = settings.candidates if run.model is not None else len(self._readings(task, settings))
            except UsageError as exc:
                rejected[task.id] = str(exc)
                run.emit("task.rejected", task=task.id, message=str(exc))
                continue
            self._tasks[task.id] = task
            spec = run.artifacts.put(json.dumps(case.task_document(task)), "application/json")
            states[task.id] = {"spec": spec, **case.fresh(task, wanted)}
        if not states:
            name, reason = next(iter(rejected.items()))
            raise UsageError(f"{name}: {reason}", "mend the rule; docs/drc.md says what is read")
        return {"tasks": states, "rejected": rejected}

    def close(self) -> None:
        """End the runner and the sandbox."""
        for part in (self._runner, self._sandbox):
            if part is not None:
                part.close()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def plan(self, run: Run, state: Plain) -> Sequence[Ask]:
        """Ask for the decks of every task first, then for what its selector wants."""
        asks: list[Ask] = []
        for name, task in state["tasks"].items():
            if task["phase"] == "decks":
                first = _settings(run).sample
                asks += [Ask(name, {"kind": "deck", "sample": first + n}) for n in range(task["wanted"])]
            elif task["phase"] == "select":
                asks.append(Ask(name, {"kind": "want", "want": task["want"], "pool": case.pool_key(task)}))
        return asks

    def propose(self, run: Run, ask: Ask) -> Proposal:
        """Make a deck, or what a selector wants."""
        if ask.directive["kind"] == "deck":
            return self._deck(run, ask)
        book = case.book_of(run, run.state_before()["tasks"][ask.task])
        proposal = proposing.answer(self._desk(run, ask.task), book, case.want_from(ask.directive["want"]))
        return Proposal(proposal.content, {**proposal.notes, "pool": ask.directive["pool"]}, proposal.media)

    def answered(self, run: Run, ask: Ask, answer: str) -> Proposal:
        """Take the engineer's answer about a layout."""
        from orienteer.agents.drc.asking import differing

        want = case.want_from(ask.directive["want"])
        book = case.book_of(run, run.state_before()["tasks"][ask.task])
        proposal = proposing.said_by_engineer(want, differing(book.tests[want.tests[0]]), answer)
        return Proposal(proposal.content, {**proposal.notes, "pool": ask.directive["pool"]}, proposal.media)

    def evaluation_key(self, run: Run, candidate: Candidate) -> Mapping[str, Any]:
        """Decks depend on what runs them, layouts on the decks that are run on them as well."""
        kind = candidate.notes.get("kind", "")
        ran = {"backend": self._runner.name, "klayout": self._runner.version, "timeout": _settings(run).timeout}
        labels = [str(item.path) for item in self._tasks[candidate.task].layouts] if kind == "deck" else []
        return {
            "task": candidate.task,
            "kind": kind,
            "pool": candidate.notes.get("pool", ""),
            "labelled": labels,
            **ran,
        }

    def evaluate(self, run: Run, candidate: Candidate) -> Evaluation:
        """Run a deck on the task's layouts, or all decks on new layouts; an answer needs no proof."""
        kind = candidate.notes.get("kind")
        if kind == "deck":
            return verdicts.on_deck(self._desk(run, candidate.task), candidate)
        if kind in ("layouts", "suite"):
            state = run.state_before()["tasks"][candidate.task]
            book, texts = case.book_of(run, state), case.deck_texts(run, state)
            return verdicts.on_layouts(self._desk(run, candidate.task), candidate, book, texts)
        return Evaluation("ok", evidence=str(json.loads(candidate.content).get("who", "chosen")))

    def learn(self, run: Run, state: Plain, outcomes: Sequence[Outcome]) -> Plain:
        """Gather decks and answers, and let the selectors say what they want next or whom they chose."""
        tasks = dict(state["tasks"])
        for name in dict.fromkeys(outcome.ask.task for outcome in outcomes):
            own = [outcome for outcome in outcomes if outcome.ask.task == name]
            task = dict(tasks[name])
            if task["phase"] == "decks":
                task["decks"] = _gathered(own)
                task["phase"] = "select" if any(deck["runs"] for deck in task["decks"]) else "failed"
            else:
                document = case.answer_document(_answer(own[0]))
                sha = run.artifacts.put(json.dumps(document), "application/json")
                task["answers"] = [*task["answers"], sha]
            if task["phase"] == "select":
                step = self._selector(run).next(case.book_of(run, task))
                if isinstance(step, Chosen):
                    task |= {"phase": "done", "want": None, "chosen": case.chosen_document(step)}
                else:
                    task["want"] = case.want_document(step)
            tasks[name] = task
        return {**state, "tasks": tasks}

    # -- proposals ---------------------------------------------------------------------------------------------------

    def _deck(self, run: Run, ask: Ask) -> Proposal:
        task, sample = self._tasks[ask.task], ask.directive["sample"]
        if run.model is None:
            found = self._readings(task, _settings(run))[sample - _settings(run).sample]
            notes = {"kind": "deck", "sample": sample, "why": found.why, "prior": found.prior, "form": found.form}
            return Proposal(found.deck, {**notes, "choices": found.choices}, "text/x-ruby")
        request = prompting.deck_request(task, _reference(_settings(run).reference), sample, **self._options(run))
        data = run.model.ask(request).data
        text = code_from(data["deck"], ("ruby", "rb", "drc"))
        return Proposal(text, {"kind": "deck", "sample": sample, "why": str(data.get("reading", ""))}, "text/x-ruby")

    def _readings(self, task: RuleTask, settings: DrcSettings) -> Sequence[Any]:
        from orienteer.agents.drc.reading import readings

        return readings(task, settings.sample + settings.candidates)[settings.sample :]

    def _desk(self, run: Run, name: str) -> proposing.Desk:
        settings = _settings(run)
        return proposing.Desk(
            task=self._tasks[name],
            runner=self._runner,
            sandbox=self._sandbox,
            folder=run.folder / "tasks" / case.file_name(name),
            model=run.model,
            options=self._options(run),
            answers=self._answers(run),
            votes=settings.votes,
            seed=run.seed,
            artifacts=run.artifacts,
            cancel=run.cancel,
        )

    def _options(self, run: Run) -> dict[str, Any]:
        settings = _settings(run)
        return {"seed": run.seed, "max_tokens": settings.max_tokens, "temperature": settings.temperature}

    def _answers(self, run: Run) -> proposing.Answers:
        settings = _settings(run)
        if settings.interactive or settings.answers == "person":
            if settings.selector != "split":
                raise UsageError(f"the selector {settings.selector} asks no engineer", "use --selector split")
            return "person"
        if settings.answers == "auto":
            return "nobody" if run.model is None else "model"
        if settings.answers == "model" and run.model is None:
            raise UsageError("there is no model to answer", "name one with --model, or leave out --answers model")
        return settings.answers

    def _selector(self, run: Run) -> Selector:
        settings = _settings(run)
        options: dict[str, dict[str, Any]] = {
            "tests": {"suite": settings.suite},
            "splittester": {
                "budget": settings.budget, "early_stop": settings.early_stop, "reps": settings.reps,
                "suite": settings.suite,
            },
            "sstar": {"budget": settings.budget, "suite": settings.suite},
            "codemonkeys": {"rounds": settings.budget, "suite": settings.suite},
            "split": {"budget": settings.budget},
        }  # fmt: skip
        return SELECTORS[settings.selector](**options.get(settings.selector, {}))

    # -- what is told ------------------------------------------------------------------------------------------------

    def result(self, run: Run, state: Plain) -> Plain:
        """Return the chosen decks with what is known of them; write each beside the report."""
        return telling.result(run, state, self._tasks, _settings(run), self._runner)

    @classmethod
    def rows(cls, result: Plain) -> list[dict[str, str]]:
        """Return a row a task."""
        return telling.rows(result)

    @classmethod
    def proven(cls, result: Plain) -> bool:
        """Say whether every task has a deck, and with labels one that is right on all of them."""
        return telling.proven(result)

    @classmethod
    def course(cls, document: Plain, task: str = "") -> list[str]:
        """Return how each deck was chosen."""
        return telling.course(document, task)

    @classmethod
    def report(cls, document: Callable[[], Plain], read: Callable[[str], str]) -> str | None:
        """Return the report as one HTML page."""
        from orienteer.agents.drc.report import page

        return page(document(), read)


# -- parts -------------------------------------------------------------------------------------------------------------


def _settings(run: Run) -> DrcSettings:
    assert isinstance(run.settings, DrcSettings)
    return run.settings


def _asked(run: Run, settings: DrcSettings, rejected: dict[str, str]) -> list[RuleTask]:
    """Return the tasks of the request: a sentence with its layers, or files."""
    named = [*run.tasks, *settings.spec]
    if settings.rule and named:
        raise UsageError("both a rule and a spec are given", "use --rule with --layer, or --spec")
    if named:
        return find_tasks(named, rejected)
    if not settings.rule:
        raise UsageError("nothing to do: no rule", 'give --rule "..." --layer met1=68/20 ..., or --spec FILE')
    if not settings.layer:
        raise UsageError("the rule has no layers", "give --layer NAME=LAYER/DATATYPE for each layer it speaks of")
    layers: dict[str, Any] = {}
    for text in settings.layer:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--layer {text} is not of the form NAME=LAYER/DATATYPE", "write for example met1=68/20")
        if name.strip() in layers:
            raise UsageError(f"the layer {name.strip()} is given twice", "remove one of the two")
        layers[name.strip()] = value.strip()
    many = len(settings.rule) > 1
    rules = [{"text": text, "category": f"R{n}" if many else "RULE"} for n, text in enumerate(settings.rule, 1)]
    return [task_of({"id": "rule", "title": "rule", "layers": layers, "rules": rules}, Path("rule"))]


def _gathered(outcomes: Sequence[Outcome]) -> list[Plain]:
    """Return the pool: every deck that was proposed, in order; the same text twice stays twice, as upstream."""
    found: list[Plain] = []
    for outcome in outcomes:
        candidate, evaluation = outcome.candidate, outcome.evaluation
        if candidate is None:
            continue
        ran = evaluation is not None and evaluation.status == "ok"
        failure = evaluation.failure if evaluation is not None else outcome.failure
        found.append(
            {
                "candidate": candidate.id,
                "sha": candidate.sha,
                "runs": ran,
                "prior": float(candidate.notes.get("prior", 1.0)),
                "why": str(candidate.notes.get("why", "")),
                "failure": "" if failure is None else f"{failure.kind}: {failure.message}"[:300],
            }
        )
    total = sum(deck["prior"] for deck in found) or 1.0
    return [deck | {"prior": deck["prior"] / total} for deck in found]


def _answer(outcome: Outcome) -> Answer:
    """Return what came of a selector's want."""
    want = case.want_from(outcome.ask.directive["want"])
    key = (want.name, want.step)
    failure = outcome.failure or (outcome.evaluation.failure if outcome.evaluation is not None else None)
    if failure is not None or outcome.candidate is None or outcome.evaluation is None:
        facts = dict(want.facts)
        return Answer(key, failure=failure.kind if failure is not None else "lost", facts=facts)
    if want.kind in ("suite", "layouts"):
        tests = tuple(Test.from_document(item) for item in outcome.evaluation.metrics["tests"])
        script = outcome.candidate.content if outcome.candidate.notes.get("maker") == "model" else ""
        return Answer(
            key, tests[: want.most], facts={**want.facts, "script": script} if want.name == "case" else want.facts
        )
    data = json.loads(outcome.candidate.content)
    if want.kind == "label":
        facts = {**want.facts, "who": data["who"], "remark": data.get("remark", "")}
        return Answer(key, expected=data["expected"], doubt=data["doubt"], facts=facts)
    choice = data.get("choice")
    picked = choice if isinstance(choice, int) and 0 <= choice < len(want.decks) else None
    return Answer(
        key, choice=picked, facts={**want.facts, "script": data.get("script", ""), "why": data.get("why", "")}
    )


def _reference(choice: str) -> str:
    """Return what a model is told of the deck language."""
    if choice == "none":
        return ""
    if choice == "short":
        return prompting.prompt("dsl")
    try:
        return Path(choice).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ProposalFailed("reference", f"the reference {choice} cannot be read ({exc})") from None
