"""Ways back: rows that a migration dropped, the plan back to an earlier folder, and the schema before a change."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.ledger.layout import LOCK
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.down import applied_schemas, down_of_graph
from gitops.cluster.session.fmt import format_cluster
from gitops.core.errors import UsageError
from gitops.database.graph import read, read_log
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.cluster import RETYPED, SCHEMA, START, WIDER, Cluster, codes, found, lance_engine, rulings
from tests.support.faults import Death, DoAt, EndAt, FailAt
from tests.support.ids import SequentialIds

TWO = f"{SCHEMA}node City {{\n  name: String @key\n}}\n"
SHORT, LONG = (f"node Person {{\n  handle: String @key\n  born: I32?\n  face: Vector({size})?\n}}\n" for size in (2, 3))


@pytest.fixture(params=["twin", "lance"])
def wider(request, tmp_path):
    real = request.param == "lance"
    cluster = Cluster(tmp_path, memory=not real, engine=lance_engine() if real else None)
    cluster.write("knowledge.pg", TWO)
    cluster.converge()
    return cluster


def earlier(cluster):
    return MemoryTree({path.name: path.read_bytes() for path in cluster.folder.iterdir() if path.is_file()})


def back_to(cluster, tree):
    return plan(replace(cluster.workspace(), tree=tree, undoes=True))


def load(cluster, kind, key, rows):
    if cluster.engine is cluster.twin:
        cluster.twin.load(cluster.uri("knowledge"), rows)
        return
    load_rows(cluster, [{"type": kind, "data": {key: f"n{n}"}} for n in range(rows)])


def load_rows(cluster, records):
    lines = "".join(json.dumps(record) + "\n" for record in records)
    context = WriteContext(FixedClock(START), SequentialIds(900_000))
    load_records(LoadRequest(cluster.uri("knowledge"), io.BytesIO(lines.encode())), context)


def undone(outcome):
    return {each.resource: (each.undo, [part.version for part in each.parts]) for each in outcome.plan.undoings}


def test_a_dropped_type_is_restorable_while_a_version_has_its_rows(wider):
    before = earlier(wider)
    load(wider, "City", "name", 4)
    wider.write("knowledge.pg", SCHEMA)
    wider.converge()
    outcome = back_to(wider, before)
    assert undone(outcome) == {"schema.knowledge": ("restorable", [2])}
    assert [node.id for node in outcome.plan.undo_graph.nodes] == ["schema.knowledge"]
    assert codes(outcome) == []


def test_a_type_without_rows_simply_comes_back(wider):
    before = earlier(wider)
    wider.write("knowledge.pg", SCHEMA)
    wider.converge()
    assert undone(back_to(wider, before)) == {"schema.knowledge": ("complete", [])}


def test_what_cannot_be_undone_is_a_warning_and_no_part_of_the_order(wider):
    wider.write("knowledge.pg", SHORT)
    wider.converge()
    before = earlier(wider)
    wider.write("knowledge.pg", SCHEMA)
    wider.converge()
    wider.write("knowledge.pg", LONG)
    wider.write("people.gq", wider.folder.joinpath("people.gq").read_text().replace("$p.handle }", "$p.born }"))
    wider.approve("schema.knowledge")
    wider.converge()
    outcome = back_to(wider, before)
    assert "irreversible_change" in codes(outcome)
    assert undone(outcome)["schema.knowledge"][0] == "irreversible"
    assert [node.id for node in outcome.plan.undo_graph.nodes] == ["query.knowledge.find_person"]


def test_an_ordinary_plan_says_nothing_of_going_back(wider):
    wider.write("knowledge.pg", SCHEMA)
    assert wider.plan().plan.undoings == ()


TOWNS = f"{TWO}edge Lives: Person -> City\n"


@pytest.fixture(params=["twin", "lance"])
def cluster(request, tmp_path):
    """Type City had four rows in version 2, and is dropped."""
    real = request.param == "lance"
    cluster = Cluster(tmp_path, memory=not real, engine=lance_engine() if real else None)
    cluster.write("knowledge.pg", TWO)
    cluster.converge()
    load(cluster, "City", "name", 4)
    cluster.write("knowledge.pg", SCHEMA)
    cluster.converge()
    return cluster


def declare(cluster, version=2, types=("City",), schema=TWO):
    cluster.options["restores"] = {"knowledge": {"version": version, "types": list(types)}}
    cluster.write("knowledge.pg", schema)
    cluster.save()


def rows(cluster):
    return cluster.engine.read(cluster.uri("knowledge")).rows


def test_rows_come_back_behind_an_approval_and_once(cluster):
    declare(cluster)
    first = cluster.apply()
    assert rulings(first.changes)["restore.knowledge"] == "create blocked:approval_required"
    assert "schema.knowledge" not in cluster.plan().plan.changes
    approved = cluster.approve("restore.knowledge")
    assert approved.ok, approved.diagnostics
    cluster.converge()
    assert rows(cluster) == 4
    version = cluster.engine.read(cluster.uri("knowledge")).manifest_version
    assert cluster.plan().plan.changes == ()
    cluster.converge()
    # What was restored is recorded; taking the declaration out changes nothing in the graph.
    del cluster.options["restores"]
    cluster.save()
    assert rulings(cluster.plan().plan.changes) == {"restore.knowledge": "delete applied"}
    cluster.converge()
    seen = cluster.engine.read(cluster.uri("knowledge"))
    assert (seen.rows, seen.manifest_version) == (4, version)


def test_schema_and_rows_come_back_in_one_run(cluster):
    declare(cluster)
    plan = cluster.plan().plan
    assert [(e.before, e.after, e.reason) for e in plan.graph.edges] == []
    (gate,) = plan.approvals_required
    assert (gate.resource, gate.tier) == ("restore.knowledge", "irreversible")
    assert plan.change("restore.knowledge").details == ("City: the rows of version 2 replace the current ones",)
    cluster.approve("restore.knowledge")
    (edge,) = (e for e in cluster.plan().plan.graph.edges if e.after == "restore.knowledge")
    assert (edge.before, edge.reason) == ("schema.knowledge", "schema_restore")
    cluster.converge()
    assert rows(cluster) == 4


def test_what_cannot_be_restored_is_an_obstacle_of_the_plan(cluster):
    declare(cluster, version=99)
    outcome = cluster.plan()
    assert not outcome.lands
    assert "graph_version_unknown" in codes(outcome)
    declare(cluster, types=["Town"])
    assert found(cluster.plan(), "graph_restore_refused").path == "restore.knowledge"


def test_an_approval_is_for_one_version_and_one_graph(cluster):
    declare(cluster)
    cluster.approve("restore.knowledge")
    declare(cluster, version=1)
    assert "approval_stale" in codes(cluster.plan())


@pytest.mark.parametrize("atomic", [False, True])
def test_a_run_that_ends_after_the_restore_is_run_again(cluster, atomic):
    declare(cluster)
    cluster.approve("restore.knowledge")
    first = cluster.apply(faults=FailAt("cluster_apply.before_state_write"), atomic=atomic)
    assert not first.state_written
    assert rows(cluster) == 4
    assert [each["kind"] for each in cluster.sidecars][-1] == "graph_restore"
    assert cluster.apply(atomic=atomic).converged
    assert rows(cluster) == 4
    assert cluster.plan().plan.changes == ()
    assert restores(cluster) == 1


@pytest.mark.parametrize("atomic", [False, True])
def test_an_edge_whose_end_is_gone_refuses_the_whole_restore(tmp_path, atomic):
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.write("knowledge.pg", TOWNS)
    cluster.converge()
    cities = [{"type": "City", "data": {"name": f"n{n}"}} for n in range(2)]
    people = [{"type": "Person", "data": {"handle": "ada"}}]
    load_rows(cluster, [*cities, *people, {"edge": "Lives", "from": "ada", "to": "n1"}])
    cluster.write("knowledge.pg", SCHEMA)
    cluster.converge()
    for types, refused in ((["Lives"], True), (["Lives", "City"], False)):
        declare(cluster, version=2, types=types, schema=TOWNS)
        cluster.approve("restore.knowledge")
        outcome = cluster.apply(atomic=atomic)
        assert ("graph_restore_refused" in codes(outcome)) == refused
        # Nothing was done, and that is known: no later run has to find out.
        assert "cluster_recovery_pending" not in codes(outcome)
        assert outcome.converged != refused
    assert rows(cluster) == 4
    assert [row["name"] for row in read.read_rows(cluster.uri("knowledge"), "City", 10)] == ["n0", "n1"]
    report = verify_graph(cluster.uri("knowledge"), deep=True)
    assert [each for each in report.findings if each.code != "unreferenced"] == []


def dead(cluster, point, *, atomic=False):
    """Declare and approve a restore, whose run ends at a point as a process that is killed; the lock of it is removed."""
    declare(cluster)
    assert cluster.approve("restore.knowledge").ok
    with pytest.raises(Death):
        cluster.apply(faults=EndAt(point), atomic=atomic)


def restores(cluster):
    """How often rows were restored."""
    if cluster.engine is cluster.twin:
        return len(cluster.twin._graphs[cluster.uri("knowledge")].restores)
    return [version.operation for version in read_log(cluster.uri("knowledge"))].count("restore")


BEFORE, AFTER = "cluster_apply.before_graph_restore", "cluster_apply.after_graph_restore"
LATE = "cluster_apply.before_state_write"


@pytest.mark.parametrize("point", [BEFORE, AFTER, LATE])
def test_a_restore_of_a_run_that_died_is_recorded_if_it_happened_and_done_once(cluster, point):
    dead(cluster, point)
    assert restores(cluster) == (point != BEFORE)
    outcome = cluster.apply()
    assert outcome.converged, outcome.diagnostics
    assert "restore.knowledge" in cluster.state.resources
    finished = [d.path for d in outcome.diagnostics if d.code == "cluster_recovery_rolled_forward"]
    assert finished.count("graph.knowledge") == (1 if point == BEFORE else 2)
    assert (rows(cluster), restores(cluster)) == (4, 1)
    assert not cluster.sidecars
    assert cluster.plan().plan.changes == ()


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_rows_that_a_dead_run_restored_are_recorded_though_something_else_is_declared(cluster, point):
    dead(cluster, point)
    if point == AFTER:
        # Rows that came since do not hide what happened.
        load(cluster, "City", "name", 1) if cluster.engine is not cluster.twin else cluster.twin.load(
            cluster.uri("knowledge"), 5
        )
    del cluster.options["restores"]
    cluster.save()
    kept = rows(cluster)
    outcome = cluster.apply()
    assert outcome.ok
    assert outcome.converged
    kinds = [record["kind"] for record in cluster.state.recovery_records.values()]
    assert ("graph_restore" in kinds) == (point == AFTER)
    assert ("restore.knowledge" in rulings(outcome.changes)) == (point == AFTER)
    assert (rows(cluster), "restore.knowledge" in cluster.state.resources) == (kept, False)
    # What was used by the dead run does not permit the same again; what was not used still does.
    declare(cluster)
    waits = rulings(cluster.plan().plan.changes)["restore.knowledge"] == "create blocked:approval_required"
    assert waits == (point == AFTER)


@pytest.mark.parametrize("point", [BEFORE, AFTER, "changeset.commit.before_write"])
def test_an_atomic_run_that_died_goes_on_with_its_restore(cluster, point):
    dead(cluster, point, atomic=True)
    assert cluster.plan().lands
    outcome = cluster.apply(atomic=True)
    assert outcome.converged, outcome.diagnostics
    ended = {result.node_id: result.outcome for result in outcome.results}["restore.knowledge"]
    assert ended == ("done" if point == BEFORE else "unchanged")
    assert (rows(cluster), restores(cluster)) == (4, 1)
    assert not cluster.sidecars


def test_what_an_atomic_run_restored_is_gone_on_with_before_anything_else_is_applied(cluster):
    dead(cluster, AFTER, atomic=True)
    declared = cluster.options.pop("restores")
    cluster.save()
    refused = cluster.apply(atomic=True)
    assert "restore.knowledge, which cannot be rolled back" in found(refused, "cluster_recovery_pending").message
    assert not cluster.plan().lands
    cluster.options["restores"] = declared
    cluster.save()
    assert cluster.apply(atomic=True).converged


def test_a_slow_run_whose_lock_was_broken_restores_nothing_any_more(cluster):
    """The next run found that nothing had happened, and has settled that."""
    declare(cluster)
    cluster.approve("restore.knowledge")

    def another() -> None:
        cluster.plant(LOCK, None)
        del cluster.options["restores"]
        cluster.save()
        assert cluster.apply().ok

    slow = cluster.apply(faults=DoAt(BEFORE, another))
    assert not slow.ok
    assert restores(cluster) == 0


RENAMED = 'node Author @rename_from("Person") {\n  handle: String @key\n  born: I32?\n  city: String?\n}\n'


@pytest.fixture(params=["twin", "lance"])
def bare(request, tmp_path):
    cluster = Cluster(tmp_path, engine=lance_engine() if request.param == "lance" else None)
    cluster.graphs = {"knowledge": {}}
    cluster.save()
    cluster.converge()
    return cluster


def down(cluster, graph="knowledge"):
    return down_of_graph(cluster.workspace(), graph)


def test_the_text_takes_a_change_back_once_it_is_applied(bare):
    bare.write("knowledge.pg", RENAMED)
    outcome = down(bare)
    assert outcome.ok
    assert outcome.subject == "schema.knowledge"
    assert outcome.migrations is not None
    assert [step.kind for step in outcome.migrations.forward.steps] == ["rename_type", "add_property"]
    bare.converge()
    bare.write("knowledge.pg", outcome.migrations.source.decode())
    planned = bare.plan().plan
    assert planned is not None
    (preview,) = [change.migration for change in planned.changes if change.migration is not None]
    assert [dict(step) for step in preview.steps] == [step.to_json() for step in outcome.migrations.back.steps]
    bare.converge()
    # Only the hint of the way back is left besides what was there before.
    assert "Person" in bare.live("knowledge")
    assert "city" not in bare.live("knowledge")


HINTED = """node Author @rename_from("Person") {
  handle: String @key
  born: I64 @backfill(1900)
  city: String? @convert(null)
  mood: enum(sad, happy)? @rename_member("glad", to="happy")
}
"""


def test_hints_are_removed_once_they_have_no_effect(bare):
    """Each of them alone: a hint of a change that is not applied stays beside those of one that is."""

    def formatted():
        schemas = applied_schemas(bare.workspace()).schemas
        return format_cluster(lambda: earlier(bare), ["knowledge.pg"], schemas).files[0].after.decode()

    bare.write("knowledge.pg", HINTED.replace("born: I64", "born: I32?").replace('"glad"', '"odd"'))
    assert [line for line in formatted().splitlines() if "@" in line] == [
        'node Author @rename_from("Person") {',
        "    handle: String @key",
    ]
    bare.converge()
    bare.write("knowledge.pg", HINTED.replace("String?", "I32?").replace("sad", "glad2"))
    assert [line.split("@")[1] for line in formatted().splitlines() if "@" in line] == [
        "key",
        "backfill(1900)",
        "convert(null)",
    ]


def test_an_applied_schema_has_nothing_to_take_back(bare):
    outcome = down(bare)
    assert outcome.ok
    assert outcome.migrations is not None
    assert outcome.migrations.forward.steps == outcome.migrations.back.steps == ()


def test_a_change_that_is_not_supported_is_an_error(bare):
    bare.write("knowledge.pg", RETYPED)
    assert codes(down(bare)) == ["graph_migration_unsupported"]


def test_nothing_is_written(bare):
    bare.write("knowledge.pg", WIDER)
    before = {path: path.read_bytes() for path in bare.folder.rglob("*") if path.is_file()}
    assert down(bare).ok
    assert {path: path.read_bytes() for path in bare.folder.rglob("*") if path.is_file()} == before


def test_a_graph_that_was_never_applied_has_no_way_back(bare):
    bare.graphs["other"] = {}
    bare.save()
    outcome = down(bare, "other")
    assert codes(outcome) == ["schema_not_recorded"]
    assert outcome.migrations is None


@pytest.mark.parametrize("name", ["knowlege", "../x", "\x1b[2J"])
def test_a_graph_that_is_not_declared_is_a_wrong_use(bare, name):
    with pytest.raises(UsageError) as refused:
        down(bare, name)
    if name == "knowlege":
        assert "did you mean `knowledge`?" in refused.value.detail


def test_a_broken_folder_and_a_missing_ledger_say_so(bare, tmp_path):
    bare.write("knowledge.pg", SCHEMA[:-3])
    assert codes(down(bare)) == ["schema_parse_error"]
    (tmp_path / "fresh").mkdir()
    assert codes(down(Cluster(tmp_path / "fresh"))) == ["state_missing"]
