"""Write the ledger of this folder with the second release, whose source is commit 975fbdbb.

    git worktree add /tmp/second 975fbdbb
    cd /tmp/second && PYTHONPATH=. python <this file> <this folder>

It is run once and never again: what it wrote is what the second release wrote. Keys and times are made by chance.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

from gitops.forge.merge import MergeMethod
from gitops.git.port import NewCommit, Person
from tests.support.loop import DELETE_LEGACY, FILES, MAIN, TIME, Loop, email

KEEP = {"cluster/cluster.yaml": FILES["cluster/cluster.yaml"]}


def approved(loop: Loop, who: str, request: int | None = None) -> None:
    """An approval of the delete of `legacy`, and the run that it starts."""
    given = loop.sign_approval(who, "graph.legacy", request=request)
    assert given.ok, given.diagnostics
    loop.arrived(loop.approvals()[-1])
    assert not loop.graph("legacy").exists()


def rebased(loop: Loop) -> None:
    """A request whose first commit is gated is merged by rebase, and approved afterwards."""
    head = loop.commit("alice", {"README.md": b"Other words.\n"}, loop.commit("alice", DELETE_LEGACY))
    loop.move("refs/heads/retire", head)
    loop.move(MAIN, loop.commit("carol", {"elsewhere.md": b"Something else.\n"}))
    loop.merge("carol", 1, MergeMethod.REBASE)
    approved(loop, "bob")


def crossed(loop: Loop) -> None:
    """Bob deletes the graph alone, by merges that cross; the only commits that count are alice's try, which she took back.

    What git takes for the base of the last merge is the newest commit at which its sides parted: alice's.
    """
    store, clock = loop.store, itertools.count(TIME + 1)

    def commit(who: str, tree: str, *parents: str) -> str:
        new = NewCommit(tree, parents, Person(who, email(who), next(clock)), "change\n")
        return store.write_commit(new, signing_key=str(loop.key(who)))

    def tree(commit: str, **files: bytes | None) -> str:
        return store.write_files(store.commit(commit).tree, files)

    start = loop.tip()
    gone = commit("bob", store.write_files(tree(start), DELETE_LEGACY), start)
    applied = commit("bob", tree(start), start, gone)
    loop.move(MAIN, applied)
    read = commit("bob", tree(gone, words=b"More words.\n"), gone)
    undone = commit("alice", tree(start), commit("alice", tree(gone), start))
    has = commit("bob", store.merge(applied, undone).tree or "", applied, undone)
    lacks = commit("bob", store.merge(read, undone).tree or "", read, undone)
    loop.move(MAIN, commit("bob", tree(lacks), has, lacks))
    approved(loop, "bob")


def main(target: Path) -> None:
    """Both, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop.build(Path(folder) / "loop")
        rebased(loop)
        loop.move(MAIN, loop.commit("alice", KEEP))
        crossed(loop)
        subprocess.run(
            ["git", "-C", str(loop.server), "bundle", "create", "-q", str(target / "ledger.bundle"), "--all"],
            check=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
