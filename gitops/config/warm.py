"""Loading a cluster folder again: only what changed is read, and only what was never seen sound is compiled.

What it answers is what `load_desired` answers, problems and all:

1. A graph stays as recorded if its declaration is as it was, and so is every file and folder that it was made of.
2. Else it is put together from its files, each known to be sound by its digest and that of the schema, or compiled now.
3. Else something is wrong with it, or it is more than steps 1 and 2 understand: the loader looks at it.
4. A folder that is more than a load may be is loaded as if for the first time: the order of reading then matters.

Nothing that permits or carries out a change may load this way: see docs/decisions/0011-compile-cache.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gitops.config.assembly import Assembly, SourceMovedError
from gitops.config.declaration import bindings_of
from gitops.config.index import FileColumns, FolderColumns, GraphRecord, Index, read_index, write_index
from gitops.config.limits import MAX_QUERIES, MAX_QUERY_BYTES
from gitops.config.opening import Header, read_config, says_storage
from gitops.config.rebuild import Rebuilder, Rebuilt
from gitops.config.recorded import FileFacts, Files, Folders, OnceTree
from gitops.config.result import LoadResult
from gitops.config.sound import Lookup, Units
from gitops.config.source import StampedTree
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Address, is_name, policy_address
from gitops.model.resource import Resource

if TYPE_CHECKING:
    from gitops.config.cluster_yaml import RawCluster
    from gitops.config.load import Loader

__all__ = ["Remembered", "SourceMovedError", "load_remembering"]

_NOTHING = FileColumns([], [], [], []), FolderColumns([], [], [])
# An index that is a little out of date still does: fewer files than this are simply looked at again.
_WORTH_WRITING = 64


@dataclass(frozen=True, slots=True)
class Remembered:
    """A load, and the entries to keep for the next one, by their names."""

    result: LoadResult
    entries: Mapping[str, bytes]


def load_remembering(tree: StampedTree, remembered: Lookup) -> Remembered:
    """Load with the help of what earlier loads left under the names that `remembered` is asked for.

    Resources and graphs of the result are made when they are asked for; that raises SourceMovedError when the files have
    changed meanwhile, as this does where what is remembered contradicts the folder.
    """
    data, found = read_config(tree)
    if data is None:
        return Remembered(LoadResult(None, None, {}, (), found), {})
    name = f"index {tree.identity}"
    index = read_index(remembered(name))
    config = _Config(data, index)
    if config.form is None:
        return _anew(tree)
    warm = _Warm(tree, index, config, Units(remembered))
    warm.load()
    if warm.is_too_much():
        return _anew(tree)
    assembly = warm.assembly()
    entries = warm.units.entries()
    if warm.is_worth_writing():
        entries[name] = write_index(assembly.index(config.digest, index))
    return Remembered(assembly.result(), entries)


def _anew(tree: StampedTree) -> Remembered:
    from gitops.config.load import load_desired

    return Remembered(load_desired(tree.reopened()), {})


class _Config:
    """`cluster.yaml`: as the index has it if it is that file, else parsed. `form` is None if it has a problem."""

    def __init__(self, data: bytes, index: Index | None) -> None:
        self.digest, self.size = digest(data), len(data)
        self._data = data
        self._raw: RawCluster | None = None
        self.form: Mapping[str, Any] | None = None
        self.header = Header()
        self.is_known = index is not None and index.config == self.digest and says_storage(data, index.header[1])
        if index is not None and self.is_known:
            self.form, self.header = index.form, Header(*index.header)
            return
        from gitops.config.cluster_yaml import parse_cluster
        from gitops.config.digests import config_form
        from gitops.config.header import header_of

        raw, found = parse_cluster(data)
        header = None if raw is None or len(found) else header_of(raw, found)
        if raw is not None and header is not None and not len(found):
            self._raw, self.form, self.header = raw, config_form(raw), header

    @property
    def raw(self) -> RawCluster:
        """The file as parsed, with all places: to load what may have a problem."""
        if self._raw is None:
            from gitops.config.cluster_yaml import parse_cluster

            raw, _ = parse_cluster(self._data)
            if raw is None:
                raise SourceMovedError
            self._raw = raw
        return self._raw


class _Warm:
    """Steps 1 to 3: graphs end up `kept` as recorded, `built`, or with the loader."""

    def __init__(self, tree: StampedTree, index: Index | None, config: _Config, units: Units) -> None:
        self.units = units
        self._tree = tree
        self._config = config
        self._form: Mapping[str, Any] = config.form or {}
        self._index = index
        files, folders = _NOTHING if index is None else (index.files, index.folders)
        self._once = OnceTree(tree)
        self._folders = Folders(tree, folders)
        self._files = Files(tree, self._once, files, self._folders.gone)
        self._found = Diagnostics()
        self._kept: dict[str, GraphRecord] = {}
        self._built: dict[str, Rebuilt] = {}
        self._policies: dict[Address, tuple[Resource, FileFacts]] = {}
        self._loader: Loader | None = None

    def load(self) -> None:
        """All graphs, then all policies, in the order of their names: that of the problems that the loader reports."""
        rebuilder = Rebuilder(self._once, self._files, self.units)
        for graph, form in self._form["graphs"].items():
            record = self._unchanged(graph, form)
            if record is not None:
                self._kept[graph] = record
                continue
            built = rebuilder.rebuild(graph, form)
            if built is not None:
                self._built[graph] = built
            else:
                self._load_graph(graph)
        for name, form in self._form["policies"].items():
            if not self._rebuild_policy(name, form):
                self._load_policy(name)

    def is_too_much(self) -> bool:
        """Whether a limit was met, or would have been by reading everything. What is shared may weigh twice."""
        limits, sizes = self._tree.limits, [] if self._index is None else self._index.files.sizes
        places = {file.place for _, file in self._policies.values()}.union(*(b.files for b in self._built.values()))
        positions = {position for record in self._kept.values() for position in record.files}
        queries = sum(len(record.queries) for record in self._kept.values())
        queries += sum(len(built.queries) for built in self._built.values())
        weight = self._config.size + sum(file.size for _, file in self._policies.values())
        weight += sum(sizes[position] for record in self._kept.values() for position in record.files)
        weight += sum(file.size for built in self._built.values() for file in built.files.values())
        if self._loader is not None:
            reading = self._loader.reading
            places |= reading.places()
            queries, weight = queries + reading.spent[0], weight + reading.spent[1]
        return (
            Code.SOURCE_TOO_LARGE in self._found.codes()
            or len(places) + len(positions) + 1 > limits.files
            or weight > min(limits.total_bytes, MAX_QUERY_BYTES)
            or queries > MAX_QUERIES
            or max(sizes, default=0) > limits.file_bytes
        )

    def is_worth_writing(self) -> bool:
        """Whether the next load would gain from a new index."""
        looked_at = self._files.stale + self._folders.stale + sum(len(built.files) for built in self._built.values())
        return self._index is None or not self._config.is_known or looked_at >= _WORTH_WRITING

    def assembly(self) -> Assembly:
        """What was found, to be put together."""
        return Assembly(
            tree=self._tree,
            form=self._form,
            header=self._config.header,
            found=self._found,
            files=self._files,
            recorded=self._index,
            kept=self._kept,
            built=self._built,
            policies=self._policies,
            loaded={} if self._loader is None else self._loader.resources,
            compiled={} if self._loader is None else self._loader.graphs,
        )

    def _unchanged(self, graph: str, form: Mapping[str, Any]) -> GraphRecord | None:
        index = self._index
        record = None if index is None else index.graphs.get(graph)
        if index is None or record is None or not (self._config.is_known or index.form["graphs"][graph] == form):
            return None
        same = self._files.changed.isdisjoint(record.files) and self._folders.changed.isdisjoint(record.folders)
        return record if same else None

    def _rebuild_policy(self, name: str, form: Mapping[str, Any]) -> bool:
        bindings = bindings_of(form["applies_to"], self._form["graphs"])
        file = self._files.look(form["file"])
        if file is None or bindings is None or not is_name(name):
            return False
        address = policy_address(name)
        resource = Resource(address, file.digest, form["file"], self._files.reader(form["file"], file.digest), bindings)
        self._policies[address] = resource, file
        return True

    def _load_graph(self, graph: str) -> None:
        raw = next((each for each in self._config.raw.graphs if each.id.value == graph), None)
        if raw is None:
            raise SourceMovedError
        self._loaded().graph(raw)

    def _load_policy(self, name: str) -> None:
        raw = next((each for each in self._config.raw.policies if each.name.value == name), None)
        if raw is None:
            raise SourceMovedError
        self._loaded().policy(raw, frozenset(self._form["graphs"]))

    def _loaded(self) -> Loader:
        """The loader, which reports to the same list in whatever order it is asked."""
        if self._loader is None:
            from gitops.config.load import Loader
            from gitops.config.reader import Reading

            self._loader = Loader(Reading(self._once, self._found))
        return self._loader
