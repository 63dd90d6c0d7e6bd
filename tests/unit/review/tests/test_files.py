"""Test files are read strictly: each problem has its code and its place, and nothing of the file runs."""

from __future__ import annotations

import json

import pytest

from gitops.database.language.yaml import parse_yaml, to_plain
from tests.support.pages import ROOT
from tests.support.review_files import TEST_FILE, collected

PROBLEMS = to_plain(parse_yaml((ROOT / "tests/data/review/files.yaml").read_bytes()))
FRAME = "version: 1\nfixtures:\n  f: {fill: required, rows: {Item: [{name: a}]}}\ntests:\n  "


@pytest.mark.parametrize("case", PROBLEMS, ids=[case["name"] for case in PROBLEMS])
def test_a_problem_is_reported_at_its_place(case):
    found = collected(case.get("whole") or f"{FRAME}{case['file']}\n")
    first = next(iter(found.problems))
    assert (first.code, first.source.file, first.source.line) == (case["code"], TEST_FILE, case["line"])
    assert case["says"] in first.message
    assert found.tests == ()


def test_values_are_read_by_their_type():
    found = collected(
        FRAME + "- {id: a, query: all, fixture: f, expect: {contains: [{i.name: '7', i.size: 0x10, i.price: 1, "
        "i.made: 2026-01-02, i.seen: 2026-01-02T03:04:05+01:00, i.kind: tool, i.tags: [x, 'true']}, {i.price: .nan}]}}\n"
    )
    assert list(found.problems) == []
    (test,) = found.tests
    row = {name: cell[1] for name, cell in test.job["expect"]["value"][0].items()}
    assert row == {
        "i.name": "7",
        "i.size": 16,
        "i.price": 1.0,
        "i.made": "2026-01-02",
        "i.seen": "2026-01-02T02:04:05.000Z",
        "i.kind": "tool",
        "i.tags": ["x", "true"],
    }
    assert test.job["expect"]["value"][1] == {"i.price": ["is", "NaN"]}


def test_rows_are_a_list_if_the_query_has_an_order_and_otherwise_a_bag():
    found = collected(
        FRAME + "- {id: a, query: names, expect: {rows: []}}\n  - {id: b, query: sorted, expect: {rows: []}}\n"
    )
    assert [test.job["expect"]["form"] for test in found.tests] == ["bag", "ordered"]


def test_fixtures_extend_others_and_fill_what_is_required():
    found = collected(
        "version: 1\nfixtures:\n  one: {fill: required, rows: {Item: [{name: a}], Uses: [{from: a, to: a}]}}\n"
        "  two: {from: one, files: [more.jsonl]}\ntests: [{id: a, query: all, fixture: two, expect: {count: 2}}]\n",
        **{"queries/more.jsonl": b'{"type": "Item", "data": {"name": "b", "size": 2}}\n'},
    )
    assert list(found.problems) == []
    records = [json.loads(record) for record in found.tests[0].fixture.records]
    assert records == [
        {"type": "Item", "data": {"name": "a", "size": 0}},
        {"edge": "Uses", "from": "a", "to": "a", "data": {"often": False}},
        {"type": "Item", "data": {"name": "b", "size": 2}},
    ]


def test_samples_and_audits_are_read_for_previews():
    found = collected(
        "version: 1\nsamples: [{query: named, params: {name: a}}]\n"
        "audits: [{id: few, query: all, expect: {count: {max: 9}}, severity: warning}]\n"
    )
    (file,) = found.files
    assert [(each.query, each.params) for each in file.samples] == [("named", {"name": "a"})]
    assert [(each.id, each.severity, each.job["expect"]["value"]) for each in file.audits] == [
        ("few", "warning", {"max": 9})
    ]
    assert found.tests == ()


def test_a_file_without_tests_needs_no_graph():
    assert list(collected("version: 1\nfixtures: {}\n").problems) == []


def test_the_table_has_every_code_of_a_file():
    codes = {"test_file_invalid", "test_subject_unknown", "test_value_type", "test_fixture_invalid"}
    assert {case["code"] for case in PROBLEMS} == codes
