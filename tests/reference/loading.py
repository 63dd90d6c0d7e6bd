"""§5: loads. Records in, a graph out, or the first rule that they break."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from itertools import count
from typing import Any

from gitops.database.language.schema import Catalog, EdgeType, NodeType, Schema
from tests.reference.cells import Refused, cell_from_json
from tests.reference.graph import (
    Edge,
    Graph,
    Row,
    check_cardinality,
    check_ends,
    check_row,
    check_unique,
    degrees,
    empty,
    node_id,
)


class Mode(StrEnum):
    """What happens to rows that are there already."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"


def load(schema: Schema, graph: Graph, lines: Iterable[str], mode: Mode) -> Graph:
    """The graph with the records loaded. Raises Refused, with nothing loaded."""
    catalog = schema.catalog
    incoming = _read(catalog, lines, mode)
    result = graph.copy()
    for side in ("nodes", "edges"):
        for name, rows in getattr(incoming, side).items():
            held = getattr(result, side)[name]
            if rows and mode is Mode.OVERWRITE:
                held.clear()
            if mode is Mode.APPEND and held.keys() & rows.keys():
                raise Refused("key_conflict", f"{name}: {min(held.keys() & rows.keys())!r} exists")
            held.update(rows)
    check_unique(catalog, result)
    check_ends(catalog, result)
    for name, rows in incoming.edges.items():
        all_counts, held = degrees(result, name), graph.edges[name]
        sources = {edge.src for edge in rows.values()}
        if mode is Mode.MERGE:
            sources |= {held[key].src for key in rows.keys() & held.keys()}
        check_cardinality(catalog, name, {source: all_counts[source] for source in sources})
    return result


def _read(catalog: Catalog, lines: Iterable[str], mode: Mode) -> Graph:
    """The rows of the records. Ids that the input repeats are refused, but for edges of a merge: there the last wins."""
    incoming = empty(catalog)
    fresh = (f"loaded-{number}" for number in count(1))
    for line in lines:
        if not line.strip():
            continue
        record = _object(line)
        data = record.get("data", {})
        if ("type" in record) == ("edge" in record) or not isinstance(data, dict):
            raise Refused("record", line)
        if "type" in record:
            declared = catalog.nodes.get(record["type"])
            if declared is None or record.keys() - {"type", "data"}:
                raise Refused("record", line)
            row = _row(declared, data)
            own = node_id(declared, row)
            if own is not None and data.get("id", own) != own:
                raise Refused("record", "the id is not the one that the key makes")
            key = own or data.get("id") or next(fresh)
            if key in incoming.nodes[declared.name]:
                raise Refused("unique", f"{declared.name}: {key!r} twice")
            incoming.nodes[declared.name][key] = row
            continue
        edge = catalog.edge(record["edge"])
        if edge is None or record.keys() - {"edge", "from", "to", "data"}:
            raise Refused("record", line)
        if not all(isinstance(record.get(end), str) for end in ("from", "to")):
            raise Refused("record", f"edge missing an end: {line}")
        key = data.get("id") or next(fresh)
        if key in incoming.edges[edge.name] and mode is not Mode.MERGE:
            raise Refused("unique", f"{edge.name}: {key!r} twice")
        incoming.edges[edge.name][key] = Edge(record["from"], record["to"], _row(edge, data))
    return incoming


def _row(declared: NodeType | EdgeType, data: dict[str, Any]) -> Row:
    if data.keys() - declared.properties.keys() - {"id"} or not isinstance(data.get("id", ""), str):
        raise Refused("record", f"{declared.name}: {data}")
    row = {name: cell_from_json(data.get(name), kind) for name, kind in declared.properties.items()}
    check_row(declared, row)
    return row


def _object(line: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Refused("record", "a member appears twice")
        return dict(pairs)

    try:
        record = json.loads(line, object_pairs_hook=unique)
    except ValueError as error:
        raise Refused("record", str(error)) from error
    if not isinstance(record, dict):
        raise Refused("record", line)
    return record
