"""Comments on change requests (a plan's effects, an apply's result, a refused command), and drift reports.

The bot finds its comment by the first line, which is a hidden marker, and by the author's id. The second line contains
the commit and the plan of the comment, and the last paragraph shows both to people. This module generates these three
parts, whatever the templates. Comments only report. No later decision reads them, except which report is still to be
written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from gitops.cluster.approvals.verify import UNKNOWN_AUTHORS
from gitops.cluster.changesets.lifecycle import unfinished
from gitops.cluster.model.address import Address, Kind, is_name
from gitops.cluster.model.change import Reason
from gitops.cluster.model.changeset import BLOCKING, ENDED, Changeset, ChangesetState, RuntimeState
from gitops.cluster.model.kinds import KINDS
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome, VerbOutcome
from gitops.cluster.model.plan import NodeOutcome, NodeResult, Plan
from gitops.cluster.model.resource import edges_near
from gitops.cluster.plan.classes import BARRIERS
from gitops.cluster.plan.drift import DriftKind
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef, by_place
from gitops.core.documents.forms import is_object_id
from gitops.render.change_rows import (
    DONE,
    LISTED,
    STEPS_IN_ROW,
    Badge,
    ChangeRow,
    TextDiff,
    broken_queries,
    change_rows,
    listed_rows,
    text_diff,
)
from gitops.render.comment_inputs import (
    ApplyComment,
    ApprovalState,
    CommentSubject,
    DriftReport,
    OtherRequest,
    PlanComment,
    RefusalComment,
    RequestComment,
    Templates,
)
from gitops.render.explanations import Reasoned, explanations
from gitops.render.graph import ARROW, to_json, to_mermaid
from gitops.render.json import envelope
from gitops.render.json_text import to_text
from gitops.render.markdown import (
    FOLD_LIMIT,
    MUST_KEEP,
    NAME_LIMIT,
    SUMMARY_LIMIT,
    Section,
    assemble,
    code,
    hidden,
    link,
)
from gitops.render.migrations import SHOWN, affected_views, breaks_views
from gitops.render.plan_views import (
    ATOMIC,
    MOST_ROWS,
    NO_CHANGES,
    PlanView,
    access_counts,
    access_views,
    automatic_updates,
    headline,
    what_if_views,
)
from gitops.render.text import apply_counts
from gitops.render.verdicts import failed_tests, failed_views, passed_tests
from gitops.render.words import count

_REQUEST_PAGE = re.compile(r"(https?://.+)/(?:pulls?|merge_requests)/[0-9]+\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_DOCUMENT_VERSION = 1
# Number of boxes in the picture of the execution graph: as many as a reader can take in, and as many as fit on their
# own page.
_NODES_IN_COMMENT, _NODES_IN_SUMMARY = 20, 60
# Forgejo does not draw a picture of more than 5,000 characters, and shows an error.
_PER_BOX = 250
# Most severe loss first.
_DRIFTS = {
    DriftKind.VANISHED: "vanished",
    DriftKind.SCHEMA: "has a different schema",
    DriftKind.CATALOG: "has a different text",
    DriftKind.HOST: "was changed on its host",
}


def marker(cluster: str) -> str:
    """Return the text of the hidden first line without its brackets, such as `gitops cluster=knowledge`.

    All kinds of comments share this marker, because a request has one comment per cluster, which plan and result update
    in place. Raises ValueError for a cluster that is not a name of at most 200 characters.
    """
    if not is_name(cluster) or len(cluster) > NAME_LIMIT:
        raise ValueError("a marker is made of a name")
    return f"gitops cluster={cluster}"


def plan_comment(comment: PlanComment) -> str:
    """Return a merge's effects, destroyed data first, and the missing approvals, in at most 65,536 characters.

    Raises ValueError for a subject that does not consist of names and commit ids.
    """
    return assemble(_plan_sections(comment, _NODES_IN_COMMENT, LISTED), fold_limit=FOLD_LIMIT)


def plan_summary(comment: PlanComment) -> str:
    """Return the complete plan for a job's summary page: at most 1 MiB of UTF-8, without the hidden lines.

    Raises ValueError like `plan_comment`.
    """
    _, *sections = _plan_sections(comment, _NODES_IN_SUMMARY, None)
    return assemble(sections, limit=SUMMARY_LIMIT, measure=lambda text: len(text.encode()))


def plan_document(outcome: PlanOutcome, view: PlanView | None = None) -> bytes:
    """Return the complete plan as one JSON document for git. Equal plans give equal bytes.

    It is the JSON envelope of `plan` without observations of lock, ledger and targets, plus the plan's digest and the
    execution graph of its run, from `view` if given. Digests and dependencies are limited to the changed resources,
    because a large cluster has many more, and they are in the commit. The layout suits `git show` and `git diff`,
    without terminal control characters.
    """
    plan, view = outcome.plan, _view(outcome, view)
    changed = frozenset[Address]() if plan is None else frozenset(change.address for change in plan.changes)
    edges = edges_near(outcome.dependencies, {address.graph for address in changed if address.graph is not None})
    near = replace(
        outcome,
        resource_digests={text: d for text, d in outcome.resource_digests.items() if text in changed},
        dependencies=tuple(d for d in edges if not changed.isdisjoint(d)),
        what_if=(),
    )
    parts = envelope(near, None if view is None else view.classes).items()
    form = {name: part for name, part in parts if name not in ("ok", "problems", "state_observations")}
    digest = None if plan is None else plan.digest
    graph = None if view is None else to_json(view.graph, digest)
    return to_text({"version": _DOCUMENT_VERSION, "plan_digest": digest, **form, "execution_graph": graph}).encode()


def _view(outcome: PlanOutcome, made: PlanView | None) -> PlanView | None:
    """Return the view of a plan: the one made for other printers, otherwise a new one."""
    return made or (None if outcome.plan is None else PlanView(outcome.plan))


def apply_comment(comment: ApplyComment) -> str:
    """Return an apply's result, and where it stopped, in at most 65,536 characters.

    Raises ValueError like `plan_comment`.
    """
    changesets, chosen = changeset_views(comment.outcome.changesets), ("--cluster", comment.subject.cluster)
    failed = next((each.key for each in changesets if each.outcome == "failed"), None)
    missing = tuple(a for a in comment.approvals if not a.satisfied)
    outcome = without_said(comment.outcome, missing)
    stopped = not_carried_out(outcome)
    plan, again = outcome.plan, outcome.republished
    broken = None if plan is None else broken_queries(plan)
    own = (each for each in outcome.changes if each.address not in again)
    rows = _ended(change_rows(own, DONE, plan, broken, outcome.formatting), stopped)
    alone = [each for each in stopped if each.node_id not in {row.resource for row in rows}]
    gated = gated_views(rows, comment.approvals)
    listed, counted = listed_rows(_without(rows, gated))
    values = {
        "verdict": apply_verdict(outcome, sum(each.missing for each in missing)),
        "rules": rule_views(plan) if plan else (),
        "rows": rows,
        "gated": gated,
        "listed": listed,
        "counted": counted,
        "automatic": automatic_updates(outcome.changes, again),
        "approvals": comment.approvals,
        "missing": missing,
        "commands": "\n".join(_line(a.command) for a in missing if a.command),
        "approve_all": comment.approve_all,
        "forge_commands": "",
        "stopped": tuple(StoppedView(r.outcome, r.blocked_by or "", (r.node_id,)) for r in stopped),
        "stopped_by": stopped_views(alone),
        "retry": _forge_command(comment, "retry") if not (outcome.ok and outcome.converged) else "",
        "changesets": changesets,
        "retry_command": "" if failed is None else shlex.join(("gitops", "changeset", "retry", failed, *chosen)),
        **_debts(comment),
        "notes": comment.notes,
        "deployment": comment.deployment,
    }
    revision = f"revision {outcome.observations.state_revision}"
    entry = f"ledger entry {code(outcome.entry_id[:12])}" if outcome.entry_id else "the ledger"
    written = (
        f"Recorded in {entry} ({revision})." if outcome.state_written else f"The ledger is unchanged ({revision})."
    )
    about = f"commit {_commit(comment.subject, comment.subject.head)}{_plan_words(outcome.plan_digest)}. {written}"
    found = _without_files(without_refused(outcome.diagnostics, missing))
    sections = _sections("apply", comment, values, found, about, digest=outcome.plan_digest)
    return assemble(sections, fold_limit=FOLD_LIMIT)


def refusal_comment(comment: RefusalComment) -> str:
    """Return the reasons why a command was refused: the first problem's summary, then each problem with its remedy.

    Raises ValueError like `plan_comment`.
    """
    found = comment.diagnostics
    errors = list(filter(_is_error, found))
    summaries = [REGISTRY[d.code].summary for d in (*errors, *found) if d.code in REGISTRY]
    values = {
        "command": f"gitops {comment.command}",
        "summary": summaries[0] if summaries else "see below",
        "retry": "" if comment.unlock else _forge_command(comment, "retry"),
        "unlock_comment": comment.unlock if comment.forge_commands else "",
        "unlock_command": f"{comment.unlock}\ngitops bot sweep"
        if comment.unlock and not comment.forge_commands
        else "",
        "notes": comment.notes,
    }
    about = f"{_onto(comment.subject)}. Nothing was changed."
    if comment.unlock:
        about = f"commit {_commit(comment.subject, comment.subject.head)}."
    return assemble(_sections("refusal", comment, values, found, about))


def drift_marker(cluster: str) -> str:
    """Return the text of the hidden first line, such as `gitops drift=knowledge`. Raises ValueError like `marker`."""
    return marker(cluster).replace("cluster=", "drift=", 1)


def drift_title(report: DriftReport) -> str:
    """Return a plain line that is always the same for the same drift, such as `Drift in production/knowledge: 2 resources`.

    A title is not Markdown, so an environment that is not a valid name is omitted. Raises ValueError like
    `drift_marker`.
    """
    drift_marker(report.cluster)
    place = f"{report.environment}/{report.cluster}" if is_name(report.environment) else report.cluster
    return f"Drift in {place}: {count(len(report.outcome.items), 'resource')}"


def drift_body(report: DriftReport) -> str:
    """Return the resources that differ from the ledger, their differences, and both remedies.

    At most 65,536 characters.

    Raises ValueError like `drift_marker`.
    """
    items = sorted(report.outcome.items, key=lambda item: (list(_DRIFTS).index(item.kind), item.address))
    values = {
        "cluster": report.cluster,
        "environment": report.environment,
        "place": f"{report.environment}/{report.cluster}",
        "verdict": f"{count(len(items), 'resource')} {'differs' if len(items) == 1 else 'differ'} from the ledger",
        "items": tuple(
            # As long as a commit id. With complete digests, the table would be wider than a page.
            DriftView(
                item.address,
                _DRIFTS[item.kind],
                item.detail,
                item.recorded and item.recorded[:12],
                (item.live or "")[:12],
                item.adoptable,
            )
            for item in items
        ),
        "kept": sum(not item.adoptable for item in items),
        "adopt": "\n".join(map(_line, report.adopt)),
        "reapply": "\n".join(map(_line, report.reapply)),
        "lost": tuple(item.address for item in items if item.kind is DriftKind.VANISHED),
        "recreate": "\n".join(map(_line, report.recreate)),
        "proposal": report.proposal,
    }
    head = Section("Marks", MUST_KEEP, hidden(drift_marker(report.cluster)))
    updates = "Each drift check updates this report and closes it when nothing differs."
    seen = f"Observed {code(report.at)} against ledger revision {report.outcome.observations.state_revision}."
    foot = Section("Reference", MUST_KEEP, f"---\n\n{seen} {updates}")
    found = _without_files(report.outcome.diagnostics)
    return assemble((head, *render_template("drift.md.j2", values, found, report.templates), foot))


def drift_gone(report: DriftReport) -> str:
    """Return the final comment for a cluster's issue, posted once its drift is gone."""
    seen = f"Observed {code(report.at)}, ledger revision {report.outcome.observations.state_revision}."
    return f"{code(f'{report.environment}/{report.cluster}')} no longer differs from its ledger. {seen}\n"


def render_template(
    template: str, values: Mapping[str, object], diagnostics: Sequence[Diagnostic], own: Templates
) -> tuple[Section, ...]:
    """Render a template with these values, plus `errors` and `warnings`, and return its sections.

    If a template of the repository breaks a rule, the built-in one is used, with a warning.
    """
    # Importing jinja2 takes longer than making a plan, so only verbs that write comments import it.
    from gitops.render.environment import render_own, render_sections

    if not own:
        return render_sections(template, {**values, **errors_and_warnings(diagnostics)})
    rendered = render_own(template, {**values, **errors_and_warnings(diagnostics)}, own)
    if isinstance(rendered, tuple):
        return rendered
    reported, message = Diagnostics(diagnostics), f"{rendered.why}; the built-in templates are used instead"
    reported.add(Code.TEMPLATE_INVALID, rendered.name, message, source=SourceRef(rendered.name, rendered.line))
    return render_sections(template, {**values, **errors_and_warnings(reported)})


def _plan_sections(comment: PlanComment, nodes: int, most: int | None) -> tuple[Section, ...]:
    """Return the sections of a plan, with at most `nodes` nodes of the execution graph.

    From `most` changes on, many changes are only counted.
    """
    outcome, view = comment.outcome, _view(comment.outcome, comment.view)
    digest = None if view is None else view.plan.digest
    gates = () if view is None else approval_states(view.plan, comment.approvals)
    asked = [a for a in gates if not a.satisfied]
    fixes = {each.path: each for each in outcome.blockers if each.code != Code.DEBT_OPEN}
    diffs: dict[str, list[TextDiff]] = {kind.value: [] for kind, rules in KINDS.items() if rules.has_text}
    for each in map(text_diff, outcome.texts):
        if each.kind.value in diffs:  # a text whose kind comes from a different release is not shown
            diffs[each.kind.value].append(each)
    values = {
        "verdict": plan_verdict(comment, view, gates),
        "forge_verdict_missing": comment.forge_verdict_missing,
        "since": comment.since,
        "approvals": gates,
        "missing": tuple(asked),
        "commands": "\n".join(_line(a.command) for a in asked if a.command),
        "approve_all": comment.approve_all,
        "forge_commands": "\n".join(
            _forge_command(comment, f"approve {_line(a.resource)} {digest}")
            for a in asked
            if a.via_forge and comment.forge_commands
        ),
        **_debts(comment),
        "what_if": what_if_views(outcome.what_if),
        **{f"{kind}_diffs": found for kind, found in diffs.items()},
        "text_diffs": tuple(
            {"title": f"{kind.capitalize()} diff", "priority": 8 if kind == Kind.POLICY else 9, "diffs": found}
            for kind, found in diffs.items()
            if found and kind != Kind.SCHEMA
        ),
        "explained": explanations(outcome, view, comment.explained, gates),
        "others": tuple(each for each in comment.others if each.resources and not each.blocks),
        "clashes": tuple(each for each in comment.others if each.blocks),
        **_later_values(comment),
        "voids": comment.voids,
        "preview": comment.preview,
        **{f"{part}_page": f"{comment.report}#{part}" if comment.report else "" for part in ("tests", "preview")},
        "tests": "" if comment.tests is None else passed_tests(comment.tests),
        "test_failures": () if comment.tests is None else failed_views(comment.tests),
        "atomic": _sentence(ATOMIC),
        **(_NO_PLAN if view is None else _plan_values(view, gates, fixes, nodes, most)),
    }
    about = f"{_onto(comment.subject)}{_plan_words(digest)}."
    said = {(each.code, each.path) for each in fixes.values()}
    found = [each for each in without_refused(outcome.diagnostics, asked) if (each.code, each.path) not in said]
    return _sections("plan", comment, values, found, about, digest=digest, ref=comment.ref, kept=comment.kept)


def _later_values(comment: PlanComment) -> dict[str, object]:
    """Return the template values about the plan after earlier merges: the merges with their requests, and the plan."""
    later, known = comment.later, {each.number: each for each in comment.others}
    merges = () if later is None else later.merges
    first = tuple((known.get(m.request, OtherRequest(m.request, "")), m.why.value) for m in merges)
    return {"later": later, "merged_first": first}


_NO_PLAN: Mapping[str, object] = {
    **dict.fromkeys(("rules", "rows", "gated", "stuck", "blockers", "listed", "counted", "automatic"), ()),
    **dict.fromkeys(("access", "landing", "undone", "migrations", "breaks", "impact"), ()),
    **dict.fromkeys(("access_counts", "undo_counts", "graph"), ""),
    "access_more": 0,
}


def _plan_values(
    view: PlanView, gates: Sequence[ApprovalState], fixes: Mapping[str, Diagnostic], nodes: int, most: int | None
) -> dict[str, object]:
    """Return a plan's template values. `fixes` are the problems that block its apply, by place."""
    plan, access = view.plan, view.plan.access
    rows = [
        replace(row.plain, fix=fixes[row.resource].fix or "") if _explains(row, fixes) else row for row in view.rows
    ]
    gated = gated_views(rows, gates)
    others = _without(rows, gated)
    stuck = tuple(row for row in others if row.badge is Badge.CANNOT_LAND)
    shown = {row.resource for row in rows if row.fix}
    short = most is None or sum(not row.derived for row in rows) < most
    listed, counted = listed_rows([row for row in others if row.badge is not Badge.CANNOT_LAND], None if short else 0)
    gains = () if access is None else access_views(access)
    drawn = to_mermaid(view.graph, most=nodes, reasons=False, quiet=plan.republished)
    return {
        "rules": rule_views(plan),
        "rows": view.rows,
        "gated": gated,
        "stuck": stuck,
        "blockers": _problem_views(each for each in fixes.values() if each.path not in shown),
        "listed": listed,
        "counted": counted,
        "automatic": view.automatic,
        "access": gains[:MOST_ROWS],
        "access_more": len(gains[MOST_ROWS:]),
        "access_counts": "" if access is None else access_counts(access),
        "landing": view.landing,
        "undone": view.undone,
        "undo_counts": view.undo_counts and _sentence(view.undo_counts),
        # If a migration is short, the row of its change shows the steps.
        "migrations": tuple(each for each in view.migrations.values() if len(each.steps) > STEPS_IN_ROW),
        "breaks": breaks_views(plan, view.migrations),
        "impact": affected_views(plan),
        # If the boxes have no order between them, they show no more than the list of changes.
        "graph": drawn.rstrip("\n") if ARROW in drawn and len(drawn) <= _PER_BOX * nodes else "",
    }


def _sections(
    kind: str,
    comment: RequestComment,
    values: Mapping[str, object],
    diagnostics: Sequence[Diagnostic],
    about: str,
    *,
    digest: str | None = None,
    ref: str = "",
    kept: str = "",
) -> tuple[Section, ...]:
    """Return the two hidden lines, the template's sections, and the last paragraph with request, commits and plan."""
    subject = comment.subject
    if not is_object_id(subject.head) or not is_object_id(subject.base):
        raise ValueError("head and base are commit ids")
    if digest is not None and not _DIGEST.match(digest):
        raise ValueError("a plan digest has 64 hex digits")
    reference = f"gitops:{kind} head={subject.head} plan={digest or 'none'}"
    marks = Section("Marks", MUST_KEEP, f"{hidden(marker(subject.cluster))}\n{hidden(reference)}")
    frame = {
        "cluster": subject.cluster,
        "environment": subject.environment,
        "place": f"{subject.environment}/{subject.cluster}",
        "request": subject.request,
        "refusals": comment.refusals,
    }
    request = f"Request {subject.request}" if subject.request else "No change request"
    places = [link(comment.run, "job page")] if comment.run else []
    places += [link(comment.report, "report")] if comment.report else []
    places += [link(commit_address(subject.page, kept), ref)] if ref else []
    full = f" Full {'plan' if ref else 'report'}: {', '.join(places)}." if places else ""
    foot = Section("Reference", MUST_KEEP, f"---\n\n{request}, {about}{full}")
    return (marks, *render_template(f"{kind}.md.j2", {**frame, **values}, diagnostics, comment.templates), foot)


def _debts(comment: PlanComment | ApplyComment) -> dict[str, object]:
    chosen = ("--cluster", comment.subject.cluster) if comment.several else ()
    commands = (("gitops", "countersign", d.approval_id, "--commit", d.commit, *chosen) for d in comment.debts)
    return {"debts": comment.debts, "countersign": "\n".join(map(shlex.join, commands))}


def commit_address(page: str, commit: str) -> str:
    """Return the URL of a commit's page, derived from a change request's page on the same forge.

    The result is empty if the URL has no known form.
    """
    found = _REQUEST_PAGE.match(page)
    return f"{found[1]}/commit/{commit}" if found and commit else ""


def _commit(subject: CommentSubject, commit: str) -> str:
    """Return a commit, as a link if its page is known."""
    address = commit_address(subject.page, commit)
    return link(address, f"`{commit[:12]}`") if address else code(commit[:12])


def _onto(subject: CommentSubject) -> str:
    return f"head {_commit(subject, subject.head)} onto {_commit(subject, subject.base)}"


def _plan_words(digest: str | None) -> str:
    """Return a plan as the first digits of its digest. The command that approves it contains all digits."""
    return f", plan {code(digest[:12])}" if digest else ""


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _without_files(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the problems without file warnings, which the request's plan already reported."""
    return [each for each in found if _is_error(each) or each.source is None]


def _is_error(found: Diagnostic) -> bool:
    return found.severity is Severity.ERROR


def _forge_command(comment: RequestComment, words: str) -> str:
    """Return a comment command. It includes the cluster if the repository has several."""
    if not comment.forge_commands:
        return ""
    return f"/gitops {words}{f' --cluster {comment.subject.cluster}' if comment.several else ''}"


def _line(words: str) -> str:
    """Return a command on one line, because names in it can contain line breaks."""
    return " ".join(words.splitlines())


# -- verdicts, approvals, problems and explanations, which templates only lay out --------------------------------------

_APPROVE_AGAIN = frozenset(
    {
        Code.APPROVAL_STALE,
        Code.APPROVAL_SELF,
        Code.APPROVAL_SPENT,
        Code.APPROVAL_EXPIRED,
        Code.APPROVAL_DATA_GREW,
        Code.APPROVAL_CALLERS_MOVED,
        Code.APPROVAL_DATA_REPLACED,
        Code.APPROVAL_OTHER_GRAPH,
        Code.APPROVAL_QUORUM,
        Code.APPROVAL_SIGNER_NOT_ALLOWED,
    }
)
"""Reasons for refusing an approval whose only remedy is to approve again."""
_CHANGESET_CODES = (Code.CHANGESET_ROLLED_BACK, Code.CHANGESET_ORPHANED)


def approval_states(plan: Plan, states: Sequence[ApprovalState]) -> tuple[ApprovalState, ...]:
    """Return one state per gate of the plan. A gate is open only if the plan and the given state agree."""
    known = {s.resource: s for s in states}
    result: list[ApprovalState] = []
    for need in plan.approvals_required:
        by = tuple(a.approved_by for a in need.approvals)
        state = known.get(need.resource, ApprovalState(resource=need.resource, satisfied=need.satisfied, by=by))
        satisfied = state.satisfied and need.satisfied
        may = () if satisfied else need.may
        alone = need.emergency or state.emergency
        result.append(
            replace(
                state,
                satisfied=satisfied,
                reason=need.reason,
                needed=need.needed,
                may=may,
                emergency=alone,
                count=need.words,
                gate=need.gate,
            )
        )
    return tuple(result)


@dataclass(frozen=True, slots=True)
class RuleView:
    """The meaning of a change to keys and rules. `before` is empty for an addition, `after` for a removal."""

    resource: Address
    rule: str
    before: str
    after: str
    widens: bool


def rule_views(plan: Plan) -> tuple[RuleView, ...]:
    """Describe changes to keys and rules, one line each."""
    return tuple(
        RuleView(each.address, each.rule, each.before or "", each.after or "", each.widens)
        for each in plan.rule_changes
    )


@dataclass(frozen=True, slots=True)
class GatedView:
    """A change that needs approvals, and the state of these approvals. `row` is None if the plan does not show the change."""

    row: ChangeRow | None
    approval: ApprovalState


def gated_views(rows: Sequence[ChangeRow], approvals: Iterable[ApprovalState]) -> tuple[GatedView, ...]:
    """Return the changes that need approvals. Those that still lack one come first, then the worst."""
    known = {str(row.resource): row for row in rows}
    found = [
        GatedView(row if row is None or each.satisfied else row.plain, each)
        for each in approvals
        for row in [known.get(each.resource)]
    ]
    return tuple(
        sorted(found, key=lambda each: (len(Badge) if each.row is None else each.row.risk, each.approval.satisfied))
    )


def _ended(rows: Sequence[ChangeRow], stopped: Iterable[NodeResult]) -> tuple[ChangeRow, ...]:
    """Return the rows of an apply, adding the result to each change that failed or was blocked by another one."""
    ends = {each.node_id: each for each in stopped if each.outcome.failed or each.blocked_by}
    found = []
    for row in rows:
        if (result := ends.get(row.resource)) is not None:
            by = f" by `{result.blocked_by}`" if result.blocked_by else ""
            effect = f"{result.outcome.value}{by}"
            row = replace(row, effect=effect, note="; ".join(filter(None, (row.plain.note, effect))))  # noqa: PLW2901
        found.append(row)
    return tuple(found)


def _without(rows: Sequence[ChangeRow], gated: Sequence[GatedView]) -> list[ChangeRow]:
    shown = {each.approval.resource for each in gated}
    return [row for row in rows if row.resource not in shown]


def _explains(row: ChangeRow, fixes: Mapping[str, Diagnostic]) -> bool:
    """Return whether a row shows everything about the problem at its place, except the remedy."""
    return row.badge is Badge.CANNOT_LAND and row.resource in fixes


def plan_verdict(comment: PlanComment, view: PlanView | None, gates: Sequence[ApprovalState]) -> str:
    """Return a plan comment's first line."""
    more = [f"{count(len(comment.debts), 'countersignature')} missing"] if comment.debts else []
    more += ["review on the forge missing"] if comment.forge_verdict_missing else []
    more += [failed_tests(comment.tests)] if comment.tests is not None and comment.tests.blocks else []
    first = headline(comment.outcome, view, sum(each.missing for each in gates), more, ready="ready to merge")
    return " · ".join([first, *more]) if first == NO_CHANGES and comment.tests is not None else first


def apply_verdict(outcome: ApplyOutcome, missing: int) -> str:
    """Return an apply's result in one line. The remaining changes need `missing` approvals."""
    counts, errors = apply_counts(outcome), _errors(outcome)
    states = {record.state for record in outcome.changesets}
    if states == {ChangesetState.FAILED}:
        return f"failed with {errors} · nothing is applied"
    if states & BLOCKING:
        return f"interrupted with {errors} · the next apply continues it or rolls it back"
    if states - ENDED:
        return f"{counts} · not finished · {errors}"
    if not outcome.ok:
        return f"failed with {errors} · {counts}"
    if missing:
        return f"{counts} · {count(missing, 'approval')} missing"
    if outcome.converged:
        return f"{counts} · converged"
    warnings = sum(d.severity is Severity.WARNING for d in outcome.diagnostics)
    return f"{counts} · not converged" + (f" · {count(warnings, 'warning')}" if warnings else "")


@dataclass(frozen=True, slots=True)
class ChangesetView:
    """A changeset, its `part` (empty if it has only one), and an `outcome`: `applied`, `failed`, `unfinished` or `open`."""

    key: str
    part: str
    outcome: str
    taken_back: tuple[Address, ...]
    left_behind: tuple[Reasoned, ...]
    unfinished: tuple[Address, ...]


def changeset_views(records: Sequence[Changeset]) -> tuple[ChangesetView, ...]:
    """Describe changesets that were not fully applied, one view per part. Returns nothing if all were fully applied."""
    views = []
    for record in records:
        outcome = "applied" if record.ended else "unfinished"
        if record.state is ChangesetState.FAILED:
            outcome = "failed"
        elif record.state in BLOCKING:
            outcome = "open"
        back = tuple(m.address for m in record.members if m.runtime.state is RuntimeState.COMPENSATED)
        left = tuple(Reasoned(each.address, each.reason) for each in record.orphaned)
        part = "" if record.part == "1/1" else record.part
        views.append(ChangesetView(record.key, part, outcome, back, left, tuple(sorted(unfinished(record)))))
    return () if all(view.outcome == "applied" for view in views) else tuple(views)


def without_said(outcome: ApplyOutcome, missing: Sequence[ApprovalState]) -> ApplyOutcome:
    """Return an outcome without problems that its changesets, unapplied changes or missing approvals already show."""
    said = {(code, record.key) for record in outcome.changesets for code in _CHANGESET_CODES}
    said |= {(code, o.address) for r in outcome.changesets for o in r.orphaned for code in _CHANGESET_CODES}
    said |= {(Code.APPLY_DEPENDENCY_BLOCKED, r.node_id) for r in not_carried_out(outcome) if r.blocked_by}
    waiting = (c.address for c in outcome.changes if missing and c.reason is Reason.APPROVAL_REQUIRED)
    said |= {(Code.APPLY_DEPENDENCY_BLOCKED, address) for address in waiting}
    return replace(outcome, diagnostics=tuple(d for d in outcome.diagnostics if (d.code, d.path) not in said))


def without_refused(found: Iterable[Diagnostic], missing: Iterable[ApprovalState]) -> tuple[Diagnostic, ...]:
    """Leave out warnings about refused approvals if a missing approval already shows the same reason and remedy."""
    said = {(code, s.resource, detail) for s in missing for code, detail in s.refused if code in _APPROVE_AGAIN}
    unknown = {s.resource for s in missing if s.unknown}

    def is_shown(each: Diagnostic) -> bool:
        return (each.code, each.path, each.message) in said or (each.code in UNKNOWN_AUTHORS and each.path in unknown)

    return tuple(each for each in found if each.severity is Severity.ERROR or not is_shown(each))


def not_carried_out(outcome: ApplyOutcome) -> tuple[NodeResult, ...]:
    """Return the nodes that did not succeed.

    Barriers are included only if they failed, because they then explain why nothing is applied.
    """
    return tuple(
        result
        for result in outcome.results
        if not result.outcome.succeeded and (result.node_id not in BARRIERS or result.outcome is NodeOutcome.FAILED)
    )


@dataclass(frozen=True, slots=True)
class StoppedView:
    """Nodes without a change that did not run for the same reason, with their outcome and the blocker, if any."""

    how: str
    blocked_by: str
    resources: tuple[str, ...]

    @property
    def resource(self) -> str:
        """The first of the resources."""
        return self.resources[0]


def stopped_views(results: Sequence[NodeResult]) -> tuple[StoppedView, ...]:
    """Group the nodes that did not run by cause."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        found.setdefault((result.outcome.value, result.blocked_by or ""), []).append(result.node_id)
    return tuple(StoppedView(how, by, tuple(names)) for (how, by), names in found.items())


@dataclass(frozen=True, slots=True)
class DriftView:
    """A resource that differs from the ledger, and its difference. Digests are shortened."""

    resource: str
    what: str
    detail: str
    recorded: str | None
    live: str
    adoptable: bool


@dataclass(frozen=True, slots=True)
class ProblemView:
    """The same problem in several places: the first `places`, and the number of others (`more`).

    `path` lists them on one line.

    `fix` is None if the next problem has the same remedy, so that each remedy is shown once.
    """

    code: str
    severity: Severity
    message: str
    source: SourceRef | None
    fix: str | None
    places: tuple[str, ...] = ()
    more: int = 0

    @property
    def path(self) -> str:
        """The problem's place. If it has several, the first one and the number of others."""
        others = len(self.places) - 1 + self.more
        return f"{self.places[0]} and {others} more" if others > 0 else "".join(self.places)


def errors_and_warnings(diagnostics: Iterable[Diagnostic]) -> dict[str, tuple[ProblemView, ...]]:
    """Return errors and warnings as two template values. Problems that differ only in their place are combined."""
    views = _problem_views(diagnostics)
    errors, warnings = (tuple(v for v in views if (v.severity is Severity.ERROR) is wanted) for wanted in (True, False))
    return {"errors": errors, "warnings": warnings}


def _problem_views(diagnostics: Iterable[Diagnostic]) -> tuple[ProblemView, ...]:
    """Return the problems for display, errors first.

    If several in a row have the same remedy, only the last shows it.
    """
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for each in sorted(by_place(diagnostics), key=lambda each: each.severity is not Severity.ERROR):
        groups.setdefault((each.severity, each.code, each.message, each.source, each.fix), []).append(each)
    views = []
    for found in groups.values():
        first, places = found[0], tuple(each.path for each in found if each.path)
        shown, more = places[:SHOWN], max(0, len(places) - SHOWN)
        views.append(ProblemView(first.code, first.severity, first.message, first.source, first.fix, shown, more))
    for at, (view, following) in enumerate(pairwise(views)):
        if (view.severity, view.code, view.fix) == (following.severity, following.code, following.fix):
            views[at] = replace(view, fix=None)
    return tuple(views)


def _errors(outcome: VerbOutcome) -> str:
    return count(sum(d.severity is Severity.ERROR for d in outcome.diagnostics), "error")
