"""Routes on what changed, and on the cells of Blob properties."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from gitops.cluster.policy.bundle import Action
from gitops.database import graph
from gitops.database.graph.results import FeedPosition
from gitops.serving.answers import NDJSON, Answer, StreamAnswer, bad_request, json_answer
from gitops.serving.http.bodies import CommitChangesAnswer, ExportBody, FeedAnswer
from gitops.serving.http.call import Call, PieceStream, canonical_branch
from gitops.serving.http.data_routes import stream_export
from gitops.serving.http.graph_routes import BRANCH, GRAPH
from gitops.serving.http.route import Parameter, Route
from gitops.serving.operations import blobs, changes, commits

__all__ = ["ROUTES"]

_OCTETS = "application/octet-stream"
# A part up to this size goes out at once.
_SMALL = 2**20


async def read_changes(call: Call) -> Answer:
    """A page of the changes of a branch."""
    query = call.query()
    given = [name for name in ("cursor", "start", "page_token") if name in query]
    if len(given) != 1:
        raise bad_request("give one of cursor, start and page_token")
    (name,) = given
    branch = canonical_branch(query.get("branch"))
    start: FeedPosition | tuple[str, str] = (branch, query[name])
    if name != "start":
        start = changes.parse_cursor(query[name], within=name == "page_token")
        if "branch" in query and branch != start.branch:
            raise bad_request(f"the {name} is of branch {start.branch}, not of {branch}")
    read = changes.read_changes(call.graph, call.require, start, _types(query), _limit(query))
    return json_answer(await call.work(read))


async def read_commit_changes(call: Call) -> Answer:
    """What a commit changed."""
    query = call.query()
    found = await call.work(lambda: commits.find_commit(call.graph, call.values["commit_id"]))
    read = changes.commit_changes(call.graph, call.require, found, query.get("page_token"), _types(query))
    return json_answer(await call.work(read))


async def read_baseline(call: Call) -> StreamAnswer:
    """All records of a branch, and where its changes go on."""
    return await stream_export(call, call.body or ExportBody(), baseline=True)


async def read_blob(call: Call) -> Answer | StreamAnswer:
    """One cell, or a part of it."""
    query = call.query()
    snapshot = await _permitted_snapshot(call, query)
    cell = await call.work(blobs.open_blob(snapshot, query["entity"], query["type"], query["id"], query["property"]))
    headers = {
        "ETag": f'"{cell.tag}"',
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization",
        "Omnigraph-Snapshot-Id": snapshot.manifest.txn_id,
    }
    if blobs.find_precondition(cell, call.header("if-match"), call.header("if-none-match")):
        return Answer(304, b"", _OCTETS, headers)
    part = blobs.find_part(cell, call.header("range"), call.header("if-range"))
    status = 200 if part.whole else 206
    headers |= {} if part.whole else {"Content-Range": part.content_range}
    if call.method == "HEAD":
        return StreamAnswer(_nothing(), _OCTETS, status, {**headers, "Content-Length": str(part.length)})
    if part.length <= _SMALL:
        return Answer(status, await call.work(lambda: b"".join(part.pieces())), _OCTETS, headers)
    await call.streams.take()
    headers["Content-Length"] = str(part.length)
    return StreamAnswer(PieceStream(call, part.pieces(), call.streams), _OCTETS, status, headers)


async def _permitted_snapshot(call: Call, query: Mapping[str, str]) -> graph.Snapshot:
    """The version that is asked for, of a branch that the actor may read."""
    commit = query.get("snapshot")
    if commit is None:
        branch = canonical_branch(query.get("branch"))
        call.require(Action.READ, branch=branch)
        return await call.work(lambda: call.graph.open(graph.ReadTarget(branch)))
    if "branch" in query:
        raise bad_request("give a branch or a snapshot, not both")
    found = await call.work(lambda: commits.find_commit(call.graph, commit))
    commits.permit_commit(call.require, found)
    return found


async def _nothing() -> AsyncIterator[bytes]:
    empty: tuple[bytes, ...] = ()
    for piece in empty:
        yield piece


def _types(query: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, query.get("types", "").split(",")))


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(changes.MAX_CHANGES))
    limit = int(text[:9]) if text.isascii() and text.isdecimal() else 0
    if not 1 <= limit <= changes.MAX_CHANGES:
        raise bad_request(f"limit is a number from 1 to {changes.MAX_CHANGES}")
    return limit


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
    ),
)
