"""The selectors of Rule2DRC, decision by decision as published (arXiv 2605.15669 and its code), with their defaults.

Only the questions' words are our own, and layouts are told apart per category where theirs looks at any category: the
coarse answer is kept wherever a decision depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from orienteer.agents.drc.selectors.book import (
    Answer,
    Book,
    Chosen,
    Want,
    first_running,
    suite_wanted,
    winner,
)
from orienteer.evaluators.drc import clusters
from orienteer.evaluators.drc.observed import Test
from orienteer.evaluators.drc.scoring import best_of


@dataclass(frozen=True)
class First:
    """The first deck that runs: no selection at all."""

    name: str = "first"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        return winner(book, first_running(book), "first")


@dataclass(frozen=True)
class GeneratedTests:
    """The deck that is right on most of the shared tests, their labels taken for true (``generated_tests``)."""

    suite: int = 8
    name: str = "tests"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        if not book.asked_for_suite:
            return suite_wanted(self.suite)
        scores = tuple(standing.base for standing in book.standings())
        return Chosen(best_of(scores), "most tests", scores)


@dataclass(frozen=True)
class SplitTester:
    """Layouts that split the cluster worth most, then one judgement of the three best (``generated_tests_ours``).

    Attributes:
        budget: layouts at most.
        early_stop: stop after so many layouts, or failures to make one, that split nothing.
        reps: decks of the cluster that the tester is shown.
        suite: shared tests at most.
    """

    budget: int = 8
    early_stop: int = 1
    reps: int = 3
    suite: int = 8
    name: str = "splittester"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        if not book.asked_for_suite:
            return suite_wanted(self.suite)
        valid = [standing for standing in book.standings() if standing.valid]
        if len(valid) < 2:
            return winner(book, valid[0].index if valid else 0, "fewer than two valid")
        extra: list[Test] = []
        streak = attempts = 0
        course: list[dict[str, object]] = []
        for answer in book.after_suite:
            if answer.want[0] != "split":
                break
            attempts += 1
            group = clusters.target(book.standings(extra))
            made = answer.tests[:1]
            # A failure of the tester does not count as a layout, but it does count towards stopping.
            split = bool(made) and clusters.splits(group, [made[0].bit(member.index) for member in group])
            extra += made
            streak = 0 if split else streak + 1
            course.append({"cluster": [m.index for m in group], "made": bool(made), "split": split})
        ranked = clusters.ranking(book.standings(extra))
        final = next((answer for answer in book.after_suite if answer.want[0] == "final"), None)
        top = [standing.index for standing in ranked[:3]]
        group = clusters.target(book.standings(extra))
        stop = "early stop" if streak >= self.early_stop else "budget" if len(extra) >= self.budget else "no cluster"
        if final is None and len(extra) < self.budget and streak < self.early_stop and group:
            shown = clusters.representatives(group, len(extra), book.seed, self.reps)
            facts = {"cluster": [member.index for member in group]}
            return Want("layouts", "split", tuple(s.index for s in shown), step=attempts, label=True, facts=facts)
        ended = {"course": course, "stop": stop, "top": top}
        if len(top) < 2:
            return winner(book, top[0], "one is left", **ended)
        if final is None:
            return Want("choice", "final", tuple(top), tests=differing(book.tests, top))
        if final.choice is None:
            return winner(book, top[0], "no judgement", **ended)
        return winner(book, top[final.choice], "judged", **ended)


@dataclass(frozen=True)
class SStar:
    """A match of two representatives for every shared test that splits the decks in two (S*, ``s_star``).

    Attributes:
        budget: further layouts in all, shared out over the matches.
        suite: shared tests at most.
    """

    budget: int = 8
    suite: int = 8
    name: str = "sstar"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        if not book.asked_for_suite:
            return suite_wanted(self.suite)
        standings = {s.index: s for s in book.standings() if s.valid}
        matches = [
            (position, sides)
            for position, test in enumerate(book.suite)
            if all(sides := [[i for i in standings if test.bit(i) == bit] for bit in (0, 1)])
        ]
        votes = dict.fromkeys(standings, 0)
        shares = [self.budget // len(matches) + (n < self.budget % len(matches)) for n in range(len(matches))]
        answers = {answer.want: answer for answer in book.after_suite}
        at = len(book.suite)
        for number, (position, sides) in enumerate(matches):
            pair = tuple(max(side, key=lambda i: (standings[i].base, -i)) for side in sides)
            made: Answer | None = None
            if shares[number]:
                made = answers.get(("match", number))
                if made is None:
                    facts = {"test": position}
                    return Want(
                        "layouts", "match", pair, most=shares[number], tests=(position,), step=number, facts=facts
                    )
            fresh = range(at, at + len(made.tests)) if made is not None else range(0)
            at += len(fresh)
            tests = (position, *(t for t in fresh if len({book.tests[t].bit(i) for i in pair}) > 1))
            decided = answers.get(("pair", number))
            if decided is None:
                return Want("choice", "pair", pair, tests=tests, step=number, facts={"tie": True})
            if decided.choice is not None:
                for member in sides[decided.choice]:
                    votes[member] += 1
        scores = tuple(float(votes.get(deck.index, -1)) for deck in book.decks)
        return Chosen(best_of(scores), "votes" if matches else "no disagreement", scores, {"matches": len(matches)})


@dataclass(frozen=True)
class CodeMonkeys:
    """The three best on the shared tests, one layout after another until a judge decides (CodeMonkeys-style).

    Attributes:
        rounds: layouts at most.
        suite: shared tests at most.
    """

    rounds: int = 8
    suite: int = 8
    name: str = "codemonkeys"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        if not book.asked_for_suite:
            return suite_wanted(self.suite)
        valid = [s for s in book.standings() if s.valid]
        top = [s.index for s in sorted(valid, key=lambda s: (-s.right, s.index))[:3]]
        if len(top) < 2:
            return winner(book, top[0] if top else 0, "fewer than two valid")
        answers = {answer.want: answer for answer in book.after_suite}
        script = ""
        at = len(book.suite)
        for number in range(self.rounds):
            made = answers.get(("case", number))
            if made is None:
                return Want("layouts", "case", tuple(top), step=number, facts={"script": script})
            if not made.tests:
                return winner(book, top[0], "no layout", rounds=number)
            decided = answers.get(("decide", number))
            if decided is None:
                facts = {"left": self.rounds - 1 - number, "script": made.facts.get("script", "")}
                return Want("choice", "decide", tuple(top), tests=(at,), step=number, facts=facts)
            if decided.choice is not None:
                return winner(book, top[decided.choice], "decided", rounds=number + 1)
            script = str(decided.facts.get("script", ""))
            at += 1
            if decided.failure or not script:
                return winner(book, top[0], "no decision", rounds=number + 1)
        return winner(book, top[0], "no decision", rounds=self.rounds)


@dataclass(frozen=True)
class Judge:
    """A knock-out of groups, each judged by its decks' texts alone (``llm_judge``).

    Attributes:
        group: decks in one question; the whole pool by default.
    """

    group: int = 60
    name: str = "judge"

    def next(self, book: Book) -> Want | Chosen:
        """See :class:`Selector`."""
        alive = [deck.index for deck in book.decks if deck.runs]
        if not alive:
            return winner(book, 0, "none runs")
        answers = iter(book.answers)
        step = 0
        while len(alive) > 1:
            onward = []
            for start in range(0, len(alive), self.group):
                members = alive[start : start + self.group]
                if len(members) == 1:
                    onward += members
                    continue
                answer = next(answers, None)
                if answer is None:
                    return Want("choice", "knockout", tuple(members), step=step, facts={"tie": True})
                step += 1
                # A tie, or an answer that cannot be read, lets the lower index go on.
                onward.append(min(members) if answer.choice is None else members[answer.choice])
            alive = onward
        return winner(book, alive[0], "judged" if step else "one is left")


def differing(tests: tuple[Test, ...], decks: list[int]) -> tuple[int, ...]:
    """Return the positions of the tests on which these decks do not all report the same."""
    return tuple(n for n, test in enumerate(tests) if len({test.bit(deck) for deck in decks}) > 1)
