"""The type of an attack, and the steps that most attacks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.doctor.attack.copy import AttackInconclusive, AttackSucceeded, ClusterCopy
from gitops.model.change import Reason


@dataclass(frozen=True)
class Attack:
    """One attack.

    `run` carries it out on a copy in `state` and returns what stopped it. It raises AttackSucceeded, AttackSkipped or
    AttackInconclusive. `rule` is the page and the rule that must stop it.
    """

    name: str
    title: str
    rule: str
    run: Callable[[ClusterCopy], str]
    state: str = "pending"


def approve_except_first(copy: ClusterCopy) -> None:
    """Let every required approver but the first approve, so that one invalid approval would complete the quorum."""
    for who in copy.rules.approvers[1:]:
        copy.approve(who)


def expect_no_effect(copy: ClusterCopy) -> str:
    """Apply, and check that the graph of the pending delete still exists and that the ledger does not record the delete.

    Returns the reported codes, joined. Raises AttackSucceeded.
    """
    outcome, codes = copy.apply()
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the graph was deleted")
    if outcome is not None and outcome.converged:
        raise AttackSucceeded("the ledger records the delete as applied")
    waits = outcome is not None and any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
    # A change that depends on the delete is blocked in any case, which explains nothing.
    reasons = [code for code in codes if code != Code.APPLY_DEPENDENCY_BLOCKED]
    return ", ".join(reasons or (["it waits for an approval"] if waits else codes)) or "without effect"


def expect_push_refused(copy: ClusterCopy, ref: str, new: str) -> str:
    """Check that the server's hook refuses to move `ref` to `new`.

    Returns the reason of the hook, or "" if no hook is installed. Raises AttackSucceeded.
    """
    if not copy.has_hook():
        return ""
    reasons = copy.hook_refusals(ref, new)
    if not reasons:
        raise AttackSucceeded(f"the server's hook accepts the push to {ref.removeprefix('refs/heads/')}")
    return f"refused by the hook: {reasons[0].removeprefix(ref).lstrip(': ').partition(':')[0]}"


def require_hook(copy: ClusterCopy) -> None:
    """Raise AttackSucceeded if the hook is missing although nothing else checks pushes to this server."""
    if copy.rules.served and not copy.has_hook():
        raise AttackSucceeded("the server has no hook: anyone who can push can do this (gitops hook install --server)")


def join_reasons(*reasons: str) -> str:
    """Join what stopped an attack into one line."""
    return "; ".join(filter(None, reasons))


def require(condition: bool, problem: str) -> None:
    """Raise AttackInconclusive if a precondition of an attack does not hold."""
    if not condition:
        raise AttackInconclusive(problem)
