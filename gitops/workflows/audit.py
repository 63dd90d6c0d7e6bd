"""The offline auditor: from the first entry on, every entry must hold under the keys and rules of its own moment.

Per entry, in order; the first step that fails is the finding:

1. The entry follows the one before: parents, number, time, target.
2. It is signed by a ledger key in force before it, at its own time.
3. Its message says what its document says.
4. Every approval that it uses holds, for a change that it lists, unspent; irreversible changes have enough of them.
5. Keys and rules after it are those that it names, and moved only by an approved change.
6. Its state is readable, and moved only as `gitops.workflows.audit_state` allows.
7. Every catalog blob that its state names is there with its digest.
8. Its source commit continues the one before and has the folder, the configuration, the keys and the authors that the entry
   names (where the repository has the commit), and a state that calls itself converged is what that commit declares.

A commit that the repository lacks is a note when it is a source commit, since a ledger can be kept apart from its sources;
anything else that is missing is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gitops.chain.authors import AuthorQuestion, authors_of
from gitops.chain.entries import ChainEntry, TrustCache, read_chain_entry, trust_files
from gitops.chain.trust import trust_at, trust_waits
from gitops.config.bot import trust_root
from gitops.config.load import load_desired
from gitops.config.source import SourceTree
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from gitops.core.errors import GitopsError, IntegrityError
from gitops.model.address import Address, Kind, trust_address
from gitops.model.audit import AuditFinding, AuditReport
from gitops.model.change import Action, Disposition
from gitops.model.changeset import changeset_key
from gitops.model.entry import EntryKind, SourceRevision
from gitops.model.resource import DesiredState
from gitops.model.state import State
from gitops.planning.approvals import Verdict, distinct
from gitops.planning.diff import diff
from gitops.ports.git import GitReader
from gitops.wire.intent import read_intent
from gitops.wire.trailers import commit_message
from gitops.workflows.audit_state import Announced, Movement, check_movement
from gitops.workflows.trail import Moment, change_of, state_of, verify_use

__all__ = ["TreeOpener", "audit"]

TreeOpener = Callable[[GitReader, str], SourceTree]

_RECOVERIES = "__cluster/recoveries"
_RESOURCES = "__cluster/resources"


@dataclass(slots=True)
class _Walk:
    """What the auditor remembers from entry to entry.

    `announced` are the operations that any entry announced, by id. `settled` says that the last entry left nothing unapplied.
    `declared` is what the newest folder that was read declares, with its tree id.
    """

    reader: GitReader
    open_tree: TreeOpener
    cluster: str
    chain: frozenset[str]
    known: TrustCache = field(default_factory=dict)
    previous: ChainEntry | None = None
    state: State = field(default_factory=State)
    blobs: str | None = None
    settled: bool = True
    announced: dict[str, Announced] = field(default_factory=dict)
    declared: tuple[str, DesiredState | None] = ("", None)
    notes: list[str] = field(default_factory=list)


def audit(reader: GitReader, head: str, cluster: str, open_tree: TreeOpener) -> AuditReport:
    """Verify the whole ledger branch that ends in `head`. Never raises for what the repository holds or lacks.

    A chain that cannot be walked to its first entry gives a finding with number 0 at `head`.
    """
    try:
        chain = tuple(reversed(reader.commits_between(None, head, first_parent=True)))
    except GitopsError as error:
        return AuditReport(cluster, head, 0, 0, AuditFinding(head, 0, error.code, error.detail))
    walk = _Walk(reader, open_tree, cluster, frozenset(c.id for c in chain))
    for number, commit in enumerate(chain, start=1):
        try:
            _check_entry(walk, commit.id, number)
        except GitopsError as error:
            finding = AuditFinding(commit.id, number, error.code, error.detail)
            return AuditReport(cluster, head, len(chain), number - 1, finding, tuple(walk.notes))
    return AuditReport(cluster, head, len(chain), len(chain), None, tuple(walk.notes))


def _check_entry(walk: _Walk, commit_id: str, number: int) -> None:
    found = read_chain_entry(walk.reader, commit_id, walk.known)  # 1 (parents) and 2
    _check_order(walk, found, number)  # 1
    if found.commit.message != commit_message(found.entry):  # 3
        raise IntegrityError("ledger_entry_invalid", "the commit message does not say what the entry says")
    approved = _check_approvals(walk, found)  # 4
    _check_trust(walk, found, approved)  # 5
    state = state_of(walk.reader, commit_id)
    if state is None:
        raise IntegrityError("ledger_state_mismatch", "the entry has no state document")
    check_movement(Movement(found.entry, walk.state, state, approved, walk.announced))  # 6
    _check_blobs(walk, found, state)  # 7
    _check_source(walk, found, state)  # 8
    _remember_announced(walk, found, approved)
    walk.previous, walk.state = found, state
    source = None if found.entry.source is None else found.entry.source.commit
    waits = trust_waits(walk.reader, source, found.entry.trust_digest)
    walk.settled = state.config_digest == found.entry.config_digest and not waits


def _check_order(walk: _Walk, found: ChainEntry, number: int) -> None:
    """Step 1."""
    entry, previous = found.entry, walk.previous
    if entry.previous != (None if previous is None else previous.commit.id) or entry.number != number:
        raise IntegrityError("ledger_chain_broken", f"entry {number} calls itself {entry.number}")
    at, before = parse_timestamp(entry.at), None if previous is None else parse_timestamp(previous.entry.at)
    if at is None or (before is not None and at < before):
        raise IntegrityError("ledger_chain_broken", f"entry {number} is dated before the one it follows")
    if entry.target.cluster != walk.cluster or (previous is not None and entry.target != previous.entry.target):
        raise IntegrityError("ledger_entry_invalid", "the entry is for another cluster, branch or folder")


def _check_approvals(walk: _Walk, found: ChainEntry) -> frozenset[str]:
    """Step 4: addresses whose irreversible change is approved."""
    entry = found.entry
    moment = Moment(found, walk.chain, frozenset(walk.state.approval_records))
    given: dict[str, list[Verdict]] = {}
    for use in entry.approvals:
        verdict = verify_use(walk.reader, use, moment)
        if not verdict.good:
            problem = next(iter(verdict.diagnostics))
            raise IntegrityError("ledger_change_unapproved", f"{problem.code}: {problem.message}")
        given.setdefault(use.resource, []).append(verdict)
    approved = frozenset(a for a, verdicts in given.items() if len(distinct(verdicts)) >= found.before.required)
    for listed in entry.changes:
        change = change_of(listed)
        deletes_graph = change.address.kind is Kind.GRAPH and change.action is Action.DELETE
        gated = deletes_graph or change.address.kind is Kind.TRUST
        if gated and listed.disposition == Disposition.APPLIED and listed.resource not in approved:
            detail = f"{listed.operation} {listed.resource} has no valid approval, or not enough of them"
            raise IntegrityError("ledger_change_unapproved", detail)
    return approved


def _check_trust(walk: _Walk, found: ChainEntry, approved: frozenset[str]) -> None:
    """Step 5."""
    entry, before, after = found.entry, found.before.digest, found.after.digest
    if (entry.policy_digest, entry.trust_digest) != (before, after):
        raise IntegrityError("ledger_entry_invalid", "the entry names other keys and rules than it holds")
    if before == after:
        return
    address = trust_address(walk.cluster).text
    moves = [(c.before, c.after) for c in entry.changes if c.resource == address]
    if entry.kind is not EntryKind.APPLY or address not in approved or moves != [(before, after)]:
        raise IntegrityError("ledger_change_unapproved", "keys or rules changed without an approval of just that")


def _check_blobs(walk: _Walk, found: ChainEntry, state: State) -> None:
    """Step 7; where neither the blobs nor the state moved, they were checked with the entry before."""
    folder = walk.reader.subtree(found.commit.tree, _RESOURCES)
    same = folder == walk.blobs
    for text, resource in sorted(state.resources.items()):
        path = _blob_path(Address.parse(text), resource.digest)
        if path is None or (same and walk.state.resources.get(text) == resource):
            continue
        content = walk.reader.read(found.commit.tree, path)
        if content is None or digest(content) != resource.digest:
            raise IntegrityError("ledger_blob_mismatch", f"the blob of {text} does not have digest {resource.digest}")
    walk.blobs = folder


def _blob_path(address: Address, of: str) -> str | None:
    if address.kind is Kind.QUERY:
        return f"{_RESOURCES}/query/{address.graph}/{address.name}/{of}.gq"
    return f"{_RESOURCES}/policy/{address.name}/{of}.yaml" if address.kind is Kind.POLICY else None


def _remember_announced(walk: _Walk, found: ChainEntry, approved: frozenset[str]) -> None:
    """Keep what an announcement says of the operations that it begins; a later entry may complete them."""
    if found.entry.kind is not EntryKind.INTENT:
        return
    granted = {use.approval_id for use in found.entry.approvals if use.resource in approved}
    root = walk.reader.subtree(found.commit.tree, _RECOVERIES)
    for item in () if root is None else walk.reader.entries(root):
        intent = read_intent(walk.reader.read(root or "", item.name) or b"")
        named = set(intent.approval_ids)
        permitted = bool(named) and named <= granted and f"graph.{intent.graph_id}" in approved
        walk.announced.setdefault(intent.operation_id, Announced(intent, permitted))


def _check_source(walk: _Walk, found: ChainEntry, state: State) -> None:
    """Step 8."""
    entry, reader, source = found.entry, walk.reader, found.entry.source
    if source is None or entry.config_digest is None:
        raise IntegrityError("ledger_entry_invalid", "the entry does not say what it was made from")
    if entry.changeset != changeset_key(walk.cluster, "merge", source.commit):
        raise IntegrityError("ledger_entry_invalid", "the changeset is not that of the source commit")
    converged = state.config_digest != walk.state.config_digest
    if converged and state.config_digest != entry.config_digest:
        raise IntegrityError("ledger_source_mismatch", "the state is converged to another configuration")
    if reader.resolve(source.commit) is None:
        walk.notes.append(f"entry {entry.number}: source commit {source.commit[:12]} is not in this repository")
        return
    if reader.subtree(reader.commit(source.commit).tree, entry.target.path) != source.tree:
        raise IntegrityError("ledger_source_mismatch", "the source commit has another cluster folder")
    desired = _declared(walk, source.tree)
    if desired is None or desired.config_digest != entry.config_digest:
        raise IntegrityError("ledger_source_mismatch", "the source commit has another configuration")
    if converged and diff(desired, state):
        raise IntegrityError("ledger_source_mismatch", "the state is not what its source commit declares")
    if walk.previous is None or found.before.digest != found.after.digest:
        _check_trust_source(reader, found, source)
    _check_authors(walk, found, source)


def _declared(walk: _Walk, tree: str) -> DesiredState | None:
    """What a cluster folder declares; entries in a row mostly share one."""
    if walk.declared[0] != tree:
        walk.declared = (tree, load_desired(walk.open_tree(walk.reader, tree)).desired)
    return walk.declared[1]


def _check_trust_source(reader: GitReader, found: ChainEntry, source: SourceRevision) -> None:
    """New keys and rules are those of the source commit."""
    root = reader.commit(source.commit).tree
    held = {path: reader.read(root, path) for path in trust_files(reader, found.commit.id)}
    files = {path: content for path, content in held.items() if content is not None}
    if trust_root(files).digest != found.entry.trust_digest:
        raise IntegrityError("ledger_source_mismatch", "the keys and rules are not those of the source commit")


def _check_authors(walk: _Walk, found: ChainEntry, source: SourceRevision) -> None:
    """Nobody whose work it is was left out; pushers and signers of requests are known to the bot alone."""
    if walk.previous is None:
        return
    entry, before = found.entry, walk.previous.entry
    if not walk.settled and not set(before.authors) <= set(entry.authors):
        raise IntegrityError("ledger_source_mismatch", "authors of what was not applied before are missing")
    if before.source is None or walk.reader.resolve(before.source.commit) is None:
        return
    if entry.kind is not EntryKind.REFRESH and not walk.reader.is_ancestor(before.source.commit, source.commit):
        raise IntegrityError("ledger_source_mismatch", "the source commit does not continue the one before")
    files = tuple(trust_at(walk.reader, walk.reader.commit(source.commit).tree))
    question = AuthorQuestion(before.source.commit, source.commit, entry.target.path, files)
    missing = authors_of(walk.reader, question) - set(entry.authors)
    if missing:
        raise IntegrityError("ledger_source_mismatch", f"authors are missing: {', '.join(sorted(missing))}")
