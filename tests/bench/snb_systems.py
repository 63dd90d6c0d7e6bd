"""`python -m tests.bench.snb_systems SYSTEM FOLDER PEOPLE SAMPLES`: the social network in one system, in a process of its own.

Loads it, puts every query with several parameters, and writes times and answers to `SYSTEM.json` in the folder. The queries are
in `snb_reads.gq`, `snb_reads.cypher` and `snb_reads.sql`; columns come in the same order from all.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.optimize import optimize_tables
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.options import QueryOptions
from gitops.database.graph.query.run import run_query
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.language.query import check_query, parse_queries
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.bench.measure import NS_PER_MS, clocked
from tests.bench.snb_data import EDGES, SCHEMA, Network, moment

if TYPE_CHECKING:
    import pyarrow as pa

Rows = list[list[Any]]
_READS = Path(__file__).with_name("snb_reads.gq")
_OF_MESSAGES, _SECOND = ("is4", "is5", "is6", "is7"), "is7_known"
# Seconds after 2010: the middle of the third year, and four weeks of it.
_MAX, _WINDOW = 75_000_000, (76_000_000, 76_000_000 + 28 * 24 * 3600)
_QUANTILES = (0.3, 0.5, 0.7, 0.85, 0.95)
_KINDS = {
    "int64": ("INT64", "BIGINT"),
    "string": ("STRING", "VARCHAR"),
    "bool": ("BOOL", "BOOLEAN"),
    "date32[day]": ("DATE", "DATE"),
}
_ENOUGH_S, _LEAST = 5.0, 3


class Ours:
    """The engine of this package; every read opens the newest version."""

    def __init__(self, folder: Path, network: Network) -> None:
        """Create and load the graph, and build its indexes."""

        self._uri, clock, ids = str(folder / "graph.omni"), SystemClock(), RandomIds()
        with network.records(folder).open("rb") as records:

            def load() -> None:
                LanceEngine(clock, ids).prepare_create(self._uri, SCHEMA.encode(), actor=None).publish()
                load_records(LoadRequest(self._uri, records, LoadMode.APPEND), WriteContext(clock, ids))
                optimize_tables(self._uri, WriteContext(clock, ids))

            self.load_ms = clocked(load)[1]
        self._now, self._folder, self._cache = clock.now, folder, ReadCache()
        catalog = open_snapshot(self._uri, ReadTarget()).schema().catalog
        self._queries = {query.name.text: check_query(query, catalog) for query in parse_queries(_READS.read_bytes())}

    def ask(self, name: str, values: Mapping[str, Any]) -> Rows:
        """The rows of one query."""
        rows = self._read(name, values)
        if name != "is7":
            return rows
        knowing = {row[0] for row in self._read(_SECOND, values)}
        return [[*row, row[0] in knowing] for row in rows]

    def close(self) -> None:
        """Forget what was read."""
        self._cache = ReadCache()

    def _read(self, name: str, values: Mapping[str, Any]) -> Rows:

        given = {key: plain(value) if isinstance(value, datetime) else value for key, value in values.items()}
        options = QueryOptions(self._now(), cache_dir=self._folder / "cache")
        result = run_query(open_snapshot(self._uri, ReadTarget()), self._queries[name], given, options, self._cache)
        return [list(row.values()) for row in result.rows()]


class Ladybug:
    """A ladybug database, loaded from Parquet files."""

    def __init__(self, folder: Path, network: Network) -> None:
        """Load it."""
        import ladybug

        paths = network.parquet(folder)
        self._database = ladybug.Database(str(folder / "graph"))
        connection = ladybug.Connection(self._database)

        def load() -> None:
            for name, table in network.tables.items():
                columns = ", ".join(
                    f"{field.name} {_kind(field.type, 0)}" for field in table.schema if field.name not in ("src", "dst")
                )
                if name in EDGES:
                    ends = "FROM {} TO {}".format(*EDGES[name])
                    connection.execute(f"CREATE REL TABLE {name}({', '.join(filter(None, (ends, columns)))})")
                else:
                    connection.execute(f"CREATE NODE TABLE {name}({columns}, PRIMARY KEY(nr))")
                connection.execute(f"COPY {name} FROM '{paths[name]}'")
            connection.execute("CHECKPOINT")

        self.load_ms = clocked(load)[1]
        self._connection, self._texts = connection, _named(".cypher", "// ")

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()
        self._database.close()

    def ask(self, name: str, values: Mapping[str, Any]) -> Rows:
        """The rows of one query."""
        result = self._connection.execute(self._texts[name], {key: _naive(value) for key, value in values.items()})
        return [list(row) for row in result.get_all()]


class DuckDb:
    """A DuckDB database, loaded from Parquet files: a table for each type, with indexes on keys and on both ends of edges."""

    def __init__(self, folder: Path, network: Network) -> None:
        """Load it."""
        import duckdb

        paths, self._texts = network.parquet(folder), _named(".sql", "-- ")
        self._connection = duckdb.connect(str(folder / "graph"))

        def load() -> None:
            for name, table in network.tables.items():
                self._connection.execute(_table(name, table))
                self._connection.execute(f"COPY {name} FROM '{paths[name]}'")
            for text in (*_indexes(), "CHECKPOINT"):
                self._connection.execute(text)

        self.load_ms = clocked(load)[1]

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()

    def ask(self, name: str, values: Mapping[str, Any]) -> Rows:
        """The rows of one query."""
        given = {key: _naive(value) for key, value in values.items()}
        return [list(row) for row in self._connection.execute(self._texts[name], given).fetchall()]


class Postgres:
    """A PostgreSQL server, whose socket the folder has a link to, loaded from comma-separated values; tables as in DuckDB."""

    def __init__(self, folder: Path, network: Network) -> None:
        """Load it."""
        import psycopg

        host = str((folder / "server").readlink())
        self._connection = psycopg.connect(host=host, user="postgres", dbname="postgres", autocommit=True)
        paths, self._texts = network.comma_separated(folder), _named(".sql", "-- ")

        def load() -> None:
            for name, table in network.tables.items():
                self._connection.execute(_table(name, table).encode())
                with self._connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)".encode()) as copy:
                    copy.write(paths[name].read_bytes())
            for text in (*_indexes(), "VACUUM ANALYZE", "CHECKPOINT"):
                self._connection.execute(text.encode())

        self.load_ms = clocked(load)[1]

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()

    def ask(self, name: str, values: Mapping[str, Any]) -> Rows:
        """The rows of one query."""
        given = {key: _naive(value) for key, value in values.items()}
        text = re.sub(r"\$(\w+)", r"%(\1)s", self._texts[name])
        return [list(row) for row in self._connection.execute(text.encode(), given).fetchall()]


System = Ours | Ladybug | DuckDb | Postgres
SYSTEMS: Mapping[str, Callable[[Path, Network], System]] = {
    "gitops": Ours,
    "ladybug": Ladybug,
    "DuckDB": DuckDb,
    "PostgreSQL": Postgres,
}


def asked(network: Network) -> dict[str, list[dict[str, Any]]]:
    """The parameters of each query: people with few and with many friends, and messages with replies."""
    friends = Counter(end for row in network.rows["Knows"] for end in row[:2])
    people = [nr for nr, _ in sorted(friends.items(), key=lambda item: item[::-1])]
    replied = sorted({row[1] for row in network.rows["ReplyOf"]})
    creator = dict(network.rows["HasCreator"])
    (tag, _), *_ = Counter(tag for tag, _ in {(tag, creator[nr]) for nr, tag in network.rows["HasTag"]}).most_common(1)
    (company, _), *_ = Counter(row[1] for row in network.rows["WorkAt"]).most_common(1)
    country = next(row[1] for row in network.rows["CompanyIn"] if row[0] == company)
    since, until = map(moment, _WINDOW)
    fixed = {
        "max": moment(_MAX),
        "since": since,
        "until": until,
        "year": 2012,
        "tag": f"Tag {tag}",
        "country": f"Country {country}",
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for query in parse_queries(_READS.read_bytes()):
        name = query.name.text
        if name != _SECOND:
            about = replied if name in _OF_MESSAGES else people
            more = {param.name.text: fixed[param.name.text] for param in query.params if param.name.text != "id"}
            found[name] = [{"id": about[int(len(about) * quantile)], **more} for quantile in _QUANTILES]
    return found


def plain(value: Any) -> Any:
    """A cell as our rows have it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    if isinstance(value, Decimal):
        return int(value)
    return str(value) if isinstance(value, date) else value


def measured(name: str, folder: Path, network: Network, samples: int) -> dict[str, Any]:
    """The load, and of each query the answers, the number of rows, and times for each call."""
    with closing(SYSTEMS[name](folder, network)) as system:
        return {"load_ms": system.load_ms, "queries": _taken(system, network, samples)}


def _taken(system: System, network: Network, samples: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for query, sets in asked(network).items():

        def call(query: str = query, sets: Sequence[Mapping[str, Any]] = sets) -> list[Rows]:
            return [system.ask(query, values) for values in sets]

        rows = [[[plain(cell) for cell in row] for row in each] for each in call()]
        took: list[float] = []
        cpu: list[float] = []
        started = time.monotonic()
        while len(took) < samples and (len(took) < _LEAST or time.monotonic() - started < _ENOUGH_S):
            begin = time.process_time_ns()
            took.append(clocked(call)[1] / len(sets))
            cpu.append((time.process_time_ns() - begin) / NS_PER_MS / len(sets))
        found[query] = {"rows": rows, "ms": took, "cpu_ms": cpu}
    return found


def _named(suffix: str, mark: str) -> dict[str, str]:
    """The queries of a language by their names: each begins after a line with the mark and its name."""
    _, *parts = f"\n{_READS.with_suffix(suffix).read_text(encoding='utf-8')}".split(f"\n\n{mark}")
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def _kind(kind: Any, column: int) -> str:
    text = str(kind)
    if text.startswith("list"):
        return f"{_KINDS['string'][column]}[]"
    return "TIMESTAMP" if text.startswith("timestamp") else _KINDS[text][column]


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _table(name: str, table: pa.Table) -> str:
    columns = [f"{field.name} {_kind(field.type, 1)}" for field in table.schema]
    return f"CREATE TABLE {name}({', '.join(columns if name in EDGES else (*columns, 'PRIMARY KEY (nr)'))})"


def _indexes() -> Iterator[str]:
    """Both ends of edges; and acquaintances in both directions."""
    for name in EDGES:
        yield from (f"CREATE INDEX {name}_{end} ON {name}({end})" for end in ("src", "dst"))
    both = "SELECT {} AS a, {} AS b, creationDate AS made FROM knows"
    yield f"CREATE VIEW friends AS {both.format('src', 'dst')} UNION ALL {both.format('dst', 'src')}"


def main(arguments: list[str]) -> int:
    """See the module."""
    name, folder, people, samples = arguments
    below = Path(folder) / name
    below.mkdir(exist_ok=True)
    found = measured(name, below, Network(int(people)), int(samples))
    (Path(folder) / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
