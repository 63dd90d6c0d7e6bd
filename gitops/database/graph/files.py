"""Finds a graph version's missing files and the files that a change created, by name and without the Lance driver.

The driver stores each table version in one file: length-prefixed Protocol Buffers messages, and a footer with the
position of the first message. The file lists the data files and deletion file of each fragment, its transaction, and
the position of its index list (https://lance.org/format/table, `table.proto`). This module does not read the listed
files or check that indexes exist; `verify`, in contrast, opens every table.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.snapshot import Snapshot
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

_MAGIC = b"LANC"
_FOOTER = 16
_NEWEST = 2**64 - 1
# Field numbers in the messages Manifest, DataFragment, DataFile, DeletionFile, IndexSection and IndexMetadata.
_FRAGMENTS, _INDEXES_AT, _TRANSACTION = 2, 6, 12
_ID, _FILES, _DELETIONS = 1, 2, 3
_PATH = 1
_TYPE, _READ_VERSION, _DELETION_ID = 1, 2, 3
_BASE = 7
_INDEXES = _INDEX_ID = _BYTES_OF_ID = 1
_SUFFIXES = ("arrow", "bin")
# Wire types: varints, length-prefixed bytes, and numbers with a fixed width in bytes.
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def find_missing(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the files that a graph version's rows need but that do not exist, each prefixed with its table's key.

    Raises IntegrityError `graph_unreadable` if a table version is damaged; RemoteError.
    """
    tables, store = snapshot.manifest.tables, snapshot.store
    found = in_parallel(
        lambda key: TableFiles(store, tables[key].path).missing(tables[key]), sorted(tables), store.parallel
    )
    return [(key, file) for key, missing in zip(sorted(tables), found, strict=True) for file in missing]


def version_digest(snapshot: Snapshot, entry: TableEntry) -> str | None:
    """Return the digest of a table version's file, which names all data files, or None if the file is missing.

    Data file names are random, so versions with equal digests have the same rows, even if the graph was replaced by a
    copy of itself in between. Raises RemoteError.
    """
    data = snapshot.store.read(f"{entry.path}/{version_file(entry.version)}")
    return None if data is None else digest(data)


class TableFiles:
    """Files of tables, listed once per folder. Correct only for versions that existed before the first listing."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._names: dict[str, frozenset[str]] = {}

    def missing(self, entry: TableEntry) -> list[str]:
        """Return the missing files that a table version needs. Raises the same errors as `find_missing`."""
        version = _read_version(self._store, self._path, entry.version)
        if version is None:
            return [f"{self._path}/{version_file(entry.version)}"]
        with _damaged(self._store, self._path, entry.version):
            needed = {name for each in version.fragments for name in _named_files(_Message(each))}
        return [f"{self._path}/{name}" for name in sorted(needed) if not self._is_there(name)]

    def _is_there(self, file: str) -> bool:
        folder, _, name = file.rpartition("/")
        if folder not in self._names:
            self._names[folder] = frozenset(self._store.names(f"{self._path}/{folder}"))
        return name in self._names[folder]


def made_files(store: ObjectStore, path: str, base: int | None, made: Iterable[int]) -> Iterator[str]:
    """Yield paths of files that versions `made` need and version `base` does not, relative to the table's folder.

    An index is a folder. A data file's large blobs are also in a folder, which has the file's name without the suffix.
    The result includes the version files themselves and their transactions. Raises IntegrityError `graph_unreadable`
    for a damaged version; RemoteError.
    """
    # Reading queries use this module, too, and this import is slow.
    from uuid import UUID

    nothing = _TableVersion(frozenset(), frozenset(), "")
    known = (None if base is None else _read_version(store, path, base)) or nothing
    for number in made:
        yield version_file(number)
        version = _read_version(store, path, number) or nothing
        if version.transaction:
            yield f"_transactions/{version.transaction}"
        yield from (f"_indices/{UUID(bytes=each)}" for each in version.indexes - known.indexes)
        with _damaged(store, path, number):
            # If rows of a fragment were deleted, its message differs but its data files are the same.
            new, before = version.fragments - known.fragments, known.fragments - version.fragments
            names = {name for each in before for name in _named_files(_Message(each))}
            yield from (name for each in new for name in _named_files(_Message(each)) if name not in names)
        known = version


class _TableVersion(NamedTuple):
    """The parsed content of a table version file: fragment messages, index ids, and the transaction."""

    fragments: frozenset[bytes]
    indexes: frozenset[bytes]
    transaction: str


def version_file(number: int) -> str:
    """Return the path of the file that lists a table version's files, relative to the table's folder."""
    return f"_versions/{_NEWEST - number:020}.manifest"


def _read_version(store: ObjectStore, path: str, number: int) -> _TableVersion | None:
    """Read a table version; None if its file is missing. Raises IntegrityError `graph_unreadable`; RemoteError."""
    data = store.read(f"{path}/{version_file(number)}")
    if data is None:
        return None
    with _damaged(store, path, number):
        if data[-len(_MAGIC) :] != _MAGIC:
            raise ValueError("no footer")
        manifest = _message_at(data, int.from_bytes(data[-_FOOTER : -_FOOTER + 8], "little"))
        indexes = frozenset[bytes]()
        if _INDEXES_AT in manifest.numbers:
            listed = map(_Message, _message_at(data, manifest.numbers[_INDEXES_AT]).parts[_INDEXES])
            indexes = frozenset(_Message(each.parts[_INDEX_ID][0]).parts[_BYTES_OF_ID][0] for each in listed)
        transaction = b"".join(manifest.parts[_TRANSACTION]).decode()
        return _TableVersion(frozenset(manifest.parts[_FRAGMENTS]), indexes, transaction)


@contextlib.contextmanager
def _damaged(store: ObjectStore, path: str, number: int) -> Iterator[None]:
    """Raise IntegrityError `graph_unreadable` if the code in the block cannot parse a version."""
    try:
        yield
    except (ValueError, LookupError) as error:
        place = store.display(f"{path}/{version_file(number)}")
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is damaged", path=place) from error


def _named_files(fragment: _Message) -> Iterator[str]:
    """Yield the files of a fragment, relative to its table's folder. Raises ValueError or similar for damaged bytes.

    Files in the folder of another table, which a scratch copy shares with its original, are left out.
    """
    for file in map(_Message, fragment.parts[_FILES]):
        if _BASE not in file.numbers:
            yield f"data/{file.parts[_PATH][0].decode()}"
    for deleted in map(_Message, fragment.parts[_DELETIONS]):
        if _BASE in deleted.numbers:
            continue
        numbers = (fragment.numbers[_ID], deleted.numbers[_READ_VERSION], deleted.numbers[_DELETION_ID])
        yield f"_deletions/{'-'.join(map(str, numbers))}.{_SUFFIXES[deleted.numbers[_TYPE]]}"


def _message_at(data: bytes, start: int) -> _Message:
    size = int.from_bytes(data[start : start + 4], "little")
    return _Message(data[start + 4 : start + 4 + size])


class _Message:
    """Fields of a Protocol Buffers message, by number: integers (default 0) and lists of bytes."""

    def __init__(self, data: bytes) -> None:
        self.numbers: defaultdict[int, int] = defaultdict(int)
        self.parts: defaultdict[int, list[bytes]] = defaultdict(list)
        at = 0
        while at < len(data):
            tag, at = _varint(data, at)
            member, form = tag >> 3, tag & 7
            if form == _VARINT:
                self.numbers[member], at = _varint(data, at)
            elif form == _BYTES:
                size, at = _varint(data, at)
                self.parts[member].append(data[at : at + size])
                at += size
            else:
                at += _FIXED[form]
        if at != len(data):
            raise ValueError("cut short")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint (groups of seven bits, lowest first); return the number and the position after it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
