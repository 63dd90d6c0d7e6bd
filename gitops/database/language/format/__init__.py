"""The formatter of both languages: text in, the same text in its canonical layout out.

Rules, proven as laws: the tree of the text stays the same but for positions; so do its tokens, except for optional
commas; comments keep their order and their text; formatting twice is the same as formatting once.
"""

from __future__ import annotations

from typing import Any

from gitops.core.errors import BugError
from gitops.database.language.format.layout import LayoutWriter, SourceToken, read_source_tokens, write
from gitops.database.language.format.query import query_layout
from gitops.database.language.format.schema import schema_layout
from gitops.database.language.lexer import TokenKind
from gitops.database.language.query.parser import parse_queries
from gitops.database.language.schema.ast import SchemaDocument
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ProblemCollector
from gitops.database.language.text import LanguageError, Span

__all__ = ["format_queries", "format_schema", "without_spans"]


def format_schema(source: bytes) -> bytes:
    """The canonical layout of schema text that matches the grammar; rules beyond the grammar are not checked.

    Raises `LanguageError` with every grammar problem otherwise.
    """

    def parse(data: bytes) -> SchemaDocument:
        found = ProblemCollector()
        tree = parse_schema(data, found)
        if found.incomplete:
            raise LanguageError(*found.problems())
        return tree

    tree, tokens = parse(source), read_source_tokens(source, enums=True)
    result = write(schema_layout(LayoutWriter(tokens, tight=frozenset({TokenKind.EQ})))).encode("utf-8")
    _require_same(tokens, read_source_tokens(result, enums=True))
    _require(without_spans(parse(result)) == without_spans(tree))
    return result


def format_queries(source: bytes) -> bytes:
    """The canonical layout of query text that matches the grammar; names and types are not checked.

    Raises `LanguageError` with every grammar problem otherwise.
    """
    tree, tokens = parse_queries(source), read_source_tokens(source, enums=False)
    result = write(query_layout(LayoutWriter(tokens), tree)).encode("utf-8")
    _require_same(tokens, read_source_tokens(result, enums=False))
    _require(without_spans(parse_queries(result)) == without_spans(tree))
    return result


def without_spans(tree: Any) -> Any:
    """A syntax tree as nested tuples of class name and fields, without spans: what formatting must not change."""
    if isinstance(tree, tuple):
        fields = tuple(without_spans(each) for each in tree if not isinstance(each, Span))
        return (type(tree).__name__, fields) if hasattr(tree, "_fields") else fields
    return tree


def _require_same(before: list[SourceToken], after: list[SourceToken]) -> None:
    """Refuse a result with other words or comments."""
    words = [[each.text for each in tokens if each.kind is not TokenKind.COMMA] for tokens in (before, after)]
    comments = [[comment.text for each in tokens for comment in each.comments] for tokens in (before, after)]
    _require(words[0] == words[1] and comments[0] == comments[1])


def _require(same: bool) -> None:
    # Checked on every run: a layout must never change the meaning of a text.
    if not same:
        raise BugError("formatting would change what a text means; the file is left as it is")
