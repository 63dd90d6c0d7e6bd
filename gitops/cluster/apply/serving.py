"""Waits after an apply until the cluster's servers serve the applied revision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gitops.cluster.config.cluster_yaml import declared_storage, read_cluster
from gitops.cluster.model.changeset import Changeset
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.served import Follows, Replica, RevisionIdentity, ServingState
from gitops.cluster.session.session import Session
from gitops.cluster.session.status import revision_of, servers
from gitops.cluster.session.workspace import Drain, Workspace
from gitops.core.clock import parse_timestamp
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostics

_LOOK_S = 1.0


def await_served(workspace: Workspace, outcome: ApplyOutcome, limit: timedelta) -> ApplyOutcome:
    """Wait until every live server that follows the cluster serves this revision or a newer one. Return the apply's outcome.

    A server that refuses it ends the wait with the error `serving_refused`, the time limit with `serving_not_reached`.
    Servers of a selected revision are not waited for. If no server reports, there is a warning, `serving_unreported`.
    After an apply with errors, there is no wait.
    """
    applied = revision_of(outcome.observations.state_cas, outcome.observations.state_revision)
    cluster, _ = read_cluster(workspace.tree)
    if not outcome.ok or applied is None or cluster is None:
        return outcome
    reports, clock = workspace.open_stores(declared_storage(cluster)).reports, workspace.clock
    begun, cancel = clock.monotonic(), workspace.cancel
    # A signal ends the wait. The applied changes are reported.
    with cancel.work():
        while True:
            problems = Diagnostics()
            seen = () if reports is None else servers(reports, applied, clock.now(), problems)
            awaited = (each for each in seen if each.report.follows is not Follows.NEVER)
            behind = [each for each in awaited if each.state is not ServingState.SERVES]
            refusing = [each for each in behind if each.state is ServingState.REFUSES]
            waited = clock.monotonic() - begun
            left = limit.total_seconds() - waited
            if refusing or not behind or left <= 0 or cancel.requested:
                break
            cancel.wait(min(left, _LOOK_S))
    if not seen and not problems:
        problems.add(
            Code.SERVING_UNREPORTED, "serving", f"no server reports whether it serves revision {_number(applied)}"
        )
    for each in refusing:
        _report_refusal(each, applied, problems)
    if behind and not refusing:
        late = ", ".join(f"{each.report.replica}, which serves {_number(each.report.accepted)}" for each in behind)
        detail = f"revision {_number(applied)} is applied, but not served within {waited:.0f} s by {late}"
        problems.add(Code.SERVING_NOT_REACHED, "serving", detail)
    return replace(outcome, diagnostics=(*outcome.diagnostics, *problems), serving=seen)


def _report_refusal(server: Replica, applied: RevisionIdentity, problems: Diagnostics) -> None:
    """Report why a server refuses a revision, with a remedy for the first reason that this release recognises."""
    report, known = server.report, {code.value: code for code in REGISTRY}
    codes = ", ".join(report.codes)
    detail = f"{report.replica} refuses revision {_number(applied)} ({codes}), and serves {_number(report.accepted)}"
    fix = next((REGISTRY[known[code]].fix for code in report.codes if code in known), None)
    problems.add(Code.SERVING_REFUSED, "serving", detail, fix=fix)


def _number(revision: RevisionIdentity) -> str:
    return f"{revision.state_revision} ({revision.digest[:12]})"


# -- Ensures that removed resources are no longer read before their data is deleted ------------------------------------


NO_OBSERVER = "no server is known to serve the cluster"
_DRAIN_LOOK_S = 2.0


def drain(current: Session, record: Changeset, *, destroys: bool) -> Drain:
    """Wait until no server reports reading the data that a committed changeset removes, but no longer than the grace time.

    If no server reports, the full time passes; if nothing that `destroys` data is left, there is no wait. Reports affect
    only the waiting time. Raises CancelledError if the run was asked to stop: the changeset remains committed, and a later
    run continues.
    """
    workspace = current.workspace
    grace, clock, cancel = workspace.drain_grace.total_seconds(), workspace.clock, workspace.cancel
    if not grace or not destroys:
        return Drain(0, NO_OBSERVER)
    committed = parse_timestamp(record.barriers.committed or "")
    # Even if the clock was set back, a run waits no longer than the full time.
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
        cancel.wait(min(grace - waited, _DRAIN_LOOK_S))


def _servers(current: Session) -> tuple[Replica, ...]:
    reports, applied = current.opened.reports, revision_of(current.view.cas, current.state.revision)
    if reports is None or applied is None:
        return ()
    # Without reports, wait the full time. `gitops status` shows why they cannot be read.
    return servers(reports, applied, current.workspace.clock.now(), Diagnostics())
