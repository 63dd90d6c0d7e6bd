"""Stories of query files for people: one added query is one change, and what breaks callers is said in any case."""

from __future__ import annotations

import pytest

from gitops.render.graph import to_mermaid
from gitops.render.json import envelope
from gitops.render.text import to_text
from tests.support.cluster import QUERY, Cluster

FIND = "query.knowledge.find_person"
READ = "query find_person({}) {{\n  match {{ $p: Person {{ handle: $h }} }}\n  return {{ {} }}\n}}\n"
MUTATION = "query find_person($h: String) {\n  delete Person where handle = $h\n}\n"


def many(count: int, *, first: str = "handle") -> str:
    """A file of queries, of which the first returns a property of choice."""
    one = "query q{0}() {{\n  match {{ $p: Person }}\n  return {{ $p.{1} }}\n}}\n"
    return "".join(one.format(n, first if n == 0 else "handle") for n in range(count))


@pytest.fixture
def filed(cluster: Cluster) -> Cluster:
    """Twenty queries in one file."""
    cluster.write("many.gq", many(20))
    cluster.graphs["knowledge"] = {f"q{n}": "many.gq" for n in range(20)}
    cluster.save()
    cluster.converge()
    return cluster


def test_an_added_query_is_one_change_among_twenty_that_are_published_again(filed):
    filed.write("many.gq", many(21))
    filed.graphs["knowledge"]["q20"] = "many.gq"
    filed.save()
    planned = filed.plan()
    plan = planned.plan
    assert len(plan.changes) == 22
    assert sorted(change.address for change in plan.edits) == ["query.knowledge.q20"]
    assert [change.address for change in plan.derived] == ["graph.knowledge"]
    assert len(plan.republished) == 20
    assert to_text(planned).splitlines() == [
        "cluster plan: 1 to add, 0 to change, 0 to delete, 20 re-published",
        "  Create query.knowledge.q20",
        "  1 graph follows from its parts: knowledge",
        "  20 queries of knowledge re-published: another query of the file changes",
    ]
    form = envelope(planned)
    assert sum(change.get("republished", False) for change in form["changes"]) == 20
    picture = to_mermaid(plan.graph, quiet=plan.republished)
    assert picture.count("re-publish 20 queries") == 1
    assert "q7" not in picture
    applied = filed.apply()
    assert to_text(applied).splitlines()[:4] == [
        "cluster apply: 1 applied",
        "  Create query.knowledge.q20 [Applied]",
        "  1 graph follows from its parts: knowledge",
        "  20 queries of knowledge re-published: another query of the file changes",
    ]
    assert envelope(applied)["applied_count"] == 21


def test_an_edited_query_and_a_moved_one_are_changes(filed):
    """A comment and the order of a file are not the text of a query; what it returns is."""
    lines = many(20, first="born").split("query ")[1:]
    filed.write("many.gq", "// people\n" + "".join(f"query {each}" for each in reversed(lines)))
    plan = filed.plan().plan
    assert [change.address for change in plan.edits if change.address.kind == "query"] == ["query.knowledge.q0"]


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        (READ.format("$h: String", "$p.handle, $p.born"), []),
        (READ.format("$h: String, $n: I32?", "$p.handle"), []),
        (READ.format("$h: String, $n: I32", "$p.handle"), [("parameter_added", "$n", "", "I32")]),
        (READ.format("$h: String", "$p.born"), [("column_dropped", "p.handle", "String", "")]),
        (READ.format("$h: String?", "$p.handle"), []),
        (MUTATION, [("effect", "", "read", "mutation")]),
    ],
    ids=[
        "a column more",
        "an optional parameter",
        "a required parameter",
        "a column less",
        "a wider type",
        "a mutation",
    ],
)
def test_what_breaks_callers_is_said_without_a_schema_change(cluster, text, breaks):
    cluster.converge()
    cluster.write("people.gq", text)
    planned = cluster.plan()
    assert planned.plan is not None, planned.diagnostics
    found = planned.plan.breaks
    assert [(each.kind.value, each.subject, each.before, each.after) for each in found] == breaks
    assert {each.query for each in found} <= {FIND}
    assert ("breaks callers" in to_text(planned)) is bool(breaks)
    assert len(envelope(planned).get("breaks", [])) == len(breaks)


def test_a_retyped_and_a_nullable_column_break_callers(cluster):
    cluster.write("people.gq", READ.format("$h: String", "$p.handle as name"))
    cluster.converge()
    cluster.write("people.gq", READ.format("$h: String", "$p.born as name"))
    (found,) = cluster.plan().plan.breaks
    assert found.words == "column name changes from `String` to `I32?`"


def test_a_removed_query_breaks_its_callers_unless_its_graph_goes_too(cluster):
    cluster.converge()
    cluster.graphs["knowledge"] = {}
    cluster.save()
    assert [each.kind for each in cluster.plan().plan.breaks] == ["removed"]
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.plan().plan.breaks == ()


def test_the_digest_does_not_depend_on_what_explains(cluster):
    cluster.converge()
    cluster.write("people.gq", QUERY + "\n// once more\n")
    planned = cluster.plan()
    assert planned.plan.republished == {FIND}
    applied = cluster.apply()
    assert applied.plan_digest == planned.plan.digest
