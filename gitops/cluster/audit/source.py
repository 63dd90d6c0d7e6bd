"""Step 8 of the audit: whether an entry agrees with the source commit that it names."""

from __future__ import annotations

from gitops.cluster.audit.first_release import authors_of
from gitops.cluster.audit.origins import check_origins
from gitops.cluster.audit.walk import Walk
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.chain import VerifiedEntry, trust_files
from gitops.cluster.ledger.records import Recording
from gitops.cluster.model.address import Kind
from gitops.cluster.model.ledger import WITH_ORIGINS, EntryKind, LedgerState, SourceRevision, changeset_key
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.plan.planner import diff
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

__all__ = ["check_source"]


def check_source(walk: Walk, found: VerifiedEntry, state: LedgerState, recorded: Recording | None) -> None:
    """Raise IntegrityError `ledger_source_mismatch` or `ledger_entry_invalid` for the first difference."""
    entry, reader, source = found.entry, walk.reader, found.entry.source
    if source is None or entry.config_digest is None:
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the entry does not name its source commit")
    merged = changeset_key(entry.target.cluster, "merge", source.commit)
    if entry.changeset != (merged if recorded is None else recorded.events[-1].changeset):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the changeset is not that of the source commit")
    converged = state.config_digest != walk.state.config_digest
    if converged and state.config_digest != entry.config_digest:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the state has the digest of another configuration")
    if reader.resolve(source.commit) is None:
        walk.notes.append(f"entry {entry.number}: source commit {source.commit[:12]} is not in this repository")
        return
    moved = entry.kind is EntryKind.SCOPE and entry.scope is not None
    path = entry.scope.target.path if moved and entry.scope is not None else entry.target.path
    if reader.subtree(reader.commit(source.commit).tree, path) != source.tree:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit has another cluster folder")
    desired = _declared(walk, source.tree)
    if desired is None or desired.config_digest != entry.config_digest:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit has another configuration")
    if converged and diff(desired, state):
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the state is not what its source commit declares")
    version = found.entry.version
    if walk.previous is None or found.before.digest_in(version) != found.after.digest_in(version):
        _check_trust(walk, found, source)
    _check_authors(walk, found, source)


def _declared(walk: Walk, tree: str) -> DesiredState | None:
    """What a cluster folder declares; consecutive entries mostly share one folder."""
    if walk.declared[0] != tree:
        desired = load_desired(walk.open_tree(walk.reader, tree), applied=True).desired
        walk.declared = (tree, desired)
        for each in () if desired is None else desired.of_kind(Kind.SCHEMA):
            if each.content is not None:
                walk.schemas.setdefault(each.digest, each.content)
    return walk.declared[1]


def _check_trust(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """New keys and rules are those of the source commit."""
    reader, root = walk.reader, walk.reader.commit(source.commit).tree
    held = {path: reader.read(root, path) for path in trust_files(reader, found.commit.id)}
    files = {path: content for path, content in held.items() if content is not None}
    if walk.rules.digest(files, found.entry.version) != found.entry.trust_digest:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the keys and rules are not those of the source commit")


def _check_authors(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """No author is missing. Pushers and signers that an entry of the first release names are not checked."""
    if walk.previous is None:
        return
    entry, before = found.entry, walk.previous.entry
    if before.source is None or walk.reader.resolve(before.source.commit) is None:
        return
    # What a cluster that moves to another branch leaves need not be part of it.
    if entry.kind not in (EntryKind.REFRESH, EntryKind.SCOPE) and not walk.reader.is_ancestor(
        before.source.commit, source.commit
    ):
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit does not continue the one before")
    if entry.version >= WITH_ORIGINS:
        check_origins(walk, found, source)
        return
    if not walk.settled and not set(before.authors) <= set(entry.authors):
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "authors of what was not applied before are missing")
    files = tuple(walk.rules.files(source.commit))
    authors = authors_of(
        walk.reader, base=before.source.commit, head=source.commit, path=entry.target.path, files=files
    )
    missing = authors - set(entry.authors)
    if missing:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, f"authors are missing: {', '.join(sorted(missing))}")
