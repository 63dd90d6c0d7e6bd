"""What a change of strategies would do, as lines, as JSON and as rows of a comment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gitops.cluster.model.what_if import Usage, WhatIf
from gitops.core.codes import Code

__all__ = ["what_if_form", "what_if_lines", "what_if_rows"]


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
    return [_form(each) for each in found]


def _form(each: WhatIf) -> dict[str, Any]:
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
