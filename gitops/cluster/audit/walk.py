"""An audit's state between two entries. This module also starts an audit after a trusted entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from gitops.cluster.approvals.origins import waiting_origins
from gitops.cluster.approvals.verify import ApprovalVerification
from gitops.cluster.audit.state import AnnouncedOperation
from gitops.cluster.audit.trail import state_of
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, parse_bot_config
from gitops.cluster.config.source import SourceTree
from gitops.cluster.config.trust_root import trust_paths, trust_root
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import TrustCache, VerifiedEntry, read_verified_entry
from gitops.cluster.ledger.documents import read_intent
from gitops.cluster.model.address import Kind
from gitops.cluster.model.approval import DecisionEvidence
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import EntryKind, LedgerEntry, LedgerState
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.trust import TrustRoot
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import IntegrityError
from gitops.git.port import GitReader

TreeOpener = Callable[[GitReader, str], SourceTree]


class SourceRules:
    """A cache for the keys and rules of source commits. Nearly all commits have the same ones, and reading them is slow."""

    def __init__(self, reader: GitReader) -> None:
        """Start with an empty cache."""
        self._reader = reader
        self._paths: dict[bytes, tuple[str, ...]] = {}
        self._found: dict[tuple[tuple[str, bytes], ...], TrustRoot] = {}

    def files(self, commit_id: str) -> dict[str, bytes]:
        """Return a commit's key and rule files by path, like `trust_at`."""
        tree = self._reader.commit(commit_id).tree
        config = self._reader.read(tree, CONFIG_FILE)
        if config is None:
            return {}
        if config not in self._paths:
            self._paths[config] = trust_paths(parse_bot_config(config))
        found = {path: self._reader.read(tree, path) for path in self._paths[config]}
        return {path: content for path, content in found.items() if content is not None}

    def digest(self, files: Mapping[str, bytes], version: int) -> str:
        """Return the digest that entries of this version use for these files. Raises the errors of `trust_root`."""
        key = tuple(sorted(files.items()))
        if key not in self._found:
            self._found[key] = trust_root(files)
        return self._found[key].digest_in(version)


@dataclass(frozen=True, slots=True)
class ConsumedApproval:
    """An accepted approval, and the number of the entry that first used it."""

    verification: ApprovalVerification
    number: int


@dataclass(slots=True)
class Walk:
    """An audit's state after the entry `previous`.

    `numbers` are the numbers of all entries, by commit. `announced` are the operations that any entry announced, by id,
    and `consumed` the approvals that any used. `settled` is True if the last entry left no unapplied changes;
    `settled_at` is the source commit of the last such entry. `declared` are the declarations in the last cluster folder
    that was read, with its tree id. `revocations` are decisions, by the approval that they revoke. `merged` are the
    commits that represent a request, each with its head. `moved` maps each resource to the number of the last entry
    that changed it.
    """

    reader: GitReader
    open_tree: TreeOpener
    cluster: str
    numbers: Mapping[str, int]
    revocations: Mapping[str, tuple[DecisionEvidence, ...]]
    rules: SourceRules
    known: TrustCache = field(default_factory=dict)
    previous: VerifiedEntry | None = None
    state: LedgerState = field(default_factory=LedgerState)
    blobs: str | None = None
    settled: bool = True
    settled_at: str | None = None
    merged: set[tuple[str, str]] = field(default_factory=set)
    announced: dict[str, AnnouncedOperation] = field(default_factory=dict)
    consumed: dict[str, ConsumedApproval] = field(default_factory=dict)
    declared: tuple[str, DesiredState | None] = ("", None)
    notes: list[str] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)

    def settle(self, entry: LedgerEntry, state: LedgerState) -> None:
        """Record whether an entry left changes unapplied, given the state after it."""
        self.settled = is_settled_after(self, entry, state)
        if entry.source is not None and (self.settled or self.settled_at is None):
            self.settled_at = entry.source.commit

    def moved_since(self, entry: str, resource: str) -> bool:
        """Return True if an entry after `entry` changed a resource, among the entries read so far."""
        return self.moved.get(resource, 0) > self.numbers.get(entry, 0)


def entry_ids(reader: GitReader, head: str) -> tuple[str, ...]:
    """Return a chain's entry ids, first entry first. Raises GitopsError `shallow_repository`, `git_object_missing`."""
    reader.is_ancestor(head, head)  # refuses a shallow repository
    ids: list[str] = []
    at: str | None = head
    while at is not None:
        ids.append(at)
        at = next(iter(reader.commit(at).parents), None)
    return tuple(reversed(ids))


def announced_operations(
    reader: GitReader, found: VerifiedEntry, approved: frozenset[str]
) -> Mapping[str, AnnouncedOperation]:
    """Return the operations that an intent entry announces, by id. A later entry can complete them."""
    if found.entry.kind is not EntryKind.INTENT:
        return {}
    granted = {use.approval_id for use in found.entry.approvals if use.resource in approved}
    root = reader.subtree(found.commit.tree, layout.RECOVERIES)
    begun: dict[str, AnnouncedOperation] = {}
    for item in () if root is None else reader.entries(root):
        intent = read_intent(reader.read(root or "", item.name) or b"")
        named = set(intent.approval_ids)
        permitted = bool(named) and named <= granted and intent.address in approved
        begun.setdefault(intent.operation_id, AnnouncedOperation(intent, permitted))
    return begun


def start_after(walk: Walk, since: str, approvals_of: Callable[[Walk, VerifiedEntry], frozenset[str]]) -> None:
    """Set `walk` to its state after entry `since`. That entry is trusted, so it is not checked.

    Operations in progress there were announced by that entry or by the ones just before it; `approvals_of` returns the
    addresses for which these entries had approvals. Raises IntegrityError for an entry that cannot be read.
    """
    found = read_verified_entry(walk.reader, since, walk.known)
    state = state_of(walk.reader, since)
    if state is None:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, f"{since[:12]} has no state document")
    pending, at = [found], found
    while walk.reader.subtree(at.commit.tree, layout.RECOVERIES) is not None and at.entry.previous is not None:
        at = read_verified_entry(walk.reader, at.entry.previous, walk.known)
        pending.append(at)
    for each in reversed(pending):
        before = None if each.entry.previous is None else state_of(walk.reader, each.entry.previous)
        walk.state = LedgerState() if before is None else before
        for operation, begun in announced_operations(walk.reader, each, approvals_of(walk, each)).items():
            walk.announced.setdefault(operation, begun)
    walk.previous, walk.state = found, state
    walk.settle(found.entry, state)


def is_settled_after(walk: Walk, entry: LedgerEntry, state: LedgerState) -> bool:
    """Return True if an entry left nothing unapplied: no changes, no new keys or rules, and no lost graph."""
    source = None if entry.source is None else entry.source.commit
    waits = False
    if source is not None and walk.reader.resolve(source) is not None:
        waits = walk.rules.digest(walk.rules.files(source), entry.version) != entry.trust_digest
    moves = any(c.resource.kind is Kind.CLUSTER and c.disposition == Disposition.BLOCKED for c in entry.changes)
    # An entry that lists no changes, such as one that only records changeset events, repeats the origins of a waiting
    # move.
    moves |= any(each.kind is Kind.CLUSTER for origin in waiting_origins(entry) for each in origin.resources)
    return state.config_digest == entry.config_digest and not (waits or moves or state.vanished)
