"""What a graph has: its tables at the head of a branch, and its schema, which only an apply of the cluster changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gitops.cluster.policy.bundle import Action
from gitops.cluster.policy.decide import MAIN
from gitops.database import graph
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.operations.permit import Permit, Read

if TYPE_CHECKING:
    from gitops.serving.generation import ServedGraph

__all__ = ["apply_schema", "describe_snapshot", "read_schema"]


def describe_snapshot(served: ServedGraph, permit: Permit, branch: str) -> Read:
    """The tables at the head of a branch, edges first, each in order of names."""
    permit(Action.READ, branch=branch)

    def read() -> dict[str, Any]:
        head = served.open(graph.ReadTarget(branch)).manifest
        datasets = []
        for key, entry in sorted(head.tables.items()):
            kind, _, name = key.partition(":")
            datasets.append(
                {
                    "entity_kind": kind,
                    "type_name": name,
                    "dataset_path": entry.path,
                    "published_dataset_version": entry.version,
                    # Branches share datasets here: what a branch has is said by its versions of them.
                    "native_dataset_branch": None,
                    "entity_count": entry.rows,
                }
            )
        return {
            "graph_branch": branch,
            "graph_manifest_version": head.n,
            "graph_commit_id": head.txn_id,
            "internal_schema_version": graph.MANIFEST_FORMAT,
            "datasets": datasets,
        }

    return read


def read_schema(served: ServedGraph, permit: Permit) -> dict[str, Any]:
    """The schema that is served; it is read as `main` is."""
    permit(Action.READ, branch=MAIN)
    return {"schema_source": served.schema_source.decode()}


def apply_schema(served: ServedGraph, permit: Permit) -> ProblemError:
    """The answer to an actor who may apply a schema: it comes from the cluster folder, or the ledger would not know of it."""
    permit(Action.SCHEMA_APPLY, target_branch=MAIN)
    message = (
        f"the schema of graph '{served.graph_id}' is declared in the cluster folder and is not changed here: "
        "change the schema file there, run `gitops apply`, and restart the server"
    )
    return ProblemError(ApiProblem(409, ApiCode.CONFLICT, message))
