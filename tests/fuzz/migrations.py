"""Plan many generated pairs of schemas: `python -m tests.fuzz.migrations [--seed N] [--count N]`.

Each pair must migrate, with a way back, or the plan must say why. Prints how many pairs and which steps there were. A pair that
breaks a law ends the run with both schemas.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from hypothesis import HealthCheck, given, seed, settings

from tests.support.evolution import judge, revisions


def main() -> int:
    """Judge pairs and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.migrations")
    parser.add_argument("--seed", type=int, default=0, help="where the random choices begin")
    parser.add_argument("--count", type=int, default=100_000, help="how many pairs")
    options = parser.parse_args()
    began, pairs, steps = time.monotonic(), Counter[str](), Counter[str]()

    @seed(options.seed)
    @settings(max_examples=options.count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(revisions())
    def run(pair: tuple[bytes, bytes]) -> None:
        migration = judge(pair)
        pairs["migrate" if migration.supported else "are refused"] += 1
        steps.update(f"{step.kind}, {step.sort}" for step in migration.steps)

    run()
    for name, found in sorted(steps.items()):
        print(f"{name:40} {found:8}")  # noqa: T201 - a program
    told = ", ".join(f"{found} {name}" for name, found in sorted(pairs.items()))
    print(f"{pairs.total()} pairs: {told}; {time.monotonic() - began:.0f} s")  # noqa: T201 - a program
    return 0


if __name__ == "__main__":
    sys.exit(main())
