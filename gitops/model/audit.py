"""What log and audit say of a ledger branch."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.model.entry import ApprovalUse, LedgerEntry


@dataclass(frozen=True, slots=True)
class ApprovalVerdict:
    """An approval that an entry used, and whether it holds: `good`, or the code of the step that refuses it."""

    use: ApprovalUse
    verdict: str


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry of the trail. `signature` is `good` or the code of what is wrong with it.

    `entry` is None where the commit holds no entry that can be read.
    """

    commit: str
    entry: LedgerEntry | None
    verdicts: tuple[ApprovalVerdict, ...] = ()
    signature: str = "good"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The first thing that does not hold: at which entry (its commit and position from 1; 0 for the whole chain), and what."""

    commit: str
    number: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of verifying a ledger branch from its first entry.

    `verified` entries hold. `finding` is the first that does not, None if all do. `notes` say what could not be looked at,
    such as a source commit that the repository does not have.
    """

    cluster: str
    head: str
    entries: int
    verified: int
    finding: AuditFinding | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every entry holds."""
        return self.finding is None
