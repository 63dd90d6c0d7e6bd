"""Who gains and loses what by a plan, as lines, as JSON and as rows of a comment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gitops.cluster.model.access import AccessDiff, AccessRow, Actors, place_of
from gitops.cluster.model.plan import Plan

__all__ = ["MOST_ROWS", "access_counts", "access_form", "access_lines", "access_rows", "access_values"]

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
