"""Searches one table column for rows that contain a word, with their relevance, or for rows nearest to a vector.

The rank of a text is BM25 with k1 = 1.2, b = 0.75 and idf = ln(1 + (N - n + 0.5) / (n + 0.5)), where N is the number of
rows that have a text, n is the number of rows with the word, and lengths are counted in tokens. (Robertson, Zaragoza,
"The Probabilistic Relevance Framework: BM25 and Beyond", 2009; the idf is Lucene's.) An index finds candidates but
never provides scores, because the driver's scores depend on when its index was built.

Tokens are the same as in one of the driver's indexes with default settings, and the driver produces them: text is split
at characters that are neither letters nor numbers; words are lower-cased, reduced to their English stem, left out if
they are stop words (`the`, `to`) or longer than 40 bytes, and stripped of accents. So an index with these settings
finds every matching row. An index with different settings, from an earlier release, is not used.

The distance of vectors is Euclidean, squared (L2). Exact search reads every vector, in memory or on disk. It selects
candidates in single precision, with a bound on the error, and compares them in double precision, so it returns the same
rows as any other exact search. A vector index is approximate, and is used only if the caller allows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from lance.dataset import LanceDataset
    from lance.lance.indices import IndexDescription
    from numpy.typing import NDArray

_ANALYSIS: dict[str, Any] = {
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": 40,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "ascii_folding": True,
}
TEXT_INDEX: dict[str, Any] = {"with_position": False, **_ANALYSIS}
"""Options of the INVERTED indexes that this module can use."""

Memo: TypeAlias = "Callable[[Hashable, Callable[[], Any]], Any]"
"""Returns the value for a key, created with the function if missing. Values never change, so they can be dropped."""

_K1, _B = 1.2, 0.75

# Tokens never contain these characters, so the text between two of them always has the same tokens.
_CUTS = str.maketrans(dict.fromkeys((chr(point) for point in range(128) if not chr(point).isalnum()), " "))
_MARK = "\u9f98"
_MOST_KNOWN = 1 << 16
_LONGEST_KNOWN = 64
_known: dict[str, tuple[str, ...]] = {}


def tokens(texts: Iterable[str]) -> list[list[str]]:
    """Return each text's tokens in order, including repeated ones."""
    split = [text.translate(_CUTS).split() for text in texts]
    pieces = set[str]().union(*split)
    found = {piece: known for piece in pieces if (known := _known.get(piece)) is not None}
    fresh = _analyse([piece for piece in pieces if piece not in found])
    if len(_known) + len(fresh) > _MOST_KNOWN:
        _known.clear()
    _known.update((piece, made) for piece, made in fresh.items() if len(piece) <= _LONGEST_KNOWN)
    found |= fresh
    return [[token for piece in each for token in found[piece]] for each in split]


def _analyse(pieces: list[str]) -> dict[str, tuple[str, ...]]:
    """Return pieces with their tokens.

    Driver calls are expensive, so the pieces are joined to one text, with marks in between.
    """
    made = {piece: tuple(_ask_driver(piece)) for piece in pieces if _MARK in piece}
    joined = [piece for piece in pieces if piece not in made]
    if not joined:
        return made
    held: list[list[str]] = [[]]
    for token in _ask_driver(f" {_MARK} ".join(joined)):
        if token == _MARK:
            held.append([])
        else:
            held[-1].append(token)
    return made | dict(zip(joined, map(tuple, held), strict=True))


def _ask_driver(text: str) -> list[str]:
    return [token.text for token in lance.tokenize(text, **_ANALYSIS)]


def usable(index: IndexDescription, column: str) -> bool:
    """Return whether an index covers a text column and uses the same tokens as this module."""
    if index.index_type.casefold() != "inverted" or list(index.field_names) != [column]:
        return False
    return all(index.details.get(name) == value for name, value in TEXT_INDEX.items())


def edits_within(one: str, other: str, most: int) -> bool:
    """Return whether at most `most` edits turn one string into the other (Levenshtein distance).

    An edit inserts, deletes or replaces a character.
    """
    if abs(len(one) - len(other)) > most:
        return False
    if one == other:
        return True
    row = list(range(len(other) + 1))
    for at, character in enumerate(one, start=1):
        diagonal, row[0] = row[0], at
        for to, wanted in enumerate(other, start=1):
            diagonal, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, diagonal + (character != wanted))
        if min(row) > most:
            return False
    return row[-1] <= most


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A String column of a table at one version. `memo` caches the size of its corpus between queries.

    A `within` argument restricts a search to these row ids. `check` is called often, and can raise an error to end the
    search.
    """

    dataset: LanceDataset
    name: str
    memo: Memo = lambda _, make: make()
    check: Callable[[], None] = lambda: None

    def matching(self, query: str, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the row ids of rows with any token from the query, in ascending order."""
        wanted = frozenset(tokens([query])[0])
        found = [row for row, words in self._candidates(query, wanted, within) if not wanted.isdisjoint(words)]
        return np.array(sorted(found), np.int64)

    def resembling(self, query: str, most: int, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the row ids of rows with a token within `most` edits of a query token, in ascending order."""
        wanted = frozenset(tokens([query])[0])
        known: dict[str, bool] = {}

        def near(word: str) -> bool:
            if word not in known:
                self.check()
                known[word] = any(edits_within(each, word, most) for each in wanted)
            return known[word]

        # No index helps here, because the driver's fuzzy match expands a word only to a limited number of others.
        rows = self._rows(within) if wanted else iter(())
        return np.array(sorted(row for row, words in rows if any(map(near, words))), np.int64)

    def ranked(self, query: str, within: NDArray[np.int64] | None = None) -> list[tuple[int, float]]:
        """Return the row ids and scores of rows with any token from the query, best first. Ties are ordered by row id.

        A token counts once for each time that it occurs in the query. `within` does not affect the scores.
        """
        (asked,) = tokens([query])
        # The number of rows with a word depends on the whole column, so read all candidates first.
        rows = [(row, Counter(words)) for row, words in self._candidates(query, frozenset(asked), None)]
        holders = {word: sum(word in words for _, words in rows) for word in set(asked)}
        documents, total = self.memo(("corpus", self.name), self._corpus)
        mean = total / documents if documents else 0.0
        weights = {word: math.log(1 + (documents - count + 0.5) / (count + 0.5)) for word, count in holders.items()}
        kept = None if within is None else frozenset(within.tolist())
        scores = []
        for row, words in rows:
            if holders.keys().isdisjoint(words) or (kept is not None and row not in kept):
                continue
            length = _K1 * (1 - _B + _B * words.total() / mean)
            score = sum(weights[word] * words[word] * (_K1 + 1) / (words[word] + length) for word in asked)
            scores.append((row, score))
        return sorted(scores, key=lambda each: (-each[1], each[0]))

    def _candidates(
        self, query: str, wanted: frozenset[str], within: NDArray[np.int64] | None
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield rows with their tokens, including all rows with a wanted token."""
        if not wanted:
            return iter(())
        indexed = within is None and any(usable(index, self.name) for index in self.dataset.describe_indices())
        return self._rows(within, query if indexed else None)

    def _rows(self, within: NDArray[np.int64] | None, query: str | None = None) -> Iterator[tuple[int, list[str]]]:
        """Yield rows that have a text, with its tokens; with a query, only the rows that an index finds."""
        batches: Iterable[tuple[pa.Array, pa.Array | pa.ChunkedArray]]
        if within is None:
            found = None if query is None else {"query": query, "columns": [self.name]}
            scanner = self.dataset.scanner(
                columns=[self.name],
                full_text_query=found,
                with_row_id=True,
                disable_scoring_autoprojection=query is not None,
            )
            batches = ((batch.column("_rowid"), batch.column(self.name)) for batch in scanner.to_reader())
        else:
            ids = np.unique(within)
            taken = self.dataset._take_rows(ids.tolist(), columns=[self.name])  # noqa: SLF001 - there is no public name
            batches = [(pa.array(ids, pa.int64()), taken.column(self.name))]
        for row_ids, texts in batches:
            self.check()
            present = [each for each in zip(row_ids.to_pylist(), texts.to_pylist(), strict=True) if each[1] is not None]
            yield from zip((row for row, _ in present), tokens(text for _, text in present), strict=True)

    def _corpus(self) -> tuple[int, int]:
        """Return the corpus statistics for the rank: the number of rows with a text, and their total number of tokens."""
        documents = total = 0
        for _, words in self._rows(None):
            documents += 1
            total += len(words)
        return documents, total


METRIC = "L2"
# Search effort of an index: with 100 probes the recall on clustered data is near 1, and refining compares the real vectors.
_PROBES = 100
_REFINE = 20
# The recall of an index is measured with this many stored vectors, and this many nearest neighbours of each.
_ASKED, _WANTED = 32, 10
# If at most this many rows were selected, they are read from the table, even if all vectors are in memory.
_FEW = 1_000
# The driver is asked for twice the wanted rows plus the second number, up to the first number.
_LISTED, _SPARE = 1_000, 16
# Distances between these neither underflow nor overflow in single precision.
_LEAST, _MOST = 1e-30, 1e30
# Number of vectors compared together in double precision.
_PART = 8_192
# Maximum loss of each part of a product through underflow in single precision.
_VANISHED = 2.0**-124


@dataclass(frozen=True, slots=True)
class VectorMatrix:
    """A column's vectors in memory, one per matrix row. `rows` has their row ids, and `norms` their squared lengths."""

    rows: NDArray[np.int64]
    vectors: NDArray[np.float32]
    norms: NDArray[np.float64]

    @classmethod
    def of(cls, parts: Iterable[tuple[NDArray[np.int64], pa.Array]], count: int, dimension: int) -> VectorMatrix:
        """Build a matrix from a column's parts (row ids and cells), with at most `count` rows. Nulls are skipped."""
        rows, vectors = np.empty(count, np.int64), np.empty((count, dimension), np.float32)
        norms, stop = np.empty(count, np.float64), 0
        for row_ids, cells in parts:
            start, present = stop, cells.is_valid().to_numpy(zero_copy_only=False)
            stop += int(np.count_nonzero(present))
            rows[start:stop] = row_ids[present]
            vectors[start:stop] = _matrix(cells, dimension)
            wide = vectors[start:stop].astype(np.float64)
            norms[start:stop] = np.einsum("ij,ij->i", wide, wide)
        return cls(rows[:stop], vectors[:stop], norms[:stop])

    @staticmethod
    def size(count: int, dimension: int) -> int:
        """Return the number of bytes that `count` vectors need."""
        return count * (4 * dimension + 16)

    @property
    def nbytes(self) -> int:
        """The memory usage in bytes."""
        return self.size(*self.vectors.shape)

    def nearest(self, target: NDArray[np.float64], k: int, within: NDArray[np.int64] | None) -> list[tuple[int, float]]:
        """Return the `k` nearest rows with their distances, as in `VectorColumn.nearest`."""
        likely = self._likely(target, k, None if within is None else np.flatnonzero(np.isin(self.rows, within)))
        parts = (likely[start : start + _PART] for start in range(0, len(likely), _PART))
        return _closest(((self.rows[part], self.vectors[part]) for part in parts), target, k)

    def _likely(self, target: NDArray[np.float64], k: int, within: NDArray[np.intp] | None) -> NDArray[np.intp]:
        """Return the positions of all vectors that may be among the `k` nearest within the given rows."""
        dimension = len(target)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = (self.vectors @ target.astype(np.float32)).astype(np.float64)
            norms = self.norms
            if within is not None:
                products, norms = products[within], norms[within]
            # Vectors that overflow in single precision stay candidates, because comparisons with NaN are false.
            products[~np.isfinite(products)] = np.nan
            lengths = norms + target @ target
            distances = lengths - 2 * products
            # The error of a single-precision product is at most this share of both lengths, plus underflow.
            wrong = lengths * (_margin(dimension) - 1) + dimension * _VANISHED
            bound = np.partition(distances + wrong, k - 1)[k - 1] if len(distances) > k else np.inf
            likely = np.flatnonzero(~(distances - wrong > bound))
        return likely if within is None else within[likely]


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A Vector column of a table version. `kept` returns its vectors if they are in memory."""

    dataset: LanceDataset
    name: str
    kept: Callable[[], VectorMatrix | None] = lambda: None

    def nearest(
        self,
        vector: Sequence[float],
        k: int,
        *,
        within: NDArray[np.int64] | None = None,
        approximate: bool = False,
    ) -> list[tuple[int, float]]:
        """Return row ids and distances of the `k` rows with the nearest vectors, nearest first, ties by row id.

        All rows at the last distance are returned, so there can be more than `k`, and the caller breaks the tie.
        `within` restricts the row ids. `approximate` allows the use of a vector index if all rows are searched.
        """
        if k < 1 or (within is not None and not len(within)):
            return []
        target = np.asarray(vector, np.float32).astype(np.float64)
        if within is None and approximate and self._has_index():
            asked = self.asked(target, k, nprobes=_PROBES, refine_factor=_REFINE)
            return _closest(_vectors(asked.to_batches(), len(target)), target, k)
        matrix = self.kept() if within is None or len(within) > _FEW else None
        if matrix is not None:
            return matrix.nearest(target, k, within)
        found = self._listed(target, k) if within is None else None
        return _closest(_vectors(self._batches(within), len(target)), target, k) if found is None else found

    def _has_index(self) -> bool:
        return any(
            index.index_type.upper().startswith("IVF") and list(index.field_names) == [self.name]
            for index in self.dataset.describe_indices()
        )

    def _listed(self, target: NDArray[np.float64], k: int) -> list[tuple[int, float]] | None:
        """Return the exact result, computed from a longer list of candidates that the driver finds in single precision.

        None if that precision cannot prove that all other rows are farther away.
        """
        if k > _LISTED:
            return None
        listed = self.asked(target, 2 * k + _SPARE, use_index=False)
        found = _closest(_vectors(listed.to_batches(), len(target)), target, k)
        if listed.num_rows < 2 * k + _SPARE:
            return found if listed.num_rows == self.dataset.count_rows() else None
        farthest = float(np.max(np.asarray(listed.column("_distance"), np.float64)))
        margin = _margin(len(target)) ** 2
        sure = bool(found) and _LEAST < farthest < _MOST and farthest > found[-1][1] * margin
        return found if sure else None

    def asked(self, target: NDArray[np.float64], k: int, **how: Any) -> pa.Table:
        """Return the nearest rows according to the driver, with their distances in single precision."""
        query = {"column": self.name, "q": target.astype(np.float32), "k": k, "metric": METRIC, **how}
        return self.dataset.scanner(
            columns=[self.name, "_distance"], nearest=query, with_row_id=True, disable_scoring_autoprojection=True
        ).to_table()

    def _batches(self, within: NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
        if within is None:
            return iter(self.dataset.scanner(columns=[self.name], with_row_id=True).to_reader())
        ids = np.unique(within)
        taken = self.dataset._take_rows(ids.tolist(), columns=[self.name])  # noqa: SLF001 - there is no public name
        return iter(taken.append_column("_rowid", pa.array(ids, pa.uint64())).to_batches())


def index_recall(dataset: LanceDataset, name: str, partitions: int) -> float:
    """Return an index's recall: the share of sampled vectors' nearest neighbours that it finds in all partitions.

    Any loss is caused by rounding the vectors in the index.
    """
    places = range(0, dataset.count_rows(), max(1, dataset.count_rows() // _ASKED))
    cells = dataset.take(list(places), columns=[name]).column(name).combine_chunks()
    targets = _matrix(cells, cells.type.list_size)
    nearest = [np.empty(0, np.float32)] * len(targets)
    for batch in dataset.scanner(columns=[name]).to_reader():
        vectors = _matrix(batch.column(0), targets.shape[1])
        for at, target in enumerate(targets):
            difference = vectors - target
            distances = np.concatenate([nearest[at], np.einsum("ij,ij->i", difference, difference)])
            nearest[at] = np.partition(distances, _WANTED - 1)[:_WANTED] if len(distances) > _WANTED else distances
    column, margin, hits = VectorColumn(dataset, name), _margin(targets.shape[1]), 0
    for target, exact in zip(targets, nearest, strict=True):
        asked = column.asked(target.astype(np.float64), len(exact), nprobes=partitions, refine_factor=_REFINE)
        hits += int(np.count_nonzero(asked.column("_distance").to_numpy() <= exact.max() * margin))
    return hits / max(1, sum(map(len, nearest)))


def _vectors(
    batches: Iterable[pa.RecordBatch], dimension: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield the row ids and vectors of batches, skipping rows without a vector."""
    for batch in batches:
        cells = batch.column(0)
        present = cells.is_valid().to_numpy(zero_copy_only=False)
        yield batch.column("_rowid").to_numpy().astype(np.int64)[present], _matrix(cells, dimension)


def _matrix(cells: pa.Array, dimension: int) -> NDArray[np.float32]:
    """Return a column's vectors as matrix rows; nulls are left out."""
    flat: NDArray[np.float32] = cells.drop_null().flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, dimension)


def _closest(
    parts: Iterable[tuple[NDArray[np.int64], NDArray[np.float32]]], target: NDArray[np.float64], k: int
) -> list[tuple[int, float]]:
    """Return the `k` nearest rows of all parts, including ties with the last one."""
    rows = np.empty(0, np.int64)
    distances = np.empty(0, np.float64)
    for row_ids, vectors in parts:
        bound = distances.max() if len(rows) >= k else np.inf
        near = _candidates(vectors, target, k, bound)
        difference = vectors[near].astype(np.float64) - target
        rows = np.concatenate([rows, row_ids[near]])
        distances = np.concatenate([distances, np.einsum("ij,ij->i", difference, difference)])
        if len(rows) > k:
            keep = distances <= np.partition(distances, k - 1)[k - 1]
            rows, distances = rows[keep], distances[keep]
    order = np.lexsort((rows, distances))
    return [(int(rows[at]), float(distances[at])) for at in order]


def _candidates(vectors: NDArray[np.float32], target: NDArray[np.float64], k: int, bound: float) -> NDArray[np.bool_]:
    """Return the vectors that may be among the `k` nearest or within `bound`, allowing for the error of single precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference = vectors - target.astype(np.float32)
        distances = np.einsum("ij,ij->i", difference, difference)
    margin = _margin(len(target))
    if len(distances) > k:
        bound = min(bound, float(np.partition(distances, k - 1)[k - 1]) * margin)
    # This form of the comparison keeps vectors that overflow in single precision as candidates.
    near: NDArray[np.bool_] = ~(distances > bound * margin)
    return near


def _margin(dimension: int) -> float:
    """Return the maximum relative error of a single-precision distance."""
    return 1 + (dimension + 4) * float(np.finfo(np.float32).eps)
