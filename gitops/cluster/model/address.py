"""Resource addresses such as `query.knowledge.find_experts`. They are the keys of all resource maps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from gitops.cluster.model.host import ItemType
from gitops.cluster.model.strategy import StrategyType

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)
CLUSTER_SCOPE = "cluster"
_SERVABLE = re.compile(r"[A-Za-z0-9-]{1,64}\Z", re.ASCII)
_ROUTES = frozenset({"policies", "healthz", "openapi", "graphs"})


class Kind(StrEnum):
    """Resource kinds. `UNKNOWN` stands for kinds that another release recorded; they are compared but never applied."""

    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    RESTORE = "restore"
    STRATEGY = "strategy"
    HOST = "host"
    TRUST = "trust"
    CLUSTER = "cluster"
    UNKNOWN = "unknown"


_BY_PREFIX = {k.value: k for k in Kind if k is not Kind.UNKNOWN}
_STRATEGIES = frozenset(each.value for each in StrategyType)
_ITEMS = frozenset(each.value for each in ItemType)
_OWN_GRAPH = ("graph", "schema", "restore")
_QUERY, _STRATEGY, _HOST, _UNKNOWN = Kind.QUERY, Kind.STRATEGY, Kind.HOST, Kind.UNKNOWN


def is_name(text: str) -> bool:
    """Return True if `text` is a valid name for a graph, query or policy."""
    return NAME.match(text) is not None


def is_servable(graph: str) -> bool:
    """Return True if a server can serve a graph with this id, which is part of URLs."""
    return _SERVABLE.match(graph) is not None and graph not in _ROUTES


class Address(str):
    """The name of a resource. It determines the resource's kind and owner.

    An address is a string: equality, hash and order (by code point, which is the order of every list of changes) are
    those of `str`, so that addresses are efficient keys and documents contain them unchanged. Every string is an
    address; an unknown form has the kind UNKNOWN. Readers create addresses from a document's strings. All other code
    creates them with this module's functions and uses their properties. It never splits or joins the strings.
    """

    __slots__ = ()

    @property
    def kind(self) -> Kind:
        """The resource's kind."""
        prefix, _, rest = self.partition(".")
        if prefix == "query":
            return _QUERY if rest.partition(".")[2] else _UNKNOWN
        if prefix == "strategy":
            compute, _, strategy = rest.partition(".")
            # This release does not apply a strategy that only another release knows.
            return _STRATEGY if is_name(compute) and strategy in _STRATEGIES else _UNKNOWN
        if prefix == "host":
            host, dot, item = rest.partition(".")
            type_, _, id_ = item.partition(".")
            # Nor an item of a type that only another release knows.
            return _HOST if is_name(host) and (not dot or (type_ in _ITEMS and id_)) else _UNKNOWN
        # Folders cannot declare a graph with such a name. Because roots are derived from names, a recorded one is never
        # touched.
        known = is_name(rest) if prefix in _OWN_GRAPH else rest
        return _BY_PREFIX.get(prefix, _UNKNOWN) if known else _UNKNOWN

    @property
    def name(self) -> str:
        """Last part of the address: a graph id (graph, schema), or the name of a query, policy, strategy, host or cluster.

        For an item of a host, its type and id; for an unknown kind, the complete address.
        """
        prefix, _, rest = self.partition(".")
        if prefix == "query":
            return rest.partition(".")[2] or str(self)
        kind = self.kind
        if kind is _STRATEGY:
            return rest.partition(".")[2]
        if kind is _HOST:
            return rest.partition(".")[2] or rest
        return str(self) if kind is _UNKNOWN else rest

    @property
    def graph(self) -> str | None:
        """The id of the graph, or of the graph that owns the resource, or None if it belongs to no graph."""
        prefix, _, rest = self.partition(".")
        if prefix == "query":
            graph, _, name = rest.partition(".")
            return graph if name else None
        return rest if prefix in _OWN_GRAPH and is_name(rest) else None

    @property
    def compute(self) -> str | None:
        """The name of a strategy's compute cluster in `cluster.yaml`, or None for other kinds."""
        return self.split(".")[1] if self.kind is _STRATEGY else None

    @property
    def host(self) -> str | None:
        """The name of the host that the address is or belongs to, or None for other kinds."""
        return self.split(".", 2)[1] if self.kind is _HOST else None

    @property
    def item(self) -> tuple[ItemType, str] | None:
        """The type and id of an item of a host, or None for other addresses. The id can contain dots and slashes."""
        parts = self.split(".", 3) if self.startswith("host.") and self.kind is _HOST else ()
        return (ItemType(parts[2]), parts[3]) if len(parts) > 2 else None  # noqa: PLR2004 - the prefix and the host

    @property
    def graph_address(self) -> Address | None:
        """The address of the graph that owns the resource, or None if it belongs to no graph."""
        graph = self.graph
        return None if graph is None else graph_address(graph)

    @property
    def schema_address(self) -> Address | None:
        """The schema address of that graph."""
        graph = self.graph
        return None if graph is None else schema_address(graph)


def of_kind(addresses: Iterable[Address], kind: Kind) -> list[Address]:
    """Return the addresses of a known kind in the given order. Only those are parsed."""
    return [address for address in addresses if address.startswith(kind) and address.kind is kind]


def graph_address(graph: str) -> Address:
    """Return `graph.<id>`."""
    return Address(f"graph.{graph}")


def schema_address(graph: str) -> Address:
    """Return `schema.<id>`."""
    return Address(f"schema.{graph}")


def query_address(graph: str, name: str) -> Address:
    """Return `query.<graph>.<name>`."""
    return Address(f"query.{graph}.{name}")


def policy_address(name: str) -> Address:
    """Return `policy.<name>`."""
    return Address(f"policy.{name}")


def named_address(kind: Kind, name: str) -> Address:
    """Return `<kind>.<name>`, for a kind whose resources do not belong to a graph."""
    return Address(f"{kind.value}.{name}")


def restore_address(graph: str) -> Address:
    """Return `restore.<id>`, the address of a declaration that restores a graph's rows from an earlier version."""
    return Address(f"restore.{graph}")


def strategy_address(compute: str, strategy: StrategyType) -> Address:
    """Return `strategy.<compute cluster>.<strategy>`."""
    return Address(f"strategy.{compute}.{strategy.value}")


def host_address(host: str) -> Address:
    """Return `host.<name>`, the address of a machine."""
    return Address(f"host.{host}")


def item_address(host: str, type_: ItemType, id_: str) -> Address:
    """Return `host.<name>.<type>.<id>`, the address of an item of a machine."""
    return Address(f"host.{host}.{type_.value}.{id_}")


def trust_address(cluster: str) -> Address:
    """Return `trust.<cluster>`, the address of a branch ledger's keys and rules."""
    return Address(f"trust.{cluster}")


def cluster_address(cluster: str) -> Address:
    """Return `cluster.<name>`, the address of a branch ledger's cluster location."""
    return Address(f"cluster.{cluster}")


def replica_address(target: str, compute: str, replica: str) -> Address:
    """Return `replica.<target>.<compute cluster>.<replica>`, for a replica that a tick creates or drops. It has no kind.

    Folders don't declare replicas. Replica names can contain any character; all except letters, digits, `_` and `-` are
    percent-encoded.
    """
    name = "".join(each if each.isascii() and (each.isalnum() or each in "_-") else _escaped(each) for each in replica)
    return Address(f"replica.{target}.{compute}.{name}")


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
