"""Who serves which revision of a cluster, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gitops.cluster.model.served import Follows, Replica, RevisionIdentity, ServingState

__all__ = ["serving_form", "serving_lines", "serving_parts"]

_FOLLOWS = {
    Follows.WATCH: "",
    Follows.ASKED: ", and looks for a newer one only when asked: send it SIGHUP",
    Follows.NEVER: ", which was chosen when it was started",
}


def serving_lines(serving: Sequence[Replica] | None) -> list[str]:
    """A line for each live server."""
    return [f"  serving: {_line(each)}" for each in serving or ()]


def serving_parts(serving: Sequence[Replica] | None) -> list[str]:
    """For the line of a cluster: how many servers there are, and which of them do not serve what is applied."""
    if not serving:
        return []
    late = [each for each in serving if each.state is not ServingState.SERVES]
    names = ", ".join(f"{each.report.replica} {each.state.value}" for each in late)
    return [f"served by {len(serving)}" + (f" ({names})" if late else "")]


def serving_form(serving: Sequence[Replica] | None) -> dict[str, Any]:
    """The member `serving` of a document, left out where no server is known."""
    return {"serving": [_form(each) for each in serving]} if serving else {}


def _line(server: Replica) -> str:
    report = server.report
    text = f"{report.replica} serves revision {_number(report.accepted)}"
    if server.state is ServingState.REFUSES and report.offered is not None:
        text += f", refuses {_number(report.offered)}: {', '.join(report.codes)}"
    elif server.state is ServingState.BEHIND:
        text += f", behind{_FOLLOWS[report.follows]}"
        text += f"; its last problem: {', '.join(report.codes)}" if report.codes else ""
    return f"{text}; reported {server.age_s} s ago"


def _form(server: Replica) -> dict[str, Any]:
    report = server.report
    return {
        "replica": report.replica,
        "cluster": report.cluster,
        "state": server.state.value,
        "follows": report.follows.value,
        "accepted": _revision(report.accepted),
        "offered": None if report.offered is None else _revision(report.offered),
        "codes": list(report.codes),
        "age_s": server.age_s,
        "ttl_s": report.ttl_s,
    }


def _revision(revision: RevisionIdentity) -> dict[str, Any]:
    return {"state_cas": f"sha256:{revision.digest}", "state_revision": revision.state_revision}


def _number(revision: RevisionIdentity) -> str:
    return f"{revision.state_revision} ({revision.digest[:12]})"
