"""`drift`: compares the live state with the ledger and writes nothing.

`refresh` records what it observes as applied. `drift` only reports a difference, and people decide what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gitops.cluster.apply.hosts import reaching_hosts
from gitops.cluster.model.outcome import StateObservations, VerbOutcome
from gitops.cluster.plan.drift import DriftItem, DriftKind, find_drift
from gitops.cluster.session.session import RECOVERIES, Session, StateNeed, reading
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOutcome(VerbOutcome):
    """The detected drift. An error among the diagnostics means that the comparison is incomplete."""

    observations: StateObservations
    items: tuple[DriftItem, ...] = ()

    @property
    def adoptable(self) -> bool:
        """Whether you can declare all of the drift by changing files."""
        return bool(self.items) and all(item.adoptable for item in self.items)


def drift(workspace: Workspace) -> DriftOutcome:
    """Compare all recorded graphs, all catalog texts and all hosts with the ledger."""
    return reading(workspace, "drift", StateNeed.REQUIRED, _drift)


def _host_drift(current: Session) -> Iterator[DriftItem]:
    with reaching_hosts(current):
        if current.hosts is None:
            return
        # Imported late, because most clusters have no hosts.
        from gitops.cluster.plan.look import drift_of_hosts

        for address, words in sorted(drift_of_hosts(current, current.state).items()):
            yield DriftItem(address, DriftKind.HOST, current.state.resources[address].digest, detail=words)


def _drift(current: Session) -> DriftOutcome:
    items: list[DriftItem] = []
    if current.ready:
        # The partial work of an interrupted operation is not drift.
        listing = current.opened.ledger.intents()
        if listing.problem is None and not listing.intents and not listing.unreadable:
            items = [*find_drift(current, current.state, current.problems, files=True), *_host_drift(current)]
        else:
            detail = listing.problem or "an interrupted operation is not settled; apply settles it"
            current.problems.add(Code.CLUSTER_RECOVERY_PENDING, RECOVERIES, detail, severity=Severity.ERROR)
    return DriftOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        items=tuple(items),
        diagnostics=tuple(current.problems),
    )
