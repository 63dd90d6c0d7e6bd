"""Routes on the data of a graph: load and export."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from gitops.database.graph import LoadMode
from gitops.serving.answers import NDJSON, Answer, StreamAnswer, bad_request, json_answer
from gitops.serving.http.bodies import ExportBody, LoadAnswer, LoadBody
from gitops.serving.http.call import Call, PieceStream, canonical_branch, receive_aside
from gitops.serving.http.graph_routes import BRANCH, GRAPH, write_context
from gitops.serving.http.route import LOAD_BYTES, MIB, Parameter, Route
from gitops.serving.operations import export, load

__all__ = ["ROUTES", "stream_export"]

STREAM_BYTES = 1024 * MIB
"""How long a stream of records may be. It is never in memory, and it is one commit."""


async def load_document(call: Call) -> Answer:
    """Load the records that are a text in the body."""
    body: LoadBody = call.body
    branch = canonical_branch(body.branch)
    origin = None if body.origin is None else canonical_branch(body.origin)
    place = await call.work(lambda: load.find_place(call.graph, branch, origin))
    load.permit_load(call.require, place)
    data = body.data.encode(errors="surrogatepass")
    mode = body.mode or LoadMode.MERGE.value
    write = load.load_records(call.graph, place, mode, io.BytesIO(data), call.context.embedder)
    return json_answer(await call.change(branch, len(data), lambda: write(write_context(call))))


async def load_stream(call: Call) -> Answer:
    """Load the records that are the body."""
    call.require_media_type(NDJSON)
    query = call.query()
    branch, mode = canonical_branch(query.get("branch")), query.get("mode", LoadMode.MERGE.value)
    if mode not in tuple(LoadMode):
        raise bad_request(f"mode is one of {', '.join(LoadMode)}")
    origin = canonical_branch(query["from"]) if "from" in query else None
    place = await call.work(lambda: load.find_place(call.graph, branch, origin))
    load.permit_load(call.require, place)

    def run(records: BinaryIO) -> dict[str, Any]:
        return load.load_records(call.graph, place, mode, records, call.context.embedder)(write_context(call))

    announced = call.header("content-length")
    # How long a body without a length will be is not known.
    size = int(announced[:20]) if announced and announced.isdecimal() else STREAM_BYTES
    return json_answer(await call.change_of(branch, size, receive_aside(call), run))


async def export_records(call: Call) -> StreamAnswer:
    """The records of a branch."""
    return await stream_export(call, call.body or ExportBody())


async def stream_export(call: Call, body: ExportBody, *, baseline: bool = False) -> StreamAnswer:
    """The records of a branch, with their commit, and as a `baseline` with the cursor of what changes afterwards."""
    begin = export.export_records(call.graph, call.require, canonical_branch(body.branch), body.type_names or ())
    slots = call.streams
    await slots.take()
    try:
        begun = await call.work(begin)
    except BaseException:
        slots.free()
        raise
    headers = {"Omnigraph-Snapshot-Id": begun.commit}
    if baseline:
        headers["Omnigraph-Change-Cursor"] = begun.cursor
    return StreamAnswer(PieceStream(call, begun.pieces, slots), f"{NDJSON}; charset=utf-8", headers=headers)


_FROM = Parameter("from", "The branch to make the branch from, if it is missing.")
_MODE = Parameter("mode", "What happens to rows that exist.", schema={"type": "string", "enum": list(LoadMode)})
_LOAD_PROBLEMS = (404, 409, 429)

ROUTES = (
    Route(
        "POST",
        f"{GRAPH}/load",
        "load",
        "Load records into a branch, as one commit",
        load_document,
        LoadAnswer,
        LoadBody,
        limit=LOAD_BYTES,
        problems=_LOAD_PROBLEMS,
    ),
    Route(
        "POST",
        f"{GRAPH}/ingest",
        "ingest",
        "As load",
        load_document,
        LoadAnswer,
        LoadBody,
        limit=LOAD_BYTES,
        successor="load",
        problems=_LOAD_PROBLEMS,
    ),
    Route(
        "POST",
        f"{GRAPH}/load/ndjson",
        "loadNdjson",
        "Load a stream of records into a branch, as one commit",
        load_stream,
        LoadAnswer,
        body_type=NDJSON,
        limit=STREAM_BYTES,
        query=(BRANCH, _FROM, _MODE),
        problems=(*_LOAD_PROBLEMS, 415),
    ),
    Route(
        "POST",
        f"{GRAPH}/export",
        "export",
        "The records of a branch",
        export_records,
        NDJSON,
        ExportBody,
        body_optional=True,
        problems=(404, 413),
    ),
)
