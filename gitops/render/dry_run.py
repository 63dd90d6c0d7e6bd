"""What an apply would do, as a dry run found it: its nodes in the order of their starts, and what is left out."""

from __future__ import annotations

from typing import Any

from gitops.cluster.model.change import Disposition
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import ExecNode, NodeResult

__all__ = ["dry_run_form", "dry_run_lines"]


def dry_run_lines(outcome: ApplyOutcome) -> list[str]:
    """A numbered line for each node that would be started, one for each that would not, and how the ledger would be."""
    nodes, results = outcome.dry_run or (), {result.node_id: result for result in outcome.results}
    started = {node.id for node in nodes}
    width = len(str(len(nodes)))
    lines = [f"  {number:>{width}}. {_words(node, results[node.id])}" for number, node in enumerate(nodes, start=1)]
    lines += [f"  not started: {name}{_because(each)}" for name, each in results.items() if name not in started]
    for change in outcome.changes:
        if change.disposition in (Disposition.BLOCKED, Disposition.DEFERRED) and change.address not in results:
            reason = f": {change.reason}" if change.reason is not None else ""
            lines.append(f"  {change.action} {change.address} [{change.disposition.capitalize()}{reason}]")
    if outcome.ok:
        converged = str(outcome.converged).lower()
        lines.append(
            f"  state: revision {outcome.observations.state_revision}, would converge: {converged}, written: false"
        )
    return lines


def dry_run_form(outcome: ApplyOutcome) -> dict[str, Any]:
    """The members that the JSON document of a dry run has beside those of an apply."""
    nodes, results = outcome.dry_run or (), {result.node_id: result for result in outcome.results}
    found = [_form(node, results.pop(node.id)) for node in nodes]
    found += [{"id": name, "outcome": each.outcome.value, **_blocker(each)} for name, each in results.items()]
    return {"status": "dry_run", "nodes": found}


def _words(node: ExecNode, result: NodeResult) -> str:
    return node.title if result.outcome.succeeded else f"{node.title}, {result.outcome.value.upper()}"


def _because(result: NodeResult) -> str:
    return "" if result.blocked_by is None else f", because of {result.blocked_by}"


def _form(node: ExecNode, result: NodeResult) -> dict[str, Any]:
    work = {"change": node.address, "action": node.action.value} if node.changes else {}
    return {"id": node.id, **work, "class": node.effect.value, "outcome": result.outcome.value}


def _blocker(result: NodeResult) -> dict[str, str]:
    return {} if result.blocked_by is None else {"blocked_by": result.blocked_by}
