"""Completion at an offset, decided by the text before it, so that it works in half-written text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gitops.config.declaration import CONFIG_FILE
from gitops.config.source import EntryKind, SourceError, SourceTree
from gitops.editor.cluster import documentation_path, keys_below
from gitops.editor.complete_text import FILE, KEY, VALUE, CompletionItem, complete_query, complete_schema, unique_items
from gitops.editor.documentation import CLUSTER_KEYS
from gitops.editor.navigate import is_cluster_file
from gitops.editor.project import QUERIES, SCHEMA, folder_of, join_path
from gitops.editor.query import read_query
from gitops.editor.symbols import SymbolKind
from gitops.editor.texts import MAX_READ_BYTES, EditorFile, TextCache
from gitops.editor.tokens import TextPiece, ends_in_comment_or_string, read_tokens, word_start
from gitops.language.text import Span

_WORD_ENDS = b" \t\r\n,[]{}\"'"
_MAX_FOLDERS = 64
_MAX_ENTRIES = 5_000
_CLUSTER_VALUES = {"version": ("1",), "state.backend": ("cluster",), "state.lock": ("true", "false")}
_FILE_ENDINGS = {
    "graphs.*.schema": (SCHEMA,),
    "graphs.*.queries": (QUERIES, "/"),
    "graphs.*.queries.*.file": (QUERIES,),
    "policies.*.file": (".yaml", ".yml"),
}


class Completion(NamedTuple):
    """Items for the word in a span, which ends at the cursor."""

    span: Span
    items: tuple[CompletionItem, ...]


_NOTHING = Completion(Span(0, 0), ())


def complete(cache: TextCache, file: EditorFile, offset: int) -> Completion:
    """The items that fit at an offset; none inside of comments and strings. Raises nothing for any text."""
    if len(file.data) > MAX_READ_BYTES:
        return _NOTHING
    if is_cluster_file(file.path):
        return _complete_cluster(cache, file, offset)
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
    if ends_in_comment_or_string(before, tokens):
        return _NOTHING
    tokens, schema = tuple([each for each in tokens if begin + each.end <= start]), cache.view_of(file)
    if file.path.endswith(QUERIES):
        found = complete_query(read_query(tokens, schema), tokens, schema, word)
    else:
        found = complete_schema(cache.schema_view(file.data), tokens, word)
    return Completion(Span(start, offset), unique_items(found))


def _complete_cluster(cache: TextCache, file: EditorFile, offset: int) -> Completion:
    begin = file.data.rfind(b"\n", 0, offset) + 1
    line = file.data[begin:offset]
    if b"#" in line:
        return _NOTHING
    start = offset
    while start > begin and file.data[start - 1] not in _WORD_ENDS:
        start -= 1
    items = _cluster_items(cache, file, line.decode("utf-8", "replace"), offset)
    return Completion(Span(start, offset), unique_items(items))


def _cluster_items(cache: TextCache, file: EditorFile, line: str, offset: int) -> Iterator[CompletionItem]:
    """Keys by depth, values, files below the folder, and names of graphs; `line` is the line up to the cursor."""
    view = cache.cluster_view(file.data)
    bare = line.lstrip(" ")
    indent = len(line) - len(bare)
    key, colon, _ = bare.removeprefix("- ").partition(":")
    start = offset - len(line.encode())
    if not colon and not bare.startswith("-"):
        parent = view.parent(start, indent)
        taken = {each.key.text for each in view.below(*parent) if each.key is not None and each.end < start}
        for name, documentation in keys_below(parent).items():
            if name not in taken:
                yield CompletionItem(name, KEY, documentation=documentation, insert=f"{name}: ")
        return
    if colon:
        path = documentation_path((*view.parent(start, indent), key.strip().strip("\"'")))
    else:
        # A list may have the indent of its key.
        path = documentation_path(view.parent(start, indent + 1))
    for value in _CLUSTER_VALUES.get(path, ()):
        yield CompletionItem(value, VALUE, documentation=CLUSTER_KEYS[path])
    if path == "policies.*.applies_to":
        yield CompletionItem("cluster", VALUE, documentation="The whole cluster.")
        yield from (CompletionItem(name, SymbolKind.NODE, "graph") for name in view.names("graphs"))
    if path in _FILE_ENDINGS:
        yield from _file_items(file.tree, folder_of(file.path), _FILE_ENDINGS[path])


def _file_items(tree: SourceTree, folder: str, endings: tuple[str, ...]) -> Iterator[CompletionItem]:
    """The files below a folder with one of the endings, and its folders if `/` is one; hidden ones are left out."""
    waiting, entries = [""], 0
    for _ in range(_MAX_FOLDERS):
        if not waiting:
            return
        below = waiting.pop(0)
        try:
            names = tree.names(join_path(folder, below or "."))
        except SourceError:
            continue
        for name in names:
            entries += 1
            if name.startswith(".") or name == CONFIG_FILE or entries > _MAX_ENTRIES:
                continue
            inner = f"{below}{name}"
            if name.endswith(endings):
                yield CompletionItem(inner, FILE)
                continue
            try:
                is_folder = tree.kind(join_path(folder, inner)) is EntryKind.DIR
            except SourceError:
                continue
            if is_folder:
                waiting.append(f"{inner}/")
                if "/" in endings:
                    yield CompletionItem(f"{inner}/", FILE)
