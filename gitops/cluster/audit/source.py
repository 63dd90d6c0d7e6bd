"""Audit step 8: compares an entry with its source commit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitops.cluster.approvals.counting import CountedCommits, series_with
from gitops.cluster.approvals.origins import (
    MOST_UNKNOWN,
    KnownOrigins,
    Origins,
    Pushed,
    Unapplied,
    made_by_no_commit,
    names_of_authors,
    waiting_origins,
)
from gitops.cluster.audit.trail import change_of, entry_time
from gitops.cluster.audit.walk import Walk
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.chain import VerifiedEntry, trust_files
from gitops.cluster.ledger.records import Recording
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import (
    CONFLICTS_EXPLAIN_NOTHING,
    COUNTS_FROM_START,
    RULES_OF_0_2_1,
    WITH_ORIGINS,
    EntryKind,
    How,
    LedgerState,
    Origin,
    SourceRevision,
    changeset_key,
)
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.plan.planner import diff
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.git.port import Commit, GitReader


def check_source(walk: Walk, found: VerifiedEntry, state: LedgerState, recorded: Recording | None) -> None:
    """Compare an entry with its source. Raises IntegrityError `ledger_source_mismatch` or `ledger_entry_invalid`."""
    entry, reader, source = found.entry, walk.reader, found.entry.source
    if source is None or entry.config_digest is None:
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the entry does not name its source commit")
    merged = changeset_key(entry.target.cluster, "merge", source.commit)
    if entry.changeset != (merged if recorded is None else recorded.events[-1].changeset):
        raise IntegrityError(Code.LEDGER_ENTRY_INVALID, "the changeset does not belong to the source commit")
    converged = state.config_digest != walk.state.config_digest
    if converged and state.config_digest != entry.config_digest:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the state has the digest of a different configuration")
    if reader.resolve(source.commit) is None:
        walk.notes.append(f"entry {entry.number}: source commit {source.commit[:12]} is not in this repository")
        return
    moved = entry.kind is EntryKind.SCOPE and entry.scope is not None
    path = entry.scope.target.path if moved and entry.scope is not None else entry.target.path
    if reader.subtree(reader.commit(source.commit).tree, path) != source.tree:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit has a different cluster folder")
    desired = _declared(walk, source.tree)
    if desired is None or desired.config_digest != entry.config_digest:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit has a different configuration")
    if converged and diff(desired, state):
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the state does not match what its source commit declares")
    version = found.entry.version
    if walk.previous is None or found.before.digest_in(version) != found.after.digest_in(version):
        _check_trust(walk, found, source)
    _check_authors(walk, found, source)


def _declared(walk: Walk, tree: str) -> DesiredState | None:
    """Return the declarations of a cluster folder. Consecutive entries mostly share one folder."""
    if walk.declared[0] != tree:
        desired = load_desired(walk.open_tree(walk.reader, tree), applied=True).desired
        walk.declared = (tree, desired)
    return walk.declared[1]


def _check_trust(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """Check that new keys and rules match the source commit."""
    reader, root = walk.reader, walk.reader.commit(source.commit).tree
    held = {path: reader.read(root, path) for path in trust_files(reader, found.commit.id)}
    files = {path: content for path, content in held.items() if content is not None}
    if walk.rules.digest(files, found.entry.version) != found.entry.trust_digest:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the keys and rules differ from those of the source commit")


def _check_authors(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """Check that no author is missing. Pushers and signers in an entry of the first release are not checked."""
    if walk.previous is None:
        return
    entry, before = found.entry, walk.previous.entry
    if before.source is None or walk.reader.resolve(before.source.commit) is None:
        return
    # If a cluster moves to another branch, the old branch's commits need not be part of the new one.
    if entry.kind not in (EntryKind.REFRESH, EntryKind.SCOPE) and not walk.reader.is_ancestor(
        before.source.commit, source.commit
    ):
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "the source commit does not follow the previous one")
    if entry.version >= WITH_ORIGINS:
        check_origins(walk, found, source)
        return
    if not walk.settled and not set(before.authors) <= set(entry.authors):
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, "authors of newly applied commits are missing")
    files = tuple(walk.rules.files(source.commit))
    authors = authors_of(
        walk.reader, base=before.source.commit, head=source.commit, path=entry.target.path, files=files
    )
    missing = authors - set(entry.authors)
    if missing:
        raise IntegrityError(Code.LEDGER_SOURCE_MISMATCH, f"authors are missing: {', '.join(sorted(missing))}")


# Checks that an entry contains the authors of its gated and waiting changes, by applying the rules of
# `cluster.approvals.origins` again.
#
# Only the bot knows what a forge listed and a server recorded, so for these facts the entry is trusted. Everything else
# is checked:
#
# 1. The authors are the people of all origins.
# 2. Changes that already waited after the previous entry have the same origins.
# 3. Every commit that counts for a change has an origin, with everyone whom the commit mentions, and the owner of its
#    signing key.
# 4. A signature is valid, and its key belongs to the person in the origin.
# 5. A commit that stands for a request equals the result of merging the request, if the request's commits are
#    available.
#
# A change that no commit made has no origin. The state before the entry records whether a graph was lost.


_RECORDED = frozenset({How.CERTIFICATE, How.PUSH, How.FORGE})
_WAITS = (Disposition.BLOCKED, Disposition.DEFERRED)


def check_origins(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """Check an entry's authors and origins if its `source` continues the previous one. Raises `ledger_source_mismatch`."""
    entry, previous = found.entry, walk.previous
    if previous is None or previous.entry.source is None:
        return
    if set(entry.authors) != set(names_of_authors(entry.origins)):
        raise _mismatch("its authors differ from the people in its origins")
    carried = () if walk.settled else waiting_origins(previous.entry)
    base, explained = previous.entry.source.commit, entry.version >= RULES_OF_0_2_1
    lenient = entry.version < CONFLICTS_EXPLAIN_NOTHING
    origins = _recomputed(walk, found, base, source, carried, explained=explained, later_decides=lenient)
    # The changes whose origins the entry must contain: those that an approval permitted, and those that wait.
    used = {use.resource for use in entry.approvals}
    for listed in entry.changes:
        address = listed.resource
        if address not in used and listed.disposition not in _WAITS:
            continue
        if made_by_no_commit(change_of(listed), walk.state.vanished):
            continue
        recorded = [each for each in entry.origins if not each.resources or address in each.resources]
        _compare(origins.authors_of(address).origins, recorded, address)
    for origin in entry.origins:
        if origin.how is How.SIGNATURE:
            key = walk.reader.signature(origin.commit)
            if not key.good or origin.by not in found.before.names(key.key):
                raise _mismatch(f"commit {origin.commit[:12]} is not signed by {origin.by}")
    _check_merges(walk, entry.origins, source)
    if lenient and entry.kind is not EntryKind.INTENT:
        _note_self_approvals(walk, found, source)


def _recomputed(
    walk: Walk,
    found: VerifiedEntry,
    base: str,
    source: SourceRevision,
    carried: Sequence[Origin],
    *,
    explained: bool,
    later_decides: bool,
) -> Origins:
    """Return the origins computed from git, with the pushes and requests that the entry records.

    With `explained`, the rules since version 4 apply, and with `later_decides` those before version 5.
    """
    entry, reader = found.entry, walk.reader
    claims = {each.commit: Pushed(each.how, each.by, each.by) for each in entry.origins if each.how in _RECORDED}
    known = KnownOrigins(
        lambda commit: (claims[commit],) if commit in claims else (),
        {each.commit: each.by for each in entry.origins if each.how is How.MERGE},
    )
    files = walk.rules.files(source.commit)
    counted = CountedCommits(
        reader,
        [entry.target.path],
        files,
        lambda at, tree, _: walk.open_tree(at, tree),
        any_base=not explained,
        later_decides=later_decides,
    )
    heads = [source.commit]
    if any(change.resource.kind is Kind.CLUSTER for change in entry.changes):
        # If a cluster is on another branch, the commits that move it are on the branch with `gitops.yaml`.
        heads += [each.commit for each in entry.origins if reader.resolve(each.commit) is not None]
    tree = reader.commit(source.commit).tree
    from_start = entry.version >= COUNTS_FROM_START and walk.state.config_digest is None
    unapplied = Unapplied(base, tuple(heads), found.before, entry_time(entry), tree, from_start)
    # The ledger does not record which tree declares where a cluster moves, so this trusts what the bot found.
    return Origins(
        counted,
        unapplied,
        lambda: known,
        carried,
        explained=lambda address: explained and address.kind is not Kind.CLUSTER,
    )


def _compare(expected: Sequence[Origin], recorded: Sequence[Origin], address: Address) -> None:
    if sum(origin.how is How.UNKNOWN for origin in recorded) >= MOST_UNKNOWN:
        # The bot stopped looking here, and no approval counts anyway.
        return
    people: dict[str, set[str]] = {}
    for origin in recorded:
        people.setdefault(origin.commit, set()).update(origin.people)
    for origin in expected:
        if origin.commit not in people:
            raise _mismatch(f"the origin of commit {origin.commit[:12]} is missing for {address}")
        missing = sorted(set(origin.people) - people[origin.commit])
        if missing:
            raise _mismatch(f"authors of {address} are missing: {', '.join(missing)}")


def _check_merges(walk: Walk, origins: Sequence[Origin], source: SourceRevision) -> None:
    """Check part 5.

    For a rebased request, an entry records only the commits that count, so the whole series is searched for.
    """
    reader = walk.reader
    for origin in origins:
        if (
            origin.how is not How.MERGE
            or (origin.commit, origin.by) in walk.merged
            or reader.resolve(origin.by) is None
        ):
            continue
        series = next(series_with(reader, source.commit, origin.commit, origin.by), ())
        if not series:
            raise _mismatch(f"commit {origin.commit[:12]} differs from the result of merging {origin.by[:12]}")
        walk.merged.update((commit.id, origin.by) for commit in series)


def _note_self_approvals(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """Add a note for an earlier entry that accepted the approval of an author, which the rules forbid since version 5.

    The applied changes may have waited through several entries, so all commits count since the last entry that left no
    changes.
    """
    base = walk.settled_at
    if base is None or walk.reader.resolve(base) is None or not walk.reader.is_ancestor(base, source.commit):
        return
    origins = _recomputed(walk, found, base, source, (), explained=True, later_decides=False)
    for use in found.entry.approvals:
        listed = next((each for each in found.entry.changes if each.resource == use.resource), None)
        if listed is None or made_by_no_commit(change_of(listed), walk.state.vanished):
            continue
        people = origins.authors_of(use.resource).people
        if found.before.known_as({use.principal}) & found.before.known_as(people):
            walk.notes.append(
                f"entry {found.entry.number}: {use.principal} approved the change of {use.resource}, and is one of its authors "
                "by the rules of this release: read who made and merged its commits"
            )


def _mismatch(detail: str) -> IntegrityError:
    return IntegrityError(Code.LEDGER_SOURCE_MISMATCH, detail)


# The authors in entries of the first release: everyone mentioned in a commit that touched the folder or the rules.
#
# Author lines are claims, so there may be more authors. The rules of this release are in
# `gitops.cluster.approvals.origins`. The rules here check whether an entry of the first release is what that release
# would have written.


# How forges record the authors of squashed commits.
_CO_AUTHOR = re.compile(r"^co-authored-by:[^<>\n]*<([^<>\n]+)>", re.IGNORECASE | re.MULTILINE)
# https://docs.github.com/en/account-and-profile/reference/email-addresses-reference#your-noreply-email-address
# https://docs.gitlab.com/user/profile/#use-an-automatically-generated-private-commit-email
_MADE_UP = re.compile(r"([1-9][0-9]{0,17})([+-])[^@\s]*@(?:[^@\s]+\.)?noreply\.[^@\s]+", re.IGNORECASE | re.ASCII)
_FORGES = {"+": "github", "-": "gitlab"}


def authors_of(
    reader: GitReader, *, base: str | None, head: str, path: str, files: tuple[str, ...] = ()
) -> frozenset[str]:
    """Return the e-mail addresses of authors and co-authors, and the accounts in them (`github:583231`).

    Covers the commits reachable from `head` and not from `base` that touch the folder `path` or one of `files`. The
    result is empty without a base, because then nothing is gated.
    """
    found = set()
    for commit in () if base is None else reader.commits_between(base, head):
        if any(_touches(reader, commit, touched) for touched in (path, *files)):
            found |= {commit.author.email.strip(), *(email.strip() for email in _CO_AUTHOR.findall(commit.message))}
    accounts = {f"{_FORGES[made_up[2]]}:{made_up[1]}" for made_up in map(_MADE_UP.fullmatch, found) if made_up}
    return frozenset((found | accounts) - {""})


def _touches(reader: GitReader, commit: Commit, path: str) -> bool:
    ours = _at(reader, commit.tree, path)
    inherited = {_at(reader, reader.commit(parent).tree, path) for parent in commit.parents} or {None}
    if inherited == {ours}:
        return False
    if len(commit.parents) != 2:  # noqa: PLR2004 - the two sides of a merge
        return True
    return ours not in _merges(reader, *commit.parents, path)


def _merges(reader: GitReader, one: str, other: str, path: str) -> tuple[str | bytes | None, ...]:
    """Return a folder or file after merging two commits; empty if the merge has conflicts.

    If one side did not change it, the other side's version is used, whatever conflicts there are elsewhere.
    """
    left, right = (_at(reader, reader.commit(side).tree, path) for side in (one, other))
    if left == right:
        return (left,)
    base = reader.merge_base(one, other)
    before = None if base is None else _at(reader, reader.commit(base).tree, path)
    if before in (left, right):
        return (right if before == left else left,)
    merged = reader.merge(one, other).tree
    return () if merged is None else (_at(reader, merged, path),)


def _at(reader: GitReader, tree: str, path: str) -> str | bytes | None:
    """Return the folder with this id, or the content of the file at `path`."""
    return reader.subtree(tree, path) or reader.read(tree, path)
