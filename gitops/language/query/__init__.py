"""The query language (`.gq`): text to trees, trees and a catalog to checked queries, JSON to parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.query.check import CheckedQuery, QueryKind, check_query
from gitops.language.query.describe import ResultColumn
from gitops.language.query.parser import parse_queries
from gitops.language.query.typed import Access

if TYPE_CHECKING:
    from typing import Any

    from gitops.language.query.params import ParameterCode, ParameterError

__all__ = [
    "Access",
    "CheckedQuery",
    "ParameterCode",
    "ParameterError",
    "QueryKind",
    "ResultColumn",
    "check_query",
    "coerce_params",
    "parse_queries",
]


def coerce_params(checked: CheckedQuery, values: object) -> dict[str, Any]:
    """Values for a query's parameters out of a parsed JSON object, or None for none.

    Every declared parameter is in the result, in declared order; see `params.coerce_params` for the conversions.
    Raises `ParameterError` with a code and the parameter's name.
    """
    from gitops.language.query import params

    return params.coerce_params(checked.params, values)


def __getattr__(name: str) -> Any:
    """What belongs to the values of parameters, which only those who run a query load."""
    if name not in ("ParameterCode", "ParameterError"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gitops.language.query import params

    return getattr(params, name)
