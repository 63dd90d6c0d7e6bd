"""Ticks as text and as JSON: the statements in their order with the reasons for them, and how each ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.compute.ticks.memory import MemoryOutcome
from gitops.compute.ticks.tick import TickOutcome
from gitops.core.diagnostics import Diagnostics
from gitops.render.json import present
from gitops.render.text import count

__all__ = ["memory_form", "memory_lines", "tick_form", "tick_lines"]

_GAP = "  "


def tick_lines(outcome: TickOutcome, *, table: bool = False, verbose: bool = False) -> list[str]:
    """The statements as SQL with the reasons as comments, or, with `table`, as a table; then what they add up to.

    `verbose` also lists the compute clusters that need nothing.
    """
    ended = {result.node_id: result.outcome.value for result in outcome.results}
    rows = [
        (f"{each.target}/{each.compute}", each.sql, ended.get(each.address, ""), "; ".join(each.reasons))
        for each in outcome.actions
    ]
    lines = _table(rows) if table and rows else [line for row in rows for line in _commented(*row)]
    acting = {place for place, *_ in rows}
    quiet = [place for place in outcome.decided if place not in acting]
    lines += [f"-- {place}: nothing to do" for place in quiet if verbose]
    return [*lines, _summary(outcome)]


def _table(rows: list[tuple[str, str, str, str]]) -> list[str]:
    heads = ("COMPUTE CLUSTER", "STATEMENT", "RESULT" if any(row[2] for row in rows) else "", "REASON")
    columns = [index for index, head in enumerate(heads) if head]
    shown = [[row[index] for index in columns] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [_GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in shown]


def _commented(place: str, sql: str, result: str, reasons: str) -> list[str]:
    return [f"{sql};", f"-- {place}: {reasons}{f' [{result}]' if result else ''}"]


def _summary(outcome: TickOutcome) -> str:
    if outcome.skipped is not None:
        return f"-- skipped: {outcome.skipped}"
    clusters = count(len(outcome.decided), "compute cluster")
    statements = count(len(outcome.actions), "statement")
    if outcome.dry_run or outcome.changeset is None:
        would = "would be " if outcome.dry_run and outcome.actions else ""
        return f"-- {clusters} looked at, {statements} {would}carried out".replace("0 statements", "no statements")
    done = sum(each.outcome.succeeded for each in outcome.results if each.node_id.startswith("replica."))
    return f"-- {clusters} looked at, {done} of {statements} carried out: changeset {outcome.changeset.key}"


def tick_form(outcome: TickOutcome) -> dict[str, Any]:
    """As JSON."""
    ended = {result.node_id: result.outcome.value for result in outcome.results}
    return {
        "ok": outcome.ok,
        "dry_run": outcome.dry_run,
        "config_dir": outcome.config_dir,
        "decided": list(outcome.decided),
        "actions": [
            {
                "address": each.address,
                "target": each.target,
                "compute_cluster": each.compute,
                "cluster_id": each.cluster_id,
                "op": each.kind.value,
                "replica": each.replica,
                "size": each.size,
                "sql": each.sql,
                "reasons": list(each.reasons),
                **present(outcome=ended.get(each.address)),
            }
            for each in outcome.actions
        ],
        **present(skipped=outcome.skipped, changeset=None if outcome.changeset is None else outcome.changeset.key),
        "diagnostics": Diagnostics(outcome.diagnostics).to_json(),
    }


def memory_lines(outcome: MemoryOutcome, noun: str, done: str) -> list[str]:
    """A line for each target; what was counted, and what was done to it."""
    return [f"{target}: {count(number, noun)} {done}" for target, number in sorted(outcome.done.items())]


def memory_form(outcome: MemoryOutcome) -> Mapping[str, Any]:
    """As JSON."""
    found = Diagnostics(outcome.diagnostics).to_json()
    return {"ok": outcome.ok, "targets": dict(sorted(outcome.done.items())), "diagnostics": found}
