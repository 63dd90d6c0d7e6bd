"""The ledger's state document as a value: enough to serve from without reading configuration again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gitops.model.address import Address


class Status(StrEnum):
    """Status of a resource in the ledger; the first three are read but never written."""

    PENDING = "pending"
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    DRIFTED = "drifted"
    BLOCKED = "blocked"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """Status with its conditions (at most one is written) and a message for people."""

    status: Status
    conditions: tuple[str, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AppliedResource:
    """What is applied of one resource; `applies_to` is the normalized bindings of a policy, None for other kinds."""

    digest: str
    applies_to: tuple[str, ...] | None = None


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class State:
    """`state.json`. Maps are keyed by address (records by their ULID); values of the last three are free-form JSON.

    Build a changed state with `dataclasses.replace` and new maps; nothing is edited in place.
    """

    revision: int = 0
    config_digest: str | None = None
    resources: Mapping[Address, AppliedResource] = field(default_factory=_empty)
    statuses: Mapping[Address, StatusRecord] = field(default_factory=_empty)
    approval_records: Mapping[str, Mapping[str, Any]] = field(default_factory=_empty)
    recovery_records: Mapping[str, Mapping[str, Any]] = field(default_factory=_empty)
    observations: Mapping[Address, Mapping[str, Any]] = field(default_factory=_empty)

    def digests(self) -> dict[Address, str]:
        """Address to applied digest, in address order."""
        return {address: self.resources[address].digest for address in sorted(self.resources)}
