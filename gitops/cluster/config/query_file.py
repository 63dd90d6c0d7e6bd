"""The file of one stored query, without loading the graph that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.cluster.config.declaration import DeclaredGraph, QueryRegistry
from gitops.cluster.config.reader import SourceFile, SourceReader
from gitops.cluster.config.source import EntryKind, SourceError, SourceTree, normalize, query_files
from gitops.database.language.query import parse_queries
from gitops.database.language.text import LanguageError


def find_query_file(reader: SourceReader, declared: DeclaredGraph, name: str) -> tuple[str, SourceFile] | None:
    """The path as written and the file that a load of the graph would take a query from; None if it would find none.

    Nothing is reported, and nothing checked: a file is parsed only if the name is in its text.
    """
    for path in _paths(reader.tree, declared, name):
        file = reader.read(path)
        if isinstance(file, SourceFile) and file.broken is None and _declares(declared, file, name):
            return path, file
    return None


def _paths(tree: SourceTree, declared: DeclaredGraph, name: str) -> Iterator[str]:
    """The files that may have the query, in the order of a load."""
    if isinstance(declared.queries, QueryRegistry):
        yield from (each.file.value for each in declared.queries.entries if each.name.value == name)
        return
    for item in declared.queries.items:
        try:
            place = normalize(item.value, confined=True)
            names = query_files(tree.names(place)) if tree.kind(place) is EntryKind.DIR else None
        except SourceError:
            continue
        folder = item.value if item.value.endswith("/") else f"{item.value}/"
        yield from [item.value] if names is None else (folder + each for each in names)


def _declares(declared: DeclaredGraph, file: SourceFile, name: str) -> bool:
    """Whether a load would take the query from the file: in the map form also from a file that turns out to lack it."""
    if isinstance(declared.queries, QueryRegistry):
        return True
    if name.encode() not in file.data:
        return False
    try:
        return any(query.name.text == name for query in parse_queries(file.data))
    except LanguageError:
        return False
