"""Statements about replicas, as text for people and for the target, and the meaning of the target's errors.

Names and sizes are rendered only by `identifier` and `literal`. A target reports nearly every catalog error with the
same SQLSTATE, so the cause is read from the beginning of the message, which no name can affect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gitops.cluster.targets.port import ReplicaOutcome
from gitops.compute.strategies.decision import ActionKind
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError, RemoteError

_MESSAGES = (
    (r"cannot create multiple replicas named ", ReplicaOutcome.EXISTS),
    (r"unknown cluster replica size", ReplicaOutcome.INVALID_SIZE),
    (r"unknown cluster( replica)? '", ReplicaOutcome.ABSENT),
    (r"cannot modify managed cluster", ReplicaOutcome.MANAGED),
    (r"cannot create more than one replica of a cluster containing sources or sinks", ReplicaOutcome.SINGLE_REPLICA),
)
# The connection was lost, the server is shutting down, or the statement was cancelled.
_INDETERMINATE = re.compile(r"08...|57P0.|57014")
_NAME = r'"((?:[^"]|"")*)"'
_CREATE = re.compile(rf"CREATE CLUSTER REPLICA {_NAME}\.{_NAME} \(SIZE '((?:[^']|'')*)'[,)]")
_DROP = re.compile(rf"DROP CLUSTER REPLICA (?:IF EXISTS )?{_NAME}\.{_NAME}\Z")


@dataclass(frozen=True, slots=True)
class ReplicaStatement:
    """What a statement does to a replica. A drop has no size."""

    kind: ActionKind
    cluster: str
    replica: str
    size: str | None = None


def identifier(name: str) -> str:
    """Quote an identifier, with special characters escaped.

    Raises BugError for a name that no statement can contain.
    """
    return '"' + _checked(name).replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string literal. Raises BugError for the same texts as `identifier`."""
    return "'" + _checked(text).replace("'", "''") + "'"


def create_replica(cluster: str, replica: str, size: str) -> str:
    """Return the statement that creates a replica of a compute cluster."""
    return f"CREATE CLUSTER REPLICA {identifier(cluster)}.{identifier(replica)} (SIZE {literal(size)})"


def drop_replica(cluster: str, replica: str) -> str:
    """Return the statement that drops a replica of a compute cluster if it exists."""
    return f"DROP CLUSTER REPLICA IF EXISTS {identifier(cluster)}.{identifier(replica)}"


def read_statement(sql: str) -> ReplicaStatement | None:
    """Parse a statement about a replica, even if another program wrote it. None for any other text."""
    if made := _CREATE.match(sql):
        cluster, replica, size = made.groups()
        return ReplicaStatement(ActionKind.CREATE, _plain(cluster), _plain(replica), size.replace("''", "'"))
    if dropped := _DROP.match(sql):
        return ReplicaStatement(ActionKind.DROP, *map(_plain, dropped.groups()))
    return None


def _plain(name: str) -> str:
    return name.replace('""', '"')


def outcome_of(message: str, state: str | None) -> ReplicaOutcome:
    """Return the outcome of a statement from its error. An error without an SQLSTATE means that the connection was lost."""
    if state is None or _INDETERMINATE.fullmatch(state):
        return ReplicaOutcome.INDETERMINATE
    found = (outcome for template, outcome in _MESSAGES if re.match(template, message))
    return next(found, ReplicaOutcome.FAILED)


def _checked(text: str) -> str:
    if re.search(r"[\0\ud800-\udfff]", text):
        raise BugError(f"{text!r} cannot be part of a statement")
    return text


# -- Errors of a target, each with the target's place and a remedy -----------------------------------------------------


_HISTORY_ROLE = "mz_monitor_redacted"
# The compute cluster that would read the tables cannot do so.
_NOT_HERE = re.compile(
    r" has no replicas available to service request| is not allowed from the \".*\" cluster|^unknown cluster '"
)
_OTHER_CLUSTER = "read the tables on a compute cluster that has a replica: --query-cluster NAME"


def unreachable(place: str, reason: str) -> RemoteError:
    """Return the error for a target that does not respond or stopped responding."""
    return RemoteError(Code.TARGET_UNREACHABLE, f"the target does not respond: {reason}", path=place, retryable=True)


def failed(place: str, reason: str) -> RemoteError:
    """Return the error for a statement that a target rejected."""
    fix = _OTHER_CLUSTER if _NOT_HERE.search(reason) else None
    return RemoteError(Code.TARGET_FAILED, f"the target rejects a statement: {reason}", path=place, fix=fix)


def login_refused(place: str, reason: str) -> RemoteError:
    """Return the error for a target that rejects the role in the URL."""
    fix = "correct the user and password in the target URL, then run the command again"
    return RemoteError(Code.TARGET_DENIED, f"the target rejects the login: {reason}", path=place, fix=fix)


def denied(place: str, role: str, privilege: str, relation: str, reason: str) -> RemoteError:
    """Return the error for a role that lacks a privilege on a relation.

    Reading the history of statements requires membership in a role.
    """
    if relation.endswith("mz_statement_execution_history_redacted"):
        grant = f"GRANT {_HISTORY_ROLE} TO {identifier(role)}"
    else:
        grant = f"GRANT {privilege} ON {relation} TO {identifier(role)}"
    detail = f"the role {role} lacks the privilege {privilege} on {relation}: {reason}"
    return RemoteError(
        Code.TARGET_DENIED, detail, path=place, fix=f"ask an administrator of the target to run: {grant}"
    )


def signals_missing(place: str, missing: Iterable[str]) -> RemoteError:
    """Return the error for missing relations or columns that contain signals."""
    detail = f"the target has no {', '.join(missing)}; signals cannot be read"
    return RemoteError(Code.SIGNAL_UNAVAILABLE, detail, path=place)
