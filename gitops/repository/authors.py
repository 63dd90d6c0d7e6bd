"""Collects facts about commit origins that git does not know: a forge's lists and events, and a server's records.

The rules are those of `gitops.cluster.approvals.origins`; this module collects their inputs.

1. A commit of the target that is, byte for byte, the merge of a request represents the commits of the request.
2. A commit of a request was brought by the oldest push to its branch that has it. The list of pushes is followed from
   the head back: each push must end where the one after it began. A gap, an early end, a limit of the adapter or a fork
   that no longer exists leaves the commits unknown. The opener counts as one of the people of each.
3. Any other commit of the target was brought by a push to it: one that the forge lists or, if it lists none, the one of
   the event. A merge whose request the forge does not report yet is pending; it never counts as the work of the account
   that merged, nor does what a commit brought about which the forge was not asked.
4. On a bare repository the hook recorded who pushed each commit first.
5. Missing author information never ends a run. While the forge does not respond, all authors are pending. A commit that
   may have merged a request that the forge cannot show has no origin. In both cases, gates simply remain closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from gitops.cluster.approvals.counting import merged_series
from gitops.cluster.approvals.origins import KnownOrigins, Pushed, names_of_accounts, person_of_account
from gitops.cluster.approvals.pushes import NOT_RECORDED, PUSHES, recorded_pushes
from gitops.cluster.approvals.verify import HOSTED, MOST_COMMITS
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.ledger import How
from gitops.cluster.model.trust import TrustRoot
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.port import ChangeRequest, Forge, MergedRequests, Push
from gitops.git.port import ZERO, Commit, GitReader
from gitops.repository.changes import commit_changes
from gitops.repository.cluster import LedgerPosition
from gitops.repository.repository import Repository

MOST_ASKED = 200
"""Maximum number of commits of a branch for which the forge is asked which requests they merged."""

_NOT_READABLE = frozenset({Code.FORGE_REFUSED, Code.FORGE_LIMIT})


@dataclass(frozen=True, slots=True)
class PushHistory:
    """Pushes to a branch, newest first, going back from a head.

    `complete` means that no push is missing. `pending` means that the forge lists pushes, but not yet the push to the
    head.
    """

    pushes: tuple[Push, ...] = ()
    complete: bool = False
    pending: bool = False


def follow_pushes(pushes: Iterable[Push], head: str, store: GitReader, applied: str | None) -> PushHistory:
    """Follow a branch from `head` back to an applied commit or to its start. Reads no more of the list than necessary."""
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
        if applied is None or at == ZERO or store.resolve(at) is None:
            continue
        if at == applied or store.is_ancestor(at, applied):
            return PushHistory(tuple(found), complete=True)
    return PushHistory(tuple(found), complete=at == ZERO, pending=listed and at is None)


@dataclass(frozen=True, slots=True)
class Merges:
    """The requests that the commits on a cluster's branch merged. The forge was `asked` about these commits.

    `unsaid` are commits that may have merged a request that the forge cannot show, with the reason. `pending` is the
    reason why the forge cannot list requests yet.
    """

    requests: tuple[ChangeRequest, ...] = ()
    unsaid: Mapping[str, str] = field(default_factory=dict)
    pending: str = ""
    asked: frozenset[str] = frozenset()


@dataclass(slots=True)
class OriginSources:
    """The sources for the origins of one plan's commits.

    `head` is the head of the target branch, `line` its unapplied commits along first parents, newest first; `applied`
    is None until the cluster has converged once. `merged` are the requests that these merged, as far as the forge was
    `asked`, `unsaid` the commits for which it cannot report that, `opened` the requests of the plan. `announced` is the push
    to the target from an event.
    """

    repository: Repository
    forge: Forge
    rule: ClusterRule
    position: LedgerPosition
    trust: TrustRoot
    applied: str | None
    head: str
    line: Sequence[Commit]
    asked: frozenset[str] = frozenset()
    merged: Sequence[ChangeRequest] = ()
    opened: Sequence[ChangeRequest] = ()
    unsaid: Mapping[str, str] = field(default_factory=dict)
    announced: Push | None = None
    pushed: dict[str, tuple[Pushed, ...]] = field(default_factory=dict)

    @property
    def _store(self) -> GitReader:
        return self.repository.git

    def collect(self) -> KnownOrigins:
        """Return all known origins.

        Raises RemoteError; the result is `pushers_pending` while the forge does not report pushers.
        """
        self.repository.fetch_heads([*self.merged, *self.opened])
        # Rule 1.
        stands_for: dict[str, str] = {}
        before: dict[int, str | None] = {request.number: self.head for request in self.opened}
        for request in self.merged:
            span = merge_commits(self.repository, self.line, request)
            stands_for.update({commit.id: request.head for commit in span})
            first = span[-1] if span else next((c for c in self.line if c.id == request.merged_as), None)
            parent = first.parents[0] if first is not None and first.parents and first.id != request.head else None
            before[request.number] = parent or self.applied
        if self.repository.forge_kind not in HOSTED:
            # Rule 4 replaces rules 2 and 3.
            return KnownOrigins(
                recorded_pushes(self._store, self.repository.head_of(PUSHES), self.trust), stands_for, NOT_RECORDED
            )
        for request in sorted((*self.merged, *self.opened), key=lambda request: request.number):
            if self.repository.has_head(request):
                self._add_request(request, before[request.number])
        self._add_target(frozenset(stands_for))
        return KnownOrigins(
            lambda commit: self.pushed.get(commit, ()),
            stands_for,
            f"{self.forge_name} lists no push of it",
            {commit: why for commit, why in self.unsaid.items() if commit not in stands_for},
        )

    def _add_request(self, request: ChangeRequest, before: str | None) -> None:
        """Add the commits of a request by rule 2, since it left the commit `before` of its target."""
        fork = None if before is None else self._store.merge_base(before, request.head)
        own = {c.id for c in self._store.commits_between(fork, request.head, most=MOST_COMMITS)}
        history, problem = PushHistory(), f"{self.forge_name} does not list who pushed to request {request.number}"
        # The forge no longer lists the pushes to a deleted fork.
        if self.forge.features.pushes and (request.project or not request.fork):
            history = self._history(request.source, request.project, request.head)
            problem = f"the list of pushes to request {request.number} is not complete"
        ids = () if request.author is None else (request.author.id,)
        opener = names_of_accounts(self.trust, request.pushers, ids)
        found = self._brought(history, fork) if history.complete else {}
        for commit in own:
            push = found.get(commit) or Pushed(How.FORGE, "", None, problem=problem)
            self.pushed.setdefault(commit, (replace(push, people=push.people | opener),))

    def _add_target(self, stands_for: frozenset[str]) -> None:
        """Add commits of the target by rule 3."""
        left = {c.id for c in self._store.commits_between(self.applied, self.head, most=MOST_COMMITS)}
        left -= self.pushed.keys() | stands_for
        # If the forge was not asked about a commit, what it brought may belong to a request, and its pusher only merged
        # that.
        left &= {
            brought.id
            for commit in self.line
            if commit.id in self.asked
            for brought in self._store.commits_between(next(iter(commit.parents), None), commit.id, most=MOST_COMMITS)
        }
        if not self.forge.features.pushes:
            if self.announced is not None:
                found = self._brought(PushHistory((self.announced,)), self.applied)
                if self.announced.old == ZERO:
                    # The push can contain what others pushed before the branch was deleted.
                    why = "the branch was deleted and pushed again"
                    found = {commit: replace(push, person=None, problem=why) for commit, push in found.items()}
                self._take(found, left)
            return
        if not any(c.id in left and commit_changes(self.repository, self.rule, c) for c in self.line):
            return
        history = self._history(self.rule.ref, "", self.head)
        if history.pending:
            detail = f"the forge does not list the push of {self.head[:12]} to {self.rule.branch} yet"
            raise RemoteError(Code.PUSHERS_PENDING, detail, path=self.rule.name, retryable=True)
        if history.complete:
            self._take(self._brought(history, self.applied), left)

    def _take(self, found: dict[str, Pushed], left: set[str]) -> None:
        self.pushed.update({commit: (push,) for commit, push in found.items() if commit in left})

    def _brought(self, history: PushHistory, fork: str | None) -> dict[str, Pushed]:
        """Map each commit to the oldest push in a history that brought it. A branch created there began at `fork`."""
        found: dict[str, Pushed] = {}
        for move in reversed(history.pushes):
            if move.new == ZERO:
                continue
            commits: tuple[Commit, ...] = ()
            # Commits that a force push removed may be gone. The remaining ones are in no other push, so they stay
            # unknown.
            with suppress(GitopsError):
                self.repository.fetch_commits(*({move.old, move.new} - {ZERO}))
                old = fork if move.old == ZERO else move.old
                commits = self._store.commits_between(old, move.new, most=MOST_COMMITS)
            ids = [commit.id for commit in commits if commit.id not in found]
            found.update(dict.fromkeys(ids, self._by(move.pusher)))
        return found

    def _by(self, account: str) -> Pushed:
        """Return a push by a forge account."""
        if not account:
            return Pushed(How.FORGE, "", None, problem=f"{self.forge_name} does not say who pushed it")
        person, people = person_of_account(self.trust, account), names_of_accounts(self.trust, [account])
        return Pushed(How.FORGE, account, person, people, "" if person else unlisted(account))

    def _history(self, branch: str, project: str, head: str) -> PushHistory:
        """Return the pushes to a branch, in the repository or in a fork (`project`).

        Empty if the forge does not list them.
        """
        try:
            return follow_pushes(self.forge.pushes(branch, project), head, self._store, self.applied)
        except RemoteError as error:
            if error.code not in _NOT_READABLE:
                raise
            return PushHistory()

    @property
    def forge_name(self) -> str:
        """The forge's name in messages."""
        return self.repository.forge_kind or "the forge"


def known_origins(
    repository: Repository,
    forge: Forge,
    rule: ClusterRule,
    position: LedgerPosition,
    *,
    head: str | None = None,
    merged: Merges | None = None,
    opened: Sequence[ChangeRequest] = (),
    queued: Sequence[ChangeRequest] = (),
    announced: Push | None = None,
) -> KnownOrigins:
    """Return the known origins of a plan's commits: those on the target up to `head`, and those in unmerged requests.

    `merged` are the requests that target commits merged; the forge is queried if they are not given. `queued` are
    requests that are merged in a merge queue group, whose head is `head`.
    """
    head = head or repository.head_of(rule.ref)
    if position.applied is None or position.trust is None or head is None:
        return KnownOrigins()
    base = position.applied if position.begun else None
    line = repository.git.commits_between(base, head, first_parent=True, most=MOST_COMMITS)
    if merged is None:
        merged = requests_merged_by(forge, rule, [commit.id for commit in line[:MOST_ASKED]])
    sources = OriginSources(
        repository=repository,
        forge=forge,
        rule=rule,
        position=position,
        trust=position.trust,
        applied=base,
        head=head,
        line=line,
        asked=merged.asked,
        merged=(*merged.requests, *queued),
        opened=opened,
        unsaid=merged.unsaid,
        announced=announced,
    )
    try:
        return KnownOrigins(pending=merged.pending) if merged.pending else sources.collect()
    except RemoteError as error:
        return KnownOrigins(pending=_pending(error))


def requests_merged_by(forge: Forge, rule: ClusterRule, commits: Sequence[str]) -> Merges:
    """Return the requests into the cluster's branch that these commits merged.

    These include requests that don't touch the cluster, because a forge may report only the last commit of a rebased
    request.
    """
    try:
        said = forge.merged_by(commits) if commits else MergedRequests()
    except RemoteError as error:
        return Merges(pending=_pending(error))
    found = tuple(request for request in said.found if request.target == rule.ref)
    return Merges(found, said.unsaid, asked=frozenset(commits))


def _pending(error: RemoteError) -> str:
    """Explain why the authors are pending."""
    if error.code == Code.PUSHERS_PENDING:
        return error.detail
    return f"the authors are not known yet; the next run asks again: {error.code}: {error.detail}"


def unlisted(account: str) -> str:
    """Explain why an account's push does not count as a person's push, with a remedy.

    Mapping the account of CI jobs to a person would let anyone who writes a job act as that person.
    """
    return (
        f"the rules name no person for {account}, who pushed it: sign the commit, or, if one person alone uses the account, "
        "list it in approvals.accounts of gitops.yaml"
    )


def merge_commits(repository: Repository, line: Sequence[Commit], request: ChangeRequest) -> tuple[Commit, ...]:
    """Return the commits that merging a request put on the branch: one for a merge or a squash, several for a rebase.

    A request in a merge queue is not merged yet, so any commit of the group could be its merge.
    """
    ends = {request.merged_as, request.head}
    found = (
        merged_series(repository.git, line, last, request.head)
        for last, commit in enumerate(line)
        if request.merged_as is None or commit.id in ends
    )
    return next(filter(None, found), ())
