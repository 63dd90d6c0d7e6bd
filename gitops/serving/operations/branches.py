"""Branches of a graph: list, create, delete, merge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gitops.cluster.policy.bundle import Action
from gitops.cluster.policy.decide import MAIN
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph.results import MergeResult, MergeStatus, RowProblem
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.operations.commits import commit_form
from gitops.serving.operations.permit import Permit, Read, Write

if TYPE_CHECKING:
    from gitops.database.graph import WriteContext
    from gitops.serving.generation import ServedGraph

__all__ = ["create_branch", "delete_branch", "list_branches", "merge_branches"]

_SHOWN = 3
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_OUTCOMES = {
    MergeStatus.UP_TO_DATE: "already_up_to_date",
    MergeStatus.FAST_FORWARD: "fast_forward",
    MergeStatus.MERGED: "merged",
}


def list_branches(served: ServedGraph, permit: Permit) -> Read:
    """The names of the branches; they are read as `main` is."""
    permit(Action.READ, branch=MAIN)

    def read() -> dict[str, Any]:
        return {"branches": sorted(each.name for each in graph.list_branches(served.uri))}

    return read


def create_branch(served: ServedGraph, permit: Permit, name: str, origin: str) -> Write:
    """Make a branch from the head of another one. Raises ProblemError 400 for `main`."""
    permit(Action.BRANCH_CREATE, branch=origin, target_branch=name)
    _refuse_main(name, "created")

    def write(context: WriteContext) -> dict[str, Any]:
        graph.create_branch(served.uri, name, context, graph.ReadTarget(origin))
        return {"uri": served.uri, "from": origin, "name": name, "actor_id": context.actor}

    return write


def delete_branch(served: ServedGraph, permit: Permit, name: str) -> Write:
    """Delete a branch. Raises ProblemError 400 for `main`."""
    permit(Action.BRANCH_DELETE, target_branch=name)
    _refuse_main(name, "deleted")

    def write(context: WriteContext) -> dict[str, Any]:
        graph.delete_branch(served.uri, name, context)
        return {"uri": served.uri, "name": name, "actor_id": context.actor}

    return write


def merge_branches(
    served: ServedGraph, permit: Permit, source: str, target: str, *, delete_source: bool = False
) -> Write:
    """Merge one branch into another, and then delete it if that is wanted and permitted.

    A merge that has landed stays landed: why its source was not deleted is part of the answer. The work raises ProblemError 409
    with all conflicts.
    """
    permit(Action.BRANCH_MERGE, branch=source, target_branch=target)
    refused = _refusal(permit, source) if delete_source else None

    def write(context: WriteContext) -> dict[str, Any]:
        result = graph.merge_branch(served.uri, source, target, context)
        if result.conflicts:
            raise _conflict(result)
        answer = {
            "source": source,
            "target": target,
            "outcome": _OUTCOMES[result.status],
            "actor_id": context.actor,
            "commit": None if result.published is None else commit_form(result.published),
        }
        if not delete_source:
            return answer
        error = refused or _delete_merged(served, source, target, context)
        return {**answer, "branch_deleted": error is None, **({} if error is None else {"branch_delete_error": error})}

    return write


def _refusal(permit: Permit, branch: str) -> str | None:
    """Why the actor may not delete the branch."""
    try:
        permit(Action.BRANCH_DELETE, target_branch=branch)
    except ProblemError as error:
        return error.problem.message
    return None


def _delete_merged(served: ServedGraph, source: str, target: str, context: WriteContext) -> str | None:
    try:
        graph.delete_merged_branch(served.uri, source, target, context)
    except GitopsError as error:
        return error.detail
    return None


def _refuse_main(name: str, verb: str) -> None:
    if name == MAIN:
        message = f"branch {MAIN} is the graph itself: it cannot be {verb}"
        raise ProblemError(ApiProblem(400, ApiCode.BAD_REQUEST, message))


def _conflict(result: MergeResult) -> ProblemError:
    conflicts = [_conflict_form(each) for each in result.conflicts]
    shown = "; ".join(f"{each['type_name']} {each['entity_id']}: {each['message']}" for each in conflicts[:_SHOWN])
    rest = f" and {len(conflicts) - _SHOWN} more" if len(conflicts) > _SHOWN else ""
    message = f"{result.source} and {result.into} conflict, and nothing was merged: {shown}{rest}"
    return ProblemError(ApiProblem(409, ApiCode.CONFLICT, message, {"merge_conflicts": conflicts}))


def _conflict_form(problem: RowProblem) -> dict[str, Any]:
    form = problem.to_json()
    return {
        "entity_kind": form["type_kind"],
        "type_name": form["type"],
        "entity_id": form["id"],
        "property": form["property"] or None,
        "kind": _CAPITAL.sub("_", problem.kind).lower(),
        "message": problem.detail,
    }
