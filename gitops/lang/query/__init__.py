"""The query language (`.gq`): text to trees, trees and a catalog to checked queries, JSON to parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.lang.query.check import CheckedQuery, QueryKind, check_query
from gitops.lang.query.describe import Access, ResultColumn
from gitops.lang.query.params import ParameterCode, ParameterError
from gitops.lang.query.params import coerce_params as _coerce
from gitops.lang.query.parser import parse_queries

if TYPE_CHECKING:
    from typing import Any

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
    return _coerce(checked.params, values)
