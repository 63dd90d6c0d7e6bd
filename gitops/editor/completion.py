"""Completion at an offset, decided by the text before it, so that it works in half-written text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gitops.cluster.config.keys import LISTS, documentation_path, keys_below
from gitops.database.language.lexer import Token
from gitops.database.language.text import Span
from gitops.editor.complete_text import KEY, CompletionItem, complete_query, complete_schema, unique_items
from gitops.editor.navigate import keys_of
from gitops.editor.project import QUERIES, SCHEMA
from gitops.editor.query import read_query
from gitops.editor.schema import SchemaView
from gitops.editor.texts import MAX_READ_BYTES, EditorFile, TextCache
from gitops.editor.tokens import TextPiece, ends_in_comment_or_string, read_tokens, word_start
from gitops.editor.values import value_items

_WORD_ENDS = b" \t\r\n,[]{}\"'"


class Completion(NamedTuple):
    """Items for the word in a span, which ends at the cursor."""

    span: Span
    items: tuple[CompletionItem, ...]


_NOTHING = Completion(Span(0, 0), ())


def complete(cache: TextCache, file: EditorFile, offset: int) -> Completion:
    """The items that fit at an offset: none in comments, members of enums in strings. Raises nothing for any text."""
    if len(file.data) > MAX_READ_BYTES:
        return _NOTHING
    keys = keys_of(file.path)
    if keys is not None:
        return _complete_settings(cache, file, keys, offset)
    if not file.path.endswith((SCHEMA, QUERIES)):
        return _NOTHING
    start = word_start(file.data, offset)
    word = file.data[start:offset].decode("utf-8", "replace")
    # The piece that is being written is that of the character before the cursor.
    if file.path.endswith(QUERIES):
        begin = cache.piece_at(file.data, max(offset - 1, 0)).start
    else:
        pieces = (piece for piece, _ in reversed(cache.schema_view(file.data).pieces) if piece.start < offset)
        begin = next(pieces, TextPiece(0, b"")).start
    before = file.data[begin:offset]
    tokens = read_tokens(before)
    schema = cache.view_of(file)
    if ends_in_comment_or_string(before, tokens):
        if not file.path.endswith(QUERIES) or not tokens or tokens[-1].end != len(before):
            return _NOTHING
        return _complete_string(file, schema, tokens, begin, offset)
    tokens = tuple([each for each in tokens if begin + each.end <= start])
    if file.path.endswith(QUERIES):
        found = complete_query(read_query(tokens, schema), tokens, schema, word)
    else:
        found = complete_schema(cache.schema_view(file.data), tokens, word)
    return Completion(Span(start, offset), unique_items(found))


def _complete_string(
    file: EditorFile, schema: SchemaView, tokens: tuple[Token, ...], begin: int, offset: int
) -> Completion:
    """The texts that fit where a string is open; the quote that many editors have put behind the cursor stays."""
    start, before = begin + tokens[-1].start, tokens[:-1]
    items = complete_query(read_query(before, schema), before, schema, "")
    quoted = [each for each in items if each.label.startswith('"')]
    if file.data[offset : offset + 1] == b'"':
        quoted = [each._replace(insert=each.label[:-1]) for each in quoted]
    return Completion(Span(start, offset), unique_items(quoted))


def _complete_settings(cache: TextCache, file: EditorFile, keys: Mapping[str, str], offset: int) -> Completion:
    begin = file.data.rfind(b"\n", 0, offset) + 1
    line = file.data[begin:offset]
    if b"#" in line:
        return _NOTHING
    start = offset
    while start > begin and file.data[start - 1] not in _WORD_ENDS:
        start -= 1
    items = _settings(cache, file, keys, line.decode("utf-8", "replace"), offset)
    return Completion(Span(start, offset), unique_items(items))


def _settings(
    cache: TextCache, file: EditorFile, keys: Mapping[str, str], line: str, offset: int
) -> Iterator[CompletionItem]:
    """Keys by depth, and values; `line` is the line up to the cursor."""
    view = cache.cluster_view(file.data)
    bare = line.lstrip(" ")
    indent = len(line) - len(bare)
    written, colon, _ = bare.removeprefix("- ").partition(":")
    start, dashed = offset - len(line.encode()), bare.startswith("-")
    # A list may have the indent of its key.
    parent = view.parent(start, indent + 1 if dashed else indent)
    if colon:
        yield from value_items(file, view, documentation_path((*parent, written.strip().strip("\"'")), keys))
        return
    if dashed:
        yield from value_items(file, view, documentation_path(parent, keys))
    taken = set() if dashed else view.keys_before(start, parent)
    in_list = documentation_path(parent, keys) in LISTS
    for name, documentation in keys_below(parent, keys).items():
        if name not in taken and (in_list or not dashed):
            yield CompletionItem(name, KEY, documentation=documentation, insert=f"{name}: ")
