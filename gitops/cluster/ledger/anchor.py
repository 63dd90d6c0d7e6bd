"""The anchor: what a ledger leaves beside the graphs, where deleting a branch does not reach.

    <storage root>/__cluster/anchor.json    cluster, repository, first entry, newest entry, rules in force after it

1. It is written after each published entry, before the lock is released. An anchor that is behind the ledger is normal: a run
   died, or an entry was written on a machine without the storage. The next entry writes it again.
2. A ledger that does not contain the newest entry of the anchor was deleted, rewound or replaced. Every command that takes the
   lock and opens the storage refuses it, and says what was found and how to restore it.
3. The first entry after an import over an earlier ledger leaves the anchor alone until a quorum has approved it.
"""

from __future__ import annotations

from collections.abc import Callable

from gitops.cluster.ledger.chain import is_continuation, ledger_ref
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.ledger.readings import restore_commands
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import DIGEST, LINE, OBJECT_ID, integer, record
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.storage.port import ObjectStore
from gitops.git.port import GitReader

__all__ = [
    "ANCHOR_KEY",
    "AnchorFile",
    "StorageAnchor",
    "check_anchor",
    "read_anchor",
    "restore_commands",
    "write_anchor",
]

ANCHOR_KEY = "__cluster/anchor.json"


@dataclass(frozen=True, slots=True)
class StorageAnchor:
    """The ledger that the graphs belong to: its first entry `genesis`, and `head`, which is entry `number`.

    `trust_digest` identifies the keys and rules in force after `head`.
    """

    cluster: str
    repository: str
    genesis: str
    head: str
    number: int
    trust_digest: str


ANCHOR = Document(
    versions={
        1: record(
            StorageAnchor,
            {
                "cluster": LINE,
                "repository": LINE,
                "genesis": OBJECT_ID,
                "head": OBJECT_ID,
                "number": integer(1),
                "trust_digest": DIGEST,
            },
        )
    },
    code=Code.LEDGER_ANCHOR_INVALID,
    limit=64 * 1024,
)
read_anchor = ANCHOR.read
write_anchor = ANCHOR.write


class AnchorFile:
    """The anchor of one storage root; the storage is opened when it is first needed."""

    def __init__(self, open_store: Callable[[], ObjectStore]) -> None:
        """`open_store` opens the storage root. Raises nothing."""
        self._open = open_store

    @property
    def place(self) -> str:
        """Where the anchor is, for people."""
        return self._open().display(ANCHOR_KEY)

    def read(self) -> StorageAnchor | None:
        """The anchor; None only if there is definitely none.

        Raises IntegrityError `ledger_anchor_invalid`, RemoteError `storage_failed`.
        """
        store = self._open()
        content = store.read(ANCHOR_KEY)
        try:
            return None if content is None else read_anchor(content)
        except IntegrityError as error:
            detail = f"{store.display(ANCHOR_KEY)}: {error.detail}"
            raise IntegrityError(error.code, detail, path=store.display(ANCHOR_KEY)) from error

    def write(self, anchor: StorageAnchor) -> None:
        """Replace the anchor. Raises RemoteError `storage_failed`."""
        self._open().write(ANCHOR_KEY, write_anchor(anchor))


def check_anchor(reader: GitReader, file: AnchorFile, view: LedgerView, cluster: str) -> None:
    """Rule 2. A view with problems is left to its own problems.

    Raises IntegrityError `ledger_anchor_mismatch`, and as `AnchorFile.read`.
    """
    anchor = None if view.found and view.head is None else file.read()
    if anchor is None or (view.head is not None and _is_part(reader, view, anchor)):
        return
    where = f"{file.place} records that the graphs belong to entry {anchor.number}, {anchor.head[:12]}"
    if view.head is None:
        what = f"of the ledger of {anchor.cluster} in {anchor.repository}, whose branch is missing"
    elif reader.resolve(anchor.head) is not None and is_continuation(reader, anchor.head, view.head):
        what = f"of this ledger, and the branch was rewound to {view.head[:12]}"
    else:
        what = (
            f"of another ledger: it begins with {anchor.genesis[:12]}, which is not in the history of {view.head[:12]}"
        )
    detail = f"{where} {what}; {restore_commands(cluster, anchor.head)}"
    raise IntegrityError(Code.LEDGER_ANCHOR_MISMATCH, detail, path=ledger_ref(cluster))


def _is_part(reader: GitReader, view: LedgerView, anchor: StorageAnchor) -> bool:
    """Whether the ledger has the newest entry of the anchor, or follows it by an import that waits for its approval."""
    if view.entry is not None and view.entry.former is not None:
        return view.entry.former.head == anchor.head
    try:
        return is_continuation(reader, view.head or "", anchor.head)
    except GitopsError:
        return False
