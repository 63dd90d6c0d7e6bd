"""What it costs that a merge lands whole or not at all, and how soon a watcher hears of it.

The same change is applied as it can land and atomic in turns, each time in a process of its own on a folder ledger: the ratio is
what the barriers cost. A watcher waits in a clone, beside a push to a bare repository whose hook applies: its latency is from the
moment at which the ledger branch moves to the end of the watcher. It asks the remote after one second, then less and less often.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.bench.clusters import edit_query, write_cluster
from tests.bench.measure import Effort, Figure, LeftOutError, Program, Usage, process_figures
from tests.bench.requests import Team

_QUERIES = 2
_ONE_GOAL, _MANY_GOAL = 1.15, 1.10
_COMMITS_GOAL = 3.0
_WATCH_GOAL_MS = 2_500.0
_LEDGER = "refs/heads/gitops/ledger/bench"
_TIMEOUT_S = 900.0


def figures(effort: Effort) -> Iterator[Figure]:
    """Both kinds of apply at two sizes, then the ledger commits and the watchers of merges."""
    for program in ("git", "ssh-keygen"):
        if shutil.which(program) is None:
            raise LeftOutError(f"{program} is not installed")
    for graphs, goal in ((1, _ONE_GOAL), (4 if effort.quick else 1000, _MANY_GOAL)):
        yield from _both_kinds(effort, graphs, None if effort.quick else goal)
    yield from _merges(effort)


def _both_kinds(effort: Effort, graphs: int, goal: float | None) -> Iterator[Figure]:
    """A change of one query of each graph, applied as it can land and atomic in turns."""
    folder = write_cluster(effort.folder(f"changesets-{graphs}") / "cluster", graphs=graphs, queries=_QUERIES)

    def run(*arguments: str) -> Usage:
        argv = (sys.executable, "-m", "gitops", "--as", "bench", *arguments)
        return Program(argv, folder, effort.environment(), timeout_s=_TIMEOUT_S).run()

    run("import")
    run("apply")
    kinds: dict[str, list[Usage]] = {"best effort": [], "atomic": []}
    for turn in range(2 if effort.quick or graphs > 1 else 5):
        for kind, usages in kinds.items():
            edit_query(folder, 1_000_000 * (2 * turn + (kind == "atomic") + 1), graphs=graphs)
            usages.append(run("apply", *(["--atomic"] if kind == "atomic" else [])))
    label = f"{graphs} graph{'' if graphs == 1 else 's'}"
    for kind, usages in kinds.items():
        yield from process_figures(f"apply of one query a graph, {label}, {kind}", usages)
    for what, unit in (("wall_ms", "time"), ("cpu_ms", "CPU")):
        pairs = zip(kinds["atomic"], kinds["best effort"], strict=True)
        ratios = tuple(getattr(a, what) / getattr(b, what) for a, b in pairs)
        yield Figure(f"{unit}, {label}, atomic : best effort", "x", ratios, goal)


def _merges(effort: Effort) -> Iterator[Figure]:
    """Pushes to the target branch of a bare repository, each followed by a watcher that waits in another clone."""
    team = Team(effort.folder("changesets-merges"), effort.environment())
    team.start()
    other = team.clone.with_name("other")
    team.git("clone", "-q", str(team.server), str(other), cwd=team.server)
    commits, latencies, watchers = [], [], []
    for number in range(1 if effort.quick else 5):
        edit_query(team.clone / "cluster", 100 + number)
        team.git("commit", "-q", "--all", "-m", f"Change {number}")
        merge, before = team.git("rev-parse", "HEAD"), _entries(team)
        argv = (sys.executable, "-m", "gitops", "changeset", "watch", "--commit", merge, "--timeout", "2m")
        watcher = subprocess.Popen(argv, cwd=other, env=team.environ, stdout=subprocess.DEVNULL)
        team.git("push", "-q", "origin", "HEAD:refs/heads/main")
        if watcher.wait(timeout=120) != 0:
            raise RuntimeError("the merge that is watched did not land")
        ended = time.time_ns()
        moved = (team.server / _LEDGER).stat().st_mtime_ns
        latencies.append((ended - moved) / 1e6)
        commits.append(float(_entries(team) - before))
        show = (sys.executable, "-m", "gitops", "changeset", "watch", "--commit", merge)
        watchers.append(Program(show, other, team.environ).run())
    yield Figure("ledger commits of a merge, one graph", "n", tuple(commits), _COMMITS_GOAL)
    yield Figure("watch: from the ledger's move to its end", "ms", tuple(latencies), _WATCH_GOAL_MS)
    yield from process_figures("watch of a merge that has landed", watchers)


def _entries(team: Team) -> int:
    return int(team.git("rev-list", "--count", _LEDGER, cwd=team.server))
