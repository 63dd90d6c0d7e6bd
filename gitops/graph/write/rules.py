"""What must hold of one row by itself (§4.7): required cells, enum members, ranges and patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gitops.graph.values import compact_json, key_text, unknown_member
from gitops.language.schema import EdgeType, NodeType, PatternCheck, RangeBound

__all__ = ["cell_faults", "find_mismatches", "node_id", "pattern_fault", "row_faults"]

_SHOWN = 80


def cell_faults(
    declared: NodeType | EdgeType, cells: Mapping[str, Any], pending: frozenset[str] = frozenset()
) -> Iterator[str]:
    """What is wrong with the cells of a row, patterns aside; the `pending` ones may be missing."""
    for name, kind in declared.properties.items():
        cell = cells[name]
        if cell is None:
            if not kind.nullable and name not in pending:
                yield f"{declared.name}.{name} is required"
            continue
        odd = None if kind.enum_values is None else unknown_member(cell, kind)
        if odd is not None:
            members = ", ".join(kind.enum_values or ())
            yield f"invalid enum value {odd[:_SHOWN]!r} for {declared.name}.{name} (expected: {members})"
    for bound in declared.ranges if isinstance(declared, NodeType) else ():
        cell = cells[bound.property_name]
        if cell is not None and not _within(cell, bound):
            low, high = ("" if end is None else end for end in (bound.low, bound.high))
            place = f"{declared.name}.{bound.property_name}"
            yield f"@range violation on {place}: {cell} is not in {low}..{high}"


def row_faults(declared: NodeType | EdgeType, cells: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the cells of a row."""
    yield from cell_faults(declared, cells)
    for check in declared.checks if isinstance(declared, NodeType) else ():
        for _ in find_mismatches(check, [cells[check.property_name]]):
            yield pattern_fault(declared, check)


def find_mismatches(check: PatternCheck, cells: list[str | None] | pa.Array) -> list[int]:
    """Which texts do not match, by position; searched by the linear-time engine that the schema language promises."""
    found = pc.match_substring_regex(pa.array(cells, pa.string()), check.pattern)
    return [int(at) for at in pc.indices_nonzero(pc.fill_null(pc.invert(found), False)).to_pylist()]


def pattern_fault(declared: NodeType | EdgeType, check: PatternCheck) -> str:
    """The message for a text that does not match."""
    place = f"{declared.name}.{check.property_name}"
    return f"@check violation on {place}: the value does not match {check.pattern[:_SHOWN]!r}"


def node_id(declared: NodeType, cells: Mapping[str, Any]) -> str | None:
    """The id that the key makes (§4.2), of key cells that are not null; None for a type without key."""
    if declared.key is None:
        return None
    texts = [key_text(cells[name], declared.properties[name]) for name in declared.key]
    return texts[0] if len(texts) == 1 else compact_json(texts)


def _within(cell: float, bound: RangeBound) -> bool:
    return (bound.low is None or bound.low <= cell) and (bound.high is None or cell <= bound.high)
