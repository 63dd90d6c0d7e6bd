"""How a plan lands: the class of each change, and what an atomic run does not simply stage, for text, comments and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.plan import Effect, Plan
from gitops.cluster.plan.classes import Classified, effects_of, pivots

__all__ = ["LANDS_WHOLE", "classes_of", "landing_lines", "landing_rows"]

LANDS_WHOLE = "whole or not at all; what is not listed here is prepared first, and taken back if something fails"

_NAMES = 20
# What people read of a class; a staged change is listed only if it is a migration in halves.
_WHEN = {Effect.STAGE: "in halves", Effect.PIVOT: "last before the commit", Effect.FINISH: "after the commit"}


def classes_of(plan: Plan) -> Mapping[Address, Classified]:
    """The class of each change that is carried out now, and of each that waits as if all of the plan was carried out.

    What follows from other changes has none, nor has what no apply carries out, such as a migration that is not supported.
    """
    able = [c for c in plan.changes if c.migration is None or c.migration.supported]
    now = [c for c in able if c.disposition is Disposition.APPLIED]
    waiting = [c for c in able if c.disposition is Disposition.BLOCKED]
    return {**effects_of((*now, *waiting)), **effects_of(now)}


def landing_rows(plan: Plan) -> tuple[dict[str, Any], ...]:
    """What is not simply staged in an atomic run of a plan, grouped by its class and the reason for that.

    Each has the `effect`, `when` it is carried out in words, the `reason` and the `resources`. Several of effect `pivot` are
    carried out in as many `parts`, and `note` says so below the first of them.
    """
    kept = {node.address for node in plan.graph.nodes}
    found: dict[tuple[Effect, str], list[Address]] = {}
    for address, each in classes_of(plan).items():
        if address in kept and (each.effect in (Effect.PIVOT, Effect.FINISH) or each.expanded is not None):
            found.setdefault((each.effect, each.reason), []).append(address)
    rows: list[dict[str, Any]] = []
    parts = len(pivots(plan.graph))
    in_parts = f"carried out in {parts} parts, each whole or not at all, one after the other until one fails"
    for (effect, reason), names in sorted(found.items(), key=lambda item: (item[0][0].rank, item[0][1])):
        pivot = effect is Effect.PIVOT
        first = all(row["effect"] != effect.value for row in rows)
        rows.append(
            {
                "effect": effect.value,
                "when": _WHEN[effect],
                "reason": reason,
                "resources": tuple(sorted(names)),
                "parts": parts if pivot else 1,
                "note": in_parts if pivot and first and parts > 1 else "",
            }
        )
    return tuple(rows)


def landing_lines(plan: Plan) -> list[str]:
    """The same as lines of a terminal; none for a plan of which everything is staged."""
    rows = landing_rows(plan)
    lines = [f"  how it lands: {LANDS_WHOLE}"] if rows else []
    for row in rows:
        names = row["resources"]
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        lines.append(f"    {row['when']}: {', '.join(names[:_NAMES])}{more}: {row['reason']}")
        lines += [f"      {row['note']}"] if row["note"] else []
    return lines
