"""Checked graphs of a cluster folder: an apply compiled them without problems, and a ledger recorded that.

An unchanged graph is neither read nor compiled. It is unchanged if these are the same:

1. its declaration in `cluster.yaml`, and the git object at each path in the declaration, by kind and id. The id of a
   folder covers everything below it, so the files of the graph do not have to be listed;
2. the digests of its resources, which the state of the ledger records;
3. the compiler: the sources of the languages and of the loader, and the Python version that runs them.

One digest covers 1 and 2; the compiler is recorded once for all graphs. A record for other files, another declaration or another
state has a different digest, so it is ignored. Records are taken only from a verified ledger entry.

If the state still has the resources of the record, and the folder was compared with the recorded one, no
digest is computed: a graph is unchanged if neither `cluster.yaml` nor a path in its declaration differs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.source import SourceError, SourceLimits, StampedTree, checked_listing, normalize, parents
from gitops.cluster.model.address import Address, Kind, graph_address, schema_address
from gitops.cluster.model.kinds import KINDS, rules_of
from gitops.cluster.model.resource import graph_composite
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.port import EntryType, GitReader

_BESIDE = tuple(kind.value for kind, rules in KINDS.items() if not rules.with_graph)

Digests: TypeAlias = Mapping[Address, str]
"""The digests of resources, in the order of their addresses."""


class SoundGraph(NamedTuple):
    """A graph without problems: the digest of its sources, and how many files and bytes they have."""

    digest: str
    files: int
    size: int


class PlainFolder(NamedTuple):
    """The git tree of a folder that has no links, submodules or unsafe names, and the largest number of subfolders in it."""

    tree: str
    folders: int


class FolderDifference(NamedTuple):
    """The paths that differ between a cluster folder and an earlier tree: added, removed and changed entries.

    Folders that are in both trees are compared entry by entry. For the other different paths, which
    `whole` contains, everything below them counts as different too.
    """

    places: frozenset[str]
    whole: frozenset[str]

    def covers(self, place: str) -> bool:
        """Return True if anything at or below a normalized path differs."""
        if place == ".":
            return bool(self.places)
        return place in self.places or any(above in self.whole for above in parents(place))


class ComparedFolder(NamedTuple):
    """A plain folder, and its differences from the folder in a ledger's record (None if they were not compared)."""

    plain: PlainFolder
    difference: FolderDifference | None = None


@dataclass(frozen=True, slots=True)
class SoundRecord:
    """The record of one applied plain folder: its graphs without problems, by id.

    `compiler` is the digest of the program that established this. `basis` is a digest of the graphs, the recorded
    resources and the file size limit. While it matches, the state contains exactly the folder's result for each graph.
    """

    compiler: str
    folder: PlainFolder
    graphs: Mapping[str, SoundGraph]
    basis: str = ""


def sound_record(
    vouched: VouchedGraphs, sound: Mapping[str, SoundGraph], given: Digests, recorded: Digests
) -> SoundRecord:
    """Return a folder's record: its load found the graphs `sound`, and resources with the digests `given`.

    Graphs for which the state has `recorded` other digests are omitted, because that record does not come from this
    folder.
    """
    behind = {address.graph for address, value in given.items() if recorded.get(address) != value}
    behind |= {address.graph for address in recorded.keys() - given.keys()}
    graphs = {graph: each for graph, each in sound.items() if graph not in behind}
    return SoundRecord(vouched.compiler, vouched.folder, graphs, _basis(graphs, recorded, vouched.tree))


class ContentTree(StampedTree, Protocol):
    """A tree whose files and folders have content ids."""

    def object_id(self, place: str) -> str | None:
        """Return the kind and id of the object at a normalized path; a folder's id covers everything below it.

        None if nothing exists there, or if the tree would refuse to read it.
        """

    def reopened(self) -> ContentTree:
        """Return the same folder, with nothing read yet."""


class VouchedGraph(NamedTuple):
    """A graph that need not be read: its record, and the digests of all its resources."""

    record: SoundGraph
    digests: Mapping[Address, str]


class LedgerGraphs:
    """The graphs in one verified entry: the entry's record (None if it has none), and the digests in its state."""

    def __init__(self, record: SoundRecord | None, recorded: Mapping[Address, str]) -> None:
        """`recorded` are the digests of all resources."""
        self.record = record
        self.recorded = recorded
        self._composites: dict[str, str | None] = {}

    @cached_property
    def digests(self) -> Mapping[str, Mapping[Address, str]]:
        """The recorded digests of declared resources, by graph. Omits restores, which are declared separately and always read."""
        found: dict[str, dict[Address, str]] = {}
        for address, value in self.recorded.items():
            graph = address.graph
            if graph is not None and not (address.startswith(_BESIDE) and not rules_of(address).with_graph):
                found.setdefault(graph, {})[address] = value
        return found

    def composite(self, graph: str) -> str | None:
        """Return a graph's recorded digest, or None if its recorded resources give a different one. Computed once per run."""
        if graph not in self._composites:
            self._composites[graph] = _composite(graph, self.digests[graph])
        return self._composites[graph]


class VouchedGraphs:
    """The graphs in the folder `tree` that a ledger lists as checked."""

    def __init__(self, tree: ContentTree, compiler: str, ledger: LedgerGraphs, folder: ComparedFolder) -> None:
        """`compiler` identifies the compiler of this program. `folder` is the compared folder: its check, and its differences."""
        self.tree = tree
        self.compiler = compiler
        self.folder = folder.plain
        self._ledger = ledger
        self._graphs = {} if ledger.record is None or ledger.record.compiler != compiler else ledger.record.graphs
        self._difference = folder.difference

    @cached_property
    def _same_declarations(self) -> FolderDifference | None:
        """Return the folder's differences, if the state has the record's resources and declarations are unchanged."""
        difference, record = self._difference, self._ledger.record
        if record is None or difference is None or difference.covers(CONFIG_FILE):
            return None
        return difference if record.basis == _basis(record.graphs, self._ledger.recorded, self.tree) else None

    def find(self, graph: str, form: Mapping[str, Any]) -> VouchedGraph | None:
        """Return the checked graph with this declaration (see `config_form`), or None if the graph must be loaded."""
        record = self._graphs.get(graph)
        if record is None or graph not in self._ledger.digests:
            return None
        difference = self._same_declarations
        if difference is not None:
            if any(place is None or difference.covers(place) for place in _places(form)):
                return None
        elif (composite := self._ledger.composite(graph)) is None or record.digest != self._made_of(
            graph, form, composite
        ):
            return None
        return VouchedGraph(record, self._ledger.digests[graph])

    def digest(self, graph: str, form: Mapping[str, Any], digests: Mapping[Address, str]) -> str | None:
        """Compute the digest of a graph's sources from its declaration (see `config_form`) and its resource digests.

        None if a path in the declaration cannot be read, or if the digest of the graph does not match its resources.
        """
        composite = _composite(graph, digests)
        return None if composite is None else self._made_of(graph, form, composite)

    def _made_of(self, graph: str, form: Mapping[str, Any], composite: str) -> str | None:
        found = [None if place is None else self.tree.object_id(place) for place in _places(form)]
        # A declaration can contain any text, even one that UTF-8 cannot encode. This JSON is pure ASCII, so it can hold
        # all of them.
        made_of = json.dumps([graph, form, found, composite, self.tree.limits.file_bytes]).encode()
        return None if None in found else digest(made_of)


def _places(form: Mapping[str, Any]) -> Iterator[str | None]:
    """Return the normalized paths in a graph's declaration, or None if one is refused."""
    listed = form["queries"]
    if isinstance(listed, dict):
        listed = [query["file"] for query in listed.values()]
    for path in (form["schema"], *([listed] if isinstance(listed, str) else listed)):
        try:
            yield normalize(path, confined=True)
        except SourceError:
            yield None


def _basis(graphs: Mapping[str, SoundGraph], recorded: Digests, tree: ContentTree) -> str:
    """Return a digest of a record's graphs, the recorded resources, and the file size limit."""
    made_of = (
        str(tree.limits.file_bytes),
        *graphs,
        *(g.digest for g in graphs.values()),
        *recorded,
        *recorded.values(),
    )
    return digest("\n".join(made_of).encode(errors="surrogatepass"))


def _composite(graph: str, digests: Mapping[Address, str]) -> str | None:
    """Return a graph's digest in these resources, or None if it does not match them."""
    queries = {address.name: value for address, value in digests.items() if address.kind is Kind.QUERY}
    found = graph_composite(graph, digests.get(schema_address(graph), ""), queries)
    return found if digests.get(graph_address(graph)) == found else None


# -- folders -----------------------------------------------------------------------------------------------------------
# Cluster folders in git must not contain links, submodules or unsafe names. Also determines the differing files of two
# folders.


_LINKS = {
    EntryType.SYMLINK: (Code.SOURCE_SYMLINK, "symbolic link"),
    EntryType.SUBMODULE: (Code.SOURCE_SUBMODULE, "submodule"),
}
_MAX_FOLDERS = 20_000
_LISTING = SourceLimits(files=1_000_000)


def require_plain(store: GitReader, folder: str, path: str, known: PlainFolder | None = None) -> ComparedFolder:
    """Refuse a cluster folder with a link, a submodule or an unsafe name anywhere, even at a path that nothing declares.

    They are never followed. But reviewers, and programs in a checkout, would not see the bytes that an approval covers.
    Anything at the same place in a `known` folder, which was accepted before, is not checked again. Returns the folder,
    and its differences from the known one, if that one is still available.

    Raises GitopsError `source_symlink`, `source_submodule`, `source_name_unsafe`, `source_too_large`.
    """
    if known is not None and known.tree == folder:
        return ComparedFolder(known, FolderDifference(frozenset(), frozenset()))
    if known is not None:
        with contextlib.suppress(GitopsError):
            found = _require_plain(store, folder, path, known)
            if found.plain.folders <= _MAX_FOLDERS:
                return found
    # If the known folder is no longer available, new folders can be counted twice.
    return ComparedFolder(_require_plain(store, folder, path, None).plain)


def _require_plain(store: GitReader, folder: str, path: str, known: PlainFolder | None) -> ComparedFolder:
    """Check everything that `known` does not have at the same place."""
    pending, seen = [("", folder, None if known is None else known.tree)], {folder}
    places, whole = set[str](), set[str]()
    while pending:
        prefix, tree, old = pending.pop()
        entries, before = store.entries(tree), () if old is None else store.entries(old)
        same = frozenset((e.name, e.id, e.type) for e in before)
        below = {name: found for name, found, kind in same if kind is EntryType.TREE}
        checked_listing(f"{path}/{prefix}".removesuffix("/"), (entry.name for entry in entries), _LISTING)
        gone = {entry.name for entry in before}.difference(entry.name for entry in entries)
        whole.update(f"{prefix}{name}" for name in gone)
        for entry in entries:
            if (entry.name, entry.id, entry.type) in same:
                continue
            place = f"{prefix}{entry.name}"
            if entry.type in _LINKS:
                code, what = _LINKS[entry.type]
                raise GitopsError(code, f"{path}/{place} is a {what}", path=f"{path}/{place}")
            places.add(place)
            compared = entry.type is EntryType.TREE and entry.id not in seen
            if compared:
                seen.add(entry.id)
                pending.append((f"{place}/", entry.id, below.get(entry.name)))
            if not compared or entry.name not in below:
                whole.add(place)
        if len(seen) > _MAX_FOLDERS:
            raise GitopsError(Code.SOURCE_TOO_LARGE, f"{path} has more than {_MAX_FOLDERS} folders", path=path)
    plain = PlainFolder(folder, len(seen) + (0 if known is None else known.folders))
    return ComparedFolder(plain, FolderDifference(frozenset(places | whole), frozenset(whole)))


def changed_paths(store: GitReader, other: str, folder: str) -> tuple[str, ...]:
    """Return the files that differ from another tree of the folder, or none if the repository does not have that tree."""
    try:
        return store.changed_paths(other, folder)
    except GitopsError:
        return ()
