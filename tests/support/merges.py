"""A line of merges of one cluster folder, applied one after the other or prepared beside each other.

A merge is the folder as it was at some moment, so that a plan of it contains everything up to it. `MergeLine` is what a
bot does with such a line, without a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.beside import PreparedMerge, prepare_merge
from gitops.cluster.config.source import MemoryTree, SourceTree
from gitops.cluster.model.changeset import BLOCKING, ChangesetSource
from gitops.cluster.model.outcome import ApplyOutcome, OpenChangeset
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.workspace import ChangesetFacts, KeptLock, Workspace
from gitops.core.canonical import digest
from gitops.core.faults import Faults
from tests.support.cluster import Cluster


@dataclass(frozen=True)
class Merge:
    """A commit, and its folder."""

    commit: str
    tree: SourceTree


@dataclass
class MergeLine:
    """The merges of a cluster, oldest first; see the module."""

    cluster: Cluster
    merges: list[Merge] = field(default_factory=list)
    prepared: list[PreparedMerge] = field(default_factory=list)
    lock: KeptLock = field(default_factory=KeptLock)
    awaited: list[str] = field(default_factory=list)

    def merge(self, edit: Callable[[Cluster], object]) -> None:
        """Edit the folder, and add the result to the line."""
        edit(self.cluster)
        folder = self.cluster.folder
        kept = (p for p in sorted(folder.iterdir()) if p.suffix in (".yaml", ".pg", ".gq"))
        files = {path.name: path.read_bytes() for path in kept}
        self.merges.append(Merge(digest(repr((len(self.merges), files)).encode())[:40], MemoryTree(files)))

    def workspace(self, merge: Merge, faults: Faults | None = None) -> Workspace:
        """What applies a merge, with this line's lock."""
        return replace(
            self.cluster.workspace("bot", faults),
            tree=merge.tree,
            atomic=True,
            changeset=ChangesetFacts(ChangesetSource("main", merge.commit), covers=(merge.commit,)),
            lock=self.lock,
            await_staged=self._await,
        )

    def _await(self, key: str) -> None:
        self.awaited.append(key)
        for each in self.prepared:
            if each.record.key == key:
                each.wait()

    def prepare(self, merges: Sequence[Merge] | None = None, faults: Faults | None = None) -> int:
        """Prepare merges from the oldest on until one has to wait. Return how many are prepared."""
        for merge in self.merges if merges is None else merges:
            made = prepare_merge(self.workspace(merge, faults), self.prepared)
            if made is None:
                break
            self.prepared.append(made)
        return len(self.prepared)

    def land(self, merge: Merge, faults: Faults | None = None) -> ApplyOutcome:
        """Apply a merge in its turn."""
        outcome = apply(self.workspace(merge, faults))
        going_on = {each.key for each in self.cluster.ledger().changesets().open if each.state in BLOCKING}
        self.prepared = [each for each in self.prepared if each.record.key in going_on]
        self.lock.keep = bool(self.prepared)
        return outcome

    def close(self) -> None:
        """Wait for what is being prepared, and give the lock back."""
        for each in self.prepared:
            each.wait()
        if self.lock.lock_id is not None:
            self.cluster.ledger().release(self.lock.lock_id)
        self.lock.keep, self.lock.lock_id = False, None

    def foresee(self, merge: Merge) -> tuple[OpenChangeset, ...]:
        """What a plan of a merge says about the open changesets."""
        return plan(self.workspace(merge)).interrupted
