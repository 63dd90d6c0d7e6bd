"""Writes the applied state: a run's settled results, with its changeset's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gitops.cluster.apply.entries import make_entry
from gitops.cluster.apply.run import Run
from gitops.cluster.apply.settle import Settlement, settle
from gitops.cluster.approvals.decisions import with_debts
from gitops.cluster.config.sound import sound_record
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.ledger import EntryKind, LedgerEntry, LedgerState, Origin
from gitops.cluster.model.plan import NodeResult
from gitops.cluster.session.workspace import DISARMED, Governance
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A prepared write. `changed` is True if the state or the entry would change."""

    settled: Settlement
    state: LedgerState
    changed: bool
    origins: tuple[Origin, ...]
    recovered: tuple[Approval, ...]

    def write(self, run: Run, retire: Iterable[str]) -> None:
        """Write the result with the journal's events. Raises GitopsError."""
        current, settled, ledger = run.session, self.settled, run.session.opened.ledger
        workspace, governance, retired = current.workspace, current.workspace.governance, tuple(retire)
        facts = replace(
            run.facts,
            changes=settled.changes,
            approvals=run.accepted.uses_of(settled.consumed),
            recovered=run.swept.retire,
            origins=self.origins,
            trust_applied=settled.trust_applied,
            debts=run.debts,
        )
        entry = make_entry(current, EntryKind.APPLY, facts, self.state)
        workspace.faults.reach("cluster_apply.before_state_write")
        drafts = run.journal.drafts
        if self.changed:
            enters_force = governance is not None and (current.view.trust is None or settled.trust_applied)
            trust = governance.trust_files if governance is not None and enters_force else None
            consumed = (*settled.consumed, *self.recovered)
            # The graphs that later runs need not read again. None if this program's compiler is unknown.
            vouched, loaded, digests = workspace.vouched, current.loaded, self.state.digests()
            sound = None if vouched is None else sound_record(vouched, loaded.sound, loaded.digests(), digests)
            write = LedgerWrite(self.state, entry, retired, consumed, trust, sound, drafts)
            current.view = ledger.commit(current.view, write)
        elif retired or drafts:
            current.view = ledger.retire(current.view, retired, entry, drafts)
        run.journal.written()


def settle_run(run: Run, results: Iterable[NodeResult]) -> Settlement:
    """Settle a run's results. The debts of its emergencies become part of the run."""
    workspace = run.session.workspace
    at, actor = workspace.stamp(), workspace.actor
    settled = settle(run.plan, run.session.desired, run.swept.state, results, at=at, actor=actor)
    opened = tuple(run.accepted.debts[a.approval_id] for a in settled.consumed if a.approval_id in run.accepted.debts)
    run.debts = (*run.debts, *(debt for debt in opened if debt not in run.debts))
    return replace(settled, state=with_debts(settled.state, opened))


def prepare_write(run: Run, settled: Settlement) -> StateWrite:
    """Prepare to write a settlement on top of the ledger that the run read. Raises GitopsError."""
    current, governance = run.session, run.session.workspace.governance
    origins = run.origins(settled.changes)
    changed = settled.state != current.state or settled.trust_applied
    changed |= governance is not None and _moves_on(governance, current.view.entry, settled, origins)
    # According to recovery, an interrupted delete used these. In a folder, their documents may not be marked yet.
    swept = () if not run.swept.consumed else current.opened.ledger.approvals().documents
    recovered = tuple(a for a in swept if a.approval_id in run.swept.consumed)
    changed |= any(a.consumed_at is None for a in recovered)
    state = replace(settled.state, revision=current.state.next_revision) if changed else current.state
    return StateWrite(settled, state, changed, origins, recovered)


def settled_intents(run: Run, results: Iterable[NodeResult]) -> tuple[str, ...]:
    """Return the operations whose result is certain: done, never started, or without effect. Recovery settles the others."""
    retire = list(run.swept.retire)
    for result in results:
        if not result.outcome.failed or result.facts.get(DISARMED):
            retire += run.operations([result.node_id])
    return tuple(retire)


def _moves_on(
    governance: Governance, last: LedgerEntry | None, settled: Settlement, origins: tuple[Origin, ...]
) -> bool:
    """Return True if an entry without a state change records something: origins of waiting changes, or a new source."""
    if last is None or last.source is None:
        return True
    # Only entries contain origins, even of changes that are not in the state: which changes wait, and that none wait
    # any longer.
    if (settled.rules_wait or governance.carried) and origins != last.origins:
        return True
    # A change that was made and undone must not affect the authors of a later change. A sweep must not find a file that
    # nothing declares again and again.
    source, earlier = governance.source, last.source
    return source.commit != earlier.commit and (source.tree != earlier.tree or governance.touched())
