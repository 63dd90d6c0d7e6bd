"""One process of `tests.fuzz.crash`: inputs for one target until the time is up, then a report in its folder.

An input may take two seconds of processor time. A timer of the process ends one that takes more; whatever was found is
tried again without coverage, which costs time itself, and counts only if it is found again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

CPU_SECONDS = 2.0
_GUIDED_BYTES = 4096
_MAX_FINDINGS = 20
_LENGTH = 8
_PRODUCT = str(Path(__file__).resolve().parents[2] / "gitops")

LAST = "last"
"""The file of the input that is being tried, behind its length: what is left of a process that dies."""


def last_input(place: Path) -> bytes:
    """The input that the process of this folder tried last."""
    held = (place / LAST).read_bytes() if (place / LAST).exists() else b""
    return held[_LENGTH:][: int.from_bytes(held[:_LENGTH], "big")]


class TooSlowError(BaseException):
    """An input took more than its time; no subject may catch it."""


def attempt(target: Callable[[bytes], None], data: bytes) -> tuple[str, str] | None:
    """Run one input: None, or what kind of finding it is, and the words for it."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
        try:
            target(data)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TooSlowError as error:
        return f"slow at {_where(error)}", f"takes more than {CPU_SECONDS} s, stopped at {_where(error)}"
    except Exception as error:  # noqa: BLE001 - anything at all is what is looked for
        text = f"{type(error).__name__}: {error}"[:400]
        return f"{type(error).__name__} at {_where(error)}", f"{text} at {_where(error)}"
    return None


def _where(error: BaseException) -> str:
    """The innermost line of the product, else of the target: not that of the timer."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name != "stop"]
    inside = [frame for frame in frames if frame.filename.startswith(_PRODUCT)] or frames
    return f"{Path(inside[-1].filename).name}:{inside[-1].lineno}"


class Worker:
    """Counts inputs, keeps one input of each kind of finding, the shortest."""

    def __init__(self, target: str, until: float, place: Path) -> None:
        """Run until this reading of the monotonic clock."""
        from tests.fuzz.targets import TARGETS

        self._name = target
        self._target = TARGETS[target]
        self._place = place
        self._began = time.monotonic()
        self._until = until
        self.inputs = 0
        self._slowest_s = 0.0
        self._kinds: dict[str, tuple[str, bytes]] = {}
        self._last = os.open(place / LAST, os.O_RDWR | os.O_CREAT, 0o600)

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or enough is found."""
        return time.monotonic() > self._until or len(self._kinds) >= _MAX_FINDINGS

    @property
    def findings(self) -> list[tuple[str, bytes]]:
        """What was found, not yet tried again: the reason and the input."""
        return list(self._kinds.values())

    def one(self, data: bytes) -> None:
        """Try one input."""
        self.inputs += 1
        os.pwrite(self._last, len(data).to_bytes(_LENGTH, "big") + data, 0)
        before = time.process_time()
        found = attempt(self._target, data)
        self._slowest_s = max(self._slowest_s, time.process_time() - before)
        if found is not None:
            kind, reason = found
            known = self._kinds.get(kind)
            if known is None or len(data) < len(known[1]):
                self._kinds[kind] = (reason, data)

    def report(self, engine: str) -> None:
        """Try what was found once more in a fresh process, and write the report."""
        spent = time.monotonic() - self._began
        confirmed = [pair for pair in (self._again(data) for _, data in self.findings) if pair is not None]
        form = {
            "engine": engine,
            "inputs": self.inputs,
            "seconds": spent,
            "slowest_s": self._slowest_s,
            "findings": confirmed,
        }
        (self._place / "report.json").write_text(json.dumps(form), encoding="utf-8")

    def _again(self, data: bytes) -> tuple[str, str] | None:
        (self._place / "input").write_bytes(data)
        words = ["replay", self._name, str(self._place / "input")]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.crash_worker", *words], capture_output=True, timeout=60, check=False
        )
        told = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode == 0:
            return None
        return (told or f"the process ended with {done.returncode}", data.hex())


def replay(target: str, path: str) -> int:
    """Try the input in a file; says what is wrong with it and returns 1 if something is."""
    from tests.fuzz.targets import TARGETS

    found = attempt(TARGETS[target], Path(path).read_bytes())
    if found is not None:
        print(found[1])  # noqa: T201 - a program
    return 0 if found is None else 1


def plain(worker: Worker, mode: str, seeds: tuple[bytes, ...], chance: random.Random) -> None:
    """Inputs without guidance: each seed as it is, then changed or grown ones."""
    from tests.fuzz.mutants import changed, grown

    make = changed if mode == "changed" else grown
    for data in seeds:
        worker.one(data)
    while not worker.is_over:
        data = chance.choice(seeds)
        if mode == "grown" and chance.random() < 0.5:
            data = changed(data, seeds, chance)
        worker.one(make(data, seeds, chance))


def guided(atheris: Any, worker: Worker, seeds: tuple[bytes, ...], place: Path, seed: int) -> None:
    """Changed inputs, guided by coverage; never returns, as the library ends the process."""
    from tests.fuzz.mutants import changed

    corpus = place / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds):
        (corpus / f"{number:05}").write_bytes(data)

    def one(data: bytes) -> None:
        worker.one(data)
        if worker.is_over:
            worker.report("atheris")
            os._exit(0)

    def mutate(data: bytes, size: int, number: int) -> bytes:
        chance = random.Random(number)  # noqa: S311 - the same inputs for the same seed
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, size))
        return changed(data, seeds, chance)[:size]

    words = [
        sys.argv[0],
        str(corpus),
        f"-seed={seed + 1}",
        f"-max_len={_GUIDED_BYTES}",
        "-timeout=60",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup([*words, f"-artifact_prefix={place}/"], one, custom_mutator=mutate)
    atheris.Fuzz()


def main(words: list[str]) -> int:
    """`TARGET MODE SECONDS SEED FOLDER [SEEDS...]`, or `replay TARGET FILE`."""
    if words[0] == "replay":
        return replay(words[1], words[2])
    target, mode, seconds, seed, folder, *more = words
    place, until = Path(folder), time.monotonic() + float(seconds)
    for old in ("report.json", "input", LAST):
        (place / old).unlink(missing_ok=True)
    atheris = _atheris() if mode == "changed" else None
    with (
        nullcontext()
        if atheris is None
        else atheris.instrument_imports(include=["gitops.database.language", "gitops.cluster.config"])
    ):
        from tests.fuzz.targets import seeds
    known = seeds(target, tuple(Path(each) for each in more))
    worker = Worker(target, until, place)
    if atheris is not None:
        guided(atheris, worker, known, place, int(seed))
    plain(worker, mode, known, random.Random(f"{target}:{mode}:{seed}"))  # noqa: S311 - the same inputs for the same seed
    worker.report("plain")
    return 0


def _atheris() -> Any:
    found = importlib.util.find_spec("atheris")
    return None if found is None else importlib.import_module("atheris")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
