"""The engine behind the cases of queries: graphs on disk, runs, and what the tables hold afterwards."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gitops.core.errors import GitopsError
from gitops.database.graph import HashEmbedder
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.options import QueryOptions, Strategy
from gitops.database.graph.query.run import QueryResult, run_query
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.tables import open_table, raw_columns
from gitops.database.graph.write.memory import WriterMemory
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import CheckedQuery
from gitops.database.language.schema import PropType, Scalar, Schema
from tests.reference import Edge, Graph, Options, Refused, empty
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.query_cases import NOW, Case, Ground, added, ground

T = TypeVar("T")

CLOCK = FixedClock(NOW)

REFUSALS: Mapping[str, tuple[frozenset[str], str]] = {
    "parameter": (frozenset({"query_params_invalid"}), ""),
    "literal": (frozenset({"query_params_invalid", "query_literal_invalid", "mutation_invalid"}), "invalid Date"),
    "unsupported": (frozenset({"query_unsupported", "query_params_invalid"}), ""),
    "mixed": (frozenset({"mutation_mixed"}), "mixes inserts/updates and deletes"),
    "key_update": (frozenset({"mutation_invalid"}), "cannot update @key property"),
    "null": (frozenset({"mutation_invalid", "graph_data_invalid"}), ""),
    "value": (frozenset({"mutation_invalid", "graph_data_invalid"}), ""),
    "record": (frozenset({"graph_data_invalid"}), ""),
    "key_conflict": (frozenset({"graph_data_invalid", "key_conflict"}), ""),
    "enum": (frozenset({"mutation_invalid", "graph_data_invalid"}), "invalid enum value"),
    "range": (frozenset({"mutation_invalid", "graph_data_invalid"}), "@range violation on"),
    "check": (frozenset({"mutation_invalid", "graph_data_invalid"}), "@check violation"),
    "unique": (frozenset({"mutation_invalid", "graph_data_invalid"}), "@unique violation on"),
    "card": (frozenset({"mutation_invalid", "graph_data_invalid"}), "@card violation on edge"),
    "endpoint": (frozenset({"mutation_invalid", "graph_data_invalid"}), ""),
}
"""The codes and the words by which the engine refuses what the reference refuses, by the reason of the reference."""


class World:
    """Graphs on disk. Those that are only read are made once; a writer gets a copy of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, str] = {}
        self._copies = 0

    def root(self, case: Case) -> str:
        """The root of the graph of a case."""
        shared = self._made.get(case.graph)
        if shared is None:
            shared = self._made[case.graph] = self.make(ground(case.graph))
        if case.members.keys().isdisjoint({"do", "load", "add"}):
            return shared
        own = self.copy(shared)
        if added(case):
            load_lines(own, added(case), LoadMode.MERGE)
        return own

    def make(self, base: Ground) -> str:
        """A new graph with the records of a ground."""
        self._copies += 1
        uri = str(self.folder / f"graph-{self._copies}.omni")
        LanceEngine(CLOCK, SequentialIds()).prepare_create(uri, base.source, actor=None).publish()
        if base.lines:
            load_lines(uri, base.lines, LoadMode.APPEND)
        return uri

    def copy(self, uri: str) -> str:
        """A graph of the same content."""
        self._copies += 1
        own = str(self.folder / f"graph-{self._copies}.omni")
        shutil.copytree(uri, own, symlinks=True)
        return own


def load_lines(uri: str, lines: Iterable[str], mode: LoadMode, start: int = 10_000) -> int:
    """Load records; the version that has them."""
    records = io.BytesIO("\n".join(lines).encode("utf-8", "surrogatepass"))
    return load_records(LoadRequest(uri, records, mode), WriteContext(CLOCK, SequentialIds(start))).manifest_version


@dataclass(frozen=True)
class Run:
    """A read to run: at a snapshot, with parameters, under options, with or without a cache of earlier runs."""

    snapshot: Snapshot
    query: CheckedQuery
    params: Any
    options: Options
    cache: ReadCache | None = None

    def under(self, strategy: Strategy) -> QueryResult:
        """The result under a strategy."""
        options = QueryOptions(now=self.options.now, strategy=strategy, embedder=HashEmbedder())
        return run_query(self.snapshot, self.query, self.params, options, self.cache)


def write(
    uri: str,
    query: CheckedQuery,
    params: Any,
    options: Options,
    start: int = 20_000,
    cache: ReadCache | None = None,
) -> MutationResult:
    """Run a mutation on the main branch, as a process whose readers have this cache."""
    memory = None if cache is None else WriterMemory(cache)
    return Mutator(CLOCK, SequentialIds(start), memory=memory).run(uri, query, params, MutationOptions(now=options.now))


def contents_of(uri: str, schema: Schema, version: int | None = None) -> Graph:
    """The rows of every table, read from the tables themselves."""
    snapshot = open_snapshot(uri, ReadTarget(version=version))
    graph = empty(schema.catalog)
    for name, declared in schema.catalog.nodes.items():
        for row in _rows(snapshot, f"node:{name}", declared.properties):
            key = row.pop("id")
            assert key not in graph.nodes[name], f"{name} {key} is there twice"
            graph.nodes[name][key] = row
    for name, edge in schema.catalog.edges.items():
        for row in _rows(snapshot, f"edge:{name}", edge.properties):
            key = row.pop("id")
            assert key not in graph.edges[name], f"{name} {key} is there twice"
            graph.edges[name][key] = Edge(row.pop("src"), row.pop("dst"), row)
    return graph


def _rows(snapshot: Snapshot, key: str, properties: Mapping[str, PropType]) -> list[dict[str, Any]]:
    dataset = open_table(snapshot.folder, snapshot.manifest.tables[key])
    blobs = [name for name, kind in properties.items() if kind.scalar is Scalar.BLOB]
    names = [name for name in dataset.schema.names if name not in blobs]
    columns = raw_columns(dataset.to_table(columns=names))
    count = len(columns["id"])
    for name in blobs:
        files = dataset.take_blobs(name, indices=list(range(count))) if count else []
        columns[name] = [None if each is None else each.read() for each in files]
    assert set(columns) - {"id", "src", "dst"} == set(properties)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def outcome(call: Callable[[], T]) -> T | Refused | GitopsError:
    """What a call gives, or how the reference or the engine refuses it."""
    try:
        return call()
    except (Refused, GitopsError) as refusal:
        return refusal


def refused_alike(why: str, error: object) -> bool:
    """Return whether the engine refuses for the reason of the reference, in its own words."""
    codes, words = REFUSALS[why]
    return isinstance(error, GitopsError) and error.code in codes and words in str(error)
