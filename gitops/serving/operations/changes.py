"""What changed: of one commit, and of a branch as a feed that a reader follows from page to page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gitops.cluster.policy.bundle import Action
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph.results import FeedPage, FeedPosition, RowChange
from gitops.serving.answers import ApiProblem, ProblemError, bad_request
from gitops.serving.operations.commits import commit_form, permit_commit
from gitops.serving.operations.permit import Permit, Read

if TYPE_CHECKING:
    from gitops.database.graph import Snapshot
    from gitops.serving.generation import ServedGraph

__all__ = ["MAX_CHANGES", "commit_changes", "parse_cursor", "read_changes"]

MAX_CHANGES = 1000
_GAPS = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})


def parse_cursor(text: str, *, within: bool) -> FeedPosition:
    """The position of a page token, which may be `within` a commit, or of a cursor. Raises UsageError; ProblemError 400."""
    position = graph.parse_position(text)
    if position.after is not None and not within:
        raise bad_request("this is a page token and no cursor: give it as page_token")
    return position


def read_changes(
    served: ServedGraph,
    permit: Permit,
    start: FeedPosition | tuple[str, str],
    types: Sequence[str] = (),
    limit: int = MAX_CHANGES,
) -> Read:
    """The page after a position, or after where a branch is begun: `now`, `beginning` or `after:COMMIT`.

    The work raises ProblemError 410 where versions since then are no longer kept.
    """
    permit(Action.READ, branch=start.branch if isinstance(start, FeedPosition) else start[0])

    def read() -> dict[str, Any]:
        try:
            position = (
                start if isinstance(start, FeedPosition) else graph.feed_position(served.uri, *start, served.cache)
            )
            limits = graph.FeedLimits(changes=limit)
            page = graph.read_feed(served.uri, position, types, limits, memory=served.cache)
        except GitopsError as error:
            if error.code not in _GAPS:
                raise
            message = f"{error.detail}: begin again with POST changes/baseline"
            raise ProblemError(ApiProblem(410, None, message, {"change_feed_gap": {"reason": error.code}})) from None
        return {"graph_branch": position.branch, "head_commit_id": page.head.commit, **_page_form(page)}

    return read


def commit_changes(
    served: ServedGraph, permit: Permit, found: Snapshot, token: str | None = None, types: Sequence[str] = ()
) -> Read:
    """What a commit changed of its first parent, page by page; `found` is as `find_commit` gives it.

    Raises ProblemError 404 as for a commit that does not exist where the actor may not read the branch that has it, and 400 for a
    token that is not of this commit.
    """
    n = found.manifest.n
    position = None if token is None else graph.parse_position(token)
    permit_commit(permit, found)
    if position is not None and (position.n, position.branch) != (n - 1, found.branch):
        raise bad_request("the page token is of another commit")

    def read() -> dict[str, Any]:
        form = {"commit": commit_form(found.manifest)}
        if n == 1:
            # The first version of a graph has no rows.
            return {**form, "changes": [], "page_token": None}
        begin = position or graph.position_of(served.open(graph.ReadTarget(found.branch, version=n - 1)))
        page = _page_form(graph.read_feed(served.uri, begin, types, last=n))
        return {**form, "changes": page["changes"], "page_token": page["page_token"]}

    return read


def _page_form(page: FeedPage) -> dict[str, Any]:
    token, whole = page.position.token, page.position.after is None
    return {
        "commits": [commit_form(each) for each in page.commits],
        "changes": [_change_form(commit, change) for commit, change in page.changes],
        "cursor": token if whole else None,
        "page_token": None if page.complete else token,
    }


def _change_form(commit: str, change: RowChange) -> dict[str, Any]:
    kind, _, name = change.table.partition(":")
    form = change.to_json()
    return {
        "graph_commit_id": commit,
        "entity_kind": kind,
        # A type that the newer version does not have is marked in the key of its table.
        "type_name": name.partition(" ")[0],
        "entity_id": change.id,
        "kind": change.kind.value,
        **{name: form[name] for name in ("fields", "before", "after")},
    }
