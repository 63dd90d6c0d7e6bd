"""Which revision the servers of a cluster answer from, by their reports."""

from __future__ import annotations

from datetime import datetime

from gitops.cluster.ledger.served import ServingReports
from gitops.cluster.model.served import Replica, RevisionIdentity, live_replicas
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError

__all__ = ["revision_of", "servers"]


def servers(
    reports: ServingReports, applied: RevisionIdentity, now: datetime, problems: Diagnostics
) -> tuple[Replica, ...]:
    """The live servers in order of their names; what cannot be read of the reports is a warning."""
    try:
        listing = reports.read()
    except GitopsError as error:
        problems.add(Code.SERVING_REPORTS_UNREADABLE, error.path or "serving", f"{error.code}: {error.detail}")
        return ()
    for each in listing.unread:
        problems.add(Code.SERVING_REPORT_INVALID, each.place, each.detail)
    return live_replicas(listing.reports, applied, now)


def revision_of(cas: str | None, state_revision: int) -> RevisionIdentity | None:
    """The applied revision as reports name it, by the compare-and-swap digest and the number of its state."""
    return None if cas is None else RevisionIdentity(cas.rpartition(":")[2], state_revision, None)
