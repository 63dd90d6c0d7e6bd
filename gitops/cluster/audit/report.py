"""Results of `gitops log` and `gitops audit`, and what an audit reads besides the ledger branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.ledger import ApprovalUse, DebtSettlement, EntryKind, LedgerEntry
from gitops.cluster.model.trust import RuleChange
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import LINE, OBJECT_ID, integer, record


@dataclass(frozen=True, slots=True)
class UsedApproval:
    """An approval that an entry used. `result` is `good` or the code of the step that refuses it.

    `seen` is the graph state that its approver saw, for a data change.
    """

    use: ApprovalUse
    result: str
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class UsedCountersignature:
    """A countersignature that an entry recorded. `result` is `good` or its problem's code."""

    settlement: DebtSettlement
    result: str


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry in the trail. `signature` is `good` or its problem's code.

    `entry` is None if the commit has no readable entry. `owed` are the ids of the approvals whose debts are open after the
    entry. `rules` are the entry's changes to keys and rules. `republished` are queries whose own text is unchanged while
    their file changed, and `formatting` are updates of layout or comments only.
    """

    commit: str
    entry: LedgerEntry | None
    approvals: tuple[UsedApproval, ...] = ()
    signature: str = "good"
    settlements: tuple[UsedCountersignature, ...] = ()
    owed: tuple[str, ...] = ()
    rules: tuple[RuleChange, ...] = ()
    republished: frozenset[Address] = frozenset()
    formatting: frozenset[Address] = frozenset()

    @property
    def ok(self) -> bool:
        """True if signature, approvals and countersignatures are valid."""
        results = [each.result for each in self.approvals] + [each.result for each in self.settlements]
        return self.signature == "good" and all(result == "good" for result in results)

    @property
    def is_step(self) -> bool:
        """True for a valid entry that only records a step of a run: its announcement, or a changeset event."""
        kinds = (EntryKind.INTENT, EntryKind.CHANGESET)
        entry = self.entry
        return self.ok and entry is not None and entry.kind in kinds and not (entry.revoked or entry.quarantined)


def _none() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AuditWitnesses:
    """Evidence about a ledger from outside its branch. Each mapping has the commit of an entry or a signed document by name.

    `seen` are heads that this clone saw before, keyed by where it noted them. `signed` are the branches with approvals and
    with decisions about them, consumed or not. `copies` are the heads of other copies of the ledger, keyed by the name of
    the copy.
    """

    seen: Mapping[str, str] = field(default_factory=_none)
    signed: Mapping[str, str] = field(default_factory=_none)
    copies: Mapping[str, str] = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A problem in an entry (with its commit and 1-based number) or in the whole chain (with the head and number 0)."""

    commit: str
    number: int
    code: Code
    detail: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of verifying a ledger branch from its first entry, or from the entry after the trusted entry number `since`.

    The first `verified` of `entries` entries are valid; those up to `since` were not checked. `findings` has the first
    invalid entry, if there is one, and then the contradictions with witnesses. `notes` list what could not be checked, such
    as a source commit that the repository does not have.
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
        """True if every entry is valid and no witness contradicts the ledger."""
        return not self.findings


# The pin that an audit writes for the next one: the last entry up to which a ledger was verified. Version 1.
#
# It belongs to the auditor and is kept outside of the repository, where neither a fetch nor a writer of the ledger can change it.


@dataclass(frozen=True, slots=True)
class AuditPin:
    """Confirms that entry `number` of a cluster's ledger, with the id `commit`, and all entries before it were verified."""

    cluster: str
    number: int
    commit: str


PIN = Document(
    versions={1: record(AuditPin, {"cluster": LINE, "number": integer(1), "commit": OBJECT_ID})},
    code=Code.PIN_INVALID,
    limit=4096,
)

read_pin = PIN.read
write_pin = PIN.write
