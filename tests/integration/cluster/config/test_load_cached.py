"""What a load with a cache reads and compiles, and each way in which a folder can have changed since."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.config import compiler
from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.sound import (
    ComparedFolder,
    LedgerGraphs,
    PlainFolder,
    SoundRecord,
    VouchedGraphs,
    sound_record,
)
from gitops.cluster.config.source import MemoryTree, SourceLimits, SourceMovedError
from gitops.cluster.ledger.documents import read_sound, write_sound
from gitops.cluster.model.address import Address, graph_address, query_address
from gitops.core.codes import Code
from gitops.database.language import query
from tests.support.declared_hosts import host_files
from tests.support.warm import cold, difference, shown, warm

PG = b"node Person {\n  name: String @key\n  age: I32?\n}\n"
NARROW = b"node Person {\n  name: String @key\n}\n"
LATER_NS = 10_000_000_000


def gq(*names: str, of: str = "age") -> bytes:
    return "".join(f"query {name}() {{ match {{ $p: Person }} return {{ $p.{of} }} }}\n" for name in names).encode()


def document(storage: str | None = None, **graphs: object) -> bytes:
    forms = {
        name: queries if isinstance(queries, dict) and "schema" in queries else {"schema": "s.pg", "queries": queries}
        for name, queries in graphs.items()
    }
    policies = {"p": {"file": "rules/p.yaml", "applies_to": ["h", "g"]}}
    head = {"version": 1} | ({"storage": storage} if storage else {})
    return json.dumps(head | {"graphs": forms, "policies": policies}).encode()


FILES = {
    "cluster.yaml": document(
        g=["q", "x.gq"], h={"one": {"file": "r/many.gq"}, "two": {"file": "r/many.gq"}}, i="q/deep"
    ),
    "s.pg": PG,
    "q/a.gq": gq("a"),
    "q/b.gq": gq("b", "bb"),
    "q/deep/c.gq": gq("c"),
    "q/note.txt": b"not a query",
    "x.gq": gq("x", of="name"),
    "r/many.gq": gq("one", "two", "three"),
    "rules/p.yaml": b"version: 1\nrules: []\n",
}


class Watched(MemoryTree):
    """Says which files were read."""

    read_paths: list[str]

    def read(self, path: str) -> bytes:
        self.read_paths.append(path)
        return super().read(path)

    def reopened(self) -> Watched:
        again = Watched(self._given, refused=self._refused, limits=self.limits)
        again.read_paths = self.read_paths
        return again


def read_by(files: dict[str, bytes], cache: MemoryCache) -> list[str]:
    """The files that a load reads, not counting what its result is asked for afterwards."""
    tree = Watched(files)
    tree.read_paths = []
    load_desired(tree, hints=Hints(tree, cache))
    return sorted(tree.read_paths)


@pytest.fixture
def cache() -> MemoryCache:
    """What a first load leaves."""
    kept = MemoryCache()
    assert warm(MemoryTree(FILES), kept) == cold(MemoryTree(FILES))
    return kept


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The query files that are parsed from here on."""
    seen: list[bytes] = []
    original = query.parse_queries

    def noting(text: bytes) -> object:
        seen.append(text)
        return original(text)

    monkeypatch.setattr(query, "parse_queries", noting)
    return seen


def test_nothing_changed_reads_one_file_and_compiles_nothing(cache: MemoryCache, compiled: list[bytes]) -> None:
    assert read_by(FILES, cache) == ["cluster.yaml"]
    assert compiled == []


def test_the_dependencies_of_kept_graphs_are_made_when_they_are_asked_for(cache: MemoryCache) -> None:
    found, expected = (
        load_desired(MemoryTree(FILES), hints=each).dependencies for each in (Hints(MemoryTree(FILES), cache), None)
    )
    assert (len(found), tuple(found)) == (len(expected), expected)
    first = next(iter(found))
    assert first in found
    assert (first.target, first.source) not in found


def test_one_edited_query_is_read_and_compiled_alone(cache: MemoryCache, compiled: list[bytes]) -> None:
    files = {**FILES, "q/a.gq": gq("a") + b"\n"}
    # The schema is needed to check it.
    assert read_by(files, cache) == ["cluster.yaml", "q/a.gq", "s.pg"]
    assert compiled == [files["q/a.gq"]]
    assert read_by(files, cache) == ["cluster.yaml", "q/a.gq"]
    assert compiled == [files["q/a.gq"]]


def test_going_back_compiles_nothing(cache: MemoryCache, compiled: list[bytes]) -> None:
    files = {**FILES, "s.pg": PG + b"\n"}
    read_by(files, cache)
    assert len(compiled) == 5
    read_by(FILES, cache)
    read_by(files, cache)
    assert len(compiled) == 5


def test_reordering_the_document_compiles_nothing(cache: MemoryCache, compiled: list[bytes]) -> None:
    value = json.loads(FILES["cluster.yaml"])
    value["graphs"] = dict(reversed(value["graphs"].items()))
    files = {**FILES, "cluster.yaml": b"\n\n" + json.dumps(value, indent=3).encode()}
    assert read_by(files, cache) == ["cluster.yaml"]
    assert compiled == []
    assert warm(MemoryTree(files), cache) == cold(MemoryTree(files))


def dropped(*paths: str) -> dict[str, bytes]:
    return {path: data for path, data in FILES.items() if path not in paths}


CHANGES: dict[str, dict[str, bytes]] = {
    "nothing": FILES,
    "a query is edited": FILES | {"q/a.gq": gq("a", of="name")},
    "a query breaks": FILES | {"q/a.gq": b"query {"},
    "a query is wrong": FILES | {"q/a.gq": gq("a", of="none")},
    "a query is no text": FILES | {"q/a.gq": b"\xff"},
    "a query file is added": FILES | {"q/new.gq": gq("new")},
    "a query is declared again elsewhere": FILES | {"q/new.gq": gq("a")},
    "a query is declared twice in a file": FILES | {"q/a.gq": gq("a", "a")},
    "a query has another name": FILES | {"q/a.gq": gq("z")},
    "a query has a name that is none": FILES | {"q/a.gq": gq("a").replace(b"query a", b"query a__b")},
    "a query file is empty": FILES | {"q/a.gq": b""},
    "a query file is gone": dropped("q/a.gq"),
    "the only file of a folder is gone": dropped("q/deep/c.gq"),
    "a folder is gone": dropped("q/a.gq", "q/b.gq", "q/deep/c.gq", "q/note.txt"),
    "another file is added": FILES | {"q/more.txt": b""},
    "the schema is edited": FILES | {"s.pg": PG + b"\n"},
    "the schema does without what queries use": FILES | {"s.pg": NARROW},
    "the schema breaks": FILES | {"s.pg": b"node {"},
    "the schema is gone": dropped("s.pg"),
    "a listed query is gone from its file": FILES | {"r/many.gq": gq("two", "three")},
    "a listed query is there twice": FILES | {"r/many.gq": gq("one", "one", "two")},
    "an unlisted query is wrong": FILES | {"r/many.gq": gq("one", "two") + gq("three", of="none")},
    "a policy is edited": FILES | {"rules/p.yaml": b"rules: [1]\n"},
    "a policy has a warning": FILES | {"rules/p.yaml": b"version: 1\nkind: graph\n"},
    "a policy is gone": dropped("rules/p.yaml"),
    "a graph is added": FILES | {"cluster.yaml": document(g=["q", "x.gq"], j="x.gq")},
    "a graph lists another file": FILES | {"cluster.yaml": document(g=["q"])},
    "a graph lists a file twice": FILES | {"cluster.yaml": document(g=["x.gq", "./x.gq"])},
    "a graph lists a folder twice": FILES | {"cluster.yaml": document(g=["q", "q/../q"])},
    "a graph lists a folder and a file of it": FILES | {"cluster.yaml": document(g=["q", "q/a.gq"])},
    "a graph lists what is nowhere": FILES | {"cluster.yaml": document(g=["nowhere"])},
    "a graph has a name that is none": FILES | {"cluster.yaml": document(**{"g": "q", "1x": "q/deep"})},
    "a query is listed under another name": FILES | {"cluster.yaml": document(g={"zz": {"file": "x.gq"}})},
    "the storage root is declared": FILES | {"cluster.yaml": document("s3://bucket/part", g="q")},
    "the storage root is none": FILES | {"cluster.yaml": document("ftp://bucket/part", g="q")},
    "the document is empty": FILES | {"cluster.yaml": b""},
    "the document is no YAML": FILES | {"cluster.yaml": b"a: ["},
    "the document is of a later version": FILES | {"cluster.yaml": FILES["cluster.yaml"].replace(b": 1", b": 2")},
    "the document is gone": dropped("cluster.yaml"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_seen_and_so_is_going_back(name: str) -> None:
    kept = MemoryCache()
    for files in (FILES, CHANGES[name], CHANGES[name], FILES, CHANGES[name]):
        assert warm(MemoryTree(files), kept) == cold(MemoryTree(files))


@pytest.mark.parametrize("place", ["q", "q/deep", "q/a.gq", "s.pg", "rules", "rules/p.yaml", "r"])
def test_a_link_that_takes_the_place_of_something_is_refused(cache: MemoryCache, place: str) -> None:
    tree = MemoryTree(FILES, refused={place: "source_symlink"})
    found = warm(tree, cache)
    assert found is not None
    assert found == cold(tree)
    assert "source_symlink" in {d["code"] for d in found["diagnostics"]}


@pytest.mark.parametrize("limits", [SourceLimits(files=5), SourceLimits(total_bytes=300), SourceLimits(file_bytes=50)])
def test_limits_are_those_of_reading_everything(cache: MemoryCache, limits: SourceLimits) -> None:
    tree = MemoryTree(FILES, limits=limits)
    found = warm(tree, cache)
    assert found is not None
    assert found == cold(tree)
    assert "source_too_large" in {d["code"] for d in found["diagnostics"]}


def test_the_content_of_a_shared_file_is_read_once() -> None:
    cache = MemoryCache()
    for names in ("f", "fghijkl"):
        graphs = {name: {"schema": "s.pg", "queries": "q/a.gq"} for name in names}
        document = json.dumps({"version": 1, "graphs": graphs}).encode()
        files = {"cluster.yaml": document, "s.pg": FILES["s.pg"], "q/a.gq": FILES["q/a.gq"]}
        tree = MemoryTree(files, limits=SourceLimits(files=6))
        assert warm(tree, cache) == cold(tree)


# On a disk, where stamps are times.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, data in FILES.items():
        place = tmp_path / "c" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return tmp_path / "c"


def at(folder: Path, *, later: bool = True) -> FolderTree:
    """The folder as it is some time after the last change to it, or at once."""
    newest = max(p.stat().st_ctime_ns for p in [folder, *folder.rglob("*")])
    return FolderTree(folder, confined=True).at(newest + LATER_NS * later)


def test_a_file_that_is_compared_counts_once_against_the_limits(
    folder: Path, cache: MemoryCache, compiled: list[bytes]
) -> None:
    """The content of a file that has just changed is compared with the record, so the file is both kept and read."""
    limits = SourceLimits(files=len(FILES), total_bytes=sum(map(len, FILES.values())))
    newest = max(p.stat().st_ctime_ns for p in [folder, *folder.rglob("*")])
    for _ in range(2):
        compiled.clear()
        tree = FolderTree(folder, confined=True, limits=limits).at(newest)
        load_desired(tree, hints=Hints(tree, cache))
    assert compiled == []


def let_the_clock_of_files_move(folder: Path) -> None:
    """Until what changes now gets another time than what is there: that clock may move in steps of some milliseconds."""
    newest = max(p.stat().st_ctime_ns for p in [folder, *folder.rglob("*")])
    probe = folder.parent / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns <= newest:
        probe.touch()


def edit(folder: Path) -> None:
    (folder / "q/a.gq").write_bytes(gq("z"))


def edit_and_set_back(folder: Path) -> None:
    before = (folder / "q/a.gq").stat()
    edit(folder)
    os.utime(folder / "q/a.gq", ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_in_one_step(folder: Path) -> None:
    (folder / "new").write_bytes(gq("z"))
    (folder / "new").rename(folder / "q/a.gq")


def add(folder: Path) -> None:
    (folder / "q/new.gq").write_bytes(gq("new"))


def touch(folder: Path) -> None:
    os.utime(folder / "q/a.gq")
    os.utime(folder / "q")


def link_a_file(folder: Path) -> None:
    (folder / "q/a.gq").rename(folder / "aside")
    (folder / "q/a.gq").symlink_to("../aside")


def link_a_folder(folder: Path) -> None:
    (folder / "q").rename(folder / "aside")
    (folder / "q").symlink_to("aside")


def link_the_folder_of_a_policy(folder: Path) -> None:
    (folder / "rules").rename(folder / "aside")
    (folder / "rules").symlink_to("aside")


def make_a_submodule(folder: Path) -> None:
    (folder / "q/.git").write_text("gitdir: elsewhere\n")


def put_a_folder_there(folder: Path) -> None:
    (folder / "x.gq").unlink()
    (folder / "x.gq").mkdir()


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        edit,
        edit_and_set_back,
        replace_in_one_step,
        add,
        touch,
        link_a_file,
        link_a_folder,
        link_the_folder_of_a_policy,
        make_a_submodule,
        put_a_folder_there,
    ],
)
def test_every_change_on_a_disk_is_seen(folder: Path, change: Callable[[Path], None], later: bool) -> None:
    kept = MemoryCache()
    for _ in range(2):
        assert warm(at(folder, later=later), kept) == cold(at(folder))
    let_the_clock_of_files_move(folder)
    change(folder)
    for _ in range(2):
        assert warm(at(folder, later=later), kept) == cold(at(folder))


def test_what_is_outside_is_never_declared_also_of_an_unconfined_folder(folder: Path) -> None:
    outside = folder.parent / "out" / "far"
    outside.mkdir(parents=True)
    (outside / "z.gq").write_bytes(gq("z"))
    (folder / "cluster.yaml").write_bytes(document(g=["../out/far"], h=f"{outside}/z.gq"))

    def tree() -> FolderTree:
        return FolderTree(folder, confined=False).at((outside / "z.gq").stat().st_ctime_ns + LATER_NS)

    kept = MemoryCache()
    found = warm(tree(), kept)
    assert found == cold(tree())
    assert found is not None
    assert {d["code"] for d in found["diagnostics"]} == {"source_path_escapes"}


def test_what_changed_a_moment_ago_is_read_again_and_trusted_later(folder: Path) -> None:
    kept = MemoryCache()
    reads: list[str] = []

    class Counting(FolderTree):
        def read(self, path: str) -> bytes:
            reads.append(path)
            return super().read(path)

    def load(now_ns: int) -> int:
        tree = Counting(folder, confined=True)
        tree._now_ns = now_ns
        reads.clear()
        load_desired(tree, hints=Hints(tree, kept))
        return len(reads)

    now = max(p.stat().st_ctime_ns for p in folder.rglob("*"))
    everything = load(now)
    assert load(now) == everything == len(FILES) - 1
    kept.entries = {name: data for name, data in kept.entries.items() if not name.startswith("index")}
    assert load(now + LATER_NS) == everything
    assert load(now + LATER_NS) == 1


def test_a_file_that_changes_under_a_load_is_noticed_when_it_is_looked_at(folder: Path) -> None:
    kept = MemoryCache()
    assert warm(at(folder), kept) is not None
    result = load_desired(at(folder), hints=Hints(at(folder), kept))
    assert result.desired is not None
    let_the_clock_of_files_move(folder)
    (folder / "q/a.gq").write_bytes(gq("z"))
    with pytest.raises(SourceMovedError):
        result.resources[query_address("g", "a")].content  # noqa: B018
    with pytest.raises(SourceMovedError):
        result.desired.graphs["g"]
    assert "query.i.c" in result.resources
    assert list(result.desired.graphs["i"].queries) == ["c"]


COMPILER, NEWER = "c" * 64, "d" * 64
PLAIN = ComparedFolder(PlainFolder("1" * 40, 1))
Folder = dict[str, bytes]


class VouchedWatched(MemoryTree):
    """Says which files were read."""

    seen: list[str]

    def read(self, path: str) -> bytes:
        self.seen.append(path)
        return super().read(path)


@pytest.fixture(scope="module")
def applied() -> tuple[SoundRecord, Mapping[Address, str]]:
    """What an entry holds after an apply of FILES."""
    tree = MemoryTree(FILES)
    loaded = load_desired(tree, VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN))
    assert sorted(loaded.sound) == ["g", "h", "i"]
    digests = loaded.digests()
    return sound_record(
        VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN), loaded.sound, digests, digests
    ), digests


def read_vouched(
    files: Folder,
    applied: tuple[SoundRecord, Mapping[Address, str]],
    *,
    compiled_by: str = COMPILER,
    refused: Mapping[str, Code] | None = None,
    limits: SourceLimits | None = None,
) -> list[str]:
    """The files that a load reads, whether or not the folder was compared with the applied one.

    Its result is that of a load of all files, whatever was asked of it.
    """
    reads = []
    for compared in (PLAIN, ComparedFolder(PLAIN.plain, difference(FILES, {**files, **(refused or {})}))):
        tree = VouchedWatched(files, refused=refused or {}, limits=limits)
        tree.seen = []
        found = load_desired(tree, VouchedGraphs(tree, compiled_by, LedgerGraphs(*applied), compared))
        reads.append(sorted(tree.seen))
        assert shown(found) == shown(load_desired(MemoryTree(files, refused=refused or {}, limits=limits)))
    assert reads[0] == reads[1]
    return reads[0]


ALWAYS = ["cluster.yaml", "rules/p.yaml"]
OF_G, OF_H, OF_I = ["q/a.gq", "q/b.gq", "s.pg", "x.gq"], ["r/many.gq", "s.pg"], ["q/deep/c.gq", "s.pg"]


def test_an_unchanged_folder_is_neither_read_nor_compiled(
    applied: tuple[SoundRecord, Mapping[Address, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = VouchedWatched(FILES)
    tree.seen = []
    monkeypatch.setattr(query, "parse_queries", None)
    monkeypatch.setattr(compiler, "compile_schema", None)
    loaded = load_desired(tree, VouchedGraphs(tree, COMPILER, LedgerGraphs(*applied), PLAIN))
    assert sorted(tree.seen) == ALWAYS
    assert loaded.sound == applied[0].graphs
    assert loaded.desired is not None
    assert loaded.digests() == applied[1]


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({"x.gq": gq("x")}, OF_G),
        ({"r/many.gq": gq("one", "two")}, OF_H),
        ({"s.pg": NARROW}, [*OF_G, *OF_H, *OF_I]),
        # A file that nothing declares, in a folder that a graph lists.
        ({"q/note.txt": b"other"}, OF_G),
        ({"README.md": b"nothing of a graph"}, []),
        ({"q/c.gq": gq("cc")}, [*OF_G, "q/c.gq"]),
        ({"q/deep/d.gq": gq("d")}, [*OF_G, *OF_I, "q/deep/d.gq"]),
        ({"q/b.gq": None}, ["q/a.gq", "s.pg", "x.gq"]),
        ({"x.gq": None, "X.gq": gq("x", of="name")}, OF_G),
        ({"q/A.gq": gq("other")}, ["s.pg", "x.gq"]),
        ({"r/many.gq": None, "r/many.gq/one.gq": gq("one")}, OF_H),
        ({"cluster.yaml": document(g=["q", "x.gq"], h={"one": {"file": "r/many.gq"}}, i="q/deep")}, OF_H),
        ({"cluster.yaml": document(g=["x.gq", "q"], h={}, i="q/deep")}, [*OF_G, "s.pg"]),
        ({"cluster.yaml": document(g=["q", "x.gq"], i="q/../q/deep")}, OF_I),
        ({"cluster.yaml": document(i="../cluster/q/deep")}, ["s.pg"]),
        ({"cluster.yaml": document(i="/q/deep", I="q/deep")}, None),
        ({"cluster.yaml": document(i="q/dee\u202ep")}, ["s.pg"]),
        ({"cluster.yaml": b'version: 1\ngraphs:\n  i: {schema: s.pg, queries: "q/\\ud800"}\n'}, None),
        ({"cluster.yaml": document(other=["q", "x.gq"])}, OF_G),
    ],
)
def test_what_a_change_reads(
    applied: tuple[SoundRecord, Mapping[Address, str]], change: dict[str, bytes | None], read: list[str] | None
) -> None:
    files = {path: data for path, data in {**FILES, **change}.items() if data is not None}
    seen = read_vouched(files, applied)
    if read is not None:
        there = {path for path in read if path in files or path in FILES}
        assert [path for path in seen if path not in ALWAYS] == sorted(there)


def test_a_restore_is_what_the_folder_declares_and_not_what_the_entry_has() -> None:
    declared = json.loads(FILES["cluster.yaml"]) | {"restores": {"g": {"version": 2, "types": ["Person"]}}}
    restoring = {**FILES, "cluster.yaml": json.dumps(declared).encode()}
    tree = MemoryTree(restoring)
    loaded = load_desired(tree, VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN))
    entry = SoundRecord(COMPILER, PLAIN.plain, loaded.sound), loaded.digests()
    assert "restore.g" in entry[1]
    other = {**restoring, "cluster.yaml": restoring["cluster.yaml"].replace(b'"version": 2', b'"version": 3')}
    for files in (FILES, restoring, other):
        assert read_vouched(files, entry) == ALWAYS


def test_a_link_on_the_way_is_refused_as_ever(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    for path in ("q", "q/a.gq", "q/deep", "s.pg", "r"):
        read_vouched(FILES, applied, refused={path: Code.SOURCE_SYMLINK})


def test_another_compiler_believes_nothing(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    assert read_vouched(FILES, applied, compiled_by=NEWER) == sorted({*ALWAYS, *OF_G, *OF_H, *OF_I})


def test_near_a_limit_everything_is_read(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    read_vouched(FILES, applied, limits=SourceLimits(files=4))
    read_vouched(FILES, applied, limits=SourceLimits(total_bytes=500))
    read_vouched(FILES, applied, limits=SourceLimits(file_bytes=40))


def test_a_graph_with_a_warning_is_never_vouched_for() -> None:
    # A broken schema leaves its queries unchecked.
    tree = MemoryTree({**FILES, "x.gq": gq("x", of="nothing")})
    assert "g" not in load_desired(tree, VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN)).sound


@pytest.mark.parametrize("lie", ["digest of another graph", "other state", "query too many", "no state", "own digest"])
def test_a_record_that_does_not_fit_is_not_believed(
    applied: tuple[SoundRecord, Mapping[Address, str]], lie: str
) -> None:
    record, digests = applied
    if lie == "digest of another graph":
        graphs = {**record.graphs, "g": record.graphs["i"], "i": record.graphs["g"]}
        assert read_vouched(FILES, (replace(record, graphs=graphs), digests)) == sorted({*ALWAYS, *OF_G, *OF_I})
        return
    changed = {
        "other state": {**digests, query_address("g", "a"): "0" * 64},
        "query too many": {**digests, query_address("g", "more"): "0" * 64},
        "no state": {address: value for address, value in digests.items() if address.graph != "g"},
        "own digest": {**digests, graph_address("g"): "0" * 64},
    }[lie]
    assert read_vouched(FILES, (record, changed)) == sorted({*ALWAYS, *OF_G})


def test_a_false_record_with_the_right_digest_is_found_when_the_graph_is_needed() -> None:
    """Only the holder of a ledger key could sign one: the texts of such a graph cannot be had from the folder."""
    tree = MemoryTree(FILES)
    honest = load_desired(tree, VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN))
    other = {**FILES, "x.gq": gq("x")}
    false = load_desired(MemoryTree(other), None).digests()
    ledger = VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN)
    of_g = {address: value for address, value in false.items() if address.graph == "g"}
    form = {"schema": "s.pg", "queries": ["q", "x.gq"]}
    forged = honest.sound["g"]._replace(digest=ledger.digest("g", form, of_g) or "")
    loaded = load_desired(
        tree,
        VouchedGraphs(tree, COMPILER, LedgerGraphs(SoundRecord(COMPILER, PLAIN.plain, {"g": forged}), false), PLAIN),
    )
    with pytest.raises(SourceMovedError):
        _ = loaded.resources[query_address("g", "x")].content


def test_a_compared_folder_is_asked_for_no_id(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    class Silent(VouchedWatched):
        def object_id(self, place: str) -> str | None:
            raise AssertionError(place)

    record, digests = applied
    assert read_sound(write_sound(record)) == record
    tree = Silent(FILES)
    tree.seen = []
    ledger = LedgerGraphs(read_sound(write_sound(record)), digests)
    found = load_desired(
        tree, VouchedGraphs(tree, COMPILER, ledger, ComparedFolder(PLAIN.plain, difference(FILES, FILES)))
    )
    assert (sorted(tree.seen), found.digests()) == (ALWAYS, digests)


def test_a_graph_whose_change_is_not_applied_is_left_out_of_the_record(
    applied: tuple[SoundRecord, Mapping[Address, str]],
) -> None:
    """The state keeps what was applied before: it must not be taken for what the folder has."""
    record, digests = applied
    tree = MemoryTree(FILES)
    vouched = VouchedGraphs(tree, COMPILER, LedgerGraphs(None, {}), PLAIN)
    for behind in (
        {**digests, query_address("g", "a"): "0" * 64},
        {**digests, query_address("g", "zz"): "0" * 64},
        {address: value for address, value in digests.items() if address != query_address("g", "a")},
    ):
        made = sound_record(vouched, record.graphs, digests, behind)
        assert sorted(made.graphs) == ["h", "i"]
        assert read_vouched(FILES, (made, behind)) == sorted({*ALWAYS, *OF_G})


def test_hosts_are_read_again_by_every_load(tmp_path):
    items = "  - package: curl\n  - file: /etc/motd\n    source: motd\n"
    for name, data in {**host_files(items), "motd": b"hello\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    cache, tree = MemoryCache(), FolderTree(tmp_path, confined=False)
    expected = load_desired(tree)
    for _ in range(2):
        found = load_desired(tree, hints=Hints(tree.reopened(), cache))
        assert found.desired is not None
        assert expected.desired is not None
        assert (found.digests(), found.desired.config_digest) == (expected.digests(), expected.desired.config_digest)
        assert list(found.dependencies) == list(expected.dependencies)
    (tmp_path / "hosts" / "base.yaml").write_text("version: 1\nresources: [{package: zsh}]\n")
    changed = load_desired(tree.reopened(), hints=Hints(tree.reopened(), cache))
    assert Address("host.web1.package.zsh") in changed.resources
    (tmp_path / "hosts" / "known_hosts").unlink()
    broken = load_desired(tree.reopened(), hints=Hints(tree.reopened(), cache))
    assert set(broken.diagnostics.codes()) == {"host_key_missing"}
