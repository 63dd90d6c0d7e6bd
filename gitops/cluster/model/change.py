"""Changes: how the desired state differs from the recorded one. Each change has a disposition."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Self

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.use import Callers, UseState
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import MigrationPreview


class Action(StrEnum):
    """What a change does to the resource."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopt"


class Disposition(StrEnum):
    """How an apply treats a change."""

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
    NOT_TRIED = "not_tried"
    RUN_STOPPED = "run_stopped"
    NO_HOST_PROVIDER = "host_provider_missing"
    HOST_UNMANAGED = "host_unmanaged"
    HOST_MODIFIED = "host_modified"
    HOST_WRONG_TYPE = "host_wrong_type"
    HOST_UNREADABLE = "host_unreadable"
    HOST_UNREACHABLE = "host_unreachable"
    HOST_IDENTITY_CHANGED = "host_identity_changed"
    HOST_CHANGE_FAILED = "host_change_failed"

    @property
    def words(self) -> str:
        """The reason in words, for use after the disposition."""
        return _REASONS[self]


_REASONS = {
    Reason.APPROVAL_REQUIRED: "waits for an approval",
    Reason.RECOVERY_PENDING: "an interrupted operation is not settled",
    Reason.DEPENDENCY_NOT_APPLIED: "a required change was not applied",
    Reason.UNSUPPORTED_KIND: "apply does not support this kind of change",
    Reason.GRAPH_CREATE_FAILED: "the graph could not be created",
    Reason.SCHEMA_APPLY_FAILED: "the schema could not be applied",
    Reason.GRAPH_DELETE_FAILED: "the graph could not be deleted",
    Reason.CHANGESET_FAILED: "nothing of its changeset is applied",
    Reason.NOT_TRIED: "not tried, because another change failed first",
    Reason.RUN_STOPPED: "stopped before it ran",
    Reason.NO_HOST_PROVIDER: "this program cannot change machines",
    Reason.HOST_UNMANAGED: "the host has something else there, which no apply has made",
    Reason.HOST_MODIFIED: "it was changed on the host, and what the host has now would be lost",
    Reason.HOST_WRONG_TYPE: "the host has something of another type there",
    Reason.HOST_UNREADABLE: "what the host has cannot be compared",
    Reason.HOST_UNREACHABLE: "the host cannot be read",
    Reason.HOST_IDENTITY_CHANGED: "it is another machine than the one that the ledger records",
    Reason.HOST_CHANGE_FAILED: "the change failed on the host",
}


class Effect(StrEnum):
    """Effect class of a change. It determines when the change takes effect and whether it can be rolled back.

    The members are in chronological order.

    STAGE prepares data that nothing refers to yet, and can be rolled back. PIVOT changes data in use and cannot be rolled
    back. COMMIT moves the applied state. FINISH comes after that: consequences of the commit and permanent deletes.
    """

    STAGE = "stage"
    PIVOT = "pivot"
    COMMIT = "commit"
    FINISH = "finish"

    @property
    def rank(self) -> int:
        """Position in that order. It never decreases along a dependency."""
        return tuple(Effect).index(self)


class Tier(StrEnum):
    """Classification of a gated change: whether a later plan can undo it."""

    REVERSIBLE = "reversible"
    IRREVERSIBLE = "irreversible"


class GateName(StrEnum):
    """Gates that require approvals. If a change meets several gates, the one that requires the most people counts.

    LOSSY also covers the only replica of a compute cluster. `covers` describes the changes that meet a gate. Rules contain a
    gate with a `limit` if they have that key, whose value is a number.
    """

    covers: str
    limit: str

    IRREVERSIBLE = "irreversible", "what no later plan can undo"
    LOSSY = "lossy", "what removes types, properties or values of a graph with rows"
    WIDENING = "widening", "a policy that permits more in a class of `widening`"
    DELETES = (
        "deletes",
        "each delete of a merge that deletes more than `max_deletes` resources",
        "approvals.max_deletes",
    )
    BREAKS_CLIENTS = "breaks_clients", "what breaks a client that `may_break` doesn't list"
    HOST_DELETES = (
        "host_deletes",
        "each item that a merge removes from hosts, if it removes more than `max_deletes` of them",
        "hosts.max_deletes",
    )

    def __new__(cls, name: str, covers: str = "", limit: str = "") -> Self:
        """Return a gate by its name in rules and documents."""
        made = str.__new__(cls, name)
        made._value_, made.covers, made.limit = name, covers, limit
        return made


LIMITS = frozenset(gate.limit for gate in GateName if gate.limit)
"""Keys of rules whose value is a number that a gate uses."""

NOT_KNOWN_HERE = "its rows are not known here"
"""Shown for a graph that cannot be read here, if no stored plan contains its rows."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A change's graph as it was observed: creation id, rows and version.

    `recorded_at` is the time at which the ledger or a plan of the bot recorded them, if the graph was not read here; None
    if it was read. `stated` means that only the approver says how many rows there are.
    """

    incarnation: str
    rows: int
    version: int
    recorded_at: str | None = field(default=None, compare=False)
    stated: bool = field(default=False, compare=False)

    @property
    def words(self) -> str:
        """Describe the observed graph to an approver in one line."""
        said = ", as you say," if self.stated else ""
        return f"{self.held}{said} in version {self.version} of graph {self.incarnation}{self.dated}"

    @property
    def dated(self) -> str:
        """The end of a clause about rows that were not read just now, or an empty string if they were."""
        return "" if self.recorded_at is None else f", last recorded at {self.recorded_at}"

    @property
    def held(self) -> str:
        """Describe the number of rows."""
        return f"{self.rows:,} row{'' if self.rows == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. Digests have 64 hex digits. `before` is None for a create, and `after` is None for a delete.

    `disposition` and `reason` describe what apply will do and never affect the change itself. `details` are lines for
    people. `seen` is the graph of a data change, None if unknown. If `at_hand` is false, the graph was not read here:
    `seen` comes from a stored plan or the approver, and the bot compares it with the graph. `tier` is the tier of a
    gated change; None without a gate. `gates` are the gates that it meets, whether or not the rules have a number for
    each. `callers` are the recorded clients that it breaks, None if it breaks no calls or the ledger has no rules.
    `pivot` is set for a change of a host that cannot be taken back.
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
    callers: Callers | None = None
    pivot: bool = False

    @property
    def unknown_data(self) -> bool:
        """Whether the graph's data is unknown here. Unknown data never counts as zero rows."""
        return self.seen is None and not self.at_hand

    @property
    def data_words(self) -> str:
        """Describe the graph to an approver in one line. Returns an empty string if the change affects no data."""
        return NOT_KNOWN_HERE if self.unknown_data else "" if self.seen is None else self.seen.words

    @property
    def caller_words(self) -> str:
        """Name the recorded clients that the change breaks, or say why they are not known; empty if it breaks none.

        A plan shows for each broken query that its callers are not known. For a schema or graph, it does so only for the
        gate `breaks_clients`.
        """
        if self.callers is None:
            return ""
        asked = self.address.kind is Kind.QUERY or GateName.BREAKS_CLIENTS in self.gates
        return self.callers.words if asked or self.callers.state is UseState.COUNTED else ""
