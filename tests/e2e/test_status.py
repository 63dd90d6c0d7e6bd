"""`gitops status` answers: in sync? waiting for whom? who applied last? Of one cluster, and of all of a repository."""

from __future__ import annotations

import json

import pytest

from tests.support.loop import CONFIG, MAIN, Loop, email

pytestmark = pytest.mark.e2e

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
