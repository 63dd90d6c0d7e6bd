"""Who gains or loses access when a cluster's policies, bindings, graphs or queries change."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from gitops.cluster.model.address import CLUSTER_SCOPE, Address
from gitops.core.dataclass import dataclass

RUN = "run"
"""Running a stored query, which counts as an action on rows."""

FROM = "_from"
"""Suffix of a row action: using the action to copy a protected branch to one that more actors can read."""


class AccessClass(StrEnum):
    """Severity class of a permission. If several fit, the most severe one applies."""

    CONTROL = "control"
    PROTECTED = "protected"
    WRITE = "write"
    EXPORT = "export"
    READ = "read"
    RUN = "run"


class CauseKind(StrEnum):
    """Which part of a change causes a difference: reversing only that part would undo it. Tried in this order."""

    MEMBERSHIP = "membership"
    RULE = "rule"
    PROTECTED_BRANCHES = "protected_branches"
    BINDING = "binding"
    GRAPH = "graph"
    QUERY = "query"
    SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class AccessCause:
    """Why actors gain or lose something. `subject` is a group, a rule or a policy.

    `line` is the place of the rule, if the rule still exists afterwards.
    """

    kind: CauseKind
    words: str
    subject: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Actors:
    """The actors of a row: `members` by name; with `others`, also every valid token of an actor in no group.

    `union` and `minus` are up to three groups whose combination is exactly these actors, `*` for all; both are empty if
    there is no such combination.
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

    It applies to the given `branches`, or with `other_branches` to all except `except_branches`; an action without a
    branch has none of these. `queries` are the queries to run. `rule`, `file` and `line` are the rule that permits it
    afterwards, or permitted it before; None if the graph has no policy.
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
    policy: str | None
    rule: str | None
    file: str | None
    line: int | None
    cause: AccessCause

    @property
    def copies(self) -> bool:
        """Whether the row is about copying branches, not about changing them."""
        return self.action.endswith(FROM)


@dataclass(frozen=True, slots=True)
class AccessDiff:
    """All gains and losses between two states, by scope. `new_scopes` were not served before.

    `unread` are the scopes whose earlier policy could not be read, and `unguarded` means that no policy is in force
    afterwards.
    """

    before: str
    after: str
    rows: tuple[AccessRow, ...] = ()
    new_scopes: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()
    unguarded: bool = False

    @property
    def gains(self) -> tuple[AccessRow, ...]:
        """The rows that permit something new."""
        return tuple(row for row in self.rows if row.gain)

    @property
    def widenings(self) -> tuple[AccessRow, ...]:
        """The gains that come from a policy change.

        Gains from a new graph or a new query are not included, because a new graph has nothing to protect yet, and a
        new query does not change a policy.
        """
        query = CauseKind.QUERY
        return tuple(r for r in self.gains if r.scope not in self.new_scopes and r.cause.kind is not query)


def place_of(scope: str) -> str:
    """Describe a scope: the graph id, or the server."""
    return "the server" if scope == CLUSTER_SCOPE else Address(scope).name


def widening_words(rows: Iterable[AccessRow]) -> str:
    """Describe the most severe gain in one line, with the number of other gains."""
    first, *more = sorted(rows, key=lambda row: tuple(AccessClass).index(row.row_class))
    where = place_of(first.scope)
    branches = "" if not first.branches else f"{'' if first.copies else ' on'} {', '.join(first.branches[:3])}"
    number = len(first.actors.members)
    who = "any token" if first.actors.others else f"{number} actor{'' if number == 1 else 's'}"
    tail = f", and {len(more)} more" if more else ""
    return f"widens access: {first.action}{branches} of {where} for {who}{tail}"
