"""`python -m tests.bench [--json FILE] [--quick] [--only GROUP]`: measure, print a table, write the document.

Times are facts about one machine in one hour: compare figures of one run, or runs of one machine. No time is asserted, but
the group `growth` fails if a time grows with a graph that must not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.measure import BeyondBoundError, Effort, LeftOutError
from tests.bench.report import document, machine, machine_line, table_lines

GROUPS = (
    "processes",
    "languages",
    "cache",
    "editor",
    "authors",
    "ledgers",
    "buckets",
    "replicas",
    "audits",
    "review",
    "access",
    "strategies",
    "engine",
    "limits",
    "graphs",
    "growth",
    "snb",
    "migrations",
    "previews",
    "parallel",
    "scale",
    "distributed",
    "requests",
    "bot",
    "serving",
    "changesets",
    "suite",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns 0, or 1 if a group found something beyond its bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure speed and memory.")
    parser.add_argument("--json", metavar="FILE", default="bench.json", help="document to write (default bench.json)")
    parser.add_argument("--quick", action="store_true", help="few samples, small clusters: shows that it works")
    parser.add_argument("--only", metavar="GROUP", choices=GROUPS, action="append", help="only this group; repeatable")
    options = parser.parse_args(arguments)
    facts = machine()
    print(machine_line(facts))
    figures: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gitops-bench-") as scratch:
        effort = Effort(options.quick, Path(scratch))
        for group in options.only or GROUPS:
            found: list[dict[str, Any]] = []
            try:
                found.extend(f.to_json(group) for f in import_module(f"tests.bench.{group}").figures(effort))
            except LeftOutError as reason:
                left_out.append({"group": group, "reason": str(reason)})
            except BeyondBoundError as reason:
                failed.append(f"{group}: {reason}")
            figures.extend(found)
            print("\n" + "\n".join(table_lines(found)) if found else f"\n{group}: left out", flush=True)
            print(*(f"  left out: {each['reason']}" for each in left_out if each["group"] == group), sep="\n")
    form = document(facts, figures, left_out, "quick" if options.quick else "full")
    Path(options.json).write_text(json.dumps(form, indent=2) + "\n", encoding="utf-8")
    print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
