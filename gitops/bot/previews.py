"""Previews change requests on copies of the live graphs, and removes the copies again.

1. A request is previewed for each cluster whose plan changes the schema or a query of an existing graph.
2. Only people who may read get previews: members by the rules in force (`preview.authors`), and everyone else, forks
   included, by the command of somebody who may give commands.
3. A record with the same key, signed by a ledger signer, means that nothing is left to do.
4. The copies get a claim first. The result is kept, the claim is extended, and the result is shown. Without the second, the
   next run removes the copies after an hour; without the third, it shows the kept result.
5. If the head moves meanwhile, the result is dropped.
6. The record, the status and the comment have counts only. Rows that the rules allow to show are in the comment and the
   page of the job of this run, and are never stored.

A preview never changes the digests or the approvals of a plan, and an apply never reads it. A plan reads the recorded clients in
it if it cannot read the storage itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gitops.bot.attestations import missing_permission
from gitops.bot.context import EventContext
from gitops.bot.plan_requests import plan_request
from gitops.bot.query_tests import folders_of_tests
from gitops.bot.report import is_preview_status, set_preview_status
from gitops.bot.stored_plans import counted_callers
from gitops.cluster.config.gitops_yaml import ClusterRule, PreviewRule
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.model.use import SeenCallers
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.forge.events import HeadEvent, ManualEvent, RequestAction, RequestEvent, TimerEvent
from gitops.forge.port import Account, ChangeRequest, CheckState
from gitops.render.previews import status_words
from gitops.repository.kept_plans import kept_plan
from gitops.repository.kept_previews import close_preview, keep_preview, kept_commits, kept_preview
from gitops.repository.results import LogLine, RunResult, error_line
from gitops.review.previews.choose import ChosenGraph, Wanted, choose_graphs, preview_key
from gitops.review.previews.order import AllowedRows
from gitops.review.previews.port import UNRECORDED, Claim, PreviewBench, Scratch, make_room
from gitops.review.previews.record import Counts, PreviewRecord, PreviewVerdict, in_coarse_counts, verdict
from gitops.review.previews.run import Tried, try_graphs

_OF_THE_SETUP = (Code.PREVIEW_UNAVAILABLE, Code.STORAGE_ROOT_REFUSED, Code.EPHEMERAL_GRAPH_ROOT)


@dataclass(frozen=True, slots=True)
class _Run:
    """What a preview of one request for one cluster needs."""

    rule: ClusterRule
    request: ChangeRequest
    bench: PreviewBench
    scratch: Scratch
    graphs: tuple[ChosenGraph, ...]
    plan_digest: str
    key: str
    callers: tuple[SeenCallers, ...]


def preview_event(
    context: EventContext, event: RequestEvent | HeadEvent | ManualEvent | TimerEvent
) -> Iterator[LogLine]:
    """Preview an event's request, or all open ones. Remove the copies of a closed request and, on a timer, unused copies."""
    match event:
        case RequestEvent(number=number, action=RequestAction.CLOSED | RequestAction.MERGED):
            yield from end_previews(context, number)
        case RequestEvent(number=number):
            yield from preview_requests(context, number)
        case HeadEvent(head=head):
            yield from preview_requests(context, head=head)
        case ManualEvent(inputs=inputs):
            wanted = dict(inputs).get("request", "")
            yield from preview_requests(context, int(wanted) if wanted.isdecimal() else None)
        case TimerEvent():
            yield from sweep_previews(context)
            yield from preview_requests(context)


def preview_requests(context: EventContext, number: int | None = None, head: str | None = None) -> Iterator[LogLine]:
    """Preview the open requests, or only `number` or those at `head`, that may be previewed without a command."""
    if not context.config.preview.enabled:
        yield LogLine("previews are off: preview.enabled in gitops.yaml is false")
        return
    for request in context.open_requests():
        if number in (None, request.number) and head in (None, request.head):
            yield from preview_request(context, request)


def preview_request(
    context: EventContext, request: ChangeRequest, *, cluster: str | None = None, asked: bool = False
) -> Iterator[LogLine]:
    """Preview one request. `asked` means that someone with the permission asked for a preview of this head."""
    context.repository.fetch_heads([request])
    if not context.repository.has_head(request):
        yield LogLine(f"request {request.number}: its head no longer exists", RunResult.LOST)
        return
    for rule in context.rules_of(request):
        if cluster not in (None, rule.name):
            continue
        begin = f"request {request.number}: preview of {rule.name}: "
        try:
            why = "" if asked else _not_previewed(context, rule, request)
            lines = iter([LogLine(why)]) if why else _preview(context, rule, request)
            yield from (LogLine(begin + line.text, line.result) for line in lines)
        except GitopsError as error:
            # Messages of the database can quote values of rows, so only their code is shown.
            why = error.detail if error.code in _OF_THE_SETUP else error.code.value
            yield LogLine(f"{begin}{Code.PREVIEW_UNAVAILABLE}: {why}", _result(context))
            yield from set_preview_status(
                context, rule, request, _failed_state(context.config.preview), f"could not run: {why}"
            )


def end_previews(context: EventContext, number: int) -> Iterator[LogLine]:
    """End the previews of a closed or merged request: servers no longer serve it, and its copies are removed."""
    if not context.config.preview.enabled:
        return
    for rule in context.clusters:
        yield from _closed(context, rule, number)
    yield from _removed(context, lambda claim: claim.request == number, "request is closed")


def sweep_previews(context: EventContext) -> Iterator[LogLine]:
    """Remove copies that have expired, that belong to closed requests, or whose run crashed at least an hour ago.

    Previews of requests that were closed without an event are ended. While another preview of the cluster runs, the
    copies of closed requests stay for the next time.
    """
    for rule in context.clusters:
        try:
            known = kept_commits(context.repository, rule.name)
            still = {each.number for each in context.open_requests()} if known else set()
            for number in sorted(known.keys() - still):
                yield from _closed(context, rule, number)
        except GitopsError as error:
            yield error_line(f"previews of {rule.name}", error)
    now = context.repository.clock.now()
    yield from _removed(context, lambda claim: claim.has_expired(now), "expired")
    yield from _removed(
        context,
        lambda claim: all(claim.request != request.number for request in context.open_requests()),
        "request is closed",
        alone=True,
    )


def _closed(context: EventContext, rule: ClusterRule, number: int) -> Iterator[LogLine]:
    """Record that a request is closed, if it has a preview that counts."""
    bench, person = context.bot.previews, context.bot.person
    key = None if bench is None else bench.sign_with()
    if person is None or key is None:
        return
    try:
        record = kept_preview(context.repository, context.position(rule), rule.name, number)
        if record is not None and record.closed_at is None:
            close_preview(context.repository, record, number, person, key)
            yield LogLine(f"{rule.name}: the preview of request {number} is closed")
    except GitopsError as error:
        yield error_line(f"preview of request {number} for {rule.name}", error)


def _removed(
    context: EventContext, chosen: Callable[[Claim], bool], why: str, *, alone: bool = False
) -> Iterator[LogLine]:
    """Remove the chosen copies. With `alone`, only if no preview of the cluster runs, whose request could be a new one."""
    for rule in context.clusters:
        try:
            scratch = _scratch(context, rule)
            if scratch is None:
                continue
            if alone and not scratch.begin(context.repository.clock.now()):
                continue
            try:
                for claim in scratch.claims():
                    if chosen(claim):
                        scratch.remove(claim)
                        yield LogLine(f"{rule.name}: removed the copies of request {claim.request}: {why}")
            finally:
                if alone:
                    scratch.end()
        except GitopsError as error:
            yield error_line(f"copies of {rule.name}", error)


def _not_previewed(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> str:
    """Return why a request is not previewed without a command, or an empty string."""
    asking = f"comment: /gitops preview {request.head}"
    if request.fork:
        return f"requests from forks need a command; {asking}"
    if _trust(context, rule, "preview_authors", context.config.preview.authors) == "nobody":
        return f"preview.authors is nobody; {asking}"
    people = [request.author] if request.author else [Account(each, each) for each in request.pushers]
    if not people or any(missing_permission(context, each, [rule]) for each in people):
        return f"its author may not give commands; {asking}"
    return ""


def _trust(context: EventContext, rule: ClusterRule, member: str, declared: str) -> str:
    """Return a rule in force: from the ledger, or from the target branch before the first entry."""
    trust: TrustRoot | None = context.position(rule).trust
    return declared if trust is None else getattr(trust, member)


def _preview(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> Iterator[LogLine]:
    bench, rules = context.bot.previews, context.config.preview
    key = None if bench is None else bench.sign_with()
    if bench is None or context.bot.person is None or key is None:
        raise GitopsError(Code.PREVIEW_UNAVAILABLE, "previews need the key of the ledger")
    workspace = context.workspace_of(rule, request)
    outcome = plan(workspace)
    if outcome.plan is None:
        yield LogLine("the plan has errors, so there is nothing to preview")
        return
    trust = context.position(rule).trust
    for each in () if trust is None or context.bot.private else sorted(trust.preview_rows):
        detail = f"no row of {each.graph}.{each.query} is shown, because this repository may be public"
        yield LogLine(f"{Code.PREVIEW_ROWS_REFUSED}: {detail}")
    folders = folders_of_tests(context, workspace, lambda: context.repository.merged_tree(request))
    wanted = Wanted(folders=folders, rows=_rows(context, rule))
    graphs, storage = _chosen(workspace, outcome, bench, wanted)
    callers = counted_callers(outcome.plan.changes)
    if not graphs:
        yield LogLine("the plan changes no schema and no query of an existing graph")
        shown = kept_plan(context.repository, rule.name, request.number)
        if callers and (shown is None or _clients(callers) != _clients(shown.callers)):
            yield from _planned_again(context, rule, request)
        return
    digest = preview_key(graphs)
    known = _known(context, rule, request, digest)
    if known is not None:
        yield LogLine("already previewed")
        if moved := _clients(callers) != _clients(known.callers):
            keep_preview(context.repository, replace(known, callers=callers), request.number, context.bot.person, key)
            yield LogLine("the clients that it breaks have changed")
        # A run that died after it had kept the preview has not reported it.
        if moved or not is_preview_status(context, rule, request, *_state(rules, known)):
            yield from _reported(context, rule, request, known)
        return
    scratch = bench.scratch(rule.name, _declared(rules), storage)
    run = _Run(rule, request, bench, scratch, graphs, outcome.plan.digest, digest, callers)
    now = context.repository.clock.now()
    if not scratch.begin(now):
        yield LogLine("another preview of this cluster is running", RunResult.LOST)
        return
    try:
        yield from _run(context, run, key)
    finally:
        scratch.end()


def _run(context: EventContext, run: _Run, key: str) -> Iterator[LogLine]:
    """Make the copies, try the change, and show the result."""
    rules, clock, request = context.config.preview, context.repository.clock, run.request
    rule, person = run.rule, context.bot.person
    claim = Claim.until(rule.name, request.number, run.key, clock.now() + UNRECORDED)
    make_room(run.scratch, claim)
    run.scratch.write(claim)
    budget = rules.budget.total_seconds()
    with run.bench.workers(budget) as ask:
        tried = try_graphs(run.graphs, run.scratch.place(claim), ask, clock, budget)
    if context.repository.has_moved(request):
        run.scratch.remove(claim)
        yield LogLine("its head moved during the run, so the result is dropped", RunResult.LOST)
        return
    record = _record(context, run, tried)
    if person is not None:
        keep_preview(context.repository, record, request.number, person, key)
    run.scratch.write(Claim.until(rule.name, request.number, run.key, clock.now() + rules.keep))
    for old in run.scratch.claims():
        if old.request == request.number and old.key != run.key:
            run.scratch.remove(old)
    context.previews[rule.name, request.number] = tried.shown
    yield from _reported(context, rule, request, record)


def _reported(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, record: PreviewRecord
) -> Iterator[LogLine]:
    """Show a kept preview in the comment and, as the last effect, in the status: what has its status is reported."""
    state, words = _state(context.config.preview, record)
    yield LogLine(words, RunResult.PROBLEMS if state is CheckState.FAILURE else RunResult.DONE)
    yield from _planned_again(context, rule, request)
    yield from set_preview_status(context, rule, request, state, words)


def _planned_again(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> Iterator[LogLine]:
    for line in plan_request(context, request, cluster=rule.name):
        yield LogLine(line.text)


def _clients(callers: Sequence[SeenCallers]) -> list[tuple[str, bool, list[str]]]:
    """Return the clients of each change, without their numbers of calls, which change all the time."""
    return [
        (each.resource, each.callers.complete, sorted(one.client for one in each.callers.clients)) for each in callers
    ]


def _record(context: EventContext, run: _Run, tried: Tried) -> PreviewRecord:
    rules = context.config.preview
    counts = Counts(_trust(context, run.rule, "preview_counts", rules.counts))
    graphs = tuple(map(in_coarse_counts, tried.graphs)) if counts is Counts.COARSE else tried.graphs
    return PreviewRecord(
        key=run.key,
        cluster=run.rule.name,
        request=run.request.number,
        head=run.request.head,
        plan_digest=run.plan_digest,
        at=timestamp(context.repository.clock.now()),
        verdict=verdict(tried.graphs, rules.block),
        counts=counts,
        graphs=graphs,
        callers=run.callers,
    )


def _state(rules: PreviewRule, record: PreviewRecord) -> tuple[CheckState, str]:
    words = status_words(record)
    if record.verdict is PreviewVerdict.BLOCKED:
        return CheckState.FAILURE, words
    return (_failed_state(rules) if record.verdict is PreviewVerdict.UNAVAILABLE else CheckState.SUCCESS), words


def _failed_state(rules: PreviewRule) -> CheckState:
    return CheckState.FAILURE if rules.required else CheckState.ERROR


def _result(context: EventContext) -> RunResult:
    return RunResult.PROBLEMS if context.config.preview.required else RunResult.DONE


def _declared(rules: PreviewRule) -> str:
    if rules.scratch is None:
        raise GitopsError(
            Code.PREVIEW_UNAVAILABLE, "preview.scratch in gitops.yaml does not set where to put the copies"
        )
    return rules.scratch


def _rows(context: EventContext, rule: ClusterRule) -> dict[str, dict[str, AllowedRows]]:
    """Return the rows that may be shown, by the rules in force. None in a repository that may be public."""
    trust, rows = context.position(rule).trust, dict[str, dict[str, AllowedRows]]()
    for each in () if trust is None or not context.bot.private else trust.preview_rows:
        rows.setdefault(each.graph, {})[each.query] = AllowedRows(each.columns, each.limit)
    return rows


def _chosen(
    workspace: Workspace, outcome: PlanOutcome, bench: PreviewBench, wanted: Wanted
) -> tuple[tuple[ChosenGraph, ...], str]:
    """Return what to try, and the storage root of the graphs. The folder is read again, because a plan keeps no texts."""
    found: list[ChosenGraph] = []

    def body(current: Session) -> PlanOutcome:
        if current.ready and outcome.plan is not None:
            found.extend(choose_graphs(current, outcome.plan, bench.live, wanted))
        return outcome

    reading(workspace, "preview", StateNeed.OPTIONAL, body)
    return tuple(found), found[0].uri.rpartition("/graphs/")[0] if found else ""


def _known(context: EventContext, rule: ClusterRule, request: ChangeRequest, key: str) -> PreviewRecord | None:
    """Return the kept preview of a request, if it has this key and is about this head."""
    try:
        known = kept_preview(context.repository, context.position(rule), rule.name, request.number)
    except GitopsError:
        return None
    same = known is not None and (known.key, known.head, known.closed_at) == (key, request.head, None)
    return known if same else None


def _scratch(context: EventContext, rule: ClusterRule) -> Scratch | None:
    bench, declared = context.bot.previews, context.config.preview.scratch
    return None if bench is None or declared is None else bench.scratch(rule.name, declared, "")
