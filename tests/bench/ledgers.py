"""Ledger stores and signatures: a folder, a branch in this repository, and a branch behind the git program on a path."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.measure import ROOT, Effort, Figure, clocked, repeated

if TYPE_CHECKING:
    from gitops.cluster.ledger.port import LedgerStore
    from gitops.cluster.model.ledger import LedgerEntry
    from gitops.git.port import GitRemote
    from gitops.git.repository import GitRepository

_CLUSTER = "bench"
_RESOURCES = 40
_CONFIG = b"""version: 1
clusters:
  - name: bench
    path: .
ledger:
  signers: [bot]
"""


def figures(effort: Effort) -> Iterator[Figure]:
    """Commits and locks on each store, then signatures."""
    from gitops.cluster.ledger.folder import FolderLedger
    from gitops.core.faults import NoFaults
    from gitops.database.storage.local import LocalStore
    from gitops.git.remote import ProgramRemote, SelfRemote
    from gitops.repository.wiring.system import SystemClock

    home = effort.folder("ledgers")
    key, trust = _trust(home, effort.environment())
    folder = FolderLedger(LocalStore(home / "folder"), clock=SystemClock(), faults=NoFaults())
    yield from _store_figures(effort, "folder", folder, trust)
    alone = _repository(home / "alone.git", effort.environment())
    yield from _store_figures(effort, "branch, same repository", _branch(alone, SelfRemote(alone), key), trust)
    yield _junk_figure(effort, alone, _branch(alone, SelfRemote(alone), key))
    near = _repository(home / "near.git", effort.environment())
    far = _repository(home / "far.git", effort.environment())
    remote = ProgramRemote(near.git_dir, far.git_dir, environ=effort.environment())
    yield from _store_figures(effort, "branch, remote on a path", _branch(near, remote, key), trust)
    yield from _signature_figures(effort, alone, key)


def _store_figures(effort: Effort, label: str, ledger: LedgerStore, trust: Mapping[str, bytes]) -> Iterator[Figure]:
    from gitops.cluster.ledger.port import LedgerWrite
    from gitops.cluster.model.address import Address
    from gitops.cluster.model.ledger import AppliedResource, LedgerState, LockInfo, Status, StatusRecord

    clock, fresh = _time_and_ids()
    names = [f"query.g.q{n:03}" for n in range(_RESOURCES)]
    view = ledger.view()
    commits = []
    for revision in range(1, effort.samples + 2):
        state = LedgerState(
            revision=revision,
            config_digest=f"{revision:064x}",
            resources={Address(name): AppliedResource(f"{revision:064x}") for name in names},
            statuses={Address(name): StatusRecord(Status.APPLIED) for name in names},
        )
        entry = replace(_entry(trust, clock()), operation=fresh(), state_revision=revision)
        write = LedgerWrite(state, entry, trust_files=trust if revision == 1 else None)
        # Everything that a run pays for after its work: documents, signature, compare-and-swap, and reading it back.
        view, took = clocked(partial(ledger.commit, view, write))
        commits.append(took)
    yield Figure(f"commit {_RESOURCES} resources: {label}", "ms", tuple(commits[1:]))
    yield Figure(f"view: {label}", "ms", repeated(effort.samples, ledger.view))

    def locked() -> None:
        lock_id = fresh()
        ledger.acquire(LockInfo(lock_id, "apply", clock(), 1))
        ledger.release(lock_id)

    yield Figure(f"lock and unlock: {label}", "ms", repeated(effort.samples, locked))


def _junk_figure(effort: Effort, repository: GitRepository, ledger: LedgerStore) -> Figure:
    """What a plan reads of approvals where a thousand branches, each with a long history, were pushed among them."""
    from tests.support.junk import push_junk

    push_junk(Path(repository.git_dir), branches=1_000, commits=5_000, cluster=_CLUSTER)
    ledger.view()
    return Figure(
        "read the approvals among 1,000 junk branches of 5,000 commits",
        "ms",
        repeated(effort.samples, ledger.approvals),
        goal=1_000,
    )


def _signature_figures(effort: Effort, repository: GitRepository, key: Path) -> Iterator[Figure]:
    from gitops.cluster.ledger.chain import ledger_ref
    from gitops.git.signatures import sign, verify_commit

    head = repository.resolve(ledger_ref(_CLUSTER))
    if head is None:
        raise RuntimeError("the ledger branch was just written")
    argv = ("git", f"--git-dir={repository.git_dir}", "cat-file", "commit", head)
    raw = subprocess.run(argv, env=effort.environment(), capture_output=True, check=True).stdout
    if not verify_commit(raw).good:
        raise RuntimeError("the entry does not verify")
    inner = 5 if effort.quick else 50
    yield Figure(
        "verify a commit signature, ed25519", "ms", repeated(effort.samples, lambda: verify_commit(raw), inner=inner)
    )
    yield Figure(
        "sign an approval through ssh-keygen",
        "ms",
        repeated(effort.samples, lambda: sign(b"approval\n" * 40, str(key), environ=effort.environment())),
    )


def _trust(home: Path, environ: Mapping[str, str]) -> tuple[Path, Mapping[str, bytes]]:
    """A new key, and the files that let it sign entries; another one may approve."""
    from gitops.cluster.config.gitops_yaml import CONFIG_FILE, DEFAULT_SIGNERS

    lines = []
    for name in ("bot", "ann"):
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(home / name))
        subprocess.run(argv, env=environ, check=True, capture_output=True)
        public = " ".join((home / name).with_suffix(".pub").read_text().split()[:2])
        lines.append(f"{name} {public}\n")
    return home / "bot", {CONFIG_FILE: _CONFIG, DEFAULT_SIGNERS: "".join(lines).encode()}


def _repository(path: Path, environ: Mapping[str, str]) -> GitRepository:
    from gitops.git.repository import GitRepository

    argv = ("git", "init", "-q", "--bare", "-b", "main", str(path))
    subprocess.run(argv, env=environ, cwd=ROOT, check=True, capture_output=True)
    return GitRepository(path, environ=environ)


def _branch(repository: GitRepository, remote: GitRemote, key: Path) -> LedgerStore:
    from gitops.cluster.ledger.branch import BranchLedger, BranchSettings
    from gitops.git.port import Person
    from gitops.repository.wiring.system import SystemClock

    lock, fallback = f"refs/gitops/locks/{_CLUSTER}", f"refs/heads/gitops/locks/{_CLUSTER}"
    place = BranchSettings(_CLUSTER, Person("bot", "bot@example.org", 0), str(key), lock, fallback)
    return BranchLedger(repository, remote, place, SystemClock())


def _time_and_ids() -> tuple[Callable[[], str], Callable[[], str]]:
    """The time now as text, and fresh ids."""
    from gitops.core.clock import timestamp
    from gitops.repository.wiring.system import RandomIds, SystemClock

    clock = SystemClock()
    return lambda: timestamp(clock.now()), RandomIds().ulid


def _entry(trust: Mapping[str, bytes], at: str) -> LedgerEntry:
    from gitops.cluster.config.trust_root import trust_root
    from gitops.cluster.model.approval import ClusterTarget
    from gitops.cluster.model.ledger import EntryKind, LedgerEntry

    rules = trust_root(trust).digest
    return LedgerEntry(
        number=1,
        kind=EntryKind.APPLY,
        operation="",
        at=at,
        actor="bench",
        target=ClusterTarget("bench/bench", _CLUSTER, "production", "refs/heads/main", "."),
        previous=None,
        source=None,
        changeset=None,
        plan_digest="1" * 64,
        config_digest="2" * 64,
        state_revision=1,
        policy_digest=rules,
        trust_digest=rules,
    )
