"""What `gitops report` costs: a first report of a long ledger, one entry more, and one without a change; the largest page.

`GITOPS_BENCH_ENTRIES` is the length of the ledger; 10,000 take some minutes to make, and the goals are for these.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from gitops.git.port import RefUpdate
from gitops.repository.wiring.git import open_git
from tests.bench.measure import GITOPS, Effort, Figure, Goals, Program, Usage, process_figures

_MANY, _QUICK, _PROMISED = 1000, 20, 10_000
_TIMEOUT_S = 600.0
# 200 KB.
_FIRST, _MORE, _PAGE_KIB = Goals(wall_ms=20_000), Goals(wall_ms=1_000), 195.0


def figures(effort: Effort) -> Iterator[Figure]:
    """The three reports, then the size of the largest page."""
    from tests.support.audited import LEDGER
    from tests.support.long_ledger import long_life

    entries = _QUICK if effort.quick else int(os.environ.get("GITOPS_BENCH_ENTRIES") or _MANY)
    home = effort.folder(f"report-{entries}")
    (home / "made").mkdir()
    made = long_life(home / "made", entries).git
    environ, times = effort.environment(), 1 if effort.quick else 3
    head = made.resolve(LEDGER) or ""
    before = made.commit(head).parents[0]
    made.update_refs([RefUpdate(LEDGER, head, before)])
    first, more, same = list[Usage](), list[Usage](), list[Usage]()
    for number in range(times):
        # A clone remembers the newest entry that it has seen, so each round begins with one that has seen none.
        clone = shutil.copytree(made.git_dir, home / f"{number}.git")
        folder = home / f"report-{number}"
        argv = (*GITOPS, "report", "--repo", str(clone), "--output", str(folder))
        program = Program(argv, home, environ, timeout_s=_TIMEOUT_S)
        first.append(program.run())
        open_git(str(clone)).update_refs([RefUpdate(LEDGER, before, head)])
        more.append(program.run())
        same.append(program.run())
    asked = (_FIRST, _MORE) if entries >= _PROMISED else (None, None)
    yield from process_figures(f"report, {entries:,} entries", tuple(first), asked[0])
    yield from process_figures(f"report, {entries:,} entries, 1 of them new", tuple(more), asked[1])
    yield from process_figures(f"report, {entries:,} entries, none of them new", tuple(same))
    largest = max(each.stat().st_size for each in folder.rglob("*.html"))
    yield Figure("largest page of a report", "KiB", (largest / 1024,), _PAGE_KIB)
