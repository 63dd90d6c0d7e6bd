"""Adjacencies: the same edges as the table has, kept in a private file that is believed only if it is as it was written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.graph.query import ReadCache, Strategy
from gitops.database.graph.query.adjacency import Adjacency, AdjacencyFolder, NodeNumbering
from gitops.database.graph.query.cache import adjacency_name
from gitops.database.graph.query.options import Budget
from gitops.database.graph.snapshot import Snapshot, open_snapshot
from tests.support.effort import cases
from tests.support.query_graphs import ask, put, road, town, towns, values

FREE = Budget(None, None)
PAIRS = [(0, 1), (0, 1), (1, 2), (2, 2), (3, 0), (2, 0), (4, 4)]
NEXT = 'query q() { match { $t: Town {key: "t0"} $t road{1,3} $u } return { $u.key } order { $u.key } }'
KEY = "k" * 64


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), 6, PAIRS)


@pytest.fixture(scope="module")
def adjacency(graph: str) -> Adjacency:
    snapshot, cache = open_snapshot(graph), ReadCache()
    node, edge = cache.table(snapshot, "node:Town"), cache.table(snapshot, "edge:Road")
    return cache.adjacency(adjacency_name(snapshot, edge.key, node.key, node.key), edge, (node, node), FREE, None)


def pairs(adjacency: Adjacency, *, out: bool = True) -> list[tuple[int, int]]:
    half = adjacency.out if out else adjacency.into
    near, far = (adjacency.sources, adjacency.targets) if out else (adjacency.targets, adjacency.sources)
    every = np.arange(len(half.offsets) - 1)
    origins, places = half.steps(every)
    return sorted(zip(near.row_ids(origins).tolist(), far.row_ids(half.nodes[places]).tolist(), strict=True))


def test_every_edge_is_there_in_both_directions(adjacency: Adjacency) -> None:
    assert pairs(adjacency) == sorted(PAIRS)
    assert pairs(adjacency, out=False) == sorted((b, a) for a, b in PAIRS)


@given(st.sets(st.integers(0, 10**9), max_size=30))
def test_positions_and_row_ids_are_each_others_inverse(ids: set[int]) -> None:
    rows = np.array(sorted(ids), np.int64)
    numbering = NodeNumbering.of(rows)
    assert numbering.row_ids(numbering.positions(rows)).tolist() == rows.tolist()
    assert len(rows) == 0 or int(numbering.positions(rows).max()) < numbering.count


def test_it_comes_back_as_it_was_written(tmp_path: Path, adjacency: Adjacency) -> None:
    folder = AdjacencyFolder(tmp_path)
    assert folder.read(KEY) is None
    folder.write(KEY, adjacency)
    again = folder.read(KEY)
    assert again is not None
    assert pairs(again) == sorted(PAIRS)
    assert pairs(again, out=False) == pairs(adjacency, out=False)
    assert (tmp_path / "adjacency").stat().st_mode & 0o777 == 0o700
    assert folder.read("j" * 64) is None


def written(tmp_path: Path, adjacency: Adjacency) -> Path:
    AdjacencyFolder(tmp_path).write(KEY, adjacency)
    (path,) = (tmp_path / "adjacency").iterdir()
    return path


@settings(max_examples=cases(200), deadline=None)
@given(data=st.data())
def test_one_changed_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, adjacency: Adjacency, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    path = written(folder, adjacency)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    found = AdjacencyFolder(folder).read(KEY)
    # The space between arrays carries nothing: a change there is the only one that may go unnoticed.
    assert found is None or (pairs(found), pairs(found, out=False)) == (pairs(adjacency), pairs(adjacency, out=False))


@pytest.mark.parametrize("keep", [0, 5, 20, 100, -1])
def test_a_file_cut_short_is_no_file(tmp_path: Path, adjacency: Adjacency, keep: int) -> None:
    path = written(tmp_path, adjacency)
    path.write_bytes(path.read_bytes()[:keep])
    assert AdjacencyFolder(tmp_path).read(KEY) is None


def test_a_file_under_another_name_is_no_file(tmp_path: Path, adjacency: Adjacency) -> None:
    path = written(tmp_path, adjacency)
    path.rename(path.with_name("j" * 64 + ".csr"))
    assert AdjacencyFolder(tmp_path).read("j" * 64) is None


@pytest.mark.parametrize("open_to", [0o720, 0o702, 0o777])
def test_what_others_may_write_is_not_believed(tmp_path: Path, adjacency: Adjacency, open_to: int) -> None:
    path = written(tmp_path, adjacency)
    path.chmod(open_to)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    path.chmod(0o600)
    assert AdjacencyFolder(tmp_path).read(KEY) is not None
    path.parent.chmod(open_to)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    AdjacencyFolder(tmp_path).write("j" * 64, adjacency)
    assert len(list(path.parent.iterdir())) == 1, "nothing is put into a folder that others may write"


def test_links_are_not_followed(tmp_path: Path, adjacency: Adjacency) -> None:
    path = written(tmp_path, adjacency)
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to(tmp_path / "moved")
    assert AdjacencyFolder(tmp_path).read(KEY) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_file_of_somebody_else_is_not_believed(tmp_path: Path, adjacency: Adjacency) -> None:
    path = written(tmp_path, adjacency)
    os.chown(path, 12345, 12345)
    assert AdjacencyFolder(tmp_path).read(KEY) is None
    os.chown(path, 0, 0)
    os.chown(path.parent, 12345, 12345)
    assert AdjacencyFolder(tmp_path).read(KEY) is None


def test_the_folder_stays_within_its_bound(tmp_path: Path, adjacency: Adjacency) -> None:
    size = written(tmp_path, adjacency).stat().st_size
    folder = AdjacencyFolder(tmp_path, max_bytes=3 * size)
    folder.write("a" * 64, adjacency)
    folder.write("b" * 64, adjacency)
    for age, path in enumerate(sorted((tmp_path / "adjacency").iterdir())):
        os.utime(path, ns=(age, age))
    assert folder.read("a" * 64) is not None
    folder.write("c" * 64, adjacency)
    assert {path.name[0] for path in (tmp_path / "adjacency").iterdir()} == {"a", "k", "c"}, "b was used longest ago"
    AdjacencyFolder(tmp_path, max_bytes=10).write("d" * 64, adjacency)
    assert not (tmp_path / "adjacency" / ("d" * 64 + ".csr")).exists(), "what never fits is not kept"


def test_no_place_for_files_is_no_error(tmp_path: Path, graph: str) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert values(ask(graph, NEXT, strategy=Strategy.CSR, cache_dir=blocked)) == ["t1", "t2"]


def test_a_damaged_file_is_made_anew_and_another_version_has_its_own(tmp_path: Path, graph: str) -> None:
    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "cache" / "adjacency").iterdir()}

    own = towns(str(tmp_path / "own.omni"), 6, PAIRS)

    def asked(where: str | Snapshot) -> list[str]:
        return values(ask(where, NEXT, strategy=Strategy.CSR, cache_dir=tmp_path / "cache"))

    assert asked(own) == ["t1", "t2"]
    ((name, content),) = kept().items()
    (tmp_path / "cache" / "adjacency" / name).write_bytes(content[:-8] + bytes(8))
    assert asked(own) == ["t1", "t2"]
    assert kept() == {name: content}
    old = open_snapshot(own)
    put(own, [town("t6"), road("t2", "t6")], start=300_000)
    assert asked(own) == ["t1", "t2", "t6"]
    assert asked(old) == ["t1", "t2"]
    assert len(kept()) == 2
    assert not any(path.suffix == ".csr" for path in Path(own).rglob("*")), "nothing is kept in the root of a graph"
