"""Whole plans as git objects: a comment has an end, a commit has none.

    refs/gitops/plans/<cluster>/<number>    a chain of commits, each with

    plan.json     which plan it is (see `gitops.bot.plan_record`)
    outcome.json  the whole plan with its graph
    plan.md       the same for people

Nothing that permits or carries out a change reads these: whoever may push may move them. A host or token that takes no such ref
leaves them out, which changes nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.bot.context import Bot, Place
from gitops.bot.plan_record import PlanRecord, read_plan_record, write_plan_record
from gitops.bot.project import Project
from gitops.core.canonical import canonical_digest
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.model.outcome import PlanOutcome
from gitops.render.comment import plan_document, plan_summary
from gitops.render.comment_inputs import PlanComment

__all__ = ["PLANS", "keep", "kept", "plan_ref", "record_of"]

PLANS = "refs/gitops/plans"
_RECORD, _OUTCOME, _SUMMARY = "plan.json", "outcome.json", "plan.md"


def plan_ref(cluster: str, number: int) -> str:
    """Where the newest plan of a change request is."""
    return f"{PLANS}/{cluster}/{number}"


def record_of(place: Place, outcome: PlanOutcome) -> PlanRecord:
    """What is going to be told."""
    plan = outcome.plan
    gates = [] if plan is None else [[r.resource, r.needed, len(r.approvals)] for r in plan.approvals_required]
    told = canonical_digest([place.head, [d.to_json() for d in outcome.diagnostics], gates, plan and plan.digest])
    return PlanRecord(place.rule.name, place.request, place.head, place.base, plan.digest if plan else None, told)


def kept(project: Project, cluster: str, number: int) -> PlanRecord | None:
    """What was told last; None if nothing was, or if it cannot be read."""
    store, ref = project.tools.store, plan_ref(cluster, number)
    try:
        commit = project.tip(ref)
        content = None if commit is None else store.read(store.commit(commit).tree, _RECORD)
        record = None if content is None else read_plan_record(content)
    except GitopsError:
        return None
    return record if record is not None and (record.cluster, record.request) == (cluster, number) else None


def keep(bot: Bot, record: PlanRecord, outcome: PlanOutcome, comment: PlanComment) -> str | None:
    """Keep a plan; returns why it could not be kept, which only takes something from the reader."""
    if bot.person is None:
        return None
    project, ref = bot.project, plan_ref(record.cluster, record.request)
    store = project.tools.store
    files = {
        _RECORD: write_plan_record(record),
        _OUTCOME: plan_document(outcome),
        _SUMMARY: plan_summary(comment).encode(),
    }
    try:
        old = project.tip(ref)
        tree = store.write_files(None, files)
        if old is not None and store.commit(old).tree == tree:
            return None
        author = replace(bot.person, time=int(project.tools.clock.now().timestamp()))
        message = f"plan: {record.cluster}, request {record.request}\n"
        new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=None)
        project.tools.remote.push([RefUpdate(ref, old or ZERO, new)])
    except GitopsError as error:
        return f"the whole plan is not kept in git ({error.code}: {error.detail})"
    return None
