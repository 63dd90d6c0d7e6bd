"""Text matches and row ranks during execution, using one table's search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.embedding import Embedder
from gitops.database.graph.query.bindings import Bindings
from gitops.database.graph.query.bindings import distinct as once
from gitops.database.graph.query.expand import QueryTables
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.plan import Constants
from gitops.database.graph.search import TextColumn, VectorColumn
from gitops.database.language.query import TextFunction
from gitops.database.language.query.typed import FusedRank, NearestRank, PropertyValue, TextMatch, TextRank, TypedExpr

_FUSION_K = 60
_EDITS = 2
_FEW = 1_000
_SOUGHT = "the search text must be a literal or a parameter, not a property"
_EDITS_OF = "max_edits must be a literal or a parameter, not a property"


@dataclass(slots=True)
class QuerySearch:
    """Runs one query's searches.

    `embedder` converts text in `nearest` to vectors. `approximate` allows the use of a vector index.
    """

    tables: QueryTables
    constants: Constants
    embedder: Embedder | None
    budget: Budget
    approximate: bool

    def check_match(self, match: TextMatch) -> None:
        """Reject a text match that is impossible for any data. Raises GitopsError `query_unsupported`."""
        self._constant(match.query, _SOUGHT)
        if match.max_edits is not None:
            self._constant(match.max_edits, _EDITS_OF)

    def check_rank(self, rank: NearestRank | TextRank | FusedRank) -> None:
        """Reject a rank that cannot be computed. Raises GitopsError `query_unsupported`, `query_params_invalid`."""
        if isinstance(rank, FusedRank):
            self._fusion_arguments(rank)
            self.check_rank(rank.first)
            self.check_rank(rank.second)
        elif isinstance(rank, TextRank):
            self._constant(rank.query, _SOUGHT)
        else:
            self._vector_query(rank)

    def matches(self, match: TextMatch, row_ids: np.ndarray) -> pa.Array:
        """Return whether each row's text matches, or null if the row's text or the search text is missing."""
        query: str | None = self._constant(match.query, _SOUGHT)
        edits: int | None = _EDITS if match.max_edits is None else self._constant(match.max_edits, _EDITS_OF)
        if query is None or edits is None or not len(row_ids):
            return pa.nulls(len(row_ids), pa.bool_())
        column = self._text_column(match.field)
        distinct, which = once(row_ids)
        within = distinct if len(distinct) <= _FEW else None
        fuzzy = match.function is TextFunction.FUZZY
        found = column.resembling(query, edits, within) if fuzzy else column.matching(query, within)
        self.budget.check()
        table = self.tables.table(f"node:{match.field.owner}")
        texts = table.take(distinct, [match.field.name], self.budget)[match.field.name]
        answer = pc.if_else(texts.is_valid(), pa.array(np.isin(distinct, found)), pa.scalar(None, pa.bool_()))
        return answer.take(pa.array(which))

    def places(self, rank: NearestRank | TextRank | FusedRank, rows: Bindings, limit: int | None) -> np.ndarray:
        """Return each row's node's rank among all rows' nodes, starting from 0, or -1 for an unranked node.

        Nodes with equal distance or relevance are in id order.
        """
        if isinstance(rank, FusedRank):
            variable, k = self._fusion_arguments(rank)
            first, second = (self._ranked_rows(arm, rows, limit) for arm in (rank.first, rank.second))
            order = [row for row, _ in fuse(first, second, k)]
        else:
            variable, order = _target(rank).variable, self._ranked_rows(rank, rows, limit)
        ids = np.array(order, np.int64)
        by_id = np.argsort(ids)
        places = np.full(rows.count, -1, np.int64)
        if len(ids):
            column = rows.columns[variable]
            at = np.minimum(np.searchsorted(ids[by_id], column), len(ids) - 1)
            hit = ids[by_id][at] == column
            places[hit] = by_id[at[hit]]
        return places

    def _fusion_arguments(self, rank: FusedRank) -> tuple[str, int]:
        """Return the common variable of both ranks, and the fusion constant."""
        variables = {_target(arm).variable for arm in (rank.first, rank.second)}
        if len(variables) != 1:
            raise GitopsError(Code.QUERY_UNSUPPORTED, "rrf ranks one variable: both of its ranks must be of the same")
        k: int | None = _FUSION_K
        if rank.k is not None:
            k = self._constant(rank.k, "rrf k must be a literal or a parameter, not a property")
        if k is None or k < 1:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, "rrf k must be greater than 0")
        return variables.pop(), k

    def _ranked_rows(self, rank: NearestRank | TextRank, rows: Bindings, limit: int | None) -> list[int]:
        """Return the distinct nodes of the rows, best first; for a vector rank at most `limit`."""
        target = _target(rank)
        within, _ = once(rows.columns[target.variable])
        self.budget.check()
        table = self.tables.table(f"node:{target.owner}")
        chosen = None if len(within) == table.rows else within
        if isinstance(rank, TextRank):
            query: str | None = self._constant(rank.query, _SOUGHT)
            found = [] if query is None else self._text_column(target).ranked(query, chosen)
            return self._break_ties([(row, -score) for row, score in found], target)
        k = len(within) if limit is None else min(limit, len(within))
        vector = self._vector_query(rank)
        if isinstance(vector, str) and self.embedder is not None:
            model = self.tables.catalog().nodes[target.owner].embed_models.get(target.name)
            vector = self.embedder.embed([vector], dimension=target.type.dimension or 0, model=model)[0]
        column = VectorColumn(table.dataset, target.name, lambda: table.vectors(target.name, self.budget))
        nearest = column.nearest([float(each) for each in vector], k, within=chosen, approximate=self.approximate)
        return self._break_ties(nearest, target)[:k]

    def _break_ties(self, scored: Sequence[tuple[int, float]], target: PropertyValue) -> list[int]:
        """Return the rows by ascending score, then by id."""
        if len({score for _, score in scored}) == len(scored):
            return [row for row, _ in sorted(scored, key=lambda each: each[1])]
        rows = np.array(sorted(row for row, _ in scored), np.int64)
        ids = self.tables.table(f"node:{target.owner}").take(rows, ["id"], self.budget)["id"].to_pylist()
        names = dict(zip(rows.tolist(), ids, strict=True))
        return [row for row, _ in sorted(scored, key=lambda each: (each[1], names[each[0]]))]

    def _vector_query(self, rank: NearestRank) -> str | Sequence[float]:
        """Return the query vector, or a text to compute it from."""
        place = f"{rank.target.owner}.{rank.target.name}"
        query: str | Sequence[float] | None = self._constant(
            rank.query, f"nearest() to {place} requires a literal or a parameter, not a property"
        )
        if query is None:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, f"nearest() needs a vector or a text for {place}", path=place)
        if isinstance(query, str) and self.embedder is None:
            raise GitopsError(
                Code.QUERY_UNSUPPORTED, "nearest() with a text needs an embedding service, and none is set up"
            )
        return query

    def _constant(self, value: TypedExpr, refusal: str) -> Any:
        """Return the value of a constant.

        Raises GitopsError `query_unsupported` with text `refusal` if the value differs from row to row.
        """
        cell = self.constants.cell(value)
        if cell is None:
            raise GitopsError(Code.QUERY_UNSUPPORTED, refusal)
        return cell.value

    def _text_column(self, field: PropertyValue) -> TextColumn:
        """Return the text column of a field. Any text can be searched; an index makes it fast."""
        table = self.tables.table(f"node:{field.owner}")
        return TextColumn(table.dataset, field.name, self.tables.memo(table.key), self.budget.check)


def _target(rank: NearestRank | TextRank) -> PropertyValue:
    return rank.target if isinstance(rank, NearestRank) else rank.field


def fuse(first: Sequence[int], second: Sequence[int], k: int = _FUSION_K) -> list[tuple[int, float]]:
    """Compute a reciprocal rank fusion. Return row ids with scores, best first.

    Position r (from 0) in a ranking adds 1 / (k + r + 1) to the score.

    Each ranking lists distinct row ids, best first. Equal scores keep the order of first appearance, the first ranking
    before the second. `k` is at least 1.

    Source: Cormack, Clarke, Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009.
    """
    scores: dict[int, float] = {}
    for ranking in (first, second):
        for place, row in enumerate(ranking):
            scores[row] = scores.get(row, 0.0) + 1.0 / (k + place + 1)
    return sorted(scores.items(), key=lambda each: -each[1])
