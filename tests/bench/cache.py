"""Plans of large clusters with the compile cache: the first, the next, and with one file changed, at two sizes.

Every graph has a schema of its own and ten queries, no two of them equal, and the ledger has everything. Before each plan with
a changed file, the file gets a text that was never seen before. What a plan costs beyond a tenth of the cluster, divided by the
resources beyond, is the price of a resource that nobody touched.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import count

from tests.bench.clusters import edit_query, write_cluster
from tests.bench.measure import GITOPS, Effort, Figure, Goals, Program, Usage, process_figures

_QUERIES = 10
_RESOURCES = _QUERIES + 2
_COLD = Goals(6000.0, 150.0)
_WARM = Goals(300.0, 150.0)
_SETTLED_S = 2.5
_US = 1000.0
_TEXTS = count(100_000)


def figures(effort: Effort) -> Iterator[Figure]:
    """Both sizes, then what grows."""
    few, many = (2, 20) if effort.quick else (100, 1000)
    small, large = (_Life(effort, graphs) for graphs in (few, many))
    for life in (small, large):
        yield from life.figures()
    for name, one, other in (
        ("nothing changed", small.same, large.same),
        ("one query changed", small.changed, large.changed),
    ):
        beyond = (many - few) * _RESOURCES
        grown = tuple(max(0.0, b.cpu_ms - a.cpu_ms) * _US / beyond for a, b in zip(one, other, strict=True))
        yield Figure(f"plan, {name}: CPU per untouched resource", "us", grown)
        ratio = tuple(b.wall_ms / max(a.wall_ms, 0.001) for a, b in zip(one, other, strict=True))
        yield Figure(f"plan, {name}, {many} : {few} graphs", "x", ratio)


class _Life:
    """One cluster, from the first plan on."""

    def __init__(self, effort: Effort, graphs: int) -> None:
        self.label = f"{graphs} graphs, {graphs * _QUERIES} queries"
        self.folder = write_cluster(effort.folder(f"cache-{graphs}"), graphs=graphs, queries=_QUERIES)
        self._effort = effort
        self._cache = effort.folder(f"cache-{graphs}-kept")
        self._cache.chmod(0o700)
        environ = effort.environment()
        Program((sys.executable, "-m", "tests.bench.seed", str(self.folder)), self.folder, environ).run()
        _settle(effort)
        self.none = self._plan("--no-cache")
        self.first = self._plan()
        self.same = tuple(self._plan() for _ in range(effort.processes))
        self.changed = tuple(self._changed() for _ in range(effort.processes))
        for path in self.folder.rglob("*"):
            os.utime(path)
        _settle(effort)
        self.checked_out = self._plan()

    def figures(self) -> Iterator[Figure]:
        """What each plan took."""
        for name, usages, goals in (
            ("no cache", (self.none,), _COLD),
            ("empty cache", (self.first,), _COLD),
            ("nothing changed", self.same, _WARM),
            ("one query changed", self.changed, _WARM),
            ("checked out again", (self.checked_out,), None),
        ):
            yield from process_figures(f"plan, {name}, {self.label}", usages, goals)

    def _changed(self) -> Usage:
        edit_query(self.folder, next(_TEXTS))
        return self._plan()

    def _plan(self, *arguments: str) -> Usage:
        environ = {**self._effort.environment(), "GITOPS_CACHE_DIR": str(self._cache)}
        return Program((*GITOPS, "plan", *arguments), self.folder, environ).run()


def _settle(effort: Effort) -> None:
    """Wait until the files are no longer of this moment: younger ones are not trusted by their times."""
    if not effort.quick:
        time.sleep(_SETTLED_S)
