"""What an apply asks the target of strategies before it applies them, and what becomes of the run then."""

from __future__ import annotations

import pytest

from gitops.cluster.apply.dry_run import dry_run
from gitops.cluster.model.address import Address
from gitops.cluster.plan.classes import atomic_graph
from gitops.cluster.plan.plan import plan
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.render.graph import to_json, to_text
from tests.support.cluster import codes, rulings
from tests.support.projected import Projected

SIZE, BURST = Address("strategy.serving.target_size"), Address("strategy.serving.burst")
OTHER = "graph.other"


@pytest.fixture
def cluster(tmp_path):
    """Strategies that are applied, on a target that knows their sizes."""
    made = Projected(tmp_path)
    made.converge()
    return made


def misspell(cluster: Projected) -> None:
    """Declare a size that the target does not have, beside a graph that has nothing to do with it."""
    cluster.serving["target_size"]["target_size"] = "51cc"
    cluster.graphs["other"] = {}
    cluster.save()


def test_the_graph_has_a_look_at_each_target_before_its_strategies(tmp_path):
    cluster = Projected(tmp_path)
    cluster.section["targets"]["spare"] = {"kind": "materialize", "url": {"env": "OTHER_URL"}}
    cluster.section["strategies"]["reports"] = {"target": "spare", "target_size": {"target_size": "25cc"}}
    cluster.save()
    assert cluster.import_().ok
    graph = plan(cluster.workspace()).plan.graph
    text = to_text(graph)
    assert [line for line in text.splitlines() if "strategy_target" in line] == [
        "  target.prod -> strategy.serving.burst [strategy_target: prod]",
        "  target.prod -> strategy.serving.target_size [strategy_target: prod]",
        "  target.spare -> strategy.reports.target_size [strategy_target: spare]",
    ]
    assert "  check target.prod\n  check target.spare\n\nLayer 2:\n" in text
    looks = [each for each in to_json(graph)["nodes"] if each["kind"] == "target"]
    assert [(each["change"], each["locks"]) for each in looks] == [
        (None, [{"key": "compute:prod", "mode": "exclusive"}]),
        (None, [{"key": "compute:spare", "mode": "exclusive"}]),
    ]
    staged = {edge.before for edge in atomic_graph(graph).edges if edge.after == "barrier.prepared"}
    assert {"target.prod", "target.spare", SIZE, BURST} <= staged


def test_a_size_that_the_target_lacks_keeps_the_strategies_as_they_are(cluster):
    before, rows = dict(cluster.state.resources), cluster.rows()
    misspell(cluster)
    found = cluster.apply()
    (said,) = [each for each in found.diagnostics if each.severity is Severity.ERROR]
    assert (said.code, said.path) == (Code.REPLICA_SIZE_INVALID, "compute.strategies.serving")
    assert said.message == "target prod has no size 51cc; it has 25cc, 50cc, 100cc, 200cc, 800cc"
    assert not found.ok
    assert rulings(found.changes)[SIZE] == "update blocked:dependency_not_applied"
    assert OTHER in cluster.state.resources
    assert {name: cluster.state.resources[name] for name in before} == before
    assert cluster.rows() == rows
    cluster.serving["target_size"]["target_size"] = "100cc"
    cluster.save()
    assert codes(cluster.apply()) == []
    assert cluster.rows()["u1", "target_size"]["target_size"] == "100cc"


def test_an_atomic_run_lands_nothing_of_it_and_a_dry_run_says_so(cluster):
    before = cluster.state.resources
    misspell(cluster)
    foreseen = dry_run(cluster.workspace())
    assert (codes(foreseen)[0], foreseen.ok) == ("replica_size_invalid", False)
    found = cluster.apply(atomic=True)
    assert codes(found) == ["replica_size_invalid", "changeset_rolled_back"]
    assert cluster.state.resources == before
    (record,) = [each for each in map(cluster.ledger().changeset, cluster.ledger().changeset_keys()[:1]) if each]
    assert (record.error or "").startswith("target.prod: replica_size_invalid: ")


def test_a_dry_run_looks_and_writes_nothing(cluster):
    cluster.serving["target_size"]["target_size"] = "100cc"
    cluster.save()
    asked, files = cluster.world.statements, cluster.files()
    outcome = dry_run(cluster.workspace())
    assert outcome.ok
    assert {each.outcome for each in outcome.results} == {"dry_run"}
    assert cluster.world.statements > asked
    assert cluster.files() == files


@pytest.mark.parametrize("atomic", [False, True], ids=["best-effort", "atomic"])
def test_the_look_is_part_of_the_recorded_run(cluster, atomic):
    cluster.serving["target_size"]["target_size"] = "100cc"
    cluster.save()
    assert codes(cluster.apply(atomic=atomic)) == []
    ledger = cluster.ledger()
    run = ledger.run_of(ledger.changeset_keys()[0])
    assert run is not None
    assert [node.id for node in run.nodes][:2] == ["target.prod", SIZE]


def test_only_what_is_new_is_asked_for(cluster):
    cluster.world.sizes = type(cluster.world.sizes)({"25cc": 0.25})
    cluster.serving["max_replicas"] = 3
    cluster.save()
    assert codes(cluster.apply()) == []
    assert cluster.rows()["u1", "target_size"] == {"target_size": "50cc", "cooldown_s": 0}


@pytest.mark.parametrize("spoil", ["url", "answer", "grant", "sizes"])
def test_what_a_target_does_not_say_stops_no_apply(cluster, spoil):
    misspell(cluster)
    match spoil:
        case "url":
            cluster.variables.clear()
        case "answer":
            cluster.world.reachable = False
        case "grant":
            cluster.world.denied.add(("SELECT", "mz_catalog.mz_clusters"))
        case "sizes":
            cluster.world.sizes = type(cluster.world.sizes)({})
    found = cluster.apply()
    assert (found.ok, found.converged) == (True, True)
    assert cluster.state.resources[SIZE] != cluster.state.resources[BURST]


def test_a_managed_compute_cluster_is_named_with_its_first_strategies(tmp_path):
    cluster = Projected(tmp_path)
    cluster.world.clusters["serving"].managed = True
    assert cluster.import_().ok
    found = cluster.apply()
    assert [(each.code, each.severity) for each in found.diagnostics] == [
        (Code.COMPUTE_CLUSTER_MANAGED, Severity.WARNING)
    ]
    assert found.converged
    cluster.serving["burst"]["cooldown_s"] = 30
    cluster.save()
    assert codes(cluster.apply()) == []
