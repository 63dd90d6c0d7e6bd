"""The sweep: apply merges that no run applied, then plan requests that no run planned, whatever became of their events.

A merge with `[skip ci]`, a run that was cancelled, a webhook that got lost: each leaves a branch ahead of its ledger, or a head
without the status of its plan. A hook that did not end, in a repository that is its own forge, leaves a branch without a request.
The sweep finds all of them by looking. It never breaks a lock, because a dead holder looks like a slow one; it shows the lock
with the command that removes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gitops.bot.apply_clusters import apply_cluster, plan_open_requests
from gitops.bot.command_syntax import CommandAction, CommentCommand
from gitops.bot.context import EventContext
from gitops.bot.plan_requests import plan_request, requests_of_cluster
from gitops.bot.report import status_context
from gitops.bot.request_keeper import RequestKeeper, catch_up
from gitops.cluster.apply.drift import DriftKind, drift
from gitops.cluster.approvals.verify import HOSTED
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.config.load import load_desired
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import LockObservation
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.session import RevocationContext, record_under_lock
from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.comment import drift_body, drift_gone, drift_marker, drift_title
from gitops.render.comment_inputs import DriftReport
from gitops.render.words import count
from gitops.repository.changes import trees_differ
from gitops.repository.kept_plans import kept_plan
from gitops.repository.results import LogLine, RunResult, diagnostic_lines, error_line, logged, result_of

_FOUND_BY_SWEEP = "found by the sweep: no run applied this merge"
_MOST_REQUESTS = 20


def sweep(context: EventContext, cluster: str | None = None) -> Iterator[LogLine]:
    """Sweep all clusters, or the one called `cluster`; a problem of one does not stop the others."""
    rules = [rule for rule in context.clusters if cluster in (None, rule.name)]
    if isinstance(context.forge, RequestKeeper):
        try:
            yield from catch_up(context, context.forge)
        except GitopsError as error:
            yield error_line("change requests", error)
    for rule in rules:
        try:
            yield from _sweep_cluster(context, rule)
        except GitopsError as error:
            yield error_line(rule.name, error)
    try:
        yield from _plan_missed(context, rules, cluster)
    except GitopsError as error:
        yield error_line("open requests", error)


def _sweep_cluster(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    store, ledger = context.store, context.repository.ledger(rule)
    lock = ledger.observe_lock()
    if lock.held:
        yield _lock_line(context, rule, lock)
        return
    yield from take_in_revocations(context, rule)
    head = context.repository.head_of(rule.ref)
    if head is None:
        yield LogLine(f"{rule.name}: nothing to do")
        return
    position = context.position(rule)
    if position.applied is not None:
        context.repository.fetch_commits(position.applied)
    if position.applied is None:
        reason = "the cluster has no ledger yet"
    elif trees_differ(context.repository, rule, store.commit(head).tree, store.commit(position.applied).tree):
        reason = f"branch {rule.branch} is ahead of the ledger at {head[:12]}"
    elif ledger.intents().intents:
        reason = "an operation was interrupted"
    elif position.converged and not context.repository.scope_waits(rule, position, context.config):
        yield LogLine(f"{rule.name}: nothing to do")
        return
    else:
        reason = "a merged change is not applied"
        outcome = plan(context.workspace_at(rule, head))
        changes = None if outcome.plan is None else outcome.plan.changes
        # To apply nothing would only repeat the last report. If there is no plan, an apply reports why.
        if changes is not None and not any(c.disposition is Disposition.APPLIED for c in changes):
            yield LogLine(f"{rule.name}: {reason}, and waits for a person", RunResult.WAITS)
            yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)
            return
    yield LogLine(f"{rule.name}: {reason}")
    yield from apply_cluster(context, rule, notes=(_FOUND_BY_SWEEP,))
    yield from plan_open_requests(context, rule)


def _lock_line(context: EventContext, rule: ClusterRule, lock: LockObservation) -> LogLine:
    """The operation that holds a lock, since when, and the command that removes it."""
    info, only = lock.info, len(context.clusters) == 1
    command: object = CommentCommand(CommandAction.UNLOCK, lock_id=lock.unlock_id, cluster=None if only else rule.name)
    if context.repository.forge_kind not in HOSTED:
        # Who reads this line is at a shell, and may have no request to comment on.
        command = f"gitops force-unlock {lock.unlock_id}{'' if only else f' --cluster {rule.name}'}"
    if info is None:
        detail = f"locked, and the lock cannot be read: {lock.detail}; if no run is active: {command}"
        return LogLine(f"{rule.name}: {detail}", RunResult.PROBLEMS)
    since = parse_timestamp(info.created_at)
    now = context.repository.clock.now()
    age = "an unknown time" if since is None else f"{max(0, int((now - since).total_seconds()))} s"
    return LogLine(f"{rule.name}: {info.operation} has held the lock for {age}; if its run is over: {command}")


def _plan_missed(context: EventContext, rules: Sequence[ClusterRule], cluster: str | None) -> Iterator[LogLine]:
    """Plan the open requests whose heads have no status of a plan, or whose comment the forge did not take.

    The forge is asked about few heads in one run: first about those for which no plan is kept, then about the oldest.
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
            yield LogLine(f"request {request.number}: the forge did not take its comment")
            yield from plan_request(context, request, cluster=cluster)
            continue
        statuses = {status.context for status in context.forge.statuses(request.head)}
        if any(status_context("plan", rule.name) not in statuses for rule in concerned[request.number]):
            yield LogLine(f"request {request.number}: no run planned its head")
            yield from plan_request(context, request, cluster=cluster)
    left = len(candidates) - _MOST_REQUESTS
    if left > 0:
        yield LogLine(f"{count(left, 'more open change request')} not checked")


# -- revocations -------------------------------------------------------------------------------------------------------
#
# Record revocations as soon as an event or the sweep finds them: from then on deleting their branch undoes nothing.


def take_in_revocations(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    """Record the revocations of a cluster that no entry records yet; a line for each. A problem does not stop the event."""
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


# -- drift -------------------------------------------------------------------------------------------------------------
#
# Drift, reported once per cluster: as a change request that adopts it if files can express it, else as an issue.
#
# The report always shows both remedies: change the folder to match the graphs, or change the graphs to match the folder. Neither
# is carried out here, and nothing is written to the ledger. The branch of a change request is written again when its target has
# moved.


def drift_ref(cluster: str) -> str:
    """Full name of the branch that adopts the drift of a cluster."""
    return f"refs/heads/gitops/drift/{cluster}"


def report_drift(context: EventContext, cluster: str | None = None) -> Iterator[LogLine]:
    """Report the drift of all clusters, or of the one called `cluster`; a problem of one does not stop the others."""
    for rule in context.clusters:
        if cluster in (None, rule.name):
            try:
                yield from _report_cluster(context, rule)
            except GitopsError as error:
                yield error_line(f"drift of {rule.name}", error)


def _report_cluster(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    begin, head = f"drift of {rule.name}", context.repository.head_of(rule.ref)
    if head is None or context.position(rule).applied is None:
        yield LogLine(f"{begin}: nothing is applied yet")
        return
    outcome = drift(context.workspace_at(rule, head, in_place=True))
    for item in outcome.items:
        yield LogLine(f"{begin}: {item.address}: {item.kind}: {item.detail}", RunResult.WAITS)
    yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)
    option = ["--cluster", rule.name]
    refresh, apply = (shlex.join(["gitops", verb, *option]) for verb in ("refresh", "apply"))
    lost = [item.address for item in outcome.items if item.kind is DriftKind.VANISHED]
    approve = (shlex.join(["gitops", "approve", graph, *option]) for graph in lost)
    report = DriftReport(
        cluster=rule.name,
        environment=rule.environment,
        at=timestamp(context.repository.clock.now()),
        outcome=outcome,
        adopt=(shlex.join(["gitops", "bot", "drift", *option]),) if outcome.adoptable else (),
        reapply=(refresh, apply) if len(lost) < len(outcome.items) else (),
        recreate=(refresh, *approve, apply) if lost else (),
        templates=context.templates,
    )
    if not outcome.ok:
        yield LogLine(f"{begin}: not everything could be read", result_of(outcome.diagnostics))
    elif not outcome.items:
        yield LogLine(f"{begin}: none")
        yield from _close_issue(context, rule, drift_gone(report))
        yield from _close_request(context, rule, drift_gone(report))
    if not outcome.items:
        return
    request = None
    if outcome.adoptable and context.bot.person is not None:
        try:
            request = _propose(context, rule, head, report)
        except GitopsError as error:
            yield LogLine(f"{begin} cannot be proposed: {error.code}: {error.detail}")
    # One change request or one issue, never both.
    if request is not None:
        name = f"request {request.number}"
        yield LogLine(f"{begin}: {name} adopts it")
        yield from _close_issue(context, rule, f"Continued in {request.url or name}.")
        if isinstance(context.forge, RequestKeeper):
            # No hook hears of the bot's own branch, and a request without a plan is not merged.
            context.refresh(rule)
            for line in plan_request(context, request, skip_unchanged=True):
                yield LogLine(line.text)
    elif context.forge.features.issues:
        address = context.forge.upsert_issue(drift_marker(rule.name), drift_title(report), drift_body(report))
        name = address or "the issue of the cluster"
        yield LogLine(f"{begin}: reported in {name}")
        yield from _close_request(context, rule, f"Continued in {name}.")


def _propose(context: EventContext, rule: ClusterRule, head: str, report: DriftReport) -> ChangeRequest | None:
    """The change request that adopts the drift; None if the folder would not be valid with it."""
    store, repository, person, ref = context.store, context.repository, context.bot.person, drift_ref(rule.name)
    folder_path = "" if rule.path == "." else f"{rule.path}/"
    files = {f"{folder_path}{item.path}": item.source for item in report.outcome.items}
    tree = store.write_files(store.commit(head).tree, files)
    folder = store.subtree(tree, rule.path)
    if person is None or folder is None or load_desired(repository.open_tree(store, folder, rule.path)).desired is None:
        return None
    old = context.repository.head_of(ref)
    if old is None or store.commit(old).tree != tree or store.commit(old).parents != (head,):
        author = replace(person, time=int(repository.clock.now().timestamp()))
        message = f"Adopt the drift of {rule.name}\n"
        new = store.write_commit(NewCommit(tree, (head,), author, message), signing_key=None)
        repository.remote.push([RefUpdate(ref, old or ZERO, new)])
    return context.forge.propose(ref, rule.ref, drift_title(report), drift_body(report))


def _close_request(context: EventContext, rule: ClusterRule, comment: str) -> Iterator[LogLine]:
    """Close the change request that adopts the drift of a cluster. The forge is only asked if its branch exists."""
    ref = drift_ref(rule.name)
    if context.repository.head_of(ref) is None:
        return
    try:
        for request in context.open_requests(rule.ref):
            if request.source == ref and not request.fork:
                context.forge.withdraw(request.number, comment)
                yield LogLine(f"drift of {rule.name}: request {request.number} is closed")
    except GitopsError as error:
        yield LogLine(f"the change request of {rule.name} stays open: {error.code}: {error.detail}")


def _close_issue(context: EventContext, rule: ClusterRule, comment: str) -> Iterator[LogLine]:
    """Close the issue of a cluster, if there is one. If that fails, it only stays open."""
    if context.forge.features.issues:
        failure = f"the issue of {rule.name} stays open"
        yield from logged(failure, lambda: context.forge.close_issue(drift_marker(rule.name), comment))
