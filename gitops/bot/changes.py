"""What branches and requests change, as git says it: no forge is asked, and nothing is checked out."""

from __future__ import annotations

from collections.abc import Sequence

from gitops.bot.project import Project
from gitops.config.gitops_yaml import ClusterRule
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.git.port import ZERO, RefUpdate
from gitops.ledger.trust import trust_at

__all__ = ["adds", "differ", "gives", "landed", "touches"]


def touches(project: Project, rule: ClusterRule, target: str, head: str) -> bool:
    """Whether a branch changed the cluster folder, or what says whom to trust, since it left the target."""
    store, tip = project.tools.store, project.tip(target)
    base = None if tip is None else store.merge_base(tip, head)
    ours = store.commit(head).tree
    theirs = None if base is None else store.commit(base).tree
    return theirs is None or differ(project, rule, ours, theirs)


def differ(project: Project, rule: ClusterRule, ours: str, theirs: str) -> bool:
    """Whether two root trees have another cluster folder, or say otherwise whom to trust."""
    store = project.tools.store
    if store.subtree(ours, rule.path) != store.subtree(theirs, rule.path):
        return True
    try:
        return trust_at(store, ours) != trust_at(store, theirs)
    except GitopsError:
        return True


def adds(project: Project, rule: ClusterRule, update: RefUpdate, requests: Sequence[ChangeRequest]) -> bool:
    """Whether a push brings more to a cluster than one request: then it is the work of who pushed it, too."""
    if update.old == ZERO:
        # A branch that was removed and is pushed anew holds whatever its pusher wants.
        return True
    if any(gives(project, update.old, r, update.new) for r in requests):
        return False
    store = project.tools.store
    return differ(project, rule, store.commit(update.new).tree, store.commit(update.old).tree)


def landed(project: Project, request: ChangeRequest, update: RefUpdate) -> bool:
    """Whether a request is in: its head is, or merging it would change nothing any more (squash, rebase)."""
    store = project.tools.store
    if store.resolve(request.head) is None:
        return False
    if store.is_ancestor(request.head, update.new):
        return True
    if update.old != ZERO and gives(project, update.old, request, update.new):
        return True
    return gives(project, update.new, request, update.new)


def gives(project: Project, base: str, request: ChangeRequest, commit: str) -> bool:
    """Whether merging a request into `base` gives exactly what `commit` holds."""
    store = project.tools.store
    try:
        return store.merge(base, request.head).tree == store.commit(commit).tree
    except GitopsError:
        # Anybody can push a branch that cannot be merged at all; that must not stop the work of others.
        return False
