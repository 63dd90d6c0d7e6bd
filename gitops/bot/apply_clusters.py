"""Applies: brings a cluster to the newest commit on its target branch, whichever commit the event is about.

1. Read the ledger position and the branch, and choose the next merge: see `gitops.cluster.changesets.queue`.
2. Find the change requests that its commits merged, and their authors. If the trust rules require the forge's own
   verdict, check it for each of these commits.
3. Import the cluster if it has no ledger. If its declared location differs from the recorded one, see
   `gitops.repository.apply`.
4. Apply. The first push is the entry with its intents: a rejected push ends the run before any side effect.
5. Set the status, write the comments, record the deployment, set the labels. The next run does what a dead one left
   undone: see `gitops.bot.landed`.
6. Repeat while merges wait: the branch may have moved, and another run may have ended because this one held the lock.
7. Re-plan the other open requests.

Events get lost, repeated and delayed. This doesn't matter, because the applied revision depends only on the ledger and
the branch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from gitops.bot.beside import MergesBeside
from gitops.bot.context import EventContext, comment_subject
from gitops.bot.drift import report_drift
from gitops.bot.landed import has_succeeded, newest_changesets, report_applied, report_landed, subjects_of, waiting_plan
from gitops.bot.plan_requests import plan_request, refresh_warnings, requests_of_cluster
from gitops.bot.report import (
    record_deployment,
    report_refusal,
    report_unanswered,
    retry_command,
)
from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.approvals.origins import KnownOrigins
from gitops.cluster.approvals.verify import UNKNOWN_AUTHORS
from gitops.cluster.changesets.queue import QueuedStep, WaitingCommit, next_step, whole_line
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.sources import trust_waits
from gitops.cluster.model.change import Reason
from gitops.cluster.model.changeset import BLOCKING, INTERRUPTED, Changeset, ChangesetSource, ChangesetState
from gitops.cluster.model.ledger import LockObservation
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome
from gitops.cluster.session.workspace import ChangesetFacts
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.forge.events import ReplanEvent
from gitops.forge.port import (
    APPLIED,
    ChangeRequest,
    DeploymentState,
    Push,
    ReviewDecision,
)
from gitops.git.port import Commit
from gitops.render.comment_inputs import CommentSubject
from gitops.render.words import count
from gitops.repository.apply import governed_apply, move_cluster
from gitops.repository.authors import MOST_ASKED, requests_merged_by
from gitops.repository.changes import commit_changes
from gitops.repository.cluster import LedgerPosition
from gitops.repository.results import LogLine, RunResult, diagnostics_of, result_of

_MOST_REPORTED = 50
_MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class _Applied:
    """Result of a step: the cluster's new location, and `refused` if planning was refused.

    The location is None if no further step may follow. `drifted` means that drift blocks it, or that it settled drift.
    """

    rule: ClusterRule | None
    refused: bool = False
    drifted: bool = False


def apply_cluster(
    context: EventContext,
    rule: ClusterRule,
    push: Push | None = None,
    notes: tuple[str, ...] = (),
    *,
    asked: bool = False,
    again: str | None = None,
) -> Iterator[LogLine]:
    """Apply all waiting merges of a cluster's branch, including merges that arrive during the run.

    If no merge is waiting, apply what remains unapplied.

    After an interrupt, no further merges are applied. `push` is the event's push; `notes` are lines for the comment
    about how this run was started. `asked` means that a person requested the run, so a merge with a failed changeset is
    retried. `again` is such a merge, which comes first.
    """
    with MergesBeside(context, rule) as beside:
        drifted = yield from _apply_waiting(context, rule, push, notes, beside, asked=asked, again=again)
    if drifted:
        # Report drift right away instead of waiting for the schedule, so that people can settle it or see that it is
        # settled.
        yield from report_drift(context, rule.name)


def _apply_waiting(
    context: EventContext,
    rule: ClusterRule,
    push: Push | None,
    notes: tuple[str, ...],
    beside: MergesBeside,
    *,
    asked: bool,
    again: str | None,
) -> Generator[LogLine, None, bool]:
    """Apply the merges that wait. Returns whether drift kept one of them waiting, or one settled drift."""
    tried: list[str] = []
    together = drifted = False
    for _ in range(_MOST_ROUNDS):
        if context.bot.cancel.requested:
            yield LogLine(f"apply of {rule.name}: interrupted before it began", RunResult.LOST)
            return drifted
        head = context.repository.head_of(rule.ref)
        if head is None:
            yield LogLine(f"apply of {rule.name}: branch {rule.branch} does not exist", RunResult.PROBLEMS)
            return drifted
        queue = read_queue(context, rule, head)
        interrupted = None if beside else interrupted_merge(context, rule)
        first = interrupted or (None if beside or tried else again)
        pushed = () if push is None else (push.new,)
        if first is not None:
            step: QueuedStep | None = None if first in tried else queue.up_to(first)
        else:
            step = next_merge(context, rule, queue, tried, pushed, together=together)
            if step is not None and not together:
                yield from _prepare(context, rule, beside, step.commit, tried, pushed)
        if step is None and not tried:
            step, failed = last_step(context, rule, queue)
            if failed is not None and not asked:
                yield _not_repeated(context, rule, failed)
                return drifted
        if step is None:
            return drifted
        if not tried:
            yield from report_landed(context, rule, interrupted)
        tried.append(step.commit)
        applied = yield from _apply_step(context, rule, step, push, notes, beside)
        drifted = drifted or applied.drifted
        # The branch is listed after the lock was released. If another run found the lock held, it saw its merge before
        # that, so this list contains the merge.
        beside.applied()
        context.refresh(rule, relist=False)
        if applied.rule is None:
            return drifted
        rule, together = applied.rule, together or applied.refused
        beside.rule = rule
        left = step.left
    if left:
        yield LogLine(
            f"apply of {rule.name}: {left} more commits are waiting; to continue: gitops bot apply", RunResult.LOST
        )
    return drifted


def _prepare(
    context: EventContext,
    rule: ClusterRule,
    beside: MergesBeside,
    commit: str,
    tried: Sequence[str],
    pushed: Iterable[str],
) -> Iterator[LogLine]:
    """Prepare the waiting merges from `commit` on, and those that arrive until that one is prepared.

    They are at most as many as this run can still apply.
    """

    def steps(head: str) -> Iterator[QueuedStep]:
        done, queue = list(tried), read_queue(context, rule, head)
        while len(done) < _MOST_ROUNDS:
            step = next_merge(context, rule, queue, done, pushed, together=False)
            if step is None:
                return
            yield step
            done.append(step.commit)

    while beside.enabled:
        head = context.repository.head_of(rule.ref)
        if head is not None:
            yield from beside.prepare(steps(head))
        if beside.is_ready(commit, context.bot.look_again):
            return
        context.refresh(rule)


def _not_repeated(context: EventContext, rule: ClusterRule, failed: Changeset) -> LogLine:
    """Explain what to do about a failed merge. Events don't retry it."""
    merge = failed.source.merge_commit or ""
    way = retry_command(context, rule, failed)
    text = (
        f"changeset {failed.key} of commit {merge[:12]} failed and is not retried automatically: merge a fix, or {way}"
    )
    return LogLine(f"apply of {rule.name}: {text}", RunResult.WAITS)


def plan_open_requests(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    """Re-plan a cluster's open requests after an apply, because it may have changed their effects.

    A server does this later, so that other events don't wait for it. These plans don't affect the result of the run.
    """
    if context.bot.cancel.requested:
        return
    requests = context.open_requests(rule.ref)[-_MOST_REPORTED:]
    if context.bot.replan_later is not None:
        if requests:
            context.bot.replan_later([ReplanEvent(request.number, rule.name) for request in requests])
            yield LogLine(f"{rule.name}: {count(len(requests), 'open change request')} will be planned again")
        return
    for request in requests_of_cluster(context, rule, requests):
        yield from _plan_again(context, rule, request)
    yield from refresh_warnings(context, rule.ref)


def plan_again(context: EventContext, event: ReplanEvent) -> Iterator[LogLine]:
    """Re-plan one request that an apply left for later, unless it is closed or its cluster is gone."""
    rule = next((rule for rule in context.clusters if rule.name == event.cluster), None)
    found = [] if rule is None else [r for r in context.open_requests(rule.ref) if r.number == event.number]
    if rule is not None:
        for request in requests_of_cluster(context, rule, found):
            yield from _plan_again(context, rule, request)
        yield from refresh_warnings(context, rule.ref)


def _plan_again(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> Iterator[LogLine]:
    for line in plan_request(context, request, cluster=rule.name, skip_unchanged=True):
        yield LogLine(line.text)


def retry_waiting(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    """Apply again if a merged change waits for an approval, or a debt waits for its countersignature."""
    view = context.repository.ledger(rule).view()
    head, position = context.repository.head_of(rule.ref), context.position(rule)
    if view.state is None or head is None:
        return
    new_rules = view.trust is not None and trust_waits(context.store, head, view.trust.digest)
    moves = context.repository.scope_waits(rule, position, context.config)
    # Don't read waiting changes from statuses, because a refresh resets statuses to the observed state.
    if not position.converged or view.state.debts or new_rules or moves:
        yield from apply_cluster(context, rule, asked=True)


def _apply_step(
    context: EventContext,
    rule: ClusterRule,
    step: QueuedStep,
    push: Push | None,
    notes: tuple[str, ...],
    beside: MergesBeside,
) -> Generator[LogLine, None, _Applied]:
    """Apply one commit of the branch and report it."""
    commit = step.commit
    subject = comment_subject(rule, 0, commit, commit)
    try:
        # Another run may have applied since the event was read, which changes the origins.
        context.refresh(rule)
        position = context.position(rule)
        applied = position.applied
        # Another cluster may have advanced the branch. Its requests get no report about this cluster.
        merged = requests_merged_by(context.forge, rule, step.covers[-MOST_ASKED:])
        if merged.pending:
            yield LogLine(f"apply of {rule.name}: no change request gets a report: {merged.pending}")
        earlier, requests = _requests_of_step(context, rule, position, step, merged.requests)
        reported = requests[-_MOST_REPORTED:]
        subject = comment_subject(rule, reported[-1].number if reported else 0, commit, commit)
        if missing := _missing_verdicts(context, rule, position, commit):
            yield from _report_refused(context, subject, "apply", missing)
            return _Applied(rule, refused=True)
        if not applied:
            started = import_cluster(context.workspace_at(rule, commit, in_place=True))
            if not started.ok:
                held = yield from _report_refused(context, subject, "import", started.diagnostics)
                return _Applied(None if held else rule, refused=True)
            yield LogLine(f"import of {rule.name}: ledger started")
            context.refresh(rule, relist=False)
            position = context.position(rule)
        # Ask the forge before taking the lock. Until the cluster converges once, all merged requests count.
        asked = merged if position.begun else None
        known = context.known_origins(rule, head=commit, merged=asked, announced=push)
        facts = _facts(context, rule, step, subject.request)
        before = context.branch_plan(rule, applied) if applied and applied != commit else None
        outcome, left, after = yield from _carry_out(context, rule, commit, position, known, facts, beside)
    except GitopsError as error:
        held = yield from _report_refused(context, subject, "apply", diagnostics_of(error))
        return _Applied(None if held else rule, refused=True)
    if (busy := _lock_held(outcome.diagnostics)) is not None:
        yield from _report_busy(context, rule, busy)
        return _Applied(None)
    if not step.covers and _did_nothing(outcome) and (why := _nothing_to_report(context, rule, step, requests)):
        yield LogLine(f"apply of {rule.name}: commit {commit[:12]} {why}")
        return _Applied(after)
    more = len(requests) - len(reported)
    found = [f"{more} more change requests were merged at once and get no report"] if more else []
    if outcome.ok and outcome.converged and earlier:
        reported = (*earlier, *reported)
        found += [f"request {r.number} waited, and is applied with commit {commit[:12]}" for r in earlier]
    notes = (*notes, *beside.notes(outcome))
    yield from report_applied(
        context, subject, outcome, reported, position.debts, left=left, before=before, notes=notes, found=tuple(found)
    )
    lost = result_of(outcome.diagnostics) is RunResult.LOST
    return _Applied(None if lost else after, drifted=_concerns_drift(position, outcome))


def _facts(context: EventContext, rule: ClusterRule, step: QueuedStep, request: int) -> ChangesetFacts:
    """Return the facts about a step's changeset. `request` is 0 for none."""
    # The newest entry can already contain the merge, if an earlier run of it failed.
    previous = applied_last(context, rule)
    source = ChangesetSource(rule.branch, step.commit, previous, request or None, context.bot.actor)
    return ChangesetFacts(source, covers=step.covers)


def _requests_of_step(
    context: EventContext,
    rule: ClusterRule,
    position: LedgerPosition,
    step: QueuedStep,
    merged: Sequence[ChangeRequest],
) -> tuple[tuple[ChangeRequest, ...], tuple[ChangeRequest, ...]]:
    """Return the requests of earlier commits that still wait, and the requests to which a step is reported."""
    waiting, commit = _waiting_requests(context, rule, position), step.commit
    # Requests of earlier commits already have a report. Replace it only when none of their changes waits any longer.
    own = tuple(r for r in merged if r.merged_as == commit or r.merged_as not in step.tried)
    others = tuple(r for r in {r.number: r for r in (*waiting, *merged)}.values() if r not in own)
    earlier = others if own or position.applied != commit else tuple(r for r in others if r.merged_as != commit)
    return earlier, (*(r for r in others if r not in earlier), *own)


def _waiting_requests(context: EventContext, rule: ClusterRule, position: LedgerPosition) -> tuple[ChangeRequest, ...]:
    """Return the merged requests with unapplied changes: that of the newest merge, and those whose changes are waiting.

    A request that is labelled as applied keeps its report, because the waiting changes belong to an earlier one.
    """
    if position.applied is None or position.converged:
        return ()
    commits = tuple(dict.fromkeys((position.applied, *(each.commit for each in position.origins))))
    found = requests_merged_by(context.forge, rule, commits[:MOST_ASKED])
    return tuple(request for request in found.requests if APPLIED not in request.labels)


def _carry_out(
    context: EventContext,
    rule: ClusterRule,
    commit: str,
    position: LedgerPosition,
    known: KnownOrigins,
    facts: ChangesetFacts,
    beside: MergesBeside,
) -> Generator[LogLine, None, tuple[ApplyOutcome, PlanOutcome | None, ClusterRule | None]]:
    """Apply a commit, after changing the cluster's location if needed.

    Returns the outcome, the plan of the changes that still wait for approval, and the cluster's new location. Raises
    GitopsError `pushers_pending`, and the errors of `workspace_at`.
    """
    declared = partial(context.workspace_at, rule, commit, known)
    moved = move_cluster(context.repository, rule, position, context.config, declared)
    if moved.outcome is not None:
        for detail in moved.outcome.changes[0].details:
            yield LogLine(f"apply of {rule.name}: {detail}")
        context.refresh(rule)
    waits = False

    def apply_rest(here: ClusterRule) -> ApplyOutcome:
        nonlocal commit, waits
        commit = commit if moved.outcome is None else context.repository.head_of(here.ref) or commit
        workspace = beside.at(context.workspace_at(here, commit, known, in_place=True))
        outcome = apply(replace(workspace, atomic=context.config.apply.atomicity == "atomic", changeset=facts))
        for each in outcome.diagnostics:
            if each.code == Code.PUSHERS_PENDING:
                raise GitopsError(each.code, each.message, path=each.path)
        waits = outcome.ok and any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
        return outcome

    outcome = governed_apply(moved, apply_rest)
    if moved.rule is None or not waits:
        return outcome, None, moved.rule
    left = waiting_plan(context, moved.rule, commit, known)
    unknown = (each for each in left.diagnostics if each.code in UNKNOWN_AUTHORS)
    said = {(each.code, each.path) for each in outcome.diagnostics}
    more = (each for each in unknown if (each.code, each.path) not in said)
    return replace(outcome, diagnostics=(*outcome.diagnostics, *more)), left, moved.rule


def report_lock(context: EventContext, rule: ClusterRule, lock: LockObservation) -> Iterator[LogLine]:
    """Report a held lock on the merged requests that wait for the run that holds it. Raises GitopsError."""
    head = context.repository.head_of(rule.ref)
    if head is None:
        return
    queue = read_queue(context, rule, head)
    first = interrupted_merge(context, rule)
    step = queue.up_to(first) if first is not None else next_merge(context, rule, queue, (), (), together=False)
    step = step or last_step(context, rule, queue)[0]
    merged = requests_merged_by(context.forge, rule, step.covers[-MOST_ASKED:])
    _, requests = _requests_of_step(context, rule, context.position(rule), step, merged.requests)
    subject = comment_subject(rule, 0, step.commit, step.commit)
    yield from report_unanswered(context, subjects_of(subject, requests[-_MOST_REPORTED:]), rule, lock)


def _report_busy(context: EventContext, rule: ClusterRule, busy: LogLine) -> Iterator[LogLine]:
    """Log that the lock is held. A server also reports it on the merged requests: a killed run has probably left it."""
    yield busy
    if not context.bot.serves:
        return
    ledger = context.repository.ledger(rule)
    lock = ledger.observe_lock()
    yield from report_lock(context, rule, lock) if lock.held else ()
    if ledger.observe_lock().key != lock.key:
        # Its run ended meanwhile, and its own report may be overwritten.
        yield LogLine(f"apply of {rule.name}: the run that held the lock has ended", RunResult.LOST)


def _concerns_drift(position: LedgerPosition, outcome: ApplyOutcome) -> bool:
    """Return whether drift blocked an apply at this position, or the apply settled drift."""
    settled = position.drifted and outcome.state is not None and not outcome.state.has_drift
    return settled or any(d.code == Code.DRIFT_OPEN for d in outcome.diagnostics)


def _nothing_to_report(
    context: EventContext, rule: ClusterRule, step: QueuedStep, requests: Sequence[ChangeRequest]
) -> str:
    """Return why a step that did nothing gets no report, or an empty string if its commit or its requests need one."""
    if step.commit != context.position(rule).applied:
        return "does not touch the cluster"
    # The status has what was applied, which this run would replace with nothing.
    return "is already applied" if not requests and has_succeeded(context, rule, step.commit) else ""


def _did_nothing(outcome: ApplyOutcome) -> bool:
    return outcome.ok and outcome.converged and not (outcome.changes or outcome.state_written)


def _missing_verdicts(
    context: EventContext, rule: ClusterRule, position: LedgerPosition, head: str
) -> tuple[Diagnostic, ...]:
    """Explain why commits that change the cluster must not be applied, if the rules require the forge's own verdict.

    These are the unapplied commits of the branch up to `head`. Before the first apply, only that one counts.
    """
    if not position.needs_forge_verdict:
        return ()
    store, applied = context.store, position.applied
    commits = store.commits_between(applied, head, first_parent=True) if applied else (store.commit(head),)
    return tuple(each for commit in commits for each in _missing_verdict(context, rule, commit))


def _missing_verdict(context: EventContext, rule: ClusterRule, commit: Commit) -> tuple[Diagnostic, ...]:
    if not commit_changes(context.repository, rule, commit):
        return ()
    # A request to another branch was reviewed under the rules of that branch.
    merged = requests_merged_by(context.forge, rule, [commit.id])
    if any(context.forge.review_decision(r.number) is ReviewDecision.APPROVED for r in merged.requests):
        return ()
    origin = ", ".join(f"request {r.number}" for r in merged.requests) or "no request"
    detail = f"commit {commit.id[:12]} came with {origin}, which the forge does not report as approved"
    if why := merged.pending or merged.unsaid.get(commit.id):
        detail = f"which request commit {commit.id[:12]} came with is not known: {why}"
    return diagnostics_of(GitopsError(Code.FORGE_VERDICT_MISSING, detail, path=rule.name))


def _report_refused(
    context: EventContext, subject: CommentSubject, command: str, problems: tuple[Diagnostic, ...]
) -> Generator[LogLine, None, bool]:
    """Report a run that could not start. Returns whether the reason is another active run, which is not a failure."""
    held = _lock_held(problems)
    if held is not None:
        yield held
        return True
    yield from report_refusal(context, subject, command, problems)
    text = problems[0].code if problems else ""
    yield from record_deployment(context, subject, DeploymentState.FAILURE, text)
    return False


def _lock_held(problems: Sequence[Diagnostic]) -> LogLine | None:
    """Return the line to log if the only error is a held lock, because the run that holds it applies up to the newest commit."""
    errors = [d for d in problems if d.severity == "error"]
    if [d.code for d in errors] != [Code.STATE_LOCK_HELD]:
        return None
    return LogLine(f"already running: {errors[0].message}", RunResult.DONE)


# -- the next merge ----------------------------------------------------------------------------------------------------
#
# Data that a bot run reads to find the merge to apply next. `cluster.changesets.queue` decides.


@dataclass(frozen=True, slots=True)
class Queue:
    """The unapplied commits of a branch up to its `head`, oldest first.

    Commits up to one in `tried` were already attempted.
    """

    line: tuple[WaitingCommit, ...]
    tried: frozenset[str]
    head: str
    applied: str | None

    def up_to(self, merge: str) -> QueuedStep:
        """Return the step that applies a merge and all earlier ones, even if that merge was tried before."""
        ids = [each.id for each in self.line]
        return whole_line(self.line[: ids.index(merge) + 1] if merge in ids else (), merge)


def read_queue(context: EventContext, rule: ClusterRule, head: str) -> Queue:
    """Return a cluster branch's unapplied work, given its newest commit `head`. Raises GitopsError."""
    store, applied = context.store, applied_last(context, rule)
    if applied is None:
        return Queue((WaitingCommit(head, touches=True),), frozenset(), head, None)
    commits = reversed(store.commits_between(applied, head, first_parent=True))
    line = tuple(WaitingCommit(each.id, commit_changes(context.repository, rule, each)) for each in commits)
    covered = context.repository.ledger(rule).changesets().index.covered
    return Queue(line, frozenset(filter(None, [covered])), head, applied)


def applied_last(context: EventContext, rule: ClusterRule) -> str | None:
    """Return the newest applied merge. Raises GitopsError.

    The ledger records the merge of its newest intents, which are announced before their result is known. If all
    changesets of a merge failed, the merge is not applied, and the first changeset records the previously applied
    merge.
    """
    position, ledger = context.position(rule), context.repository.ledger(rule)
    applied = position.applied
    while applied is not None and not position.converged:
        records = [each for each in map(ledger.changeset, ledger.changeset_of(applied)) if each is not None]
        first = next((each for each in records if each.source.merge_commit == applied and each.attempt == 1), None)
        before = None if first is None else first.source.previous_commit
        failed = all(each.atomic and each.state is ChangesetState.FAILED for each in records)
        if not failed or before in (None, applied) or context.store.resolve(before) is None:
            break
        applied = before
    return applied


def next_merge(
    context: EventContext,
    rule: ClusterRule,
    queue: Queue,
    tried: Iterable[str],
    pushed: Iterable[str],
    *,
    together: bool,
) -> QueuedStep | None:
    """Return the next step, or None if no waiting commit touches the cluster. Raises GitopsError.

    `tried` is the newest merge that this run has tried; `pushed` are the newest commits of known pushes. With
    `together`, all waiting merges form one step.
    """
    applied, store = queue.applied, context.store
    # If a branch does not continue the applied commit, or declares the cluster elsewhere, all of it is one step.
    together = together or context.config.apply.queue == "coalesce" or applied is None
    together = together or len(queue.line) == 1 or not store.is_ancestor(applied or "", queue.head)
    together = together or context.repository.scope_waits(rule, context.position(rule), context.config)
    ends = frozenset(pushed)

    def ends_merge(commit: str) -> bool:
        if commit in ends:
            return True
        merged = requests_merged_by(context.forge, rule, [commit])
        return any(commit in (each.merged_as, each.head) for each in merged.requests)

    return next_step(
        queue.line,
        queue.tried.union(tried),
        coalesce=together,
        ends_merge=ends_merge,
        differs=cache(lambda commit: context.differs(rule, applied or "", commit)),
    )


def last_step(context: EventContext, rule: ClusterRule, queue: Queue) -> tuple[QueuedStep, Changeset | None]:
    """Return the step for a run without new merges. It includes its merge's atomic changeset if that failed.

    Raises GitopsError.

    An interrupted run does not count as a failure of the merge, so its changeset is not returned.
    """
    step = whole_line(queue.line, queue.head)
    found = newest_changesets(context, rule, step.covers[-1]) if step.covers else ()
    failed = (each for each in found if each.atomic and each.state is ChangesetState.FAILED)
    return step, next((each for each in failed if each.error != INTERRUPTED), None)


def interrupted_merge(context: EventContext, rule: ClusterRule) -> str | None:
    """Return the merge of an atomic changeset that an interrupted run left open.

    The run continues with it before any later one.
    """
    for record in context.repository.ledger(rule).changesets().open:
        merge = record.source.merge_commit
        if (
            record.atomic
            and record.state in BLOCKING
            and merge is not None
            and context.store.resolve(merge) is not None
        ):
            return merge
    return None
