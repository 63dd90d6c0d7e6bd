"""Desired resources: what a cluster folder declares, with digests and references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.model.address import Address, Kind

if TYPE_CHECKING:
    from gitops.lang.query import CheckedQuery
    from gitops.lang.schema import Schema


@dataclass(frozen=True, slots=True)
class Resource:
    """One declared resource.

    `path` is the path as it is written in the configuration (queries and policies and schemas), None for graphs.
    `content` is the bytes that the digest covers, None for graphs. `applies_to` is the normalized bindings of a policy.
    """

    address: Address
    digest: str
    path: str | None = None
    content: bytes | None = field(default=None, repr=False)
    applies_to: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, order=True)
class Dependency:
    """`source` needs `target`; both are address texts."""

    source: str
    target: str

    def to_json(self) -> dict[str, str]:
        """The JSON form of envelopes."""
        return {"from": self.source, "to": self.target}


@dataclass(frozen=True, slots=True)
class GraphDeclaration:
    """The checked content of one graph: its compiled schema and queries, for planning and serving."""

    schema: Schema | None
    queries: Mapping[str, CheckedQuery] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Everything a cluster folder declares, fully loaded.

    `resources` is keyed by address text in code point order. `storage` is the declared storage root, trimmed, or None for
    the configuration folder. `config_digest` covers the parsed configuration and every resource digest.
    """

    config_digest: str
    resources: Mapping[str, Resource]
    dependencies: tuple[Dependency, ...]
    graphs: Mapping[str, GraphDeclaration]
    name: str | None = None
    storage: str | None = None
    lock: bool = True

    def of_kind(self, kind: Kind) -> tuple[Resource, ...]:
        """All resources of one kind, in address order."""
        return tuple(r for r in self.resources.values() if r.address.kind is kind)

    def digests(self) -> dict[str, str]:
        """Address text to digest, in address order."""
        return {text: r.digest for text, r in self.resources.items()}
