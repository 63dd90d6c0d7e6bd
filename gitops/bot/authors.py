"""The authors of commits. Authors do not approve their own changes, so a run must know the authors of each commit.

The author field of a commit is not enough: everybody with push rights writes there what they like. A commit of a target branch
is accounted for in one of three cases. Otherwise its author is unknown, and no approval counts.

1. The event of its push names the account that pushed.
2. Merging a change request gives its tree, to the byte. Then the authors are those of the request.
3. The forge lists the pushes of the branch, and the list is complete. The list is followed from a head back, newest push first:
   each push must end where the one after it began. It is complete if it reaches a commit that is applied, or the creation of
   the branch. A gap, an early end, a limit of the adapter or a push without an account leaves an unknown author.

A forge without a list of pushes is not asked: there the opener of a request is known, and what the events of pushes say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gitops.approvals.authors import authors_of, signers_of
from gitops.bot.changes import changes_cluster, commit_changes, merging_gives, push_adds_more
from gitops.bot.context import EventContext
from gitops.config.gitops_yaml import ClusterRule, trust_root
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.events import PushEvent
from gitops.forge.port import ChangeRequest, Push
from gitops.git.port import ZERO, Commit, GitReader, RefUpdate
from gitops.ledger.trust import trust_at
from gitops.model.ledger import UNKNOWN_AUTHOR
from gitops.model.outcome import PlanOutcome

# Commits of one request that was rebased; the origin of more is not looked for.
_MOST_REBASED = 50
_NOT_READABLE = frozenset({Code.FORGE_REFUSED, Code.FORGE_LIMIT})


@dataclass(frozen=True, slots=True)
class KnownPush:
    """What an event says about a push: the commits that it added to the branch, and their authors besides those in git."""

    commits: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PushHistory:
    """The pushes of a branch back from a head, newest first.

    `complete`: none is missing. `pending`: the forge lists pushes, but not yet the one to the head.
    """

    pushes: tuple[Push, ...] = ()
    complete: bool = False
    pending: bool = False

    @property
    def people(self) -> tuple[str, ...]:
        """The accounts that pushed, oldest first, each once; with the unknown author if one may be missing."""
        names = [push.pusher or UNKNOWN_AUTHOR for push in reversed(self.pushes)]
        return tuple(dict.fromkeys([*names, *(() if self.complete else (UNKNOWN_AUTHOR,))]))


def follow_pushes(pushes: Iterable[Push], head: str, store: GitReader, applied: str) -> PushHistory:
    """Follow a branch from `head` back to a commit that is applied; no more of the list is read than that takes."""
    found: list[Push] = []
    at: str | None = None
    listed = False
    for push in pushes:
        listed = True
        if at is None and push.new != head:
            continue
        if at is not None and push.new != at:
            return PushHistory(tuple(found))
        found.append(push)
        at = push.old
        if at != ZERO and store.resolve(at) is not None and (at == applied or store.is_ancestor(at, applied)):
            return PushHistory(tuple(found), complete=True)
    return PushHistory(tuple(found), complete=at == ZERO, pending=listed and at is None)


def opens_a_gate(outcome: PlanOutcome) -> bool:
    """Whether an approval opens a gate of a plan: only then it matters to the plan who pushed."""
    return outcome.plan is not None and any(gate.satisfied for gate in outcome.plan.approvals_required)


def with_pushers(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> ChangeRequest:
    """A request with all accounts that pushed to its branch as pushers; unchanged if it does not change the cluster.

    Raises RemoteError if the forge does not answer.
    """
    project, applied = context.project, context.position(rule).applied
    if not context.forge.features.pushes or applied is None:
        return request
    project.fetch_heads([request])
    # A request whose head is missing may change anything.
    if project.has_head(request):
        project.fetch_commits(applied)
        if not changes_cluster(project, rule, applied, request.head):
            return request
    history = PushHistory()
    # The forge does not list the pushes to a fork that was deleted.
    if request.project or not request.fork:
        history = _push_history(context, request.source, request.project, request.head, applied)
    return replace(request, pushers=tuple(dict.fromkeys((*request.pushers, *history.people))))


def pushers_of_commits(
    context: EventContext,
    rule: ClusterRule,
    commits: Sequence[Commit],
    requests: Sequence[ChangeRequest],
    push: KnownPush,
    *,
    asked: int,
) -> tuple[frozenset[str], tuple[Commit, ...]]:
    """The people who are known to have pushed commits, and those that changed the cluster and are not accounted for.

    `commits` are those of the branch that are not applied, newest first. `requests` were merged into it, as far as the forge
    was asked: about the newest `asked` commits. With a commit that is not accounted for, the unknown author is one of the
    people. Raises RemoteError if the forge does not answer, because who may not approve depends on that, and `pushers_pending`
    for a push so new that the forge does not list it yet.
    """
    position, store = context.position(rule), context.store
    # The hook of a bare repository applies each push with its own event, and has no list of earlier pushes.
    if context.bot.forge_kind == "local" or position.applied is None:
        return push.people, ()
    left = [c for c in commits if c.id not in push.commits and commit_changes(context.project, rule, c)]
    if left:
        context.project.fetch_heads(requests)
        merged = {commit for request in requests for commit in _commits_of(context, commits, request)}
        left = [c for c in left if c.id not in merged]
    # For commits that the forge was not asked about, the pusher is only the account that merged.
    listed = {c.id for c in commits[:asked]}.intersection(c.id for c in left)
    history = PushHistory()
    if listed and context.forge.features.pushes:
        history = _push_history(context, rule.ref, "", commits[0].id, position.applied)
        if history.pending:
            detail = f"the forge does not list the push of {commits[0].id[:12]} to {rule.branch} yet"
            raise RemoteError(Code.PUSHERS_PENDING, detail, path=rule.name, retryable=True)
    people: set[str] = set()
    accounted: set[str] = set()
    for each in history.pushes if history.complete else ():
        added = frozenset[str]()
        if each.pusher and ZERO not in (each.old, each.new):
            with suppress(GitopsError):
                context.project.fetch_commits(each.old, each.new)
                between = store.commits_between(each.old, each.new, first_parent=True)
                added = frozenset(listed).intersection(commit.id for commit in between)
        if added:
            people.add(each.pusher)
        accounted |= added
    unaccounted = tuple(c for c in left if c.id not in accounted)
    unknown = {UNKNOWN_AUTHOR} if unaccounted else frozenset[str]()
    return push.people | position.names_of(people) | unknown, unaccounted


def _commits_of(context: EventContext, commits: Sequence[Commit], request: ChangeRequest) -> tuple[str, ...]:
    """The commits that merging a request put on the branch: one for a merge or a squash, several for a rebase."""
    ends = {request.merged_as, request.head}
    for last, commit in enumerate(commits):
        if commit.id in ends:
            span = commits[last : last + _MOST_REBASED]
            for count, first in enumerate(span, start=1):
                if first.parents and merging_gives(context.project, first.parents[0], request, commit.id):
                    return tuple(c.id for c in span[:count])
    return ()


def _push_history(context: EventContext, branch: str, project: str, head: str, applied: str) -> PushHistory:
    """The pushes of a branch, in the repository or in a fork (`project`); empty if the forge does not show them."""
    try:
        return follow_pushes(context.forge.pushes(branch, project), head, context.store, applied)
    except RemoteError as error:
        if error.code not in _NOT_READABLE:
            raise
        return PushHistory()


def known_push(context: EventContext, rule: ClusterRule, event: PushEvent) -> KnownPush:
    """What the event of a push says: its commits, and the pusher if the push does more to a cluster than merge a request."""
    if event.pusher is None:
        return KnownPush()
    project = context.project
    requests: tuple[ChangeRequest, ...] = context.forge.merged_by([event.new])
    commits = frozenset({event.new})
    with suppress(GitopsError):
        project.fetch_commits(event.new)
        project.fetch_heads(requests)
        if event.old != ZERO:
            between = context.store.commits_between(event.old, event.new, first_parent=True)
            commits = frozenset(commit.id for commit in between)
        if not push_adds_more(project, rule, RefUpdate(event.ref, event.old, event.new), requests):
            return KnownPush(commits)
    return KnownPush(commits, context.position(rule).names_of([event.pusher]))


def contributors(
    context: EventContext, rule: ClusterRule, requests: Sequence[ChangeRequest], commit: str
) -> frozenset[str]:
    """The authors of requests that were merged between the applied commit and `commit`.

    The commits of the branch do not name them all: a squash keeps one author, and no commit names who pushed.
    """
    position, store = context.position(rule), context.store
    files = trust_at(store, store.commit(commit).tree)
    context.project.fetch_heads(requests)
    found: set[str] = set()
    for request in requests:
        found |= position.people_of(request)
        if position.applied is not None and context.project.has_head(request):
            fork = store.merge_base(position.applied, request.head)
            head, paths = request.head, tuple(files)
            found |= authors_of(store, base=fork, head=head, path=rule.path, files=paths)
            found |= signers_of(store, trust_root(files), base=fork, head=head, path=rule.path, files=paths)
    return frozenset(found)
