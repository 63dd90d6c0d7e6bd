"""Commands in comments, carried out.

1. A comment that is no command, or that a machine wrote, is nothing. 2. The author may do it now, as the forge says when asked
for the account by its number: what an event says of its author counts for nothing. A stranger gets a reaction and no work at all.
3. The forge has the comment, of that account, and it still says the same: an event may be made up, or late. 4. The line is a
command to the letter. 5. The comment is not older than the head that it would be about. 6. `approve` names the digest of the very
plan that is made now. 7. It is done, and answered by a reaction; a refusal also stands in the one comment.

A comment that is delivered twice does no harm, and nothing needs to be remembered of it: planning, explaining and applying
again change nothing by themselves, an unlock names the one lock that it removes, and an approval is not given twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gitops.bot.apply_clusters import Applier
from gitops.bot.attestations import Attester, lacks
from gitops.bot.command_syntax import Action, Command, Malformed, parse_command
from gitops.bot.context import Bot
from gitops.bot.plan_requests import Asked, Planner
from gitops.bot.results import Note, Verdict, overall
from gitops.cluster.unlock import force_unlock
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent
from gitops.forge.port import ChangeRequest, Reaction, RequestState
from gitops.render.comment_inputs import RefusedCommand

__all__ = ["Commander"]

_LOCK_GONE = Code.STATE_LOCK_MISSING


class Commander:
    """Answers comments under the rules of the target branch."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` is that of the target branch."""
        self._bot = bot
        self._project = bot.project
        self._config = config
        self._planner = Planner(bot, config)

    def run(self, event: CommentEvent) -> Iterator[Note]:
        """Carry out what one comment asks for, if anything."""
        parsed = None if event.author.bot else parse_command(event.body)
        if parsed is None:
            yield Note("the comment is no command")
            return
        lacking = lacks(self._bot, self._config, event.author)
        if lacking:
            yield from self._react(event, Reaction.REFUSED)
            yield Note(f"command refused: command_refused: {lacking}", Verdict.PROBLEMS)
            return
        request = self._bot.forge.request(event.number)
        if isinstance(parsed, Malformed):
            yield from self._refuse(event, request, parsed, GitopsError(Code.COMMAND_INVALID, parsed.why))
            return
        try:
            told = self._confirmed(event, parsed)
            self._check_age(told, request)
            notes = tuple(self._carry_out(told, request, parsed))
        except GitopsError as error:
            yield from self._refuse(event, request, parsed, error)
            return
        yield from notes
        failed = overall(n.verdict for n in notes) is Verdict.PROBLEMS
        yield from self._react(event, Reaction.REFUSED if failed else Reaction.DONE)

    def _confirmed(self, event: CommentEvent, command: Command) -> CommentEvent:
        """The event with the time that the forge gives. Raises GitopsError `command_refused` for a comment that is not so there.

        Whoever may start a job can hand it an event: what is attested of an account must not rest on that.
        """
        found = [c for c in self._bot.forge.comments(event.number) if c.id == event.comment]
        if not found or found[0].account != event.author.id or parse_command(found[0].body) != command:
            detail = f"the forge has no comment {event.comment[:40]} of {event.author.login} that says this"
            raise GitopsError(Code.COMMAND_REFUSED, detail)
        return replace(event, at=found[0].at)

    def _check_age(self, event: CommentEvent, request: ChangeRequest) -> None:
        """Refuse what was said of an earlier head, as far as dates tell. What must not go wrong names a digest as well."""
        self._project.fetch_heads([request])
        store = self._project.tools.store
        said = parse_timestamp(event.at)
        if said is None or store.resolve(request.head) is None:
            raise GitopsError(Code.COMMAND_REFUSED, "the head of the request is not there any more")
        if said.timestamp() < store.commit(request.head).committer.time:
            detail = f"the comment is older than the head {request.head[:12]}; look at its plan, then say it again"
            raise GitopsError(Code.COMMAND_REFUSED, detail)

    def _carry_out(self, event: CommentEvent, request: ChangeRequest, command: Command) -> Iterator[Note]:
        rule = self._rule(request, command)
        if command.action is Action.UNLOCK:
            yield from self._unlock(rule, command.lock_id)
        elif command.action is Action.RETRY and request.state is RequestState.MERGED:
            yield from Applier(self._bot, self._config).converge(rule)
        elif request.state is not RequestState.OPEN:
            raise GitopsError(Code.REQUEST_CLOSED, f"request {request.number} is {request.state.value}")
        elif command.action is Action.APPROVE:
            attester = Attester(self._bot, self._config)
            yield from attester.command(rule, request, command, event)
            yield from self._plan(request, Asked(only=rule.name))
        else:
            explained = (command.address,) if command.action is Action.EXPLAIN else ()
            yield from self._plan(request, Asked(only=rule.name, explained=explained))

    def _rule(self, request: ChangeRequest, command: Command) -> ClusterRule:
        """The cluster that a command means: by its name, or the only one that follows the target of the request."""
        rules = [r for r in self._config.clusters if r.ref == request.target and command.cluster in (None, r.name)]
        if len(rules) == 1:
            return rules[0]
        known = ", ".join(r.name for r in self._config.clusters if r.ref == request.target) or "none"
        code = Code.CLUSTER_AMBIGUOUS if rules else Code.CLUSTER_NOT_FOUND
        raise GitopsError(code, f"name one of the clusters of this branch with --cluster: {known}")

    def _plan(self, request: ChangeRequest, asked: Asked) -> Iterator[Note]:
        among = self._bot.forge.requests(state=RequestState.OPEN)
        yield from self._planner.request(request, among, asked)

    def _unlock(self, rule: ClusterRule, lock_id: str) -> Iterator[Note]:
        """Remove a lock by its id; one that is gone already is as good."""
        tip = self._project.tip(rule.ref)
        if tip is None:
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"there is no branch {rule.branch}", path=rule.name)
        revision = self._project.at_commit(tip, self._project.standing(rule))
        outcome = force_unlock(self._project.workspace(rule, revision, actor=self._bot.actor), lock_id)
        errors = [d for d in outcome.diagnostics if d.severity == "error" and d.code != _LOCK_GONE]
        if errors:
            raise GitopsError(errors[0].code, errors[0].message, path=errors[0].path)
        yield Note(f"unlock of {rule.name}: {'removed' if outcome.lock_removed else 'the lock is gone already'}")

    def _refuse(
        self, event: CommentEvent, request: ChangeRequest, parsed: Command | Malformed, error: GitopsError
    ) -> Iterator[Note]:
        """Answer by a reaction, and say why in the one comment, which is that of the plan."""
        yield from self._react(event, Reaction.REFUSED)
        yield Note(f"command refused: {error.code}: {error.detail}", Verdict.PROBLEMS)
        if request.state is RequestState.OPEN:
            words = str(parsed) if isinstance(parsed, Command) else "/gitops"
            refused = RefusedCommand(words, error.code, error.detail)
            only = parsed.cluster if isinstance(parsed, Command) else None
            known = only if only in {r.name for r in self._config.clusters} else None
            try:
                yield from self._plan(request, Asked(only=known, refusals=(refused,)))
            except GitopsError as problem:
                yield Note(f"the refusal is not in the comment: {problem.code}: {problem.detail}")

    def _react(self, event: CommentEvent, reaction: Reaction) -> Iterator[Note]:
        if self._bot.forge.features.reactions:
            try:
                self._bot.forge.react(event.number, event.comment, reaction)
            except GitopsError as error:
                yield Note(f"the comment is not answered: {error.code}: {error.detail}")
