"""Who may do something under a policy."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.policy.bundle import BRANCH_SCOPED, TARGET_SCOPED, Action, Bundle, Rule
from gitops.policy.decide import MAIN, AccessRequest, permits

__all__ = ["who_may"]


def who_may(bundle: Bundle, action: Action, branch: str = MAIN, query: str | None = None) -> Mapping[str, Rule]:
    """Each actor who may do something on a branch, in order, with the first rule by its id that permits it.

    `query` is the stored query that is invoked.
    """
    on, target = branch if action in BRANCH_SCOPED else None, branch if action in TARGET_SCOPED else None
    found: dict[str, Rule] = {}
    for rule in sorted(bundle.rules, key=lambda rule: rule.id):
        members = bundle.groups.get(rule.group, ())
        # What a rule asks besides its group is the same for each member.
        if members and permits(bundle, rule, AccessRequest(members[0], action, on, target, query)):
            for actor in members:
                found.setdefault(actor, rule)
    return dict(sorted(found.items()))
