"""Search in one text column of a table: which rows have a word, and how well they match.

The rank is BM25 with k1 = 1.2, b = 0.75 and idf = ln(1 + (N - n + 0.5) / (n + 0.5)), where N counts the rows of the
table that have a text, n those with the word, and lengths are counted in tokens. (Robertson, Zaragoza, "The Probabilistic
Relevance Framework: BM25 and Beyond", 2009; the idf is that of Lucene.) An index gives candidates and
never scores: the scores of the driver depend on when its index was built.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from gitops.graph.search.tokens import edits_within, tokens

if TYPE_CHECKING:
    from lance.dataset import LanceDataset
    from numpy.typing import NDArray

__all__ = ["TEXT_INDEX", "Memo", "TextColumn"]

TEXT_INDEX: dict[str, Any] = {
    "with_position": False,
    "base_tokenizer": "simple",
    "max_token_length": None,
    "lower_case": True,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
}
"""Options of an INVERTED index that this module may use; see `tokens`."""

_K1, _B = 1.2, 0.75


class Memo(Protocol):
    """Gives the value of a key, made by `make` when it is not there. A value never changes, so it may be dropped any time."""

    def __call__(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value. Raises what `make` raises."""
        ...


def recompute(key: Hashable, make: Callable[[], Any]) -> Any:  # noqa: ARG001 - the form of a Memo
    """A Memo that keeps nothing."""
    return make()


class CorpusSize(NamedTuple):
    """What the rank needs to know of a column as a whole: rows that have a text, and the tokens of all of them."""

    documents: int
    tokens: int


class TextColumn:
    """A String column of a table at one version. `within` arguments are row ids: nothing else is looked at."""

    def __init__(self, dataset: LanceDataset, name: str, memo: Memo = recompute) -> None:
        """`memo` keeps the corpus between queries."""
        self._dataset = dataset
        self._name = name
        self._memo = memo

    def matching(self, query: str, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Row ids, ascending, of the rows with any token of the query."""
        wanted = frozenset(tokens(query))
        found = [row for row, words in self._candidates(query, wanted, within) if not wanted.isdisjoint(words)]
        return np.array(sorted(found), np.int64)

    def resembling(self, query: str, most: int, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Row ids, ascending, of the rows with a token that is at most `most` edits away from a token of the query."""
        wanted = frozenset(tokens(query))
        known: dict[str, bool] = {}

        def near(word: str) -> bool:
            if word not in known:
                known[word] = any(edits_within(each, word, most) for each in wanted)
            return known[word]

        # No index helps here: the driver's own fuzzy match expands a word to a limited number of others.
        rows = self._rows(within) if wanted else iter(())
        return np.array(sorted(row for row, words in rows if any(map(near, words))), np.int64)

    def ranked(self, query: str, within: NDArray[np.int64] | None = None) -> list[tuple[int, float]]:
        """Row ids and scores of the rows with any token of the query, best first; equal scores by row id.

        A token that the query has twice counts twice. The score of a row is the same whatever `within` leaves out.
        """
        asked = tokens(query)
        # How many rows have a word is a fact of the whole column, so all candidates are looked at first.
        rows = [(row, Counter(words)) for row, words in self._candidates(query, frozenset(asked), None)]
        holders = {word: sum(word in words for _, words in rows) for word in set(asked)}
        corpus: CorpusSize = self._memo(("corpus", self._name), self._corpus)
        mean = corpus.tokens / corpus.documents if corpus.documents else 0.0
        weights = {
            word: math.log(1 + (corpus.documents - count + 0.5) / (count + 0.5)) for word, count in holders.items()
        }
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
        return self._indexed(query) if within is None and self._has_index() else self._rows(within)

    def _has_index(self) -> bool:
        return any(
            index.index_type.casefold() == "inverted" and list(index.field_names) == [self._name]
            for index in self._dataset.describe_indices()
        )

    def _indexed(self, query: str) -> Iterator[tuple[int, list[str]]]:
        scanner = self._dataset.scanner(
            columns=[self._name],
            full_text_query={"query": query, "columns": [self._name]},
            with_row_id=True,
            disable_scoring_autoprojection=True,
        )
        return self._tokenized(scanner.to_reader())

    def _rows(self, within: NDArray[np.int64] | None) -> Iterator[tuple[int, list[str]]]:
        if within is None:
            return self._tokenized(self._dataset.scanner(columns=[self._name], with_row_id=True).to_reader())
        ids = np.unique(within)
        texts = self._dataset._take_rows(ids.tolist(), columns=[self._name])  # noqa: SLF001 - there is no public name
        return self._pairs(pa.array(ids, pa.int64()), texts.column(self._name))

    def _tokenized(self, batches: pa.RecordBatchReader) -> Iterator[tuple[int, list[str]]]:
        for batch in batches:
            yield from self._pairs(batch.column("_rowid"), batch.column(self._name))

    def _pairs(self, ids: pa.Array, texts: pa.Array | pa.ChunkedArray) -> Iterator[tuple[int, list[str]]]:
        for row, text in zip(ids.to_pylist(), texts.to_pylist(), strict=True):
            if text is not None:
                yield row, tokens(text)

    def _corpus(self) -> CorpusSize:
        documents = total = 0
        for _, words in self._rows(None):
            documents += 1
            total += len(words)
        return CorpusSize(documents, total)
