"""How large a query may be: the work on a query grows with each of these numbers, and a server runs what strangers send.

They are far above what people write. A query that exceeds one has the problem `Code.QUERY_TOO_LARGE`. The depth of nesting is
bounded by the parser (`MAX_DEPTH`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.query import ast
from gitops.database.language.text import LanguageError, LanguageProblem, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from gitops.database.language.text import Span

__all__ = ["check_limits", "refuse_list"]

MAX_PARAMETERS = 1000
MAX_STATEMENTS = 1000
MAX_BINDINGS = 64
MAX_HOPS = 64
MAX_CONDITIONS = 256
MAX_NEGATIONS = 64
MAX_RETURNED = 1000
MAX_ORDERED = 64
MAX_LIST = 10_000

_SPLIT = "split it into several queries"
_LOAD = "split it, or load the rows from a file: gitops graph load GRAPH FILE"


def check_limits(query: ast.Query) -> None:
    """Refuse a query that is too large, at the first item too many. Raises `LanguageError` (T25)."""
    _bound("parameters", MAX_PARAMETERS, [each.span for each in query.params], _LOAD)
    if not isinstance(query.body, ast.Read):
        _bound("statements", MAX_STATEMENTS, [each.span for each in query.body], _LOAD)
        return
    bindings: list[Span] = []
    hops: list[Span] = []
    conditions: list[Span] = []
    negations: list[Span] = []
    for clause in _clauses(query.body.clauses):
        if isinstance(clause, ast.Bind):
            bindings.append(clause.span)
            conditions += [pair.span for pair in clause.pairs]
        elif isinstance(clause, ast.Hop):
            hops.append(clause.span)
        elif isinstance(clause, ast.Not):
            negations.append(clause.span)
        else:
            conditions.append(clause.span)
    _bound("bindings of node types", MAX_BINDINGS, bindings, _SPLIT)
    _bound("hops", MAX_HOPS, hops, _SPLIT)
    _bound("conditions", MAX_CONDITIONS, conditions, _SPLIT)
    _bound("`not` blocks", MAX_NEGATIONS, negations, _SPLIT)
    _bound("return items", MAX_RETURNED, [each.span for each in query.body.items], _SPLIT)
    _bound("order items", MAX_ORDERED, [each.span for each in query.body.order], "order by fewer items")


def refuse_list(items: Sequence[ast.Literal]) -> None:
    """Refuse a list literal that is too long. Raises `LanguageError` (T25)."""
    if len(items) > MAX_LIST:
        span = items[MAX_LIST].span
        _refuse(f"a list literal has {len(items)} items; at most {MAX_LIST} are allowed", span, "use a parameter")


def _bound(what: str, most: int, found: Sequence[Span], fix: str) -> None:
    if len(found) > most:
        _refuse(f"the query has {len(found)} {what}; at most {most} are allowed", found[most], fix)


def _refuse(message: str, span: Span, fix: str) -> NoReturn:
    raise LanguageError(LanguageProblem(Stage.LIMIT, "T25", message, span, fix))


def _clauses(clauses: Sequence[ast.Clause]) -> Iterator[ast.Clause]:
    """All clauses in the order of the text, with those of `not` blocks."""
    for clause in clauses:
        yield clause
        if isinstance(clause, ast.Not):
            yield from _clauses(clause.clauses)
