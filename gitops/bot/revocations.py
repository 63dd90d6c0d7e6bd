"""Record revocations as soon as an event or the sweep finds them: from then on deleting their branch undoes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.bot.context import EventContext
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.session.session import RevocationContext, record_under_lock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.repository.results import LogLine, error_line

__all__ = ["take_in_revocations"]


def take_in_revocations(context: EventContext, rule: ClusterRule) -> Iterator[LogLine]:
    """Record the revocations of a cluster that no entry records yet; a line for each. A problem does not stop the event."""
    tools = context.project.tools
    try:
        target = context.project.target(rule, config=context.config)
        into = RevocationContext(tools.ledger(rule), target, tools.clock, tools.ids, context.bot.actor)
        recorded = record_under_lock(into)
    except GitopsError as error:
        if error.code == Code.STATE_LOCK_HELD:
            yield LogLine(f"{rule.name}: a revocation is recorded by the next run: {error.detail}")
        else:
            yield error_line(rule.name, error)
        return
    for each in recorded:
        yield LogLine(f"{rule.name}: the revocation of approval {each.approval_id} by {each.principal} is recorded")
