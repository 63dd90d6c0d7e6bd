"""`make mutants`: plant mutants in the pure core, run the tests of each room, and print which of them no test notices.

    python -m tests.mutants [--count N] [--seed N] [--room NAME] [--json FILE]

Which mutants are taken depends on the seed and the source alone. A mutant with which the
tests run out of time counts as killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.mutants.plant import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
_TIME_S = 240

# The modules of the core that decide, and the tests whose subject they are.
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "approvals": (
        (
            "gitops/cluster/approvals/verify.py",
            "gitops/cluster/approvals/decisions.py",
            "gitops/cluster/approvals/origins.py",
        ),
        ("tests/unit/cluster/plan", "tests/integration/cluster/approvals", "tests/property/test_approval_laws.py"),
    ),
    "plan": (
        (
            "gitops/cluster/plan/planner.py",
            "gitops/cluster/plan/draft.py",
            "gitops/cluster/plan/impact.py",
        ),
        ("tests/unit/cluster/plan", "tests/property/test_graph_laws.py", "tests/scenario/test_control_plane.py"),
    ),
    "edges": (
        (
            "gitops/cluster/plan/graph.py",
            "gitops/cluster/plan/layers.py",
            "gitops/cluster/plan/classes.py",
        ),
        (
            "tests/unit/cluster/plan/test_graph.py",
            "tests/property/test_graph_laws.py",
            "tests/scenario/test_control_plane.py",
        ),
    ),
    "schedule": (
        ("gitops/cluster/plan/schedule.py",),
        (
            "tests/unit/cluster/plan/test_schedule.py",
            "tests/property/test_scheduler_laws.py",
        ),
    ),
    "apply": (
        ("gitops/cluster/apply/settle.py", "gitops/cluster/plan/recovery_rules.py"),
        (
            "tests/unit/cluster/plan",
            "tests/unit/cluster/apply",
            "tests/scenario/test_recovery.py",
            "tests/scenario/test_control_plane.py",
        ),
    ),
    "core": (
        (
            "gitops/core/canonical.py",
            "gitops/core/redact.py",
            "gitops/core/clock.py",
            "gitops/cluster/model/resource.py",
        ),
        (
            "tests/unit/core",
            "tests/unit/core/documents",
            "tests/unit/cluster/config",
            "tests/integration/cluster/config",
        ),
    ),
    "git": (
        ("gitops/git/sshsig.py", "gitops/git/trees.py"),
        ("tests/integration/git", "tests/property/test_git_laws.py"),
    ),
    "schema": (
        ("gitops/database/language/schema/migration.py", "gitops/database/language/schema/compile.py"),
        ("tests/unit/database/language", "tests/property/test_language_laws.py"),
    ),
    "query": (
        (
            "gitops/database/language/query/check.py",
            "gitops/database/language/query/check_expr.py",
            "gitops/database/language/query/params.py",
        ),
        ("tests/unit/database/language",),
    ),
}


def chosen(room: str, count: int, seed: int) -> list[Mutant]:
    """`count` mutants of a room, or all of them if there are fewer."""
    every = [m for name in ROOMS[room][0] for m in mutants(name, (ROOT / name).read_text(encoding="utf-8"))]
    return sorted(random.Random(f"{seed} {room}").sample(every, min(count, len(every))))  # noqa: S311


def killed(mutant: Mutant, tests: tuple[str, ...], folder: Path) -> bool:
    """Whether a test fails with the mutant in `folder`, a copy of the project."""
    place = folder / mutant.module
    sound = place.read_text(encoding="utf-8")
    place.write_text(mutant.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            check=False,
            timeout=_TIME_S,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        place.write_text(sound, encoding="utf-8")
    return done.returncode != 0


def _room(room: str, count: int, seed: int, folder: Path) -> list[tuple[Mutant, bool]]:
    copy = folder / room
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    tests = ROOMS[room][1]
    return [(mutant, killed(mutant, tests, copy)) for mutant in chosen(room, count, seed)]


def main() -> int:
    """Exit code 0: this measures, it does not judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=12, help="mutants of each room (default: 12)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", choices=ROOMS, action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rooms = options.room or list(ROOMS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(_room, room, options.count, options.seed, Path(folder)) for room in rooms]
        results = {room: run.result() for room, run in zip(rooms, runs, strict=True)}
    rows = []
    for room, found in results.items():
        alive = [mutant for mutant, dead in found if not dead]
        print(f"{room:10} {len(found) - len(alive):3} of {len(found):3} killed")
        print("".join(f"    alive {mutant.title}\n" for mutant in alive), end="")
        rows += [{"room": room, "killed": dead, **asdict(mutant), "text": None} for mutant, dead in found]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
