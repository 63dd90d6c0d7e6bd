"""The fault campaign of ticks over PostgreSQL: its stories, and what is looked at after a fault.

A fault happens at one statement of one tick. While it does, and after it:

1. Each drop left a hydrated replica in its compute cluster, unless an idle one was suspended. The server counts them as it drops.
2. The next tick ends well, and the replicas are those that there would be without the fault. The one after it does nothing.
3. Each statement that changed something, by the record of the server, has exactly one audit row that says it was executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.model.changeset import BLOCKING
from gitops.compute.materialize import connection
from gitops.compute.ticks.tick import TickOutcome
from tests.support.faults import Death, EndAt
from tests.support.materialize.proxy import Delay
from tests.support.materialize.server_world import ServerWorld
from tests.support.target_world import Fault, furnish
from tests.support.ticks import Ticks, codes

__all__ = ["KINDS", "STORIES", "TABLE", "After", "Campaign", "Story", "print_table"]

TABLE = "tick-campaign"
"""The property by which a test tells the table of one fault: story, statement, kind, what the next tick had to do."""

KINDS: Mapping[str, tuple[Fault | Delay, ...]] = {
    **{each.value: (each,) for each in (Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.ERROR, *Delay)},
    "error twice": (Fault.ERROR, Fault.ERROR),
    "cut_after, error": (Fault.CUT_AFTER, Fault.ERROR),
}
"""What happens at a statement, and at those right after it. A statement that the server cancels took too long."""
_SHORT_S = 0.3
"""How long a statement may take in a tick that is delayed on purpose."""

MAIN = {"target_size": {"target_size": "50cc", "replica_name": "main"}}
BURST = {"burst": {"burst_replica_size": "800cc"}}
SLEEPING = {"idle_suspend": {"idle_after_s": 300}}


class After(StrEnum):
    """What was left to the tick after a fault: nothing, statements that had no effect, or the end of a tick that was open."""

    NOTHING = "nothing left"
    AGAIN = "decided again"
    SETTLED = "settled"


def _nothing(_ticks: Ticks) -> None:
    pass


def _quiet_before(ticks: Ticks) -> None:
    """The compute cluster had its size until now: the tables are there, and their rows change."""
    wanted = ticks.declared
    ticks.apply_strategies({"serving": {"target_size": {"target_size": "25cc"}}})
    assert not ticks.tick().actions
    ticks.apply_strategies(wanted)


def _idle(ticks: Ticks) -> None:
    assert not ticks.tick().actions
    ticks.pass_time(minutes=6)


def _successor(ticks: Ticks) -> None:
    assert ticks.tick().ok
    ticks.pass_time(minutes=5)


def _dies(ticks: Ticks) -> None:
    with pytest.raises(Death):
        ticks.tick(EndAt("tick.after_statement"))


@dataclass(frozen=True)
class Story:
    """A tick that faults happen to: the compute clusters, what is declared, what was before it, and what it leaves."""

    clusters: Mapping[str, Mapping[str, str]]
    declared: Mapping[str, Mapping[str, Any]]
    ends: Mapping[str, Mapping[str, str]]
    before: Callable[[Ticks], None] = field(default=_nothing)
    suspends: bool = False


STORIES: Mapping[str, Story] = {
    "first tick": Story({"serving": {"a": "25cc*"}}, {"serving": MAIN}, {"serving": {"a": "25cc", "main": "50cc"}}),
    "grow": Story(
        {"serving": {"a": "25cc*"}}, {"serving": MAIN}, {"serving": {"a": "25cc", "main": "50cc"}}, _quiet_before
    ),
    "shrink": Story(
        {"serving": {"a": "25cc*", "b": "100cc", "c": "50cc*"}}, {"serving": MAIN}, {"serving": {"c": "50cc"}}
    ),
    "name reused": Story(
        {"serving": {"main": "25cc*"}}, {"serving": MAIN}, {"serving": {"main_2": "50cc"}}, _successor
    ),
    "create and drop": Story(
        {"serving": {"serving_burst": "50cc*", "old": "25cc*"}},
        {"serving": {**MAIN, **BURST}},
        {"serving": {"old": "25cc", "main": "50cc"}},
    ),
    "burst": Story(
        {"new": {"main": "50cc"}, "ready": {"main": "50cc*", "ready_burst": "800cc*"}},
        {"new": {**MAIN, **BURST}, "ready": {**MAIN, **BURST}},
        {"new": {"main": "50cc", "new_burst": "800cc"}, "ready": {"main": "50cc"}},
    ),
    "suspend": Story(
        {"serving": {"a": "25cc*", "main": "50cc*"}}, {"serving": SLEEPING}, {"serving": {}}, _idle, suspends=True
    ),
    "owed rows": Story(
        {"serving": {"a": "25cc*"}}, {"serving": MAIN}, {"serving": {"a": "25cc", "main": "50cc"}}, _dies
    ),
}


class Campaign:
    """Lives a story again and again, each time with a fault at another statement."""

    def __init__(self, folder: Path, stand_in: ServerWorld, name: str, patch: pytest.MonkeyPatch) -> None:
        self.story = STORIES[name]
        self._name, self._folder, self._world, self._patch = name, folder, stand_in, patch

    def statements(self) -> list[str]:
        """What the tick of the story sends when nothing goes wrong."""
        ticks = self._begin()
        before = len(self._world.log)
        assert ticks.tick().ok
        sent = self._world.log[before:]
        self._check(ticks)
        return sent

    def fault_at(self, statement: int, kind: str) -> tuple[str, int, str, str]:
        """Faults from a statement of the tick on, counted from 0, and the ticks after it; a row of the table."""
        ticks = self._begin()
        for number, fault in enumerate(KINDS[kind]):
            self._world.fail_next(fault, after=statement + number)
        if not {Delay.TOO_LONG, Delay.UNANSWERED}.isdisjoint(KINDS[kind]):
            ticks.connecting["timeout_s"] = _SHORT_S
        with self._patch.context() as patch:
            if Delay.UNANSWERED in KINDS[kind]:
                patch.setattr(connection, "_GRACE_S", 0)
            ticks.tick()
        # The tick may have ended with the first of them.
        assert not self._world.forget_faults() or len(KINDS[kind]) > 1
        ticks.connecting.clear()
        self._world.end_sessions()
        try:
            after = self._check(ticks)
        except AssertionError as error:
            error.add_note(f"after {kind} at statement {statement} of the story: {self._name}")
            raise
        return self._name, statement, kind, after.value

    def _begin(self) -> Ticks:
        self._world.reset()
        ticks = Ticks(self._folder, furnish(self._world, **self.story.clusters))
        ticks.apply_strategies(self.story.declared)
        self.story.before(ticks)
        return ticks

    def _check(self, ticks: Ticks) -> After:
        """Step 1 to 3 of the module; what the next tick had to do."""
        after = _to_do(ticks.tick())
        left = {name: ticks.world.replicas(name) for name in self.story.ends}
        assert left == self.story.ends, left
        last = ticks.tick()
        assert (codes(last), last.actions) == ([], ()), last
        still = [each.key for each in ticks.changesets() if each.state in BLOCKING]
        assert not still, still
        changes, audited = self._world.changes, ticks.audited
        assert Counter(ticks.executed()) == Counter(each.sql for each in changes), (changes, audited)
        assert len({row.action_id for row in audited}) == len(audited), audited
        bare = [each.sql for each in changes if each.sql.startswith("DROP") and not each.hydrated_left]
        assert self.story.suspends or not bare, bare
        return after


def _to_do(outcome: TickOutcome) -> After:
    assert outcome.ok, codes(outcome)
    assert set(codes(outcome)) <= {"cluster_recovery_rolled_forward"}
    if codes(outcome):
        return After.SETTLED
    return After.AGAIN if outcome.actions else After.NOTHING


_ROW = "{:<16} {:>10} {:>8}" + " {:>14}" * len(After)


def print_table(rows: Iterable[Sequence[Any]], say: Callable[[str], object]) -> None:
    """One line for each story and one for each kind of fault, and a total; after every fault everything was found right."""
    found = [tuple(row) for row in rows]
    say(_ROW.format("story", "statements", "faults", *(each.value for each in After)))
    for name in [each for each in STORIES if any(row[0] == each for row in found)]:
        say(_line(name, [row for row in found if row[0] == name]))
    for kind in [each for each in KINDS if any(row[2] == each for row in found)]:
        say(_line(kind, [row for row in found if row[2] == kind]))
    say(_line("all", found))


def _line(name: str, rows: Sequence[Sequence[Any]]) -> str:
    ends = Counter(row[3] for row in rows)
    return _ROW.format(name, len({(row[0], row[1]) for row in rows}), len(rows), *(ends[each.value] for each in After))
