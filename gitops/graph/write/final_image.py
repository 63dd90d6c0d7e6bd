"""What must hold of the graph at the end of a mutation (§4.7): ends of edges, unique groups, numbers of edges.

Only what the query touched is looked at, in the image that it leaves: a value that it freed may be used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gitops.graph.write.committed import CommittedTable
from gitops.graph.write.delta import TableChanges
from gitops.graph.write.filters import membership_filter
from gitops.graph.write.operands import mutation_error
from gitops.graph.write.statements import MutationRun
from gitops.language.schema import EdgeType, NodeType

__all__ = ["cardinality_violation", "check_final_image", "first_findable", "hashable_cells", "unique_violation"]

_SHOWN = 80


def check_final_image(run: MutationRun) -> None:
    """Raises GitopsError `mutation_invalid` for the first rule that is broken; as reading the tables."""
    for owner in sorted(run.ends):
        wanted = run.ends[owner]
        present = run.changes.node(owner).committed.addresses(wanted.keys())
        for end, (edge, column) in wanted.items():
            if end not in present:
                raise mutation_error(f"edge {edge}: {column} {end[:_SHOWN]!r} not found in {owner}")
    for table in run.changes.touched().values():
        for group in table.declared.unique:
            _check_unique(table, group)
    for name in sorted(run.sources):
        _check_cardinality(run, run.catalog.edges[name])


def _check_unique(table: TableChanges, group: tuple[str, ...]) -> None:
    """No row of the final table has the group of a written one, but for itself; a null member exempts."""
    owners: dict[tuple[Any, ...], str] = {}
    for row_id, row in table.written.items():
        cells = hashable_cells(row[name] for name in group)
        if None not in cells and owners.setdefault(cells, row_id) != row_id:
            raise mutation_error(unique_violation(table.declared, group, cells))
    if not owners:
        return
    at = first_findable(table.committed, group, next(iter(owners)))
    for columns in table.committed.find(group[at], {cells[at] for cells in owners}, ["id", *group]):
        for row_id, *members in zip(columns["id"], *(columns[name] for name in group), strict=True):
            cells = hashable_cells(members)
            if cells in owners and row_id not in table.written and row_id not in table.gone:
                raise mutation_error(unique_violation(table.declared, group, cells))


def first_findable(table: CommittedTable, group: Sequence[str], sample: Sequence[Any]) -> int:
    """The place of the first member of a group that the driver can look up, 0 if there is none; `sample` are its cells."""
    names = enumerate(zip(group, sample, strict=True))
    return next((at for at, (name, cell) in names if membership_filter(name, table.kind(name), [cell]) is not None), 0)


def _check_cardinality(run: MutationRun, edge: EdgeType) -> None:
    """The number of edges of every source whose edges changed, unless the source itself is gone."""
    low, high = edge.cardinality
    if (low, high) == (0, None):
        return
    table = run.changes.edge(edge.name)
    sources = run.sources[edge.name] - run.changes.node(edge.source).gone.keys()
    counts = Counter(row["src"] for row in table.written.values())
    for columns in table.committed.find("src", sources, ["id", "src"]):
        counts.update(
            source for row_id, source in zip(columns["id"], columns["src"], strict=True) if row_id not in table.gone
        )
    for source in sorted(sources):
        count = counts[source]
        if count < low or (high is not None and count > high):
            raise mutation_error(cardinality_violation(edge, source, count))


def cardinality_violation(edge: EdgeType, source: str, count: int) -> str:
    """The message for a source with too few or too many edges."""
    low, high = edge.cardinality
    bound = f"min {low}" if count < low else f"max {high}"
    return f"@card violation on edge {edge.name}: source {source[:_SHOWN]!r} has {count} edges ({bound})"


def unique_violation(declared: NodeType | EdgeType, group: Sequence[str], cells: Sequence[Any]) -> str:
    """The message for values of a unique group that two rows have."""
    shown = str(cells[0]) if len(cells) == 1 else f"({', '.join(map(str, cells))})"
    return f"@unique violation on {declared.name}.{', '.join(group)}: value {shown[:_SHOWN]}"


def hashable_cells(cells: Iterable[Any]) -> tuple[Any, ...]:
    """The cells of a group as a key: equal groups are equal keys."""
    return tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells)
