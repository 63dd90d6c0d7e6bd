"""The port of previews to this machine: the newest versions of graphs, isolated workers, and scratch folders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol

from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import DIGEST, LINE, TIME, integer, record
from gitops.review.previews.choose import LiveVersion
from gitops.review.previews.order import Ask

CLAIM = "claim.json"
UNRECORDED = timedelta(hours=1)
"""How long the copies of a preview that crashed are kept."""
MOST_ROOTS = 20
"""The largest number of previews of a cluster whose copies are kept."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The first object in the folder of a preview: whose copies are there, and until when. Nothing without it is removed."""

    cluster: str
    request: int
    key: str
    expires_at: str

    @classmethod
    def until(cls, cluster: str, request: int, key: str, moment: datetime) -> Claim:
        """Return a claim that expires at a moment."""
        return cls(cluster, request, key, timestamp(moment))

    @property
    def folder(self) -> str:
        """The folder below the scratch folder of the cluster."""
        return f"{self.request}/{self.key[:12]}"

    def has_expired(self, now: datetime) -> bool:
        """Return whether the copies may be removed."""
        moment = parse_timestamp(self.expires_at)
        return moment is None or moment <= now


CLAIM_FORM = Document(
    versions={
        1: record(Claim, {"cluster": LINE, "request": integer(1), "key": DIGEST, "expires_at": TIME}),
    },
    code=Code.PREVIEW_UNAVAILABLE,
    limit=64 * 1024,
)


class Scratch(Protocol):
    """The scratch folder of a cluster, with one folder for each preview. Raises RemoteError `storage_failed`."""

    def place(self, claim: Claim) -> str:
        """Return the address of the folder of a preview."""
        ...

    def claims(self) -> Sequence[Claim]:
        """Return the claims, oldest expiry first. Folders without a readable claim are left out."""
        ...

    def write(self, claim: Claim) -> None:
        """Write the claim of a preview, before its copies are made, or to extend its life."""
        ...

    def remove(self, claim: Claim) -> None:
        """Remove the folder of a preview: its copies first, then its claim."""
        ...

    def begin(self, now: datetime) -> bool:
        """Take the cluster's turn. Return False if another preview runs. A turn ends by itself after an hour."""
        ...

    def end(self) -> None:
        """Give the turn back."""
        ...


def make_room(scratch: Scratch, claim: Claim) -> None:
    """Remove the previews that expire first, as far as there would be too many with this one."""
    claims = [each for each in scratch.claims() if each.folder != claim.folder]
    for each in claims[: max(0, len(claims) - MOST_ROOTS + 1)]:
        scratch.remove(each)


class PreviewBench(Protocol):
    """What the bot needs from its machine to preview change requests."""

    def live(self, uri: str) -> LiveVersion:
        """Return the newest version of the graph at a root. Raises the errors of the engine's `read`."""
        ...

    def workers(self, budget_s: float) -> AbstractContextManager[Ask]:
        """Start isolated workers for at most so many seconds, and end them afterwards."""
        ...

    def scratch(self, cluster: str, declared: str, storage: str) -> Scratch:
        """Return the scratch folder of a cluster whose graphs are below `storage`.

        Raises GitopsError `preview_unavailable` if the declared place is not on the same storage or is inside a graph,
        `storage_root_refused`.
        """
        ...

    def sign_with(self) -> str | None:
        """Return the path of the key that signs ledger entries, or None."""
        ...
