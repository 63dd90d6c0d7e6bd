"""Typed declarations from `cluster.yaml` with each value's place. Nothing is resolved, and no other file is read.

The same content has a plain JSON form, which the configuration digest covers and the compile cache stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import chain, count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gitops.cluster.config.source import PathKind, SourceError, SourceMovedError, SourceTree
from gitops.cluster.model.address import Address
from gitops.cluster.model.kinds import KINDS, SECTIONS
from gitops.core.canonical import compact, digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef

if TYPE_CHECKING:
    from gitops.database.language.yaml import YamlNode

CONFIG_FILE = "cluster.yaml"


@dataclass(frozen=True)
class Text:
    """A string value with its place in `cluster.yaml`. Lines and columns count from 1."""

    value: str
    line: int
    column: int

    @property
    def source(self) -> SourceRef:
        """Where a diagnostic points."""
        return SourceRef(CONFIG_FILE, self.line, self.column)


class Placed(Protocol):
    """An object whose place is computed on demand."""

    @property
    def source(self) -> SourceRef:
        """Where a diagnostic points."""


def source_of(place: Placed | SourceRef) -> SourceRef:
    """Return the place. Call this only to report it, because lines must be counted to find a place."""
    return place if isinstance(place, SourceRef) else place.source


class DeclaredQuery(NamedTuple):
    """One declaration `<name>: {file: <path>}`."""

    name: Text
    file: Text


class QueryRegistry(NamedTuple):
    """The map form of `queries`: each query name with its file, sorted by name."""

    entries: tuple[DeclaredQuery, ...] = ()


class QuerySources(NamedTuple):
    """The other forms of `queries`: folders and files. All queries in them are declared.

    `single` means a string instead of a list.
    """

    items: tuple[Text, ...]
    single: bool


class DeclaredGraph(NamedTuple):
    """One entry of `graphs`."""

    id: Text
    schema: Text
    queries: QueryRegistry | QuerySources


class DeclaredText(NamedTuple):
    """One entry in a section of texts, such as `policies`.

    `applies_to` is as written; empty for kinds without bindings.
    """

    name: Text
    file: Text
    applies_to: tuple[Text, ...]


class DeclaredRestore(NamedTuple):
    """One entry of `restores`. Its key is the graph id."""

    graph: Text
    version: int
    types: tuple[Text, ...]


class DeclaredSection(NamedTuple):
    """A section that forms read, in its JSON form (see `compute` and `hosts` here) and as written in the document."""

    form: Mapping[str, Any]
    section: YamlNode


@dataclass(frozen=True, slots=True)
class DeclaredCluster:
    """The complete document.

    `graphs`, `restores` and the `texts` of each section are sorted by name, in code point order.
    """

    version: int
    version_source: SourceRef
    name: Text | None = None
    storage: Text | None = None
    backend: Text | None = None
    lock: bool | None = None
    graphs: tuple[DeclaredGraph, ...] = ()
    texts: Mapping[str, tuple[DeclaredText, ...]] = field(default_factory=lambda: MappingProxyType({}))
    restores: tuple[DeclaredRestore, ...] = ()
    compute: DeclaredSection | None = None
    hosts: DeclaredSection | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """The part of `cluster.yaml` that `status` and `force-unlock` need.

    `storage` is for `parse_storage`, as in DesiredState.
    """

    name: str | None = None
    storage: str | None = None
    lock: bool = True


def read_config(tree: SourceTree) -> tuple[bytes | None, Diagnostics]:
    """Perform steps 1 and 2 of a load. Returns the bytes of the file (None if a step failed) and the problems."""
    found = Diagnostics()
    try:
        if (kind := tree.kind(".")) is PathKind.DIR:
            return tree.read(CONFIG_FILE), found
        why = "does not exist" if kind is PathKind.ABSENT else "is a file"
        found.add(Code.CONFIG_DIR_NOT_FOUND, tree.root, f"the folder {tree.root} {why}")
    except SourceError as error:
        code = error.code if error.is_refusal else Code.CLUSTER_CONFIG_READ_ERROR
        here = error.code != Code.SOURCE_MISSING or tree.root == "."
        message = error.detail if here else f"{tree.root} does not contain {CONFIG_FILE}"
        found.add(code, CONFIG_FILE, message, source=SourceRef(CONFIG_FILE), fix=error.fix)
    return None, found


def config_form(cluster: DeclaredCluster) -> dict[str, Any]:
    """Return the configuration as JSON values in declaration order, with every key. Absent values are null or `{}`.

    Everything after `policies` is omitted if it is missing, so the digest of a folder without it does not change.
    """

    def value(text: Text | None) -> str | None:
        return None if text is None else text.value

    def queries(declared: QueryRegistry | QuerySources) -> Any:
        if isinstance(declared, QueryRegistry):
            return {query.name.value: {"file": query.file.value} for query in declared.entries}
        return declared.items[0].value if declared.single else [item.value for item in declared.items]

    form: dict[str, Any] = {
        "version": cluster.version,
        "metadata": {"name": value(cluster.name)},
        "storage": value(cluster.storage),
        "state": {"backend": value(cluster.backend), "lock": cluster.lock},
        "graphs": {g.id.value: {"schema": g.schema.value, "queries": queries(g.queries)} for g in cluster.graphs},
        "policies": {},
    }
    for section, texts in cluster.texts.items():
        entries: dict[str, Any] = {text.name.value: {"file": text.file.value} for text in texts}
        for text in texts if KINDS[SECTIONS[section]].binds else ():
            entries[text.name.value]["applies_to"] = [item.value for item in text.applies_to]
        if entries:
            form[section] = entries
    if cluster.restores:
        form["restores"] = {
            r.graph.value: {"version": r.version, "types": sorted(t.value for t in r.types)} for r in cluster.restores
        }
    if cluster.compute is not None:
        form["compute"] = cluster.compute.form
    if cluster.hosts is not None:
        form["hosts"] = cluster.hosts.form
    return form


def config_digest(form: Mapping[str, Any], digests: Mapping[Address, str]) -> str:
    """Return the configuration digest, one value for everything that a cluster folder declares.

    It covers `form`, as returned by `config_form`, and `digests`, address to digest, of all desired resources: the input is
    `cluster-config NUL <compact JSON of the form> NUL`, then `<address> NUL <digest> NUL` by address. So formatting,
    comments and key order of `cluster.yaml` do not matter; the spelling of paths and every byte of every referenced file do.
    """
    pairs = "".join([f"{address}\0{digests[address]}\0" for address in sorted(digests)])
    return digest(b"cluster-config\0" + compact(form) + b"\0" + pairs.encode())


class _TextOfForm(Text):
    """A text in the JSON form. It has no places, so the document is parsed when a place is needed."""

    def __init__(self, value: str, position: int, document: Callable[[], Sequence[Text]]) -> None:
        super().__init__(value, 0, 0)
        object.__setattr__(self, "_place", (position, document))

    @property
    def source(self) -> SourceRef:
        position, document = self.__dict__["_place"]
        texts = document()
        if len(texts) <= position or texts[position].value != self.value:
            raise SourceMovedError
        found: SourceRef = texts[position].source
        return found


def texts_of(declared: DeclaredGraph | DeclaredText | None) -> Sequence[Text]:
    """Return all of a declaration's texts in the document's sorted order, or nothing if there is no declaration."""
    if declared is None:
        return ()
    if isinstance(declared, DeclaredText):
        return (declared.name, declared.file, *declared.applies_to)
    queries = declared.queries
    below = chain.from_iterable(queries.entries) if isinstance(queries, QueryRegistry) else queries.items
    return (declared.id, declared.schema, *below)


def graph_from_form(name: str, form: Mapping[str, Any], document: Callable[[], Sequence[Text]]) -> DeclaredGraph:
    """Return a graph's declaration from its JSON form. `document` returns the parsed document, which has the places.

    A place raises SourceMovedError if the document no longer has the value there.
    """
    positions = count()

    def text(value: str) -> Text:
        return _TextOfForm(value, next(positions), document)

    queries, graph, schema = form["queries"], text(name), text(form["schema"])
    if isinstance(queries, dict):
        entries = tuple(DeclaredQuery(text(query), text(fields["file"])) for query, fields in queries.items())
        return DeclaredGraph(graph, schema, QueryRegistry(entries))
    single = isinstance(queries, str)
    items = tuple(text(item) for item in ([queries] if single else queries))
    return DeclaredGraph(graph, schema, QuerySources(items, single=single))


def text_from_form(name: str, form: Mapping[str, Any], document: Callable[[], Sequence[Text]]) -> DeclaredText:
    """Return a text's declaration from its JSON form. `document` is as in `graph_from_form`."""
    written = name, form["file"], *form.get("applies_to", ())
    texts = [_TextOfForm(value, n, document) for n, value in enumerate(written)]
    return DeclaredText(texts[0], texts[1], tuple(texts[2:]))
