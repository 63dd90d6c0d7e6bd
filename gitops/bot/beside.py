"""Merges that a run prepares beside the one that it applies, with `apply.side_by_side: disjoint`.

A run applies the waiting merges of a cluster in the order of their branch. With this setting, it also prepares those that are
disjoint from everything before them: see `gitops.cluster.apply.beside`. It keeps the lock from the first prepared merge to
the last, so other runs end as usual when they find the lock, and this run sees their merges on the branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

from gitops.bot.context import EventContext
from gitops.cluster.apply.beside import PreparedMerge, prepare_merge
from gitops.cluster.approvals.origins import KnownOrigins
from gitops.cluster.changesets.queue import QueuedStep
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.changeset import BLOCKING, ChangesetSource
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.workspace import ChangesetFacts, KeptLock, Workspace
from gitops.core.errors import GitopsError
from gitops.repository.authors import MOST_ASKED, requests_merged_by
from gitops.repository.results import LogLine


class MergesBeside:
    """The merges of one cluster that are prepared and not applied yet, oldest first. On exit, it gives back the lock.

    `rule` is the cluster at its location; while a merge is prepared, no earlier one moves it.
    """

    def __init__(self, context: EventContext, rule: ClusterRule) -> None:
        """Start without any merges."""
        self._context, self.rule = context, rule
        self._found: dict[str, PreparedMerge] = {}
        self._lock = KeptLock()

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for everything that is still being prepared, and release the lock if it is held."""
        try:
            for merge in self._found.values():
                merge.wait()
        finally:
            self._found.clear()
            self._release()

    @property
    def enabled(self) -> bool:
        """Whether merges can be prepared early."""
        rules, position = self._context.config.apply, self._context.position(self.rule)
        chosen = (rules.side_by_side, rules.atomicity, rules.queue) == ("disjoint", "atomic", "one_per_merge")
        # A verdict of the forge is asked for when it is the merge's turn, and nothing may have happened before.
        return chosen and position.applied is not None and not position.needs_forge_verdict

    def __bool__(self) -> bool:
        """Whether any merge is prepared."""
        return bool(self._found)

    def prepare(self, steps: Iterable[QueuedStep]) -> Iterator[LogLine]:
        """Prepare waiting merges, oldest first, until one has to wait for its turn. Continue those that are already known."""
        covered: set[str] = set()
        for number, step in enumerate(steps):
            if number < len(self._found):
                if tuple(self._found)[number] != step.commit:
                    return
            else:
                own = tuple(commit for commit in step.covers if commit not in covered)
                if not self._prepare(replace(step, covers=own)):
                    return
                beside = f" beside {number} earlier" if number else ""
                yield LogLine(f"apply of {self.rule.name}: commit {step.commit[:12]} is being prepared{beside}")
            covered.update(step.covers)

    def _prepare(self, step: QueuedStep) -> bool:
        context, rule, commit = self._context, self.rule, step.commit
        context.refresh(rule, relist=False)
        try:
            # Nothing is approved here: a merge with a gate waits for its turn.
            workspace = context.workspace_at(rule, commit, KnownOrigins(), in_place=True)
            merged = requests_merged_by(context.forge, rule, step.covers[-MOST_ASKED:]).requests
            request = next((each.number for each in reversed(merged)), None)
            before = next(reversed(self._found), context.position(rule).applied)
            facts = ChangesetFacts(
                ChangesetSource(rule.branch, commit, before, request, context.bot.actor), covers=step.covers
            )
            made = prepare_merge(self.at(replace(workspace, atomic=True, changeset=facts)), (*self._found.values(),))
        except GitopsError:
            # The apply of the merge finds the same, and reports it.
            return False
        if made is not None:
            self._found[commit] = made
        return made is not None

    def is_ready(self, commit: str, seconds: float) -> bool:
        """Wait until a merge is prepared, for at most `seconds`. Returns True for one that is not being prepared."""
        found = self._found.get(commit)
        return found is None or self._context.bot.cancel.requested or found.wait(seconds)

    def at(self, workspace: Workspace) -> Workspace:
        """Return the workspace of a merge, with the lock of this run."""
        return replace(workspace, lock=self._lock, await_staged=self._await)

    def _await(self, key: str) -> None:
        for merge in self._found.values():
            if merge.record.key == key:
                merge.wait()

    def applied(self) -> None:
        """Forget the merges whose changesets have been applied or rolled back."""
        if self._found:
            ledger = self._context.repository.ledger(self.rule)
            going_on = {each.key for each in ledger.changesets().open if each.state in BLOCKING}
            self._found = {commit: each for commit, each in self._found.items() if each.record.key in going_on}
            if not self._found:
                self._release()

    def _release(self) -> None:
        self._lock.keep = False
        if self._lock.lock_id is not None:
            self._context.repository.ledger(self.rule).release(self._lock.lock_id)
            self._lock.lock_id = None

    def notes(self, outcome: ApplyOutcome) -> Iterator[str]:
        """Yield notes on the requests beside which each applied merge was prepared."""
        ledger = self._context.repository.ledger(self.rule)
        for record in outcome.changesets:
            earlier = [found for key in record.beside if (found := ledger.changeset(key)) is not None]
            requests = [
                f"request {each.source.pull_request}" for each in earlier if each.source.pull_request is not None
            ]
            if earlier:
                yield f"prepared beside {', '.join(requests) or 'earlier merges'}"
