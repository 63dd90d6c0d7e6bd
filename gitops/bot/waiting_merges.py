"""What a run of the bot reads to find the merge that it applies next; the decision is that of `cluster.changesets.queue`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from gitops.bot.context import EventContext
from gitops.cluster.apply.recover import INTERRUPTED
from gitops.cluster.changesets.queue import Step, WaitingCommit, next_step, whole_line
from gitops.cluster.changesets.stream import newest_attempt
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.changeset import BLOCKING, Changeset, ChangesetState
from gitops.core.dataclass import dataclass
from gitops.repository.authors import requests_merged_by
from gitops.repository.changes import commit_changes


@dataclass(frozen=True, slots=True)
class Queue:
    """The commits of a branch that are not applied, up to its `head`, the oldest first; they were tried up to one of `tried`."""

    line: tuple[WaitingCommit, ...]
    tried: frozenset[str]
    head: str
    applied: str | None

    def up_to(self, merge: str) -> Step:
        """The step that brings in a merge, whether it was tried or not, with everything before it."""
        ids = [each.id for each in self.line]
        return whole_line(self.line[: ids.index(merge) + 1] if merge in ids else (), merge)


def read_queue(context: EventContext, rule: ClusterRule, head: str) -> Queue:
    """What waits on the branch of a cluster, whose newest commit is `head`. Raises GitopsError."""
    store, applied = context.store, applied_last(context, rule)
    if applied is None:
        return Queue((WaitingCommit(head, touches=True),), frozenset(), head, None)
    commits = reversed(store.commits_between(applied, head, first_parent=True))
    line = tuple(WaitingCommit(each.id, commit_changes(context.project, rule, each)) for each in commits)
    covered = context.project.tools.ledger(rule).changesets().index.covered
    return Queue(line, frozenset(filter(None, [covered])), head, applied)


def applied_last(context: EventContext, rule: ClusterRule) -> str | None:
    """The newest merge that is applied. Raises GitopsError.

    The ledger names the merge of its newest intents, which are announced before it is known whether they land. A merge of which
    every changeset failed is not applied, and the first of them says what was applied before.
    """
    position, ledger = context.position(rule), context.project.tools.ledger(rule)
    applied = position.applied
    while applied is not None and not position.converged:
        records = [each for each in map(ledger.changeset, ledger.changeset_of(applied)) if each is not None]
        first = next((each for each in records if each.source.merge_commit == applied and each.attempt == 1), None)
        before = None if first is None else first.source.previous_commit
        failed = all(each.atomic and each.state is ChangesetState.FAILED for each in records)
        if not failed or before in (None, applied) or context.store.resolve(before) is None:
            break
        applied = before
    return applied


def next_merge(
    context: EventContext,
    rule: ClusterRule,
    queue: Queue,
    tried: Iterable[str],
    pushed: Iterable[str],
    *,
    together: bool,
) -> Step | None:
    """The step that comes next; None if nothing that touches the cluster waits. Raises GitopsError.

    `tried` is what this run has tried, `pushed` are the newest commits of pushes that it knows of. With `together` all that waits
    is one step.
    """
    applied, store = queue.applied, context.store
    # A branch that does not continue what is applied, or that declares the cluster elsewhere, is looked at as a whole.
    together = together or context.config.apply.queue == "coalesce" or applied is None
    together = together or len(queue.line) == 1 or not store.is_ancestor(applied or "", queue.head)
    together = together or context.project.scope_waits(rule, context.position(rule), context.config)
    ends = frozenset(pushed)

    def ends_merge(commit: str) -> bool:
        if commit in ends:
            return True
        merged = requests_merged_by(context.forge, rule, [commit])
        return any(commit in (each.merged_as, each.head) for each in merged.requests)

    return next_step(
        queue.line,
        queue.tried.union(tried),
        coalesce=together,
        ends_merge=ends_merge,
        differs=cache(lambda commit: context.differs(rule, applied or "", commit)),
    )


def last_step(context: EventContext, rule: ClusterRule, queue: Queue) -> tuple[Step, Changeset | None]:
    """The step of a run in which nothing new waits, and the atomic changeset of its merge if that failed. Raises GitopsError.

    A run that was stopped says nothing against a merge: its changeset is not one that failed.
    """
    step = whole_line(queue.line, queue.head)
    found = newest_changesets(context, rule, step.covers[-1]) if step.covers else ()
    failed = (each for each in found if each.atomic and each.state is ChangesetState.FAILED)
    return step, next((each for each in failed if each.error != INTERRUPTED), None)


def newest_changesets(context: EventContext, rule: ClusterRule, commit: str) -> tuple[Changeset, ...]:
    """The changesets of the newest attempt to bring in a merge. Raises GitopsError."""
    ledger = context.project.tools.ledger(rule)
    return newest_attempt(filter(None, map(ledger.changeset, ledger.changeset_of(commit))))


def interrupted_merge(context: EventContext, rule: ClusterRule) -> str | None:
    """The merge of an atomic changeset that an interrupted run left open: it is the one to go on with, before any later one."""
    for record in context.project.tools.ledger(rule).changesets().open:
        merge = record.source.merge_commit
        if (
            record.atomic
            and record.state in BLOCKING
            and merge is not None
            and context.store.resolve(merge) is not None
        ):
            return merge
    return None
