"""The index of a cluster folder: what a load found without problems, so that the next one looks only at what changed.

Files and folders are in columns of equal length, so that the state of a whole cluster is compared as a few lists. A graph is
recorded only if its load found no problem at all. The document is a hint: another form is ignored, and the folder is
loaded as if for the first time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gitops.config.source import EntryKind, StampedTree
from gitops.model.address import Address, graph_address, query_address, schema_address

__all__ = ["FileColumns", "FolderColumns", "GraphRecord", "Index", "IndexColumns", "read_index", "write_index"]

_COLUMNS = 6


class GraphRecord(NamedTuple):
    """One graph without problems.

    `files` and `folders` are positions in the columns of the index: what was read, and what was listed or passed through.
    `queries` is the path of each query as written.
    """

    files: Sequence[int]
    folders: Sequence[int]
    queries: Mapping[str, str]


class FileColumns(NamedTuple):
    """The files: normalized path, digest of the content, size, stamp."""

    places: list[str]
    digests: list[str]
    sizes: list[int]
    stamps: list[str | None]


class FolderColumns(NamedTuple):
    """The folders: normalized path, stamp, digest of the query files in it; that is empty for one that is only passed through."""

    places: list[str]
    stamps: list[str | None]
    listings: list[str]


@dataclass(frozen=True, slots=True)
class Index:
    """A load, as far as it found no problems.

    `config` is the digest of `cluster.yaml`, `form` its content as in `config_form`, `header` its name, storage root and whether
    it locks. `digests` are those of all resources of `graphs`, by address.
    """

    config: str
    form: Mapping[str, Any]
    header: tuple[str | None, str | None, bool]
    graphs: Mapping[str, GraphRecord]
    digests: Mapping[Address, str]
    files: FileColumns
    folders: FolderColumns


class IndexColumns:
    """The columns of an index under construction: each file and folder once."""

    def __init__(self) -> None:
        """Start empty."""
        self._files: dict[str, tuple[int, str, int]] = {}
        self._folders: dict[str, tuple[int, str]] = {}

    def add_file(self, place: str, digest: str, size: int) -> int:
        """The position of a file, by its normalized path."""
        return self._files.setdefault(place, (len(self._files), digest, size))[0]

    def add_folders(self, listings: Mapping[str, str]) -> list[int]:
        """The positions of folders by normalized path; a folder that any graph lists is recorded with its listing."""
        positions = []
        for place, listing in listings.items():
            position, known = self._folders.setdefault(place, (len(self._folders), listing))
            if listing and not known:
                self._folders[place] = position, listing
            positions.append(position)
        return positions

    def stamped(self, tree: StampedTree) -> tuple[FileColumns, FolderColumns]:
        """The columns with the stamps of now: what changed since the load began has no stamp."""
        files, folders = list(self._files), list(self._folders)
        digests, sizes = [each[1] for each in self._files.values()], [each[2] for each in self._files.values()]
        listings = [listing for _, listing in self._folders.values()]
        return (
            FileColumns(files, digests, sizes, tree.stamps(files, EntryKind.FILE)),
            FolderColumns(folders, tree.stamps(folders, EntryKind.DIR), listings),
        )


def write_index(index: Index) -> bytes:
    """The bytes of an index."""
    value = [[index.config, index.header], index.form, index.graphs, index.digests, index.files, index.folders]
    return json.dumps(value, separators=(",", ":")).encode()


def read_index(data: bytes | None) -> Index | None:
    """The index that the bytes hold, or None for other bytes."""
    try:
        value = None if data is None else json.loads(data)
        if type(value) is not list or len(value) != _COLUMNS:
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
    """Whether every part is of its type, every column of one length, and every reference leads somewhere."""
    name, storage, lock = index.header
    files, folders = index.files, index.folders
    return (
        _all(str, (index.config,))
        and _all((str, type(None)), (name, storage))
        and _all(bool, (lock,))
        and _all(str, index.digests.values())
        and all(_all(list, columns) for columns in (files, folders))
        and _is_level(files)
        and _is_level(folders)
        and _all(str, (*files.places, *files.digests, *folders.places, *folders.listings))
        and _all((str, type(None)), (*files.stamps, *folders.stamps))
        and _all(int, files.sizes)
        and all(_is_form(form) for form in index.form["graphs"].values())
        and all(_is_policy(form) for form in index.form["policies"].values())
        and all(_is_graph(index, graph, record) for graph, record in index.graphs.items())
        and len(index.digests) == sum(2 + len(record.queries) for record in index.graphs.values())
    )


def _is_level(columns: Sequence[Sequence[object]]) -> bool:
    return len({len(column) for column in columns}) == 1


def _is_graph(index: Index, graph: str, record: GraphRecord) -> bool:
    digests = index.digests
    return (
        graph in index.form["graphs"]
        and graph_address(graph) in digests
        and schema_address(graph) in digests
        and _all(int, (*record.files, *record.folders))
        and min(record.files) >= 0
        and max(record.files) < len(index.files.places)
        and min(record.folders, default=0) >= 0
        and max(record.folders, default=-1) < len(index.folders.places)
        and _all(str, record.queries.values())
        and all(query_address(graph, query) in digests for query in record.queries)
    )


def _is_policy(form: Mapping[str, Any]) -> bool:
    return type(form["file"]) is str and type(form["applies_to"]) is list and _all(str, form["applies_to"])


def _is_form(form: Mapping[str, Any]) -> bool:
    queries = form["queries"]
    if isinstance(queries, dict):
        return type(form["schema"]) is str and all(type(entry["file"]) is str for entry in queries.values())
    return type(form["schema"]) is str and _all(str, [queries] if isinstance(queries, str) else queries)


def _all(kind: type | tuple[type, ...], values: Iterable[object]) -> bool:
    """Whether the values are of exactly these types: a truth value does not count as a number."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return set(map(type, values)) <= {*kinds}
