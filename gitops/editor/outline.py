"""Outline of a file, and the edit that formats it."""

from __future__ import annotations

from typing import NamedTuple

from gitops.core.errors import BugError
from gitops.database.language.format import format_queries, format_schema, format_yaml
from gitops.database.language.text import LanguageError, Span
from gitops.database.language.yaml import YamlError
from gitops.editor.cluster import ClusterView
from gitops.editor.completion import KEY
from gitops.editor.navigate import is_cluster_file, keys_of
from gitops.editor.symbols import SymbolKind
from gitops.editor.texts import QUERIES, SCHEMA, EditorFile, TextCache


class OutlineItem(NamedTuple):
    """A declaration. `span` covers its name, `whole` the declaration including its children."""

    name: str
    kind: str
    detail: str
    span: Span
    whole: Span
    children: tuple[OutlineItem, ...] = ()


class LayoutEdit(NamedTuple):
    """A span of a file, and its replacement."""

    span: Span
    text: str


def file_outline(cache: TextCache, file: EditorFile) -> tuple[OutlineItem, ...]:
    """Return the declarations of a file in file order."""
    if keys_of(file.path) is not None:
        return _cluster_items(cache.cluster_view(file.data), ())
    found = []
    for piece, content in cache.schema_view(file.data).pieces if file.path.endswith(SCHEMA) else ():
        if (declared := content.declaration) is not None:
            detail = f"{declared.source} -> {declared.target}" if declared.source else ""
            fields = [(each, piece.in_file(each.span)) for each in declared.properties]
            children = tuple(OutlineItem(each.name, SymbolKind.PROPERTY, each.type, at, at) for each, at in fields)
            name = piece.in_file(declared.span)
            found.append(OutlineItem(declared.name, declared.kind.value, detail, name, piece.written, children))
    for piece in cache.pieces(file.data) if file.path.endswith(QUERIES) else ():
        view = cache.query_view(piece.data, cache.schema_of(file))
        if view.name is not None:
            params = ", ".join(f"{each.name}: {each.owner}" for each in view.parameters.values())
            name = piece.in_file(view.name)
            found.append(OutlineItem(view.name.text, SymbolKind.QUERY, params, name, piece.written))
    return tuple(found)


def layout_edit(file: EditorFile) -> LayoutEdit | None:
    """Return the smallest edit of whole lines that formats a file like `gitops fmt`.

    Returns None if the file is already formatted or does not parse.
    """
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
    if after == file.data:
        return None
    old, new = file.data.splitlines(keepends=True), after.splitlines(keepends=True)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start = sum(map(len, old[:head]))
    end = len(file.data) - sum(map(len, old[len(old) - tail :]))
    return LayoutEdit(Span(start, end), b"".join(new[head : len(new) - tail]).decode("utf-8", "replace"))


def _cluster_items(view: ClusterView, path: tuple[str, ...]) -> tuple[OutlineItem, ...]:
    found = []
    for each in view.below(*path):
        if each.key is None or not each.key.text:
            continue
        children = _cluster_items(view, each.path)
        end = max([each.end, *(child.whole.end for child in children)])
        detail = ", ".join(value.text for value in each.values)
        found.append(OutlineItem(each.key.text, KEY, detail, each.key.span, Span(each.key.span.start, end), children))
    return tuple(found)
