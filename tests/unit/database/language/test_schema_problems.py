"""Every rule of the schema language is refused with its label, its message and its exact place."""

from __future__ import annotations

import re

import pytest

from gitops.database.language.schema import compile_schema
from gitops.database.language.text import LanguageError, SourceText
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "languages" / "schema"
CASES = [case for path in sorted(DATA.glob("problems*.yaml")) for case in read_yaml(path)]
MARK = re.compile("[«»]")
# S-48 and S-49 need texts too large or too odd for a table; they have tests of their own below.
RULES = {f"S-{number:02}" for number in range(1, 48)} | {"K3", "K5"}


def unmarked(marked: str) -> tuple[bytes, list[tuple[int, int]]]:
    """The text without marks, and the marked byte spans; an empty one is one byte wide."""
    text = b""
    offsets = []
    for part in MARK.split(marked):
        text += part.encode()
        offsets.append(len(text))
    starts, ends = offsets[0:-1:2], offsets[1:-1:2]
    return text, [(start, max(end, start + 1)) for start, end in zip(starts, ends, strict=True)]


def places(marked: str) -> list[tuple[int, int]]:
    """Line and column of each opening mark, counted in characters of the text without marks."""
    parts = ["".join(MARK.split(marked)[: index + 1]) for index in range(0, marked.count("«") * 2, 2)]
    return [(part.count("\n") + 1, len(part.rpartition("\n")[2]) + 1) for part in parts]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.get("name", case["text"])[:60])
def test_refused_with_rule_message_and_place(case):
    text, spans = unmarked(case["text"])
    with pytest.raises(LanguageError) as caught:
        compile_schema(text)
    found = caught.value.problems
    assert [problem.rule for problem in found] == [rule for rule, *_ in case["problems"]]
    assert [(problem.span.start, problem.span.end) for problem in found] == spans
    assert [SourceText(text).position(problem.span.start) for problem in found] == places(case["text"])
    for problem, (_, fragment, *fix) in zip(found, case["problems"], strict=True):
        assert fragment in problem.message
        assert not fix or problem.fix == fix[0]


WARNED = read_yaml(DATA / "warnings.yaml")


@pytest.mark.parametrize("case", WARNED, ids=lambda case: case["text"])
def test_an_annotation_without_a_meaning_is_a_warning_at_its_name(case):
    text, spans = unmarked(case["text"])
    found = compile_schema(text).warnings
    assert [(problem.span.start, problem.span.end) for problem in found] == spans
    for problem, (fragment, *fix) in zip(found, case["says"], strict=True):
        assert problem.rule == "L102"
        assert fragment in problem.message
        assert [problem.fix] == (fix or [None])


def test_every_rule_has_a_case():
    assert {problem[0] for case in CASES for problem in case["problems"]} == RULES


def test_stage_is_the_prefix_of_the_message():
    with pytest.raises(LanguageError) as caught:
        compile_schema(b"node A { v: Vector(0) } node A {}")
    assert [problem.rendered() for problem in caught.value.problems] == [
        "parse error: Vector dimension must be greater than zero",
        "catalog error: duplicate node type `A`",
    ]


def test_positions_count_characters_and_lines_from_one():
    text = '// ä\nnode A @x("äö") { b: [Blob] }\n'.encode()
    with pytest.raises(LanguageError) as caught:
        compile_schema(text)
    assert SourceText(text).position(caught.value.problems[0].span.start) == (2, 22)


def test_invalid_utf8_is_a_problem_at_the_bad_bytes():
    with pytest.raises(LanguageError, match="not valid UTF-8") as caught:
        compile_schema(b"node A {} // \xff\xfe")
    assert caught.value.problems[0].span.start == 13


def test_a_source_over_the_size_limit_is_refused_unread():
    with pytest.raises(LanguageError, match="over the limit"):
        compile_schema(b" " * (4 * 1024 * 1024 + 1))


def test_interfaces_cannot_blow_up_the_schema():
    fields = " ".join(f'p{number}: String @description("{"x" * 80}")' for number in range(1000))
    nodes = " ".join(f"node N{number} implements I {{}}" for number in range(200))
    with pytest.raises(LanguageError, match="interfaces expand the schema") as caught:
        compile_schema(f"interface I {{ {fields} }} {nodes}".encode())
    assert caught.value.problems[0].rule == "S-48"


def test_number_of_problems_is_capped():
    with pytest.raises(LanguageError) as caught:
        compile_schema(b"node A { v: Vector(0) } " * 500)
    assert len(caught.value.problems) == 100


@pytest.mark.parametrize("names", [1, 100, 101, 10_001])
def test_names_that_the_missing_part_may_declare_do_not_hide_what_is_missing(names):
    """Unknown names stop being reported where a text breaks off, and what is wrong there is reported however many they are."""
    unknown = " ".join(f"@index(a{number})" for number in range(names))
    with pytest.raises(LanguageError) as caught:
        compile_schema(f"node A {{ b: String {unknown}".encode())
    assert [problem.message for problem in caught.value.problems] == [
        "expected a property name or `}`, found end of file"
    ]
