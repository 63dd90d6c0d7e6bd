"""The search for the authors of a change in histories made to be long: one of a fork, and one of merges."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from tests.bench.measure import ROOT, Effort, Figure, repeated

if TYPE_CHECKING:
    from gitops.git.repository import GitRepository

_COMMITS = 10_000
_MERGES = 1_600
_GOAL_MS = 2_000
_FOLDER = "cluster"
_FILES = {
    "gitops.yaml": b"version: 1\nclusters: [{name: bench, path: cluster}]\nledger: {signers: [bot]}\n",
    ".gitops/allowed_signers": b"bot ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n"
    b"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n",
    "cluster/cluster.yaml": b"version: 1\ngraphs:\n  a: {schema: a.pg}\n",
}


def figures(effort: Effort) -> Iterator[Figure]:
    """Both histories; each sample starts without what an earlier one has read."""
    from gitops.git.repository import GitRepository

    place = effort.folder("authors") / "far.git"
    argv = ("git", "init", "-q", "--bare", "-b", "main", str(place))
    subprocess.run(argv, env=effort.environment(), cwd=ROOT, check=True, capture_output=True)
    repository = GitRepository(place, environ=effort.environment())
    commits, merges = (_COMMITS // 100, _MERGES // 100) if effort.quick else (_COMMITS, _MERGES)
    root = _commit(repository, 0, repository.write_files(None, {**_FILES, "cluster/a.pg": _schema(0)}))
    for label, head in (
        (f"authors of {commits:,} hostile commits", _line(repository, root, commits)),
        (f"authors among {merges:,} criss-cross merges", _criss_cross(repository, root, merges)),
    ):
        yield Figure(label, "ms", repeated(effort.samples, partial(_search, repository, root, head)), goal=_GOAL_MS)


def _search(repository: GitRepository, root: str, head: str) -> None:
    from gitops.cluster.approvals.counting import CountedCommits
    from gitops.cluster.approvals.origins import Origins, Unapplied
    from gitops.cluster.config.trust_root import trust_root
    from gitops.cluster.model.address import graph_address
    from gitops.repository.wiring.git import open_commit_tree

    counted = CountedCommits(repository, [_FOLDER], _FILES, open_commit_tree)
    unapplied = Unapplied(
        root, (head,), trust_root(_FILES), datetime(2026, 1, 1, tzinfo=UTC), repository.commit(head).tree
    )
    if not Origins(counted, unapplied).authors_of(graph_address("a")).unknown:
        raise RuntimeError("unsigned commits without a push have no known author")


def _line(repository: GitRepository, root: str, length: int) -> str:
    """Unsigned commits that each change the schema of the graph."""
    head = root
    for number in range(1, length + 1):
        tree = repository.write_files(repository.commit(root).tree, {"cluster/a.pg": _schema(number)})
        head = _commit(repository, number, tree, head)
    return head


def _criss_cross(repository: GitRepository, root: str, merges: int) -> str:
    """Two lines that merge each other again and again; no merge is what merging gives."""
    base = repository.commit(root).tree
    left, right = (
        _commit(repository, number, repository.write_files(base, {"cluster/a.pg": _schema(number)}), root)
        for number in (1, 2)
    )
    for number in range(3, merges // 2 + 3):
        tree = repository.write_files(base, {"cluster/a.pg": _schema(number)})
        left, right = _commit(repository, number, tree, left, right), _commit(repository, number, tree, right, left)
    return left


def _commit(repository: GitRepository, number: int, tree: str, *parents: str) -> str:
    from gitops.git.port import NewCommit, Person

    author = Person("mallory", "mallory@example.org", 1_700_000_000 + number)
    return repository.write_commit(NewCommit(tree, parents, author, f"{number}\n"), signing_key=None)


def _schema(number: int) -> bytes:
    return b"node Thing {\n    name: String @key\n    p%d: String?\n}\n" % number
