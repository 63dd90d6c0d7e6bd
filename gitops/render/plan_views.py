"""The parts of a plan beside its changes: who gains what, how it lands, what goes back, and what strategies would do.

Each is made once, and printed as lines, as JSON, and by the templates of comments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.access import AccessDiff, AccessRow, Actors, place_of
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.plan import Effect, Plan
from gitops.cluster.model.undo import Undo, Undoing, UndonePart
from gitops.cluster.plan.classes import Classified, effects_of, pivots
from gitops.core.codes import Code

if TYPE_CHECKING:
    from gitops.cluster.model.what_if import Usage, WhatIf

MOST_ROWS = 200
"""Rows of a comment, and of the text of a plan; the JSON has all."""

_NAMES = 5
_QUERIES = 3


def access_lines(diff: AccessDiff) -> list[str]:
    """A table of who gains and loses what."""
    lines = [f"  access: {access_counts(diff)}"]
    rows = [_columns(row) for row in access_rows(diff)]
    widths = [max((len(cells[place]) for cells in rows[:MOST_ROWS]), default=0) for place in range(6)]
    for *cells, last in rows[:MOST_ROWS]:
        padded = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(f"    {padded}  {last}".rstrip())
    lines += [f"    and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    return lines


def access_values(plan: Plan | None) -> dict[str, Any]:
    """The values of a comment: the first rows, how many more there are, and their number in words, empty without any."""
    diff = None if plan is None else plan.access
    rows = () if diff is None else access_rows(diff)
    counts = access_counts(diff) if diff is not None else ""
    return {"access": rows[:MOST_ROWS], "access_more": len(rows[MOST_ROWS:]), "access_counts": counts}


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['sign']} {row['access_class']}",
        " ".join(filter(None, (row["action"], _counted(row["queries"], row["more_queries"])))),
        row["place"],
        row["branches"] or "-",
        row["who"],
        ", ".join(filter(None, (row["rule"], row["where"]))) or "no policy",
        row["cause"],
    )


def access_counts(diff: AccessDiff) -> str:
    """How much is gained and lost, in a line."""
    gains = len(diff.gains)
    losses = len(diff.rows) - gains
    found = [f"{gains} gain{'' if gains == 1 else 's'}"] if gains else []
    found += [f"{losses} loss{'' if losses == 1 else 'es'}"] if losses else []
    return ", ".join(found) or "no gains, no losses"


def access_rows(diff: AccessDiff) -> tuple[dict[str, Any], ...]:
    """Each difference in words: gains before losses, the gravest first.

    `sign` is + or -, `access_class` in upper case; `action` with the first `queries` that are run and `more_queries`, `place`,
    `branches` (empty for what is about none), `who`, `rule` (empty where there is no policy), `where` that is, and the `cause`.
    """
    return tuple(
        {
            "sign": "+" if row.gain else "-",
            "access_class": row.row_class.upper(),
            "action": row.action,
            "queries": row.queries[:_QUERIES],
            "more_queries": max(0, len(row.queries) - _QUERIES),
            "place": place_of(row.scope),
            "branches": _branches(row),
            "who": who(row.actors),
            "rule": row.rule or "",
            "where": "" if row.file is None else f"{row.file}:{row.line}",
            "cause": row.cause.words,
        }
        for row in diff.rows
    )


def _branches(row: AccessRow) -> str:
    if not row.other_branches:
        return _listed(row.branches, _NAMES)
    return f"* except {_listed(row.except_branches, _NAMES)}" if row.except_branches else "*"


def who(actors: Actors) -> str:
    """The actors of a row in words: by groups with their number, or by name where that takes several groups for a few."""
    if actors.union == ("*",) and not actors.minus:
        return "*"
    number = len(actors.members)
    few = len(actors.union + actors.minus) > 1 and number <= _NAMES and not actors.others
    if few or not actors.union:
        named = _listed(actors.members, _NAMES)
        return f"{named} and any other token" if actors.others else named
    left_out = f" except {', '.join(actors.minus)}" if actors.minus else ""
    known = "" if actors.others else f" ({number})"
    return f"{', '.join(actors.union)}{left_out}{known}"


def access_form(diff: AccessDiff, widening: Collection[str]) -> dict[str, Any]:
    """The JSON form: every row in full, but of its actors the first five names; `gated` are the classes that need an approval."""
    found = {row.row_class for row in diff.widenings}
    return {
        "version": 1,
        "before": diff.before,
        "after": diff.after,
        "gated": sorted(each.value for each in found if each in widening),
        "rows": [_row_form(row) for row in diff.rows],
    }


def _row_form(row: AccessRow) -> dict[str, Any]:
    actors, cause = row.actors, row.cause
    groups = " - ".join((" + ".join(actors.union), *actors.minus)) if actors.union else None
    form: dict[str, Any] = {
        "change": "gain" if row.gain else "loss",
        "class": row.row_class.value,
        "action": row.action,
        "scope": row.scope,
        "branches": ["*"] if row.other_branches else list(row.branches),
        "except": list(row.except_branches) or None,
        "query": row.queries[0] if len(row.queries) == 1 else None,
        "queries": list(row.queries) if len(row.queries) > 1 else None,
        "actors": _present(
            count=len(actors.members),
            others=actors.others or None,
            **{"as": groups},
            names=list(actors.members[:_NAMES]),
        ),
        "policy": row.policy,
        "rule": row.rule,
        "file": row.file,
        "line": row.line,
        "cause": _present(kind=cause.kind.value, subject=cause.subject or None, line=cause.line, words=cause.words),
    }
    return _present(**form)


def _listed(names: Sequence[str], most: int) -> str:
    return _counted(names[:most], len(names) - most)


def _counted(names: Sequence[str], more: int) -> str:
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _present(**values: object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


# -- how a plan lands: the class of each change, and what an atomic run does not simply stage --------------------------

LANDS_WHOLE = "whole or not at all; what is not listed here is prepared first, and taken back if something fails"

_RESOURCES = 20
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
        more = f" and {len(names) - _RESOURCES} more" if len(names) > _RESOURCES else ""
        lines.append(f"    {row['when']}: {', '.join(names[:_RESOURCES])}{more}: {row['reason']}")
        lines += [f"      {row['note']}"] if row["note"] else []
    return lines


# -- what a plan back restores and what stays lost ---------------------------------------------------------------------

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


# -- what a change of strategies would do ------------------------------------------------------------------------------


def what_if_lines(found: Iterable[WhatIf]) -> list[str]:
    """A part of the text of a plan."""
    lines = []
    for row in what_if_rows(found):
        lines.append(
            f"  what the strategies of {row['place']} would do now:" + ("" if row["actions"] else f" {row['said']}")
        )
        for action in row["actions"]:
            lines += [f"    {action['sql']}", *(f"      {reason}" for reason in action["reasons"])]
        lines += [f"    {each}" for each in row["refused"]]
        lines += [f"    {row['played']}"] if row["played"] else []
    return lines


def what_if_rows(found: Iterable[WhatIf]) -> tuple[dict[str, Any], ...]:
    """Each compute cluster in words: `place`, `actions` with `sql` and `reasons`; or `said`, why there are none.

    `refused` are sizes that the target does not have, and the wishes beyond the limits. `played` compares the last days, with the
    command that says how they were played; it is empty where the target recorded none.
    """
    return tuple(
        {
            "place": each.key if each.key == each.cluster else f"{each.key} ({each.cluster})",
            "actions": tuple({"sql": action.sql, "reasons": action.reasons} for action in each.actions),
            "said": _said(each),
            "refused": (
                *(
                    f"an apply refuses these strategies: target {each.target} has no size {size} ({Code.REPLICA_SIZE_INVALID})"
                    for size in each.unlisted
                ),
                *(f"left out: {wanted} ({Code.REPLICA_LIMIT_EXCEEDED})" for wanted in each.refused),
            ),
            "played": _played(each),
        }
        for each in found
    )


def _said(found: WhatIf) -> str:
    if not found.said:
        return "nothing to do"
    return f"not known: {found.said} ({found.code})" if found.code else f"not known: {found.said}"


def _played(found: WhatIf) -> str:
    before, after = found.before, found.after
    if before is None or after is None:
        return ""
    parts = [
        f"replica-hours from {before.replica_hours:.2f} to {after.replica_hours:.2f}",
        f"credits from {before.credits:.2f} to {after.credits:.2f}",
    ]
    if before.unserved_s or after.unserved_s:
        parts.append(f"minutes unserved from {before.unserved_s // 60} to {after.unserved_s // 60}")
    command = f"gitops strategies simulate --from-audit {found.key}"
    return f"the last {found.days} days, played again: {', '.join(parts)}; what that assumes: `{command}`"


def what_if_form(found: Iterable[WhatIf]) -> list[dict[str, Any]]:
    """The JSON form."""
    return [_what_if_form(each) for each in found]


def _what_if_form(each: WhatIf) -> dict[str, Any]:
    form: dict[str, Any] = {"compute": each.key, "cluster": each.cluster, "target": each.target}
    if each.said:
        problem = {"code": None if each.code is None else each.code.value, "message": each.said}
        return {**form, "unknown": {name: value for name, value in problem.items() if value is not None}}
    form["refused"] = list(each.refused)
    form |= {"unlisted_sizes": list(each.unlisted)} if each.unlisted else {}
    form["actions"] = [{"sql": action.sql, "reasons": list(action.reasons)} for action in each.actions]
    if each.before is not None and each.after is not None:
        sides = {"before": _usage(each.before), "after": _usage(each.after)}
        form["replay"] = {"days": each.days, **sides, "assumed": list(each.assumed)}
    return form


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "replica_hours": round(usage.replica_hours, 4),
        "credits": round(usage.credits, 4),
        "unserved_s": usage.unserved_s,
    }
