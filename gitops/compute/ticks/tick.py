"""A tick: decides which replica changes the applied strategies want now, and makes them.

1. Lock the ledger and read the applied strategies, ignoring the files in the folder. If a different kind of changeset
   is in progress, do nothing.
2. Connect to the targets and lock them. Settle an earlier interrupted tick by writing its missing audit rows.
3. Update each target's rows to match the ledger, read its signals once, and decide for each compute cluster, except
   those that belong to a different cluster folder.
4. If there are no actions, only write the strategy states. Otherwise record the tick's changeset before the first
   statement, execute the graph, write the strategy states, and record the end of the changeset.

An interrupted tick is not resumed. The next tick decides again from the current replicas. This converges, because
completed actions are visible and need not be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from enum import StrEnum
from types import MappingProxyType

from gitops.cluster.apply.projection import reconcile
from gitops.cluster.apply.run import begins_at, write_events
from gitops.cluster.apply.runner import RunLimits, report_interrupt, run_graph
from gitops.cluster.changesets.lifecycle import Journal
from gitops.cluster.changesets.runs import RunLog
from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.load import Loaded
from gitops.cluster.model.change import Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    INTERRUPTED,
    Changeset,
    ChangesetKind,
    ChangesetState,
    Committed,
    Created,
    Failed,
    Orphan,
)
from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.ledger import changeset_key
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.model.plan import NodeOutcome, NodeResult, first_failure, to_all
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.strategy import IdleSuspend, StrategyType
from gitops.cluster.plan.changeset import NOT_TRIED, add_failure, add_landing, failure_text, member_events
from gitops.cluster.plan.strategies import applied_rules, own_names
from gitops.cluster.session.session import Session, StateNeed, looking, writing
from gitops.cluster.session.workspace import OpenTarget, Workspace
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.projection import claimed_message, place_of
from gitops.cluster.targets.signals import StrategyState
from gitops.compute.ticks.graph import (
    OWES,
    ReplicaWork,
    TickAction,
    action_of,
    audit_row,
    has_happened,
    plan_digest,
    tick_graph,
    tick_record,
)
from gitops.compute.ticks.targets import (
    Decided,
    Selection,
    by_target,
    claims_on,
    decide_all,
    lock_targets,
)
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.core.faults import around
from gitops.database.language.suggest import did_you_mean

_MOST_WORKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOutcome(VerbOutcome):
    """The outcome of a tick: its actual or predicted actions in order, and the result of each one that was executed.

    `decided` contains the compute clusters with a decision, each with its target's name first. `skipped` explains why
    the tick was skipped, and `loaded` is whether the cluster folder declares its ledger.
    """

    actions: tuple[TickAction, ...] = ()
    results: tuple[NodeResult, ...] = ()
    decided: tuple[str, ...] = ()
    skipped: str | None = None
    changeset: Changeset | None = None
    dry_run: bool = False
    loaded: bool = True

    @property
    def unreachable(self) -> bool:
        """Return True if all errors come from unresponsive targets."""
        codes = {each.code for each in self.diagnostics if each.severity is Severity.ERROR}
        return codes == {Code.TARGET_UNREACHABLE}


@dataclass(frozen=True, slots=True)
class Ticking:
    """Settings of a tick: how to open a target, the selected compute clusters, and whether a schedule started it."""

    open_target: OpenTarget
    selection: Selection = Selection()
    scheduled: bool = False


def preview(workspace: Workspace, how: Ticking) -> TickOutcome:
    """Return what a tick would do now. Writes nothing to the ledger or a target, and takes no locks."""

    def look(current: Session) -> TickOutcome:
        found: list[Decided] = []
        rules = targets_of(current, how)
        if rules and (why := _interrupted(current)) is not None:
            first = why if isinstance(why, str) else f"an interrupted tick, {why.key}, is settled first"
            current.problems.add(Code.TICK_SKIPPED, "", f"{first}; the decisions shown here come after that")
        for clusters in rules.values():
            try:
                with how.open_target(clusters[0].target) as target:
                    chosen = [each for each in clusters if how.selection.has(each)]
                    claimed = claims_on(target, chosen, own_names(current))
                    found += decide_all(target, chosen, claimed, workspace.clock.now(), current.problems)
            except UsageError:
                raise
            except GitopsError as error:
                current.problems.add_error(error)
        return replace(_outcome(current, found), dry_run=True)

    return looking(workspace, StateNeed.REQUIRED, look, loaded=without_resources(workspace))


def tick(workspace: Workspace, how: Ticking) -> TickOutcome:
    """Decide and act, by the steps in the module docstring."""
    loaded = without_resources(workspace)
    outcome = writing(workspace, "tick", StateNeed.REQUIRED, lambda current: _tick(current, how), loaded=loaded)
    if not how.scheduled:
        return outcome
    # Whoever holds the lock does the work; otherwise the next scheduled run does it.
    return replace(outcome, diagnostics=tuple(map(_as_scheduled, outcome.diagnostics)))


def without_resources(workspace: Workspace) -> Loaded:
    """Return the folder with only the location of its ledger.

    A tick is about applied strategies, not declared ones.
    """
    header, problems = load_header(workspace.tree)
    desired = None if header is None else DesiredState("", {}, (), {}, header.name, header.storage, header.lock)
    return Loaded(desired, header, {}, (), problems)


def _tick(current: Session, how: Ticking) -> TickOutcome:
    rules = targets_of(current, how)
    if not rules:
        return _outcome(current, ())
    interrupted = _interrupted(current)
    if isinstance(interrupted, str):
        detail = f"{interrupted}; the next tick runs after it"
        current.problems.add(Code.TICK_SKIPPED, "", detail)
        return replace(_outcome(current, ()), skipped=detail)
    with ExitStack() as closing:
        problems, workspace = current.problems, current.workspace
        targets = lock_targets(rules, how.open_target, closing, problems, scheduled=how.scheduled)
        found: list[Decided] = []
        try:
            if (died := interrupted or _owed_by(current)) is not None:
                _settle_tick(current, died, targets)
            for name, target in targets.items():
                try:
                    target.create_tables()
                    claimed = reconcile(current, target, name, rules[name]).claimed
                except GitopsError as error:
                    problems.add_error(error)
                    continue
                chosen = [each for each in rules[name] if how.selection.has(each)]
                found += decide_all(target, chosen, claimed, workspace.clock.now(), problems)
            actions = tuple(action for each in found for action in each.actions)
            if not actions:
                _remember(current, found, targets, {})
                return _outcome(current, found)
            with workspace.cancel.work():
                return _carry_out(current, found, targets, actions)
        except GitopsError as error:
            problems.add_error(error)
            return _outcome(current, found)


def _carry_out(
    current: Session, found: Sequence[Decided], targets: Mapping[str, StrategyTarget], actions: tuple[TickAction, ...]
) -> TickOutcome:
    """Perform step 4. Raises GitopsError if the ledger cannot be written."""
    workspace, log = current.workspace, RunLog()
    journal = _create_changeset(current, actions)
    journal.run = log.record
    since = min(each.signals.now for each in found)
    work = ReplicaWork(journal.record.key, actions, targets, workspace.faults, since=since)
    results = run_graph(
        tick_graph(actions),
        work,
        clock=workspace.clock,
        limits=RunLimits(
            workspace.workers or min(_MOST_WORKERS, len(targets)),
            cancel=workspace.cancel,
            time_limit=workspace.time_limit,
        ),
        on_event=to_all(log, workspace.on_event),
        facts={"plan_digest": journal.record.plan.digest, "direction": "up"},
    )
    for result in results:
        current.problems.extend(result.diagnostics)
    report_interrupt(workspace.cancel, results, current.problems)
    ended = {result.node_id: result for result in results}
    _remember(current, found, targets, ended)
    # The next tick must find out what nodes with an unknown outcome did, and write missing audit rows.
    if not any(each.outcome is NodeOutcome.INDETERMINATE or each.facts.get(OWES) for each in results):
        _end_changeset(current, journal, ended)
    return replace(_outcome(current, found), results=results, changeset=journal.record)


def _remember(
    current: Session, found: Sequence[Decided], targets: Mapping[str, StrategyTarget], results: Mapping[str, NodeResult]
) -> None:
    """Write the changed strategy states of each compute cluster."""
    at = current.workspace.clock.now()
    for each in found:
        after = _memory(each, results)
        changed = [state for kind, state in after.items() if each.states.get(kind) != state]
        if not changed:
            continue
        try:
            with around(current.workspace.faults, "tick", "memory"):
                targets[each.rules.target.name].replace_states(each.cluster.cluster_id, changed, at=at)
        except GitopsError as error:
            current.problems.add_error(error)


def _memory(decided: Decided, results: Mapping[str, NodeResult]) -> Mapping[StrategyType, StrategyState]:
    """Return the states after the actions: the decision's states if they succeeded, otherwise the old ones with the failure."""
    ended = [results[action.address] for action in decided.actions if action.address in results]
    if not ended:
        return dict(decided.decision.states)
    failed = next((each for each in ended if not each.outcome.succeeded), None)
    if failed is None:
        return {kind: _with_outcome(decided, state, "applied") for kind, state in decided.decision.states.items()}
    code = next((str(each.code) for each in failed.diagnostics), failed.outcome.value)
    return {
        kind: _with_outcome(
            decided,
            decided.states.get(kind)
            or StrategyState(kind, decided.cluster.name, first_seen=decided.decision.states[kind].first_seen),
            f"failed: {code}",
        )
        for kind in decided.decision.states
    }


def _with_outcome(decided: Decided, state: StrategyState, outcome: str) -> StrategyState:
    """Return a strategy's state, with the outcome if the strategy wanted any of the actions."""
    by = {name for action in decided.actions for name in action.by}
    return replace(state, last_outcome=outcome) if state.strategy.value in by else state


def targets_of(current: Session, how: Ticking) -> Mapping[str, list[ComputeRules]]:
    """Return the applied strategies of all targets that have a selected compute cluster.

    None if they cannot be read.

    Raises UsageError for a selected target without strategies, and for a filter that doesn't match any compute cluster.
    """
    if not current.ready:
        return {}
    try:
        rules = applied_rules(current)
    except GitopsError as error:
        current.problems.add_error(error)
        return {}
    targets, chosen = by_target(rules), how.selection.target
    if chosen is not None and chosen not in targets:
        detail = f"no applied strategy is on a target {chosen}; known: {', '.join(targets) or 'none'}"
        raise UsageError(Code.USAGE_ERROR, detail)
    found = {name: each for name, each in targets.items() if any(map(how.selection.has, each))}
    if how.selection.clusters is not None and not found:
        known = ", ".join(each.key for each in rules) or "none"
        pattern = how.selection.clusters.pattern
        detail = f"the filter {pattern!r} matches no compute cluster with applied strategies; known: {known}"
        raise UsageError(Code.USAGE_ERROR, detail, fix="correct the regular expression, or leave the filter out")
    return found


def _interrupted(current: Session) -> Changeset | str | None:
    """Return the tick that an earlier run left unfinished, or the problem that prevents all ticks."""
    listing = current.opened.ledger.changesets()
    if listing.problem is not None:
        return listing.problem
    active = next((each for each in listing.open if each.state in BLOCKING), None)
    if active is None or active.kind is ChangesetKind.TICK:
        return active
    return f"changeset {active.key} is {active.state}"


def _outcome(current: Session, found: Sequence[Decided]) -> TickOutcome:
    return TickOutcome(
        config_dir=current.workspace.config_dir,
        actions=tuple(action for each in found for action in each.actions),
        decided=tuple(f"{each.rules.target.name}/{each.rules.key}" for each in found),
        loaded=current.loaded.desired is not None,
        diagnostics=tuple(current.problems),
    )


def _as_scheduled(problem: Diagnostic) -> Diagnostic:
    if problem.code is not Code.STATE_LOCK_HELD:
        return problem
    return replace(problem, code=Code.ALREADY_RUNNING, severity=Severity.WARNING)


# -- A tick's changeset in the ledger: creating it, ending it, and settling one that an interrupted run left open ----------


_LOOK_BACK = 20
"""Number of newest changesets among which an interrupted tick is looked for."""
_FOUND = "done; its effect was found by a later tick"
_FIX = "make sure that the target responds, then run the tick again"
_NO_READERS = "replicas are not read from the ledger"


def _create_changeset(current: Session, actions: Sequence[TickAction]) -> Journal:
    """Record a new changeset with these actions before any of them starts. Raises GitopsError."""
    workspace, ledger, (cluster, base) = current.workspace, current.opened.ledger, begins_at(current)
    subject, attempt = f"{current.view.head or current.view.cas} {plan_digest(actions)}", 1
    while ledger.changeset(key := changeset_key(cluster, ChangesetKind.TICK, subject, attempt=attempt)) is not None:
        attempt += 1
    record = tick_record(key, cluster, attempt, actions, base=base, actor=workspace.actor, at=workspace.stamp())
    journal = Journal(workspace.stamp)
    journal.add(Created(record))
    write_events(current, journal)
    return journal


def _end_changeset(current: Session, journal: Journal, results: Mapping[str, NodeResult]) -> None:
    """Record how the changeset ended; it failed if no action was executed. Raises GitopsError.

    The applied state does not change.
    """
    record, at, revision = journal.record, current.workspace.stamp(), current.state.revision
    done = tuple(each.address for each in record.members if results[each.address].outcome.succeeded)
    if record.state is ChangesetState.ROLLING_BACK:
        # A person abandoned it. Replicas are not rolled back, because the next decision starts from the current
        # replicas.
        orphaned = tuple(Orphan(address, "it was done before that") for address in done)
        journal.add(Failed(record.error or INTERRUPTED, orphaned))
    elif not done:
        first = first_failure(results.values())
        error = "the tick was interrupted" if first is None else failure_text(first)
        add_failure(journal, results, error, None if first is None else first.node_id, at=at)
    else:
        # Remove actions that were not attempted before the boundaries are passed.
        untried = {name: result for name, result in results.items() if result.outcome in NOT_TRIED}
        journal.add(*member_events(record, results, {Effect.STAGE}, at=at))
        journal.add(*member_events(record, untried, {Effect.FINISH}, at=at))
        committed = Committed(revision, revision, done, len(done) == len(record.members))
        add_landing(journal, results, committed, evidence=_NO_READERS, at=at)
    write_events(current, journal)


def _owed_by(current: Session) -> Changeset | None:
    """Return the newest tick if it was interrupted and an apply has closed it since.

    Its audit rows may be missing.
    """
    ledger = current.opened.ledger
    for record in map(ledger.changeset, ledger.changeset_keys()[:_LOOK_BACK]):
        if record is not None and record.kind is ChangesetKind.TICK:
            return record if record.state is ChangesetState.FAILED and record.error == INTERRUPTED else None
    return None


def _settle_tick(current: Session, record: Changeset, targets: Mapping[str, StrategyTarget]) -> None:
    """Settle an interrupted tick: determine its effects, write its missing audit rows and record its end.

    Raises ConflictError `cluster_recovery_pending` while one of its targets does not report its replicas, and
    RemoteError.
    """
    results: dict[str, NodeResult] = {}
    done: list[TickAction] = []
    for member in record.members:
        action, problems = action_of(member), Diagnostics()
        target = None if action is None else targets.get(action.target)
        happened = False if action is None else None if target is None else has_happened(target, action)
        if happened is None:
            detail = f"tick {record.key} was interrupted, and what it has done to {member.address} is not known yet"
            raise ConflictError(Code.CLUSTER_RECOVERY_PENDING, detail, path=record.key, fix=_FIX)
        if happened and action is not None and target is not None:
            target.create_tables()
            target.audit(audit_row(record.key, action, executed=True, said=_FOUND))
            done.append(action)
            results[member.address] = NodeResult(member.address, NodeOutcome.DONE)
        else:
            problems.add(Code.APPLY_INTERRUPTED, member.address, "the tick was interrupted before it took effect")
            results[member.address] = NodeResult(member.address, NodeOutcome.FAILED, tuple(problems))
    _begin_cooldowns(current, record, done, targets)
    if record.ended:
        return
    _end_changeset(current, Journal(current.workspace.stamp, record), results)
    detail = f"an interrupted tick is settled: {len(done)} of {len(record.members)} actions had taken effect"
    current.problems.add(Code.CLUSTER_RECOVERY_ROLLED_FORWARD, record.key, detail)


def _begin_cooldowns(
    current: Session, record: Changeset, done: Iterable[TickAction], targets: Mapping[str, StrategyTarget]
) -> None:
    """Start the cooldown of strategies whose actions succeeded, at the time of their tick, unless it is already recorded."""
    decided = parse_timestamp(record.created_at) or current.workspace.clock.now()
    wanted: dict[tuple[str, str, str], set[str]] = {}
    for action in done:
        wanted.setdefault((action.target, action.cluster_id, action.cluster), set()).update(action.by)
    for (name, cluster_id, cluster), by in wanted.items():
        target = targets[name]
        known = {state.strategy: state for state in target.states().get(cluster_id, ())}
        late = []
        for kind in (each for each in StrategyType if each.value in by):
            state = known.get(kind) or StrategyState(kind, cluster, first_seen=decided)
            if state.last_decision is None or state.last_decision < decided:
                late.append(replace(state, last_decision=decided, last_outcome="applied"))
        if late:
            target.replace_states(cluster_id, late, at=current.workspace.clock.now())


# Manual changes to the strategy states on a target: wake a suspended compute cluster, or reset strategies.
#
# Both hold the locks of a tick, so that no tick overwrites them with states that it read earlier.

_Work = Callable[[str, StrategyTarget, list[ComputeRules]], int]


class Wipe(StrEnum):
    """What to wipe: the states of selected compute clusters, of clusters that no longer exist on the target, or all states."""

    CHOSEN = "chosen"
    ORPHANS = "orphans"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome(VerbOutcome):
    """The number of deleted rows or of woken compute clusters on each reachable target."""

    done: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    loaded: bool = True


def wipe(workspace: Workspace, how: Ticking, what: Wipe) -> MemoryOutcome:
    """Delete strategy states. At the next tick, each strategy starts again and suspends nothing."""

    def work(_name: str, target: StrategyTarget, clusters: list[ComputeRules]) -> int:
        owners, there = target.state_owners(), target.clusters()
        if what is Wipe.EVERYTHING:
            target.recreate_states()
            return len(owners)
        if what is Wipe.ORPHANS:
            return target.wipe_states(owners - {each.cluster_id for each in there.values()})
        names = {each.cluster for each in clusters}
        return target.wipe_states([each.cluster_id for each in there.values() if each.name in names])

    def is_chosen(each: ComputeRules) -> bool:
        return what is Wipe.CHOSEN and how.selection.has(each)

    return _on_targets(workspace, how, "wipe-state", is_chosen, lambda _: work)


def wake(workspace: Workspace, how: Ticking, name: str) -> MemoryOutcome:
    """Mark a compute cluster as used just now, so that the next tick resumes it if it is suspended.

    Raises UsageError `usage_error` if no applied strategy suspends a compute cluster with this name.
    """

    def begin(targets: Mapping[str, list[ComputeRules]]) -> _Work:
        known = {each.cluster: each for found in targets.values() for each in found if name in (each.key, each.cluster)}
        if not any(isinstance(rule, IdleSuspend) for each in known.values() for rule in each.rules):
            names = [each.key for found in targets.values() for each in found]
            hint = "" if known else f"; {did_you_mean(name, names) or 'known: ' + (', '.join(names) or 'none')}"
            raise UsageError(Code.USAGE_ERROR, f"no applied strategy suspends a compute cluster {name}{hint}")
        return work

    def work(place: str, target: StrategyTarget, clusters: list[ComputeRules]) -> int:
        now, woken = workspace.clock.now(), 0
        there, states = target.clusters(), target.states()
        for each in clusters:
            cluster = there.get(each.cluster)
            if cluster is None:
                detail = f"the target has no compute cluster {each.cluster}"
                raise GitopsError(Code.COMPUTE_CLUSTER_MISSING, detail, path=place_of(place))
            kind = StrategyType.IDLE_SUSPEND
            known = next((state for state in states.get(cluster.cluster_id, ()) if state.strategy is kind), None)
            state = known or StrategyState(kind, cluster.name, first_seen=now)
            target.replace_states(cluster.cluster_id, [replace(state, woken=now)], at=now)
            woken += 1
        return woken

    return _on_targets(workspace, how, "wake", lambda each: name in (each.key, each.cluster), begin)


def _on_targets(
    workspace: Workspace,
    how: Ticking,
    operation: str,
    is_chosen: Callable[[ComputeRules], bool],
    begin: Callable[[Mapping[str, list[ComputeRules]]], _Work],
) -> MemoryOutcome:
    """Process the selected compute clusters of each target under its lock. A failing target is reported and skipped.

    A compute cluster that belongs to a different cluster folder is also skipped, because that folder owns its states.
    """

    def body(current: Session) -> MemoryOutcome:
        done: dict[str, int] = {}
        rules = targets_of(current, how)
        if not current.problems.has_errors:
            work, problems = begin(rules), current.problems
            with ExitStack() as closing:
                targets = lock_targets(rules, how.open_target, closing, problems, scheduled=how.scheduled)
                for name, target in targets.items():
                    try:
                        target.create_tables()
                        chosen = [each for each in rules[name] if is_chosen(each)]
                        claimed = claims_on(target, chosen, own_names(current))
                        for each in chosen:
                            if (owner := claimed.get(each.key)) is not None:
                                problems.add(Code.COMPUTE_CLUSTER_CLAIMED, each.place, claimed_message(each, owner))
                        done[name] = work(name, target, [each for each in chosen if each.key not in claimed])
                    except GitopsError as error:
                        problems.add_error(error)
        return MemoryOutcome(
            config_dir=workspace.config_dir,
            done=MappingProxyType(done),
            loaded=current.loaded.desired is not None,
            diagnostics=tuple(current.problems),
        )

    return writing(workspace, operation, StateNeed.REQUIRED, body, loaded=without_resources(workspace))
