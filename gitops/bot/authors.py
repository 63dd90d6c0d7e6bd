"""Who pushed: whose work a change is where neither its commits nor its request say so, as far as the forge tells.

1. A branch is followed from its head back, move by move, newest first. 2. Each move must end where the one after it began; what
is newer than the head does not matter. 3. The way back ends at a commit that is applied already, or where the branch was made and
had no life before that. 4. A list that has a gap, ends early, is longer than the adapter reads, is not to be seen, or names
nobody for a move leaves an unknown author behind: then no approval counts, because anybody might approve their own work.

A forge without such a list is not asked: there it is known who opened a request, and whatever an event told of a push.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gitops.bot.changes import differ
from gitops.bot.context import Bot
from gitops.bot.project import Standing
from gitops.config.gitops_yaml import ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.port import ChangeRequest, Push
from gitops.git.port import ZERO, Commit, GitReader
from gitops.model.entry import UNKNOWN_AUTHOR
from gitops.model.outcome import PlanOutcome

__all__ = ["Pushers", "Trail", "follow", "opened"]

_CLOSED_TO_US = frozenset({Code.FORGE_REFUSED, Code.FORGE_LIMIT})


@dataclass(frozen=True, slots=True)
class Trail:
    """The way of a branch back from a head, newest move first.

    `whole`: nothing is missing in it. `late`: the forge lists moves, but not yet the one that led to the head.
    """

    moves: tuple[Push, ...] = ()
    whole: bool = False
    late: bool = False

    @property
    def people(self) -> tuple[str, ...]:
        """Who moved the branch, each once, and the unknown author where somebody may be missing."""
        names = [move.pusher or UNKNOWN_AUTHOR for move in reversed(self.moves)]
        return tuple(dict.fromkeys([*names, *(() if self.whole else (UNKNOWN_AUTHOR,))]))


def follow(moves: Iterable[Push], head: str, store: GitReader, applied: str) -> Trail:
    """Follow a branch from `head` back to what is applied; no more of the list is read than that takes."""
    found: list[Push] = []
    at: str | None = None
    listed = False
    for move in moves:
        listed = True
        if at is None and move.new != head:
            continue
        if at is not None and move.new != at:
            return Trail(tuple(found))
        found.append(move)
        at = move.old
        if at != ZERO and store.resolve(at) is not None and (at == applied or store.is_ancestor(at, applied)):
            return Trail(tuple(found), whole=True)
    return Trail(tuple(found), whole=at == ZERO, late=listed and at is None)


def opened(outcome: PlanOutcome) -> bool:
    """Whether an approval opens a gate of a plan: only then does it matter to the plan who pushed."""
    return outcome.plan is not None and any(gate.satisfied for gate in outcome.plan.approvals_required)


class Pushers:
    """Asks the forge who moved branches."""

    def __init__(self, bot: Bot) -> None:
        """Nothing is asked yet."""
        self._forge = bot.forge
        self._project = bot.project

    def of_request(self, rule: ClusterRule, request: ChangeRequest, standing: Standing) -> ChangeRequest:
        """A request with everybody who moved its branch among its pushers; one that leaves the cluster alone stays as it is.

        Raises RemoteError where the forge does not answer.
        """
        if not self._forge.features.pushes or standing.applied is None or not self._concerns(rule, request, standing):
            return request
        # The branch of a fork that was deleted is not to be found any more.
        gone = request.fork and not request.project
        people = Trail().people if gone else self._trail(request.source, request, standing.applied).people
        return replace(request, pushers=tuple(dict.fromkeys((*request.pushers, *people))))

    def of_commits(
        self, rule: ClusterRule, tip: str, standing: Standing, blind: Sequence[Commit]
    ) -> tuple[frozenset[str], tuple[Commit, ...]]:
        """Who pushed commits of a target branch at `tip` that nothing else accounts for, and those that stay unaccounted for.

        Raises RemoteError `pushers_pending` for a push that is so new that the forge does not list it yet, or where the forge
        does not answer.
        """
        if not blind or not self._forge.features.pushes or standing.applied is None:
            return frozenset(), tuple(blind)
        trail = self._trail(rule.ref, None, standing.applied, tip)
        if trail.late:
            detail = f"the forge does not list the push of {tip[:12]} to {rule.branch} yet"
            raise RemoteError(Code.PUSHERS_PENDING, detail, path=rule.name, retryable=True)
        if not trail.whole:
            return frozenset(), tuple(blind)
        brought = [(move.pusher, self._brought(move)) for move in trail.moves if move.pusher]
        known = frozenset[str]().union(*(commits for _, commits in brought))
        people = {pusher for pusher, commits in brought if any(commit.id in commits for commit in blind)}
        return standing.names(people), tuple(commit for commit in blind if commit.id not in known)

    def _trail(self, branch: str, request: ChangeRequest | None, applied: str, tip: str = "") -> Trail:
        project, head = ("", tip) if request is None else (request.project, request.head)
        try:
            return follow(self._forge.pushes(branch, project), head, self._project.tools.store, applied)
        except RemoteError as error:
            if error.code not in _CLOSED_TO_US:
                raise
            return Trail()

    def _brought(self, move: Push) -> frozenset[str]:
        """The commits that a move of a target branch put on it; none where they are not to be had."""
        store = self._project.tools.store
        if ZERO in (move.old, move.new):
            return frozenset()
        try:
            self._project.bring(move.old, move.new)
            return frozenset(c.id for c in store.commits_between(move.old, move.new, first_parent=True))
        except GitopsError:
            return frozenset()

    def _concerns(self, rule: ClusterRule, request: ChangeRequest, standing: Standing) -> bool:
        """Whether a request changes a cluster; one whose head cannot be compared may do anything."""
        store = self._project.tools.store
        self._project.fetch_heads([request])
        if standing.applied is None or store.resolve(request.head) is None:
            return True
        self._project.bring(standing.applied)
        fork = store.merge_base(standing.applied, request.head)
        head = store.commit(request.head).tree
        return fork is None or differ(self._project, rule, head, store.commit(fork).tree)
