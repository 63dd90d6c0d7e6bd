"""A ledger's stored documents: the state, its entries, intents and the lock.

`state.json` contains the applied state. Unknown members are refused in the envelope, in `applied_revision`, in each resource
and in each status; the values of the three record maps can have any content. Maps are written by code point, so that two
documents of one state have the same bytes and their diffs are readable.

`entry.json` is one ledger entry. This release writes version 5. Version 1 knows only approvals that people signed; version 2 is
for entries that use another kind, open a debt or settle one; version 3 records the origins of commits; version 4 explains
each change; version 5 records the gates of each change. Every text is one plain line, the form of every digest and id is
checked, and the writer reads back its bytes before anyone signs them.

`sound.json` lists the graphs that an apply read and compiled without a problem.

`recoveries/<operation_id>.json` is an intent: a started operation on a graph root.

`lock.json` identifies the holder of the ledger's lock; it has no final newline.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from gitops.cluster.approvals.documents import CALLERS, SEEN, TARGET
from gitops.cluster.config.sound import PlainFolder, SoundGraph, SoundRecord
from gitops.cluster.model.address import Address, is_name
from gitops.cluster.model.approval import Via
from gitops.cluster.model.change import GateName, Tier
from gitops.cluster.model.drill import DrilledGraph, RestoreDrill
from gitops.cluster.model.ledger import (
    AppliedResource,
    ApprovalUse,
    Debt,
    DebtSettlement,
    EntryChange,
    EntryKind,
    FormerLedger,
    How,
    Intent,
    IntentKind,
    LedgerEntry,
    LedgerState,
    LockInfo,
    Origin,
    RecordedRevocation,
    SourceRevision,
    Status,
    StatusRecord,
)
from gitops.cluster.model.scope import ClusterScope
from gitops.core.codes import Code
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    JSON,
    LINE,
    OBJECT,
    OBJECT_ID,
    TEXT,
    TIME,
    ULID,
    Form,
    FormMember,
    Members,
    enum,
    integer,
    list_of,
    map_of,
    nullable,
    optional,
    record,
    text_form,
)
from gitops.core.documents.json_bytes import MalformedError
from gitops.database.graph.port import RestoreOrder

# -- state.json --------------------------------------------------------------------------------------------------------

_RESOURCE = record(AppliedResource, {"digest": TEXT, "applies_to": optional(nullable(list_of(TEXT)), written=False)})
_STATUS = record(
    StatusRecord,
    {
        "status": enum(Status),
        "conditions": optional(list_of(TEXT), (), written=False),
        "message": optional(nullable(TEXT), written=False),
    },
)
_PLAIN_STATUSES = {status.value: StatusRecord(status) for status in Status}


def _plain_resource(value: Any) -> AppliedResource | None:
    """Return a resource that consists only of its digest."""
    digest = value.get("digest") if type(value) is dict and len(value) == 1 else None
    return AppliedResource(digest) if type(digest) is str else None


def _plain_status(value: Any) -> StatusRecord | None:
    """Return a status without conditions or message."""
    status = value.get("status") if type(value) is dict and len(value) == 1 else None
    return _PLAIN_STATUSES.get(status) if type(status) is str else None


_EMPTY: Mapping[str, Any] = MappingProxyType({})

STATE = Document(
    versions={
        1: record(
            LedgerState,
            {
                "state_revision": optional(integer(), 0, attribute="revision"),
                "applied_revision": {
                    "config_digest": optional(nullable(TEXT)),
                    "resources": optional(map_of(_RESOURCE, key=Address, shortcut=_plain_resource), _EMPTY),
                },
                "resource_statuses": optional(
                    map_of(_STATUS, key=Address, shortcut=_plain_status), _EMPTY, attribute="statuses"
                ),
                "approval_records": optional(map_of(JSON, key=str), _EMPTY),
                "recovery_records": optional(map_of(OBJECT, key=str), _EMPTY),
                "observations": optional(map_of(OBJECT, key=Address), _EMPTY),
            },
        )
    },
    code=Code.INVALID_STATE_JSON,
    version_code=Code.UNSUPPORTED_STATE_VERSION,
)

# -- entry.json --------------------------------------------------------------------------------------------------------

_ADDRESS = Form(lambda value: Address(LINE.read(value)))
_USE: Members = {"approval_id": ULID, "commit": OBJECT_ID, "resource": _ADDRESS, "principal": LINE}
_CHANGE: Members = {
    "resource": _ADDRESS,
    "operation": LINE,
    "before": nullable(DIGEST),
    "after": nullable(DIGEST),
    "disposition": LINE,
    "reason": nullable(LINE),
    "binding_change": BOOLEAN,
}
_ENTRY: Members = {
    "number": integer(1),
    "kind": enum(EntryKind),
    "operation": LINE,
    "at": TIME,
    "actor": nullable(LINE),
    "target": TARGET,
    "previous": nullable(OBJECT_ID),
    "source": nullable(record(SourceRevision, {"commit": OBJECT_ID, "tree": OBJECT_ID})),
    "changeset": nullable(LINE),
    "plan_digest": nullable(DIGEST),
    "config_digest": nullable(DIGEST),
    "state_revision": integer(),
    "policy_digest": DIGEST,
    "trust_digest": DIGEST,
    "changes": list_of(record(EntryChange, _CHANGE)),
    "approvals": list_of(record(ApprovalUse, _USE)),
    "authors": list_of(LINE),
    "recovered": list_of(LINE),
}
_ENTRY_2: Members = {
    **_ENTRY,
    "approvals": list_of(record(ApprovalUse, {**_USE, "via": enum(Via)})),
    "debts": list_of(record(Debt, {**_USE, "reason": LINE})),
    "settled": list_of(
        record(
            DebtSettlement,
            {"approval_id": ULID, "countersignature": ULID, "commit": OBJECT_ID, "principal": LINE},
        )
    ),
}
_CHANGE_3: Members = {**_CHANGE, "seen": nullable(SEEN), "tier": nullable(enum(Tier)), "digest": nullable(DIGEST)}
_ORIGIN = record(
    Origin,
    {
        "commit": OBJECT_ID,
        "how": enum(How),
        "by": LINE,
        "people": list_of(LINE),
        "resources": list_of(_ADDRESS),
    },
)
_ENTRY_3: Members = {
    **_ENTRY_2,
    "changes": list_of(record(EntryChange, _CHANGE_3)),
    "vanished": list_of(_ADDRESS),
    "revoked": list_of(
        record(
            RecordedRevocation,
            {"approval_id": ULID, "approver": nullable(LINE), "commit": OBJECT_ID, "principal": LINE},
        )
    ),
    "former": nullable(
        record(
            FormerLedger,
            {
                "genesis": nullable(OBJECT_ID),
                "head": nullable(OBJECT_ID),
                "found": LINE,
                "trust_digest": nullable(DIGEST),
            },
        )
    ),
    "quarantined": list_of(OBJECT_ID),
    "scope": nullable(
        record(ClusterScope, {"target": TARGET, "storage": nullable(LINE), "home": LINE, "closed": BOOLEAN})
    ),
    "forge": nullable(LINE),
    "origins": list_of(_ORIGIN),
}
_DRILLED: Members = {"graph": LINE, "incarnation": LINE, "version": integer(), "rows": integer(), "as_of": TIME}
_DRILL: Members = {
    "seconds": integer(),
    "graphs": list_of(record(DrilledGraph, _DRILLED)),
    "findings": list_of(LINE),
    "source": nullable(LINE),
}
_ENTRY_5: Members = {
    **_ENTRY_3,
    "changes": list_of(
        record(
            EntryChange,
            {
                **_CHANGE_3,
                "gates": optional(list_of(enum(GateName)), (), written=False),
                "callers": optional(nullable(CALLERS), written=False),
            },
        ),
    ),
    "drill": optional(nullable(record(RestoreDrill, _DRILL)), written=False),
}


def _check_previous(entry: LedgerEntry) -> None:
    if (entry.number == 1) != (entry.previous is None):
        raise MalformedError("the first entry has no previous entry, and every other one has", "previous")


def _check_entry_2(entry: LedgerEntry) -> None:
    if not (entry.debts or entry.settled or any(use.via is not Via.SIGNATURE for use in entry.approvals)):
        raise MalformedError("the entry has version 2, but nothing that version 1 could not hold")
    _check_previous(entry)


def _check_entry_5(entry: LedgerEntry) -> None:
    for change in entry.changes:
        if list(change.gates) != sorted(set(change.gates)):
            raise MalformedError(f"the gates of {change.resource} are not in the order of their names", "changes")
        # The tier determines which approvals count, and the gates how many are needed.
        irreversible = GateName.IRREVERSIBLE in change.gates
        if (change.gates and change.tier is None) or irreversible != (change.tier is Tier.IRREVERSIBLE):
            raise MalformedError(f"the tier of {change.resource} is not that of its gates", "changes")
    if (entry.kind is EntryKind.DRILL) != (entry.drill is not None):
        raise MalformedError("a drill, and no other entry, has the result of a drill", "drill")
    _check_previous(entry)


ENTRY = Document(
    versions={
        1: record(partial(LedgerEntry, version=1), _ENTRY, check=_check_previous),
        2: record(partial(LedgerEntry, version=2), _ENTRY_2, check=_check_entry_2),
        3: record(partial(LedgerEntry, version=3), _ENTRY_3, check=_check_previous),
        # The same members with stricter rules.
        4: record(partial(LedgerEntry, version=4), _ENTRY_3, check=_check_previous),
        5: record(LedgerEntry, _ENTRY_5, check=_check_entry_5),
    },
    version_of=lambda entry: entry.version,
    code=Code.LEDGER_ENTRY_INVALID,
    read_back=True,
)

# -- sound.json --------------------------------------------------------------------------------------------------------

_SOUND_GRAPH = record(
    SoundGraph, {"digest": DIGEST, "files": integer(), "bytes": FormMember(integer(), attribute="size")}
)
SOUND = Document(
    versions={
        1: record(
            SoundRecord,
            {
                "compiler": DIGEST,
                "folder": record(PlainFolder, {"tree": OBJECT_ID, "folders": integer(1)}),
                "basis": optional(DIGEST, "", written=False),
                "graphs": map_of(_SOUND_GRAPH, key=str),
            },
        ),
    },
    code=Code.LEDGER_ENTRY_INVALID,
)

# -- recoveries/<operation_id>.json ------------------------------------------------------------------------------------

_FURTHER_APPROVALS: Form[tuple[str, ...]] = Form(lambda value: () if value is None else list_of(TEXT).read(value), list)

INTENT = Document(
    versions={
        1: record(
            Intent,
            {
                "operation_id": TEXT,
                "started_at": TEXT,
                "actor": optional(nullable(TEXT)),
                "kind": enum(IntentKind),
                # The graph's root is derived from its id, so anything other than a name could be a path to somewhere
                # else.
                "graph_id": text_form(is_name, "the id of a graph"),
                "graph_uri": TEXT,
                "observed_manifest_version": optional(nullable(integer())),
                "expected_manifest_version": optional(nullable(integer())),
                "desired_schema_digest": TEXT,
                "state_cas_base": optional(nullable(TEXT)),
                "approval_id": optional(nullable(TEXT)),
                # Written only if there are additional approvals, because few readers know this member.
                "co_approval_ids": optional(_FURTHER_APPROVALS, (), attribute="co_approvals", written=False),
                "incarnation": optional(nullable(TEXT), written=False),
                "max_rows": optional(nullable(integer()), written=False),
                "fence": optional(nullable(integer(1)), written=False),
                "restores": optional(
                    nullable(record(RestoreOrder, {"version": integer(1), "types": list_of(TEXT)})), written=False
                ),
            },
        )
    },
    version_name="schema_version",
    code=Code.INVALID_RECOVERY_SIDECAR,
    version_code=Code.UNSUPPORTED_RECOVERY_SIDECAR_VERSION,
    limit=1024 * 1024,
)

# -- lock.json ---------------------------------------------------------------------------------------------------------

LOCK = Document(
    versions={1: record(LockInfo, {"lock_id": TEXT, "operation": TEXT, "created_at": TEXT, "pid": integer()})},
    code=Code.INVALID_STATE_LOCK,
    version_code=Code.UNSUPPORTED_STATE_LOCK_VERSION,
    limit=64 * 1024,
    final_newline=False,
)

read_state = STATE.read
write_state = STATE.write
read_entry = ENTRY.read
write_entry = ENTRY.write
read_intent = INTENT.read
write_intent = INTENT.write
read_sound = SOUND.read
write_sound = SOUND.write
read_lock = LOCK.read
write_lock = LOCK.write
