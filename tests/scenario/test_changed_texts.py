"""The texts behind a plan, from a real ledger: what is compared with what when a file holds several queries."""

from __future__ import annotations

import pytest

from gitops.cluster.plan.plan import plan
from tests.support.cluster import QUERY, Cluster

ONE = "query one() { match { $p: Person } return { $p.handle } }\n"
TWO = ONE.replace("one", "two")


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    made = Cluster(tmp_path)
    made.graphs["knowledge"] = {"find_person": "people.gq", "one": "both.gq"}
    made.write("both.gq", ONE)
    made.save()
    made.converge()
    return made


def _texts(cluster: Cluster):
    return plan(cluster.workspace(), texts=True).texts


def test_a_plan_has_texts_where_they_are_asked_for(cluster):
    cluster.write("people.gq", QUERY.replace("$p", "$x"))
    assert plan(cluster.workspace()).texts == ()
    (change,) = _texts(cluster)
    assert change.resources == ("query.knowledge.find_person",)
    assert (change.before, change.after) == (QUERY.encode(), QUERY.replace("$p", "$x").encode())


def test_a_query_that_joins_a_file_is_shown_with_the_file(cluster):
    cluster.graphs["knowledge"]["two"] = "both.gq"
    cluster.write("both.gq", ONE + TWO)
    cluster.save()
    (change,) = _texts(cluster)
    assert change.resources == ("query.knowledge.two",)
    assert (change.before, change.after) == (ONE.encode(), (ONE + TWO).encode())


def test_schemas_come_first_and_are_those_of_the_graph(cluster):
    old = (cluster.folder / "knowledge.pg").read_bytes()
    cluster.write("knowledge.pg", old.decode().replace("node Person {", "node Person {\n  added: I32?"))
    cluster.write("both.gq", ONE.replace("$p", "$x"))
    schema, query = _texts(cluster)
    assert (schema.resources, schema.before) == (("schema.knowledge",), old)
    assert query.resources == ("query.knowledge.one",)


def test_what_goes_has_no_text_after_it(cluster):
    del cluster.graphs["knowledge"]["one"]
    cluster.save()
    (change,) = _texts(cluster)
    assert (change.before, change.after) == (ONE.encode(), None)
