"""Prepares a merge while earlier merges are being applied.

Merges are applied in the order of their branch, and only preparing them takes long: creating graphs, and migrations that can
be rolled back. This module does only that. Everything else is the usual apply, when it is the merge's turn:

1. Under the lock, the merge is planned against the state that will be left by the merges before it, provided that all of
   them are applied completely. It must be disjoint from each of them: see `gitops.cluster.plan.beside`.
2. Its changeset is created beside theirs, and the intents of its staged graph changes are announced, in one write. The entry
   applies nothing, so it repeats the source of the last one.
3. A thread makes the staged graph changes. It writes nothing to the ledger.
4. In its turn, an apply finds the open changeset, as if an interrupted run had left it. If its plan still makes the same
   changes from the same state, it continues the changeset: changes that are already made are not repeated. Otherwise it
   rolls the changeset back and applies the merge like any other.

So nothing depends on this process: if it dies, the next run finds open changesets and decides by the same rule. The caller
keeps the lock from the first such merge to the last, so that no other run decides meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from gitops.cluster.apply.apply import Part, make_run, may_apply, may_begin, plan_from, report
from gitops.cluster.apply.carry_out import carry_out
from gitops.cluster.apply.entries import Facts, make_entry
from gitops.cluster.apply.recover import next_fence
from gitops.cluster.apply.run import Run, begins_at, identify
from gitops.cluster.apply.settle import settle
from gitops.cluster.model.changeset import Changeset, ChangesetKind, Created
from gitops.cluster.model.ledger import EntryKind, Intent, LedgerState
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import ExecutionGraph, NodeOutcome, NodeResult
from gitops.cluster.plan.beside import Footprint, footprint_of, stands_alone
from gitops.cluster.plan.changeset import first_record
from gitops.cluster.plan.layers import neighbours, restricted
from gitops.cluster.plan.leftovers import facts_of
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.session.session import Session, StateNeed, writing
from gitops.cluster.session.workspace import Workspace
from gitops.core.cancel import CancelledError
from gitops.core.errors import GitopsError


class PreparedMerge:
    """A merge that is being prepared: its open changeset `record`, its footprint, and the state that it will leave, as predicted.

    `operations` are the ids of its announced operations.
    """

    def __init__(self, run: Run, record: Changeset, footprint: Footprint, after: LedgerState) -> None:
        """Start to make the changes of the run. Call it once its intents are announced."""
        self.record, self.footprint, self.after = record, footprint, after
        self.operations = frozenset(run.operations())
        self._run = run
        self._failure: BaseException | None = None
        self._work = ExitStack()
        # Until the caller waits for its end, a signal must not abort the run.
        self._work.enter_context(run.session.workspace.cancel.work())
        # Work that a run does not wait for must not keep the process alive.
        self._thread = threading.Thread(target=self._prepare, name="prepare", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most `seconds` until everything is prepared or has failed. Return False if the time ran out.

        A change that failed is tried again in the turn of the merge. Raises what ended the work unexpectedly, once.
        """
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        self._work.close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    def _prepare(self) -> None:
        try:
            carry_out(self._run)
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that waits
            self._failure = failure


def prepare_merge(workspace: Workspace, earlier: Sequence[PreparedMerge]) -> PreparedMerge | None:
    """Start to prepare a merge beside `earlier` merges that are prepared but not applied yet, oldest first.

    `workspace` is atomic, has the facts about its changeset, and a lock to keep. Return None if the merge has to wait for
    its turn: nothing is written then. The first merge is prepared only if that takes time.
    """
    found: list[PreparedMerge] = []

    def body(current: Session) -> ApplyOutcome:
        try:
            if (made := _prepare(current, earlier)) is not None:
                found.append(made)
        except (GitopsError, CancelledError):
            # Whatever it is, the apply of the merge finds it again, and reports it.
            found.clear()
        return report(current)

    writing(workspace, "apply", StateNeed.REQUIRED, body)
    return found[0] if found else None


def _prepare(current: Session, earlier: Sequence[PreparedMerge]) -> PreparedMerge | None:
    """Perform steps 1 to 3. Raises GitopsError, CancelledError."""
    if not (current.ready and _stands_as_expected(current, earlier) and may_apply(current)):
        return None
    state = earlier[-1].after if earlier else current.state
    swept = Sweep(state, fence=next_fence(current.view, current.opened.ledger.intents().intents))
    planned = plan_from(current, swept)
    plan, graphs = planned.whole, {address.graph for each in earlier for address in each.record.addresses}
    if not plan.changes or stands_alone(plan) or not may_begin(current, planned, [g for g in graphs if g is not None]):
        return None
    footprint = footprint_of(plan, current.desired, state)
    if any(footprint.shared(each.footprint) is not None for each in earlier):
        return None
    run, part = make_run(current, planned, Part(), None)
    done = [NodeResult(node.id, NodeOutcome.DONE) for node in plan.graph.nodes]
    after = settle(plan, current.desired, state, done, at=current.workspace.stamp(), actor=current.workspace.actor)
    record = _first_record(run, part, state, earlier)
    ahead = _ahead(run)
    if record is None or not after.converged or not (ahead.nodes or earlier):
        return None
    intents = {node.id: run.intents[node.id] for node in ahead.nodes}
    run.journal.add(Created(record))
    _announce(run, tuple(intents.values()))
    if current.workspace.lock is not None:
        current.workspace.lock.keep = True
    workspace = replace(current.workspace, on_event=None)
    session = replace(current, workspace=workspace)
    return PreparedMerge(replace(run, session=session, graph=ahead, intents=intents), record, footprint, after.state)


def _stands_as_expected(current: Session, earlier: Sequence[PreparedMerge]) -> bool:
    """Return True if exactly the earlier merges are in progress, from the current state. An apply settles anything else."""
    ledger, state, entry = current.opened.ledger, current.state, current.view.entry
    if current.lock_id is None or state.debts or (current.workspace.governance is not None and entry is None):
        return False
    if entry is not None and (entry.source is None or entry.former is not None):
        return False
    changesets, intents = ledger.changesets(), ledger.intents()
    if changesets.problem or intents.problem or intents.unreadable:
        return False
    known = frozenset[str]().union(*(each.operations for each in earlier))
    if [each.key for each in changesets.open] != [each.record.key for each in earlier]:
        return False
    if not earlier:
        return not intents.intents
    return earlier[0].record.base.applied_digest == state.applied_digest and all(
        intent.operation_id in known for intent in intents.intents
    )


def _first_record(run: Run, part: Part, state: LedgerState, earlier: Sequence[PreparedMerge]) -> Changeset | None:
    """Return the record of the changeset, or None if it would not be the first attempt to apply its merge."""
    current, facts, (cluster, base) = run.session, facts_of(run.session), begins_at(run.session)
    identity = identify(run, facts, cluster, part.label)
    if identity.kind is not ChangesetKind.MERGE or identity.attempt != 1:
        return None
    record = first_record(
        identity,
        run.plan,
        run.graph,
        source=facts.source,
        # The applied state in its turn, if all goes well.
        base=replace(base, applied_digest=state.applied_digest, config_digest=state.config_digest),
        covers=facts.covers,
        at=current.workspace.stamp(),
        atomic=True,
    )
    return replace(record, beside=tuple(each.record.key for each in earlier))


def _ahead(run: Run) -> ExecutionGraph:
    """Return the part of a run's graph that is made ahead: changes of graphs for which nothing else has to happen first.

    Everything that cannot be rolled back comes after a barrier, and so does everything that needs it.
    """
    before = neighbours(run.graph)[1]
    chosen: set[str] = set()
    for node in sorted(run.graph.nodes, key=lambda each: each.position):
        if node.id in run.intents and chosen.issuperset(before[node.id]):
            chosen.add(node.id)
    return restricted(run.graph, chosen)


def _announce(run: Run, intents: tuple[Intent, ...]) -> None:
    """Perform step 2. Raises GitopsError."""
    current, kind = run.session, EntryKind.INTENT if intents else EntryKind.CHANGESET
    entry = make_entry(current, kind, Facts(run.operation, run.plan.digest, ahead=True))
    current.view = current.opened.ledger.begin(current.view, intents, entry, run.journal.drafts)
    run.journal.written()
