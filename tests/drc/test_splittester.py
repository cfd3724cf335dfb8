"""SplitTester with a scripted model, every decision against a trace by hand, and the other selectors' decisions."""

import pytest
from drc_world import DECKS, NECK, PLAIN, requests, run, script


def chosen(report):
    return report.result["tasks"][0]


def split(attempt, tried, reply):
    return {"sample": f"width/split/{attempt}/{tried}", "reply": reply}


TALK = [
    split(0, 0, {"script": NECK, "expected": "PASS"}),
    split(1, 0, {"script": PLAIN}),  # says nothing of what it expects
    split(1, 1, {"script": "1 / 0", "expected": "PASS"}),
    split(1, 2, {"script": PLAIN, "expected": "PASS"}),
    {"sample": "width/final/0", "reply": {"choice": 2, "why": "corners"}},
]


def test_every_decision_is_that_of_a_trace_made_by_hand(tmp_path):
    """The trace.

    Shared tests expect 1010. Decks 0, 1, 2 answer 1010 (4 of 4 right), 3 and 4 answer 1110 (3 of 4), 5 does not run.
    Clusters: {0, 1, 2} is worth 1.0 * 3, {3, 4} is worth 0.75 * 2; the first is the target, all of it is shown.
    The neck, expected PASS: 0 and 1 answer 0, 2 answers 1; 3 answers 1, 4 answers 0. It splits. Scores 5/5, 5/5, 4/5,
    3/5, 4/5. Only {0, 1} is left with two members: the target. Its tester fails twice and then draws a plain square,
    expected PASS, on which nobody reports anything: no split, one in a row, early stop. Scores 6/6, 6/6, 5/6, 4/6, 5/6.
    The best three are 0, 1 and, before 4 by its index, 2; they differ on the neck alone. The judge says the third: 2.
    """
    report = run(tmp_path, TALK, selector="splittester")
    item = chosen(report)
    assert item["number"] == 3 and item["why"] == "judged"
    assert item["facts"]["course"] == [
        {"cluster": [0, 1, 2], "made": True, "split": True},
        {"cluster": [0, 1], "made": True, "split": False},
    ]
    assert item["facts"]["stop"] == "early stop" and item["facts"]["top"] == [0, 1, 2]
    answers = [layout["answers"]["W"] for layout in item["layouts"]]
    assert answers == ["11111N", "00011N", "11111N", "00000N", "00110N", "00000N"]
    asked = requests(tmp_path / "home")
    assert sorted(request["sample"] for request in asked[:6]) == [f"width/deck/{n}" for n in range(6)]
    assert [request["sample"] for request in asked[6:]] == [
        "width/suite/0", "width/split/0/0", "width/split/1/0", "width/split/1/1", "width/split/1/2", "width/final/0",
    ]  # fmt: skip
    texts = [request["messages"][1][1] for request in asked[6:]]
    # The tester sees the representatives and nobody else; a failed script comes back with what it printed.
    assert [deck in texts[1] for deck in DECKS[:5]] == [True, True, True, False, False]
    assert [deck in texts[2] for deck in DECKS[:5]] == [True, True, False, False, False]
    assert "ZeroDivisionError" in texts[4] and "PASS or VIOLATION" in texts[3]
    # The judge sees the one layout on which the three differ, with what each reports and no label.
    assert texts[5].count("<layout>") == 1 and texts[5].count("W VIOLATION") == 1 and texts[5].count("W PASS") == 2


def test_a_tie_of_clusters_goes_to_the_one_with_the_smaller_index(tmp_path):
    # Suite answers: {0, 1, 2} and {3, 4} as above; with two representatives only a sample of the cluster is shown.
    report = run(tmp_path, TALK, selector="splittester", reps=2)
    assert chosen(report)["facts"]["course"][0]["cluster"] == [0, 1, 2]


def test_the_budget_ends_the_search_where_no_failure_does(tmp_path):
    talk = [split(0, 0, {"script": NECK, "expected": "PASS"}), TALK[-1]]
    item = chosen(run(tmp_path, talk, selector="splittester", budget=1))
    assert item["facts"]["stop"] == "budget" and item["number"] == 3


def test_a_judge_who_cannot_be_read_leaves_the_first_in_rank(tmp_path):
    item = chosen(run(tmp_path, TALK[:-1], selector="splittester"))
    assert item["number"] == 1 and item["why"] == "no judgement"


def test_a_tester_that_never_works_ends_the_search(tmp_path):
    item = chosen(run(tmp_path, [{"match": "behaved alike", "reply": {"script": "1 / 0", "expected": "PASS"}}],
                      selector="splittester"))  # fmt: skip
    assert item["facts"]["course"] == [{"cluster": [0, 1, 2], "made": False, "split": False}]
    assert item["facts"]["stop"] == "early stop"


def test_generated_tests_takes_the_first_of_those_right_on_all(tmp_path):
    item = chosen(run(tmp_path, [], selector="tests"))
    assert item["number"] == 1 and item["why"] == "most tests"


def test_s_star_gives_every_member_of_the_winning_side_a_vote(tmp_path):
    # One shared test splits: the bar of 0.25 um; 0 stands for those who pass it, 3 for those who fault it.
    talk = [
        {"sample": "width/match/0/0", "reply": {"script": NECK}},
        {"sample": "width/pair/0", "reply": {"choice": 1}},
    ]
    item = chosen(run(tmp_path, talk, selector="sstar"))
    assert item["number"] == 4 and item["why"] == "votes" and item["facts"] == {"matches": 1}


def test_s_star_with_a_tie_votes_for_nobody(tmp_path):
    talk = [
        {"sample": "width/match/0/0", "reply": {"script": NECK}},
        {"sample": "width/pair/0", "reply": {"choice": 2}},
    ]
    assert chosen(run(tmp_path, talk, selector="sstar"))["number"] == 1


def test_codemonkeys_goes_on_with_the_script_that_it_is_given(tmp_path):
    talk = [
        {"sample": "width/case/0/0", "reply": {"script": PLAIN}},
        {"sample": "width/decide/0", "reply": {"script": NECK}},
        {"sample": "width/decide/1", "reply": {"choice": 1}},
    ]
    item = chosen(run(tmp_path, talk, selector="codemonkeys"))
    assert item["number"] == 2 and item["why"] == "decided" and item["facts"] == {"rounds": 2}
    assert item["layouts"][-1]["answers"]["W"] == "00110N"


def test_the_judge_of_texts_alone_draws_nothing(tmp_path):
    item = chosen(run(tmp_path, [{"sample": "width/knockout/0", "reply": {"choice": 3}}], selector="judge"))
    assert item["number"] == 4 and item["layouts"] == []


@pytest.mark.parametrize("gold", range(5))
def test_our_selection_finds_any_deck_of_the_pool_by_asking(tmp_path, gold):
    (tmp_path / "gold.drc").write_text(DECKS[gold])
    report = run(tmp_path, [], more="deck: gold.drc", selector="split", answers="gold")
    item = chosen(report)
    assert item["number"] == gold + 1 and item["behaviours"] == 5 and item["why"] == "sure"
    # Five behaviours, all held equally likely, need log2(5) answers of yes or no, one more to be sure.
    assert 2 <= item["asked"] <= 5
    assert {layout["who"] for layout in item["layouts"]} == {"", "the reference deck"}


def test_a_label_is_asked_for_with_no_deck_in_sight_and_three_times(tmp_path):
    report = run(tmp_path, [{"match": "was drawn (", "reply": {"W": "fine"}}], selector="split", budget=2)
    item = chosen(report)
    labels = [request for request in requests(tmp_path / "home") if "/label/" in request["sample"]]
    assert item["asked"] == 2 and item["why"] == "budget" and len(labels) == 6
    assert not any("<deck>" in request["messages"][1][1] for request in labels)


def test_a_model_that_cannot_tell_is_not_asked_for_ever(tmp_path):
    report = run(tmp_path, [{"match": "was drawn (", "reply": {"W": "unclear"}}], selector="split", budget=8)
    item = chosen(report)
    assert item["number"] == 1 and item["asked"] == 0


def test_a_hostile_script_gets_nothing_out_of_its_walls(tmp_path):
    marker = tmp_path / "written"
    nasty = f"open({str(marker)!r}, 'w').write('x')\n" + NECK
    talk = [{"match": "behaved alike", "reply": {"script": nasty, "expected": "PASS"}}, TALK[-1]]
    item = chosen(run(tmp_path, talk, selector="splittester"))
    assert item["facts"]["course"][0]["made"] is False and not marker.exists()


def test_the_pool_keeps_a_deck_that_does_not_run_and_says_why(tmp_path):
    item = chosen(run(tmp_path, TALK, selector="splittester"))
    assert item["candidates"] == len(DECKS) and item["run"] == len(DECKS) - 1
    assert "widht" in item["others"][-1]["failure"]
    assert script(("[]", 1)) != script(("[]", 0))
