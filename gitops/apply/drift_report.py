"""Drift: what is really there against what the ledger records as applied. A reading, which changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops.model.address import Address
from gitops.model.outcome import StateObservations, VerbOutcome


class DriftKind(StrEnum):
    """What is otherwise than recorded.

    SCHEMA: a graph accepts another schema. MISSING: a graph is gone. CATALOG: the text of a query or policy is not what it was.
    """

    SCHEMA = "schema"
    MISSING = "missing"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class DriftItem:
    """One resource that differs. `recorded` and `live` are digests, `live` None where there is nothing.

    `source` is the live schema and `path` the file of the cluster folder that declares it, where both are known: then the files
    can be made to say what is there.
    """

    address: Address
    kind: DriftKind
    recorded: str
    live: str | None = None
    detail: str = ""
    path: str | None = None
    source: bytes | None = None

    @property
    def adoptable(self) -> bool:
        """Whether a change of files can express it."""
        return self.path is not None and self.source is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOutcome(VerbOutcome):
    """What was found; an error among the diagnostics says that not everything could be looked at."""

    observations: StateObservations
    items: tuple[DriftItem, ...] = ()

    @property
    def adoptable(self) -> bool:
        """Whether a change of files can express all of it."""
        return bool(self.items) and all(item.adoptable for item in self.items)
