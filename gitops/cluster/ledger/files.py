"""Converts ledger files to the port's values, and builds the parts of a new entry. All stores share these pure functions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from gitops.cluster.approvals.documents import read_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.documents import read_intent, read_lock, read_sound, read_state
from gitops.cluster.ledger.port import (
    ApprovalListing,
    BlobCondition,
    BlobReading,
    IntentListing,
    LedgerView,
    LedgerWrite,
)
from gitops.cluster.model.address import cluster_address, graph_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.ledger import (
    ApprovalUse,
    EntryKind,
    Intent,
    LedgerEntry,
    LedgerState,
    LockObservation,
    UnreadableDocument,
)
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import BugError, ConflictError, GitopsError, IntegrityError
from gitops.git.port import GitReader

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A file in the sidecar or approval folder: its content, or why it could not be read."""

    name: str
    content: bytes | None
    problem: str = ""


def state_cas(data: bytes) -> str:
    """Return the compare-and-swap token for a state document's bytes."""
    return f"sha256:{digest(data)}"


# A run reads the same head several times, and the state of a large cluster takes long to parse.
@functools.lru_cache(maxsize=2)
def view_of(data: bytes | None, sound: bytes | None = None) -> LedgerView:
    """Return the view of a state document, with its record of checked graphs, or None for a missing document.

    An unreadable record counts as missing, because it only saves work.
    """
    if data is None:
        return LedgerView()
    if sound is not None:
        record = None
        with contextlib.suppress(IntegrityError):
            record = read_sound(sound)
        return replace(view_of(data), sound=record)
    try:
        return LedgerView(found=True, state=read_state(data), cas=state_cas(data))
    except IntegrityError as problem:
        path = "state.version" if problem.code == Code.UNSUPPORTED_STATE_VERSION else layout.STATE
        return LedgerView(found=True, cas=state_cas(data), problems=_problem(problem.code, path, problem.detail))


def unreadable_view(problem: GitopsError) -> LedgerView:
    """Return the view for a state document that cannot be read. It counts as found, so that no import overwrites it."""
    return LedgerView(found=True, problems=_problem(Code.STATE_READ_ERROR, layout.STATE, problem.detail, problem.fix))


MISSING_BLOB = "the blob is missing from the catalog"


def lock_observation(data: bytes | None, key: str = "") -> LockObservation:
    """Read the lock document, or None if there is none. Without `key`, the digest of its bytes is the key."""
    if data is None:
        return LockObservation(held=False)
    key = key or digest(data)
    try:
        return LockObservation(held=True, info=read_lock(data), key=key)
    except IntegrityError as problem:
        return LockObservation(held=True, problem=problem.code, detail=problem.detail, key=key)


def lock_held_message(seen: LockObservation, at: str | None = None, place: str = "") -> str:
    """Describe who holds the lock, since when, and how to break it. With `at` (RFC 3339), add its age in whole seconds.

    `place` is the part of a command line that selects this cluster.
    """
    if not seen.held:
        return "the lock was just released; run the command again"
    if seen.info is None:
        remedy = f"; if no run is active: gitops force-unlock {seen.unlock_id}{place}" if seen.unlock_id else ""
        return f"the ledger is locked; its lock cannot be read{': ' if seen.detail else ''}{seen.detail}{remedy}"
    info = seen.info
    created, now = parse_timestamp(info.created_at), None if at is None else parse_timestamp(at)
    age = "" if created is None or now is None else f", for {max(0, int((now - created).total_seconds()))} s"
    lock = f"{seen.unlock_id}{place}"
    if seen.abandoned:
        return (
            f"the ledger is locked by {info.operation} since {info.created_at}{age}, but no process {info.pid} runs on this "
            f"machine; unless it runs on another one: gitops force-unlock {lock}"
        )
    # A run in a job or on a server may be on any machine, so it records no process.
    process, end = (f" (process {info.pid})", "that process has ended") if info.pid else ("", "that run is over")
    return f"the ledger is locked by {info.operation} since {info.created_at}{age}{process}; if {end}: gitops force-unlock {lock}"


def intent_listing(documents: Iterable[FoundDocument]) -> IntentListing:
    """Sort the files in the sidecar folder into readable and unreadable intents, in ascending order of names."""
    return IntentListing(*_sort(documents, read_intent, Code.INVALID_RECOVERY_SIDECAR, lambda i: i.operation_id))


def approval_listing(documents: Iterable[FoundDocument]) -> ApprovalListing:
    """Sort the files in the approval folder into readable and unreadable approvals, in ascending order of names."""
    found, unreadable = _sort(documents, read_approval, Code.INVALID_APPROVAL_ARTIFACT, lambda a: a.approval_id)
    return ApprovalListing(documents=found, unreadable=unreadable)


def blob_reading(data: bytes | None, expected: str) -> BlobReading:
    """Check that the bytes have the digest `expected`. If they don't and are not UTF-8 either, they count as unreadable."""
    if data is None:
        return BlobReading(BlobCondition.MISSING, detail=MISSING_BLOB)
    found = digest(data)
    if found == expected:
        return BlobReading(BlobCondition.OK, data)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return BlobReading(BlobCondition.UNREADABLE, detail=f"it is not UTF-8: invalid byte at offset {error.start}")
    return BlobReading(BlobCondition.MISMATCH, detail=f"the content has digest {found}")


def is_same_state(view: LedgerView, data: bytes | None) -> bool:
    """Return True if the state document's bytes (None if absent) are still those of `view`."""
    return view.cas == (None if data is None else state_cas(data))


def restore_commands(cluster: str, commit: str) -> str:
    """Return the commands that restore a ledger branch's entry from any clone that still has it."""
    return (
        "restore it from a clone that has it: "
        f"git push origin {commit}:refs/heads/gitops/ledger/{cluster}; if no copy is left: gitops import --adopt"
    )


def conflict_error() -> ConflictError:
    """Return the error for a compare-and-swap that failed."""
    detail = "another writer changed the ledger during this command; nothing was written"
    return ConflictError(Code.STATE_CAS_MISMATCH, detail, path=layout.STATE)


def check_write(view: LedgerView, write: LedgerWrite) -> None:
    """Check the preconditions for `commit`: a readable base and the next revision.

    Raises BugError.
    """
    if view.found and view.state is None:
        raise BugError("a commit against a ledger that could not be read")
    base = view.state or LedgerState()
    if write.state.revision != base.next_revision:
        raise BugError(f"a commit of revision {write.state.revision} on top of revision {base.revision}")


def _sort(
    documents: Iterable[FoundDocument], read: Callable[[bytes], T], code: Code, identify: Callable[[T], str]
) -> tuple[tuple[T, ...], tuple[UnreadableDocument, ...]]:
    """Separate readable from unreadable documents. A document's id must be its name, under which it is changed and removed."""
    found: list[T] = []
    unreadable: list[UnreadableDocument] = []
    for document in sorted((d for d in documents if layout.document_id(d.name) is not None), key=lambda d: d.name):
        name, content = document.name, document.content
        if content is None:
            unreadable.append(UnreadableDocument(name, code, document.problem))
            continue
        try:
            value = read(content)
        except IntegrityError as problem:
            unreadable.append(UnreadableDocument(name, problem.code, problem.detail))
            continue
        if identify(value) == layout.document_id(name):
            found.append(value)
        else:
            detail = f"the document calls itself {identify(value)[:64]!r}"
            unreadable.append(UnreadableDocument(name, code, detail))
    return tuple(found), tuple(unreadable)


def _problem(code: Code, path: str, detail: str, fix: str | None = None) -> tuple[Diagnostic, ...]:
    problems = Diagnostics()
    problems.add(code, path, detail, fix=fix)
    return tuple(problems)


# -- new entries -------------------------------------------------------------------------------------------------------
# Parts of a new entry in a branch ledger: its position in the chain, its documents and their keys. Pure.


def require_entry(entry: LedgerEntry | None) -> LedgerEntry:
    """Return a write's entry, which a branch ledger requires. Raises BugError."""
    if entry is None:
        raise BugError("a branch ledger is written with an entry")
    return entry


def following(
    entry: LedgerEntry, kind: EntryKind, *, operation: str, at: str, actor: str | None, trust_digest: str
) -> LedgerEntry:
    """Return the next entry for a write that applies nothing.

    Source, location, people and state are unchanged, and lists are empty.

    `trust_digest` is the digest of the keys and rules in force. Its position in the chain is set by `next_entry`.
    """
    return LedgerEntry(
        number=0,
        kind=kind,
        operation=operation,
        at=at,
        actor=actor,
        target=entry.target,
        previous=None,
        source=entry.source,
        changeset=entry.changeset,
        plan_digest=None,
        config_digest=entry.config_digest,
        state_revision=entry.state_revision,
        policy_digest=trust_digest,
        trust_digest=trust_digest,
        authors=entry.authors,
        scope=entry.scope,
        forge=entry.forge,
        origins=entry.origins,
    )


def next_entry(entry: LedgerEntry, view: LedgerView) -> LedgerEntry:
    """Return the entry with its position in the chain. Its time is never earlier than the previous entry's.

    The cluster remains at the location in the previous entry, unless this one records another. Raises GitopsError
    `ledger_adopt_required` for an entry that would follow an import over an earlier ledger before people approved that.
    """
    if view.entry is None:
        return replace(entry, number=1, previous=None)
    if view.entry.former is not None and entry.kind is not EntryKind.ADOPT:
        address = cluster_address(entry.target.cluster)
        detail = f"the import over an earlier ledger waits for its approval: gitops approve {address}"
        raise GitopsError(Code.LEDGER_ADOPT_REQUIRED, detail, path=address)
    at, scope = parse_timestamp(entry.at), entry.scope or view.entry.scope
    dated = entry.at if at is None else timestamp(view.time(at))
    return replace(entry, number=view.entry.number + 1, previous=view.head, at=dated, scope=scope)


def approval_documents(reader: GitReader, uses: Iterable[ApprovalUse]) -> dict[str, bytes | None]:
    """Return verified approvals' signed documents, which are needed to mark them when an interrupted operation is completed.

    On their own, they don't permit anything; only the approval commits count.
    """
    found: dict[str, bytes | None] = {}
    for use in uses:
        with contextlib.suppress(ValueError):
            path = layout.approval_key(use.approval_id)
            content = reader.read(reader.commit(use.commit).tree, path)
            found |= {} if content is None else {path: content}
    return found


def consumed_approval(approval: Approval, state: LedgerState, now: str) -> Approval:
    """Return a consumed approval's document, with the time and operation that the state records for it."""
    record = state.approval_records.get(approval.approval_id, {})
    at, by = record.get("consumed_at"), record.get("consumed_by_operation")
    return replace(
        approval,
        consumed_at=at if isinstance(at, str) else approval.consumed_at or now,
        consumed_by_operation=by if isinstance(by, str) else approval.consumed_by_operation,
    )


def replacement_files(held: Iterable[str], files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Return the writes and removals (None) that replace the files at `held` with `files`.

    No removal is needed if a file replaces a folder or a folder replaces a file.
    """
    gone = (path for path in held if not any(path.startswith(f"{new}/") or new.startswith(f"{path}/") for new in files))
    return {**dict.fromkeys(gone), **files}


def approval_key(approval: Approval) -> str:
    """Return an approval document's key. Raises GitopsError `approval_write_error` if the id is not a file name."""
    try:
        return layout.approval_key(approval.approval_id)
    except ValueError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, str(error), path=approval.resource) from error


def intent_key(intent: Intent) -> str:
    """Return the key of an intent's sidecar. Raises GitopsError `recovery_sidecar_write_error` if the id is not a file name."""
    try:
        return layout.intent_key(intent.operation_id)
    except ValueError as error:
        raise sidecar_error(intent, str(error)) from error


def intent_keys(operation_ids: Iterable[str]) -> list[str]:
    """Return the keys of sidecars to remove, skipping ids that are not file names."""
    keys = []
    for operation_id in operation_ids:
        with contextlib.suppress(ValueError):
            keys.append(layout.intent_key(operation_id))
    return keys


def sidecar_error(intent: Intent, detail: str) -> GitopsError:
    """Return the error for a sidecar that could not be written."""
    return GitopsError(Code.RECOVERY_SIDECAR_WRITE_ERROR, detail, path=graph_address(intent.graph_id))
