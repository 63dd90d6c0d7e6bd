"""The change that a quorum approves before a ledger follows an earlier one, which an import found."""

from __future__ import annotations

from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.address import cluster_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.ledger import FormerLedger, LedgerEntry
from gitops.core.canonical import canonical_digest

__all__ = ["adoption_change", "pending_adoption"]


def pending_adoption(view: LedgerView) -> Change | None:
    """The change that waits, if the newest entry is an import over an earlier ledger: nothing else is applied before it."""
    if view.entry is None or view.entry.former is None or view.head is None:
        return None
    return adoption_change(view.entry, view.head, view.entry.former)


def adoption_change(entry: LedgerEntry, commit: str, former: FormerLedger) -> Change:
    """What is approved: that this first entry, and no other, takes the place of what was found."""
    found = {"genesis": former.genesis, "head": former.head, "found": former.found, "trust_digest": former.trust_digest}
    details = (
        f"gives up an earlier ledger: {former.found}",
        "its debts, its used and revoked approvals and its history are not carried over",
    )
    after = canonical_digest({"first": commit, "former": found})
    return Change(cluster_address(entry.target.cluster), Action.ADOPT, None, after, details=details)
