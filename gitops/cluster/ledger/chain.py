"""A ledger branch's names and files, and the rules for verifying its entries.

    entry.json                     the entry
    sound.json                     the graphs that do not have to be read again; a release without it reads everything
    trust/<path>                   the keys and rules in force after it
    __cluster/...                  state, catalog blobs, recovery sidecars, consumed approvals

The first parent of an entry is the previous entry; further parents are the approval commits that it consumed, and the
countersignatures that it recorded.

Rules:

1. The parents of an entry are exactly the previous entry and the commits listed in it; the first entry has no parent.
2. It is signed by a ledger signer of the keys in force before it (for the first entry, of the keys in it), at the entry's
   own time.
3. Numbers increase by one and times never decrease, so an entry cannot be backdated to when its key was still valid.
4. A head is accepted if all of this holds for every entry back to one that was accepted before. Otherwise one forged entry
   could add the keys that make the next one look valid. A chain without an accepted entry provides all of its keys itself, so
   its first entry must also be anchored: in a source commit of the target branch with the same keys.

The audit, not this module, checks whether an entry matches state, source and approvals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.files import restore_commands
from gitops.cluster.ledger.port import LedgerView, ledger_time
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.trust import TrustRoot
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import DIGEST, LINE, OBJECT_ID, integer, record
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.storage.port import ObjectStore
from gitops.git.port import Commit, GitReader

__all__ = [
    "ANCHOR_KEY",
    "APPROVALS",
    "BRANCHES",
    "COUNTERSIGNATURES",
    "ENTRY",
    "LEDGERS",
    "QUARANTINE",
    "REVOCATIONS",
    "SIGNED",
    "SOUND",
    "TRUST",
    "AnchorFile",
    "StorageAnchor",
    "VerifiedEntry",
    "approvals_prefix",
    "check_anchor",
    "check_succession",
    "countersignatures_prefix",
    "entry_trust",
    "first_entry",
    "is_continuation",
    "ledger_ref",
    "newest_entries",
    "quarantine_ref",
    "read_anchor",
    "read_verified_entry",
    "restore_commands",
    "revocations_prefix",
    "split_chain",
    "trust_files",
    "verify_chain",
    "write_anchor",
]

ENTRY = "entry.json"
SOUND = "sound.json"
TRUST = "trust"
BRANCHES = "refs/heads/gitops/"
LEDGERS = "refs/heads/gitops/ledger/"
APPROVALS = "refs/heads/gitops/approvals/"
REVOCATIONS = "refs/heads/gitops/revocations/"
COUNTERSIGNATURES = "refs/heads/gitops/countersignatures/"
QUARANTINE = "refs/heads/gitops/quarantine/"
SIGNED = (APPROVALS, REVOCATIONS, COUNTERSIGNATURES)
"""Folders of create-only branches with signed commits. Each contains one folder per cluster."""

_MOST_SPLIT = 100_000

TrustCache = dict[str, TrustRoot]
"""Maps the tree id of the keys and rules folder to its content, because most entries share it."""


def ledger_ref(cluster: str) -> str:
    """Return the full name of a cluster's ledger branch."""
    return LEDGERS + cluster


def approvals_prefix(cluster: str) -> str:
    """Return the prefix of a cluster's create-only approval branches."""
    return f"{APPROVALS}{cluster}/"


def quarantine_ref(cluster: str, commit: str) -> str:
    """Return the branch that keeps a commit which a repair removed from a cluster's ledger."""
    return f"{QUARANTINE}{cluster}/{commit}"


def revocations_prefix(cluster: str) -> str:
    """Return the prefix of a cluster's create-only revocation branches."""
    return f"{REVOCATIONS}{cluster}/"


def countersignatures_prefix(cluster: str) -> str:
    """Return the prefix of a cluster's create-only countersignature branches."""
    return f"{COUNTERSIGNATURES}{cluster}/"


@dataclass(frozen=True, slots=True)
class VerifiedEntry:
    """An entry that passed rules 1 and 2, with its commit and the keys and rules before and after it."""

    commit: Commit
    entry: LedgerEntry
    before: TrustRoot
    after: TrustRoot


def trust_files(reader: GitReader, commit_id: str) -> dict[str, bytes]:
    """Return an entry's key and rule files, by their path in the repository."""
    files: dict[str, bytes] = {}
    root = reader.subtree(reader.commit(commit_id).tree, TRUST)
    if root is not None:
        for path in reader.changed_paths(None, root):
            content = reader.read(root, path)
            if content is not None:
                files[path] = content
    return files


def entry_trust(reader: GitReader, commit_id: str) -> TrustRoot:
    """Return the keys and rules in force after an entry. Raises the errors of `trust_root`."""
    # Every push hook imports this module, but most pushes contain no entries.
    from gitops.cluster.config.trust_root import trust_root

    return trust_root(trust_files(reader, commit_id))


def entry_signer(reader: GitReader, commit_id: str, key: str, now: datetime) -> str | None:
    """Return the owner of a key under the rules in force after an entry, at the ledger's time for `now`.

    Raises the errors of `read_entry`.
    """
    content = reader.read(reader.commit(commit_id).tree, ENTRY)
    return entry_trust(reader, commit_id).principal(key, at=ledger_time(now, read_entry(content or b"")))


def read_verified_entry(reader: GitReader, commit_id: str, known: TrustCache | None = None) -> VerifiedEntry:
    """Read an entry and check its own links and signature: rules 1 and 2 of this module.

    `known` is a cache for callers that read many entries. Raises IntegrityError `ledger_entry_invalid`,
    `ledger_chain_broken` or `ledger_signature_invalid`.
    """
    known = {} if known is None else known
    commit = reader.commit(commit_id)
    content = reader.read(commit.tree, ENTRY)
    if content is None:
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"{commit_id[:12]} has no {ENTRY}", path=commit_id)
    entry = read_entry(content)
    if commit.parents != (() if entry.previous is None else (entry.previous, *entry.carried)):
        detail = f"the parents of {commit_id[:12]} are not the previous entry and the approvals that it lists"
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, detail, path=commit_id)
    before = _trust_after(reader, entry.previous or commit_id, known)
    _check_signature(reader, commit_id, entry, before)
    return VerifiedEntry(commit, entry, before, _trust_after(reader, commit_id, known))


def verify_chain(reader: GitReader, head: str, seen: str | None) -> VerifiedEntry:
    """Verify the chain back to `seen` or the first entry, by rules 1 to 4. Return the entry at `head`.

    `seen` was verified earlier. Raises IntegrityError `ledger_diverged` if `seen` is not in the chain of `head`, and
    the errors of `read_verified_entry`.
    """
    known: TrustCache = {}
    newest = later = read_verified_entry(reader, head, known)
    while later.commit.id != seen and later.entry.previous is not None:
        earlier = read_verified_entry(reader, later.entry.previous, known)
        check_succession(earlier.entry, later.entry, later.commit.id)
        later = earlier
    if seen is not None and later.commit.id != seen:
        raise IntegrityError(
            Code.LEDGER_DIVERGED,
            f"head {head[:12]} does not descend from {seen[:12]}, which was seen here before",
            path=head,
        )
    return newest


def first_entry(reader: GitReader, head: str) -> VerifiedEntry:
    """Return a ledger's first entry. `head` is the newest entry of a verified chain."""
    at = head
    while parents := reader.commit(at).parents:
        at = parents[0]
    return read_verified_entry(reader, at)


def split_chain(
    reader: GitReader, head: str, seen: str | None, check_first: Callable[[VerifiedEntry], None]
) -> tuple[VerifiedEntry | None, tuple[str, ...], str]:
    """Return the newest entry before any bad commit, the commits above it (newest first), and the lowest one's problem.

    It starts with `seen` if that is part of the history, otherwise with the first commit, which must pass
    `check_first`. Raises GitopsError for objects that cannot be read.
    """
    line = [head]
    while line[-1] != seen and len(line) < _MOST_SPLIT and (parents := reader.commit(line[-1]).parents):
        line.append(parents[0])
    good: VerifiedEntry | None = None
    known: TrustCache = {}
    for position, commit in enumerate(reversed(line)):
        try:
            found = read_verified_entry(reader, commit, known)
            if good is not None and found.entry.previous != good.commit.id:
                raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, "it does not follow the previous entry")
            if good is not None:
                check_succession(good.entry, found.entry, commit)
            elif commit != seen:
                check_first(found)
        except GitopsError as error:
            return good, tuple(line[: len(line) - position]), error.detail
        good = found
    return good, (), ""


def is_continuation(reader: GitReader, head: str, old: str) -> bool:
    """Return True if commit `old` is on the first-parent chain of `head`. Works in shallow repositories too."""
    at: str | None = head
    while at is not None and at != old:
        at = next(iter(reader.commit(at).parents), None)
    return at == old


def _trust_after(reader: GitReader, commit_id: str, known: TrustCache) -> TrustRoot:
    """Return the keys and rules after an entry. If they are unusable, the entry is invalid."""
    tree = reader.subtree(reader.commit(commit_id).tree, TRUST) or ""
    if tree not in known:
        try:
            known[tree] = entry_trust(reader, commit_id)
        except GitopsError as error:
            detail = f"the keys and rules of {commit_id[:12]} cannot be used: {error.detail}"
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, detail, path=commit_id) from error
    return known[tree]


def _check_signature(reader: GitReader, commit_id: str, entry: LedgerEntry, before: TrustRoot) -> None:
    """Check rule 2."""
    signature = reader.signature(commit_id)
    moment = parse_timestamp(entry.at)
    signer = None if moment is None else before.principal(signature.key, at=moment)
    if not signature.good or signer not in before.ledger_signers:
        why = signature.problem or ("it is not signed" if not signature.signed else "its key may not sign the ledger")
        raise IntegrityError(Code.LEDGER_SIGNATURE_INVALID, f"{commit_id[:12]}: {why}", path=commit_id)


def check_succession(earlier: LedgerEntry, later: LedgerEntry, commit_id: str) -> None:
    """Check rule 3. Raises IntegrityError `ledger_chain_broken`."""
    if later.number != earlier.number + 1:
        detail = f"entry {later.number} follows entry {earlier.number}"
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, detail, path=commit_id)
    at, before = parse_timestamp(later.at), parse_timestamp(earlier.at)
    if at is None or before is None or at < before:
        detail = f"entry {later.number} is dated before the previous entry"
        raise IntegrityError(Code.LEDGER_CHAIN_BROKEN, detail, path=commit_id)


def newest_entries(reader: GitReader, refs: Mapping[str, str]) -> dict[str, LedgerEntry]:
    """Return each ledger's newest entry by name, unverified. Use it only to find the ledger to verify.

    Unreadable entries are omitted.
    """
    found: dict[str, LedgerEntry] = {}
    for ref, head in refs.items():
        try:
            content = reader.read(reader.commit(head).tree, ENTRY)
            if content is not None:
                found[ref.removeprefix(LEDGERS)] = read_entry(content)
        except GitopsError:
            continue
    return found


# -- the anchor --------------------------------------------------------------------------------------------------------
# The anchor is a document that a ledger stores next to the graphs, where it survives the deletion of a branch. <storage
# root>/__cluster/anchor.json cluster, repository, first entry, newest entry, rules in force after it
#
# 1. It is written after each published entry, before the lock is released. An outdated anchor is normal: a run crashed,
#    or an entry was written on a machine without access to the storage. The next entry rewrites it.
# 2. A ledger that does not contain the newest entry of the anchor was deleted, rewound or replaced. Every command that
#    takes the lock and opens the storage refuses it, and reports the findings and how to restore the ledger.
# 3. The first entry after an import over an earlier ledger does not change the anchor until a quorum has approved it.


ANCHOR_KEY = "__cluster/anchor.json"


@dataclass(frozen=True, slots=True)
class StorageAnchor:
    """The anchor of the ledger that owns the graphs. `genesis` is its first entry, and `head` is entry `number`.

    `trust_digest` identifies the keys and rules in force after `head`.
    """

    cluster: str
    repository: str
    genesis: str
    head: str
    number: int
    trust_digest: str


ANCHOR = Document(
    versions={
        1: record(
            StorageAnchor,
            {
                "cluster": LINE,
                "repository": LINE,
                "genesis": OBJECT_ID,
                "head": OBJECT_ID,
                "number": integer(1),
                "trust_digest": DIGEST,
            },
        )
    },
    code=Code.LEDGER_ANCHOR_INVALID,
    limit=64 * 1024,
)
read_anchor = ANCHOR.read
write_anchor = ANCHOR.write


class AnchorFile:
    """One storage root's anchor. The storage is opened on first use."""

    def __init__(self, open_store: Callable[[], ObjectStore]) -> None:
        """`open_store` opens the storage root. Never raises."""
        self._open = open_store

    @property
    def place(self) -> str:
        """The anchor's location, for messages."""
        return self._open().display(ANCHOR_KEY)

    def read(self) -> StorageAnchor | None:
        """Return the anchor. Return None only if it definitely does not exist.

        Raises IntegrityError `ledger_anchor_invalid`, RemoteError `storage_failed`.
        """
        store = self._open()
        content = store.read(ANCHOR_KEY)
        try:
            return None if content is None else read_anchor(content)
        except IntegrityError as error:
            detail = f"{store.display(ANCHOR_KEY)}: {error.detail}"
            raise IntegrityError(error.code, detail, path=store.display(ANCHOR_KEY)) from error

    def write(self, anchor: StorageAnchor) -> None:
        """Replace the anchor. Raises RemoteError `storage_failed`."""
        self._open().write(ANCHOR_KEY, write_anchor(anchor))


def check_anchor(reader: GitReader, file: AnchorFile, view: LedgerView, cluster: str) -> None:
    """Check rule 2. Skips a view with problems, because those are reported anyway.

    Raises IntegrityError `ledger_anchor_mismatch`, and the errors of `AnchorFile.read`.
    """
    anchor = None if view.found and view.head is None else file.read()
    if anchor is None or (view.head is not None and _is_part(reader, view, anchor)):
        return
    where = f"{file.place} records that the graphs belong to entry {anchor.number}, {anchor.head[:12]}"
    if view.head is None:
        what = f"of the ledger of {anchor.cluster} in {anchor.repository}, whose branch is missing"
    elif reader.resolve(anchor.head) is not None and is_continuation(reader, anchor.head, view.head):
        what = f"of this ledger, and the branch was rewound to {view.head[:12]}"
    else:
        what = f"of a different ledger: it begins with {anchor.genesis[:12]}, which is not in the history of {view.head[:12]}"
    detail = f"{where} {what}; {restore_commands(cluster, anchor.head)}"
    raise IntegrityError(Code.LEDGER_ANCHOR_MISMATCH, detail, path=ledger_ref(cluster))


def _is_part(reader: GitReader, view: LedgerView, anchor: StorageAnchor) -> bool:
    """Return True if the ledger contains the anchor's newest entry, or follows it by an import that waits for its approval."""
    if view.entry is not None and view.entry.former is not None:
        return view.entry.former.head == anchor.head
    try:
        return is_continuation(reader, view.head or "", anchor.head)
    except GitopsError:
        return False
