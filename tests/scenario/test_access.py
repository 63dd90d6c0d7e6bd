"""Who gains and loses what, from a real ledger: what is recorded against what is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.cluster.model.access import AccessDiff
from gitops.cluster.plan.plan import plan
from tests.support.cluster import Cluster, codes

POLICY = """\
version: 1
groups:
  staff: [act-ada, act-bob]
  editors: [act-ada]
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read, invoke_query]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
WIDER = POLICY.replace("{group: editors}", "{group: staff}")
ADD = 'query add() { insert Person { handle: "x" } }\n'


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path, memory=True)
    made.write("base.policy.yaml", POLICY)
    made.save()
    made.converge()
    return made


def access(cluster: Cluster) -> AccessDiff:
    """The access of the plan."""
    made = plan(cluster.workspace()).plan
    assert made is not None
    assert made.access is not None
    return made.access


def told(diff: AccessDiff) -> list[tuple[bool, str, str, str, tuple[str, ...]]]:
    return [(row.gain, row.action, row.scope, row.cause.words, row.actors.members) for row in diff.rows]


def test_a_larger_group_is_told_with_its_rule_and_warned_of(cluster: Cluster) -> None:
    cluster.write("base.policy.yaml", WIDER)
    outcome = plan(cluster.workspace())

    words = "rule: group editors -> staff"
    assert told(access(cluster)) == [(True, "change", "graph.knowledge", words, ("act-bob",))] * 2
    assert "access_widened" in codes(outcome)
    assert outcome.plan is not None
    assert not outcome.plan.approvals_required
    assert [(row.file, row.line) for row in access(cluster).rows] == [("base.policy.yaml", 8)] * 2


def test_digest_of_a_plan_is_that_without_the_evidence(cluster: Cluster) -> None:
    cluster.write("base.policy.yaml", POLICY + "# the same\n")
    with_access = plan(cluster.workspace()).plan
    assert with_access is not None
    assert with_access.access is not None
    assert with_access.access.rows == ()
    cluster.write("base.policy.yaml", POLICY)
    without = plan(cluster.workspace()).plan
    assert without is not None
    assert without.access is None


def test_a_new_query_is_run_by_those_who_may_invoke_and_change(cluster: Cluster) -> None:
    cluster.write("more.gq", ADD)
    cluster.graphs["knowledge"]["add"] = "more.gq"
    cluster.save()

    (row,) = access(cluster).rows
    assert (row.action, row.queries, row.cause.words, row.actors.members) == (
        "run",
        ("add",),
        "new query",
        ("act-ada",),
    )
    assert "access_widened" not in codes(plan(cluster.workspace()))


def test_a_query_that_writes_from_now_on_is_lost_to_those_who_may_only_read(cluster: Cluster) -> None:
    cluster.write("people.gq", ADD.replace("add", "find_person"))

    (row,) = access(cluster).rows
    assert (row.gain, row.action, row.actors.members) == (False, "run", ("act-bob",))
    assert row.cause.words == "query writes now"


def test_a_new_graph_under_the_policy_is_told_and_widens_nothing(cluster: Cluster) -> None:
    cluster.graphs["notes"] = {}
    cluster.policies["base"].append("notes")
    cluster.save()

    diff = access(cluster)
    assert {(row.scope, row.cause.words) for row in diff.rows} == {("graph.notes", "new graph")}
    assert diff.widenings == ()


def test_what_a_damaged_ledger_permitted_is_unknown(cluster: Cluster) -> None:
    (blob,) = cluster.files("__cluster/resources/policy")
    cluster.plant(blob, b"not what was applied")
    cluster.write("base.policy.yaml", WIDER)

    diff = access(cluster)
    assert {row.gain for row in diff.rows} == {True}
    assert diff.unread == ("graph.knowledge",)
    assert "access_before_unknown" in codes(plan(cluster.workspace()))


def test_the_last_policy_removed_is_warned_of(cluster: Cluster) -> None:
    cluster.policies = {}
    cluster.save()

    assert {row.action for row in access(cluster).gains} == {"read"}
    assert {"access_unguarded", "access_widened"} <= set(codes(plan(cluster.workspace())))


def test_a_cluster_without_policies_says_nothing_of_access(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, memory=True)
    cluster.policies = {}
    cluster.save()

    made = plan(cluster.workspace()).plan
    assert made is not None
    assert made.access is None
