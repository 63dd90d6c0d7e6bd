"""One coherent view of a graph: its identity, one manifest, and the schema text that the manifest names.

Nothing here needs the Lance driver, so that looking at a graph while planning costs a few small files; and the schema
language is imported by what compiles a schema, so that a verb that opens no graph starts without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.graph import layout
from gitops.graph.lines import MAIN_LINE, Line, read_line
from gitops.graph.manifest import GraphIdentity, Manifest
from gitops.graph.root import GraphFolder, GraphRoot
from gitops.graph.versions import ReadTarget, find_version
from gitops.storage.port import ObjectStore

if TYPE_CHECKING:
    from gitops.language.schema import Catalog, Schema

__all__ = ["ReadTarget", "Snapshot", "accept_schema", "find_root", "open_snapshot", "table_keys"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A graph at one version of one branch."""

    root: GraphRoot
    folder: GraphFolder
    identity: GraphIdentity
    manifest: Manifest
    line: Line = MAIN_LINE

    @property
    def branch(self) -> str:
        """The name of the branch that was opened; its version may be on a line that the branch inherits from."""
        return self.line.name

    @property
    def store(self) -> ObjectStore:
        """The small objects of the graph."""
        return self.folder.store

    def schema_source(self) -> bytes:
        """The accepted schema text, byte for byte. Raises IntegrityError `graph_unreadable`."""
        return self._content(layout.source_key(self.manifest.schema_source), self.manifest.schema_source)

    def schema_ir(self) -> bytes:
        """The canonical schema. Raises IntegrityError `graph_unreadable`."""
        return self._content(layout.ir_key(self.manifest.schema_ir), self.manifest.schema_ir)

    def schema(self) -> Schema:
        """The accepted schema, from its canonical form; its types are those of the manifest.

        Raises IntegrityError `graph_unreadable`.
        """
        from gitops.language.schema import schema_from_ir
        from gitops.language.text import LanguageError

        try:
            schema = schema_from_ir(self.schema_ir())
        except LanguageError as error:
            raise IntegrityError(
                Code.GRAPH_UNREADABLE, f"{self.root.location}: the stored schema is refused: {error}"
            ) from error
        if table_keys(schema.catalog) != set(self.manifest.tables):
            raise IntegrityError(
                Code.GRAPH_UNREADABLE, f"{self.root.location}: the manifest's tables are not those of its schema"
            )
        return schema

    def _content(self, key: str, expected: str) -> bytes:
        data = self.store.read(key)
        if data is None or digest(data) != expected:
            fault = "is missing" if data is None else "does not have the digest of its name"
            raise IntegrityError(Code.GRAPH_UNREADABLE, f"{self.store.display(key)} {fault}", path=key)
        return data


def table_keys(catalog: Catalog) -> set[str]:
    """The keys of the tables of a schema: `node:T` and `edge:E`."""
    return {*(f"node:{name}" for name in catalog.nodes), *(f"edge:{name}" for name in catalog.edges)}


def find_root(uri: str) -> GraphRoot:
    """The root at a path, a `file:` URI or an `s3:` URI; nothing is read.

    Raises GitopsError `graph_unreadable` for any other address.
    """
    # Each implementation is imported by its first use: a local graph needs no client of an object store.
    if uri.startswith("s3:"):
        from gitops.graph.object_root import ObjectRoot

        return ObjectRoot.at(uri)
    from gitops.graph.local_root import LocalRoot

    return LocalRoot(uri)


def open_snapshot(uri: str, target: ReadTarget | None = None) -> Snapshot:
    """Open a graph at the version that the target names, by default the newest of `main`.

    Raises GitopsError `graph_missing` only when there is nothing at the root or the version was never made;
    `graph_branch_missing`, `graph_branch_name`; `graph_version_gone` when the version was made and is no longer kept;
    `usage_error` for a target that contradicts itself; and `graph_unreadable` for everything else.
    """
    target = target or ReadTarget()
    root = find_root(uri)
    place = root.location
    try:
        identity, folder = root.open()
        line, manifest = find_version(folder.store, read_line(folder.store, target.branch), target)
        return Snapshot(root, folder, identity, manifest, line)
    except (RemoteError, OSError) as error:
        raise GitopsError(Code.GRAPH_UNREADABLE, f"{place} does not open: {error}", path=uri) from error


def accept_schema(source: bytes) -> Schema:
    """Compile a schema text. Raises GitopsError `schema_parse_error` or `schema_catalog_error` with its first problem."""
    from gitops.language.schema import compile_schema
    from gitops.language.text import LanguageError, SourceText, Stage

    try:
        return compile_schema(source)
    except LanguageError as error:
        first = error.problems[0]
        line, column = SourceText(source).position(first.span.start)
        code = Code.SCHEMA_PARSE_ERROR if first.stage is Stage.PARSE else Code.SCHEMA_CATALOG_ERROR
        raise GitopsError(code, f"{first.rendered()} (line {line}, column {column})") from error
