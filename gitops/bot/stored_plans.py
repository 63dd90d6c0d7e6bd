"""Stores what was planned for a request, in the form of `gitops.repository.kept_plans`.

A record has what was reported, and the differences from the previous report. If a plan cannot be stored, that is not a
problem of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice

from gitops.bot.context import EventContext
from gitops.bot.query_tests import plan_tests
from gitops.cluster.approvals.verify import UNKNOWN_AUTHORS
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import UnknownAuthors
from gitops.cluster.model.change import Change
from gitops.cluster.model.others import OtherRequests
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.use import SeenCallers, UseState
from gitops.core.canonical import canonical_digest
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.core.documents.forms import is_line
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.comment import plan_document, plan_summary
from gitops.render.comment_inputs import CommentSubject, OtherRequest, PlanComment
from gitops.render.plan_views import PlanView
from gitops.repository.kept_plans import (
    OTHER_REQUESTS,
    OTHERS,
    PLAN_RECORD,
    RECORD,
    PlanRecord,
    SeenChange,
    kept_plan,
    plan_ref,
)
from gitops.review.tests.verdicts import QueryTestReport

_MOST_NAMES = 200
_MOST_SEEN = 1000
_MOST_FACTS = 5
_SHOWN = 3


def plan_record(
    subject: CommentSubject,
    outcome: PlanOutcome,
    before: PlanRecord | None = None,
    voids: Sequence[OtherRequest] = (),
    tests: QueryTestReport | None = None,
    compared: str | None = None,
) -> PlanRecord:
    """Return the record for a plan that is about to be reported. `before` is the previous record.

    `compared` is the digest of what the report says about other requests, if it does.
    """
    plan, numbers = outcome.plan, [each.number for each in voids]
    gates = [] if plan is None else [[r.resource, r.needed, len(r.approvals)] for r in plan.approvals_required]
    parts = [subject.head, [d.to_json() for d in outcome.diagnostics], gates, plan and plan.digest, numbers]
    verdicts = None if tests is None else plan_tests(tests)
    shown = parts if numbers or verdicts or compared else parts[:-1]
    more = [*([compared] if compared else ()), *([] if verdicts is None else [asdict(verdicts)])]
    # Numbers of calls change all the time, so that only the clients are news.
    hit = [
        [c.address, [each.client for each in c.callers.clients]] for c in (plan.changes if plan else ()) if c.callers
    ]
    more += [hit] if any(clients for _, clients in hit) else []
    digest = canonical_digest([*shown, *more])
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
        approved=_names(need.resource for need in plan.approvals_required if need.approvals) if plan else (),
        voids=tuple(numbers),
        unknown=tuple(
            UnknownAuthors(Address(each.path), each.code, each.message, each.fix or "")
            for each in outcome.diagnostics
            if each.code in UNKNOWN_AUTHORS and each.step is None and is_line(each.message) and is_line(each.fix or "")
        ),
        tests=verdicts,
        callers=counted_callers(plan.changes) if plan else (),
    )
    return replace(found, since=() if before is None else moved_since(before, found))


def refusal_record(subject: CommentSubject, problems: Sequence[Diagnostic]) -> PlanRecord:
    """Return the record for a plan that these problems prevented."""
    digest = canonical_digest([subject.head, [each.to_json() for each in problems]])
    return PlanRecord(
        subject.cluster, subject.request, subject.head, subject.base, None, digest, errors=max(1, len(problems))
    )


def moved_since(before: PlanRecord, now: PlanRecord) -> tuple[str, ...]:
    """Return up to five differences between two reports, one line each.

    If the report is unchanged, return the ones in `before`.
    """
    if (before.report_digest, before.base) == (now.report_digest, now.base):
        return before.since
    facts = []
    if before.errors != now.errors:
        facts.append(f"errors: {now.errors}, before {before.errors}")
    # A failed plan has no changes, so it is unknown what they would have been.
    made = all(each.count or not each.errors for each in (before, now))
    whole = made and all(len(each.changes) == each.count for each in (before, now))
    more, fewer = (sorted({*a.changes} - {*b.changes}) if whole else [] for a, b in ((now, before), (before, now)))
    if more:
        facts.append(f"the plan also changes {_listed(more)}")
    if fewer:
        facts.append(f"the plan no longer changes {_listed(fewer)}")
    if made and not whole and before.count != now.count:
        facts.append(f"changes: {now.count}, before {before.count}")
    if needed := sorted({*now.missing} - {*before.missing}):
        facts.append(f"approval now missing for {_listed(needed)}")
    if given := sorted({*before.missing} - {*now.missing} - {*fewer}):
        facts.append(f"approved: {_listed(given)}")
    if before.head != now.head:
        facts.append(f"the head moved from {before.head[:12]} to {now.head[:12]}")
    if before.base != now.base:
        facts.append(f"the target branch moved from {before.base[:12]} to {now.base[:12]}")
    return tuple(facts[:_MOST_FACTS])


def is_reported(kept: PlanRecord | None, again: PlanRecord) -> bool:
    """Return True if the last stored report is the same and was visible to people."""
    return kept is not None and kept.shown and kept.report_digest == again.report_digest


def _seen(changes: Iterable[Change]) -> tuple[SeenChange, ...]:
    found = (
        SeenChange(
            c.address,
            c.before,
            c.after,
            c.seen,
            c.seen.recorded_at,
            None if c.migration is None else c.migration.counts,
        )
        for c in changes
        if c.seen is not None
    )
    return tuple(islice(found, _MOST_SEEN))


def counted_callers(changes: Iterable[Change]) -> tuple[SeenCallers, ...]:
    """Return the recorded clients that changes break, as far as they were counted."""
    found = (SeenCallers(c.address, c.before, c.after, c.callers) for c in changes if c.callers is not None)
    return tuple(islice((each for each in found if each.callers.state is UseState.COUNTED), _MOST_SEEN))


def _names(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in islice(addresses, _MOST_NAMES) if is_line(name))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(f"`{name}`" for name in names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def plan_view(context: EventContext, outcome: PlanOutcome) -> PlanView | None:
    """Return the view that all printers of a plan share; None if it could not be made."""
    atomic = context.config.apply.atomicity == "atomic"
    return None if outcome.plan is None else PlanView(outcome.plan, atomic=atomic)


def keep_first(
    context: EventContext, comment: PlanComment, outcome: PlanOutcome, others: OtherRequests | None
) -> tuple[PlanComment, PlanRecord | None, str]:
    """Store the plan of a request before it is reported.

    Returns the comment, which now refers to the stored plan, its record, and why it was not stored.
    """
    subject = comment.subject
    if not subject.request or context.bot.person is None:
        return comment, None, ""
    before = kept_plan(context.repository, subject.cluster, subject.request)
    kept = plan_record(
        subject, outcome, before, comment.voids, comment.tests, None if others is None else others.compared
    )
    comment = replace(comment, since=kept.since)
    commit, not_kept = keep_plan(context, kept, outcome, comment, others)
    return replace(comment, ref=commit and plan_ref(subject.cluster, subject.request), kept=commit), kept, not_kept


def keep_plan(
    context: EventContext,
    kept: PlanRecord,
    outcome: PlanOutcome,
    comment: PlanComment,
    others: OtherRequests | None = None,
) -> tuple[str, str]:
    """Store a plan, with what its report says about other requests.

    Returns its commit, or a line that explains why it was not stored, which is not a problem of the run.
    """
    document = plan_document(outcome, comment.view)
    files = {"outcome.json": document, "plan.md": plan_summary(comment).encode()}
    return _keep(context, kept, files if others is None else {**files, OTHERS: OTHER_REQUESTS.write(others)})


def keep_left(context: EventContext, subject: CommentSubject, left: PlanOutcome, body: str) -> str:
    """Store the plan for the changes that still wait after a merge, so that clones can see the row counts from this run.

    Returns the reason if it is not stored, like `keep_plan`.
    """
    try:
        context.repository.fetch_refs(plan_ref(subject.cluster, subject.request))
    except GitopsError as error:
        return f"the full plan is not kept in git ({error.code}: {error.detail})"
    kept = plan_record(subject, left)
    return _keep(
        context, kept, {"outcome.json": plan_document(left, plan_view(context, left)), "plan.md": body.encode()}
    )[1]


def keep_refusal(context: EventContext, kept: PlanRecord, body: str) -> tuple[str, str]:
    """Store the report for a plan that could not be made. Returns the same as `keep_plan`."""
    return _keep(context, kept, {"plan.md": body.encode()})


def _keep(context: EventContext, kept: PlanRecord, files: Mapping[str, bytes]) -> tuple[str, str]:
    person, ref, store = context.bot.person, plan_ref(kept.cluster, kept.request), context.store
    if person is None:
        return "", ""
    try:
        old, before = context.repository.head_of(ref), kept_plan(context.repository, kept.cluster, kept.request)
        if before is None or (kept.head, kept.approved) != (before.head, before.approved):
            context.moved.add(kept.request)
        tree = store.write_files(None, {RECORD: PLAN_RECORD.write(kept), **files})
        if old is not None and store.commit(old).tree == tree:
            return old, ""
        author = replace(person, time=int(context.repository.clock.now().timestamp()))
        message = f"plan: {kept.cluster}, request {kept.request}\n"
        new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=None)
        context.repository.remote.push([RefUpdate(ref, old or ZERO, new)])
    except GitopsError as error:
        return "", f"the full plan is not kept in git ({error.code}: {error.detail})"
    return new, ""
