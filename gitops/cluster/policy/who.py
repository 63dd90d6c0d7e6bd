"""Who may do something under a policy."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.policy.bundle import BRANCH_SCOPED, READS, TARGET_SCOPED, Action, Bundle, Rule
from gitops.cluster.policy.decide import MAIN, AccessRequest, permits

__all__ = ["who_may"]


def who_may(bundle: Bundle, action: Action, branch: str = MAIN, query: str | None = None) -> Mapping[str, Rule]:
    """Each actor who may do something on a branch, in order, with the first rule by its id that permits it.

    `query` is the stored query that is invoked. An actor who may copy to a branch may also read one to copy.
    """
    on, target = branch if action in BRANCH_SCOPED else None, branch if action in TARGET_SCOPED else None
    found: dict[str, Rule] = {}
    for rule in sorted(bundle.rules, key=lambda rule: rule.id):
        members = bundle.groups.get(rule.group, ())
        # What a rule asks besides its group is the same for each member.
        if members and permits(bundle, rule, AccessRequest(members[0], action, on, target, query)):
            for actor in members:
                found.setdefault(actor, rule)
    if action in READS:
        # A branch that is in no list is read as every other one that is not.
        origins = (MAIN, *bundle.protected_branches, "")
        readers = {actor for origin in origins for actor in who_may(bundle, READS[action], origin)}
        found = {actor: rule for actor, rule in found.items() if actor in readers}
    return dict(sorted(found.items()))
