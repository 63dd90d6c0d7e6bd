"""What a person does to the memory of strategies on a target: wake a suspended compute cluster, or let strategies begin again.

Both hold the locks of a tick, so that no tick writes over them what it had read before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from enum import StrEnum
from types import MappingProxyType

from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.model.strategy import IdleSuspend, StrategyType
from gitops.cluster.plan.strategies import own_names
from gitops.cluster.session.session import Session, StateNeed, writing
from gitops.cluster.session.workspace import Workspace
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.projection import claimed_message, place_of
from gitops.cluster.targets.signals import StrategyState
from gitops.compute.ticks.targets import claims_on, lock_targets
from gitops.compute.ticks.tick import Ticking, targets_of, without_resources
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.database.language.suggest import did_you_mean

_Work = Callable[[str, StrategyTarget, list[ComputeRules]], int]


class Wipe(StrEnum):
    """What is wiped: the memory of chosen compute clusters, of those that are not on the target any more, or the whole table."""

    CHOSEN = "chosen"
    ORPHANS = "orphans"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome(VerbOutcome):
    """How many rows were deleted, or compute clusters woken, on each target that could be reached."""

    done: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    loaded: bool = True


def wipe(workspace: Workspace, how: Ticking, what: Wipe) -> MemoryOutcome:
    """Delete what strategies remember; each begins again at the next tick, and that suspends nothing."""

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
    """Let a compute cluster count as used just now: a suspended one comes back with the next tick.

    Raises UsageError `usage_error` where nothing suspends a compute cluster of this name.
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
    """Work on the chosen compute clusters of each target under its lock; a target that fails is reported, and the others go on.

    So is a compute cluster that belongs to another cluster folder, whose memory it is.
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
