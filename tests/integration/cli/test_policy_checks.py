"""`gitops policy validate`, `test`, `explain` and `check`."""

from __future__ import annotations

import json

import pytest

from gitops.cli.main import main
from tests.support.cluster import Cluster

K = """\
version: 1
groups: {staff: [ada, bob], editors: [bob], drafters: [cyd]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change], branch_scope: protected}}
  - {id: drafts, allow: {actors: {group: drafters}, actions: [read], branch_scope: unprotected}}
  - {id: copying, allow: {actors: {group: drafters}, actions: [branch_create]}}
"""
SERVER = "version: 1\ngroups: {admins: [eve]}\nrules:\n  - {id: list, allow: {actors: {group: admins}, actions: [graph_list]}}\n"
CASES = """\
version: 1
cases:
  - {id: edit, actor: bob, action: change, expect: allow}
  - {id: ada, actor: ada, action: change, expect: deny}
"""


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.write("base.policy.yaml", K)
    cluster.write("server.policy.yaml", SERVER)
    cluster.write("policy.tests.yaml", CASES)
    cluster.policies["server"] = ["cluster"]
    cluster.save()
    return cluster


def run(capsys, *arguments: str) -> tuple[int, list[str]]:
    code = main(["policy", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_declared_and_recorded_policies_are_checked_and_explained(cluster, capsys, tmp_path):
    folder = ("--cluster", str(tmp_path))
    assert run(capsys, "check", *folder) == (0, ["policies valid: 2", "policy tests passed: 2 cases"])
    assert run(capsys, "validate", *folder)[0] == 1
    cluster.converge()
    cluster.write("base.policy.yaml", K.replace("editors: [bob]", "editors: [ada]"))
    valid = ["policy valid: policy.base [3 actors]", "policy valid: policy.server [1 actors]"]
    assert run(capsys, "validate", *folder) == (0, valid)
    assert run(capsys, "validate", *folder, "--scope", "cluster") == (0, valid[1:])
    assert run(capsys, "test", *folder) == (0, ["policy tests passed: 2 cases"])
    code, said = run(capsys, "test", *folder, "--desired")
    assert (code, [line.split()[1] for line in said if line.startswith("ERROR")]) == (1, ["policy_test_failed"] * 2)
    asked = ("explain", *folder, "--scope", "graph.knowledge", "--actor", "bob", "--action", "change")
    assert run(capsys, *asked) == (
        0,
        [
            "decision: allow",
            "actor: bob",
            "action: change",
            "branch: main",
            "matched_rule: editing",
            "message: rule 'editing' permits it",
        ],
    )
    copied = (*asked[:-4], "--actor", "cyd", "--action", "branch-create", "--target-branch", "draft")
    assert run(capsys, *copied)[1][3:] == [
        "branch: main",
        "target_branch: draft",
        "message: branch_create reads branch 'main', and no rule permits 'cyd' to read",
    ]
    assert run(capsys, *copied, "--branch", "other")[1][-1] == "message: rule 'copying' permits it"
    assert main(["policy", *asked[:-2], "--action", "schema-apply", "--json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["decision"], form["action"], form["target_branch"]) == ("deny", "schema_apply", "main")


def test_a_file_is_checked_and_tested_alone(cluster, capsys, tmp_path):
    base, server = str(tmp_path / "base.policy.yaml"), str(tmp_path / "server.policy.yaml")
    assert run(capsys, "validate", "--file", base, "--kind", "graph") == (0, [f"policy valid: {base} [3 actors]"])
    assert run(capsys, "validate", "--file", base, "--kind", "server")[0] == 1
    assert run(capsys, "validate", "--file", server, "--kind", "server")[0] == 0
    assert run(capsys, "test", "--file", base, "--kind", "graph") == (0, ["policy tests passed: 2 cases"])
    cluster.write("other.yaml", CASES.replace("expect: deny", "expect: allow"))
    code, said = run(capsys, "test", "--file", base, "--kind", "graph", "--tests", str(tmp_path / "other.yaml"))
    assert code == 1
    assert "case 'ada': ada, change on graph.graph: expected allow, got deny" in said[0]
    code, said = run(
        capsys, "explain", "--file", server, "--kind", "server", "--actor", "ada", "--action", "graph_list"
    )
    assert (code, said[0], said[-1]) == (0, "decision: deny", "message: actor 'ada' is in no group of the policy")


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "--file", "base.policy.yaml"],
        ["validate", "--kind", "graph"],
        ["validate", "--file", "missing.yaml", "--kind", "graph"],
        ["explain", "--actor", "ada", "--action", "raed", "--desired"],
        ["explain", "--actor", "ada", "--action", "read", "--desired"],
    ],
)
def test_what_cannot_be_selected_is_refused(cluster, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["policy", *arguments]) == 1
