"""A connection to a target: its settings and timeout. Turns failures into errors of the port.

1. Every statement commits on its own, and its parameters are sent separately from its text.
2. The server cancels a statement after `timeout_s`. Shortly after that, the connection to an unresponsive server is
   closed.
3. The driver's messages can contain parts of the URL, so they are shown only with all secrets removed.
4. After a connection is lost, the next statement reconnects.

This is the only module that uses the driver.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gitops.cluster.targets.port import ReplicaOutcome, ReplicaResult
from gitops.compute.materialize.queries import TargetQuery
from gitops.compute.strategies.statements import denied, failed, identifier, login_refused, outcome_of, unreachable
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError, UsageError, one_line
from gitops.core.redact import Redactor, Secret

if TYPE_CHECKING:
    import psycopg

_GRACE_S = 5
_DENIED = "42501"
_ATTEMPTS = 3
"""Number of attempts for a statement that fails because of a conflicting one (SQLSTATE 40001)."""
_INDETERMINATE = ReplicaOutcome.INDETERMINATE
_LOGIN_REFUSED = re.compile(
    r"authentication failed|invalid password|no password supplied|role \".*\" does not exist|not permitted to log in"
)
_CREDENTIALS = re.compile(r"(?<=://)[^\s/]*@")
_PASSWORD_OPTIONS = ("password", "sslpassword")
_PASSWORD = re.compile(r"(password=)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TargetAddress:
    """Address and connection settings of a target. `place` identifies it in problems, as written in `cluster.yaml`.

    Statements that read the three tables run on the compute cluster `query_cluster`, or on the role's default. That
    cluster must have a replica. Statements on the system catalog run on a system cluster of the target, regardless of
    the session's cluster.
    """

    place: str
    url: Secret
    application_name: str
    query_cluster: str | None = None
    timeout_s: int = 30


class MissingRelationError(Exception):
    """Raised for a missing relation."""


class MissingColumnError(Exception):
    """Raised for a missing column in a relation."""


class MissingFunctionError(Exception):
    """Raised for a missing function."""


# The target reports missing objects with the same SQLSTATE as almost every other catalog error.
_MISSING = (
    (re.compile(r"unknown (catalog item|schema) '"), MissingRelationError),
    (re.compile(r"column .* does not exist\Z"), MissingColumnError),
    (re.compile(r"function .* does not exist\Z"), MissingFunctionError),
)


class TargetConnection:
    """A connection that is opened on first use. Close it after use."""

    def __init__(self, address: TargetAddress) -> None:
        """Create the connection without opening it.

        Raises UsageError `target_url_invalid`, whose text never contains the URL.
        """
        self.place = address.place
        self._address = address
        self._redact = _redactor(address)
        self._open: psycopg.Connection | None = None

    @property
    def is_open(self) -> bool:
        """Return True if connected, as far as the driver knows."""
        return self._open is not None and not self._open.closed

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def open(self) -> None:
        """Connect unless already connected. Raises UsageError `materialize_unavailable`, and the errors of the port."""
        self._connected()

    def run(self, query: TargetQuery, *values: object) -> tuple[list[tuple[Any, ...]], int]:
        """Return the rows that a statement returns and the number of rows that it changed.

        Raises MissingRelationError, MissingColumnError, MissingFunctionError, and the errors of the port.
        """
        driver = _driver()
        connection = self._connected()
        try:
            with self._deadline(connection):
                cursor = self._executed(connection, query.text, values or None)
                found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
                return found, cursor.rowcount
        except driver.Error as error:
            raise self._problem(error, query, connection) from None

    def replica_statement(self, text: str) -> ReplicaResult:
        """Execute a statement about a replica. Returns failures as outcomes, except a failure to connect."""
        driver = _driver()
        try:
            connection = self._connected()
        except RemoteError as error:
            if not error.retryable:
                raise
            return ReplicaResult(_INDETERMINATE, error.detail)
        try:
            with self._deadline(connection):
                self._executed(connection, text)
        except driver.Error as error:
            message = self._text(error)
            lost = connection.closed or error.sqlstate is None
            outcome = _INDETERMINATE if lost else outcome_of(error.diag.message_primary or "", error.sqlstate)
            return ReplicaResult(outcome, message)
        return ReplicaResult(ReplicaOutcome.DONE)

    def _executed(
        self, connection: psycopg.Connection, text: str, values: tuple[object, ...] | None = None
    ) -> psycopg.Cursor[Any]:
        """Execute a statement and return its cursor.

        After a serialization conflict, which has no effect, the statement is retried.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return connection.execute(text, values)
            except _driver().errors.SerializationFailure:
                continue
        return connection.execute(text, values)

    def _connected(self) -> psycopg.Connection:
        if self._open is not None and not self._open.closed:
            return self._open
        driver, address = _driver(), self._address
        self.close()
        try:
            given = driver.conninfo.conninfo_to_dict(address.url.reveal())
            settings = {"connect_timeout": address.timeout_s} | given
            settings["options"] = f"{given.get('options', '')} -c statement_timeout={address.timeout_s * 1000}".strip()
            settings["application_name"] = address.application_name
            made: psycopg.Connection = driver.connect(**settings, autocommit=True, prepare_threshold=None)
        except driver.Error as error:
            text = self._text(error)
            if _LOGIN_REFUSED.search(text):
                raise login_refused(self.place, text) from None
            raise unreachable(self.place, text) from None
        self._open = made
        if address.query_cluster is not None:
            try:
                self.run(TargetQuery(f"SET cluster = {identifier(address.query_cluster)}"))
            except Exception:
                self.close()
                raise
        return made

    @contextmanager
    def _deadline(self, connection: psycopg.Connection) -> Iterator[None]:
        """Cut the connection if neither the server nor its own timeout ends the statement."""
        timer = threading.Timer(self._address.timeout_s + _GRACE_S, _cut, (connection,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _problem(self, error: psycopg.Error, query: TargetQuery, connection: psycopg.Connection) -> Exception:
        text = self._text(error)
        missing = next((kind for template, kind in _MISSING if template.match(text)), None)
        if missing is not None:
            return missing(text)
        if error.sqlstate == _DENIED and query.relations:
            named = (name for name in query.relations if name.rpartition(".")[2] in text)
            relation = next(named, query.relations[0])
            return denied(self.place, connection.info.user, query.privilege, relation, text)
        if error.sqlstate is None or outcome_of("", error.sqlstate) is _INDETERMINATE:
            return unreachable(self.place, text)
        return failed(self.place, text)

    def _text(self, error: psycopg.Error) -> str:
        # After the first line of a message, the driver only guesses at causes.
        text = one_line(error.diag.message_primary or str(error).partition("\n")[0]) or type(error).__name__
        return self._redact(_PASSWORD.sub(r"\1[redacted]", _CREDENTIALS.sub("[redacted]@", text)))


def _driver() -> Any:
    """Return the driver. Raises UsageError `materialize_unavailable` if it is not installed."""
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise UsageError(Code.MATERIALIZE_UNAVAILABLE, "the package psycopg is not installed") from error
    return psycopg


def _redactor(address: TargetAddress) -> Redactor:
    """Return a function that removes the URL's passwords from texts, both as written and as transmitted."""
    url = address.url.reveal()
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("postgres", "postgresql") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    # If a password contains an unescaped @, programs disagree about where the password ends.
    if not usable or url.count("@") > 1 or url.count("@") != parts.netloc.count("@"):
        detail = f"the URL in {address.url.name} is not of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise UsageError(Code.TARGET_URL_INVALID, detail, path=address.place)
    options = [option.partition("=") for option in parts.query.split("&")]
    secrets = [parts.password or "", *(value for name, _, value in options if name in _PASSWORD_OPTIONS)]
    return Redactor(Secret(address.url.name, each) for each in {*secrets, *map(unquote, secrets)} if each)


def _cut(connection: psycopg.Connection) -> None:
    """Close the connection so that the thread that waits for a response wakes up."""
    try:
        with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as side:
            side.shutdown(socket.SHUT_RDWR)
    except Exception:  # noqa: BLE001, S110 - it is closed already, in which case nothing waits for it
        pass
