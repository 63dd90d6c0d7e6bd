"""Routes for a graph's content: tables, schema, branches, commits, and loading and exporting records.

A handler first requires its permissions, which raises an error if they are denied. Only then does it start work in a
thread, so nothing is read, written or counted for an actor without permission.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, BinaryIO

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import MAIN
from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph.results import BranchMergeResult, MergeStatus
from gitops.serving.answers import (
    NDJSON,
    ApiCode,
    ApiProblem,
    BodyAnswer,
    ProblemError,
    RowsProblemError,
    StreamAnswer,
    bad_request,
    json_answer,
    not_found,
)
from gitops.serving.http import bodies
from gitops.serving.http.call import Call, PieceStream, canonical_branch, receive_aside
from gitops.serving.http.route import LOAD_BYTES, MIB, Parameter, Route
from gitops.serving.queries import commit_form

GRAPH = "/graphs/{graph_id}"
BRANCH = Parameter("branch", "The branch, by default `main`.")
READ_AT = Parameter("Omnigraph-Snapshot-Id", "The commit that the records were read at.")
STREAM_BYTES = 1024 * MIB
"""Maximum length of a record stream. It is never in memory, and becomes one commit."""

# Size that a change without a body counts towards an actor's limit.
_CHANGE_BYTES = 256
_PIECE_BYTES = 64 * 1024
_MOST_COMMITS = 10_000
_CONFLICTS_SHOWN = 3
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_FORBIDDEN = 403
_UNFINDABLE = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})
_OUTCOMES = {
    MergeStatus.UP_TO_DATE: "already_up_to_date",
    MergeStatus.FAST_FORWARD: "fast_forward",
    MergeStatus.MERGED: "merged",
}


# Tables and schema


async def snapshot(call: Call) -> BodyAnswer:
    """Return the tables at the head of a branch, edges first, sorted by name."""
    branch = canonical_branch(call.query().get("branch"))
    call.require(PolicyAction.READ, branch=branch)

    def read() -> dict[str, Any]:
        head = call.graph.open(graph.ReadTarget(branch)).manifest
        datasets = []
        for key, entry in sorted(head.tables.items()):
            kind, _, name = key.partition(":")
            datasets.append(
                {
                    "entity_kind": kind,
                    "type_name": name,
                    "dataset_path": entry.path,
                    "published_dataset_version": entry.version,
                    # Branches share datasets, so a branch's content depends on its versions of them.
                    "native_dataset_branch": None,
                    "entity_count": entry.rows,
                }
            )
        return {
            "graph_branch": branch,
            "graph_manifest_version": head.n,
            "graph_commit_id": head.txn_id,
            "internal_schema_version": graph.MANIFEST_FORMAT,
            "datasets": datasets,
        }

    return json_answer(await call.work(read))


async def schema(call: Call) -> BodyAnswer:
    """Return the served schema. Requires the permission to read `main`."""
    call.require(PolicyAction.READ, branch=MAIN)
    return json_answer({"schema_source": call.graph.schema_source.decode()})


async def apply_schema(call: Call) -> BodyAnswer:
    """Refuse to apply a schema, even for actors with permission.

    The schema must come from the cluster folder, because otherwise the ledger would not record it.
    """
    call.require(PolicyAction.SCHEMA_APPLY, target_branch=MAIN)
    message = (
        f"the schema of graph '{call.graph.graph_id}' is declared in the cluster folder and is not changed here: "
        "change the schema file there, run `gitops apply`, and restart the server"
    )
    raise ProblemError(ApiProblem(409, ApiCode.CONFLICT, message))


# Branches


async def list_branches(call: Call) -> BodyAnswer:
    """Return the names of the branches. Requires the permission to read `main`."""
    call.require(PolicyAction.READ, branch=MAIN)
    return json_answer(
        await call.work(lambda: {"branches": sorted(each.name for each in graph.list_branches(call.graph.uri))})
    )


async def create_branch(call: Call) -> BodyAnswer:
    """Create a branch from another branch's head."""
    body: bodies.BranchCreateBody = call.body
    name, origin = canonical_branch(body.name), canonical_branch(body.origin)
    call.require(PolicyAction.BRANCH_CREATE, branch=origin, target_branch=name)
    _refuse_main(name, "created")

    def write(context: graph.WriteContext) -> dict[str, Any]:
        graph.create_branch(call.graph.uri, name, context, graph.ReadTarget(origin))
        return {"uri": call.graph.address, "from": origin, "name": name, "actor_id": context.actor}

    return await _changed(call, name, write)


async def delete_branch(call: Call) -> BodyAnswer:
    """Delete a branch."""
    name = canonical_branch(call.values["branch"])
    call.require(PolicyAction.BRANCH_DELETE, target_branch=name)
    _refuse_main(name, "deleted")

    def write(context: graph.WriteContext) -> dict[str, Any]:
        graph.delete_branch(call.graph.uri, name, context)
        return {"uri": call.graph.address, "name": name, "actor_id": context.actor}

    return await _changed(call, name, write)


async def merge_branches(call: Call) -> BodyAnswer:
    """Merge a branch into another one and then delete it, if this is requested and permitted.

    A completed merge is never undone. If its source was not deleted, the response contains the reason. Raises
    ProblemError 409 with all conflicts.
    """
    body: bodies.BranchMergeBody = call.body
    source, target = canonical_branch(body.source), canonical_branch(body.target)
    call.require(PolicyAction.BRANCH_MERGE, branch=source, target_branch=target)
    refused = None
    if body.delete_branch:
        try:
            call.require(PolicyAction.BRANCH_DELETE, target_branch=source)
        except ProblemError as error:
            refused = error.problem.message

    def write(context: graph.WriteContext) -> dict[str, Any]:
        result = graph.merge_branch(call.graph.uri, source, target, context)
        if result.conflicts:
            raise _conflict(result)
        form = {
            "source": source,
            "target": target,
            "outcome": _OUTCOMES[result.status],
            "actor_id": context.actor,
            "commit": None if result.published is None else commit_form(result.published),
        }
        answer = call.receipt(target, form, "outcome", "commit")
        if not body.delete_branch:
            return answer
        problem = refused
        if problem is None:
            try:
                graph.delete_merged_branch(call.graph.uri, source, target, context)
            except GitopsError as error:
                problem = call.problem(error).message
        failed = {} if problem is None else {"branch_delete_error": problem}
        return {**answer, "branch_deleted": problem is None, **failed}

    return await _changed(call, target, write)


async def _changed(call: Call, branch: str, write: Callable[[graph.WriteContext], dict[str, Any]]) -> BodyAnswer:
    return json_answer(await call.change(branch, _CHANGE_BYTES, lambda: write(call.writing)))


def _refuse_main(name: str, verb: str) -> None:
    if name == MAIN:
        raise bad_request(f"branch {MAIN} is the graph itself: it cannot be {verb}")


def _conflict(result: BranchMergeResult) -> RowsProblemError:
    conflicts = []
    for problem in result.conflicts:
        form = problem.to_json()
        conflicts.append(
            {
                "entity_kind": form["type_kind"],
                "type_name": form["type"],
                "entity_id": form["id"],
                "property": form["property"] or None,
                "kind": _CAPITAL.sub("_", problem.kind).lower(),
                "message": problem.detail,
            }
        )
    named = [f"{each['type_name']} {each['entity_id']}: {each['message']}" for each in conflicts[:_CONFLICTS_SHOWN]]
    rest = f" and {len(conflicts) - _CONFLICTS_SHOWN} more" if len(conflicts) > _CONFLICTS_SHOWN else ""
    message = f"{result.source} and {result.into} conflict, and nothing was merged: {'; '.join(named)}{rest}"
    return RowsProblemError(ApiProblem(409, ApiCode.CONFLICT, message, {"merge_conflicts": conflicts}))


# Commits


async def list_commits(call: Call) -> BodyAnswer:
    """Return a branch's commits that are still kept, newest first."""
    query = call.query()
    branch, limit = canonical_branch(query.get("branch")), read_limit(query, _MOST_COMMITS)
    call.require(PolicyAction.READ, branch=branch)
    read = {branch: True}

    def seen(each: graph.Manifest) -> bool:
        # A copy contains the commits of the original branch, which may be closed to the actor.
        if each.branch not in read:
            read[each.branch] = call.may(PolicyAction.READ, branch=each.branch)
        return read[each.branch]

    return json_answer(
        await call.work(
            lambda: {
                "commits": [commit_form(each) for each in graph.read_log(call.graph.uri, branch, limit) if seen(each)]
            }
        )
    )


def read_limit(query: Mapping[str, str], most: int) -> int:
    """Return the requested number of items, up to a maximum that is also the default. Raises ProblemError 400."""
    text = query.get("limit", str(most))
    limit = int(text[:9]) if text.isascii() and text.isdecimal() else 0
    if not 1 <= limit <= most:
        raise bad_request(f"limit is a number from 1 to {most}")
    return limit


async def read_commit(call: Call) -> BodyAnswer:
    """Return a commit on any branch. Requires permission to read `main` and the commit's branch."""
    call.require(PolicyAction.READ, branch=MAIN)

    def read() -> dict[str, Any]:
        found = find_commit(call, call.values["commit_id"])
        permit_commit(call, found)
        return commit_form(found.manifest)

    return json_answer(await call.work(read))


def find_commit(call: Call, commit: str) -> graph.Snapshot:
    """Return the version with this commit id, on the branch that contains it.

    Raises ProblemError 404, and the errors of `ServedGraph.open`.
    """
    if not is_ulid(commit):
        raise _missing(commit)
    try:
        return call.graph.open(graph.ReadTarget(commit=commit))
    except GitopsError as error:
        if error.code in _UNFINDABLE:
            raise _missing(commit) from None
        raise


def permit_commit(call: Call, found: graph.Snapshot) -> None:
    """Check that the actor may read the commit's branch. Otherwise raise ProblemError 404, as for a missing commit."""
    try:
        call.require(PolicyAction.READ, branch=found.branch)
    except ProblemError as error:
        raise _missing(found.manifest.txn_id) if error.problem.status == _FORBIDDEN else error from None


def _missing(commit: str) -> ProblemError:
    return not_found(f"commit '{commit[:80]}' not found")


# Loads into a branch, as a single commit
#
# 1. The actor must be allowed to change the branch. A missing branch is created only if the request specifies its
#    origin and the actor is allowed to create it.
# 2. Only then is the first byte of the records read.
# 3. Refused records leave neither rows nor a branch behind.


async def load_document(call: Call) -> BodyAnswer:
    """Load the records in a member of the body."""
    body: bodies.LoadBody = call.body
    branch = canonical_branch(body.branch)
    mode = graph.LoadMode(body.mode or graph.LoadMode.MERGE)
    load = await _permit_load(call, branch, None if body.origin is None else canonical_branch(body.origin), mode)
    data = body.data.encode(errors="surrogatepass")
    return json_answer(await call.change(branch, len(data), lambda: _load(call, load, io.BytesIO(data))))


async def load_stream(call: Call) -> BodyAnswer:
    """Load the records in the body."""
    call.require_media_type(NDJSON)
    query = call.query()
    branch, mode = canonical_branch(query.get("branch")), query.get("mode", graph.LoadMode.MERGE.value)
    if mode not in tuple(graph.LoadMode):
        raise bad_request(f"mode is one of {', '.join(graph.LoadMode)}")
    origin = canonical_branch(query["from"]) if "from" in query else None
    load = await _permit_load(call, branch, origin, graph.LoadMode(mode))
    announced = call.header("content-length")
    # The length of a chunked body is not known in advance.
    size = int(announced[:20]) if announced and announced.isdecimal() else STREAM_BYTES
    return json_answer(
        await call.change_of(branch, size, receive_aside(call), lambda records: _load(call, load, records))
    )


@dataclass(frozen=True, slots=True)
class _PermittedLoad:
    """A permitted load. `origin` is the branch requested as `from`; `base` is the same if the branch is missing."""

    branch: str
    origin: str | None
    base: str | None
    mode: graph.LoadMode


async def _permit_load(call: Call, branch: str, origin: str | None, mode: graph.LoadMode) -> _PermittedLoad:
    """Return the load if it is permitted. Raises the errors of `Call.require`."""
    base = origin
    if origin is not None:
        known = await call.work(lambda: graph.list_branches(call.graph.uri))
        if any(each.name == branch for each in known):
            base = None
        else:
            call.require(PolicyAction.BRANCH_CREATE, branch=origin, target_branch=branch)
    call.require(PolicyAction.CHANGE, branch=branch)
    return _PermittedLoad(branch, origin, base, mode)


def _load(call: Call, load: _PermittedLoad, records: BinaryIO) -> dict[str, Any]:
    """Load strict records, and return the receipt.

    Raises ProblemError 400 with the first problems in the records, 409 for keys that already exist, and any error from
    reading.
    """
    wanted = graph.LoadRequest(call.graph.uri, records, load.mode, load.branch, load.base)
    try:
        result = graph.load_records(wanted, call.writing)
    except graph.LoadError as error:
        problems = [
            {
                "line": None if each.source is None else each.source.line,
                "code": each.code.value,
                "message": each.message,
            }
            for each in error.problems
        ]
        more = {"problems": problems, "total_problems": error.total}
        # All problems of a load belong to one stage: if a key already exists, the records themselves are valid.
        if error.clash is not None and all(each["code"] == Code.KEY_CONFLICT for each in problems):
            (kind, _, name), entity = error.clash[0].partition(":"), error.clash[1]
            more = {"key_conflict": {"entity_kind": kind, "type_name": name, "entity_id": entity}, **more}
            raise RowsProblemError(ApiProblem(409, ApiCode.CONFLICT, error.detail, more)) from None
        problem = ApiProblem(400, ApiCode.BAD_REQUEST, error.detail, more)
        # Until records are compared with the branch, their problems don't reveal its content.
        raise RowsProblemError(problem, None if error.joint else problem) from None
    except GitopsError as error:
        if error.code == Code.GRAPH_BRANCH_MISSING and load.base is None:
            missing = call.problem(error).message
            raise not_found(f"{missing}; to make it, name the branch to make it from as `from`") from None
        raise
    form = {
        "uri": call.graph.address,
        "branch": load.branch,
        "base_branch": load.origin,
        "branch_created": load.base is not None and result.published is not None,
        "mode": load.mode.value,
        "nodes": _counts(result.rows, "node"),
        "edges": _counts(result.rows, "edge"),
        "total_entities": sum(result.rows.values()),
        "commit": None if result.published is None else commit_form(result.published),
        "actor_id": call.actor,
    }
    return call.receipt(load.branch, form, "commit")


def _counts(rows: Mapping[str, int], kind: str) -> list[dict[str, Any]]:
    of_kind = {key.partition(":")[2]: count for key, count in rows.items() if key.startswith(f"{kind}:")}
    return [{"name": name, "entities_loaded": of_kind[name]} for name in sorted(of_kind)]


# Exports, in the format that a load reads


async def export_records(call: Call) -> StreamAnswer:
    """Return a branch's records."""
    body: bodies.ExportBody = call.body or bodies.ExportBody()
    return await stream_export(call, body.branch, lambda found: graph.export_records(found, body.type_names or None))


async def stream_export(
    call: Call,
    branch: str | None,
    export: Callable[[graph.Snapshot], Iterable[str]],
    headers: Callable[[graph.Snapshot], Mapping[str, str]] = lambda _: {},
) -> StreamAnswer:
    """Return the lines of an `export` of a branch's head, with its commit and further headers.

    All refusals happen before the first piece: an unknown branch, unknown types, and tables that cannot be opened. The
    iterator raises any later failure, because the data is then incomplete.
    """
    name = canonical_branch(branch)
    call.require(PolicyAction.EXPORT, branch=name)

    def begin() -> tuple[Mapping[str, str], Generator[bytes, None, None]]:
        found = call.graph.open(graph.ReadTarget(name))
        return {"Omnigraph-Snapshot-Id": found.manifest.txn_id, **headers(found)}, cut_pieces(export(found))

    slots = call.shared.streams
    await slots.take()
    try:
        given, pieces = await call.work(begin)
    except BaseException:
        slots.free()
        raise
    return StreamAnswer(PieceStream(call, pieces), f"{NDJSON}; charset=utf-8", headers=given)


def cut_pieces(lines: Iterable[str], size: int = _PIECE_BYTES) -> Generator[bytes, None, None]:
    """Join lines, with line ends, into pieces of a maximum size, each created on demand."""
    piece = bytearray()
    for line in lines:
        piece += line.encode()
        piece += b"\n"
        while len(piece) >= size:
            yield bytes(piece[:size])
            del piece[:size]
    if piece:
        yield bytes(piece)


_LIMIT = Parameter("limit", "At most so many, newest first.", schema={"type": "integer", "minimum": 1})
_FROM = Parameter("from", "The branch to make the branch from, if it is missing.")
_MODE = Parameter("mode", "What happens to rows that exist.", schema={"type": "string", "enum": list(graph.LoadMode)})
_LOAD_PROBLEMS = (404, 409, 429)

ROUTES = (
    Route(
        "GET",
        f"{GRAPH}/snapshot",
        "getSnapshot",
        "The datasets at the head of a branch",
        snapshot,
        bodies.SnapshotAnswer,
        query=(BRANCH,),
    ),
    Route("GET", f"{GRAPH}/schema", "getSchema", "The schema that is served", schema, bodies.SchemaAnswer, cached=True),
    Route(
        "POST",
        f"{GRAPH}/schema/apply",
        "applySchema",
        "Refused: schemas are applied from the cluster folder",
        apply_schema,
        bodies.ProblemBody,
        bodies.SchemaApplyBody,
        problems=(409,),
    ),
    Route(
        "GET", f"{GRAPH}/branches", "listBranches", "The names of the branches", list_branches, bodies.BranchesAnswer
    ),
    Route(
        "POST",
        f"{GRAPH}/branches",
        "createBranch",
        "Make a branch",
        create_branch,
        bodies.BranchCreatedAnswer,
        bodies.BranchCreateBody,
        problems=(404, 409, 429),
    ),
    Route(
        "DELETE",
        f"{GRAPH}/branches/{{branch}}",
        "deleteBranch",
        "Delete a branch",
        delete_branch,
        bodies.BranchAnswer,
        problems=(404, 429),
    ),
    Route(
        "POST",
        f"{GRAPH}/branches/merge",
        "mergeBranches",
        "Merge a branch into another one",
        merge_branches,
        bodies.BranchMergedAnswer,
        bodies.BranchMergeBody,
        problems=(404, 409, 429),
    ),
    Route(
        "GET",
        f"{GRAPH}/commits",
        "listCommits",
        "The commits of a branch, newest first",
        list_commits,
        bodies.CommitsAnswer,
        query=(BRANCH, _LIMIT),
    ),
    Route(
        "GET",
        f"{GRAPH}/commits/{{commit_id}}",
        "getCommit",
        "One commit",
        read_commit,
        bodies.CommitForm,
        problems=(404,),
    ),
    Route(
        "POST",
        f"{GRAPH}/load",
        "load",
        "Load records into a branch, as one commit",
        load_document,
        bodies.LoadAnswer,
        bodies.LoadBody,
        limit=LOAD_BYTES,
        problems=_LOAD_PROBLEMS,
    ),
    Route(
        "POST",
        f"{GRAPH}/ingest",
        "ingest",
        "As load",
        load_document,
        bodies.LoadAnswer,
        bodies.LoadBody,
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
        bodies.LoadAnswer,
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
        bodies.ExportBody,
        body_optional=True,
        problems=(404, 413),
        gives=(READ_AT,),
    ),
)
