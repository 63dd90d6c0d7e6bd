"""`cluster.yaml` from its bytes: what it declares, with every problem of its form and of its head.

What is declared (files, graphs that policies name) is checked by the loader.

1. Key sets are exact at every level. A plain scalar in place of text counts as its text, except inside `queries`.
2. No value after `metadata:`, `state:`, `graphs:`, `policies:` or `applies_to:` is an empty collection; a written null is not.
3. Null for `name`, `backend`, `lock` and `storage` means absent.
"""

from __future__ import annotations

from collections.abc import Mapping

from gitops.config.declaration import (
    CONFIG_FILE,
    DeclaredCluster,
    DeclaredGraph,
    DeclaredPolicy,
    DeclaredQuery,
    QueryRegistry,
    QuerySources,
    Text,
)
from gitops.config.header import Header, read_config
from gitops.config.source import SourceTree
from gitops.config.yaml import (
    ScalarType,
    YamlError,
    YamlFault,
    YamlList,
    YamlMap,
    YamlNode,
    YamlScalar,
    integer,
    parse_yaml,
    shown,
)
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.language.suggest import did_you_mean
from gitops.storage.address import StorageRootError, parse_storage

__all__ = ["declared_storage", "header_of", "load_header", "parse_cluster", "read_cluster"]

_BACKEND = "cluster"
_RESERVED = ("apply", "env_file", "providers", "pipelines", "embeddings", "ui", "aliases", "bindings")
# More digits than any version will ever have.
_MAX_VERSION_DIGITS = 18
_FAULT_CODES = {
    YamlFault.SYNTAX: Code.INVALID_CLUSTER_YAML,
    YamlFault.DUPLICATE_KEY: Code.DUPLICATE_YAML_KEY,
    YamlFault.ALIAS: Code.YAML_ALIAS_REFUSED,
    YamlFault.LIMIT: Code.YAML_LIMIT_EXCEEDED,
}


def load_header(tree: SourceTree) -> tuple[Header | None, Diagnostics]:
    """Steps 1 to 5 of a load: `cluster.yaml` alone. The header is None when there is any error."""
    cluster, found = read_cluster(tree)
    return (None if cluster is None else header_of(cluster, found)), found


def read_cluster(tree: SourceTree) -> tuple[DeclaredCluster | None, Diagnostics]:
    """Steps 1 to 4 of a load: the parsed file, None when one of them failed; and the problems."""
    data, found = read_config(tree)
    return (None, found) if data is None else parse_cluster(data)


def header_of(cluster: DeclaredCluster, found: Diagnostics) -> Header | None:
    """Step 5 of a load; None if it found a problem, which is added to `found`."""
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
    """The storage root as declared, None for the default. Raises StorageRootError."""
    return None if cluster.storage is None else parse_storage(cluster.storage.value).text


def parse_cluster(data: bytes) -> tuple[DeclaredCluster | None, Diagnostics]:
    """Read the bytes of `cluster.yaml`.

    Returns None with every finding: repeated and reserved keys first, and only if there are none the shape
    (`invalid_cluster_yaml`, one for each place).
    """
    found = Diagnostics()
    try:
        root: YamlNode | None = parse_yaml(data)
    except YamlError as error:
        root = error.root
        for problem in error.problems:
            place = SourceRef(CONFIG_FILE, problem.line, problem.column)
            found.add(_FAULT_CODES[problem.fault], problem.path or CONFIG_FILE, problem.message, source=place)
    for key in _reserved_keys(root):
        message = f"the key {key.text} is reserved and has no meaning"
        found.add(Code.FUTURE_PHASE_FIELD, key.text, message, source=SourceRef(CONFIG_FILE, key.line, key.column))
    if root is None or found.has_errors:
        return None, found
    return _ClusterReader(found).cluster(root), found


def _reserved_keys(root: YamlNode | None) -> list[YamlScalar]:
    """The reserved keys at the top, each once: one given twice is a repeated key besides."""
    keys = [key for key, _ in root.entries] if isinstance(root, YamlMap) else []
    first = {key.text: key for key in reversed(keys) if key.text in _RESERVED}
    return [key for key in keys if first.get(key.text) is key]


def _is_empty(node: YamlNode) -> bool:
    return isinstance(node, YamlScalar) and node.type is ScalarType.NULL and node.text == ""


def _is_null(node: YamlNode) -> bool:
    return isinstance(node, YamlScalar) and node.type is ScalarType.NULL


def _what(node: YamlNode) -> str:
    if isinstance(node, YamlScalar):
        if node.type is ScalarType.NULL:
            return "null" if node.text else "nothing"
        return f"the {node.type.value} '{shown(node.text)}'"
    return "a mapping" if isinstance(node, YamlMap) else "a list"


class _ClusterReader:
    """Reads nodes into declarations; what does not fit is reported and read as if it were empty."""

    def __init__(self, found: Diagnostics) -> None:
        self._found = found

    def _wrong(self, node: YamlNode, path: str, message: str) -> None:
        place = SourceRef(CONFIG_FILE, node.line, node.column)
        self._found.add(Code.INVALID_CLUSTER_YAML, CONFIG_FILE, f"{path}: {message}" if path else message, source=place)

    def cluster(self, root: YamlNode) -> DeclaredCluster | None:
        """The document, None if a problem was reported."""
        if _is_empty(root):
            root = YamlMap((), root.line, root.column)
        if not isinstance(root, YamlMap):
            self._wrong(root, "", f"expected a mapping at the top, got {_what(root)}")
            return None
        allowed = ("version", "metadata", "storage", "state", "graphs", "policies")
        top = self._fields(root, "", allowed, required=("version",))
        metadata = self._section(top, "metadata", ("name",))
        state = self._section(top, "state", ("backend", "lock"))
        version = top.get("version", root)
        cluster = DeclaredCluster(
            version=self._version(top["version"]) if "version" in top else 0,
            version_source=SourceRef(CONFIG_FILE, version.line, version.column),
            name=self._optional_text(metadata, "name", "metadata.name"),
            storage=self._optional_text(top, "storage", "storage"),
            backend=self._optional_text(state, "backend", "state.backend"),
            lock=self._lock(state.get("lock")),
            graphs=tuple(self._graph(key, node) for key, node in self._named(top, "graphs")),
            policies=tuple(self._policy(key, node) for key, node in self._named(top, "policies")),
        )
        return None if self._found.has_errors else cluster

    def _graph(self, key: YamlScalar, node: YamlNode) -> DeclaredGraph:
        path = f"graphs.{shown(key.text)}"
        fields = self._mapping(key, node, path, ("schema", "queries"), required=("schema",))
        queries = fields.get("queries")
        return DeclaredGraph(
            _text(key),
            self._required_text(fields, "schema", path),
            QueryRegistry() if queries is None else self._queries(queries, f"{path}.queries"),
        )

    def _queries(self, node: YamlNode, path: str) -> QueryRegistry | QuerySources:
        if _is_null(node):
            self._wrong(node, path, f"expected a mapping, a path or a list of paths, got {_what(node)}")
            return QueryRegistry()
        if isinstance(node, YamlScalar):
            return QuerySources((self._strict_text(node, path),), single=True)
        if isinstance(node, YamlList):
            return QuerySources(
                tuple(self._strict_text(item, f"{path}[{index}]") for index, item in enumerate(node.items)),
                single=False,
            )
        entries = []
        for key, value in sorted(node.entries, key=lambda entry: entry[0].text):
            name = self._strict_text(key, f"{path}.{shown(key.text)}")
            below = f"{path}.{shown(key.text)}"
            fields = self._mapping(key, value, below, ("file",), required=("file",))
            if "file" in fields:
                entries.append(DeclaredQuery(name, self._strict_text(fields["file"], f"{below}.file")))
        return QueryRegistry(tuple(entries))

    def _policy(self, key: YamlScalar, node: YamlNode) -> DeclaredPolicy:
        path = f"policies.{shown(key.text)}"
        required = ("file", "applies_to")
        fields = self._mapping(key, node, path, required, required=required)
        file = self._required_text(fields, "file", path)
        targets: tuple[Text, ...] = ()
        listed = fields.get("applies_to")
        if isinstance(listed, YamlList):
            targets = tuple(self._text(item, f"{path}.applies_to[{index}]") for index, item in enumerate(listed.items))
        elif listed is not None and not _is_empty(listed):
            self._wrong(listed, f"{path}.applies_to", f"expected a list of graph references, got {_what(listed)}")
        return DeclaredPolicy(_text(key), file, targets)

    def _fields(
        self, node: YamlMap, path: str, allowed: tuple[str, ...], *, required: tuple[str, ...]
    ) -> dict[str, YamlNode]:
        prefix = f"{path}." if path else ""
        fields: dict[str, YamlNode] = {}
        for key, value in node.entries:
            if key.text in allowed:
                fields[key.text] = value
                continue
            hint = did_you_mean(key.text, allowed)
            known = hint or f"known here: {', '.join(allowed)}"
            self._wrong(key, f"{prefix}{shown(key.text)}", f"unknown key; {known}")
        for name in required:
            if name not in fields:
                self._wrong(node, f"{prefix}{name}", "this key is required")
        return fields

    def _mapping(
        self, key: YamlScalar, node: YamlNode, path: str, allowed: tuple[str, ...], *, required: tuple[str, ...]
    ) -> dict[str, YamlNode]:
        """The fields of an entry under a name of the user's; nothing at all is reported at the name."""
        if _is_empty(node):
            node = YamlMap((), key.line, key.column)
        if isinstance(node, YamlMap):
            return self._fields(node, path, allowed, required=required)
        self._wrong(node, path, f"expected a mapping, got {_what(node)}")
        return {}

    def _section(self, top: Mapping[str, YamlNode], name: str, allowed: tuple[str, ...]) -> Mapping[str, YamlNode]:
        node = top.get(name)
        if isinstance(node, YamlMap):
            return self._fields(node, name, allowed, required=())
        if node is not None and not _is_empty(node):
            self._wrong(node, name, f"expected a mapping, got {_what(node)}")
        return {}

    def _named(self, top: Mapping[str, YamlNode], name: str) -> list[tuple[YamlScalar, YamlNode]]:
        node = top.get(name)
        if isinstance(node, YamlMap):
            return sorted(node.entries, key=lambda entry: entry[0].text)
        if node is not None and not _is_empty(node):
            self._wrong(node, name, f"expected a mapping, got {_what(node)}")
        return []

    def _version(self, node: YamlNode) -> int:
        if isinstance(node, YamlScalar) and node.type is ScalarType.INT and len(node.text) <= _MAX_VERSION_DIGITS:
            number = integer(node.text)
            if number >= 0:
                return number
        self._wrong(node, "version", f"expected a small whole number, got {_what(node)}")
        return 0

    def _lock(self, node: YamlNode | None) -> bool | None:
        if node is None or _is_null(node):
            return None
        if isinstance(node, YamlScalar) and node.type is ScalarType.BOOL:
            return node.text.lower() == "true"
        self._wrong(node, "state.lock", f"expected true or false, got {_what(node)}")
        return None

    def _optional_text(self, fields: Mapping[str, YamlNode], name: str, path: str) -> Text | None:
        node = fields.get(name)
        return None if node is None or _is_null(node) else self._text(node, path)

    def _required_text(self, fields: Mapping[str, YamlNode], name: str, path: str) -> Text:
        """The text of a required key, whose absence is reported already."""
        return self._text(fields[name], f"{path}.{name}") if name in fields else Text("", 0, 0)

    def _text(self, node: YamlNode, path: str) -> Text:
        """Text, or any other plain scalar as its text; null is refused."""
        if not isinstance(node, YamlScalar) or _is_null(node):
            self._wrong(node, path, f"expected text, got {_what(node)}")
            return Text("", node.line, node.column)
        return _text(node)

    def _strict_text(self, node: YamlNode, path: str) -> Text:
        """Text only: other scalars are refused, as inside `queries`."""
        if isinstance(node, YamlScalar) and node.type not in (ScalarType.TEXT, ScalarType.NULL):
            self._wrong(node, path, f"expected text, got {_what(node)}; put it in quotes")
            return Text("", node.line, node.column)
        return self._text(node, path)


def _text(node: YamlScalar) -> Text:
    return Text(node.text, node.line, node.column)
