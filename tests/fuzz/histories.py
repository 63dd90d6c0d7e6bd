"""Check the law of authors on random histories: `python -m tests.fuzz.histories [--seed N] [--count N]`.

Prints the results by shape, and the number to pass as `--seed` to continue. Exits 1 if a history breaks the law and prints its
number, so that `--seed NUMBER --count 1` repeats it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.support import pen
from tests.support.author_law import Verdict, judge
from tests.support.random_histories import SHAPES, Desk

_CHUNK = 250


def looked_at(seeds: range) -> list[tuple[int, Verdict]]:
    """Judge some histories."""
    pen.install()
    memory = Path("/dev/shm")  # noqa: S108 - a private folder is made there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        desk = Desk(Path(folder))
        return [(seed, judge(desk, seed)) for seed in seeds]


def _chunks(seed: int, count: int) -> Iterator[range]:
    for start in range(seed, seed + count, _CHUNK):
        yield range(start, min(start + _CHUNK, seed + count))


def main() -> int:
    """Judge histories on all cores and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.histories")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first history")
    parser.add_argument("--count", type=int, default=100_000, help="how many histories")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    options = parser.parse_args()
    began, done, broken = time.monotonic(), 0, 0
    shapes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for verdicts in pool.map(looked_at, _chunks(options.seed, options.count)):
            for seed, verdict in verdicts:
                counted = {"opened": verdict.opened, "closed": verdict.closed, "refused": verdict.refused}
                shapes[verdict.shape].update(histories=1, **counted)
                broken += bool(verdict.problems)
                for problem in verdict.problems:
                    print(f"history {seed} ({verdict.shape}): {problem}", flush=True)  # noqa: T201 - a program
            done += len(verdicts)
            print(f"\r{done} histories, next: {options.seed + done}", end="", file=sys.stderr, flush=True)  # noqa: T201
    print(file=sys.stderr)  # noqa: T201 - a program
    for shape in SHAPES:
        found = shapes[shape]
        print(  # noqa: T201 - a program
            f"{shape:18} {found['histories']:6} histories, gates: {found['opened']} opened, {found['closed']} closed, "
            f"{found['refused']} refused"
        )
    seconds = time.monotonic() - began
    print(  # noqa: T201 - a program
        f"{done} histories from {options.seed}, {broken} break the law; {seconds:.0f} s; next: --seed {options.seed + done}"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
