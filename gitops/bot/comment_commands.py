"""Executes the commands that people write in comments.

1. A comment that is not a command, or that a machine wrote, is ignored.
2. The author must currently be allowed to give commands. The forge is queried for the account by its id, because the
   event's author cannot be trusted. Without permission, the bot only adds a reaction.
3. The comment must exist on the forge, by that account and with the same command, because an event can be forged or
   late.
4. The comment must be unedited, because anyone with write access to the repository can insert a command into another
   account's comment.
5. The line must be exactly a command.
6. The comment must not be older than its head.
7. `approve` must contain the digest of the current plan, and `preview` the current head.
8. The command is executed and answered with a reaction. A refusal also appears in the bot's comment.

A comment that is delivered twice does no harm. Planning, explaining or applying again has no effect, an unlock contains
the id of the lock that it removes, an approval is not given twice, and after a successful retry there is nothing left
to retry. A repeated command would be refused, because the request is merged or the lock is gone. Its reaction shows
that it was executed, so no refusal is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gitops.bot.apply_clusters import apply_cluster
from gitops.bot.attestations import attest_command, missing_permission
from gitops.bot.command_syntax import CommandAction, CommentCommand, MalformedCommand, parse_command
from gitops.bot.context import EventContext
from gitops.bot.landed import newest_changesets
from gitops.bot.plan_requests import plan_request, refresh_warnings
from gitops.bot.previews import preview_request
from gitops.bot.report import retry_command
from gitops.bot.sweep import sweep_cluster
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.changeset import BLOCKING, ChangesetState
from gitops.cluster.session.status import force_unlock
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.forge.events import CommentEvent
from gitops.forge.port import ChangeRequest, Comment, Reaction, RequestState
from gitops.render.comment import marker
from gitops.render.comment_inputs import RefusedCommand
from gitops.render.markdown import code, hidden, text
from gitops.repository.results import LogLine, RunResult, combined_result, logged

_ANSWER = hidden("gitops answer")
_UNLOCKED = "an interrupted run left this merge, and a person removed its lock"
_MOST_CHARACTERS = 65_536


def carry_out_comment(context: EventContext, event: CommentEvent) -> Iterator[LogLine]:
    """Execute the command in a comment, if there is one."""
    parsed = None if event.author.bot else parse_command(event.body)
    if parsed is None:
        yield LogLine("the comment is not a command")
        return
    named = None if isinstance(parsed, MalformedCommand) else parsed.cluster
    known = [rule for rule in context.clusters if named in (None, rule.name)]
    try:
        missing = missing_permission(context, event.author, known or context.clusters)
    except RemoteError as error:
        missing = f"{error.code}: {error.detail}"
    if missing:
        yield from _react(context, event, Reaction.REFUSED)
        yield LogLine(f"command refused: command_refused: {missing}", RunResult.PROBLEMS)
        return
    request = context.forge.request(event.number)
    if isinstance(parsed, MalformedCommand):
        yield from _refuse(context, event, request, parsed, GitopsError(Code.COMMAND_INVALID, parsed.why))
        return
    try:
        comment = _confirmed(context, event, parsed)
        if comment.edited:
            # Add no reaction and no text: on GitLab, a comment that has an answer counts as edited when its event is
            # repeated.
            yield LogLine("the comment was edited after it was written, and is not a command: write a new one")
            return
        event = replace(event, at=comment.at)
        _check_age(context, event, request)
        # Finish this before the reaction shows the result.
        lines = tuple(_carry_out(context, event, request, parsed))
    except GitopsError as error:
        yield from _refuse(context, event, request, parsed, error)
        return
    yield from lines
    if combined_result(line.result for line in lines) is not RunResult.PROBLEMS:
        yield from _react(context, event, Reaction.DONE)
    elif not _was_carried_out(context, event):
        yield from _react(context, event, Reaction.REFUSED)


def _confirmed(context: EventContext, event: CommentEvent, command: CommentCommand) -> Comment:
    """Return the comment from the forge. Raises GitopsError `command_refused` if the forge has no such comment.

    Anyone who can start a job can pass it an event, so an attestation must not rely on the event.
    """
    found = next((c for c in context.forge.comments(event.number) if c.id == event.comment), None)
    if found is None or found.account != event.author.id or parse_command(found.body) != command:
        detail = f"the forge has no comment {event.comment[:40]} by {event.author.login} with this command"
        raise GitopsError(Code.COMMAND_REFUSED, detail)
    return found


def _check_age(context: EventContext, event: CommentEvent, request: ChangeRequest) -> None:
    """Refuse a comment that is older than the current head, as far as dates show.

    Commands that need certainty also contain a digest.
    """
    context.repository.fetch_heads([request])
    written = parse_timestamp(event.at)
    if written is None or not context.repository.has_head(request):
        raise GitopsError(Code.COMMAND_REFUSED, "the head of the request no longer exists")
    if written.timestamp() < context.store.commit(request.head).committer.time:
        detail = f"the comment is older than the head {request.head[:12]}; read its plan, then comment again"
        raise GitopsError(Code.COMMAND_REFUSED, detail)


def _carry_out(
    context: EventContext, event: CommentEvent, request: ChangeRequest, command: CommentCommand
) -> Iterator[LogLine]:
    """Execute a command for the given cluster, or for the only cluster that follows the request's target.

    A plan without a cluster is made for all of them.
    """
    following = context.rules_of(request)
    rules = [rule for rule in following if command.cluster in (None, rule.name)]
    if len(rules) > 1 and command.action is CommandAction.PLAN and request.state is RequestState.OPEN:
        yield from plan_request(context, request)
        yield from refresh_warnings(context, request.target)
        return
    if len(rules) != 1:
        known = ", ".join(rule.name for rule in following) or "none"
        code = Code.CLUSTER_AMBIGUOUS if rules else Code.CLUSTER_NOT_FOUND
        raise GitopsError(code, f"select one of the clusters of this branch with --cluster: {known}")
    (rule,) = rules
    if command.action is CommandAction.UNLOCK:
        yield from _unlock(context, rule, command.lock_id)
    elif command.action is CommandAction.RETRY and request.state is RequestState.MERGED:
        yield from retry_merge(context, rule, request.merged_as)
    elif request.state is not RequestState.OPEN:
        raise GitopsError(Code.REQUEST_CLOSED, f"request {request.number} is {request.state.value}")
    elif command.action is CommandAction.PREVIEW:
        yield from _preview(context, rule, request, command.head)
    elif command.action is CommandAction.APPROVE:
        yield from attest_command(context, rule, request, command, event)
        yield from plan_request(context, request, cluster=rule.name)
        yield from refresh_warnings(context, request.target)
    else:
        explained = (command.address,) if command.action is CommandAction.EXPLAIN else ()
        yield from plan_request(context, request, cluster=rule.name, explained=explained)
        yield from refresh_warnings(context, request.target)


def _preview(context: EventContext, rule: ClusterRule, request: ChangeRequest, head: str) -> Iterator[LogLine]:
    """Preview the head that the author of the comment reviewed, even of a fork. Raises GitopsError `command_refused`."""
    if not context.config.preview.enabled:
        raise GitopsError(Code.COMMAND_REFUSED, "previews are off: preview.enabled in gitops.yaml is false")
    if head != request.head:
        detail = f"the head is now {request.head}; review it, then comment again"
        raise GitopsError(Code.COMMAND_REFUSED, detail)
    yield from preview_request(context, request, cluster=rule.name, asked=True)


def _unlock(context: EventContext, rule: ClusterRule, lock_id: str) -> Iterator[LogLine]:
    """Remove a lock by its id, then continue what its run left. It is not an error if the lock is already gone."""
    head = context.repository.head_of(rule.ref)
    if head is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {rule.branch} does not exist", path=rule.name)
    outcome = force_unlock(context.workspace_at(rule, head, in_place=True), lock_id)
    for each in outcome.diagnostics:
        if each.severity == "error" and each.code != Code.STATE_LOCK_MISSING:
            raise GitopsError(each.code, each.message, path=each.path)
    yield LogLine(f"unlock of {rule.name}: {'removed' if outcome.lock_removed else 'the lock is not held'}")
    # The run that held it may have left a merge without a result.
    yield from sweep_cluster(context, rule, _UNLOCKED)


def _refuse(
    context: EventContext,
    event: CommentEvent,
    request: ChangeRequest,
    parsed: CommentCommand | MalformedCommand,
    error: GitopsError,
) -> Iterator[LogLine]:
    """Answer with a reaction, and show the reason in the plan's comment.

    Does neither if the command was executed before.
    """
    if _was_carried_out(context, event):
        yield LogLine(f"the command was carried out before, and would be refused now: {error.code}: {error.detail}")
        return
    yield from _react(context, event, Reaction.REFUSED)
    yield LogLine(f"command refused: {error.code}: {error.detail}", RunResult.PROBLEMS)
    words, cluster = ("/gitops", None) if isinstance(parsed, MalformedCommand) else (str(parsed), parsed.cluster)
    known = cluster if cluster in {rule.name for rule in context.clusters} else None
    refused = RefusedCommand(words, error.code, error.detail if error.fix is None else f"{error.detail}; {error.fix}")
    try:
        if request.state is RequestState.OPEN:
            yield from plan_request(context, request, cluster=known, refusals=(refused,))
        elif request.state is RequestState.MERGED:
            _answer_below(context, request, known, refused)
    except GitopsError as problem:
        yield LogLine(f"the refusal is not in the comment: {problem.code}: {problem.detail}")


def _answer_below(context: EventContext, request: ChangeRequest, cluster: str | None, refused: RefusedCommand) -> None:
    """Explain below a merged request's report why a command was refused, replacing an earlier explanation.

    Without a `cluster` or a report, only the reaction shows the refusal. Raises GitopsError.
    """
    rules = context.rules_of(request)
    mark = marker(cluster or rules[0].name) if cluster or len(rules) == 1 else None
    first = "" if mark is None else hidden(mark)
    own = (c.body for c in context.forge.comments(request.number) if c.marker is not None)
    report = next((body for body in own if first and body.startswith(first)), None)
    if mark is None or report is None:
        return
    said = f"### Refused commands\n\n- {code(refused.command)}: {code(refused.code)}, {text(refused.message)}\n"
    body = f"{report.partition(_ANSWER)[0].rstrip()}\n\n{_ANSWER}\n{said}"
    if len(body) <= _MOST_CHARACTERS:
        context.forge.upsert_comment(request.number, mark, body)


def _was_carried_out(context: EventContext, event: CommentEvent) -> bool:
    """Return whether an earlier run executed the command, as its reaction shows."""
    try:
        return Reaction.DONE in context.forge.reactions(event.number, event.comment)
    except GitopsError:
        return False


def _react(context: EventContext, event: CommentEvent, reaction: Reaction) -> Iterator[LogLine]:
    if context.forge.features.reactions:
        failure = "the reaction to the comment is not written"
        yield from logged(failure, lambda: context.forge.react(event.number, event.comment, reaction))


# -- `/gitops retry` in a merged request: retry its failed changeset ---------------------------------------------------
# | state of the merge | answer |
# | --- | --- |
# | its own changeset failed | the next attempt, with `retry_of`; then the merges waiting after it |
# | a later merge included it, and failed as well | refused, because the later merge must be retried |
# | a changeset is being applied now | refused: `changeset_active` with its key |
# | it landed, and the cluster has no waiting changes | refused, because there is nothing left to retry |
# | it is still waiting, or other changes of the cluster are | applied, as after a push |


def retry_merge(context: EventContext, rule: ClusterRule, merge: str | None) -> Iterator[LogLine]:
    """Retry a request's merge, by the table in the module docstring. `merge` is the merge commit.

    Raises ConflictError `changeset_active`, `changeset_state_invalid`, and the ledger's errors.
    """
    _check_active(context, rule)
    again = None if merge is None else _failed(context, rule, merge)
    yield from apply_cluster(context, rule, asked=True, again=again)


def _check_active(context: EventContext, rule: ClusterRule) -> None:
    ledger = context.repository.ledger(rule)
    going_on = (each.key for each in ledger.changesets().open if each.state in BLOCKING)
    active, lock = next(going_on, None), ledger.observe_lock()
    # If no one holds the lock, the run has crashed, and this run continues its work.
    if active is not None and lock.held:
        fix = f"wait for it: gitops changeset watch {active}; if its run is over: /gitops unlock {lock.unlock_id}"
        raise ConflictError(Code.CHANGESET_ACTIVE, f"changeset {active} is being applied now", path=active, fix=fix)


def _failed(context: EventContext, rule: ClusterRule, merge: str) -> str | None:
    """Return the merge if its own changeset failed.

    Returns None if the merge, or other work of the cluster, is only waiting.
    """
    position, store = context.position(rule), context.store
    found = newest_changesets(context, rule, merge)
    failed = [each for each in found if each.state is ChangesetState.FAILED]
    applied = position.applied
    if applied is not None and store.is_ancestor(merge, applied):
        if position.converged:
            by = f"changeset {found[0].key}" if found and not failed else f"commit {applied[:12]}"
            detail = f"nothing is left to retry: commit {merge[:12]} is applied with {by}"
            raise ConflictError(Code.CHANGESET_STATE_INVALID, detail, path=rule.name)
        return None
    if failed and failed[0].source.merge_commit != merge:
        later = failed[0].source.merge_commit or ""
        detail = f"commit {later[:12]} was merged later and includes it in changeset {failed[0].key}, which failed"
        raise ConflictError(
            Code.CHANGESET_STATE_INVALID,
            detail,
            path=failed[0].key,
            fix=f"retry that one: {retry_command(context, rule, failed[0])}",
        )
    return merge if failed else None
