"""Responses, either complete or streamed in pieces, and one envelope for all problems.

The envelope is `{"error": text, "code": one of a closed list, ...}`. Programs distinguish outcomes by status, code and
the additional members.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError

if TYPE_CHECKING:
    from gitops.database.graph import BlobCell


class ApiCode(StrEnum):
    """Response codes. The list is closed."""

    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    TOO_MANY_REQUESTS = "too_many_requests"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ApiProblem:
    """A problem with its HTTP status. `code` is None if only the members in `more` identify it."""

    status: int
    code: ApiCode | None
    message: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> dict[str, Any]:
        """Return the envelope."""
        code = {} if self.code is None else {"code": self.code.value}
        return {"error": self.message, **code, **self.more}


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(self, problem: ApiProblem) -> None:
        """Create the exception with the problem's text."""
        super().__init__(problem.message)
        self.problem = problem


class RowsProblemError(ProblemError):
    """A problem that reveals a branch's rows. Callers without access get `withheld` instead, unless it is None."""

    def __init__(self, problem: ApiProblem, withheld: ApiProblem | None = None) -> None:
        """Create the exception with the problem's text."""
        super().__init__(problem)
        self.withheld = withheld


def bad_request(message: str) -> ProblemError:
    """Return the problem for a request that is malformed or cannot be processed."""
    return ProblemError(ApiProblem(400, ApiCode.BAD_REQUEST, message))


def not_found(message: str) -> ProblemError:
    """Return the problem for an unknown name."""
    return ProblemError(ApiProblem(404, ApiCode.NOT_FOUND, message))


JSON = "application/json"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class BodyAnswer:
    """A complete body. `headers` are sent in addition to the application's headers."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """A body in pieces, which are produced one at a time as the client reads them.

    If the iterator raises, the connection is closed, so that a client never mistakes an incomplete body for a complete
    one. If the client disconnects, the iterator is closed.
    """

    pieces: AsyncIterator[bytes]
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_answer(form: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> BodyAnswer:
    """Return a response with a JSON document."""
    return BodyAnswer(status, _ENCODER.encode(form).encode(), JSON, headers or {})


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Encode headers for an ASGI server."""
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def problem_answer(problem: ApiProblem) -> BodyAnswer:
    """Return a response with a problem in its envelope."""
    return json_answer(problem.form, problem.status, problem.headers)


# The response for each failure of the graph database, in one table.
#
# Tests compare it with the codes that the graph database, its storage and the languages can raise. Instead of internal
# details, such as the location of files, the response contains the code's fixed summary; the server's log contains the
# complete message.


class Says(Enum):
    """The text of an error response: the error's detail without the graph's location, or its code's summary."""

    DETAIL = auto()
    WITHOUT_PLACE = auto()
    SUMMARY = auto()


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """A status and code, and which text to send. `member` is the additional member that identifies the error."""

    status: int
    code: ApiCode | None
    member: str | None = None
    says: Says = Says.DETAIL


_INVALID = ErrorAnswer(400, ApiCode.BAD_REQUEST)
_GONE = ErrorAnswer(404, ApiCode.NOT_FOUND, says=Says.WITHOUT_PLACE)
_CONFLICT = ErrorAnswer(409, ApiCode.CONFLICT)
_NOT_HERE = ErrorAnswer(409, ApiCode.CONFLICT, says=Says.SUMMARY)
_LIMIT = ErrorAnswer(413, ApiCode.BAD_REQUEST, "resource_limit")
_FAILED = ErrorAnswer(500, ApiCode.INTERNAL, says=Says.SUMMARY)
# The bucket's service does not respond, but may soon respond again.
_AWAY = ErrorAnswer(503, None, "storage_failure", says=Says.SUMMARY)
_RETRY_AFTER_S = "5"

ANSWERS: Mapping[Code, ErrorAnswer] = MappingProxyType(
    {
        Code.QUERY_PARSE_ERROR: _INVALID,
        Code.QUERY_TYPECHECK_ERROR: _INVALID,
        Code.QUERY_UNKNOWN: _INVALID,
        Code.QUERY_PARAMS_INVALID: _INVALID,
        Code.QUERY_LITERAL_INVALID: _INVALID,
        Code.QUERY_UNSUPPORTED: _INVALID,
        Code.MUTATION_INVALID: _INVALID,
        Code.MUTATION_MIXED: _INVALID,
        Code.GRAPH_DATA_INVALID: _INVALID,
        Code.GRAPH_BRANCH_NAME: _INVALID,
        Code.GRAPH_TYPE_UNKNOWN: ErrorAnswer(400, ApiCode.BAD_REQUEST, says=Says.WITHOUT_PLACE),
        Code.GRAPH_MIGRATION_UNSUPPORTED: _INVALID,
        Code.SCHEMA_PARSE_ERROR: _INVALID,
        Code.SCHEMA_CATALOG_ERROR: _INVALID,
        Code.USAGE_ERROR: _INVALID,
        Code.GRAPH_BRANCH_MISSING: _GONE,
        Code.GRAPH_VERSION_UNKNOWN: _GONE,
        Code.GRAPH_VERSION_GONE: _GONE,
        Code.GRAPH_DELETED: _GONE,
        Code.GRAPH_BRANCH_EXISTS: ErrorAnswer(409, ApiCode.CONFLICT, says=Says.WITHOUT_PLACE),
        Code.GRAPH_HAS_BRANCHES: _NOT_HERE,
        Code.GRAPH_MERGE_SCHEMA: _CONFLICT,
        Code.QUERY_TARGET_DIFFERS: ErrorAnswer(409, ApiCode.CONFLICT, says=Says.WITHOUT_PLACE),
        Code.GRAPH_RESTORE_REFUSED: _CONFLICT,
        Code.KEY_CONFLICT: ErrorAnswer(409, ApiCode.CONFLICT, "key_conflict"),
        Code.GRAPH_CONFLICT: ErrorAnswer(409, ApiCode.CONFLICT, "read_set_conflict", Says.WITHOUT_PLACE),
        Code.GRAPH_REPLACED: _NOT_HERE,
        Code.GRAPH_FENCED: _NOT_HERE,
        Code.GRAPH_ROWS_REPLACED: _NOT_HERE,
        Code.GRAPH_GROWN: _NOT_HERE,
        Code.GRAPH_RESTORED: _NOT_HERE,
        Code.GRAPH_EXISTS: _NOT_HERE,
        Code.HEAD_MOVED: ErrorAnswer(412, None, "precondition_failure", Says.WITHOUT_PLACE),
        Code.RESOURCE_LIMIT: _LIMIT,
        Code.QUERY_TIMEOUT: _LIMIT,
        Code.QUERY_MEMORY_EXCEEDED: _LIMIT,
        Code.QUERY_TOO_LARGE: _LIMIT,
        Code.EMBEDDING_FAILED: ErrorAnswer(503, None, "embedding_failure", Says.SUMMARY),
        Code.GRAPH_MISSING: _FAILED,
        Code.GRAPH_UNREADABLE: _FAILED,
        Code.GRAPH_REWOUND: _FAILED,
        Code.STORAGE_FAILED: _FAILED,
        Code.STORAGE_ROOT_INVALID: _FAILED,
        Code.STORAGE_DRIVER_MISSING: _FAILED,
        Code.STORAGE_CONDITIONAL_PUT_IGNORED: _FAILED,
        Code.QUERY_FAILED: _FAILED,
        Code.ENGINE_UNAVAILABLE: _FAILED,
    }
)
"""The response for each code. Any other code is treated as a defect."""


# The beginning of a path or address anywhere in a message.
_PLACE = re.compile(r"(?:^|[\s'\"(=])(?:/|[a-z][a-z0-9+.-]*://)")


def problem_of(error: GitopsError, detail: str | None = None) -> ApiProblem:
    """Return the problem to respond with. `detail` is the error's detail, or None if the caller may not see it."""
    away = error.code is Code.STORAGE_FAILED and isinstance(error, RemoteError) and error.retryable
    outcome = _AWAY if away else ANSWERS.get(error.code, _FAILED)
    shown = error.detail if outcome.says is Says.DETAIL else detail if outcome.says is Says.WITHOUT_PLACE else None
    if shown is None or (outcome.says is Says.WITHOUT_PLACE and _PLACE.search(shown)):
        shown = f"{error.code}: {REGISTRY[error.code].summary}"
    more: Mapping[str, Any] = {} if outcome.member is None else {outcome.member: {"reason": error.code.value}}
    return ApiProblem(outcome.status, outcome.code, shown, more, {"Retry-After": _RETRY_AFTER_S} if away else {})


# Details of a refused change that only callers with access to the branch may see: why it does not fit its rows.
#
# Codes that are not listed here count as such details. A failure of the server never does.

_OF_THE_REQUEST = frozenset(
    {
        Code.QUERY_PARSE_ERROR,
        Code.QUERY_TYPECHECK_ERROR,
        Code.QUERY_TOO_LARGE,
        Code.QUERY_UNKNOWN,
        Code.QUERY_PARAMS_INVALID,
        Code.QUERY_LITERAL_INVALID,
        Code.MUTATION_MIXED,
        Code.GRAPH_BRANCH_NAME,
        Code.GRAPH_BRANCH_MISSING,
        Code.GRAPH_BRANCH_EXISTS,
        Code.GRAPH_CONFLICT,
        Code.USAGE_ERROR,
    }
)
_SERVER_FAILED = 500


@contextmanager
def withhold(branch: str, *, unless: Callable[[], bool]) -> Iterator[None]:
    """Hide the reason (409) why a change conflicts with a branch's rows, unless the actor may see them."""
    try:
        yield
    except RowsProblemError as error:
        if unless():
            raise
        raise ProblemError(error.withheld or _unexplained(branch)) from None
    except GitopsError as error:
        told = error.code in _OF_THE_REQUEST or ANSWERS.get(error.code, _FAILED).status >= _SERVER_FAILED
        if told or unless():
            raise
        raise ProblemError(_unexplained(branch)) from None


def _unexplained(branch: str) -> ApiProblem:
    message = f"the change does not fit what is on branch '{branch}', and nothing was changed; only actors with the "
    return ApiProblem(409, ApiCode.CONFLICT, f"{message}permission read or export on that branch are told why")


# A cell of a Blob property, complete or in part, for responses and commands.

PIECE_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class BlobPart:
    """Some of a cell's bytes, beginning at `start`. `whole` is true if no part was requested."""

    cell: BlobCell
    start: int
    length: int
    whole: bool

    @property
    def content_range(self) -> str:
        """Return the value of a `Content-Range` header."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{self.cell.size}"

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the bytes, in pieces of at most 64 KiB."""
        for at in range(0, self.length, PIECE_BYTES):
            yield self.cell.read(self.start + at, min(PIECE_BYTES, self.length - at))


def find_part(cell: BlobCell, asked: str | None, only_of: str | None) -> BlobPart:
    """Return the part that a Range header requests if the cell matches an If-Range header, or else the whole cell.

    A header that is malformed or requests several parts is ignored (RFC 9110, 14.2). Raises ProblemError 416.
    """
    match = None if asked is None else _RANGE.fullmatch(asked.replace(" ", ""))
    if match is None or match[0] == "bytes=-" or only_of not in (None, f'"{cell.tag}"'):
        return BlobPart(cell, 0, cell.size, whole=True)
    first, last = match[1], match[2]
    if not first:
        start, end = max(cell.size - int(last), 0), cell.size
    else:
        start, end = int(first), int(last) + 1 if last else max(cell.size, int(first))
        if end <= start and last:
            return BlobPart(cell, 0, cell.size, whole=True)
    length = min(end, cell.size) - start
    if length <= 0:
        more = {"blob_range": {"start": start, "end": end, "length": cell.size}}
        message = f"the blob has {cell.size} bytes, and none in this range"
        headers = {"Content-Range": f"bytes */{cell.size}"}
        raise ProblemError(ApiProblem(416, ApiCode.BAD_REQUEST, message, more, headers))
    return BlobPart(cell, start, length, whole=False)


def find_precondition(cell: BlobCell, if_match: str | None, if_none_match: str | None) -> bool:
    """Return True if the client already has the cell.

    Raises ProblemError 412 if the client expects a different cell.
    """
    if if_match is not None and not _names(if_match, cell.tag):
        message = f'the blob has changed: its tag is "{cell.tag}", not {if_match[:200]}'
        raise ProblemError(ApiProblem(412, ApiCode.CONFLICT, message))
    return if_none_match is not None and _names(if_none_match, cell.tag, weak=True)


def _names(header: str, tag: str, *, weak: bool = False) -> bool:
    each = [text.strip() for text in header.split(",")]
    return "*" in each or f'"{tag}"' in each or (weak and f'W/"{tag}"' in each)
