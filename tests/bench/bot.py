"""The bot on a forge: from an event to the status and the comment, for a change of one file in clusters of three sizes.

Each round is one change request of its own on the fake GitHub: planned, verified in the merge queue, landed, applied. Of each
size there is a second cluster with other open requests, which are planned again when one is applied. The program is the real
one, in a process of its own; git goes over smart HTTP. What the fake takes to answer is in the times, and is said beside
them; the way to a real forge, and its own time, are not. A clone that is kept is what a server or a runner with a cache
has; a new one is what a job on a hosted runner begins with.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.bench.clusters import query_text
from tests.bench.hub import Measured, MeasuredRunner, MeteredHub, seeded_loop
from tests.bench.measure import Effort, Figure, Goals, LeftOutError, process_figures
from tests.support.forges import landing

_QUERIES = 10
_RESOURCES = _QUERIES + 2
_CALLS_GOAL = 6.0
_CONVERSATIONS_GOAL = 4.0
_GROWTH_GOAL = 1.5
_CROWD_GOAL = 2.0
_CPU_GOAL_MS = 1000.0
_COMMENT_GOAL_MS = 800.0
_KIB = 1024
_US = 1000.0
_TEXTS = count(1_000_000)
_OTHERS = 5
_ENGINES_GOAL = 1.5


def figures(effort: Effort) -> Iterator[Figure]:
    """Each size, then what grows with it. Rounds of all sizes take turns: no machine is as fast at all times."""
    for program in ("git", "ssh-keygen"):
        if shutil.which(program) is None:
            raise LeftOutError(f"{program} is not installed")
    with ExitStack() as stack:
        lives = [_Life(effort, graphs, stack) for graphs in ((1, 5) if effort.quick else (1, 100, 1000))]
        long_ids = _Life(effort, 1, stack, "sha256")
        for _ in range(1 if effort.quick else 5):
            for life in (*lives, long_ids):
                life.play()
        for life in lives:
            life.clone_again()
    for life in lives:
        yield from life.figures()
    one, many = lives[0], lives[-1]
    for verb in ("plan", "verify", "apply"):
        name = f"{verb} event, {one.label}, SHA-256 by git : SHA-1 by libgit2"
        ids = list(zip(one.warm[verb], long_ids.warm[verb], strict=True))
        yield Figure(name, "x", tuple(b.usage.wall_ms / a.usage.wall_ms for a, b in ids), _ENGINES_GOAL)
        yield Figure(f"{name}, CPU", "x", tuple(b.usage.cpu_ms / a.usage.cpu_ms for a, b in ids), _ENGINES_GOAL)
        pairs = list(zip(one.warm[verb], many.warm[verb], strict=True))
        ratio = tuple(b.usage.wall_ms / a.usage.wall_ms for a, b in pairs)
        # Two sizes that are near say nothing about growth.
        goal = None if effort.quick else _GROWTH_GOAL
        yield Figure(f"{verb} event, {many.graphs} : {one.graphs} graphs", "x", ratio, goal)
        beyond = (many.graphs - one.graphs) * _RESOURCES
        grown = tuple(max(0.0, b.usage.cpu_ms - a.usage.cpu_ms) * _US / beyond for a, b in pairs)
        yield Figure(f"{verb} event: CPU per untouched resource", "us", grown)


def _events() -> dict[str, list[Measured]]:
    return {"plan": [], "verify": [], "apply": []}


@dataclass
class _Life:
    """Two clusters of one size: one has a single request at a time, the other has further open ones."""

    effort: Effort
    graphs: int
    stack: ExitStack
    object_format: str = "sha1"
    warm: dict[str, list[Measured]] = field(default_factory=_events)
    cold: list[Measured] = field(default_factory=list)
    crowded: dict[str, list[Measured]] = field(default_factory=_events)
    clones: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Clone each; a first round leaves compiled modules behind."""
        self._alone, self._busy = (self._runner(name) for name in ("alone", "busy"))
        self._round(self._alone)
        for number in range(_OTHERS):
            self._propose(self._busy, number + 1)
        self._busy.cancel()
        self._round(self._busy)

    @property
    def label(self) -> str:
        """How many."""
        return f"{self.graphs} graph{'' if self.graphs == 1 else 's'}"

    def _runner(self, name: str) -> MeasuredRunner:
        name = f"{name}-{self.object_format}"
        home = self.effort.folder(f"bot-{self.graphs}-{name}")
        compiled = {"PYTHONPYCACHEPREFIX": self.effort.environment()["PYTHONPYCACHEPREFIX"]}
        place = self.effort.folder(f"bot-{self.graphs}-{name}-team")
        loop = seeded_loop(place, graphs=self.graphs, queries=_QUERIES, object_format=self.object_format)
        runner = MeasuredRunner(self.stack.enter_context(MeteredHub.of(loop)), home / "jobs", environ=compiled)
        self._clone(runner, home / "first")
        return runner

    def play(self) -> None:
        """A round in each, in a clone that is kept."""
        for runner, found in ((self._alone, self.warm), (self._busy, self.crowded)):
            for verb, measured in self._round(runner).items():
                found[verb].append(measured)

    def clone_again(self) -> None:
        """Plans in new clones."""
        home = self.effort.folder(f"bot-{self.graphs}-clones")
        for number in range(1 if self.effort.quick else 2):
            self._clone(self._alone, home / f"clone-{number}")
            self._propose(self._alone, number + 1)
            self.cold.append(self._alone.measured(self._alone.next_job("plan")))

    def _round(self, runner: MeasuredRunner) -> dict[str, Measured]:
        """One request, from its first plan until it is applied."""
        hub, number = runner.hub, self._propose(runner)
        found = {"plan": runner.measured(runner.next_job("plan"))}
        landing.enqueue(hub.world, number, "carol")
        found["verify"] = runner.measured(runner.next_job("verify"))
        if landing.settle_queue(hub.world) != [number]:
            raise RuntimeError("the queue did not take the request")
        found["apply"] = runner.measured(runner.next_job("apply"))
        if not hub.status(hub.tip(), "apply").startswith("success"):
            raise RuntimeError("the request is not applied")
        return found

    def _propose(self, runner: MeasuredRunner, query: int = 0) -> int:
        """A request that changes one query of the first graph."""
        name, limit = f"q{query:03}", next(_TEXTS)
        text = {f"cluster/g0000/queries/{name}.gq": query_text(name, limit).encode()}
        return runner.hub.propose("alice", f"query-{limit}", text).number

    def _clone(self, runner: MeasuredRunner, place: Path) -> None:
        took, traffic = runner.keep_clone(place)
        self.clones.append((took, traffic.git_bytes / _KIB))

    def figures(self) -> Iterator[Figure]:
        """What was seen."""
        for verb, runs in self.warm.items():
            name = f"{verb} event, {self.label}"
            yield from process_figures(name, [m.usage for m in runs], Goals(cpu_ms=_CPU_GOAL_MS))
            if verb == "plan":
                yield Figure(f"{name}: until the status", "ms", tuple(m.status_ms for m in runs))
                goal = _COMMENT_GOAL_MS if self.graphs == 1 else None
                yield Figure(f"{name}: until the comment", "ms", tuple(m.comment_ms for m in runs), goal)
            yield from _traffic(name, runs, _CALLS_GOAL if verb == "plan" else None)
        name = f"plan event in a new clone, {self.label}"
        yield from process_figures(name, [m.usage for m in self.cold])
        yield from _traffic(name, self.cold, _CALLS_GOAL)
        for verb, runs in self.crowded.items():
            name = f"{verb} event, {self.label}, {_OTHERS} other requests"
            yield Figure(name, "ms", tuple(m.usage.wall_ms for m in runs))
            yield Figure(f"{name}: calls of the forge", "n", tuple(float(m.traffic.calls) for m in runs))
            yield Figure(f"{name}: conversations of git", "n", tuple(float(m.traffic.conversations) for m in runs))
        pairs = zip(self.crowded["apply"], self.warm["apply"], strict=True)
        beside = tuple(crowded.usage.wall_ms / alone.usage.wall_ms for crowded, alone in pairs)
        yield Figure(f"apply event, {self.label}, {_OTHERS} other requests : none", "x", beside, _CROWD_GOAL)
        yield Figure(f"the clone, {self.label}", "ms", tuple(took for took, _ in self.clones))
        yield Figure(f"the clone, {self.label}: by git", "KiB", tuple(size for _, size in self.clones))


def _traffic(name: str, runs: Sequence[Measured], goal: float | None) -> Iterator[Figure]:
    def each(unit: str, what: str, value: Callable[[Measured], float], goal: float | None = None) -> Figure:
        return Figure(f"{name}: {what}", unit, tuple(value(m) for m in runs), goal)

    yield each("n", "calls of the forge", lambda m: m.traffic.calls, goal)
    yield each("KiB", "by these calls", lambda m: m.traffic.call_bytes / _KIB)
    most = None if goal is None else _CONVERSATIONS_GOAL
    yield each("n", "conversations of git", lambda m: m.traffic.conversations, most)
    yield each("n", "requests of git", lambda m: m.traffic.git_requests)
    yield each("KiB", "by git", lambda m: m.traffic.git_bytes / _KIB)
    yield each("ms", "in the fake GitHub", lambda m: m.traffic.served_ns / 1e6)
