"""Audits of long ledgers by the installed command: whole, and what is new since an entry that was verified before.

Every entry comes from a commit of its own that publishes another text of a query, so that nothing that one entry needs was read
for another. `GITOPS_BENCH_ENTRIES` is the length of the long one; 10,000 take some minutes to make.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tests.bench.measure import GITOPS, Effort, Figure, Program, Usage, process_figures

_FEW, _MANY, _QUICK = 100, 1000, (5, 20)
_NEW = 10
_TIMEOUT_S = 1200.0


def figures(effort: Effort) -> Iterator[Figure]:
    """Two lengths, then what an entry costs beyond the shorter one."""
    few, many = _QUICK if effort.quick else (_FEW, int(os.environ.get("GITOPS_BENCH_ENTRIES") or _MANY))
    short, long = _audited(effort, few), _audited(effort, many)
    for length, (whole, since, trail) in ((few, short), (many, long)):
        yield from process_figures(f"audit, {length} entries", whole)
        yield from process_figures(f"audit, {length} entries, {_NEW} of them new", since)
        yield from process_figures(f"log of the newest {_NEW} of {length} entries", trail)
    each = tuple((b.wall_ms - a.wall_ms) / (many - few) for a, b in zip(short[0], long[0], strict=True))
    yield Figure("audit, per entry", "ms", each)


def _audited(effort: Effort, entries: int) -> tuple[tuple[Usage, ...], ...]:
    """The whole ledger, its newest entries, and the log of those."""
    from tests.support.long_ledger import long_life

    home = effort.folder(f"audit-{entries}")
    repository = str(long_life(home, entries).repository.git.git_dir)
    environ, times = effort.environment(), 1 if effort.quick else 3

    def runs(*arguments: str) -> tuple[Usage, ...]:
        argv = (*GITOPS, *arguments, "--repo", repository)
        return tuple(Program(argv, home, environ, timeout_s=_TIMEOUT_S).run() for _ in range(times))

    newest = str(max(entries - _NEW, 1))
    return runs("audit"), runs("audit", "--since", newest), runs("log", "--limit", str(_NEW))
