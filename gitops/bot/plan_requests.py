"""Plans change requests: computes the effects that each open request would have if it were merged now.

A request is planned for each cluster of its target branch that it touches, and again for each cluster that it was
planned for earlier, so that no outdated plan remains there. Its head is fetched and merged in memory, without a
checkout.

How the other open requests of a cluster concern a request is found by `gitops.bot.open_requests`. If that changes, because
a request moves, closes or is approved, the reports on the others are updated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.bot.context import EventContext, comment_subject, left_before, warning_key
from gitops.bot.open_requests import MOST_OTHERS, open_requests_of
from gitops.bot.query_tests import concerns_tests, run_plan_tests
from gitops.bot.report import (
    report_plan,
    report_refusal,
    report_untouched,
    set_labels,
    sign_commits,
    with_unknown_authors,
)
from gitops.bot.stored_plans import is_reported, plan_record, refusal_record
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.model.address import Address
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.forge.port import NEEDS_APPROVAL, PLAN_FAILED, ChangeRequest, ReviewDecision
from gitops.git.port import ZERO
from gitops.render.comment_inputs import CommentSubject, OtherRequest, RefusedCommand
from gitops.repository.changes import changes_cluster
from gitops.repository.cluster import drift_ref
from gitops.repository.kept_plans import kept_others, kept_plan, plan_ref
from gitops.repository.results import LogLine, RunResult, diagnostics_of


def plan_requests(context: EventContext, chosen: Callable[[ChangeRequest], bool]) -> Iterator[LogLine]:
    """Plan the open requests for which `chosen` returns True."""
    # List all requests once, because the same list is used to find overlaps.
    found = [request for request in context.open_requests() if chosen(request)]
    for request in found:
        yield from plan_request(context, request)
    for target in {request.target for request in found}:
        yield from refresh_warnings(context, target)
    if not found:
        yield LogLine("the forge has no open change request with this number")


def plan_request(
    context: EventContext,
    request: ChangeRequest,
    *,
    cluster: str | None = None,
    skip_unchanged: bool = False,
    refusals: tuple[RefusedCommand, ...] = (),
    explained: tuple[str, ...] = (),
) -> Iterator[LogLine]:
    """Plan one request and report the plans for the clusters that it affects, or only for `cluster`.

    `skip_unchanged` omits a report that would repeat the last one. `refusals` are commands to show as refused;
    `explained` are addresses to describe in full.
    """
    context.repository.fetch_heads([request])
    if context.rules_for(request.target) and not context.repository.has_head(request):
        yield LogLine(f"request {request.number}: its head no longer exists", RunResult.LOST)
        return
    decided = _decided(context, request)
    rules = [rule for rule in decided if cluster in (None, rule.name)]
    if not rules:
        yield LogLine(f"request {request.number}: no cluster follows {request.target.removeprefix('refs/heads/')}")
        return
    needs_approval = failed = reported = False
    for rule in rules:
        subject = comment_subject(
            rule, request.number, request.head, context.repository.head_of(request.target) or ZERO, request.url
        )
        if not _concerns(context, rule, request):
            yield from report_untouched(context, subject)
            yield LogLine(f"request {request.number}: does not touch {rule.name}")
            reported = True
            continue
        missing, bad, new = yield from _plan_cluster(
            context, rule, request, subject, skip_unchanged=skip_unchanged, refusals=refusals, explained=explained
        )
        needs_approval, failed, reported = needs_approval or missing, failed or bad, reported or new
    if not reported:
        return
    # Don't remove labels that another cluster of the branch needs.
    all_clusters = len(rules) == len(decided)
    found = {NEEDS_APPROVAL: needs_approval, PLAN_FAILED: failed}
    wanted = {label: on for label, on in found.items() if on or all_clusters}
    yield from set_labels(context, request.number, request.labels, wanted)


def _decided(context: EventContext, request: ChangeRequest) -> tuple[ClusterRule, ...]:
    """Return the clusters to plan for a request."""
    try:
        return context.rules_of(request)
    except GitopsError:
        return context.rules_for(request.target)


def requests_of_cluster(
    context: EventContext, rule: ClusterRule, requests: Sequence[ChangeRequest]
) -> tuple[ChangeRequest, ...]:
    """Return the requests that concern a cluster, except those whose heads cannot be fetched."""
    candidates = [r for r in requests if r.target in (rule.ref, context.repository.default_ref)]
    context.repository.fetch_heads(candidates)
    if candidates:
        # Fetch once for all plans. A plan that cannot be fetched counts as missing.
        with suppress(GitopsError):
            context.repository.fetch_refs(*(plan_ref(rule.name, r.number) for r in candidates))
    found = (r for r in candidates if context.repository.has_head(r) and rule in _decided(context, r))
    return tuple(r for r in found if _concerns(context, rule, r))


def _voided_requests(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> tuple[OtherRequest, ...]:
    """Return the other open requests, among the newest fifty, whose approvals become stale if `request` is merged first.

    An approval covers the whole cluster folder and the rules, so these are all approved requests if this one changes any
    of that. The stored plans show which requests are approved.
    """
    others = [r for r in context.open_requests(request.target) if r.number != request.number][-MOST_OTHERS:]
    target = context.repository.head_of(request.target)
    given = context.repository.remote.refs(approvals_prefix(rule.name).rstrip("/")) if others else ()
    if not given or not changes_cluster(context.repository, rule, target, request.head):
        return ()
    with suppress(GitopsError):
        # One fetch, also of this request's own plan, which is read next.
        context.repository.fetch_refs(*(plan_ref(rule.name, each.number) for each in (request, *others)))
    found = ((other, kept_plan(context.repository, rule.name, other.number)) for other in others)
    return tuple(
        OtherRequest(other.number, other.title, other.url, tuple(map(Address, kept.approved)))
        for other, kept in found
        if kept is not None and kept.head == other.head and kept.approved
    )


def refresh_closed(context: EventContext, number: int) -> Iterator[LogLine]:
    """Update the reports on the other open requests after a request was closed."""
    try:
        target = context.forge.request(number).target
    except GitopsError:
        return
    context.moved.add(number)
    yield from refresh_warnings(context, target)


def refresh_warnings(context: EventContext, target: str) -> Iterator[LogLine]:
    """If requests or their approvals have moved in this event, update the reports on the other open requests.

    Plans the requests into the branch `target` again whose comments don't warn of exactly the approvals that their merges
    make stale, or say something outdated about other requests. These plans don't affect the result of the run.
    """
    moved, context.moved = context.moved, set()
    others = [each for each in context.open_requests(target) if moved - {each.number}] if moved else []
    requests = others[-MOST_OTHERS:]
    for rule in context.rules_for(target) if requests else ():
        here = requests_of_cluster(context, rule, requests)
        with suppress(GitopsError):
            open_requests_of(context, rule, target).reread()
        for request in here:
            kept = kept_plan(context.repository, rule.name, request.number)
            if kept is None or kept.head != request.head:
                continue
            voids = tuple(each.number for each in _voided_requests(context, rule, request))
            if kept.voids != voids or _compared(context, rule, request) != _reported_comparison(context, rule, request):
                for line in plan_request(context, request, cluster=rule.name, skip_unchanged=True):
                    yield LogLine(line.text)


def _compared(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> str | None:
    """Return the digest of what other requests mean for a request. None if they mean nothing, or cannot be compared."""
    with suppress(GitopsError):
        return open_requests_of(context, rule, request.target).compared(request)
    return None


def _reported_comparison(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> str | None:
    known = kept_others(context.repository, rule.name, request.number)
    return None if known is None else known.compared


def _concerns(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> bool:
    """Return whether a request touches a cluster, or touched it when it was last planned."""
    try:
        target = context.repository.head_of(request.target)
        touched = changes_cluster(context.repository, rule, target, request.head) or concerns_tests(
            context, target, request.head
        )
    except GitopsError:
        # Plan a request even if it cannot be compared, so that its problem is reported.
        return True
    return touched or kept_plan(context.repository, rule.name, request.number) is not None


def _plan_cluster(
    context: EventContext,
    rule: ClusterRule,
    request: ChangeRequest,
    subject: CommentSubject,
    *,
    skip_unchanged: bool,
    refusals: tuple[RefusedCommand, ...],
    explained: tuple[str, ...],
) -> Generator[LogLine, None, tuple[bool, bool, bool]]:
    """Plan a request for one cluster and report it.

    Returns whether it needs an approval, whether its plan failed, and whether the report is new.
    """
    begin = f"request {request.number}: "
    last = kept_plan(context.repository, rule.name, request.number) if skip_unchanged else None
    voids = _voided_requests(context, rule, request)
    try:
        position = context.position(rule)
        workspace = context.workspace_of(rule, request)
        planned = with_unknown_authors(workspace, plan(workspace, texts=True), lambda _: sign_commits(request))
        outcome = _with_reported_drift(context, rule, request, planned)
    except GitopsError as error:
        problems = diagnostics_of(error)
        if is_reported(last, refusal_record(subject, problems)):
            yield LogLine(f"{begin}plan of {rule.name}: refused as before")
            return False, True, False
        yield from _prefixed(begin, report_refusal(context, subject, "plan", problems, refusals))
        return False, True, True
    # Read the request again, because an earlier head's plan must not be reported on a newer head.
    if context.repository.has_moved(request, plan_ref(rule.name, request.number)):
        yield LogLine(f"{begin}its head moved during the run, so this plan is discarded", RunResult.LOST)
        return False, False, False
    unmet = {gate.resource for gate in (outcome.plan.approvals_required if outcome.plan else ()) if not gate.satisfied}
    earlier = unmet & _left_before(context, rule, request, outcome) if unmet else frozenset()
    tests = run_plan_tests(context, workspace, outcome, lambda: context.repository.merged_tree(request))
    missing, lands = bool(unmet - earlier), outcome.lands or (bool(unmet) and outcome.ok)
    failed = not lands or (tests is not None and tests.blocks)
    compared = _compared(context, rule, request)
    if is_reported(last, plan_record(subject, outcome, voids=voids, tests=tests, compared=compared)):
        yield LogLine(f"{begin}plan of {rule.name}: unchanged")
        return missing, failed, False
    outcome = _with_what_if(workspace, request, outcome)
    lines = report_plan(
        context,
        subject,
        outcome,
        others=None if compared is None else open_requests_of(context, rule, request.target).said(request, outcome),
        voids=voids,
        explained=explained,
        refusals=refusals,
        debts=position.debts,
        earlier=frozenset(earlier),
        via_forge=position.reviews_open(rule.environment),
        verdict_missing=position.needs_forge_verdict and not _forge_approves(context, request),
        standing=_standing(context, rule, request, outcome),
        tests=tests,
    )
    yield from _prefixed(begin, lines)
    return missing, failed, True


def _with_reported_drift(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, outcome: PlanOutcome
) -> PlanOutcome:
    """Add the drift that another request of the bot reports, in case the plan could not check for drift itself."""
    if all(each.code != Code.DRIFT_UNKNOWN for each in outcome.diagnostics):
        return outcome
    found = Diagnostics()
    for other in context.open_requests(rule.ref):
        if other.source == drift_ref(rule.name) and not other.fork and other.number != request.number:
            detail = f"request {other.number} reports drift; nothing is applied until it is settled"
            fix = f"settle it as request {other.number} says; then check again: gitops bot drift --cluster {rule.name}"
            found.add(Code.DRIFT_OPEN, rule.name, detail, severity=Severity.WARNING, fix=fix)
    return replace(outcome, obstacles=(*outcome.obstacles, *found), diagnostics=(*outcome.diagnostics, *found))


def _with_what_if(workspace: Workspace, request: ChangeRequest, outcome: PlanOutcome) -> PlanOutcome:
    """Add the predicted effects of strategy changes, or the reason why they are unknown."""
    if outcome.strategies is None:
        return outcome
    from gitops.compute.ticks.what_if import Reach, with_what_if

    return with_what_if(workspace, outcome, Reach.NONE if request.fork else Reach.APPLIED)


def _left_before(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, outcome: PlanOutcome
) -> frozenset[Address]:
    """Return a plan's changes that the target branch has even without the request."""
    target = context.repository.head_of(request.target)
    if target is None or request.target != rule.ref:
        return frozenset()
    return left_before(outcome.plan, context.branch_plan(rule, target))


def _standing(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, outcome: PlanOutcome
) -> frozenset[tuple[str, ...]]:
    """Return the file warnings that the target branch has even without the request."""
    if not any(map(warning_key, outcome.diagnostics)):
        return frozenset()
    target = context.repository.head_of(request.target)
    return frozenset() if target is None else context.standing_warnings(rule, target)


def _forge_approves(context: EventContext, request: ChangeRequest) -> bool:
    try:
        return context.forge.review_decision(request.number) is ReviewDecision.APPROVED
    except GitopsError:
        return False


def _prefixed(prefix: str, lines: Iterator[LogLine]) -> Iterator[LogLine]:
    for line in lines:
        yield LogLine(prefix + line.text, line.result)
