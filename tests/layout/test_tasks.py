"""Reading rule tasks: what upstream's layout holds, and what is wrong with a spec."""

import pytest

from orienteer.environments.layout.tasks import find_tasks, layer_number, read_task
from orienteer.errors import UsageError

GOOD = "id: a\nlayers: {m: [1, 0], n: 2/5, o: 7}\nrules: [{text: Minimum width of m is 1 um, category: M.1}]\n"


def test_a_spec_with_its_defaults(tmp_path):
    (tmp_path / "spec.yaml").write_text(GOOD)
    (task,) = find_tasks([str(tmp_path)])
    assert task.layers == {"m": (1, 0), "n": (2, 5), "o": (7, 0)} and task.categories == ("M.1",)
    assert task.description == "Minimum width of m is 1 um" and task.layouts == () and task.gold is None


WRONG = {
    "no mapping": ("- 1", "is no spec"),
    "no yaml": ("a: [", "is no YAML"),
    "no layers": ("rules: [{text: x}]", "has no layers"),
    "no rules": ("layers: {m: 1}\nrules: []", "has no rules"),
    "rule without text": ("layers: {m: 1}\nrules: [{category: A}]", "rule 1 has no text"),
    "odd category": (GOOD + "categories: [X]", "the category 'M.1' of a rule"),
    "no layer": ("layers: {m: [1, 2, 3]}\nrules: [{text: x}]", "is no layer for m"),
    "negative layer": ("layers: {m: [-1, 0]}\nrules: [{text: x}]", "is no layer for m"),
    "no data": (GOOD + "data_dir: nowhere", "nowhere is not there"),
    "python objects": ("!!python/object/apply:os.system [true]", "is no YAML"),
}


@pytest.mark.parametrize("text, said", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_spec_is_named(tmp_path, text, said):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_task(path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


LABELS = {
    "no column": ("filename,X\na.gds,1\n", "no column 'M.1'"),
    "no bit": ("filename,M.1\na.gds,maybe\n", "the label 'maybe'"),
    "no layout": ("filename,M.1\nb.gds,1\n", "'b.gds', which is not there"),
}


@pytest.mark.parametrize("text, said", LABELS.values(), ids=LABELS)
def test_what_is_wrong_with_labels_is_named(tmp_path, text, said):
    (tmp_path / "spec.yaml").write_text(GOOD + "data_dir: gds\n")
    (tmp_path / "gds").mkdir()
    (tmp_path / "gds" / "labels.csv").write_text(text)
    (tmp_path / "a.gds").write_bytes(b"")
    with pytest.raises(UsageError) as caught:
        find_tasks([str(tmp_path)])
    assert said in str(caught.value)


def test_one_bad_problem_does_not_stop_the_others(tmp_path):
    for name, text in (("a", GOOD), ("b", "- 1")):
        (tmp_path / "problems" / name).mkdir(parents=True)
        (tmp_path / "problems" / name / "spec.yaml").write_text(text)
    rejected: dict[str, str] = {}
    assert [task.id for task in find_tasks([str(tmp_path)], rejected)] == ["a"] and "is no spec" in rejected["b"]


@pytest.mark.parametrize("value", ["a", "1/2/3", None, [1, "x"], "1/-2", 2**40])
def test_what_is_no_layer_is_refused(value):
    with pytest.raises(UsageError, match="is no layer"):
        layer_number(value)
