"""`make mutants`: plant mutants in the rooms of the program, and print which of them no test notices.

    python -m tests.mutants [--count N] [--seed N] [--room NAME] [--json FILE] [--folder DIR]

All mutants are planted at once in a copy of the project, each behind a switch. One run of the tests writes down who reaches
which; then the tests that reach a mutant run with it, the quickest of each file first, until a test of every file failed or the
time is up. Which mutants are taken depends on the seed and the source alone. The table in JSON names every file of tests that
noticed a mutant. A mutant with which a test hangs counts as killed.
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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from threading import Thread

from tests.mutants.plant import Mutant, apart, mutants, planted

ROOT = Path(__file__).resolve().parents[2]
# The folders and files of each room.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "approvals": ("cluster/approvals", "cluster/approving"),
    "apply": ("cluster/apply", "cluster/changesets"),
    "audit": ("cluster/audit",),
    "bot": ("bot", "repository"),
    "cluster": ("cluster/session", "cluster/model", "cluster/policy", "cluster/targets"),
    "config": ("cluster/config",),
    "core": ("core",),
    "forge": ("forge",),
    "git": ("git",),
    "ledger": ("cluster/ledger",),
    "plan": ("cluster/plan",),
    "query": ("database/language/query",),
    "render": ("render",),
    "schema": ("database/language/schema",),
}
# They look at the text of the program, which is another one here.
_TEXTUAL = ("tests/architecture", "tests/bench", "tests/docs", "tests/mutants")
_OF_A_FILE = 5


def chosen(room: str, count: int, seed: int) -> list[Mutant]:
    """`count` mutants of a room, or fewer if there are fewer."""
    every: list[Mutant] = []
    for path in sorted(path for name in ROOMS[room] for path in (ROOT / "gitops" / name).rglob("*.py")):
        every += mutants(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    return random.Random(f"{seed} {room}").sample(every, min(count, len(every)))  # noqa: S311


def plant(copy: Path, taken: Mapping[int, Mutant]) -> set[int]:
    """Plant mutants in a copy of the project, and give their numbers; one that would lie inside another stays out."""
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis", "demo", "dist")
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True, dirs_exist_ok=True)
    shutil.copy(ROOT / "tests/mutants/switch.py", copy / "gitops/_mutant.py")
    (copy / "mutant-pages").mkdir()
    modules: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in taken.values():
        modules[mutant.module].append(mutant)
    numbers = {mutant: number for number, mutant in taken.items()}
    left: set[int] = set()
    for module, members in modules.items():
        kept = [(numbers[mutant], mutant) for mutant in apart(members)]
        text = planted((copy / module).read_text(encoding="utf-8"), kept)
        compile(text, module, "exec")
        (copy / module).write_text(text, encoding="utf-8")
        left |= {number for number, _ in kept}
    return left


def run(copy: Path, *arguments: str, **environ: str) -> None:
    """Run the tests of a copy; failures are what we are looking for."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "tests.mutants.plugin", *arguments]
    command += ["-p", "no:cacheprovider", *(f"--ignore={path}" for path in _TEXTUAL)]
    env = {**os.environ, "PYTHONPATH": str(copy), **environ}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with (copy / "mutant-pages/log").open("ab") as log:
        subprocess.run(command, cwd=copy, env=env, stdout=log, stderr=log, check=False)


def reaching(pages: Path) -> tuple[dict[int, set[str]], dict[str, float]]:
    """The tests that reach each mutant, and the seconds that each test takes."""
    reached: dict[int, set[str]] = defaultdict(set)
    seconds: dict[str, float] = {}
    for tests in pages.glob("*.tests"):
        names = {}
        for line in tests.read_text("utf-8").splitlines():
            begun, took, nodeid = line.split("\t", 2)
            names[int(begun)], seconds[nodeid] = nodeid, float(took)
        hits = tests.with_suffix(".reached")
        for line in hits.read_text("ascii").splitlines() if hits.exists() else ():
            begun, number = line.split()
            if int(begun) in names:
                reached[int(number)].add(names[int(begun)])
    return reached, seconds


def in_turn(nodeids: Iterable[str], seconds: Mapping[str, float]) -> Iterator[str]:
    """Some tests of each file, the quickest first, one file after the other."""
    files: dict[str, list[str]] = defaultdict(list)
    for nodeid in sorted(nodeids, key=lambda nodeid: (seconds[nodeid], nodeid)):
        files[nodeid.partition("::")[0]].append(nodeid)
    ranks = zip_longest(*(files[name][:_OF_A_FILE] for name in sorted(files, key=lambda name: seconds[files[name][0]])))
    return (nodeid for rank in ranks for nodeid in rank if nodeid is not None)


def outcomes(
    copy: Path, reached: Mapping[int, set[str]], seconds: Mapping[str, float]
) -> dict[int, dict[str, list[str]]]:
    """What became of each mutant that is reached: the tests that noticed it, by `killed`, `hangs`, `cut` and `done`."""
    pages = copy / "mutant-pages"
    jobs = [(number, list(in_turn(nodeids, seconds))) for number, nodeids in sorted(reached.items())]
    shares, running = os.cpu_count() or 1, []
    for share in range(shares):
        path, own = pages / f"jobs.{share}", jobs[share::shares]
        sound = (0, sorted({nodeid for _, nodeids in own for nodeid in nodeids}))
        path.write_text(json.dumps([sound, *own]), encoding="utf-8")
        running.append(path)
    with tempfile.TemporaryDirectory() as folder:
        threads = [
            Thread(
                target=run,
                args=(
                    copy,
                    "-n0",
                    "-p",
                    "no:randomly",
                    "-p",
                    "no:unraisableexception",
                    f"--basetemp={folder}/{path.name}",
                ),
                kwargs={"GITOPS_MUTANT_JOBS": str(path)},
            )
            for path in running
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = [line.split("\t") for line in (pages / "outcomes").read_text("utf-8").splitlines()]
    # What fails in a forked process without a mutant says nothing about one.
    unsound = {nodeid for number, what, nodeid in rows if number == "0" and what == "killed"}
    found: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for number, what, nodeid in rows:
        if nodeid not in unsound or not nodeid:
            found[int(number)][what].append(nodeid)
    return found


def main() -> int:
    """Exit code 0: this measures, it does not judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=12, help="mutants of each room (default: 12)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", choices=ROOMS, action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--tests", nargs="*", default=["tests"], metavar="PATH", help="which tests may notice (default: all)"
    )
    parser.add_argument("--folder", type=Path, help="where the copy goes, and stays")
    options = parser.parse_args()
    taken: dict[int, Mutant] = {}
    rooms: dict[int, str] = {}
    for room in options.room or ROOMS:
        for mutant in chosen(room, options.count, options.seed):
            number = len(taken) + 1
            taken[number], rooms[number] = mutant, room
    with tempfile.TemporaryDirectory() as folder:
        copy = options.folder or Path(folder)
        left = plant(copy, taken)
        run(copy, "-n", "auto", *options.tests)
        reached, seconds = reaching(copy / "mutant-pages")
        found = outcomes(copy, reached, seconds)
    rows = []
    for number in sorted(left):
        mutant, what = taken[number], found.get(number, {})
        killers = sorted({nodeid.partition("::")[0] for nodeid in what.get("killed", ())})
        rows.append(
            {
                "room": rooms[number],
                "mutant": mutant.title,
                "killed": bool(killers or "hangs" in what),
                "reached": len(reached.get(number, ())),
                "cut": "cut" in what,
                "killers": killers,
                "tests": what.get("killed", []),
            }
        )
    for room in options.room or ROOMS:
        members = [row for row in rows if row["room"] == room]
        print(f"{room:10} {sum(row['killed'] for row in members):3} of {len(members):3} killed")
        for row in members:
            if not row["killed"]:
                print(f"    alive {row['mutant']} ({row['reached']} tests reach it)")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
