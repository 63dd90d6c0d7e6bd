"""Finds the approvals that count for a plan's changes, and the open debts of earlier emergencies.

A ledger folder contains approval documents, which are matched only by their digests. A branch ledger has signed
approval commits, which are verified by the numbered steps of `gitops.cluster.approvals.verify` before their documents
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from itertools import pairwise

from gitops.cluster.approvals.decisions import (
    DecisionVerification,
    debt_of,
    find_settlements,
    recorded_revocations,
    revoked_approvals,
    verify_countersignatures,
    verify_revocations,
)
from gitops.cluster.approvals.origins import may_approve
from gitops.cluster.approvals.verify import (
    ApprovalNeed,
    ApprovalVerification,
    data_refusal,
    is_for_another_change,
    one_per_person,
    select_quorum,
    verify_approval,
)
from gitops.cluster.ledger.port import ApprovalListing, LedgerReader, LedgerView
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import DOCUMENT_LIFETIME, Approval, ApprovalEvidence, ApprovalStatement
from gitops.cluster.model.change import Change, Seen
from gitops.cluster.model.ledger import ApprovalUse, Debt, DebtSettlement, LedgerState
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.trust import DataGrowth, TrustRoot
from gitops.cluster.session.workspace import Governance
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError, RemoteError

CountReplaced = Callable[[Change, Seen | None], int | str]
"""Returns how many rows were replaced since an approver saw them, or why that is unknown; 0 if no graph is accessible."""


@dataclass(frozen=True, slots=True)
class EarlierDebts:
    """Debts of earlier emergencies: the open ones, and the settlements that the next entry records.

    `refused` are countersignatures that do not count.
    """

    open: tuple[Debt, ...] = ()
    settled: tuple[DebtSettlement, ...] = ()
    refused: tuple[DecisionVerification, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceptedApprovals:
    """The approvals that count. Signed ones also have the commit, the principal and any debt, by approval id.

    `further` are valid approvals by people who already have one in `approvals`. `announced` are approvals that the ledger
    announced but does not record as consumed yet. `may_approve` are the people who can approve each change.
    """

    approvals: tuple[Approval, ...] = ()
    uses: dict[str, ApprovalUse] = field(default_factory=dict)
    refused: tuple[ApprovalVerification, ...] = ()
    debts: dict[str, Debt] = field(default_factory=dict)
    earlier: EarlierDebts = field(default_factory=EarlierDebts)
    announced: tuple[ApprovalEvidence, ...] = ()
    may_approve: Callable[[Address], tuple[str, ...]] = lambda _: ()
    further: tuple[Approval, ...] = ()

    @property
    def emergencies(self) -> frozenset[str]:
        """The ids of emergency approvals, each of which is sufficient on its own."""
        return frozenset(self.debts)

    def uses_of(self, approvals: Iterable[Approval]) -> tuple[ApprovalUse, ...]:
        """Return where these approvals come from. The unsigned approvals of a ledger folder are left out."""
        return tuple(self.uses[each.approval_id] for each in approvals if each.approval_id in self.uses)


def accept_approvals(
    ledger: LedgerReader,
    *,
    changes: Sequence[Change],
    desired: DesiredState,
    view: LedgerView,
    state: LedgerState,
    at: datetime,
    governance: Governance | None,
    problems: Diagnostics,
    replaced: CountReplaced = lambda _change, _seen: 0,
) -> AcceptedApprovals:
    """Collect the approvals that count for the gated changes. Refused ones become warnings in `problems`.

    For an open gate, nothing is reported. `state` is the view's or the recovered one; `replaced` is called last.
    """
    listing = ledger.approvals()
    _report_unreadable(listing, problems)
    consumed, by_address = frozenset(state.approval_records), {c.address: c for c in changes if c.tier is not None}
    if governance is None:
        unused = [a for a in listing.documents if a.consumed_at is None and a.approval_id not in consumed]
        return AcceptedApprovals(_fresh_documents(unused, by_address, at, problems, replaced))
    trust = view.trust or governance.trust
    relevant = list(_relevant(listing, by_address, consumed, governance))
    revocations = verify_revocations(relevant, listing.decisions, trust, target=governance.target, at=at)
    _report_refused_decisions(revocations, problems)
    revoked = revoked_approvals(revocations) | recorded_revocations(state)
    _report_pending(governance, by_address.values(), problems)
    verified = []
    for evidence in relevant:
        authors = governance.authors_for(by_address[_address(evidence)])
        need = ApprovalNeed(
            target=governance.target,
            cluster_tree=governance.source.tree,
            config_digest=desired.config_digest,
            policy_digest=trust.digest,
            change=by_address[_address(evidence)],
            at=at,
            consumed=consumed,
            authors=authors.people,
            revoked=revoked,
            unknown=authors.unknown,
            forge=governance.forge,
        )
        verified.append(_verify(ledger, _with_changed_files(evidence, governance), need, trust, replaced, governance))
    earlier = read_earlier_debts(listing, view, governance, at)
    _report_refused_decisions(earlier.refused, problems)
    needed = {a: trust.quorum(governance.target.environment).needed(c.gates) for a, c in by_address.items()}
    counted, further = _countable(verified, needed)
    refused = _report_refused(ledger, verified, _opened(counted, needed), problems)
    return AcceptedApprovals(
        approvals=tuple(approval for approval, _, _ in counted),
        further=tuple(approval for approval, _, _ in further),
        uses={use.approval_id: use for _, use, _ in (*counted, *further)},
        refused=refused,
        debts={debt.approval_id: debt for _, _, debt in counted if debt is not None},
        earlier=earlier,
        announced=listing.announced,
        may_approve=lambda address: _may_approve(governance, trust, by_address.get(address, address), at),
    )


def _verify(
    ledger: LedgerReader,
    evidence: ApprovalEvidence,
    need: ApprovalNeed,
    trust: TrustRoot,
    replaced: CountReplaced,
    governance: Governance,
) -> ApprovalVerification:
    """Verify an approval.

    Later entries and rows are read only if it is otherwise valid, or signed by a trusted person, because any account can
    push an old commit.
    """
    found, statement = verify_approval(evidence, need, trust), evidence.statement
    if (
        found.is_signed
        and statement is not None
        and any(each.code == Code.APPROVAL_STALE for each in found.diagnostics)
    ):
        by = _moved_by(ledger, evidence.moved, statement, need, governance)
        found = verify_approval(replace(evidence, moved_by=by), need, trust)
    if not found.accepted or statement is None:
        return replace(found, for_another=is_for_another_change(evidence, need, trust))
    moved = need.change.address in ledger.entries_since(statement.ledger_head).moved
    known = replace(need, moved=moved, replaced=0 if moved else replaced(need.change, statement.seen))
    return found if known == need else verify_approval(evidence, known, trust)


def _moved_by(
    ledger: LedgerReader,
    moved: Sequence[str],
    statement: ApprovalStatement,
    need: ApprovalNeed,
    governance: Governance,
) -> str:
    """Return the first merge after an approval that changed one of the `moved` files or the rules, in words.

    Returns an empty text if the ledger shows none, for example because the author of the change pushed again.
    """
    try:
        merges = ledger.entries_since(statement.ledger_head).merges
        commit = governance.changed_by(merges[0].commit, moved) if moved and merges else None
        if commit is None and statement.policy_digest != need.policy_digest:
            pairs = pairwise(merges)
            commit = next((after.commit for before, after in pairs if before.trust_digest != after.trust_digest), None)
        if commit is None:
            return ""
        records = (ledger.changeset(key) for key in ledger.changeset_of(commit))
        sources = (record.source for record in records if record is not None)
        # A changeset can apply several merges together. It records the request of the last one.
        number = next((each.pull_request for each in sources if each.merge_commit == commit), None)
    except GitopsError:
        # A commit of the branch may be missing here. The refusal stands without the name of the merge.
        return ""
    return f"merge {commit[:12]}{f' of request {number}' if number else ''}"


def _report_pending(governance: Governance, gated: Iterable[Change], problems: Diagnostics) -> None:
    """Report gated changes whose authors the forge cannot report yet.

    An entry would record these authors as unknown permanently.
    """
    for change in gated:
        if pending := governance.authors_for(change).pending:
            problems.add(Code.PUSHERS_PENDING, change.address, pending)


def _may_approve(governance: Governance, trust: TrustRoot, change: Change | Address, at: datetime) -> tuple[str, ...]:
    """Return who can approve a change, perhaps known only by address. Empty while the forge does not report its authors."""
    try:
        authors = governance.authors_for(change) if isinstance(change, Change) else governance.authors_of(change)
        return may_approve(trust, authors, at, governance.forge)
    except RemoteError:
        return ()


def _report_refused(
    ledger: LedgerReader,
    verified: Sequence[ApprovalVerification],
    opened: Container[Address],
    problems: Diagnostics,
) -> tuple[ApprovalVerification, ...]:
    """Report refused approvals as warnings: the change remains blocked, and the command continues.

    Reported is what somebody can act on:

    1. If enough other approvals count, or another one of the same person, a refused one needs no action.
    2. One for another change that was used, revoked or has expired is history.
    3. Of others for another change, only the newest of each person, unless the resource was changed since that person saw it.
    """
    refused = tuple(each for each in verified if not each.accepted)
    given = {(_address(each.evidence), each.principal) for each in verified if each.accepted}
    # Anyone can push an unsigned approval in another person's name, so it must not hide that person's signed ones.
    newest: dict[tuple[Address, str, bool], str] = {}
    for each in refused:
        approval = each.evidence.approval
        if approval is not None and each.for_another:
            giver = (approval.resource, approval.approved_by, each.is_signed)
            newest[giver] = max(approval.approval_id, newest.get(giver, ""))
    for each in refused:
        approval, statement, (problem, *_) = each.evidence.approval, each.evidence.statement, tuple(each.diagnostics)
        person = (_address(each.evidence), "" if approval is None else approval.approved_by)
        if person[0] in opened or person in given:
            continue
        if approval is not None and statement is not None and each.for_another:
            giver = (*person, each.is_signed)
            history = problem.code in _HISTORY or newest[giver] != approval.approval_id
            # Only for signatures of trusted people: any account can push an old commit, and this reads the entries since.
            stale = each.is_signed and problem.code == Code.APPROVAL_STALE
            if history or (stale and person[0] in ledger.entries_since(statement.ledger_head).moved):
                continue
        problems.extend(replace(found, severity=Severity.WARNING) for found in each.diagnostics)
    return refused


_HISTORY = frozenset({Code.APPROVAL_SPENT, Code.APPROVAL_REVOKED, Code.APPROVAL_EXPIRED})


def _report_unreadable(listing: ApprovalListing, problems: Diagnostics) -> None:
    if listing.problem is not None:
        problems.add(Code.APPROVAL_READ_ERROR, "__cluster/approvals", listing.problem)
    for unreadable in listing.unreadable:
        problems.add(unreadable.code, f"__cluster/approvals/{unreadable.name}", unreadable.detail)


def _relevant(
    listing: ApprovalListing, addresses: Container[Address], consumed: Container[str], governance: Governance
) -> Iterator[ApprovalEvidence]:
    """Return the evidence about some resources, without approvals that were used to move the cluster.

    Those were for its earlier location.
    """
    for each in listing.evidence:
        moved = each.statement is not None and each.statement.target != governance.target
        if each.approval is None or each.approval.resource not in addresses:
            continue
        if not (moved and each.approval.approval_id in consumed):
            yield each


_Counted = tuple[Approval, ApprovalUse, Debt | None]


def _countable(
    verified: Iterable[ApprovalVerification], needed: Mapping[Address, int]
) -> tuple[list[_Counted], list[_Counted]]:
    """Return the approvals that count for each address, their sources, the debt of each, and further valid ones.

    `needed` is the number of people who must approve each address. Only one approval per id counts, because consumption
    is recorded by id and anyone can push a commit with a known id. The commit on the branch with that name takes
    precedence, because hooks allow no other commit there. Without a quorum, the existing approvals are returned anyway.
    Further approvals come from people who are already counted; an unneeded emergency is not included.
    """
    counted, further = list[_Counted](), list[_Counted]()
    named = [(e.evidence.approval.approval_id, e) for e in verified if e.accepted and e.evidence.approval is not None]
    named.sort(key=lambda pair: (pair[0], not pair[1].evidence.ref.endswith(f"/{pair[0]}"), pair[1].evidence.commit))
    one_per_id = list(dict(reversed(named)).values())[::-1]
    for address in sorted(needed):
        own = [each for each in one_per_id if _address(each.evidence) == address]
        chosen = (*one_per_person(own), *(e for e in select_quorum(own, needed[address]) if e.is_emergency))
        for each in own:
            evidence = each.evidence
            approval, statement, principal = evidence.approval, evidence.statement, each.principal
            if approval is None or statement is None or principal is None:
                continue
            use = ApprovalUse(approval.approval_id, evidence.commit, approval.resource, principal, statement.via)
            covered = replace(approval, seen=statement.seen, callers=statement.callers)
            found = (covered, use, debt_of(evidence))
            if each in chosen:
                counted.append(found)
            elif not each.is_emergency:
                further.append(found)
    return counted, further


def _opened(counted: Iterable[_Counted], needed: Mapping[Address, int]) -> frozenset[Address]:
    """Return the resources with enough approvals."""
    given = list(counted)
    people = Counter(approval.resource for approval, _, _ in given)
    alone = {approval.resource for approval, _, debt in given if debt is not None}
    return frozenset(alone).union(resource for resource, found in people.items() if found >= needed[resource])


def _fresh_documents(
    unused: Iterable[Approval],
    changes: Mapping[Address, Change],
    at: datetime,
    problems: Diagnostics,
    replaced: CountReplaced,
) -> tuple[Approval, ...]:
    """Return the approvals of a ledger folder that count at a given time: for seven days from their date, which can be wrong.

    Expired approvals of `changes`, and those whose rows were replaced, become warnings.
    """
    found = []
    for approval in unused:
        given, change = parse_timestamp(approval.created_at), changes.get(approval.resource)
        if given is not None and abs(at - given) < DOCUMENT_LIFETIME:
            number = 0 if change is None else replaced(change, approval.seen)
            refusal = data_refusal(change, approval.seen, DataGrowth(), number) if change and number else None
            if refusal is None:
                found.append(approval)
            else:
                code, detail = refusal
                text = f"approval {approval.approval_id}: {detail}"
                problems.add(code, approval.resource, text, severity=Severity.WARNING)
        elif approval.resource in changes:
            dated = "has no time" if given is None else f"is of {approval.created_at}, more than 7 days from now"
            detail = f"approval {approval.approval_id} {dated}; approve again"
            problems.add(Code.APPROVAL_EXPIRED, approval.resource, detail, severity=Severity.WARNING)
    return tuple(found)


def read_earlier_debts(
    listing: ApprovalListing, view: LedgerView, governance: Governance, at: datetime
) -> EarlierDebts:
    """Return the debts of earlier emergencies at time `at`, with the countersignatures that would settle them."""
    debts = () if view.state is None else view.state.debts
    trust, target = view.trust or governance.trust, governance.target
    recorded = () if view.state is None else view.state.approval_records
    settled = find_settlements(debts, listing.decisions, trust, target=target, at=at, recorded=recorded)
    closed = {each.approval_id for each in settled}
    left = tuple(debt for debt in debts if debt.approval_id not in closed)
    verified = [
        each for debt in left for each in verify_countersignatures(debt, listing.decisions, trust, target=target, at=at)
    ]
    return EarlierDebts(left, settled, tuple(each for each in verified if not each.accepted))


def report_debts(
    debts: Sequence[Debt], governance: Governance | None, problems: Diagnostics, severity: Severity = Severity.WARNING
) -> None:
    """Add a problem for each open debt: who acted alone, and how to settle it."""
    chosen = "" if governance is None else f" --cluster {governance.target.cluster}"
    for debt in debts:
        command = f"gitops countersign {debt.approval_id} --commit {debt.commit}{chosen}"
        # Remedies of warnings are not always shown.
        now = (
            "a countersignature is missing" if severity is Severity.ERROR else f"another approver has to run: {command}"
        )
        detail = f"{debt.principal} acted alone (approval {debt.approval_id}: {debt.reason}); {now}"
        fix = f"ask another approver to run: {command}"
        problems.add(Code.DEBT_OPEN, debt.resource, detail, severity=severity, fix=fix)


def _with_changed_files(evidence: ApprovalEvidence, governance: Governance) -> ApprovalEvidence:
    """Return the evidence with the files that changed since the approval, so that a refusal can list them."""
    statement = evidence.statement
    if statement is None or statement.cluster_tree == governance.source.tree:
        return evidence
    return replace(evidence, moved=governance.changed_files(statement.cluster_tree))


def _report_refused_decisions(verified: Iterable[DecisionVerification], problems: Diagnostics) -> None:
    for each in verified:
        if not each.accepted:
            name = each.evidence.ref.removeprefix("refs/heads/")
            problems.add(Code.DECISION_REFUSED, name, each.problem, severity=Severity.WARNING)


def _address(evidence: ApprovalEvidence) -> Address:
    return Address("") if evidence.approval is None else evidence.approval.resource
