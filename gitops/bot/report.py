"""Reports on the forge, in this order: stores the plan, sets the status, writes the check, then writes the comment.

Only the status is essential, so failing to set it is a problem of the run. Any later failure is only logged, because a
forge that temporarily refuses comments must not make a successful apply fail.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from posixpath import normpath
from typing import Any, TypeVar

from gitops.bot.command_syntax import CommandAction, CommentCommand
from gitops.bot.context import ClusterReport, EventContext, comment_subject, warning_key
from gitops.bot.stored_plans import keep_first, keep_left, keep_plan, keep_refusal, plan_view, refusal_record
from gitops.cluster.approvals.verify import HOSTED, REFUSALS, UNKNOWN_AUTHORS, code_of_unknown, remedy_of
from gitops.cluster.changesets.stream import ChangesetAnswer, Until, answer, newest_attempt
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.address import Address, Kind, query_address
from gitops.cluster.model.change import Action, Reason, Tier
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import Authors, Debt, How, LockObservation
from gitops.cluster.model.others import OtherRequests, RequestConflict
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome
from gitops.cluster.session.workspace import Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    Annotation,
    ChangeRequest,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
)
from gitops.forge.text import cut
from gitops.git.port import ZERO, GitStore
from gitops.render.changesets import changeset_outcome
from gitops.render.characters import visible
from gitops.render.commands import approve_command
from gitops.render.comment import (
    apply_comment,
    marker,
    plan_comment,
    refusal_comment,
)
from gitops.render.comment_inputs import (
    ApplyComment,
    ApprovalState,
    CommentSubject,
    OtherRequest,
    PlanComment,
    RefusalComment,
    RefusedCommand,
)
from gitops.render.markdown import hidden
from gitops.render.previews import PreviewView, preview_view, served_commands
from gitops.render.text import apply_counts
from gitops.render.verdicts import failed_tests
from gitops.render.words import count
from gitops.repository.kept_previews import kept_preview
from gitops.repository.results import LogLine, RunResult, diagnostic_lines, logged, result_of
from gitops.review.tests.verdicts import MAX_FAILURES, QueryTestReport

_MAX_STATUS = 140
_MOST_COVERED = 10
_Outcome = TypeVar("_Outcome", PlanOutcome, ApplyOutcome)


def status_context(verb: str, cluster: str) -> str:
    """Return a verb's status context for a cluster."""
    return f"gitops/{verb}/{cluster}"


def report_plan(
    context: EventContext,
    subject: CommentSubject,
    outcome: PlanOutcome,
    *,
    others: OtherRequests | None = None,
    voids: tuple[OtherRequest, ...] = (),
    explained: tuple[str, ...] = (),
    refusals: tuple[RefusedCommand, ...] = (),
    debts: tuple[Debt, ...] = (),
    earlier: frozenset[Address] = frozenset(),
    via_forge: frozenset[Tier] = frozenset(),
    verdict_missing: bool = False,
    standing: frozenset[tuple[str, ...]] = frozenset(),
    tests: QueryTestReport | None = None,
) -> Iterator[LogLine]:
    """Report a plan.

    `others` says how other open requests concern it, `voids` are those whose approvals a merge makes stale, `explained` are
    addresses to describe in full. Reviews and commands count as approvals for changes of the tiers `via_forge`.
    `verdict_missing` means that the forge's own verdict is required but is not "approved". `earlier` and `standing` are
    approvals and warnings of the target, and `tests` are the results of its query tests.
    """
    bot = context.bot
    state, text, result = plan_status(outcome, earlier, verdict_missing=verdict_missing, tests=tests)
    caused = _without_used(outcome, standing)
    approvals = _gate_states(subject, caused, earlier, via_forge=via_forge)
    comment = PlanComment(
        subject=subject,
        outcome=caused,
        approvals=approvals,
        approve_all=_approve_all(context, approvals, subject, request=subject.request),
        **_about_others(context, others),
        voids=voids,
        explained=explained,
        refusals=refusals,
        debts=debts,
        forge_verdict_missing=verdict_missing,
        forge_commands=takes_commands(context),
        several=len(context.clusters) > 1,
        templates=context.templates,
        view=plan_view(context, outcome),
        preview=_preview(context, subject, outcome),
        tests=tests,
    )
    bot.on_report(ClusterReport(comment, line := f"plan of {subject.cluster}: {text}", outcome.plan))
    comment, kept, not_kept = keep_first(context, comment, outcome, others)
    body = plan_comment(replace(comment, run=bot.run_url, report=_report_page(context, subject)))
    yield from _set_status(context, subject, "plan", state, text)
    failures = () if tests is None else tuple(tests.diagnostics())[:MAX_FAILURES]
    yield from _write_check(context, subject, state, text, body, (*caused.diagnostics, *failures))
    shown = yield from _write_comment(context, subject, body, only_update=_is_quiet(comment))
    if kept is not None and not shown:
        _, not_kept = keep_plan(context, replace(kept, shown=False), outcome, comment, others)
    yield LogLine(line, result)
    errors = (d for d in (*outcome.diagnostics, *failures) if d.severity is Severity.ERROR)
    yield from diagnostic_lines(errors, outcome.config_dir)
    yield from map(LogLine, filter(None, [not_kept]))


def _preview(context: EventContext, subject: CommentSubject, outcome: PlanOutcome) -> PreviewView | None:
    """Return the newest preview of a request, if previews are on and the plan has something to preview."""
    if not (context.config.preview.enabled and subject.request and outcome.plan):
        return None
    previewed = (Kind.SCHEMA, Kind.QUERY)
    if all(change.address.kind not in previewed for change in outcome.plan.changes):
        return None
    found, served = None, False
    try:
        for rule in context.clusters:
            if rule.name == subject.cluster:
                position = context.position(rule)
                served = position.trust is not None and position.trust.serve_previews
                found = kept_preview(context.repository, position, rule.name, subject.request)
    except GitopsError as error:
        return PreviewView(f"not shown: {error.code}")
    if found is None or found.head != subject.head:
        return PreviewView("not run for this head")
    server, commands = context.config.serve.url, tuple[str, ...]()
    if server is not None and served:
        moved = {change.address for change in outcome.plan.changes if change.action is not Action.UPDATE}
        both = {query_address(g.graph, run.query) for g in found.graphs for run in g.queries} - moved
        commands = served_commands(found, server, both)
    return preview_view(found, context.previews.get((subject.cluster, subject.request), ()), commands)


def set_preview_status(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, state: CheckState, text: str
) -> Iterator[LogLine]:
    """Set the status of a preview, which is separate from that of the plan."""
    subject = comment_subject(rule, request.number, request.head, ZERO, request.url)
    yield from _set_status(context, subject, "preview", state, text)


def is_preview_status(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, state: CheckState, text: str
) -> bool:
    """Return whether a request's head has this status of a preview. Raises GitopsError."""
    found = context.forge.statuses(request.head)
    wanted = status_context("preview", rule.name), state, cut(visible(text), _MAX_STATUS)
    return any((each.context, each.state, each.description) == wanted for each in found)


def _about_others(context: EventContext, others: OtherRequests | None) -> dict[str, Any]:
    """Return the parts of a comment about other requests, with their titles: those in conflict, then those merged before."""
    if others is None:
        return {}
    found = {each.request: each for each in others.conflicts}
    merges = () if others.later is None else others.later.merges
    views = []
    for number in dict.fromkeys((*found, *(each.request for each in merges))):
        conflict, request = found.get(number, RequestConflict(number)), context.known_requests.get(number)
        title, url = ("", "") if request is None else (request.title, request.url)
        views.append(OtherRequest(number, title, url, conflict.resources, conflict.paths, conflict.problems))
    return {"others": tuple(views), "later": others.later}


def _is_quiet(comment: PlanComment) -> bool:
    """Return whether a plan changes nothing and says nothing else, so that a status is enough."""
    outcome, tests = comment.outcome, comment.tests
    idle = outcome.lands and not (outcome.plan and outcome.plan.changes) and (tests is None or tests.ok)
    return idle and not (comment.refusals or comment.explained or comment.voids)


def _report_page(context: EventContext, subject: CommentSubject) -> str:
    """Return the address of a request's page in the published report; empty if `gitops.yaml` names no report."""
    report = context.config.report_address(subject.cluster) if subject.request else ""
    return f"{report}requests/{subject.request}.html" if report else ""


def report_untouched(context: EventContext, subject: CommentSubject) -> Iterator[LogLine]:
    """Set a successful status for a cluster that the request does not touch, because forges can require the status."""
    yield from _set_status(context, subject, "plan", CheckState.SUCCESS, "does not touch the cluster")


def report_apply(
    context: EventContext,
    subjects: Sequence[CommentSubject],
    outcome: ApplyOutcome,
    *,
    left: PlanOutcome | None = None,
    earlier: frozenset[Address] = frozenset(),
    debts: tuple[Debt, ...] = (),
    notes: tuple[str, ...] = (),
) -> Iterator[LogLine]:
    """Report one commit's apply to every change request that it merged.

    `subjects` has one item per request, or a single item if there is no request. `left` is the plan of the changes that
    wait for approvals, `earlier` are the changes that were already waiting, `debts` are the ones that this apply added,
    and `notes` are lines about how it was started.
    """
    state, text, result = apply_status(outcome)
    approvals = tuple(
        ApprovalState(
            resource=resource,
            satisfied=True,
            by=tuple(a.approved_by for a in used),
            emergency=any(a.approval_id == debt.approval_id for a in used for debt in debts),
        )
        for resource, used in sorted(outcome.approvals_used.items())
    )
    if left is not None:
        # The request is merged, so approvals are for the target branch.
        missing = _gate_states(replace(subjects[0], request=0), _without_used(left), earlier, via_forge=frozenset())
        approvals += tuple(each for each in missing if not each.satisfied)
    line = f"apply of {subjects[0].cluster}: {text}"
    yield from _set_status(context, subjects[0], "apply", state, text)
    if attempt := newest_attempt(outcome.changesets):
        # Someone may be waiting for the commit of a merge that landed together with a later one.
        commits = dict.fromkeys((subjects[0].head, *attempt[-1].commits[-_MOST_COVERED:]))
        for commit in commits:
            yield from _set_status(context, replace(subjects[0], head=commit), "changeset", *changeset_status(attempt))
    for subject in subjects:
        comment = ApplyComment(
            subject=subject,
            outcome=_without_used(outcome),
            approvals=approvals,
            approve_all=_approve_all(context, approvals, subject, request=0),
            debts=debts,
            notes=notes,
            run=context.bot.run_url,
            forge_commands=takes_commands(context),
            several=len(context.clusters) > 1,
            templates=context.templates,
        )
        context.bot.on_report(ClusterReport(comment, line))
        quiet, body = outcome.ok and outcome.converged and not (outcome.changes or debts), apply_comment(comment)
        if left is not None and subject.request:
            yield from map(LogLine, filter(None, [keep_left(context, subject, left, body)]))
        yield from _write_comment(context, subject, body, only_update=quiet)
    yield LogLine(line, result)


def report_refusal(
    context: EventContext,
    subject: CommentSubject,
    command: str,
    diagnostics: tuple[Diagnostic, ...],
    refusals: tuple[RefusedCommand, ...] = (),
) -> Iterator[LogLine]:
    """Report that a command (`plan`, `apply`, `import`) could not run at all, and why."""
    first = diagnostics[0] if diagnostics else None
    line = f"{command} of {subject.cluster} refused: {first.message if first else 'refused'}"
    comment = RefusalComment(
        subject=subject,
        command=command,
        diagnostics=diagnostics,
        refusals=refusals,
        run=context.bot.run_url,
        forge_commands=takes_commands(context),
        several=len(context.clusters) > 1,
        templates=context.templates,
    )
    context.bot.on_report(ClusterReport(comment, line))
    body, text = refusal_comment(comment), first.code if first else "refused"
    kept = refusal_record(subject, diagnostics) if command == "plan" and subject.request else None
    if kept is not None:
        yield from map(LogLine, filter(None, keep_refusal(context, kept, body)[1:]))
    yield from _set_status(context, subject, command, CheckState.FAILURE, text)
    if command == "plan":
        yield from _write_check(context, subject, CheckState.FAILURE, text, body, diagnostics)
    shown = yield from _write_comment(context, subject, body)
    if kept is not None and not shown:
        keep_refusal(context, replace(kept, shown=False), body)
    yield LogLine(line, result_of(diagnostics) or RunResult.PROBLEMS)


def record_deployment(
    context: EventContext, subject: CommentSubject, state: DeploymentState, text: str = ""
) -> Iterator[LogLine]:
    """Record a deployed commit in the forge's overview, if the forge has one and `gitops.yaml` enables it."""
    if context.forge.features.deployments and context.config.forge.deployments:
        environment = f"{subject.environment}/{subject.cluster}"
        record = Deployment(subject.head, environment, state, cut(visible(text), _MAX_STATUS))
        yield from logged("the deployment is not recorded", lambda: context.forge.record_deployment(record))


def set_labels(
    context: EventContext, number: int, current: tuple[str, ...], wanted: Mapping[str, bool]
) -> Iterator[LogLine]:
    """Add and remove a request's labels. Writes nothing if they are already correct."""
    add = [name for name, on in wanted.items() if on and name not in current]
    remove = [name for name, on in wanted.items() if not on and name in current]
    if (add or remove) and number and context.forge.features.labels and context.config.forge.labels:
        yield from logged("the labels are not set", lambda: context.forge.set_labels(number, add=add, remove=remove))


def takes_commands(context: EventContext) -> bool:
    """Return True if the bot accepts commands in comments on requests."""
    return context.forge.features.permissions and context.forge.features.reactions


def retry_command(context: EventContext, rule: ClusterRule, failed: Changeset) -> str:
    """Return the command to retry a failed changeset.

    It is a comment if comments are accepted as commands, otherwise a command for a machine that can access the graphs.
    """
    number = failed.source.pull_request
    if number and takes_commands(context):
        return f"comment /gitops retry on request {number}"
    return f"on the machine that keeps the graphs: gitops changeset retry {failed.key} --cluster {rule.name}"


def unlock_command(context: EventContext, rule: ClusterRule, lock: LockObservation) -> str:
    """Return the command that removes a lock whose run is over: a comment on a hosted forge, otherwise a shell command."""
    only = len(context.clusters) == 1
    if context.repository.forge_kind in HOSTED:
        cluster = None if only else rule.name
        return str(CommentCommand(CommandAction.UNLOCK, lock_id=lock.unlock_id, cluster=cluster))
    # Whoever reads this is at a shell, and may have no request to comment on.
    return f"gitops force-unlock {lock.unlock_id}{'' if only else f' --cluster {rule.name}'}"


def report_unanswered(
    context: EventContext, subjects: Sequence[CommentSubject], rule: ClusterRule, lock: LockObservation
) -> Iterator[LogLine]:
    """Report on merged requests that a lock keeps their merge waiting, with the command that removes it.

    Sets no status, because the run that holds the lock may still be active, and reports its result at its end.
    """
    info, found = lock.info, Diagnostics()
    holder = (
        "an unknown run holds the lock"
        if info is None
        else f"{info.operation} has held the lock since {info.created_at}"
    )
    found.add(Code.STATE_LOCK_HELD, rule.name, f"{holder}, and this merge has no result yet", fix="")
    unlock = unlock_command(context, rule, lock)
    for subject in subjects:
        comment = RefusalComment(
            subject=subject,
            command="apply",
            diagnostics=tuple(found),
            unlock=unlock,
            run=context.bot.run_url,
            forge_commands=context.repository.forge_kind in HOSTED,
            several=len(context.clusters) > 1,
            templates=context.templates,
        )
        context.bot.on_report(ClusterReport(comment, f"apply of {rule.name}: interrupted or still running"))
        yield from _write_comment(context, subject, refusal_comment(comment))
        if subject.request:
            yield LogLine(f"request {subject.request}: its merge has no result yet; if that run is over: {unlock}")


def _set_status(
    context: EventContext, subject: CommentSubject, verb: str, state: CheckState, text: str
) -> Iterator[LogLine]:
    name = status_context(verb, subject.cluster)
    at = timestamp(context.repository.clock.now())
    try:
        words, page = cut(visible(text), _MAX_STATUS), context.bot.run_url or subject.page
        context.forge.set_status(CheckStatus(subject.head, name, state, words, at, page))
    except GitopsError as error:
        yield LogLine(f"the status {name} is not set: {error.code}: {error.detail}", RunResult.PROBLEMS)


def _write_check(
    context: EventContext,
    subject: CommentSubject,
    state: CheckState,
    text: str,
    body: str,
    diagnostics: tuple[Diagnostic, ...],
) -> Iterator[LogLine]:
    """Write the check, with each diagnostic on its line. A diagnostic about a whole file is on the first line."""
    if not (context.forge.features.checks and context.config.forge.checks):
        return
    path = next((rule.path for rule in context.clusters if rule.name == subject.cluster), ".")
    folder = "" if path == "." else f"{path}/"
    annotations = tuple(
        Annotation(
            path=normpath(folder + each.source.file),
            line=max(1, each.source.line),
            message=f"{each.path}: {each.message}",
            severity=each.severity,
            title=each.code,
        )
        for each in diagnostics
        if each.source is not None
    )
    report = CommitCheck(
        commit=subject.head,
        name=f"gitops {subject.cluster}",
        state=state,
        title=cut(visible(text), _MAX_STATUS),
        summary=body,
        annotations=annotations,
    )
    yield from logged("the check is not written", lambda: context.forge.set_check(report))


def _write_comment(
    context: EventContext, subject: CommentSubject, body: str, *, only_update: bool = False
) -> Generator[LogLine, None, bool]:
    """Write the comment and return whether it is on the forge.

    With `only_update`, only an existing comment is rewritten, because a status is enough for an unchanged plan.
    """
    number, mark = subject.request, marker(subject.cluster)
    try:
        own = (c for c in context.forge.comments(number) if c.marker is not None) if number and only_update else ()
        if number and (not only_update or any(comment.body.startswith(hidden(mark)) for comment in own)):
            context.forge.upsert_comment(number, mark, body)
    except GitopsError as error:
        yield LogLine(f"the comment is not written: {error.code}: {error.detail}")
        return False
    return True


def _without_used(outcome: _Outcome, standing: frozenset[tuple[str, ...]] = frozenset()) -> _Outcome:
    """Return an outcome as shown in comments, without `standing` warnings and without approvals that earlier changes used."""
    found = (d for d in outcome.diagnostics if d.code != Code.APPROVAL_SPENT and warning_key(d) not in standing)
    return replace(outcome, diagnostics=tuple(found))


# A longer command would not be read.
_MOST_REVERTED = 5


def sign_commits(request: ChangeRequest) -> str:
    """Return the remedy for a change request whose authors are unknown."""
    return request.rebased("sign the commits: git rebase --exec 'git commit --amend --no-edit -S'")


def take_out(git: GitStore, target: str, head: str, authors: Authors) -> str | None:
    """Return the remedy for a merged change whose authors are unknown: to revert its commits, newest first.

    `head` is the commit of the branch `target`. Returns None if it does not contain these commits as they are, as after a
    squash.
    """
    commits: list[str] = []
    for each in (origin.commit for origin in authors.origins if origin.how is How.UNKNOWN):
        if not git.is_ancestor(each, head) or len(git.commit(each).parents) != 1:
            return None
        commits.insert(next((i for i, other in enumerate(commits) if git.is_ancestor(other, each)), len(commits)), each)
    if not 0 < len(commits) <= _MOST_REVERTED:
        return None
    branch, upstream = f"revert-{commits[0][:12]}", f"origin/{shlex.quote(target.removeprefix('refs/heads/'))}"
    return (
        f"update the target: git fetch origin; start a branch: git switch --create {branch} {upstream}; take the change out: "
        f"git revert --no-edit -S {' '.join(commits)}; push it: git push origin {branch}; merge it, and propose the change "
        "again in signed commits"
    )


def with_unknown_authors(
    workspace: Workspace, outcome: PlanOutcome, remedy: Callable[[Authors], str | None]
) -> PlanOutcome:
    """Return a plan with a warning for each missing approval that no one can give because authors are unknown.

    Its fix is the `remedy` for the author, if any; without it, people would be asked to approve in vain.
    """
    found, plan, governance = Diagnostics(), outcome.plan, workspace.governance
    if plan is None or governance is None:
        return outcome
    for need in plan.approvals_required:
        change = plan.change(need.resource)
        if need.satisfied or change is None:
            continue
        authors = governance.authors_for(change)
        if authors.unknown and not authors.pending:
            code = code_of_unknown(authors.unknown)
            own = remedy(authors) if code is Code.APPROVAL_AUTHORS_UNKNOWN else None
            fix = own or remedy_of(code, governance.target)
            found.add(code, need.resource, "; ".join(authors.unknown), severity=Severity.WARNING, fix=fix)
    # Approvals that were given nevertheless are refused for the same reason, and need the same remedy.
    fixes = {each.path: each.fix for each in found}
    given = (
        replace(each, fix=fixes[each.path]) if each.code in UNKNOWN_AUTHORS and each.path in fixes else each
        for each in outcome.diagnostics
    )
    return replace(outcome, diagnostics=(*given, *found))


def _gate_states(
    subject: CommentSubject,
    outcome: PlanOutcome,
    earlier: frozenset[Address] = frozenset(),
    *,
    via_forge: frozenset[Tier],
) -> tuple[ApprovalState, ...]:
    """Return the state of each gate in a plan: open, waiting for an approval, or with a refused approval and the reason."""
    states, plan = [], outcome.plan
    chosen = ["--request", str(subject.request)] if subject.request else []
    for need in () if plan is None else plan.approvals_required:
        if need.resource in earlier:
            states.append(ApprovalState(resource=need.resource, satisfied=False, needed=need.needed, earlier=True))
            continue
        refused = [d for d in outcome.diagnostics if d.path == need.resource and d.code in REFUSALS]
        # Skip problems of a particular approval, which have a step. This one means that no one can give an approval.
        unknown = next((d for d in refused if d.code in UNKNOWN_AUTHORS and d.step is None), None)
        refused = [d for d in refused if d is not unknown]
        selected = [*chosen, "--cluster", subject.cluster]
        command = "" if plan is None else approve_command(plan, need.resource, selected)
        states.append(
            ApprovalState(
                resource=need.resource,
                satisfied=need.satisfied,
                by=tuple(a.approved_by for a in need.approvals),
                refused=() if need.satisfied else tuple((d.code, d.message) for d in refused),
                step=next((d.step for d in refused), None),
                unknown="" if unknown is None else unknown.message,
                first="" if unknown is None else unknown.fix or "",
                command="" if need.satisfied or unknown is not None else command,
                reason=need.reason,
                needed=need.needed,
                count=need.words,
                may=() if need.satisfied else need.may,
                via_forge=unknown is None and need.tier in via_forge and rules_of(need.resource).in_folder,
            )
        )
    return tuple(states)


def _approve_all(
    context: EventContext, approvals: Sequence[ApprovalState], subject: CommentSubject, *, request: int
) -> str:
    """Return the shell-quoted command for all missing approvals; empty if a comment requests a single one.

    Keys and rules belong to all clusters. The command does not contain a plan digest, so it shows everything before it
    asks.
    """
    asked = [Address(each.resource) for each in approvals if each.command]
    chosen = ["--request", str(request)] if request else []
    if len({rule.ref for rule in context.clusters}) == 1 < len(context.clusters) and any(
        address.kind is Kind.TRUST for address in asked
    ):
        return shlex.join(["gitops", "approve", "--all", *chosen])
    return shlex.join(["gitops", "approve", "--all", *chosen, "--cluster", subject.cluster]) if len(asked) > 1 else ""


# -- statuses ----------------------------------------------------------------------------------------------------------
#
# Text of a commit's statuses: of a plan, of an apply, and of the changeset that an apply recorded.
#
# A status is one line of at most 140 characters, so the most important part comes first.


def plan_status(
    outcome: PlanOutcome, earlier: frozenset[Address], *, verdict_missing: bool, tests: QueryTestReport | None = None
) -> tuple[CheckState, str, RunResult]:
    """Return a plan's status with its tests, which fail it if the rules require them.

    A missing approval is a failure, never neutral, so that nothing is merged because someone overlooked it.
    """
    state, text, result = _status_without_tests(outcome, earlier, verdict_missing=verdict_missing)
    if tests is None or tests.ok:
        return state, text, result
    text = f"{text}; {failed_tests(tests)}"
    return (CheckState.FAILURE, text, RunResult.PROBLEMS) if tests.blocks else (state, text, result)


def _status_without_tests(
    outcome: PlanOutcome, earlier: frozenset[Address], *, verdict_missing: bool
) -> tuple[CheckState, str, RunResult]:
    plan = outcome.plan
    errors = sum(d.severity == "error" for d in outcome.diagnostics)
    if errors:
        return CheckState.FAILURE, count(errors, "error"), result_of(outcome.diagnostics)
    if plan is None:
        return CheckState.ERROR, "no plan", RunResult.PROBLEMS
    text = count(len(plan.edits), "change")
    missing = [r.resource for r in plan.approvals_required if not r.satisfied]
    if own := [resource for resource in missing if resource not in earlier]:
        text += f"; needs approval: {', '.join(own)}"
    if earlier:
        text += f"; an earlier merge needs approval: {', '.join(sorted(earlier))}"
    if outcome.blockers:
        reasons = ", ".join(f"{each.path} ({each.code})" for each in outcome.blockers)
        return CheckState.FAILURE, f"{text}; would not be applied: {reasons}", RunResult.PROBLEMS
    if missing:
        return CheckState.FAILURE, text, RunResult.WAITS
    if verdict_missing:
        return CheckState.FAILURE, f"{text}; needs the forge's own approval", RunResult.WAITS
    return CheckState.SUCCESS, text, RunResult.DONE


def apply_status(outcome: ApplyOutcome) -> tuple[CheckState, str, RunResult]:
    """Return an apply's status, which is a success only if everything declared is applied.

    A failure reports the first failed change.
    """
    failed = {record.state for record in outcome.changesets} == {ChangesetState.FAILED}
    text = "nothing is applied" if failed else apply_counts(outcome)
    if not outcome.ok:
        first = next(d for d in outcome.diagnostics if d.severity == "error")
        text += f"; {first.code}{f' at {first.path}' if first.path else ''}"
        return CheckState.FAILURE, text, result_of(outcome.diagnostics)
    if outcome.converged:
        return CheckState.SUCCESS, text, RunResult.DONE
    # Anything that was not applied is a problem, unless only an approval is missing.
    waits = any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
    return CheckState.FAILURE, text, RunResult.WAITS if waits else RunResult.PROBLEMS


def changeset_status(parts: Sequence[Changeset]) -> tuple[CheckState, str]:
    """Return a merge's result, as `gitops changeset watch` reports it.

    The description contains the decisive changeset. An apply that continues with the last part has no record of the
    earlier parts, which have already been applied.
    """
    found = {answer(each, Until.COMMITTED): each for each in reversed(parts)}
    number, _, most = parts[-1].part.partition("/")
    if failed := found.get(ChangesetAnswer.FAILED):
        return CheckState.FAILURE, changeset_outcome(failed)
    waits = ChangesetAnswer.WAITING in found or number != most
    return CheckState.PENDING if waits else CheckState.SUCCESS, changeset_outcome(parts[-1])
