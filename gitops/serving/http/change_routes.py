"""Routes for a commit's changes, for a branch's change feed that clients read page by page, and for Blob cells."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from gitops.cluster.policy.bundle import PolicyAction
from gitops.core.canonical import compact, digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.database import graph
from gitops.database.graph.results import ChangeKind, FeedPage, FeedPosition, RowChange
from gitops.serving.answers import (
    NDJSON,
    ApiCode,
    ApiProblem,
    BodyAnswer,
    ProblemError,
    StreamAnswer,
    bad_request,
    find_part,
    find_precondition,
    json_answer,
    not_found,
)
from gitops.serving.http.bodies import BaselineBody, BaselineRecord, ChangesAnswer, CommitChangesAnswer
from gitops.serving.http.call import Call, PieceStream, canonical_branch
from gitops.serving.http.graph_routes import (
    BRANCH,
    GRAPH,
    READ_AT,
    find_commit,
    permit_commit,
    stream_export,
)
from gitops.serving.http.route import Parameter, Route
from gitops.serving.queries import commit_form

_OCTETS = "application/octet-stream"
# A part up to this size is sent at once.
_SMALL = 2**20
_BASELINE = "changes/baseline"
_MOST_CHANGES, _VERSIONS = 8192, 128
_DIGITS = 18
_FORBIDDEN = 403
# The response does not reveal which branch contains the commit, because the actor might not be allowed to see it.
_FOREIGN = "its commit is not one of this branch"
_KINDS = ("node", "edge")
_OPERATIONS = {"insert": ChangeKind.ADDED, "update": ChangeKind.CHANGED, "delete": ChangeKind.REMOVED}
_NAMES = {kind: name for name, kind in _OPERATIONS.items()}
GAPS = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})
"""Codes of errors after which a feed cannot continue."""


# The change feed in the format of the reference server
#
# 1. A cursor consists of a position and a digest of the reader's filters. A page token also contains the last version
#    at the time when the page began. Both are refused for a different branch, a different history of the branch, or
#    different filters.
# 2. There is a page token only in the middle of a commit and a cursor only at its end, so readers never store half a
#    commit.
# 3. Filters select changes. A type that does not exist counts as one without changes.


async def poll_changes(call: Call) -> BodyAnswer:
    """Return blocks of a branch's changes, by default starting now.

    Raises ProblemError 400 for a cursor from a different branch or filter, 403 like `permit_origins`, 409 if the next
    commit changes the schema of rows, 410 if the versions since then are no longer kept, and 413 for a limit that is
    too large.
    """
    query, scope, limits = call.query(), _asked_scope(call), _limits(call)
    branch = canonical_branch(query.get("branch"))
    given = [name for name in ("cursor", "start", "page_token") if name in query]
    if len(given) > 1:
        raise bad_request("give at most one of cursor, start and page_token")
    call.require(PolicyAction.READ, branch=branch)
    token = None if given in ([], ["start"]) else _read_token(query[given[0]], scope, paged=given == ["page_token"])
    if token is not None and token.position.branch != branch:
        raise _rejected(f"it is of branch {token.position.branch}, not of {branch}")

    def read() -> dict[str, Any]:
        served = call.graph

        def begin() -> FeedPosition:
            if token is not None:
                return token.position
            return graph.feed_position(served.uri, branch, query.get("start", "now"), served.cache)

        page = _read(call, branch, begin, scope, limits, None if token is None else token.last)
        changes: dict[str, list[dict[str, Any]]] = {each.txn_id: [] for each in page.commits}
        made = {each.txn_id: each for each in page.commits}
        for commit, change in page.changes:
            changes[commit].append(_change_form(made[commit], change))
        blocks = [{"cause": _cause(made[commit]), "changes": found} for commit, found in changes.items()]
        if page.position.after is not None:
            return {"blocks": blocks, "next_page_token": _Token(page.position, page.head.n).text(scope)}
        newest = page.head.n
        if token is not None and token.last is not None:
            newest = served.open(graph.ReadTarget(branch)).manifest.n
        return {"blocks": blocks, "cursor": _Token(page.position).text(scope), "caught_up": page.position.n == newest}

    return json_answer(await call.work(read))


async def read_commit_changes(call: Call) -> BodyAnswer:
    """Return a commit's changes relative to its first parent, page by page.

    Raises ProblemError 404 for a missing commit, or one on a branch that the actor may not read; 400 for a token from a
    different commit or filter; 409 if the commit has no parent or changes the schema of rows; 410 if its parent's
    version is no longer kept; and 413 for a limit that is too large.
    """
    query, scope, limits = call.query(), _asked_scope(call), _limits(call)
    found = await call.work(lambda: find_commit(call, call.values["commit_id"]))
    permit_commit(call, found)
    n, token = found.manifest.n, None
    if n == 1:
        raise _no_diff(found.manifest.txn_id, "parentless_commit", "it is the first one, and has no parent")
    if "page_token" in query:
        token = _read_token(query["page_token"], scope, paged=True)
        if (token.position.n, token.position.branch, token.last) != (n - 1, found.branch, n):
            raise _rejected("it is of another commit")

    def begin() -> FeedPosition:
        if token is not None:
            return token.position
        return graph.position_of(call.graph.open(graph.ReadTarget(found.branch, version=n - 1)))

    def read() -> dict[str, Any]:
        page = _read(call, found.branch, begin, scope, limits, n)
        changes = [_change_form(found.manifest, change) for _, change in page.changes]
        more = {} if page.complete else {"next_page_token": _Token(page.position, n).text(scope)}
        return {"cause": _cause(found.manifest), "changes": changes, **more}

    return json_answer(await call.work(read))


async def capture_baseline(call: Call) -> StreamAnswer:
    """Return a branch's records, followed by a record with the cursor for later changes."""
    body: BaselineBody = call.body or BaselineBody()
    scope = _scope(body.kind or (), body.type or (), body.op or ())

    def records(found: graph.Snapshot) -> Iterator[str]:
        lines = graph.export_records(found, [key for key in found.manifest.tables if scope.has_table(key)])
        cursor = _Token(graph.position_of(found)).text(scope)
        baseline = {"snapshot_commit_id": found.manifest.txn_id, "resume_cursor": cursor}
        return chain(lines, (json.dumps({"baseline": baseline}, separators=(",", ":")),))

    return await stream_export(call, body.branch, records)


def _read(
    call: Call,
    branch: str,
    begin: Callable[[], FeedPosition],
    scope: graph.ChangeScope,
    limits: graph.FeedLimits,
    last: int | None = None,
) -> FeedPage:
    """Return the page after a position. Raises ProblemError 400, 403, 409, 410."""
    position = None
    try:
        position = begin()
        permit_origins(call, position, _BASELINE)
        return graph.read_feed(call.graph.uri, position, (), limits, scope=scope, last=last, memory=call.graph.cache)
    except graph.ForeignPositionError:
        raise _rejected(_FOREIGN) from None
    except graph.SchemaBoundaryError as error:
        why = f"it changes the schema of {error.type_name}, which is no change of rows: take a new baseline after it"
        raise _no_diff(error.commit, "schema_boundary", why, error.type_name) from None
    except GitopsError as error:
        if error.code not in GAPS:
            raise
        if position is not None and error.code is Code.GRAPH_VERSION_UNKNOWN:
            raise _rejected(_FOREIGN) from None
        begun = 1 if last is None else last - 1
        raise gap(call, error, branch, begun if position is None else position.n, _BASELINE) from None


def permit_origins(call: Call, position: FeedPosition, baseline: str) -> None:
    """Check that the actor may read the branches of all commits in a feed.

    Raises ProblemError 403 if the feed includes commits from before its branch was created, on a branch that the actor
    may not read. The route `baseline` starts without them. Also raises the errors of `graph.branches_since`.
    """
    for origin in graph.branches_since(call.graph.uri, position, call.graph.cache) - {position.branch}:
        _permit_origin(call, position.branch, origin, baseline)


def _permit_origin(call: Call, branch: str, origin: str, baseline: str) -> None:
    try:
        call.require(PolicyAction.READ, branch=origin)
    except ProblemError as error:
        problem = error.problem
        message = f"before branch '{branch}' was made, its changes are those of '{origin}': {problem.message}"
        if problem.status == _FORBIDDEN:
            message += f"; begin with POST {baseline}, or with start=now"
        raise ProblemError(replace(problem, message=message)) from None


def gap(call: Call, error: GitopsError, branch: str, n: int, baseline: str) -> ProblemError:
    """Return the problem for a feed that cannot continue after version `n`. The route `baseline` restarts it.

    Raises ProblemError 403 like `permit_origins` if the commit to report is on a different branch.
    """
    query = call.query()
    first = query.get("start", "").partition("after:")[2]
    if not first:
        first, holder = graph.first_unreadable(call.graph.uri, branch, n)
        if holder != branch:
            _permit_origin(call, branch, holder, baseline)
    said = _FOREIGN if isinstance(error, graph.ForeignPositionError) else call.problem(error).message
    message = f"{said}; begin again with POST {baseline}"
    form = {"cursor": query.get("cursor"), "first_unreadable_commit_id": first}
    return ProblemError(ApiProblem(410, None, message, {"change_feed_gap": form}))


def _rejected(why: str) -> ProblemError:
    # Clients recognise it by this text, as opposed to a gap.
    return bad_request(f"change cursor rejected: {why}")


def _no_diff(commit: str, reason: str, why: str, type_name: str | None = None) -> ProblemError:
    form = {"reason": reason, "graph_commit_id": commit, "type_name": type_name}
    message = f"commit {commit} has no changes to show: {why}"
    return ProblemError(ApiProblem(409, ApiCode.CONFLICT, message, {"change_diff_refusal": form}))


@dataclass(frozen=True, slots=True)
class _Token:
    """A cursor or, with the `last` version of its page, a page token."""

    position: FeedPosition
    last: int | None = None

    def text(self, scope: graph.ChangeScope) -> str:
        """Return the token in the form in which clients store it."""
        parts = [self.position.token, _digest(scope), *([] if self.last is None else [str(self.last)])]
        return ".".join(parts)


def _read_token(text: str, scope: graph.ChangeScope, *, paged: bool) -> _Token:
    """Parse a client's token. Raises ProblemError 400."""
    encoded, *rest = text.split(".")
    last = rest.pop() if paged and len(rest) > 1 else ""
    if len(rest) != 1 or (paged and not (last.isascii() and last.isdecimal() and len(last) <= _DIGITS)):
        raise _rejected(f"it is no {'page token' if paged else 'cursor'} of this feed")
    try:
        position = graph.parse_position(encoded)
    except UsageError as error:
        raise _rejected(error.detail) from None
    if rest != [_digest(scope)]:
        raise _rejected("it was given for other filters: send the same kind, type and op")
    if (position.after is not None) != paged:
        raise _rejected(f"it is no {'page token' if paged else 'cursor'}")
    return _Token(position, int(last) if paged else None)


def _digest(scope: graph.ChangeScope) -> str:
    form = [sorted(scope.kinds), sorted(scope.types), sorted(scope.operations)]
    return digest(compact(form))[:16]


def _asked_scope(call: Call) -> graph.ChangeScope:
    """Return the filters in the query parameters. Raises ProblemError 400."""
    found = {name: call.query_values(name) for name in ("kind", "type", "op")}
    for name, known in (("kind", _KINDS), ("op", _OPERATIONS)):
        for each in found[name]:
            if each not in known:
                raise bad_request(f"{name} is one of {', '.join(known)}, not '{each[:80]}'")
    return _scope(found["kind"], found["type"], found["op"])


def _scope(kinds: Iterable[str], types: Iterable[str], operations: Iterable[str]) -> graph.ChangeScope:
    return graph.ChangeScope(frozenset(kinds), frozenset(types), frozenset(_OPERATIONS[each] for each in operations))


def _limits(call: Call) -> graph.FeedLimits:
    """Return the requested page size. Raises ProblemError 400, 413."""
    text = call.query().get("limit")
    if text is None:
        return graph.FeedLimits(versions=_VERSIONS)
    limit = int(text[:_DIGITS]) if text.isascii() and text.isdecimal() else 0
    if limit < 1:
        raise bad_request("limit is a whole number above 0")
    if limit > _MOST_CHANGES:
        more = {"resource": "commit_changes_page_changes", "limit": _MOST_CHANGES, "actual": limit}
        message = f"a page has at most {_MOST_CHANGES} changes, and limit is {limit}"
        raise ProblemError(ApiProblem(413, ApiCode.BAD_REQUEST, message, {"resource_limit": more}))
    return graph.FeedLimits(changes=limit, versions=_VERSIONS)


def _cause(commit: graph.Manifest) -> dict[str, Any]:
    form = commit_form(commit)
    same = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id", "actor_id")
    return {
        **{name: form[name] for name in same},
        "authored_branch": form["graph_branch"],
        "authored_at": form["created_at"],
    }


def _change_form(commit: graph.Manifest, change: RowChange) -> dict[str, Any]:
    kind, _, name = change.table.partition(":")
    rows = {"before": change.before, "after": change.after}
    return {
        "kind": kind,
        "type": {"id": graph.type_id(commit.tables[change.table]), "name": name},
        "id": change.id,
        "op": _NAMES[change.kind],
        **{side: _image(kind, row) for side, row in rows.items() if row is not None},
    }


def _image(kind: str, row: Mapping[str, Any]) -> dict[str, Any]:
    heads = ("id", "src", "dst") if kind == "edge" else ("id",)
    ends = {"endpoints": {"from": row["src"], "to": row["dst"]}} if kind == "edge" else {}
    return {"properties": {name: cell for name, cell in row.items() if name not in heads}, **ends}


# Blob cells


async def read_blob(call: Call) -> BodyAnswer | StreamAnswer:
    """Return one cell, or part of it.

    Raises ProblemError 400 for a type or property that the version lacks, and 404 for a missing row or cell.
    """
    query = call.query()
    snapshot = await _permitted_snapshot(call, query)
    kind, type_name, row_id, name = (query[each] for each in ("entity", "type", "id", "property"))
    if kind not in ("node", "edge"):
        raise bad_request("entity is node or edge")
    cell = await call.work(lambda: graph.open_blob(snapshot, f"{kind}:{type_name}", row_id, name))
    if cell is None:
        raise not_found(f"{type_name} '{row_id[:80]}' has no blob in '{name[:80]}'")
    headers = {
        "ETag": f'"{cell.tag}"',
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization",
        "Omnigraph-Snapshot-Id": snapshot.manifest.txn_id,
    }
    try:
        if find_precondition(cell, call.header("if-match"), call.header("if-none-match")):
            return BodyAnswer(304, b"", _OCTETS, headers)
        # Ranges are only defined for GET (RFC 9110, 14.2).
        asked = None if call.method == "HEAD" else call.header("range")
        part = find_part(cell, asked, call.header("if-range"))
    except ProblemError as error:
        # A refused client learns which blob exists.
        raise ProblemError(replace(error.problem, headers={**headers, **error.problem.headers})) from None
    status = 200 if part.whole else 206
    headers |= {} if part.whole else {"Content-Range": part.content_range}
    if call.method == "HEAD":
        return StreamAnswer(_nothing(), _OCTETS, status, {**headers, "Content-Length": str(part.length)})
    if part.length <= _SMALL:
        return BodyAnswer(status, await call.work(lambda: b"".join(part.pieces())), _OCTETS, headers)
    await call.shared.streams.take()
    headers["Content-Length"] = str(part.length)
    return StreamAnswer(PieceStream(call, part.pieces()), _OCTETS, status, headers)


async def _permitted_snapshot(call: Call, query: Mapping[str, str]) -> graph.Snapshot:
    """Return the requested version of a branch that the actor may read."""
    commit = query.get("snapshot")
    if commit is None:
        branch = canonical_branch(query.get("branch"))
        call.require(PolicyAction.READ, branch=branch)
        return await call.work(lambda: call.graph.open(graph.ReadTarget(branch)))
    if "branch" in query:
        raise bad_request("give a branch or a snapshot, not both")
    found = await call.work(lambda: find_commit(call, commit))
    permit_commit(call, found)
    return found


async def _nothing() -> AsyncIterator[bytes]:
    empty: tuple[bytes, ...] = ()
    for piece in empty:
        yield piece


def _array(items: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "array", "items": items}


_LIMIT = Parameter(
    "limit",
    f"At most so many changes, by default 1000 and at most {_MOST_CHANGES}.",
    schema={"type": "integer", "minimum": 1},
)
_TOKEN = Parameter("page_token", "Where an earlier page ended in the middle of a commit.")
_FILTERS = (
    Parameter("kind", "Only these kinds; may be repeated.", schema=_array({"type": "string", "enum": [*_KINDS]})),
    Parameter("type", "Only the types of these names; may be repeated.", schema=_array({"type": "string"})),
    Parameter(
        "op", "Only these operations; may be repeated.", schema=_array({"type": "string", "enum": [*_OPERATIONS]})
    ),
)
_FEED = (
    BRANCH,
    Parameter("cursor", "Where to go on: the cursor of an earlier answer or of a baseline."),
    Parameter("start", "Where to begin: `now`, `beginning` or `after:COMMIT`; by default `now`."),
    _TOKEN,
    _LIMIT,
    *_FILTERS,
)
_BLOB = (
    Parameter("entity", "`node` or `edge`.", required=True, schema={"type": "string", "enum": ["node", "edge"]}),
    Parameter("type", "The name of the type.", required=True),
    Parameter("id", "The id of the row.", required=True),
    Parameter("property", "The name of the property.", required=True),
    BRANCH,
    Parameter("snapshot", "A commit, instead of a branch."),
)
_CELL = (
    Parameter("ETag", "The tag of the blob, for If-Match, If-None-Match and If-Range."),
    Parameter("Accept-Ranges", "`bytes`."),
    Parameter("Omnigraph-Snapshot-Id", "The commit that the blob was read at."),
)
_BLOB_HEADERS = (
    Parameter("Range", "One part, such as `bytes=0-1023`."),
    Parameter("If-Range", "Only a part of the blob with this tag."),
    Parameter("If-Match", "Only the blob with this tag."),
    Parameter("If-None-Match", "Only a blob with another tag."),
)

ROUTES = (
    Route(
        "GET",
        f"{GRAPH}/changes",
        "pollChanges",
        "What changed on a branch since a cursor, commit by commit",
        poll_changes,
        ChangesAnswer,
        query=_FEED,
        problems=(404, 409, 410, 413),
    ),
    Route(
        "POST",
        f"{GRAPH}/changes/baseline",
        "captureChangeBaseline",
        "The records of a branch, and as the last line the cursor of what changes afterwards",
        capture_baseline,
        NDJSON,
        BaselineBody,
        body_optional=True,
        problems=(404, 413),
        gives=(READ_AT,),
        line=BaselineRecord,
    ),
    Route(
        "GET",
        f"{GRAPH}/commits/{{commit_id}}/changes",
        "getCommitChanges",
        "What a commit changed of its first parent",
        read_commit_changes,
        CommitChangesAnswer,
        query=(_TOKEN, _LIMIT, *_FILTERS),
        problems=(404, 409, 410, 413),
    ),
    Route(
        "GET",
        f"{GRAPH}/blob",
        "getBlob",
        "One cell of a Blob property, whole or in part",
        read_blob,
        _OCTETS,
        query=_BLOB,
        headers=_BLOB_HEADERS,
        problems=(404, 412, 413, 416),
        partial=True,
        gives=_CELL,
    ),
)
