"""Adjacencies: one type's edges as compressed sparse rows, for both directions.

Nodes are numbered by position. If row ids are dense (which they are unless most rows were deleted), the position is the
row id. Otherwise it is the index among the sorted row ids. Edges with a missing end are left out. A node's edges are
kept in table order.

Adjacencies are cached between processes by the rules of `cached_files`. A file's name is a digest of its inputs (graph,
tables, versions), so the file is never stale. A file with a modified header, length, checksum or offset counts as
absent, and the adjacency is built again.
"""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.query.bindings import look_up, spread
from gitops.database.graph.query.cached_files import CachedFiles
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.tables import ReadTable, TableRows

MAX_EDGES = 2**31 - 1
_BATCH = 2_000_000
_DENSE = 2
_SPARE = 4096
ARRAYS = ("sources", "targets", "out_offsets", "out_nodes", "out_edges", "in_offsets", "in_nodes", "in_edges")


@dataclass(frozen=True, slots=True)
class NodeNumbering:
    """Positions of a type's nodes. `rows` has the sorted row ids, or is None if positions equal row ids."""

    count: int
    rows: np.ndarray | None

    @classmethod
    def of(cls, row_ids: np.ndarray) -> NodeNumbering:
        """Number these sorted row ids."""
        span = int(row_ids[-1]) + 1 if len(row_ids) else 0
        return cls(span, None) if span <= _DENSE * len(row_ids) + _SPARE else cls(len(row_ids), row_ids)

    def positions(self, row_ids: np.ndarray) -> np.ndarray:
        """Return the positions of existing nodes, given their row ids."""
        return row_ids if self.rows is None else np.searchsorted(self.rows, row_ids)

    def row_ids(self, positions: np.ndarray) -> np.ndarray:
        """Return the row ids at these positions."""
        return positions.astype(np.int64) if self.rows is None else self.rows[positions]


@dataclass(frozen=True)
class HalfAdjacency:
    """One direction: offsets p to p+1 delimit the far ends and row ids of the edges at the node in position p."""

    offsets: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray

    def steps(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays with one item per edge of the nodes: index into `positions`, and the edge's array index."""
        starts = self.offsets[positions]
        return spread(starts, self.offsets[positions + 1] - starts)


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The edges of one type at one version, between two types at their versions."""

    sources: NodeNumbering
    targets: NodeNumbering
    out: HalfAdjacency
    into: HalfAdjacency
    nbytes: int

    @property
    def edges(self) -> int:
        """The number of edges."""
        return len(self.out.nodes)

    def steps(self, nodes: np.ndarray, *, out: bool, budget: Budget) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the nodes' outgoing or incoming edges: the node's index, the far end's row id and the edge's row id.

        Raises the same errors as `Budget.need`.
        """
        half, near, far = self._half(out=out)
        origins, places = half.steps(near.positions(nodes))
        budget.need(places.nbytes * 4, "the neighbours of a step")
        return origins, far.row_ids(half.nodes[places]), half.edges[places]

    def ends(self, node: int, *, out: bool, most: int) -> list[int] | None:
        """Return the row ids at the far ends of a node's outgoing or incoming edges, or None if more than `most`."""
        half, near, far = self._half(out=out)
        place = node if near.rows is None else int(near.rows.searchsorted(node))
        start, stop = half.offsets[place : place + 2].tolist()
        found: list[int] = half.nodes[start : min(stop, start + most + 1)].tolist()
        if len(found) > most:
            return None
        return found if far.rows is None else far.rows[found].tolist()

    def has_any(self, nodes: np.ndarray, *, out: bool, gone: np.ndarray | None = None) -> np.ndarray:
        """Return a mask of the nodes with an outgoing or incoming edge that is not in `gone`."""
        half, near, _ = self._half(out=out)
        degrees = np.diff(half.offsets)
        if gone is not None and len(gone):
            places = np.flatnonzero(np.isin(half.edges, gone))
            degrees -= np.bincount(np.searchsorted(half.offsets, places, side="right") - 1, minlength=len(degrees))
        found: np.ndarray = degrees[near.positions(nodes)] > 0
        return found

    def _half(self, *, out: bool) -> tuple[HalfAdjacency, NodeNumbering, NodeNumbering]:
        """Return one direction, with the node numberings of its near and far ends."""
        return (self.out, self.sources, self.targets) if out else (self.into, self.targets, self.sources)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to store, named as in `ARRAYS`. If the numbering has no row ids, their array is empty."""
        none = np.empty(0, np.int64)
        return {
            "sources": none if self.sources.rows is None else self.sources.rows,
            "targets": none if self.targets.rows is None else self.targets.rows,
            "out_offsets": self.out.offsets,
            "out_nodes": self.out.nodes,
            "out_edges": self.out.edges,
            "in_offsets": self.into.offsets,
            "in_nodes": self.into.nodes,
            "in_edges": self.into.edges,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Adjacency:
        """Create an adjacency from stored arrays. Raises ValueError if they do not match."""
        out = HalfAdjacency(arrays["out_offsets"], arrays["out_nodes"], arrays["out_edges"])
        into = HalfAdjacency(arrays["in_offsets"], arrays["in_nodes"], arrays["in_edges"])
        for half, far in ((out, into), (into, out)):
            count = len(half.offsets) - 1
            whole = count >= 0 and half.offsets[0] == 0 and half.offsets[-1] == len(half.nodes) == len(half.edges)
            if not whole or (count and bool(np.any(np.diff(half.offsets) < 0))):
                raise ValueError("offsets")
            if len(half.nodes) and not 0 <= int(half.nodes.min()) <= int(half.nodes.max()) < len(far.offsets) - 1:
                raise ValueError("nodes")
        numberings = []
        for name, half in (("sources", out), ("targets", into)):
            rows = arrays[name]
            if len(rows) not in (0, len(half.offsets) - 1):
                raise ValueError(name)
            numberings.append(NodeNumbering(len(half.offsets) - 1, rows if len(rows) else None))
        return cls(numberings[0], numberings[1], out, into, sum(array.nbytes for array in arrays.values()))


def build_adjacency(edges: ReadTable, source: ReadTable, target: ReadTable, budget: Budget) -> Adjacency:
    """Build an adjacency in one pass over the edges and node ids.

    Raises the same errors as `ReadTable.scan`; GitopsError `query_memory_exceeded`.
    """
    if edges.rows > MAX_EDGES:
        raise GitopsError(Code.QUERY_FAILED, f"table {edges.key} has more edges than an adjacency holds")
    budget.need(edges.rows * 64 + (source.rows + target.rows) * 64, f"the adjacency of {edges.key}")
    near = source.whole(["id"], budget)
    far = near if target is source else target.whole(["id"], budget)
    sources, targets = NodeNumbering.of(near.ids), NodeNumbering.of(far.ids)
    from_parts, to_parts, edge_parts = [], [], []
    for rows in _large(edges.scan(["src", "dst"], budget)):
        start, end = look_up(rows.columns["src"], near.columns["id"]), look_up(rows.columns["dst"], far.columns["id"])
        whole = (start >= 0) & (end >= 0)
        from_parts.append(_narrow(sources.positions(near.ids[start[whole]]), sources.count))
        to_parts.append(_narrow(targets.positions(far.ids[end[whole]]), targets.count))
        edge_parts.append(rows.ids[whole])
        budget.check()
    return arrange_edges(sources, targets, _whole(from_parts), _whole(to_parts), _whole(edge_parts), budget)


def arrange_edges(
    sources: NodeNumbering,
    targets: NodeNumbering,
    starts: np.ndarray,
    ends: np.ndarray,
    rows_of: np.ndarray,
    budget: Budget,
) -> Adjacency:
    """Build an adjacency from edge row ids and the positions of edge ends. Raises the errors of `Budget.check`."""
    starts, ends = _narrow(starts, sources.count), _narrow(ends, targets.count)
    rows_of = _narrow(rows_of, int(rows_of.max()) + 1 if len(rows_of) else 0)
    out = _half(starts, ends, rows_of, sources.count)
    budget.check()
    into = _half(ends, starts, rows_of, targets.count)
    size = sum(array.nbytes for half in (out, into) for array in (half.offsets, half.nodes, half.edges))
    return Adjacency(sources, targets, out, into, size)


def _half(owners: np.ndarray, others: np.ndarray, rows: np.ndarray, count: int) -> HalfAdjacency:
    """Group edges by owner. Sorting owner and place as one number is several times faster than sorting places by owner."""
    packed = (owners.astype(np.uint64) << np.uint64(32)) | np.arange(len(owners), dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64(2**32 - 1)).astype(np.int64)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
    return HalfAdjacency(offsets, others[order], rows[order])


def _large(batches: Iterator[TableRows]) -> Iterator[TableRows]:
    """Combine batches into large ones, because each look-up starts by hashing all ids."""
    held: list[TableRows] = []
    for rows in batches:
        held.append(rows)
        if sum(len(each.ids) for each in held) >= _BATCH:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _together(parts: list[TableRows]) -> TableRows:
    columns = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in ("src", "dst")}
    return TableRows(np.concatenate([part.ids for part in parts]), columns)


def _whole(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _narrow(values: np.ndarray, bound: int) -> np.ndarray:
    return values.astype(np.int32) if bound < 2**31 else values


_MAGIC = b"GITOPS-CSR-1\n"
_HEAD = len(_MAGIC) + 8
_MAX_HEADER = 65_536
_ALIGN = 64
_TYPES = ("int32", "int64")
_DEFAULT_BYTES = 4 * 2**30


class AdjacencyFolder:
    """Cached adjacency files in the `adjacency` folder below a cache directory."""

    def __init__(self, cache_dir: Path, max_bytes: int = _DEFAULT_BYTES) -> None:
        self._files = CachedFiles(cache_dir / "adjacency", max_bytes)

    def read(self, key: str) -> Adjacency | None:
        """Return the adjacency for this key, mapped into memory, or None if there is no trustworthy file."""
        try:
            with self._files.open(f"{key}.csr") as opened:
                if opened is None or opened[1] < _HEAD:
                    return None
                data = mmap.mmap(*opened, access=mmap.ACCESS_READ)
            adjacency = _parse(data, key)
            self._files.mark_used(f"{key}.csr")
        except (OSError, ValueError, RecursionError):
            return None
        return adjacency

    def write(self, key: str, adjacency: Adjacency) -> None:
        """Store an adjacency. Failures are ignored."""
        self._files.write(f"{key}.csr", adjacency.nbytes, lambda file: _write(file, key, adjacency))


def _write(file: Any, key: str, adjacency: Adjacency) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in adjacency.arrays().items()}
    described = {
        name: {"type": array.dtype.name, "count": len(array), "crc": zlib.crc32(array.data)}
        for name, array in arrays.items()
    }
    header = json.dumps({"key": key, "arrays": described}, sort_keys=True).encode()
    file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
    for array in arrays.values():
        file.write(bytes(-file.tell() % _ALIGN))
        file.write(array.data)


def _parse(data: mmap.mmap, key: str) -> Adjacency:
    """Parse a stored file. Raises ValueError at the first difference from the format that `_write` uses."""
    length = int.from_bytes(data[len(_MAGIC) : _HEAD], "little")
    if data[: len(_MAGIC)] != _MAGIC or length > min(_MAX_HEADER, len(data) - _HEAD):
        raise ValueError("magic")
    header = json.loads(data[_HEAD : _HEAD + length])
    if not isinstance(header, dict) or set(header) != {"key", "arrays"} or header["key"] != key:
        raise ValueError("header")
    described = header["arrays"]
    if not isinstance(described, dict) or set(described) != set(ARRAYS):
        raise ValueError("arrays")
    at = _HEAD + length
    arrays: dict[str, np.ndarray] = {}
    for name in ARRAYS:
        form = described[name]
        if not isinstance(form, dict) or set(form) != {"type", "count", "crc"}:
            raise ValueError("array")
        kind, count = form["type"], form["count"]
        if kind not in _TYPES or type(count) is not int or count < 0:
            raise ValueError("array")
        start = at + -at % _ALIGN
        at = start + count * np.dtype(kind).itemsize
        if at > len(data):
            raise ValueError("length")
        arrays[name] = np.frombuffer(data, kind, count, start)
        if zlib.crc32(arrays[name].data) != form["crc"]:
            raise ValueError("checksum")
    if at != len(data):
        raise ValueError("length")
    return Adjacency.from_arrays(arrays)
