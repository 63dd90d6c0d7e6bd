"""The questions put to the graph engine of this package, as a program that embeds it puts them: queries are checked once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.optimize import optimize_tables
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.options import QueryOptions, Strategy
from gitops.database.graph.query.run import run_query
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.bench.rivals import CHANGE, CHECKPOINTED, Ask
from tests.bench.social import APPROXIMATE, EXACT, QUESTIONS

if TYPE_CHECKING:
    from tests.bench.social import Social

_UPDATE = "update Person set { age: $age } where name = $k"
_NS_PER_MS = 1e6


class Ours:
    """A graph on disk; every read opens the newest version, as one that must see the latest change does."""

    name = "gitops"

    def __init__(self, folder: Path, social: Social) -> None:
        """Nothing is opened yet."""
        self._folder = folder
        self._uri = str(folder / "graph.omni")
        self.social = social
        self._cache = ReadCache()
        self._stopwatch = _Stopwatch()
        self._clock = SystemClock()
        self._mutator = Mutator(self._clock, RandomIds(), self._stopwatch)
        self._queries: dict[str, CheckedQuery] = {}

    def load(self) -> Mapping[str, Callable[[], None]]:
        """Create and load from NDJSON; compact and index; make the adjacency, which any first long walk would make."""
        return {"load": self._load, "index": self._index, "adjacency": self._adjacency}

    def _load(self) -> None:
        clock, ids = SystemClock(), RandomIds()
        LanceEngine(clock, ids).prepare_create(self._uri, self.social.schema, actor=None).publish()
        with self.social.records(self._folder.parent).open("rb") as records:
            load_records(LoadRequest(self._uri, records, LoadMode.APPEND), WriteContext(clock, ids))

    def _index(self) -> None:
        optimize_tables(self._uri, WriteContext(SystemClock(), RandomIds()))

    def _adjacency(self) -> None:
        self._read(QUESTIONS["{1,3} hops"], {"k": self.social.probe}, Strategy.CSR)

    def size(self) -> int:
        """Bytes on disk: the graph, and what is kept beside it in the cache folder."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def close(self) -> None:
        """Forget what was read."""
        self._cache = ReadCache()

    def questions(self) -> Mapping[str, Ask]:
        """The questions, and the change."""
        social, ages = self.social, count(1)
        given = {"k": social.probe, "t": social.piece, "v": social.vector, "w": social.word}

        def asking(text: str) -> Ask:
            return lambda: self._read(text, {name: given[name] for name in self._checked(text).params})

        asks = {name: asking(text) for name, text in QUESTIONS.items()}
        asks[APPROXIMATE] = lambda: self._read(QUESTIONS[EXACT], {"v": social.vector}, approximate=True)

        def change() -> Sequence[Sequence[Any]]:
            return self._write({"k": social.probe, "age": next(ages)})

        # Every change is a version of the tables: there is no log that a checkpoint would empty.
        return {**asks, CHANGE: change, CHECKPOINTED: change}

    def publish_ms(self) -> Sequence[float]:
        """How long the publish step of each change took."""
        return self._stopwatch.took

    def _checked(self, body: str) -> CheckedQuery:
        if body not in self._queries:
            kinds = {"k": "String", "t": "String", "v": f"Vector({self.social.dimension})", "w": "String", "age": "I32"}
            used = [f"${name}: {kind}" for name, kind in kinds.items() if _uses(body, name)]
            text = f"query q({', '.join(used)}) {{ {body} }}"
            catalog = open_snapshot(self._uri, ReadTarget()).schema().catalog
            self._queries[body] = check_query(parse_queries(text.encode())[0], catalog)
        return self._queries[body]

    def _read(
        self,
        body: str,
        params: Mapping[str, Any],
        strategy: Strategy = Strategy.AUTO,
        *,
        approximate: bool = False,
    ) -> Sequence[Sequence[Any]]:
        cache = self._folder / "cache"
        options = QueryOptions(self._clock.now(), strategy=strategy, cache_dir=cache, approximate=approximate)
        result = run_query(open_snapshot(self._uri, ReadTarget()), self._checked(body), params, options, self._cache)
        return [tuple(row.values()) for row in result.rows()]

    def _write(self, params: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        options = MutationOptions(self._clock.now())
        result = self._mutator.run(self._uri, self._checked(_UPDATE), params, options)
        return [(params["k"],)] * result.affected_nodes


def _uses(body: str, name: str) -> bool:
    return any(f"${name}{after}" in f"{body} " for after in " ,)")


class _Stopwatch:
    """Stands at the fault points of a change and notes how long the publish step takes, in milliseconds."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._start = 0

    def reach(self, point: str) -> None:
        if point == "engine.mutate.before_publish":
            self._start = time.perf_counter_ns()
        elif point == "engine.mutate.after_publish":
            self.took.append((time.perf_counter_ns() - self._start) / _NS_PER_MS)
