"""Ledger entries: one signed commit each, saying what was done, by whom, from which commit, with which approvals."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gitops.model.approval import Target


class EntryKind(StrEnum):
    """What an entry records. INTENT comes before the first side effect of a run that moves graphs."""

    IMPORT = "import"
    INTENT = "intent"
    APPLY = "apply"
    REFRESH = "refresh"


@dataclass(frozen=True, slots=True)
class SourceRevision:
    """Where the desired state came from: the merged commit, and the tree id of the cluster folder in it."""

    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change of an entry with its final disposition; digests are 64 hex digits or None."""

    resource: str
    operation: str
    before: str | None
    after: str | None
    disposition: str
    reason: str | None = None
    binding_change: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalUse:
    """An approval that an entry consumed: its id, its commit, the change it covered and who signed."""

    approval_id: str
    commit: str
    resource: str
    principal: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`entry.json` of one ledger commit.

    `number` counts from 1 without gaps; `previous` is the commit id of the entry before (None for the first) and must be
    the commit's first parent. `authors` are the identities whose work is applied, which may not approve it. `at` is RFC 3339
    UTC and never runs backwards along the chain. `changeset` identifies the run of one plan. `policy_digest` is that of the
    keys and rules under which the entry was made; `trust_digest` that of those in force after it.
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
