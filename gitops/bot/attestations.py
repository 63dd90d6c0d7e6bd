"""Attestations: approvals that people give on the forge, signed by the bot so that the ledger can carry them.

Whether an attestation counts, and for what, is decided by the trust rules of the ledger. This module only makes sure what was
done, by asking the forge again. A command names the digest of the plan that is made now. A review is the newest of its account,
is of a commit with the same cluster folder as the head, and approves. A dismissed review does not count, and neither does one of
an account that may not give commands now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gitops.bot.command_syntax import CommentCommand
from gitops.bot.context import EventContext
from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.approving.decide import DecisionContext
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ForgeGrant, GrantSource
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent
from gitops.forge.port import Account, ChangeRequest, Permission, RequestState
from gitops.repository.attest import approving_reviews, attest, revoke_lapsed
from gitops.repository.results import LogLine

_NEEDED = {"write": Permission.WRITE, "maintain": Permission.MAINTAIN, "admin": Permission.ADMIN}


def missing_permission(context: EventContext, account: Account, rules: Iterable[ClusterRule]) -> str:
    """Why an account may not give commands or reviews for some clusters, as the forge says; empty if it may.

    The rules in force decide, of several clusters the strictest: an edit of `forge.commands` counts once it is approved.
    Raises RemoteError.
    """
    in_force = [position.trust for position in map(context.position, rules)]
    named = [context.config.forge.commands if trust is None else trust.commands for trust in in_force]
    needed = max(named or [context.config.forge.commands], key=_NEEDED.__getitem__)
    return "" if context.forge.permission(account) >= _NEEDED[needed] else f"this needs the permission {needed}"


def attest_command(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, command: CommentCommand, event: CommentEvent
) -> Iterator[LogLine]:
    """Attest `/gitops approve ADDRESS DIGEST`. Raises GitopsError if it does not count."""
    made = _plan(context.workspace_of(rule, request))
    if made.digest != command.digest:
        detail = f"the plan is now {made.digest}, not {command.digest[:12]}; review it, then approve it"
        raise GitopsError(Code.COMMAND_REFUSED, detail, path=command.address)
    gate = next((each for each in made.approvals_required if each.resource == command.address), None)
    if gate is None:
        gates = ", ".join(each.resource for each in made.approvals_required) or "none"
        detail = f"{command.address} needs no approval; gates: {gates}"
        raise GitopsError(Code.APPROVAL_NOT_REQUIRED, detail, path=command.address)
    if gate.satisfied:
        yield LogLine(f"approve of {rule.name}: {command.address} is approved already")
        return
    workspace = context.workspace_of(rule, request)
    grant = _grant(context, request, event.author, GrantSource.COMMENT, event.comment, request.head, event.at)
    yield from _attest(context, rule, workspace, command.address, grant, command.digest)


def attest_reviews(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> Iterator[LogLine]:
    """Attest the reviews of a request for every gate that is not open yet; what does not count is logged and left out.

    Attestations whose review no longer stands are revoked first, also if the request is merged by now.
    """
    if not reviews_count(context, rule):
        return
    reviews = context.forge.reviews(request.number)
    tools = context.project.tools
    decisions = DecisionContext(
        ledger=tools.stores(rule, None, rule.name).ledger,
        target=context.project.recorded_target(rule, context.position(rule), context.config),
        publisher=_publisher(context, rule),
        clock=tools.clock,
        ids=tools.ids,
        faults=tools.faults,
    )
    for revoked in revoke_lapsed(decisions, request.number, reviews, lambda account: _account_name(context, account)):
        why = "".join(f": {d.code}: {d.message}" for d in revoked.diagnostics)
        done = "revoked" if revoked.ok else "not revoked"
        yield LogLine(f"approval {revoked.approval_id} of {rule.name}: {done}{why}")
    if request.state is not RequestState.OPEN:
        return
    gates = [g.resource for g in _plan(context.workspace_of(rule, request)).approvals_required if not g.satisfied]
    if not gates:
        return
    workspace = context.workspace_of(rule, request)
    for review in approving_reviews(reviews, lambda commit: _has_same_folder(context, rule, commit, request.head)):
        # In a public repository everybody may review, also people who have left.
        try:
            missing = missing_permission(context, review.account, (rule,))
        except GitopsError as error:
            # One account that the forge says nothing about does not hide the reviews of the others.
            missing = f"{error.code}: {error.detail}"
        if missing:
            yield LogLine(f"review of {review.account.login}: command_refused: {missing}")
            continue
        grant = _grant(context, request, review.account, GrantSource.REVIEW, review.id, review.commit, review.at)
        for address in gates:
            try:
                yield from _attest(context, rule, workspace, address, grant)
            except GitopsError as error:
                yield LogLine(f"review of {review.account.login} for {address}: {error.code}: {error.detail}")


def reviews_count(context: EventContext, rule: ClusterRule) -> bool:
    """Whether the trust rules accept reviews for any gate, and the bot can sign attestations."""
    if context.bot.approval_publisher is None or not context.forge.features.reviews:
        return False
    return bool(context.position(rule).reviews_open(rule.environment))


def _plan(workspace: Workspace) -> Plan:
    outcome = plan(workspace)
    if outcome.plan is None:
        first = next((d for d in outcome.diagnostics if d.severity == "error"), None)
        detail = "the plan has errors" if first is None else f"the plan has errors: {first.code}: {first.message}"
        raise GitopsError(Code.COMMAND_REFUSED, detail)
    return outcome.plan


def _attest(
    context: EventContext,
    rule: ClusterRule,
    workspace: Workspace,
    address: str,
    grant: ForgeGrant,
    digest: str | None = None,
) -> Iterator[LogLine]:
    """Attest one grant; `digest` is the plan that it must be for, if it names one. Raises GitopsError if it does not count."""
    outcome = attest(workspace, Address(address), grant, _publisher(context, rule), plan_digest=digest)
    error = next((d for d in outcome.diagnostics if d.severity == "error"), None)
    if error is not None:
        raise GitopsError(error.code, error.message, path=error.path)
    who = "" if outcome.approval is None else outcome.approval.approved_by
    yield LogLine(f"approve of {rule.name}: {address} approved by {who} ({grant.login}, {grant.source})")


def _publisher(context: EventContext, rule: ClusterRule) -> ApprovalPublisher:
    if context.bot.approval_publisher is None:
        raise GitopsError(Code.SIGNING_KEY_MISSING, "the bot has no key on this machine to sign attestations with")
    return context.bot.approval_publisher(rule.name)


def _grant(
    context: EventContext,
    request: ChangeRequest,
    account: Account,
    source: GrantSource,
    reference: str,
    commit: str,
    at: str,
) -> ForgeGrant:
    """What an account did: `reference` is the id of its review or comment, which is about `commit`."""
    name = _account_name(context, account)
    return ForgeGrant(name, account.login, request.number, source, reference, commit, at, request.url)


def _has_same_folder(context: EventContext, rule: ClusterRule, commit: str, head: str) -> bool:
    """Whether a commit that was reviewed has the cluster folder of the head."""
    store = context.store
    if store.resolve(commit) is None:
        return False
    reviewed, current = (store.subtree(store.commit(c).tree, rule.path) for c in (commit, head))
    return reviewed is not None and reviewed == current


def _account_name(context: EventContext, account: Account) -> str:
    """An account as `gitops.yaml` names it, such as `github:583231`."""
    return f"{context.project.tools.forge_kind}:{account.id}"
