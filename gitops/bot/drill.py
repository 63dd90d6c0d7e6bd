"""Runs a restore drill of each cluster. The ledger records the result, so no comment or issue is written."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.bot.context import EventContext
from gitops.core.errors import GitopsError
from gitops.repository.results import LogLine, diagnostic_lines, error_line


def drill_clusters(context: EventContext, cluster: str | None = None) -> Iterator[LogLine]:
    """Restore all clusters, or only `cluster`. A problem in one of them does not stop the others."""
    for rule in context.clusters:
        if cluster not in (None, rule.name):
            continue
        begin, head = f"drill of {rule.name}", context.repository.head_of(rule.ref)
        if head is None or context.position(rule).applied is None:
            yield LogLine(f"{begin}: nothing is applied yet")
            continue
        try:
            outcome = context.bot.drill(context.workspace_at(rule, head, in_place=True))
        except GitopsError as error:
            yield error_line(begin, error)
            continue
        if (found := outcome.drill) is not None:
            result = "passed" if found.passed else "failed"
            yield LogLine(f"{begin}: {result}; {len(found.graphs)} graphs, {found.rows} rows, {found.seconds} s")
        yield from diagnostic_lines(outcome.diagnostics, outcome.config_dir)
