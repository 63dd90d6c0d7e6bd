"""`gitops test` on folders: what it selects, prints and rewrites, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gitops.cli.main import main
from tests.support.review_files import CLUSTER, TEST_FILE

POLICY = b"""version: 1
groups: {staff: [act-ada], agents: [act-bot]}
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: writing, allow: {actors: {group: staff}, actions: [change], branch_scope: any}}
"""
BOUND = b"policies: {base: {file: base.policy.yaml, applies_to: [shop]}}\n"
CASES = """version: 1
graph: shop
cases:
  - {id: reads, actor: act-ada, action: read, branch: main, expect: {decision: allow, rule: reading}}
  - {id: agents, actor: act-bot, action: change, branch: main, expect: allow}
"""
TESTS = """version: 1 # kept
fixtures:
  two: {fill: required, rows: {Item: [{name: a}, {name: b}]}}
tests:
  # kept as well
  - {id: names, query: names, fixture: two, expect: {rows: [{i.name: a}, {i.name: x}]}}
  - id: block
    query: named
    fixture: two
    params: {name: a}
    expect:
      bag:
        - {i.name: b, i.size: 7}
  - {id: some, query: names, fixture: two, expect: {contains: [{i.name: z}]}}
  - {id: effect, query: make, fixture: two, params: {name: c}, expect: {affected: {nodes: 2, edges: 0}}}
  - {id: code, query: grow, fixture: two, params: {name: a, size: -1}, expect: {error: query_timeout}}
  - {id: fine, query: all, fixture: two, expect: {count: 2}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path, {name: data.decode() for name, data in CLUSTER.items()})
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def with_policy(folder: Path, cases: str = CASES) -> None:
    write(folder, {"cluster.yaml": (CLUSTER["cluster.yaml"] + BOUND).decode(), "base.policy.yaml": POLICY.decode()})
    write(folder, {"base.test.yaml": cases})


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        code = main(["test", *arguments])
    except SystemExit as end:
        code = int(str(end.code))
    out, err = capsys.readouterr()
    return code, out + err


def test_a_folder_without_tests_is_a_warning(folder, capsys):
    code, text = ran(capsys)
    assert code == 0
    assert text.startswith("WARN  tests_none: no file NAME.test.yaml with tests was found\ntests: 0 of 0 passed")
    assert ran(capsys, "--strict")[0] == 1


def test_policy_cases_are_tests_and_need_no_worker(folder, capsys, monkeypatch):
    monkeypatch.setattr("gitops.cli.testing.run_tests", None)
    with_policy(folder)
    code, text = ran(capsys, "--coverage")
    assert code == 1
    assert (
        "ERROR policy_test_failed graph.shop: agents: act-bot, change on graph.shop: expected allow, got deny" in text
    )
    assert "(base.test.yaml:5:5)" in text
    assert "coverage: 0 of 9 queries, 1 of 2 rules" in text
    assert "no case meets: base/writing" in text
    assert ran(capsys, "--id", "reads")[0] == 0
    assert ran(capsys, "--id", "reads", "--fail-under", "10")[0] == 1
    assert ran(capsys, "--id", "nothing*")[1].startswith("WARN  tests_none: the options select none of the tests")
    # In validation it is an error at the same line.
    assert main(["validate"]) == 1
    assert "policy_test_failed" in capsys.readouterr().out


def test_cases_in_the_test_folders_of_the_rules_are_decided_like_those_inside(folder, capsys, monkeypatch):
    for words in (["init", "-q", "-b", "main"], ["remote", "add", "origin", str(folder)]):
        subprocess.run(["git", *words], check=True)
    rules = "version: 1\nclusters: [{name: brain, path: brain}]\nledger: {store: directory}\ntests: {paths: [checks]}\n"
    write(folder, {"gitops.yaml": rules, "checks/access.test.yaml": CASES})
    for name in (*CLUSTER, "base.policy.yaml"):
        with_policy(folder)
        (folder / "brain" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(folder / "brain" / name)
    subprocess.run(["git", "add", "-A"], check=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@x.example", "commit", "-qm", "x"], check=True)
    monkeypatch.chdir(folder / "brain")
    shown = "(../checks/access.test.yaml:5:5)"
    for command in ("validate", "plan"):
        assert main([command, "--config", "."]) == 1, command
        out = capsys.readouterr().out
        assert ("policy_test_failed" in out, shown in out) == (True, True), out
    write(folder, {"checks/access.test.yaml": CASES.replace("expect: allow}", "expect: deny}")})
    for command in ("validate", "plan"):
        assert main([command, "--config", "."]) == 0, capsys.readouterr().out
    write(folder, {"checks/access.test.yaml": "version: 1\ncases: [{id: x}]\n"})
    assert main(["validate", "--config", "."]) == 1
    assert "policy_tests_invalid" in capsys.readouterr().out


def test_paths_select_files_and_must_exist(folder, capsys):
    with_policy(folder)
    assert "tests_none" in ran(capsys, "queries")[1]
    assert "1 failed" in ran(capsys, "base.test.yaml")[1]
    code, text = ran(capsys, "bas.test.yaml")
    assert (code, "did you mean `base.test.yaml`" in text) == (2, True)
    assert ran(capsys, "--json", "--format", "junit")[0] == 2


def test_an_invalid_file_runs_nothing_and_fails(folder, capsys):
    write(folder, {TEST_FILE: "version: 1\ntests: [{id: a, query: all, expect: {count: 0}}]\ntests: []\n"})
    code, text = ran(capsys)
    assert code == 1
    assert f"ERROR test_file_invalid {TEST_FILE}: the key tests is repeated" in text
    assert "tests: 0 of 0 passed" in text


def test_a_file_in_a_folder_with_several_graphs_names_its_graph(folder, capsys):
    more = CLUSTER["cluster.yaml"].decode() + "  more:\n    schema: shop.pg\n"
    write(
        folder, {"cluster.yaml": more, "a.test.yaml": "tests: [{id: a, query: all, expect: {count: 0}}]\nversion: 1\n"}
    )
    code, text = ran(capsys)
    assert (code, "test_graph_ambiguous" in text, "fix: add the line graph: more" in text) == (1, True, True)


def test_formats_say_the_same(folder, capsys, tmp_path):
    write(folder, {TEST_FILE: TESTS})
    code, text = ran(capsys, "--json")
    form = json.loads(text)
    assert (code, form["ok"], form["version"]) == (1, False, 1)
    assert form["counts"] == {"passed": 1, "failed": 5, "error": 0, "not_run": 0}
    first = form["tests"][0]
    assert {**first, "ms": 0} == {
        "id": f"{TEST_FILE}::names",
        "resource": "query.shop.names",
        "line": 6,
        "verdict": "failed",
        "ms": 0,
        "code": "test_failed",
        "message": "1 row missing, 1 row unexpected",
        "diff": {"missing": [{"i.name": "x"}], "unexpected": [{"i.name": "b"}], "changed": []},
    }
    code, text = ran(capsys, "--id", "na*", "--format", "junit", "--output", "report.xml")
    assert (code, "    - i.name: x\n    + i.name: b\n" in text) == (1, True)
    (suite,) = ET.parse("report.xml").getroot()  # noqa: S314 - our own file
    assert {key: suite.get(key) for key in ("name", "tests", "failures")} == {
        "name": TEST_FILE,
        "tests": "1",
        "failures": "1",
    }
    assert suite[0][0].text == "- i.name: x\n+ i.name: b"
    code, text = ran(capsys, "--id", "na*", "--format", "sarif")
    (result,) = json.loads(text)["runs"][0]["results"]
    assert result["ruleId"] == "test_failed"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 6, "startColumn": 54}


def test_an_update_rewrites_only_expected_values_and_then_the_tests_pass(folder, capsys, monkeypatch):
    write(folder, {TEST_FILE: TESTS})
    code, text = ran(capsys, "--update")
    after = (folder / TEST_FILE).read_text()
    changed = {
        "{rows: [{i.name: a}, {i.name: x}]}": "{rows: [{i.name: a}, {i.name: b}]}",
        "- {i.name: b, i.size: 7}": "- {i.name: a, i.size: 0}",
        "{nodes: 2, edges: 0}": "{nodes: 1, edges: 0}",
        "{error: query_timeout}": "{error: mutation_invalid}",
    }
    expected = TESTS
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert after == expected
    assert "not rewritten: queries/items.test.yaml::some: contains is never rewritten" in text
    assert "+        - {i.name: a, i.size: 0}" in text
    assert code == 1
    assert "5 of 6 passed, 1 failed" in text
    monkeypatch.setenv("CI", "true")
    code, text = ran(capsys, "--update")
    assert (code, "test_update_refused" in text, (folder / TEST_FILE).read_text()) == (1, True, after)


def test_only_what_changed_is_run(folder, capsys, monkeypatch):
    chosen: list[list[str]] = []
    monkeypatch.setattr(
        "gitops.cli.testing.run_tests",
        lambda tests, **_: chosen.append([each.id.partition("::")[2] for each in tests]) or [],
    )
    write(folder, {TEST_FILE: TESTS, "other.test.yaml": TESTS})
    for command in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *command], check=True)
    ran(capsys, "--changed", "HEAD")
    query = (folder / "queries/items.gq").read_text()
    write(
        folder,
        {"queries/items.gq": query.replace("return { $i.name, $i.size }", "return { $i.name, $i.size } limit 5")},
    )
    ran(capsys, "--changed", "HEAD", "--id", "block")
    write(
        folder, {"queries/items.gq": query, "other.test.yaml": TESTS.replace("{name: b}]}}", "{name: b, size: 1}]}}")}
    )
    ran(capsys, "--changed", "HEAD", "--id", "f*")
    assert chosen == [["block", "block"], ["fine"]]
    code, text = ran(capsys, "--changed", "nowhere")
    assert (code, "is not a commit of this clone" in text) == (2, True)
