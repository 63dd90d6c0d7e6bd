"""Row rules (§4.7): missing vectors (`@embed`), constraints, ids derived from keys, and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.embedding import Embedder
from gitops.database.graph.values import CellError, compact_json, json_to_cell, key_text, unknown_member
from gitops.database.language.schema import EdgeType, NodeType, PatternCheck

_SHOWN = 80
_PATTERNS = 256


def embed_rows(
    declared: NodeType | EdgeType,
    rows: Sequence[dict[str, Any]],
    given: Sequence[Mapping[str, Any]],
    embedder: Embedder | None,
) -> None:
    """Compute every vector that a record omits if its source text exists.

    `given` has each written row's members. An explicit null is kept. Without an embedder, no vectors are computed.
    Raises GitopsError `embedding_failed` for vectors that do not match the property; the embedder's errors.
    """
    if embedder is None or not isinstance(declared, NodeType):
        return
    for target, source in declared.embeds.items():
        kind = declared.properties[target]
        lacking = [
            row for row, members in zip(rows, given, strict=True) if target not in members and row[source] is not None
        ]
        if not lacking:
            continue
        texts = [row[source] for row in lacking]
        made = embedder.embed(texts, dimension=kind.dimension or 0, model=declared.embed_models.get(target))
        if len(made) != len(texts):
            raise GitopsError(Code.EMBEDDING_FAILED, f"the service returned {len(made)} vectors for {len(texts)} texts")
        for row, vector in zip(lacking, made, strict=True):
            try:
                row[target] = json_to_cell(list(vector), kind)
            except CellError as error:
                raise GitopsError(Code.EMBEDDING_FAILED, f"a vector for {declared.name}.{target} {error}") from error


def cell_faults(
    declared: NodeType | EdgeType, cells: Mapping[str, Any], pending: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Return the problems with a row's cells, without checking patterns. `pending` cells can be missing."""
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
        cell, low, high = cells[bound.property_name], bound.low, bound.high
        if cell is not None and ((low is not None and cell < low) or (high is not None and cell > high)):
            shown = "..".join("" if end is None else str(end) for end in (low, high))
            yield f"@range violation on {declared.name}.{bound.property_name}: {cell} is not in {shown}"


def row_faults(declared: NodeType | EdgeType, cells: Mapping[str, Any]) -> Iterator[str]:
    """Return all problems with a row's cells."""
    yield from cell_faults(declared, cells)
    for check in declared.checks if isinstance(declared, NodeType) else ():
        for _ in find_mismatches(check, [cells[check.property_name]]):
            yield pattern_fault(declared, check)


def find_mismatches(check: PatternCheck, cells: list[str | None] | pa.Array) -> list[int]:
    """Return the positions of strings that do not match. A missing string counts as a match."""
    found, texts = _search(check.pattern), cells if isinstance(cells, list) else cells.to_pylist()
    return [at for at, text in enumerate(texts) if text is not None and not found(text)]


@lru_cache(_PATTERNS)
def _search(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether any part of a text matches a schema pattern.

    It uses the engine of the reference compiler, the `regex` crate, which runs in linear time and has Unicode classes
    and word boundaries. Arrow's engine supports only ASCII classes and boundaries, and has no look-around to express
    Unicode boundaries.
    """
    from pydantic_core import SchemaValidator

    return SchemaValidator({"type": "str", "pattern": pattern, "regex_engine": "rust-regex"}).isinstance_python


def pattern_fault(declared: NodeType | EdgeType, check: PatternCheck) -> str:
    """Return the message for a string that does not match a pattern."""
    place = f"{declared.name}.{check.property_name}"
    return f"@check violation on {place}: the value does not match {check.pattern[:_SHOWN]!r}"


def node_id(declared: NodeType, cells: Mapping[str, Any]) -> str | None:
    """Return the id derived from a node's non-null key cells (§4.2), or None for a type without a key."""
    if declared.key is None:
        return None
    texts = [key_text(cells[name], declared.properties[name]) for name in declared.key]
    return texts[0] if len(texts) == 1 else compact_json(texts)


def cardinality_violation(edge: EdgeType, source: str, count: int) -> str:
    """Return the message for a source with too few or too many edges."""
    low, high = edge.cardinality
    bound = f"min {low}" if count < low else f"max {high}"
    return f"@card violation on edge {edge.name}: source {source[:_SHOWN]!r} has {count} edges ({bound})"


def unique_violation(declared: NodeType | EdgeType, group: Sequence[str], cells: Sequence[Any]) -> str:
    """Return the message for duplicate values of a unique group."""
    shown = str(cells[0]) if len(cells) == 1 else f"({', '.join(map(str, cells))})"
    return f"@unique violation on {declared.name}.{', '.join(group)}: value {shown[:_SHOWN]}"


def hashable_cells(cells: Iterable[Any]) -> tuple[Any, ...]:
    """Return a group's cells as a dictionary key that is equal for equal groups."""
    return tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells)
