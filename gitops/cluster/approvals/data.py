"""Whether an approval covers the data that a change is about, which is the last step of the verification.

1. What the approver saw is recorded, and what is there now is known. Otherwise the approval does not count.
2. It is the same graph: one that was created again, or exchanged, has another incarnation.
3. It has not grown by more than the rules permit; a graph that was seen empty has to be empty.
4. Of the rows that were seen no more were replaced than the percentage of the rules: the rows that would go are those that the
   approver gave up. A row that was changed is replaced; one that was deleted, and rows that came in addition, are not. The number
   of rows that the rules permit is for growth alone. Where that is not known, since the version that was seen is no longer kept,
   the approval does not count.
"""

from __future__ import annotations

from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Change, Seen
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.trust import DataGrowth
from gitops.core.codes import Code

__all__ = ["DATA_REFUSALS", "covers_change", "data_refusal"]

DATA_REFUSALS = frozenset(
    {
        Code.APPROVAL_DATA_UNKNOWN,
        Code.APPROVAL_OTHER_GRAPH,
        Code.APPROVAL_DATA_GREW,
        Code.APPROVAL_DATA_REPLACED,
    }
)
"""The codes of `data_refusal`."""


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


def data_refusal(
    change: Change, approved: Seen | None, growth: DataGrowth, replaced: int | str = 0
) -> tuple[Code, str] | None:
    """Why an approval that saw `approved` does not cover the data of a change as it is now: code and reason. None if it does.

    `replaced` is how many of the rows that were seen were replaced since, or why that cannot be known; 0 where no graph is at
    hand: who has the graph decides that.
    """
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
    if isinstance(replaced, str):
        lacking = f"it is not known whether the rows of version {approved.version} are still there: {replaced}"
        return Code.APPROVAL_DATA_UNKNOWN, f"{lacking}; run gitops refresh, then approve again"
    if replaced > growth.replaceable(approved.rows):
        detail = (
            f"of {approved.held} in version {approved.version}, which its approver saw, {replaced:,} "
            f"{'was' if replaced == 1 else 'were'} replaced up to version {now.version}; approve again"
        )
        return Code.APPROVAL_DATA_REPLACED, detail
    return None
