"""Scheduler for an execution graph: a state machine without threads, clock or randomness.

It is a function of the graph, the number of workers, the failure policy and the sequence of results, so the same
results in the same order always lead to the same starts.

1. A node is ready when everything before it is done. Ready nodes are considered by position.
2. A node starts when a worker and all its locks are free. It takes the locks together and holds none while it waits, so
   there are no deadlocks. A lock that an earlier node waits for counts as taken for later ones, so there is no starvation.
3. With one worker, the run is serial: the ready node with the lowest position starts. `build_graph` numbers nodes in an
   order that no edge contradicts, so for its graphs this is the plan order.
4. Every node ends with exactly one result. After a failure (a started node that did not succeed):
   a. no other node of its failure group starts: SKIPPED; with `keep_going` only if the failure concerns the whole group;
   b. nodes that depend on it or on (a): BLOCKED;
   c. with `fail_fast`, everything else that has not started: SKIPPED.
   `blocked_by` is the failed node in all three cases. Running nodes finish.
5. An abandoned running node fails in this way, and keeps its locks, because it may still be running. Nodes that can
   never get their locks because of that are SKIPPED like (a).
6. After `stop`, everything that has not started is SKIPPED, without a blocker. If a pivot has begun, the run may first
   continue to the commit, because changes that cannot be rolled back should be recorded as applied.

A node that waits for a lock is parked on it, and considered again only when that lock may have become free for it. So
starting one of a thousand nodes that need the same lock is as cheap as starting nodes without locks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from gitops.cluster.model.change import Effect
from gitops.cluster.model.plan import (
    BARRIER_KIND,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    LockMode,
    NodeOutcome,
    NodeResult,
)
from gitops.cluster.plan.classes import COMMITTED
from gitops.cluster.plan.layers import Neighbours, neighbours, validate
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError, UsageError

ENDINGS = frozenset(set(NodeOutcome) - {NodeOutcome.SKIPPED, NodeOutcome.BLOCKED})
"""Outcomes that a started node can have. Only the schedule gives the others."""


class SkipReason(StrEnum):
    """Why a node never started: a dependency failed or was skipped, a barrier was not reached, and so on."""

    DEPENDENCY_FAILED = "dependency_failed"
    DEPENDENCY_SKIPPED = "dependency_skipped"
    BARRIER_NOT_REACHED = "barrier_not_reached"
    GROUP_FAILED = "group_failed"
    LOCK_KEPT = "lock_kept"
    FAIL_FAST = "fail_fast"
    CANCELLED = "cancelled"


_BEHIND = frozenset({SkipReason.DEPENDENCY_FAILED, SkipReason.DEPENDENCY_SKIPPED, SkipReason.BARRIER_NOT_REACHED})


@dataclass(frozen=True, slots=True)
class Skip:
    """A node that ended without starting. `cause` is the node that caused this, or None after a stop."""

    reason: SkipReason
    cause: str | None
    result: NodeResult


@dataclass(frozen=True, slots=True)
class LockWait:
    """A ready node that was passed over: the lock keys that it waits for, and their holders or first waiters."""

    node_id: str
    keys: tuple[str, ...]
    holders: tuple[str, ...]


class Progress(NamedTuple):
    """The effects of one result, in priority order: ids that became ready, and nodes that will never start."""

    ready: tuple[str, ...] = ()
    skipped: tuple[Skip, ...] = ()


class Schedule:
    """The coordinator's state: pending, ready, running and ended nodes, and lock holders. For one thread only."""

    def __init__(
        self, graph: ExecutionGraph, *, workers: int = 1, fail_fast: bool = False, keep_going: bool = False
    ) -> None:
        """Create a schedule without running nodes.

        Raises UsageError for less than one worker, BugError for a graph that `validate` refuses.
        """
        if workers < 1:
            raise UsageError(Code.USAGE_ERROR, f"at least one worker is needed, not {workers}")
        links = self._after, self._before = neighbours(graph)
        problems = validate(graph, links)
        if problems:
            raise BugError(f"an invalid execution graph was scheduled: {problems[0].message}")
        self._graph = graph
        self._workers = workers
        self._fail_fast, self._keep_going = fail_fast, keep_going
        self._nodes = {node.id: node for node in graph.nodes}
        self._priority: dict[str, Priority] = {node.id: (node.position, node.id) for node in graph.nodes}
        self._open_edges = {name: len(sources) for name, sources in self._before.items()}
        self._ready = sorted(self._priority[name] for name, count in self._open_edges.items() if not count)
        self._pending = set(self._nodes)
        self._running: set[str] = set()
        self._results: dict[str, NodeResult] = {}
        self._claims = {node.id: strongest(node.locks) for node in graph.nodes}
        self._locks, self._kept = Locks(), Locks()
        self._candidates = list(self._ready)
        self._parked = Parked(self._priority)
        self._seen_waiting: set[str] = set()
        self._fresh: tuple[str, ...] = ()
        self._passed = 0

    @property
    def before(self) -> Neighbours:
        """Map each node id to its sorted dependencies."""
        return self._before

    @property
    def ready(self) -> tuple[str, ...]:
        """Ids that wait only for a worker and locks, in priority order."""
        return tuple(name for _, name in self._ready)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids that have started but have no result yet, sorted by priority."""
        return self._ordered(self._running)

    @property
    def waiting(self) -> tuple[LockWait, ...]:
        """The ready nodes that the last `next_ready` passed over because of locks. Read it before the next start."""
        return tuple(self._wait(name) for _, name in self._ready[: self._passed])

    def fresh_waits(self) -> tuple[LockWait, ...]:
        """Return the nodes of `waiting` that the last `next_ready` passed over for the first time, in priority order."""
        return tuple(self._wait(name) for name in self._fresh)

    @property
    def held(self) -> tuple[str, ...]:
        """Sorted keys of all held locks."""
        return self._locks.keys()

    @property
    def finished(self) -> bool:
        """Whether every node has its result."""
        return len(self._results) == len(self._nodes)

    def next_ready(self) -> ExecNode | None:
        """Return the node to start now, or None if no worker is free or every ready node waits for locks."""
        self._fresh, self._passed = (), 0
        if len(self._running) >= self._workers:
            return None
        passed = []
        chosen = None
        for _, name in self._candidates:
            claims = self._claims[name]
            taken = next((c.key for c in claims if self._locks.against(c) or self._parked.blocks(name, c)), None)
            if taken is None:
                chosen = self._nodes[name]
                break
            self._parked.park(name, claims, taken)
            passed.append(name)
        if passed:
            del self._candidates[: len(passed)]
            self._fresh = tuple(name for name in passed if name not in self._seen_waiting)
            self._seen_waiting.update(self._fresh)
        self._passed = len(self._ready) if chosen is None else bisect_left(self._ready, self._priority[chosen.id])
        return chosen

    def start(self, node_id: str) -> None:
        """Record that the node is running and holds its locks.

        Raises BugError unless the node is ready and a worker and the locks are free.
        """
        priority = self._priority.get(node_id)
        at = len(self._ready) if priority is None else bisect_left(self._ready, priority)
        if at == len(self._ready) or self._ready[at] != priority or len(self._running) >= self._workers:
            raise BugError(f"{node_id} was started although it is not its turn")
        if any(self._locks.against(claim) for claim in self._claims[node_id]):
            raise BugError(f"{node_id} was started although its locks are taken")
        self._locks.take(node_id, self._claims[node_id])
        del self._ready[at]
        self._leave_line(node_id)
        self._pending.remove(node_id)
        self._running.add(node_id)

    def finish(self, node_id: str, result: NodeResult) -> Progress:
        """Record the result of a running node, free its locks, and return the effects.

        Raises BugError if the node is not running, or the result is not possible for a started node.
        """
        self._end(node_id, result)
        self._locks.release(node_id, self._claims[node_id])
        self._wake(node_id)
        if result.outcome.succeeded:
            return Progress(ready=self._release(node_id))
        return Progress(skipped=self._fail(node_id))

    def give_up(self, node_id: str, result: NodeResult) -> Progress:
        """Record that a running node was abandoned (rule 5), and return the effects.

        Raises BugError like `finish`, and for any result except an unknown effect.
        """
        if result.outcome is not NodeOutcome.INDETERMINATE:
            raise BugError(f"{node_id} was given up, so it cannot be {result.outcome}")
        self._end(node_id, result)
        self._kept.take(node_id, self._claims[node_id])
        shut = [name for name in self._pending if any(map(self._kept.against, self._claims[name]))]
        return Progress(skipped=self._fail(node_id, shut))

    def stop(self, *, to_commit: bool = False) -> Progress:
        """Skip every node that has not started. Running nodes must still finish.

        With `to_commit`, if a pivot has begun, the nodes from it to the commit are still started, because the pivot cannot
        be rolled back.
        """
        kept = self._way_to_commit() if to_commit else frozenset()
        names = self._ordered(self._pending - kept)
        return Progress(skipped=tuple(self._skip(name, SkipReason.CANCELLED, None, None) for name in names))

    def results(self) -> tuple[NodeResult, ...]:
        """Return one result per node, in plan order. Raises BugError until all have ended."""
        if not self.finished:
            raise BugError("results were asked for while nodes have none")
        return tuple(self._results[node.id] for node in self._graph.nodes)

    def _release(self, node_id: str) -> tuple[str, ...]:
        freed = []
        for name in self._after[node_id]:
            self._open_edges[name] -= 1
            if not self._open_edges[name] and name in self._pending:
                insort(self._ready, self._priority[name])
                insort(self._candidates, self._priority[name])
                freed.append(name)
        return self._ordered(freed)

    def _end(self, node_id: str, result: NodeResult) -> None:
        if node_id not in self._running or result.node_id != node_id or result.outcome not in ENDINGS:
            raise BugError(f"{node_id} cannot end with {result.outcome} of {result.node_id}")
        self._running.remove(node_id)
        self._results[node_id] = result

    def _fail(self, failed: str, shut: Iterable[str] = ()) -> tuple[Skip, ...]:
        """Apply rules 4 and 5: end the nodes that cannot start because of a failure.

        `shut` are the nodes that need locks which the failed node keeps.
        """
        # If a graph refuses its change, that does not affect other graphs.
        alone = self._keep_going and not self._results[failed].concerns_group
        group = "" if alone else self._nodes[failed].group
        mates = [name for name in self._pending if self._nodes[name].group == group] if group else []
        first = dict.fromkeys(shut, SkipReason.LOCK_KEPT) | dict.fromkeys(mates, SkipReason.GROUP_FAILED)
        skips = {name: self._skip(name, first[name], failed, failed) for name in self._ordered(first)}
        behind = deque([failed, *self._ordered(skips)])
        while behind:
            cause = behind.popleft()
            for name in self._after[cause]:
                if name in self._pending:
                    skips[name] = self._skip(name, self._reason(cause, failed), cause, failed)
                    behind.append(name)
        if self._fail_fast:
            for name in self._ordered(self._pending):
                skips[name] = self._skip(name, SkipReason.FAIL_FAST, failed, failed)
        return tuple(skips[name] for name in self._ordered(skips))

    def _reason(self, cause: str, failed: str) -> SkipReason:
        """Return the reason why nodes that depend on `cause` do not start."""
        if self._nodes[cause].kind == BARRIER_KIND:
            return SkipReason.BARRIER_NOT_REACHED
        return SkipReason.DEPENDENCY_FAILED if cause == failed else SkipReason.DEPENDENCY_SKIPPED

    def _skip(self, name: str, reason: SkipReason, cause: str | None, blocked_by: str | None) -> Skip:
        outcome = NodeOutcome.BLOCKED if reason in _BEHIND else NodeOutcome.SKIPPED
        result = NodeResult(name, outcome, blocked_by=blocked_by)
        self._pending.remove(name)
        at = bisect_left(self._ready, self._priority[name])
        if at < len(self._ready) and self._ready[at] == self._priority[name]:
            del self._ready[at]
            self._leave_line(name)
            self._wake(name)
        self._results[name] = result
        return Skip(reason, cause, result)

    def _leave_line(self, name: str) -> None:
        """Remove a ready node from the candidates and from all waits for locks."""
        at = bisect_left(self._candidates, self._priority[name])
        if at < len(self._candidates) and self._candidates[at] == self._priority[name]:
            del self._candidates[at]
        self._parked.leave(name, self._claims[name])

    def _wake(self, name: str) -> None:
        """Reconsider the nodes that wait for locks that this node held or was about to hold."""
        for claim in self._claims[name]:
            for woken in self._parked.next_in_line(claim.key):
                self._parked.leave(woken, self._claims[woken])
                insort(self._candidates, self._priority[woken])

    def _wait(self, name: str) -> LockWait:
        taken = {c.key: self._locks.against(c) or self._parked.first(name, c) for c in self._claims[name]}
        keys = tuple(sorted(key for key, holders in taken.items() if holders))
        return LockWait(name, keys, self._ordered({holder for key in keys for holder in taken[key]}))

    def _way_to_commit(self) -> frozenset[str]:
        """Return the commit and all its dependencies, if a pivot has begun."""
        begun = self._running | {name for name, result in self._results.items() if result.outcome.succeeded}
        if COMMITTED not in self._pending or not any(self._nodes[name].effect is Effect.PIVOT for name in begun):
            return frozenset()
        way, open_ends = set[str]((COMMITTED,)), list[str]((COMMITTED,))
        while open_ends:
            more = [name for name in self._before[open_ends.pop()] if name in self._pending and name not in way]
            way.update(more)
            open_ends += more
        return frozenset(way)

    def _ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self._priority.__getitem__))


# -- The locks that are held while a graph runs, and the nodes that wait for them. Without threads, clock or randomness --


Priority = tuple[int, str]
"""A node's position in the plan order, and its id."""


def strongest(claims: Sequence[LockClaim]) -> tuple[LockClaim, ...]:
    """Return one claim per key, which is the exclusive one if a node requests both modes."""
    if len(claims) <= 1:
        return tuple(claims)
    modes: dict[str, LockClaim] = {}
    for claim in claims:
        if claim.mode is LockMode.EXCLUSIVE or claim.key not in modes:
            modes[claim.key] = claim
    return tuple(sorted(modes.values()))


class Parked:
    """Ready nodes that wait for a lock. Each is parked on one key, and all its claims are reserved against later nodes."""

    def __init__(self, priority: Mapping[str, Priority]) -> None:
        self._priority = priority
        self._on: dict[str, str] = {}
        self._lines: dict[str, list[Priority]] = {}
        self._exclusive: dict[str, list[Priority]] = {}

    def park(self, name: str, claims: Sequence[LockClaim], key: str) -> None:
        """Record that the node waits for `key`."""
        self._on[name] = key
        for lines, claim in self._lines_of(claims):
            insort(lines.setdefault(claim.key, []), self._priority[name])

    def leave(self, name: str, claims: Sequence[LockClaim]) -> None:
        """Record that the node no longer waits for a lock."""
        if self._on.pop(name, None) is None:
            return
        for lines, claim in self._lines_of(claims):
            line = lines[claim.key]
            del line[bisect_left(line, self._priority[name])]
            if not line:
                del lines[claim.key]

    def blocks(self, name: str, claim: LockClaim) -> bool:
        """Return True if an earlier node waits for the same key in a mode that this claim cannot share."""
        line = self._line(claim)
        return bool(line) and line[0] < self._priority[name]

    def first(self, name: str, claim: LockClaim) -> tuple[str, ...]:
        """Return the first of those earlier nodes, or None. The queue can be as long as the plan."""
        return (self._line(claim)[0][1],) if self.blocks(name, claim) else ()

    def next_in_line(self, key: str) -> list[str]:
        """Return the parked nodes that get the key next.

        These are the first node and, if it shares the key, the following nodes up to the first exclusive one.
        """
        line = self._lines.get(key)
        if not line:
            return []
        exclusive = self._exclusive.get(key)
        end = len(line) if not exclusive else max(1, bisect_left(line, exclusive[0]))
        return [name for _, name in line[:end] if self._on[name] == key]

    def _line(self, claim: LockClaim) -> Sequence[Priority]:
        lines = self._exclusive if claim.mode is LockMode.SHARED else self._lines
        return lines.get(claim.key, ())

    def _lines_of(self, claims: Sequence[LockClaim]) -> Iterator[tuple[dict[str, list[Priority]], LockClaim]]:
        for claim in claims:
            yield self._lines, claim
            if claim.mode is LockMode.EXCLUSIVE:
                yield self._exclusive, claim


class Locks:
    """Lock claims by key and owner."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[str, LockMode]] = {}

    def against(self, claim: LockClaim) -> tuple[str, ...]:
        """Return the owners with which `claim` cannot share its key."""
        owners = self._owners.get(claim.key)
        # If a node claims a key exclusively, it is the only owner, so the mode of one owner is the mode of all.
        if owners is None or (claim.mode is LockMode.SHARED and LockMode.SHARED is next(iter(owners.values()))):
            return ()
        return tuple(owners)

    def take(self, owner: str, claims: Sequence[LockClaim]) -> None:
        """Add all of an owner's claims, one per key."""
        for claim in claims:
            self._owners.setdefault(claim.key, {})[owner] = claim.mode

    def release(self, owner: str, claims: Sequence[LockClaim]) -> None:
        """Drop all of an owner's claims."""
        for claim in claims:
            owners = self._owners[claim.key]
            del owners[owner]
            if not owners:
                del self._owners[claim.key]

    def keys(self) -> tuple[str, ...]:
        """Return all claimed keys, sorted."""
        return tuple(sorted(self._owners))
