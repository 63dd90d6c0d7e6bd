"""Passes an event to its handler, in the same way for a CI job, a hook and a server.

An event is only a hint. Heads, authors and states are read again.

    RequestEvent, ReviewEvent    attest reviews if they count, then plan the request, and update the reports on others
    HeadEvent                    plan the open requests with this head, which an earlier job planned without a token
    ReplanEvent                  plan an open request again, which an apply left for later
    CommentEvent                 execute the command in the comment
    RequestEvent for `preview`   try an open request on copies of the live graphs; remove the copies of a closed one; a
                                 HeadEvent does the same for the open requests with this head
    RequestEvent for `apply`     a merged request: apply its target branch as after a push
    PushEvent                    a target branch: apply its newest commit, then plan the other open requests again;
                                 a signed approval or decision: apply what waited for it, then plan the requests of its cluster
    QueueEvent                   verify the group of a merge queue
    TimerEvent, ManualEvent      sweep, then report drift; for the verbs `tick` and `drill`, run a tick or a drill instead
    TickEvent                    run a tick: let the strategies of compute clusters decide
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gitops.bot.apply_clusters import apply_cluster, plan_again, plan_open_requests, retry_waiting
from gitops.bot.attestations import attest_reviews, reviews_count
from gitops.bot.comment_commands import carry_out_comment
from gitops.bot.context import Bot, EventContext
from gitops.bot.drift import report_drift
from gitops.bot.drill import drill_clusters
from gitops.bot.merge_queue import verify_group
from gitops.bot.plan_requests import plan_requests, refresh_closed
from gitops.bot.previews import preview_event, sweep_previews
from gitops.bot.sweep import sweep, take_in_revocations
from gitops.bot.ticks import tick_clusters
from gitops.cluster.ledger.chain import SIGNED
from gitops.core.errors import GitopsError
from gitops.forge.events import (
    CommentEvent,
    Event,
    HeadEvent,
    IgnoredEvent,
    ManualEvent,
    PushEvent,
    QueueEvent,
    ReplanEvent,
    RequestAction,
    RequestEvent,
    ReviewEvent,
    TickEvent,
    TimerEvent,
)
from gitops.forge.port import ChangeRequest, Push
from gitops.git.port import ZERO
from gitops.repository.results import LogLine


def handle_event(bot: Bot, event: Event) -> Iterator[LogLine]:
    """Handle an event, and yield one line per action. Repeating the call has no further effect.

    Raises GitopsError if `gitops.yaml` of the target branch cannot be read.
    """
    context = EventContext(bot)
    if isinstance(event, IgnoredEvent):
        yield LogLine(f"nothing to do: {event.why}")
    for verb in _VERBS_FOR[type(event)]:
        if verb == "preview" and not (bot.serves and context.config.preview.enabled):
            # In a hook, the person who pushes would wait for it.
            continue
        yield from _carry_out(context, verb, event, None)


def run_verb(bot: Bot, verb: str, event: Event, cluster: str | None = None) -> Iterator[LogLine]:
    """Run one verb of `gitops bot` for an event.

    `cluster` limits `apply`, `sweep`, `drift`, `drill` and `tick` to one cluster. An event that the verb does not handle
    is logged and ignored. Raises GitopsError like `handle_event`.
    """
    yield from _carry_out(EventContext(bot), verb, event, cluster)


def _carry_out(context: EventContext, verb: str, event: Event, cluster: str | None) -> Iterator[LogLine]:
    match verb, event:
        case "plan", RequestEvent(number=number, action=RequestAction.CLOSED | RequestAction.MERGED as action):
            yield LogLine(f"request {number} is {action}: nothing to plan")
            if action is RequestAction.CLOSED:
                yield from refresh_closed(context, number)
        case "plan", RequestEvent(number=number):
            yield from plan_requests(context, lambda r: r.number == number)
        case "plan", ReviewEvent(number=number):
            yield from _attest(context, context.forge.request(number))
            yield from plan_requests(context, lambda r: r.number == number)
        case "plan", HeadEvent(head=head):
            # The job that the review started may have had no key.
            if any(reviews_count(context, rule) for rule in context.clusters):
                for request in context.open_requests():
                    if request.head == head:
                        yield from _attest(context, request)
            yield from plan_requests(context, lambda r: r.head == head)
        case "plan", ReplanEvent() as later:
            yield from plan_again(context, later)
        case "plan", ManualEvent(inputs=inputs):
            # The job was started manually, for the request in the input `request` or for all open requests.
            wanted = dict(inputs).get("request", "")
            yield from plan_requests(context, lambda r: wanted in ("", str(r.number)))
        case "command", CommentEvent() as comment:
            yield from carry_out_comment(context, comment)
        case "apply", PushEvent(ref=ref, new=new) if ref.startswith(SIGNED) and new != ZERO:
            yield from handle_signed_ref(context, ref)
        case "apply", PushEvent(ref=ref) as push:
            yield from _apply_branch(context, ref, push)
        case "apply", RequestEvent(number=number, action=RequestAction.MERGED):
            yield from _apply_branch(context, context.forge.request(number).target)
        case "apply", ManualEvent() | TimerEvent():
            for rule in context.clusters:
                if cluster in (None, rule.name):
                    yield from apply_cluster(context, rule, asked=isinstance(event, ManualEvent))
                    yield from plan_open_requests(context, rule)
        case "preview", RequestEvent() | HeadEvent() | ManualEvent() | TimerEvent():
            yield from preview_event(context, event)
        case "verify", QueueEvent() as group:
            yield from verify_group(context, group)
        case "sweep", _:
            yield from sweep(context, cluster)
            if context.config.preview.enabled:
                yield from sweep_previews(context)
        case "drift", _:
            yield from report_drift(context, cluster)
        case "drill", _:
            yield from drill_clusters(context, cluster)
        case "tick", TickEvent() | TimerEvent() | ManualEvent():
            yield from tick_clusters(context, event, cluster)
        case _, IgnoredEvent(why=why):
            yield LogLine(f"nothing to do: {why}")
        case _, ManualEvent():
            yield LogLine(
                f"nothing to do: gitops bot {verb} needs an event: run it in a CI job, or name a file with --event"
            )
        case _:
            yield LogLine(f"nothing to do: gitops bot {verb} does not handle a {type(event).__name__}")


def _apply_branch(context: EventContext, ref: str, push: PushEvent | None = None) -> Iterator[LogLine]:
    """Apply the clusters that follow a branch, then plan its open requests. `push` moved the branch, if that is known."""
    rules = context.rules_for(ref) if push is None or push.new != ZERO else ()
    announced = None if push is None or push.pusher is None else Push(push.old, push.new, push.pusher)
    for rule in rules:
        yield from apply_cluster(context, rule, announced)
    for rule in rules:
        yield from plan_open_requests(context, rule)
    if not rules:
        yield LogLine(f"no cluster follows {ref}")


def _attest(context: EventContext, request: ChangeRequest) -> Iterator[LogLine]:
    """Attest the reviews of a request for each cluster of its target; a problem does not stop its plan."""
    for rule in context.rules_of(request):
        try:
            yield from attest_reviews(context, rule, request)
        except GitopsError as error:
            yield LogLine(f"reviews of request {request.number}: {error.code}: {error.detail}")


def handle_signed_ref(context: EventContext, ref: str) -> Iterator[LogLine]:
    """Handle a pushed approval, revocation or countersignature.

    Applies the changes that waited for it, and re-plans open requests.
    """
    for rule in context.clusters:
        if ref.startswith(tuple(f"{folder}{rule.name}/" for folder in SIGNED)):
            yield from take_in_revocations(context, rule)
            yield from retry_waiting(context, rule)
            yield from plan_open_requests(context, rule)


_VERBS_FOR: Mapping[type[Event], tuple[str, ...]] = {
    RequestEvent: ("plan", "preview"),
    ReviewEvent: ("plan",),
    HeadEvent: ("plan",),
    ReplanEvent: ("plan",),
    CommentEvent: ("command",),
    PushEvent: ("apply",),
    QueueEvent: ("verify",),
    TimerEvent: ("sweep", "drift"),
    TickEvent: ("tick",),
    ManualEvent: ("sweep", "drift"),
    IgnoredEvent: (),
}
