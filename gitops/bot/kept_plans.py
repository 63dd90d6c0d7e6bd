"""Whole plans, kept as git objects: a comment has a size limit, a commit has none.

    refs/gitops/plans/<cluster>/<number>    a chain of commits, each with

    plan.json     which plan it is (see `gitops.bot.plan_record`)
    outcome.json  the whole plan with its execution graph
    plan.md       the same for people

Nothing that permits or carries out a change reads these, because everybody with push rights can move the refs. If the host or
the token does not allow such refs, plans are not kept, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.bot.context import EventContext
from gitops.bot.plan_record import PlanRecord, read_plan_record, write_plan_record
from gitops.bot.project import Project
from gitops.core.canonical import canonical_digest
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.model.outcome import PlanOutcome
from gitops.render.comment import plan_document, plan_summary
from gitops.render.comment_inputs import CommentSubject, PlanComment

__all__ = ["PLANS", "keep_plan", "kept_plan", "plan_record", "plan_ref"]

PLANS = "refs/gitops/plans"
_RECORD, _OUTCOME, _SUMMARY = "plan.json", "outcome.json", "plan.md"


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
        record = None if content is None else read_plan_record(content)
    except GitopsError:
        return None
    return record if record is not None and (record.cluster, record.request) == (cluster, number) else None


def keep_plan(context: EventContext, record: PlanRecord, outcome: PlanOutcome, comment: PlanComment) -> str | None:
    """Keep a plan. Returns why it could not be kept, which is a line for people and not a problem of the run."""
    person, ref, store = context.bot.person, plan_ref(record.cluster, record.request), context.store
    if person is None:
        return None
    files = {
        _RECORD: write_plan_record(record),
        _OUTCOME: plan_document(outcome),
        _SUMMARY: plan_summary(comment).encode(),
    }
    try:
        old = context.project.head_of(ref)
        tree = store.write_files(None, files)
        if old is not None and store.commit(old).tree == tree:
            return None
        author = replace(person, time=int(context.project.tools.clock.now().timestamp()))
        message = f"plan: {record.cluster}, request {record.request}\n"
        new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=None)
        context.project.tools.remote.push([RefUpdate(ref, old or ZERO, new)])
    except GitopsError as error:
        return f"the whole plan is not kept in git ({error.code}: {error.detail})"
    return None
