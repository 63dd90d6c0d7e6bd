"""Look for inputs that raise something else than a problem, or take too long: `python -m tests.fuzz.crash --seconds 600`.

Each target runs in processes of its own until the time is up, half of them with changed inputs and half with grown ones.
With atheris installed (it is optional: `pip install atheris`), the first half is guided by coverage. What is found is said again
without coverage before it counts, is written to the folder `fuzz-findings`, and makes the exit status 1. A finding that
was repaired belongs into `tests/data/fuzz`, where it is a seed, and a case of the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.crash_worker import last_input
from tests.fuzz.targets import ROOT, TARGETS

_MODES = ("changed", "grown")


class Job(NamedTuple):
    """One process: a target, how its inputs are made, for how long."""

    target: str
    mode: str
    seconds: float
    seed: int


class Report(NamedTuple):
    """What a process says when its time is up."""

    job: Job
    engine: str
    inputs: int
    seconds: float
    slowest_s: float
    findings: list[tuple[str, bytes]]


def jobs(targets: list[str], seconds: float, workers: int, seed: int) -> list[Job]:
    """All processes such that, `workers` at a time, they take `seconds` altogether."""
    each = seconds * workers / (len(targets) * len(_MODES))
    return [Job(target, mode, each, seed) for mode in _MODES for target in targets]


def run(job: Job, seeds: list[str], scratch: Path) -> Report:
    """Run one process; one that ends in any other way than by reporting is a finding itself."""
    place = scratch / f"{job.target}-{job.mode}"
    place.mkdir(parents=True, exist_ok=True)
    report = place / "report.json"
    report.unlink(missing_ok=True)
    words = [job.target, job.mode, str(job.seconds), str(job.seed), str(place), *seeds]
    command = [sys.executable, "-m", "tests.fuzz.crash_worker", *words]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=job.seconds * 2 + 120, check=False)
        told = f"ended with {done.returncode}: {done.stderr.decode('utf-8', 'replace')[-600:]}"
    except subprocess.TimeoutExpired:
        told = "did not end"
    if not report.exists():
        return Report(job, "died", 0, job.seconds, 0.0, [(f"the process {told}", last_input(place))])
    form = json.loads(report.read_text("utf-8"))
    findings = [(reason, bytes.fromhex(data)) for reason, data in form["findings"]]
    return Report(job, form["engine"], form["inputs"], form["seconds"], form["slowest_s"], findings)


def main() -> int:
    """Run all processes and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.crash")
    parser.add_argument("--seconds", type=float, default=600, help="time for the whole run")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other inputs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument(
        "--seeds", action="append", default=[], metavar="DIR", help="take the texts of this folder as well"
    )
    parser.add_argument("--findings", type=Path, default=ROOT / "build/fuzz-findings", metavar="DIR")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of: {', '.join(TARGETS)}")
    options = parser.parse_args()
    targets = options.targets or list(TARGETS)
    if unknown := sorted(set(targets) - set(TARGETS)):
        parser.error(f"unknown targets: {', '.join(unknown)}")
    guided = importlib.util.find_spec("atheris") is not None
    print(f"coverage: {'atheris' if guided else 'none, atheris is not installed'}")  # noqa: T201 - a program
    began = time.monotonic()
    planned = jobs(targets, options.seconds, options.workers, options.seed)
    scratch = options.findings / "runs"
    with ThreadPoolExecutor(options.workers) as pool:
        reports = list(pool.map(lambda job: run(job, options.seeds, scratch), planned))
    for report in reports:
        job = report.job
        rate = report.inputs / max(report.seconds, 0.001)
        print(  # noqa: T201 - a program
            f"{job.target:10} {job.mode:8} {report.engine:8} {report.inputs:9} inputs {rate:8.0f}/s"
            f"  slowest {report.slowest_s:5.2f} s  {len(report.findings)} findings"
        )
    found = [(report.job.target, reason, data) for report in reports for reason, data in report.findings]
    for target, reason, data in found:
        path = options.findings / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"{path}\n  {reason}")  # noqa: T201 - a program
    total, spent = sum(report.inputs for report in reports), time.monotonic() - began
    print(f"{total} inputs in {spent:.0f} s, {total / spent:.0f}/s, {len(found)} findings")  # noqa: T201 - a program
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
