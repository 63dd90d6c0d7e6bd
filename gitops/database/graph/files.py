"""Checks whether the files of a graph version exist, only by name and without the Lance driver.

The version of a table is a file of the driver: a Protocol Buffers message behind its length, and a footer with its
position. It lists the data files and the deleted rows of each fragment (https://lance.org/format/table, `table.proto`).
Their content is not read, and indexes are not checked; `verify` opens every table instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.snapshot import Snapshot
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

_MAGIC = b"LANC"
_FOOTER = 16
_NEWEST = 2**64 - 1
# Members of the messages Manifest, DataFragment, DataFile and DeletionFile, by their numbers.
_FRAGMENTS = 2
_ID, _FILES, _DELETIONS = 1, 2, 3
_PATH = 1
_TYPE, _READ_VERSION, _DELETION_ID = 1, 2, 3
_SUFFIXES = ("arrow", "bin")
# Forms of members: whole numbers, lengths with bytes, and numbers of a fixed width in bytes.
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def find_missing(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The files that a version of a graph needs for its rows and that are not there, each behind the key of its table.

    Raises IntegrityError `graph_unreadable` for a table whose version is damaged; RemoteError.
    """
    tables, store = snapshot.manifest.tables, snapshot.store
    found = in_parallel(
        lambda key: TableFiles(store, tables[key].path).missing(tables[key]), sorted(tables), store.parallel
    )
    return [(key, file) for key, missing in zip(sorted(tables), found, strict=True) for file in missing]


class TableFiles:
    """The files of a table, each folder of which is listed once: for versions that were there before the first question."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._names: dict[str, frozenset[str]] = {}

    def missing(self, entry: TableEntry) -> list[str]:
        """Return the files that a version of the table needs and that are not there. Raises as `find_missing`."""
        key = f"{self._path}/_versions/{_NEWEST - entry.version:020}.manifest"
        version = self._store.read(key)
        if version is None:
            return [key]
        try:
            needed = set(_named_files(version))
        except (ValueError, LookupError) as error:
            place = self._store.display(key)
            raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is damaged", path=place) from error
        return [f"{self._path}/{name}" for name in sorted(needed) if not self._is_there(name)]

    def _is_there(self, file: str) -> bool:
        folder, _, name = file.rpartition("/")
        if folder not in self._names:
            self._names[folder] = frozenset(self._store.names(f"{self._path}/{folder}"))
        return name in self._names[folder]


def _named_files(version: bytes) -> Iterator[str]:
    """Yield the files that a version names, below the folder of its table.

    Raises ValueError and its like for damaged bytes.
    """
    if version[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("no footer")
    start = int.from_bytes(version[-_FOOTER : -_FOOTER + 8], "little")
    size = int.from_bytes(version[start : start + 4], "little")
    manifest = _Message(version[start + 4 : start + 4 + size])
    for fragment in map(_Message, manifest.parts[_FRAGMENTS]):
        for file in map(_Message, fragment.parts[_FILES]):
            yield f"data/{file.parts[_PATH][0].decode()}"
        for deleted in map(_Message, fragment.parts[_DELETIONS]):
            numbers = (fragment.numbers[_ID], deleted.numbers[_READ_VERSION], deleted.numbers[_DELETION_ID])
            yield f"_deletions/{'-'.join(map(str, numbers))}.{_SUFFIXES[deleted.numbers[_TYPE]]}"


class _Message:
    """Parse the members of a message by number: integers (default 0) and lists of bytes."""

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
    """Return a whole number in groups of seven bits, the lowest first, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
