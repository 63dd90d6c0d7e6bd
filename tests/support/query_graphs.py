"""Small graphs to ask, and a short way to ask them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.options import QueryOptions
from gitops.database.graph.query.run import QueryResult, run_query
from gitops.database.graph.snapshot import Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import Catalog
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = FixedClock(NOW)
TOWNS = b"""
node Town { key: String @key  size: I32?  name: String? }
edge Road: Town -> Town { miles: I32? }
"""


def create(root: str, schema: bytes = TOWNS) -> str:
    """An empty graph."""
    LanceEngine(CLOCK, SequentialIds()).prepare_create(root, schema, actor=None).publish()
    return root


def put(root: str, records: Iterable[Mapping[str, Any]], start: int = 1_000, mode: LoadMode = LoadMode.MERGE) -> int:
    """Load records; the new version."""
    lines = "\n".join(map(json.dumps, records)).encode()
    return load_records(
        LoadRequest(root, io.BytesIO(lines), mode), WriteContext(CLOCK, SequentialIds(start))
    ).manifest_version


def town(key: str, **data: Any) -> dict[str, Any]:
    return {"type": "Town", "data": {"key": key, **data}}


def road(start: str, end: str, **data: Any) -> dict[str, Any]:
    return {"edge": "road", "from": start, "to": end, "data": data}


def towns(root: str, nodes: int, pairs: Iterable[tuple[int, int]]) -> str:
    """A graph of towns `t0`, `t1`, .. with roads between some of them."""
    create(root)
    put(root, [town(f"t{n}", size=n % 7 or None, name=f"name {n % 5}") for n in range(nodes)])
    put(root, [road(f"t{a}", f"t{b}", miles=n % 3 or None) for n, (a, b) in enumerate(pairs)], start=100_000)
    return root


def ask(
    snapshot: Snapshot | str,
    text: str,
    params: Any = None,
    *,
    catalog: Catalog | None = None,
    cache: ReadCache | None = None,
    **options: Any,
) -> QueryResult:
    """The result of the one query of a text, checked against the snapshot's schema or the given catalog."""
    opened = open_snapshot(snapshot) if isinstance(snapshot, str) else snapshot
    checked = check_query(parse_queries(text.encode())[0], catalog or opened.schema().catalog)
    return run_query(opened, checked, params, QueryOptions(**{"now": NOW, **options}), cache)


def values(result: QueryResult) -> list[Any]:
    """The rows as tuples; a single column as its values."""
    rows = [tuple(row.values()) for row in result.rows()]
    return [row[0] for row in rows] if len(result.columns) == 1 else rows
