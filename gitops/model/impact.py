"""Impact of a schema change: the stored queries that use a type or property that changes.

It explains a plan and decides nothing. A declared query that does not check against the new schema is an error before there
is a plan, so a query that is listed here either goes on as it is, or is changed or removed by the same change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.model.address import Address

if TYPE_CHECKING:
    from gitops.language.schema import Schema


class QueryChange(StrEnum):
    """What the same plan does to a query; one whose file changes while its own text stays is unchanged."""

    KEPT = "unchanged"
    ADDED = "new here"
    CHANGED = "changed here"
    REMOVED = "removed here"


@dataclass(frozen=True, slots=True)
class AffectedQuery:
    """A query that reads or writes the subject of a step, or both."""

    query: Address
    reads: bool
    writes: bool
    change: QueryChange


@dataclass(frozen=True, slots=True)
class ResultChange:
    """A query that stays and whose result changes with the schema; columns are spelled `name: Type`, `Node` for a node."""

    query: Address
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaImpact:
    """What one schema update affects, if it has a migration preview.

    `queries` has one entry per step of the preview, in its order; each is in order of the queries. `policies` are the
    policies bound to the graph.
    """

    schema: Address
    queries: tuple[tuple[AffectedQuery, ...], ...]
    results: tuple[ResultChange, ...]
    policies: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """What a ledger records of a graph whose schema changes: the accepted schema, and the texts of its queries.

    Only the texts of queries that the plan changes or removes are needed; what could not be read is left out.
    """

    schema: Schema
    queries: Mapping[Address, bytes] = field(default_factory=lambda: MappingProxyType({}))
