"""Repairs a ledger branch: returns it to the newest valid entry, whatever was pushed or removed.

1. The longest known chain of valid entries counts. Its sources are the branch up to its first invalid commit, the
   entries that this clone saw, the anchor next to the graphs, and signed documents. All of them must be one chain: if
   there are two ledgers with valid entries, people decide which one is right.
2. Commits of the branch beyond it are kept at `refs/heads/gitops/quarantine/<cluster>/<commit>` and listed in the entry.
3. An entry of kind `repair` follows the newest valid one. It doesn't change anything, so the audit of the ledger
   succeeds.
4. The branch moves by compare-and-swap from exactly the head that the operator was shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from gitops.cluster.ledger.branch import BranchLedger
from gitops.cluster.ledger.chain import VerifiedEntry, is_continuation, quarantine_ref, split_chain, verify_chain
from gitops.cluster.ledger.files import following, next_entry
from gitops.cluster.ledger.git_lock import push_own
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.ledger import EntryKind
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.faults import around
from gitops.git.port import ZERO, RefUpdate

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage to a ledger branch.

    `head` is its current head (None if it is missing), and `good` is the newest valid entry.

    `bad` are its commits after the valid entries, newest first, and `problem` describes the lowest of them. `found` is
    the source of the valid entry.
    """

    head: str | None
    good: VerifiedEntry
    bad: tuple[str, ...]
    problem: str
    found: str


class RepairLedger(BranchLedger):
    """A ledger branch that can be examined and repaired."""

    def damage(self) -> Damage | None:
        """Return the branch's damage, or None if it has none.

        Raises GitopsError `ledger_repair_refused` if no valid entry is known, or if two ledgers have valid entries;
        RemoteError.
        """
        head = self._remote.refs(self._ref).get(self._ref)
        if head is not None and self._store.resolve(head) is None:
            self._remote.fetch([self._ref])
        bad: tuple[str, ...] = ()
        problem, candidates = "the branch is missing", dict(self._known())
        if head is not None:
            good, bad, problem = split_chain(self._store, head, None, self._place.anchor)
            if good is not None:
                candidates[good.commit.id] = "the branch itself"
        entries = [self._verified(commit) for commit in candidates]
        best = max((each for each in entries if each is not None), key=lambda each: each.entry.number, default=None)
        if best is None:
            raise _refused(self._ref, f"{problem}, and no good entry is known here")
        for each in entries:
            if each is not None and not is_continuation(self._store, best.commit.id, each.commit.id):
                detail = f"two ledgers have good entries: {best.commit.id} and {each.commit.id}; push the right one"
                raise _refused(self._ref, detail)
        if best.commit.id == head:
            return None
        if not problem:
            problem = f"the branch was rewound to {(head or '')[:12]}"
        return Damage(head, best, bad[:_MOST_NAMED], problem, candidates[best.commit.id])

    def repair(self, damage: Damage, *, operation: str, at: str, actor: str | None) -> LedgerView:
        """Apply rules 2 to 4 with the lock held.

        Raises ConflictError `state_cas_mismatch`, and the errors of `commit`.
        """
        good = damage.good
        before = self._view_at(good)
        entry = following(
            good.entry, EntryKind.REPAIR, operation=operation, at=at, actor=actor, trust_digest=good.after.digest
        )
        entry = replace(entry, quarantined=damage.bad)
        found = self._sign(before, next_entry(entry, before), {})
        if damage.head is not None and damage.bad:
            # Rule 2. If the ref exists, it already contains the commit.
            ref = quarantine_ref(self._place.cluster, damage.head)
            with contextlib.suppress(ConflictError):
                self._remote.push([RefUpdate(ref, ZERO, damage.head)])
        try:
            with around(self._faults, "ledger.branch", "push"):
                push_own(self._remote, RefUpdate(self._ref, damage.head or ZERO, found.commit.id))
        except ConflictError as error:
            detail = "the branch has moved since then; show it again: gitops ledger repair"
            raise ConflictError(Code.STATE_CAS_MISMATCH, detail, path=self._ref) from error
        self._heads.accept(found.commit.id)
        self._write_anchor(found)
        self._last = self._view_at(found)
        return self._last

    def _known(self) -> Iterator[tuple[str, str]]:
        """Yield the entries known from sources other than the branch, each with its source."""
        known = self._heads.known()
        for commit in (known.seen, known.note, known.branch):
            if commit is not None:
                yield commit, "an entry that was seen in this repository"
        file = self._place.anchor_file
        anchor = None if file is None else file.read()
        if anchor is not None and file is not None:
            if self._store.resolve(anchor.head) is None:
                with contextlib.suppress(RemoteError):
                    self._remote.fetch([anchor.head])
            yield anchor.head, file.place
        for ref, entry in self._heads.proven().items():
            yield entry, f"an entry that {ref.removeprefix('refs/heads/')} names"

    def _verified(self, commit: str) -> VerifiedEntry | None:
        """Return an entry of this cluster if its complete chain is valid, or None otherwise."""
        try:
            found = verify_chain(self._store, commit, None)
        except GitopsError:
            return None
        return found if found.entry.target.cluster == self._place.cluster else None


def _refused(ref: str, detail: str) -> GitopsError:
    return GitopsError(Code.LEDGER_REPAIR_REFUSED, detail, path=ref)
