"""The graph of the comparison: people who know people, with a vector each. The same numbers in every run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import csv_files

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SCHEMA = """\
node Person {
  name: String @key
  age: I32
  bio: String @index
  city: String
  vec: Vector({dimension}) @index
}

edge Knows: Person -> Person {
  since: I32
}
"""

QUESTIONS = {
    "point": "match { $p: Person { name: $k } } return { $p.age }",
    "1 hop": "match { $p: Person { name: $k } $p knows $q } return { $q.name }",
    "2 hops": "match { $p: Person { name: $k } $p knows $m $m knows $q } return { $q.name }",
    "{1,3} hops": "match { $p: Person { name: $k } $p knows{1,3} $q } return { $q.name }",
    "anti-join": "match { $p: Person not { $o knows $p } } return { $p.name }",
    "group": "match { $p: Person } return { $p.city, count($p) as n, avg($p.age) as a }",
    "top 10": "match { $p: Person } return { $p.name } order { $p.age desc } limit 10",
    "contains": "match { $p: Person $p.name contains $t } return { $p.name }",
    "nearest 10": "match { $p: Person } return { $p.name } order { nearest($p.vec, $v) } limit 10",
    "full text 10": "match { $p: Person } return { $p.name } order { bm25($p.bio, $w) } limit 10",
}
"""Our words for each question; the parameters are `$k`, `$t`, `$v`, `$w`."""

EXACT, APPROXIMATE = "nearest 10", "nearest 10 by index"

_CITIES = 1000
_WORDS = 5000
_BATCH = 50_000
_DIGITS = 5
# Spreads the popular over all numbers; a prime.
_STRIDE = 7919


@dataclass(frozen=True)
class Social:
    """`nodes` people and `edges` acquaintances, with popular people in the middle of many."""

    nodes: int
    edges: int
    dimension: int = 128

    @property
    def schema(self) -> bytes:
        """The schema text."""
        return SCHEMA.replace("{dimension}", str(self.dimension)).encode()

    @property
    def probe(self) -> str:
        """A person to ask about."""
        return f"p{self.nodes // 3}"

    @property
    def piece(self) -> str:
        """A piece of text that few names have."""
        return str(self.nodes // 3)

    @property
    def vector(self) -> list[float]:
        """A vector to be near to."""
        vectors: list[list[float]] = self._vectors(self._random(2), 1).tolist()
        return vectors[0]

    @property
    def word(self) -> str:
        """A word that some texts have."""
        return f"w{_WORDS // 2}"

    def people(self) -> Iterator[pa.RecordBatch]:
        """The people, batch by batch."""
        import pyarrow as pa

        random = self._random(3)
        for start in range(0, self.nodes, _BATCH):
            count = min(_BATCH, self.nodes - start)
            words = random.integers(0, _WORDS, (count, 8))
            columns = {
                "name": pa.array([f"p{at}" for at in range(start, start + count)]),
                "city": pa.array([f"city{at}" for at in random.integers(0, _CITIES, count)]),
                "age": pa.array(random.integers(0, 100, count), pa.int32()),
                "bio": pa.array([" ".join([f"w{each}" for each in row]) for row in words]),
                "vec": pa.FixedSizeListArray.from_arrays(
                    pa.array(self._vectors(random, count).ravel()), self.dimension
                ),
            }
            yield pa.RecordBatch.from_pydict(columns)

    def knows(self) -> Iterator[pa.RecordBatch]:
        """The acquaintances, batch by batch: all know about as many, few are known by many, some by nobody."""
        import numpy as np
        import pyarrow as pa

        random = self._random(4)
        for start in range(0, self.edges, _BATCH):
            count = min(_BATCH, self.edges - start)
            known = (random.random(count) ** 3 * self.nodes).astype(np.int64) * _STRIDE % self.nodes
            columns = {
                "src": pa.array([f"p{at}" for at in random.integers(0, self.nodes, count)]),
                "dst": pa.array([f"p{at}" for at in known]),
                "since": pa.array(random.integers(1970, 2026, count), pa.int32()),
            }
            yield pa.RecordBatch.from_pydict(columns)

    def parquet(self, folder: Path) -> tuple[Path, Path]:
        """Files of the people and of the acquaintances; written once."""
        import pyarrow.parquet as pq

        paths = folder / "people.parquet", folder / "knows.parquet"
        for path, batches in zip(paths, (self.people, self.knows), strict=True):
            if path.exists():
                continue
            stream = batches()
            first = next(stream)
            with pq.ParquetWriter(path, first.schema) as writer:
                writer.write_batch(first)
                for batch in stream:
                    writer.write_batch(batch)
        return paths

    def comma_separated(self, folder: Path) -> tuple[Path, Path]:
        """Files of the people and of the acquaintances for PostgreSQL; written once."""
        import pyarrow as pa

        paths = folder / "people.csv", folder / "knows.csv"
        for path, batches in zip(paths, (self.people, self.knows), strict=True):
            if path.exists():
                continue
            with path.open("wb") as file:
                for batch in batches():
                    csv_files.write(pa.Table.from_batches([batch]), file)
        return paths

    def records(self, folder: Path) -> Path:
        """The file of the records as our loader takes them; written once."""
        import numpy as np

        path = folder / "graph.ndjson"
        if path.exists():
            return path
        with path.open("w", encoding="utf-8") as file:
            for batch in self.people():
                vectors = np.asarray(batch.column("vec").flatten(), np.float64).round(_DIGITS)
                rows = batch.drop_columns(["vec"]).to_pylist()
                for row, vector in zip(rows, vectors.reshape(-1, self.dimension).tolist(), strict=True):
                    file.write(_line({"type": "Person", "data": {**row, "vec": vector}}))
            for batch in self.knows():
                for row in batch.to_pylist():
                    ends = {"edge": "Knows", "from": row["src"], "to": row["dst"]}
                    file.write(_line({**ends, "data": {"since": row["since"]}}))
        return path

    def _random(self, seed: int) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng(seed)

    def _vectors(self, random: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
        """Around a hundred centres, as embeddings lie, not everywhere alike."""
        import numpy as np

        centres = self._random(1).normal(size=(100, self.dimension))
        chosen = centres[random.integers(0, 100, count)]
        # Few digits: the text has the very numbers that the columns have.
        return (chosen + random.normal(scale=0.4, size=(count, self.dimension))).round(_DIGITS).astype(np.float32)


def _line(form: dict[str, Any]) -> str:
    return json.dumps(form, separators=(",", ":")) + "\n"
