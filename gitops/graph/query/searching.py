"""Text matches and ranks among the rows in flight, by the search of one table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.query.bindings import Bindings
from gitops.graph.query.bindings import distinct as once
from gitops.graph.query.cells import Constants
from gitops.graph.query.limits import Budget
from gitops.graph.query.strategies import QueryTables
from gitops.graph.search.embedding import Embedder
from gitops.graph.search.fusion import FUSION_K, fuse
from gitops.graph.search.text import TextColumn
from gitops.graph.search.vector import VectorColumn
from gitops.language.query import TextFunction
from gitops.language.query.typed import FusedRank, NearestRank, PropertyValue, TextMatch, TextRank, TypedExpr

__all__ = ["QuerySearch"]

_EDITS = 2
_FEW = 1_000


class QuerySearch:
    """QuerySearch for one run."""

    def __init__(
        self,
        hops: QueryTables,
        constants: Constants,
        embedder: Embedder | None,
        budget: Budget,
        *,
        approximate: bool = False,
    ) -> None:
        """`embedder` turns texts that `nearest` is asked for into vectors; `approximate` allows an index of vectors."""
        self._tables = hops
        self._constants = constants
        self._embedder = embedder
        self._budget = budget
        self._approximate = approximate

    def check_match(self, match: TextMatch) -> None:
        """Refuse a text match that cannot be carried out, whatever the data. Raises GitopsError `query_unsupported`."""
        self._text(match.query)
        if match.max_edits is not None:
            self._number(match.max_edits, "max_edits")

    def check_rank(self, rank: NearestRank | TextRank | FusedRank) -> None:
        """Refuse a rank that cannot be carried out. Raises GitopsError `query_unsupported`, `query_params_invalid`."""
        if isinstance(rank, FusedRank):
            self._fusion_arguments(rank)
            self.check_rank(rank.first)
            self.check_rank(rank.second)
        elif isinstance(rank, TextRank):
            self._text(rank.query)
        else:
            self._vector_query(rank)

    def matches(self, match: TextMatch, row_ids: np.ndarray) -> pa.Array:
        """For each row id whether its text matches; null where there is no text, or nothing to look for."""
        query = self._text(match.query)
        edits = _EDITS if match.max_edits is None else self._number(match.max_edits, "max_edits")
        if query is None or edits is None or not len(row_ids):
            return pa.nulls(len(row_ids), pa.bool_())
        column = self._text_column(match.field)
        distinct, which = once(row_ids)
        within = distinct if len(distinct) <= _FEW else None
        if match.function is TextFunction.FUZZY:
            found = column.resembling(query, edits, within)
        else:
            found = column.matching(query, within)
        self._budget.check()
        table = self._tables.table(f"node:{match.field.owner}")
        texts = table.take(distinct, [match.field.name], self._budget)[match.field.name]
        answer = pc.if_else(texts.is_valid(), pa.array(np.isin(distinct, found)), pa.scalar(None, pa.bool_()))
        return answer.take(pa.array(which))

    def places(self, rank: NearestRank | TextRank | FusedRank, rows: Bindings, limit: int | None) -> np.ndarray:
        """For each row the place of its ranked node among those of all rows, from 0; -1 without one.

        Nodes of equal distance or relevance are in the order of their ids.
        """
        if isinstance(rank, FusedRank):
            variable, order = self._fuse(rank, rows, limit)
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

    def _fuse(self, rank: FusedRank, rows: Bindings, limit: int | None) -> tuple[str, list[int]]:
        variable, k = self._fusion_arguments(rank)
        first, second = (self._ranked_rows(arm, rows, limit) for arm in (rank.first, rank.second))
        return variable, [row for row, _ in fuse(first, second, k)]

    def _fusion_arguments(self, rank: FusedRank) -> tuple[str, int]:
        """The variable that both ranks are of, and the constant of the fusion."""
        variables = {_target(arm).variable for arm in (rank.first, rank.second)}
        if len(variables) != 1:
            raise GitopsError(Code.QUERY_UNSUPPORTED, "rrf ranks one variable: both of its ranks must be of the same")
        k = FUSION_K if rank.k is None else self._number(rank.k, "rrf k")
        if k is None or k < 1:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, "rrf k must be greater than 0")
        return variables.pop(), k

    def _ranked_rows(self, rank: NearestRank | TextRank, rows: Bindings, limit: int | None) -> list[int]:
        """The distinct nodes of the rows, best first; of a vector rank no more than the limit."""
        target = _target(rank)
        within, _ = once(rows.columns[target.variable])
        self._budget.check()
        table = self._tables.table(f"node:{target.owner}")
        chosen = None if len(within) == table.rows else within
        if isinstance(rank, TextRank):
            query = self._text(rank.query)
            found = [] if query is None else self._text_column(target).ranked(query, chosen)
            return self._break_ties([(row, -score) for row, score in found], target)
        k = len(within) if limit is None else min(limit, len(within))
        column = VectorColumn(table.dataset, target.name)
        nearest = column.nearest(self._vector(rank), k, within=chosen, approximate=self._approximate)
        return self._break_ties(nearest, target)[:k]

    def _break_ties(self, scored: Sequence[tuple[int, float]], target: PropertyValue) -> list[int]:
        """Rows by ascending score, and by id where scores are equal."""
        if len({score for _, score in scored}) == len(scored):
            return [row for row, _ in sorted(scored, key=lambda each: each[1])]
        rows = np.array(sorted(row for row, _ in scored), np.int64)
        ids = self._tables.table(f"node:{target.owner}").take(rows, ["id"], self._budget)["id"].to_pylist()
        names = dict(zip(rows.tolist(), ids, strict=True))
        return [row for row, _ in sorted(scored, key=lambda each: (each[1], names[each[0]]))]

    def _vector_query(self, rank: NearestRank) -> str | Sequence[float]:
        """The vector that is asked for, or the text that stands for one."""
        place = f"{rank.target.owner}.{rank.target.name}"
        cell = self._constants.cell(rank.query)
        if cell is None:
            raise GitopsError(
                Code.QUERY_UNSUPPORTED, f"nearest() to {place} takes a literal or a parameter, not a property"
            )
        if cell.value is None:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, f"nearest() needs a vector or a text for {place}", path=place)
        if isinstance(cell.value, str) and self._embedder is None:
            raise GitopsError(
                Code.QUERY_UNSUPPORTED, "nearest() with a text needs an embedding service, and none is set up"
            )
        query: str | Sequence[float] = cell.value
        return query

    def _vector(self, rank: NearestRank) -> Sequence[float]:
        query, target = self._vector_query(rank), rank.target
        if not isinstance(query, str) or self._embedder is None:
            return [float(number) for number in query]
        model = self._tables.catalog().nodes[target.owner].embed_models.get(target.name)
        return self._embedder.embed([query], dimension=target.type.dimension or 0, model=model)[0]

    def _number(self, value: TypedExpr, what: str) -> int | None:
        cell = self._constants.cell(value)
        if cell is None:
            raise GitopsError(Code.QUERY_UNSUPPORTED, f"{what} is a literal or a parameter, not a property")
        number: int | None = cell.value
        return number

    def _text(self, value: TypedExpr) -> str | None:
        cell = self._constants.cell(value)
        if cell is None:
            raise GitopsError(
                Code.QUERY_UNSUPPORTED, "text is searched for a literal or a parameter, not for a property"
            )
        text: str | None = cell.value
        return text

    def _text_column(self, field: PropertyValue) -> TextColumn:
        """Any text can be searched; an index makes it fast."""
        table = self._tables.table(f"node:{field.owner}")
        return TextColumn(table.dataset, field.name, self._tables.memo(table.key))


def _target(rank: NearestRank | TextRank) -> PropertyValue:
    return rank.target if isinstance(rank, NearestRank) else rank.field
