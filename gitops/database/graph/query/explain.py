"""The explanation of a run: its operators with estimated and actual rows.

Values of parameters never appear here, only their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gitops.database.graph.query.plan import (
    Block,
    HopOp,
    NotOp,
    Operator,
    ProductOp,
    ScanOp,
    SortOp,
    TestOp,
    selectivity,
    show_variable,
)
from gitops.database.language.query.typed import Direction

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
        inner = None
        passing = 1.0 if isinstance(operator, (NotOp, SortOp)) else selectivity(operator.conditions)
        if isinstance(operator, ScanOp):
            form: dict[str, Any] = {"operator": "scan", "variable": f"${operator.variable}", "table": operator.table}
            given = rows_of(operator.table) * passing
        elif isinstance(operator, HopOp):
            form = {"operator": "exists" if operator.exists else "expand", "hop": _hop(operator)}
            degree, most = rows_of(operator.edge) / max(1, rows_of(operator.near_table)), rows_of(operator.far_table)
            if operator.exists:
                given *= min(1.0, degree / max(1, most))
            else:
                reached = sum(degree**depth for depth in range(operator.low, min(operator.high, 8) + 1))
                given = given * min(reached, float(most)) * passing
        elif isinstance(operator, TestOp):
            form = {"operator": "filter"}
            given *= passing
        elif isinstance(operator, ProductOp):
            form, inner = {"operator": "product"}, explain(operator.block, trace, rows_of)
            given = given * (inner[-1]["estimated_rows"] if inner else 1) * passing
        elif isinstance(operator, SortOp):
            form = {"operator": "sort", "by": [show_variable(name) for name, _ in operator.keys]}
        else:
            form = {"operator": "absent", "outer": [f"${name}" for name in operator.outer]}
            inner = explain(operator.block, trace, rows_of, given)
            given /= 2
        if not isinstance(operator, (NotOp, SortOp)) and operator.conditions:
            form["conditions"] = [str(condition) for condition in operator.conditions]
        form |= {"estimated_rows": round(given), **trace.step(operator)}
        if inner is not None:
            form["operators"] = inner
        forms.append(form)
    return forms


def _hop(operator: HopOp) -> str:
    bounds = "" if operator.low == operator.high == 1 else f"{{{operator.low},{operator.high}}}"
    binding = "" if operator.binding is None else f"${operator.binding}:"
    arrow = _ARROWS[operator.direction].format(binding + operator.edge.removeprefix("edge:") + bounds)
    return f"{show_variable(operator.near)} {arrow} {show_variable(operator.far)}"
