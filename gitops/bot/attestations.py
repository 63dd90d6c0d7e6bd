"""Approvals that people give on the forge, turned into attestations that the ledger can carry.

Whether one counts, and for what, is decided by the rules of the ledger. Here it is only made sure what was done, by asking the
forge anew: a command names the digest of the plan that is made now; a review is the newest of its account, is of a commit with
the folder of the head, and says yes. A dismissed one, or one that a later one of the same account took back, is none. Nor is one
of an account that might not give a command now.
"""

from __future__ import annotations

from collections.abc import Iterator

from gitops.approving.attest import attest
from gitops.approving.decide import Office
from gitops.approving.endorse import Endorsement
from gitops.approving.reviews import approving_reviews, withdraw_lapsed
from gitops.bot.authors import Pushers
from gitops.bot.command_syntax import Command
from gitops.bot.context import Bot
from gitops.bot.results import Note
from gitops.cluster.workspace import Workspace
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent
from gitops.forge.port import Account, ChangeRequest, Permission, RequestState
from gitops.model.address import Address
from gitops.model.approval import ForgeGrant, GrantSource
from gitops.model.plan import ApprovalRequirement, Plan
from gitops.plan.plan import plan

__all__ = ["Attester", "lacks"]

_NEEDED = {"write": Permission.WRITE, "maintain": Permission.MAINTAIN, "admin": Permission.ADMIN}


def lacks(bot: Bot, config: BotConfig, account: Account) -> str:
    """What the forge does not let an account do now that commands and reviews need; nothing if it may. Raises RemoteError."""
    needed = config.forge.commands
    return "" if bot.forge.permission(account) >= _NEEDED[needed] else f"this needs the permission {needed}"


class Attester:
    """Attests what was done on the forge."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` is that of the target branch."""
        self._bot = bot
        self._project = bot.project
        self._config = config
        self._pushers = Pushers(bot)

    def command(
        self, rule: ClusterRule, request: ChangeRequest, command: Command, event: CommentEvent
    ) -> Iterator[Note]:
        """Attest `/gitops approve ADDRESS DIGEST`. Raises GitopsError where it does not count."""
        workspace = self._workspace(rule, request)
        made = self._plan(workspace)
        if made.digest != command.digest:
            detail = f"the plan is {made.digest} now, not {command.digest[:12]}; look at it, then approve it"
            raise GitopsError(Code.COMMAND_REFUSED, detail, path=command.address)
        if self._gate(made, command.address).satisfied:
            yield Note(f"approve of {rule.name}: {command.address} is approved already")
            return
        workspace = self._authored(rule, request)
        grant = ForgeGrant(
            account=self._account(event.author.id),
            login=event.author.login,
            request=request.number,
            source=GrantSource.COMMENT,
            reference=event.comment,
            commit=request.head,
            at=event.at,
            url=request.url,
        )
        yield from self._attest(workspace, command.address, grant, rule, command.digest)

    def reviews(self, rule: ClusterRule, request: ChangeRequest) -> Iterator[Note]:
        """Attest the reviews of a request for every gate that is not open yet; what does not count is said and left.

        What was attested before and does not stand any more is taken back first, also where the request is merged by now.
        """
        if not self.counts(rule):
            return
        given = self._bot.forge.reviews(request.number)
        for taken in withdraw_lapsed(self._office(rule), request.number, given, lambda a: self._account(a.id)):
            why = "".join(f": {d.code}: {d.message}" for d in taken.diagnostics)
            yield Note(f"approval {taken.approval_id} of {rule.name}: {'taken back' if taken.ok else 'stands'}{why}")
        if request.state is not RequestState.OPEN:
            return
        workspace = self._workspace(rule, request)
        gates = [r.resource for r in self._plan(workspace).approvals_required if not r.satisfied]
        if not gates:
            return
        workspace = self._authored(rule, request)
        for review in approving_reviews(given, lambda commit: self._same_folder(rule, commit, request.head)):
            # Where a repository is public, anybody may review, also who has left.
            lacking = lacks(self._bot, self._config, review.account)
            if lacking:
                yield Note(f"review of {review.account.login}: command_refused: {lacking}")
                continue
            grant = ForgeGrant(
                account=self._account(review.account.id),
                login=review.account.login,
                request=request.number,
                source=GrantSource.REVIEW,
                reference=review.id,
                commit=review.commit,
                at=review.at,
                url=request.url,
            )
            for address in gates:
                try:
                    yield from self._attest(workspace, Address(address), grant, rule)
                except GitopsError as error:
                    yield Note(f"review of {review.account.login} for {address}: {error.code}: {error.detail}")

    def counts(self, rule: ClusterRule) -> bool:
        """Whether the rules in force take what is done on the forge for any gate, and the bot can sign that it was done."""
        trust = self._project.standing(rule).trust
        able = self._bot.endorsement is not None and self._bot.forge.features.reviews
        return able and trust is not None and "irreversible" in trust.via_forge

    def _workspace(self, rule: ClusterRule, request: ChangeRequest) -> Workspace:
        revision = self._project.at_request(request, self._project.standing(rule))
        return self._project.workspace(rule, revision, actor=self._bot.actor)

    def _authored(self, rule: ClusterRule, request: ChangeRequest) -> Workspace:
        """The same with everybody who pushed to the request as an author, which is asked for only where it matters."""
        return self._workspace(rule, self._pushers.of_request(rule, request, self._project.standing(rule)))

    def _plan(self, workspace: Workspace) -> Plan:
        outcome = plan(workspace)
        if outcome.plan is None:
            first = next((d for d in outcome.diagnostics if d.severity == "error"), None)
            detail = "the plan has errors" if first is None else f"the plan has errors: {first.code}: {first.message}"
            raise GitopsError(Code.COMMAND_REFUSED, detail)
        return outcome.plan

    def _gate(self, made: Plan, address: str) -> ApprovalRequirement:
        for need in made.approvals_required:
            if need.resource == address:
                return need
        gates = ", ".join(r.resource for r in made.approvals_required) or "none"
        raise GitopsError(Code.APPROVAL_NOT_REQUIRED, f"{address} needs no approval; gates: {gates}", path=address)

    def _attest(
        self, workspace: Workspace, address: str, grant: ForgeGrant, rule: ClusterRule, digest: str | None = None
    ) -> Iterator[Note]:
        """Attest one grant; `digest` is that of the plan that it must be about, if it names one."""
        outcome = attest(workspace, Address(address), grant, self._means(rule), plan_digest=digest)
        error = next((d for d in outcome.diagnostics if d.severity == "error"), None)
        if error is not None:
            raise GitopsError(error.code, error.message, path=error.path)
        who = "" if outcome.approval is None else outcome.approval.approved_by
        yield Note(f"approve of {rule.name}: {address} approved by {who} ({grant.login}, {grant.source})")

    def _means(self, rule: ClusterRule) -> Endorsement:
        if self._bot.endorsement is None:
            raise GitopsError(Code.SIGNING_KEY_MISSING, "the bot has no key here to attest an approval with")
        return self._bot.endorsement(rule.name)

    def _office(self, rule: ClusterRule) -> Office:
        tools = self._project.tools
        return Office(
            ledger=tools.stores(rule, None).ledger,
            target=self._project.target(rule),
            by=self._means(rule),
            clock=tools.clock,
            ids=tools.ids,
            faults=tools.faults,
        )

    def _same_folder(self, rule: ClusterRule, commit: str, head: str) -> bool:
        """Whether a commit that was reviewed has the cluster folder of the head."""
        store = self._project.tools.store
        if store.resolve(commit) is None:
            return False
        ours, theirs = (store.subtree(store.commit(c).tree, rule.path) for c in (commit, head))
        return ours is not None and ours == theirs

    def _account(self, number: str) -> str:
        """An account as `gitops.yaml` names it."""
        return f"{self._bot.kind}:{number}"
