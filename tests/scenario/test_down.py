"""The way back of a declared schema change, from what the ledger records as applied."""

from __future__ import annotations

import pytest

from gitops.cluster.session.down import down_of_graph
from gitops.core.errors import UsageError
from tests.support.cluster import RETYPED, SCHEMA, WIDER, Cluster, codes, lance_engine

RENAMED = 'node Author @rename_from("Person") {\n  handle: String @key\n  born: I32?\n  city: String?\n}\n'


@pytest.fixture(params=["twin", "lance"])
def cluster(request, tmp_path):
    cluster = Cluster(tmp_path, engine=lance_engine() if request.param == "lance" else None)
    cluster.graphs = {"knowledge": {}}
    cluster.save()
    cluster.converge()
    return cluster


def down(cluster, graph="knowledge"):
    return down_of_graph(cluster.workspace(), graph)


def test_the_text_takes_a_change_back_once_it_is_applied(cluster):
    cluster.write("knowledge.pg", RENAMED)
    outcome = down(cluster)
    assert outcome.ok
    assert outcome.subject == "schema.knowledge"
    assert outcome.migrations is not None
    assert [step.kind for step in outcome.migrations.forward.steps] == ["rename_type", "add_property"]
    cluster.converge()
    cluster.write("knowledge.pg", outcome.migrations.source.decode())
    planned = cluster.plan().plan
    assert planned is not None
    (preview,) = [change.migration for change in planned.changes if change.migration is not None]
    assert [dict(step) for step in preview.steps] == [step.to_json() for step in outcome.migrations.back.steps]
    cluster.converge()
    # Only the hint of the way back is left besides what was there before.
    assert "Person" in cluster.live("knowledge")
    assert "city" not in cluster.live("knowledge")


def test_an_applied_schema_has_nothing_to_take_back(cluster):
    outcome = down(cluster)
    assert outcome.ok
    assert outcome.migrations is not None
    assert outcome.migrations.forward.steps == outcome.migrations.back.steps == ()


def test_a_change_that_is_not_supported_is_an_error(cluster):
    cluster.write("knowledge.pg", RETYPED)
    assert codes(down(cluster)) == ["graph_migration_unsupported"]


def test_nothing_is_written(cluster):
    cluster.write("knowledge.pg", WIDER)
    before = {path: path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()}
    assert down(cluster).ok
    assert {path: path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()} == before


def test_a_graph_that_was_never_applied_has_no_way_back(cluster):
    cluster.graphs["other"] = {}
    cluster.save()
    outcome = down(cluster, "other")
    assert codes(outcome) == ["schema_not_recorded"]
    assert outcome.migrations is None


@pytest.mark.parametrize("name", ["knowlege", "../x", "\x1b[2J"])
def test_a_graph_that_is_not_declared_is_a_wrong_use(cluster, name):
    with pytest.raises(UsageError) as refused:
        down(cluster, name)
    if name == "knowlege":
        assert "did you mean `knowledge`?" in refused.value.detail


def test_a_broken_folder_and_a_missing_ledger_say_so(cluster, tmp_path):
    cluster.write("knowledge.pg", SCHEMA[:-3])
    assert codes(down(cluster)) == ["schema_parse_error"]
    (tmp_path / "fresh").mkdir()
    assert codes(down(Cluster(tmp_path / "fresh"))) == ["state_missing"]
