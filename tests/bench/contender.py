"""`python -m tests.bench.contender SYSTEM load|ask FOLDER PEOPLE EDGES SAMPLES`: one system, in a process of its own.

Writes what it measured to `SYSTEM-load.json` or `SYSTEM-ask.json` in the folder, which all systems share; each has a folder of
its own below it. Its peak memory is seen from outside.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.bench.measure import NS_PER_MS, clocked
from tests.bench.social import Social

if TYPE_CHECKING:
    from tests.bench.ours import Ours
    from tests.bench.rivals import Ask, DuckDb, Ladybug, Postgres

    System = Ours | Ladybug | DuckDb | Postgres

_T = TypeVar("_T")
_ENOUGH_S = 10.0
# Warm is what a service is that answered the same question for a while.
_WARM_S, _WARM_CALLS = 2.0, 400
_LEAST = 3
AGAIN = ("1 hop", "{1,3} hops")
"""The questions that are put once more after a change."""


def open_system(name: str, folder: Path, social: Social) -> System:
    """The system of this name, on its folder below `folder`."""
    below = folder / name
    below.mkdir(exist_ok=True)
    if name == "gitops":
        from tests.bench.ours import Ours

        return Ours(below, social)
    from tests.bench import rivals

    kinds = {each.name: each for each in (rivals.Ladybug, rivals.DuckDb, rivals.Postgres)}
    return kinds[name](below, social)


def load(name: str, folder: Path, social: Social) -> dict[str, Any]:
    """Load, step by step: milliseconds of each, and bytes on disk at the end."""
    system = open_system(name, folder, social)
    took = {step: clocked(call)[1] for step, call in system.load().items()}
    system.close()
    return {"steps": took, "bytes": system.size()}


def ask(name: str, folder: Path, social: Social, samples: int) -> dict[str, Any]:
    """Open and read one row; then put every question, first once and then until there are enough samples."""
    opened: list[System] = []

    def reopen() -> Mapping[str, Ask]:
        opened.append(open_system(name, folder, social))
        asks = opened[0].questions()
        asks["point"]()
        return asks

    _import(name)
    asks, reopened, reopened_cpu = _timed(reopen)
    answers = {question: _answer(call, samples) for question, call in asks.items()}
    # What was made ready for the graph as it was may be of no use after a write.
    answers |= {f"{question} after a change": _answer(asks[question], samples) for question in AGAIN}
    found: dict[str, Any] = {"reopen_ms": reopened, "reopen_cpu_ms": reopened_cpu, "answers": answers}
    system = opened[0]
    publish = getattr(system, "publish_ms", None)
    if publish is not None:
        found["publish_ms"] = publish()
    system.close()
    return found


def _answer(call: Ask, samples: int) -> dict[str, Any]:
    rows, first = clocked(call)
    started = time.monotonic()
    for _ in range(_WARM_CALLS):
        if time.monotonic() - started > _WARM_S:
            break
        call()
    took: list[float] = []
    cpu: list[float] = []
    started = time.monotonic()
    while len(took) < samples and (len(took) < _LEAST or time.monotonic() - started < _ENOUGH_S):
        _, wall, used = _timed(call)
        took.append(wall)
        cpu.append(used)
    return {
        "first_ms": first,
        "ms": took,
        "cpu_ms": cpu,
        "rows": len(rows),
        "digest": digest_of(rows),
        "head": _head(rows),
    }


def _timed(call: Callable[[], _T]) -> tuple[_T, float, float]:
    """What a call returns, and the milliseconds that it takes: of time, and of CPU in all threads of this process."""
    start = time.process_time_ns()
    result, wall = clocked(call)
    return result, wall, (time.process_time_ns() - start) / NS_PER_MS


def digest_of(rows: Sequence[Sequence[Any]]) -> str:
    """Of the first cell of each row, in an order of its own: equal answers have equal digests."""
    return hashlib.sha256("\n".join(sorted(str(row[0]) for row in rows)).encode()).hexdigest()


def _head(rows: Sequence[Sequence[Any]]) -> list[str]:
    """The first cell of some rows."""
    return [str(row[0]) for row in rows[:10]]


def _import(name: str) -> None:
    """A start that is not counted: of a program that embeds a system, loading its code is no part of opening a graph."""
    import_module("tests.bench.ours" if name == "gitops" else name.casefold())
    # The questions contain a random vector.
    import_module("numpy.random")


def main(arguments: list[str]) -> int:
    """See the module."""
    name, step, folder, people, edges, samples = arguments
    social = Social(int(people), int(edges))
    place = Path(folder)
    found = load(name, place, social) if step == "load" else ask(name, place, social, int(samples))
    (place / f"{name}-{step}.json").write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
