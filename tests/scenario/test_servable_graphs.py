"""A graph whose id no server can serve is not created; one that is applied stays."""

from __future__ import annotations

import pytest

from gitops.cluster.session.validate import validate
from tests.support.cluster import Cluster, codes, found


@pytest.mark.parametrize("graph", ["my_graph", "policies", "healthz", "openapi", "graphs", "g" * 65])
def test_a_graph_that_no_server_can_serve_is_warned_of_and_not_created(graph, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.graphs = {graph: {}, "k" * 64: {}}
    cluster.policies = {}
    cluster.save()
    said = validate(cluster.workspace())
    assert (said.ok, codes(said)) == (True, ["graph_id_unservable"])
    assert cluster.import_().ok
    for outcome in (cluster.plan(), cluster.apply()):
        problem = found(outcome, "graph_id_unservable")
        assert (outcome.ok, problem.path, problem.severity) == (False, f"graph.{graph}", "error")
        assert problem.source is not None
        assert (problem.source.file, problem.source.line) == ("cluster.yaml", 7)
    assert cluster.state.resources == {}


def test_a_graph_that_is_applied_already_stays_with_a_warning(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.graphs = {"my_graph": {}}
    cluster.policies = {}
    cluster.save()
    cluster.make_graph("my_graph")
    assert cluster.import_().ok
    for outcome in (cluster.plan(), cluster.apply()):
        assert (outcome.ok, found(outcome, "graph_id_unservable").severity) == (True, "warning")
    assert outcome.converged
