"""`/gitops retry` in a merged request: its changeset failed, and is tried again.

| what became of the merge | the answer |
| --- | --- |
| its own changeset failed | the next attempt, with `retry_of`; then what waits behind it |
| a later merge has taken it over, and failed as well | refused: that one is to be retried |
| a changeset is carried out now | refused: `changeset_active` with its key |
| it landed, and nothing of the cluster waits | refused: nothing is left to retry |
| it waits still, or something of the cluster waits | applied, as after a push |
"""

from __future__ import annotations

from collections.abc import Iterator

from gitops.bot.apply_clusters import apply_cluster
from gitops.bot.context import EventContext
from gitops.bot.waiting_merges import newest_changesets
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.changeset import ChangesetState
from gitops.core.codes import Code
from gitops.core.errors import ConflictError
from gitops.repository.results import LogLine

__all__ = ["retry_merge"]


def retry_merge(context: EventContext, rule: ClusterRule, merge: str | None) -> Iterator[LogLine]:
    """Try again what a request brought in with the commit `merge`, as the table says.

    Raises ConflictError `changeset_active`, `changeset_state_invalid`, and GitopsError as the ledger does.
    """
    _check_active(context, rule)
    again = None if merge is None else _failed(context, rule, merge)
    yield from apply_cluster(context, rule, asked=True, again=again)


def _check_active(context: EventContext, rule: ClusterRule) -> None:
    ledger = context.project.tools.ledger(rule)
    active, lock = ledger.changesets().index.active, ledger.observe_lock()
    # Without the lock its run has died, and this one goes on with it.
    if active is not None and lock.held:
        fix = f"wait for it: gitops changeset watch {active}; if its run is over: /gitops unlock {lock.unlock_id}"
        raise ConflictError(Code.CHANGESET_ACTIVE, f"changeset {active} is carried out now", path=active, fix=fix)


def _failed(context: EventContext, rule: ClusterRule, merge: str) -> str | None:
    """The merge, if its own changeset failed; None if it, or something else of the cluster, only has to be applied."""
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
        later, number = failed[0].source.merge_commit or "", failed[0].source.pull_request
        way = f"/gitops retry in request {number}" if number else f"gitops changeset retry {failed[0].key}"
        detail = (
            f"commit {later[:12]} was merged later and has taken it over with changeset {failed[0].key}, which failed"
        )
        raise ConflictError(Code.CHANGESET_STATE_INVALID, detail, path=failed[0].key, fix=f"retry that one: {way}")
    return merge if failed else None
