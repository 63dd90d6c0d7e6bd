"""Merge queues: checks that merging a group of change requests on top of earlier groups has the reviewed effects.

1. The group's head is planned like its target's head: against the ledger, with the approvals that count there.
2. Git finds the group's open requests: the group contains their heads, or merging them produces its tree.
3. The reviewed plan of a request is the plan stored for its head. If none is stored (because the host does not allow
   such refs), the request is planned again on its target. Anyone with push rights can replace a stored plan. That can
   only hide a difference from this check, because the new plan decides the gates.
4. The group passes if its plan has no errors, every gate is open, and its digest is the reviewed one. So a group fails
   if an earlier group changes the same cluster, and passes once that group is applied and the new plan is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gitops.bot.context import EventContext, comment_subject
from gitops.bot.query_tests import run_plan_tests
from gitops.bot.report import report_plan, report_refusal, report_untouched
from gitops.cluster.approvals.counting import merging_gives
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.forge.events import QueueEvent
from gitops.forge.port import ChangeRequest, ReviewDecision
from gitops.repository.changes import changes_cluster, trees_differ
from gitops.repository.kept_plans import kept_plan
from gitops.repository.repository import Candidate
from gitops.repository.results import LogLine, diagnostic_lines, diagnostics_of


def verify_group(context: EventContext, event: QueueEvent) -> Iterator[LogLine]:
    """Verify one group for every cluster on its target branch."""
    store, repository, rules = context.store, context.repository, context.rules_for(event.target)
    repository.fetch_commits(event.head, event.base)
    candidates = context.open_requests(event.target)
    repository.fetch_heads(candidates)
    # The requests that the group adds to its base.
    requests = tuple(
        r
        for r in candidates
        if repository.has_head(r)
        and not store.is_ancestor(r.head, event.base)
        and (store.is_ancestor(r.head, event.head) or merging_gives(store, event.base, r.head, event.head))
    )
    for rule in rules:
        if trees_differ(repository, rule, store.commit(event.head).tree, store.commit(event.base).tree):
            yield from _verify(context, rule, event, requests)
        else:
            yield from report_untouched(context, comment_subject(rule, 0, event.head, event.base))
            yield LogLine(f"queue: the group does not touch {rule.name}")
    if not rules:
        yield LogLine(f"no cluster follows {event.target.removeprefix('refs/heads/')}")


def _verify(
    context: EventContext, rule: ClusterRule, event: QueueEvent, requests: tuple[ChangeRequest, ...]
) -> Iterator[LogLine]:
    subject = comment_subject(rule, 0, event.head, event.base)
    try:
        workspace = _group_workspace(context, rule, event, requests)
        outcome = plan(workspace)
        tests = run_plan_tests(context, workspace, outcome, lambda: context.store.commit(event.head).tree)
        differences = tuple(_differences(context, rule, outcome, requests))
        outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *differences))
        needs_verdict = context.position(rule).needs_forge_verdict
    except GitopsError as error:
        yield from report_refusal(context, subject, "plan", diagnostics_of(error))
        return
    verdict_missing = False
    if needs_verdict:
        verdicts = {context.forge.review_decision(r.number) for r in requests}
        verdict_missing = verdicts != {ReviewDecision.APPROVED}
    yield from report_plan(context, subject, outcome, verdict_missing=verdict_missing, tests=tests)
    yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)


def _group_workspace(
    context: EventContext, rule: ClusterRule, event: QueueEvent, requests: tuple[ChangeRequest, ...]
) -> Workspace:
    """Return the workspace of the group's head. Its authors include the authors of all requests in the group."""
    here = context.repository.at(
        rule,
        context.position(rule),
        Candidate(event.head),
        known=lambda: context.known_origins(rule, head=event.head, queued=requests),
        config=context.config,
    )
    return here.workspace(context.bot.actor)


def _differences(
    context: EventContext, rule: ClusterRule, outcome: PlanOutcome, requests: tuple[ChangeRequest, ...]
) -> Iterator[Diagnostic]:
    """Yield problems if the group's plan is not the reviewed one."""
    digest = None if outcome.plan is None else outcome.plan.digest
    if not context.forge.features.queue:
        # The requests of the group are unknown without a token, or on a forge without merge queues.
        return
    target = context.repository.head_of(rule.ref)
    touching = [r for r in requests if changes_cluster(context.repository, rule, target, r.head)]
    if not touching:
        detail = "no open change request of the forge contains the changes of the group"
        yield from diagnostics_of(GitopsError(Code.QUEUE_PLAN_DIFFERS, detail, path=rule.name))
    for request in touching:
        kept = kept_plan(context.repository, rule.name, request.number)
        reviewed = kept.plan_digest if kept is not None and kept.head == request.head else None
        if reviewed is None:
            again = plan(context.workspace_of(rule, request)).plan
            reviewed = None if again is None else again.digest
        if reviewed is None or reviewed != digest:
            what = f"request {request.number} was reviewed with plan {(reviewed or 'none')[:12]}"
            detail = f"{what}, but the plan of the group is {(digest or 'none')[:12]}"
            yield from diagnostics_of(GitopsError(Code.QUEUE_PLAN_DIFFERS, detail, path=rule.name))
