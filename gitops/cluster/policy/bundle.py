"""Types of access policies: bundles, rules, actions and scopes.

A bundle can only permit: everything that no rule permits is denied. Its meaning depends on its `version`, not on the
release that reads it, so an old ledger will have the same meaning in ten years.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from gitops.core.dataclass import dataclass


class PolicyAction(StrEnum):
    """Actions that a policy can permit."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"
    RELOAD = "reload"


SERVER_ACTIONS = frozenset({PolicyAction.GRAPH_LIST, PolicyAction.RELOAD})
"""Actions on the server; all others are on one graph."""

GRAPH_ACTIONS = frozenset(PolicyAction) - SERVER_ACTIONS

BRANCH_SCOPED = frozenset({PolicyAction.READ, PolicyAction.EXPORT, PolicyAction.CHANGE})
"""Actions whose rules can have a `branch_scope`."""

TARGET_SCOPED = frozenset(
    {PolicyAction.SCHEMA_APPLY, PolicyAction.BRANCH_CREATE, PolicyAction.BRANCH_DELETE, PolicyAction.BRANCH_MERGE}
)
"""Actions whose rules can have a `target_branch_scope`."""

READS: Mapping[PolicyAction, PolicyAction] = MappingProxyType(
    {PolicyAction.BRANCH_CREATE: PolicyAction.READ, PolicyAction.BRANCH_MERGE: PolicyAction.READ}
)
"""Actions that copy a branch to their target branch, each with the action that they also require on the copied branch."""


class BranchScope(StrEnum):
    """The branches that a rule applies to."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


class EngineKind(StrEnum):
    """Kind of scope that a bundle is enforced on."""

    SERVER = "server"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Rule:
    """Permits members of `group` each of `actions`.

    `branch_scope` applies to the branch of a request, `target_branch_scope` to its target branch; None means any, even if
    the request has none. `queries` are the names, with `*` for any characters, of the stored queries to which `invoke_query`
    applies; empty means all of them. `line` and `column` are where the rule begins in its file, counted from 1.
    """

    id: str
    group: str
    actions: tuple[PolicyAction, ...]
    branch_scope: BranchScope | None = None
    target_branch_scope: BranchScope | None = None
    queries: tuple[str, ...] = ()
    line: int = 1
    column: int = 0


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a policy file, in file order: groups of actors, names of protected branches, rules.

    `kind` is the value of the deprecated key with that name, on line `kind_line`; it must match the bundle's bindings.
    """

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protected_branches: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()
    version: int = 1
    kind: EngineKind | None = None
    kind_line: int = 1

    @property
    def actors(self) -> frozenset[str]:
        """All actors in groups."""
        return frozenset(actor for members in self.groups.values() for actor in members)
