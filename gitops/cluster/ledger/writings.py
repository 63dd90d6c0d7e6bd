"""The parts of a new entry of a branch ledger: its position in the chain, its documents and their keys. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.address import cluster_address, graph_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.ledger import ApprovalUse, EntryKind, Intent, LedgerEntry, LedgerState
from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.errors import BugError, GitopsError
from gitops.git.port import GitReader

__all__ = [
    "approval_documents",
    "approval_key",
    "consumed_approval",
    "following",
    "intent_key",
    "intent_keys",
    "next_entry",
    "replacement_files",
    "require_entry",
    "sidecar_error",
]


def require_entry(entry: LedgerEntry | None) -> LedgerEntry:
    """The entry of a write, which a branch ledger requires. Raises BugError."""
    if entry is None:
        raise BugError("a branch ledger is written with an entry")
    return entry


def following(
    entry: LedgerEntry, kind: EntryKind, *, operation: str, at: str, actor: str | None, trust_digest: str
) -> LedgerEntry:
    """The entry after this one where that applies nothing: source, place, people and state stay, and it lists nothing.

    `trust_digest` is that of the keys and rules in force. Its position in the chain is that of `next_entry`.
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
    """The entry with its position in the chain. Its time is at least that of the entry before, whatever the clock says.

    The cluster stays where the entry before records it, unless this one records it elsewhere. Raises GitopsError
    `ledger_adopt_required` for an entry that is to follow an import over an earlier ledger before people approved that.
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
    """The documents of verified approvals, as they were signed, so that the completion of an interrupted operation can mark them.

    They permit nothing by themselves: the approval commits count.
    """
    found: dict[str, bytes | None] = {}
    for use in uses:
        with contextlib.suppress(ValueError):
            path = layout.approval_key(use.approval_id)
            content = reader.read(reader.commit(use.commit).tree, path)
            found |= {} if content is None else {path: content}
    return found


def consumed_approval(approval: Approval, state: LedgerState, now: str) -> Approval:
    """The document of a consumed approval, with the time and operation of the state's record of it."""
    record = state.approval_records.get(approval.approval_id, {})
    at, by = record.get("consumed_at"), record.get("consumed_by_operation")
    return replace(
        approval,
        consumed_at=at if isinstance(at, str) else approval.consumed_at or now,
        consumed_by_operation=by if isinstance(by, str) else approval.consumed_by_operation,
    )


def replacement_files(held: Iterable[str], files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The writes and removals (None) after which only `files` are left of the paths `held` and `files`.

    A file that replaces a folder, or a folder that replaces a file, needs no removal.
    """
    gone = (path for path in held if not any(path.startswith(f"{new}/") or new.startswith(f"{path}/") for new in files))
    return {**dict.fromkeys(gone), **files}


def approval_key(approval: Approval) -> str:
    """Where the document of an approval is. Raises GitopsError `approval_write_error` for an id that is not a file name."""
    try:
        return layout.approval_key(approval.approval_id)
    except ValueError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, str(error), path=approval.resource) from error


def intent_key(intent: Intent) -> str:
    """Where the sidecar of an intent is. Raises GitopsError `recovery_sidecar_write_error` for an id that is not a file name."""
    try:
        return layout.intent_key(intent.operation_id)
    except ValueError as error:
        raise sidecar_error(intent, str(error)) from error


def intent_keys(operation_ids: Iterable[str]) -> list[str]:
    """Keys of sidecars to remove; an id that is not a file name has none."""
    keys = []
    for operation_id in operation_ids:
        with contextlib.suppress(ValueError):
            keys.append(layout.intent_key(operation_id))
    return keys


def sidecar_error(intent: Intent, detail: str) -> GitopsError:
    """A sidecar that could not be written."""
    return GitopsError(Code.RECOVERY_SIDECAR_WRITE_ERROR, detail, path=graph_address(intent.graph_id))
