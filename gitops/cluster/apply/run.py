"""One run of a plan between planning and reporting, and what it writes to the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from types import MappingProxyType

from gitops.cluster.apply.entries import make_entry, origins_of
from gitops.cluster.changesets.journal import Journal
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.change import Change, Disposition
from gitops.cluster.model.ledger import ApprovalUse, Debt, EntryKind, Intent, LedgerEntry, LedgerState
from gitops.cluster.model.origin import Origin
from gitops.cluster.model.plan import ExecutionGraph, Plan
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session
from gitops.core.dataclass import dataclass

_NOTHING: Mapping[str, Mapping[str, object]] = MappingProxyType({})


@dataclass()
class Run:
    """What one apply carries out.

    `plan` is what this run is about, which may be a part of `whole`. `graph` is carried out, with `intents` by node id. `journal`
    is its changeset. `done` are the nodes, with their facts, that an interrupted run of the same changeset has done, `earlier`
    the intents that it announced.
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
        """Every intent of the changeset by node id, also of an interrupted run of it."""
        names = {**self.earlier, **self.intents}
        own = {name: (intent,) for name, intent in self.intents.items()}
        return {name: (*self.earlier.get(name, ()), *own.get(name, ())) for name in names}

    def operations(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """The operations that are announced for these nodes, or for all."""
        announced = self.announced
        chosen = announced if names is None else names
        return tuple(intent.operation_id for name in chosen for intent in announced.get(name, ()))

    def origins(self, changes: Sequence[Change]) -> tuple[Origin, ...]:
        """The origins that an entry with these changes records; a ledger folder has none.

        Those of the other parts of the plan are among them: their authors are asked for after this entry.
        """
        governance = self.session.workspace.governance
        if governance is None:
            return ()
        named = {change.address for change in changes}
        others = (change for change in self.whole.changes if change.address not in named)
        gated = {gate.resource for gate in self.whole.approvals_required}
        return origins_of(governance, (*changes, *others), gated)

    def announce(self) -> None:
        """Write the events of the changeset, and before the first side effect the intents: one entry. Raises GitopsError."""
        if not self.intents:
            self.record()
            return
        granted = [need for need in self.plan.approvals_required if need.satisfied and need.resource in self.intents]
        entry = self._entry(
            EntryKind.INTENT,
            changes=tuple(change for change in self.plan.changes if change.address in self.intents),
            approvals=self.accepted.uses_of(approval for need in granted for approval in need.spent),
        )
        ledger, intents = self.session.opened.ledger, tuple(self.intents.values())
        self.session.view = ledger.begin(self.session.view, intents, entry, self.journal.drafts)
        self.journal.written()

    def record(self, retire: Sequence[str] = (), state: LedgerState | None = None) -> None:
        """Write the events of the changeset, with what else `_write_events` does. Raises GitopsError."""
        entry = self._entry(EntryKind.CHANGESET, state=state)
        _write_events(self.session, self.journal, entry, retire, state)

    @cached_property
    def _waiting_origins(self) -> tuple[Origin, ...]:
        """The origins of what is not applied yet: later entries have to name authors of commits after this one alone.

        A change of this run may fail, so none counts as applied before the entry that says so.
        """
        return self.origins([replace(change, disposition=Disposition.BLOCKED) for change in self.whole.changes])

    def _entry(
        self,
        kind: EntryKind,
        *,
        changes: tuple[Change, ...] = (),
        approvals: tuple[ApprovalUse, ...] = (),
        state: LedgerState | None = None,
    ) -> LedgerEntry | None:
        """An entry that leaves the applied revision as it is; `state` is what it writes, if it writes one."""
        return make_entry(
            self.session,
            kind,
            state=state,
            operation=self.operation,
            plan_digest=self.plan.digest,
            config_digest=self.plan.config_digest,
            changes=changes,
            origins=self._waiting_origins,
            approvals=approvals,
        )


def write_events(
    current: Session, journal: Journal, retire: Sequence[str] = (), state: LedgerState | None = None
) -> None:
    """Write the events of a changeset of an earlier run, with what else `_write_events` does. Raises GitopsError."""
    entry = make_entry(current, EntryKind.CHANGESET, state=state, config_digest=journal.record.desired_digest)
    _write_events(current, journal, entry, retire, state)


def _write_events(
    current: Session,
    journal: Journal,
    entry: LedgerEntry | None,
    retire: Sequence[str],
    state: LedgerState | None,
) -> None:
    """Write events, remove sidecars, and record a `state` with what was seen of graphs. Raises GitopsError."""
    ledger = current.opened.ledger
    if state is None or state == current.state:
        current.view = ledger.begin(current.view, (), entry, journal.drafts, retire)
    else:
        current.view = ledger.commit(current.view, LedgerWrite(state, entry, tuple(retire), events=journal.drafts))
    journal.written()
