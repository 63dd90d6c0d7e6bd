"""The same questions put to ladybug (the maintained successor of Kuzu), DuckDB and PostgreSQL, each in its own words.

The first two are embedded in the process. All hold the same rows. Where answers differ by rules, the words follow ours: a
neighbour is reached once however many edges lead to it, and a walk of several hops leads back to its start only by an edge from
it to itself. Full-text search is an extension of the first two that is fetched from the network, so none has it here.

With the settings that they come with, all of them sync their log before they acknowledge a change, so it survives a power loss
and is replayed when the database is opened. `CHECKPOINTED` asks for what our engine does: the change is in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.social import Social

Ask = Callable[[], Sequence[Sequence[Any]]]
"""Puts one question and gives the rows of the answer, all of which were taken into Python."""

_PIECE = 1 << 20
CHANGE, CHECKPOINTED = "change 1 row", "change 1 row, checkpointed"


class Ladybug:
    """A ladybug database; its connection keeps the plan of a text that it saw before."""

    name = "ladybug"

    def __init__(self, folder: Path, social: Social) -> None:
        """Open, or make, the database of a folder."""
        import ladybug

        self._folder = folder
        self.social = social
        self._database = ladybug.Database(str(folder / "graph"))
        self._connection = ladybug.Connection(self._database)

    def load(self) -> Mapping[str, Callable[[], None]]:
        """Bulk load from Parquet files, the way its manual advises for large data. The adjacency is made by it."""
        return {"load": self._load}

    def _load(self) -> None:
        people, knows = self.social.parquet(self._folder.parent)
        columns = f"name STRING PRIMARY KEY, city STRING, age INT32, bio STRING, vec FLOAT[{self.social.dimension}]"
        for text in (
            f"CREATE NODE TABLE Person({columns})",
            "CREATE REL TABLE Knows(FROM Person TO Person, since INT32)",
            f"COPY Person FROM '{people}'",
            f"COPY Knows FROM '{knows}'",
            "CHECKPOINT",
        ):
            self._connection.execute(text)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()
        self._database.close()

    def questions(self) -> Mapping[str, Ask]:
        """By the names of `social.QUESTIONS`, and the change."""
        k = {"k": self.social.probe}
        vector, ages = {"v": self.social.vector}, count(1)
        found = "MATCH (p:Person {name: $k})"
        change = f"{found} SET p.age = $age RETURN p.name"
        distance = f"array_distance(p.vec, CAST($v, 'FLOAT[{self.social.dimension}]'))"
        return {
            "point": lambda: self._run(f"{found} RETURN p.age", k),
            "1 hop": lambda: self._run(f"{found}-[:Knows]->(q:Person) RETURN DISTINCT q.name", k),
            "2 hops": lambda: self._run(
                f"{found}-[:Knows]->(m:Person) WITH DISTINCT m"
                " MATCH (m)-[:Knows]->(q:Person) WITH DISTINCT m, q RETURN q.name",
                k,
            ),
            "{1,3} hops": lambda: self._run(
                f"{found}-[:Knows* SHORTEST 1..3]->(q:Person) RETURN q.name"
                f" UNION ALL {found}-[:Knows]->(p) RETURN DISTINCT p.name AS `q.name`",
                k,
            ),
            "anti-join": lambda: self._run(
                "MATCH (p:Person) WHERE NOT EXISTS { MATCH (o:Person)-[:Knows]->(p) } RETURN p.name", {}
            ),
            "group": lambda: self._run("MATCH (p:Person) RETURN p.city, count(*), avg(p.age)", {}),
            "top 10": lambda: self._run("MATCH (p:Person) RETURN p.name ORDER BY p.age DESC, p.name LIMIT 10", {}),
            "contains": lambda: self._run(
                "MATCH (p:Person) WHERE contains(p.name, $t) RETURN p.name", {"t": self.social.piece}
            ),
            "nearest 10": lambda: self._run(
                f"MATCH (p:Person) RETURN p.name, {distance} AS d ORDER BY d LIMIT 10", vector
            ),
            CHANGE: lambda: self._run(change, {**k, "age": next(ages)}),
            CHECKPOINTED: lambda: self._checkpointed(change, {**k, "age": next(ages)}),
        }

    def _checkpointed(self, text: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        rows = self._run(text, parameters)
        self._connection.execute("CHECKPOINT")
        return rows

    def _run(self, text: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        result = self._connection.execute(text, dict(parameters))
        if isinstance(result, list):
            raise TypeError("one question has one answer")
        rows: Sequence[Any] = result.get_all()
        return rows


class DuckDb:
    """A DuckDB database, with indexes on the keys and on both ends of the edges."""

    name = "DuckDB"

    def __init__(self, folder: Path, social: Social) -> None:
        """Open, or make, the database of a folder."""
        import duckdb

        self._folder = folder
        self.social = social
        self._connection = duckdb.connect(str(folder / "graph"))

    def load(self) -> Mapping[str, Callable[[], None]]:
        """Take the rows in from Parquet files, and build the indexes."""
        return {"load": self._load, "index": self._index}

    def _load(self) -> None:
        people, knows = self.social.parquet(self._folder.parent)
        self._all(
            "CREATE TABLE person(name VARCHAR PRIMARY KEY, city VARCHAR, age INTEGER, bio VARCHAR,"
            f" vec FLOAT[{self.social.dimension}])",
            "CREATE TABLE knows(src VARCHAR, dst VARCHAR, since INTEGER)",
            f"COPY person FROM '{people}'",
            f"COPY knows FROM '{knows}'",
        )

    def _index(self) -> None:
        self._all("CREATE INDEX knows_src ON knows(src)", "CREATE INDEX knows_dst ON knows(dst)", "CHECKPOINT")

    def _all(self, *texts: str) -> None:
        for text in texts:
            self._connection.execute(text)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()

    def questions(self) -> Mapping[str, Ask]:
        """By the names of `social.QUESTIONS`, and the change."""
        near = "SELECT name FROM person ORDER BY array_distance(vec, ?::FLOAT[{}]) LIMIT 10"
        near = near.format(self.social.dimension)
        vector = self.social.vector
        return {**_in_sql(self.social, self._run), "nearest 10": lambda: self._run(near, vector)}

    def _run(self, text: str, *parameters: Any) -> Sequence[Sequence[Any]]:
        return self._connection.execute(text, list(parameters)).fetchall()


class Postgres:
    """PostgreSQL, a server that the comparison started and that syncs every change; the folder has a link to its socket.

    It has graph queries of its own (SQL/PGQ) from release 19 on. Debian has none of these yet, so here are joins and recursion.
    Distances of vectors need an extension.
    """

    name = "PostgreSQL"

    def __init__(self, folder: Path, social: Social) -> None:
        """Connect."""
        import psycopg

        self._folder = folder
        self.social = social
        server = str((folder / "server").readlink())
        self._connection = psycopg.connect(host=server, user="postgres", dbname="postgres", autocommit=True)

    def load(self) -> Mapping[str, Callable[[], None]]:
        """Copy the rows from files of comma-separated values, and build the indexes."""
        files = self.social.comma_separated(self._folder.parent)
        return {"load": lambda: self._load(*files), "index": self._index}

    def _load(self, people: Path, knows: Path) -> None:
        self._all(
            "CREATE TABLE person(name TEXT, city TEXT, age INTEGER, bio TEXT, vec REAL[])",
            "CREATE TABLE knows(src TEXT, dst TEXT, since INTEGER)",
        )
        copies = {"person(name, city, age, bio, vec)": people, "knows(src, dst, since)": knows}
        for table, path in copies.items():
            with (
                self._connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy,
                path.open("rb") as file,
            ):
                while piece := file.read(_PIECE):
                    copy.write(piece)

    def _index(self) -> None:
        self._all(
            "ALTER TABLE person ADD PRIMARY KEY (name)",
            "CREATE INDEX knows_src ON knows(src)",
            "CREATE INDEX knows_dst ON knows(dst)",
            "VACUUM ANALYZE",
            "CHECKPOINT",
        )

    def _all(self, *texts: str) -> None:
        for text in texts:
            self._connection.execute(text.encode())

    def size(self) -> int:
        """Bytes on disk when the connection was closed, without the log."""
        return self._bytes

    def close(self) -> None:
        """Close the connection."""
        self._bytes: int = self._run("SELECT pg_database_size('postgres')")[0][0]
        self._connection.close()

    def questions(self) -> Mapping[str, Ask]:
        """By the names of `social.QUESTIONS`, and the change."""
        return _in_sql(self.social, self._run)

    def _run(self, text: str, *parameters: Any) -> Sequence[Sequence[Any]]:
        cursor = self._connection.execute(text.replace("?", "%s").encode(), parameters)
        return cursor.fetchall() if cursor.description else ()


def _in_sql(social: Social, run: Callable[..., Sequence[Sequence[Any]]]) -> dict[str, Ask]:
    """The questions that are the same text in every SQL database; `run` takes a text and a value for each `?` of it."""
    probe, ages = social.probe, count(1)
    two = (
        "SELECT p.name FROM (SELECT DISTINCT m.middle, k.dst FROM"
        " (SELECT DISTINCT dst AS middle FROM knows WHERE src = ?) m JOIN knows k ON k.src = m.middle) b"
        " JOIN person p ON p.name = b.dst"
    )
    three = (
        "WITH RECURSIVE reach(node, depth) AS (SELECT CAST(? AS VARCHAR), 0 UNION"
        " SELECT k.dst, r.depth + 1 FROM reach r JOIN knows k ON k.src = r.node WHERE r.depth < 3)"
        " SELECT DISTINCT node FROM reach WHERE node <> ?"
        " OR EXISTS (SELECT 1 FROM knows k WHERE k.src = reach.node AND k.dst = reach.node)"
    )
    fixed: dict[str, tuple[str, ...]] = {
        "point": ("SELECT age FROM person WHERE name = ?", probe),
        "1 hop": ("SELECT DISTINCT p.name FROM knows k JOIN person p ON p.name = k.dst WHERE k.src = ?", probe),
        "2 hops": (two, probe),
        "{1,3} hops": (three, probe, probe),
        "anti-join": ("SELECT name FROM person p WHERE NOT EXISTS (SELECT 1 FROM knows k WHERE k.dst = p.name)",),
        "group": ("SELECT city, count(*), avg(age) FROM person GROUP BY city",),
        "top 10": ("SELECT name FROM person ORDER BY age DESC, name LIMIT 10",),
        "contains": ("SELECT name FROM person WHERE strpos(name, ?) > 0", social.piece),
    }

    def asking(question: str) -> Ask:
        return lambda: run(*fixed[question])

    def change() -> Sequence[Sequence[Any]]:
        return run("UPDATE person SET age = ? WHERE name = ? RETURNING name", next(ages), probe)

    def checkpointed() -> Sequence[Sequence[Any]]:
        rows = change()
        run("CHECKPOINT")
        return rows

    return {**{question: asking(question) for question in fixed}, CHANGE: change, CHECKPOINTED: checkpointed}
