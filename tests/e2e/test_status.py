"""`gitops status` answers: in sync? waiting for whom? who applied last? Of one cluster, and of all of a repository."""

from __future__ import annotations

import json

import pytest

from tests.support.loop import CONFIG, MAIN, Loop, email

pytestmark = pytest.mark.e2e

OTHER_QUERY = b"query titles() { match { $x: Note } return { $x.title } }\n"
NAMES = {
    "other/cluster.yaml": b"version: 1\ngraphs:\n  names:\n    schema: names.pg\n",
    "other/names.pg": b"node Name {\n    text: String @key\n}\n",
}
RULE = "- {name: brain, path: cluster, branch: main, environment: production}"


def test_a_cluster_that_waits_says_for_what_and_for_whom(merged: Loop) -> None:
    lines = merged.gitops("carol", "status").text.splitlines()
    assert "  in sync: no; gitops plan shows what an apply would do" in lines
    assert f"  waits: graph.legacy: waits for an approval; may approve: {email('bob')}, {email('carol')}" in lines
    assert "  debts: none" in lines
    (last,) = (line for line in lines if line.startswith("  last entry: "))
    assert last.endswith(f"by {email('bot')}, commit {merged.tip()[:12]}")


def test_several_clusters_have_a_line_each_and_details_by_name(loop: Loop) -> None:
    assert "  in sync: yes" in loop.gitops("carol", "status").text.splitlines()
    two = CONFIG.replace(RULE, f"{RULE}\n  - {{name: other, path: other, environment: staging}}")
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": two.encode(), "other/cluster.yaml": b"version: 1\n"}))
    first, second = loop.gitops("carol", "status").text.splitlines()
    assert first.startswith("production/brain: in sync; revision ")
    assert second.startswith("staging/other: in sync; revision 1; entry 1, import at ")
    form = json.loads(loop.gitops("carol", "status", "--json").text)
    assert [(each["cluster"], each.get("in_sync")) for each in form["clusters"]] == [
        ("production/brain", True),
        ("staging/other", True),
    ]
    assert loop.gitops("carol", "status", "--cluster", "brain").text.startswith("cluster state: revision ")


def test_a_request_hears_only_of_the_clusters_that_it_touches(loop: Loop) -> None:
    """One cluster is not touched for a while: what changes it later says nothing on the requests in between."""
    rules = CONFIG.replace(RULE, f"{RULE}\n  - {{name: other, path: other, environment: staging}}")
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": rules.encode(), "other/cluster.yaml": b"version: 1\n"}))
    for branch, files in {"words": {"cluster/notes.gq": OTHER_QUERY}, "names": NAMES}.items():
        loop.move(f"refs/heads/{branch}", loop.commit("alice", files))
    loop.merge("carol", 1)
    said = loop.comment(1)
    loop.merge("carol", 2)
    assert loop.comment(1) == said
    assert "staging/other" in loop.comment(2)
    assert [loop.request(number).labels for number in (1, 2)] == [("gitops/applied",)] * 2


def test_rules_that_are_not_in_force_wait_for_whoever_may_approve_them(loop: Loop) -> None:
    rules = f"{CONFIG}  required: 2\n"
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": rules.encode()}))
    (waits,) = (line for line in loop.gitops("carol", "status").text.splitlines() if line.startswith("  waits: "))
    assert waits.startswith("  waits: trust.brain: the keys and rules of the newest entry stay in force")
    assert waits.endswith(f"; may approve: {email('alice')}, {email('bob')}")
