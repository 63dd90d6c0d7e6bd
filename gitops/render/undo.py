"""What a plan back restores and what stays lost, as lines, as rows of a comment, and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gitops.cluster.model.plan import Plan
from gitops.cluster.model.undo import Undo, Undoing, UndonePart

__all__ = ["undo_counts", "undo_forms", "undo_lines", "undo_rows"]

_WORST_FIRST = tuple(reversed(Undo))


def undo_counts(plan: Plan) -> str:
    """How many changes of a plan back are of which class, the best first; empty for any other plan."""
    found = Counter(each.undo for each in plan.undoings)
    return ", ".join(f"{found[undo]} {undo.value}" for undo in Undo if found[undo])


def undo_rows(plan: Plan) -> tuple[dict[str, Any], ...]:
    """One row for each change that does not simply come back, the worst first: its `resource`, its class and its lines."""
    worse = [each for each in plan.undoings if each.undo is not Undo.COMPLETE]
    return tuple(
        {
            "resource": each.resource,
            "undo": each.undo.value,
            "lines": tuple(part.words for part in each.parts),
            "restore": restore_lines(each),
        }
        for each in sorted(worse, key=lambda each: (_WORST_FIRST.index(each.undo), each.resource))
    )


def restore_lines(undoing: Undoing) -> tuple[str, ...]:
    """What to add to `cluster.yaml` so that the rows of types that come back empty come back too; one line for each version."""
    types: dict[int, list[str]] = {}
    for part in undoing.parts:
        if part.comes_back and part.version is not None:
            types.setdefault(part.version, []).append(part.name)
    graph = undoing.resource.name
    return tuple(
        f"restores: {{{graph}: {{version: {version}, types: [{', '.join(sorted(names))}]}}}}"
        for version, names in sorted(types.items())
    )


def undo_lines(plan: Plan) -> list[str]:
    """The same for a terminal; nothing for a plan that does not lead back."""
    if not plan.undoings:
        return []
    lines = [f"  going back: {undo_counts(plan)}"]
    for row in undo_rows(plan):
        lines.append(f"    {row['resource']}: {row['undo']}")
        lines += [f"      {words}" for words in row["lines"]]
        lines += [f"      to have its rows again, add to cluster.yaml: {line}" for line in row["restore"]]
    return lines


def undo_forms(plan: Plan) -> dict[str, Any]:
    """The fields of a plan back in JSON: the class of each change, and the order in which they are undone."""
    if not plan.undoings:
        return {}
    forms = [
        {
            "resource": each.resource,
            "undo": each.undo.value,
            **({"parts": [_part(part) for part in each.parts]} if each.parts else {}),
        }
        for each in plan.undoings
    ]
    return {"undoings": forms, "undo_order": [node.id for node in plan.undo_graph.nodes]}


def _part(part: UndonePart) -> dict[str, Any]:
    known = {"version": part.version, "rows": part.rows}
    found = {name: value for name, value in known.items() if value is not None}
    return {"name": part.name, "undo": part.undo.value, **found, "words": part.words}
