"""The static gate for C++: hostile texts get their code, honest ones pass."""

import importlib.util
from pathlib import Path

import pytest

from orienteer.evaluators.kernel import cpp_cheats
from orienteer.evaluators.kernel.cpp_tokens import BadText, tokens

_spec = importlib.util.spec_from_file_location("cpp_sources", Path(__file__).with_name("cpp_sources.py"))
sources = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sources)


def code(finding):
    return finding.code if finding.code in ("syntax", "contract") else f"cheat:{finding.code}"


@pytest.mark.parametrize("name", sources.STATIC)
def test_hostile_texts_are_refused_with_their_code(name):
    wanted, source = sources.STATIC[name]
    findings = cpp_cheats.check(source)
    assert wanted in {code(finding) for finding in findings}, findings
    assert all(finding.message for finding in findings)


@pytest.mark.parametrize("name", sources.HONEST)
def test_honest_texts_pass(name):
    assert cpp_cheats.check(sources.HONEST[name]) == []


@pytest.mark.parametrize("name", [*sources.COMPILED, *sources.RUN])
def test_what_only_the_compiler_or_a_run_shows_is_not_refused_for_another_reason(name):
    source = {**sources.COMPILED, **sources.RUN}[name][1]
    findings = cpp_cheats.check(source)
    assert not findings or name in ("quiet_clock", "standard_exit"), findings


def test_a_finding_names_the_line():
    source = sources.program("    static int calls = 0;\n" + sources.LOOP)
    line = source.splitlines().index("    static int calls = 0;") + 1
    assert [finding.line for finding in cpp_cheats.check(source)] == [line]


def test_lines_are_counted_through_comments_splices_and_raw_strings():
    text = '/* one\ntwo */ a\n// three \\\nfour\nb R"x(\n\n)x" c "d\\"e" \'f\'\n'
    assert [(t.kind, t.line) for t in tokens(text)] == [
        ("name", 2),
        ("name", 5),
        ("text", 5),
        ("name", 7),
        ("text", 7),
        ("text", 7),
    ]


@pytest.mark.parametrize("text", ['"open', "/* open", 'R"(open', "é = 1;", "a @ b"])
def test_texts_that_cannot_be_read_are_refused(text):
    with pytest.raises(BadText):
        tokens(text)


def test_the_expanded_text_is_checked_as_well():
    assert [f.code for f in cpp_cheats.check_expanded("static int f() { static int n; return ++n; }")] == ["state"]
    assert cpp_cheats.check_expanded("static int f() { return (__builtin_inff ()) > 1; }") == []
