"""Load records into a branch, as one commit or not at all.

1. The actor must be allowed to change the branch. A branch that does not exist is made only where the request says from which
   one, and the actor may create it.
2. Only then the first byte of the records is read.
3. Records that are refused leave nothing: no row, and no branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from gitops.cluster.policy.bundle import Action
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.operations.commits import commit_form
from gitops.serving.operations.permit import Permit, Write

if TYPE_CHECKING:
    from gitops.database.graph import Embedder, WriteContext
    from gitops.serving.generation import ServedGraph

__all__ = ["LoadPlace", "find_place", "load_records", "permit_load"]


@dataclass(frozen=True, slots=True)
class LoadPlace:
    """Where records go: a branch, and the one that it is made from, None if it exists or is not to be made."""

    branch: str
    base: str | None


def find_place(served: ServedGraph, branch: str, origin: str | None) -> LoadPlace:
    """Where records for a branch go that is made from `origin` if it is missing. Reads the list of branches."""
    if origin is None or any(each.name == branch for each in graph.list_branches(served.uri)):
        return LoadPlace(branch, None)
    return LoadPlace(branch, origin)


def permit_load(permit: Permit, place: LoadPlace) -> None:
    """Nothing, if records may be loaded there. Raises as the permit."""
    if place.base is not None:
        permit(Action.BRANCH_CREATE, branch=place.base, target_branch=place.branch)
    permit(Action.CHANGE, branch=place.branch)


def load_records(
    served: ServedGraph, place: LoadPlace, mode: str, records: BinaryIO, embedder: Embedder | None = None
) -> Write:
    """Load strict records, in a mode of `graph.LoadMode`, to where `permit_load` allowed it.

    The work raises ProblemError 400 with the first problems of the records, 409 for keys that exist already, and whatever
    reading raises.
    """

    def write(context: WriteContext) -> dict[str, Any]:
        load = graph.LoadMode(mode)
        request = graph.LoadRequest(served.uri, records, load, place.branch, place.base, embedder=embedder)
        try:
            result = graph.load_records(request, context)
        except graph.LoadError as error:
            raise _refusal(error) from None
        except GitopsError as error:
            if error.code == Code.GRAPH_BRANCH_MISSING and place.base is None:
                message = f"{error.detail}: name the branch to make it from as `from`, or create it first"
                raise ProblemError(ApiProblem(404, ApiCode.NOT_FOUND, message)) from None
            raise
        return {
            "uri": served.uri,
            "branch": place.branch,
            "base_branch": place.base,
            "branch_created": place.base is not None and result.published is not None,
            "mode": load.value,
            "nodes": _counts(result.rows, "node"),
            "edges": _counts(result.rows, "edge"),
            "total_entities": sum(result.rows.values()),
            "commit": None if result.published is None else commit_form(result.published),
            "actor_id": context.actor,
        }

    return write


def _counts(rows: Mapping[str, int], kind: str) -> list[dict[str, Any]]:
    of_kind = {key.partition(":")[2]: count for key, count in rows.items() if key.startswith(f"{kind}:")}
    return [{"name": name, "entities_loaded": of_kind[name]} for name in sorted(of_kind)]


def _refusal(error: graph.LoadError) -> ProblemError:
    problems = [
        {"line": None if each.source is None else each.source.line, "code": each.code.value, "message": each.message}
        for each in error.problems
    ]
    more = {"problems": problems, "total_problems": error.total}
    # All problems of a load are of one stage: where a key exists already, the records themselves are sound.
    if all(each["code"] == Code.KEY_CONFLICT for each in problems):
        return ProblemError(ApiProblem(409, ApiCode.CONFLICT, error.detail, {"key_conflict": True, **more}))
    return ProblemError(ApiProblem(400, ApiCode.BAD_REQUEST, error.detail, more))
