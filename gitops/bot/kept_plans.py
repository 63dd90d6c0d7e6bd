"""What is kept of a plan that the bot reports, as `gitops.repository.kept_plans` has it, and what moved since the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from gitops.bot.context import EventContext
from gitops.cluster.model.change import Change
from gitops.cluster.model.outcome import PlanOutcome
from gitops.core.canonical import canonical_digest
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.core.documents.forms import is_line
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.comment import plan_document, plan_summary
from gitops.render.comment_inputs import CommentSubject, PlanComment
from gitops.repository.kept_plans import PLAN_RECORD, RECORD, PlanRecord, SeenChange, plan_ref

_MOST_NAMES = 200
_MOST_SEEN = 1000
_MOST_FACTS = 5
_SHOWN = 3


def plan_record(subject: CommentSubject, outcome: PlanOutcome, before: PlanRecord | None = None) -> PlanRecord:
    """The record of a plan that is about to be reported, after the record `before` it."""
    plan = outcome.plan
    gates = [] if plan is None else [[r.resource, r.needed, len(r.approvals)] for r in plan.approvals_required]
    digest = canonical_digest([subject.head, [d.to_json() for d in outcome.diagnostics], gates, plan and plan.digest])
    changed = [change.address for change in plan.changes] if plan else []
    found = PlanRecord(
        subject.cluster,
        subject.request,
        subject.head,
        subject.base,
        plan.digest if plan else None,
        digest,
        changes=_names(changed),
        count=len(changed),
        missing=_names(need.resource for need in plan.approvals_required if not need.satisfied) if plan else (),
        errors=sum(each.severity is Severity.ERROR for each in outcome.diagnostics),
        seen=_seen(plan.changes) if plan else (),
    )
    return replace(found, since=() if before is None else moved_since(before, found))


def refusal_record(subject: CommentSubject, problems: Sequence[Diagnostic]) -> PlanRecord:
    """The record of a plan that could not be made, for these reasons."""
    digest = canonical_digest([subject.head, [each.to_json() for each in problems]])
    return PlanRecord(
        subject.cluster, subject.request, subject.head, subject.base, None, digest, errors=max(1, len(problems))
    )


def moved_since(before: PlanRecord, now: PlanRecord) -> tuple[str, ...]:
    """At most five facts that moved between two reports, one line each; those of `before` if it is the same report."""
    if (before.report_digest, before.base) == (now.report_digest, now.base):
        return before.since
    facts = []
    if before.errors != now.errors:
        facts.append(f"errors: {now.errors}, before {before.errors}")
    # A plan that failed names no change, so nothing is known of what it would have changed.
    made = all(each.count or not each.errors for each in (before, now))
    whole = made and all(len(each.changes) == each.count for each in (before, now))
    more, fewer = (sorted({*a.changes} - {*b.changes}) if whole else [] for a, b in ((now, before), (before, now)))
    if more:
        facts.append(f"it also changes {_listed(more)}")
    if fewer:
        facts.append(f"it no longer changes {_listed(fewer)}")
    if made and not whole and before.count != now.count:
        facts.append(f"changes: {now.count}, before {before.count}")
    if needed := sorted({*now.missing} - {*before.missing}):
        facts.append(f"an approval is missing now for {_listed(needed)}")
    if given := sorted({*before.missing} - {*now.missing} - {*fewer}):
        facts.append(f"all approvals are there now for {_listed(given)}")
    if before.head != now.head:
        facts.append(f"the head moved from {before.head[:12]} to {now.head[:12]}")
    if before.base != now.base:
        facts.append(f"the target branch moved from {before.base[:12]} to {now.base[:12]}")
    return tuple(facts[:_MOST_FACTS])


def is_reported(kept: PlanRecord | None, again: PlanRecord) -> bool:
    """Whether the last report that was kept says the same, and people could see it."""
    return kept is not None and kept.shown and kept.report_digest == again.report_digest


def _seen(changes: Iterable[Change]) -> tuple[SeenChange, ...]:
    found = (SeenChange(c.address, c.before, c.after, c.seen) for c in changes if c.seen is not None)
    return tuple(islice(found, _MOST_SEEN))


def _names(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in islice(addresses, _MOST_NAMES) if is_line(name))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(f"`{name}`" for name in names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def keep_plan(context: EventContext, kept: PlanRecord, outcome: PlanOutcome, comment: PlanComment) -> str | None:
    """Keep a plan. Returns why it could not be kept, which is a line for people and not a problem of the run."""
    document = plan_document(outcome, comment.view)
    return _keep(context, kept, {"outcome.json": document, "plan.md": plan_summary(comment).encode()})


def keep_refusal(context: EventContext, kept: PlanRecord, body: str) -> str | None:
    """Keep the report of a plan that could not be made. Returns the same as `keep_plan`."""
    return _keep(context, kept, {"plan.md": body.encode()})


def _keep(context: EventContext, kept: PlanRecord, files: Mapping[str, bytes]) -> str | None:
    person, ref, store = context.bot.person, plan_ref(kept.cluster, kept.request), context.store
    if person is None:
        return None
    try:
        old = context.project.head_of(ref)
        tree = store.write_files(None, {RECORD: PLAN_RECORD.write(kept), **files})
        if old is not None and store.commit(old).tree == tree:
            return None
        author = replace(person, time=int(context.project.tools.clock.now().timestamp()))
        message = f"plan: {kept.cluster}, request {kept.request}\n"
        new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=None)
        context.project.tools.remote.push([RefUpdate(ref, old or ZERO, new)])
    except GitopsError as error:
        return f"the whole plan is not kept in git ({error.code}: {error.detail})"
    return None
