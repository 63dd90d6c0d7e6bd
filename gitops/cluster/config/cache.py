"""Results of earlier runs of this program. They are only hints and never permit anything.

Checked texts are cached by content, unchanged files and graphs by folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gitops.cluster.config.reader import SourceFile, SourceReader
from gitops.cluster.config.source import PathKind, SourceError, StampedTree, listing_digest, parents
from gitops.cluster.model.address import Address, graph_address, query_address, schema_address
from gitops.cluster.model.kinds import SECTIONS
from gitops.core.canonical import digest
from gitops.core.dataclass import dataclass

# The first two digits of a pair's key select its entry. An entry with more pairs than this drops the oldest ones.
_MAX_PAIRS = 4096


class CompileCache(Protocol):
    """A cache of entries by name that never fails: an unreadable entry counts as missing, and a failed write is ignored.

    An entry is returned only if it is complete and comes from the same edition of the program: the same language and
    loader sources on the same Python version. Several processes may use one cache at the same time; the last write
    wins.
    """

    def load(self, name: str) -> bytes | None:
        """Return the entry with this name, or None."""

    def save(self, name: str, data: bytes) -> None:
        """Store an entry, replacing any older one with this name."""


class Hints(NamedTuple):
    """Hints that speed up loading for advisory commands: a tree of the folder, and a cache.

    A cache is not evidence. No command that permits, applies or checks a change request uses it.
    """

    tree: StampedTree
    cache: CompileCache

    def recall(self) -> Index | None:
        """Return the index that an earlier load of the folder stored."""
        return read_index(self.cache.load(f"index {self.tree.identity}"))

    def keep(self, index: Index) -> None:
        """Store the index for the next load."""
        self.cache.save(f"index {self.tree.identity}", write_index(index))


class MemoryCache:
    """A CompileCache in a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    def load(self, name: str) -> bytes | None:
        """Return the entry, or None."""
        return self.entries.get(name)

    def save(self, name: str, data: bytes) -> None:
        """Store an entry."""
        self.entries[name] = data


class SoundPairs:
    """Cache of query files that are valid against a schema, keyed by the digests of both.

    A pair with the empty string stands for a schema alone, and a pair with the binding kinds for a policy. Only
    validity is stored, never problems, so every load finds problems again. A pair is identified only by content, so it
    is valid in every folder, commit and clone.
    """

    def __init__(self, cache: CompileCache) -> None:
        self._cache = cache
        self._groups: dict[str, dict[str, list[str]]] = {}
        self._grown: set[str] = set()

    def names(self, schema: str, query: str = "") -> Sequence[str] | None:
        """Return the file's queries in order if the cache lists them as valid against the schema, or None otherwise."""
        key = digest(f"{schema} {query}".encode())
        return self._group(key).get(key)

    def add(self, schema: str, query: str, names: Sequence[str]) -> None:
        """Record a pair as valid."""
        key = digest(f"{schema} {query}".encode())
        group = self._group(key)
        if key not in group:
            group[key] = list(names)
            self._grown.add(key[:2])

    def save(self) -> None:
        """Store the added pairs in the cache."""
        for name in sorted(self._grown):
            newest = list(self._groups[name].items())[-_MAX_PAIRS:]
            self._cache.save(f"units {name}", json.dumps(dict(newest), separators=(",", ":")).encode())

    def _group(self, key: str) -> dict[str, list[str]]:
        """Return the pairs that share an entry with a key; an entry in an unknown format contains none."""
        name = key[:2]
        if name not in self._groups:
            data = self._cache.load(f"units {name}")
            try:
                pairs = {} if data is None else json.loads(data)
            except (ValueError, RecursionError):
                pairs = {}
            good = isinstance(pairs, dict) and all(
                isinstance(names, list) and all(type(name) is str for name in names) for names in pairs.values()
            )
            self._groups[name] = pairs if good else {}
        return self._groups[name]


# -- the index ---------------------------------------------------------------------------------------------------------
# The index of a cluster folder lists the parts that a load found without problems, so that the next load only checks
# changes. Files and folders are in columns of equal length, so that the state of a whole cluster is compared as a few
# lists. A graph is recorded only if its load found no problems at all. The document is a hint: an unknown form is
# ignored, and the folder is loaded as if for the first time.
#
# It has a separate reader, because every command with a cache starts by reading it. Checking complete columns takes
# half as long as checking each value with the codec for stored documents.


class GraphRecord(NamedTuple):
    """A graph that loaded without problems.

    `files` and `folders` are positions in the columns of the index: the files that were read, and the folders that were
    listed or passed through. `queries` is the path of each query as written.
    """

    files: Sequence[int]
    folders: Sequence[int]
    queries: Mapping[str, str]


class FileColumns(NamedTuple):
    """File columns: normalized path, content digest, size, stamp."""

    places: list[str]
    digests: list[str]
    sizes: list[int]
    stamps: list[str | None]


class FolderColumns(NamedTuple):
    """Folder columns: normalized path, stamp, digest of the query files (empty for a folder that is only a parent)."""

    places: list[str]
    stamps: list[str | None]
    listings: list[str]


@dataclass(frozen=True, slots=True)
class Index:
    """The part of a load that had no problems.

    `config` is the digest of `cluster.yaml`, `form` is its content as in `config_form`, and `header` contains its name,
    storage root and lock setting. `digests` are the digests of all resources of `graphs`, by address.
    """

    config: str
    form: Mapping[str, Any]
    header: tuple[str | None, str | None, bool]
    graphs: Mapping[str, GraphRecord]
    digests: Mapping[Address, str]
    files: FileColumns
    folders: FolderColumns


NO_INDEX = Index("", {}, (None, None, True), {}, {}, FileColumns([], [], [], []), FolderColumns([], [], []))


class IndexColumns:
    """Columns of an index that is being built. Each file and folder appears only once."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, str, int]] = {}
        self._folders: dict[str, tuple[int, str]] = {}

    def add(
        self, files: Iterable[tuple[str, str, int]], listings: Mapping[str, str], queries: Mapping[str, str]
    ) -> GraphRecord:
        """Add a graph's files (normalized path, digest, size) and folders (listing by normalized path), and return its record.

        A folder that any graph lists is recorded together with its listing.
        """
        places = [self._files.setdefault(each[0], (len(self._files), *each[1:]))[0] for each in files]
        passed = []
        for folder, listing in listings.items():
            position, known = self._folders.setdefault(folder, (len(self._folders), listing))
            if listing and not known:
                self._folders[folder] = position, listing
            passed.append(position)
        return GraphRecord(places, passed, queries)

    def stamped(self, tree: StampedTree) -> tuple[FileColumns, FolderColumns]:
        """Return the columns with current stamps. A file that changed after the load began gets no stamp."""
        files, folders = list(self._files), list(self._folders)
        digests, sizes = [each[1] for each in self._files.values()], [each[2] for each in self._files.values()]
        listings = [listing for _, listing in self._folders.values()]
        return (
            FileColumns(files, digests, sizes, tree.stamps(files, PathKind.FILE)),
            FolderColumns(folders, tree.stamps(folders, PathKind.DIR), listings),
        )


def write_index(index: Index) -> bytes:
    """Encode an index as bytes."""
    value = [[index.config, index.header], index.form, index.graphs, index.digests, index.files, index.folders]
    return json.dumps(value, separators=(",", ":")).encode()


def read_index(data: bytes | None) -> Index | None:
    """Decode an index. Returns None if the bytes are not an index."""
    try:
        value = None if data is None else json.loads(data)
        if type(value) is not list:
            return None
        (config, header), form, graphs, digests, files, folders = value
        index = Index(
            config,
            form,
            tuple(header),
            {name: GraphRecord(*fields) for name, fields in graphs.items()},
            {Address(text): value for text, value in digests.items()},
            FileColumns(*files),
            FolderColumns(*folders),
        )
        return index if _is_consistent(index) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _is_consistent(index: Index) -> bool:
    """Return True if all parts have the right types, all columns equal length, and all references a target."""
    name, storage, lock = index.header
    files, folders = index.files, index.folders
    return (
        all(_all(list, columns) and len({len(column) for column in columns}) == 1 for columns in (files, folders))
        and _all(str, (index.config, *files.places, *files.digests, *folders.places, *folders.listings))
        and _all((str, type(None)), (name, storage, *files.stamps, *folders.stamps))
        and _all(bool, (lock,))
        and _all(int, files.sizes)
        and _all(str, index.digests.values())
        and all(
            _all(str, (form["schema"],))
            and _all(
                str,
                [entry["file"] for entry in queries.values()]
                if isinstance(queries := form["queries"], dict)
                else [queries]
                if isinstance(queries, str)
                else queries,
            )
            for form in index.form["graphs"].values()
        )
        and all(
            _all(list, (bound := form.get("applies_to", []),)) and _all(str, (form["file"], *bound))
            for section in SECTIONS
            for form in index.form.get(section, {}).values()
        )
        and all(_is_graph(index, graph, record) for graph, record in index.graphs.items())
        and len(index.digests) == sum(2 + len(record.queries) for record in index.graphs.values())
    )


def _is_graph(index: Index, graph: str, record: GraphRecord) -> bool:
    """Return True if a graph is declared, all its addresses have a digest, and its positions are in the columns."""
    return (
        graph in index.form["graphs"]
        and all(address in index.digests for address in addresses_of(graph, record.queries))
        and _all(int, (*record.files, *record.folders))
        and 0 <= min(record.files) <= max(record.files) < len(index.files.places)
        and min(record.folders, default=0) >= 0
        and max(record.folders, default=-1) < len(index.folders.places)
        and _all(str, record.queries.values())
    )


def _all(kind: type | tuple[type, ...], values: Iterable[object]) -> bool:
    """Return True if the values have exactly these types. A boolean does not count as a number."""
    return {*map(type, values)} <= {*(kind if isinstance(kind, tuple) else (kind,))}


def addresses_of(graph: str, queries: Iterable[str]) -> list[Address]:
    """Return the addresses of a graph, its schema and its queries."""
    return [graph_address(graph), schema_address(graph), *(query_address(graph, query) for query in queries)]


class RecordedTree:
    """Compares an `index` with the current folder.

    `stale` is the number of files and folders that had to be checked.
    """

    def __init__(self, tree: StampedTree, index: Index) -> None:
        """Compare all stamps, and list the folders whose stamps do not match. No file is read."""
        files, folders = index.files, index.folders
        self.index = index
        self._stale_files = _differing(tree.stamps(files.places, PathKind.FILE), files.stamps)
        self._changed_files = self._stale_files
        self._changed_folders: set[int] = set()
        self._gone: set[str] = set()
        self._positions: dict[str, int] | None = None
        stale_folders = _differing(tree.stamps(folders.places, PathKind.DIR), folders.stamps)
        self.stale = len(self._stale_files) + len(stale_folders)
        for position in sorted(stale_folders):
            recorded = folders.listings[position]
            place, now = folders.places[position], None
            with contextlib.suppress(SourceError):
                if recorded:
                    now = listing_digest(tree.names(place))
                elif tree.kind(place) is PathKind.DIR:
                    now = ""
            if now is None:
                # The path is not a folder, or is refused.
                self._gone.add(place)
            if now != recorded:
                self._changed_folders.add(position)

    def compare_files(self, reader: SourceReader) -> None:
        """Read the files whose stamps differ from the record. A file with the recorded content counts as unchanged."""
        files = self.index.files
        self._changed_files = {
            position
            for position in sorted(self._stale_files)
            if not isinstance(found := reader.read(files.places[position]), SourceFile)
            or found.broken is not None
            or found.digest != files.digests[position]
        }

    def facts(self, place: str) -> tuple[str, int] | None:
        """Return a file's digest and size by normalized path, if the record still applies to it and its parent folders."""
        files = self.index.files
        if self._positions is None:
            self._positions = {each: position for position, each in enumerate(files.places)}
        position = self._positions.get(place)
        if position is None or position in self._stale_files or not self._gone.isdisjoint(parents(place)):
            return None
        return files.digests[position], files.sizes[position]

    def is_unchanged(self, record: GraphRecord) -> bool:
        """Return True if the record still applies to all files and folders of a graph."""
        return self._changed_files.isdisjoint(record.files) and self._changed_folders.isdisjoint(record.folders)


def _differing(now: Sequence[str | None], recorded: Sequence[str | None]) -> set[int]:
    """Return the positions at which the stamps do not prove that nothing changed."""
    if now == recorded and None not in recorded:
        return set()
    return {n for n, (one, other) in enumerate(zip(now, recorded, strict=True)) if one is None or one != other}
