"""The outline of a file, and its canonical layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gitops.config.layout import format_yaml
from gitops.config.yaml import YamlError
from gitops.core.errors import BugError
from gitops.editor.cluster import ClusterView
from gitops.editor.completion_items import KEY
from gitops.editor.navigate import is_cluster_file
from gitops.editor.project import QUERIES, SCHEMA
from gitops.editor.symbols import SymbolKind
from gitops.editor.texts import EditorFile, TextCache
from gitops.language.format import format_queries, format_schema
from gitops.language.text import LanguageError, Span

__all__ = ["LayoutEdit", "OutlineItem", "file_outline", "layout_edit"]


class OutlineItem(NamedTuple):
    """A declaration: `span` is its name, `whole` all of it, which holds the children."""

    name: str
    sort: str
    detail: str
    span: Span
    whole: Span
    children: tuple[OutlineItem, ...] = ()


class LayoutEdit(NamedTuple):
    """A span of a file and what is to stand there."""

    span: Span
    text: str


def file_outline(texts: TextCache, file: EditorFile) -> tuple[OutlineItem, ...]:
    """The declarations of a file, in its order."""
    if file.path.endswith(SCHEMA):
        return tuple(_types(texts, file.data))
    if file.path.endswith(QUERIES):
        return tuple(_queries(texts, file))
    if is_cluster_file(file.path):
        return _keys(texts.cluster_view(file.data), ())
    return ()


def layout_edit(file: EditorFile) -> LayoutEdit | None:
    """The edit that gives a file the layout of `gitops fmt`; None if it has it, or does not parse."""
    try:
        if file.path.endswith(SCHEMA):
            after = format_schema(file.data)
        elif file.path.endswith(QUERIES):
            after = format_queries(file.data)
        elif is_cluster_file(file.path):
            after = format_yaml(file.data)
        else:
            return None
    except (LanguageError, YamlError, BugError):
        return None
    return None if after == file.data else _smallest(file.data, after)


def _types(texts: TextCache, data: bytes) -> Iterator[OutlineItem]:
    for piece, held in texts.schema_view(data).pieces:
        declared = held.declaration
        if declared is None:
            continue
        at = piece.start
        whole = Span(at, at + len(piece.data.rstrip()))
        detail = f"{declared.source} -> {declared.target}" if declared.source else ""
        children = tuple(
            OutlineItem(
                each.name, SymbolKind.PROPERTY, each.type, *(Span(at + each.span.start, at + each.span.end),) * 2
            )
            for each in declared.properties
        )
        span = Span(at + declared.span.start, at + declared.span.end)
        yield OutlineItem(declared.name, declared.kind.value, detail, span, whole, children)


def _queries(texts: TextCache, file: EditorFile) -> Iterator[OutlineItem]:
    schema = texts.schema_of(file)
    for piece in texts.pieces(file.data):
        view = texts.query_view(piece.data, schema)
        if view.name is not None:
            at = piece.start
            params = ", ".join(f"{each.name}: {each.owner}" for each in view.parameters.values())
            whole = Span(at, at + len(piece.data.rstrip()))
            yield OutlineItem(
                view.name.text, SymbolKind.QUERY, params, Span(at + view.name.start, at + view.name.end), whole
            )


def _keys(view: ClusterView, path: tuple[str, ...]) -> tuple[OutlineItem, ...]:
    found = []
    for each in view.below(*path):
        if each.key is None or not each.key.text:
            continue
        children = _keys(view, each.path)
        end = max([each.end, *(child.whole.end for child in children)])
        detail = ", ".join(value.text for value in each.values)
        found.append(OutlineItem(each.key.text, KEY, detail, each.key.span, Span(each.key.span.start, end), children))
    return tuple(found)


def _smallest(before: bytes, after: bytes) -> LayoutEdit:
    """One edit of whole lines, without the lines at both ends that stay."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start = sum(map(len, old[:head]))
    end = len(before) - sum(map(len, old[len(old) - tail :]))
    text = b"".join(new[head : len(new) - tail])
    return LayoutEdit(Span(start, end), text.decode("utf-8", "replace"))
