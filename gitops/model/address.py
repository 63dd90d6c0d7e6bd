"""Resource addresses: `query.knowledge.find_experts`, parsed once at the edge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)
CLUSTER_SCOPE = "cluster"


class Kind(StrEnum):
    """Resource kinds. `UNKNOWN` is what a ledger of another release may hold: compared, never executed."""

    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    TRUST = "trust"
    UNKNOWN = "unknown"


_BY_PREFIX = {k.value: k for k in Kind if k is not Kind.UNKNOWN}


def is_name(text: str) -> bool:
    """Whether `text` may name a graph, query or policy."""
    return NAME.match(text) is not None


@dataclass(frozen=True, slots=True)
class Address:
    """The identity of a resource. `graph` is the owning graph id of graph, schema and query, else None.

    Order and equality are those of the text form, by code point: that is the order of every list of changes.
    """

    text: str
    kind: Kind
    name: str
    graph: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; a text of no known form is of kind UNKNOWN, never an error."""
        prefix, dot, rest = text.partition(".")
        kind = _BY_PREFIX.get(prefix, Kind.UNKNOWN)
        if not dot or not rest or kind is Kind.UNKNOWN:
            return cls(text, Kind.UNKNOWN, text)
        if kind is Kind.QUERY:
            graph, dot, name = rest.partition(".")
            return cls(text, kind, name, graph) if dot and name else cls(text, Kind.UNKNOWN, text)
        if kind in (Kind.GRAPH, Kind.SCHEMA):
            # No folder can declare another name, and a root is derived from it: what is recorded so is never touched.
            return cls(text, kind, rest, rest) if is_name(rest) else cls(text, Kind.UNKNOWN, text)
        return cls(text, kind, rest)

    def __str__(self) -> str:
        """The text form."""
        return self.text

    def __lt__(self, other: Address) -> bool:
        """By code point of the text form."""
        return self.text < other.text


def graph_address(graph: str) -> Address:
    """`graph.<id>`."""
    return Address(f"graph.{graph}", Kind.GRAPH, graph, graph)


def schema_address(graph: str) -> Address:
    """`schema.<id>`."""
    return Address(f"schema.{graph}", Kind.SCHEMA, graph, graph)


def query_address(graph: str, name: str) -> Address:
    """`query.<graph>.<name>`."""
    return Address(f"query.{graph}.{name}", Kind.QUERY, name, graph)


def policy_address(name: str) -> Address:
    """`policy.<name>`."""
    return Address(f"policy.{name}", Kind.POLICY, name)


def trust_address(cluster: str) -> Address:
    """`trust.<cluster>`: the keys and rules that a branch ledger is governed by."""
    return Address(f"trust.{cluster}", Kind.TRUST, cluster)
