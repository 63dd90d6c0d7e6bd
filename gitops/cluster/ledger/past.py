"""A ledger as it was when its state had a certain digest: what is served of a past revision. Read only.

The chain is verified from its head as for every reader. Interrupted operations are those of the head: they say what is half
changed now, whichever revision is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.port import BlobCondition, BlobReading, IntentListing, LedgerStore, LedgerView
from gitops.cluster.ledger.readings import blob_reading, view_of
from gitops.cluster.model.address import Address
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import GitReader

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["past_ledger"]


def past_ledger(ledger: LedgerStore, state: str, objects: GitReader | None = None) -> LedgerStore:
    """The ledger at its newest entry whose state document has the digest `state`, perhaps after `sha256:`.

    `objects` are those of a branch ledger; one in a folder or bucket keeps its newest state only.
    """
    return cast("LedgerStore", _PastLedger(ledger, state.removeprefix("sha256:"), objects))


class _PastLedger:
    def __init__(self, ledger: LedgerStore, state: str, objects: GitReader | None) -> None:
        self._ledger = ledger
        self._state = state
        self._objects = objects
        self._tree: str | None = None

    def __getattr__(self, name: str) -> Any:
        """Everything else is that of the ledger."""
        return getattr(self._ledger, name)

    def intents(self) -> IntentListing:
        return self._ledger.intents()

    def view(self) -> LedgerView:
        """The state of that digest. Raises GitopsError `revision_unknown`, and as every view."""
        newest = self._ledger.view()
        if not newest.found or newest.problems or newest.cas == f"sha256:{self._state}":
            return newest
        for tree in self._trees(newest.head):
            data = self._read(tree, layout.STATE)
            if data is not None and digest(data) == self._state:
                self._tree = tree
                return view_of(data)
        detail = f"no entry of the ledger has a state with the digest {self._state[:64]}"
        raise GitopsError(Code.REVISION_UNKNOWN, detail, path="--revision")

    def blob(self, address: Address, digest: str) -> BlobReading:
        """The blob as the entry of that state has it."""
        if self._tree is None:
            return self._ledger.blob(address, digest)
        key = layout.blob_key(address, digest)
        try:
            return blob_reading(None if key is None else self._read(self._tree, key), digest)
        except GitopsError as error:
            return BlobReading(BlobCondition.UNREADABLE, detail=error.detail)

    def _trees(self, head: str | None) -> Iterator[str]:
        """The trees of the entries, the newest first."""
        while head is not None and self._objects is not None:
            commit = self._objects.commit(head)
            yield commit.tree
            head = next(iter(commit.parents), None)

    def _read(self, tree: str, path: str) -> bytes | None:
        return None if self._objects is None else self._objects.read(tree, path)
