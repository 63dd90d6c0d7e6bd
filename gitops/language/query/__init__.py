"""The query language (`.gq`): text to trees, trees and a catalog to checked queries, JSON to parameters.

The checked form that an executor reads is in `gitops.language.query.typed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.query.ast import AggregateFunction, ComparisonOperator, Query, TextFunction
from gitops.language.query.check import CheckedQuery, QueryEffect, check_query
from gitops.language.query.describe import ResultColumn
from gitops.language.query.parser import parse_queries
from gitops.language.query.typed import Access

if TYPE_CHECKING:
    from typing import Any

    from gitops.language.query.params import ParameterCode, ParameterError, coerce_params

__all__ = [
    "Access",
    "AggregateFunction",
    "CheckedQuery",
    "ComparisonOperator",
    "ParameterCode",
    "ParameterError",
    "Query",
    "QueryEffect",
    "ResultColumn",
    "TextFunction",
    "check_query",
    "coerce_params",
    "parse_queries",
]


def __getattr__(name: str) -> Any:
    """Load the conversion of parameters when it is first used: a plan checks queries and never runs them."""
    if name not in ("ParameterCode", "ParameterError", "coerce_params"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gitops.language.query import params

    return getattr(params, name)
