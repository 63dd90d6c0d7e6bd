"""Run the fuzzer: `python -m tests.fuzz [--inputs N] [--seed N]`. Exits 1 at the first difference of each language."""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.fuzz import inputs
from tests.fuzz.compare import difference

_LANGUAGES = ("pg", "gq")
_CHUNK = 1000
_KINDS = (inputs.sentence, inputs.mutation, inputs.mutation, inputs.noise)


class Chunk(NamedTuple):
    """A part of a run; the same numbers always make the same inputs."""

    language: str
    seed: int
    inputs: int


class Result(NamedTuple):
    """How many inputs of a chunk were accepted, and what went wrong, with the input."""

    accepted: int
    failures: list[tuple[str, str]]


def run(chunk: Chunk) -> Result:
    """Make the inputs of a chunk and compare."""
    from tests.support.grammars.oracle import parse

    chance = random.Random(f"{chunk.language}:{chunk.seed}")  # noqa: S311 - the same inputs for the same seed
    accepted = 0
    failures = []
    for _ in range(chunk.inputs):
        text = chance.choice(_KINDS)(chunk.language, chance)
        data = text.encode("utf-8", "replace")
        if chance.random() < 0.01:
            data += bytes([chance.randrange(128, 256)])
        try:
            found = difference(chunk.language, data)
        except Exception as error:  # noqa: BLE001 - anything at all is what is looked for
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            failures.append((found, repr(data)))
        accepted += parse(chunk.language, data) is not None
    return Result(accepted, failures)


def main() -> int:
    """Run all chunks on all cores and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs, half of them of each language")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other inputs")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    options = parser.parse_args()
    each = -(-options.inputs // (_CHUNK * len(_LANGUAGES)))
    chunks = [Chunk(lang, options.seed * 1_000_000 + n, _CHUNK) for n in range(each) for lang in _LANGUAGES]
    began = time.monotonic()
    totals = dict.fromkeys(_LANGUAGES, 0)
    failed: dict[str, list[tuple[str, str]]] = {language: [] for language in _LANGUAGES}
    with ProcessPoolExecutor(options.workers) as pool:
        for chunk, result in zip(chunks, pool.map(run, chunks), strict=True):
            totals[chunk.language] += result.accepted
            failed[chunk.language] += result.failures
    for language, found in failed.items():
        print(f"{language}: {each * _CHUNK} inputs, {totals[language]} accepted, {len(found)} differences")  # noqa: T201 - a program
        for reason, data in sorted(found, key=lambda pair: len(pair[1]))[:5]:
            print(f"  {data[:600]}\n    {reason[:1500]}")  # noqa: T201 - a program
    print(f"{time.monotonic() - began:.0f} s")  # noqa: T201 - a program
    return 1 if any(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
