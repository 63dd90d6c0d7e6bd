"""Routes on what a graph has: its tables, schema, branches and commits."""

from __future__ import annotations

from gitops.database.graph import WriteContext
from gitops.serving.answers import Answer, bad_request, json_answer
from gitops.serving.http.bodies import (
    BranchAnswer,
    BranchCreateBody,
    BranchCreatedAnswer,
    BranchesAnswer,
    BranchMergeBody,
    BranchMergedAnswer,
    CommitForm,
    CommitsAnswer,
    ProblemBody,
    SchemaAnswer,
    SchemaApplyBody,
    SnapshotAnswer,
)
from gitops.serving.http.call import Call, canonical_branch
from gitops.serving.http.route import Parameter, Route
from gitops.serving.operations import branches, commits, describe
from gitops.serving.operations.permit import Write

__all__ = ["BRANCH", "GRAPH", "ROUTES", "write_context"]

GRAPH = "/graphs/{graph_id}"
BRANCH = Parameter("branch", "The branch, by default `main`.")
# What a change without a body counts in the share of an actor.
_CHANGE_BYTES = 256


def write_context(call: Call) -> WriteContext:
    """What a write needs from outside; it is in the name of the actor."""
    return WriteContext(call.context.clock, call.context.ids, call.actor)


async def snapshot(call: Call) -> Answer:
    """The head of a branch."""
    branch = canonical_branch(call.query().get("branch"))
    return json_answer(await call.work(describe.describe_snapshot(call.graph, call.require, branch)))


async def schema(call: Call) -> Answer:
    """The schema that is served."""
    return json_answer(describe.read_schema(call.graph, call.require))


async def apply_schema(call: Call) -> Answer:
    """Refused: the schema is applied from the cluster folder."""
    raise describe.apply_schema(call.graph, call.require)


async def list_branches(call: Call) -> Answer:
    """The branches."""
    return json_answer(await call.work(branches.list_branches(call.graph, call.require)))


async def create_branch(call: Call) -> Answer:
    """Make a branch."""
    body: BranchCreateBody = call.body
    name, origin = canonical_branch(body.name), canonical_branch(body.origin)
    return await _changed(call, name, branches.create_branch(call.graph, call.require, name, origin))


async def delete_branch(call: Call) -> Answer:
    """Delete a branch."""
    name = canonical_branch(call.values["branch"])
    return await _changed(call, name, branches.delete_branch(call.graph, call.require, name))


async def merge_branches(call: Call) -> Answer:
    """Merge a branch into another one."""
    body: BranchMergeBody = call.body
    source, target = canonical_branch(body.source), canonical_branch(body.target)
    delete = bool(body.delete_branch)
    write = branches.merge_branches(call.graph, call.require, source, target, delete_source=delete)
    return await _changed(call, target, write)


async def list_commits(call: Call) -> Answer:
    """The commits of a branch."""
    query = call.query()
    branch, text = canonical_branch(query.get("branch")), query.get("limit")
    limit = None
    if text is not None:
        limit = int(text[:9]) if text.isascii() and text.isdecimal() else 0
        if not 1 <= limit <= commits.MAX_COMMITS:
            raise bad_request(f"limit is a number from 1 to {commits.MAX_COMMITS}")
    return json_answer(await call.work(commits.list_commits(call.graph, call.require, branch, limit)))


async def read_commit(call: Call) -> Answer:
    """One commit."""
    return json_answer(await call.work(commits.read_commit(call.graph, call.require, call.values["commit_id"])))


async def _changed(call: Call, branch: str, write: Write) -> Answer:
    return json_answer(await call.change(branch, _CHANGE_BYTES, lambda: write(write_context(call))))


_LIMIT = Parameter("limit", "At most so many, newest first.", schema={"type": "integer", "minimum": 1})

ROUTES = (
    Route(
        "GET",
        f"{GRAPH}/snapshot",
        "getSnapshot",
        "The datasets at the head of a branch",
        snapshot,
        SnapshotAnswer,
        query=(BRANCH,),
    ),
    Route("GET", f"{GRAPH}/schema", "getSchema", "The schema that is served", schema, SchemaAnswer, cached=True),
    Route(
        "POST",
        f"{GRAPH}/schema/apply",
        "applySchema",
        "Refused: schemas are applied from the cluster folder",
        apply_schema,
        ProblemBody,
        SchemaApplyBody,
        problems=(409,),
    ),
    Route("GET", f"{GRAPH}/branches", "listBranches", "The names of the branches", list_branches, BranchesAnswer),
    Route(
        "POST",
        f"{GRAPH}/branches",
        "createBranch",
        "Make a branch",
        create_branch,
        BranchCreatedAnswer,
        BranchCreateBody,
        problems=(404, 409, 429),
    ),
    Route(
        "DELETE",
        f"{GRAPH}/branches/{{branch}}",
        "deleteBranch",
        "Delete a branch",
        delete_branch,
        BranchAnswer,
        problems=(404, 429),
    ),
    Route(
        "POST",
        f"{GRAPH}/branches/merge",
        "mergeBranches",
        "Merge a branch into another one",
        merge_branches,
        BranchMergedAnswer,
        BranchMergeBody,
        problems=(404, 409, 429),
    ),
    Route(
        "GET",
        f"{GRAPH}/commits",
        "listCommits",
        "The commits of a branch, newest first",
        list_commits,
        CommitsAnswer,
        query=(BRANCH, _LIMIT),
    ),
    Route(
        "GET",
        f"{GRAPH}/commits/{{commit_id}}",
        "getCommit",
        "One commit",
        read_commit,
        CommitForm,
        problems=(404,),
    ),
)
