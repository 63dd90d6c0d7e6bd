"""`entry.json`, version 1: one ledger entry as a document.

Entries are written by this program alone and read by auditors: every text is one plain line, every digest and id is
checked for its form, and the writer reads back what it wrote before anyone signs it.
"""

from __future__ import annotations

from typing import Any

from gitops.core.errors import IntegrityError
from gitops.model.entry import ApprovalUse, EntryChange, EntryKind, LedgerEntry, SourceRevision
from gitops.wire import strict
from gitops.wire.strict import Node
from gitops.wire.target import read_target, target_json

__all__ = ["VERSION", "read_entry", "write_entry"]

VERSION = 1
_CODE = "ledger_entry_invalid"
_FIELDS = (
    "version",
    "number",
    "kind",
    "operation",
    "at",
    "actor",
    "target",
    "previous",
    "source",
    "changeset",
    "plan_digest",
    "config_digest",
    "state_revision",
    "policy_digest",
    "trust_digest",
    "changes",
    "approvals",
    "authors",
    "recovered",
)


def read_entry(data: bytes) -> LedgerEntry:
    """Read the bytes of an entry. Raises IntegrityError `ledger_entry_invalid`."""
    with strict.refusing(_CODE):
        root = strict.parse(data)
        strict.expect_version(root, "version", supported=VERSION, code=_CODE)
        fields = root.fields(_FIELDS)
        entry = LedgerEntry(
            number=fields["number"].integer(1),
            kind=fields["kind"].one_of(EntryKind),
            operation=fields["operation"].line(),
            at=fields["at"].moment(),
            actor=fields["actor"].nullable(Node.line),
            target=read_target(fields["target"]),
            previous=fields["previous"].nullable(Node.object_id),
            source=fields["source"].nullable(_read_source),
            changeset=fields["changeset"].nullable(Node.line),
            plan_digest=fields["plan_digest"].nullable(Node.digest),
            config_digest=fields["config_digest"].nullable(Node.digest),
            state_revision=fields["state_revision"].integer(),
            policy_digest=fields["policy_digest"].digest(),
            trust_digest=fields["trust_digest"].digest(),
            changes=tuple(_read_change(item) for item in fields["changes"].items()),
            approvals=tuple(_read_use(item) for item in fields["approvals"].items()),
            authors=tuple(item.line() for item in fields["authors"].items()),
            recovered=tuple(item.line() for item in fields["recovered"].items()),
        )
        if (entry.number == 1) != (entry.previous is None):
            raise fields["previous"].refuse("only the first entry, and it always, has none")
        return entry


def write_entry(entry: LedgerEntry) -> bytes:
    """The bytes of `entry`.

    Raises IntegrityError `ledger_entry_invalid` when they could not be read back, UsageError for text that is not Unicode.
    """
    data = strict.encode(_entry_json(entry))
    if read_entry(data) != entry:
        raise IntegrityError(_CODE, "the entry does not survive being written down")
    return data


def _entry_json(entry: LedgerEntry) -> dict[str, Any]:
    source = entry.source
    return {
        "version": VERSION,
        "number": entry.number,
        "kind": entry.kind.value,
        "operation": entry.operation,
        "at": entry.at,
        "actor": entry.actor,
        "target": target_json(entry.target),
        "previous": entry.previous,
        "source": None if source is None else {"commit": source.commit, "tree": source.tree},
        "changeset": entry.changeset,
        "plan_digest": entry.plan_digest,
        "config_digest": entry.config_digest,
        "state_revision": entry.state_revision,
        "policy_digest": entry.policy_digest,
        "trust_digest": entry.trust_digest,
        "changes": [_change_json(change) for change in entry.changes],
        "approvals": [_use_json(use) for use in entry.approvals],
        "authors": list(entry.authors),
        "recovered": list(entry.recovered),
    }


def _read_source(node: Node) -> SourceRevision:
    fields = node.fields(("commit", "tree"))
    return SourceRevision(fields["commit"].object_id(), fields["tree"].object_id())


def _read_change(node: Node) -> EntryChange:
    fields = node.fields(("resource", "operation", "before", "after", "disposition", "reason", "binding_change"))
    return EntryChange(
        resource=fields["resource"].line(),
        operation=fields["operation"].line(),
        before=fields["before"].nullable(Node.digest),
        after=fields["after"].nullable(Node.digest),
        disposition=fields["disposition"].line(),
        reason=fields["reason"].nullable(Node.line),
        binding_change=fields["binding_change"].boolean(),
    )


def _change_json(change: EntryChange) -> dict[str, Any]:
    return {
        "resource": change.resource,
        "operation": change.operation,
        "before": change.before,
        "after": change.after,
        "disposition": change.disposition,
        "reason": change.reason,
        "binding_change": change.binding_change,
    }


def _read_use(node: Node) -> ApprovalUse:
    fields = node.fields(("approval_id", "commit", "resource", "principal"))
    return ApprovalUse(
        approval_id=fields["approval_id"].ulid(),
        commit=fields["commit"].object_id(),
        resource=fields["resource"].line(),
        principal=fields["principal"].line(),
    )


def _use_json(use: ApprovalUse) -> dict[str, Any]:
    return {
        "approval_id": use.approval_id,
        "commit": use.commit,
        "resource": use.resource,
        "principal": use.principal,
    }
