"""One suite for every GraphEngine: its deeds, their requests to a store, and the cases of the query language."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.core.canonical import digest
from gitops.core.errors import BugError, ConflictError, GitopsError
from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.port import DeleteOrder, Existence, GraphEngine, HeldData, RestoreOrder
from gitops.database.graph.query.options import Strategy
from gitops.database.graph.query.run import QueryResult
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.language.text import LanguageError
from gitops.database.storage.s3 import S3Store
from tests.reference import Mode, Refused, answer, load, mutate
from tests.support import query_engine
from tests.support.clock import FixedClock
from tests.support.faults import FailAt
from tests.support.ids import SequentialIds
from tests.support.memory_engine import MemoryEngine
from tests.support.pages import ROOT
from tests.support.query_cases import Case as QueryCase
from tests.support.query_cases import cases, changed, contents, ground, same_bag, same_result
from tests.support.query_engine import Run, outcome, refused_alike
from tests.support.real_service import REAL_SERVICES, RealService
from tests.support.s3 import S3Place

BASE = b"node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: Date? }\n"
GROWN = b"node Person { name: String @key  age: I32?  mail: String? }\nedge Knows: Person -> Person { since: Date? }\n"
OTHER = b"node Person { name: String @key }\n"
UNSUPPORTED = b"node Person { name: String @key  age: Date? }\nedge Knows: Person -> Person { since: Date? }\n"


class Case:
    """An engine with the set-ups that need a way around the port."""

    def __init__(
        self,
        engine: GraphEngine,
        uri: str,
        leave_partial_root: Callable[[], object],
        cut_delete_short: Callable[[str, DeleteOrder], None],
    ) -> None:
        self.engine = engine
        self.uri = uri
        self.leave_partial_root = leave_partial_root
        self.cut_delete_short = cut_delete_short

    def make(self, source: bytes = BASE) -> int:
        return self.engine.prepare_create(self.uri, source, actor="ann").publish()

    def migrate(self, source: bytes) -> int:
        return self.engine.prepare_migration(self.uri, source, actor="bob").publish()


@pytest.fixture(params=["lance", "lance-s3", "memory", *REAL_SERVICES], ids=str)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    root = tmp_path / "graphs" / "k.omni"
    if request.param == "memory":
        twin = MemoryEngine()
        return Case(twin, str(root), lambda: twin.leave_partial_root(str(root)), twin.cut_delete_short)
    engine = LanceEngine(FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), SequentialIds())
    if request.param == "lance-s3" or isinstance(request.param, RealService):
        real = isinstance(request.param, RealService)
        place = request.getfixturevalue("real_root")(request.param) if real else request.getfixturevalue("s3").root
        rest = S3Store(place).write
        uri = f"{place}/graphs/k.omni"
        return Case(engine, uri, lambda: rest("graphs/k.omni/nodes/x.lance/data", b""), _cut_delete_short)
    return Case(engine, str(root), lambda: (root / "nodes").mkdir(parents=True), _cut_delete_short)


def _cut_delete_short(uri: str, order: DeleteOrder) -> None:
    faults = FailAt("engine.delete.after_publish")
    with pytest.raises(GitopsError):
        LanceEngine(FixedClock(datetime(2026, 1, 2, tzinfo=UTC)), SequentialIds(500), faults=faults).delete(uri, order)


def _code(failure: pytest.ExceptionInfo[GitopsError]) -> str:
    return failure.value.code


def test_absent_root_is_absent_and_reads_as_missing(case: Case) -> None:
    assert case.engine.exists(case.uri) is Existence.ABSENT
    for call in (
        case.engine.read,
        lambda u: case.engine.preview(u, BASE),
        lambda u: case.engine.prepare_migration(u, BASE, actor=None),
    ):
        with pytest.raises(GitopsError) as failure:
            call(case.uri)
        assert _code(failure) == "graph_missing"


def test_a_created_graph_reads_back_byte_for_byte(case: Case) -> None:
    source = b"// caf\xc3\xa9\r\n" + BASE + b"\n\n"
    staged = case.engine.prepare_create(case.uri, source, actor=None)
    assert case.engine.exists(case.uri) is Existence.ABSENT
    assert staged.publish() == 1
    assert case.engine.exists(case.uri) is Existence.PRESENT
    reading = case.engine.read(case.uri)
    assert (reading.schema_source, reading.manifest_version) == (source, 1)


def test_create_refuses_a_taken_root(case: Case) -> None:
    case.make()
    with pytest.raises(GitopsError) as failure:
        case.make()
    assert _code(failure) == "graph_exists"
    assert case.engine.read(case.uri).manifest_version == 1


def test_a_schema_that_does_not_compile_is_refused(case: Case) -> None:
    for source, code in ((b"node {", "schema_parse_error"), (b"edge E: A -> B", "schema_catalog_error")):
        with pytest.raises(GitopsError) as failure:
            case.make(source)
        assert _code(failure) == code
    assert case.engine.exists(case.uri) is Existence.ABSENT


def test_abort_of_a_create_leaves_nothing_visible(case: Case) -> None:
    case.engine.prepare_create(case.uri, BASE, actor=None).abort()
    assert case.engine.exists(case.uri) is Existence.ABSENT
    assert case.make() == 1


def test_of_two_staged_creates_one_wins(case: Case) -> None:
    first = case.engine.prepare_create(case.uri, BASE, actor=None)
    second = case.engine.prepare_create(case.uri, OTHER, actor=None)
    assert second.publish() == 1
    with pytest.raises(ConflictError) as failure:
        first.publish()
    assert _code(failure) == "graph_conflict"
    assert case.engine.read(case.uri).schema_source == OTHER


def test_migration_advances_the_version_and_the_text(case: Case) -> None:
    case.make()
    assert case.migrate(GROWN) == 2
    assert case.migrate(BASE) == 3
    reading = case.engine.read(case.uri)
    assert (reading.schema_source, reading.manifest_version) == (BASE, 3)


def test_a_comment_only_edit_is_stored_and_advances(case: Case) -> None:
    case.make()
    edited = b"// why\n" + BASE
    assert case.engine.preview(case.uri, edited).steps == ()
    assert case.migrate(edited) == 2
    assert case.engine.read(case.uri).schema_source == edited
    assert case.migrate(edited) == 3


def test_schema_of_an_earlier_version_is_found_by_its_digest(case: Case) -> None:
    case.make()
    case.migrate(GROWN)
    assert case.engine.schema_text(case.uri, digest(BASE)) == BASE
    assert case.engine.schema_text(case.uri, digest(GROWN)) == GROWN
    with pytest.raises(GitopsError) as failure:
        case.engine.schema_text(case.uri, digest(OTHER))
    assert _code(failure) == "graph_unreadable"


def test_preview_says_what_a_migration_would_do(case: Case) -> None:
    case.make()
    preview = case.engine.preview(case.uri, GROWN)
    assert preview.supported
    assert [(s["kind"], s["property_name"]) for s in preview.steps] == [("add_property", "mail")]
    assert case.engine.read(case.uri).manifest_version == 1


def test_an_unsupported_migration_changes_nothing(case: Case) -> None:
    case.make()
    assert case.engine.preview(case.uri, UNSUPPORTED).supported is False
    with pytest.raises(GitopsError) as failure:
        case.migrate(UNSUPPORTED)
    assert _code(failure) == "graph_migration_unsupported"
    assert "OG-MF-106" in failure.value.detail
    assert "Person.age" in failure.value.detail
    assert case.engine.read(case.uri).schema_source == BASE


def test_rows_that_break_a_step_are_counted_and_keep_it_from_being_applied(case: Case) -> None:
    strict = BASE.replace(b"age: I32?", b"age: I32? mail: String")
    case.make()
    assert [count and count.breaking for count in case.engine.count_steps(case.uri, strict)] == [0]
    _load(case, "Person", 2, age=7)
    assert [count and (count.rows, count.breaking) for count in case.engine.count_steps(case.uri, strict)] == [(2, 2)]
    assert case.engine.preview(case.uri, strict).supported
    with pytest.raises(GitopsError) as failure:
        case.migrate(strict)
    assert _code(failure) == "graph_rows_break_schema"
    assert case.engine.read(case.uri).schema_source == BASE
    filled = strict.replace(b"mail: String", b'mail: String @backfill("none")')
    assert [count and (count.rows, count.breaking) for count in case.engine.count_steps(case.uri, filled)] == [(2, 0)]
    case.migrate(filled)
    assert case.engine.read(case.uri).schema_source == filled


def test_of_two_staged_migrations_one_wins(case: Case) -> None:
    case.make()
    first = case.engine.prepare_migration(case.uri, GROWN, actor=None)
    second = case.engine.prepare_migration(case.uri, OTHER, actor=None)
    assert first.publish() == 2
    with pytest.raises(ConflictError) as failure:
        second.publish()
    assert _code(failure) == "graph_conflict"
    assert case.engine.read(case.uri).schema_source == GROWN
    assert case.migrate(OTHER) == 3


def test_staged_work_does_not_land_on_another_graph(case: Case) -> None:
    case.make()
    staged = case.engine.prepare_migration(case.uri, GROWN, actor=None)
    case.engine.delete_tree(case.uri)
    with pytest.raises(ConflictError):
        staged.publish()
    assert case.engine.exists(case.uri) is Existence.ABSENT
    case.make()
    staged = case.engine.prepare_migration(case.uri, GROWN, actor=None)
    case.engine.delete_tree(case.uri)
    case.make()
    with pytest.raises(ConflictError):
        staged.publish()
    assert case.engine.read(case.uri).schema_source == BASE


def test_abort_of_a_migration_leaves_nothing_visible(case: Case) -> None:
    case.make()
    case.engine.prepare_migration(case.uri, GROWN, actor=None).abort()
    reading = case.engine.read(case.uri)
    assert (reading.schema_source, reading.manifest_version) == (BASE, 1)
    assert case.migrate(OTHER) == 2


def test_staged_work_is_used_once(case: Case) -> None:
    staged = case.engine.prepare_create(case.uri, BASE, actor=None)
    staged.publish()
    with pytest.raises(BugError):
        staged.publish()
    staged.abort()
    assert case.engine.read(case.uri).manifest_version == 1


def test_delete_is_idempotent(case: Case) -> None:
    case.engine.delete_tree(case.uri)
    case.make()
    case.engine.delete_tree(case.uri)
    case.engine.delete_tree(case.uri)
    assert case.engine.exists(case.uri) is Existence.ABSENT
    assert case.make(OTHER) == 1


def _order(case: Case, *, rows: int = 0, fence: int = 5, approvals: tuple[str, ...] = ("A",)) -> DeleteOrder:
    return DeleteOrder(case.engine.read(case.uri).incarnation, rows, fence, approvals)


def test_an_incarnation_stays_and_every_birth_has_another(case: Case) -> None:
    case.make()
    born = case.engine.read(case.uri)
    assert born.rows == 0
    case.migrate(GROWN)
    assert case.engine.read(case.uri).incarnation == born.incarnation
    case.engine.delete(case.uri, _order(case))
    case.make()
    assert case.engine.read(case.uri).incarnation != born.incarnation


def test_a_delete_removes_the_graph_that_it_names_and_no_other(case: Case) -> None:
    case.make()
    order = _order(case)
    case.engine.delete(case.uri, order)
    assert case.engine.exists(case.uri) is Existence.ABSENT
    assert case.engine.deleted_by(case.uri, order.incarnation) == {"A"}
    case.engine.delete(case.uri, order)
    case.make(OTHER)
    with pytest.raises(ConflictError) as failure:
        case.engine.delete(case.uri, order)
    assert _code(failure) == "graph_replaced"
    assert case.engine.read(case.uri).schema_source == OTHER
    assert case.engine.deleted_by(case.uri, case.engine.read(case.uri).incarnation) == frozenset()


def test_check_of_a_delete_says_what_the_delete_refuses(case: Case) -> None:
    case.make()
    order = _order(case)
    case.engine.check_delete(case.uri, order)
    # The number of the run is given later.
    case.engine.fence(case.uri, 9)
    case.engine.check_delete(case.uri, order)
    with pytest.raises(GitopsError) as failure:
        case.engine.check_delete(case.uri, replace(order, max_rows=-1))
    assert _code(failure) == "graph_grown"
    with pytest.raises(ConflictError) as failure:
        case.engine.check_delete(case.uri, replace(order, incarnation="0" * 26))
    assert _code(failure) == "graph_replaced"
    case.cut_delete_short(case.uri, replace(order, fence=10))
    case.engine.check_delete(case.uri, order)
    case.engine.finish_delete(case.uri)
    case.engine.check_delete(case.uri, order)


def test_a_delete_that_was_cut_short_is_finished_by_who_does_not_know_its_order(case: Case) -> None:
    case.make()
    order = _order(case)
    case.engine.finish_delete(case.uri)
    assert case.engine.read(case.uri).schema_source == BASE
    case.cut_delete_short(case.uri, order)
    with pytest.raises(GitopsError) as failure:
        case.engine.read(case.uri)
    assert _code(failure) == "graph_deleted"
    for _ in range(2):
        case.engine.finish_delete(case.uri)
        assert case.engine.exists(case.uri) is Existence.ABSENT
    assert case.engine.deleted_by(case.uri, order.incarnation) == {"A"}
    assert case.make(OTHER) == 1


def test_a_slow_run_neither_deletes_nor_migrates_what_a_newer_run_settled(case: Case) -> None:
    case.make()
    late = _order(case, fence=5)
    case.engine.fence(case.uri, 6)
    case.engine.fence(case.uri, 2)
    assert case.engine.read(case.uri).fence == 7
    for call in (
        lambda: case.engine.delete(case.uri, late),
        lambda: case.engine.prepare_migration(case.uri, GROWN, actor=None, fence=6),
    ):
        with pytest.raises(ConflictError) as failure:
            call()
        assert _code(failure) == "graph_fenced"
    assert case.migrate(GROWN)
    with pytest.raises(ConflictError) as failure:
        case.engine.delete(case.uri, late)
    assert _code(failure) == "graph_fenced"
    case.engine.delete(case.uri, _order(case, fence=7))
    assert case.engine.exists(case.uri) is Existence.ABSENT
    case.engine.fence(case.uri, 9)


def test_what_was_staged_before_a_fence_does_not_land(case: Case) -> None:
    case.make()
    staged = case.engine.prepare_migration(case.uri, GROWN, actor=None, fence=5)
    case.engine.fence(case.uri, 6)
    with pytest.raises(ConflictError):
        staged.publish()
    assert case.engine.read(case.uri).schema_source == BASE


def test_a_migration_of_another_incarnation_is_refused(case: Case) -> None:
    case.make()
    born = case.engine.read(case.uri).incarnation
    case.engine.delete(case.uri, _order(case))
    case.make()
    with pytest.raises(ConflictError) as failure:
        case.engine.prepare_migration(case.uri, GROWN, actor=None, incarnation=born, fence=9)
    assert _code(failure) == "graph_replaced"


def test_a_partial_root_is_present_unreadable_and_removable(case: Case) -> None:
    case.leave_partial_root()
    assert case.engine.exists(case.uri) is Existence.PRESENT
    for call in (
        case.engine.read,
        lambda u: case.engine.preview(u, BASE),
        lambda u: case.engine.prepare_migration(u, BASE, actor=None),
    ):
        with pytest.raises(GitopsError) as failure:
            call(case.uri)
        assert _code(failure) == "graph_unreadable"
    with pytest.raises(GitopsError) as failure:
        case.make()
    assert _code(failure) == "graph_exists"
    case.engine.delete_tree(case.uri)
    assert case.make() == 1


def test_every_supported_kind_of_step(case: Case) -> None:
    case.make(
        b"interface I {}\nnode A { k: String @key  v: enum(x, y)?  w: I32?  x: I32? @unique }\n"
        b"node B { n: I64?  gone: I32? }\nedge E: A -> B { s: F64? }\n"
    )
    target = (
        b'interface I {}\nnode A2 @rename_from("A") @description("d") implements I {\n'
        b'  k: String @key  v: enum(x, y, z)?  w2: I32? @rename_from("w") @index  t: [String]?\n'
        b'  x: I64? @description("x")\n}\n'
        b"node B { n: I64?  d: Date?  at: DateTime?  u: U64?  b: Bool?  f: F32?  vec: Vector(3)?  blob: Blob? }\n"
        b"node C {}\nedge E: A2 -> C @card(0..2) { s: F64? }\n"
        b"edge F: C -> C @card(0..2)\n"
    )
    kinds = {step["kind"] for step in case.engine.preview(case.uri, target).steps}
    assert kinds == {
        "rename_type",
        "rename_property",
        "add_property",
        "add_type",
        "extend_enum",
        "add_constraint",
        "update_type_metadata",
        "update_property_metadata",
        "change_property_type",
        "change_interfaces",
        "change_ends",
        "change_cardinality",
        "drop_constraint",
        "drop_property",
    }
    assert case.migrate(target) == 2
    assert {s["kind"] for s in case.engine.preview(case.uri, OTHER).steps} >= {"drop_type", "add_type"}
    assert case.migrate(OTHER) == 3
    assert case.engine.read(case.uri).schema_source == OTHER


def test_kept_versions_are_found_by_what_they_hold(case: Case) -> None:
    case.make()
    _load(case, "Person", 2, age=7)
    case.migrate(OTHER)
    found = case.engine.kept_data(case.uri, {"node:Person.age", "node:Person.mail", "edge:Other", "node:Person.name"})
    assert (found.version, found.rows, found.complete) == (3, {"node:Person": 2, "node:Person.name": 2}, True)
    assert found.held == {"node:Person.age": HeldData(2, 2)}


TOWNS = b"node Person { name: String @key }\nnode City { name: String @key }\n"


def test_rows_of_an_earlier_version_come_back_once(case: Case) -> None:
    case.make(TOWNS)
    _load(case, "City", 2)
    case.migrate(OTHER)
    case.migrate(TOWNS)
    order = RestoreOrder(2, ("City",))
    incarnation = case.engine.read(case.uri).incarnation
    assert case.engine.restore(case.uri, order, actor="ann", incarnation=incarnation) == 5
    assert case.engine.kept_data(case.uri, ()).rows["node:City"] == 2
    assert case.engine.check_restore(case.uri, order, TOWNS) == 0
    assert case.engine.restore(case.uri, order, actor="ann") == 5


def test_a_restore_is_found_by_its_number_and_refused_where_a_later_operation_was(case: Case) -> None:
    case.make(TOWNS)
    _load(case, "City", 2)
    _load(case, "City", 3)
    order = RestoreOrder(2, ("City",))
    assert not case.engine.was_restored(case.uri, 7, 3)
    assert case.engine.restore(case.uri, order, actor=None, fence=7) == 4
    _load(case, "City", 4)
    case.engine.fence(case.uri, 8)
    found = [
        (fence, since, case.engine.was_restored(case.uri, fence, since)) for fence in (6, 7, 8) for since in (3, 4)
    ]
    assert [(fence, since) for fence, since, there in found if there] == [(7, 3)]
    with pytest.raises(ConflictError) as refused:
        case.engine.restore(case.uri, order, actor=None, fence=7)
    assert _code(refused) == "graph_fenced"
    assert case.engine.read(case.uri).fence == 8


def test_what_cannot_be_restored_is_refused_and_nothing_changes(case: Case) -> None:
    case.make(TOWNS)
    _load(case, "City", 2)
    case.migrate(OTHER)
    for order, code in (
        (RestoreOrder(9, ("City",)), "graph_version_unknown"),
        (RestoreOrder(2, ("City",)), "graph_restore_refused"),
        (RestoreOrder(2, ("Town",)), "graph_restore_refused"),
    ):
        with pytest.raises(GitopsError) as refused:
            case.engine.restore(case.uri, order, actor=None)
        assert _code(refused) == code
    case.migrate(TOWNS)
    with pytest.raises(ConflictError) as refused:
        case.engine.restore(case.uri, RestoreOrder(2, ("City",)), actor=None, incarnation="X" * 26)
    assert _code(refused) == "graph_replaced"
    assert case.engine.read(case.uri).manifest_version == 4


def _load(case: Case, kind: str, rows: int, **more: object) -> None:
    if isinstance(case.engine, MemoryEngine):
        case.engine.load(case.uri, rows)
        return
    lines = "".join(json.dumps({"type": kind, "data": {"name": f"n{n}", **more}}) + "\n" for n in range(rows))
    context = WriteContext(FixedClock(datetime(2026, 1, 2, tzinfo=UTC)), SequentialIds(900_000 + 1000 * rows))
    load_records(LoadRequest(case.uri, io.BytesIO(lines.encode())), context)


CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
PLAIN = b"node Person { name: String @key }\nedge Knows: Person -> Person\n"
MAILED = b"node Person { name: String @key  mail: String? }\nedge Knows: Person -> Person\n"


def test_the_requests_of_each_deed_are_those_of_the_page(s3: S3Place) -> None:
    ids = SequentialIds()
    engine, context = LanceEngine(CLOCK, ids), WriteContext(CLOCK, ids)
    engine.prepare_create(f"{s3.root}/graphs/warm.omni", PLAIN, actor=None).publish()
    uri = f"{s3.root}/graphs/g.omni"
    rows = []

    def person(name: str) -> LoadRequest:
        return LoadRequest(uri, io.BytesIO(json.dumps({"type": "Person", "data": {"name": name}}).encode()))

    def cost(deed: str, call: Callable[[], Any]) -> Any:
        s3.server.log.clear()
        told = call()
        asked = s3.server.requests()
        kinds = ", ".join(f"{number} {kind}" for kind, number in asked.items())
        rows.append(f"| {deed} | {sum(asked.values())} | {kinds} |")
        return told

    def migrate(source: bytes) -> int:
        return engine.prepare_migration(uri, source, actor=None).publish()

    assert cost("find a root free", lambda: engine.exists(uri)) is Existence.ABSENT
    cost("create a graph of two types", lambda: engine.prepare_create(uri, PLAIN, actor=None).publish())
    assert cost("find a graph", lambda: engine.exists(uri)) is Existence.PRESENT
    assert cost("read the accepted schema", lambda: engine.read(uri)).schema_source == PLAIN
    load_records(person("ada"), context)
    assert cost("load one row into a table with rows", lambda: load_records(person("bob"), context)).rows == {
        "node:Person": 1
    }
    assert cost("migrate: add a property", lambda: migrate(MAILED)) == 4
    assert cost("migrate: a comment only", lambda: migrate(b"// why\n" + MAILED)) == 5
    assert len(cost("show rows of a type", lambda: read.read_rows(uri, "Person", 20))) == 2
    below = len([key for key in s3.server.keys(s3.bucket) if "/g.omni/" in key])
    cost(f"delete the graph, {below} objects", lambda: engine.delete_tree(uri))
    page = (ROOT / "docs/storage.md").read_text(encoding="utf-8")
    missing = [row for row in rows if row not in page]
    assert not missing, "\n".join(missing)


CASES = cases()
RUN = [case for case in CASES if "checks" not in case.members]
READS = [case for case in RUN if not {"do", "load"} & case.members.keys()]
WRITES = [case for case in RUN if {"do", "load"} & case.members.keys()]
EXAMPLES = {*(f"E{n}" for n in range(1, 48)), *(f"M{n}" for n in range(1, 17))}


def test_every_worked_example_is_a_case():
    named = {case.members["name"].split()[0] for case in CASES}
    assert named >= EXAMPLES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_gives_what_the_case_says(case: QueryCase):
    base = ground(case.graph)
    schema, graph = base.schema, base.graph(case)
    before = contents(schema, graph)
    if "checks" in case.members:
        with pytest.raises(LanguageError) as refused:
            case.checked(schema)
        problem = refused.value.problems[0]
        assert case.members["checks"] in f"{problem.rule}: {problem.message}"
    elif "fails" in case.members:
        with pytest.raises(Refused) as verdict:
            run_on_reference(case)
        assert verdict.value.why == case.members["fails"], verdict.value
    elif "rows" in case.members:
        found = answer(schema, graph, case.checked(schema), case.params, case.options)
        expected = case.expected(case.checked(schema))
        assert same_bag(found.rows, expected)
        assert not found.total or found.rows == expected
        assert same_result(found, expected)
    else:
        outcome = run_on_reference(case)
        assert outcome[0] == case.members.get("affects", outcome[0])
        assert outcome[1] == changed(case, schema, graph)
    assert contents(schema, graph) == before


def run_on_reference(case: QueryCase):
    """What a write affects and leaves; a read for its refusal."""
    base = ground(case.graph)
    schema, graph = base.schema, base.graph(case)
    if "load" in case.members:
        return None, contents(
            schema, load(schema, graph, case.members["load"].splitlines(), Mode(case.members["mode"]))
        )
    if "do" not in case.members:
        return answer(schema, graph, case.checked(schema), case.params, case.options)
    outcome = mutate(schema, graph, case.checked(schema), case.params, case.options)
    return [outcome.nodes, outcome.edges], contents(schema, outcome.graph)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The graphs of the cases, on disk."""
    return query_engine.World(tmp_path_factory.mktemp("graphs"))


@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_the_engine_reads_what_the_case_says_under_every_strategy(case: QueryCase, world):
    base = ground(case.graph)
    checked = case.checked(base.schema)
    run = Run(open_snapshot(world.root(case)), checked, case.params, case.options)
    results = {strategy: outcome(lambda strategy=strategy: run.under(strategy)) for strategy in Strategy}
    if "fails" in case.members:
        assert all(refused_alike(case.members["fails"], result) for result in results.values()), results
        return
    expected = answer(base.schema, base.graph(case), checked, case.params, case.options)
    for strategy, result in results.items():
        assert isinstance(result, QueryResult), (strategy, result)
        assert same_bag(result.rows(), case.expected(checked)), strategy
        assert same_result(expected, result.rows()), (strategy, result.rows())
        assert result.columns == expected.columns
        assert result.touched == frozenset(checked.reads), "what the checker says a query reads is what it reads"


@pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)
def test_the_engine_writes_what_the_case_says(case: QueryCase, world):
    base = ground(case.graph)
    schema, uri = base.schema, world.root(case)
    graph, before = base.graph(case), open_snapshot(uri).manifest
    if "fails" in case.members:
        refusal = outcome(lambda: run_on_engine(case, uri))
        assert refused_alike(case.members["fails"], refusal), refusal
        assert open_snapshot(uri).manifest == before
        assert contents(schema, query_engine.contents_of(uri, schema)) == contents(schema, graph)
        return
    affected, version = run_on_engine(case, uri)
    assert written(before, open_snapshot(uri).manifest) <= declared_writes(case)
    expected = changed(case, schema, graph)
    assert affected == case.members.get("affects", affected)
    assert contents(schema, query_engine.contents_of(uri, schema)) == expected
    after = open_snapshot(uri).manifest
    assert version == after.n
    touched = affected != [0, 0] if "do" in case.members else bool(case.members["load"].strip())
    assert after.n == before.n + touched


def run_on_engine(case: QueryCase, uri: str):
    """What a write affects, and the version that has it."""
    if "load" in case.members:
        lines = case.members["load"].splitlines()
        return None, query_engine.load_lines(uri, lines, LoadMode(case.members["mode"]), start=90_000)
    checked = case.checked(ground(case.graph).schema)
    result = query_engine.write(uri, checked, case.params, case.options)
    return [result.affected_nodes, result.affected_edges], result.manifest_version


def written(before: Manifest, after: Manifest) -> set[str]:
    """The keys of the tables that a write changed."""
    return {key for key, entry in after.tables.items() if before.tables[key] != entry}


def declared_writes(case: QueryCase) -> set[str]:
    """The keys of the tables that a write may change: what the checker says of a mutation, what a load names."""
    if "do" in case.members:
        checked = case.checked(ground(case.graph).schema)
        return {f"{each.kind.value}:{each.type_name}" for each in checked.writes}
    records = [json.loads(line) for line in case.members["load"].splitlines() if line.strip()]
    return {f"node:{each['type']}" if "type" in each else f"edge:{each['edge'].title()}" for each in records}
