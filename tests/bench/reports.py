"""What `gitops report` costs: a first report of a long ledger, one entry more, and one without a change; the largest page.

`GITOPS_BENCH_ENTRIES` is the length of the ledger; 10,000 take some minutes to make. The goals for 10,000 entries are 20 s, 1 s
for one entry more, and pages of less than 200 KB.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from gitops.git.port import RefUpdate
from tests.bench.measure import GITOPS, Effort, Figure, Program, Usage, process_figures

_MANY, _QUICK = 1000, 20
_TIMEOUT_S = 600.0


def figures(effort: Effort) -> Iterator[Figure]:
    """The three reports, then the size of the largest page."""
    from tests.support.audited import LEDGER
    from tests.support.long_ledger import long_life

    entries = _QUICK if effort.quick else int(os.environ.get("GITOPS_BENCH_ENTRIES") or _MANY)
    home = effort.folder(f"report-{entries}")
    store = long_life(home, entries).git
    environ, times, folder = effort.environment(), 1 if effort.quick else 3, home / "report"
    argv = (*GITOPS, "report", "--repo", str(store.git_dir), "--output", str(folder))

    def run() -> Usage:
        return Program(argv, home, environ, timeout_s=_TIMEOUT_S).run()

    head = store.resolve(LEDGER) or ""
    before = store.commit(head).parents[0]
    first, more, same = list[Usage](), list[Usage](), list[Usage]()
    for _ in range(times):
        shutil.rmtree(folder, ignore_errors=True)
        store.update_refs([RefUpdate(LEDGER, head, before)])
        first.append(run())
        store.update_refs([RefUpdate(LEDGER, before, head)])
        more.append(run())
        same.append(run())
    yield from process_figures(f"report, {entries} entries", tuple(first))
    yield from process_figures(f"report, {entries} entries, 1 of them new", tuple(more))
    yield from process_figures(f"report, {entries} entries, none of them new", tuple(same))
    largest = max(each.stat().st_size for each in folder.rglob("*.html"))
    yield Figure("largest page of a report", "KB", (largest / 1000,))
