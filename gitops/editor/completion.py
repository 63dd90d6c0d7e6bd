"""Completion: what may be written at an offset. The text before the cursor decides, so it works in half-written text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gitops.editor.complete_cluster import complete_cluster
from gitops.editor.complete_query import complete_query
from gitops.editor.complete_schema import complete_schema
from gitops.editor.completion_items import CompletionItem, ends_in_comment_or_string, unique_items
from gitops.editor.navigate import is_cluster_file
from gitops.editor.project import QUERIES, SCHEMA
from gitops.editor.query import read_query
from gitops.editor.texts import MAX_READ_BYTES, EditorFile, TextCache
from gitops.editor.tokens import TextPiece, read_tokens, word_start
from gitops.language.text import Span

__all__ = ["Completion", "complete"]

_WORD_ENDS = b" \t\r\n,[]{}\"'"
_NOTHING = Span(0, 0)


class Completion(NamedTuple):
    """Proposals for the word in a span, which ends at the cursor."""

    span: Span
    proposals: tuple[CompletionItem, ...]


def complete(cache: TextCache, file: EditorFile, offset: int) -> Completion:
    """What may be written at an offset; nothing inside of comments and strings. Raises nothing for any text."""
    if len(file.data) > MAX_READ_BYTES:
        return Completion(_NOTHING, ())
    if is_cluster_file(file.path):
        return _in_cluster(cache, file, offset)
    if not file.path.endswith((SCHEMA, QUERIES)):
        return Completion(_NOTHING, ())
    start = word_start(file.data, offset)
    word = file.data[start:offset].decode("utf-8", "replace")
    begin = _piece_before(cache, file, offset).start
    before = file.data[begin:offset]
    known = read_tokens(before)
    if ends_in_comment_or_string(before, known):
        return Completion(_NOTHING, ())
    tokens, schema = tuple([each for each in known if begin + each.end <= start]), cache.view_of(file)
    if file.path.endswith(QUERIES):
        found = complete_query(read_query(tokens, schema), tokens, schema, word)
    else:
        found = complete_schema(cache.schema_view(file.data), tokens, word)
    return Completion(Span(start, offset), unique_items(found))


def _piece_before(cache: TextCache, file: EditorFile, offset: int) -> TextPiece:
    """The piece that is being written at an offset: that of the character before it."""
    if file.path.endswith(QUERIES):
        return cache.piece_at(file.data, max(offset - 1, 0))
    pieces = [piece for piece, _ in cache.schema_view(file.data).pieces if piece.start < offset]
    return pieces[-1] if pieces else TextPiece(0, b"")


def _in_cluster(cache: TextCache, file: EditorFile, offset: int) -> Completion:
    begin = file.data.rfind(b"\n", 0, offset) + 1
    line = file.data[begin:offset]
    if b"#" in line:
        return Completion(_NOTHING, ())
    start = offset
    while start > begin and file.data[start - 1] not in _WORD_ENDS:
        start -= 1
    view = cache.cluster_view(file.data)
    found: Iterator[CompletionItem] = complete_cluster(
        view, file.tree, file.path, line.decode("utf-8", "replace"), offset
    )
    return Completion(Span(start, offset), unique_items(found))
