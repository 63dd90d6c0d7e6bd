"""Terminal output: a line with the result, a body, then the problems.

Every line starts with a word from the program, and contains no characters that control a terminal or a CI log.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Change, Disposition, Reason
from gitops.cluster.model.changeset import Changeset
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.others import OtherRequests
from gitops.cluster.model.outcome import (
    ApplyOutcome,
    ApprovalSubject,
    ApproveOutcome,
    DecisionOutcome,
    DecisionSubject,
    DrillOutcome,
    PlanOutcome,
    ReadyOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
    ValidateOutcome,
    VerbOutcome,
)
from gitops.cluster.model.plan import Plan, first_failure
from gitops.cluster.model.served import Follows, Replica, RevisionIdentity, ServingState
from gitops.cluster.model.trust import RuleChange
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Severity, by_place
from gitops.database.language.suggest import Suggestion
from gitops.render.characters import visible
from gitops.render.commands import approve_command, completed
from gitops.render.words import FORMATTING_ONLY, count

if TYPE_CHECKING:
    from gitops.cluster.model.access import AccessDiff
    from gitops.cluster.model.identity import Identity

_NAMES = 5
_MOST_ALIKE = 3
_MOST_LANDING = 20
_SYNC = {
    True: "yes",
    False: "no; gitops plan shows what an apply would do",
    None: "not known, because the folder has errors; gitops validate shows them",
}

_OF_OTHERS = (
    Reason.DEPENDENCY_NOT_APPLIED,
    Reason.NOT_TRIED,
    Reason.CHANGESET_FAILED,
    Reason.RUN_STOPPED,
    Reason.HOST_UNREACHABLE,
)
"""Reasons that don't concern the change itself. Changes that wait for such a reason share one line."""

_FOLLOWS = {
    Follows.WATCH: "",
    Follows.ASKED: ", and looks for a newer one only when asked: send it SIGHUP",
    Follows.NEVER: ", which was chosen when it was started",
}


def to_text(outcome: VerbOutcome, *, folder: str = "", quiet: bool = False, verbose: bool = False) -> str:
    """Return a command's output. Each line ends with a line feed. `quiet` prints only problems.

    `folder` is the path of the cluster folder for the reader. `verbose` prints all remedies and all waiting changes.
    Raises KeyError for an unknown outcome.
    """
    body = [] if quiet else _body(outcome, verbose=verbose)
    problems = diagnostic_lines(outcome.diagnostics, folder=folder, verbose=verbose)
    return "".join(visible(line) + "\n" for line in [*body, *problems])


def diagnostic_lines(diagnostics: Iterable[Diagnostic], *, folder: str = "", verbose: bool = False) -> list[str]:
    """Return lines `ERROR code path: message (file:line:column)`, by position in each file.

    Files are relative to `folder`.

    Remedies are on a separate line below the first problem that has them: those of errors, those with a similar name,
    or all with `verbose`. Without `verbose`, one warning represents all warnings with the same text.
    """
    lines: list[str] = []
    fixes = set[str]()
    found = by_place(diagnostics)
    warnings = Counter((d.code, d.message) for d in found if d.severity is not Severity.ERROR)
    many = {} if verbose else {words: number for words, number in warnings.items() if number > _MOST_ALIKE}
    said = set[tuple[Code, str]]()
    for d in found:
        is_error = d.severity is Severity.ERROR
        place = f" ({d.source.shown(folder)})" if d.source is not None else ""
        where = f" {d.path}" if d.path else ""
        words = (d.code, d.message)
        if words in many and not is_error:
            if words in said:
                continue
            said.add(words)
            where += f" and {many[words] - 1} more"
        code = f"{d.code}[{d.rule}]" if d.rule else d.code
        lines.append(f"{'ERROR' if is_error else 'WARN '} {code}{where}: {completed(d.message)}{place}")
        shown = is_error or verbose or isinstance(d.fix, Suggestion)
        if shown and d.fix is not None and d.fix not in fixes:
            fixes.add(d.fix)
            lines.append(f"      fix: {completed(d.fix)}")
    return lines


def _body(outcome: VerbOutcome, *, verbose: bool) -> list[str]:
    match outcome:
        case ValidateOutcome(ok=True):
            dependencies = count(len(outcome.dependencies), "dependency", "dependencies")
            return [f"cluster config valid: {count(len(outcome.resources), 'resource')}, {dependencies}"]
        case ValidateOutcome():
            return ["cluster config invalid"]
        case PlanOutcome():
            return _plan(outcome)
        case ApplyOutcome(dry_run=None):
            return _apply(outcome, verbose=verbose)
        case ApplyOutcome():
            counts = apply_counts(outcome).replace(" applied", " would be applied", 1)
            first = counts if outcome.ok else f"would fail{_first(outcome)}"
            return [f"Dry run: {first}", *_dry_run(outcome)]
        case ApproveOutcome(ok=True, approval=Approval() as given):
            what = f"{given.operation} {given.resource}"
            first = f"Approved: {what}, by {given.approved_by} (approval {given.approval_id})"
            return [first] if outcome.commit is None else [first, f"  commit: {outcome.commit}"]
        case ApproveOutcome(about=ApprovalSubject() as subject):
            return subject_lines(subject)
        case ApproveOutcome():
            return ["Approve failed"]
        case DecisionOutcome(commit=None, about=DecisionSubject() as decided):
            first = f"{outcome.operation.capitalize()}: approval {outcome.approval_id}"
            if not decided.resource:
                return [f"{first}: {decided.reason}", f"  commit of the approval: {decided.commit}"]
            by = f"  given by {decided.principal}: {decided.reason}"
            return [f"{first} of {decided.resource}", by, f"  commit of the approval: {decided.commit}"]
        case DecisionOutcome(commit=None) | RefreshOutcome(ok=False):
            return [f"{outcome.operation.capitalize()} failed"]
        case DecisionOutcome():
            what = f"approval {outcome.approval_id}{outcome.resource and f' of {outcome.resource}'}"
            done = "Revoked" if outcome.operation == "revoke" else "Countersigned"
            first = f"{done}: {what}, by {outcome.decided_by}"
            lines = [first, f"  commit: {outcome.commit}"]
            if outcome.recorded is not None:
                lines.append("  the ledger records it" if outcome.recorded else "  not recorded in the ledger yet")
            lines += [f"  deleted: {ref.removeprefix('refs/heads/')}" for ref in outcome.deleted]
            lines += [f"  the branch of the approval stays: {outcome.kept}"] if outcome.kept else []
            return lines
        case StatusOutcome(ok=False):
            return ["Status failed"]
        case StatusOutcome():
            return _status(outcome, verbose=verbose)
        case RefreshOutcome(observations=seen):
            lines = [f"{outcome.operation.capitalize()}: {_extent(seen)}"]
            if seen.state_cas is not None:
                lines.append(f"  state_cas: {seen.state_cas}")
            return [*lines, lock_line(seen)]
        case DrillOutcome():
            return _drill(outcome)
        case ReadyOutcome():
            return _ready(outcome)
        case UnlockOutcome(ok=True, observations=seen):
            return [f"Lock removed{_holder(seen)}"]
        case UnlockOutcome(observations=seen):
            shows_lock = seen.held.held or seen.held.problem == Code.STATE_LOCK_READ_ERROR
            return ["Force-unlock failed", *([lock_line(seen)] if shows_lock else [])]
    raise KeyError(type(outcome).__name__)


def _plan(outcome: PlanOutcome) -> list[str]:
    plan = outcome.plan
    if not outcome.ok or plan is None:
        return ["Plan failed"]
    from gitops.render.plan_views import ATOMIC, PlanView, headline, what_if_views

    view = PlanView(plan, atomic=outcome.atomic)
    missing = {
        need.resource: need.needed - len(need.approvals) for need in plan.approvals_required if not need.satisfied
    }
    debts = [f"{count(len(outcome.debts), 'countersignature')} missing"] if outcome.debts else []
    lines = [f"Plan: {headline(outcome, view, sum(missing.values()), debts)}"]
    lines += change_lines(plan)
    lines += [] if plan.access is None else access_lines(plan.access)
    for would in what_if_views(outcome.what_if):
        said = "" if would.actions else f" {would.said}"
        lines.append(f"  the strategies of {would.place} would run now:{said}")
        for action in would.actions:
            lines += [f"    {action.sql}", *(f"      {reason}" for reason in action.reasons)]
        lines += [f"    {each}" for each in would.refused]
        lines += [f"    {would.played}"] if would.played else []
    lines += [f"  {ATOMIC}"] if view.landing else []
    for landing in view.landing:
        names = landing.resources
        more = f" and {len(names) - _MOST_LANDING} more" if len(names) > _MOST_LANDING else ""
        lines.append(f"    {landing.when}: {', '.join(names[:_MOST_LANDING])}{more}: {landing.reason}")
        lines += [f"      {landing.note}"] if landing.note else []
    lines += [f"  {view.undo_counts}"] if plan.undoings else []
    for undone in view.undone:
        lines.append(f"    {undone.resource}: {undone.undo}")
        lines += [f"      {words}" for words in undone.lines]
        lines += [f"      to restore its rows, add to cluster.yaml: {line}" for line in undone.restore]
    if outcome.texts:
        from gitops.render.change_rows import text_diff

        for diff in map(text_diff, outcome.texts):
            body = diff.text.splitlines() or ["  only the layout differs"]
            lines += [f"  diff of {', '.join(diff.resources)}", *(f"    {line}" for line in body)]
    lines += obstacle_lines(outcome)
    lines += other_lines(outcome.others) if outcome.others is not None else []
    lines += [f"  approval of {need.resource}: {need.words}" for need in plan.approvals_required]
    if missing and outcome.selected is not None:
        lines.append("  to approve, if you are not an author of the change:")
        lines += [f"    {approve_command(plan, address, outcome.selected)}" for address in missing]
    return lines


def access_lines(diff: AccessDiff) -> list[str]:
    """Return a table of the actors who gain and lose access."""
    from gitops.render.plan_views import MOST_ROWS, access_counts, access_views

    lines = [f"  access: {access_counts(diff)}"]
    rows = [view.cells for view in access_views(diff)]
    widths = [max((len(cells[place]) for cells in rows[:MOST_ROWS]), default=0) for place in range(6)]
    for *cells, last in rows[:MOST_ROWS]:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(f"    {padded}  {last}".rstrip())
    return [*lines, f"    and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else lines


def obstacle_lines(outcome: PlanOutcome) -> list[str]:
    """Return the problems that prevent the plan from being applied, one line each."""
    if not outcome.obstacles:
        return []
    return [
        "  this plan cannot be applied completely:",
        *(f"    {each.path}: {each.message} ({each.code})" for each in outcome.obstacles),
    ]


def other_lines(others: OtherRequests) -> list[str]:
    """Describe how the other open requests affect a plan."""
    lines = []
    for each in others.conflicts:
        where = f"request {each.request}"
        lines += [f"  conflicts with {where}: git can't merge both: {few(each.paths)}"] if each.paths else []
        lines += [f"  conflicts with {where}: with both, {p.code} at {p.path}: {p.message}" for p in each.problems[:5]]
        if each.resources and not each.blocks:
            lines.append(f"  also changed by {where}: {few(each.resources)}")
    if (later := others.later) is not None:
        first = ", ".join(f"request {each.request} ({each.why})" for each in later.merges)
        if later.paths:
            then = f"git can't merge this request: {few(later.paths)}"
        elif later.problems:
            then = f"this plan fails: {later.problems[0].code} at {later.problems[0].path}: {later.problems[0].message}"
        else:
            then = "this plan stays the same" if later.same else f"this plan will be {later.verdict}"
        lines.append(f"  after {first}: {then}")
        lines += [f"    {each.operation.capitalize()} {each.resource}" for each in later.changes]
    return lines


def subject_lines(subject: ApprovalSubject, *, whole: bool = True) -> list[str]:
    """Return the subject that an approver signs: the change and its gate. With `whole`, also the plan, commit and folder."""
    plan, target = subject.plan, subject.target
    change = plan.change(subject.address)
    action = "change" if change is None else change.action.value
    place = "" if target is None else f" in {target.environment}/{target.cluster}"
    lines = [f"Approve: {action} {subject.address}{place}"]
    gates = [need for need in plan.approvals_required if need.resource == subject.address]
    lines += [line for need in gates for line in (f"  because: {need.reason}", f"  so far: {need.words}")]
    if whole and target is not None:
        lines.append(f"  commit {subject.head}, folder {target.path} {subject.tree}, onto {target.ref}")
    if not whole:
        return lines
    from gitops.render.plan_views import PlanView

    view, access = PlanView(plan), () if plan.access is None else access_lines(plan.access)
    first = " · ".join((view.counts, *view.losses, *view.effects))
    return [*lines, *(f"  {line}" for line in (f"plan {plan.digest}: {first}", *change_lines(plan), *access))]


def change_lines(plan: Plan) -> list[str]:
    """Return each change in a plan, with its migration steps or its differences in keys and rules."""
    lines: list[str] = []
    views = {}
    if any(change.migration is not None for change in plan.changes):
        # This imports the schema language, which is large, and most plans don't change a schema.
        from gitops.database.language.schema.steps import plain_words
        from gitops.render.migrations import migration_views, result_line

        views = migration_views(plan)
    # What needs the least attention comes last, as in a comment.
    for change in sorted(plan.edits, key=lambda each: each.address in plan.formatting):
        lines.append(_change(change, plan.formatting))
        lines += [f"      {rule_line(each)}" for each in plan.rule_changes if each.address == change.address]
        lines += [f"      breaks callers: {each.words}" for each in plan.breaks if each.query == change.address]
        lines += [f"      {change.caller_words}"] if change.caller_words else []
        lines += [f"      {detail}" for detail in change.details]
        if change.address in plan.formatting:
            continue
        lines += [f"      {words}"] if (words := change.data_words) else []
        if (view := views.get(change.address)) is None:
            continue
        for each in view.steps:
            costs = "; ".join(filter(None, (each.counted, each.back)))
            lines.append(f"      {plain_words(each.step)}{f' ({costs})' if costs else ''}")
            lines += [f"        {each.used}"] if each.used else []
        lines += [f"      {result_line(result)}" for result in view.results]
    if plan.derived or plan.republished:
        from gitops.render.plan_views import PlanView

        lines += [f"  {line}" for line in PlanView(plan).automatic]
    return lines


def few(names: Sequence[str], *, verbose: bool = False) -> str:
    """Return the first names and the total number or, with `verbose`, all names."""
    if verbose or len(names) <= _NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMES])} and {len(names) - _NAMES:,} more ({len(names):,} in all)"


def rule_line(change: RuleChange) -> str:
    """Return one difference in keys and rules: `+` added, `-` removed, `~` changed."""
    if change.before is None:
        text = f"+ {change.rule}: {change.after}"
    elif change.after is None:
        text = f"- {change.rule}: {change.before}"
    else:
        text = f"~ {change.rule}: {change.before} -> {change.after}"
    return f"{text} (permits more)" if change.widens else text


def _apply(outcome: ApplyOutcome, *, verbose: bool) -> list[str]:
    lines = [f"Apply: {apply_counts(outcome)}" if outcome.ok else f"Apply failed{_first(outcome)}"]
    alike: dict[Reason | None, list[str]] = {reason: [] for reason in _OF_OTHERS}
    for change in outcome.changes:
        if change.reason in alike and not verbose:
            alike[change.reason].append(change.address)
    many = {reason: names for reason, names in alike.items() if len(names) > _NAMES}
    for change in outcome.changes:
        if change.disposition is Disposition.DERIVED or change.address in outcome.republished or change.reason in many:
            continue
        reason = f": {change.reason}" if change.reason is not None else ""
        lines.append(f"{_change(change, outcome.formatting)} [{change.disposition.capitalize()}{reason}]")
        # What an apply found on a host is in no plan before it.
        lines += [f"      {detail}" for detail in change.details if change.address.kind is Kind.HOST]
    lines += [f"  {few(names)} [Blocked: {reason}]" for reason, names in many.items()]
    if outcome.ok:
        lines += _automatic(outcome)
        converged, written = (str(flag).lower() for flag in (outcome.converged, outcome.state_written))
        revision = outcome.observations.state_revision
        lines.append(f"  state: revision {revision}, converged: {converged}, written: {written}")
    return [*lines, *_serving(outcome.serving)]


def _automatic(outcome: ApplyOutcome) -> list[str]:
    if not outcome.republished and all(each.disposition is not Disposition.DERIVED for each in outcome.changes):
        return []
    from gitops.render.plan_views import automatic_updates

    return [f"  {line}" for line in automatic_updates(outcome.changes, outcome.republished)]


def _dry_run(outcome: ApplyOutcome) -> list[str]:
    """Return a numbered line per node that would start, a line per node that would not, and the resulting ledger state."""
    nodes, results = outcome.dry_run or (), {result.node_id: result for result in outcome.results}
    width, lines = len(str(len(nodes))), []
    for number, node in enumerate(nodes, start=1):
        result = results[node.id]
        ended = "" if result.outcome.succeeded else f", {result.outcome.value.upper()}"
        lines.append(f"  {number:>{width}}. {node.title}{ended}")
        found = () if node.kind != Kind.HOST else (c.details for c in outcome.changes if c.address == node.address)
        lines += [f"  {'':>{width}}    {detail}" for details in found for detail in details]
    started = {node.id for node in nodes}
    for name, result in results.items():
        if name not in started:
            because = "" if result.blocked_by is None else f", blocked by {result.blocked_by}"
            lines.append(f"  not started: {name}{because}")
    for change in outcome.changes:
        if change.disposition in (Disposition.BLOCKED, Disposition.DEFERRED) and change.address not in results:
            reason = f": {change.reason}" if change.reason is not None else ""
            lines.append(f"  {change.action} {change.address} [{change.disposition.capitalize()}{reason}]")
    if outcome.ok:
        revision, converged = outcome.observations.state_revision, str(outcome.converged).lower()
        lines.append(f"  state: revision {revision}, would converge: {converged}, written: false")
    return lines


def _first(outcome: ApplyOutcome) -> str:
    """Return the change that failed first, if several failed, because the problems below are in plan order."""
    failed = [r for r in outcome.results if r.outcome.failed]
    first = first_failure(failed)
    return f", first at {first.node_id}" if first is not None and len(failed) > 1 else ""


def apply_counts(outcome: ApplyOutcome) -> str:
    """Return the number of applied changes and, if any, of waiting changes, counted as in a plan.

    The counts include the finished work.
    """
    edits = [each for each in outcome.changes if outcome.counted and each.address not in outcome.republished]
    found = Counter(each.disposition for each in edits)
    earlier = sum(each.code is Code.CLUSTER_RECOVERY_ROLLED_FORWARD for each in outcome.diagnostics)
    finished = f", {count(earlier, 'interrupted operation')} finished" if earlier else ""
    waiting = found[Disposition.DEFERRED] + found[Disposition.BLOCKED]
    waits = f", {waiting} deferred or blocked" if waiting else ""
    return f"{found[Disposition.APPLIED]} applied{finished}{waits}"


def _status(outcome: StatusOutcome, *, verbose: bool) -> list[str]:
    seen = outcome.observations
    if outcome.state is None:
        return [f"State: {_extent(seen)}" if seen.state_found else "State: no ledger yet", lock_line(seen)]
    lines = [f"State: {_extent(seen)}", f"  in sync: {completed(_SYNC[outcome.in_sync])}"]
    lines += _waiting(outcome, verbose=verbose)
    drifted = few(outcome.drifted, verbose=verbose)
    lines.append(f"  drift: {drifted or 'none when it was last recorded'}")
    lines.append(f"  debts: {len(outcome.state.debts) or 'none'}")
    for host, seen_there in sorted(outcome.state.observations.items()):
        if seen_there.get("kind") == "host" and host in outcome.state.resources:
            lines.append(f"  {host}: {seen_there.get('os')}, last changed at {seen_there.get('observed_at')}")
    lines += _serving(outcome.serving)
    if outcome.entry is not None:
        lines.append(f"  last entry: {_last(outcome.entry)}")
    lines += map(_in_progress, outcome.in_progress)
    if (drill := outcome.last_drill) is not None:
        lines.append(f"  last restore drill that passed: {drill_line(drill)}")
    if (newest := outcome.newest) is not None:
        lines.append(f"  last apply: {newest.key}, {newest.state} at {newest.at}")
    if seen.applied_config_digest is not None:
        lines.append(f"  applied config: {seen.applied_config_digest}")
    return [*lines, lock_line(seen)]


def _in_progress(record: Changeset) -> str:
    """Describe a changeset that has not ended."""
    request = record.source.pull_request
    facts = [f"request {request}"] if request is not None else []
    facts += [f"prepared beside {len(record.beside)} earlier"] if record.beside else []
    return f"  in progress: {', '.join((record.key, record.state, *facts))}"


def _waiting(outcome: StatusOutcome, *, verbose: bool) -> list[str]:
    """Return the waiting changes by reason, with a line per change, or one line for many."""
    alike: dict[str, list[str]] = {}
    for name, record in outcome.waiting.items():
        able = outcome.approvers.get(name)
        may = f"; may approve: {', '.join(able or ())}"
        if able is None or (record.conditions and Reason.APPROVAL_REQUIRED.value not in record.conditions):
            may = ""
        elif not able:
            may = "; no one can approve it under the rules in force: gitops doctor"
        alike.setdefault(f"{record.message}{may}", []).append(name)
    lines = []
    for why, names in alike.items():
        together = [few(names, verbose=verbose)] if len(names) > _MOST_ALIKE and not verbose else names
        lines += [f"  waits: {each}: {why}" for each in together]
    return lines


def status_line(place: str, outcome: StatusOutcome) -> str:
    """Return one line about a cluster: whether it is in sync, what is waiting, and who applied last."""
    error = next((each for each in outcome.diagnostics if each.severity is Severity.ERROR), None)
    if error is not None:
        return visible(f"{place}: failed: {error.code}: {error.message}")
    if outcome.state is None:
        return visible(f"{place}: no ledger yet")
    word = {True: "in sync", False: "not in sync", None: "not known whether in sync"}[outcome.in_sync]
    debts = len(outcome.state.debts)
    parts = [word, f"revision {outcome.observations.state_revision}"]
    parts += [f"waits: {few(tuple(outcome.waiting))}"] if outcome.waiting else []
    parts += [f"drift: {few(outcome.drifted)}"] if outcome.drifted else []
    parts += [count(debts, "debt")] if debts else []
    if outcome.serving:
        # The servers that do not serve the applied revision.
        behind = [each for each in outcome.serving if each.state is not ServingState.SERVES]
        names = ", ".join(f"{each.report.replica} {each.state.value}" for each in behind)
        parts.append(f"served by {len(outcome.serving)}" + (f" ({names})" if behind else ""))
    parts += ["locked"] if outcome.observations.held.held else []
    parts += [] if outcome.entry is None else [f"entry {_last(outcome.entry)}"]
    return visible(f"{place}: {'; '.join(parts)}")


def _serving(serving: Sequence[Replica] | None) -> list[str]:
    """Return a line for each live server."""
    lines = []
    for server in serving or ():
        report = server.report
        text = f"  serving: {report.replica} serves revision {_revision(report.accepted)}"
        if server.state is ServingState.REFUSES and report.offered is not None:
            text += f", refuses {_revision(report.offered)}: {', '.join(report.codes)}"
        elif server.state is ServingState.BEHIND:
            text += f", behind{_FOLLOWS[report.follows]}"
            text += f"; its last problem: {', '.join(report.codes)}" if report.codes else ""
        lines.append(f"{text}; reported {server.age_s} s ago")
    return lines


def _revision(revision: RevisionIdentity) -> str:
    return f"{revision.state_revision} ({revision.digest[:12]})"


def _last(entry: LedgerEntry) -> str:
    """Describe an entry by its kind, time, author and commit."""
    by = f" by {entry.actor}" if entry.actor else ""
    return f"{entry.number}, {entry.kind.value} at {entry.at}{by}{f', commit {entry.source.commit[:12]}' if entry.source else ''}"


def _drill(outcome: DrillOutcome) -> list[str]:
    drill = outcome.drill
    if drill is None:
        return ["Drill failed"]
    word = "passed" if drill.passed else "failed"
    lines = [f"Drill {word}: {count(len(drill.graphs), 'graph')} with {count(drill.rows, 'row')} in {drill.seconds} s"]
    lines += [f"  graph {g.graph}: version {g.version}, {count(g.rows, 'row')}, as of {g.as_of}" for g in drill.graphs]
    if outcome.ok or outcome.recorded:
        kept = (
            "recorded in the ledger"
            if outcome.recorded
            else "not recorded, because a ledger in a folder has no entries"
        )
        lines.append(f"  {kept}")
    if outcome.kept is not None:
        lines.append(
            completed(f"  restored to {outcome.kept}; to serve it: gitops serve --cluster {shlex.quote(outcome.kept)}")
        )
    return lines


def _ready(outcome: ReadyOutcome) -> list[str]:
    if not outcome.ok:
        return ["Ready: no; a server would refuse to start"]
    lines = [f"Ready: {_extent(outcome.observations)} can be served"]
    for graph in outcome.graphs:
        under = f", policy {graph.policy}" if graph.policy else ""
        lines.append(f"  graph {graph.graph_id}: {count(len(graph.queries), 'query', 'queries')}{under}")
    if outcome.cluster_policy is not None:
        lines.append(f"  cluster: policy {outcome.cluster_policy}")
    for issuer, available in outcome.issuers:
        lines.append(f"  issuer {issuer}: {'its keys can be read' if available else 'its keys cannot be read now'}")
    return lines if outcome.identity is None else [*lines, _identity(outcome.identity)]


def _identity(found: Identity) -> str:
    groups = f", {', '.join(found.groups)}" if found.groups else ""
    issuer = f", by a token of {found.issuer}" if found.issuer else ", by a static token"
    return f"  the token is for {found.actor}{groups}{issuer}; it grants {', '.join(sorted(found.grants))}"


def _extent(seen: StateObservations) -> str:
    return f"revision {seen.state_revision}, {count(seen.resource_count, 'resource')}"


def drill_line(drill: Mapping[str, Any]) -> str:
    """Describe the last drill that passed, as the state records it."""
    data = f", data as of {drill['as_of']}" if drill.get("as_of") else ""
    return f"{drill['at']}, in {drill['seconds']} s{data}"


def lock_line(seen: StateObservations) -> str:
    """Return a line about the lock, indented, with its holder."""
    if seen.held.problem == Code.STATE_LOCK_READ_ERROR:
        # The lock counts as held, although this is not certain.
        return "  lock: unknown, because it cannot be read"
    return f"  lock: held{_holder(seen)}" if seen.held.held else "  lock: not held"


def _holder(seen: StateObservations) -> str:
    holder = seen.held.info
    if holder is None:
        return f" ({seen.held.problem}, id={seen.held.unlock_id})" if seen.held.problem else ""
    process = f", pid={holder.pid}" if holder.pid else ""
    facts = f"id={seen.held.unlock_id}, operation={holder.operation}{process}, created_at={holder.created_at}"
    age = "" if seen.lock_age_seconds is None else f", age_seconds={seen.lock_age_seconds}"
    return f" ({facts}{age})"


def _change(change: Change, formatting: Collection[Address]) -> str:
    mark = " [bindings]" if change.binding_change else ""
    mark += f" [{FORMATTING_ONLY}]" if change.address in formatting else ""
    return f"  {change.action.capitalize()} {change.address}{mark}"
