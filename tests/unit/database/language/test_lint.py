"""The report on a query file: its results, findings and counts, and its JSON form."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.language.lint import LintLevel, lint_grammar, lint_queries, schema_warnings
from gitops.database.language.schema import compile_schema
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "languages" / "query"
LOCATED = read_yaml(DATA / "located.yaml")
CASES = read_yaml(DATA / "lint.yaml")
RAIL = compile_schema((DATA / "rail.pg").read_bytes()).catalog


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_report(case):
    report = lint_queries(RAIL, case["text"].encode())
    for found, (name, kind, error, warnings) in zip(report.results, case["results"], strict=True):
        assert (found.name, found.kind, len(found.warnings)) == (name, kind, warnings)
        assert (found.error is None) == (error is None) == (found.checked is not None)
        assert (error or "") in (found.error or "")
        assert all("mutation declares no params" in each for each in found.warnings)
    for finding, (level, code, fragment, *rest) in zip(report.findings, case["findings"], strict=True):
        assert (finding.level, finding.code) == (level, code)
        assert fragment in finding.message
        assert [finding.type_name, finding.property_name, list(finding.query_names)] == rest


def without_marks(text):
    """The text, and the byte ranges that were marked in it."""
    parts = re.split("([«»])", text)
    plain, opened, ranges = "", 0, []
    for part in parts:
        at = len(plain.encode())
        if part == "«":
            opened = at
        elif part == "»":
            ranges.append((opened, at))
        else:
            plain += part
    return plain.encode(), ranges


@pytest.mark.parametrize("case", LOCATED, ids=lambda case: case["id"])
def test_every_problem_has_its_place(case):
    source, ranges = without_marks(case["text"])
    found = lint_queries(RAIL, source).problems
    assert [(each.span.start, each.span.end) for each in found] == (ranges or [(len(source), len(source) + 1)])
    for each, (level, code, fragment, query, fix) in zip(found, case["problems"], strict=True):
        assert (each.level, each.code, each.query, each.fix) == (level, code, query, fix)
        assert fragment in each.message


def test_a_file_is_parsed_without_a_schema_in_the_same_words():
    broken, sound = b"query q() {", b"query q() { match { $s: Nowhere } return { $s } }"
    assert lint_grammar(broken) == lint_queries(RAIL, broken)
    assert lint_grammar(sound) is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_problems_are_what_the_report_counts(case):
    report = lint_queries(RAIL, case["text"].encode())
    levels = [each.level for each in report.problems]
    assert (levels.count(LintLevel.ERROR), levels.count(LintLevel.WARNING)) == (report.errors, report.warnings)
    assert len(levels) == report.errors + report.warnings


def test_warnings_never_fail_a_file_and_errors_always_do():
    for case in CASES:
        report = lint_queries(RAIL, case["text"].encode())
        failed = [each for each in report.results if each.error] + [
            each for each in report.findings if each.level is LintLevel.ERROR
        ]
        assert (report.ok, report.errors) == (not failed, len(failed))


def test_json_form():
    text = b"""
        query add() { update Operator set { tag: "x" } where tag = "y" }
        query get() { match { $o: Operator } return { $o.tag } }
        query bad() { match { $o: Operator } return { $o.nope } }
    """
    form = lint_queries(RAIL, text).to_json(schema_source={"kind": "file", "path": "rail.pg"}, query_path="q.gq")
    operator = [{"kind": "node", "type_name": "Operator"}]
    assert form == {
        "status": "error",
        "schema_source": {"kind": "file", "path": "rail.pg"},
        "query_path": "q.gq",
        "queries_processed": 3,
        "errors": 1,
        "warnings": 2,
        "infos": 0,
        "results": [
            {
                "name": "add",
                "kind": "mutation",
                "status": "ok",
                "warnings": ["mutation declares no params: it does the same every time"],
                "operation": {"result": [], "reads": operator, "writes": operator},
            },
            {
                "name": "get",
                "kind": "read",
                "status": "ok",
                "operation": {
                    "result": [{"name": "tag", "kind": "string", "nullable": False}],
                    "reads": operator,
                    "writes": [],
                },
            },
            {
                "name": "bad",
                "kind": "read",
                "status": "error",
                "error": "type error: T6: node type `Operator` has no property `nope`",
            },
        ],
        "findings": [
            {
                "severity": "warning",
                "code": "L201",
                "message": "`Operator.rating` is nullable, but no update query sets it",
                "type_name": "Operator",
                "property": "rating",
                "query_names": ["add"],
            }
        ],
    }


@given(st.binary(max_size=80) | st.sampled_from([case["text"].encode() for case in CASES]))
def test_any_bytes_have_a_report(source):
    report = lint_queries(RAIL, source)
    assert report.ok == (report.to_json(schema_source={}, query_path="")["status"] == "ok")


def test_a_schema_that_compiles_may_have_warnings():
    (warning,) = schema_warnings(compile_schema(b"node A { k: String @kye }"))
    assert (warning.level, warning.code, warning.fix) == (LintLevel.WARNING, "L102", "did you mean `@key`?")
    assert warning.span == (19, 23)
