"""The plan: what would change, why, what breaks, which approvals are needed, and the execution graph of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.access import AccessDiff
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Change, Disposition, Effect, GateName, Seen, Tier
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.scope import ScopeChange
from gitops.cluster.model.trust import DataGrowth, Quorum, RuleChange
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.database.graph.port import KeptData, MigrationPreview

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


class LockMode(StrEnum):
    """Exclusive: one holder. Shared: many, but no exclusive one."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True, order=True)
class LockClaim:
    """A lock that a node holds while it runs."""

    key: str
    mode: LockMode = LockMode.EXCLUSIVE


@dataclass(frozen=True, slots=True)
class ExecNode:
    """One active change as a unit of work, or what is between changes.

    `id` is the address (or `barrier.<name>`), `kind` that of the resource, or one that no resource has. `position` is unique and
    is the tie-break of the serial order. `locks` is sorted. `group` names a failure group: after a node of it failed, no further
    node of the group starts (graph-moving work stops at its first failure); empty means none. `effect` says when the change
    has its effect; a `lifted` node of the class STAGE waits for a pivot, and is taken back all the same. A migration in halves is
    two nodes of an atomic run: the first leads to the schema with the digest `expanded`, the second is the rest `of` that change.
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
        """The change that it carries out, or a part of."""
        return Address(self.of or self.id)

    @property
    def changes(self) -> bool:
        """Whether it carries out a change, or a part of one: barriers and looks do not."""
        return self.kind not in CHANGE_NOTHING

    @property
    def title(self) -> str:
        """What it does, as people read it: the action and the address."""
        if self.kind == BARRIER_KIND:
            return self.id
        return f"{self.action.value if self.changes else CHECK} {self.id}"

    @property
    def phase(self) -> Effect:
        """The part of an atomic run in which the node is carried out."""
        return Effect.PIVOT if self.lifted else self.effect

    @property
    def interruptible(self) -> bool:
        """Whether a run may stop waiting for it: not for a migration or a delete of a graph, which cannot be taken back."""
        return (self.kind, self.action) not in (("schema", Action.UPDATE), ("graph", Action.DELETE))


@dataclass(frozen=True, slots=True, order=True)
class ExecEdge:
    """`before` must have finished successfully when `after` starts; `reason` is a stable label."""

    before: str
    after: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """Nodes in plan order and edges sorted; acyclic by construction of `build_graph`."""

    nodes: tuple[ExecNode, ...] = ()
    edges: tuple[ExecEdge, ...] = ()


class NodeOutcome(StrEnum):
    """How a node ended.

    DONE, and UNCHANGED where everything was as it should be, succeed, and so does DRY_RUN, which stands for both where a run has
    no effects. FAILED: it did not. CANCELLED: it stopped when it was asked to, without effect. INDETERMINATE: whether it had its
    effect is not known, so recovery looks before anything is tried again. SKIPPED and BLOCKED never started.
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
        """Whether what depends on the node may go on."""
        return self in (NodeOutcome.DONE, NodeOutcome.UNCHANGED, NodeOutcome.DRY_RUN)

    @property
    def failed(self) -> bool:
        """Whether the node failed, or may have."""
        return self in (NodeOutcome.FAILED, NodeOutcome.INDETERMINATE)


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The one outcome of a node.

    `blocked_by` names the node whose failure kept this one from starting. `facts` are what the provider
    reports (such as the manifest version after a migration, and the graph as it was `seen` then).
    """

    node_id: str
    outcome: NodeOutcome
    diagnostics: tuple[Diagnostic, ...] = ()
    blocked_by: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def timed(self, started: datetime, finished: datetime) -> NodeResult:
        """The result with its times: a run makes thousands of these, and `replace` takes twice as long."""
        return NodeResult(self.node_id, self.outcome, self.diagnostics, self.blocked_by, self.facts, started, finished)


def first_failure(results: Iterable[NodeResult]) -> NodeResult | None:
    """Of the nodes that failed, or whose effect is not known, the result of the one that ended first."""
    failed = [r for r in results if r.outcome.failed]
    return min(failed, key=lambda r: (r.finished_at is None, r.finished_at), default=None)


class QueryChange(StrEnum):
    """What the same plan does to a query; one whose file changes while its own text stays is unchanged."""

    KEPT = "unchanged"
    ADDED = "new here"
    CHANGED = "changed here"
    REMOVED = "removed here"


@dataclass(frozen=True, slots=True)
class AffectedQuery:
    """A query that reads or writes the subject of a step, or both."""

    query: Address
    reads: bool
    writes: bool
    change: QueryChange


@dataclass(frozen=True, slots=True)
class ResultChange:
    """A query that stays and whose result changes with the schema; columns are spelled `name: Type`, `Node` for a node."""

    query: Address
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaImpact:
    """What one schema update affects, if it has a migration preview. It explains a plan and decides nothing.

    A declared query that does not check against the new schema is an error before there is a plan, so a query that is listed
    here either goes on as it is, or is changed or removed by the same change.

    `queries` has one entry per step of the preview, in its order, each in order of the queries. `policies` those of the graph.
    """

    schema: Address
    queries: tuple[tuple[AffectedQuery, ...], ...]
    results: tuple[ResultChange, ...]
    policies: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class TextChange:
    """A text that changes, as it is recorded and as it is declared; None where there is none.

    A file of queries is the text of each of them: `resources` are those whose change it is, at least one and of one kind.
    """

    resources: tuple[Address, ...]
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """What a ledger records of a graph whose schema or queries change: the accepted schema, and the texts of its queries.

    Only the texts of queries that the plan changes or removes are needed; what could not be read is left out.
    """

    schema: Schema
    queries: Mapping[Address, bytes] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class TrustChange:
    """The keys and rules of the branch ledger are about to change; digests of the two bundles, and what differs, for people."""

    cluster: str
    before: str
    after: str
    rules: tuple[RuleChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything that a plan is a function of; no clock, no store, no network.

    `approvals` are the unconsumed approvals that already passed every check of their store (in a branch ledger: signature,
    signer, target, author, expiry). `pending` are graph ids whose interrupted operation is not settled. `previews` holds a
    migration preview per schema address where the accepted schema could be read. `recorded` holds per schema address what the
    ledger records of the graph, if the plan is to explain what the migration affects. `quorum` is how many distinct people must
    approve a change at each gate of the rules in force; each of the approvals in `alone` is enough by itself. `may_approve` are
    those who may approve each change; it only explains. `further` are good approvals of people who are among `approvals`
    already: they are spent with the change. `differences` are the changes, where the caller has found them already. `seen` is
    the graph of each change of data, where it is known; without `at_hand` no graph was read. `data_growth` is that of the
    rules in force. `kept` has by schema address what the versions of its graph hold, if the plan leads back to an earlier folder.
    `access` is who gains and loses what, if the changes touch that; `widening` are the classes of gains that the rules gate.
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


@dataclass(frozen=True, slots=True)
class Impact:
    """`affected` are the resources that directly need `resource`, in edge order."""

    resource: Address
    affected: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class ApprovalRequirement:
    """A change that needs permission from `needed` distinct people.

    `gates` are those of the rules that it meets, the one that asks for most people first, in `environment`, which is empty
    where a ledger has no rules. `approvals` are the valid ones that open the gate together, `further` all other valid ones: the
    change spends these too. `may` are the people who may still approve it, where they are known; they only explain. `emergency`
    says that one person opens it alone.
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
        """How many approvals are there of how many, and which gate in which environment asks for so many."""
        where = f", environment {self.environment}" if self.environment else ""
        there = len(self.approvals)
        given = f"{there} of 1 approval" if self.needed == 1 else f"{there} of {self.needed} approvals"
        gate = next(iter(self.gates), GateName.IRREVERSIBLE)
        return f"{'1 emergency' if self.emergency else given}, gate {gate}{where}"

    @property
    def satisfied(self) -> bool:
        """Whether enough valid approvals exist."""
        return len(self.approvals) >= self.needed

    @property
    def spent(self) -> tuple[Approval, ...]:
        """Every approval that the change uses up when it is applied."""
        return (*self.approvals, *self.further)


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of the planner; comment, text, JSON and the run all read it.

    `digest` covers the config digest and each change's address, action, before, after, bindings flag and migration steps:
    not serial, time, disposition or evidence, so that it survives approval and merge unless reality moved.
    `changes` is sorted by address. The rest only explains, and is empty unless the inputs had what it is made of:
    `schema_impact`; `rule_changes`, what a change of keys and rules means; `republished`, the queries whose own text stays
    while their file changes; `breaks`, what callers of queries cannot rely on any more; `undoings` and `undo_graph`, what a plan
    back means for each change, and in which order it undoes them; `access`, who gains and loses what, with the classes of gains
    that need an approval in `widening`.
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
    breaks: tuple[ContractBreak, ...] = ()
    undoings: tuple[Undoing, ...] = ()
    undo_graph: ExecutionGraph = field(default_factory=ExecutionGraph)
    access: AccessDiff | None = None
    widening: frozenset[str] = frozenset()

    @property
    def edits(self) -> tuple[Change, ...]:
        """The changes that people made and count: all but `derived` graphs and `republished` queries."""
        follow = {change.address for change in self.derived} | self.republished
        return tuple(change for change in self.changes if change.address not in follow)

    @property
    def derived(self) -> tuple[Change, ...]:
        """The updates of graphs that only follow from changes of their parts."""
        return tuple(change for change in self.changes if change.disposition is Disposition.DERIVED)

    def change(self, address: Address) -> Change | None:
        """The change of one resource, if it has one."""
        return next((c for c in self.changes if c.address == address), None)


# The kinds of nodes of an execution graph that no resource has.


BARRIER_KIND, TARGET, DECISION, READINESS, REPLICA = "barrier", "target", "decision", "readiness", "replica"

LOOKS = (TARGET, DECISION, READINESS)
"""Those of nodes that only look: at a target, whether a decision still holds, and what is hydrated."""

CHANGE_NOTHING = frozenset({BARRIER_KIND, *LOOKS})
"""Those of nodes that carry out no change."""

CHECK = "check"
"""What people read in place of the action of a node that only looks."""


# What a change of a stored query breaks for those who call it.


class BreakKind(StrEnum):
    """How a change of a query breaks those who call it."""

    REMOVED = "removed"
    EFFECT = "effect"
    PARAMETER_ADDED = "parameter_added"
    PARAMETER_CHANGED = "parameter_changed"
    PARAMETER_DROPPED = "parameter_dropped"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_CHANGED = "column_changed"


@dataclass(frozen=True, slots=True)
class ContractBreak:
    """One thing that callers of a query cannot rely on any more.

    `subject` is the parameter (`$name`) or the column, `before` and `after` are its types; of an effect, `read` and `mutation`.
    Empty is what does not exist.
    """

    query: Address
    kind: BreakKind
    subject: str = ""
    before: str = ""
    after: str = ""

    @property
    def words(self) -> str:
        """What breaks, in a line."""
        match self.kind:
            case BreakKind.REMOVED:
                return "its callers no longer find it"
            case BreakKind.EFFECT:
                return f"it was a {self.before} and becomes a {self.after}"
            case BreakKind.PARAMETER_ADDED:
                return f"callers have to give the new parameter {self.subject} of type `{self.after}`"
            case BreakKind.PARAMETER_CHANGED | BreakKind.COLUMN_CHANGED:
                return f"{self.kind.partition('_')[0]} {self.subject} changes from `{self.before}` to `{self.after}`"
            case BreakKind.PARAMETER_DROPPED:
                return f"parameter {self.subject} of type `{self.before}` is ignored from now on"
            case BreakKind.COLUMN_DROPPED:
                return f"column {self.subject} of type `{self.before}` leaves the result"


# What going back to an earlier folder does to each resource and its data; it explains a plan and decides nothing.


class Undo(StrEnum):
    """What becomes of a change that is undone; each is worse than the one before it.

    COMPLETE: all is as it was. RESTORABLE: data is missing, and an earlier version of the graph that is kept has it. UNKNOWN:
    the versions of the graph cannot be read here. LOST: data or versions are missing, and no version has them. IRREVERSIBLE: the
    change itself cannot be undone. Whether a later plan can undo the plan back again is its gates' to say.
    """

    COMPLETE = "complete"
    RESTORABLE = "restorable"
    UNKNOWN = "unknown"
    LOST = "lost"
    IRREVERSIBLE = "irreversible"

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return tuple(Undo).index(self)


@dataclass(frozen=True, slots=True)
class UndonePart:
    """A part of a change that does not simply come back: a type, a property (`Person.nick`), or a whole graph.

    `version` is the newest version of the graph that has its data, with that many `rows`; None where no version is known.
    `words` say it in a line. `comes_back` says that it is a type that is added again, whose rows can be restored as a whole.
    """

    name: str
    undo: Undo
    words: str
    version: int | None = None
    rows: int | None = None
    comes_back: bool = False


@dataclass(frozen=True, slots=True)
class Undoing:
    """What undoing means for one resource; `parts` are those that do not simply come back."""

    resource: Address
    parts: tuple[UndonePart, ...] = ()

    @property
    def undo(self) -> Undo:
        """That of its worst part."""
        return max((part.undo for part in self.parts), key=lambda undo: undo.rank, default=Undo.COMPLETE)


# The short form of a run: when each node began and ended, and what it waited for. It says why a run took as long as it did.


@dataclass(frozen=True, slots=True)
class RunNode:
    """One node of a run; times are milliseconds since its first event.

    What never started has neither `started` nor a worker; a barrier has worker 0. `after` is the node whose end made it ready, or
    the one that kept it from starting. `waited_for` are the nodes that held a lock which it needed when it was ready, or that
    were first in line for one.
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
        """How long it was at work."""
        return 0 if self.started is None else self.finished - self.started


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A whole run: how many workers it had, and its nodes in the order of their ends. It explains, and decides nothing."""

    workers: int
    nodes: tuple[RunNode, ...]


# What happens while an execution graph is carried out, for those who watch it: a terminal, a log, a file.


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of a run. `seq` counts from 1 without gaps; `at` is the time of the clock that was handed in.

    The `facts` of each type: `apply_started` nodes, changes (nodes without barriers), limit of workers, fail_fast, and what the
    caller adds. Of every `node_*` action, kind, class, layer and position of the node. `node_ready` dependencies: what is
    before it, all of it done, sorted. `node_lock_wait`, once a node: a worker was free, but the node was passed over; locks,
    and the holders that hold them or wait for them before it. `node_started` worker (1 and up; 0 for a barrier, which needs
    none), locks, waited_ms since it was ready. `node_finished` worker, outcome, duration_ms, outputs: the numbers that its work
    reports. `node_failed`, `node_cancelled`, and `node_indeterminate` where the effect is not known: worker, outcome,
    duration_ms, code and message of the first of its diagnostics; the last one also recovery, the operation that will be
    settled. `node_skipped` outcome, reason, its cause (a dependency, a barrier, or the failed node), and blocked_by: the failed
    node; both None after a stop. `barrier_reached` has only what every event of a node has. `apply_stopping`, once, when the
    run was asked to stop: running, grace_ms.
    `apply_finished` status (done, dry_run, failed, cancelled, interrupted), first_failure in order of time, counts of every
    outcome, duration_ms; interrupted: whether an exception broke off the run.
    """

    seq: int
    at: datetime
    type: str
    node: str | None
    facts: Mapping[str, Any]


Observer = Callable[[RunEvent], None]
"""Gets the events of a run, one after another, in the thread that coordinates it. An exception that it raises ends the run."""


def to_all(*observers: Observer | None) -> Observer:
    """An observer that hands each event to all of these, in their order."""
    present = [observer for observer in observers if observer is not None]

    def hear(event: RunEvent) -> None:
        for observer in present:
            observer(event)

    return hear
