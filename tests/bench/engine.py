"""The graph engine on local disk, in a warm process; each sample is the life of a graph of its own, step by step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, TypeVar

from tests.bench.clusters import SCHEMA, widened
from tests.bench.measure import Effort, Figure, clocked

if TYPE_CHECKING:
    from gitops.database.graph.engine import LanceEngine
    from gitops.database.graph.staged import WriteContext

_T = TypeVar("_T")
_ROWS = 1000
_PUBLISH = "publish a migration: the manifest alone"
_ONE_ROW = "load 1 row"
_GOALS = {_PUBLISH: 1.0, _ONE_ROW: 30.0}
_AGED_ROWS = 20_000
_SPAN = 40
_AGES, _FEW_AGES = (1_000, 10_000), (100,)
_FLAT = 1.5
"""What a change may cost after many others, of what it cost at first."""


def figures(effort: Effort) -> Iterator[Figure]:
    """Create, load, migrate, read, show."""
    from gitops.database.graph.engine import LanceEngine
    from gitops.database.graph.staged import WriteContext
    from gitops.repository.wiring.system import RandomIds, SystemClock

    engine, context = LanceEngine(SystemClock(), RandomIds()), WriteContext(SystemClock(), RandomIds(), "bench")
    folder = effort.folder("engine")
    _, first = clocked(lambda: engine.prepare_create(str(folder / "first"), SCHEMA.encode(), actor="bench").publish())
    yield Figure("create the first graph, import of the driver included", "ms", (first,))
    lives = _Lives(engine, context)
    for number in range(effort.samples):
        lives.live(str(folder / f"g{number}"))
    for name, values in lives.values.items():
        yield Figure(name, "ms", tuple(values), _GOALS.get(name))
    yield from _aged(engine, context, str(folder / "aged"), _FEW_AGES if effort.quick else _AGES)


def _aged(engine: LanceEngine, context: WriteContext, uri: str, ages: tuple[int, ...]) -> Iterator[Figure]:
    """The CPU time of changes of one row, at first and after many others: each takes as long as those before it."""
    from gitops.database.graph.load import LoadRequest, load_records
    from gitops.database.graph.snapshot import open_snapshot
    from gitops.database.graph.write.mutate import MutationOptions, Mutator
    from gitops.database.language.query import check_query, parse_queries

    engine.prepare_create(uri, SCHEMA.encode(), actor="bench").publish()
    load_records(LoadRequest(uri, BytesIO(people(_AGED_ROWS))), context)
    text = b"query q($k: String, $age: I32) { update Person set { age: $age } where handle = $k }"
    query = check_query(parse_queries(text)[0], open_snapshot(uri).schema().catalog)
    mutator, options = Mutator(context.clock, context.ids), MutationOptions(context.now())
    took: list[float] = []
    for number in range(ages[-1] + _SPAN):
        start = time.process_time_ns()
        # Any prime of this size makes a row come again only after all others.
        mutator.run(uri, query, {"k": f"p{number * 7919 % _AGED_ROWS}", "age": number % 90}, options)
        took.append((time.process_time_ns() - start) / 1_000_000)
    first = Figure("change 1 row, CPU time, at first", "ms", tuple(took[:_SPAN]))
    yield first
    for age in ages:
        aged = Figure(f"change 1 row, CPU time, after {age:,} changes", "ms", tuple(took[age : age + _SPAN]))
        yield aged
        yield Figure(f"change 1 row, after {age:,} changes : at first", "x", (aged.median / first.median,), _FLAT)


class _Lives:
    """Times of every step, over the lives of several graphs."""

    def __init__(self, engine: LanceEngine, context: WriteContext) -> None:
        self.values: dict[str, list[float]] = {}
        self._engine = engine
        self._context = context

    def live(self, uri: str) -> None:
        """One life."""
        from gitops.database.graph.load import LoadRequest, load_records
        from gitops.database.graph.read import describe_graph, read_rows

        engine, step = self._engine, self._step
        many, one = (LoadRequest(uri, BytesIO(people(count))) for count in (_ROWS, 1))
        created = step(
            "prepare a new graph of 3 tables", lambda: engine.prepare_create(uri, SCHEMA.encode(), actor="bench")
        )
        step("publish a new graph: one rename", created.publish)
        step(f"load {_ROWS} rows", lambda: load_records(many, self._context))
        step(_ONE_ROW, lambda: load_records(one, self._context))
        migrated = step(
            "prepare a migration: add a property",
            lambda: engine.prepare_migration(uri, widened(SCHEMA, "email").encode(), actor="bench"),
        )
        step(_PUBLISH, migrated.publish)
        step("read: accepted schema and version", lambda: engine.read(uri))
        step("show: tables", lambda: describe_graph(uri))
        step("show: 20 rows", lambda: read_rows(uri, "Person", 20))

    def _step(self, name: str, call: Callable[[], _T]) -> _T:
        result, took = clocked(call)
        self.values.setdefault(name, []).append(took)
        return result


def people(count: int) -> bytes:
    """Records of `count` nodes."""
    people = ({"handle": f"p{n}", "name": f"Person {n}", "age": n % 90} for n in range(count))
    return "".join(json.dumps({"type": "Person", "data": data}) + "\n" for data in people).encode()
