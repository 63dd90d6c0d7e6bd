"""The explanation of a run: its operators with estimated and actual rows.

Values of parameters never appear here, only their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gitops.graph.query.plan import Block, HopOp, NotOp, Operator, ProductOp, ScanOp, SortOp, TestOp, selectivity
from gitops.language.query.typed import Direction

__all__ = ["Trace", "explain"]

_ARROWS = {Direction.OUT: "-{}->", Direction.IN: "<-{}-", Direction.BOTH: "<-{}->"}


class Trace:
    """Counts per operator, and notes; an operator of a `not` block may run several times."""

    def __init__(self) -> None:
        """Start without counts."""
        self._steps: dict[int, dict[str, Any]] = {}

    def count(self, operator: Operator, rows: int) -> None:
        """The operator ran and gave so many rows."""
        step = self.step(operator)
        step["runs"] += 1
        step["rows"] += rows

    def note(self, operator: Operator, name: str, value: Any) -> None:
        """Keep how the operator ran; the last time counts."""
        self.step(operator)[name] = value

    def step(self, operator: Operator) -> dict[str, Any]:
        """The counts of an operator; each place of a plan is an operator of its own."""
        return self._steps.setdefault(id(operator), {"rows": 0, "runs": 0})


def explain(block: Block, trace: Trace, rows_of: Callable[[str], int], given: float = 1.0) -> list[dict[str, Any]]:
    """The operators of a block in order, each as a JSON object; `rows_of` gives the rows of a table by key."""
    forms = []
    for operator in block.operators:
        form = _form(operator)
        inner = None
        if isinstance(operator, (ProductOp, NotOp)):
            inner = explain(operator.block, trace, rows_of, given if isinstance(operator, NotOp) else 1.0)
        given = _estimate(operator, rows_of, given, inner)
        form |= {"estimated_rows": round(given), **trace.step(operator)}
        if inner is not None:
            form["operators"] = inner
        forms.append(form)
    return forms


def _form(operator: Operator) -> dict[str, Any]:
    if isinstance(operator, ScanOp):
        form: dict[str, Any] = {"operator": "scan", "variable": f"${operator.variable}", "table": operator.table}
    elif isinstance(operator, HopOp):
        bounds = "" if operator.low == operator.high == 1 else f"{{{operator.low},{operator.high}}}"
        edge = operator.edge.removeprefix("edge:")
        arrow = _ARROWS[operator.direction].format(
            (f"${operator.binding}:" if operator.binding else "") + edge + bounds
        )
        hop = f"{_name(operator.near)} {arrow} {_name(operator.far)}"
        form = {"operator": "exists" if operator.exists else "expand", "hop": hop}
    elif isinstance(operator, TestOp):
        form = {"operator": "filter"}
    elif isinstance(operator, ProductOp):
        form = {"operator": "product"}
    elif isinstance(operator, SortOp):
        form = {"operator": "sort", "by": [_name(name) for name, _ in operator.keys]}
    else:
        form = {"operator": "absent", "outer": [f"${name}" for name in operator.outer]}
    if not isinstance(operator, (NotOp, SortOp)) and operator.conditions:
        form["conditions"] = [str(condition) for condition in operator.conditions]
    return form


def _name(variable: str) -> str:
    return "$_" if variable.startswith("#") else f"${variable}"


def _estimate(
    operator: Operator, rows_of: Callable[[str], int], given: float, inner: list[dict[str, Any]] | None
) -> float:
    if isinstance(operator, NotOp):
        return given / 2
    if isinstance(operator, SortOp):
        return given
    passing = selectivity(operator.conditions)
    if isinstance(operator, ScanOp):
        return rows_of(operator.table) * passing
    if isinstance(operator, HopOp):
        degree = rows_of(operator.edge) / max(1, rows_of(operator.near_table))
        if operator.exists:
            return given * min(1.0, degree / max(1, rows_of(operator.far_table)))
        reached = sum(degree**depth for depth in range(operator.low, min(operator.high, 8) + 1))
        return given * min(reached, float(rows_of(operator.far_table))) * passing
    if isinstance(operator, ProductOp):
        return given * (inner[-1]["estimated_rows"] if inner else 1) * passing
    return given * passing
