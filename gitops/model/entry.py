"""Ledger entries: one signed commit each, with what was done, by whom, from which commit and with which approvals."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gitops.model.address import Address
from gitops.model.approval import Target, Via


class EntryKind(StrEnum):
    """What an entry records.

    INTENT comes before the first side effect of a run that moves graphs. COUNTERSIGN only takes in what settles debts.
    """

    IMPORT = "import"
    INTENT = "intent"
    APPLY = "apply"
    REFRESH = "refresh"
    COUNTERSIGN = "countersign"


@dataclass(frozen=True, slots=True)
class SourceRevision:
    """Where the desired state came from: the merged commit, and the tree id of the cluster folder in it."""

    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change of an entry with its final disposition; digests are 64 hex digits or None."""

    resource: Address
    operation: str
    before: str | None
    after: str | None
    disposition: str
    reason: str | None = None
    binding_change: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalUse:
    """An approval that an entry consumed: its id, its commit, the change it covered, whose it is and how it was given."""

    approval_id: str
    commit: str
    resource: Address
    principal: str
    via: Via = Via.SIGNATURE


@dataclass(frozen=True, slots=True)
class Debt:
    """What an emergency left: `principal` alone let `resource` be changed, for `reason`, by an approval and its commit.

    It is open until a second person countersigns it; until then only that, and further emergencies, are applied.
    """

    approval_id: str
    commit: str
    resource: Address
    principal: str
    reason: str


@dataclass(frozen=True, slots=True)
class DebtSettlement:
    """A debt that an entry settles: its approval, and the countersignature with its commit and who signed it."""

    approval_id: str
    countersignature: str
    commit: str
    principal: str


UNKNOWN_AUTHOR = "<unknown>"
"""The author where authors could not be determined. No commit and no account can have this name."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`entry.json` of one ledger commit.

    `number` counts from 1 without gaps; `previous` is the commit id of the entry before (None for the first) and must be
    the commit's first parent. `authors` are the authors of what is applied, who may not approve it. `at` is RFC 3339
    UTC and never runs backwards along the chain. `changeset` identifies the run of one plan. `policy_digest` is that of the
    keys and rules under which the entry was made; `trust_digest` that of those in force after it. `debts` are opened by this
    entry, `settled` are closed by it.
    """

    number: int
    kind: EntryKind
    operation: str
    at: str
    actor: str | None
    target: Target
    previous: str | None
    source: SourceRevision | None
    changeset: str | None
    plan_digest: str | None
    config_digest: str | None
    state_revision: int
    policy_digest: str
    trust_digest: str
    changes: tuple[EntryChange, ...] = ()
    approvals: tuple[ApprovalUse, ...] = ()
    authors: tuple[str, ...] = ()
    recovered: tuple[str, ...] = field(default=())
    debts: tuple[Debt, ...] = ()
    settled: tuple[DebtSettlement, ...] = ()

    @property
    def carried(self) -> tuple[str, ...]:
        """The commits that must be its further parents: approvals that it uses, then countersignatures that it takes in."""
        return tuple(dict.fromkeys((*(u.commit for u in self.approvals), *(s.commit for s in self.settled))))
