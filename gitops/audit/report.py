"""What log and audit say of a ledger branch, and what an audit is told besides the branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gitops.core.codes import Code
from gitops.model.entry import ApprovalUse, DebtSettlement, LedgerEntry


@dataclass(frozen=True, slots=True)
class ApprovalVerdict:
    """An approval that an entry used, and whether it holds: `good`, or the code of the step that refuses it."""

    use: ApprovalUse
    verdict: str


@dataclass(frozen=True, slots=True)
class SettlementVerdict:
    """A countersignature that an entry took in, and whether it holds: `good`, or the code of what is wrong with it."""

    settlement: DebtSettlement
    verdict: str


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry of the trail. `signature` is `good` or the code of what is wrong with it.

    `entry` is None where the commit holds no entry that can be read. `owed` are the ids of the approvals whose debts are open
    after the entry.
    """

    commit: str
    entry: LedgerEntry | None
    verdicts: tuple[ApprovalVerdict, ...] = ()
    signature: str = "good"
    settlements: tuple[SettlementVerdict, ...] = ()
    owed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether signature, approvals and countersignatures hold."""
        words = [v.verdict for v in self.verdicts] + [v.verdict for v in self.settlements]
        return self.signature == "good" and all(word == "good" for word in words)


def _none() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Hearsay:
    """What is known of a ledger besides its branch, each with the commit that it names.

    `seen` are heads that this clone saw before, by where it noted them. `signed` are the branches with approvals and with
    decisions about them, used or not. `witnesses` are heads that others have now, by what they are called.
    """

    seen: Mapping[str, str] = field(default_factory=_none)
    signed: Mapping[str, str] = field(default_factory=_none)
    witnesses: Mapping[str, str] = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Something that does not hold: at which entry (its commit and position from 1; 0 for the whole chain), and what."""

    commit: str
    number: int
    code: Code
    detail: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of verifying a ledger branch from its first entry, or from the entry after `since`, which was believed.

    The first `verified` of `entries` entries hold, those up to `since` unseen. `findings` are the first entry that does not
    hold, if there is one, and then what others know that contradicts the ledger as a whole. `notes` say what could not be
    looked at, such as a source commit that the repository does not have.
    """

    cluster: str
    head: str
    entries: int
    verified: int
    findings: tuple[AuditFinding, ...] = ()
    notes: tuple[str, ...] = ()
    since: int = 0

    @property
    def finding(self) -> AuditFinding | None:
        """The first finding."""
        return self.findings[0] if self.findings else None

    @property
    def ok(self) -> bool:
        """Whether every entry holds, and nobody knows better."""
        return not self.findings
