"""Search in one text column of a table: which rows have a word, and how well they match.

The rank is BM25 with k1 = 1.2, b = 0.75 and idf = ln(1 + (N - n + 0.5) / (n + 0.5)), where N counts the rows of the
table that have a text, n those with the word, and lengths are counted in tokens. (Robertson, Zaragoza, "The Probabilistic
Relevance Framework: BM25 and Beyond", 2009; the idf is that of Lucene.) An index gives candidates and
never scores: the scores of the driver depend on when its index was built.

Tokens are those of an index of the driver with its default settings, and the driver makes them: words are cut where a character
is neither a letter nor a number, lower-cased, reduced to their English stem, left out if they say little (`the`, `to`) or have
more than 40 bytes, and freed of accents. So an index of these settings finds every row that is to be found. One of other
settings, which earlier releases built, is not asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from lance.dataset import LanceDataset
    from lance.lance.indices import IndexDescription
    from numpy.typing import NDArray

__all__ = ["TEXT_INDEX", "Memo", "TextColumn", "edits_within", "tokens", "usable"]

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
"""Options of an INVERTED index that this module may use."""

Memo: TypeAlias = "Callable[[Hashable, Callable[[], Any]], Any]"
"""Gives the value of a key, made by the function when it is not there. A value never changes, so it may be dropped any time."""

_K1, _B = 1.2, 0.75

# What no token contains. A piece between two of these has the same tokens in every text.
_CUTS = str.maketrans(dict.fromkeys((chr(point) for point in range(128) if not chr(point).isalnum()), " "))
_MARK = "\u9f98"
_MOST_KNOWN = 1 << 16
_LONGEST_KNOWN = 64
_known: dict[str, tuple[str, ...]] = {}


def tokens(texts: Iterable[str]) -> list[list[str]]:
    """The tokens of each text in its order, repeated ones included."""
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
    """Pieces with their tokens. A call of the driver costs as much as some words, so a mark joins the pieces to one text."""
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
    """Whether an index finds the rows of a text column by the tokens of this module."""
    if index.index_type.casefold() != "inverted" or list(index.field_names) != [column]:
        return False
    return all(index.details.get(name) == value for name, value in TEXT_INDEX.items())


def edits_within(one: str, other: str, most: int) -> bool:
    """Whether at most `most` insertions, deletions and replacements of characters make one text the other (Levenshtein)."""
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
    """A String column of a table at one version; `memo` keeps the size of its corpus between queries.

    `within` arguments are row ids: nothing else is looked at. `check` is called often, and raises what ends the search.
    """

    dataset: LanceDataset
    name: str
    memo: Memo = lambda _, make: make()
    check: Callable[[], None] = lambda: None

    def matching(self, query: str, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Row ids, ascending, of the rows with any token of the query."""
        wanted = frozenset(tokens([query])[0])
        found = [row for row, words in self._candidates(query, wanted, within) if not wanted.isdisjoint(words)]
        return np.array(sorted(found), np.int64)

    def resembling(self, query: str, most: int, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Row ids, ascending, of the rows with a token that is at most `most` edits away from a token of the query."""
        wanted = frozenset(tokens([query])[0])
        known: dict[str, bool] = {}

        def near(word: str) -> bool:
            if word not in known:
                self.check()
                known[word] = any(edits_within(each, word, most) for each in wanted)
            return known[word]

        # No index helps here: the driver's own fuzzy match expands a word to a limited number of others.
        rows = self._rows(within) if wanted else iter(())
        return np.array(sorted(row for row, words in rows if any(map(near, words))), np.int64)

    def ranked(self, query: str, within: NDArray[np.int64] | None = None) -> list[tuple[int, float]]:
        """Row ids and scores of the rows with any token of the query, best first; equal scores by row id.

        A token that the query has twice counts twice. The score of a row is the same whatever `within` leaves out.
        """
        (asked,) = tokens([query])
        # How many rows have a word is a fact of the whole column, so all candidates are looked at first.
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
        """Rows with their tokens: at least those that have a wanted one."""
        if not wanted:
            return iter(())
        indexed = within is None and any(usable(index, self.name) for index in self.dataset.describe_indices())
        return self._rows(within, query if indexed else None)

    def _rows(self, within: NDArray[np.int64] | None, query: str | None = None) -> Iterator[tuple[int, list[str]]]:
        """Rows that have a text, with its tokens; with a query only what the index finds for it."""
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
        """What the rank needs to know of the column as a whole: rows that have a text, and the tokens of all of them."""
        documents = total = 0
        for _, words in self._rows(None):
            documents += 1
            total += len(words)
        return documents, total
