"""One graph from files that are known to be sound: the declarations that give no reason to speak.

Whatever is not plainly right here (a file that cannot be read, a name twice, a path listed twice) is left to the loader, which
says what is wrong or that nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gitops.config.recorded import FileFacts, Files, listing_digest, parents
from gitops.config.sound import Units, compiled_names
from gitops.config.source import EntryKind, SourceError, SourceTree, normalize, query_files
from gitops.model.address import is_name

__all__ = ["Rebuilder", "Rebuilt"]


class Rebuilt(NamedTuple):
    """A sound graph: its schema and its files by normalized path, and the path and digest of each query by name.

    `folders` has the digest of the listing of each folder; that is empty for one that is only passed through.
    """

    schema: FileFacts
    files: Mapping[str, FileFacts]
    folders: Mapping[str, str]
    queries: Mapping[str, tuple[str, str]]


class _LeaveItError(Exception):
    """The loader has to look at this graph."""


class Rebuilder:
    """Puts graphs together, and compiles what was never seen sound."""

    def __init__(self, tree: SourceTree, files: Files, units: Units) -> None:
        """Nothing is compiled yet."""
        self._tree = tree
        self._files = files
        self._units = units
        self._schemas: dict[bytes, Any] = {}

    def rebuild(self, graph: str, form: Mapping[str, Any]) -> Rebuilt | None:
        """The graph as declared by `form`, as in `config_form`; None if the loader has to look at it."""
        try:
            return self._rebuild(graph, form)
        except (_LeaveItError, SourceError):
            return None

    def _rebuild(self, graph: str, form: Mapping[str, Any]) -> Rebuilt:
        if not is_name(graph):
            raise _LeaveItError
        schema = self._file(form["schema"])
        if self._units.names(schema.digest) is None:
            self._compile(schema, None)
        files, listings = {schema.place: schema}, dict[str, str]()
        found: dict[str, tuple[str, str]] = {}
        for path, wanted in self._listed(form["queries"], listings):
            file = self._file(path)
            names = self._names(schema, file)
            files[file.place] = file
            for name in names if wanted is None else (wanted,):
                if name in found or not is_name(name) or names.count(name) != 1:
                    raise _LeaveItError
                found[name] = path, file.digest
        folders = {above: "" for place in files for above in parents(place)} | listings
        return Rebuilt(schema, files, folders, dict(sorted(found.items())))

    def _listed(self, queries: Any, listings: dict[str, str]) -> Iterator[tuple[str, str | None]]:
        """The paths as written, each with the name that is wanted of it or None for all."""
        if isinstance(queries, dict):
            yield from ((entry["file"], name) for name, entry in queries.items())
            return
        for item in [queries] if isinstance(queries, str) else queries:
            if self._tree.kind(item) is not EntryKind.DIR:
                yield item, None
                continue
            place, names = normalize(item, confined=False), self._tree.names(item)
            inside = query_files(names)
            if not inside or place in listings:
                raise _LeaveItError
            listings[place] = listing_digest(names)
            folder = item if not item or item.endswith("/") else f"{item}/"
            yield from ((folder + name, None) for name in inside)

    def _file(self, path: str) -> FileFacts:
        found = self._files.look(path)
        if found is None:
            raise _LeaveItError
        return found

    def _names(self, schema: FileFacts, query: FileFacts) -> Sequence[str]:
        known = self._units.names(schema.digest, query.digest)
        return self._compile(schema, query) if known is None else known

    def _compile(self, schema: FileFacts, query: FileFacts | None) -> Sequence[str]:
        """Compile a pair that was never seen sound, and remember it if it is."""
        source, text = self._files.content(schema), None if query is None else self._files.content(query)
        if source is None or (query is not None and text is None):
            raise _LeaveItError
        names = compiled_names(self._schemas, source, text)
        if names is None:
            raise _LeaveItError
        self._units.add(schema.digest, "" if query is None else query.digest, names)
        return names
