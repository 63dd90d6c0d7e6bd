"""Reads the stored JSON document of a plan for its page.

Anyone with push rights can replace such a document, so every member can be missing or have any form. What does not have the
expected form is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.database.language.schema.steps import plain_words

_STEPS = 20


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A row of the table of changes."""

    resource: str
    operation: str
    result: str
    effect: str
    details: str


@dataclass(frozen=True, slots=True)
class NeededApproval:
    """A row of the table of approvals."""

    resource: str
    satisfied: bool
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of the execution graph, with the nodes that must succeed before it. A step changes no resource."""

    id: str
    action: str
    effect: str
    after: tuple[str, ...]
    is_step: bool


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The parts of a plan that the page of its change request shows."""

    changes: tuple[PlannedChange, ...]
    approvals: tuple[NeededApproval, ...]
    obstacles: tuple[Mapping[str, str], ...]
    access: tuple[Mapping[str, str], ...]
    impact: tuple[tuple[str, str], ...]
    nodes: tuple[PlannedNode, ...]

    @property
    def edges(self) -> Iterator[tuple[str, str]]:
        """The edges of the execution graph."""
        return ((before, node.id) for node in self.nodes for before in node.after)


def plan_page(form: Mapping[str, Any]) -> PlanPage:
    """Return the readable part of a document. Never raises, whatever it contains."""
    graph = _object(form.get("execution_graph"))
    before: dict[str, list[str]] = {}
    for edge in _objects(graph.get("edges")):
        before.setdefault(_text(edge, "to"), []).append(_text(edge, "from"))
    nodes = {_text(node, "id"): node for node in _objects(graph.get("nodes"))}
    return PlanPage(
        changes=tuple(map(_change, _objects(form.get("changes")))),
        approvals=tuple(
            NeededApproval(
                _text(each, "resource"),
                each.get("satisfied") is True,
                _listed(each.get("approved_by")),
                _text(each, "reason"),
            )
            for each in _objects(form.get("approvals_required"))
        ),
        obstacles=tuple(
            {name: _text(each, name) for name in ("resource", "code", "message")}
            for each in _objects(form.get("obstacles"))
        ),
        access=tuple(map(_access, _objects(_object(form.get("access")).get("rows")))),
        impact=tuple(
            (_text(each, "resource"), _listed(each.get("affected"))) for each in _objects(form.get("blast_radius"))
        ),
        nodes=tuple(
            PlannedNode(
                name,
                _text(node, "action"),
                _text(node, "class"),
                tuple(sorted(set(before.get(name, ())))),
                node.get("change") is None,
            )
            for name, node in nodes.items()
        ),
    )


def _change(form: Mapping[str, Any]) -> PlannedChange:
    reason = _text(form, "reason")
    steps = [plain_words(step) for step in _objects(_object(form.get("migration")).get("steps"))]
    callers = _text(_object(form.get("callers")), "words")
    details = [*([callers] if callers else ()), *_texts(form.get("details")), *steps[:_STEPS]]
    details += [f"and {len(steps) - _STEPS} more steps"] if len(steps) > _STEPS else []
    return PlannedChange(
        _text(form, "resource"),
        _text(form, "operation"),
        _text(form, "disposition") + (f": {reason}" if reason else ""),
        _text(form, "class"),
        "; ".join(details),
    )


def _access(form: Mapping[str, Any]) -> Mapping[str, str]:
    actors, cause = _object(form.get("actors")), _object(form.get("cause"))
    query = _text(form, "query") or _listed(form.get("queries"))
    rule = " ".join(filter(None, (_text(form, "rule"), _text(form, "file"))))
    return {
        "change": _text(form, "change"),
        "class": _text(form, "class"),
        "action": " ".join(filter(None, (_text(form, "action"), query))),
        "scope": " ".join(filter(None, (_text(form, "scope"), _listed(form.get("branches"))))),
        "who": _text(actors, "as") or _listed(actors.get("names")),
        "rule": rule,
        "cause": _text(cause, "words") or _text(cause, "kind"),
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _listed(value: object) -> str:
    return ", ".join(_texts(value))


def _text(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""
