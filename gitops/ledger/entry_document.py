"""`entry.json`: one ledger entry as a document.

Version 1 knows only approvals that people signed. An entry that uses another, opens a debt or settles one is of version 2; every
other entry stays version 1, so that old ones keep their bytes.

Entries are written by this program alone and read by auditors: every text is one plain line, every digest and id is
checked for its form, and the writer reads back what it wrote before anyone signs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gitops.approvals.target import read_target, target_json
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.documents import strict
from gitops.documents.strict import Node
from gitops.model.approval import Via
from gitops.model.entry import (
    ApprovalUse,
    Debt,
    DebtSettlement,
    EntryChange,
    EntryKind,
    LedgerEntry,
    SourceRevision,
)

__all__ = ["VERSIONS", "read_entry", "write_entry"]

VERSIONS = (1, 2)
_CODE = Code.LEDGER_ENTRY_INVALID
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
_LATER_FIELDS = ("debts", "settled")
_USE_FIELDS = ("approval_id", "commit", "resource", "principal")
_DEBT_FIELDS = (*_USE_FIELDS, "reason")
_SETTLEMENT_FIELDS = ("approval_id", "countersignature", "commit", "principal")


def read_entry(data: bytes) -> LedgerEntry:
    """Read the bytes of an entry. Raises IntegrityError `ledger_entry_invalid`."""
    with strict.refusing(_CODE):
        root = strict.parse(data)
        version = strict.one_version(root, "version", supported=VERSIONS, code=_CODE)
        fields = root.fields(_FIELDS if version == 1 else (*_FIELDS, *_LATER_FIELDS))
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
            approvals=tuple(_read_use(item, version) for item in fields["approvals"].items()),
            authors=tuple(item.line() for item in fields["authors"].items()),
            recovered=tuple(item.line() for item in fields["recovered"].items()),
        )
        if version != 1:
            debts = tuple(_read_debt(item) for item in fields["debts"].items())
            settled = tuple(_read_settlement(item) for item in fields["settled"].items())
            entry = replace(entry, debts=debts, settled=settled)
        if _version(entry) != version:
            raise root.refuse(f"an entry of version {version} does not say this")
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


def _version(entry: LedgerEntry) -> int:
    later = entry.debts or entry.settled or any(use.via is not Via.SIGNATURE for use in entry.approvals)
    return 2 if later else 1


def _entry_json(entry: LedgerEntry) -> dict[str, Any]:
    source, version = entry.source, _version(entry)
    form = {
        "version": version,
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
        "approvals": [_use_json(use, version) for use in entry.approvals],
        "authors": list(entry.authors),
        "recovered": list(entry.recovered),
    }
    if version == 1:
        return form
    return {
        **form,
        "debts": [_debt_json(debt) for debt in entry.debts],
        "settled": [_settlement_json(settled) for settled in entry.settled],
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


def _read_use(node: Node, version: int) -> ApprovalUse:
    fields = node.fields(_USE_FIELDS if version == 1 else (*_USE_FIELDS, "via"))
    return ApprovalUse(
        approval_id=fields["approval_id"].ulid(),
        commit=fields["commit"].object_id(),
        resource=fields["resource"].line(),
        principal=fields["principal"].line(),
        via=Via.SIGNATURE if version == 1 else fields["via"].one_of(Via),
    )


def _use_json(use: ApprovalUse, version: int) -> dict[str, Any]:
    form = {
        "approval_id": use.approval_id,
        "commit": use.commit,
        "resource": use.resource,
        "principal": use.principal,
    }
    return form if version == 1 else {**form, "via": use.via.value}


def _read_debt(node: Node) -> Debt:
    fields = node.fields(_DEBT_FIELDS)
    return Debt(
        approval_id=fields["approval_id"].ulid(),
        commit=fields["commit"].object_id(),
        resource=fields["resource"].line(),
        principal=fields["principal"].line(),
        reason=fields["reason"].line(),
    )


def _debt_json(debt: Debt) -> dict[str, Any]:
    return {
        "approval_id": debt.approval_id,
        "commit": debt.commit,
        "resource": debt.resource,
        "principal": debt.principal,
        "reason": debt.reason,
    }


def _read_settlement(node: Node) -> DebtSettlement:
    fields = node.fields(_SETTLEMENT_FIELDS)
    return DebtSettlement(
        approval_id=fields["approval_id"].ulid(),
        countersignature=fields["countersignature"].ulid(),
        commit=fields["commit"].object_id(),
        principal=fields["principal"].line(),
    )


def _settlement_json(settled: DebtSettlement) -> dict[str, Any]:
    return {
        "approval_id": settled.approval_id,
        "countersignature": settled.countersignature,
        "commit": settled.commit,
        "principal": settled.principal,
    }
