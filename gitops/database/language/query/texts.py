"""The texts of the single queries of a file."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.database.language.query.parser import parse_queries
from gitops.database.language.text import LanguageError

__all__ = ["query_texts"]


def query_texts(content: bytes) -> Mapping[str, bytes]:
    """The text of each query of a file by its name, the first of a name; nothing of a file that does not parse."""
    try:
        parsed = parse_queries(content)
    except LanguageError:
        return {}
    return {query.name.text: content[query.span.start : query.span.end] for query in reversed(parsed)}
