"""Resource addresses: `query.knowledge.find_experts`, the keys of every map of resources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from gitops.cluster.model.strategy import StrategyType

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)
CLUSTER_SCOPE = "cluster"
_SERVABLE = re.compile(r"[A-Za-z0-9-]{1,64}\Z", re.ASCII)
_ROUTES = frozenset({"policies", "healthz", "openapi", "graphs"})


class Kind(StrEnum):
    """Resource kinds. `UNKNOWN` is what a ledger of another release may hold: compared, never executed."""

    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    RESTORE = "restore"
    STRATEGY = "strategy"
    TRUST = "trust"
    CLUSTER = "cluster"
    UNKNOWN = "unknown"


_BY_PREFIX = {k.value: k for k in Kind if k is not Kind.UNKNOWN}
_STRATEGIES = frozenset(each.value for each in StrategyType)
_OWN_GRAPH = ("graph", "schema", "restore")
_QUERY, _STRATEGY, _UNKNOWN = Kind.QUERY, Kind.STRATEGY, Kind.UNKNOWN


def is_name(text: str) -> bool:
    """Whether `text` may name a graph, query or policy."""
    return NAME.match(text) is not None


def is_servable(graph: str) -> bool:
    """Whether a server can serve a graph of this id: it is a part of addresses, and no other part of them."""
    return _SERVABLE.match(graph) is not None and graph not in _ROUTES


class Address(str):
    """The name of a resource, which knows its kind and what it belongs to.

    An address is its text: equality, hash and order (by code point, the order of every list of changes) are those of `str`,
    so that maps are keyed by addresses at no cost and documents write them as they are. Every text is an address; one
    of no known form is of kind UNKNOWN. Readers make addresses of the texts of a document; all other code makes them with the
    functions of this module and asks their properties, and never cuts or joins their text.
    """

    __slots__ = ()

    @property
    def kind(self) -> Kind:
        """The kind of the resource."""
        prefix, _, rest = self.partition(".")
        if prefix == "query":
            return _QUERY if rest.partition(".")[2] else _UNKNOWN
        if prefix == "strategy":
            compute, _, strategy = rest.partition(".")
            # A strategy that another release knows is not carried out by this one.
            return _STRATEGY if is_name(compute) and strategy in _STRATEGIES else _UNKNOWN
        # No folder can declare another graph, and a root is derived from its name: what is recorded so is never touched.
        known = is_name(rest) if prefix in _OWN_GRAPH else rest
        return _BY_PREFIX.get(prefix, _UNKNOWN) if known else _UNKNOWN

    @property
    def name(self) -> str:
        """The last part: the id of a graph or schema, the name of a query, policy, strategy or cluster; all of an unknown one."""
        prefix, _, rest = self.partition(".")
        if prefix == "query":
            return rest.partition(".")[2] or str(self)
        kind = self.kind
        if kind is _STRATEGY:
            return rest.partition(".")[2]
        return str(self) if kind is _UNKNOWN else rest

    @property
    def graph(self) -> str | None:
        """The id of the graph that owns the resource, of a graph its own; None for what belongs to no graph."""
        prefix, _, rest = self.partition(".")
        if prefix == "query":
            graph, _, name = rest.partition(".")
            return graph if name else None
        return rest if prefix in _OWN_GRAPH and is_name(rest) else None

    @property
    def compute(self) -> str | None:
        """Of a strategy, the name of its compute cluster in `cluster.yaml`; None for what belongs to none."""
        return self.split(".")[1] if self.kind is _STRATEGY else None

    @property
    def graph_address(self) -> Address | None:
        """The address of the graph that owns the resource, None for what belongs to no graph."""
        graph = self.graph
        return None if graph is None else graph_address(graph)

    @property
    def schema_address(self) -> Address | None:
        """The address of the schema of that graph."""
        graph = self.graph
        return None if graph is None else schema_address(graph)


def of_kind(addresses: Iterable[Address], kind: Kind) -> list[Address]:
    """Those addresses of a known kind, in the order given; of thousands, only they are taken apart."""
    return [address for address in addresses if address.startswith(kind) and address.kind is kind]


def graph_address(graph: str) -> Address:
    """`graph.<id>`."""
    return Address(f"graph.{graph}")


def schema_address(graph: str) -> Address:
    """`schema.<id>`."""
    return Address(f"schema.{graph}")


def query_address(graph: str, name: str) -> Address:
    """`query.<graph>.<name>`."""
    return Address(f"query.{graph}.{name}")


def policy_address(name: str) -> Address:
    """`policy.<name>`."""
    return Address(f"policy.{name}")


def named_address(kind: Kind, name: str) -> Address:
    """`<kind>.<name>`, of a kind whose resources belong to no graph."""
    return Address(f"{kind.value}.{name}")


def restore_address(graph: str) -> Address:
    """`restore.<id>`: rows of a graph that come back from an earlier version of it."""
    return Address(f"restore.{graph}")


def strategy_address(compute: str, strategy: StrategyType) -> Address:
    """`strategy.<compute cluster>.<strategy>`."""
    return Address(f"strategy.{compute}.{strategy.value}")


def trust_address(cluster: str) -> Address:
    """`trust.<cluster>`: the keys and rules that a branch ledger is governed by."""
    return Address(f"trust.{cluster}")


def cluster_address(cluster: str) -> Address:
    """`cluster.<name>`: where the cluster of a branch ledger is."""
    return Address(f"cluster.{cluster}")


def replica_address(target: str, compute: str, replica: str) -> Address:
    """`replica.<target>.<compute cluster>.<replica>`: what a tick creates or drops. Folders declare none, so it has no kind.

    Names of replicas may hold anything; all but letters, digits, `_` and `-` is written as in a URL.
    """
    name = "".join(each if each.isascii() and (each.isalnum() or each in "_-") else _escaped(each) for each in replica)
    return Address(f"replica.{target}.{compute}.{name}")


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
