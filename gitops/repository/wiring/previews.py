"""Builds what previews need: isolated workers, the newest versions of graphs, and the folders of scratch copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.repository.wiring.stores import open_bucket, open_store
from gitops.repository.wiring.system import RandomIds, SystemClock
from gitops.review.previews import order as orders
from gitops.review.previews.choose import LiveVersion
from gitops.review.previews.order import Ask, Job
from gitops.review.previews.port import CLAIM, CLAIM_FORM, UNRECORDED, Claim, Scratch

if TYPE_CHECKING:
    from gitops.repository.wiring.local import LocalRepository

_WORKERS = 2
_MEMORY_MIB = 2048
_FILE_MIB = 1024
_TURN = "running"
_STORAGE = "AWS_"
"""The beginning of the names of variables that a worker needs to reach graphs in a bucket."""


def live_version(uri: str) -> LiveVersion:
    """Return the newest version of the graph at a root. Raises the errors of the engine's `read`."""
    from gitops.database.graph import open_snapshot

    manifest = open_snapshot(uri).manifest
    return LiveVersion(manifest.n, manifest.txn_id)


class MachinePreviews:
    """A PreviewBench on this machine."""

    def __init__(self, local: LocalRepository, environ: Mapping[str, str]) -> None:
        self._local = local
        self._environ = environ

    def live(self, uri: str) -> LiveVersion:
        """Read the newest manifest of a graph."""
        return live_version(uri)

    def workers(self, budget_s: float) -> AbstractContextManager[Ask]:
        """Start worker processes."""
        return open_ask(budget_s, self._environ)

    def scratch(self, cluster: str, declared: str, storage: str) -> Scratch:
        """Return the scratch folder, which must be where the operator allows data of the cluster."""
        return StoredScratch(scratch_root(self._local, cluster, declared, storage), cluster)

    def sign_with(self) -> str | None:
        """Return the signing key of this repository."""
        return self._local.git.signing_key()


def scratch_root(local: LocalRepository, cluster: str, declared: str, storage: str) -> str:
    """Return the root of a cluster's copies, whose graphs are below the root `storage`; empty if that is not known.

    Raises GitopsError `preview_unavailable` if `declared` is not in the same store, or where graphs or the ledger are,
    `storage_root_refused`, `storage_root_invalid`.
    """
    root = local.storage_base(local.rule(cluster), declared)
    if root is None:
        raise _unavailable("this machine has no storage for graphs")
    if not storage:
        return root
    mine, live = _store_of(root), _store_of(storage)
    if mine != live:
        detail = f"preview.scratch is on {mine}, and the graphs are on {live}"
        raise _unavailable(f"{detail}: copies share the data files of the graphs, so both must be in one store")
    storage = storage.rstrip("/")
    if root.rstrip("/") == storage or f"{root}/".startswith((f"{storage}/graphs/", f"{storage}/__cluster/")):
        raise _unavailable(f"preview.scratch is where the graphs are: {declared}")
    return root


def _store_of(root: str) -> str:
    """Name the store of a root: a bucket, or this machine."""
    return f"bucket {root.removeprefix('s3://').partition('/')[0]}" if root.startswith("s3:") else "a disk"


def _unavailable(detail: str) -> GitopsError:
    return GitopsError(Code.PREVIEW_UNAVAILABLE, detail, path="preview.scratch")


class StoredScratch:
    """A Scratch in a local folder or below a bucket prefix."""

    def __init__(self, root: str, cluster: str) -> None:
        self._root = f"{root.rstrip('/')}/{cluster}"
        self._store = open_store(self._root)

    def place(self, claim: Claim) -> str:
        """Return the folder of a preview."""
        return f"{self._root}/{claim.folder}"

    def claims(self) -> Sequence[Claim]:
        """Read the claims of all previews."""
        found: list[Claim] = []
        for key in self._keys(CLAIM):
            with suppress(GitopsError):
                claim = CLAIM_FORM.read(self._store.read(key) or b"")
                # A claim in another folder is not about that folder.
                if key == f"{claim.folder}/{CLAIM}":
                    found.append(claim)
        return sorted(found, key=lambda each: (each.expires_at, each.folder))

    def write(self, claim: Claim) -> None:
        """Write or replace the claim."""
        self._store.write(f"{claim.folder}/{CLAIM}", CLAIM_FORM.write(claim))

    def remove(self, claim: Claim) -> None:
        """Remove everything in the folder, and the claim last, so that an interrupted removal is repeated."""
        if self._root.startswith("s3:"):
            bucket = open_bucket(self.place(claim))
            bucket.delete_keys(tuple(key for key in bucket.keys("") if key != CLAIM))
            bucket.delete(CLAIM)
            return
        folder = Path(self.place(claim))
        for each in folder.iterdir() if folder.is_dir() else ():
            if each.name != CLAIM:
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        (folder / CLAIM).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()

    def begin(self, now: datetime) -> bool:
        """Create the note of the running preview, or replace one that is older than an hour."""
        data = timestamp(now + UNRECORDED).encode()
        if self._store.create(_TURN, data):
            return True
        held = self._store.read(_TURN)
        until = None if held is None else parse_timestamp(held.decode("ascii", "replace"))
        if held is None or (until is not None and until > now):
            return False
        return self._store.replace(_TURN, data, expected=held)

    def end(self) -> None:
        """Remove the note."""
        self._store.delete(_TURN)

    def _keys(self, name: str) -> Iterator[str]:
        """Yield the keys of the objects with this name in the folders of previews."""
        if self._root.startswith("s3:"):
            yield from (key for key in open_bucket(self._root).keys("") if key.endswith(f"/{name}"))
            return
        root = Path(self._root)
        yield from (each.relative_to(root).as_posix() for each in sorted(root.glob(f"*/*/{name}")))


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

        def ask(batches: Sequence[Sequence[Job]], left_s: float) -> Sequence[Sequence[Any]]:
            asked = [TrialBatch([{"task": job.task.value, "order": job.form} for job in jobs]) for jobs in batches]
            found: dict[tuple[int, int], Any] = {}
            for place, answer in pool.run(asked, budget_s=left_s):
                if answer.failure is None and answer.value is not None:
                    found[place] = answer.value.get("answer")
                else:
                    code = failures.get(answer.failure or TrialFailure.DIED, Code.PREVIEW_UNAVAILABLE)
                    found[place] = GitopsError(code, answer.detail)
            return [[found[batch, job] for job in range(len(jobs))] for batch, jobs in enumerate(batches)]

        yield ask


def open_worker(_folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that carries out a worker's jobs."""
    from gitops.review.previews.trial import carry_out

    clock, ids = SystemClock(), RandomIds()

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        return {"answer": carry_out(job["task"], job["order"], clock, ids)}

    return answer
