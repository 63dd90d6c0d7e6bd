"""The inputs that determine access in a cluster, and the classes of permissions.

The gains and losses between two such states are exact, and equal to deciding every request before and after
(`cluster.policy.decide`): the conditions of rules are constant on a few classes of branches, queries and actors, so one
decision per class is enough.

1. A graph without a policy can be read with any token, but nothing else is allowed; an unreadable recorded policy permits
   nothing.
2. A cluster without graphs is not served, so its policy permits nothing.
3. Running a stored query means invoking it, and reading or changing the branch, as the query does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gitops.cluster.model.access import AccessClass
from gitops.cluster.model.address import CLUSTER_SCOPE, graph_address
from gitops.cluster.policy.bundle import Bundle, PolicyAction
from gitops.core.canonical import canonical_digest
from gitops.core.dataclass import dataclass

_WRITES = frozenset(
    {PolicyAction.CHANGE, PolicyAction.BRANCH_CREATE, PolicyAction.BRANCH_DELETE, PolicyAction.BRANCH_MERGE}
)
_OTHERS = {
    PolicyAction.EXPORT: AccessClass.EXPORT,
    PolicyAction.READ: AccessClass.READ,
    PolicyAction.INVOKE_QUERY: AccessClass.RUN,
}


def class_of(action: PolicyAction | None, *, protected: bool) -> AccessClass:
    """Return the class of an action on a branch, which depends on whether the branch is protected before or after the change.

    Returns None for running a query.
    """
    if action is None:
        return AccessClass.RUN
    if action in _WRITES:
        return AccessClass.PROTECTED if protected else AccessClass.WRITE
    return _OTHERS.get(action, AccessClass.CONTROL)


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy with its file and the file's digest. The content is None if it cannot be read."""

    name: str
    path: str
    digest: str
    bundle: Bundle | None


@dataclass(frozen=True, slots=True)
class AccessState:
    """Everything that determines access: policies by name, the policy of each scope, and each graph's stored queries.

    `bound` maps `cluster` and `graph.<id>` to policy names. `queries` contains every graph and, for each query, whether
    it writes.
    """

    policies: Mapping[str, PolicyText] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)

    @property
    def scopes(self) -> frozenset[str]:
        """The served scopes: the graphs, and the server if there are any."""
        return frozenset((CLUSTER_SCOPE, *map(graph_address, self.queries))) if self.queries else frozenset()

    @property
    def digest(self) -> str:
        """Digest of all inputs: the policy digests, their bindings, and the queries by name."""
        return canonical_digest(
            {
                "bound": {scope: self.policies[name].digest for scope, name in self.bound.items()},
                "queries": {graph: dict(queries) for graph, queries in self.queries.items()},
            }
        )

    def policy(self, scope: str) -> PolicyText | None:
        """Return a scope's policy, or None if it has none."""
        name = self.bound.get(scope)
        return None if name is None else self.policies[name]
