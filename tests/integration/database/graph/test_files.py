"""The files of a graph: manifests, tables, verification, and copies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.clock import encode_ulid
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.graph import layout
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.files import find_missing
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.lines import read_branches
from gitops.database.graph.local_root import locate
from gitops.database.graph.manifest import (
    CommitRef,
    DroppedTable,
    GraphIdentity,
    Manifest,
    TableEntry,
    head_number,
    publish,
    read_identity,
    read_manifest,
)
from gitops.database.graph.results import VerifyFindingCode
from gitops.database.graph.snapshot import ReadTarget
from gitops.database.graph.tables import open_table
from tests.support.histories import History, knows, lives, person, sealed, town
from tests.support.memory_store import MemoryStore

EAGER = OptimizeOptions(fragments=1, scalar_rows=1, text_rows=1, stale_rows=0, stale_share=0.0)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Rows in several fragments, of which some rows, and all rows of one fragment, are deleted."""
    history = History(str(tmp_path / "g.omni"))
    for names in ("abc", "d", "ef"):
        history.put("main", {"node:Person": [person(name) for name in names]})
    history.put("main", {"edge:Knows": [knows("1", "a", "b")]}, {"node:Person": ["b", "d"]})
    history.put("main", {"node:Person": [person("a", 30)]}, {"node:Person": ["f"]})
    return history


def needed(history: History) -> list[Path]:
    """The files of the newest version, as the driver lists them."""
    snapshot, found = history.at(), []
    for entry in snapshot.manifest.tables.values():
        path = Path(history.uri, entry.path)
        found.append(path / f"_versions/{2**64 - 1 - entry.version}.manifest")
        for fragment in open_table(snapshot.folder, entry).get_fragments():
            found += [path / "data" / file.path for file in fragment.metadata.files]
            if fragment.metadata.deletion_file is not None:
                found.append(path / fragment.metadata.deletion_file.path(fragment.fragment_id))
    return found


@pytest.mark.parametrize("optimized", [False, True])
def test_every_file_of_the_newest_version_is_missed_and_no_other(history: History, optimized: bool) -> None:
    if optimized:
        optimize_tables(history.uri, history.work(), EAGER)
    engine = LanceEngine(history.clock, history.ids)
    engine.check_files(history.uri)
    files = needed(history)
    assert len(files) >= 6
    for file in files:
        data = file.read_bytes()
        file.unlink()
        assert [path for _, path in find_missing(history.at())] == [str(file.relative_to(history.uri))]
        with pytest.raises(GitopsError, match=rf"{file.name} of (node|edge) type \w+ is missing below ") as refused:
            engine.check_files(history.uri)
        assert refused.value.code == "graph_unreadable"
        file.write_bytes(data)
    others = [each for each in Path(history.uri).rglob("data/*.lance") if each not in files]
    assert others
    for each in (*others, *Path(history.uri).rglob("_transactions/*")):
        each.unlink()
    engine.check_files(history.uri)


def test_several_missing_files_are_counted(history: History) -> None:
    for file in Path(history.uri).rglob("data/*.lance"):
        file.unlink()
    with pytest.raises(GitopsError, match=r"of edge type Knows and \d more are missing"):
        LanceEngine(history.clock, history.ids).check_files(history.uri)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[40:], lambda data: b"", lambda data: b"\xff" * 40]
)
def test_a_version_of_a_table_that_is_damaged_is_refused(history: History, damage) -> None:
    entry = history.at().manifest.tables["node:Person"]
    file = Path(history.uri, entry.path, f"_versions/{2**64 - 1 - entry.version}.manifest")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(GitopsError, match=r"\.manifest is damaged") as refused:
        LanceEngine(history.clock, history.ids).check_files(history.uri)
    assert refused.value.code == "graph_unreadable"


ID = encode_ulid(1, 2)
OTHER = encode_ulid(1, 7)


STATISTICS = (
    "fragments 0..2 9; rows 5; 1: 2 null, -5..8",
    "fragments 3; rows 3; 1: 3 null; 2: 0 null, 0.5..1e+300",
)


def manifest(n: int = 3, **changes: Any) -> Manifest:
    values = {
        "n": n,
        "parent": CommitRef("main", n - 1, encode_ulid(1, 0)) if n > 1 else None,
        "merge_parent": CommitRef(OTHER, 9, encode_ulid(1, 5)),
        "lineage": {OTHER: 9},
        "message": "why",
        "txn_id": ID,
        "operation": "migrate",
        "actor": "änn",
        "ts": "2026-01-01T00:00:00Z",
        "schema_source": "a" * 64,
        "schema_ir": "b" * 64,
        "tables": {
            "node:P": TableEntry(
                f"nodes/{ID}.lance", 4, 7, {"id": 0, "k": 1, "y": 2}, 2, {"k": 3}, statistics=STATISTICS
            ).committed(OTHER),
            "edge:E": TableEntry(f"edges/{ID}.lance", 1, 0, {"id": 0}, 1).committed(ID),
        },
        "dropped": (DroppedTable("node:Old", f"nodes/{encode_ulid(1, 1)}.lance", 2),),
    }
    return Manifest(**(values | changes))


def test_reading_gives_what_was_written() -> None:
    store = MemoryStore()
    for n, actor in ((1, None), (3, "änn")):
        assert publish(store, manifest(n, actor=actor))
        assert read_manifest(store, n) == manifest(n, actor=actor)
        assert read_manifest(store, n).tables["node:P"].statistics == STATISTICS
        assert read_manifest(store, n).to_bytes() == manifest(n, actor=actor).to_bytes()


def test_a_number_is_published_once_and_the_publisher_may_ask_again() -> None:
    store = MemoryStore()
    assert publish(store, manifest())
    assert not publish(store, manifest(txn_id=encode_ulid(5, 5)))
    assert publish(store, manifest())


@given(st.sets(st.integers(1, 10**20 - 1), min_size=1))
def test_the_head_is_the_largest_number(numbers: set[int]) -> None:
    store = MemoryStore()
    for n in numbers:
        store.write(layout.manifest_key(n), b"")
    store.write("manifests/00000000000000000000.json.bak", b"")
    store.write("manifests/0.json", b"")
    store.write("manifests/99999999999999999999.json", b"")
    assert head_number(store) == max(numbers)


def test_no_manifest_no_head() -> None:
    assert head_number(MemoryStore()) is None


def _set(*path: str | int, to: Any) -> Any:
    def change(form: dict[str, Any]) -> None:
        for part in path[:-1]:
            form = form[part]
        form[path[-1]] = to

    return change


BROKEN = {
    "newer format": _set("format", to=8),
    "format is a truth value": _set("format", to=True),
    "unknown member": _set("extra", to=1),
    "other number": _set("n", to=4),
    "other parent": _set("parent", "n", to=1),
    "parent is a number": _set("parent", to=2),
    "no parent": _set("parent", to=None),
    "other line": _set("line", to=OTHER),
    "bad line": _set("line", to="../main"),
    "bad merge parent": _set("merge_parent", "line", to="x"),
    "lineage of no line": _set("lineage", to={"x": 1}),
    "lineage of text": _set("lineage", OTHER, to="1"),
    "message is a number": _set("message", to=1),
    "bad id": _set("txn_id", to="x"),
    "bad operation": _set("operation", to="guess"),
    "bad time": _set("ts", to="yesterday"),
    "bad actor": _set("actor", to=1),
    "bad digest": _set("schema", "ir", to="b" * 63),
    "unknown schema member": _set("schema", "more", to="b" * 64),
    "tables is a list": _set("tables", to=[]),
    "table is a list": _set("tables", "node:P", to=[]),
    "bad key": _set("tables", "node:P/..", to={}),
    "path leads out": _set("tables", "node:P", "path", to="nodes/../../etc.lance"),
    "path of another kind": _set("tables", "node:P", "path", to=f"edges/{ID}.lance"),
    "version zero": _set("tables", "node:P", "version", to=0),
    "version is a float": _set("tables", "node:P", "version", to=1.0),
    "version is huge": _set("tables", "node:P", "version", to=2**63),
    "rows negative": _set("tables", "node:P", "rows", to=-1),
    "field is text": _set("tables", "node:P", "fields", "k", to="1"),
    "members of the future": _set("tables", "node:P", "members", to=5),
    "changed in the future": _set("tables", "node:P", "changed", "k", to=5),
    "changed before the members": _set("tables", "node:P", "changed", "k", to=2),
    "changed what is no column": _set("tables", "node:P", "changed", "x", to=4),
    "commit of another version": _set("tables", "node:P", "commits", "1", to=ID),
    "commit of a version with a sign": _set("tables", "edge:E", "commits", to={"+1": ID}),
    "commit of no form": _set("tables", "edge:E", "commits", "1", to="x"),
    "statistics of no form": _set("tables", "node:P", "statistics", 0, to="fragments 0; rows -1"),
    "dropped is text": _set("dropped", to="x"),
    "dropped entry is text": _set("dropped", to=["x"]),
    "dropped path leads out": _set("dropped", to=[{"key": "node:A", "path": "/etc", "version": 1}]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_document_that_is_not_well_formed_is_refused(name: str) -> None:
    form = json.loads(manifest().to_bytes())
    BROKEN[name](form)
    # What is wrong is found without the help of the checksum.
    store = MemoryStore()
    store.write(layout.manifest_key(3), json.dumps(sealed(form)).encode())
    with pytest.raises(IntegrityError) as failure:
        read_manifest(store, 3)
    assert failure.value.code == "graph_unreadable"


WELL_FORMED = {
    "branch": "b",
    "txn_id": OTHER,
    "parent": {"line": "main", "n": 2, "commit": OTHER},
    "merge_parent": None,
    "lineage": {OTHER: 3},
    "operation": "merge",
    "message": None,
    "actor": "eve",
    "ts": "2027-01-01T00:00:00Z",
    "schema": {"source": "d" * 64, "ir": "e" * 64},
    "tables": {
        "node:P": {
            "path": f"nodes/{ID}.lance",
            "version": 3,
            "rows": 7,
            "fields": {"id": 0, "k": 1},
            "members": 3,
            "changed": {},
            "commits": {"3": ID},
            "statistics": None,
        }
    },
    "dropped": [],
    "fence": 9,
    "approvals": ["x"],
    "checksum": "f" * 64,
}


@pytest.mark.parametrize("member", WELL_FORMED)
def test_a_document_that_was_changed_is_refused_however_well_formed(member: str) -> None:
    form, store = json.loads(manifest().to_bytes()), MemoryStore()
    assert set(form) - set(WELL_FORMED) == {"format", "n", "line"}
    store.write(layout.manifest_key(3), json.dumps(form | {member: WELL_FORMED[member]}).encode())
    with pytest.raises(IntegrityError, match="checksum: the content has the digest") as failure:
        read_manifest(store, 3)
    assert failure.value.code == "graph_unreadable"


def test_of_an_earlier_format_nothing_is_known_to_be_older_than_its_version() -> None:
    form = json.loads(manifest().to_bytes()) | {"format": 4}
    for table in form["tables"].values():
        del table["members"], table["changed"], table["commits"], table["statistics"]
    store = MemoryStore()
    store.write(layout.manifest_key(3), json.dumps(sealed(form)).encode())
    entry = read_manifest(store, 3).tables["node:P"]
    assert (entry.members, entry.column_version("k"), entry.column_version("id")) == (4, 4, 4)
    assert entry.statistics is None


@pytest.mark.parametrize("member", json.loads(manifest().to_bytes()))
def test_every_member_is_required(member: str) -> None:
    form = json.loads(manifest().to_bytes())
    del form[member]
    store = MemoryStore()
    store.write(layout.manifest_key(3), json.dumps(form).encode())
    with pytest.raises(IntegrityError):
        read_manifest(store, 3)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(list(json.loads(manifest().to_bytes()))) | st.text(), inner)
    ),
    max_leaves=20,
)


@given(st.binary() | _JSON.map(lambda v: json.dumps(v).encode()) | st.just(b"[" * 200_000) | st.just(b'{"a":1,"a":1}'))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    store = MemoryStore()
    store.write(layout.manifest_key(1), data)
    store.write(layout.IDENTITY, data)
    for read in (lambda: read_manifest(store, 1), lambda: read_identity(store)):
        with pytest.raises(IntegrityError):
            read()


def test_the_identity_reads_back() -> None:
    store = MemoryStore()
    identity = GraphIdentity(ID, "2026-01-01T00:00:00Z")
    store.write(layout.IDENTITY, identity.to_bytes())
    assert read_identity(store) == identity


@pytest.mark.parametrize(
    ("uri", "path"),
    [("/a/b.omni", "/a/b.omni"), ("file:///a/b%20c", "/a/b c"), ("file://localhost/a", "/a"), ("/a/../b/", "/b")],
)
def test_locations(uri: str, path: str) -> None:
    assert str(locate(uri)) == path


@pytest.mark.parametrize(
    "uri", ["", "s3://bucket/g", "file://host/a", "file:a", "file:///a%00b", "/a\0b", "https://x/y"]
)
def test_other_locations_are_refused(uri: str) -> None:
    with pytest.raises(GitopsError) as failure:
        locate(uri)
    assert failure.value.code == "graph_unreadable"


@pytest.fixture
def history_of_verify(tmp_path: Path) -> History:
    made = History(str(tmp_path / "g.omni"))
    rows = {"node:Person": [person("a", 1, "m@x"), person("b", 2)], "node:Town": [town("x")]}
    made.put("main", {**rows, "edge:Lives": [lives("l", "a", "x")], "edge:Knows": [knows("k", "a", "b")]})
    made.people("main", c=3)
    create_branch(made.uri, "dev", made.work())
    made.people("dev", d=4)
    return made


def codes(history: History, *, deep: bool = False) -> list[str]:
    return [finding.code.value for finding in verify_graph(history.uri, deep=deep).findings]


def test_a_whole_graph_has_no_findings(history_of_verify: History) -> None:
    report = verify_graph(history_of_verify.uri, deep=True)
    assert report.ok
    assert report.to_json() == {"deep": True, "manifests": 5, "table_versions": 10, "findings": []}


def edit(history: History, n: int, change: Callable[[dict[str, Any]], Any], *, seal: bool = True) -> None:
    path = Path(history.uri) / layout.manifest_key(n)
    form = json.loads(path.read_bytes())
    change(form)
    path.write_text(json.dumps(sealed(form) if seal else form), encoding="utf-8")


def _entry(**changes: Any) -> Callable[[History], None]:
    def damage(history: History) -> None:
        edit(history, 3, lambda form: form["tables"]["node:Person"].update(changes))

    return damage


def _remove_schema(history: History) -> None:
    (Path(history.uri) / layout.ir_key(history.at().manifest.schema_ir)).unlink()


def _edit_schema(history: History) -> None:
    path = Path(history.uri) / layout.source_key(history.at().manifest.schema_source)
    path.write_bytes(path.read_bytes() + b" ")


def _remove_table(history: History) -> None:
    shutil.rmtree(Path(history.uri) / history.at().manifest.tables["edge:Knows"].path)


def _remove_data(history: History) -> None:
    """One file with rows of a table: the driver counts rows without it."""
    next((Path(history.uri) / history.at().manifest.tables["node:Town"].path).glob("data/*")).unlink()


def _remove_branch_versions(history: History) -> None:
    shutil.rmtree(Path(history.uri) / layout.manifests(history.at("dev").line.id))


def _write(key: str, data: bytes) -> Callable[[History], None]:
    def damage(history: History) -> None:
        path = Path(history.uri) / key
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    return damage


DAMAGES: dict[str, tuple[Callable[[History], None], set[str]]] = {
    "a manifest that is cut short": (_write(layout.manifest_key(2), b"{"), {"manifest_unreadable"}),
    "a manifest that was changed": (
        lambda history: edit(history, 2, lambda form: form.update(actor="eve"), seal=False),
        {"manifest_unreadable"},
    ),
    "a manifest that vanished": (
        lambda history: (Path(history.uri) / layout.manifest_key(2)).unlink(),
        {"version_missing"},
    ),
    "the first manifest vanished": (
        lambda history: (Path(history.uri) / layout.manifest_key(1)).unlink(),
        {"version_missing"},
    ),
    "a parent that is another commit": (
        lambda history: edit(history, 3, lambda form: form["parent"].update(commit="0" * 26)),
        {"parent_mismatch"},
    ),
    "a schema that vanished": (_remove_schema, {"schema_damaged"}),
    "a schema of other bytes": (_edit_schema, {"schema_damaged"}),
    "a table too few": (
        lambda history: edit(history, 3, lambda form: form["tables"].pop("edge:Knows")),
        {"tables_mismatch"},
    ),
    "a table that vanished": (_remove_table, {"table_unreadable"}),
    "a file of a table that vanished": (_remove_data, {"table_unreadable"}),
    "a version of a table that is not there": (_entry(version=99), {"table_unreadable"}),
    "another number of rows": (_entry(rows=9), {"rows_mismatch"}),
    "other columns": (_entry(fields={"id": 0}), {"columns_mismatch"}),
    "a branch without versions": (_remove_branch_versions, {"branch_without_version"}),
    "a list of branches that does not read": (
        _write(layout.BRANCH_INDEX, b"{}"),
        {"document_unreadable", "unreferenced"},
    ),
    "a floor that does not read": (_write(layout.floor_key("main"), b"{}"), {"document_unreadable"}),
    "a lease that does not read": (_write(layout.lease_key("0" * 26), b"{}"), {"document_unreadable"}),
    "a schema too many": (_write(layout.source_key("f" * 64), b""), {"unreferenced"}),
    "a table too many": (_write(f"nodes/{'0' * 26}.lance/x", b""), {"unreferenced"}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found_under_its_code(history_of_verify: History, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(history_of_verify)
    report = verify_graph(history_of_verify.uri)
    assert {finding.code.value for finding in report.findings} == expected
    assert report.ok == (expected == {"unreferenced"})


def _unreadable_or_nodes(form: dict[str, Any]) -> None:
    form.clear()


def test_a_graph_whose_newest_version_does_not_read_is_refused(history_of_verify: History) -> None:
    edit(history_of_verify, 3, _unreadable_or_nodes)
    with pytest.raises(GitopsError) as failure:
        verify_graph(history_of_verify.uri)
    assert failure.value.code == "graph_unreadable"


VERIFY_BROKEN: dict[str, tuple[dict[str, list[dict[str, Any]]], list[str]]] = {
    "an end that does not exist": ({"edge:Knows": [knows("bad", "a", "zz")]}, ["OrphanEdge"]),
    "two ends that do not exist": ({"edge:Knows": [knows("bad", "yy", "zz")]}, ["OrphanEdge", "OrphanEdge"]),
    "too many edges": ({"edge:Lives": [lives("bad", "a", "x")]}, ["CardinalityViolation"]),
    "a unique value twice": ({"node:Person": [person("bad", 1, "m@x")]}, ["UniqueViolation", "UniqueViolation"]),
    "a value out of range": ({"node:Person": [person("bad", 151)]}, ["ValueConstraintViolation"]),
    "an id that the key does not make": (
        {"node:Town": [{"id": "bad", "name": "good"}]},
        ["ValueConstraintViolation"],
    ),
}


@pytest.mark.parametrize("name", VERIFY_BROKEN)
def test_a_broken_rule_is_found_by_a_deep_look(history_of_verify: History, name: str) -> None:
    rows, kinds = VERIFY_BROKEN[name]
    history_of_verify.put("dev", rows)
    assert codes(history_of_verify) == []
    found = verify_graph(history_of_verify.uri, deep=True).findings
    assert [finding.code.value for finding in found] == ["rule_broken"] * len(kinds)
    assert [finding.detail.partition(":")[0] for finding in found] == kinds
    assert all(finding.path.startswith("dev/") for finding in found)


def test_an_id_twice_is_found_by_a_deep_look(history_of_verify: History) -> None:
    from gitops.database.graph.tables import arrow_table

    base = history_of_verify.at()
    declared = base.schema().catalog.nodes["Town"]
    table = arrow_table(declared, {"id": ["x"], "name": ["x"]})
    history_of_verify.put_table("main", "node:Town", lambda dataset: dataset.insert(table))
    assert "rule_broken" in codes(history_of_verify, deep=True)


def test_bounds_are_compared_exactly_at_the_ends_of_every_kind(tmp_path: Path) -> None:
    schema = b"""node N { k: String @key  u: U64? @range(u, 1..)  v: U64? @range(v, -1..)  i: I64? @range(i, ..5)
      f: F32? @range(f, 0.5..)  w: U32? @range(w, ..7) }"""
    history = History(str(tmp_path / "g.omni"), schema)
    whole = {"id": "a", "k": "a", "u": 2**64 - 1, "v": 2**64 - 1, "i": -(2**63), "f": 3.0e38, "w": 0}
    history.put("main", {"node:N": [whole]})
    assert verify_graph(history.uri, deep=True).ok
    history.put("main", {"node:N": [{"id": "b", "k": "b", "u": 0, "i": 6, "f": 0.25, "w": 2**32 - 1}]})
    found = [finding.detail for finding in verify_graph(history.uri, deep=True).findings]
    assert sorted(text.partition("N.")[2][0] for text in found) == ["f", "i", "u", "w"]


REPLICA_EAGER = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)
BUSY = (0, 1, 3, 6, 10, 15, 21, 28)
"""The steps of a copy at which the source makes a version; more of them, and there would be ever more to copy."""

Image = dict[str, list[dict[str, object]]]


def copied(source: Path, target: Path) -> Iterator[None]:
    """Copy file by file in the order of the page; between any two of them others may act."""
    aside = {
        name: name.read_bytes() for name in (source / "branches/index.json", *source.glob("floors/*")) if name.is_file()
    }
    manifests = [*source.glob("manifests/*.json"), *source.glob("branches/*/manifests/*.json")]
    yield
    for folder in ("nodes", "edges", "schema"):
        for file in sorted((source / folder).rglob("*")):
            if file.is_file():
                yield from _copied(file, target / file.relative_to(source))
    for file in sorted(manifests):
        yield from _copied(file, target / file.relative_to(source))
    for file, data in aside.items():
        _write_of_replica(target / file.relative_to(source), data)
        yield
    yield from _copied(source / "graph.json", target / "graph.json")


def _copied(file: Path, target: Path) -> Iterator[None]:
    if not target.exists() or target.stat().st_size != file.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target.with_name(f".{target.name}"))
        target.with_name(f".{target.name}").rename(target)
        yield


def _write_of_replica(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


class Busy:
    """A source that makes another version, of another kind, whenever it is asked to, and remembers all of them."""

    def __init__(self, place: Path) -> None:
        self.history = History(str(place))
        self.images: dict[tuple[str, int], Image] = {}
        self._turn = 0
        self.history.people("main", ann=1)
        self.note("main")

    def note(self, branch: str) -> None:
        self.images[branch, self.history.at(branch).manifest.n] = self.history.image(branch)

    def act(self) -> None:
        self._turn += 1
        turn, branch = self._turn, "trial" if self._turn > 6 and self._turn % 2 else "main"
        if turn == 5:
            create_branch(self.history.uri, "trial", self.history.work(), ReadTarget())
            branch = "trial"
        elif turn % 7 == 0:
            optimize_tables(self.history.uri, self.history.work(), options=REPLICA_EAGER, branch=branch)
        elif turn % 3 == 0:
            self.history.put(branch, {"edge:Knows": [knows(f"k{turn}", "ann", "ann")]})
        else:
            self.history.people(branch, **{f"p{turn}": turn, "ann": turn})
        self.note(branch)


def check(replica: Path, source: Busy) -> None:
    """What the replica shows of a branch is what the source showed at that version."""
    seen = History(str(replica), b"")
    for branch in ("main", *read_branches(seen.at().store).branches):
        assert seen.image(branch) == source.images[branch, seen.at(branch).manifest.n]


def test_a_copy_in_order_opens_at_a_whole_version_whatever_the_source_does(tmp_path: Path) -> None:
    source, replica = Busy(tmp_path / "g.omni"), tmp_path / "replica.omni"
    for step, _ in enumerate(copied(tmp_path / "g.omni", replica)):
        if step in BUSY:
            source.act()
        if not (replica / "graph.json").exists():
            with pytest.raises(GitopsError):
                History(str(replica), b"").at()
    check(replica, source)
    first = History(str(replica), b"").at().manifest.n
    for _ in range(3):
        for step, _ in enumerate(copied(tmp_path / "g.omni", replica)):
            if step in BUSY:
                source.act()
                check(replica, source)
        check(replica, source)
    assert History(str(replica), b"").at().manifest.n > first
    assert set(read_branches(History(str(replica), b"").at().store).branches) == {"trial"}
    report = verify_graph(str(replica), deep=True)
    assert [each for each in report.findings if each.code is not VerifyFindingCode.UNREFERENCED] == []


def test_a_copy_that_takes_tables_first_and_lists_versions_after_is_none(tmp_path: Path) -> None:
    source = Busy(tmp_path / "g.omni")
    replica = tmp_path / "replica.omni"
    for folder in ("nodes", "edges", "schema"):
        shutil.copytree(tmp_path / "g.omni" / folder, replica / folder)
    source.act()
    shutil.copytree(tmp_path / "g.omni/manifests", replica / "manifests")
    shutil.copy(tmp_path / "g.omni/graph.json", replica)
    with pytest.raises(GitopsError):
        History(str(replica), b"").image()
