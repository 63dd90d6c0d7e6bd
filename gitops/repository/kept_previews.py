"""The newest preview of each change request, kept in git as a commit that the ledger key signs.

Anyone with push rights can move the ref, so a record only counts if a ledger signer in force signed its commit, and if
it is about this cluster and request. A record explains a change. It decides nothing, except that a plan without access to
the storage asks about the clients that it counted. The apply counts them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Change
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.model.use import Callers
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.forge.port import ChangeRequest
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.repository.cluster import LedgerPosition
from gitops.repository.repository import Repository
from gitops.review.previews.record import PREVIEW_RECORD, PreviewRecord

Counted = Callable[[Change], Callers | None]

PREVIEWS = "refs/gitops/previews"
RECORD = "preview.json"


def preview_ref(cluster: str, number: int) -> str:
    """Return the ref of a change request's newest preview."""
    return f"{PREVIEWS}/{cluster}/{number}"


def kept_preview(repository: Repository, position: LedgerPosition, cluster: str, number: int) -> PreviewRecord | None:
    """Return a request's newest preview, or None if it has none.

    Raises IntegrityError `preview_record_refused` for a record that does not count; RemoteError.
    """
    commit = repository.head_of(preview_ref(cluster, number))
    return None if commit is None else read_preview(repository, position.trust, commit, cluster, number)


def kept_commits(repository: Repository, cluster: str) -> Mapping[int, str]:
    """Fetch and return the commit of each change request's newest preview, by number. Raises RemoteError."""
    prefix = f"{PREVIEWS}/{cluster}"
    found = ((ref.removeprefix(f"{prefix}/"), commit) for ref, commit in repository.fetch_refs(prefix).items())
    return {int(number): commit for number, commit in found if number.isascii() and number.isdecimal()}


def read_preview(
    repository: Repository, trust: TrustRoot | None, commit: str, cluster: str, number: int
) -> PreviewRecord:
    """Return the preview of a request in a commit that is here.

    `trust` are the rules in force. Raises IntegrityError `preview_record_refused`.
    """
    ref, store = preview_ref(cluster, number), repository.git

    def refuse(detail: str) -> IntegrityError:
        return IntegrityError(Code.PREVIEW_RECORD_REFUSED, detail, path=ref)

    signature = store.signature(commit)
    signer = None if trust is None else trust.principal(signature.key, at=repository.clock.now())
    if trust is None or not signature.good or signer not in trust.ledger_signers:
        raise refuse("the record is not signed by a ledger signer")
    content = store.read(store.commit(commit).tree, RECORD)
    if content is None:
        raise refuse(f"its commit has no {RECORD}")
    record = PREVIEW_RECORD.read(content)
    if (record.cluster, record.request) != (cluster, number):
        raise refuse("the record is about another change request")
    return record


def callers_in_preview(
    repository: Repository, position: LedgerPosition, cluster: str, request: ChangeRequest
) -> Counted:
    """Return a function that returns the clients that a change breaks, as the preview of a request's head counted them.

    It returns None without such a preview. The preview is read when the first change asks.
    """

    @cache
    def known() -> Mapping[tuple[Address, str | None, str | None], Callers]:
        with suppress(GitopsError):
            record = kept_preview(repository, position, cluster, request.number)
            if record is not None and record.head == request.head:
                return {(each.resource, each.before, each.after): each.callers for each in record.callers}
        return {}

    return lambda change: known().get((change.address, change.before, change.after))


def close_preview(repository: Repository, record: PreviewRecord, number: int, person: Person, key: str) -> None:
    """Record that a request is closed or merged, so that servers no longer serve it. Raises like `keep_preview`."""
    closed = replace(record, closed_at=timestamp(repository.clock.now()))
    keep_preview(repository, closed, number, person, key)


def keep_preview(repository: Repository, record: PreviewRecord, number: int, person: Person, key: str) -> None:
    """Sign and store a preview. Raises GitopsError `signing_failed`, and the errors of a push."""
    ref, store = preview_ref(record.cluster, number), repository.git
    old = repository.head_of(ref)
    tree = store.write_files(None, {RECORD: PREVIEW_RECORD.write(record)})
    author = replace(person, time=int(repository.clock.now().timestamp()))
    message = f"preview: {record.cluster}, request {number}\n"
    new = store.write_commit(NewCommit(tree, () if old is None else (old,), author, message), signing_key=key)
    repository.remote.push([RefUpdate(ref, old or ZERO, new)])
