"""A branch ledger with real keys: whom it trusts, handles of it, and entries that its writer would refuse to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from gitops.cluster.ledger.branch import BranchLedger, BranchSettings
from gitops.cluster.ledger.chain import ENTRY, TRUST, ledger_ref
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.port import LedgerView, LedgerWrite
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import EntryKind, LedgerEntry, LedgerState
from gitops.core.faults import Faults
from gitops.git.port import GitRemote, NewCommit
from gitops.git.remote import ProgramRemote, SelfRemote
from gitops.git.repository import GitRepository
from tests.support.clock import FixedClock
from tests.support.git_fixture import ALICE, bare, environment, opened, public_key, ssh_key

CLUSTER = "library"
REF = ledger_ref(CLUSTER)
SEEN = f"refs/gitops/seen/{CLUSTER}"
LOCK = f"refs/gitops/locks/{CLUSTER}"
LOCK_BRANCH = f"refs/heads/gitops/locks/{CLUSTER}"
NOW = datetime(2026, 7, 2, 10, 0, tzinfo=UTC)

CONFIG = """\
version: 1
clusters:
  - {name: library, path: clusters/library}
ledger:
  signers: [bot]
approvals:
  approvers: [ada]
"""


@dataclass(frozen=True, slots=True)
class Keys:
    """The bot's key, an approver's, and one that nobody lists."""

    bot: Path
    ada: Path
    stranger: Path


def make_keys(folder: Path) -> Keys:
    """Three new keys."""
    return Keys(*(ssh_key(folder, name) for name in ("bot", "ada", "stranger")))


def trusting(keys: Keys, *, bot_options: str = "", config: str = CONFIG, **more: bytes) -> dict[str, bytes]:
    """Files of keys and rules that trust bot and ada; `bot_options` go before the bot's key, `more` are lines of signers."""
    lines = [f"bot {bot_options} {public_key(keys.bot)}", f"ada {public_key(keys.ada)}"]
    lines += [f"{name} {key.decode()}" for name, key in more.items()]
    return {"gitops.yaml": config.encode(), ".gitops/allowed_signers": "\n".join(lines).encode() + b"\n"}


class SeededLedger(BranchLedger):
    """A ledger whose first entry brings the given keys and rules, as the first apply of a project does."""

    seed: Mapping[str, bytes]

    def commit(self, view: LedgerView, write: LedgerWrite) -> LedgerView:
        """As the real one."""
        if view.entry is None and write.trust_files is None:
            write = replace(write, trust_files=self.seed)
        return super().commit(view, write)


@dataclass
class World:
    """A server with the ledger at `far`, and repositories that reach it at `url`; None: the server reaches itself."""

    home: Path
    keys: Keys
    url: str | None
    trust: dict[str, bytes] = field(default_factory=dict)
    remembered: list[str] = field(default_factory=list)
    clock: FixedClock = field(default_factory=lambda: FixedClock(NOW))

    def __post_init__(self) -> None:
        """Make the repositories, unless another process has."""
        self.trust = self.trust or trusting(self.keys)
        self.far = self.home / "far.git"
        for path in (self.far, self.home / "one.git", self.home / "two.git"):
            if not path.exists():
                bare(path)

    def repository(self, clone: str = "one.git") -> GitRepository:
        """The repository that a handle keeps its objects in."""
        return opened(self.home / clone) if self.url else opened(self.far)

    def remote(self, clone: str = "one.git") -> GitRemote:
        """The way from there to the server."""
        repository = self.repository(clone)
        if self.url is None:
            return SelfRemote(repository)
        return ProgramRemote(repository.git_dir, self.url, environ=environment(self.home))

    def ledger(
        self,
        clone: str = "one.git",
        *,
        key: Path | None = None,
        locks: Sequence[str] = (LOCK, LOCK_BRANCH),
        faults: Faults | None = None,
    ) -> SeededLedger:
        """Another handle, which signs with the bot's key unless told otherwise."""
        place = BranchSettings(CLUSTER, ALICE, str(key or self.keys.bot), locks[0], locks[1], self.remembered.append)
        ledger = SeededLedger(self.repository(clone), self.remote(clone), place, self.clock, faults)
        ledger.seed = self.trust
        return ledger


def forge(
    repository: GitRepository, entry: LedgerEntry, files: Mapping[str, bytes | None], key: Path | None, *parents: str
) -> str:
    """An entry commit as an attacker would make it: nothing is checked. `files` are added to those of the first parent."""
    base = repository.commit(parents[0]).tree if parents else None
    tree = repository.write_files(base, {ENTRY: write_entry(entry), **files})
    commit = NewCommit(tree, parents, ALICE, commit_message(entry))
    return repository.write_commit(commit, signing_key=None if key is None else str(key))


def under_trust(files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Files of keys and rules at their place in an entry."""
    return {f"{TRUST}/{path}": content for path, content in files.items()}


def written(revision: int, cluster: str = "library") -> LedgerWrite:
    """A write that makes the state of that revision."""
    entry = LedgerEntry(
        number=1,
        kind=EntryKind.IMPORT if revision == 1 else EntryKind.APPLY,
        operation=f"operation-{revision}",
        at="2026-07-02T09:00:00Z",
        actor="mira",
        target=ClusterTarget("library/clusters", cluster, "production", "refs/heads/main", "clusters/library"),
        previous=None,
        source=None,
        changeset=None,
        plan_digest=None,
        config_digest=None,
        state_revision=revision,
        policy_digest="5" * 64,
        trust_digest="6" * 64,
    )
    return LedgerWrite(LedgerState(revision=revision), entry)


def entry_at(repository: GitRepository, commit_id: str) -> LedgerEntry:
    """The entry document of a commit."""
    content = repository.read(repository.commit(commit_id).tree, ENTRY)
    if content is None:
        raise AssertionError(f"{commit_id} is no entry")
    return read_entry(content)
