"""The query language (`.gq`): text to trees, trees and a catalog to checked queries.

`params` turns JSON into parameters; the checked form that an executor reads is in `typed`.
"""

from gitops.language.query.ast import AggregateFunction, ComparisonOperator, Query, TextFunction
from gitops.language.query.check import CheckedQuery, QueryEffect, ResultColumn, check_query
from gitops.language.query.parser import parse_queries
from gitops.language.query.texts import query_texts
from gitops.language.query.typed import Access

__all__ = [
    "Access",
    "AggregateFunction",
    "CheckedQuery",
    "ComparisonOperator",
    "Query",
    "QueryEffect",
    "ResultColumn",
    "TextFunction",
    "check_query",
    "parse_queries",
    "query_texts",
]
