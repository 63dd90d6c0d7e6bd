"""Whole plans, kept as git objects: a comment has a size limit, a commit has none.

    refs/gitops/plans/<cluster>/<number>    a chain of commits, each with

    plan.json     which plan it is
    outcome.json  the whole plan with its execution graph
    plan.md       the same for people

Nothing that permits or carries out a change reads these, because everybody with push rights can move the refs. If the host or
the token does not allow such refs, plans are not kept, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gitops.bot.context import EventContext
from gitops.bot.project import Project
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.documents.codec import Document
from gitops.documents.forms import DIGEST, LINE, OBJECT_ID, Member, integer, nullable, record
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.model.outcome import PlanOutcome
from gitops.render.comment import plan_document, plan_summary
from gitops.render.comment_inputs import CommentSubject, PlanComment

PLANS = "refs/gitops/plans"
_RECORD = "plan.json"


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The plan that was reported: `head` merged into `base`. `plan_digest` is None if there was no plan.

    `report_digest` is over everything in the report that people decide by, so that an equal report can be left out.
    """

    cluster: str
    request: int
    head: str
    base: str
    plan_digest: str | None
    report_digest: str


PLAN_RECORD = Document(
    versions={
        1: record(
            PlanRecord,
            {
                "cluster": LINE,
                "request": integer(1),
                "head": OBJECT_ID,
                "base": OBJECT_ID,
                "plan_digest": nullable(DIGEST),
                "told": Member(DIGEST, attribute="report_digest"),
            },
        )
    },
    code=Code.REQUEST_INVALID,
    limit=64 * 1024,
)


def plan_ref(cluster: str, number: int) -> str:
    """The ref of the newest plan of a change request."""
    return f"{PLANS}/{cluster}/{number}"


def plan_record(subject: CommentSubject, outcome: PlanOutcome) -> PlanRecord:
    """The record of a plan that is about to be reported."""
    plan = outcome.plan
    gates = [] if plan is None else [[r.resource, r.needed, len(r.approvals)] for r in plan.approvals_required]
    digest = canonical_digest([subject.head, [d.to_json() for d in outcome.diagnostics], gates, plan and plan.digest])
    return PlanRecord(
        subject.cluster, subject.request, subject.head, subject.base, plan.digest if plan else None, digest
    )


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
    person, ref, store = context.bot.person, plan_ref(kept.cluster, kept.request), context.store
    if person is None:
        return None
    files = {
        _RECORD: PLAN_RECORD.write(kept),
        "outcome.json": plan_document(outcome),
        "plan.md": plan_summary(comment).encode(),
    }
    try:
        old = context.project.head_of(ref)
        tree = store.write_files(None, files)
        if old is not None and store.commit(old).tree == tree:
            return None
        author = replace(person, time=int(context.project.tools.clock.now().timestamp()))
        message = f"plan: {kept.cluster}, request {kept.request}\n"
        new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=None)
        context.project.tools.remote.push([RefUpdate(ref, old or ZERO, new)])
    except GitopsError as error:
        return f"the whole plan is not kept in git ({error.code}: {error.detail})"
    return None
