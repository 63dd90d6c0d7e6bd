"""Routes for changes in this server's format: a commit's changes, and a branch's changes as a feed with pages.

In contrast to the feed at `changes`, this feed continues across schema changes and shows which of a row's properties
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.cluster.policy.bundle import PolicyAction
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph.results import FeedPage
from gitops.serving.answers import NDJSON, BodyAnswer, StreamAnswer, bad_request, json_answer
from gitops.serving.http.bodies import ExportBody, FeedAnswer, FeedCommitAnswer
from gitops.serving.http.call import Call, canonical_branch
from gitops.serving.http.change_routes import GAPS, gap, permit_origins
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

_BASELINE = "feed/baseline"
_MOST_CHANGES = 1000


async def read_feed(call: Call) -> BodyAnswer:
    """Return a page of a branch's changes, after a cursor or token, or from `now`, `beginning` or `after:COMMIT`.

    Raises ProblemError 403 like `permit_origins`, and 410 if versions since then are no longer kept.
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
        begin = position
        try:
            begin = begin or graph.feed_position(served.uri, branch, query["start"], served.cache)
            permit_origins(call, begin, _BASELINE)
            page = graph.read_feed(served.uri, begin, types, graph.FeedLimits(changes=limit), memory=served.cache)
        except GitopsError as error:
            if error.code not in GAPS:
                raise
            raise gap(call, error, branch, 1 if begin is None else begin.n, _BASELINE) from None
        return {"graph_branch": begin.branch, "head_commit_id": page.head.commit, **_page_form(page)}

    return json_answer(await call.work(read))


async def read_feed_commit(call: Call) -> BodyAnswer:
    """Return a commit's changes relative to its first parent, page by page.

    Raises ProblemError 404 for a missing commit, or one on a branch that the actor may not read, and 400 for a token
    from a different commit.
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
                # A type that the newer version lacks is marked in its table's key.
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


async def read_feed_baseline(call: Call) -> StreamAnswer:
    """Return all of a branch's records, and the position from which its changes continue."""
    body: ExportBody = call.body or ExportBody()
    return await stream_export(
        call,
        body.branch,
        lambda found: graph.export_records(found, body.type_names or None),
        lambda found: {"Omnigraph-Change-Cursor": graph.position_of(found).token},
    )


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

ROUTES = (
    Route(
        "GET",
        f"{GRAPH}/feed",
        "readFeed",
        "What changed on a branch since a cursor, also across changes of the schema",
        read_feed,
        FeedAnswer,
        query=_FEED,
        problems=(404, 410),
    ),
    Route(
        "POST",
        f"{GRAPH}/feed/baseline",
        "readFeedBaseline",
        "All records of a branch, with the cursor of what changes afterwards in the header `Omnigraph-Change-Cursor`",
        read_feed_baseline,
        NDJSON,
        ExportBody,
        body_optional=True,
        problems=(404, 413),
        gives=(READ_AT, Parameter("Omnigraph-Change-Cursor", "Where the changes after these records begin.")),
    ),
    Route(
        "GET",
        f"{GRAPH}/feed/commits/{{commit_id}}",
        "readFeedCommit",
        "What a commit changed of its first parent",
        read_feed_commit,
        FeedCommitAnswer,
        query=(_TOKEN, _TYPES),
        problems=(404,),
    ),
)
