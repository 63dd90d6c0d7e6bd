"""Other open change requests that change the same resources as a planned one.

Requests are compared by git alone. Two overlap where both differ from their common target at the same address. Only files that
differ are loaded, so neither a large cluster nor many requests for other clusters cost much.
"""

from __future__ import annotations

from gitops.bot.context import EventContext
from gitops.config.difference import Differences
from gitops.config.gitops_yaml import ClusterRule
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.render.comment_inputs import OtherRequest

__all__ = ["overlapping_requests"]

_MOST_REQUESTS = 50


def overlapping_requests(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> tuple[OtherRequest, ...]:
    """The other open requests that change a resource which `request` changes, by number; of the newest fifty."""
    others = [r for r in context.open_requests(request.target) if r.number != request.number][-_MOST_REQUESTS:]
    context.project.fetch_heads(others)
    target = context.project.head_of(request.target)
    if not others or target is None or not context.project.has_head(request):
        return ()
    differences = Differences()
    ours = _changed_addresses(context, rule, target, request, differences)
    found = []
    for other in others if ours else ():
        if context.project.has_head(other):
            common = sorted(ours & _changed_addresses(context, rule, target, other, differences))
            if common:
                found.append(OtherRequest(other.number, other.title, other.url, tuple(common)))
    return tuple(found)


def _changed_addresses(
    context: EventContext, rule: ClusterRule, target: str, request: ChangeRequest, differences: Differences
) -> frozenset[str]:
    """The addresses that a request declares differently from the commit at which it left its target."""
    store, open_tree = context.store, context.project.tools.open_tree
    try:
        base = store.merge_base(target, request.head)
        if base is None:
            return frozenset()
        before, after = (store.subtree(store.commit(c).tree, rule.path) for c in (base, request.head))
        if before is None or after is None or before == after:
            return frozenset()
        old, new = (open_tree(store, tree, rule.path) for tree in (before, after))
        return differences.addresses(old, new, store.changed_paths(before, after))
    except GitopsError:
        # The plan of that request reports the problem; to call all of it changed would be a false alarm.
        return frozenset()
