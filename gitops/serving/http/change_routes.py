"""Routes on what changed, of one commit and of a branch as a feed that a reader follows from page to page; and on Blob cells."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from gitops.cluster.policy.bundle import PolicyAction
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph.results import FeedPage
from gitops.serving.answers import (
    NDJSON,
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
from gitops.serving.http.bodies import CommitChangesAnswer, ExportBody, FeedAnswer
from gitops.serving.http.call import Call, PieceStream, canonical_branch
from gitops.serving.http.graph_routes import (
    BRANCH,
    GRAPH,
    READ_AT,
    find_commit,
    permit_commit,
    read_limit,
    stream_export,
)
from gitops.serving.http.route import Parameter, Route
from gitops.serving.queries import commit_form

_OCTETS = "application/octet-stream"
# A part up to this size goes out at once.
_SMALL = 2**20
_MOST_CHANGES = 1000
_FORBIDDEN = 403
_GAPS = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})


async def read_changes(call: Call) -> BodyAnswer:
    """A page of the changes of a branch, after a cursor or token, or where it is begun: `now`, `beginning` or `after:COMMIT`.

    Raises ProblemError 410 where versions since then are no longer kept.
    """
    query = call.query()
    given = [name for name in ("cursor", "start", "page_token") if name in query]
    if len(given) != 1:
        raise bad_request("give one of cursor, start and page_token")
    (name,) = given
    branch, position = canonical_branch(query.get("branch")), None
    if name != "start":
        position = graph.parse_position(query[name])
        if position.after is not None and name == "cursor":
            raise bad_request("this is a page token and no cursor: give it as page_token")
        if "branch" in query and branch != position.branch:
            raise bad_request(f"the {name} is of branch {position.branch}, not of {branch}")
        branch = position.branch
    types, limit = _types(query), read_limit(query, _MOST_CHANGES)
    call.require(PolicyAction.READ, branch=branch)

    def read() -> dict[str, Any]:
        served = call.graph
        try:
            begin = position or graph.feed_position(served.uri, branch, query["start"], served.cache)
            for origin in graph.branches_since(served.uri, begin, served.cache) - {branch}:
                _permit_origin(call, branch, origin)
            page = graph.read_feed(served.uri, begin, types, graph.FeedLimits(changes=limit), memory=served.cache)
        except GitopsError as error:
            if error.code not in _GAPS:
                raise
            message = f"{call.problem(error).message}; begin again with POST changes/baseline"
            raise ProblemError(ApiProblem(410, None, message, {"change_feed_gap": {"reason": error.code}})) from None
        return {"graph_branch": begin.branch, "head_commit_id": page.head.commit, **_page_form(page)}

    return json_answer(await call.work(read))


def _permit_origin(call: Call, branch: str, origin: str) -> None:
    """Raise ProblemError 403 where a feed shows commits from before the branch was made, of one that the actor may not read."""
    try:
        call.require(PolicyAction.READ, branch=origin)
    except ProblemError as error:
        problem = error.problem
        message = f"before branch '{branch}' was made, its changes are those of '{origin}': {problem.message}"
        if problem.status == _FORBIDDEN:
            message += "; begin with POST changes/baseline, or with start=now"
        raise ProblemError(replace(problem, message=message)) from None


async def read_commit_changes(call: Call) -> BodyAnswer:
    """What a commit changed of its first parent, page by page.

    Raises ProblemError 404 as for a commit that does not exist where the actor may not read the branch that has it, and 400 for a
    token that is not of this commit.
    """
    query = call.query()
    found = await call.work(lambda: find_commit(call, call.values["commit_id"]))
    n, position = found.manifest.n, None
    if "page_token" in query:
        position = graph.parse_position(query["page_token"])
    permit_commit(call, found)
    if position is not None and (position.n, position.branch) != (n - 1, found.branch):
        raise bad_request("the page token is of another commit")

    def read() -> dict[str, Any]:
        form = {"commit": commit_form(found.manifest)}
        if n == 1:
            # The first version of a graph has no rows.
            return {**form, "changes": [], "page_token": None}
        begin = position or graph.position_of(call.graph.open(graph.ReadTarget(found.branch, version=n - 1)))
        page = _page_form(graph.read_feed(call.graph.uri, begin, _types(query), last=n))
        return {**form, "changes": page["changes"], "page_token": page["page_token"]}

    return json_answer(await call.work(read))


def _page_form(page: FeedPage) -> dict[str, Any]:
    changes = []
    for commit, change in page.changes:
        kind, _, name = change.table.partition(":")
        form = change.to_json()
        changes.append(
            {
                "graph_commit_id": commit,
                "entity_kind": kind,
                # A type that the newer version does not have is marked in the key of its table.
                "type_name": name.partition(" ")[0],
                "entity_id": change.id,
                "kind": change.kind.value,
                **{name: form[name] for name in ("fields", "before", "after")},
            }
        )
    token = page.position.token
    return {
        "commits": [commit_form(each) for each in page.commits],
        "changes": changes,
        "cursor": token if page.position.after is None else None,
        "page_token": None if page.complete else token,
    }


async def read_baseline(call: Call) -> StreamAnswer:
    """All records of a branch, and where its changes go on."""
    return await stream_export(call, baseline=True)


async def read_blob(call: Call) -> BodyAnswer | StreamAnswer:
    """One cell, or a part of it.

    Raises ProblemError 400 for a type or property that the version does not have, and 404 for a row or cell.
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
        # A range is one of a GET (RFC 9110, 14.2).
        asked = None if call.method == "HEAD" else call.header("range")
        part = find_part(cell, asked, call.header("if-range"))
    except ProblemError as error:
        # A client that is refused learns which blob there is.
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
    """The version that is asked for, of a branch that the actor may read."""
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


def _types(query: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, query.get("types", "").split(",")))


_TYPES = Parameter("types", "Only these types, separated by commas.")
_TOKEN = Parameter("page_token", "Where an earlier page ended.")
_FEED = (
    BRANCH,
    Parameter("start", "Where to begin: `now`, `beginning` or `after:COMMIT`."),
    Parameter("cursor", "Where to go on: the cursor of an earlier answer."),
    _TOKEN,
    _TYPES,
    Parameter("limit", "At most so many changes.", schema={"type": "integer", "minimum": 1, "maximum": 1000}),
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
        "listChanges",
        "What changed on a branch since a cursor",
        read_changes,
        FeedAnswer,
        query=_FEED,
        problems=(404, 410),
    ),
    Route(
        "POST",
        f"{GRAPH}/changes/baseline",
        "getBaseline",
        "All records of a branch, with the cursor of what changes afterwards in the header `Omnigraph-Change-Cursor`",
        read_baseline,
        NDJSON,
        ExportBody,
        body_optional=True,
        problems=(404, 413),
        gives=(READ_AT, Parameter("Omnigraph-Change-Cursor", "Where the changes after these records begin.")),
    ),
    Route(
        "GET",
        f"{GRAPH}/commits/{{commit_id}}/changes",
        "getCommitChanges",
        "What a commit changed of its first parent",
        read_commit_changes,
        CommitChangesAnswer,
        query=(_TOKEN, _TYPES),
        problems=(404,),
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
