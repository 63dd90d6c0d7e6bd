"""Whether an entry names the authors of its gated and waiting changes: the rules of `cluster.approvals.origins`, applied again.

What a forge listed and a server recorded is known to the bot alone: here the entry is believed. Everything else is checked:

1. The authors are the people of all origins.
2. What waited after the entry before still has the same origins.
3. Every commit that counts for a change has an origin, with everybody whom the commit names, and whose key signed it.
4. A signature holds, and is of a key of the person that the origin names.
5. A commit that stands for a request is what merging the request gives, where the commits of the request are at hand.

A change that no commit made has no origin; the state before the entry records whether a graph vanished.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from gitops.cluster.approvals.counting import CountedCommits
from gitops.cluster.approvals.merges import series_with
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
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import RULES_OF_0_2_1, EntryKind, LedgerEntry, SourceRevision
from gitops.cluster.model.origin import How, Origin
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

_RECORDED = frozenset({How.CERTIFICATE, How.PUSH, How.FORGE})
_WAITS = (Disposition.BLOCKED, Disposition.DEFERRED)


def check_origins(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """Raise IntegrityError `ledger_source_mismatch` for the first difference; `source` continues the entry before."""
    entry, previous = found.entry, walk.previous
    if previous is None or previous.entry.source is None:
        return
    if set(entry.authors) != set(names_of_authors(entry.origins)):
        raise _mismatch("its authors are not the people of its origins")
    carried = () if walk.settled else waiting_origins(previous.entry)
    base, explained = previous.entry.source.commit, entry.version >= RULES_OF_0_2_1
    origins = _recomputed(walk, found, base, source, carried, explained=explained)
    for address in _addresses(entry, walk.state.vanished):
        recorded = [each for each in entry.origins if not each.resources or address in each.resources]
        _compare(origins.authors_of(address).origins, recorded, address)
    for origin in entry.origins:
        if origin.how is How.SIGNATURE:
            key = walk.reader.signature(origin.commit)
            if not key.good or origin.by not in found.before.names(key.key):
                raise _mismatch(f"commit {origin.commit[:12]} is not signed by {origin.by}")
    _check_merges(walk, entry.origins, source)
    if not explained and entry.kind is not EntryKind.INTENT:
        _note_self_approvals(walk, found, source)


def _recomputed(
    walk: Walk, found: VerifiedEntry, base: str, source: SourceRevision, carried: Sequence[Origin], *, explained: bool
) -> Origins:
    """The origins by git, with the pushes and requests that the entry records; with `explained` by the rules since version 4."""
    entry, reader = found.entry, walk.reader
    claims = {each.commit: Pushed(each.how, each.by, each.by) for each in entry.origins if each.how in _RECORDED}
    known = KnownOrigins(
        lambda commit: (claims[commit],) if commit in claims else (),
        {each.commit: each.by for each in entry.origins if each.how is How.MERGE},
    )
    files = walk.rules.files(source.commit)
    counted = CountedCommits(
        reader, [entry.target.path], files, lambda tree, _: walk.open_tree(reader, tree), any_base=not explained
    )
    heads = [source.commit]
    if any(change.resource.kind is Kind.CLUSTER for change in entry.changes):
        # The commits that move a cluster of another branch are on the one with `gitops.yaml`.
        heads += [each.commit for each in entry.origins if reader.resolve(each.commit) is not None]
    tree = reader.commit(source.commit).tree
    unapplied = Unapplied(base, tuple(dict.fromkeys(heads)), found.before, entry_time(entry), tree)
    # Which tree declares where a cluster goes is not recorded: what the bot found out about that is believed.
    return Origins(
        reader,
        unapplied,
        counted,
        lambda: known,
        carried,
        explained=lambda address: explained and address.kind is not Kind.CLUSTER,
    )


def _addresses(entry: LedgerEntry, vanished: Container[Address]) -> Iterator[Address]:
    """The changes whose origins the entry must have: those that an approval permitted, and those that wait."""
    used = {use.resource for use in entry.approvals}
    listed = (each for each in entry.changes if each.resource in used or each.disposition in _WAITS)
    return (each.resource for each in listed if not made_by_no_commit(change_of(each), vanished))


def _compare(expected: Sequence[Origin], recorded: Sequence[Origin], address: Address) -> None:
    if sum(origin.how is How.UNKNOWN for origin in recorded) >= MOST_UNKNOWN:
        # No more were looked for, and no approval counts.
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
    """Part 5. Of a request that was rebased, an entry records only the commits that count: the whole series is looked for."""
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
            raise _mismatch(f"commit {origin.commit[:12]} is not what merging {origin.by[:12]} gives")
        walk.merged.update((commit.id, origin.by) for commit in series)


def _note_self_approvals(walk: Walk, found: VerifiedEntry, source: SourceRevision) -> None:
    """By the rules since version 4, an earlier entry may have taken the approval of an author.

    What it applied may have waited through several entries, so all commits count since the last one that left nothing.
    """
    base = walk.settled_at
    if base is None or walk.reader.resolve(base) is None or not walk.reader.is_ancestor(base, source.commit):
        return
    origins = _recomputed(walk, found, base, source, (), explained=True)
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
