"""A run that asks a person: it stops there until there is an answer, and asks nothing twice."""

import threading

import pytest

from orienteer.agents.runtime import Ask, AskPerson, Evaluation, Method, Proposal, ProposalFailed, Question
from orienteer.agents.runtime.config import RunConfig
from orienteer.agents.runtime.engine import resume_run, start_run
from orienteer.agents.runtime.records import show_run
from orienteer.errors import Interrupted


class Opinions(Method):
    """Asks for an opinion on two tasks at once, twice, and keeps what was said."""

    name = "opinions"

    def start(self, run):
        return {"said": []}

    def plan(self, run, state):
        return [Ask(task, {"round": run.step}) for task in ("left", "right")] if run.step < 2 else []

    def propose(self, run, ask):
        raise AskPerson(Question(ask.task, f"round {ask.directive['round']}: what of {ask.task}?", ("fine", "wrong")))

    def answered(self, run, ask, answer):
        if answer == "dunno":
            raise ProposalFailed("no-opinion", "they do not know")
        return Proposal(f"{ask.task} {ask.directive['round']} {answer}", media="text/plain")

    def evaluate(self, run, candidate):
        return Evaluation("ok", score=1.0)

    def learn(self, run, state, outcomes):
        said = [o.candidate.content if o.candidate else o.failure.kind for o in outcomes]
        return {"said": [*state["said"], *said]}


METHOD = f"{__name__}:Opinions"


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr("orienteer.agents.runtime.registry.find", lambda name: Opinions)
    return RunConfig(METHOD, model="offline", home=tmp_path, handle_signals=False, workers=2)


def answering(*answers):
    heard, left = [], list(answers)

    def ask(question: Question, cancel: threading.Event) -> str | None:
        heard.append(question.text)
        return left.pop(0) if left else None

    return ask, heard


def test_answers_become_candidates(config):
    ask, heard = answering("fine", "wrong", "dunno", "fine")
    report = start_run(config, None, ask)
    assert report.status == "done"
    assert len(heard) == 4
    first, second = heard[:2], heard[2:]
    assert {text.split(":")[0] for text in first} == {"round 0"} and {t.split(":")[0] for t in second} == {"round 1"}
    assert sorted(report.result["said"][:2]) == sorted(f"{text.split()[-1][:-1]} 0 {word}" for text, word in
                                                       zip(first, ("fine", "wrong"), strict=True))  # fmt: skip
    assert "no-opinion" in report.result["said"]


def test_nobody_there_leaves_the_question_open_and_a_resume_asks_only_what_is_open(config, tmp_path):
    with pytest.raises(Interrupted, match="waits for an answer"):
        start_run(config)
    run = show_run("last", tmp_path)
    assert run["status"] == "interrupted" and "waits for an answer" in run["reason"]
    ask, _ = answering("fine", "fine", "wrong")
    with pytest.raises(Interrupted, match="waits for an answer"):
        resume_run(run["id"], None, None, ask, home_path=str(tmp_path), handle_signals=False)
    ask, again = answering("fine", "fine")
    report = resume_run(run["id"], None, None, ask, home_path=str(tmp_path), handle_signals=False)
    assert report.status == "done" and len(report.result["said"]) == 4
    # One answer of the second round was given when the other was missing; what was open is asked, and nothing else.
    assert len(again) == 1 and all(text.startswith("round 1") for text in again)


def test_the_questions_and_answers_are_told(config):
    ask, _ = answering("fine", "fine", "fine", "fine")
    kinds = []
    start_run(config, lambda event: kinds.append(event.kind), ask)
    assert kinds.count("question") == 4 and kinds.count("answer") == 4
