"""Stories of a policy that guards several graphs while some of them go: it stays, and what stays is served under it."""

from __future__ import annotations

import pytest

from tests.support.cluster import SCHEMA, Cluster, codes, rulings

NAMES = ("knowledge", "notes", "people")
WAITS = "blocked:dependency_not_applied"


@pytest.fixture
def guarded(cluster: Cluster) -> Cluster:
    """Three graphs under one policy, all applied."""
    for name in NAMES:
        declare(cluster, name)
    cluster.policies = {"base": list(NAMES)}
    cluster.save()
    cluster.converge()
    return cluster


def declare(cluster: Cluster, name: str) -> None:
    cluster.graphs.setdefault(name, {})
    cluster.write(f"{name}.pg", SCHEMA)


def withdraw(cluster: Cluster, *names: str) -> None:
    for name in names:
        del cluster.graphs[name]
    cluster.policies = {"base": [name for name in cluster.policies["base"] if name not in names]}
    cluster.save()


def policies(cluster: Cluster) -> dict[str, str | None]:
    """The policy under which each graph is served."""
    outcome = cluster.ready()
    assert codes(outcome) == []
    return {graph.graph_id: graph.policy for graph in outcome.graphs}


def test_what_stays_is_served_while_one_graph_is_gone_and_another_one_waits(guarded):
    withdraw(guarded, "notes", "people")
    assert guarded.approve("graph.notes").ok
    changes = rulings(guarded.apply().changes)
    assert (changes["graph.notes"], changes["policy.base"]) == ("delete applied", f"update {WAITS}")
    assert policies(guarded) == {"knowledge": "base", "people": "base"}
    assert guarded.approve("graph.people").ok
    assert guarded.apply().converged
    assert policies(guarded) == {"knowledge": "base"}


def test_a_new_graph_waits_for_the_policy_that_it_is_bound_to(guarded):
    withdraw(guarded, "people")
    declare(guarded, "later")
    declare(guarded, "free")
    guarded.policies["base"].append("later")
    guarded.save()
    changes = rulings(guarded.apply().changes)
    assert {changes[f"{kind}.later"] for kind in ("graph", "schema")} == {f"create {WAITS}"}
    assert changes["graph.free"] == "create applied"
    assert policies(guarded) == {"knowledge": "base", "notes": "base", "people": "base", "free": None}
    assert guarded.approve("graph.people").ok
    assert guarded.apply().converged
    assert policies(guarded) == {"knowledge": "base", "notes": "base", "later": "base", "free": None}


@pytest.mark.parametrize("scope", ["cluster", "knowledge"])
def test_who_takes_a_scope_waits_with_the_policy_that_still_guards_a_graph(cluster, scope):
    """Two policies of one scope cannot be served."""
    mixed = ["policy_mixed_binding_kinds"] if scope == "cluster" else []
    declare(cluster, "notes")
    cluster.policies = {"base": ["notes", scope]}
    cluster.save()
    cluster.converge()
    del cluster.graphs["notes"]
    declare(cluster, "later")
    cluster.policies = {"next": [scope, "later"]}
    cluster.save()
    changes = rulings(cluster.apply().changes)
    assert changes["policy.base"] == f"delete {WAITS}"
    assert {changes[name] for name in ("policy.next", "graph.later", "schema.later")} == {f"create {WAITS}"}
    served = cluster.ready()
    assert codes(served) == mixed
    assert "base" in (served.cluster_policy, *(graph.policy for graph in served.graphs))
    assert cluster.approve("graph.notes").ok
    assert cluster.apply().converged
    assert codes(cluster.ready()) == mixed


def test_a_line_of_policies_waits_for_its_first(cluster):
    declare(cluster, "notes")
    cluster.policies = {"base": ["notes", "cluster"], "next": ["knowledge"]}
    cluster.save()
    cluster.converge()
    del cluster.graphs["notes"]
    cluster.policies = {"last": ["knowledge"], "next": ["cluster"]}
    cluster.save()
    changes = rulings(cluster.apply().changes)
    assert (changes["policy.next"], changes["policy.last"]) == (f"update {WAITS}", f"create {WAITS}")
    assert codes(cluster.ready()) == ["policy_mixed_binding_kinds"]
    assert cluster.approve("graph.notes").ok
    assert cluster.apply().converged
