"""Changes: the difference between what is recorded and what is desired, with what will become of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from gitops.cluster.model.address import Address
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import MigrationPreview


class Action(StrEnum):
    """What happens to the resource."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopt"


class Disposition(StrEnum):
    """What apply does with a change."""

    APPLIED = "applied"
    DERIVED = "derived"
    DEFERRED = "deferred"
    BLOCKED = "blocked"


class Reason(StrEnum):
    """Why a change is deferred or blocked."""

    APPROVAL_REQUIRED = "approval_required"
    RECOVERY_PENDING = "cluster_recovery_pending"
    DEPENDENCY_NOT_APPLIED = "dependency_not_applied"
    UNSUPPORTED_KIND = "apply_unsupported_kind"
    GRAPH_CREATE_FAILED = "graph_create_failed"
    SCHEMA_APPLY_FAILED = "schema_apply_failed"
    GRAPH_DELETE_FAILED = "graph_delete_failed"
    CHANGESET_FAILED = "changeset_failed"

    @property
    def words(self) -> str:
        """The same for people, behind what becomes of the change."""
        return _REASONS[self]


_REASONS = {
    Reason.APPROVAL_REQUIRED: "waits for an approval",
    Reason.RECOVERY_PENDING: "an interrupted operation is not settled",
    Reason.DEPENDENCY_NOT_APPLIED: "something that it needs was not applied",
    Reason.UNSUPPORTED_KIND: "apply does not carry out this change",
    Reason.GRAPH_CREATE_FAILED: "the graph could not be created",
    Reason.SCHEMA_APPLY_FAILED: "the schema could not be applied",
    Reason.GRAPH_DELETE_FAILED: "the graph could not be deleted",
    Reason.CHANGESET_FAILED: "nothing of its changeset is applied",
}


class Effect(StrEnum):
    """When a change has its effect, and whether it can be taken back; each is later than the one before it.

    STAGE prepares what nothing refers to yet, and is compensated. PIVOT changes what is in use and cannot be taken back. COMMIT
    moves the applied state. FINISH comes after that: what follows from it, and what is deleted for good.
    """

    STAGE = "stage"
    PIVOT = "pivot"
    COMMIT = "commit"
    FINISH = "finish"

    @property
    def rank(self) -> int:
        """Its place in the order; along a dependency it never decreases."""
        return tuple(Effect).index(self)


class Tier(StrEnum):
    """How the rules classify a gated change: whether a later plan can undo it."""

    REVERSIBLE = "reversible"
    IRREVERSIBLE = "irreversible"


class GateName(StrEnum):
    """Why a change needs approvals; a change may meet several gates, and the largest of their numbers of people counts.

    LOSSY is also for the only replica of a compute cluster. `covers` are the words for what meets a gate. Rules have a gate with
    a `limit` where they have that: the key of a number below `apply`.
    """

    covers: str
    limit: str

    IRREVERSIBLE = "irreversible", "what no later plan can undo"
    LOSSY = "lossy", "what removes types or properties of a graph with rows"
    WIDENING = "widening", "a policy that permits more in a class of `widening`"

    def __new__(cls, name: str, covers: str = "", limit: str = "") -> Self:
        """A gate by its name in rules and documents."""
        made = str.__new__(cls, name)
        made._value_, made.covers, made.limit = name, covers, limit
        return made


NOT_KNOWN_HERE = "its rows are not known here"
"""What a plan says of a graph that is not at hand, where no stored plan has its rows."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The graph that a change is about, as it was seen: the id of its birth, its rows, and its version."""

    incarnation: str
    rows: int
    version: int

    @property
    def words(self) -> str:
        """What an approver has to know of it, in a line."""
        return f"{self.held} in version {self.version} of graph {self.incarnation}"

    @property
    def held(self) -> str:
        """How many rows it holds."""
        return f"{self.rows:,} row{'' if self.rows == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. Digests are 64 hex digits; `before` is None for a create and `after` is None for a delete.

    `disposition` and `reason` say what apply will do; they never decide what the change is. `details` are lines for people.
    `seen` is the graph that a change of data is about, None where that is not known. Without `at_hand` it was not read here: it
    is what a stored plan or the approver says, and the bot compares that with the graph. `tier` is that of a gated change, None
    where there is no gate, and `gates` are those that it meets, whether or not the rules have a number for each.
    """

    address: Address
    action: Action
    before: str | None
    after: str | None
    disposition: Disposition = Disposition.APPLIED
    reason: Reason | None = None
    binding_change: bool = False
    migration: MigrationPreview | None = None
    details: tuple[str, ...] = ()
    seen: Seen | None = None
    at_hand: bool = True
    tier: Tier | None = None
    gates: tuple[GateName, ...] = ()

    @property
    def unknown_data(self) -> bool:
        """Whether it is not known here what the graph holds: that is never taken for no rows."""
        return self.seen is None and not self.at_hand

    @property
    def data_words(self) -> str:
        """What an approver has to know of the graph, in a line; empty for a change that is about none."""
        return NOT_KNOWN_HERE if self.unknown_data else "" if self.seen is None else self.seen.words
