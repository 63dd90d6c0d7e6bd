"""Wait after an apply until the servers of the cluster answer from what is applied."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gitops.cluster.config.cluster_yaml import declared_storage, read_cluster
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.served import Follows, Replica, RevisionIdentity, ServingState
from gitops.cluster.session.status import revision_of, servers
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostics

__all__ = ["await_served"]

_LOOK_S = 1.0


def await_served(workspace: Workspace, outcome: ApplyOutcome, limit: timedelta) -> ApplyOutcome:
    """The outcome of an apply, once every live server that follows the ledger answers from what it applied, or a newer revision.

    A server that refuses it ends the wait with the error `serving_refused`, the time limit with `serving_not_reached`. One that
    serves a chosen revision is not waited for. Without any report there is a warning, `serving_unreported`. After an apply with
    errors nothing is waited for.
    """
    applied = revision_of(outcome.observations.state_cas, outcome.observations.state_revision)
    cluster, _ = read_cluster(workspace.tree)
    if not outcome.ok or applied is None or cluster is None:
        return outcome
    reports, clock = workspace.open_stores(declared_storage(cluster)).reports, workspace.clock
    begun, cancel = clock.monotonic(), workspace.cancel
    # A signal ends the wait, and what was applied is reported.
    with cancel.work():
        while True:
            problems = Diagnostics()
            seen = () if reports is None else servers(reports, applied, clock.now(), problems)
            behind = [each for each in seen if _is_awaited(each)]
            refusing = [each for each in behind if each.state is ServingState.REFUSES]
            waited = clock.monotonic() - begun
            left = limit.total_seconds() - waited
            if refusing or not behind or left <= 0 or cancel.requested:
                break
            cancel.wait(min(left, _LOOK_S))
    if not seen and not problems:
        problems.add(
            Code.SERVING_UNREPORTED, "serving", f"no server says whether it serves revision {_number(applied)}"
        )
    for each in refusing:
        _report_refusal(each, applied, problems)
    if behind and not refusing:
        late = ", ".join(f"{each.report.replica}, which serves {_number(each.report.accepted)}" for each in behind)
        detail = f"revision {_number(applied)} is applied, and after {waited:.0f} s not served by {late}"
        problems.add(Code.SERVING_NOT_REACHED, "serving", detail)
    return replace(outcome, diagnostics=(*outcome.diagnostics, *problems), serving=seen)


def _is_awaited(server: Replica) -> bool:
    return server.state is not ServingState.SERVES and server.report.follows is not Follows.NEVER


def _report_refusal(server: Replica, applied: RevisionIdentity, problems: Diagnostics) -> None:
    """Say why a server refuses a revision, and what to do about the first reason that this release knows."""
    report, known = server.report, {code.value: code for code in REGISTRY}
    codes = ", ".join(report.codes)
    detail = f"{report.replica} refuses revision {_number(applied)} ({codes}), and serves {_number(report.accepted)}"
    fix = next((REGISTRY[known[code]].fix for code in report.codes if code in known), None)
    problems.add(Code.SERVING_REFUSED, "serving", detail, fix=fix)


def _number(revision: RevisionIdentity) -> str:
    return f"{revision.state_revision} ({revision.digest[:12]})"
