"""Checks an entry's approvals and revocations (audit step 4) and the gates of its changes (audit step 9).

Checks approvals, emergencies and countersignatures in order; the first failure is the finding:

1. Every approval that the entry uses passes the verification steps of a plan at that position, and was given as recorded.
2. None of them had been revoked. A revocation refers to the newest entry of its time, and does not undo that entry.
3. Applied gated changes have a quorum, or one emergency: as many people as the recorded gates require under the rules in force
   before the entry, in the cluster's environment at that time.
4. Every recorded countersignature passes its steps, for a debt that was open.
5. While a debt is open, only emergencies are applied.
6. The state records exactly the debts of consumed approvals: one for each emergency, and no others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.cluster.approvals.decisions import (
    DecisionNeed,
    debt_form,
    debt_of,
    is_approval_record,
    revocation_record,
    verify_decision,
)
from gitops.cluster.approvals.verify import ApprovalVerification, select_quorum
from gitops.cluster.audit.trail import AuditedPosition, change_of, settlement_problem, verify_used_approval
from gitops.cluster.audit.walk import ConsumedApproval, Walk
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.ledger.evidence import read_decision_evidence
from gitops.cluster.ledger.layout import blob_key
from gitops.cluster.ledger.schemas import recorded_schema
from gitops.cluster.model.address import Address, Kind, of_kind
from gitops.cluster.model.approval import DecisionEvidence, DecisionKind
from gitops.cluster.model.change import Action, Change, Disposition, GateName, Reason, Tier
from gitops.cluster.model.host import Connection, Item
from gitops.cluster.model.host_rules import HostDifference, read_form
from gitops.cluster.model.kinds import Gate, Situation, gate_of
from gitops.cluster.model.ledger import (
    RULES_OF_0_2_1,
    WITH_GATES,
    WITH_ORIGINS,
    Debt,
    EntryChange,
    EntryKind,
    LedgerState,
    RecordedRevocation,
)
from gitops.cluster.model.resource import Resource
from gitops.cluster.plan.access import AccessSource, access_between
from gitops.cluster.plan.planner import survey, widened_policies
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.graph.port import MigrationPreview
from gitops.git.port import GitReader


def check_approvals(walk: Walk, found: VerifiedEntry) -> frozenset[str]:
    """Check parts 1 to 5 and return the addresses whose change is approved. Raises IntegrityError for the first failure."""
    approved = approved_addresses(walk, found)
    situation = _situation(found)
    for listed in found.entry.changes:
        if not _is_applied(listed) or listed.resource in approved:
            continue
        # Whether a migration needs an approval depends on the graph and the rules; its entry lists it as gated.
        change = change_of(listed)
        if change.tier is not None or gate_of(change, situation) is not None:
            detail = f"{listed.operation} {listed.resource} has no valid approval, or too few"
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{detail}: {asked(found, _met(found, listed))}")
    _check_settlements(walk, found)
    _check_debts(walk, found)
    return approved


def approved_addresses(walk: Walk, found: VerifiedEntry) -> frozenset[str]:
    """Check parts 1 and 2, and return the addresses with a quorum. Raises IntegrityError for a refused approval."""
    position = AuditedPosition(found, walk.numbers, walk.state, walk.moved_since)
    accepted: dict[str, list[ApprovalVerification]] = {}
    for use in found.entry.approvals:
        verification = verify_used_approval(walk.reader, use, position)
        if not verification.accepted:
            problem = next(iter(verification.diagnostics))
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, f"{problem.code}: {problem.message}")
        consumed = walk.consumed.setdefault(use.approval_id, ConsumedApproval(verification, found.entry.number))
        _note_data(walk, found, verification)
        for evidence in walk.revocations.get(use.approval_id, ()):
            _check_revocation(walk, found, consumed, evidence)
        accepted.setdefault(use.resource, []).append(verification)
    listed = {each.resource: each for each in found.entry.changes}
    quorum = found.before.quorum(found.entry.target.environment)
    return frozenset(
        resource
        for resource, each in accepted.items()
        if select_quorum(each, quorum.needed(_met(found, listed[Address(resource)])))
    )


def _note_data(walk: Walk, found: VerifiedEntry, verification: ApprovalVerification) -> None:
    """Add a note about an approval of data that was used for a different version from the approver's.

    No audit can compare their rows.
    """
    statement, approval = verification.evidence.statement, verification.evidence.approval
    listed = next((c for c in found.entry.changes if approval is not None and c.resource == approval.resource), None)
    if listed is None or not _is_applied(listed) or found.entry.kind is not EntryKind.APPLY:
        return
    was, now = None if statement is None else statement.seen, listed.seen
    if was is not None and now is not None and was.version != now.version:
        what = (
            f"entry {found.entry.number}: {listed.operation} {listed.resource}: {verification.principal} saw {was.held}"
        )
        walk.notes.append(f"{what} in version {was.version}; applied to {now.held} in version {now.version}")


def asked(found: VerifiedEntry, met: Collection[GateName]) -> str:
    """Describe, for findings, how many people these gates require under the rules before an entry."""
    quorum = found.before.quorum(found.entry.target.environment)
    gate = next(iter(quorum.deciding(met)), GateName.IRREVERSIBLE)
    needed = quorum.needed(met)
    people = "1 person" if needed == 1 else f"{needed} different people"
    return f"gate {gate} asks for {people} in environment {quorum.environment}"


def _situation(found: VerifiedEntry) -> Situation:
    """Return the situation from the changes in the entry, under the rules in force before it."""
    quorum = found.before.quorum(found.entry.target.environment)
    situation = survey([change_of(each) for each in found.entry.changes], (), ())
    return replace(situation, gates=frozenset(quorum.numbers), limits=quorum.limits)


def _met(found: VerifiedEntry, listed: EntryChange) -> tuple[GateName, ...]:
    """Return the gates that a change meets according to its entry; step 9 checks that the list is complete.

    Entries before version 5 list no gates. Their gates follow from the rules of the kind if these need no texts,
    otherwise from the tier.
    """
    if found.entry.version >= WITH_GATES:
        return listed.gates
    change = change_of(listed)
    gate = gate_of(change, _situation(found))
    if gate is not None:
        return gate.met
    lossy = GateName.WIDENING if change.address.kind is Kind.POLICY else GateName.LOSSY
    return (lossy,) if change.tier is Tier.REVERSIBLE else (GateName.IRREVERSIBLE,)


def check_debt_records(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Check part 6. Raises IntegrityError `ledger_debt_mismatch`."""
    old, new = walk.state.approval_records, state.approval_records
    debts: set[Debt] = set()
    for record in sorted(new.keys() - old.keys()):
        consumed = walk.consumed.get(record)
        known = consumed is not None and is_approval_record(new[record])
        debt = debt_of(consumed.verification.evidence) if known and consumed is not None else None
        if new[record].get("debt") != (None if debt is None else debt_form(debt)):
            raise IntegrityError(
                Code.LEDGER_DEBT_MISMATCH, f"the record of approval {record} lacks the debt of its emergency"
            )
        debts |= set() if debt is None else {debt}
    if set(found.entry.debts) != debts or len(found.entry.debts) != len(debts):
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, "the entry does not list the debts of its emergencies")
    for settlement in found.entry.settled:
        record_of = new.get(settlement.countersignature, {})
        recorded = (record_of.get("countersigns"), record_of.get("principal"))
        if settlement.countersignature in old or recorded != (settlement.approval_id, settlement.principal):
            detail = f"the state does not record countersignature {settlement.countersignature}"
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)


def _is_applied(listed: EntryChange) -> bool:
    return listed.disposition == Disposition.APPLIED


def _check_revocation(walk: Walk, found: VerifiedEntry, consumed: ConsumedApproval, evidence: DecisionEvidence) -> None:
    """Check part 2.

    An accepted revocation that refers to an entry before the first use came first, because revoking takes the lock.
    """
    verification, at = consumed.verification, parse_timestamp(found.entry.at)
    decision, approval = evidence.decision, verification.evidence.approval
    if decision is None or approval is None or at is None:
        return
    need = DecisionNeed(
        target=found.entry.target,
        at=at,
        approval_id=approval.approval_id,
        commit=verification.evidence.commit,
        principal=verification.principal or "",
        version=found.entry.version,
    )
    seen = walk.numbers.get(decision.ledger_head, 0)
    if seen >= consumed.number or not verify_decision(evidence, DecisionKind.REVOKE, need, found.before).accepted:
        return
    detail = f"approval_revoked: approval {approval.approval_id} was revoked after entry {seen}, before it was used"
    raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)


def _check_settlements(walk: Walk, found: VerifiedEntry) -> None:
    """Check part 4."""
    if found.entry.settled and (found.entry.kind is not EntryKind.COUNTERSIGN or found.entry.changes):
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, "only an entry that changes nothing else may settle a debt")
    debts = {debt.approval_id: debt for debt in walk.state.debts}
    for settlement in found.entry.settled:
        debt = debts.pop(settlement.approval_id, None)
        if debt is None:
            detail = f"it settles a debt of {settlement.approval_id}, which is not open"
            raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)
        problem = settlement_problem(walk.reader, settlement, debt, AuditedPosition(found, walk.numbers, walk.state))
        if problem:
            raise IntegrityError(
                Code.LEDGER_DEBT_MISMATCH, f"countersignature {settlement.countersignature}: {problem}"
            )


def _check_debts(walk: Walk, found: VerifiedEntry) -> None:
    """Check part 5."""
    settled = {settlement.approval_id for settlement in found.entry.settled}
    left = [debt.approval_id for debt in walk.state.debts if debt.approval_id not in settled]
    applies = found.entry.kind in (EntryKind.APPLY, EntryKind.INTENT, EntryKind.SCOPE) and any(
        map(_is_applied, found.entry.changes)
    )
    emergency = any(walk.consumed[use.approval_id].verification.is_emergency for use in found.entry.approvals)
    if left and applies and not emergency:
        detail = f"it applies changes while the debt of {', '.join(left)} is open"
        raise IntegrityError(Code.LEDGER_DEBT_MISMATCH, detail)


# Revocations in an audit: recorded ones must be valid, and unrecorded ones are reported.
#
# 1. An entry of kind `revoke` records at least one revocation and changes nothing else. No other entry records one.
# 2. Each revocation passes the steps of a plan at that position, and from then on, the state records exactly those in
#    the entry.
# 3. Afterwards, a deleted branch is only a note, because the ledger keeps the revocation. A revocation that would count
#    but is not recorded is a warning, because deleting its branch would undo it.


def check_revocations(walk: Walk, found: VerifiedEntry) -> None:
    """Check rule 1, and rule 2 for the entry. Raises IntegrityError `ledger_entry_invalid`."""
    entry = found.entry
    if bool(entry.revoked) != (entry.kind is EntryKind.REVOKE) or (entry.revoked and entry.changes):
        detail = "only an entry that changes nothing else may record revocations"
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, detail)
    for revocation in entry.revoked:
        if problem := _problem(walk, found, revocation):
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"revocation {revocation.commit[:12]}: {problem}")


def check_revocation_records(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Check rule 2 for the state after an entry. Raises IntegrityError `ledger_state_mismatch`."""
    old, new = walk.state.approval_records, state.approval_records
    for revocation in found.entry.revoked:
        record = new.get(revocation.commit, {})
        if revocation.commit in old or record != revocation_record(revocation, str(record.get("consumed_at"))):
            detail = f"the state does not record revocation {revocation.commit[:12]} as the entry names it"
            raise IntegrityError(Code.LEDGER_STATE_MISMATCH, detail)


def _problem(walk: Walk, found: VerifiedEntry, revocation: RecordedRevocation) -> str:
    """Return why a recorded revocation does not count at its entry's position, or an empty string if it counts."""
    evidence = read_decision_evidence(walk.reader, "", revocation.commit, walk.numbers)
    at = parse_timestamp(found.entry.at)
    if evidence.decision is None or at is None:
        return evidence.problem or "it contains no decision"
    subject = evidence.decision.subject
    need = DecisionNeed(found.entry.target, at, revocation.approval_id, subject, revocation.approver or "")
    verified = verify_decision(evidence, DecisionKind.REVOKE, need, found.before)
    if not verified.accepted:
        return verified.problem
    return "" if verified.principal == revocation.principal else f"it is signed by {verified.principal}"


def revocation_notes(walk: Walk, branches: Collection[str]) -> Iterator[str]:
    """Check rule 3. `branches` are the existing branches' commits."""
    records, last = walk.state.approval_records, walk.previous
    for commit, record in sorted(records.items()):
        if "revokes" in record and commit not in branches:
            kept = f"the ledger still records it: {record['revokes']} stays revoked"
            yield f"the branch of revocation {commit[:12]} was deleted, and {kept}"
    at = None if last is None else parse_timestamp(last.entry.at)
    if last is None or at is None:
        return
    for approval_id, found in sorted(walk.revocations.items()):
        for evidence in found:
            decision = evidence.decision
            if decision is None or evidence.commit in records or approval_id in records:
                continue
            need = DecisionNeed(last.entry.target, at, approval_id, decision.subject, "")
            if verify_decision(evidence, DecisionKind.REVOKE, need, last.after).accepted:
                branch = evidence.ref.removeprefix("refs/heads/")
                yield (
                    f"warning: no entry records {branch}, which revokes {approval_id}: deleting that branch would undo it; "
                    "gitops bot sweep or gitops refresh records it"
                )


# Checks that an entry records every gate of the changes that it lists as applied (rules 1 to 6).
#
# 1. The gates are derived again from the rules of the kinds (`gitops.cluster.model.kinds`), as in a plan: from the
#    rules in force before the entry, and from the available information about its changes. Migration steps are planned
#    again from the schema texts that sources declare, gained access from the ledger's records before and after the
#    entry, and dropped replicas from the texts in its catalog. Broken contracts of queries come from the same texts, and
#    the clients behind them from the entry, because an audit can't read record objects.
# 2. A change must not be applied with fewer gates than these rules require. More are permitted, because the plan saw
#    the graphs. Gates that later releases add are not in earlier rules.
# 3. Entries before version 5 don't record gates. The tier stands for them, and a migration has the approvals of all its
#    gates. The first release did not have gates for migrations.
# 4. If a policy only lets actors copy a protected branch to where others can read it, this is a note for an entry
#    before version 4, because that release did not gate it.
# 5. A text that is in no source, such as one found in a graph, is a note. Then the recorded gates are trusted.
# 6. With `apply.on_drift: block` in the rules before an entry, it must not apply anything if drift recorded in the
#    state before it waits for an approval. An audit does not know about unrecorded drift.


def check_gates(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Apply the rules to one entry. `state` is the state after it.

    Raises IntegrityError `ledger_gates_missing`, `ledger_change_unapproved`, `strategy_record_invalid`.
    """
    applied = [each for each in found.entry.changes if _is_applied(each)]
    changes = [_described(walk, found, listed) for listed in applied]
    situation = replace(
        _situation(found),
        gapped=_gapped(walk, found, changes),
        widened=_widened(walk, found, state, changes),
        breaking=_breaking(walk, found, state, changes),
        hosts=_hosts(walk, found, changes),
    )
    for listed, change in zip(applied, changes, strict=True):
        gate = gate_of(change, situation)
        if gate is None:
            continue
        if found.entry.version >= WITH_GATES:
            if missing := [each for each in gate.met if each in situation.gates and each not in listed.gates]:
                has = f"gate {', '.join(listed.gates)}" if listed.gates else "no gate"
                detail = f"{listed.resource} meets gate {', '.join(missing)}: {gate.reason}; the entry records {has}"
                raise IntegrityError(Code.LEDGER_GATES_MISSING, detail)
        elif gate_of(change_of(listed), _situation(found)) is None:
            # The parts that the entry itself shows were already compared with its approvals.
            _check_tier(walk, found, listed, gate)
    _check_drift(walk, found, applied)


def _check_drift(walk: Walk, found: VerifiedEntry, applied: Sequence[EntryChange]) -> None:
    """Check rule 6. `walk.state` is the state before the entry."""
    if found.before.on_drift != "block" or found.entry.kind is not EntryKind.APPLY or not applied:
        return
    drifted = {each.graph or each for each in walk.state.drifted}
    for listed in found.entry.changes:
        if listed.reason == Reason.APPROVAL_REQUIRED and (listed.resource.graph or listed.resource) in drifted:
            detail = f"it applies changes while {listed.resource} is recorded as drifted and waits for an approval"
            raise IntegrityError(
                Code.LEDGER_DRIFT_OPEN, f"{detail}, although the rules in force set apply.on_drift: block"
            )


def _check_tier(walk: Walk, found: VerifiedEntry, listed: EntryChange, gate: Gate) -> None:
    """Check rule 3."""
    if listed.tier not in (gate.tier, Tier.IRREVERSIBLE):
        has = "no gate" if listed.tier is None else f"that of a {listed.tier} change"
        detail = f"{listed.resource}: {gate.reason}; the entry records {has}"
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)
    quorum = found.before.quorum(found.entry.target.environment)
    uses = (use for use in found.entry.approvals if use.resource == listed.resource)
    given = [walk.consumed[use.approval_id].verification for use in uses]
    if not select_quorum(given, quorum.needed(gate.met)):
        detail = f"{listed.operation} {listed.resource} has too few approvals: {asked(found, gate.met)}"
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)


def _described(walk: Walk, found: VerifiedEntry, listed: EntryChange) -> Change:
    """Return a change as an entry lists it, with the steps of its migration."""
    change, entry = change_of(listed), found.entry
    if change.address.kind is not Kind.SCHEMA or change.action is not Action.UPDATE or entry.version < WITH_ORIGINS:
        return change
    migration = _migration(walk, found, listed)
    # A source that is missing here is already reported as a note.
    if migration is None and entry.source is not None and walk.reader.resolve(entry.source.commit) is not None:
        walk.notes.append(
            f"entry {entry.number}: the schemas of the migration of {listed.resource} are missing from its source commits"
        )
    return replace(change, migration=migration)


def _migration(walk: Walk, found: VerifiedEntry, listed: EntryChange) -> MigrationPreview | None:
    """Return the steps between the two texts, or None if a text is unavailable or cannot be read by this release."""
    texts = [_text(walk, found, listed.resource.name, digest or "") for digest in (listed.before, listed.after)]
    # Importing the schema language is slow, and few entries change a schema.
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError

    try:
        accepted, desired = (compile_schema(text) for text in texts if text is not None)
        return MigrationPreview.between(accepted, desired)
    except (GitopsError, LanguageError, ValueError):
        return None


def _text(walk: Walk, found: VerifiedEntry, graph: str, digest: str) -> bytes | None:
    """Return a schema text declared by a source of this entry or of an earlier one.

    A run may complete the work of an earlier one.
    """
    reader, previous = walk.reader, None if walk.previous is None else walk.previous.commit.id
    texts = (
        recorded_schema(reader, head, graph, digest, lambda at, tree, _: walk.open_tree(at, tree))
        for head in (found.commit.id, previous)
    )
    return next((text for text in texts if text is not None), None)


def _widened(walk: Walk, found: VerifiedEntry, state: LedgerState, changes: Sequence[Change]) -> Mapping[Address, str]:
    """Return the changed policies that grant a permission gated by the rules before an entry, with these permissions."""
    policies = [change for change in changes if change.address.kind is Kind.POLICY]
    if not policies or not found.before.widening or walk.previous is None:
        return {}
    before = _source(walk.reader, walk.previous.commit.tree, walk.state)
    access = access_between(before, _source(walk.reader, found.commit.tree, state))
    if found.entry.version < RULES_OF_0_2_1:
        copies, others = (tuple(row for row in access.rows if row.copies is each) for each in (True, False))
        ungated = [change for change in policies if change.tier is None]
        for policy, words in widened_policies(ungated, replace(access, rows=copies), found.before.widening).items():
            walk.notes.append(f"entry {found.entry.number}: {policy} {words}, and the entry records no gate")
        access = replace(access, rows=others)
    return widened_policies(policies, access, found.before.widening)


def _breaking(walk: Walk, found: VerifiedEntry, state: LedgerState, changes: Sequence[Change]) -> Mapping[Address, str]:
    """Return the changes that break clients for which the rules before an entry ask, with the clients that it records."""
    quorum = found.before.quorum(found.entry.target.environment)
    if GateName.BREAKS_CLIENTS not in quorum.numbers or walk.previous is None or not changes:
        return {}
    from gitops.cluster.audit.callers import asked_for_clients, broken_by_changes

    trees, states = (walk.previous.commit.tree, found.commit.tree), (walk.state, state)
    breaks = broken_by_changes(walk.reader, trees, states, changes, lambda graph, of: _text(walk, found, graph, of))
    access = None
    if any(change.address.kind is Kind.POLICY for change in changes):
        access = access_between(*(_source(walk.reader, *side) for side in zip(trees, states, strict=True)))
    return asked_for_clients(changes, breaks, access, found.before)


def _gapped(walk: Walk, found: VerifiedEntry, changes: Iterable[Change]) -> frozenset[Address]:
    """Return the strategies among changes that drop a replica before the new one is created."""
    strategies = {
        change.address: change.after
        for change in changes
        if change.address.kind is Kind.STRATEGY and change.after is not None
    }
    if not strategies or GateName.LOSSY not in found.before.quorum(found.entry.target.environment).numbers:
        return frozenset()
    from gitops.cluster.model.compute import drops_first

    texts = {
        name: walk.reader.read(found.commit.tree, blob_key(name, after) or "") for name, after in strategies.items()
    }
    return frozenset(drops_first(Resource(name, strategies[name], data=text) for name, text in texts.items() if text))


def _hosts(walk: Walk, found: VerifiedEntry, changes: Sequence[Change]) -> Mapping[Address, HostDifference]:
    """Return what each change of a host or item changes, from the forms in the catalogs before and after an entry."""
    addresses = of_kind((change.address for change in changes), Kind.HOST)
    if not addresses:
        return {}
    forgotten = _situation(found).forgotten
    trees = (None if walk.previous is None else walk.previous.commit.tree, found.commit.tree)

    def form(address: Address, tree: str | None, digest: str | None) -> Connection | Item | None:
        key = None if digest is None or tree is None else blob_key(address, digest)
        with suppress(GitopsError, ValueError):
            content = None if key is None or tree is None else walk.reader.read(tree, key)
            return None if content is None else read_form(content, item=address.item is not None)
        return None

    differences = {}
    for change in changes:
        if change.address in addresses:
            before, after = (
                form(change.address, tree, digest)
                for tree, digest in zip(trees, (change.before, change.after), strict=True)
            )
            differences[change.address] = HostDifference(
                before,
                after,
                unknown=(before is None) != (change.before is None) or (after is None) != (change.after is None),
                forgotten=change.address.host in forgotten,
                gates_units=found.before.host_gate_commands,
            )
    return differences


def _source(reader: GitReader, tree: str, state: LedgerState) -> AccessSource:
    """Return the access source of a ledger's records, with the texts of its catalog."""

    def text(address: Address, digest: str) -> bytes | None:
        key = blob_key(address, digest)
        return None if key is None else reader.read(tree, key)

    return AccessSource(state.resources, text, str)
