"""The errors of a target, each with the place of the target, and what to do now."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gitops.compute.strategies.statements import identifier
from gitops.core.codes import Code
from gitops.core.errors import RemoteError

__all__ = ["denied", "failed", "login_refused", "signals_missing", "unreachable"]

_HISTORY_ROLE = "mz_monitor_redacted"
# The compute cluster on which the tables are read cannot do that.
_NOT_HERE = re.compile(
    r" has no replicas available to service request| is not allowed from the \".*\" cluster|^unknown cluster '"
)
_OTHER_CLUSTER = "let the tables be read on a compute cluster that has a replica: --query-cluster NAME"


def unreachable(place: str, reason: str) -> RemoteError:
    """The target does not answer, or no longer."""
    return RemoteError(Code.TARGET_UNREACHABLE, f"the target does not answer: {reason}", path=place, retryable=True)


def failed(place: str, reason: str) -> RemoteError:
    """The target answers a statement with an error."""
    fix = _OTHER_CLUSTER if _NOT_HERE.search(reason) else None
    return RemoteError(Code.TARGET_FAILED, f"the target refuses a statement: {reason}", path=place, fix=fix)


def login_refused(place: str, reason: str) -> RemoteError:
    """The target does not let the role of the URL in."""
    fix = "correct user and password in the URL of the target, then repeat the command"
    return RemoteError(Code.TARGET_DENIED, f"the target refuses the login: {reason}", path=place, fix=fix)


def denied(place: str, role: str, privilege: str, relation: str, reason: str) -> RemoteError:
    """The role of the connection lacks a privilege on a relation; the history of statements is read by members of a role."""
    if relation.endswith("mz_statement_execution_history_redacted"):
        grant = f"GRANT {_HISTORY_ROLE} TO {identifier(role)}"
    else:
        grant = f"GRANT {privilege} ON {relation} TO {identifier(role)}"
    detail = f"the role {role} may not {privilege} on {relation}: {reason}"
    return RemoteError(Code.TARGET_DENIED, detail, path=place, fix=f"let an administrator of the target run: {grant}")


def signals_missing(place: str, missing: Iterable[str]) -> RemoteError:
    """Relations, or columns of relations, that signals are read from are not there."""
    detail = f"the target has no {', '.join(missing)}; signals cannot be read"
    return RemoteError(Code.SIGNAL_UNAVAILABLE, detail, path=place)
