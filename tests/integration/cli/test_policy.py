"""`gitops policy diff` and `gitops policy who`, in a repository with a ledger in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.cli.main import main
from tests.support.git_fixture import run

POLICY = """\
version: 1
groups: {staff: [act-ada, act-bob], editors: [act-ada]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
CLUSTER = """\
version: 1
graphs: {notes: {schema: notes.pg}}
policies: {k: {file: k.yaml, applies_to: [notes]}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed folder, as branch `base`, and in it a policy that permits more."""
    files = {"cluster.yaml": CLUSTER, "notes.pg": "node Note { title: String @key }\n", "k.yaml": POLICY}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"], ["branch", "base"]):
        run("git", *command, home=tmp_path)
    (tmp_path / "k.yaml").write_text(POLICY.replace("{group: editors}", "{group: staff}"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_diff_tells_what_changes_since_a_commit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff", "--from", "base"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("access: 2 gains\n")
    assert "+ PROTECTED  change  notes  main           act-bob  editing, k.yaml:6  rule: group editors -> staff" in said
    assert main(["policy", "diff", "--from", "base", "--fail-on", "protected,control"]) == 1
    assert main(["policy", "diff", "--from", "base", "--fail-on", "control"]) == 0
    capsys.readouterr()


def test_diff_as_json_is_the_form_of_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["policy", "diff", "--from", "base", "--format", "json", "--action", "change", "--actor"]
    assert main([*command, "act-bob"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert [row["class"] for row in form["access"]["rows"]] == ["protected", "write"]
    assert main([*command, "act-ada"]) == 0
    assert json.loads(capsys.readouterr().out)["access"]["rows"] == []


def test_diff_without_a_state_before_starts_at_the_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff"]) == 0
    assert "new graph" in capsys.readouterr().out


def test_diff_of_a_policy_that_cannot_be_read_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "k.yaml").write_text("version: 1\nrule: []\n", encoding="utf-8")
    assert main(["policy", "diff", "--from", "base"]) == 1
    assert "policy_parse" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        ["--from", "nowhere"],
        ["--fail-on", "everything"],
        ["--action", "red"],
        ["--to", "base", "--request", "7"],
    ],
    ids=" ".join,
)
def test_diff_of_what_does_not_exist_is_wrong_usage(folder: Path, wrong: list[str]) -> None:
    assert main(["policy", "diff", *wrong]) == 2


def test_who_lists_actors_with_their_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "who", "--action", "change", "--graph", "notes", "--branch", "main"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 actors may change on notes",
        "  act-ada  editing, k.yaml:6",
        "  act-bob  editing, k.yaml:6",
    ]
    assert main(["policy", "who", "--action", "schema-apply", "--graph", "notes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["actors"] == []


def test_who_copies_a_branch_also_reads_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "{id: copying, allow: {actors: {group: all}, actions: [branch_create]}}"
    text = POLICY.replace("groups: {", "groups: {all: [act-ada, act-eve], ") + f"  - {rules}\n"
    (folder / "k.yaml").write_text(text, encoding="utf-8")
    assert main(["policy", "who", "--action", "branch_create", "--graph", "notes", "--branch", "draft"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 actor may branch_create on notes",
        "  act-ada  copying, k.yaml:7",
    ]


def test_who_names_what_has_no_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cluster.yaml").write_text(CLUSTER.partition("policies")[0], encoding="utf-8")
    assert main(["policy", "who", "--action", "read", "--graph", "notes"]) == 0
    assert capsys.readouterr().out == "any token may read on notes: no policy is bound to it\n"


@pytest.mark.parametrize("wrong", [["graph_list", "--graph", "notes"], ["read"], ["read", "--graph", "other"]])
def test_who_about_the_wrong_place_is_wrong_usage(folder: Path, wrong: list[str]) -> None:
    assert main(["policy", "who", "--action", *wrong]) == 2
