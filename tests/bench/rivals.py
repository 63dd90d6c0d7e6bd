"""The same questions put to ladybug (the maintained successor of Kuzu) and to DuckDB, each in its own words.

Both are embedded in the process and hold the same rows. Where answers differ by rules, the words follow ours: a neighbour is
reached once however many edges lead to it, and no edge leads a node to itself. Full-text search is an extension of both that
is fetched from the network, so neither has it here.
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
        distance = f"array_distance(p.vec, CAST($v, 'FLOAT[{self.social.dimension}]'))"
        return {
            "point": lambda: self._run(f"{found} RETURN p.age", k),
            "1 hop": lambda: self._run(f"{found}-[:Knows]->(q:Person) WHERE q.name <> $k RETURN DISTINCT q.name", k),
            "2 hops": lambda: self._run(
                f"{found}-[:Knows]->(m:Person) WHERE m.name <> $k WITH DISTINCT m"
                " MATCH (m)-[:Knows]->(q:Person) WHERE q.name <> m.name WITH DISTINCT m, q RETURN q.name",
                k,
            ),
            "{1,3} hops": lambda: self._run(f"{found}-[:Knows* SHORTEST 1..3]->(q:Person) RETURN q.name", k),
            "anti-join": lambda: self._run(
                "MATCH (p:Person) WHERE NOT EXISTS { MATCH (o:Person)-[:Knows]->(p) WHERE o.name <> p.name }"
                " RETURN p.name",
                {},
            ),
            "group": lambda: self._run("MATCH (p:Person) RETURN p.city, count(*), avg(p.age)", {}),
            "top 10": lambda: self._run("MATCH (p:Person) RETURN p.name ORDER BY p.age DESC, p.name LIMIT 10", {}),
            "contains": lambda: self._run(
                "MATCH (p:Person) WHERE contains(p.name, $t) RETURN p.name", {"t": self.social.piece}
            ),
            "nearest 10": lambda: self._run(
                f"MATCH (p:Person) RETURN p.name, {distance} AS d ORDER BY d LIMIT 10", vector
            ),
            "change 1 row": lambda: self._run(f"{found} SET p.age = $age RETURN p.name", {**k, "age": next(ages)}),
        }

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
        probe, ages = self.social.probe, count(1)
        one = "SELECT DISTINCT p.name FROM knows k JOIN person p ON p.name = k.dst WHERE k.src = ? AND k.src <> k.dst"
        two = (
            "SELECT p.name FROM (SELECT DISTINCT dst AS middle FROM knows WHERE src = ? AND src <> dst) m"
            " JOIN (SELECT DISTINCT src, dst FROM knows WHERE src <> dst) b ON b.src = m.middle"
            " JOIN person p ON p.name = b.dst"
        )
        three = (
            "WITH RECURSIVE reach(node, depth) AS (SELECT ?::VARCHAR, 0 UNION"
            " SELECT k.dst, r.depth + 1 FROM reach r JOIN knows k ON k.src = r.node WHERE r.depth < 3)"
            " SELECT DISTINCT node FROM reach WHERE node <> ?"
        )
        absent = "SELECT name FROM person p WHERE NOT EXISTS (FROM knows WHERE dst = p.name AND src <> dst)"
        near = "SELECT name FROM person ORDER BY array_distance(vec, ?::FLOAT[{}]) LIMIT 10"
        near = near.format(self.social.dimension)
        return {
            "point": lambda: self._run("SELECT age FROM person WHERE name = ?", probe),
            "1 hop": lambda: self._run(one, probe),
            "2 hops": lambda: self._run(two, probe),
            "{1,3} hops": lambda: self._run(three, probe, probe),
            "anti-join": lambda: self._run(absent),
            "group": lambda: self._run("SELECT city, count(*), avg(age) FROM person GROUP BY city"),
            "top 10": lambda: self._run("SELECT name FROM person ORDER BY age DESC, name LIMIT 10"),
            "contains": lambda: self._run("SELECT name FROM person WHERE contains(name, ?)", self.social.piece),
            "nearest 10": lambda: self._run(near, self.social.vector),
            "change 1 row": lambda: self._run(
                "UPDATE person SET age = ? WHERE name = ? RETURNING name", next(ages), probe
            ),
        }

    def _run(self, text: str, *parameters: Any) -> Sequence[Sequence[Any]]:
        return self._connection.execute(text, list(parameters)).fetchall()
