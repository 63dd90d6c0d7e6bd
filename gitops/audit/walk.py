"""What the auditor carries from entry to entry, and how it begins behind an entry that is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gitops.approvals.verify import Verdict
from gitops.audit.state import Announced
from gitops.audit.trail import state_of
from gitops.config.gitops_yaml import CONFIG_FILE, parse_bot_config, trust_paths, trust_root
from gitops.config.source import SourceTree
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.git.port import GitReader
from gitops.ledger.chain import ChainEntry, TrustCache, read_chain_entry
from gitops.ledger.documents import read_intent
from gitops.model.address import graph_address
from gitops.model.approval import DecisionEvidence
from gitops.model.entry import EntryKind, LedgerEntry
from gitops.model.resource import DesiredState
from gitops.model.state import State

__all__ = [
    "SourceRules",
    "TreeOpener",
    "Used",
    "Walk",
    "announced_by",
    "begin_behind",
    "chain_of",
    "settled_after",
]

TreeOpener = Callable[[GitReader, str], SourceTree]

_RECOVERIES = "__cluster/recoveries"


class SourceRules:
    """Keys and rules of source commits. Nearly all commits have the same, and reading them is what costs."""

    def __init__(self, reader: GitReader) -> None:
        """Know nothing yet."""
        self._reader = reader
        self._paths: dict[bytes, tuple[str, ...]] = {}
        self._digests: dict[tuple[tuple[str, bytes], ...], str] = {}

    def files(self, commit_id: str) -> dict[str, bytes]:
        """As `trust_at` of the commit's tree."""
        tree = self._reader.commit(commit_id).tree
        config = self._reader.read(tree, CONFIG_FILE)
        if config is None:
            return {}
        if config not in self._paths:
            self._paths[config] = trust_paths(parse_bot_config(config))
        found = {path: self._reader.read(tree, path) for path in self._paths[config]}
        return {path: content for path, content in found.items() if content is not None}

    def digest(self, files: Mapping[str, bytes]) -> str:
        """That of `trust_root`. Raises GitopsError as it does."""
        key = tuple(sorted(files.items()))
        if key not in self._digests:
            self._digests[key] = trust_root(files).digest
        return self._digests[key]


@dataclass(frozen=True, slots=True)
class Used:
    """An approval that an entry used and that held: who could do what with it, and the first entry that did, by its number."""

    verdict: Verdict
    number: int


@dataclass(slots=True)
class Walk:
    """What the auditor remembers from entry to entry.

    `numbers` are the positions of all entries. `announced` are the operations that any entry announced, by id, and `used` the
    approvals that any used. `settled` says that the last entry left nothing unapplied. `declared` is what the newest folder
    that was read declares, with its tree id. `revocations` are decision commits, by the approval that they take back.
    """

    reader: GitReader
    open_tree: TreeOpener
    cluster: str
    numbers: Mapping[str, int]
    revocations: Mapping[str, tuple[DecisionEvidence, ...]]
    rules: SourceRules
    known: TrustCache = field(default_factory=dict)
    previous: ChainEntry | None = None
    state: State = field(default_factory=State)
    blobs: str | None = None
    settled: bool = True
    announced: dict[str, Announced] = field(default_factory=dict)
    used: dict[str, Used] = field(default_factory=dict)
    declared: tuple[str, DesiredState | None] = ("", None)
    notes: list[str] = field(default_factory=list)


def chain_of(reader: GitReader, head: str) -> tuple[str, ...]:
    """The ids of a chain, the first entry first. Raises GitopsError `shallow_repository`, `git_object_missing`."""
    reader.is_ancestor(head, head)  # full history, or none of it is judged
    ids: list[str] = []
    at: str | None = head
    while at is not None:
        ids.append(at)
        at = next(iter(reader.commit(at).parents), None)
    return tuple(reversed(ids))


def announced_by(reader: GitReader, found: ChainEntry, approved: frozenset[str]) -> Mapping[str, Announced]:
    """The operations that an announcement begins, by id: a later entry may complete them."""
    if found.entry.kind is not EntryKind.INTENT:
        return {}
    granted = {use.approval_id for use in found.entry.approvals if use.resource in approved}
    root = reader.subtree(found.commit.tree, _RECOVERIES)
    begun: dict[str, Announced] = {}
    for item in () if root is None else reader.entries(root):
        intent = read_intent(reader.read(root or "", item.name) or b"")
        named = set(intent.approval_ids)
        permitted = bool(named) and named <= granted and graph_address(intent.graph_id) in approved
        begun.setdefault(intent.operation_id, Announced(intent, permitted))
    return begun


def begin_behind(walk: Walk, since: str, approvals_of: Callable[[Walk, ChainEntry], frozenset[str]]) -> None:
    """Make `walk` what it is after entry `since`, which is believed: nothing of it is judged again.

    Operations that are under way there were announced by it or by entries shortly before; `approvals_of` says what those had
    approvals for. Raises IntegrityError for an entry that cannot be read.
    """
    found = read_chain_entry(walk.reader, since, walk.known)
    state = state_of(walk.reader, since)
    if state is None:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, f"{since[:12]} has no state document")
    pending, at = [found], found
    while walk.reader.subtree(at.commit.tree, _RECOVERIES) is not None and at.entry.previous is not None:
        at = read_chain_entry(walk.reader, at.entry.previous, walk.known)
        pending.append(at)
    for each in reversed(pending):
        before = None if each.entry.previous is None else state_of(walk.reader, each.entry.previous)
        walk.state = State() if before is None else before
        for operation, begun in announced_by(walk.reader, each, approvals_of(walk, each)).items():
            walk.announced.setdefault(operation, begun)
    walk.previous, walk.state = found, state
    walk.settled = settled_after(walk, found.entry, state)


def settled_after(walk: Walk, entry: LedgerEntry, state: State) -> bool:
    """Whether an entry left nothing unapplied: no change, and no keys or rules."""
    source = None if entry.source is None else entry.source.commit
    waits = False
    if source is not None and walk.reader.resolve(source) is not None:
        waits = walk.rules.digest(walk.rules.files(source)) != entry.trust_digest
    return state.config_digest == entry.config_digest and not waits
