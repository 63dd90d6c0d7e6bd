"""Days that targets recorded, played with the applied and with the declared strategies: as text and as JSON."""

from __future__ import annotations

from typing import Any

from gitops.compute.ticks.replays import Replayed, ReplayOutcome
from gitops.core.clock import timestamp
from gitops.render.strategies import comparison_lines, timeline_form, timeline_lines

__all__ = ["replay_form", "replay_lines"]


def replay_lines(outcome: ReplayOutcome) -> list[str]:
    """Of each compute cluster what was recorded and what is assumed, what the declared strategies do, and the comparison."""
    lines: list[str] = []
    for each in outcome.replayed:
        lines += [*([""] if lines else []), *_lines(each, timestamp(outcome.since))]
    return lines


def _lines(each: Replayed, since: str) -> list[str]:
    recorded = each.replay.recorded or ("nothing",)
    return [
        f"{each.key} on target {each.target} since {since}",
        *(f"  recorded: {line}" for line in recorded),
        *(f"  assumed: {line}" for line in each.replay.assumed),
        "",
        *timeline_lines(each.after),
        "",
        "applied -> declared",
        *comparison_lines(each.before, each.after),
    ]


def replay_form(outcome: ReplayOutcome) -> dict[str, Any]:
    """As JSON: of each compute cluster the timeline of the declared strategies, and the sums of the applied ones."""
    return {
        "ok": outcome.ok,
        "since": timestamp(outcome.since),
        "replays": [
            {
                "compute": each.key,
                "target": each.target,
                "recorded": list(each.replay.recorded),
                "assumed": list(each.replay.assumed),
                "declared": timeline_form(each.after),
                "applied": timeline_form(each.before)["usage"],
            }
            for each in outcome.replayed
        ],
        "diagnostics": [each.to_json() for each in outcome.diagnostics],
    }
