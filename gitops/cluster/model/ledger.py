"""A ledger's contents as values: entries, the state after each entry, intents and the lock."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gitops.cluster.model.address import Address, graph_address, restore_address, schema_address
from gitops.cluster.model.approval import ClusterTarget, Via
from gitops.cluster.model.change import Disposition, GateName, Seen, Tier
from gitops.cluster.model.drill import RestoreDrill
from gitops.cluster.model.scope import ClusterScope
from gitops.cluster.model.use import Callers
from gitops.core.canonical import canonical, canonical_digest
from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import RestoreOrder


class EntryKind(StrEnum):
    """What an entry records.

    INTENT comes before the first side effect of a run that changes graphs. COUNTERSIGN only records settlements of debts,
    REVOKE only revocations. REPAIR only lists commits that were removed from the branch. ADOPT follows an import over an
    earlier ledger and has its approvals. SCOPE only records the location of the cluster from then on. CHANGESET only records
    events of changesets, and the state of graphs whose changes finish after a commit. DRILL only records a restore drill.
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
    DRILL = "drill"


@dataclass(frozen=True, slots=True)
class SourceRevision:
    """Where the desired state comes from: the merged commit, and the tree id of its cluster folder."""

    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change in an entry, with its final disposition. Digests have 64 hex digits, or are None.

    `seen` is the observed graph of a data change when it was decided, `tier` is the tier of a gated change, and
    `digest` is the digest in its approvals. Entries before version 3 have none of these. `gates` are the names of the
    gates that a gated change meets; entries before version 5 do not have them. `callers` are the recorded clients that the
    change breaks, if the rules gate that.
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
    callers: Callers | None = None


@dataclass(frozen=True, slots=True)
class ApprovalUse:
    """An approval that an entry consumed: id, commit, covered change, approver, and how it was given."""

    approval_id: str
    commit: str
    resource: Address
    principal: str
    via: Via = Via.SIGNATURE


@dataclass(frozen=True, slots=True)
class Debt:
    """An emergency approval's debt: with it, `principal` alone permitted a change of `resource`, for `reason`.

    It is open until a second person countersigns it. Until then, only the countersignature and further emergencies can
    be applied.
    """

    approval_id: str
    commit: str
    resource: Address
    principal: str
    reason: str


@dataclass(frozen=True, slots=True)
class DebtSettlement:
    """Settlement of a debt in an entry: the approval, and the countersignature with its commit and signer."""

    approval_id: str
    countersignature: str
    commit: str
    principal: str


@dataclass(frozen=True, slots=True)
class RecordedRevocation:
    """A revocation in an entry: its commit and signer, and the revoked approval with its approver.

    `approver` is None if the approval was not available. In that case, every approval with this id is revoked.
    """

    approval_id: str
    approver: str | None
    commit: str
    principal: str


@dataclass(frozen=True, slots=True)
class FormerLedger:
    """Traces of an earlier ledger that an import found: its first and newest known entry, or None if only graphs were left.

    `found` describes in one line where it was found. `trust_digest` identifies the keys and rules after `head`.
    """

    genesis: str | None
    head: str | None
    found: str
    trust_digest: str | None = None


ENTRY_VERSION = 5
"""The entry version that this release writes."""

WITH_ORIGINS = 3
"""The first version whose entries record the origins of commits. Earlier versions are from the first release."""

RULES_OF_0_2_1 = 4
"""The first version of entries whose origins explain each change (`cluster.approvals.origins`, rule 1).

From this version on, a policy needs an approval if it lets actors copy a protected branch to where others can read it.
"""

WITH_GATES = 5
"""The first version of entries that record the gates of each change, so that an audit need not infer them from its tier."""

CONFLICTS_EXPLAIN_NOTHING = 5
"""The first version of entries whose commits don't explain a change if one of them conflicts with the others."""

COUNTS_FROM_START = 5
"""The first version of entries whose commits count from the start of history until the cluster has converged once."""

UNKNOWN_AUTHOR = "<unknown>"
"""The author if authors could not be determined. Neither commits nor accounts can have this name."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`entry.json` of one ledger commit.

    `number` counts from 1 without gaps; `previous` is the commit id of the previous entry (None for the first) and must
    be the commit's first parent. `origins` are the origins of the commits of its gated and waiting changes, and
    `authors` are the people behind all of them, who cannot approve these changes. `forge` is the kind of the forge in
    use. `at` is RFC 3339 UTC and never goes backwards along the chain. `changeset` identifies the run of one plan: that
    of its events, if it has any. `policy_digest` is the digest of the keys and rules under which the entry was created;
    `trust_digest` is the digest of those in force after it. `debts` are opened by this entry, `settled` are closed by
    it. `vanished` are the graphs that it found missing. `revoked` are the revocations that it records, `former` are the
    traces of an earlier ledger that an import found, `quarantined` are commits that a repair removed from the branch,
    newest first. `drill` is the restore drill that it records. `target` is the cluster's location before it, and
    `scope` is the location afterwards; None after an entry of the first release. `version` is the version of its
    document and selects the verification rules: fields that entries before version 3 lack are unknown.
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
    drill: RestoreDrill | None = None

    @property
    def new_names(self) -> tuple[str, ...]:
        """The cluster's new name, if this entry renames it."""
        after = self.target.cluster if self.scope is None else self.scope.target.cluster
        return () if after == self.target.cluster else (after,)

    @property
    def moved(self) -> frozenset[Address]:
        """The resources that the entry changed. An intent entry changes none."""
        changes = self.changes if self.kind is EntryKind.APPLY else ()
        return frozenset(change.resource for change in changes if change.disposition == Disposition.APPLIED)

    @property
    def carried(self) -> tuple[str, ...]:
        """The commits that must be its additional parents: used approvals first, then recorded decisions."""
        taken_in = (*(s.commit for s in self.settled), *(r.commit for r in self.revoked))
        return tuple(dict.fromkeys((*(u.commit for u in self.approvals), *taken_in)))


def changeset_key(cluster: str, kind: str, subject: str, *, attempt: int = 1, part: str = "1/1") -> str:
    """Return `chs-` and 16 characters of lower-case base32: the first 80 bits of a SHA-256 over the identifying facts.

    `kind` is `merge`, `retry`, `reconcile` or `tick`; `subject` is the merge commit for the first two.
    """
    form = {"attempt": attempt, "cluster": cluster, "kind": kind, "part": part, "subject": subject}
    return "chs-" + base64.b32encode(hashlib.sha256(canonical(form)).digest()[:10]).decode().lower()


_CHANGESET_KEY = re.compile(r"chs-[a-z2-7]{16}\Z")


def is_changeset_key(text: str) -> bool:
    """Return True if `text` has the form of a changeset key."""
    return _CHANGESET_KEY.match(text) is not None


class Status(StrEnum):
    """Status of a resource in the ledger. The first three are read but never written."""

    PENDING = "pending"
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    DRIFTED = "drifted"
    BLOCKED = "blocked"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """A status with its conditions (at most one is written) and a message for people."""

    status: Status
    conditions: tuple[str, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AppliedResource:
    """The applied revision of one resource. `applies_to` has a policy's normalized bindings, or None for other kinds."""

    digest: str
    applies_to: tuple[str, ...] | None = None


_HIGHEST_REVISION = 2**64 - 1


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LedgerState:
    """`state.json`. Maps are keyed by address, except for maps of records, whose keys are ULIDs.

    Values of the last three are free-form JSON.

    Create a changed state with `dataclasses.replace` and new maps; never edit one in place.
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
        """The next state's revision number.

        At the highest number that other programs can read, it stays the same.
        """
        return min(self.revision + 1, _HIGHEST_REVISION)

    @property
    def decided(self) -> Mapping[str, Mapping[str, Any]]:
        """The valid approval records. In another program's ledger, their place can contain any value."""
        return {each: record for each, record in self.approval_records.items() if isinstance(record, Mapping)}

    @property
    def debts(self) -> tuple[Debt, ...]:
        """Debts that have no countersignature, by approval id. An unreadable debt counts as open."""
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
        """The graphs that are recorded as applied but were found missing although nothing deleted them."""
        gone = (address for address, seen in self.observations.items() if seen.get("vanished") is True)
        return frozenset(address for address in gone if address in self.resources)

    @property
    def drifted(self) -> frozenset[Address]:
        """The resources that the last observation found changed or missing, and that no apply has changed since."""
        return self.vanished.union(a for a, found in self.statuses.items() if found.status is Status.DRIFTED)

    @property
    def has_drift(self) -> bool:
        """True if an applied resource has recorded drift that no apply has settled."""
        return not self.drifted.isdisjoint(self.resources)

    def last_drill(self, cluster: Address) -> Mapping[str, Any] | None:
        """Return what `RestoreDrill.recorded` gave for the last drill of the cluster at this address that passed.

        Returns None for anything else that another program wrote there.
        """
        found = self.observations.get(cluster, {}).get("drill")
        known = isinstance(found, Mapping) and isinstance(found.get("at"), str) and type(found.get("seconds")) is int
        return found if known else None

    def with_drill(self, cluster: Address, drill: RestoreDrill, at: str) -> LedgerState:
        """Return the state after a drill that ended at the time `at`: only a drill that passed is remembered."""
        kept = {cluster: {"drill": drill.recorded(at)}} if drill.passed else {}
        return replace(self, revision=self.next_revision, observations={**self.observations, **kept})

    @property
    def applied_digest(self) -> str:
        """Digest of the document's `applied_revision`, without statuses and observations."""
        resources = {
            address: {
                "digest": found.digest,
                "applies_to": None if found.applies_to is None else list(found.applies_to),
            }
            for address, found in self.resources.items()
        }
        return canonical_digest({"config_digest": self.config_digest, "resources": resources})

    def digests(self) -> dict[Address, str]:
        """Map addresses to applied digests, in address order."""
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

    `operation_id` is a ULID and the file name. `observed_manifest_version` is the version at which the approvals of a
    delete were checked. `expected_manifest_version` and `state_cas_base` are only informational, because the result of
    an operation is read from its graph. `desired_schema_digest` is empty for a delete and a restore, `restores` is the
    content of a restore. `graph_uri` is informational; the root is derived from `graph_id`. `co_approvals` are the ids
    of further approvals that the operation consumes. `incarnation` is the graph to change, `max_rows` the number of
    rows that it may have to be deleted, and `fence` the operation number: None in intents of the first release.
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
        """The resource that the operation changes."""
        made = {IntentKind.SCHEMA_APPLY: schema_address, IntentKind.GRAPH_RESTORE: restore_address}
        return made.get(self.kind, graph_address)(self.graph_id)

    @property
    def approval_ids(self) -> tuple[str, ...]:
        """All approvals that the operation consumes."""
        return () if self.approval_id is None else (self.approval_id, *self.co_approvals)


@dataclass(frozen=True, slots=True)
class UnreadableDocument:
    """An intent or approval in a ledger that cannot be used. `code` is the reason."""

    name: str
    code: Code
    detail: str


@dataclass(frozen=True, slots=True)
class LockInfo:
    """`lock.json`, version 1. `created_at` is the RFC 3339 text as found; `pid` is the holder's process id on its host.

    The process id is 0 if the host isn't known.
    """

    lock_id: str
    operation: str
    created_at: str
    pid: int


@dataclass(frozen=True, slots=True)
class LockObservation:
    """An observed lock. `problem` is a code if the lock exists but cannot be read as version 1.

    `key` identifies the lock regardless of its content: the id of its commit, or in a folder the digest of its bytes.
    `abandoned` is True if the ledger is a folder on this machine and the lock's process is not running here.
    """

    held: bool
    info: LockInfo | None = None
    problem: Code | None = None
    detail: str = ""
    key: str = ""
    abandoned: bool = False

    @property
    def unlock_id(self) -> str:
        """The argument for `force-unlock`: the lock's id, or its key if that id is not valid. It can be empty."""
        return self.info.lock_id if self.info is not None and is_ulid(self.info.lock_id) else self.key

    def is_named(self, name: str) -> bool:
        """Return True if `name` is the lock's id or its key."""
        return bool(name) and name in (self.key, "" if self.info is None else self.info.lock_id)


# Origins of commits: the terms used in the rules about authors (`gitops.cluster.approvals.origins`).


class How(StrEnum):
    """How a commit's origin is known.

    MERGE: merging a known request produces the commit, and the request's authors count. UNKNOWN: it has no origin.
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

    `by` is the evidence: the signer, the account that pushed, the head of the request, or the reason why there is none.
    `people` are all names that count as authors because of it. `resources` are the changes to which it applies, or
    empty for all.
    """

    commit: str
    how: How
    by: str
    people: tuple[str, ...] = ()
    resources: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Authors:
    """A change's authors: the names that cannot approve it, and reasons why there might be more.

    `pending` explains why they are only temporarily unknown, because the forge did not respond.
    """

    people: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    pending: str = ""
