"""The sweep: applies merges that no run applied, then plans requests that no run planned, without an event about them.

After a merge with `[skip ci]`, a cancelled run or a lost webhook, a branch is ahead of its ledger, or a head lacks a
plan status. After an interrupted hook, in a repository that is its own forge, a branch lacks a request. The sweep finds
all of these. It never breaks a lock, because a crashed holder cannot be distinguished from a slow one. Instead, it
shows the command that removes the lock, also on the merged requests that the holder has not answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops.bot.apply_clusters import apply_cluster, interrupted_merge, plan_open_requests, report_lock
from gitops.bot.context import EventContext
from gitops.bot.landed import report_landed
from gitops.bot.plan_requests import plan_request, requests_of_cluster
from gitops.bot.report import status_context, unlock_command
from gitops.bot.request_keeper import RequestKeeper, catch_up
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import LockObservation
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.session import RevocationContext, record_under_lock
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.render.words import count
from gitops.repository.changes import trees_differ
from gitops.repository.kept_plans import kept_plan
from gitops.repository.results import LogLine, RunResult, diagnostic_lines, error_line

_FOUND_BY_SWEEP = "found by the sweep: no run applied this merge"
_WAITING = "a merged change is not applied yet"
_MOST_REQUESTS = 20


def sweep(context: EventContext, cluster: str | None = None) -> Iterator[LogLine]:
    """Sweep all clusters, or only `cluster`. A problem in one cluster does not stop the others."""
    rules = [rule for rule in context.clusters if cluster in (None, rule.name)]
    if isinstance(context.forge, RequestKeeper):
        try:
            yield from catch_up(context, context.forge)
        except GitopsError as error:
            yield error_line("change requests", error)
    for rule in rules:
        try:
            yield from sweep_cluster(context, rule, _FOUND_BY_SWEEP)
        except GitopsError as error:
            yield error_line(rule.name, error)
    try:
        yield from _plan_missed(context, rules, cluster)
    except GitopsError as error:
        yield error_line("open requests", error)


def sweep_cluster(context: EventContext, rule: ClusterRule, note: str) -> Iterator[LogLine]:
    """Apply what waits in a cluster, or report the lock that keeps it waiting. `note` is a line for the comment.

    Raises GitopsError.
    """
    ledger = context.repository.ledger(rule)
    lock = ledger.observe_lock()
    if not lock.held:
        yield from take_in_revocations(context, rule)
        yield from report_landed(context, rule, interrupted_merge(context, rule))
    head = context.repository.head_of(rule.ref)
    reason = None if head is None else _missed(context, rule, head)
    if lock.held:
        yield _lock_line(context, rule, lock)
        if reason is None:
            return
        yield from report_lock(context, rule, lock)
        if ledger.observe_lock().key == lock.key:
            return
        # The run ended meanwhile. Its report may be overwritten, so repeat it.
    elif head is None or reason is None:
        yield LogLine(f"{rule.name}: nothing to do")
        return
    elif reason == _WAITING:
        outcome = plan(context.workspace_at(rule, head))
        changes = None if outcome.plan is None else outcome.plan.changes
        # An empty apply would only repeat the last report. Without a plan, an apply reports the reason.
        if changes is not None and not any(c.disposition is Disposition.APPLIED for c in changes):
            yield LogLine(f"{rule.name}: {reason}, and waits for a person", RunResult.WAITS)
            yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)
            return
    yield LogLine(f"{rule.name}: {reason}")
    yield from apply_cluster(context, rule, notes=(note,))
    yield from plan_open_requests(context, rule)


def _missed(context: EventContext, rule: ClusterRule, head: str) -> str | None:
    """Return the reason why a cluster needs an apply of its branch's `head`, or None if it does not need one."""
    store, position = context.store, context.position(rule)
    if position.applied is None:
        return "the cluster has no ledger yet"
    context.repository.fetch_commits(position.applied)
    if trees_differ(context.repository, rule, store.commit(head).tree, store.commit(position.applied).tree):
        return f"branch {rule.branch} is ahead of the ledger at {head[:12]}"
    if context.repository.ledger(rule).intents().intents:
        return "an operation was interrupted"
    if position.converged and not context.repository.scope_waits(rule, position, context.config):
        return None
    return _WAITING


def _lock_line(context: EventContext, rule: ClusterRule, lock: LockObservation) -> LogLine:
    """Return a line about a lock: the operation that holds it, since when, and the command that removes it."""
    info, command = lock.info, unlock_command(context, rule, lock)
    if info is None:
        detail = f"locked, and the lock cannot be read: {lock.detail}; if no run is active: {command}"
        return LogLine(f"{rule.name}: {detail}", RunResult.PROBLEMS)
    since = parse_timestamp(info.created_at)
    now = context.repository.clock.now()
    age = "an unknown time" if since is None else f"{max(0, int((now - since).total_seconds()))} s"
    return LogLine(f"{rule.name}: {info.operation} has held the lock for {age}; if its run is over: {command}")


def _plan_missed(context: EventContext, rules: Sequence[ClusterRule], cluster: str | None) -> Iterator[LogLine]:
    """Plan the open requests whose heads have no plan status, or whose comment the forge rejected.

    One run queries the forge about only a few heads, first those without a stored plan, then the oldest.
    """
    requests = context.open_requests()
    concerned: dict[int, list[ClusterRule]] = {}
    for rule in rules:
        for request in requests_of_cluster(context, rule, requests):
            concerned.setdefault(request.number, []).append(rule)

    kept = {
        request.number: [kept_plan(context.repository, rule.name, request.number) for rule in concerned[request.number]]
        for request in requests
        if request.number in concerned
    }

    def order(request: ChangeRequest) -> tuple[bool, int]:
        known = all(r is not None and r.head == request.head and r.shown for r in kept[request.number])
        return known, request.number

    candidates = sorted((request for request in requests if request.number in concerned), key=order)
    for request in candidates[:_MOST_REQUESTS]:
        if any(record is not None and not record.shown for record in kept[request.number]):
            yield LogLine(f"request {request.number}: the forge did not accept its comment")
            yield from plan_request(context, request, cluster=cluster)
            continue
        statuses = {status.context for status in context.forge.statuses(request.head)}
        if any(status_context("plan", rule.name) not in statuses for rule in concerned[request.number]):
            yield LogLine(f"request {request.number}: no run has planned its head")
            yield from plan_request(context, request, cluster=cluster)
    left = len(candidates) - _MOST_REQUESTS
    if left > 0:
        yield LogLine(f"{count(left, 'more open change request')} not checked")


# -- revocations -------------------------------------------------------------------------------------------------------
#
# Record revocations as soon as an event or the sweep finds them. From then on, deleting their branch has no effect.


def take_in_revocations(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    """Record a cluster's revocations that are not in the ledger yet. Yields a line for each.

    Problems don't stop the event.
    """
    repository = context.repository
    try:
        target = context.repository.target(rule, config=context.config)
        into = RevocationContext(repository.ledger(rule), target, repository.clock, repository.ids, context.bot.actor)
        recorded = record_under_lock(into)
    except GitopsError as error:
        if error.code == Code.STATE_LOCK_HELD:
            yield LogLine(f"{rule.name}: a revocation is recorded by the next run: {error.detail}")
        else:
            yield error_line(rule.name, error)
        return
    for each in recorded:
        yield LogLine(f"{rule.name}: the revocation of approval {each.approval_id} by {each.principal} is recorded")
