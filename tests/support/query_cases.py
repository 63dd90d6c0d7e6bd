"""Cases of queries, mutations and loads as data (`tests/data/queries`), and what it means to pass one.

A file names a graph and lists cases. A read has `match`, `return` and, if need be, `params` (their declaration), `with`
(their values), `order`, `limit`; or the whole text as `query`. Its expectation is `rows`: the value where one column is
returned, the list of values where there are more, or the row as it is. A mutation has its statements under `do`, a load
its records under `load` with a `mode`; they expect `affects` and what changed: `nodes` (type, id, whole row; null where
the node is gone) and `edges` (type, `added` and `removed` as [from, to, properties]). Anything else stayed. `fails` is
the reason of a refusal; then nothing changed. `add` has records that are put in before.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.typed import TypedRead
from gitops.database.language.schema import EdgeType, NodeType, Schema, compile_schema
from tests.reference import Answer, Graph, Mode, Options, empty, load
from tests.reference.cells import to_json

DATA = Path(__file__).parents[1] / "data" / "queries"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OPTIONS = Options(now=NOW)
_READ = ("match", "return", "params", "with", "order", "limit", "query", "rows")
_WRITE = ("do", "load", "mode", "affects", "nodes", "edges")
_KEYS = frozenset(("name", "graph", "add", "fails", "checks", *_READ, *_WRITE))


class _Loader(yaml.CSafeLoader):
    """YAML without dates and without `yes` and `no`: such scalars are texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if not tag.endswith((":timestamp", ":bool"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


@dataclass(frozen=True)
class Case:
    """One case: its place, its graph, and its members as written."""

    name: str
    graph: str
    members: Mapping[str, Any] = field(repr=False)

    @property
    def options(self) -> Options:
        """What the run is given."""
        return Options(now=NOW)

    @property
    def params(self) -> Any:
        """The parameter object, as a caller would send it."""
        return self.members.get("with")

    @property
    def text(self) -> str:
        """The query text."""
        each = self.members
        if "query" in each:
            return each["query"]
        head = f"query q({each.get('params', '')})"
        if "do" in each:
            return f"{head} {{ {each['do']} }}"
        order = f" order {{ {each['order']} }}" if "order" in each else ""
        limit = f" limit {each['limit']}" if "limit" in each else ""
        return f"{head} {{ match {{ {each['match']} }} return {{ {each['return']} }}{order}{limit} }}"

    def checked(self, schema: Schema) -> CheckedQuery:
        """The checked query."""
        (query,) = parse_queries(self.text.encode())
        return check_query(query, schema.catalog)

    def expected(self, checked: CheckedQuery) -> list[dict[str, Any]]:
        """The expected rows of a read, as objects."""
        assert isinstance(checked.body, TypedRead)
        columns = list(dict.fromkeys(item.column for item in checked.body.items))
        rows = []
        for row in self.members["rows"]:
            cells = row if isinstance(row, list) and len(columns) > 1 else [row]
            rows.append(row if isinstance(row, dict) else dict(zip(columns, cells, strict=True)))
        return rows


@dataclass(frozen=True)
class Ground:
    """A graph of the cases: its schema, and its records in the form of a load."""

    source: bytes
    schema: Schema = field(repr=False)
    lines: tuple[str, ...] = field(repr=False)

    def graph(self, case: Case | None = None) -> Graph:
        """The reference graph, with the records that a case adds. It belongs to all who ask: a load or a mutation copies it."""
        more = added(case) if case is not None else []
        return load(self.schema, self._loaded, more, Mode.MERGE) if more else self._loaded

    @cached_property
    def _loaded(self) -> Graph:
        return load(self.schema, empty(self.schema.catalog), self.lines, Mode.APPEND)


def added(case: Case) -> list[str]:
    """The records that a case puts in before its query."""
    return str(case.members.get("add", "")).splitlines()


@cache
def cases() -> tuple[Case, ...]:
    """All cases, in the order of the files."""
    return tuple(case for path in sorted(DATA.glob("*.yaml")) for case in _file(path))


def _file(path: Path) -> Iterator[Case]:
    document = _yaml(path)
    names: set[str] = set()
    for members in document["cases"]:
        assert members.keys() <= _KEYS, f"{path.name}: {members}"
        assert members["name"] not in names, f"{path.name}: {members['name']} twice"
        names.add(members["name"])
        yield Case(f"{path.stem}: {members['name']}", members.get("graph", document["graph"]), members)


@cache
def ground(name: str) -> Ground:
    """The graph of that name: `graphs/<name>.yaml`."""
    document = _yaml(DATA / "graphs" / f"{name}.yaml")
    source = document["schema"].encode()
    lines = [
        json.dumps({"type": kind, "data": row}) for kind, rows in (document.get("nodes") or {}).items() for row in rows
    ]
    for kind, edges in (document.get("edges") or {}).items():
        for number, (start, end, *data) in enumerate(edges, start=1):
            row = {"id": f"{kind}-{number:02}", **(data[0] if data else {})}
            lines.append(json.dumps({"edge": kind, "from": start, "to": end, "data": row}))
    return Ground(source, compile_schema(source), tuple(lines))


def _yaml(path: Path) -> Any:
    return yaml.load(path.read_bytes(), _Loader)  # noqa: S506 - a safe loader with fewer types


def same_result(answer: Answer, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows are a right result of the answered query.

    Rows of one sort key may change places; a limit may keep any of those that share the last key.
    """
    if len(rows) != len(answer.rows):
        return False
    at = 0
    while at < len(rows):
        run = [row for row, key in zip(answer.every, answer.keys, strict=True) if key == answer.keys[at]]
        if Counter(map(plain, rows[at : at + len(run)])) - Counter(map(plain, run)):
            return False
        at += len(run)
    return True


def same_bag(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the rows are the same, in any order."""
    return Counter(map(plain, one)) == Counter(map(plain, other))


def plain(row: Any) -> str:
    """A row as text; floats to fifteen digits, since a sum may be taken in any order."""
    return json.dumps(_rounded(row), sort_keys=True, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    # Negative zero is zero.
    return float(f"{value:.15g}") + 0.0 if isinstance(value, float) else value


def contents(schema: Schema, graph: Graph) -> dict[str, Counter[str]]:
    """A graph as bags of records by table; ids that nobody gave are left out, for they differ from run to run."""
    tables: dict[str, Counter[str]] = {}
    for name, node in schema.catalog.nodes.items():
        tables[name] = Counter(
            plain([key if node.key or not made_up(key) else None, json_row(node, row)])
            for key, row in graph.nodes[name].items()
        )
    for name, edge in schema.catalog.edges.items():
        tables[f"edge {name}"] = Counter(
            plain([each.src, each.dst, json_row(edge, each.row)]) for each in graph.edges[name].values()
        )
    return tables


def made_up(key: str) -> bool:
    """Return whether an id is one that the reference or the engine made."""
    return key.startswith(("new-", "loaded-")) or (len(key) == 26 and key.isalnum() and key.isupper())


def json_row(declared: NodeType | EdgeType, row: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a row as JSON."""
    return {
        name: row[name].hex() if isinstance(row[name], bytes) else to_json(row[name], kind)
        for name, kind in declared.properties.items()
    }


def changed(case: Case, schema: Schema, before: Graph) -> dict[str, Counter[str]]:
    """What a case of a write expects the graph to hold afterwards."""
    tables = contents(schema, before)
    for name, rows in (case.members.get("nodes") or {}).items():
        node = schema.catalog.nodes[name]
        for key, row in rows.items():
            held = before.nodes[name].get(str(key))
            if held is not None:
                tables[name][plain([str(key), json_row(node, held)])] -= 1
            if row is not None:
                shown = None if made_up(str(key)) else str(key)
                tables[name][plain([shown, dict.fromkeys(node.properties) | row])] += 1
    for name, change in (case.members.get("edges") or {}).items():
        edge = schema.catalog.edges[name]
        for sign, listed in ((1, change.get("added", [])), (-1, change.get("removed", []))):
            for start, end, *data in listed:
                row = dict.fromkeys(edge.properties) | (data[0] if data else {})
                tables[f"edge {name}"][plain([start, end, row])] += sign
    assert all(count >= 0 for table in tables.values() for count in table.values()), "a removed row was never there"
    return {name: +table for name, table in tables.items()}
