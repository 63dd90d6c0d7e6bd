"""Computes the changes in branches and change requests with git alone, without a forge or a checkout."""

from __future__ import annotations

from gitops.cluster.approvals.counting import merging_gives
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.sources import trust_at, trust_waits
from gitops.cluster.model.address import Address, cluster_address, trust_address
from gitops.cluster.model.change import Reason
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.git.port import ZERO, Commit, RefUpdate
from gitops.repository.repository import Repository


def changes_cluster(repository: Repository, rule: ClusterRule, target: str | None, head: str) -> bool:
    """Return True if a head changed the cluster folder or a trust file since it left the branch whose head is `target`.

    Also returns True if the two have no common history, because then anything may have changed.
    """
    store = repository.git
    base = None if target is None else store.merge_base(target, head)
    return base is None or trees_differ(repository, rule, store.commit(head).tree, store.commit(base).tree)


def commit_changes(repository: Repository, rule: ClusterRule, commit: Commit) -> bool:
    """Return True if a commit changed the cluster folder or a trust file, compared with its first parent."""
    store = repository.git
    return not commit.parents or trees_differ(repository, rule, commit.tree, store.commit(commit.parents[0]).tree)


def trees_differ(repository: Repository, rule: ClusterRule, ours: str, theirs: str) -> bool:
    """Return True if two root trees differ in the cluster folder or in a trust file."""
    store = repository.git
    if store.subtree(ours, rule.path) != store.subtree(theirs, rule.path):
        return True
    try:
        return trust_at(store, ours) != trust_at(store, theirs)
    except GitopsError:
        return True


def brings_nothing(repository: Repository, rule: ClusterRule, commit: str) -> bool:
    """Return True if a branch commit without a recorded changeset has nothing to apply.

    1. Its folder, keys and rules equal the last applied ones, or those of the last merge that was tried, because a
       different merge already made the changes.
    2. It is already applied, and either didn't change any of them, or the cluster has no waiting work.

    Raises GitopsError.
    """
    store, position = repository.git, repository.position(rule)
    if store.resolve(commit) is None:
        repository.head_of(rule.ref)
    if store.resolve(commit) is None or position.applied is None or position.trust is None:
        return False
    found = store.commit(commit)
    # A shallow clone, as in CI jobs, lacks the applied commit, but its folder and rules are known.
    same = store.subtree(found.tree, rule.path) == position.tree
    if commit != position.applied and same and not trust_waits(store, commit, position.trust.digest):
        return True
    covered = repository.ledger(rule).changesets().index.covered or commit
    tried = None if covered == commit or store.resolve(covered) is None else store.commit(covered)
    if tried is not None and not trees_differ(repository, rule, found.tree, tried.tree):
        return True
    if store.resolve(position.applied) is None or not store.is_ancestor(commit, position.applied):
        return False
    return position.converged or not commit_changes(repository, rule, found)


def waiting_changes(repository: Repository, rule: ClusterRule, commit: str | None = None) -> tuple[Address, ...]:
    """Return the changes that wait for approval, according to the cluster's ledger and branch.

    With a `commit`, the result is empty unless the recorded source commit contains that commit. Raises GitopsError.
    """
    store, position, entry = repository.git, repository.position(rule), repository.ledger(rule).view().entry
    applied = position.applied
    if commit is not None and (
        store.resolve(commit) is None or applied is None or not store.is_ancestor(commit, applied)
    ):
        return ()
    waits = (c for c in (() if entry is None else entry.changes) if c.reason == Reason.APPROVAL_REQUIRED.value)
    found = [change.resource for change in waits if change.tier is not None]
    if position.trust is not None and trust_waits(store, applied, position.trust.digest):
        found.append(trust_address(rule.name))
    if repository.scope_waits(rule, position, repository.config()):
        found.append(cluster_address(rule.name))
    return tuple(dict.fromkeys(found))


def is_merged_by(repository: Repository, request: ChangeRequest, update: RefUpdate) -> bool:
    """Return True if a push merged a request.

    This is so if the branch contains its head, or if merging the head would have no effect (squash, rebase).
    """
    store = repository.git
    if not repository.has_head(request):
        return False
    if store.is_ancestor(request.head, update.new):
        return True
    if update.old != ZERO and merging_gives(store, update.old, request.head, update.new):
        return True
    return merging_gives(store, update.new, request.head, update.new)
