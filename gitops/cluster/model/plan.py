"""The plan: changes with reasons, broken queries, required approvals, and the execution graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.access import AccessDiff
from gitops.cluster.model.address import Address, policy_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Change, Disposition, Effect, GateName, Seen, Tier
from gitops.cluster.model.host_rules import HostInputs, Look
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.scope import ScopeChange
from gitops.cluster.model.trust import DataGrowth, Quorum, RuleChange
from gitops.cluster.model.use import CallerRules, Callers, RecordedUse
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.database.graph.port import KeptData, MigrationPreview

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


class LockMode(StrEnum):
    """Lock mode. Exclusive means one holder; shared means many holders, but no exclusive one."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True, order=True)
class LockClaim:
    """A lock that a node holds while it runs."""

    key: str
    mode: LockMode = LockMode.EXCLUSIVE


@dataclass(frozen=True, slots=True)
class ExecNode:
    """One active change as a unit of work, or a step between changes.

    `id` is the address (or `barrier.<name>`), `kind` that of the resource, or one that no resource has. `position` is unique
    and breaks ties in the serial order. `locks` is sorted. `group` is a failure group: after one of its nodes failed, no
    further node of the group starts (graph-changing work stops at its first failure); empty means none. `effect` is the
    class of the change; a `lifted` node of the class STAGE waits for a pivot, but can still be rolled back. A two-phase
    migration is two nodes of an atomic run: the first leads to the schema with the digest `expanded`, the second is the rest
    `of` that change.
    """

    id: str
    kind: str
    action: Action
    position: int
    locks: tuple[LockClaim, ...] = ()
    group: str = ""
    effect: Effect = Effect.STAGE
    lifted: bool = False
    expanded: str | None = None
    of: str = ""

    @property
    def address(self) -> Address:
        """The address of the change that the node makes, completely or in part."""
        return Address(self.of or self.id)

    @property
    def changes(self) -> bool:
        """True if the node makes a change or part of one. False for barriers and checks."""
        return self.kind not in CHANGE_NOTHING

    @property
    def title(self) -> str:
        """The action and the address, as a title for people."""
        if self.kind == BARRIER_KIND or self.kind in HOST_STEPS:
            return self.id
        return f"{self.action.value if self.changes else CHECK} {self.id}"

    @property
    def phase(self) -> Effect:
        """The phase in which the node runs in an atomic run."""
        return Effect.PIVOT if self.lifted else self.effect

    @property
    def interruptible(self) -> bool:
        """True if a run can stop waiting for it.

        False for migrations and graph deletes, which cannot be rolled back.
        """
        return (self.kind, self.action) not in (("schema", Action.UPDATE), ("graph", Action.DELETE))


@dataclass(frozen=True, slots=True, order=True)
class ExecEdge:
    """A dependency: `before` must succeed before `after` starts. `reason` is a stable label."""

    before: str
    after: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """Nodes in plan order, and sorted edges. `build_graph` makes sure that it has no cycles."""

    nodes: tuple[ExecNode, ...] = ()
    edges: tuple[ExecEdge, ...] = ()


class NodeOutcome(StrEnum):
    """A node's outcome.

    DONE and UNCHANGED (nothing had to be changed) are successes, and so is DRY_RUN, which replaces both in a run without
    effects. FAILED: it failed. CANCELLED: it stopped on request, without effect. INDETERMINATE: it is not known whether it
    took effect, so recovery checks before anything is retried. SKIPPED and BLOCKED never started.
    """

    DONE = "done"
    UNCHANGED = "unchanged"
    DRY_RUN = "dry_run"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INDETERMINATE = "indeterminate"
    SKIPPED = "skipped"
    BLOCKED = "blocked"

    @property
    def succeeded(self) -> bool:
        """True if dependent nodes can continue."""
        return self in (NodeOutcome.DONE, NodeOutcome.UNCHANGED, NodeOutcome.DRY_RUN)

    @property
    def failed(self) -> bool:
        """True if the node failed or might have failed."""
        return self in (NodeOutcome.FAILED, NodeOutcome.INDETERMINATE)


REFUSED = "refused"
"""Fact of a target check: the keys of the compute clusters that it refuses."""
SHARED = "shared"
"""Fact of a result which means that the ledger or the storage failed, not the graph."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """A node's only result.

    `blocked_by` is the node whose failure prevented this one from starting. `facts` are values from the provider (such
    as the manifest version after a migration, and the graph as `seen` at that time).
    """

    node_id: str
    outcome: NodeOutcome
    diagnostics: tuple[Diagnostic, ...] = ()
    blocked_by: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def concerns_group(self) -> bool:
        """True if a shared service failed or did not respond, so that others in the failure group would probably fail too."""
        return self.outcome is NodeOutcome.INDETERMINATE or bool(self.facts.get(SHARED))

    @property
    def stopped(self) -> bool:
        """True if the node did not run because a stop was requested."""
        never = self.outcome is NodeOutcome.SKIPPED and self.blocked_by is None
        return never or self.outcome is NodeOutcome.CANCELLED

    def timed(self, started: datetime, finished: datetime) -> NodeResult:
        """Return the result with its times. A run creates thousands of these, and `replace` takes twice as long."""
        return NodeResult(self.node_id, self.outcome, self.diagnostics, self.blocked_by, self.facts, started, finished)


def first_failure(results: Iterable[NodeResult]) -> NodeResult | None:
    """Return the earliest result that is failed or indeterminate, by end time."""
    failed = [r for r in results if r.outcome.failed]
    return min(failed, key=lambda r: (r.finished_at is None, r.finished_at), default=None)


class QueryChange(StrEnum):
    """How a query changes in the same plan. It counts as unchanged if only the rest of its file changes."""

    KEPT = "unchanged"
    ADDED = "new here"
    CHANGED = "changed here"
    REMOVED = "removed here"


@dataclass(frozen=True, slots=True)
class AffectedQuery:
    """A query that reads or writes what a step changes."""

    query: Address
    reads: bool
    writes: bool
    change: QueryChange


@dataclass(frozen=True, slots=True)
class ResultChange:
    """An unchanged query whose result changes with the schema. Columns are written `name: Type`; the type of a node is `Node`."""

    query: Address
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaImpact:
    """The effects of one schema update that has a migration preview. They only explain a plan.

    A declared query that does not check against the new schema is an error before there is a plan, so a query that is listed
    here either keeps working, or is changed or removed by the same change.

    `queries` has one entry per step of the preview, in its order, each in order of the queries. `policies` are those of the
    graph.
    """

    schema: Address
    queries: tuple[tuple[AffectedQuery, ...], ...]
    results: tuple[ResultChange, ...]
    policies: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class TextChange:
    """The recorded and the declared version of a changed text. A version that does not exist is None.

    A query file consists of the texts of its queries: `resources` are all queries that it changes, at least one and of
    one kind.
    """

    resources: tuple[Address, ...]
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """The ledger's record of a graph whose schema or queries change: the accepted schema and the query texts.

    Only texts of queries that the plan changes or removes are needed. Texts that could not be read are omitted.
    """

    schema: Schema
    queries: Mapping[Address, bytes] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class TrustChange:
    """A pending change to the branch ledger's keys and rules: the digests of both bundles, and the differences in words."""

    cluster: str
    before: str
    after: str
    rules: tuple[RuleChange, ...] = ()


@dataclass(frozen=True, slots=True)
class SameTexts:
    """Updates that do not change what is compiled.

    `republished` are queries whose own text is unchanged, while another query of their file changed. `formatting` are
    schemas, queries and policies of which only layout or comments changed.
    """

    republished: frozenset[Address] = frozenset()
    formatting: frozenset[Address] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything that a plan depends on. Planning is a pure function of this, without clock, store or network.

    `approvals` are the unconsumed approvals that already passed every check of their store (in a branch ledger: signature,
    signer, target, author, expiry). `pending` are graph ids with an unsettled interrupted operation. `previews` has a
    migration preview per schema address if the accepted schema could be read. `recorded` has the ledger's record of the
    graph per schema address, if the plan should explain the effects of a migration. `quorum` is how many distinct people
    must approve a change at each gate of the rules in force; each of the approvals in `alone` is enough by itself.
    `may_approve` are the people who can approve each change, for explanation only. `further` are valid approvals of people
    who already have one in `approvals`; the change consumes them too. `differences` are the changes, if the caller has
    already found them. `seen` is the graph of each data change, if known; without `at_hand`, no graph was read.
    `data_growth` comes from the rules in force. `kept` describes, by schema address, the versions of its graph, for a plan
    that leads back to an earlier folder. `access` are the gains and losses of access, if the changes affect it; `widening`
    are the classes of gains that the rules gate. `same` are the updates that don't change any meaning. `use` is the recorded
    use of the graphs whose callers a change can break, and `callers` are the clients of changes in stored plans, if the use
    can't be read here; with `caller_rules`, the changes describe the clients that they break. `hosts` are the
    forms of hosts and items, if a change is about one.
    """

    desired: DesiredState
    state: LedgerState
    approvals: tuple[Approval, ...] = ()
    pending: frozenset[str] = frozenset()
    previews: Mapping[Address, MigrationPreview] = field(default_factory=lambda: MappingProxyType({}))
    recorded: Mapping[Address, RecordedGraph] = field(default_factory=lambda: MappingProxyType({}))
    trust_change: TrustChange | None = None
    scope_change: ScopeChange | None = None
    differences: tuple[Change, ...] | None = None
    quorum: Quorum = field(default_factory=Quorum)
    alone: frozenset[str] = frozenset()
    may_approve: Callable[[Address], tuple[str, ...]] = lambda _: ()
    further: tuple[Approval, ...] = ()
    seen: Mapping[Address, Seen] = field(default_factory=lambda: MappingProxyType({}))
    at_hand: bool = True
    data_growth: DataGrowth = field(default_factory=DataGrowth)
    kept: Mapping[Address, KeptData] | None = None
    access: AccessDiff | None = None
    widening: frozenset[str] = frozenset()
    same: SameTexts = field(default_factory=SameTexts)
    use: Mapping[str, RecordedUse] = field(default_factory=lambda: MappingProxyType({}))
    callers: Mapping[Address, Callers] = field(default_factory=lambda: MappingProxyType({}))
    caller_rules: CallerRules | None = None
    hosts: HostInputs | None = None


@dataclass(frozen=True, slots=True)
class Impact:
    """The resources (`affected`) that directly depend on `resource`, in edge order."""

    resource: Address
    affected: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class ApprovalRequirement:
    """A change that needs approval from `needed` different people.

    `gates` are the gates of the rules that it meets, the one with the largest number first, in `environment`, which is empty
    if a ledger has no rules. `approvals` are the valid ones that together open the gate, `further` all other valid ones,
    which the change also consumes. `may` are the people who can still approve it, if known, for explanation only.
    `emergency` means that one person opens it alone.
    """

    resource: Address
    reason: str
    change_digest: str
    approvals: tuple[Approval, ...] = ()
    needed: int = 1
    may: tuple[str, ...] = ()
    tier: Tier = Tier.IRREVERSIBLE
    further: tuple[Approval, ...] = ()
    emergency: bool = False
    gates: tuple[GateName, ...] = ()
    environment: str = ""

    @property
    def words(self) -> str:
        """Describe how many approvals are given and needed, with the gate and environment that require them."""
        where = f", environment {self.environment}" if self.environment else ""
        there = len(self.approvals)
        given = f"{there} of 1 approval" if self.needed == 1 else f"{there} of {self.needed} approvals"
        return f"{'1 emergency' if self.emergency else given}, gate {self.gate}{where}"

    @property
    def gate(self) -> GateName:
        """The gate that requires the most approvers."""
        return next(iter(self.gates), GateName.IRREVERSIBLE)

    @property
    def satisfied(self) -> bool:
        """True if there are enough valid approvals."""
        return len(self.approvals) >= self.needed

    @property
    def spent(self) -> tuple[Approval, ...]:
        """All approvals that the change consumes when it is applied."""
        return (*self.approvals, *self.further)


@dataclass(frozen=True, slots=True)
class Plan:
    """The planner's result. The comment, the text and JSON output, and the run all read it.

    `digest` covers the config digest and each change's address, action, before, after, bindings flag and migration steps. It
    does not cover serial, time, disposition or evidence, so it survives approval and merge unless something else changed.
    `changes` is sorted by address. The other fields are explanations, and empty unless the inputs contain their sources:
    `schema_impact`; `rule_changes`, the meaning of a change to keys and rules; `republished`, the queries whose text is
    unchanged while their file changes; `formatting`, the updates of layout or comments only; `breaks`, the broken promises
    to query callers; `undoings` and `undo_graph`, the meaning of a revert plan for each change, and its order; `access`,
    the gains and losses of access, with the classes of gains that need approval in `widening`. `looks` are what an apply
    found in place of items of hosts.
    """

    config_digest: str
    digest: str
    changes: tuple[Change, ...]
    impact: tuple[Impact, ...]
    approvals_required: tuple[ApprovalRequirement, ...]
    graph: ExecutionGraph
    diagnostics: tuple[Diagnostic, ...] = ()
    schema_impact: tuple[SchemaImpact, ...] = ()
    rule_changes: tuple[RuleChange, ...] = ()
    republished: frozenset[Address] = frozenset()
    formatting: frozenset[Address] = frozenset()
    breaks: tuple[ContractBreak, ...] = ()
    undoings: tuple[Undoing, ...] = ()
    undo_graph: ExecutionGraph = field(default_factory=ExecutionGraph)
    access: AccessDiff | None = None
    widening: frozenset[str] = frozenset()
    looks: Mapping[Address, Look] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def edits(self) -> tuple[Change, ...]:
        """The changes that people made: all except `derived` graphs and `republished` queries."""
        follow = {change.address for change in self.derived} | self.republished
        return tuple(change for change in self.changes if change.address not in follow)

    @property
    def derived(self) -> tuple[Change, ...]:
        """The graph updates that are only due to changes in their parts."""
        return tuple(change for change in self.changes if change.disposition is Disposition.DERIVED)

    @property
    def widens(self) -> frozenset[Address]:
        """The changes to keys, rules and policies that permit more than before."""
        rules = {rule.address for rule in self.rule_changes if rule.widens}
        gains = () if self.access is None else self.access.widenings
        return frozenset(rules | {policy_address(row.policy) for row in gains if row.policy is not None})

    def change(self, address: Address) -> Change | None:
        """Return a resource's change, or None if it has none."""
        return next((c for c in self.changes if c.address == address), None)


# Kinds of execution graph nodes that don't correspond to a resource.


BARRIER_KIND, TARGET, DECISION, READINESS, REPLICA = "barrier", "target", "decision", "readiness", "replica"

LOOKS = (TARGET, DECISION, READINESS)
"""Kinds of nodes that only check: a target, whether a decision is still valid, and which replicas are hydrated."""

FENCE, PACKAGES, RELOAD = "fence", "packages", "reload"

HOST_STEPS = (FENCE, PACKAGES, RELOAD)
"""Kinds of nodes between the changes of a host: they keep out earlier runs, call the package manager, or reload systemd."""

CHANGE_NOTHING = frozenset({BARRIER_KIND, *LOOKS, *HOST_STEPS})
"""Kinds of nodes that don't apply a change."""

CHECK = "check"
"""Text shown in place of the action for a node that only checks."""


# Ways in which a change to a stored query can break its callers.


class BreakKind(StrEnum):
    """Kind of a query change that breaks callers."""

    REMOVED = "removed"
    EFFECT = "effect"
    PARAMETER_ADDED = "parameter_added"
    PARAMETER_CHANGED = "parameter_changed"
    PARAMETER_DROPPED = "parameter_dropped"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_CHANGED = "column_changed"


@dataclass(frozen=True, slots=True)
class ContractBreak:
    """A change that breaks something that a query's callers rely on.

    `subject` is the parameter (`$name`) or the column; `before` and `after` are its types, or `read` and `mutation` for
    an effect. A missing side is empty.
    """

    query: Address
    kind: BreakKind
    subject: str = ""
    before: str = ""
    after: str = ""

    @property
    def words(self) -> str:
        """Describe the break in one line."""
        match self.kind:
            case BreakKind.REMOVED:
                return "its callers no longer find it"
            case BreakKind.EFFECT:
                return f"it was a {self.before} and becomes a {self.after}"
            case BreakKind.PARAMETER_ADDED:
                return f"callers must pass the new parameter {self.subject} of type `{self.after}`"
            case BreakKind.PARAMETER_CHANGED | BreakKind.COLUMN_CHANGED:
                return f"{self.kind.partition('_')[0]} {type_change(self.subject, self.before, self.after)}"
            case BreakKind.PARAMETER_DROPPED:
                return f"parameter {self.subject} of type `{self.before}` is ignored from now on"
            case BreakKind.COLUMN_DROPPED:
                return f"column {self.subject} of type `{self.before}` is removed from the result"


_ENUM = re.compile(r"enum\((.*)\)(\]?\??)\Z")


def type_change(name: str, before: str, after: str) -> str:
    """Describe the old and new type of a parameter or column on one line. For an enum, show only the values that differ."""
    old, new = _ENUM.match(before), _ENUM.match(after)
    if old is None or new is None or old[2] != new[2]:
        return f"{name} changes from `{before}` to `{after}`"
    was, now = (each[1].split(", ") for each in (old, new))
    lost, gained = ([each for each in one if each not in other] for one, other in ((was, now), (now, was)))
    parts = [("no longer allows", lost), ("also allows", gained)]
    found = [f"{verb} {', '.join(f'`{each}`' for each in values)}" for verb, values in parts if values]
    return f"{name} {' and '.join(found) or 'lists its values in a different order'}"


# Effects of reverting to an earlier folder on each resource and its data. They only explain a plan.


class Undo(StrEnum):
    """How completely undoing a change restores the earlier state, from best to worst.

    COMPLETE: everything is restored. RESTORABLE: data is missing, but an earlier version of the graph that is kept has it.
    UNKNOWN: the versions of the graph cannot be read here. LOST: data or versions are missing, and no version has them.
    IRREVERSIBLE: the change itself cannot be undone. Whether a later plan can reverse the revert depends on its gates.
    """

    COMPLETE = "complete"
    RESTORABLE = "restorable"
    UNKNOWN = "unknown"
    LOST = "lost"
    IRREVERSIBLE = "irreversible"

    @property
    def rank(self) -> int:
        """Position in the order."""
        return tuple(Undo).index(self)


@dataclass(frozen=True, slots=True)
class UndonePart:
    """Part of a change that undoing does not simply restore: a type, a property (`Person.nick`), or a whole graph.

    `version` is the newest graph version with its data, with that many `rows`; None if no version is known. `words` is
    a description in one line. `comes_back` means that it is a type that is added again, so that all its rows can be
    restored.
    """

    name: str
    undo: Undo
    words: str
    version: int | None = None
    rows: int | None = None
    comes_back: bool = False


@dataclass(frozen=True, slots=True)
class Undoing:
    """The effect of undoing on one resource. `parts` are the parts that it does not simply restore."""

    resource: Address
    parts: tuple[UndonePart, ...] = ()

    @property
    def undo(self) -> Undo:
        """The worst result among its parts."""
        return max((part.undo for part in self.parts), key=lambda undo: undo.rank, default=Undo.COMPLETE)


# The short form of a run: when each node started and ended, and what it waited for. It explains the duration of a run.


@dataclass(frozen=True, slots=True)
class RunNode:
    """One node of a run. Times are milliseconds since the first event.

    A node that never started has neither `started` nor a worker; a barrier has worker 0. `after` is the node whose end made
    it ready, or the one that prevented it from starting. `waited_for` are the nodes that held a lock that it needed when it
    was ready, or that were ahead of it in the queue for one.
    """

    id: str
    ready: int | None
    started: int | None
    finished: int
    worker: int | None
    after: str | None
    waited_for: tuple[str, ...]
    outcome: NodeOutcome

    @property
    def duration(self) -> int:
        """Running time in milliseconds."""
        return 0 if self.started is None else self.finished - self.started


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A complete run: the number of workers, and the nodes in the order in which they ended. For explanation only."""

    workers: int
    nodes: tuple[RunNode, ...]


# Events of an execution graph for observers: a terminal, a log, a file.


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A run event. `seq` counts from 1 without gaps, and `at` is the injected clock's time.

    The `facts` of each type:

    - `apply_started`: the number of nodes, of changes (nodes without barriers) and of workers, fail_fast, and what the
      caller adds.
    - Every `node_*`: action, kind, class, layer and position of the node.
    - `node_ready`: dependencies, which are the nodes before it, sorted. All of them are done.
    - `node_lock_wait`, once per node that was passed over although a worker was free: locks, and the holders, which hold
      them or wait for them before this node.
    - `node_started`: worker (from 1; 0 for a barrier, which needs none), locks, and waited_ms since it was ready.
    - `node_finished`: worker, outcome, duration_ms, and outputs, the numbers that its work reports.
    - `node_failed`, `node_cancelled`, and `node_indeterminate` if the effect is unknown: worker, outcome, duration_ms, and
      the code and message of the first diagnostic. The last type also has recovery, the operation to be settled.
    - `node_skipped`: outcome, reason, cause (a dependency, a barrier or the failed node), and blocked_by, the failed node.
      The last two are None after a stop.
    - `barrier_reached`: only the facts that all events of a node have.
    - `apply_stopping`, once, when the run was asked to stop: running, grace_ms.
    - `apply_finished`: status (done, dry_run, failed, cancelled or interrupted), first_failure by time, counts by outcome,
      duration_ms, and interrupted, which is true if an exception ended the run.
    """

    seq: int
    at: datetime
    type: str
    node: str | None
    facts: Mapping[str, Any]


Observer = Callable[[RunEvent], None]
"""Receives the events of a run, one after another, in the coordinating thread.

If it raises an exception, the run ends.
"""


def to_all(*observers: Observer | None) -> Observer:
    """Return an observer that passes each event to all of these observers, in order."""
    present = [observer for observer in observers if observer is not None]

    def hear(event: RunEvent) -> None:
        for observer in present:
            observer(event)

    return hear
