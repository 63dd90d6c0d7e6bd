"""Builds what previews need: isolated workers, the newest versions of graphs, and the folders of scratch copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.repository.wiring.system import RandomIds, SystemClock
from gitops.review.previews import order as orders
from gitops.review.previews.choose import LiveVersion
from gitops.review.previews.order import Ask, Job

_WORKERS = 2
_MEMORY_MIB = 2048
_FILE_MIB = 1024
_STORAGE = "AWS_"
"""The beginning of the names of variables that a worker needs to reach graphs in a bucket."""


def live_version(uri: str) -> LiveVersion:
    """Return the newest version of the graph at a root. Raises the errors of the engine's `read`."""
    from gitops.database.graph import open_snapshot

    manifest = open_snapshot(uri).manifest
    return LiveVersion(manifest.n, manifest.txn_id)


@contextmanager
def open_ask(budget_s: float, environ: Mapping[str, str]) -> Iterator[Ask]:
    """Start isolated workers for a preview of at most `budget_s` seconds, and end them afterwards.

    Of the environment, they get only the credentials and address of the storage.
    """
    from gitops.review.trial import TrialBatch, TrialFailure, TrialLimits, TrialPool

    limits = TrialLimits(
        deadline_s=max(1.0, min(budget_s, orders.MIGRATION_SECONDS * 2)),
        cpu_s=max(1, int(budget_s)),
        memory_mib=_MEMORY_MIB,
        file_mib=_FILE_MIB,
    )
    storage = {name: value for name, value in environ.items() if name.startswith(_STORAGE)}
    failures = {TrialFailure.DEADLINE: Code.PREVIEW_LIMIT, TrialFailure.NOT_RUN: Code.PREVIEW_LIMIT}
    failures[TrialFailure.TOO_LARGE] = Code.PREVIEW_LIMIT
    with TrialPool(f"{__name__}:open_worker", workers=_WORKERS, limits=limits, storage=storage) as pool:

        def ask(jobs: Sequence[Job], left_s: float) -> Sequence[Any]:
            batches = [TrialBatch(({"task": job.task.value, "order": job.form},)) for job in jobs]
            found: dict[int, Any] = {}
            for place, answer in pool.run(batches, budget_s=left_s):
                if answer.failure is None and answer.value is not None:
                    found[place.batch] = answer.value.get("answer")
                else:
                    code = failures.get(answer.failure or TrialFailure.DIED, Code.PREVIEW_UNAVAILABLE)
                    found[place.batch] = GitopsError(code, answer.detail)
            return [found[at] for at in range(len(jobs))]

        yield ask


def open_worker(_folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function with which a worker carries out jobs."""
    from gitops.review.previews.trial import carry_out

    clock, ids = SystemClock(), RandomIds()

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        return {"answer": carry_out(job["task"], job["order"], clock, ids)}

    return answer
