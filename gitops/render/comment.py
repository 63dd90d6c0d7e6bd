"""Comments on change requests: what a plan would do, what an apply did, why a command was refused; and the report of drift.

The bot finds its comment by the first line, a hidden marker, and by the id of its author. The second line names the commit and
the plan of the comment, and the last paragraph shows both to people. These three are made here, with any templates. A comment
only reports: no later decision reads it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gitops.cluster.apply.drift import DriftKind
from gitops.cluster.model.address import Address, Kind, is_name
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import ExecutionGraph, Plan
from gitops.cluster.model.resource import edges_near
from gitops.cluster.plan.classes import atomic_graph
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef
from gitops.render.access import access_values
from gitops.render.change_rows import DONE, LISTED, PLANNED, change_rows, listed_rows, republished_counts
from gitops.render.comment_inputs import (
    ApplyComment,
    CommentSubject,
    DriftReport,
    PlanComment,
    RefusalComment,
    RequestComment,
    Templates,
)
from gitops.render.comment_rows import (
    apply_verdict,
    approval_checks,
    approval_states,
    changeset_views,
    errors_and_warnings,
    explanations,
    not_carried_out,
    plan_checks,
    plan_verdict,
    rule_rows,
    stopped_rows,
    without_refused,
    without_said,
)
from gitops.render.diffs import text_diff
from gitops.render.graph import ARROW, to_json, to_mermaid
from gitops.render.impact import affected_views, breaks_views, migration_views
from gitops.render.json import envelope, to_text
from gitops.render.landing import LANDS_WHOLE, landing_rows
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
from gitops.render.text import count
from gitops.render.undo import undo_counts, undo_rows
from gitops.render.what_if import what_if_rows

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_DOCUMENT_VERSION = 1
_WITH_TEXT = (Kind.SCHEMA, Kind.POLICY, Kind.STRATEGY, Kind.QUERY)
# Boxes of the picture of the execution graph: what one can take in, and what still fits a page of its own.
_NODES_IN_COMMENT, _NODES_IN_SUMMARY = 20, 60
# Forgejo draws no picture of more than 5,000 characters, and shows an error instead.
_PER_BOX = 250
# What is lost first comes first.
_DRIFTS = {
    DriftKind.VANISHED: "vanished",
    DriftKind.SCHEMA: "has a different schema",
    DriftKind.CATALOG: "has a different text",
}


def marker(cluster: str) -> str:
    """The text of the hidden first line, without its brackets, such as `gitops cluster=knowledge`.

    One for all kinds of comment: a request has one comment for each cluster, which plan and result update in place. Raises
    ValueError for a cluster that is not a name of at most 200 characters.
    """
    if not is_name(cluster) or len(cluster) > NAME_LIMIT:
        raise ValueError("a marker is made of a name")
    return f"gitops cluster={cluster}"


def plan_comment(comment: PlanComment) -> str:
    """What merging would do, irreversible changes first, and which approvals are missing; at most 65,536 characters.

    Raises ValueError for a subject that does not consist of names and commit ids.
    """
    return assemble(_plan_sections(comment, _NODES_IN_COMMENT, LISTED), fold_limit=FOLD_LIMIT)


def plan_summary(comment: PlanComment) -> str:
    """The same in full, for the summary page of a job: at most 1 MiB of UTF-8, without the hidden lines.

    Raises ValueError like `plan_comment`.
    """
    _, *sections = _plan_sections(comment, _NODES_IN_SUMMARY, None)
    return assemble(sections, limit=SUMMARY_LIMIT, measure=lambda text: len(text.encode()))


def plan_document(outcome: PlanOutcome, *, atomic: bool = False) -> bytes:
    """The whole plan as one JSON document, to be kept in git: the same plan always gives the same bytes.

    It is the JSON envelope of `plan` without what was observed of lock, ledger and targets, with the digest of the plan and its
    execution graph, that of an `atomic` run if the bot applies the merge by one. Digests and dependencies are those of the
    changes: the others are in the commit, and a large cluster has many. The layout is made for `git show` and `git diff`, and has
    no character that acts on a terminal.
    """
    plan = outcome.plan
    changed = frozenset[Address]() if plan is None else frozenset(change.address for change in plan.changes)
    edges = edges_near(outcome.dependencies, {address.graph for address in changed if address.graph is not None})
    near = replace(
        outcome,
        resource_digests={text: d for text, d in outcome.resource_digests.items() if text in changed},
        dependencies=tuple(d for d in edges if not changed.isdisjoint(d)),
        what_if=(),
    )
    form = {name: part for name, part in envelope(near).items() if name not in ("ok", "state_observations")}
    graph = None if plan is None else to_json(_graph(plan, atomic=atomic), plan.digest)
    digest = None if plan is None else plan.digest
    return to_text({"version": _DOCUMENT_VERSION, "plan_digest": digest, **form, "execution_graph": graph}).encode()


def apply_comment(comment: ApplyComment) -> str:
    """What an apply did and where it stopped; at most 65,536 characters. Raises ValueError like `plan_comment`."""
    changesets = changeset_views(comment.outcome.changesets)
    missing = tuple(a for a in comment.approvals if not a.satisfied)
    outcome = without_said(comment.outcome, missing)
    stopped = not_carried_out(outcome)
    plan, again = outcome.plan, outcome.republished
    rows = change_rows((each for each in outcome.changes if each.address not in again), DONE, plan)
    listed, counted = listed_rows(rows)
    counted += republished_counts(each for each in outcome.changes if each.address in again)
    values = {
        "verdict": apply_verdict(outcome, len(missing)),
        "checks": approval_checks(comment.approvals),
        "rules": rule_rows(plan) if plan else (),
        "rows": rows,
        "listed": listed,
        "counted": counted,
        "approvals": comment.approvals,
        "missing": missing,
        "commands": "\n".join(_line(a.command) for a in missing if a.command),
        "approve_all": comment.approve_all,
        "forge_commands": "",
        "stopped": tuple(
            {"resource": r.node_id, "how": r.outcome.value, "blocked_by": r.blocked_by or ""} for r in stopped
        ),
        "stopped_by": stopped_rows(stopped),
        "retry": _forge_command(comment, "retry") if not (outcome.ok and outcome.converged) else "",
        "changesets": changesets,
        "retry_command": _retry_command(comment, changesets),
        **_debts(comment),
        "notes": comment.notes,
        "deployment": comment.deployment,
    }
    written = "written" if outcome.state_written else "unchanged"
    entry = f", entry {code(outcome.entry_id[:12])}" if outcome.entry_id else ""
    commit = f"commit {code(comment.subject.head[:12])}{_plan_words(outcome.plan_digest)}"
    about = f"{commit}. Ledger revision {outcome.observations.state_revision}, {written}{entry}."
    found = without_refused(outcome.diagnostics, missing)
    sections = _sections("apply", comment, values, found, about, digest=outcome.plan_digest)
    return assemble(sections, fold_limit=FOLD_LIMIT)


def _retry_command(comment: ApplyComment, changesets: Sequence[Mapping[str, str]]) -> str:
    """The command that applies again what a changeset that failed was to bring in; empty if none failed."""
    words = ("gitops", "changeset", "retry")
    failed = (view["key"] for view in changesets if view["outcome"] == "failed")
    return next((shlex.join((*words, key, "--cluster", comment.subject.cluster)) for key in failed), "")


def refusal_comment(comment: RefusalComment) -> str:
    """Why a command was not carried out: the first problem's summary, then each problem with its remedy.

    Raises ValueError like `plan_comment`.
    """
    found = comment.diagnostics
    errors = [d for d in found if d.severity is Severity.ERROR]
    summaries = [REGISTRY[d.code].summary for d in (*errors, *found) if d.code in REGISTRY]
    values = {
        "command": f"gitops {comment.command}",
        "summary": summaries[0] if summaries else "see below",
        "retry": _forge_command(comment, "retry"),
        "notes": comment.notes,
    }
    about = f"{_onto(comment.subject)}. Nothing was changed."
    return assemble(_sections("refusal", comment, values, found, about))


def drift_marker(cluster: str) -> str:
    """The text of the hidden first line, such as `gitops drift=knowledge`. Raises ValueError like `marker`."""
    return marker(cluster).replace("cluster=", "drift=", 1)


def drift_title(report: DriftReport) -> str:
    """One plain line that is the same for the same drift, such as `Drift in production/knowledge: 2 resources`.

    A title is not Markdown, so an environment that is not a name is left out. Raises ValueError like `drift_marker`.
    """
    drift_marker(report.cluster)
    place = f"{report.environment}/{report.cluster}" if is_name(report.environment) else report.cluster
    return f"Drift in {place}: {count(len(report.outcome.items), 'resource')}"


def drift_body(report: DriftReport) -> str:
    """Which resources differ from the ledger and how, and both remedies; at most 65,536 characters.

    Raises ValueError like `drift_marker`.
    """
    items = sorted(report.outcome.items, key=lambda item: (list(_DRIFTS).index(item.kind), item.address))
    values = {
        "cluster": report.cluster,
        "environment": report.environment,
        "place": f"{report.environment}/{report.cluster}",
        "verdict": f"{count(len(items), 'resource')} {'differs' if len(items) == 1 else 'differ'} from the ledger",
        "items": tuple(
            {
                "resource": item.address,
                "what": _DRIFTS[item.kind],
                "detail": item.detail,
                # As long as the ids of commits: whole digests make the table wider than a page.
                "recorded": item.recorded and item.recorded[:12],
                "live": (item.live or "")[:12],
                "adoptable": item.adoptable,
            }
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
    updates = "Every run of the drift check updates this report, and closes it when nothing differs."
    seen = f"Observed {code(report.at)} against ledger revision {report.outcome.observations.state_revision}."
    foot = Section("Reference", MUST_KEEP, f"---\n\n{seen} {updates}")
    return assemble((head, *render_template("drift.md.j2", values, report.outcome.diagnostics, report.templates), foot))


def drift_gone(report: DriftReport) -> str:
    """The last comment on the issue of a cluster without drift."""
    seen = f"Observed {code(report.at)}, ledger revision {report.outcome.observations.state_revision}."
    return f"{code(f'{report.environment}/{report.cluster}')} no longer differs from its ledger. {seen}\n"


def render_template(
    template: str, values: Mapping[str, object], diagnostics: Sequence[Diagnostic], own: Templates
) -> tuple[Section, ...]:
    """The sections of a template, whose values also have `errors` and `warnings`.

    If a template of the repository breaks a rule, the built-in one is used, and warns of it.
    """
    # To import jinja2 takes longer than to make a plan, so only the verbs that comment import it.
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
    """The sections of a plan, with at most so many nodes of the execution graph; from `most` changes on, many are counted."""
    outcome, plan = comment.outcome, comment.outcome.plan
    digest = plan.digest if plan else None
    gates = approval_states(plan, comment.approvals)
    asked = [a for a in gates if not a.satisfied]
    drawn = (
        ""
        if plan is None
        else to_mermaid(_graph(plan, atomic=comment.atomic), most=nodes, reasons=False, quiet=plan.republished)
    )
    rows = change_rows((*plan.edits, *plan.derived), PLANNED, plan) if plan else ()
    listed, counted = listed_rows(rows, most)
    counted += republished_counts(each for each in plan.changes if each.address in plan.republished) if plan else ()
    diffs = tuple(map(text_diff, outcome.texts))
    values = {
        "verdict": plan_verdict(comment, gates),
        "checks": plan_checks(comment, gates),
        "since": comment.since,
        "undone": undo_rows(plan) if plan else (),
        "undo_counts": undo_counts(plan) if plan else "",
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
        "rules": rule_rows(plan) if plan else (),
        **access_values(plan),
        "what_if": what_if_rows(outcome.what_if),
        "rows": rows,
        "listed": listed,
        "counted": counted,
        **{f"{kind.value}_diffs": tuple(d for d in diffs if d.kind is kind) for kind in _WITH_TEXT},
        "migrations": tuple(migration_views(plan).values()) if plan else (),
        "breaks": breaks_views(plan) if plan else (),
        "explained": explanations(outcome, comment.explained, gates),
        "others": comment.others,
        "impact": affected_views(plan) if plan else (),
        "landing": landing_rows(plan) if plan and comment.atomic else (),
        "lands_whole": f"{LANDS_WHOLE[0].upper()}{LANDS_WHOLE[1:]}.",
        # Boxes that nothing keeps in an order say no more than the list of changes.
        "graph": drawn.rstrip("\n") if ARROW in drawn and len(drawn) <= _PER_BOX * nodes else "",
    }
    gated = plan is not None and plan.approvals_required
    stale = " Any later edit of an approved change makes its approval stale." if gated and digest else ""
    about = f"{_onto(comment.subject)}{_plan_words(digest)}.{stale}"
    found = without_refused(outcome.diagnostics, asked)
    return _sections("plan", comment, values, found, about, digest=digest, ref=comment.ref)


def _graph(plan: Plan, *, atomic: bool) -> ExecutionGraph:
    """The execution graph of the run that will carry out a plan."""
    return atomic_graph(plan.graph) if atomic else plan.graph


def _sections(
    kind: str,
    comment: RequestComment,
    values: Mapping[str, object],
    diagnostics: Sequence[Diagnostic],
    about: str,
    *,
    digest: str | None = None,
    ref: str = "",
) -> tuple[Section, ...]:
    """The two hidden lines, the sections of the template, and the last paragraph: what the comment is about."""
    subject = comment.subject
    if not _COMMIT.match(subject.head) or not _COMMIT.match(subject.base):
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
    request = f"Change request {subject.request}" if subject.request else "No change request"
    places = [link(comment.run, "the page of the job")] if comment.run else []
    places += [f"{code(ref)} in this repository"] if ref else []
    full = f" In full: {' and '.join(places)}." if places else ""
    foot = Section("Reference", MUST_KEEP, f"---\n\n{request}, {about}{full}")
    return (marks, *render_template(f"{kind}.md.j2", {**frame, **values}, diagnostics, comment.templates), foot)


def _debts(comment: PlanComment | ApplyComment) -> dict[str, object]:
    chosen = ("--cluster", comment.subject.cluster) if comment.several else ()
    commands = (("gitops", "countersign", d.approval_id, "--commit", d.commit, *chosen) for d in comment.debts)
    return {"debts": comment.debts, "countersign": "\n".join(map(shlex.join, commands))}


def _onto(subject: CommentSubject) -> str:
    return f"head {code(subject.head[:12])} onto {code(subject.base[:12])}"


def _plan_words(digest: str | None) -> str:
    return f", plan {code(digest)}" if digest else ""


def _forge_command(comment: RequestComment, words: str) -> str:
    """A command for a comment, which names its cluster if the repository has several."""
    if not comment.forge_commands:
        return ""
    return f"/gitops {words}{f' --cluster {comment.subject.cluster}' if comment.several else ''}"


def _line(words: str) -> str:
    """A command on one line: a name in it may have line breaks."""
    return " ".join(words.splitlines())
