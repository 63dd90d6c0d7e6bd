"""Previews on live data: what a copy costs, and a whole preview of a schema change with isolated workers.

The table of a million rows is on the disk. The goal is for what a preview takes beyond the plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.bench.measure import Effort, Figure
from tests.bench.migrations import _BEFORE, _ours

_SIZES, _FEW = (10_000, 1_000_000), (200,)
_GOAL_S = 2.0
_ROUNDS = 3


def figures(effort: Effort) -> Iterator[Figure]:
    """Milliseconds of a copy and bytes of it, and seconds of a preview that adds a property, by the rows of the graph."""
    from gitops.core.clock import timestamp
    from gitops.database import graph
    from gitops.repository.wiring.previews import live_version, open_ask
    from gitops.repository.wiring.system import SystemClock
    from gitops.review.previews.choose import ChosenGraph, ChosenQuery
    from gitops.review.previews.run import try_graphs

    clock = SystemClock()
    text = f"query q($code: I64) {{ match {{ $x: Item {{ code: $code }} }} return {{ $x.text }} }} // {timestamp(clock.now())}\n"
    for rows in _FEW if effort.quick else _SIZES:
        folder = effort.folder(f"previews-{rows}")
        build, _ = _ours(rows, folder, "check a range")
        build()
        uri = str(folder / "g.omni")
        took, previews = [], []
        for n in range(_ROUNDS):
            begun = time.perf_counter()
            graph.clone_graph(uri, str(folder / f"copy-{n}.omni"))
            took.append((time.perf_counter() - begun) * 1000)
            chosen = ChosenGraph(
                "g", uri, live_version(uri), _BEFORE.replace("note: String?", "note: String?\n    more: I32?"), (),
                (ChosenQuery("q", text, text),),
            )  # fmt: skip
            begun = time.perf_counter()
            with open_ask(120, {}) as ask:
                tried = try_graphs((chosen,), str(folder / f"scratch-{n}"), ask, clock, 120)
            previews.append(time.perf_counter() - begun)
            if tried.graphs[0].code is not None or tried.graphs[0].queries[0].code is not None:
                raise RuntimeError(f"the preview failed: {tried.graphs[0]}")
        yield Figure(f"copy, {rows:,} rows", "ms", tuple(took))
        size = graph.scratch_size(str(folder / "copy-0.omni")).bytes / 1024
        yield Figure(f"copy, {rows:,} rows, stored", "KiB", (size,))
        goal = None if effort.quick or rows < max(_SIZES) else _GOAL_S
        yield Figure(f"preview that adds a property and runs one query, {rows:,} rows", "s", tuple(previews), goal)
