"""What a load reads where a ledger vouches for graphs, and each way in which a graph can be another one than it vouches for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gitops.cluster.config import compiler
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
from tests.integration.cluster.config.test_load_cached import FILES, NARROW, document, gq
from tests.support.warm import difference, shown

COMPILER, NEWER = "c" * 64, "d" * 64
PLAIN = ComparedFolder(PlainFolder("1" * 40, 1))
Folder = dict[str, bytes]


class Watched(MemoryTree):
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


def read_by(
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
        tree = Watched(files, refused=refused or {}, limits=limits)
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
    tree = Watched(FILES)
    tree.seen = []
    monkeypatch.setattr(compiler, "parse_queries", None)
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
    seen = read_by(files, applied)
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
        assert read_by(files, entry) == ALWAYS


def test_a_link_on_the_way_is_refused_as_ever(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    for path in ("q", "q/a.gq", "q/deep", "s.pg", "r"):
        read_by(FILES, applied, refused={path: Code.SOURCE_SYMLINK})


def test_another_compiler_believes_nothing(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    assert read_by(FILES, applied, compiled_by=NEWER) == sorted({*ALWAYS, *OF_G, *OF_H, *OF_I})


def test_near_a_limit_everything_is_read(applied: tuple[SoundRecord, Mapping[Address, str]]) -> None:
    read_by(FILES, applied, limits=SourceLimits(files=4))
    read_by(FILES, applied, limits=SourceLimits(total_bytes=500))
    read_by(FILES, applied, limits=SourceLimits(file_bytes=40))


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
        assert read_by(FILES, (replace(record, graphs=graphs), digests)) == sorted({*ALWAYS, *OF_G, *OF_I})
        return
    changed = {
        "other state": {**digests, query_address("g", "a"): "0" * 64},
        "query too many": {**digests, query_address("g", "more"): "0" * 64},
        "no state": {address: value for address, value in digests.items() if address.graph != "g"},
        "own digest": {**digests, graph_address("g"): "0" * 64},
    }[lie]
    assert read_by(FILES, (record, changed)) == sorted({*ALWAYS, *OF_G})


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
    class Silent(Watched):
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
        assert read_by(FILES, (made, behind)) == sorted({*ALWAYS, *OF_G})
