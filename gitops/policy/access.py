"""Who may do what in a cluster, and who gains and loses what when its policies, bindings, graphs or queries change.

Exact, and equal to deciding every request before and after (`gitops.policy.decide`): the conditions of rules are constant on a
few classes of branches, queries and actors, so that one decision for each class is enough.

1. A graph without a policy may be read with any token, and nothing else; a recorded policy that cannot be read permits nothing.
2. A cluster without graphs is not served, so that its policy permits nothing.
3. To run a stored query is to invoke it, and to read or to change on the branch, as the query does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from gitops.core.canonical import canonical_digest
from gitops.core.dataclass import dataclass
from gitops.policy.bundle import Action, Bundle

__all__ = [
    "GATED_CLASSES",
    "RUN",
    "SERVER",
    "AccessCause",
    "AccessClass",
    "AccessDiff",
    "AccessRow",
    "AccessState",
    "Actors",
    "CauseKind",
    "PolicyText",
    "class_of",
    "graph_scope",
]

RUN = "run"
"""To run a stored query, among the actions of rows."""

SERVER = "cluster"
"""The scope of what is done on the server itself."""


def graph_scope(graph: str) -> str:
    """The scope of a graph, as bindings spell it."""
    return f"graph.{graph}"


class AccessClass(StrEnum):
    """What a permission is worth; the first that fits, from the gravest on."""

    CONTROL = "control"
    PROTECTED = "protected"
    WRITE = "write"
    EXPORT = "export"
    READ = "read"
    RUN = "run"


GATED_CLASSES = tuple(AccessClass)

_WRITES = frozenset({Action.CHANGE, Action.BRANCH_CREATE, Action.BRANCH_DELETE, Action.BRANCH_MERGE})
_OTHERS = {
    Action.EXPORT: AccessClass.EXPORT,
    Action.READ: AccessClass.READ,
    Action.INVOKE_QUERY: AccessClass.RUN,
}


def class_of(action: Action | None, *, protected: bool) -> AccessClass:
    """The class of an action, None for running a query, on a branch that is protected before or after, or on another."""
    if action is None:
        return AccessClass.RUN
    if action in _WRITES:
        return AccessClass.PROTECTED if protected else AccessClass.WRITE
    return _OTHERS.get(action, AccessClass.CONTROL)


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy, with the file that it is in, the digest of that, and what it says: None where that cannot be read."""

    name: str
    path: str
    digest: str
    bundle: Bundle | None


@dataclass(frozen=True, slots=True)
class AccessState:
    """What decides who may do what: policies by name, the one of each scope, and the stored queries of each graph.

    `bound` maps `cluster` and `graph.<id>` to names of policies. `queries` has every graph; of each query, whether it writes.
    """

    policies: Mapping[str, PolicyText] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)

    @property
    def scopes(self) -> frozenset[str]:
        """What is served: the graphs, and the server if there is any."""
        return frozenset((SERVER, *map(graph_scope, self.queries))) if self.queries else frozenset()

    @property
    def unguarded(self) -> bool:
        """Whether no policy is in force anywhere, so that how the server is started decides."""
        return bool(self.queries) and not any(scope in self.bound for scope in self.scopes)

    @property
    def digest(self) -> str:
        """Identifies all of it by the digests of the policies, their bindings, and the queries by name."""
        return canonical_digest(
            {
                "bound": {scope: self.policies[name].digest for scope, name in self.bound.items()},
                "queries": {graph: dict(queries) for graph, queries in self.queries.items()},
            }
        )

    def policy(self, scope: str) -> PolicyText | None:
        """The policy of a scope; None where it has none."""
        name = self.bound.get(scope)
        return None if name is None else self.policies[name]


class CauseKind(StrEnum):
    """The one part of a change whose reversal alone undoes a difference, in the order in which they are tried."""

    MEMBERSHIP = "membership"
    RULE = "rule"
    PROTECTED_BRANCHES = "protected_branches"
    BINDING = "binding"
    GRAPH = "graph"
    QUERY = "query"
    SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class AccessCause:
    """Why somebody gains or loses something: of `subject`, a group, a rule or a policy; in words.

    `line` is where the rule is, if it is one that is there afterwards.
    """

    kind: CauseKind
    words: str
    subject: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Actors:
    """Whom a row is about: `members` by name, and with `others` every valid token of nobody who is in a group.

    `union` and `minus` are up to three groups that give exactly these actors, `*` for all; both are empty where no groups do.
    """

    members: tuple[str, ...]
    others: bool
    union: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()

    def __contains__(self, actor: str) -> bool:
        return actor in self.members


@dataclass(frozen=True, slots=True)
class AccessRow:
    """Some actors gain or lose one action on branches of one scope.

    It is about the named `branches`, or with `other_branches` about all but `except_branches`; an action that is about no branch
    has none of these. `queries` are those that are run. `rule`, `file` and `line` are what permits it afterwards, or
    permitted it before; None where the graph has no policy.
    """

    gain: bool
    row_class: AccessClass
    action: str
    scope: str
    branches: tuple[str, ...]
    other_branches: bool
    except_branches: tuple[str, ...]
    queries: tuple[str, ...]
    actors: Actors
    rule: str | None
    file: str | None
    line: int | None
    cause: AccessCause


@dataclass(frozen=True, slots=True)
class AccessDiff:
    """Who gains and who loses what between two states, by scope; `new_scopes` were not served before.

    `unread` are the scopes whose policy before could not be read, and `unguarded` says that no policy is in force afterwards.
    """

    before: str
    after: str
    rows: tuple[AccessRow, ...] = ()
    new_scopes: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()
    unguarded: bool = False

    @property
    def gains(self) -> tuple[AccessRow, ...]:
        """The rows that permit more."""
        return tuple(row for row in self.rows if row.gain)

    def gated(self, classes: Collection[str]) -> tuple[AccessRow, ...]:
        """The gains of these classes that a change of policies gives.

        What is created has nothing to protect yet, and a new query of a graph is no change of a policy: neither is among them.
        """
        return tuple(
            row
            for row in self.gains
            if row.row_class in classes and row.scope not in self.new_scopes and row.cause.kind is not CauseKind.QUERY
        )


def widening_words(rows: Iterable[AccessRow]) -> str:
    """The gravest of some gains in a line, and how many more there are."""
    first, *more = sorted(rows, key=lambda row: tuple(AccessClass).index(row.row_class))
    where = "the server" if first.scope == SERVER else first.scope.partition(".")[2]
    branches = "" if not first.branches else f" on {', '.join(first.branches[:3])}"
    number = len(first.actors.members)
    who = "any token" if first.actors.others else f"{number} actor{'' if number == 1 else 's'}"
    tail = f", and {len(more)} more" if more else ""
    return f"widens access: {first.action}{branches} of {where} for {who}{tail}"
