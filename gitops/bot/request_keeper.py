"""Change requests in a repository that is its own forge. Topic branches open, update and close them, and merges end them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Protocol, runtime_checkable

from gitops.bot.context import EventContext
from gitops.cluster.ledger.chain import BRANCHES
from gitops.core.errors import GitopsError
from gitops.forge.people import COMMENTS, RequestBook, take_in_comment
from gitops.forge.port import ChangeRequest, Forge
from gitops.git.port import ZERO, RefUpdate
from gitops.render.characters import visible
from gitops.repository.changes import changes_cluster, is_merged_by
from gitops.repository.results import LogLine, error_line

HEADS = "refs/heads/"
_MAX_TITLE = 200


@runtime_checkable
class RequestKeeper(RequestBook, Forge, Protocol):
    """A forge on which the bot itself opens and closes change requests."""

    def mark_merged(self, number: int, commit: str) -> ChangeRequest:
        """Record that a commit on the target branch contains the request."""
        ...


def is_topic(context: EventContext, ref: str) -> bool:
    """Return True if change requests can be opened from this branch."""
    return ref.startswith(HEADS) and not ref.startswith(BRANCHES) and not context.rules_for(ref)


def heads_that_touch(context: EventContext) -> Callable[[str], bool]:
    """Return a function that checks whether a topic branch's head changes a cluster, its keys or its rules.

    Each head is compared once.
    """
    repository, target = context.repository, context.repository.default_ref
    base, rules = repository.head_of(target), context.rules_for(target)
    return cache(lambda head: any(changes_cluster(repository, rule, base, head) for rule in rules))


def open_or_update(
    context: EventContext, forge: RequestKeeper, source: str, head: str, pusher: str | None
) -> tuple[ChangeRequest, LogLine]:
    """Open or update a topic branch's request at its new head. Returns the request and the action taken."""
    commit = context.store.commit(head)
    subject = visible(commit.message.partition("\n")[0].strip()[:_MAX_TITLE])
    who = visible(pusher or commit.author.email or "unknown")
    request, opened = forge.open_or_update(source, context.repository.default_ref, head, subject or "untitled", who)
    context.refresh()
    word = "opened" if opened else "updated"
    return request, LogLine(f"request {request.number}: {word} for {source.removeprefix(HEADS)}")


def take_in(context: EventContext, forge: RequestKeeper, update: RefUpdate, pusher: str | None) -> LogLine:
    """Add a pushed comment to its request in its author's name."""
    try:
        number = take_in_comment(context.store, context.repository.remote, forge, update, pusher)
    except GitopsError as error:
        return error_line("comment", error)
    return LogLine(f"request {number}: comment added")


def catch_up(context: EventContext, forge: RequestKeeper) -> Iterator[LogLine]:
    """Process request updates from pushes whose hook did not finish. Plans and applies nothing.

    Branches are compared with requests. A branch needs no update if a request, in any state, already had its head.
    """
    repository, target = context.repository, context.repository.default_ref
    for ref, commit in repository.remote.refs(COMMENTS.rstrip("/")).items():
        yield take_in(context, forge, RefUpdate(ref, ZERO, commit), None)
    heads = repository.remote.refs(HEADS.rstrip("/"))
    topics = {ref: head for ref, head in heads.items() if is_topic(context, ref)}
    repository.fetch_commits(*topics.values())
    for request in context.open_requests():
        tip = repository.head_of(request.target)
        if tip is not None and is_merged_by(repository, request, RefUpdate(request.target, ZERO, tip)):
            forge.mark_merged(request.number, tip)
            yield LogLine(f"request {request.number}: merged as {tip[:12]} or before")
        elif request.source not in topics:
            forge.close(request.number)
            yield LogLine(f"request {request.number}: closed, its branch is deleted")
    context.refresh()
    known = {(request.source, request.head) for request in forge.requests()}
    sources = {request.source for request in context.open_requests(target)}
    touches = heads_that_touch(context)
    for source, head in topics.items():
        if (source, head) in known:
            continue
        try:
            if source in sources or touches(head):
                yield open_or_update(context, forge, source, head, None)[1]
        except GitopsError as error:
            # Anyone can push a branch that cannot be compared. The other branches must still get their requests.
            yield error_line(source.removeprefix(HEADS), error)
