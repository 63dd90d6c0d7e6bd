"""One run of a plan, from planning to reporting, and its ledger writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from types import MappingProxyType

from gitops.cluster.apply.entries import Facts, make_entry, origins_of
from gitops.cluster.changesets.lifecycle import Journal
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.address import schema_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Change, Disposition
from gitops.cluster.model.changeset import ChangesetBase, ChangesetKind, ChangesetState, Created
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import (
    Debt,
    EntryKind,
    Intent,
    IntentKind,
    LedgerState,
    Origin,
    changeset_key,
)
from gitops.cluster.model.plan import ExecutionGraph, Plan
from gitops.cluster.model.resource import restore_order
from gitops.cluster.plan.changeset import ChangesetIdentity, approvals_required, first_record
from gitops.cluster.plan.leftovers import facts_of
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session
from gitops.cluster.session.workspace import ChangesetFacts
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

_NOTHING: Mapping[str, Mapping[str, object]] = MappingProxyType({})


@dataclass()
class Run:
    """One apply's work.

    `plan` is the plan of this run, which can be a part of `whole`. `graph` is the execution graph, with `intents` by
    node id. `journal` is its changeset. `done` are the nodes, with their facts, that an interrupted run of the same
    changeset completed, and `earlier` are the intents that it announced.
    """

    session: Session
    swept: Sweep
    plan: Plan
    whole: Plan
    graph: ExecutionGraph
    accepted: AcceptedApprovals
    operation: str
    intents: dict[str, Intent]
    debts: tuple[Debt, ...]
    journal: Journal
    atomic: bool = False
    done: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: _NOTHING)
    earlier: Mapping[str, tuple[Intent, ...]] = field(default_factory=dict)

    @property
    def announced(self) -> Mapping[str, tuple[Intent, ...]]:
        """Return every intent of the changeset by node id, including the intents of an earlier, interrupted run."""
        names = {**self.earlier, **self.intents}
        own = {name: (intent,) for name, intent in self.intents.items()}
        return {name: (*self.earlier.get(name, ()), *own.get(name, ())) for name in names}

    def operations(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Return the announced operations of these nodes, or of all nodes."""
        announced = self.announced
        chosen = announced if names is None else names
        return tuple(intent.operation_id for name in chosen for intent in announced.get(name, ()))

    def origins(self, changes: Sequence[Change]) -> tuple[Origin, ...]:
        """Return the origins to record in an entry with these changes, which are empty for a ledger in a folder.

        They include those of the other parts of the plan, because their authors are needed after this entry.
        """
        governance = self.session.workspace.governance
        if governance is None:
            return ()
        named = {change.address for change in changes}
        others = (change for change in self.whole.changes if change.address not in named)
        gated = {gate.resource for gate in self.whole.approvals_required}
        return origins_of(governance, (*changes, *others), gated)

    def announce(self) -> None:
        """Write the changeset's events, and the run's intents if there are any. Raises GitopsError."""
        if not self.intents:
            self.record()
            return
        granted = [need for need in self.plan.approvals_required if need.satisfied and need.resource in self.intents]
        facts = replace(
            self.facts,
            changes=tuple(change for change in self.plan.changes if change.address in self.intents),
            approvals=self.accepted.uses_of(approval for need in granted for approval in need.spent),
            origins=self._waiting_origins,
        )
        entry = make_entry(self.session, EntryKind.INTENT, facts)
        ledger, intents = self.session.opened.ledger, tuple(self.intents.values())
        self.session.view = ledger.begin(self.session.view, intents, entry, self.journal.drafts)
        self.journal.written()

    def record(self, retire: Sequence[str] = (), state: LedgerState | None = None) -> None:
        """Write the changeset's events and everything else that `write_events` writes. Raises GitopsError."""
        facts = replace(self.facts, origins=self._waiting_origins)
        write_events(self.session, self.journal, retire, state, facts)

    @cached_property
    def _waiting_origins(self) -> tuple[Origin, ...]:
        """Return the origins of the unapplied changes.

        They are recorded so that later entries need to contain only the authors of later commits. A change of this run
        may fail, so none counts as applied until an entry records it.
        """
        return self.origins([replace(change, disposition=Disposition.BLOCKED) for change in self.whole.changes])

    @property
    def facts(self) -> Facts:
        """Return the content that all entries of the run share."""
        return Facts(self.operation, self.plan.digest, self.plan.config_digest)


def write_events(
    current: Session,
    journal: Journal,
    retire: Sequence[str] = (),
    state: LedgerState | None = None,
    facts: Facts | None = None,
) -> None:
    """Write a changeset's events, remove sidecars, and record `state` with the observed graphs. Raises GitopsError.

    `facts` are the facts of the current run; without them, the changeset belongs to an earlier run.
    """
    ledger, facts = current.opened.ledger, facts or Facts(config_digest=journal.record.desired_digest)
    entry = make_entry(current, EntryKind.CHANGESET, facts, state)
    if state is None or state == current.state:
        current.view = ledger.begin(current.view, (), entry, journal.drafts, retire)
    else:
        current.view = ledger.commit(current.view, LedgerWrite(state, entry, tuple(retire), events=journal.drafts))
    journal.written()


# -- The changeset of a run: its identity, its changes, and its announcement before the first side effect --------------
#
# A changeset's key is derived from the merge that it applies, so that a repeated run finds its changeset. After a
# failed changeset, the next attempt has a different key. The rest of a landed merge, and a run without a merge, are
# repairs, whose key is derived from the ledger and the plan.


def announce(run: Run, part: str) -> bool:
    """Create a run's changeset and write its intents. If that fails, reports the failure and returns False.

    A best-effort run announces only its intents; without any, the changeset is recorded with the result.
    """
    current = run.session
    try:
        if not run.journal.recorded and any(c.disposition is Disposition.APPLIED for c in run.plan.changes):
            _create(run, part)
        if run.intents or (run.atomic and run.journal.drafts):
            run.announce()
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True


def _create(run: Run, part: str) -> None:
    current, facts, (cluster, base) = run.session, facts_of(run.session), begins_at(run.session)
    record = first_record(
        identify(run, facts, cluster, part),
        run.plan,
        run.graph,
        source=facts.source,
        base=base,
        covers=facts.covers,
        at=current.workspace.stamp(),
        atomic=run.atomic,
    )
    run.journal.add(Created(record), *approvals_required(run.plan))


def begins_at(current: Session) -> tuple[str, ChangesetBase]:
    """Return the starting point of a new changeset: the cluster name and the applied state."""
    state, governance = current.state, current.workspace.governance
    cluster = governance.target.cluster if governance is not None else current.desired.name or "cluster"
    return cluster, ChangesetBase(state.revision, current.view.cas, state.applied_digest, state.config_digest)


def identify(run: Run, facts: ChangesetFacts, cluster: str, part: str) -> ChangesetIdentity:
    """Return the identity of a changeset of these facts that does not exist yet. Raises GitopsError."""
    current, ledger = run.session, run.session.opened.ledger
    repair = f"{current.view.head or current.view.cas} {run.plan.digest}"
    kind, attempt, retry_of = facts.kind, facts.attempt, facts.retry_of
    subject = facts.source.merge_commit
    if subject is None:
        kind, subject = ChangesetKind.RECONCILE, repair
    while True:
        key = changeset_key(cluster, kind, subject, attempt=attempt, part=part)
        known = ledger.changeset(key)
        if known is None:
            return ChangesetIdentity(key, cluster, kind, attempt, part, retry_of)
        if known.state is not ChangesetState.FAILED and kind is not ChangesetKind.RECONCILE:
            kind, subject, attempt, retry_of = ChangesetKind.RECONCILE, repair, 1, None
            continue
        attempt += 1
        if kind is not ChangesetKind.RECONCILE:
            kind, retry_of = kind if known.untried else ChangesetKind.RETRY, key


# -- The intents of a run: one for each node that changes a graph, announced before its first side effect --------------


def make_intents(current: Session, plan: Plan, graph: ExecutionGraph, fence: int, *, atomic: bool) -> dict[str, Intent]:
    """Return an execution graph's intents by node id. They are in graph order, so their ids sort like their operations."""
    workspace, stores = current.workspace, current.opened
    granted: dict[str, tuple[Approval, ...]] = {r.resource: r.spent for r in plan.approvals_required if r.satisfied}
    growth, at = current.data_growth, workspace.stamp()
    changes = {change.address: change for change in plan.changes}
    found = {}
    for node in sorted(graph.nodes, key=lambda n: n.position):
        change = changes.get(node.address)
        operation = None if change is None else rules_of(change.address).operation(change.action)
        if change is None or operation is None:
            continue
        kind = operation.intent
        name = change.address.name
        schema = current.desired.resources.get(schema_address(name))
        leaves_schema = kind in (IntentKind.GRAPH_DELETE, IntentKind.GRAPH_RESTORE)
        wanted = "" if leaves_schema or schema is None else schema.digest
        restores = restore_order(current.desired.resources[node.address]) if kind is IntentKind.GRAPH_RESTORE else None
        first = node.expanded if atomic else None
        # An approval covers the whole change, which is done only when its second part is done.
        approvals = () if first else granted.get(node.address, ())
        used = [a.approval_id for a in approvals]
        rows = growth.covered(a.seen for a in approvals) if kind is IntentKind.GRAPH_DELETE else None
        # The state that the plan saw under the lock. If a graph cannot be opened, the node itself reports it.
        seen, last = change.seen, 0
        if kind is not IntentKind.GRAPH_CREATE:
            # If a ledger is lost, its numbers start again, but the graphs' numbers do not.
            with suppress(GitopsError):
                last = stores.engine.read(stores.graph_uri(name)).fence
        found[node.id] = Intent(
            operation_id=workspace.ids.ulid(),
            started_at=at,
            actor=workspace.actor,
            kind=kind,
            graph_id=name,
            graph_uri=stores.graph_uri(name),
            observed_manifest_version=None if seen is None else seen.version,
            expected_manifest_version=None,
            desired_schema_digest=first or wanted,
            state_cas_base=current.view.cas,
            approval_id=used[0] if used else None,
            co_approvals=tuple(used[1:]),
            incarnation=None if seen is None else seen.incarnation,
            max_rows=rows,
            fence=max(fence, last),
            restores=restores,
        )
    return found
