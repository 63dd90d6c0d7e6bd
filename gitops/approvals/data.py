"""Whether an approval covers the data that a change is about, which is step 8 of the verification.

1. What the approver saw is recorded, and what is there now is known. Otherwise the approval does not count.
2. It is the same graph: one that was created again, or exchanged, has another incarnation.
3. It has not grown by more than the rules permit; a graph that was seen empty has to be empty.
"""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.model.approval import Approval
from gitops.model.change import Change, Seen
from gitops.model.kinds import rules_of
from gitops.model.trust import DataGrowth

__all__ = ["covers_change", "data_refusal"]


def covers_change(approval: Approval, change: Change, config_digest: str, growth: DataGrowth) -> bool:
    """Whether an unconsumed approval is for exactly this change: resource, all three bound digests, and data."""
    return (
        approval.consumed_at is None
        and approval.resource == change.address
        and approval.operation is change.action
        and approval.bound_config_digest == config_digest
        and approval.bound_before_digest == change.before
        and approval.bound_after_digest == change.after
        and data_refusal(change, approval.seen, growth) is None
    )


def data_refusal(change: Change, approved: Seen | None, growth: DataGrowth) -> tuple[Code, str] | None:
    """Why an approval that saw `approved` does not cover the data of a change as it is now: code and reason. None if it does."""
    if not rules_of(change.address).is_about_data(change):
        return None
    now, graph = change.seen, change.address.name
    if approved is None or now is None:
        lacking = "it does not record what its approver saw of" if approved is None else "it is not known what is in"
        return Code.APPROVAL_DATA_UNKNOWN, f"{lacking} graph {graph}; run gitops refresh, then approve again"
    if approved.incarnation != now.incarnation:
        detail = f"it is for graph {approved.incarnation}, and {now.incarnation} is at this root now"
        return Code.APPROVAL_OTHER_GRAPH, detail
    if now.rows > growth.allowed(approved.rows):
        detail = f"the graph has grown: {approved.rows:,} rows at the approval, {now.rows:,} rows now; approve again"
        return Code.APPROVAL_DATA_GREW, detail
    return None
