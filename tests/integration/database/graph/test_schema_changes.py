"""Changes of a schema: the preview, what rows keep, and the way back."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph import layout, read, read_log
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.preview import preview_migration
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.lines import read_branches
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.port import HeldData
from gitops.database.graph.results import PreviewReport
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source
from gitops.database.language.schema.step_terms import Reversibility
from tests.support.clock import FixedClock
from tests.support.histories import History, knows, person
from tests.support.ids import SequentialIds
from tests.support.s3 import S3Place

SCHEMA = b"""node Person { name: String @key  age: I32?  mail: String?  photo: Blob?  vec: Vector(2)? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
NEXT = b"""node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age")  note: String?  photo: Blob?
    vec: Vector(2)? }
edge Knows: Human -> Human
node Extra {}
"""
SECRET = b"a secret that must be gone"


def fill(history: History) -> History:
    rows = [
        {**person("a", 1, "a@x"), "photo": b"one", "vec": [1.0, 2.0]},
        {**person("b", None, "b@x"), "photo": None, "vec": None},
        {**person("c", 3, None), "photo": SECRET, "vec": [0.0, 0.5]},
    ]
    history.put("main", {"node:Person": rows, "edge:Knows": [{**knows("k", "a", "b"), "since": 4}]})
    return history


@pytest.fixture(params=["local", "s3"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return fill(History(str(tmp_path / "g.omni"), SCHEMA))
    s3: S3Place = request.getfixturevalue("s3")
    return fill(History(f"{s3.root}/graphs/g.omni", SCHEMA))


@pytest.fixture
def local(tmp_path: Path) -> History:
    return fill(History(str(tmp_path / "g.omni"), SCHEMA))


def files(history: History) -> dict[str, bytes]:
    root = Path(history.uri)
    # The hint tells the driver where to look for the newest version of a table, which no reader of a graph asks for.
    found = (path for path in root.rglob("*") if path.is_file() and path.name != "latest_version_hint.json")
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def effects(report: PreviewReport) -> list[tuple[str, int | None]]:
    return [(effect.step.kind, effect.count and effect.count.rows) for effect in report.steps]


def migrate(history: History, source: bytes, *, lossy: bool = False) -> int:
    engine = LanceEngine(history.clock, history.ids)
    return engine.prepare_migration(history.uri, source, actor="ann", allow_data_loss=lossy).publish()


@pytest.mark.parametrize("lossy", [False, True])
def test_a_preview_tells_what_each_step_touches_and_leaves_main_byte_for_byte(local: History, lossy: bool) -> None:
    before, image = files(local), local.image()
    report = preview_migration(local.uri, NEXT, local.work(), allow_data_loss=lossy)
    assert effects(report) == [
        ("add_type", 0),
        ("rename_type", 3),
        ("add_property", 3),
        ("rename_property", 3),
        ("drop_property", 2),
        ("drop_type", 0),
        ("drop_property", 1),
    ]
    assert report.tables == {"node:Human": 3, "node:Extra": 0, "edge:Knows": 1}
    assert report.manifest_version == local.at().manifest.n == 2
    after = files(local)
    assert {name: after.get(name) for name in before} == before
    assert (local.image(), local.image(version=1)["node:Person"]) == (image, [])
    assert [branch.name for branch in list_branches(local.uri)] == ["main"]
    assert read_branches(open_snapshot(local.uri).store).branches == {}
    assert {step["mode"] for step in report.to_json()["steps"] if "mode" in step} == {"hard" if lossy else "soft"}
    collect_garbage(local.uri, local.work(), Retention())
    assert verify_graph(local.uri, deep=True).findings == ()
    assert migrate(local, NEXT) == 3


def test_a_preview_on_an_object_store(s3: S3Place) -> None:
    history = fill(History(f"{s3.root}/graphs/g.omni", SCHEMA))
    manifests = {n: history.at(version=n).manifest for n in (1, 2)}
    assert preview_migration(history.uri, NEXT, history.work()).supported
    assert {n: history.at(version=n).manifest for n in (1, 2)} == manifests
    history.people("main", d=1)
    assert history.ages() == {"a": 1, "b": None, "c": 3, "d": 1}


def test_a_preview_of_what_is_not_supported_touches_nothing(local: History) -> None:
    before = files(local)
    report = preview_migration(local.uri, SCHEMA.replace(b"age: I32?", b"age: Date?"), local.work())
    assert (report.supported, report.tables, effects(report)) == (False, {}, [("unsupported_change", None)])
    assert files(local) == before


def test_a_preview_may_run_beside_branches_and_a_migration_may_not_cut_off_their_changes(local: History) -> None:
    for name in ("dev", "exp", "idle"):
        create_branch(local.uri, name, local.work())
    local.people("dev", d=1)
    local.people("exp", e=1)
    assert preview_migration(local.uri, NEXT, local.work()).supported
    with pytest.raises(ConflictError) as failure:
        migrate(local, NEXT)
    assert failure.value.code == "graph_has_branches"
    assert failure.value.detail.endswith(": dev, exp")
    migrate(local, b"// Reads the same.\n" + SCHEMA)
    merge_branch(local.uri, "dev", "main", local.work())
    delete_branch(local.uri, "exp", local.work())
    migrate(local, NEXT)


def test_a_branch_without_changes_of_its_own_outlives_a_migration(local: History) -> None:
    create_branch(local.uri, "dev", local.work())
    local.people("dev", d=1)
    merge_branch(local.uri, "dev", "main", local.work())
    create_branch(local.uri, "idle", local.work())
    before = {name: local.image(name) for name in ("dev", "idle")}
    migrate(local, NEXT)
    local.put("main", {"node:Human": [{"id": "z", "name": "z"}]})
    local.people("dev", y=2)
    collect_garbage(local.uri, local.work(), Retention(1, timedelta(0), timedelta(0)))
    assert local.image("idle") == before["idle"]
    assert [row["id"] for row in local.rows("node:Person", "dev")] == ["a", "b", "c", "d", "y"]
    assert [row["id"] for row in local.rows("node:Human")] == ["a", "b", "c", "d", "z"]
    with pytest.raises(GitopsError) as failure:
        merge_branch(local.uri, "dev", "main", local.work())
    assert failure.value.code == "graph_merge_schema"
    migrate(local, NEXT + b"node More {}\n")
    assert verify_graph(local.uri, deep=True).ok


def test_data_is_not_removed_permanently_beside_a_branch(local: History) -> None:
    create_branch(local.uri, "idle", local.work())
    with pytest.raises(ConflictError) as failure:
        LanceEngine(local.clock, local.ids).prepare_migration(local.uri, NEXT, actor=None, allow_data_loss=True)
    assert failure.value.code == "graph_has_branches"


def test_a_hard_drop_takes_the_values_from_the_disk_and_keeps_the_rest(history: History) -> None:
    old = history.at().manifest.tables["node:Person"].path
    version = migrate(history, SCHEMA.replace(b"photo: Blob?", b"").replace(b"mail: String?", b""), lossy=True)
    assert [{name: row[name] for name in ("id", "age", "vec")} for row in history.rows("node:Person")] == [
        {"id": "a", "age": 1, "vec": [1.0, 2.0]},
        {"id": "b", "age": None, "vec": None},
        {"id": "c", "age": 3, "vec": [0.0, 0.5]},
    ]
    assert list(history.at().folder.files(old)) == []
    if not history.uri.startswith("s3:"):
        assert not any(SECRET in data for data in files(history).values())
    with pytest.raises(GitopsError):
        history.rows("node:Person", version=version - 1)
    assert history.rows("edge:Knows", version=version - 1)[0]["since"] == 4
    assert verify_graph(history.uri, deep=True).findings == ()
    history.people("main", d=4)
    assert [row["id"] for row in history.rows("node:Person")] == ["a", "b", "c", "d"]


def test_a_hard_drop_of_one_property_keeps_the_blobs_beside_it(local: History) -> None:
    from gitops.database.graph import read

    migrate(local, SCHEMA.replace(b"mail: String?", b""), lossy=True)
    photos = [row["photo"] for row in read.read_rows(local.uri, "Person", 5)]
    assert photos == ["base64:b25l", None, "base64:YSBzZWNyZXQgdGhhdCBtdXN0IGJlIGdvbmU="]


def test_a_hard_drop_of_a_type_takes_its_folder(local: History) -> None:
    old = local.at().manifest.tables["edge:Knows"].path
    migrate(local, SCHEMA.partition(b"edge")[0], lossy=True)
    assert not (Path(local.uri) / old).exists()
    assert [entry.purged for entry in local.at().manifest.dropped] == [True]
    assert verify_graph(local.uri, deep=True).findings == ()


def test_a_soft_drop_keeps_everything(local: History) -> None:
    migrate(local, SCHEMA.partition(b"edge")[0])
    assert local.rows("edge:Knows", version=2)[0]["since"] == 4


def test_a_schema_text_is_written_again_so_that_gc_takes_it_for_young(local: History) -> None:
    key = Path(local.uri) / layout.source_key(local.at().manifest.schema_source)
    import os

    os.utime(key, (0, 0))
    migrate(local, SCHEMA)
    assert key.stat().st_mtime > 0


def test_every_kind_of_property_is_counted(tmp_path: Path) -> None:
    kinds = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Vector(2)", "Blob"]
    types = [*kinds, *(f"[{kind}]" for kind in kinds[:-2])]
    wide = "".join(f" p{at}X: {kind}?" for at, kind in enumerate(types))
    history = History(str(tmp_path / "g.omni"), f"node N {{ k: String @key{wide} }}".encode())
    cells = ["t", True, 1, 1, 1, 1, 0.5, 0.5, 1, 1, [0.5, 0.5], b"x"]
    cells += [[cell] for cell in cells[:10]]
    full = {f"p{at}X": cell for at, cell in enumerate(cells)}
    history.put("main", {"node:N": [{"id": "a", "k": "a", **full}, {"id": "b", "k": "b"}]})
    report = preview_migration(history.uri, b"node N { k: String @key }", history.work())
    assert [rows for _, rows in effects(report)] == [1] * len(types)


CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
BASE = "node P { k: String @key  age: I32?  tag: enum(x, y)? } node Q { k: String @key } edge E: P -> Q { w: F32? }"
RECORDS = [
    {"type": "P", "data": {"k": "a", "age": 7, "tag": "x"}},
    {"type": "P", "data": {"k": "b"}},
    {"type": "Q", "data": {"k": "q"}},
    {"edge": "e", "from": "a", "to": "q", "data": {"id": "e1", "w": 0.5}},
]


IDS = SequentialIds()
REVERSIBLE = {
    "additions": """
        node P { k: String @key  age: I32?  tag: enum(x, y)?  n: Date? }  node Q { k: String @key }  node R { a: I32 }
        edge E: P -> Q { w: F32? }  edge F: R -> P
    """,
    "renames": """
        node S @rename_from("P") {
            key: String @key @rename_from("k")  years: I32? @rename_from("age")  label: enum(x, y)? @rename_from("tag")
            more: [String]?
        }
        node T @rename_from("Q") { k: String @key }
        edge G: S -> T @rename_from("E") { weight: F32? @rename_from("w") }
    """,
    "descriptions": """
        node P @description("people") { k: String @key  age: I32? @description("years")  tag: enum(x, y)? }
        node Q { k: String @key }  edge E: P -> Q { w: F32? }
    """,
}


@pytest.fixture
def uri(tmp_path):
    root = str(tmp_path / "g.omni")
    LanceEngine(CLOCK, IDS).prepare_create(root, BASE.encode(), actor="ann").publish()
    stream = io.BytesIO("\n".join(map(json.dumps, RECORDS)).encode())
    load_records(LoadRequest(root, stream), WriteContext(CLOCK, IDS, actor="bob"))
    return root


def migrate_of_reverse_migration(uri, source):
    LanceEngine(CLOCK, IDS).prepare_migration(uri, source, actor="cyd").publish()


def there_and_back(uri, desired):
    """Migrate and take it back; returns the class of the way there."""
    before, after = compile_schema(BASE.encode()), compile_schema(desired.encode())
    migrate_of_reverse_migration(uri, after.source)
    migrate_of_reverse_migration(uri, down_source(before, after))
    return plan_migration(before, after).reversibility


def contents(uri, version=None):
    return {name: read.read_rows(uri, name, 100, version) for name in ("P", "Q", "E")}


@pytest.mark.parametrize("desired", REVERSIBLE.values(), ids=list(REVERSIBLE))
def test_what_is_reversible_comes_back_with_every_row(uri, desired):
    before = contents(uri)
    assert there_and_back(uri, desired) is Reversibility.REVERSIBLE
    assert contents(uri) == before


def test_what_is_lost_comes_back_empty_and_stays_in_the_older_version(uri):
    before = contents(uri)
    desired = "node P { k: String @key tag: enum(x, y)? } node Q { k: String @key }"
    assert there_and_back(uri, desired) is Reversibility.LOSSY
    after = contents(uri)
    assert after["P"] == [{**row, "age": None} for row in before["P"]]
    assert after["Q"] == before["Q"]
    assert after["E"] == []
    assert contents(uri, version=2) == before


def test_values_are_counted_and_not_rows(uri):
    """Two rows: one has a value of each, and a property that nobody filled has none."""
    engine = LanceEngine(CLOCK, IDS)
    assert engine.kept_data(uri, {"node:P.age", "node:P.k"}).rows == {
        "node:P": 2, "node:Q": 1, "edge:E": 1, "node:P.age": 1, "node:P.k": 2,
    }  # fmt: skip
    migrate_of_reverse_migration(uri, BASE.replace("age: I32?", "more: [String]?").encode())
    found = engine.kept_data(uri, {"node:P.age", "node:P.more"})
    assert (found.held, found.rows["node:P.more"]) == ({"node:P.age": HeldData(2, 1)}, 0)


def test_values_that_a_conversion_lost_are_in_the_version_before_it(uri):
    """The first conversion loses the only value, and the second one none."""
    engine = LanceEngine(CLOCK, IDS)
    migrate_of_reverse_migration(uri, BASE.replace("enum(x, y)?", "enum(y)? @convert(null)").encode())
    lost = {"node:P.tag": HeldData(2, 1)}
    assert engine.kept_data(uri, (), {"node:P.tag", "node:P.age", "node:P.none", "node:None.k"}).held == lost
    migrate_of_reverse_migration(
        uri, BASE.replace("enum(x, y)", "enum(y)").replace("age: I32?", "age: String?").encode()
    )
    assert engine.kept_data(uri, (), {"node:P.age"}).held == {}


def test_members_in_use_keep_the_reverse_migration_from_being_applied(uri):
    before = compile_schema(BASE.encode())
    after = compile_schema(BASE.replace("enum(x, y)", "enum(x, y, z)").encode())
    migrate_of_reverse_migration(uri, after.source)
    stream = io.BytesIO(json.dumps({"type": "P", "data": {"k": "b", "tag": "z"}}).encode())
    load_records(LoadRequest(uri, stream), WriteContext(CLOCK, IDS))
    with pytest.raises(GitopsError) as refused:
        migrate_of_reverse_migration(uri, down_source(before, after))
    assert refused.value.code == "graph_rows_break_schema"
    assert [row["tag"] for row in read.read_rows(uri, "P", 2)] == ["x", "z"]


ROWS_SURVIVE_BASE = b"node P { k: String @key  age: I32? }\nnode Q { k: String @key }\nedge E: P -> Q { w: F32? }\n"


class Graph:
    """One graph with two rows of P, one of Q and one edge."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.ids = SequentialIds()
        self.engine = LanceEngine(CLOCK, self.ids)
        self.engine.prepare_create(uri, ROWS_SURVIVE_BASE, actor="ann").publish()
        self.load(
            {"type": "P", "data": {"k": "a", "age": 7}},
            {"type": "P", "data": {"k": "b"}},
            {"type": "Q", "data": {"k": "q"}},
            {"edge": "e", "from": "a", "to": "q", "data": {"id": "e1", "w": 0.1}},
        )

    def load(self, *records: object) -> int:
        stream = io.BytesIO("\n".join(map(json.dumps, records)).encode())
        return load_records(LoadRequest(self.uri, stream), WriteContext(CLOCK, self.ids, actor="bob")).manifest_version

    def migrate(self, source: bytes) -> int:
        return self.engine.prepare_migration(self.uri, source, actor="cyd").publish()

    def path(self, key: str) -> str:
        return open_snapshot(self.uri).manifest.tables[key].path


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(str(tmp_path / "g.omni"))


def test_a_dropped_property_is_still_read_at_the_old_version(graph: Graph) -> None:
    assert graph.migrate(ROWS_SURVIVE_BASE.replace(b"age: I32?", b"")) == 3
    assert read.read_rows(graph.uri, "P", 10) == [{"id": "a", "k": "a"}, {"id": "b", "k": "b"}]
    assert read.read_rows(graph.uri, "P", 10, version=2) == [
        {"id": "a", "age": 7, "k": "a"},
        {"id": "b", "age": None, "k": "b"},
    ]


def test_a_property_declared_again_starts_empty(graph: Graph) -> None:
    graph.migrate(ROWS_SURVIVE_BASE.replace(b"age: I32?", b""))
    graph.migrate(ROWS_SURVIVE_BASE)
    assert [row["age"] for row in read.read_rows(graph.uri, "P", 10)] == [None, None]
    assert [row["age"] for row in read.read_rows(graph.uri, "P", 10, version=2)] == [7, None]


def test_renames_keep_the_data_and_the_folder(graph: Graph) -> None:
    before = graph.path("node:P")
    renamed = (
        b'node P2 @rename_from("P") { k: String @key  years: I32? @rename_from("age") }\n'
        b"node Q { k: String @key }\nedge E: P2 -> Q { w: F32? }\n"
    )
    graph.migrate(renamed)
    assert read.read_rows(graph.uri, "P2", 10)[0] == {"id": "a", "k": "a", "years": 7}
    assert read.read_rows(graph.uri, "E", 10) == [{"id": "e1", "src": "a", "dst": "q", "w": 0.1}]
    assert graph.path("node:P2") == before
    graph.load({"type": "P2", "data": {"k": "c", "years": 1}})
    assert [row["years"] for row in read.read_rows(graph.uri, "P2", 10)] == [7, None, 1]


def test_a_type_declared_again_is_a_new_incarnation(graph: Graph) -> None:
    before = graph.path("node:P")
    graph.migrate(b"node Q { k: String @key }\n")
    assert read.describe_graph(graph.uri).dropped == ("node:P", "edge:E")
    assert read.read_rows(graph.uri, "P", 1, version=2)[0]["age"] == 7
    with pytest.raises(GitopsError) as failure:
        read.read_rows(graph.uri, "P", 1)
    assert failure.value.code == "graph_type_unknown"
    graph.migrate(ROWS_SURVIVE_BASE)
    assert read.read_rows(graph.uri, "P", 10) == []
    assert graph.path("node:P") != before
    assert read.read_rows(graph.uri, "Q", 10) == [{"id": "q", "k": "q"}]


def test_an_abandoned_migration_is_undone_by_the_next_writer(graph: Graph) -> None:
    graph.engine.prepare_migration(graph.uri, ROWS_SURVIVE_BASE.replace(b"age: I32?", b""), actor=None).abort()
    assert read.read_rows(graph.uri, "P", 10)[0]["age"] == 7
    graph.load({"type": "P", "data": {"k": "a", "age": 8}})
    assert [row["age"] for row in read.read_rows(graph.uri, "P", 10)] == [8, None]


def test_enum_members_can_be_used_after_widening(graph: Graph) -> None:
    graph.migrate(ROWS_SURVIVE_BASE + b"node C { k: String @key  s: enum(x, y)? }\n")
    graph.load({"type": "C", "data": {"k": "1", "s": "x"}})
    before = graph.path("node:C")
    graph.migrate(ROWS_SURVIVE_BASE + b"node C { k: String @key  s: enum(x, y, z)? }\n")
    graph.load({"type": "C", "data": {"k": "2", "s": "z"}})
    assert [row["s"] for row in read.read_rows(graph.uri, "C", 10)] == ["x", "z"]
    assert graph.path("node:C") == before


def test_history_names_every_version(graph: Graph) -> None:
    graph.migrate(b"// note\n" + ROWS_SURVIVE_BASE)
    told = [(v.n, v.operation, v.actor) for v in reversed(read_log(graph.uri))]
    assert told == [(1, "create", "ann"), (2, "load", "bob"), (3, "migrate", "cyd")]
    description = read.describe_graph(graph.uri, version=2)
    assert description.tables["node:P"] == {"rows": 2, "columns": {"age": "I32?", "k": "String"}}
