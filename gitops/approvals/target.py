"""The target of an approval statement or a ledger entry, as a member of their documents."""

from __future__ import annotations

from gitops.documents.strict import Node
from gitops.model.approval import Target

__all__ = ["read_target", "target_json"]

_REF_PREFIX = "refs/heads/"


def read_target(node: Node) -> Target:
    """Read a target. Raises MalformedError."""
    fields = node.fields(("repository", "cluster", "environment", "ref", "path"))
    ref = fields["ref"].line()
    if not ref.startswith(_REF_PREFIX):
        raise fields["ref"].refuse("expected the full name of a branch")
    return Target(
        repository=fields["repository"].line(),
        cluster=fields["cluster"].line(),
        environment=fields["environment"].line(),
        ref=ref,
        path=fields["path"].line(),
    )


def target_json(target: Target) -> dict[str, str]:
    """The JSON form of `target`."""
    return {
        "repository": target.repository,
        "cluster": target.cluster,
        "environment": target.environment,
        "ref": target.ref,
        "path": target.path,
    }
