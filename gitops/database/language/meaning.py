"""What a text means, apart from its layout and comments: two texts with equal meanings compile to the same thing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from gitops.database.language.format import without_spans
from gitops.database.language.query import parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.text import LanguageError


class QueryText(NamedTuple):
    """One query of a file: its exact text, and what it means."""

    text: bytes
    meaning: Hashable


def query_meanings(source: bytes) -> Mapping[str, QueryText]:
    """Return the queries of a file by name. Of duplicate names, the first counts. Empty if the file does not parse."""
    try:
        parsed = parse_queries(source)
    except LanguageError:
        return {}
    return {
        each.name.text: QueryText(source[each.span.start : each.span.end], without_spans(each))
        for each in reversed(parsed)
    }


def same_schema(before: bytes, after: bytes) -> bool:
    """Return True if two schema texts compile to the same canonical form; False if one of them does not compile."""
    try:
        return compile_schema(before).ir == compile_schema(after).ir
    except LanguageError:
        return False
