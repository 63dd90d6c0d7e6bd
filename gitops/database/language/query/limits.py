"""A query's size limits, in one table for the checker, the documentation and the tests.

A server runs queries from untrusted users, and the work for a query grows at most linearly with each of these numbers.
The limits are far above the size of handwritten queries.

The parser enforces the rows with `Stage.PARSE`, before a query exists. The others are reported as rule T25 with code
`Code.QUERY_TOO_LARGE`, at the first item over the limit.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.database.language.lexer import MAX_NUMBER_DIGITS, MAX_SOURCE_BYTES
from gitops.database.language.record import Record
from gitops.database.language.text import LanguageError, LanguageProblem, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

    from gitops.database.language.query.ast import Literal
    from gitops.database.language.text import Span


class Limit(Record):
    """An upper limit. If messages use a shorter name, `shown` is the name used in the documentation."""

    most: int
    stage: Stage = Stage.LIMIT
    fix: str = "split it into several queries"
    shown: str = ""


_LOAD = "split it, or load the rows from a file: gitops graph load GRAPH FILE"

LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "bytes": Limit(MAX_SOURCE_BYTES, Stage.PARSE, shown="bytes in a query file"),
        "levels": Limit(64, Stage.PARSE, shown="nesting depth of blocks, calls and lists"),
        "characters": Limit(255, Stage.PARSE, shown="characters in a name"),
        "digits": Limit(MAX_NUMBER_DIGITS, Stage.PARSE, shown="characters in a number"),
        "steps": Limit(2**32 - 1, Stage.PARSE, shown="a hop bound"),
        "rows": Limit(2**64 - 1, Stage.PARSE, shown="`limit`"),
        "parameters": Limit(1000, fix=_LOAD),
        "statements": Limit(1000, fix=_LOAD, shown="statements in a mutation"),
        "bindings of node types": Limit(64),
        "hops": Limit(64),
        "conditions": Limit(256, shown="conditions, including those in braces and text searches"),
        "`not` blocks": Limit(64),
        "return items": Limit(1000, shown="return items, including aggregates"),
        "order items": Limit(64, fix="order by fewer items"),
        "items": Limit(10_000, fix="use a parameter", shown="items in a list literal"),
    }
)
"""The limits of a query, by the counted item as named in messages."""


def bound(what: str, found: Sequence[Span]) -> None:
    """Reject more items than a query can have, at the first excess item. Raises `LanguageError` (T25)."""
    limit = LIMITS[what]
    if len(found) > limit.most:
        _refuse(f"the query has {len(found)} {what}; at most {limit.most} are allowed", found[limit.most], limit.fix)


def bound_list(items: Sequence[Literal]) -> None:
    """Reject a list literal that is too long. Raises `LanguageError` (T25)."""
    limit = LIMITS["items"]
    if len(items) > limit.most:
        message = f"a list literal has {len(items)} items; at most {limit.most} are allowed"
        _refuse(message, items[limit.most].span, limit.fix)


def _refuse(message: str, span: Span, fix: str) -> NoReturn:
    raise LanguageError(LanguageProblem(Stage.LIMIT, "T25", message, span, fix))
