"""Versions of a graph as commits: the receipt of a write, the history of a branch, and one commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gitops.cluster.policy.bundle import Action
from gitops.cluster.policy.decide import MAIN
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.operations.permit import Permit, Read

if TYPE_CHECKING:
    from gitops.database.graph import Snapshot
    from gitops.serving.generation import ServedGraph

__all__ = ["MAX_COMMITS", "commit_form", "find_commit", "list_commits", "permit_commit", "read_commit"]

MAX_COMMITS = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FORBIDDEN = 403
_UNFINDABLE = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})


def commit_form(version: graph.Manifest) -> dict[str, Any]:
    """A version as a commit. A parent that was recorded without its id is null, as one that there is not."""
    made, parent, merged = parse_timestamp(version.ts), version.parent, version.merge_parent
    return {
        "graph_commit_id": version.txn_id,
        "graph_branch": version.branch,
        "graph_manifest_version": version.n,
        "parent_commit_id": None if parent is None else parent.commit,
        "merged_parent_commit_id": None if merged is None else merged.commit,
        "actor_id": version.actor,
        "created_at": 0 if made is None else (made - _EPOCH) // _MICROSECOND,
    }


def list_commits(served: ServedGraph, permit: Permit, branch: str, limit: int | None = None) -> Read:
    """The commits of a branch that are kept, newest first: at most 10,000 of them, or `limit`."""
    permit(Action.READ, branch=branch)

    def read() -> dict[str, Any]:
        most = MAX_COMMITS if limit is None else limit
        return {"commits": [commit_form(each) for each in graph.read_log(served.uri, branch, most)]}

    return read


def read_commit(served: ServedGraph, permit: Permit, commit: str) -> Read:
    """One commit, which may be on any branch; it is read as `main` is, and as its own branch is.

    The work raises ProblemError 404 when the commit is not kept, and as `permit_commit`.
    """
    permit(Action.READ, branch=MAIN)

    def read() -> dict[str, Any]:
        found = find_commit(served, commit)
        permit_commit(permit, found)
        return commit_form(found.manifest)

    return read


def permit_commit(permit: Permit, found: Snapshot) -> None:
    """Nothing, if the branch that has the commit may be read; else ProblemError 404, as for a commit that does not exist."""
    try:
        permit(Action.READ, branch=found.branch)
    except ProblemError as error:
        raise _missing(found.manifest.txn_id) if error.problem.status == _FORBIDDEN else error from None


def find_commit(served: ServedGraph, commit: str) -> Snapshot:
    """The version with this commit id, on the branch that has it. Raises ProblemError 404; as `ServedGraph.open`."""
    if not is_ulid(commit):
        raise _missing(commit)
    try:
        return served.open(graph.ReadTarget(commit=commit))
    except GitopsError as error:
        if error.code in _UNFINDABLE:
            raise _missing(commit) from None
        raise


def _missing(commit: str) -> ProblemError:
    """The answer about a commit that the graph does not keep."""
    return ProblemError(ApiProblem(404, ApiCode.NOT_FOUND, f"commit '{commit[:80]}' not found"))
