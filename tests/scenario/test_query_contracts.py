"""What a plan says beside its changes: contracts of queries, texts, who gains what, and the queries that a schema affects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.ledger.layout import blob_key
from gitops.cluster.model.access import AccessDiff
from gitops.cluster.model.address import Address, query_address
from gitops.cluster.model.plan import AffectedQuery, QueryChange, ResultChange
from gitops.cluster.plan.plan import plan
from gitops.core.canonical import digest
from gitops.render.graph import to_mermaid
from gitops.render.json import envelope
from gitops.render.plan_views import PlanView
from gitops.render.text import to_text
from tests.support.cluster import COMMENTED, QUERY, SCHEMA, SCHEMA_ADDRESS, Cluster, codes

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
        "Plan: +1 ~0 −0",
        "  Create query.knowledge.q20",
        "  graph knowledge updates automatically",
        "  20 queries of graph knowledge keep their text and are republished with the file",
    ]
    form = envelope(planned)
    assert sum(change.get("republished", False) for change in form["changes"]) == 20
    picture = to_mermaid(plan.graph, quiet=plan.republished)
    assert picture.count("re-publish 20 queries") == 1
    assert "q7" not in picture
    applied = filed.apply()
    assert to_text(applied).splitlines()[:4] == [
        "Apply: 1 applied",
        "  Create query.knowledge.q20 [Applied]",
        "  graph knowledge updates automatically",
        "  20 queries of graph knowledge keep their text and are republished with the file",
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
    assert planned.plan.formatting == {FIND}
    applied = cluster.apply()
    assert applied.plan_digest == planned.plan.digest


ONE = "query one() { match { $p: Person } return { $p.handle } }\n"
TWO = ONE.replace("one", "two")


@pytest.fixture
def two_files(tmp_path) -> Cluster:
    made = Cluster(tmp_path)
    made.graphs["knowledge"] = {"find_person": "people.gq", "one": "both.gq"}
    made.write("both.gq", ONE)
    made.save()
    made.converge()
    return made


def _texts(cluster: Cluster):
    return plan(cluster.workspace(), texts=True).texts


def test_a_plan_has_texts_where_they_are_asked_for(two_files):
    two_files.write("people.gq", QUERY.replace("$p", "$x"))
    assert plan(two_files.workspace()).texts == ()
    (change,) = _texts(two_files)
    assert change.resources == ("query.knowledge.find_person",)
    assert (change.before, change.after) == (QUERY.encode(), QUERY.replace("$p", "$x").encode())


def test_a_query_that_joins_a_file_is_shown_with_the_file(two_files):
    two_files.graphs["knowledge"]["two"] = "both.gq"
    two_files.write("both.gq", ONE + TWO)
    two_files.save()
    (change,) = _texts(two_files)
    assert change.resources == ("query.knowledge.two",)
    assert (change.before, change.after) == (ONE.encode(), (ONE + TWO).encode())


def test_schemas_come_first_and_are_those_of_the_graph(two_files):
    old = (two_files.folder / "knowledge.pg").read_bytes()
    two_files.write("knowledge.pg", old.decode().replace("node Person {", "node Person {\n  added: I32?"))
    two_files.write("both.gq", ONE.replace("$p", "$x"))
    schema, query = _texts(two_files)
    assert (schema.resources, schema.before) == (("schema.knowledge",), old)
    assert query.resources == ("query.knowledge.one",)


def test_what_goes_has_no_text_after_it(two_files):
    del two_files.graphs["knowledge"]["one"]
    two_files.save()
    (change,) = _texts(two_files)
    assert (change.before, change.after) == (ONE.encode(), None)


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
def guarded(tmp_path: Path) -> Cluster:
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


def test_a_larger_group_is_told_with_its_rule_and_warned_of(guarded: Cluster) -> None:
    guarded.write("base.policy.yaml", WIDER)
    outcome = plan(guarded.workspace())

    words = "rule: group editors -> staff"
    assert told(access(guarded)) == [(True, "change", "graph.knowledge", words, ("act-bob",))] * 2
    assert "access_widened" in codes(outcome)
    assert outcome.plan is not None
    assert not outcome.plan.approvals_required
    assert [(row.file, row.line) for row in access(guarded).rows] == [("base.policy.yaml", 8)] * 2


def test_digest_of_a_plan_is_that_without_the_evidence(guarded: Cluster) -> None:
    guarded.write("base.policy.yaml", POLICY + "# the same\n")
    with_access = plan(guarded.workspace()).plan
    assert with_access is not None
    assert with_access.access is not None
    assert with_access.access.rows == ()
    guarded.write("base.policy.yaml", POLICY)
    without = plan(guarded.workspace()).plan
    assert without is not None
    assert without.access is None


def test_a_new_query_is_run_by_those_who_may_invoke_and_change(guarded: Cluster) -> None:
    guarded.write("more.gq", ADD)
    guarded.graphs["knowledge"]["add"] = "more.gq"
    guarded.save()

    (row,) = access(guarded).rows
    assert (row.action, row.queries, row.cause.words, row.actors.members) == (
        "run",
        ("add",),
        "new query",
        ("act-ada",),
    )
    assert "access_widened" not in codes(plan(guarded.workspace()))


def test_a_query_that_writes_from_now_on_is_lost_to_those_who_may_only_read(guarded: Cluster) -> None:
    guarded.write("people.gq", ADD.replace("add", "find_person"))

    (row,) = access(guarded).rows
    assert (row.gain, row.action, row.actors.members) == (False, "run", ("act-bob",))
    assert row.cause.words == "query writes now"


def test_a_new_graph_under_the_policy_is_told_and_widens_nothing(guarded: Cluster) -> None:
    guarded.graphs["notes"] = {}
    guarded.policies["base"].append("notes")
    guarded.save()

    diff = access(guarded)
    assert {(row.scope, row.cause.words) for row in diff.rows} == {("graph.notes", "new graph")}
    assert diff.widenings == ()


def test_what_a_damaged_ledger_permitted_is_unknown(guarded: Cluster) -> None:
    (blob,) = guarded.files("__cluster/resources/policy")
    guarded.plant(blob, b"not what was applied")
    guarded.write("base.policy.yaml", WIDER)

    diff = access(guarded)
    assert {row.gain for row in diff.rows} == {True}
    assert diff.unread == ("graph.knowledge",)
    assert "access_before_unknown" in codes(plan(guarded.workspace()))


def test_the_last_policy_removed_is_warned_of(guarded: Cluster) -> None:
    guarded.policies = {}
    guarded.save()

    assert {row.action for row in access(guarded).gains} == {"read"}
    assert {"access_unguarded", "access_widened"} <= set(codes(plan(guarded.workspace())))


def test_a_cluster_without_policies_says_nothing_of_access(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, memory=True)
    cluster.policies = {}
    cluster.save()

    made = plan(cluster.workspace()).plan
    assert made is not None
    assert made.access is None


BORN = "query when_born() {\n  match { $p: Person }\n  return { $p.born }\n}\n"
RENAMED = 'node Person {\n  handle: String @key\n  year: I32? @rename_from("born")\n}\n'


@pytest.fixture
def queried(tmp_path) -> Cluster:
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


def test_a_renamed_property_names_the_query_that_follows_it_and_how_its_result_changes(queried):
    rename(queried)
    outcome = queried.plan()
    (impact,) = outcome.plan.schema_impact
    address = "query.knowledge.when_born"
    assert impact.queries == ((AffectedQuery(Address(address), reads=True, writes=False, change=QueryChange.CHANGED),),)
    assert impact.results == (ResultChange(Address(address), ("p.born: I32?",), ("p.year: I32?",)),)
    assert impact.policies == ("policy.base",)
    text = to_text(outcome)
    assert "used by query.knowledge.when_born (reads, changed here)" in text
    assert "result of query.knowledge.when_born: removed `p.born: I32?`; added `p.year: I32?`" in text
    assert "find_person" not in text


def test_a_removed_query_is_known_from_the_ledger_alone(queried):
    queried.write("knowledge.pg", "node Person {\n  handle: String @key\n}\n")
    queried.graphs["knowledge"] = {"find_person": "people.gq"}
    (queried.folder / "born.gq").unlink()
    queried.save()
    (impact,) = queried.plan().plan.schema_impact
    assert [t.change for queries in impact.queries for t in queries] == [QueryChange.REMOVED]
    assert impact.results == ()


@pytest.mark.parametrize("content", [None, b"query when_born() {"])
def test_without_the_recorded_text_the_plan_is_as_good_and_says_what_is_declared(queried, content):
    rename(queried)
    whole = queried.plan()
    queried.plant(blob("when_born", BORN), content)
    outcome = queried.plan()
    assert outcome.ok
    assert (outcome.plan.digest, outcome.plan.changes) == (whole.plan.digest, whole.plan.changes)
    (impact,) = outcome.plan.schema_impact
    assert [t.query for queries in impact.queries for t in queries] == ["query.knowledge.when_born"]
    assert impact.results == ()


def test_from_a_schema_text_in_git_it_is_the_same_without_reaching_the_graph(queried):
    rename(queried)
    (expected,) = queried.plan().plan.schema_impact
    accepted = queried.live("knowledge").encode()
    queried.twin.delete_tree(queried.uri("knowledge"))
    from gitops.cluster.plan.plan import plan

    workspace = replace(queried.workspace(), accepted_schema=lambda _graph, _digest: accepted)
    assert plan(workspace).plan.schema_impact == (expected,)


def test_without_the_graph_there_is_no_migration_and_nothing_is_said_of_it(queried):
    rename(queried)
    queried.twin.delete_tree(queried.uri("knowledge"))
    outcome = queried.plan()
    assert outcome.plan.schema_impact == ()
    assert "schema_preview_unavailable" in [d.code for d in outcome.diagnostics]


def test_without_a_schema_update_nothing_is_said(queried):
    queried.write("people.gq", QUERY.replace("{ $p.handle }", "{ $p.handle, $p.born }"))
    assert queried.plan().plan.schema_impact == ()


def test_explaining_needs_no_driver(tmp_path):
    program = (
        "import sys, gitops.cluster.plan.impact, gitops.render.migrations, gitops.cluster.plan.plan;"
        "print(sorted({'lance', 'pyarrow', 'numpy', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


# -- changes of layout and comments ------------------------------------------------------------------------------------

PEOPLE = (
    "query find_person($h: String) { // by handle\n  match { $p: Person { handle: $h, } }\n  return { $p.handle }\n}\n"
)
LAYOUTS = {
    "a schema": ("knowledge.pg", COMMENTED, SCHEMA_ADDRESS),
    "a query": ("people.gq", PEOPLE, FIND),
    "a query file": ("people.gq", f"// people\n{QUERY}", FIND),
    "a policy": ("base.policy.yaml", "# no rules yet\nrules: []\nversion: 1\n", "policy.base"),
}


@pytest.mark.parametrize(("file", "text", "address"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_change_of_layout_is_called_formatting_only_by_plan_and_apply(cluster, file, text, address):
    cluster.converge()
    cluster.write(file, text)
    planned = cluster.plan()
    assert planned.plan.formatting == {address}
    assert to_text(planned).splitlines()[:2] == [
        "Plan: +0 ~1 −0 · formatting only",
        f"  Update {address} [formatting only]",
    ]
    assert [each["resource"] for each in envelope(planned)["changes"] if each.get("formatting_only")] == [address]
    applied = cluster.apply()
    assert f"  Update {address} [formatting only] [Applied]" in to_text(applied).splitlines()
    assert [each["resource"] for each in envelope(applied)["changes"] if each.get("formatting_only")] == [address]


def test_formatting_ranks_below_every_other_change(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", COMMENTED)
    cluster.policies["extra"] = ["cluster"]
    cluster.write("people.gq", QUERY.replace("{ $p.handle }", "{ $p.handle, $p.born }"))
    cluster.save()
    planned = cluster.plan()
    assert [row.badge for row in PlanView(planned.plan).rows if not row.derived] == [
        "CHANGES",
        "ADDS",
        "FORMATTING ONLY",
    ]
    assert to_text(planned).splitlines()[:4] == [
        "Plan: +1 ~2 −0",
        "  Create policy.extra",
        f"  Update {FIND}",
        f"  Update {SCHEMA_ADDRESS} [formatting only]",
    ]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("knowledge.pg", SCHEMA.replace("I32?", 'I32? @description("a year")')),
        ("people.gq", QUERY.replace("return { $p.handle }", "return { $p.handle } limit 5")),
        ("base.policy.yaml", "version: 1\nrules: []\ngroups: {staff: [ada]}\n"),
    ],
)
def test_a_change_of_meaning_is_never_formatting(cluster, file, text):
    cluster.converge()
    cluster.write(file, text)
    planned = cluster.plan()
    assert planned.plan.edits
    assert not planned.plan.formatting
