"""Desired resources: what a cluster folder declares, with digests and references."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gitops.cluster.model.address import Address, Kind, is_name, of_kind, restore_address
from gitops.core.canonical import canonical, digest
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import RestoreOrder

if TYPE_CHECKING:
    from gitops.database.language.query import CheckedQuery
    from gitops.database.language.schema import Schema


K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Resource:
    """One declared resource.

    `path` is the path as written in the configuration (for queries, policies and schemas); None for graphs. `data` is
    the bytes that the digest covers, or a function that reads them; None for graphs. It is excluded from comparisons,
    because the digest identifies it. `applies_to` are the normalized bindings of a policy. `contents` are the bytes that an
    item of a host writes, by their digests, which its own digest covers.
    """

    address: Address
    digest: str
    path: str | None = None
    data: bytes | Callable[[], bytes] | None = field(default=None, repr=False, compare=False)
    applies_to: tuple[str, ...] | None = None
    contents: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    @property
    def content(self) -> bytes | None:
        """Return the bytes that the digest covers, or None for graphs. Raises the errors of a `data` function."""
        return self.data() if callable(self.data) else self.data


class OnDemand(Mapping[K, V]):
    """A map that creates each value on first access. `known` has its keys, in order."""

    __slots__ = ("_make", "known")

    def __init__(self, known: Mapping[K, Any], make: Callable[[K], V]) -> None:
        """Create the map; `make` returns the value for a key of `known`."""
        self.known = known
        self._make = make

    def __getitem__(self, key: K) -> V:
        """Return the value of a key. Raises KeyError, and the errors of `make`."""
        if key not in self.known:
            raise KeyError(key)
        return self._make(key)

    def __contains__(self, key: object) -> bool:
        """Return True if the key exists, without creating its value."""
        return key in self.known

    def __iter__(self) -> Iterator[K]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


def digests_of(resources: Mapping[Address, Resource]) -> Mapping[Address, str]:
    """Map addresses to digests in the order of `resources`. It does not create on-demand values."""
    return resources.known if isinstance(resources, OnDemand) else {a: r.digest for a, r in resources.items()}


class Dependency(NamedTuple):
    """A dependency: `source` needs `target`."""

    source: Address
    target: Address

    def to_json(self) -> dict[str, str]:
        """Return the JSON form for envelopes."""
        return {"from": self.source, "to": self.target}


class Dependencies(Collection[Dependency]):
    """All dependencies in order, created on demand, because a plan with few changes needs few of them."""

    def __init__(
        self, make: Callable[[], tuple[Dependency, ...]], near: Callable[[Collection[str]], tuple[Dependency, ...]]
    ) -> None:
        """`make` returns all edges; `near` returns the edges of the given graphs, as described in `edges_near`."""
        self._all = cache(make)
        self.near = near

    def __contains__(self, edge: object) -> bool:
        return edge in self._all()

    def __iter__(self) -> Iterator[Dependency]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def edges_near(dependencies: Collection[Dependency], graphs: Collection[str]) -> Collection[Dependency]:
    """Return, in order, at least the dependencies of policies and of everything in one of the graphs."""
    return dependencies.near(graphs) if isinstance(dependencies, Dependencies) else dependencies


@dataclass(frozen=True, slots=True)
class GraphDeclaration:
    """One graph's checked content, with its compiled schema and queries, for planning and serving."""

    schema: Schema | None
    queries: Mapping[str, CheckedQuery] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Everything that a cluster folder declares, fully loaded.

    `resources` is in address order. `storage` is the declared storage root, trimmed, or None for the configuration
    folder. `config_digest` covers the parsed configuration and every resource digest.
    """

    config_digest: str
    resources: Mapping[Address, Resource]
    dependencies: Collection[Dependency]
    graphs: Mapping[str, GraphDeclaration]
    name: str | None = None
    storage: str | None = None
    lock: bool = True

    def of_kind(self, kind: Kind) -> tuple[Resource, ...]:
        """Return all resources of one kind, in address order."""
        return tuple(self.resources[address] for address in of_kind(self.resources, kind))

    def digests(self) -> Mapping[Address, str]:
        """Map addresses to digests, in address order."""
        return digests_of(self.resources)


def graph_composite(graph: str, schema_digest: str, queries: Mapping[str, str]) -> str:
    """Return a graph's digest, computed from its id, its schema digest (empty if none) and its queries by name.

    The input is `graph NUL <id> NUL schema NUL <digest> NUL`, then `query NUL <name> NUL <digest> NUL` per query by name.
    """
    parts = ["graph", graph, "schema", schema_digest]
    for name in sorted(queries):
        parts += ["query", name, queries[name]]
    return digest("".join(f"{part}\0" for part in parts).encode())


# Restores, as declared in `restores` in `cluster.yaml`: for one graph, the types whose rows are restored, and the
# version that contains them.
#
# A restore is a resource, so it is planned, approved, applied and recorded like any other. Its digest covers the graph,
# the version and the types, so it is done only once while the declaration exists.


def restore_resources(forms: Mapping[str, Mapping[str, Any]]) -> dict[Address, Resource]:
    """Return the declared restores as resources, by address.

    Each form belongs to its graph and has `version` and `types`.
    """
    found = {}
    # A graph with an invalid name is already reported at its declaration.
    for graph in filter(is_name, forms):
        content = _content(graph, RestoreOrder(forms[graph]["version"], tuple(forms[graph]["types"])))
        found[restore_address(graph)] = Resource(restore_address(graph), digest(content), data=content)
    return found


def restore_digest(graph: str, order: RestoreOrder) -> str:
    """Return the digest of this declaration's restore resource."""
    return digest(_content(graph, order))


def _content(graph: str, order: RestoreOrder) -> bytes:
    return canonical({"graph": graph, "types": sorted(order.types), "version": order.version})


def restore_words(resource: Resource) -> str:
    """Describe a restore in one line."""
    order = restore_order(resource)
    names = ", ".join(order.types)
    return f"{names}: the rows of version {order.version} replace the current ones"


def restore_order(resource: Resource) -> RestoreOrder:
    """Return a restore resource's version and types."""
    form = json.loads(resource.content or b"")
    return RestoreOrder(form["version"], tuple(form["types"]))
