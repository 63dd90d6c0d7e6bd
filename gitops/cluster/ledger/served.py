"""Reports of query servers: each server writes a small file next to the graphs that it serves. Reports expire.

    <storage root>/__cluster/serving/<replica>.json

Every account with write access to the storage root can write a report. So reports are read strictly, and only determine
how long a command waits. Unreadable reports are skipped and listed. A server can also be asked for a past revision of
its ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.files import blob_reading, view_of
from gitops.cluster.ledger.port import BlobCondition, BlobReading, IntentListing, LedgerStore, LedgerView
from gitops.cluster.model.address import Address
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport, is_replica_name
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import DIGEST, LINE, TIME, enum, integer, list_of, nullable, record, text_form
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore
from gitops.git.port import GitReader

if TYPE_CHECKING:
    pass


MAX_REPORTS = 256
"""Maximum number of reports that are read."""
MAX_CODES = 16
_LONGEST_S = 3600
_KEPT = timedelta(hours=1)
"""How long an expired report is kept, so that people can look for a crashed server."""

_REVISION = record(
    RevisionIdentity,
    {"digest": DIGEST, "state_revision": integer(0), "config_digest": nullable(DIGEST)},
)
_CODE = text_form(lambda text: re.match(r"[a-z][a-z0-9_]{0,63}\Z", text, re.ASCII) is not None, "a code")


def _check(report: ServerReport) -> None:
    if len(report.codes) > MAX_CODES:
        raise MalformedError(f"more than {MAX_CODES} codes", "codes")


SERVER_REPORT = Document(
    versions={
        1: record(
            ServerReport,
            {
                "replica": text_form(is_replica_name, "the name of a server"),
                "cluster": LINE,
                "follows": enum(Follows),
                "accepted": _REVISION,
                "offered": nullable(_REVISION),
                "codes": list_of(_CODE),
                "at": TIME,
                "ttl_s": integer(1, _LONGEST_S),
            },
            check=_check,
        )
    },
    code=Code.SERVING_REPORT_INVALID,
    limit=16 * 1024,
)


@dataclass(frozen=True, slots=True)
class UnreadReport:
    """A file in the reports folder that is not a valid report, with its place and the reason."""

    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReportListing:
    """The reports in a storage root, expired or not, and the files that were skipped."""

    reports: tuple[ServerReport, ...] = ()
    unread: tuple[UnreadReport, ...] = ()


class ServingReports:
    """The reports in one storage root, which is opened on first use. Every method raises the store's errors."""

    def __init__(self, open_store: Callable[[], ObjectStore]) -> None:
        """`open_store` opens the storage root."""
        self._open = open_store
        self._opened: ObjectStore | None = None

    def read(self) -> ReportListing:
        """Return at most MAX_REPORTS reports, sorted by name."""
        store = self._store
        names = [name for name in store.names(layout.SERVING) if name.endswith(layout.DOCUMENT_SUFFIX)]
        chosen = names[:MAX_REPORTS]
        found = in_parallel(self._one, chosen, store.parallel)
        unread = [each for each in found if isinstance(each, UnreadReport)]
        if names[MAX_REPORTS:]:
            unread.append(UnreadReport(layout.SERVING, f"of {len(names)} reports only {MAX_REPORTS} are read"))
        return ReportListing(tuple(each for each in found if isinstance(each, ServerReport)), tuple(unread))

    def write(self, report: ServerReport) -> None:
        """Replace the server's last report. Raises GitopsError on failure."""
        self._store.write(layout.serving_key(report.replica), SERVER_REPORT.write(report))

    def take_back(self, report: ServerReport) -> None:
        """Remove a report if it is still this server's newest one. By then, a different server may be using the name."""
        key = layout.serving_key(report.replica)
        if self._store.read(key) == SERVER_REPORT.write(report):
            self._store.delete(key)

    def remove_old(self, now: datetime) -> None:
        """Remove reports of servers that have been gone for an hour or more."""
        for each in self.read().reports:
            if each.age(now) > timedelta(seconds=each.ttl_s) + _KEPT:
                self.take_back(each)

    @property
    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _one(self, name: str) -> ServerReport | UnreadReport | None:
        """Return the report in a file, or None if it was removed in the meantime."""
        key = f"{layout.SERVING}/{name}"
        data = self._store.read(key)
        if data is None:
            return None
        try:
            report = SERVER_REPORT.read(data)
        except IntegrityError as error:
            return UnreadReport(key, error.detail)
        if f"{report.replica}{layout.DOCUMENT_SUFFIX}" != name:
            return UnreadReport(key, f"it is a report of {report.replica}")
        return report


# -- a past revision ---------------------------------------------------------------------------------------------------
# A ledger as it was when its state had a given digest, for serving a past revision. Read only. The chain is verified
# from its head as for every reader. Interrupted operations are always those of the head, because they show which graphs
# are half changed now.


def past_ledger(ledger: LedgerStore, state: str, objects: GitReader | None = None) -> LedgerStore:
    """Return the ledger at the newest entry whose state document has the digest `state` (with or without `sha256:`).

    `objects` are those of a branch ledger; a ledger in a folder or bucket keeps only its newest state.
    """
    return cast("LedgerStore", _PastLedger(ledger, state.removeprefix("sha256:"), objects))


class _PastLedger:
    def __init__(self, ledger: LedgerStore, state: str, objects: GitReader | None) -> None:
        self._ledger = ledger
        self._state = state
        self._objects = objects
        self._tree: str | None = None

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the ledger."""
        return getattr(self._ledger, name)

    def intents(self) -> IntentListing:
        return self._ledger.intents()

    def view(self) -> LedgerView:
        """Return the state with that digest. Raises GitopsError `revision_unknown`, and the errors of every view."""
        newest = self._ledger.view()
        if not newest.found or newest.problems or newest.cas == f"sha256:{self._state}":
            return newest
        head = newest.head
        while head is not None and self._objects is not None:
            commit = self._objects.commit(head)
            data = self._read(commit.tree, layout.STATE)
            if data is not None and digest(data) == self._state:
                self._tree = commit.tree
                # Always use the current list of accepted identity providers.
                return replace(view_of(data), trust=newest.trust)
            head = next(iter(commit.parents), None)
        detail = f"no entry of the ledger has a state with the digest {self._state[:64]}"
        raise GitopsError(Code.REVISION_UNKNOWN, detail, path="--revision")

    def blob(self, address: Address, digest: str) -> BlobReading:
        """Return the blob at the entry with that state."""
        if self._tree is None:
            return self._ledger.blob(address, digest)
        key = layout.blob_key(address, digest)
        try:
            return blob_reading(None if key is None else self._read(self._tree, key), digest)
        except GitopsError as error:
            return BlobReading(BlobCondition.UNREADABLE, detail=error.detail)

    def _read(self, tree: str, path: str) -> bytes | None:
        return None if self._objects is None else self._objects.read(tree, path)
