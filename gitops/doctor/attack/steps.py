"""One attack as an object, and what most of them have to ask afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.doctor.attack.world import Fell, Twin, Unproven
from gitops.model.change import Reason

__all__ = ["Attack", "honest_but_one", "need", "nothing_happens", "refused_push", "together", "unguarded"]

# What else a change that waits brings about; it says nothing of its own.
_FOLLOWS = Code.APPLY_DEPENDENCY_BLOCKED


@dataclass(frozen=True)
class Attack:
    """`play` carries it out on a copy in `state` and says what stopped it; it raises Fell, Skipped or Unproven.

    `rule` is the page and the rule that has to stop it.
    """

    name: str
    title: str
    rule: str
    play: Callable[[Twin], str]
    state: str = "pending"


def honest_but_one(twin: Twin) -> None:
    """Everybody who has to approve does, but the first: a single approval that must not count would tip the scales."""
    for who in twin.rules.approvers[1:]:
        twin.endorse(who)


def nothing_happens(twin: Twin) -> str:
    """Apply: the graph that was to be deleted must still be there, and the ledger must not say otherwise.

    Returns the codes of what was said. Raises Fell.
    """
    outcome, codes = twin.apply()
    if not twin.has("legacy"):
        raise Fell("the graph was deleted")
    if outcome is not None and outcome.converged:
        raise Fell("the ledger records it as applied")
    waits = outcome is not None and any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
    said = [code for code in codes if code != _FOLLOWS] or (["it waits for an approval"] if waits else list(codes))
    return ", ".join(said) or "without effect"


def refused_push(twin: Twin, ref: str, new: str) -> str:
    """Where the server has its hook, it must refuse this move; what it says. Raises Fell."""
    if not twin.guarded():
        return ""
    reasons = twin.judged(ref, new)
    if not reasons:
        raise Fell(f"the server's hook lets {ref.removeprefix('refs/heads/')} move")
    return f"refused by the hook: {reasons[0].removeprefix(ref).lstrip(': ').partition(':')[0]}"


def unguarded(twin: Twin) -> None:
    """Where the hook is missing although nothing else judges pushes, what it would refuse can be done. Raises Fell."""
    if twin.rules.served and not twin.guarded():
        raise Fell("the server has no hook: whoever can push can do that (gitops hook install --server)")


def together(*parts: str) -> str:
    """What stopped it, in one line."""
    return "; ".join(part for part in parts if part)


def need(good: bool, what: str) -> None:
    """Raise Unproven if the ground of an attack is not as it has to be."""
    if not good:
        raise Unproven(what)
