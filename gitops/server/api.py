"""The API that lets programs use a server's clusters, independent of HTTP.

    GET  CLUSTER/schema                     the applied state, and the changesets that have not ended
    GET  CLUSTER/changesets                 a list: `all`, `state`, `limit`, `commit`
    GET  CLUSTER/changesets/KEY             a complete record
    GET  CLUSTER/events                     the stream: see `EventStream`
    POST CLUSTER/changesets                 create a changeset: apply a merge commit of the cluster's branch
    POST CLUSTER/changesets/KEY/commit      always refused, because the run that prepares a changeset also commits it
    POST CLUSTER/changesets/KEY/fail        abandon a changeset that is not committed
    POST CLUSTER/changesets/KEY/runtime     report the progress of a member of the active changeset

1. Every call needs a token, and writes need a token that permits them. A token of an identity provider is valid only
   for clusters of the repository whose rules verified it.
2. A program cannot do more than a person at the command line: only merged changes are applied, with their approvals.
3. Every response is a JSON document with `ok`; a refusal has `diagnostics` with code, message and remedy.

Source: the calls of the design note on schema changesets.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gitops.cluster.changesets.stream import StreamItem, pull
from gitops.cluster.ledger.changesets import CHANGESET
from gitops.cluster.ledger.port import LedgerReader
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import ChangesetState, Runtime, RuntimeState, RuntimeUpdated
from gitops.cluster.model.identity import TokenRefusedError
from gitops.cluster.model.ledger import changeset_key, is_changeset_key
from gitops.cluster.session.changesets import (
    BringsNothing,
    Steering,
    WatchedChangeset,
    find_changesets,
    list_changesets,
    read_stream,
)
from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.documents.forms import OBJECT, OBJECT_ID, is_line
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import ConflictError, GitopsError, RemoteError, UsageError
from gitops.core.redact import Secret
from gitops.forge.events import PushEvent
from gitops.render.changesets import item_form, list_form
from gitops.render.json import Form as JsonForm
from gitops.server.queue import EventQueue
from gitops.server.shared import RefusalLog, ServerContext

# Bodies of program requests, with the values that they must contain. All problems of an invalid body are reported.
#
# Unknown members are refused, and values are never coerced. Members that a program can omit have a default.

_SHOWN: Final = 10


def _line(text: str) -> str:
    if not is_line(text):
        raise ValueError("expected one line without control characters")
    return text


def _time(text: str) -> str:
    if not text.endswith("Z") or parse_timestamp(text) is None:
        raise ValueError("expected an RFC 3339 time in UTC, such as 2026-03-01T12:00:03Z")
    return text


_Line = Annotated[str, AfterValidator(_line)]
_Time = Annotated[str, AfterValidator(_time)]
_ObjectId = Annotated[str, AfterValidator(OBJECT_ID.read)]


class Body(BaseModel):
    """Body of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CommitBody(Body):
    """The merge commit to apply, given by its full id."""

    commit: _ObjectId


class FailBody(Body):
    """Why a changeset is abandoned. With `force`, changes that were not rolled back are left in place."""

    error: _Line
    force: bool = False


class _RuntimeForm(Body):
    state: Annotated[RuntimeState, Field(strict=False)]
    attempts: Annotated[int, Field(ge=0, lt=1 << 53)] = 0
    started_at: _Time | None = None
    updated_at: _Time | None = None
    outputs: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None


class RuntimeBody(Body):
    """Progress of a member of the active changeset."""

    address: _Line
    runtime: _RuntimeForm

    @property
    def happening(self) -> RuntimeUpdated:
        """Return the event to record."""
        given = self.runtime
        runtime = Runtime(given.state, given.attempts, given.started_at, given.updated_at, given.outputs, given.error)
        return RuntimeUpdated(Address(self.address), runtime)


B = TypeVar("B", bound=Body)


def read_request(kind: type[B], data: bytes) -> B:
    """Return the body of a request. Raises GitopsError `api_request_invalid` with the problem and its place."""
    try:
        return kind.model_validate(OBJECT.read(parse(data or b"{}")))
    except MalformedError as error:
        where = f"{error.path}: " if error.path else ""
        raise GitopsError(Code.API_REQUEST_INVALID, f"{where}{error}") from error
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in found[:_SHOWN]]
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        detail = "; ".join((*problems, *more)).replace("Value error, ", "").replace("Input should be", "expected")
        raise GitopsError(Code.API_REQUEST_INVALID, detail) from error


_MOST = 1000
_STATUSES = {
    Code.CHANGESET_NOT_FOUND: 404,
    Code.CLUSTER_NOT_FOUND: 404,
    Code.CLUSTER_AMBIGUOUS: 409,
    Code.API_REQUEST_INVALID: 400,
    Code.API_ADDRESS_UNKNOWN: 404,
    Code.API_TOKEN_REFUSED: 401,
    Code.OIDC_TOKEN_REFUSED: 401,
    Code.API_WRITE_REFUSED: 403,
    Code.QUEUE_FULL: 503,
}


_CHALLENGES = {Code.OIDC_TOKEN_REFUSED: 'Bearer error="invalid_token"'}


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token, its owner, and whether it permits writing."""

    name: str
    writes: bool
    secret: Secret


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller, and whether it can write. `repository` is the only repository that it can use; None means all."""

    name: str
    writes: bool
    repository: str | None = None


IdentifyCaller = Callable[[str, str | None, bytes], Caller]
"""Identifies the caller by a token of an identity provider, for a cluster in the given repository, if any.

Raises TokenRefusedError, RemoteError.
"""


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """A cluster of a served repository: its branch, its ledger and the permitted operations.

    `merged` returns whether a commit is part of the branch, `brings_nothing` whether it has nothing to apply.
    `steering` acts on behalf of a token. `refresh` drops cached responses of the remote.
    """

    name: str
    repository: str
    ref: str
    ledger: LedgerReader
    merged: Callable[[str], bool]
    brings_nothing: BringsNothing
    steering: Callable[[str], Steering]
    refresh: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request: its method, its cluster, the rest of its path, and its other parts.

    Header names are in lower case.
    """

    method: str
    cluster: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An HTTP status and a JSON document."""

    status: int
    form: JsonForm
    headers: Mapping[str, str] = field(default_factory=dict)


class EventStream:
    """The stream of one reader. Each call of `poll` returns the new items. Only one thread at a time can call it."""

    def __init__(
        self, cluster: ServedCluster, now: Callable[[], str], after: int | None, wanted: WatchedChangeset | None
    ) -> None:
        """Create a stream.

        `after` is the reader's position; None if it needs the full state. `wanted` selects changesets.
        """
        self._cluster, self._now, self._wanted = cluster, now, wanted
        self._position, self._first = after, True

    def poll(self) -> tuple[StreamItem, ...]:
        """Return the items since the last call. Raises the errors of the ledger."""
        self._cluster.refresh()
        reading, keys = read_stream(self._cluster.ledger, self._cluster.name, self._now(), self._position, self._wanted)
        items = pull(reading, self._position, keys, first=self._first)
        self._position, self._first = reading.seq, False
        return items


class ClusterApi:
    """Answers requests from programs. Thread-safe."""

    def __init__(
        self,
        tokens: Sequence[ApiToken],
        open_cluster: Callable[[str, str | None], ServedCluster],
        queue: EventQueue,
        context: ServerContext,
        identify: IdentifyCaller | None = None,
    ) -> None:
        """`open_cluster` finds a cluster by name, and by the name of its repository if there are several.

        It raises GitopsError `cluster_not_found`, `cluster_ambiguous`. Without `identify`, only `tokens` are accepted.
        """
        self._tokens, self._find, self._queue, self._context = tuple(tokens), open_cluster, queue, context
        self._identify, self._refused = identify, RefusalLog(context, "tokens")

    def answer(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request for a document."""
        try:
            return self._answer(request, self._caller(request))
        except GitopsError as error:
            return self._refusal(request, error)

    def stream(self, request: ApiRequest) -> tuple[EventStream, tuple[StreamItem, ...]] | ApiAnswer:
        """Return a cluster's changeset stream with its first items, as `after`, `changeset` or `commit` select them.

        Returns an answer instead if the request is refused. A reader of server-sent events sends its position as
        `Last-Event-ID`.
        """
        try:
            cluster = self._open(request, self._caller(request))
            position = request.query.get("after", request.headers.get("last-event-id"))
            key, commit = request.query.get("changeset"), request.query.get("commit")
            wanted = None if key is None and commit is None else WatchedChangeset(key and _key(key), commit)
            after = None if position is None else _number("after", position)
            stream = EventStream(cluster, lambda: timestamp(self._context.clock.now()), after, wanted)
            return stream, stream.poll()
        except GitopsError as error:
            return self._refusal(request, error)

    def _open(self, request: ApiRequest, caller: Caller) -> ServedCluster:
        found = self._find(request.cluster, request.query.get("repository"))
        if caller.repository not in (None, found.repository):
            raise GitopsError(Code.OIDC_TOKEN_REFUSED, "the token is for a cluster of another repository")
        return found

    def _caller(self, request: ApiRequest) -> Caller:
        """Identify the caller.

        Raises GitopsError `api_token_refused`, `oidc_token_refused`, `api_write_refused`, RemoteError.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # All tokens are compared, so that the response time does not reveal a partial match.
        same = [
            each for each in self._tokens if hmac.compare_digest(each.secret.reveal().encode(), given.strip().encode())
        ]
        if same and scheme.lower() == "bearer":
            caller = Caller(same[0].name, same[0].writes)
        elif self._identify is not None and scheme.lower() == "bearer" and given.count(".") == 2:  # noqa: PLR2004 - signed
            caller = self._identified(self._identify, request, given.strip().encode())
        else:
            raise GitopsError(Code.API_TOKEN_REFUSED, "the request has no token that this server knows")
        if request.method != "GET" and not caller.writes:
            raise GitopsError(Code.API_WRITE_REFUSED, f"the token of {caller.name} may only read")
        return caller

    def _identified(self, identify: IdentifyCaller, request: ApiRequest, token: bytes) -> Caller:
        try:
            return identify(request.cluster, request.query.get("repository"), token)
        except TokenRefusedError as error:
            self._context.metrics.count("tokens", error.reason)
            issuer = f", issuer {error.issuer}" if error.issuer else ""
            self._refused.log(
                f"{request.method} {request.cluster}: token refused: {error.reason}: {error.detail}{issuer}"
            )
            raise GitopsError(Code.OIDC_TOKEN_REFUSED, f"{error.reason}: {error.detail}") from None

    def _answer(self, request: ApiRequest, caller: Caller) -> ApiAnswer:
        cluster = self._open(request, caller)
        match request.method, request.path.split("/"):
            case "GET", ["schema"]:
                (item,) = EventStream(cluster, lambda: timestamp(self._context.clock.now()), None, None).poll()
                form = item_form(item)
                return ApiAnswer(200, {"ok": True, "cluster": cluster.name, "seq": form["seq"], **form["data"]})
            case "GET", ["changesets"]:
                return self._list(cluster, request.query)
            case "GET", ["changesets", key]:
                (found,) = find_changesets(cluster.ledger, WatchedChangeset(_key(key)))
                return ApiAnswer(200, {"ok": True, "changeset": CHANGESET.form(found)})
            case "POST", ["changesets"]:
                return self._create(cluster, caller, read_request(CommitBody, request.body).commit)
            case "POST", ["changesets", key, what]:
                return self._steer(cluster, caller, _key(key), what, request.body)
        raise GitopsError(Code.API_ADDRESS_UNKNOWN, f"{request.method} {request.path[:80]}")

    def _list(self, cluster: ServedCluster, query: Mapping[str, str]) -> ApiAnswer:
        limit = min(_MOST, _number("limit", query.get("limit", str(_MOST))))
        if (commit := query.get("commit")) is not None:
            found = find_changesets(cluster.ledger, WatchedChangeset(commit=commit), cluster.brings_nothing)[:limit]
            if not found:
                return ApiAnswer(200, {"ok": True, "cluster": cluster.name, "no_change": True, "changesets": []})
        else:
            state = query.get("state")
            if state is not None and state not in tuple(ChangesetState):
                raise GitopsError(Code.API_REQUEST_INVALID, f"state is one of {', '.join(ChangesetState)}")
            chosen = None if state is None else ChangesetState(state)
            found = list_changesets(cluster.ledger, ended="all" in query, state=chosen, limit=limit)
        return ApiAnswer(200, {"ok": True, "cluster": cluster.name, "changesets": list_form(found)})

    def _create(self, cluster: ServedCluster, caller: Caller, commit: str) -> ApiAnswer:
        """Have the bot apply a merged commit, unless a changeset for it already exists."""
        if not cluster.merged(commit):
            branch = cluster.ref.removeprefix("refs/heads/")
            detail = f"commit {commit[:12]} is not part of branch {branch}, and only merged commits are applied"
            raise ConflictError(Code.MERGE_NOT_CURRENT, detail)
        known = cluster.ledger.changeset_of(commit)
        if known:
            return ApiAnswer(200, {"ok": True, "created": False, "commit": commit, "changesets": list(known)})
        if cluster.brings_nothing(commit):
            form = {"ok": True, "created": False, "no_change": True, "commit": commit, "changesets": []}
            return ApiAnswer(200, form)
        self._queue.enqueue(cluster.repository, PushEvent(cluster.ref, commit, commit, None))
        self._context.log(f"{cluster.repository}: {caller.name} asks for {cluster.name} at {commit[:12]}")
        key = changeset_key(cluster.name, "merge", commit)
        return ApiAnswer(202, {"ok": True, "created": True, "commit": commit, "changesets": [key]})

    def _steer(self, cluster: ServedCluster, caller: Caller, key: str, what: str, body: bytes) -> ApiAnswer:
        steering = cluster.steering(caller.name)
        match what:
            case "fail":
                given = read_request(FailBody, body)
                found = steering.fail(key, given.error, force=given.force)
            case "runtime":
                found = steering.update(key, read_request(RuntimeBody, body).happening)
            case "commit":
                (found,) = find_changesets(cluster.ledger, WatchedChangeset(key))
                detail = f"it is {found.state}, and does not wait for a commit: the run that prepares it commits it"
                raise ConflictError(Code.CHANGESET_STATE_INVALID, detail, path=key)
            case _:
                raise GitopsError(Code.API_ADDRESS_UNKNOWN, f"POST changesets/KEY/{what[:40]}")
        self._context.log(f"{cluster.repository}: {caller.name}: {what} of {key} in {cluster.name}")
        return ApiAnswer(200, {"ok": True, "changeset": CHANGESET.form(found)})

    def _refusal(self, request: ApiRequest, error: GitopsError) -> ApiAnswer:
        status = _STATUSES.get(error.code)
        if status is None:
            status = 409 if isinstance(error, ConflictError) else 400 if isinstance(error, UsageError) else 500
            status = 503 if isinstance(error, RemoteError) else status
        level = logging.WARNING if status >= 500 else logging.DEBUG  # noqa: PLR2004 - the failures of HTTP
        self._context.log(f"{request.method} {request.cluster}: {status} {error.code}: {error.detail}", level)
        problems = Diagnostics()
        problems.add(error.code, error.path, self._context.safe(error.detail), fix=error.fix)
        headers = {"www-authenticate": _CHALLENGES.get(error.code, "Bearer")} if status == 401 else {}  # noqa: PLR2004
        return ApiAnswer(status, {"ok": False, "diagnostics": problems.to_json()}, headers)


def _key(text: str) -> str:
    if not is_changeset_key(text):
        raise GitopsError(Code.API_REQUEST_INVALID, f"'{text[:40]}' is not the key of a changeset")
    return text


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):  # noqa: PLR2004 - more events than there will ever be
        raise GitopsError(Code.API_REQUEST_INVALID, f"{name} is a whole number")
    return int(text)
