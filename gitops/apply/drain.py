"""How it is known that nothing reads what left the applied state, before its data are deleted."""

from __future__ import annotations

from gitops.cluster.session import Session
from gitops.cluster.workspace import Drain
from gitops.core.clock import parse_timestamp
from gitops.model.changeset import Changeset

__all__ = ["NO_OBSERVER", "drain"]

NO_OBSERVER = "nothing is known to serve the cluster"


def drain(current: Session, record: Changeset, *, destroys: bool) -> Drain:
    """Wait until nothing reads what a committed changeset removed, by the observer of the workspace or for its time of grace.

    Where nothing is left that `destroys` data, only an observer is waited for. Raises GitopsError as the observer, and
    CancelledError where the run was asked to stop: the changeset stays committed then, and a later run goes on.
    """
    workspace = current.workspace
    if workspace.served is not None:
        return workspace.served.wait(current.state.revision)
    grace, clock, cancel = workspace.drain_grace.total_seconds(), workspace.clock, workspace.cancel
    if not grace or not destroys:
        return Drain(0, NO_OBSERVER)
    committed = parse_timestamp(record.barriers.committed or "")
    # A clock that was set back makes no run wait longer than the whole time.
    passed = 0.0 if committed is None else max(0.0, (clock.now() - committed).total_seconds())
    end = clock.monotonic() + grace - passed
    while (left := end - clock.monotonic()) > 0:
        cancel.check()
        cancel.wait(left)
    return Drain(int(1000 * max(grace, passed)), f"{grace:.0f} s have passed since the commit; {NO_OBSERVER}")
