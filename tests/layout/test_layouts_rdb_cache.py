"""Layout files, report databases, kept results."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.environments.layout import rdb
from orienteer.environments.layout.cache import ResultCache
from orienteer.environments.layout.layouts import check_layout, write_layout
from orienteer.environments.layout.results import DeckResult, RunStatus, Violation
from orienteer.errors import UsageError

SQUARE = [(0, 0), (0, 100), (100, 100), (100, 0)]


@pytest.mark.parametrize("name", ["a.gds", "a.oas", "a.gds.gz"])
def test_a_layout_is_written_the_same_twice_and_read_back(tmp_path, name):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        write_layout(tmp_path / folder / name, {(1, 0): [SQUARE], (2, 5): [SQUARE, [(x + 300, y) for x, y in SQUARE]]})
    assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes()
    facts = check_layout(tmp_path / "x" / name)
    assert facts.layers == {(1, 0): 1, (2, 5): 2} and facts.tops == ("TOP",) and facts.dbu == 0.001


def test_bad_layouts_are_told_in_one_line(tmp_path):
    good = tmp_path / "good.gds"
    write_layout(good, {(1, 0): [SQUARE]})
    contents = {"empty": b"", "text": b"hello\n", "cut": good.read_bytes()[:100], "bomb": gzip.compress(bytes(9 << 20))}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for name in [*contents, "missing", "."]:
        with pytest.raises(UsageError) as error:
            check_layout(tmp_path / name, most_mb=8)
        assert error.value.cure and "\n" not in str(error.value)


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@given(st.lists(names, min_size=1, max_size=4))
def test_names_survive_quoting(parts):
    assert rdb.split_path(".".join(rdb._quoted(part) for part in parts)) == tuple(parts)


@settings(max_examples=30)
@given(names.map(lambda name: "N" + name.strip()))
def test_a_report_opens_in_klayout_and_reads_back(tmp_path_factory, name):
    from klayout import rdb as reader

    path = tmp_path_factory.mktemp("r") / "r.lyrdb"
    shape = Violation("edge-pair", (((0.0, 0.0), (0.0, 1.0)), ((0.5, 0.0), (0.5, 1.0))))
    rdb.write_report(path, {name: (shape,), "none": ()})
    found = rdb.read_report(path, geometry=True)
    assert found.counts == {name: 1, "none": 0} and found.violations[name] == (shape,)
    opened = reader.ReportDatabase("")
    opened.load(str(path))
    assert {c.name(): c.num_items() for c in opened.each_category()} == found.counts


def test_no_report_is_told(tmp_path):
    for data in (b"", b"<x/>", b"<report-database>", b'<!DOCTYPE a [<!ENTITY b "c">]><report-database/>'):
        with pytest.raises(UsageError):
            rdb.read_report(data)


def test_results_that_hold_are_kept_and_a_damaged_file_is_put_aside(tmp_path):
    told = []
    path = tmp_path / "decks.sqlite"
    path.write_bytes(b"no database" * 1000)
    cache = ResultCache(path, told.append)
    shape = Violation("polygon", (((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)),))
    good = DeckResult(RunStatus.OK, {"a": 1}, {"a": (shape,)}, backend="strmrun", version="1", cpu_s=0.5)
    keys = [cache.key("deck", sha, "1", "strmrun", True) for sha in ("1", "2")]
    cache.put({keys[0]: good, keys[1]: DeckResult(RunStatus.TIMEOUT, message="late")})
    cache.close()
    found = ResultCache(path, told.append).get(keys)
    assert list(found) == keys[:1] and found[keys[0]].violations == good.violations and found[keys[0]].cached
    assert len(told) == 1 and (tmp_path / "decks.sqlite.damaged").exists()


def test_damage_inside_the_file_is_found_when_it_is_met_and_put_aside(tmp_path):
    told = []
    path = tmp_path / "decks.sqlite"
    cache = ResultCache(path, told.append)
    keys = [cache.key("deck", str(n), "1", "strmrun", False) for n in range(400)]
    good = DeckResult(RunStatus.OK, {"a" * 200: 1})
    cache.put(dict.fromkeys(keys, good))
    cache.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    again = ResultCache(path, told.append)
    assert again.get(keys) == {} and (tmp_path / "decks.sqlite.damaged").exists()
    again.put({keys[0]: good})
    assert list(again.get(keys)) == keys[:1]


def test_another_writer_is_not_waited_for_long_and_reading_goes_on(tmp_path):
    import sqlite3

    path = tmp_path / "decks.sqlite"
    cache = ResultCache(path, print)
    key, good = cache.key("deck", "1", "1", "strmrun", False), DeckResult(RunStatus.OK, {"a": 1})
    cache.put({key: good})
    cache.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    again = ResultCache(path, print)
    assert list(again.get([key])) == [key]
    again.put({cache.key("deck", "2", "1", "strmrun", False): good})  # not kept, and not waited for
    other.execute("ROLLBACK")
    other.close()


def test_a_layout_that_is_gone_is_a_bad_layout_and_no_error(tmp_path):
    from orienteer.environments.layout.py_runner import PyRunner

    with PyRunner() as runner:
        (result,) = runner.run('source($input)\nreport("t", $output)\ninput(1, 0).output("A")\n', [tmp_path / "no.gds"])
    assert result.status is RunStatus.BAD_LAYOUT
