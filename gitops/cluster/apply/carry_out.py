"""Runs the nodes of an execution graph on the provider, in order and under locks, and records the results.

A run is atomic or best-effort. A dry run uses the same graph, without any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.apply.hosts import HostNodes, host_count, is_on_host
from gitops.cluster.apply.land import prepare_write, settle_run, settled_intents
from gitops.cluster.apply.projection import check_target
from gitops.cluster.apply.provider import ClusterProvider
from gitops.cluster.apply.recover import end_rolled_back, keep, settled, take_back
from gitops.cluster.apply.run import Run
from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.apply.serving import drain
from gitops.cluster.apply.settle import Settlement, with_seen
from gitops.cluster.changesets.runs import RunLog
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change, Disposition, Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    INTERRUPTED,
    ChangesetState,
    Committed,
    Drained,
    Happening,
    Orphan,
    Removed,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import BARRIER_KIND, TARGET, ExecNode, NodeOutcome, NodeResult, first_failure, to_all
from gitops.cluster.plan.changeset import (
    add_failure,
    add_landing,
    approvals_consumed,
    failure_text,
    finalized,
    member_events,
    prepared,
    rolling_back,
)
from gitops.cluster.plan.classes import COMMITTED, DRAINED, FINALIZED, PREPARED
from gitops.cluster.plan.layers import restricted
from gitops.cluster.plan.leftovers import Interrupted, read_now, steps_left
from gitops.cluster.plan.probe import was_restored
from gitops.cluster.session.gate import accept_approvals
from gitops.cluster.session.workspace import CRASHED, DISARMED, Drain
from gitops.core.cancel import CancelledError
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import BugError, ConflictError, GitopsError, RemoteError


def carry_out(
    run: Run,
    *,
    act: Callable[[ExecNode, Change | None], NodeResult] | None = None,
    results: dict[str, NodeResult] | None = None,
    at_barrier: Callable[[ExecNode], NodeResult] | None = None,
    armed: Collection[str] = (),
    sound: NodeOutcome = NodeOutcome.UNCHANGED,
) -> tuple[NodeResult, ...]:
    """Run an execution graph. Return one result per node, in plan order.

    `act` executes a node, by default with the provider or on a host; steps between changes of a host have no change.
    `results` receives the result of each node when it has ended. `at_barrier` handles barriers for `run_graph`. `armed` are
    operations whose intents are already durable, and `sound` is the outcome of a target check that finds no problem.
    """
    current, workspace = run.session, run.session.workspace
    act = act or _nodes_of(run, armed)
    changes = {change.address: change for change in run.plan.changes}
    crashed: list[str] = []

    def execute(node: ExecNode) -> NodeResult:
        if node.id in run.done:
            result = NodeResult(node.id, NodeOutcome.UNCHANGED, facts=dict(run.done[node.id]))
        elif node.kind == TARGET:
            result = check_target(current, node, sound=sound, atomic=run.atomic)
        else:
            result = act(node, changes.get(node.address))
        if result.facts.get(CRASHED):
            crashed.append(node.id)
        if results is not None:
            results[node.id] = result
        return result

    log, fail_fast = RunLog(), workspace.fail_fast or run.atomic
    workers = workspace.workers or max(current.opened.workers, host_count(run))
    run.journal.run = log.record
    return run_graph(
        run.graph,
        execute,
        clock=workspace.clock,
        limits=RunLimits(
            workers,
            fail_fast,
            workspace.cancel,
            lambda: bool(crashed),
            workspace.time_limit,
            keep_going=workspace.keep_going,
        ),
        at_barrier=at_barrier,
        on_event=to_all(log, workspace.on_event),
        recoveries={name: intent.operation_id for name, intent in run.intents.items()},
        facts={"plan_digest": run.plan.digest, "direction": "up"},
    )


def _nodes_of(run: Run, armed: Collection[str]) -> Callable[[ExecNode, Change | None], NodeResult]:
    provider, hosts = ClusterProvider(run.session, run.intents, armed), HostNodes(run)

    def act(node: ExecNode, change: Change | None) -> NodeResult:
        if is_on_host(node):
            return hosts.act(node, change)
        if change is None:
            raise BugError(f"the node {node.id} has no change")
        return provider.apply(node, change)

    return act


@dataclass(frozen=True, slots=True)
class Ended:
    """A run's settlement (None if there is none) and the results of its nodes.

    `settles` means that the settlement counts, because the run reached its write. `written` means that the state was
    written, `reached` that the run was completed, and `converged` that the applied state then matches the declared one.
    """

    settled: Settlement | None
    results: tuple[NodeResult, ...]
    settles: bool = False
    written: bool = False
    reached: bool = False
    converged: bool = False


# -- Atomic runs -------------------------------------------------------------------------------------------------------
#
# The barriers of an atomic run are the writes to the ledger:
#
# 1. `prepared`: all staged changes are done. The gates are verified again, and the boundary is recorded before a pivot.
# 2. `committed`: one compare-and-swap moves the applied state. Deleted resources leave it, but their data is kept.
# 3. `drained`: no server reads the resources that left the applied state.
# 4. `finalized`: the data of these resources is deleted.
#
# A failure before the commit rolls back the staged changes. A pivot cannot be rolled back: once it is done, or may be
# done, the run can only go forward, if necessary in the next run. After the commit, there is no rollback either, and
# every later run retries the remaining work.


_ATTEMPTS = 5
_LOST = (Code.STATE_CAS_MISMATCH, Code.CHANGESET_STATE_INVALID)
"""Another writer was first.

In a folder, if a person abandoned the changeset, its events no longer follow each other.
"""


def run_atomic(run: Run) -> Ended:
    """Run the execution graph of an atomic run. Its changeset must already exist."""
    barriers = _Barriers(run)
    finishing = (run.intents.get(node.id) for node in run.graph.nodes if node.effect is Effect.FINISH)
    armed = {intent.operation_id for intent in finishing if intent is not None}
    results = carry_out(run, results=barriers.results, at_barrier=barriers.reach, armed=armed)
    problems, state = run.session.problems, run.journal.record.state
    if barriers.settled is not None:
        problems.extend(barriers.settled.diagnostics)
    if any(result.facts.get(CRASHED) for result in results):
        return Ended(barriers.settled, results)
    finished = state is ChangesetState.FINALIZED
    for result in () if finished else results:
        problems.extend(result.diagnostics)
    if state in BLOCKING:
        if not barriers.unsure:
            _roll_back(run, results)
        return Ended(None, results)
    if not finished:
        _record_unfinished(run, results)
    converged = finished and barriers.settled is not None and barriers.settled.converged
    return Ended(barriers.settled, results, settles=True, written=True, reached=finished, converged=converged)


def _work(run: Run) -> list[ExecNode]:
    return [node for node in run.graph.nodes if node.kind != BARRIER_KIND]


class _Barriers:
    """Performs the four barriers, in the coordinating thread while no node runs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._by_phase = {effect: [n for n in _work(run) if n.phase is effect] for effect in Effect}
        self.results: dict[str, NodeResult] = {}
        self.settled: Settlement | None = None
        self.unsure = False

    def reach(self, node: ExecNode) -> NodeResult:
        """Pass one barrier. Any obstacle is a failure of the barrier."""
        work: Mapping[str, Callable[[], None]] = {
            PREPARED: self._prepare,
            COMMITTED: self._commit,
            DRAINED: self._drain,
            FINALIZED: self._finalize,
        }
        problems = Diagnostics()
        try:
            work[node.id]()
        except GitopsError as error:
            problems.add(error.code, error.path or node.id, error.detail, fix=error.fix)
            return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))
        except CancelledError:
            key = self._run.journal.record.key
            detail = "it is committed, and what left the cluster is not deleted yet; the next apply does that"
            problems.add(Code.CLUSTER_RECOVERY_PENDING, key, detail)
            return NodeResult(node.id, NodeOutcome.CANCELLED, tuple(problems))
        return NodeResult(node.id, NodeOutcome.DONE)

    def _events(self, *effects: Effect, canonical: bool = False) -> tuple[Happening, ...]:
        at, nodes = self._run.session.workspace.stamp(), [n for n in _work(self._run) if n.effect in effects]
        results: dict[str, NodeResult] = {
            node.address: self.results[node.id] for node in nodes if node.id in self.results
        }
        return member_events(self._run.journal.record, results, effects, at=at, canonical=canonical)

    def _prepare(self) -> None:
        run, journal = self._run, self._run.journal
        journal.add(*self._events(Effect.STAGE))
        _require_gates(run)
        if journal.record.state is ChangesetState.PREPARING:
            journal.add(prepared(journal.record))
        if self._by_phase[Effect.PIVOT]:
            run.record()

    def _commit(self) -> None:
        run, current = self._run, self._run.session
        run.journal.add(*self._events(Effect.STAGE, Effect.PIVOT))
        for node in self._by_phase[Effect.FINISH]:
            if node.id in run.intents:
                current.opened.ledger.arm(run.intents[node.id])
        current.workspace.faults.reach("changeset.commit.before_write")
        for attempt in range(_ATTEMPTS):
            try:
                self._write_commit()
                break
            except ConflictError as error:
                if attempt + 1 == _ATTEMPTS or not self._may_repeat(error):
                    raise
            except RemoteError:
                # It is unknown whether the ledger contains the write. The next run finds out. Until then, nothing is
                # rolled back.
                self.unsure = True
                raise
        current.workspace.faults.reach("changeset.commit.after_write")

    def _write_commit(self) -> None:
        """Settle on top of the current ledger, and write. After a GitopsError, the journal is unchanged."""
        run, current = self._run, self._run.session
        journal, finishing = run.journal, self._by_phase[Effect.FINISH]
        # With the commit, everything is as declared, even what is finished only afterwards.
        results = (*self.results.values(), *(NodeResult(node.id, NodeOutcome.DONE) for node in finishing))
        self.settled = settled = settle_run(run, results)
        write = prepare_write(run, settled)
        before = journal.mark()
        landed = sorted(c.address for c in settled.changes if c.disposition is Disposition.APPLIED)
        consumed = {approval.approval_id for approval in settled.consumed}
        journal.add(
            Committed(write.state.revision, current.state.revision, tuple(landed), settled.converged),
            *approvals_consumed(run.plan.approvals_required, consumed),
        )
        if not (current.workspace.drain_grace and finishing):
            self._add_drained(drain(current, journal.record, destroys=False))
        if not finishing:
            self._add_finalized(write.state.revision, converged=settled.converged)
        try:
            # Keep the intents of work that finishes after the commit.
            write.write(run, settled_intents(run, self.results.values()))
        except GitopsError:
            journal.back_to(before)
            raise

    def _may_repeat(self, error: ConflictError) -> bool:
        """Return True if the winner of a lost race left the applied state as this changeset found it.

        The run can then continue. Raises ConflictError `state_conflict` if the applied state has moved or the changeset
        has ended.
        """
        run, current, ledger = self._run, self._run.session, self._run.session.opened.ledger
        journal, mine = run.journal, run.journal.record
        if error.code not in _LOST:
            return False
        view, stored = ledger.view(), ledger.changeset(mine.key)
        if view.state is None or stored is None:
            return False
        untouched = run.swept.state == current.state
        current.view = view
        if stored.state not in (ChangesetState.PREPARING, ChangesetState.PREPARED):
            journal.adopt(stored)
            raise ConflictError(
                Code.STATE_CONFLICT, stored.error or "the changeset was ended during the run", path=mine.key
            )
        if view.state.applied_digest != mine.base.applied_digest:
            detail = "another writer changed the applied state; its change stays, and this changeset is rolled back"
            raise ConflictError(Code.STATE_CONFLICT, detail, path=mine.key)
        if untouched:
            run.swept = replace(run.swept, state=view.state)
        # This would have to determine recovery's state changes again, so the next run does it.
        return untouched

    def _drain(self) -> None:
        record = self._run.journal.record
        if record.state is ChangesetState.COMMITTED:
            self._add_drained(drain(self._run.session, record, destroys=bool(self._by_phase[Effect.FINISH])))

    def _add_drained(self, drain: Drain) -> None:
        """Record resources without their own data as removed once no server reads them."""
        journal = self._run.journal
        journal.add(Drained(drain.waited_ms, drain.evidence))
        deletes = {node.id for node in self._by_phase[Effect.FINISH] if node.action is Action.DELETE}
        journal.add(*(Removed(each.address) for each in journal.record.removals if each.address not in deletes))

    def _finalize(self) -> None:
        run, journal = self._run, self._run.journal
        if journal.record.state is ChangesetState.FINALIZED:
            return
        if self.settled is None:
            raise BugError("an atomic run that finishes what it has not committed")
        before = journal.mark()
        journal.add(*self._events(Effect.FINISH, canonical=True))
        done = self._by_phase[Effect.FINISH]
        journal.add(*(Removed(Address(node.id)) for node in done if node.action is Action.DELETE))
        self._add_finalized(run.session.state.revision, converged=self.settled.converged)
        retire = settled(run.session, (intent for node in done for intent in run.announced.get(node.id, ())))
        try:
            run.record(retire, _with_finished(run, self.results))
        except GitopsError:
            journal.back_to(before)
            raise

    def _add_finalized(self, revision: int, *, converged: bool) -> None:
        journal, at = self._run.journal, self._run.session.workspace.stamp()
        journal.add(finalized(journal.record, state_revision=revision, converged=converged, at=at))


def _with_finished(run: Run, results: Mapping[str, NodeResult]) -> LedgerState:
    """Return the state with the observations of graphs after their drops; the commit recorded them before the drops."""
    current, finishing = run.session, (node for node in run.graph.nodes if node.effect is Effect.FINISH)
    facts = {node.address: results[node.id].facts for node in finishing if results[node.id].outcome.succeeded}
    return with_seen(current.state, current.desired, facts, at=current.workspace.stamp())


def _require_gates(run: Run) -> None:
    """Verify the approvals of changes that are about to be repeated, because one may have been revoked or expired.

    Raises GitopsError.
    """
    current, needs = run.session, [need for need in run.plan.approvals_required if need.satisfied]
    if not needs:
        return
    accepted = accept_approvals(
        current.opened.ledger,
        changes=run.plan.changes,
        desired=current.desired,
        view=current.view,
        state=run.swept.state,
        at=current.view.time(current.workspace.clock.now()),
        governance=current.workspace.governance,
        problems=Diagnostics(),
    )
    good = {approval.approval_id for approval in (*accepted.approvals, *accepted.further)}
    for need in needs:
        for approval in need.approvals:
            if approval.approval_id not in good:
                detail = f"approval {approval.approval_id} by {approval.approved_by} no longer counts"
                raise GitopsError(Code.APPROVAL_STALE, detail, path=need.resource)


def _roll_back(run: Run, results: Sequence[NodeResult]) -> None:
    """Record the error, roll back the staged changes, and end the changeset. The next run retries the failed change."""
    current, journal = run.session, run.journal
    try:
        if _pivot_may_be_done(run, results):
            detail = (
                f"changeset {journal.record.key} made a change that cannot be rolled back; the next apply continues it"
            )
            raise ConflictError(Code.CLUSTER_RECOVERY_PENDING, detail, path=journal.record.key)
        first = first_failure(results)
        error = INTERRUPTED if first is None else failure_text(first)
        by_node = {result.node_id: result for result in results}
        # If a person abandoned the changeset, it is rolled back.
        keeps = current.workspace.keeps_staged and journal.record.state is not ChangesetState.ROLLING_BACK
        if journal.record.state is not ChangesetState.ROLLING_BACK:
            journal.add(
                *member_events(journal.record, by_node, (Effect.STAGE, Effect.PIVOT), at=current.workspace.stamp())
            )
            where = None if first is None else first.node_id
            journal.add(rolling_back(journal.record, error, where, "keep" if keeps else "rollback"))
        begun = {r.node_id: r.facts.get("manifest_version") for r in results if r.outcome.failed or r.outcome.succeeded}
        found = Interrupted(journal.record, run.announced)
        staged = restricted(run.graph, begun.keys() & steps_left(found.record))
        left: tuple[Orphan, ...] = ()
        if keeps:
            left = keep(current, found, begun)
        elif staged.nodes:
            run.record()
            left = take_back(current, found, staged, run.swept.fence, begun)
        end_rolled_back(current, journal, left)
        run.record(run.operations())
    except GitopsError as problem:
        current.problems.add_error(problem)


def _pivot_may_be_done(run: Run, results: Sequence[NodeResult]) -> bool:
    """Return True if a pivot was or may have been applied. Raises GitopsError if its graph cannot be read."""
    members = {m.address: m for m in run.journal.record.members if m.effect is Effect.PIVOT}
    for result in results:
        member = members.get(Address(result.node_id))
        if member is None or not (result.outcome.failed or result.outcome.succeeded):
            continue
        if result.outcome.succeeded:
            return True
        reading = read_now(run.session, member.address.name)
        if reading is None or result.facts.get(DISARMED):
            continue
        if member.address.kind is Kind.RESTORE:
            announced = run.announced.get(result.node_id, ())
            done = any(was_restored(run.session.opened, intent) is not False for intent in announced)
        else:
            done = digest(reading.schema_source) != member.before
        if done:
            return True
    return False


def _record_unfinished(run: Run, results: Sequence[NodeResult]) -> None:
    """Record the work that could not be finished after the commit. Every later run tries it again."""
    journal, at = run.journal, run.session.workspace.stamp()
    by_node = {result.node_id: result for result in results}
    try:
        ended = {node: by_node[node.id] for node in run.graph.nodes if node.effect is Effect.FINISH}
        done: dict[str, NodeResult] = {n.address: result for n, result in ended.items() if result.outcome.succeeded}
        journal.add(*member_events(journal.record, done, (Effect.FINISH,), at=at, canonical=True))
        journal.add(*(Removed(each.address) for each in journal.record.removals if each.address in done))
        for node, result in ended.items():
            if result.outcome.failed:
                failed = Runtime(RuntimeState.FAILED, updated_at=at, error=failure_text(result))
                journal.add(RuntimeUpdated(node.address, failed))
        retire = settled(
            run.session, (each for result in done.values() for each in run.announced.get(result.node_id, ()))
        )
        if journal.drafts or retire:
            run.record(retire, _with_finished(run, by_node))
    except GitopsError as problem:
        run.session.problems.add_error(problem)


# -- Best-effort runs: failed changes, and changes that need them, are not applied; everything else is recorded --------
#
# The changeset of a best-effort run needs no separate write. It is created with the intents, or with the result, and
# passes all its boundaries in the write that records the result. If nothing landed, it failed.


_NO_WAIT = "not waited for: the run lands what it can"


def run_best_effort(run: Run) -> Ended:
    """Run the execution graph, settle and write. An injected fault can end the run like a crash."""
    current, workspace = run.session, run.session.workspace
    results = carry_out(run)
    settled = settle_run(run, results)
    current.problems.extend(settled.diagnostics)
    crashed = any(result.facts.get(CRASHED) for result in results)
    if settled.publishable:
        try:
            workspace.faults.reach("cluster_apply.after_payload_phase")
        except GitopsError as error:
            current.problems.add_error(error)
            crashed = True
    if crashed:
        return Ended(settled, results)
    try:
        if not settled.publishable:
            if run.journal.recorded:
                _fail(run, results)
                run.record()
            return Ended(settled, results)
        write = prepare_write(run, settled)
        _record(run, results, settled, write.state.revision)
        write.write(run, settled_intents(run, results))
    except GitopsError as error:
        current.problems.add_error(error)
        return Ended(settled, results, settles=True, converged=settled.converged and settled.state == current.state)
    return Ended(settled, results, settles=True, written=write.changed, reached=True, converged=settled.converged)


def _record(run: Run, results: Sequence[NodeResult], settled: Settlement, revision: int) -> None:
    """Add the events of the result to the changeset."""
    if not run.journal.created:
        return
    landed = {c.address: c for c in settled.changes if c.disposition is Disposition.APPLIED}
    if not landed:
        _fail(run, results)
        return
    consumed = {approval.approval_id for approval in settled.consumed}
    add_landing(
        run.journal,
        {result.node_id: _as_settled(result, landed) for result in results},
        Committed(revision, run.session.state.revision, tuple(sorted(landed)), settled.converged),
        evidence=_NO_WAIT,
        at=run.session.workspace.stamp(),
        consumed=approvals_consumed(run.plan.approvals_required, consumed),
        removed=[address for address, change in landed.items() if change.action is Action.DELETE],
    )


def _as_settled(result: NodeResult, landed: Mapping[Address, object]) -> NodeResult:
    """Return the settled result of a node.

    It is not applied if the node succeeded but another part of its change failed.
    """
    done = result.outcome.succeeded
    return replace(result, outcome=NodeOutcome.SKIPPED) if done and Address(result.node_id) not in landed else result


def _fail(run: Run, results: Sequence[NodeResult]) -> None:
    """Add the event that the changeset failed. Its error is the first failure in plan order."""
    failed = {r.node_id: r for r in results if r.outcome.failed}
    errors = [d for d in run.session.problems if d.severity is Severity.ERROR]
    messages = [*map(failure_text, failed.values()), *(error.message for error in errors)]
    members = {member.address for member in run.journal.record.members}
    where, at = next((name for name in failed if name in members), None), run.session.workspace.stamp()
    add_failure(run.journal, failed, next(iter(messages), "nothing of it was applied"), where, at=at)
