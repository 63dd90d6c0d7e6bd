"""The lines in front of locks give what a plain scan of all ready nodes gives, start by start."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode, NodeOutcome, NodeResult
from gitops.cluster.plan.schedule import LockWait, Schedule
from tests.support.effort import cases

KEYS = ("x", "y", "z")
MODES = (LockMode.EXCLUSIVE, LockMode.SHARED)


@st.composite
def _graphs(draw: st.DrawFn) -> ExecutionGraph:
    """Few keys and many nodes, so that lines are long; some edges, one failure group."""
    count = draw(st.integers(1, 14))
    nodes = []
    for index in range(count):
        claims = draw(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(MODES)), max_size=3))
        locks = tuple(sorted({LockClaim(key, mode) for key, mode in claims}))
        group = draw(st.sampled_from(["", "", "team"]))
        nodes.append(ExecNode(f"n{index:02}", "query", Action.UPDATE, index, locks, group))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=8))
    edges = {ExecEdge(f"n{a:02}", f"n{b:02}", "reference") for a, b in pairs if a < b}
    return ExecutionGraph(tuple(nodes), tuple(sorted(edges)))


def conflict(one: LockClaim, other: LockClaim) -> bool:
    return one.key == other.key and LockMode.EXCLUSIVE in (one.mode, other.mode)


def _against(node: ExecNode, key: str, taken: list[tuple[str, LockClaim]]) -> list[str]:
    mine = [claim for claim in node.locks if claim.key == key]
    return [who for who, other in taken if any(conflict(claim, other) for claim in mine)]


def scan(graph: ExecutionGraph, schedule: Schedule, workers: int) -> tuple[str | None, tuple[LockWait, ...]]:
    """Rule 2 by the book: look at every ready node by position, and keep for it what it waits for."""
    if len(schedule.running) >= workers:
        return None, ()
    nodes = {node.id: node for node in graph.nodes}
    held = [(name, claim) for name in schedule.running for claim in nodes[name].locks]
    taken = list(held)
    waits = []
    for name in schedule.ready:
        keys = sorted({claim.key for claim in nodes[name].locks})
        against = partial(_against, nodes[name])
        hits = {key: against(key, held) or against(key, taken)[:1] for key in keys}
        if not any(hits.values()):
            return name, tuple(waits)
        holders = sorted({who for found in hits.values() for who in found}, key=lambda n: nodes[n].position)
        waits.append(LockWait(name, tuple(key for key in keys if hits[key]), tuple(holders)))
        taken += [(name, claim) for claim in nodes[name].locks]
    return None, tuple(waits)


@settings(max_examples=cases(300), deadline=None)
@given(_graphs(), st.integers(1, 5), st.booleans(), st.data())
def test_every_start_and_every_wait_is_that_of_a_plain_scan(graph, workers, fail_fast, data) -> None:
    schedule = Schedule(graph, workers=workers, fail_fast=fail_fast)
    told: set[str] = set()
    while not schedule.finished:
        while True:
            expected, waits = scan(graph, schedule, workers)
            node = schedule.next_ready()
            assert (None if node is None else node.id, schedule.waiting) == (expected, waits)
            # Each wait is news once, when it begins to be one.
            fresh = tuple(wait for wait in waits if wait.node_id not in told)
            assert schedule.fresh_waits() == fresh
            told |= {wait.node_id for wait in fresh}
            if node is None:
                break
            schedule.start(node.id)
        ended = data.draw(st.sampled_from(schedule.running))
        outcome = data.draw(st.sampled_from([NodeOutcome.DONE, NodeOutcome.DONE, NodeOutcome.DONE, NodeOutcome.FAILED]))
        schedule.finish(ended, NodeResult(ended, outcome))
        if data.draw(st.integers(0, 30)) == 0:
            schedule.stop()
    assert schedule.held == ()
