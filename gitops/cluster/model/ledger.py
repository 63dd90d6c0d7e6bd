"""What a ledger holds, as values: entries, the state after them, intents and the lock."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gitops.cluster.model.address import Address, graph_address, restore_address, schema_address
from gitops.cluster.model.approval import ClusterTarget, Via
from gitops.cluster.model.change import Disposition, GateName, Seen, Tier
from gitops.cluster.model.scope import ClusterScope
from gitops.core.canonical import canonical, canonical_digest
from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import RestoreOrder


class EntryKind(StrEnum):
    """What an entry records.

    INTENT comes before the first side effect of a run that moves graphs. COUNTERSIGN only takes in what settles debts, REVOKE
    only revocations. REPAIR only says which commits were removed from the branch. ADOPT follows an import over what an earlier
    ledger left, with the approvals of it. SCOPE only records where the cluster is from then on. CHANGESET only records events of
    changesets, and how graphs are whose changes finish after a commit.
    """

    IMPORT = "import"
    INTENT = "intent"
    APPLY = "apply"
    REFRESH = "refresh"
    COUNTERSIGN = "countersign"
    REVOKE = "revoke"
    REPAIR = "repair"
    ADOPT = "adopt"
    SCOPE = "scope"
    CHANGESET = "changeset"


@dataclass(frozen=True, slots=True)
class SourceRevision:
    """Where the desired state came from: the merged commit, and the tree id of the cluster folder in it."""

    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change of an entry with its final disposition; digests are 64 hex digits or None.

    `seen` is the graph that a change of data was about when it was decided, `tier` that of a gated change, and `digest` the one
    that its approvals name. Entries before version 3 have none of these. `gates` are those that a gated change meets, by name;
    entries before version 5 do not say them.
    """

    resource: Address
    operation: str
    before: str | None
    after: str | None
    disposition: str
    reason: str | None = None
    binding_change: bool = False
    seen: Seen | None = None
    tier: Tier | None = None
    digest: str | None = None
    gates: tuple[GateName, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalUse:
    """An approval that an entry consumed: its id, its commit, the change it covered, whose it is and how it was given."""

    approval_id: str
    commit: str
    resource: Address
    principal: str
    via: Via = Via.SIGNATURE


@dataclass(frozen=True, slots=True)
class Debt:
    """What an emergency left: `principal` alone let `resource` be changed, for `reason`, by an approval and its commit.

    It is open until a second person countersigns it; until then only that, and further emergencies, are applied.
    """

    approval_id: str
    commit: str
    resource: Address
    principal: str
    reason: str


@dataclass(frozen=True, slots=True)
class DebtSettlement:
    """A debt that an entry settles: its approval, and the countersignature with its commit and who signed it."""

    approval_id: str
    countersignature: str
    commit: str
    principal: str


@dataclass(frozen=True, slots=True)
class RecordedRevocation:
    """A revocation that an entry takes in: its commit, who signed it, the approval that it revokes and who gave that.

    `approver` is None where the approval was not at hand: then it revokes every approval with this id.
    """

    approval_id: str
    approver: str | None
    commit: str
    principal: str


@dataclass(frozen=True, slots=True)
class FormerLedger:
    """What an import found of an earlier ledger: its first and its newest known entry, None where only graphs were left.

    `found` says in one line where it was found. `trust_digest` identifies the keys and rules after `head`.
    """

    genesis: str | None
    head: str | None
    found: str
    trust_digest: str | None = None


ENTRY_VERSION = 5
"""The version of the entries that this release writes."""

WITH_ORIGINS = 3
"""The first version whose entries record where commits come from. Those before are of the first release."""

RULES_OF_0_2_1 = 4
"""The first version of entries whose origins explain each change (`cluster.approvals.origins`, rule 1), and whose policies need
an approval to let actors copy a protected branch to where others read it."""

WITH_GATES = 5
"""The first version of entries that record the gates of each change, so that an audit need not infer them from its tier."""

UNKNOWN_AUTHOR = "<unknown>"
"""The author where authors could not be determined. No commit and no account can have this name."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`entry.json` of one ledger commit.

    `number` counts from 1 without gaps; `previous` is the commit id of the entry before (None for the first) and must be
    the commit's first parent. `origins` say where the commits of its gated and waiting changes come from, and `authors` are the
    people of all of them, who may not approve these changes. `forge` is the kind of the forge in use. `at` is RFC 3339
    UTC and never runs backwards along the chain. `changeset` identifies the run of one plan: that of its
    events, if it has some. `policy_digest` is that of the
    keys and rules under which the entry was made; `trust_digest` that of those in force after it. `debts` are opened by this
    entry, `settled` are closed by it. `vanished` are the graphs that it found gone. `revoked` are the revocations that it takes
    in, `former` is what an import found of an earlier ledger, `quarantined` are commits that a repair removed from the branch,
    the newest first. `target` is where the cluster was before it, `scope` where it is from then on, None after an entry of the
    first release. `version` is that of its document, and says by which rules it is verified: what entries before version 3 lack
    is unknown.
    """

    number: int
    kind: EntryKind
    operation: str
    at: str
    actor: str | None
    target: ClusterTarget
    previous: str | None
    source: SourceRevision | None
    changeset: str | None
    plan_digest: str | None
    config_digest: str | None
    state_revision: int
    policy_digest: str
    trust_digest: str
    changes: tuple[EntryChange, ...] = ()
    approvals: tuple[ApprovalUse, ...] = ()
    authors: tuple[str, ...] = ()
    recovered: tuple[str, ...] = field(default=())
    debts: tuple[Debt, ...] = ()
    settled: tuple[DebtSettlement, ...] = ()
    vanished: tuple[Address, ...] = ()
    revoked: tuple[RecordedRevocation, ...] = ()
    former: FormerLedger | None = None
    quarantined: tuple[str, ...] = ()
    scope: ClusterScope | None = None
    version: int = ENTRY_VERSION
    forge: str | None = None
    origins: tuple[Origin, ...] = ()

    @property
    def new_names(self) -> tuple[str, ...]:
        """The name under which the cluster of this entry goes on, where it gets another one."""
        after = self.target.cluster if self.scope is None else self.scope.target.cluster
        return () if after == self.target.cluster else (after,)

    @property
    def moved(self) -> frozenset[Address]:
        """The resources that it changed; an announcement changes none."""
        changes = self.changes if self.kind is EntryKind.APPLY else ()
        return frozenset(change.resource for change in changes if change.disposition == Disposition.APPLIED)

    @property
    def carried(self) -> tuple[str, ...]:
        """The commits that must be its further parents: approvals that it uses, then decisions that it takes in."""
        taken_in = (*(s.commit for s in self.settled), *(r.commit for r in self.revoked))
        return tuple(dict.fromkeys((*(u.commit for u in self.approvals), *taken_in)))


def changeset_key(cluster: str, kind: str, subject: str, *, attempt: int = 1, part: str = "1/1") -> str:
    """`chs-` and 16 characters of lower-case base32: the first 80 bits of a SHA-256 over the identifying facts.

    `kind` is `merge`, `retry`, `reconcile` or `tick`; `subject` is the merge commit for the first two.
    """
    form = {"attempt": attempt, "cluster": cluster, "kind": kind, "part": part, "subject": subject}
    return "chs-" + base64.b32encode(hashlib.sha256(canonical(form)).digest()[:10]).decode().lower()


_CHANGESET_KEY = re.compile(r"chs-[a-z2-7]{16}\Z")


def is_changeset_key(text: str) -> bool:
    """Whether a text has the form of a changeset's key."""
    return _CHANGESET_KEY.match(text) is not None


class Status(StrEnum):
    """Status of a resource in the ledger; the first three are read but never written."""

    PENDING = "pending"
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    DRIFTED = "drifted"
    BLOCKED = "blocked"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """Status with its conditions (at most one is written) and a message for people."""

    status: Status
    conditions: tuple[str, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AppliedResource:
    """What is applied of one resource; `applies_to` is the normalized bindings of a policy, None for other kinds."""

    digest: str
    applies_to: tuple[str, ...] | None = None


_HIGHEST_REVISION = 2**64 - 1


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LedgerState:
    """`state.json`. Maps are keyed by address (records by their ULID); values of the last three are free-form JSON.

    Build a changed state with `dataclasses.replace` and new maps; nothing is edited in place.
    """

    revision: int = 0
    config_digest: str | None = None
    resources: Mapping[Address, AppliedResource] = field(default_factory=_empty)
    statuses: Mapping[Address, StatusRecord] = field(default_factory=_empty)
    approval_records: Mapping[str, Any] = field(default_factory=_empty)
    recovery_records: Mapping[str, Mapping[str, Any]] = field(default_factory=_empty)
    observations: Mapping[Address, Mapping[str, Any]] = field(default_factory=_empty)

    @property
    def next_revision(self) -> int:
        """The revision of the next state; the highest one that other programs can read is followed by itself."""
        return min(self.revision + 1, _HIGHEST_REVISION)

    @property
    def decided(self) -> Mapping[str, Mapping[str, Any]]:
        """The records of approvals that say something; a ledger of another program may hold any value there."""
        return {each: record for each, record in self.approval_records.items() if isinstance(record, Mapping)}

    @property
    def debts(self) -> tuple[Debt, ...]:
        """Debts without a countersignature, by approval id. A debt that cannot be read is open until it is settled."""
        settled = {str(r["countersigns"]) for r in self.decided.values() if "countersigns" in r}
        debts = []
        for approval_id, record in sorted(self.decided.items()):
            if "debt" in record and approval_id not in settled:
                values = record["debt"] if isinstance(record["debt"], Mapping) else {}
                found = (values.get(name) for name in ("commit", "resource", "principal", "reason"))
                commit, resource, principal, reason = (text if isinstance(text, str) else "unknown" for text in found)
                debts.append(Debt(approval_id, commit, Address(resource), principal, reason))
        return tuple(debts)

    @property
    def vanished(self) -> frozenset[Address]:
        """The graphs that are recorded as applied and whose root an observation found gone, without a delete."""
        gone = (address for address, seen in self.observations.items() if seen.get("vanished") is True)
        return frozenset(address for address in gone if address in self.resources)

    @property
    def applied_digest(self) -> str:
        """Digest of the `applied_revision` of the document: what is applied, without statuses and observations."""
        resources = {
            address: {
                "digest": found.digest,
                "applies_to": None if found.applies_to is None else list(found.applies_to),
            }
            for address, found in self.resources.items()
        }
        return canonical_digest({"config_digest": self.config_digest, "resources": resources})

    def digests(self) -> dict[Address, str]:
        """Address to applied digest, in address order."""
        return {address: self.resources[address].digest for address in sorted(self.resources)}


class IntentKind(StrEnum):
    """The operations that change a graph."""

    GRAPH_CREATE = "graph_create"
    SCHEMA_APPLY = "schema_apply"
    GRAPH_RESTORE = "graph_restore"
    GRAPH_DELETE = "graph_delete"


@dataclass(frozen=True, slots=True)
class Intent:
    """One recovery sidecar (`recoveries/<operation_id>.json`).

    `operation_id` is a ULID and the file name. `observed_manifest_version` is the version at which the approvals of a delete were
    checked. `expected_manifest_version` and `state_cas_base` are forensic only: what became of an operation is read from its
    graph. `desired_schema_digest` is empty for a delete and a restore, `restores` what a restore brings back. `graph_uri` is
    informational; the root is derived from `graph_id`. `co_approvals` are the ids of further approvals that the operation uses
    up. `incarnation` is the graph that is to be changed, `max_rows` how many rows it may have to be deleted, and `fence` the
    number of the operation: None in those of the first release.
    """

    operation_id: str
    started_at: str
    actor: str | None
    kind: IntentKind
    graph_id: str
    graph_uri: str
    observed_manifest_version: int | None
    expected_manifest_version: int | None
    desired_schema_digest: str
    state_cas_base: str | None
    approval_id: str | None
    co_approvals: tuple[str, ...] = ()
    incarnation: str | None = None
    max_rows: int | None = None
    fence: int | None = None
    restores: RestoreOrder | None = None

    @property
    def address(self) -> Address:
        """The resource whose change the operation carries out."""
        made = {IntentKind.SCHEMA_APPLY: schema_address, IntentKind.GRAPH_RESTORE: restore_address}
        return made.get(self.kind, graph_address)(self.graph_id)

    @property
    def approval_ids(self) -> tuple[str, ...]:
        """Every approval that the operation uses up."""
        return () if self.approval_id is None else (self.approval_id, *self.co_approvals)


@dataclass(frozen=True, slots=True)
class UnreadableDocument:
    """An intent or an approval of a ledger that cannot be used; `code` says why."""

    name: str
    code: Code
    detail: str


@dataclass(frozen=True, slots=True)
class LockInfo:
    """`lock.json`, version 1. `created_at` is RFC 3339 text as found; `pid` is the holder's process id on its host."""

    lock_id: str
    operation: str
    created_at: str
    pid: int


@dataclass(frozen=True, slots=True)
class LockObservation:
    """What is seen of a lock. `problem` is a code when the lock exists but cannot be read as version 1.

    `key` names the lock whatever is in it: the id of its commit, or in a folder the digest of its bytes.
    """

    held: bool
    info: LockInfo | None = None
    problem: Code | None = None
    detail: str = ""
    key: str = ""

    @property
    def unlock_id(self) -> str:
        """What `force-unlock` takes: the id in the lock, and its key where anything else than an id is there; perhaps empty."""
        return self.info.lock_id if self.info is not None and is_ulid(self.info.lock_id) else self.key

    def is_named(self, name: str) -> bool:
        """Whether `name` is the id in the lock, or its key."""
        return bool(name) and name in (self.key, "" if self.info is None else self.info.lock_id)


# Where a commit comes from: the nouns of the rules about authors (`gitops.cluster.approvals.origins`).


class How(StrEnum):
    """How the origin of a commit is known.

    MERGE: merging a known request gives the commit, whose authors are those of the request. UNKNOWN: it has no origin.
    """

    SIGNATURE = "signature"
    CERTIFICATE = "certificate"
    PUSH = "push"
    FORGE = "forge"
    MERGE = "merge"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one commit.

    `by` is what it rests on: the signer, the account that pushed, the head of the request, or why there is none. `people` are all
    names that count as authors because of it. `resources` are the changes that it counts for, empty for all.
    """

    commit: str
    how: How
    by: str
    people: tuple[str, ...] = ()
    resources: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Authors:
    """The authors of one change: the names that may not approve it, and why further authors may be unknown.

    `pending` says why they are unknown only for now: the forge did not answer.
    """

    people: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    pending: str = ""
