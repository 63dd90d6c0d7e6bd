"""Shows strategies as text and JSON: simulated timelines with an SVG plot, ticks, and replays of recorded days."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from gitops.compute.strategies.decision import ActionKind
from gitops.compute.strategies.simulation import SimulatedStep, SimulatedUsage, Timeline
from gitops.compute.ticks.tick import MemoryOutcome, TickOutcome
from gitops.compute.ticks.what_if import ReplayOutcome
from gitops.core.clock import timestamp
from gitops.core.diagnostics import Diagnostics
from gitops.render.json import present
from gitops.render.json_text import to_line
from gitops.render.words import count

_WIDTH, _LEFT, _BAND, _GAP, _TOP = 960, 120, 90, 30, 40


def timeline_lines(timeline: Timeline) -> list[str]:
    """Return the strategies' actions with their times, then the totals. A lasting problem is shown only once."""
    lines, refused = [], None
    for step in timeline.steps:
        for action in step.actions:
            sign = "+" if action.kind is ActionKind.CREATE else "-"
            why = "; ".join(map(str, action.reasons))
            lines.append(f"{_clock(step.at_s)}  {sign} {action.replica} ({action.spec.size})  {why}")
        if step.problem not in (None, refused):
            lines.append(f"{_clock(step.at_s)}  ! {step.problem}")
        refused = step.problem
    return [*lines, *([""] if lines else []), *(f"{name:<16}  {figure}" for name, figure in _figures(timeline.usage))]


def comparison_lines(before: Timeline, after: Timeline) -> list[str]:
    """Return two timelines' totals side by side."""
    rows = zip(_figures(before.usage), _figures(after.usage), strict=True)
    return [f"{name:<16}  {old} -> {new}" for (name, old), (_, new) in rows]


def timeline_form(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as JSON: the steps in which something happens, and the totals."""
    usage, steps = timeline.usage, []
    for step in timeline.steps:
        if step.actions or step.problem:
            actions = [
                {
                    "op": action.kind.value,
                    "replica": action.replica,
                    "size": action.spec.size,
                    "reasons": [str(reason) for reason in action.reasons],
                }
                for action in step.actions
            ]
            form = {"at_s": step.at_s, "actions": actions, "replicas": dict(step.replicas)}
            steps.append({**form, **present(problem=step.problem)})
    return {
        "cluster": timeline.scenario.cluster,
        "steps": steps,
        "usage": {
            "replica_hours": round(usage.replica_hours, 4),
            "credits": round(usage.credits, 4),
            "unserved_s": usage.unserved_s,
            "suspended_s": usage.suspended_s,
            "actions": usage.actions,
        },
    }


def to_plot(timeline: Timeline) -> str:
    """Plot replicas, hydrated replicas, activity and credits over time, as an SVG document without scripts."""
    bands: list[tuple[str, Callable[[SimulatedStep], float]]] = [
        ("replicas", lambda step: len(step.replicas)),
        ("hydrated", lambda step: len(step.hydrated)),
        ("activity", lambda step: 1.0 if step.active else 0.0),
        ("credits per hour", lambda step: step.credits_per_hour),
    ]
    height = _TOP + len(bands) * (_BAND + _GAP) + 20
    box = f"0 0 {_LEFT + _WIDTH + 40} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22">{escape(timeline.scenario.cluster)}</text>',
    ]
    for number, (name, value) in enumerate(bands):
        parts += _band(timeline, _TOP + number * (_BAND + _GAP), name, value)
    length = timeline.scenario.length_s
    for at_s in (length * eighth // 8 for eighth in range(9)):
        x = f"{_across(timeline, at_s):.1f}"
        parts.append(f'<text x="{x}" y="{height - 8}" text-anchor="middle">{_clock(at_s)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _band(timeline: Timeline, top: int, name: str, value: Callable[[SimulatedStep], float]) -> list[str]:
    """Draw one curve: a step function above its base line, with its maximum next to it."""
    values = [value(step) for step in timeline.steps]
    most = max(*values, 1.0) if len(values) > 1 else max(values[0], 1.0)
    base = top + _BAND
    path, previous = [f"M{_LEFT} {base}"], 0.0
    for step, each in zip(timeline.steps, values, strict=True):
        if each != previous:
            path.append(f"H{_across(timeline, step.at_s):.1f}V{base - _BAND * each / most:.1f}")
            previous = each
    path.append(f"H{_LEFT + _WIDTH}V{base}Z")
    return [
        f'<text x="8" y="{top + 14}">{escape(name)}</text><text x="{_LEFT - 8}" y="{top + 10}" text-anchor="end">{most:g}</text>',
        f'<path d="{"".join(path)}" fill="#9ecae1" stroke="#3182bd"/>',
        f'<line x1="{_LEFT}" y1="{base}" x2="{_LEFT + _WIDTH}" y2="{base}" stroke="#636363"/>',
    ]


def _across(timeline: Timeline, at_s: int) -> float:
    return _LEFT + _WIDTH * at_s / timeline.scenario.length_s


def _figures(usage: SimulatedUsage) -> Sequence[tuple[str, str]]:
    return (
        ("replica-hours", f"{usage.replica_hours:.2f}"),
        ("credits", f"{usage.credits:.2f}"),
        ("unserved", _clock(usage.unserved_s)),
        ("suspended", _clock(usage.suspended_s)),
        ("actions", str(usage.actions)),
    )


def _clock(seconds: int) -> str:
    """Return days, hours and minutes, and seconds if not zero."""
    minutes, rest = divmod(seconds, 60)
    text = f"{minutes // 1440}d {minutes // 60 % 24:02}:{minutes % 60:02}"
    return f"{text}:{rest:02}" if rest else text


# -- ticks: the statements in order, with their reasons and results ----------------------------------------------------

_BETWEEN = "  "


def tick_lines(outcome: TickOutcome, *, table: bool = False, verbose: bool = False) -> list[str]:
    """Return the statements as SQL with reasons as comments or, with `table`, as a table; then the totals.

    `verbose` also lists the compute clusters that need no changes.
    """
    ended = {result.node_id: result.outcome.value for result in outcome.results}
    rows = [
        (f"{each.target}/{each.compute}", each.sql, ended.get(each.address, ""), "; ".join(each.reasons))
        for each in outcome.actions
    ]
    if table and rows:
        heads = ("COMPUTE CLUSTER", "STATEMENT", "RESULT" if any(row[2] for row in rows) else "", "REASON")
        columns = [index for index, head in enumerate(heads) if head]
        shown = [[row[index] for index in columns] for row in (heads, *rows)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        cells = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in shown)
        lines = [_BETWEEN.join(row).rstrip() for row in cells]
    else:
        lines = []
        for place, sql, result, reasons in rows:
            lines += [f"{sql};", f"-- {place}: {reasons}{f' [{result}]' if result else ''}"]
    acting = {place for place, *_ in rows}
    quiet = [place for place in outcome.decided if place not in acting]
    lines += [f"-- {place}: nothing to do" for place in quiet if verbose]
    if outcome.skipped is not None:
        return [*lines, f"-- skipped: {outcome.skipped}"]
    looked = f"-- {count(len(outcome.decided), 'compute cluster')} looked at"
    statements = count(len(outcome.actions), "statement")
    if outcome.dry_run or outcome.changeset is None:
        would = "would be " if outcome.dry_run and outcome.actions else ""
        ran = f"{looked}, {statements} {would}carried out".replace("0 statements", "no statements")
    else:
        done = sum(each.outcome.succeeded for each in outcome.results if each.node_id.startswith("replica."))
        ran = f"{looked}, {done} of {statements} carried out: changeset {outcome.changeset.key}"
    return [*lines, ran]


def tick_form(outcome: TickOutcome) -> dict[str, Any]:
    """Return the tick as JSON."""
    ended = {result.node_id: result.outcome.value for result in outcome.results}
    return {
        "ok": outcome.ok,
        "dry_run": outcome.dry_run,
        "config_dir": outcome.config_dir,
        "decided": list(outcome.decided),
        "actions": [
            {
                "address": each.address,
                "target": each.target,
                "compute_cluster": each.compute,
                "cluster_id": each.cluster_id,
                "op": each.kind.value,
                "replica": each.replica,
                "size": each.size,
                "sql": each.sql,
                "reasons": list(each.reasons),
                **present(outcome=ended.get(each.address)),
            }
            for each in outcome.actions
        ],
        **present(skipped=outcome.skipped, changeset=None if outcome.changeset is None else outcome.changeset.key),
        "problems": Diagnostics(outcome.diagnostics).to_json(),
    }


def tick_line(outcome: TickOutcome, at: str) -> str:
    """Return a tick's last log line, in the format of its run's events."""
    return to_line({"v": 1, "at": at, "type": "tick_finished", "data": tick_form(outcome)})


def memory_lines(outcome: MemoryOutcome, noun: str, done: str) -> list[str]:
    """Return a line for each target with the count, the noun and the action taken."""
    return [f"{target}: {count(number, noun)} {done}" for target, number in sorted(outcome.done.items())]


def memory_form(outcome: MemoryOutcome) -> Mapping[str, Any]:
    """Return the result as JSON."""
    found = Diagnostics(outcome.diagnostics).to_json()
    return {"ok": outcome.ok, "targets": dict(sorted(outcome.done.items())), "problems": found}


# -- recorded days of targets, replayed with the applied and with the declared strategies ------------------------------


def replay_lines(outcome: ReplayOutcome) -> list[str]:
    """Describe each compute cluster: its history, assumptions, the declared strategies' actions, and a comparison."""
    lines: list[str] = []
    for each in outcome.replayed:
        lines += [""] if lines else []
        lines.append(f"{each.key} on target {each.target} since {timestamp(outcome.since)}")
        lines += [f"  recorded: {line}" for line in each.replay.recorded or ("nothing",)]
        lines += [f"  assumed: {line}" for line in each.replay.assumed]
        lines += [
            "",
            *timeline_lines(each.after),
            "",
            "applied -> declared",
            *comparison_lines(each.before, each.after),
        ]
    return lines


def replay_form(outcome: ReplayOutcome) -> dict[str, Any]:
    """Return, for each compute cluster, the declared strategies' timeline and the applied strategies' totals as JSON."""
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
        "problems": [each.to_json() for each in outcome.diagnostics],
    }
