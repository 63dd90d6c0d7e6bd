"""Histories of commits by people with and without keys, and who their authors are by the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gitops.cluster.approvals.counting import CountedCommits
from gitops.cluster.approvals.origins import KnownOrigins, Origins, Pushed, Unapplied
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import Address, graph_address
from gitops.cluster.model.ledger import Authors, Origin
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import NewCommit, Person
from gitops.git.repository import GitRepository
from gitops.repository.wiring.git import open_commit_tree
from tests.support.pen import Pen

FOLDER = "cluster"
NOW = datetime(2026, 7, 2, tzinfo=UTC)
A, B = graph_address("a"), graph_address("b")
RULES = """\
version: 1
clusters: [{name: library, path: cluster}]
ledger: {signers: [bot]}
approvals:
  approvers: [ada]
  accounts: {"github:1": ada, "github:2": dora, "github:9": bot, "local:dora": dora}
"""


def declaring(*graphs: str, note: str = "") -> bytes:
    """A `cluster.yaml` with these graphs."""
    return (f"version: 1\n# {note}\ngraphs:\n" + "".join(f"  {g}: {{schema: {g}.pg}}\n" for g in graphs)).encode()


def schema(*properties: str) -> bytes:
    """A schema of one node."""
    lines = ["    name: String @key", *(f"    {each}: String?" for each in properties)]
    return ("node Thing {\n" + "\n".join(lines) + "\n}\n").encode()


@dataclass
class History:
    """Commits by their author's name; each is dated later than the one before, and signed if `keys` has one of that name.

    `folders` are where the cluster is and where it is declared.
    """

    repository: GitRepository
    keys: dict[str, Path | Pen] = field(default_factory=dict)
    pushed: dict[str, tuple[Pushed, ...]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    time: int = 1_700_000_000
    at: datetime = NOW
    folders: tuple[str, ...] = (FOLDER,)

    def by(self, name: str, files: Mapping[str, bytes | None], *parents: str, message: str = "change\n") -> str:
        """What `name` made of the first parent."""
        base = self.repository.commit(parents[0]).tree if parents else None
        return self.of(name, self.repository.write_files(base, files), *parents, message=message)

    def of(self, name: str, tree: str, *parents: str, message: str = "change\n", line: str = "") -> str:
        """A commit of a whole tree; `line` is whose name its author line has, if it is not that of the key."""
        self.time += 1
        key, line = self.keys.get(name), line or name
        new = NewCommit(tree, parents, Person(line, f"{line}@example.org", self.time), message)
        if isinstance(key, Pen):
            raw = format_commit(new)
            return self.repository._write("commit", with_signature(raw, key.sign(raw)))
        return self.repository.write_commit(new, signing_key=None if key is None else str(key))

    def merge(self, name: str, ours: str, theirs: str, **files: bytes | None) -> str:
        """A merge as git makes it, plus `files` of the folder that the merger slipped in; underscores are dots."""
        tree = self.repository.merge(ours, theirs).tree
        assert tree is not None
        slipped = {f"{FOLDER}/{path.replace('_', '.')}": content for path, content in files.items()}
        return self.of(name, self.repository.write_files(tree, slipped), ours, theirs)

    def origins(
        self,
        base: str,
        *heads: str,
        carried: tuple[Origin, ...] = (),
        tree: str | None = None,
        from_start: bool = False,
    ) -> Origins:
        """The rules over the commits since `base`, under the trust rules at `base`; `tree` is what is applied next."""
        reader = self.repository
        files = trust_at(reader, reader.commit(base).tree)
        counted = CountedCommits(reader, self.folders, files, open_commit_tree)
        known = KnownOrigins(lambda commit: self.pushed.get(commit, ()), self.merged)
        unapplied = Unapplied(
            base, heads, trust_root(files), self.at, tree or reader.commit(heads[-1]).tree, from_start
        )
        return Origins(counted, unapplied, lambda: known, carried)

    def authors(self, base: str, *heads: str, of: Address = A) -> Authors:
        """The authors of one change."""
        return self.origins(base, *heads).authors_of(of)

    def people(self, base: str, *heads: str, of: Address = A) -> set[str]:
        """Their names; a question mark if there may be more."""
        found = self.authors(base, *heads, of=of)
        return {name.removesuffix("@example.org") for name in found.people} | ({"?"} if found.unknown else set())


def without(*graphs: str, note: str = "") -> dict[str, bytes | None]:
    """Files of a folder that declares only these graphs."""
    return {"cluster/cluster.yaml": declaring(*graphs, note=note)}
