"""Parses `cluster.yaml` into declarations, and finds all problems in its structure and header.

The loader checks the declared items themselves (files, graphs in policy bindings).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gitops.cluster.config.declaration import (
    CONFIG_FILE,
    DeclaredCluster,
    DeclaredGraph,
    DeclaredQuery,
    DeclaredRestore,
    DeclaredSection,
    DeclaredText,
    Header,
    QueryRegistry,
    QuerySources,
    Text,
    read_config,
)
from gitops.cluster.config.keys import CLUSTER_KEYS, REQUIRED_KEYS, keys_below
from gitops.cluster.config.source import SourceTree
from gitops.cluster.model.kinds import SECTIONS
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import (
    ScalarType,
    YamlError,
    YamlFault,
    YamlList,
    YamlMap,
    YamlNode,
    YamlScalar,
    integer,
    is_absent,
    parse_yaml,
    shown,
    to_plain,
)
from gitops.database.storage.port import StorageRootError, parse_storage

_BACKEND = "cluster"
_TOP = "begin with the line version: 1, and continue with keys such as graphs:"
_RESERVED = ("apply", "env_file", "providers", "pipelines", "embeddings", "ui", "aliases", "bindings")
# More digits than any version will ever need.
_MAX_VERSION_DIGITS = 18
_FAULT_CODES = {
    YamlFault.SYNTAX: Code.INVALID_CLUSTER_YAML,
    YamlFault.DUPLICATE_KEY: Code.DUPLICATE_YAML_KEY,
    YamlFault.ALIAS: Code.YAML_ALIAS_REFUSED,
    YamlFault.LIMIT: Code.YAML_LIMIT_EXCEEDED,
}


def load_header(tree: SourceTree) -> tuple[Header | None, Diagnostics]:
    """Perform steps 1 to 5 of a load, on `cluster.yaml` only. The header is None if there is any error."""
    cluster, found = read_cluster(tree)
    return (None if cluster is None else header_of(cluster, found)), found


def read_cluster(tree: SourceTree) -> tuple[DeclaredCluster | None, Diagnostics]:
    """Perform steps 1 to 4 of a load. Returns the parsed file (None if a step failed) and the problems."""
    data, found = read_config(tree)
    return (None, found) if data is None else parse_cluster(data)


def header_of(cluster: DeclaredCluster, found: Diagnostics) -> Header | None:
    """Perform step 5 of a load. Adds problems to `found` and then returns None."""
    before = len(found)
    if cluster.version != 1:
        message = f"version {cluster.version} is not supported; this release reads version 1"
        found.add(Code.UNSUPPORTED_CLUSTER_CONFIG_VERSION, "version", message, source=cluster.version_source)
    if cluster.name is not None and not cluster.name.value.strip():
        found.add(Code.EMPTY_METADATA_NAME, "metadata.name", "the name is blank", source=cluster.name.source)
    if cluster.backend is not None and cluster.backend.value != _BACKEND:
        message = f"the backend '{shown(cluster.backend.value)}' is not supported"
        found.add(Code.UNSUPPORTED_STATE_BACKEND, "state.backend", message, source=cluster.backend.source)
    storage = None
    try:
        storage = declared_storage(cluster)
    except StorageRootError as error:
        source = None if cluster.storage is None else cluster.storage.source
        found.add(Code.INVALID_STORAGE_ROOT, "storage", str(error), source=source)
    if len(found) > before:
        return None
    name = None if cluster.name is None else cluster.name.value
    return Header(name, storage, lock=cluster.lock is not False)


def declared_storage(cluster: DeclaredCluster) -> str | None:
    """Return the declared storage root, or None for the default. Raises StorageRootError."""
    return None if cluster.storage is None else parse_storage(cluster.storage.value).text


def parse_cluster(data: bytes) -> tuple[DeclaredCluster | None, Diagnostics]:
    """Parse the bytes of `cluster.yaml`.

    If there are problems, returns None with all of them: first repeated and reserved keys and, if there are none,
    problems of the structure (`invalid_cluster_yaml`, one per place).
    """
    cluster, found = _parsed(data)
    return cluster, Diagnostics(found)


# A run reads the same file twice: as declared, and to compare it with the applied one.
@lru_cache(maxsize=2)
def _parsed(data: bytes) -> tuple[DeclaredCluster | None, tuple[Diagnostic, ...]]:
    found = Diagnostics()
    try:
        root: YamlNode | None = parse_yaml(data)
    except YamlError as error:
        root = error.root
        for problem in error.problems:
            place = SourceRef(CONFIG_FILE, problem.line, problem.column)
            found.add(
                _FAULT_CODES[problem.fault], problem.path or CONFIG_FILE, problem.message, source=place, fix=problem.fix
            )
    keys = [key for key, _ in root.entries] if isinstance(root, YamlMap) else []
    # List each key only once, because a key that occurs twice is also reported as repeated.
    first = {key.text: key for key in reversed(keys) if key.text in _RESERVED}
    for key in keys:
        if first.get(key.text) is key:
            message = f"the key {key.text} is reserved and has no meaning"
            found.add(Code.FUTURE_PHASE_FIELD, key.text, message, source=SourceRef(CONFIG_FILE, key.line, key.column))
    if root is None or found.has_errors:
        return None, tuple(found)
    cluster = _ClusterReader(found).cluster(root)
    return cluster, tuple(found)


@lru_cache
def _keys(shape: str) -> tuple[str, ...]:
    """Return the keys that are allowed below a key of the table."""
    return tuple(keys_below(tuple(filter(None, shape.split("."))), CLUSTER_KEYS))


def required_keys(shape: str) -> tuple[str, ...]:
    """Return the required keys below a key in the table. In a kind's section, all keys are required."""
    if shape.removesuffix(".*") in SECTIONS:
        return _keys(shape)
    return tuple(key for key in _keys(shape) if (f"{shape}.{key}" if shape else key) in REQUIRED_KEYS)


def _is_null(node: YamlNode) -> bool:
    return isinstance(node, YamlScalar) and node.type is ScalarType.NULL


def _what(node: YamlNode) -> str:
    if isinstance(node, YamlScalar):
        if node.type is ScalarType.NULL:
            return "null" if node.text else "nothing"
        return f"the {node.type.value} '{shown(node.text)}'"
    return "a mapping" if isinstance(node, YamlMap) else "a list"


class _ClusterReader:
    """Reads nodes into declarations. An invalid node is reported and treated as empty."""

    def __init__(self, found: Diagnostics) -> None:
        self._found = found

    def _wrong(self, node: YamlNode, path: str, message: str, *, fix: str | None = None) -> None:
        place, message = SourceRef(CONFIG_FILE, node.line, node.column), f"{path}: {message}" if path else message
        self._found.add(Code.INVALID_CLUSTER_YAML, CONFIG_FILE, message, source=place, fix=fix)

    def cluster(self, root: YamlNode) -> DeclaredCluster | None:
        """Return the document, or None if a problem was reported."""
        top = self._fields(root, "", "")
        metadata = self._fields(top.get("metadata"), "metadata", "metadata")
        state = self._fields(top.get("state"), "state", "state")
        version = top.get("version", root)
        cluster = DeclaredCluster(
            version=self._version(version) if "version" in top else 0,
            version_source=SourceRef(CONFIG_FILE, version.line, version.column),
            name=self._optional_text(metadata.get("name"), "metadata.name"),
            storage=self._optional_text(top.get("storage"), "storage"),
            backend=self._optional_text(state.get("backend"), "state.backend"),
            lock=self._lock(state.get("lock")),
            graphs=tuple(self._graph(key, node) for key, node in self._named(top.get("graphs"), "graphs")),
            texts={
                section: tuple(
                    self._declared(section, key, node) for key, node in self._named(top.get(section), section)
                )
                for section in SECTIONS
            },
            restores=tuple(self._restore(key, node, top) for key, node in self._named(top.get("restores"), "restores")),
            compute=self._compute(top.get("compute")),
            hosts=self._hosts(top.get("hosts")),
        )
        return None if self._found.has_errors else cluster

    def _graph(self, key: YamlScalar, node: YamlNode) -> DeclaredGraph:
        path = f"graphs.{shown(key.text)}"
        fields = self._fields(node, path, "graphs.*", name=key)
        schema = self._text(fields.get("schema"), f"{path}.schema")
        queries = fields.get("queries")
        return DeclaredGraph(
            _text(key), schema, QueryRegistry() if queries is None else self._queries(queries, f"{path}.queries")
        )

    def _queries(self, node: YamlNode, path: str) -> QueryRegistry | QuerySources:
        if _is_null(node):
            self._wrong(node, path, f"expected a mapping, a path or a list of paths, got {_what(node)}")
            return QueryRegistry()
        if isinstance(node, YamlScalar):
            return QuerySources((self._strict_text(node, path),), single=True)
        if isinstance(node, YamlList):
            items = tuple(self._strict_text(item, f"{path}[{index}]") for index, item in enumerate(node.items))
            return QuerySources(items, single=False)
        entries = []
        for key, value in self._named(node, path):
            below = f"{path}.{shown(key.text)}"
            name = self._strict_text(key, below)
            fields = self._fields(value, below, "graphs.*.queries.*", name=key)
            if "file" in fields:
                entries.append(DeclaredQuery(name, self._strict_text(fields["file"], f"{below}.file")))
        return QueryRegistry(tuple(entries))

    def _declared(self, section: str, key: YamlScalar, node: YamlNode) -> DeclaredText:
        path = f"{section}.{shown(key.text)}"
        fields = self._fields(node, path, f"{section}.*", name=key)
        file = self._text(fields.get("file"), f"{path}.file")
        targets: tuple[Text, ...] = ()
        listed = fields.get("applies_to")
        if isinstance(listed, YamlList):
            targets = tuple(self._text(item, f"{path}.applies_to[{index}]") for index, item in enumerate(listed.items))
        elif listed is not None and not is_absent(listed):
            message = f"expected a list of graph references, got {_what(listed)}"
            alone = shown(listed.text) if isinstance(listed, YamlScalar) else "GRAPH"
            self._wrong(listed, f"{path}.applies_to", message, fix=f"write a list: applies_to: [{alone}]")
        return DeclaredText(_text(key), file, targets)

    def _restore(self, key: YamlScalar, node: YamlNode, top: dict[str, YamlNode]) -> DeclaredRestore:
        path = f"restores.{shown(key.text)}"
        graphs = top.get("graphs")
        if not isinstance(graphs, YamlMap) or key.text not in {graph.text for graph, _ in graphs.entries}:
            self._wrong(key, path, "no such graph is declared", fix="write the id of a graph in this file")
        fields = self._fields(node, path, "restores.*", name=key)
        version, types = fields.get("version"), fields.get("types")
        number = 0
        if (
            isinstance(version, YamlScalar)
            and version.type is ScalarType.INT
            and len(version.text) <= _MAX_VERSION_DIGITS
        ):
            number = integer(version.text)
        if version is not None and number < 1:
            fix = "write the number of a version of the graph: gitops graph log GRAPH"
            self._wrong(version, f"{path}.version", f"expected a number from 1, got {_what(version)}", fix=fix)
        names: tuple[Text, ...] = ()
        if isinstance(types, YamlList) and types.items:
            names = tuple(self._strict_text(item, f"{path}.types[{at}]") for at, item in enumerate(types.items))
        elif types is not None:
            fix = "list the types whose rows to restore, such as types: [Person]"
            self._wrong(types, f"{path}.types", f"expected a list of types, got {_what(types)}", fix=fix)
        return DeclaredRestore(_text(key), number, names)

    def _compute(self, node: YamlNode | None) -> DeclaredSection | None:
        if node is None or is_absent(node):
            return None
        # Most folders have no compute clusters, and building their forms takes time.
        from gitops.cluster.config.compute import compute_form, read_compute

        for key, below in node.entries if isinstance(node, YamlMap) else ():
            if key.text in ("targets", "strategies") and isinstance(below, YamlMap):
                self._named(below, f"compute.{key.text}")
        return self._section("compute", node, lambda plain: compute_form(read_compute(plain)))

    def _hosts(self, node: YamlNode | None) -> DeclaredSection | None:
        if node is None or is_absent(node):
            return None
        # Most folders have no hosts.
        from gitops.cluster.config.hosts import hosts_form, read_hosts

        if isinstance(node, YamlMap):
            self._named(node, "hosts")
        return self._section("hosts", node, lambda plain: hosts_form(read_hosts(plain)))

    def _section(self, name: str, node: YamlNode, read: Callable[[object], dict[str, Any]]) -> DeclaredSection | None:
        """Return a section whose plain value `read` turns into its JSON form. It raises Refused for another one."""
        from gitops.cluster.config.rule_forms import REQUIRED, Refused, place_in

        try:
            return DeclaredSection(read(to_plain(node)), node)
        except Refused as refused:
            for place, message in refused.problems:
                path, source = place_in(name, node, place, message)
                above, _, key = path.rpartition(".")
                fix = f"add the line {key}: VALUE, indented below {above}" if message == REQUIRED else None
                self._found.add(Code.INVALID_CLUSTER_YAML, CONFIG_FILE, f"{path}: {message}", source=source, fix=fix)
            return None

    def _entries(
        self, node: YamlNode | None, path: str, first: str = "NAME"
    ) -> tuple[tuple[YamlScalar, YamlNode], ...] | None:
        """Return the entries of a mapping; empty for a missing value. Returns None for anything else, and reports it.

        `first` is a valid key for use in messages.
        """
        if isinstance(node, YamlMap):
            return node.entries
        if node is None or is_absent(node):
            return ()
        fix = f"write {first}: VALUE in the line below {path.rpartition('.')[2]}, indented" if path else _TOP
        if isinstance(node, YamlScalar) and (glued := _GLUED.match(node.text)) is not None:
            fix = f"write a space after the colon: {glued[1]}: {shown(glued[2])}"
        self._wrong(node, path, f"expected a mapping{'' if path else ' at the top'}, got {_what(node)}", fix=fix)
        return None

    def _named(self, node: YamlNode | None, path: str) -> list[tuple[YamlScalar, YamlNode]]:
        """Return the entries under user-chosen names, by name.

        Names that differ only in case are reported, because graphs and applied texts have folders with these names.
        """
        entries = sorted(self._entries(node, path) or (), key=lambda entry: entry[0].text)
        first: dict[str, str] = {}
        for key, _ in entries:
            other = first.setdefault(key.text.lower(), key.text)
            if other != key.text:
                place = SourceRef(CONFIG_FILE, key.line, key.column)
                self._found.add(
                    Code.NAME_DIFFERS_IN_CASE,
                    f"{path}.{shown(key.text)}",
                    f"'{shown(key.text)}' and '{shown(other)}' differ only in case",
                    source=place,
                )
        return entries

    def _fields(
        self,
        node: YamlNode | None,
        path: str,
        shape: str,
        *,
        name: YamlScalar | None = None,
    ) -> dict[str, YamlNode]:
        """Return the known fields of a mapping: the keys below `shape` in the table of keys.

        If the mapping is empty, the problem is reported at its `name`.
        """
        allowed = _keys(shape)
        entries = self._entries(node, path, allowed[0])
        prefix = f"{path}." if path else ""
        fields: dict[str, YamlNode] = {}
        for key, value in entries or ():
            if key.text in allowed:
                fields[key.text] = value
                continue
            known = did_you_mean(key.text, allowed) or f"known here: {', '.join(allowed)}"
            self._wrong(key, f"{prefix}{shown(key.text)}", f"unknown key; {known}", fix="correct or delete the key")
        place = node if name is None or isinstance(node, YamlMap) else name
        for field in required_keys(shape):
            if entries is not None and place is not None and field not in fields:
                line = (
                    "version: 1"
                    if field == "version"
                    else f"{field}: {_EXAMPLES.get(field, 'VALUE')}, indented below {path}"
                )
                self._wrong(place, f"{prefix}{field}", "this key is required", fix=f"add the line {line}")
        return fields

    def _version(self, node: YamlNode) -> int:
        if isinstance(node, YamlScalar) and node.type is ScalarType.INT and len(node.text) <= _MAX_VERSION_DIGITS:
            number = integer(node.text)
            if number >= 0:
                return number
        self._wrong(node, "version", f"expected a small whole number, got {_what(node)}", fix="write version: 1")
        return 0

    def _lock(self, node: YamlNode | None) -> bool | None:
        if node is None or _is_null(node):
            return None
        if isinstance(node, YamlScalar) and node.type is ScalarType.BOOL:
            return node.text.lower() == "true"
        self._wrong(node, "state.lock", f"expected true or false, got {_what(node)}")
        return None

    def _optional_text(self, node: YamlNode | None, path: str) -> Text | None:
        return None if node is None or _is_null(node) else self._text(node, path)

    def _text(self, node: YamlNode | None, path: str) -> Text:
        """Return a text, or any other plain scalar as text. Null is refused.

        A missing required key has already been reported.
        """
        if node is None:
            return Text("", 0, 0)
        if not isinstance(node, YamlScalar) or _is_null(node):
            fix = f"write {path.rpartition('.')[2]}: TEXT"
            self._wrong(node, path, f"expected text, got {_what(node)}", fix=None if path.endswith("]") else fix)
            return Text("", node.line, node.column)
        return _text(node)

    def _strict_text(self, node: YamlNode, path: str) -> Text:
        """Read a text; refuse other scalars, as inside `queries`."""
        if isinstance(node, YamlScalar) and node.type not in (ScalarType.TEXT, ScalarType.NULL):
            self._wrong(node, path, f"expected text, got {_what(node)}; put it in quotes")
            return Text("", node.line, node.column)
        return self._text(node, path)


# A key and its value without a separator, such as `schema:people.pg`.
_GLUED = re.compile(r"([a-z_]+):([^\s:/][^\s]*)\Z")
_EXAMPLES = {"applies_to": "[GRAPH]", "schema": "FILE.pg", "file": "FILE"}


def _text(node: YamlScalar) -> Text:
    return Text(node.text, node.line, node.column)


# -- promotion ---------------------------------------------------------------------------------------------------------
# `cluster.yaml` of a cluster with the graphs and policies of another one. Settings for the cluster's own location are
# kept.
# 1. `graphs`, `policies` and similar sections are promoted. All other top-level keys (`metadata`, `state`, `storage`,
#    `compute`) identify the cluster, the location of its data, and its targets.
# 2. The text is split at its top-level keys, each with the comments above it, so that layout and comments are
#    preserved.
# 3. The result is parsed again, and must contain exactly what step 1 requires.


_PROMOTED = ("graphs", *SECTIONS)


def promoted_config(source: bytes, target: bytes) -> bytes | None:
    """Return `target` with the graphs and policies of `source`, or None if either is not in block style at its top level.

    Raises YamlError for a document that cannot be read.
    """
    new, own = _parts(source), _parts(target)
    if new is None or own is None:
        return None
    # The target's own parts keep their order, so that a review shows only the changes.
    keys = [*own, *(key for key in _PROMOTED if key in new and key not in own)]
    parts = [(new if key in _PROMOTED else own).get(key, "") for key in keys]
    result = "".join(part if part.endswith("\n") else f"{part}\n" for part in parts if part).encode()
    meant = {key: value for key, value in to_plain(parse_yaml(target)).items() if key not in _PROMOTED}
    meant |= {key: value for key, value in to_plain(parse_yaml(source)).items() if key in _PROMOTED}
    try:
        return result if to_plain(parse_yaml(result)) == meant else None
    except YamlError:
        return None


def _parts(data: bytes) -> dict[str, str] | None:
    """Return the text of each top-level key with the comments above it.

    An empty key maps to everything before the first key.
    """
    root = parse_yaml(data)
    if not isinstance(root, YamlMap) or any(key.column != 1 for key, _ in root.entries):
        return None
    lines = data.decode().splitlines(keepends=True)
    starts = []
    for key, _ in root.entries:
        start = key.line - 1
        while start and lines[start - 1].startswith("#"):
            start -= 1
        starts.append(start)
    ends = [*starts[1:], len(lines)]
    parts = {"": "".join(lines[: starts[0]])} if starts else {}
    for (key, _), start, end in zip(root.entries, starts, ends, strict=True):
        parts[key.text] = "".join(lines[start:end])
    return parts
