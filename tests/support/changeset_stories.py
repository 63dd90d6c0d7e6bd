"""Changesets as stories: what happens to one from its creation to its end, numbered as a ledger numbers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetBase,
    ChangesetEvent,
    ChangesetKind,
    ChangesetResult,
    ChangesetSource,
    Committed,
    Created,
    Drained,
    EventDraft,
    Failed,
    Finalized,
    Happening,
    Member,
    Orphan,
    PlanFacts,
    Prepared,
    Removal,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
    Staged,
)
from gitops.cluster.model.ledger import EntryKind, changeset_key

if TYPE_CHECKING:
    from tests.support.loop import Loop

AT = "2026-06-11T08:00:00Z"
DIGEST, OTHER = "ab" * 32, "cd" * 32
QUERY, GONE = Address("query.brain.find"), Address("graph.old")
MERGES = tuple(str(number) * 40 for number in range(1, 10))


def created(merge: str = MERGES[0], *, attempt: int = 1, part: str = "1/1", **facts: object) -> Changeset:
    """The first record of a merge that updates a query."""
    kind = ChangesetKind.MERGE if attempt == 1 else ChangesetKind.RETRY
    record = Changeset(
        changeset_key("brain", "merge", merge, attempt=attempt, part=part),
        "brain",
        kind,
        attempt,
        part,
        AT,
        AT,
        ChangesetSource("main", merge, None, 7, "alice"),
        ChangesetBase(1, "sha256:" + DIGEST, DIGEST, None),
        DIGEST,
        PlanFacts(DIGEST, 1, 0, 1),
        members=(Member(QUERY, Action.UPDATE, Effect.STAGE, DIGEST, OTHER),),
        covers=(merge,),
    )
    return replace(record, **facts)  # type: ignore[arg-type]


def ready() -> RuntimeUpdated:
    """The query is where the cluster will find it."""
    return RuntimeUpdated(QUERY, Runtime(RuntimeState.READY, 1, AT, AT))


def landed(record: Changeset) -> list[Happening]:
    """Everything that happens to a changeset that lands."""
    result = ChangesetResult(2, True, False, {"applied": len(record.members)}, 5)
    removed: list[Happening] = [Removed(each.address) for each in record.removals]
    return [
        Created(record),
        Staged(QUERY, OTHER),
        ready(),
        Prepared((QUERY,)),
        Committed(2, 1, (QUERY,)),
        Drained(0, "nothing is served"),
        *removed,
        Finalized(result),
    ]


def removing(merge: str = MERGES[0]) -> Changeset:
    """The first record of a merge that also removes a graph."""
    return created(merge, removals=(Removal(GONE, DIGEST, approval="0" * 26),))


def failed(record: Changeset, error: str = "query.brain.find: storage_failed: the disk is full") -> list[Happening]:
    """Everything that happens to a changeset whose query fails; the query's file is left behind."""
    broken = RuntimeUpdated(QUERY, Runtime(RuntimeState.FAILED, 1, AT, AT, error="the disk is full"))
    return [Created(record), broken, RollingBack(error, QUERY), Failed(error, (Orphan(QUERY, "it was changed since"),))]


def numbered(*stories: tuple[Changeset, Iterable[Happening]], start: int = 1) -> tuple[ChangesetEvent, ...]:
    """The events of stories, one after the other, with their numbers."""
    found = [(record.key, each) for record, happenings in stories for each in happenings]
    return tuple(ChangesetEvent(seq, AT, "brain", key, each) for seq, (key, each) in enumerate(found, start=start))


def after(record: Changeset, happenings: Iterable[Happening]) -> Changeset:
    """The record at the end of a story."""
    return replay(numbered((record, happenings)))


def record(loop: Loop, changeset: Changeset, happenings: Sequence[Happening]) -> None:
    """What a run of the bot on the server of a loop records."""
    local = loop.local()
    ledger = local.ledger(local.rule())
    view = ledger.view()
    assert view.entry is not None
    drafts = [EventDraft(changeset.key, AT, each) for each in happenings]
    nothing = dict.fromkeys(("changes", "approvals", "recovered", "origins", "authors"), ())
    entry = replace(view.entry, kind=EntryKind.CHANGESET, changeset=changeset.key, plan_digest=None, **nothing)
    ledger.begin(view, (), entry, drafts)
