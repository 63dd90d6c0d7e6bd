"""One cell of a Blob property, of which any part is read without the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.history.datasets import call_driver
from gitops.database.graph.snapshot import Snapshot, unknown_type
from gitops.database.graph.tables import declared_type, open_table
from gitops.database.graph.write.committed import CommittedTable
from gitops.database.language.schema import Scalar
from gitops.database.language.suggest import choices

if TYPE_CHECKING:
    from lance.blob import BlobFile

__all__ = ["BlobCell", "open_blob"]


@dataclass(frozen=True, slots=True)
class BlobCell:
    """The bytes of one cell. Two cells with one `tag` have the same bytes, on whichever branch and at whichever commit."""

    size: int
    tag: str
    _path: str
    _file: BlobFile

    def read(self, start: int, length: int) -> bytes:
        """So many bytes from `start` on, or those that there are. Raises RemoteError `storage_failed`."""
        within = max(0, min(length, self.size - start))
        return bytes(call_driver(self._path, lambda: self._file.read_range(start, within))) if within else b""


def open_blob(snapshot: Snapshot, key: str, row_id: str, name: str) -> BlobCell | None:
    """The cell of a Blob property of a row of a table (`node:T`, `edge:E`); None if the row or its cell is missing.

    Raises GitopsError `graph_type_unknown` for a table, or a property of this kind, that the version does not have; as
    `open_table`; RemoteError `storage_failed`.
    """
    entry = snapshot.manifest.tables.get(key)
    if entry is None:
        raise unknown_type(f"version {snapshot.manifest.n}", key.partition(":")[2], snapshot.manifest.tables)
    declared = declared_type(snapshot.schema().catalog, key)
    kind = declared.properties.get(name)
    if kind is None or kind.scalar is not Scalar.BLOB:
        blobs = [each for each, kind in declared.properties.items() if kind.scalar is Scalar.BLOB]
        detail = f"{declared.name} has no Blob property {name[:80]!r}{choices(name, blobs)}"
        fix = "choose one of its Blob properties" if blobs else "choose a type that has a property of type Blob"
        raise GitopsError(Code.GRAPH_TYPE_UNKNOWN, detail, path=key, fix=fix)
    if not entry.rows:
        return None
    dataset = open_table(snapshot.folder, entry)
    address = CommittedTable(snapshot.folder, entry, declared, dataset).addresses([row_id]).get(row_id)
    if address is None:
        return None
    (file,) = call_driver(entry.path, lambda: dataset.take_blobs(name, addresses=[address]))
    if file is None:
        return None
    # A version of a table never changes.
    tag = canonical_digest([snapshot.identity.graph_id, entry.path, entry.version, address, name])[:32]
    return BlobCell(file.size(), tag, entry.path, file)
