"""How it is known that nothing reads what left the applied state, before its data are deleted."""

from __future__ import annotations

from gitops.cluster.model.changeset import Changeset
from gitops.cluster.model.served import Replica, ServingState
from gitops.cluster.session.session import Session
from gitops.cluster.session.status import revision_of, servers
from gitops.cluster.session.workspace import Drain
from gitops.core.clock import parse_timestamp
from gitops.core.diagnostics import Diagnostics

__all__ = ["NO_OBSERVER", "drain"]

NO_OBSERVER = "nothing is known to serve the cluster"
_LOOK_S = 2.0


def drain(current: Session, record: Changeset, *, destroys: bool) -> Drain:
    """Wait until nothing reads what a committed changeset removed: by the reports of its servers, at most for its time of grace.

    Where no server reports, all of that time passes, and where nothing is left that `destroys` data, none does. A report decides
    about nothing but the time. Raises CancelledError where the run was asked to stop: the changeset stays committed then, and a
    later run goes on.
    """
    workspace = current.workspace
    grace, clock, cancel = workspace.drain_grace.total_seconds(), workspace.clock, workspace.cancel
    if not grace or not destroys:
        return Drain(0, NO_OBSERVER)
    committed = parse_timestamp(record.barriers.committed or "")
    # A clock that was set back makes no run wait longer than the whole time.
    passed = 0.0 if committed is None else max(0.0, (clock.now() - committed).total_seconds())
    begun = clock.monotonic() - passed
    while True:
        seen = _servers(current)
        waited = clock.monotonic() - begun
        holding = [each for each in seen if each.state is not ServingState.SERVES]
        if seen and not holding:
            names = ", ".join(each.report.replica for each in seen)
            return Drain(int(1000 * waited), f"revision {current.state.revision} is served by {names}")
        if waited >= grace:
            why = ", ".join(f"{each.report.replica} serves {each.report.accepted.state_revision}" for each in holding)
            return Drain(int(1000 * waited), f"{grace:.0f} s have passed since the commit; {why or NO_OBSERVER}")
        cancel.check()
        cancel.wait(min(grace - waited, _LOOK_S))


def _servers(current: Session) -> tuple[Replica, ...]:
    reports, applied = current.opened.reports, revision_of(current.view.cas, current.state.revision)
    if reports is None or applied is None:
        return ()
    # Without reports all of the time passes; `gitops status` shows why they cannot be read.
    return servers(reports, applied, current.workspace.clock.now(), Diagnostics())
