"""Changesets that an interrupted run left open, settled at the start of the next one, under its lock.

What becomes of each is decided in `gitops.cluster.plan.open_changesets`, which a plan reads, too. Here it is carried out.
"""

from __future__ import annotations

from gitops.cluster.apply.compensate import end_rolled_back, take_back, to_take_back
from gitops.cluster.apply.finish import finish
from gitops.cluster.apply.run import write_events
from gitops.cluster.changesets.journal import Journal
from gitops.cluster.model.changeset import Changeset, ChangesetState, EventDraft, Failed, RollingBack
from gitops.cluster.model.outcome import Course
from gitops.cluster.plan.open_changesets import Interrupted, course_of, look_at
from gitops.cluster.session.session import Session
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import ConflictError

__all__ = ["INTERRUPTED", "abandon", "settle_interrupted"]

INTERRUPTED = "the run was interrupted"
"""The error of a changeset whose run was stopped or died, and not that of any of its changes."""


def settle_interrupted(current: Session, fence: int) -> tuple[Interrupted | None, tuple[EventDraft, ...]]:
    """Settle what is open; `fence` is the number of this run.

    Returns the changeset that this run goes on with, if there is one, and the events of one that landed nothing and failed, which
    are written with the first ones of this run. Raises GitopsError where something else has to be done before an apply.
    """
    listing = current.opened.ledger.changesets()
    if listing.problem is not None:
        raise ConflictError(Code.CHANGESET_INVALID, listing.problem, path="changesets")
    found: Interrupted | None = None
    closing: tuple[EventDraft, ...] = ()
    for record in listing.open:
        match course_of(current, record):
            case Course.CLOSED:
                closing = _failed(current, record)
            case Course.FINISHED:
                finish(current, look_at(current, record), fence)
            case Course.TAKEN_BACK:
                abandon(current, look_at(current, record), fence)
            case Course.RESUMED:
                found = look_at(current, record)
    return found, closing


def abandon(current: Session, found: Interrupted, fence: int, error: str = INTERRUPTED) -> None:
    """Take back an interrupted changeset and end it. Raises GitopsError; `cluster_recovery_pending` if its pivot is done."""
    record, journal = found.record, Journal(current.workspace.stamp, found.record)
    found.require_way_back()
    if record.state is not ChangesetState.ROLLING_BACK:
        journal.add(RollingBack(error, None))
        write_events(current, journal)
    left = take_back(current, journal.record, to_take_back(record), found.intents, fence)
    end_rolled_back(current, journal, left, Severity.WARNING)
    write_events(current, journal, found.operations)


def _failed(current: Session, record: Changeset) -> tuple[EventDraft, ...]:
    """The end of a changeset that lands what it can: it died before it recorded anything."""
    journal = Journal(current.workspace.stamp, record)
    if record.state is not ChangesetState.ROLLING_BACK:
        journal.add(RollingBack(INTERRUPTED, None))
    journal.add(Failed(record.error or INTERRUPTED))
    return journal.drafts
