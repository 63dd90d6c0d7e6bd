"""Handles pushes to a bare repository that is its own forge, by updating its change requests.

No other program manages such a repository's change requests, so this module does. A topic branch that touches a cluster
folder opens or updates a request, deleting the branch closes it, and a push of the target branch that contains it marks
it as merged. The handlers shared with all other forges do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gitops.bot.apply_clusters import apply_cluster, plan_open_requests
from gitops.bot.context import Bot, EventContext, RunTests
from gitops.bot.dispatch import handle_signed_ref
from gitops.bot.plan_requests import plan_request, refresh_warnings
from gitops.bot.previews import end_previews
from gitops.bot.request_keeper import RequestKeeper, heads_that_touch, is_topic, open_or_update, take_in
from gitops.cluster.ledger.chain import SIGNED
from gitops.cluster.model.plan import Observer
from gitops.forge.people import COMMENTS
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.repository.changes import is_merged_by
from gitops.repository.repository import Repository
from gitops.repository.results import LogLine
from gitops.review.previews.port import PreviewBench


def receive_push(
    repository: Repository,
    forge: RequestKeeper,
    updates: Sequence[RefUpdate],
    pusher: str | None = None,
    *,
    actor: str,
    person: Person | None = None,
    on_event: Observer | None = None,
    run_tests: RunTests | None = None,
    previews: PreviewBench | None = None,
) -> Iterator[LogLine]:
    """Handle an accepted push. Yields one line per action, which is shown to the pusher.

    `updates` are the moved refs, `pusher` is the account that pushed, if the server knows it. `actor` is the name for
    ledger entries; `person` commits the stored plans; None means that no plans are stored. `on_event` observes applies,
    `run_tests` judges the query tests of plans, and `previews` ends the previews of closed requests. Raises GitopsError if
    `gitops.yaml` of the target branch cannot be read.
    """
    bot = Bot(repository, forge, actor, person, on_event=on_event, run_tests=run_tests, previews=previews)
    context = EventContext(bot)
    targets = {context.repository.default_ref, *(rule.ref for rule in (*context.clusters, *context.config.clusters))}
    # Handle merges first, so that requests are planned against the applied state.
    for update in updates:
        if update.ref in targets and update.new != ZERO:
            yield from _apply_merged(context, forge, update)
    topics = [u for u in updates if is_topic(context, u.ref)]
    for update in updates:
        if update.ref.startswith(SIGNED) and update.new != ZERO:
            yield from handle_signed_ref(context, update.ref)
        elif update.ref.startswith(COMMENTS) and update.new != ZERO:
            yield take_in(context, forge, update, pusher)
    # A push can move hundreds of branches, so data that they share is read once.
    touches = heads_that_touch(context)
    for update in topics:
        yield from _plan_topic(context, forge, update, pusher, touches)


def _plan_topic(
    context: EventContext, forge: RequestKeeper, update: RefUpdate, pusher: str | None, touches: Callable[[str], bool]
) -> Iterator[LogLine]:
    """Handle a moved topic branch: open, update or close its request, then plan it."""
    target, source = context.repository.default_ref, update.ref
    own = [request for request in context.open_requests(target) if request.source == source]
    if update.new == ZERO:
        for request in own:
            forge.close(request.number)
            context.refresh()
            yield LogLine(f"request {request.number}: closed, its branch is deleted")
            context.moved.add(request.number)
            yield from end_previews(context, request.number)
        yield from refresh_warnings(context, target)
        return
    if not own and not touches(update.new):
        return
    request, line = open_or_update(context, forge, source, update.new, pusher)
    yield line
    yield from plan_request(context, request)
    yield from refresh_warnings(context, target)


def _apply_merged(context: EventContext, forge: RequestKeeper, update: RefUpdate) -> Iterator[LogLine]:
    """Handle a moved target branch: mark the requests that it contains as merged, apply it, then re-plan open requests."""
    merged = [r for r in context.open_requests(update.ref) if is_merged_by(context.repository, r, update)]
    for request in merged:
        forge.mark_merged(request.number, update.new)
        yield LogLine(f"request {request.number}: merged as {update.new[:12]}")
        yield from end_previews(context, request.number)
    context.refresh()
    rules = context.rules_for(update.ref)
    for rule in rules:
        yield from apply_cluster(context, rule)
    for rule in rules:
        yield from plan_open_requests(context, rule)
