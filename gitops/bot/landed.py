"""Reports on merges that an apply has landed: by the run itself, or from the ledger if that run died first.

A run reports after its last write to the ledger. If it dies in between, only the ledger knows what it did, and the queue
goes on with the next merge. So before a run applies a merge, and in each sweep, it looks whether the newest merged requests
are reported, and reports those that are not. The comment of a request is written last, and says what it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gitops.bot.context import EventContext, comment_subject, left_before
from gitops.bot.report import (
    record_deployment,
    report_apply,
    set_labels,
    status_context,
    take_out,
    with_unknown_authors,
)
from gitops.cluster.approvals.origins import KnownOrigins
from gitops.cluster.approvals.verify import UNKNOWN_AUTHORS
from gitops.cluster.audit.trail import change_of
from gitops.cluster.changesets.stream import newest_attempt
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Change, Disposition, Reason
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.cluster.model.ledger import Debt, EntryKind, LedgerEntry
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome, StateObservations
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.plan import plan
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    APPLIED,
    APPLY_WAITS,
    NEEDS_APPROVAL,
    PLAN_FAILED,
    ChangeRequest,
    CheckState,
    DeploymentState,
)
from gitops.render.changesets import changeset_outcome
from gitops.render.comment import marker
from gitops.render.comment_inputs import CommentSubject
from gitops.render.markdown import hidden
from gitops.repository.authors import MOST_ASKED, requests_merged_by
from gitops.repository.results import LogLine, diagnostic_lines

_MOST_LOOKED_AT = 20
_MOST_UNREPORTED = 10


def newest_changesets(context: EventContext, rule: ClusterRule, commit: str) -> tuple[Changeset, ...]:
    """Return the changesets from the newest attempt to apply a merge. Raises GitopsError."""
    ledger = context.repository.ledger(rule)
    return newest_attempt(filter(None, map(ledger.changeset, ledger.changeset_of(commit))))


def report_applied(
    context: EventContext,
    subject: CommentSubject,
    outcome: ApplyOutcome,
    requests: Sequence[ChangeRequest],
    debts_before: tuple[Debt, ...],
    *,
    left: PlanOutcome | None,
    before: Plan | None,
    notes: tuple[str, ...],
    found: tuple[str, ...],
) -> Iterator[LogLine]:
    """Report an apply's result to the merged `requests`, with the plan `left` if changes wait for approvals.

    `before` is the plan of the changes that were already waiting, `notes` describe how the apply was started, and
    `found` are its observations.
    """
    done = outcome.ok and outcome.converged
    subjects = subjects_of(subject, requests)
    owed = () if outcome.state is None else outcome.state.debts
    added = tuple(debt for debt in owed if debt not in debts_before)
    waited = left_before(None if left is None else left.plan, before)
    unusual = [changeset_outcome(r) for r in outcome.changesets if r.state is not ChangesetState.FINALIZED]
    for note in (*found, *unusual):
        yield LogLine(f"apply of {subject.cluster}: {note}")
    gates = () if left is None or left.plan is None else left.plan.approvals_required
    vain = {each.path for each in outcome.diagnostics if each.code in UNKNOWN_AUTHORS}
    for need in gates:
        if not (need.satisfied or need.resource in vain):
            command = f"gitops approve {need.resource} --cluster {subject.cluster}"
            yield LogLine(f"apply of {subject.cluster}: waits for an approval, in a clone: {command}")
    # A request can affect several clusters and counts as applied once all of them are. Changes that were already
    # waiting are not its own.
    own_done = done or (left is not None and left.plan is not None and {c.address for c in left.plan.changes} == waited)
    everywhere = own_done and not _fails_elsewhere(context, subject)
    # Record only the end, because at the start it is not known whether this run will get the lock.
    yield from record_deployment(context, subject, DeploymentState.SUCCESS if done else DeploymentState.FAILURE)
    labels = {APPLIED: everywhere, APPLY_WAITS: not everywhere, NEEDS_APPROVAL: False, PLAN_FAILED: False}
    for request in requests:
        yield from set_labels(context, request.number, request.labels, labels)
    # The last effect: a request with this comment has its whole report.
    yield from report_apply(context, subjects, outcome, left=left, earlier=waited, debts=added, notes=(*notes, *found))
    yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)


def subjects_of(subject: CommentSubject, requests: Sequence[ChangeRequest]) -> list[CommentSubject]:
    """Return the subject of each request's report, or the subject itself without a request."""
    return [replace(subject, request=r.number, page=r.url) for r in requests] or [subject]


def _fails_elsewhere(context: EventContext, subject: CommentSubject) -> bool:
    """Return whether applying the same commit to a different cluster failed or is waiting."""
    if not (context.clusters[1:] and subject.request):
        return False
    own, bad = status_context("apply", subject.cluster), (CheckState.FAILURE, CheckState.ERROR)
    try:
        found = context.forge.statuses(subject.head)
    except GitopsError:
        return False
    return any(
        each.context.startswith(status_context("apply", "")) and each.context != own and each.state in bad
        for each in found
    )


def waiting_plan(
    context: EventContext, rule: ClusterRule, commit: str, known: KnownOrigins | None = None
) -> PlanOutcome:
    """Return the plan of the changes that still wait after an apply of a commit. Raises GitopsError.

    It differs from the partly applied plan. People must approve this one.
    """
    workspace = context.workspace_at(rule, commit, known)
    return with_unknown_authors(workspace, plan(workspace), lambda a: take_out(context.store, rule.ref, commit, a))


def has_succeeded(context: EventContext, rule: ClusterRule, commit: str) -> bool:
    """Return whether the status of a commit says that its apply has succeeded. Raises GitopsError."""
    name = status_context("apply", rule.name)
    return any(e.state is CheckState.SUCCESS for e in context.forge.statuses(commit) if e.context == name)


# -- what an interrupted run did not report ----------------------------------------------------------------------------


def report_landed(context: EventContext, rule: ClusterRule, interrupted: str | None) -> Iterator[LogLine]:
    """Report the newest merged requests whose runs died before they reported them, oldest first.

    `interrupted` is the merge of an open changeset, which the run that continues it reports. While another run holds the
    lock, this does nothing. What those runs would have ended with is not the result of this one, and an error here, such as
    a forge that does not answer, keeps nothing from being applied.
    """
    try:
        if context.position(rule).applied is None or context.repository.ledger(rule).observe_lock().held:
            return
        for landed in reversed(_unreported(context, rule, interrupted)):
            for line in landed.report():
                yield LogLine(line.text)
    except GitopsError as error:
        yield LogLine(
            f"apply of {rule.name}: whether earlier merges are reported is not known: {error.code}: {error.detail}"
        )


def _unreported(context: EventContext, rule: ClusterRule, interrupted: str | None) -> list[_Landing]:
    """Return the newest merged requests without a report, the newest first. Raises GitopsError."""
    found: list[_Landing] = []
    for commit, entries in _landings(context, rule):
        landed = _Landing(context, rule, commit, entries)
        if landed.request is None:
            continue
        if commit == interrupted or landed.is_reported:
            break
        found.append(landed)
        if len(found) == _MOST_UNREPORTED:
            break
    return found


def _landings(context: EventContext, rule: ClusterRule) -> Iterator[tuple[str, list[tuple[str, LedgerEntry]]]]:
    """Yield each landed merge with its entries and their commits, the newest first, as far back as a run looks."""
    at, store = context.position(rule).head, context.store
    merge, found = "", list[tuple[str, LedgerEntry]]()
    for _ in range(_MOST_LOOKED_AT):
        if at is None:
            break
        commit = store.commit(at)
        entry = read_entry(store.read(commit.tree, ENTRY) or b"")
        if entry.kind is EntryKind.APPLY and entry.source is not None:
            if found and merge != entry.source.commit:
                yield merge, found
                found = []
            merge = entry.source.commit
            found.append((at, entry))
        at = next(iter(commit.parents), None)
    if found:
        yield merge, found


class _Landing:
    """One landed merge, as its entries record it, newest first."""

    def __init__(
        self, context: EventContext, rule: ClusterRule, commit: str, entries: Sequence[tuple[str, LedgerEntry]]
    ) -> None:
        self._context, self._rule, self._entries, self.commit = context, rule, entries, commit
        self._records = newest_changesets(context, rule, commit)
        self.request = self._newest_request() if any(entry.changes for _, entry in entries) else None
        """The number of its newest request, if it has one and a report about it has a comment."""

    @property
    def is_reported(self) -> bool:
        """Whether the comment of its newest request, which is written last, is about an apply. Raises GitopsError."""
        first = hidden(marker(self._rule.name))
        bodies = (each.body.splitlines() for each in self._context.forge.comments(self.request or 0) if each.marker)
        return all(
            lines[1].startswith("<!-- gitops:apply ") for lines in bodies if lines[0] == first and len(lines) > 1
        )

    def _newest_request(self) -> int | None:
        if self._records:
            return next(filter(None, (each.source.pull_request for each in reversed(self._records))), None)
        # What waits as a whole has no changeset, which would name the request.
        merged = self._merged()
        return merged[-1].number if merged else None

    def _merged(self) -> tuple[ChangeRequest, ...]:
        covers = dict.fromkeys((*(c for each in self._records for c in each.commits), self.commit))
        return requests_merged_by(self._context.forge, self._rule, list(covers)[-MOST_ASKED:]).requests

    def report(self) -> Iterator[LogLine]:
        """Report the merge again to its requests."""
        context, rule = self._context, self._rule
        number = self._entries[0][1].number
        yield LogLine(
            f"apply of {rule.name}: commit {self.commit[:12]} has no report, although entry {number} applied it"
        )
        outcome, debts = self._outcome()
        waits = any(each.reason is Reason.APPROVAL_REQUIRED for each in outcome.changes)
        newest = context.position(rule).applied == self.commit
        left = waiting_plan(context, rule, self.commit) if waits and newest else None
        requests = self._merged()
        subject = comment_subject(rule, requests[-1].number if requests else 0, self.commit, self.commit)
        note = f"reported from ledger entry {number}, because the run that applied it ended before it reported"
        known = tuple(debt for debt in context.position(rule).debts if debt not in debts)
        yield from report_applied(
            context, subject, outcome, requests, known, left=left, before=None, notes=(note,), found=()
        )

    def _outcome(self) -> tuple[ApplyOutcome, tuple[Debt, ...]]:
        """Return the outcome of the apply as the ledger records it, and the debts that it added.

        What the run found on its way, such as warnings, is not recorded.
        """
        context, rule = self._context, self._rule
        view = context.repository.ledger(rule).view()
        commit, newest = self._entries[0]
        changes: dict[Address, Change] = {}
        used: dict[Address, tuple[Approval, ...]] = {}
        for _, entry in reversed(self._entries):
            for listed in entry.changes:
                if (known := changes.get(listed.resource)) is None or known.disposition is not Disposition.APPLIED:
                    reason = None if listed.reason is None else Reason(listed.reason)
                    found = replace(change_of(listed), disposition=Disposition(listed.disposition), reason=reason)
                    changes[listed.resource] = found
            for use in entry.approvals:
                made = _approval(use.approval_id, changes.get(use.resource), use.principal, entry)
                used[use.resource] = (*used.get(use.resource, ()), *([made] if made else []))
        stays = (Disposition.APPLIED, Disposition.DERIVED)
        whole = all(each.disposition in stays for each in changes.values())
        current = context.position(rule)
        outcome = ApplyOutcome(
            config_dir=rule.path,
            observations=StateObservations(state_found=True, state_revision=newest.state_revision),
            actor=newest.actor,
            config_digest=newest.config_digest,
            changes=tuple(changes[address] for address in sorted(changes)),
            converged=whole and (current.applied != self.commit or current.converged),
            state_written=True,
            state=view.state,
            plan_digest=newest.plan_digest,
            entry_id=commit,
            approvals_used=used,
            changesets=self._records,
        )
        opened = {debt.approval_id for _, entry in self._entries for debt in entry.debts}
        return outcome, tuple(debt for debt in current.debts if debt.approval_id in opened)


def _approval(approval_id: str, change: Change | None, principal: str, entry: LedgerEntry) -> Approval | None:
    """Return an approval that an entry consumed, as far as a report shows it."""
    if change is None:
        return None
    return Approval(
        approval_id,
        change.address,
        change.action,
        "",
        entry.config_digest or "",
        change.before,
        change.after,
        principal,
        entry.at,
    )
