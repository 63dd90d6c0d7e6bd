"""Loads a cluster folder: turns its files into the desired state, and finds all problems in one run.

The steps, in order. If one of steps 1 to 4 fails, the load ends; steps 5 to 8 report everything that they find:

1. the folder exists                              `config_dir_not_found`
2. `cluster.yaml` can be read                     `cluster_config_read_error`
3. no key is repeated or reserved                 `duplicate_yaml_key`, `future_phase_field`
4. the document has the right structure           `invalid_cluster_yaml`
5. header: version, name, backend, storage
6. graphs by id: id, schema file, schema, queries by name
7. policies by name: name, file, bindings
8. policies that can be enforced, graphs that can be served

A load with a cache has the same steps and the same result, but skips parts that an earlier load found without problems:

a. `cluster.yaml` is not parsed if it matches the index.
b. A graph is kept if its declaration and all its files and folders match the record.
c. In other graphs, a file is not read if it matches the record, and a text is not compiled if it is known to be valid.
d. A folder near a limit of a load, where the order of reading matters, or one that does not match the record, is loaded only from
   its files.

Code that permits or applies a change never uses a cache: see docs/decisions/0011-compile-cache.md. Graphs that the
ledger lists as checked are not read by any load: see `gitops.cluster.config.sound`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gitops.cluster.config.cache import (
    NO_INDEX,
    GraphRecord,
    Hints,
    Index,
    IndexColumns,
    RecordedTree,
    SoundPairs,
    addresses_of,
)
from gitops.cluster.config.declaration import (
    DeclaredCluster,
    DeclaredGraph,
    DeclaredText,
    Header,
    config_digest,
    config_form,
    graph_from_form,
    read_config,
    text_from_form,
    texts_of,
)
from gitops.cluster.config.loader import LoadedPolicy, ResourceLoader
from gitops.cluster.config.reader import MAX_QUERIES, MAX_QUERY_BYTES, SourceFile, SourceReader
from gitops.cluster.config.sound import SoundGraph, VouchedGraph, VouchedGraphs
from gitops.cluster.config.source import SourceError, SourceLimits, SourceMovedError, SourceTree, StampedTree, parents
from gitops.cluster.model.address import Address, Kind, graph_address, is_name, is_servable
from gitops.cluster.model.kinds import SECTIONS, rules_of
from gitops.cluster.model.resource import (
    Dependencies,
    Dependency,
    DesiredState,
    GraphDeclaration,
    OnDemand,
    Resource,
    digests_of,
    restore_resources,
)
from gitops.cluster.policy.bind import BoundBundle, Enforced, bind, check_kinds, conflicts, kind_of
from gitops.cluster.policy.bundle import Bundle
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.collector import paused_collector
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity, SourceRef

if TYPE_CHECKING:
    from gitops.database.language.yaml import YamlNode


class Judgement(NamedTuple):
    """The checked policies, and the number of test cases in the folder."""

    policies: tuple[LoadedPolicy, ...] = ()
    cases: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A full load's result.

    `desired` and `header` are None if an error concerns them. `resources` (in address order) and `dependencies` contain
    everything that could be loaded even then, for reports but never for planning. `sound` are the graphs without
    problems, by id, if the load was given a ledger's checked graphs. `judgement` is the result of step 8.
    """

    desired: DesiredState | None
    header: Header | None
    resources: Mapping[Address, Resource]
    dependencies: Collection[Dependency]
    diagnostics: Diagnostics
    sound: Mapping[str, SoundGraph] = field(default_factory=dict)
    judgement: Judgement = Judgement()

    def digests(self) -> Mapping[Address, str]:
        """Map resource addresses to digests, in address order."""
        return digests_of(self.resources)


@paused_collector()
def load_desired(
    tree: SourceTree, vouched: VouchedGraphs | None = None, hints: Hints | None = None, *, applied: bool = False
) -> Loaded:
    """Perform the steps, but skip everything that a ledger's checked graphs or a cache already cover.

    Each file is read at most once, and only the cache is written; without either, everything is read. `vouched` and the
    tree of `hints`, which is read instead of `tree`, are for the same folder. `applied` means that the folder was
    applied, perhaps by a release that accepted more, so step 8 is omitted.

    Never raises, whatever the content of the tree. Resources and compiled graphs in the result that were not read are
    created on demand. That raises SourceMovedError if they don't match the record; then load again, only from the
    files.
    """
    index = None if hints is None else hints.recall()
    tree = tree if hints is None else hints.tree
    data, found = read_config(tree)
    config = None if data is None else Configuration.recorded(data, index) or Configuration.parse(data, found)
    if config is None:
        return Loaded(None, None, MappingProxyType({}), (), found)
    recorded = None if hints is None or index is None else RecordedTree(hints.tree, index)
    reader = SourceReader(tree, found, None if recorded is None else recorded.facts)
    sound = None if hints is None else SoundPairs(hints.cache)
    believed = hints or vouched
    load = _Load(
        config,
        ResourceLoader(reader, sound),
        lambda: tree if believed is None else believed.tree.reopened(),
        recorded,
        vouched,
    )
    try:
        load.resolve()
        if not applied:
            load.judge()
        is_certain = believed is None or not load.is_near_a_limit(believed.tree.limits)
    except SourceMovedError:
        is_certain = False
    if believed is not None and not is_certain:
        return load_desired(believed.tree.reopened(), applied=applied)
    if hints is not None and sound is not None:
        sound.save()
        if load.is_worth_recording():
            hints.keep(load.new_index(hints.tree))
    return load.result()


def declared_schema(tree: SourceTree, graph: str, expected: str) -> bytes | None:
    """Return the schema text that the folder declares for a graph, if it has the expected digest. Reads two files."""
    from gitops.cluster.config.cluster_yaml import read_cluster

    cluster, _ = read_cluster(tree)
    declared = None if cluster is None else next((g for g in cluster.graphs if g.id.value == graph), None)
    if declared is None:
        return None
    try:
        content = tree.read(declared.schema.value)
    except SourceError:
        return None
    return content if digest(content) == expected else None


# -- steps 3 to 5 ------------------------------------------------------------------------------------------------------


class Configuration:
    """`cluster.yaml`, either parsed or from an index. `form` is the result of `config_form`."""

    def __init__(
        self, data: bytes, form: Mapping[str, Any], header: Header | None, parsed: DeclaredCluster | None
    ) -> None:
        self._data = data
        self.digest, self.size = digest(data), len(data)
        self.form = form
        self.header = header
        self.is_recorded = parsed is None
        if parsed is not None:
            self.parsed = parsed

    @classmethod
    def parse(cls, data: bytes, found: Diagnostics) -> Configuration | None:
        """Perform steps 3 to 5. Returns None if step 3 or 4 failed. Adds problems to `found`."""
        # A load that does not need the parser or the languages must not import them.
        from gitops.cluster.config.cluster_yaml import header_of, parse_cluster

        cluster, problems = parse_cluster(data)
        found.extend(problems)
        return None if cluster is None else cls(data, config_form(cluster), header_of(cluster, found), cluster)

    @classmethod
    def recorded(cls, data: bytes, index: Index | None) -> Configuration | None:
        """Return the content that an index recorded, or None if the index is for a different file.

        A cache must not influence which ledger is read and locked, so a storage root must appear literally in the file,
        on one line.
        """
        if index is None or index.config != digest(data):
            return None
        if index.header[1] is not None:
            lines = [line.rstrip() for line in data.splitlines() if line.startswith(b"storage")]
            text = index.header[1].encode("utf-8", "surrogatepass")
            if lines not in ([b"storage: %b" % text], [b'storage: "%b"' % text], [b"storage: '%b'" % text]):
                return None
        return cls(data, index.form, Header(*index.header), None)

    @functools.cached_property
    def parsed(self) -> DeclaredCluster:
        """Return the document with the places of all values. Raises SourceMovedError if it differs from the index."""
        from gitops.cluster.config.cluster_yaml import parse_cluster

        cluster, _ = parse_cluster(self._data)
        if cluster is None:
            raise SourceMovedError
        return cluster

    @functools.cached_property
    def _graphs(self) -> Mapping[str, DeclaredGraph]:
        return {graph.id.value: graph for graph in self.parsed.graphs}

    @functools.cached_property
    def _texts(self) -> Mapping[tuple[str, str], DeclaredText]:
        return {(section, text.name.value): text for section, texts in self.parsed.texts.items() for text in texts}

    @property
    def compute(self) -> YamlNode:
        """Return the document's `compute` section. Raises SourceMovedError if there is none."""
        if self.parsed.compute is None:
            raise SourceMovedError
        return self.parsed.compute.section

    @property
    def hosts(self) -> YamlNode:
        """Return the document's `hosts` section. Raises SourceMovedError if there is none."""
        if self.parsed.hosts is None:
            raise SourceMovedError
        return self.parsed.hosts.section

    def graph(self, name: str) -> DeclaredGraph:
        """Return a graph's declaration."""
        if not self.is_recorded:
            return self._graphs[name]
        return graph_from_form(name, self.form["graphs"][name], lambda: texts_of(self._graphs.get(name)))

    def text(self, section: str, name: str) -> DeclaredText:
        """Return a text's declaration in a section."""
        if not self.is_recorded:
            return self._texts[section, name]
        return text_from_form(name, self.form[section][name], lambda: texts_of(self._texts.get((section, name))))


# -- steps 6 and 7 -----------------------------------------------------------------------------------------------------


# An index that is slightly outdated is still useful. Up to this many files and folders are simply checked again.
_WORTH_RECORDING = 64


class _Load:
    """Steps 6 to 8.

    Graphs recorded in the index are `kept`, graphs listed as checked are skipped, and all others are loaded.
    """

    def __init__(
        self,
        config: Configuration,
        loader: ResourceLoader,
        reopen: Callable[[], SourceTree],
        recorded: RecordedTree | None,
        vouched: VouchedGraphs | None,
    ) -> None:
        """`reopen` opens the tree again, to compile the remaining texts."""
        self._config = config
        self._loader = loader
        self._reader = loader.reader
        self._found = loader.reader.found
        self._recorded = recorded
        self._index = NO_INDEX if recorded is None else recorded.index
        self._kept: dict[str, GraphRecord] = {}
        self._ledger = vouched
        self._vouched: dict[str, VouchedGraph] = {}
        self._digests: dict[Address, str] = {}
        self._reopen = reopen
        self._again = functools.cache(self._load_again)
        self._judgement = Judgement()
        self._references: tuple[Dependency, ...] = ()

    def resolve(self) -> None:
        """Run steps 6 and 7: all graphs, then all texts, by name, which is also the order of the problems."""
        if self._recorded is not None:
            self._recorded.compare_files(self._reader)
        form = self._config.form
        for graph, declared in form["graphs"].items():
            record = self._index.graphs.get(graph)
            if (
                self._recorded is not None
                and record is not None
                and self._recorded.is_unchanged(record)
                and (self._config.is_recorded or self._index.form["graphs"][graph] == declared)
            ):
                self._kept[graph] = record
            elif self._ledger is not None and (known := self._ledger.find(graph, declared)) is not None:
                self._vouched[graph] = known
            else:
                self._loader.graph(self._config.graph(graph))
        for section in SECTIONS:
            for name in form.get(section, ()):
                self._loader.text(section, self._config.text(section, name), form["graphs"])
        self._loader.resources |= restore_resources(form.get("restores", {}))
        if "compute" in form:
            # Most folders have no compute clusters and need none of this.
            from gitops.cluster.config.compute import check_compute, compute_resources, read_compute

            compute = read_compute(form["compute"])
            check_compute(compute, lambda: self._config.compute, self._found)
            self._loader.resources |= compute_resources(compute)
        digests = dict(self._index.digests)
        for graph in self._index.graphs.keys() - self._kept.keys():
            for address in addresses_of(graph, self._index.graphs[graph].queries):
                del digests[address]
        for vouched in self._vouched.values():
            digests.update(vouched.digests)
        digests.update((address, resource.digest) for address, resource in self._loader.resources.items())
        if "hosts" in form:
            # Most folders have no hosts.
            from gitops.cluster.config.host_items import load_hosts
            from gitops.cluster.config.hosts import read_hosts

            hosts = load_hosts(read_hosts(form["hosts"]), lambda: self._config.hosts, self._reader, digests)
            self._loader.resources |= hosts.resources
            self._references = tuple(hosts.references)
            digests.update((address, resource.digest) for address, resource in hosts.resources.items())
        self._digests = dict(sorted(digests.items()))

    def judge(self) -> None:
        """Step 8."""
        policies, sound = self._loader.policies.values(), self._loader.sound
        self._judgement = judge(self._config, policies, self._reader, sound, self._compiled)

    def _compiled(self, graph: str) -> GraphDeclaration:
        """Return a graph of a folder without errors, even if it was not loaded."""
        return self._loader.compiled.get(graph) or self._again(graph).compiled[graph]

    def is_near_a_limit(self, limits: SourceLimits) -> bool:
        """Return True if a limit was reached, or might have been reached by reading everything."""
        files = self._index.files
        kept = {files.places[n]: files.sizes[n] for record in self._kept.values() for n in record.files}
        # A kept file may have been read for the comparison as well.
        sizes = kept | {path: file.size for path, file in self._reader.files.items() if isinstance(file, SourceFile)}
        queries = self._reader.queries + sum(len(record.queries) for record in self._kept.values())
        kept_bytes = sum(files.sizes[n] for record in self._kept.values() for n in record.files)
        # If several graphs use a file, it counts several times here.
        known = [each.record for each in self._vouched.values()]
        known_files, known_bytes = sum(each.files for each in known), sum(each.size for each in known)
        queries += sum(len(each.digests) for each in self._vouched.values())
        return (
            Code.SOURCE_TOO_LARGE in self._found.codes()
            or len(sizes.keys() | self._reader.files.keys()) + known_files + 1 > limits.files
            or self._config.size + sum(sizes.values()) + known_bytes > limits.total_bytes
            or max(files.sizes, default=0) > limits.file_bytes
            or queries > MAX_QUERIES
            or self._reader.query_bytes + kept_bytes + known_bytes > MAX_QUERY_BYTES
        )

    def is_worth_recording(self) -> bool:
        """Return True if the next load would benefit from a new index."""
        if self._config.header is None:
            return False
        if self._recorded is None or not self._config.is_recorded:
            return True
        loaded = sum(len(graph.files) for graph in self._loader.without_problems.values())
        return self._recorded.stale + loaded >= _WORTH_RECORDING

    def new_index(self, tree: StampedTree) -> Index:
        """Return the index for the next load: the graphs that were kept or loaded without problems."""
        columns, header, form = IndexColumns(), self._config.header or Header(), self._config.form
        files, folders = self._index.files, self._index.folders
        graphs: dict[str, GraphRecord] = {}
        for graph, record in self._kept.items():
            graphs[graph] = columns.add(
                [(files.places[n], files.digests[n], files.sizes[n]) for n in record.files],
                {folders.places[n]: folders.listings[n] for n in record.folders},
                record.queries,
            )
        for graph, loaded in self._loader.without_problems.items():
            passed = {above: "" for place in loaded.files for above in parents(place)}
            made_of = [(file.path, file.digest, file.size) for file in loaded.files.values()]
            graphs[graph] = columns.add(made_of, {**passed, **loaded.listings}, loaded.queries)
        for text in chain.from_iterable(form.get(section, {}).values() for section in SECTIONS):
            file = self._reader.read(text["file"])
            if isinstance(file, SourceFile):
                columns.add([(file.path, file.digest, file.size)], dict.fromkeys(parents(file.path), ""), {})
        digests = {
            each: self._digests[each]
            for graph, record in graphs.items()
            for each in addresses_of(graph, record.queries)
        }
        facts = (header.name, header.storage, header.lock)
        return Index(self._config.digest, form, facts, graphs, digests, *columns.stamped(tree))

    def result(self) -> Loaded:
        """Return the results of the steps. Resources that were not read are created on demand."""
        header, found, loaded, digests = self._config.header, self._found, self._loader.resources, self._digests
        resources: Mapping[Address, Resource]
        edges: Collection[Dependency]
        bindings = {address: r.applies_to for address, r in loaded.items() if r.applies_to}
        if not self._kept and not self._vouched:
            resources = MappingProxyType({address: loaded[address] for address in digests})
            edges = _dependencies(digests, bindings, self._references)
        else:
            resources = OnDemand(digests, lambda address: loaded.get(address) or self._known_resource(address))
            edges = Dependencies(
                lambda: _dependencies(digests, bindings, self._references),
                lambda graphs: _dependencies(self._near(graphs), bindings, self._references),
            )
        if header is None or found.has_errors:
            return Loaded(None, header, resources, edges, found, judgement=self._judgement)
        compiled, declared = self._loader.compiled, self._config.form["graphs"]
        is_whole = len(compiled) == len(declared)
        desired = DesiredState(
            config_digest=config_digest(self._config.form, digests),
            resources=resources,
            dependencies=edges,
            graphs=MappingProxyType(compiled) if is_whole else OnDemand(declared, self._compiled),
            name=header.name,
            storage=header.storage,
            lock=header.lock,
        )
        return Loaded(desired, header, resources, edges, found, self._sound(), self._judgement)

    def _sound(self) -> dict[str, SoundGraph]:
        """Return the graphs that the next ledger entry can list as checked."""
        ledger = self._ledger
        found = {graph: known.record for graph, known in self._vouched.items()}
        for graph, loaded in () if ledger is None else self._loader.without_problems.items():
            digests = {a: self._loader.resources[a].digest for a in addresses_of(graph, loaded.queries)}
            made_of = None if ledger is None else ledger.digest(graph, self._config.form["graphs"][graph], digests)
            if made_of is not None:
                size = sum(file.size for file in loaded.files.values())
                found[graph] = SoundGraph(made_of, len(loaded.files), size)
        return dict(sorted(found.items()))

    def _near(self, graphs: Collection[str]) -> Iterator[Address]:
        """Yield the addresses of everything that is bound to graphs or belongs to them."""
        for address in self._loader.resources:
            if rules_of(address).binds or address.graph in graphs:
                yield address
        for graph in graphs:
            if graph in self._kept:
                yield from addresses_of(graph, self._kept[graph].queries)
            elif graph in self._vouched:
                yield from self._vouched[graph].digests

    def _known_resource(self, address: Address) -> Resource:
        """Return a resource of a graph that was not loaded."""
        expected = self._digests[address]
        if address.kind is Kind.GRAPH:
            return Resource(address, expected)
        graph = address.graph or ""
        if graph in self._vouched:
            return self._again(graph).resources[address]
        if address.kind is Kind.SCHEMA:
            path = self._config.form["graphs"][graph]["schema"]
        else:
            path = self._kept[graph].queries[address.name]

        def content() -> bytes:
            file = self._reader.read(path)
            if not isinstance(file, SourceFile) or file.digest != expected:
                raise SourceMovedError
            return file.data

        return Resource(address, expected, path, content)

    def _load_again(self, graph: str) -> ResourceLoader:
        """Load a graph that was not read, or not compiled.

        Raises SourceMovedError if it differs from what the load used.
        """
        found = Diagnostics()
        loader = ResourceLoader(SourceReader(self._reopen(), found))
        loader.graph(self._config.graph(graph))
        if found.has_errors or any(
            self._digests.get(text) != resource.digest for text, resource in loader.resources.items()
        ):
            raise SourceMovedError
        return loader


def _dependencies(
    addresses: Iterable[Address], bindings: Mapping[Address, Sequence[str]], references: Iterable[Dependency]
) -> tuple[Dependency, ...]:
    """Return the dependencies of each resource by the rules of its kind, each pair once, sorted.

    `addresses` are the addresses of all resources, and `bindings` those of each policy that has any. `references` are those
    of the items of hosts.
    """
    edges = list(references)
    for address in addresses:
        edges += (Dependency(address, target) for target in rules_of(address).needs(address, bindings.get(address, ())))
    return tuple(sorted(edges))


# -- step 8 ------------------------------------------------------------------------------------------------------------
# Checks that the policies of a folder can be enforced and decide as expected. Each policy file is read and compared
# with its bindings; a scope has one policy. Then the test cases next to `cluster.yaml` and next to the policy files, in
# `*.test.yaml` and `policy.tests.yaml`, are decided. A file that an earlier load found without problems, bound to the
# same kinds of scopes, is not read again. Only validity is stored, as for queries.


_CASES = (".test.yaml", "policy.tests.yaml")


def check_bundle(policy: LoadedPolicy, found: Diagnostics, sound: SoundPairs | None) -> None:
    """Report the problems in a policy file with its bindings."""
    pair = "policy " + " ".join(sorted({kind_of(scope) for scope in policy.scopes})), policy.file.digest
    if sound is not None and sound.names(*pair) is not None:
        return
    _, problems = read_policy(policy)
    found.extend(problems)
    if sound is not None and not len(problems):
        sound.add(*pair, ())


def read_policy(policy: LoadedPolicy) -> tuple[Bundle | None, Diagnostics]:
    """Return a policy file's bundle (None if it has errors), and the problems with the file and its bindings."""
    # A load in which everything is known to be valid does not import the reader.
    from gitops.cluster.policy.read import read_bundle

    at = f"{policy.at}.file"
    bundle, problems = read_bundle(policy.file.data, policy.file.path, at)
    if bundle is not None:
        bound = BoundBundle(policy.declared.name.value, bundle, policy.scopes, policy.file.path)
        problems.extend(check_kinds(bound, at))
    return None if problems.has_errors else bundle, problems


def check_bindings(policies: Collection[LoadedPolicy], found: Diagnostics) -> None:
    """Report each further policy for a scope that already has one."""
    named = {policy.declared.name.value: policy for policy in policies}
    for scope, names in conflicts({name: policy.scopes for name, policy in named.items()}).items():
        for name in names[1:]:
            policy = named[name]
            message = f"{scope} already has the policy {names[0]}"
            found.add(
                Code.DUPLICATE_POLICY_BINDING, f"{policy.at}.applies_to", message, source=policy.declared.name.source
            )


def enforced_by(policies: Collection[LoadedPolicy]) -> Mapping[str, Enforced]:
    """Return each scope's enforced policy. Policies with errors are left out."""
    bundles = ((policy, read_policy(policy)[0]) for policy in policies)
    bound = (BoundBundle(p.declared.name.value, b, p.scopes, p.file.path) for p, b in bundles if b is not None)
    return bind(bound)[0]


def _case_folders(policies: Collection[LoadedPolicy]) -> set[str]:
    return {".", *(policy.file.path.rpartition("/")[0] or "." for policy in policies)} if policies else set()


def decides_cases_of(path: str, policies: Collection[LoadedPolicy]) -> bool:
    """Return whether step 8 decides the cases in a file, whose path is relative to the cluster folder."""
    return path.endswith(_CASES) and (path.rpartition("/")[0] or ".") in _case_folders(policies)


def case_files(policies: Collection[LoadedPolicy], reader: SourceReader) -> Iterator[SourceFile]:
    """Yield the test case files next to the configuration and the policies. Reports unreadable files."""
    for folder in sorted(_case_folders(policies)):
        try:
            names = reader.tree.names(folder)
        except SourceError as error:
            message = f"the folder is not searched for cases: {error.detail}"
            reader.found.add(error.code, folder, message, severity=Severity.WARNING)
            continue
        for name in names:
            if name.endswith(_CASES):
                path = name if folder == "." else f"{folder}/{name}"
                file = reader.file(path, path, SourceRef(path), missing=Code.POLICY_TESTS_INVALID)
                if file is not None and b"cases" in file.data:
                    yield file


def judge(
    config: Configuration,
    policies: Collection[LoadedPolicy],
    reader: SourceReader,
    sound: SoundPairs | None,
    compiled: Callable[[str], GraphDeclaration],
) -> Judgement:
    """Perform step 8. Adds problems to the reader. `compiled` returns a compiled graph of a folder without errors."""
    found, graphs = reader.found, config.form["graphs"]
    for policy in policies:
        check_bundle(policy, found, sound)
    check_bindings(policies, found)
    for graph in graphs:
        if is_name(graph) and not is_servable(graph):
            message = f"no server can serve a graph with the id '{graph}'"
            place = config.graph(graph).id.source
            found.add(Code.GRAPH_ID_UNSERVABLE, graph_address(graph), message, source=place)
    files = tuple(case_files(policies, reader))
    if not files:
        return Judgement(tuple(policies))
    from gitops.cluster.policy.cases import Guarded, failures, read_cases

    def writes(scope: str, query: str) -> bool | None:
        checked = compiled(Address(scope).graph or "").queries.get(query)
        return None if checked is None else bool(checked.writes)

    cases = [(file, *read_cases(file.data, file.path)) for file in files]
    for _, _, problems in cases:
        found.extend(problems)
    if not found.has_errors:
        guarded = Guarded(enforced_by(policies), graphs, writes)
        for file, read, _ in cases:
            for case in read:
                found.extend(failures(case, file.path, guarded))
    return Judgement(tuple(policies), sum(len(read) for _, read, _ in cases))
