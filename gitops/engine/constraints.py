"""What a load must keep true of the whole graph: patterns, keys, unique groups, endpoints and cardinality.

Every check looks at the incoming rows and at the committed tables at the versions of the manifest that the load starts
from. An incoming row takes the place of the committed row with its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gitops.engine.records import Problems, Rows
from gitops.engine.snapshot import Snapshot
from gitops.engine.tables import open_table, raw_columns
from gitops.lang.schema import EdgeType, NodeType

__all__ = ["Incoming", "check_incoming"]


@dataclass(frozen=True, slots=True)
class Incoming:
    """The rows to load, by table key; `append` says that an id that exists is an error, not a replacement."""

    snapshot: Snapshot
    rows: Mapping[str, Rows]
    append: bool


def check_incoming(incoming: Incoming, problems: Problems) -> None:
    """Check in stages, each over all tables: values, then keys and unique groups, then endpoints, then cardinality.

    Raises LoadError at the end of the first stage that found a problem.
    """
    for rows in incoming.rows.values():
        _check_patterns(rows, problems)
    problems.settle()
    for key, rows in incoming.rows.items():
        _check_ids(incoming, key, problems)
        for group in rows.declared.unique:
            _check_unique(incoming, key, group, problems)
    problems.settle()
    edges = {key: rows.declared for key, rows in incoming.rows.items() if isinstance(rows.declared, EdgeType)}
    for key, declared in edges.items():
        _check_endpoints(incoming, key, declared, problems)
    problems.settle()
    for key, declared in edges.items():
        _check_cardinality(incoming, key, declared, problems)
    problems.settle()


def _check_patterns(rows: Rows, problems: Problems) -> None:
    """Search each text with the linear-time engine that the schema language promises."""
    for check in rows.declared.checks if isinstance(rows.declared, NodeType) else ():
        cells = rows.columns[check.property_name]
        found = pc.match_substring_regex(pa.array(cells, pa.string()), check.pattern).to_pylist()
        for record, hit in zip(rows.records, found, strict=True):
            if hit is False:
                place = f"{rows.declared.name}.{check.property_name}"
                problems.add(record, f"@check violation on {place}: the value does not match {check.pattern[:80]!r}")


def _check_ids(incoming: Incoming, key: str, problems: Problems) -> None:
    rows = incoming.rows[key]
    name = rows.declared.name
    seen: set[str] = set()
    group = getattr(rows.declared, "key", None) or ("id",)
    for record, row_id in zip(rows.records, rows.columns["id"], strict=True):
        if row_id in seen:
            problems.add(record, f"@unique violation on {name}.{', '.join(group)}: value {row_id[:80]}")
        seen.add(row_id)
    if incoming.append:
        taken = _present(incoming.snapshot, key, seen)
        for record, row_id in zip(rows.records, rows.columns["id"], strict=True):
            if row_id in taken:
                problems.add(record, f"key_conflict: {name} {row_id[:80]!r} exists already")


def _check_unique(incoming: Incoming, key: str, group: Sequence[str], problems: Problems) -> None:
    """No two rows of the resulting table have the same group; a null member exempts a row."""
    rows = incoming.rows[key]
    owners: dict[tuple[Any, ...], int] = {}
    for record, cells in zip(rows.records, zip(*(rows.columns[name] for name in group), strict=True), strict=True):
        values = _hashable(cells)
        if None not in values and owners.setdefault(values, record) != record:
            problems.add(record, _unique_text(rows, group, values))
    replaced = set(rows.columns["id"])
    for row_id, *others in _committed(incoming.snapshot, key, ("id", *group)):
        values = _hashable(others)
        if row_id not in replaced and values in owners:
            problems.add(owners[values], _unique_text(rows, group, values))


def _unique_text(rows: Rows, group: Sequence[str], values: tuple[Any, ...]) -> str:
    shown = str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"
    return f"@unique violation on {rows.declared.name}.{', '.join(group)}: value {shown[:80]}"


def _check_endpoints(incoming: Incoming, key: str, declared: EdgeType, problems: Problems) -> None:
    rows = incoming.rows[key]
    for column, target in (("src", declared.source), ("dst", declared.target)):
        arriving = incoming.rows.get(f"node:{target}")
        wanted = set(rows.columns[column]) - set(arriving.columns["id"] if arriving else ())
        absent = wanted - _present(incoming.snapshot, f"node:{target}", wanted)
        for record, end in zip(rows.records, rows.columns[column], strict=True):
            if end in absent:
                problems.add(record, f"edge {declared.name}: {column} {end[:80]!r} not found in {target}")


def _check_cardinality(incoming: Incoming, key: str, declared: EdgeType, problems: Problems) -> None:
    """Of every source whose edges change, the resulting number is within bounds; a source without edges is not examined."""
    low, high = declared.cardinality
    if (low, high) == (0, None):
        return
    rows = incoming.rows[key]
    replaced, counts = set(rows.columns["id"]), Counter(rows.columns["src"])
    first = {source: record for record, source in reversed(list(zip(rows.records, rows.columns["src"], strict=True)))}
    for row_id, source in _committed(incoming.snapshot, key, ("id", "src")):
        if row_id in replaced:
            first.setdefault(source, rows.records[rows.columns["id"].index(row_id)])
        else:
            counts[source] += 1
    for source, record in first.items():
        count = counts[source]
        if count and not low <= count <= (count if high is None else high):
            bound = f"min {low}" if count < low else f"max {high}"
            problems.add(
                record, f"@card violation on edge {declared.name}: source {source[:80]!r} has {count} edges ({bound})"
            )


def _present(snapshot: Snapshot, key: str, ids: Iterable[str]) -> set[str]:
    """Which of the ids the committed table has."""
    wanted = pa.array(sorted(ids), pa.string())
    if not len(wanted) or not snapshot.manifest.tables[key].rows:
        return set()
    dataset = open_table(snapshot.folder, snapshot.manifest.tables[key])
    found: set[str] = set()
    for batch in dataset.scanner(columns=["id"]).to_batches():
        column = batch.column("id")
        found.update(column.filter(pc.is_in(column, wanted)).to_pylist())
    return found


def _committed(snapshot: Snapshot, key: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a committed table as tuples of cells."""
    entry = snapshot.manifest.tables[key]
    if not entry.rows:
        return
    for batch in open_table(snapshot.folder, entry).scanner(columns=list(names)).to_batches():
        columns = raw_columns(batch)
        yield from zip(*(columns[name] for name in names), strict=True)


def _hashable(cells: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells)
