"""Replica strategy ticks: each cluster's applied strategies decide, then the bot executes their actions.

Scheduled runs execute the actions. A run started by a person only shows them, unless its input `mode` is `apply`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gitops.bot.context import EventContext
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.compute.ticks.tick import Ticking, TickOutcome, preview, tick
from gitops.core.errors import BugError, GitopsError
from gitops.forge.events import ManualEvent, TickEvent, TimerEvent
from gitops.render.words import count
from gitops.repository.results import LogLine, diagnostic_lines, error_line, result_of


def tick_clusters(
    context: EventContext, event: TickEvent | TimerEvent | ManualEvent, cluster: str | None = None
) -> Iterator[LogLine]:
    """Run a tick for all clusters, or only for `cluster`. A problem in one cluster does not stop the others."""
    scheduled = not isinstance(event, ManualEvent)
    carries_out = not isinstance(event, ManualEvent) or dict(event.inputs).get("mode") == "apply"
    for rule in context.clusters:
        if cluster in (None, rule.name):
            try:
                yield from _tick_cluster(context, rule, carries_out=carries_out, scheduled=scheduled)
            except GitopsError as error:
                yield error_line(f"tick of {rule.name}", error)


def _tick_cluster(context: EventContext, rule: ClusterRule, *, carries_out: bool, scheduled: bool) -> Iterator[LogLine]:
    begin, head = f"tick of {rule.name}", context.repository.head_of(rule.ref)
    if head is None or context.position(rule).applied is None:
        yield LogLine(f"{begin}: nothing is applied yet")
        return
    workspace = context.workspace_at(rule, head, in_place=True)
    if workspace.open_target is None:
        raise BugError("the bot was made without a way to open targets")
    how = Ticking(workspace.open_target, scheduled=scheduled)
    outcome = tick(workspace, how) if carries_out else preview(workspace, how)
    ended = {result.node_id: f" [{result.outcome.value}]" for result in outcome.results}
    for action in outcome.actions:
        yield LogLine(f"{begin}: {action.sql}: {'; '.join(action.reasons)}{ended.get(action.address, '')}")
    yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)
    yield LogLine(f"{begin}: {_sum(outcome)}", result_of(outcome.diagnostics))


def _sum(outcome: TickOutcome) -> str:
    """Summarise a tick in one line."""
    if outcome.skipped is not None:
        return f"skipped: {outcome.skipped}"
    if not outcome.decided:
        return "nothing was decided" if not outcome.ok else "no strategies to decide"
    looked = count(len(outcome.decided), "compute cluster")
    if not outcome.actions:
        return f"nothing to do for {looked}"
    if outcome.dry_run:
        return f"{looked}, {count(len(outcome.actions), 'statement')} would be carried out"
    key = "" if outcome.changeset is None else f": changeset {outcome.changeset.key}"
    return f"{looked}, {count(len(outcome.actions), 'statement')}{key}"
