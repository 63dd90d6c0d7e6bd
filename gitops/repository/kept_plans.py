"""Whole plans, kept as git objects: a comment has a size limit, a commit has none.

    refs/gitops/plans/<cluster>/<number>    a chain of commits, each with

    plan.json     which plan it is, and what moved since the one before
    outcome.json  the whole plan with its execution graph
    plan.md       the same for people

Nothing that permits or carries out a change reads these, because everybody with push rights can move the refs. If the host or
the token does not allow such refs, plans are not kept, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from gitops.bot.context import EventContext
from gitops.cluster.model.outcome import PlanOutcome
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    LINE,
    OBJECT_ID,
    Member,
    Members,
    integer,
    is_line,
    list_of,
    nullable,
    record,
)
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.comment import plan_document, plan_summary
from gitops.render.comment_inputs import CommentSubject, PlanComment
from gitops.repository.project import Project

PLANS = "refs/gitops/plans"
_RECORD = "plan.json"


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The plan that was reported: `head` merged into `base`. `plan_digest` is None if there was no plan.

    `report_digest` is over everything in the report that people decide by, so that an equal report can be left out. The next
    report compares itself with the first of the `changes`, of which there are `count`, with those that are `missing` an approval,
    and with the number of `errors`. `since` is what this report said of the one before it. `shown` is false while the forge has
    not taken the comment: the next run writes it again.
    """

    cluster: str
    request: int
    head: str
    base: str
    plan_digest: str | None
    report_digest: str
    changes: tuple[str, ...] = ()
    count: int = 0
    missing: tuple[str, ...] = ()
    errors: int = 0
    since: tuple[str, ...] = ()
    shown: bool = True


_MEMBERS: Members = {
    "cluster": LINE,
    "request": integer(1),
    "head": OBJECT_ID,
    "base": OBJECT_ID,
    "plan_digest": nullable(DIGEST),
    "told": Member(DIGEST, attribute="report_digest"),
}
_COMPARED: Members = {
    **_MEMBERS,
    "changes": list_of(LINE),
    "count": integer(),
    "missing": list_of(LINE),
    "errors": integer(),
    "since": list_of(LINE),
}
PLAN_RECORD = Document(
    versions={
        1: record(PlanRecord, _MEMBERS),
        2: record(PlanRecord, _COMPARED),
        3: record(PlanRecord, {**_COMPARED, "shown": BOOLEAN}),
    },
    code=Code.REQUEST_INVALID,
    limit=1024 * 1024,
    version_of=lambda kept: 2 if kept.shown else 3,
)
_MOST_NAMES = 200
_MOST_FACTS = 5
_SHOWN = 3


def plan_ref(cluster: str, number: int) -> str:
    """The ref of the newest plan of a change request."""
    return f"{PLANS}/{cluster}/{number}"


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


def _names(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in islice(addresses, _MOST_NAMES) if is_line(name))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(f"`{name}`" for name in names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def kept_plan(project: Project, cluster: str, number: int) -> PlanRecord | None:
    """The plan of a request that was reported last; None if there is none, or if it cannot be read."""
    store = project.tools.store
    try:
        commit = project.head_of(plan_ref(cluster, number))
        content = None if commit is None else store.read(store.commit(commit).tree, _RECORD)
        kept = None if content is None else PLAN_RECORD.read(content)
    except GitopsError:
        return None
    return kept if kept is not None and (kept.cluster, kept.request) == (cluster, number) else None


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
        tree = store.write_files(None, {_RECORD: PLAN_RECORD.write(kept), **files})
        if old is not None and store.commit(old).tree == tree:
            return None
        author = replace(person, time=int(context.project.tools.clock.now().timestamp()))
        message = f"plan: {kept.cluster}, request {kept.request}\n"
        new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=None)
        context.project.tools.remote.push([RefUpdate(ref, old or ZERO, new)])
    except GitopsError as error:
        return f"the whole plan is not kept in git ({error.code}: {error.detail})"
    return None
