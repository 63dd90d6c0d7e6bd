"""What a plan says of the queries that use what a schema update queries, from the ledger and the graph that are there.

Every story runs over a ledger folder on disk and over the ledger in memory; graphs are those of the in-memory engine.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from gitops.cluster.ledger.layout import blob_key
from gitops.cluster.model.address import Address, query_address
from gitops.cluster.model.plan import AffectedQuery, QueryChange, ResultChange
from gitops.core.canonical import digest
from gitops.render.text import to_text
from tests.support.cluster import QUERY, Cluster

BORN = "query when_born() {\n  match { $p: Person }\n  return { $p.born }\n}\n"
RENAMED = 'node Person {\n  handle: String @key\n  year: I32? @rename_from("born")\n}\n'


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    made = Cluster(tmp_path)
    made.graphs["knowledge"] = {"find_person": "people.gq", "when_born": "born.gq"}
    made.write("born.gq", BORN)
    made.save()
    made.converge()
    return made


def rename(cluster: Cluster) -> None:
    cluster.write("knowledge.pg", RENAMED)
    cluster.write("born.gq", BORN.replace("$p.born", "$p.year"))


def blob(name: str, text: str) -> str:
    key = blob_key(query_address("knowledge", name), digest(text.encode()))
    assert key is not None
    return key


def test_a_renamed_property_names_the_query_that_follows_it_and_how_its_result_changes(cluster):
    rename(cluster)
    outcome = cluster.plan()
    (impact,) = outcome.plan.schema_impact
    address = "query.knowledge.when_born"
    assert impact.queries == ((AffectedQuery(Address(address), reads=True, writes=False, change=QueryChange.CHANGED),),)
    assert impact.results == (ResultChange(Address(address), ("p.born: I32?",), ("p.year: I32?",)),)
    assert impact.policies == ("policy.base",)
    text = to_text(outcome)
    assert "used by query.knowledge.when_born (reads, changed here)" in text
    assert "result of query.knowledge.when_born loses p.born: I32? and gains p.year: I32?" in text
    assert "find_person" not in text


def test_a_removed_query_is_known_from_the_ledger_alone(cluster):
    cluster.write("knowledge.pg", "node Person {\n  handle: String @key\n}\n")
    cluster.graphs["knowledge"] = {"find_person": "people.gq"}
    (cluster.folder / "born.gq").unlink()
    cluster.save()
    (impact,) = cluster.plan().plan.schema_impact
    assert [t.change for queries in impact.queries for t in queries] == [QueryChange.REMOVED]
    assert impact.results == ()


@pytest.mark.parametrize("content", [None, b"query when_born() {"])
def test_without_the_recorded_text_the_plan_is_as_good_and_says_what_is_declared(cluster, content):
    rename(cluster)
    whole = cluster.plan()
    cluster.plant(blob("when_born", BORN), content)
    outcome = cluster.plan()
    assert outcome.ok
    assert (outcome.plan.digest, outcome.plan.changes) == (whole.plan.digest, whole.plan.changes)
    (impact,) = outcome.plan.schema_impact
    assert [t.query for queries in impact.queries for t in queries] == ["query.knowledge.when_born"]
    assert impact.results == ()


def test_from_a_schema_text_in_git_it_is_the_same_without_reaching_the_graph(cluster):
    rename(cluster)
    (expected,) = cluster.plan().plan.schema_impact
    accepted = cluster.live("knowledge").encode()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    from gitops.cluster.plan.plan import plan

    workspace = replace(cluster.workspace(), accepted_schema=lambda _graph, _digest: accepted)
    assert plan(workspace).plan.schema_impact == (expected,)


def test_without_the_graph_there_is_no_migration_and_nothing_is_said_of_it(cluster):
    rename(cluster)
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    outcome = cluster.plan()
    assert outcome.plan.schema_impact == ()
    assert "schema_preview_unavailable" in [d.code for d in outcome.diagnostics]


def test_without_a_schema_update_nothing_is_said(cluster):
    cluster.write("people.gq", QUERY.replace("{ $p.handle }", "{ $p.handle, $p.born }"))
    assert cluster.plan().plan.schema_impact == ()


def test_explaining_needs_no_driver(tmp_path):
    program = (
        "import sys, gitops.cluster.plan.impact, gitops.render.migrations, gitops.cluster.plan.plan;"
        "print(sorted({'lance', 'pyarrow', 'numpy', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
