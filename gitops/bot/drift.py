"""Reports drift once per cluster: as a change request that adopts it if files can express it, otherwise as an issue.

The report always shows both remedies: change the folder to match the graphs, or change the graphs to match the folder.
This module does neither, and doesn't write to the ledger. The change request's branch is rewritten when its target has
moved. An apply that is blocked by drift reports the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from gitops.bot.context import EventContext
from gitops.bot.plan_requests import plan_request, requests_of_cluster
from gitops.bot.request_keeper import RequestKeeper
from gitops.cluster.apply.drift import drift
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.config.load import load_desired
from gitops.cluster.plan.drift import DriftKind
from gitops.core.clock import timestamp
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.comment import drift_body, drift_gone, drift_marker, drift_title
from gitops.render.comment_inputs import DriftReport
from gitops.repository.cluster import drift_ref
from gitops.repository.results import LogLine, RunResult, diagnostic_lines, error_line, logged, result_of


def report_drift(context: EventContext, cluster: str | None = None) -> Iterator[LogLine]:
    """Report the drift of all clusters, or only of `cluster`. A problem in one cluster does not stop the others."""
    for rule in context.clusters:
        if cluster in (None, rule.name):
            try:
                yield from _report_cluster(context, rule)
                yield from _plan_again(context, rule)
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
    # Open a change request or an issue, never both.
    if request is not None:
        name = f"request {request.number}"
        yield LogLine(f"{begin}: {name} adopts it")
        yield from _close_issue(context, rule, f"Continued in {request.url or name}.")
        if isinstance(context.forge, RequestKeeper):
            # The bot's own branch does not trigger a hook, and a request without a plan is not merged.
            context.refresh(rule)
            for line in plan_request(context, request, skip_unchanged=True):
                yield LogLine(line.text)
    elif context.forge.features.issues:
        address = context.forge.upsert_issue(drift_marker(rule.name), drift_title(report), drift_body(report))
        name = address or "the issue of the cluster"
        yield LogLine(f"{begin}: reported in {name}")
        yield from _close_request(context, rule, f"Continued in {name}.")


def _plan_again(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    """Re-plan a cluster's open requests if drift determines whether they would land."""
    trust = context.position(rule).trust
    if trust is None or trust.on_drift != "block":
        return
    context.refresh(rule)
    for request in requests_of_cluster(context, rule, context.open_requests(rule.ref)):
        for line in plan_request(context, request, cluster=rule.name, skip_unchanged=True):
            yield LogLine(line.text)


def _propose(context: EventContext, rule: ClusterRule, head: str, report: DriftReport) -> ChangeRequest | None:
    """Return the change request that adopts the drift, or None if adopting it would make the folder invalid."""
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
    """Close the change request that adopts a cluster's drift. Queries the forge only if the request's branch exists."""
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
    """Close a cluster's issue, if there is one. If that fails, the issue remains open."""
    if context.forge.features.issues:
        failure = f"the issue of {rule.name} stays open"
        yield from logged(failure, lambda: context.forge.close_issue(drift_marker(rule.name), comment))
