"""The query language (`.gq`): parses text to trees and checks trees against a catalog.

`params` converts JSON to parameters, and `typed` has the checked form that an executor reads.
"""

from gitops.database.language.query.ast import AggregateFunction, ComparisonOperator, Query, TextFunction
from gitops.database.language.query.check import CheckedQuery, QueryEffect, ResultColumn, check_query
from gitops.database.language.query.parser import parse_queries, query_texts
from gitops.database.language.query.typed import Access

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
