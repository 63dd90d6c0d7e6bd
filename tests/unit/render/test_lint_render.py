"""The forms of what `lint` found: lines with their place marked, and the log for code scanning."""

from __future__ import annotations

import json

import pytest

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.lint import Region, lint_cluster
from gitops.core.codes import REGISTRY
from gitops.database.language.rules import RULES, RuleStage
from gitops.database.language.text import SourceText
from gitops.render.lint import SHOWN, lint_text, source_lines
from gitops.render.sarif import MAX_RESULTS, sarif_log

SCHEMA = b"node A { k: String @key }"


def marked(before: str, inside: str, after: str) -> list[str]:
    """The lines for `inside`, between two other texts."""
    data = f"{before}{inside}{after}".encode()
    text, start = SourceText(data), len(before.encode())
    end = start + len(inside.encode())
    return source_lines(text, Region(start, end, *text.position(start), *text.position(end)))


@pytest.mark.parametrize(
    ("before", "inside", "after", "line", "marks"),
    [
        ("ab ", "cd", " ef", "1 | ab cd ef", "  |    ^^"),
        ("a\n\tb ", "c", "\r\nd", "2 |     b c", "  |       ^"),
        ("日本 é ", "語", "x", "1 | 日本 é 語x", "  |        ^^"),
        ("e\u0301 ", "x", "", "1 | e\u0301 x", "  |   ^"),
        ("\x1b[2J ", "\u202e", "", r"1 | \x1b[2J \u202e", "  |         ^^^^^^"),
        ("a ", "", "", "1 | a", "  |   ^"),
        ("", "", "", "1 |", "  | ^"),
        ("a ", "b\nc", "\nd", "1 | a b", "  |   ^"),
    ],
)
def test_the_place_is_underlined(before, inside, after, line, marks):
    assert marked(before, inside, after) == [f"  {line}", f"  {marks}"]


def test_a_long_line_is_cut_around_the_place():
    for around in ("x" * 100_000, "日" * 100_000, "🙂" * 50_000):
        line, marks = marked(around, "HERE", around)
        assert (line.count("…"), line.count("HERE"), marks.count("^")) == (2, 1, 4)
        assert len(line) < 120
        assert "\\x" not in line
    line, marks = marked("", "y" * 5_000, "")
    assert (line[-1], marks.count("^")) == ("…", 80)


def test_bytes_that_are_no_text_are_spelled_out():
    text = SourceText(b"a \xff\x80 b")
    assert source_lines(text, Region(2, 3, 1, 3, 1, 4)) == [r"  1 | a \xff\x80 b", "    |   ^^^^"]


def look(*queries: str):
    files = {"s.pg": SCHEMA} | {f"q{index}.gq": query.encode() for index, query in enumerate(queries)}
    return lint_cluster(MemoryTree(files), [f"q{index}.gq" for index in range(len(queries))], "s.pg")


def results(outcome, place=str):
    return sarif_log(outcome, place)["runs"][0]["results"]


def test_rules_are_those_of_the_registry_that_a_file_can_break():
    outcome = lint_cluster(MemoryTree({"a.pg": SCHEMA}), ["a.pg", "b.gq"])
    run = sarif_log(outcome, str)["runs"][0]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    languages = [label for label, rule in RULES.items() if rule.found not in (RuleStage.MIGRATION, RuleStage.RESERVED)]
    assert ids == [*languages, "lint_schema_unknown"]
    warnings = {r["id"] for r in run["tool"]["driver"]["rules"] if r["defaultConfiguration"]["level"] == "warning"}
    assert warnings == {"L101", "L102", "L201"}
    assert [(r["ruleId"], ids[r["ruleIndex"]]) for r in run["results"]] == [
        ("lint_schema_unknown", "lint_schema_unknown")
    ]
    assert run["tool"]["driver"]["rules"][-1]["help"]["text"] == f"To fix: {REGISTRY['lint_schema_unknown'].fix}."


def test_a_result_has_level_message_place_and_fix():
    (result,) = results(look("/* é */ query q() {\n match { $a: AA } return { $a } }"), lambda path: f"x y/{path}")
    assert (result["ruleId"], result["level"]) == ("T1", "error")
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "x%20y/q0.gq", "uriBaseId": "%SRCROOT%"}
    assert location["region"] == {
        "startLine": 2,
        "startColumn": 14,
        "endLine": 2,
        "endColumn": 16,
        "byteOffset": 34,
        "byteLength": 2,
    }


@pytest.mark.parametrize(
    ("place", "artifact"),
    [
        ("a/b.gq", {"uri": "a/b.gq", "uriBaseId": "%SRCROOT%"}),
        ("a b/é%.gq", {"uri": "a%20b/%C3%A9%25.gq", "uriBaseId": "%SRCROOT%"}),
        ("../a#?.gq", {"uri": "../a%23%3F.gq"}),
        ("/far/a.gq", {"uri": "file:///far/a.gq"}),
    ],
)
def test_paths_are_uris_from_the_root_of_the_repository(place, artifact):
    (result,) = results(look("query q("), lambda _: place)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == artifact


def test_columns_count_code_points_and_offsets_bytes():
    (result,) = results(look("/* 🙂é */ query q() { match { $a: B } return { $a } }"))
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startColumn"], region["byteOffset"], region["byteLength"]) == (34, 37, 1)


def test_equal_problems_are_numbered_and_files_differ():
    query = "query q() { match { $a: B } return { $a } }"
    prints = [each["partialFingerprints"]["gitopsProblem/v1"] for each in results(look(f"{query} {query}", query))]
    assert [each.partition(":")[2] for each in prints] == ["1", "2", "1"]
    assert len({each.partition(":")[0] for each in prints}) == 2


def test_many_problems_are_counted_and_errors_kept_first():
    warning = 'query w() { delete A where k = "x" }\n'
    error = "query e() { match { $a: B } return { $a } }\n"
    outcome = look(warning * 3_000 + error * (MAX_RESULTS - 1_000))
    log = sarif_log(outcome, str)["runs"][0]
    assert len(log["results"]) == MAX_RESULTS
    assert [each["level"] for each in log["results"]].count("error") == MAX_RESULTS - 1_000
    assert log["results"][0]["level"] == "error"
    (note,) = log["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "2000 more results are left out"
    text = lint_text(outcome)
    assert f"and {len(outcome.problems) - SHOWN} more; --format json has them all\n" in text
    assert text.count("warning[L101]") == SHOWN


def test_a_message_makes_no_link_and_no_placeholder():
    (result,) = results(look('query q() { match { $a: A { k: ["[x](http://y) {0}"] } } return { $a } }'))
    assert "http" not in result["message"]["text"] or "\\[" in result["message"]["text"]
    outcome = lint_cluster(MemoryTree({"cluster.yaml": b"version: 1\ngraphs: {'[a](b){1}': {schema: x.pg}}\n"}))
    (diagnostic,) = results(outcome)
    assert "\\[a](b){{1}}" in diagnostic["message"]["text"]
    json.dumps(diagnostic)


def test_a_problem_of_strategies_is_at_its_place_in_the_log():
    text = (
        b"version: 1\ncompute:\n  targets:\n    prod: {kind: materialize, url: {env: MZ_URL}}\n"
        b"  strategies:\n    serving: {target: prod, burst: {cooldown_s: 60}}\n"
    )
    log = sarif_log(lint_cluster(MemoryTree({"cluster.yaml": text})), lambda path: f"brain/{path}")
    [result] = log["runs"][0]["results"]
    assert result["ruleId"] == "invalid_cluster_yaml"
    assert "compute.strategies.serving.burst" in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "brain/cluster.yaml", "uriBaseId": "%SRCROOT%"}
    line = text.decode().splitlines()[5]
    assert place["region"] == {"startLine": 6, "startColumn": line.index("burst") + 1}
