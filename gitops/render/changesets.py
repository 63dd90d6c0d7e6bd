"""Changesets as text and JSON: lists, complete records, stream items, and charts of their runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from gitops.cluster.changesets.runs import critical_path, longest
from gitops.cluster.changesets.stream import FullState, StreamItem
from gitops.cluster.ledger.changesets import CHANGESET, EVENT
from gitops.cluster.model import changeset as model
from gitops.cluster.model.changeset import BLOCKING, Changeset, ChangesetEvent, ChangesetState, RuntimeState
from gitops.cluster.model.plan import NodeOutcome, RunRecord
from gitops.core.clock import parse_timestamp
from gitops.render.characters import visible
from gitops.render.json import Form, present
from gitops.render.words import count

_SHORT = 12
_HEADS = ("KEY", "STATE", "AGE", "MERGE", "CHANGES", "ERROR")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def list_text(records: Sequence[Changeset], now: datetime) -> str:
    """Return a table with key, state, age, merge commit, number of members by state, and error."""
    if not records:
        return "no changesets\n"
    rows: list[tuple[str, ...]] = [_HEADS]
    for record in records:
        created = parse_timestamp(record.created_at)
        seconds = 0 if created is None else max(0, int((now - created).total_seconds()))
        units = ((seconds // unit, name) for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"), (1, "s")))
        age = "" if created is None else next((f"{number}{name}" for number, name in units if number), "0s")
        state = f"{record.state}!" if record.needs_attention else record.state.value
        merge = "" if record.source.merge_commit is None else record.source.merge_commit[:_SHORT]
        numbers = ", ".join(f"{number} {how}" for how, number in sorted(_counts(record).items()))
        rows.append(tuple(map(visible, (record.key, state, age, merge, numbers or "none", record.error or ""))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(line + "\n" for line in lines)


def list_form(records: Iterable[Changeset]) -> list[Form]:
    """Return each changeset as JSON for a list. `gitops changeset show` returns the complete record."""
    return [
        {
            "key": each.key,
            "kind": each.kind.value,
            "attempt": each.attempt,
            "part": each.part,
            "state": each.state.value,
            "phase": each.phase,
            "created_at": each.created_at,
            "updated_at": each.updated_at,
            **present(merge_commit=each.source.merge_commit, pull_request=each.source.pull_request),
            "counts": dict(sorted(_counts(each).items())),
            "removals": len(each.removals),
            "needs_attention": each.needs_attention,
            **present(error=each.error, retry_of=each.retry_of),
        }
        for each in records
    ]


def record_text(record: Changeset, events: Iterable[ChangesetEvent] = (), run: RunRecord | None = None) -> str:
    """Return a complete record as text, followed by its events and its run, if given."""
    source, plan, base = record.source, record.plan, record.base
    part = "" if record.part == "1/1" else f", part {record.part}"
    again = "" if record.retry_of is None else f", again after {record.retry_of}"
    merge = "" if source.merge_commit is None else f" of {source.merge_commit[:_SHORT]}"
    lines = [
        f"changeset {record.key}: {record.state}",
        f"  {record.kind}{merge}, attempt {record.attempt}{part}{again}",
        f"  created {record.created_at}, newest event {record.updated_at}",
    ]
    facts = [f"branch {source.branch}"] if source.branch is not None else []
    facts += [f"change request {source.pull_request}"] if source.pull_request is not None else []
    facts += [f"by {source.actor}"] if source.actor is not None else []
    lines += [f"  {', '.join(facts)}"] if facts else []
    others = [each for each in record.covers if each != source.merge_commit]
    lines += [f"  brings in {each[:_SHORT]} as well" for each in others]
    lines += [f"  prepared beside {', '.join(record.beside)}"] if record.beside else []
    lines.append(
        f"  plan {plan.digest[:_SHORT]}: {count(plan.nodes, 'node')}, {count(plan.edges, 'edge')}, {count(plan.layers, 'layer')}"
    )
    moved = "" if record.result is None else f", now revision {record.result.state_revision}"
    lines.append(f"  on top of revision {base.state_revision}{moved}")
    for name in ("prepared", "committed", "drained", "finalized"):
        at = getattr(record.barriers, name)
        lines += [f"  {name} {at}"] if at is not None else []
    lines += [f"  ERROR {record.error}"] if record.error is not None else []
    lines += (
        ["  needs attention: a step after the commit failed; each run tries it again"] if record.needs_attention else []
    )
    for member in record.members:
        failed = "" if member.runtime.error is None else f": {member.runtime.error}"
        rest = "" if member.expanded is None else ", drops after the commit"
        lines.append(f"  {member.action} {member.address} ({member.effect}{rest}): {member.runtime.state}{failed}")
        # The members of a tick have a reason.
        lines += [f"    {reason}" for reason in member.runtime.outputs.get("reasons", ())]
    for removal in record.removals:
        by = "" if removal.approval is None else f", approval {removal.approval}"
        lines.append(f"  remove {removal.address}: {removal.state}{by}")
    for left in record.excluded:
        lines.append(
            f"  left out {left.address}: {left.disposition}{'' if left.reason is None else f', {left.reason}'}"
        )
    lines += [f"  left behind {orphan.address}: {orphan.reason}" for orphan in record.orphaned]
    lines += [f"  event {each.seq}  {each.at}  {_what(each.happening)}" for each in events]
    lines += [] if run is None else run_lines(run, plan.nodes)
    return "".join(visible(line) + "\n" for line in lines)


def changeset_outcome(record: Changeset) -> str:
    """Describe a changeset's progress in one line, which starts with its key."""
    name = record.key if record.part == "1/1" else f"{record.key}, part {record.part},"
    if record.state is ChangesetState.FAILED:
        return f"{name} failed, nothing of it is applied: {record.error}"
    if record.state in BLOCKING:
        return f"{name} is interrupted; the next apply continues it"
    if not record.ended:
        return f"{name} is applied, and what is left to do is tried again by every later apply"
    if record.result is not None and record.result.failed:
        return f"{name} is applied without {', '.join(sorted(record.result.failed))}"
    left = f", {len(record.excluded)} left out" if record.excluded else ""
    return f"{name} is applied{left}"


def item_form(item: StreamItem) -> Form:
    """Return a stream item: `{v, seq, at, cluster, changeset, type, data, more}`."""
    if not isinstance(item.what, FullState):
        event = EVENT.form(ChangesetEvent(item.seq, item.at, item.cluster, item.changeset or "", item.what))
        return {**event, "more": item.more}
    state = item.what
    data = {
        "state_revision": state.state_revision,
        "config_digest": state.config_digest,
        "resources": {address: state.resources[address] for address in sorted(state.resources)},
        "changesets": [CHANGESET.form(each) for each in state.changesets],
    }
    named = {"v": 1, "seq": item.seq, "at": item.at, "cluster": item.cluster, "changeset": None}
    return {**named, "type": "full_state", "data": data, "more": item.more}


def item_lines(item: StreamItem) -> list[str]:
    """Return a stream item as text. A full state has one line per changeset."""
    if not isinstance(item.what, FullState):
        return [visible(f"{item.at}  {item.changeset} {_what(item.what)}")]
    lines = [f"{item.at}  revision {item.what.state_revision}, {count(len(item.what.resources), 'resource')} applied"]
    for each in item.what.changesets:
        error = "" if each.error is None else f": {each.error}"
        lines.append(f"{each.updated_at}  {each.key} is {each.state}{error}")
    return [visible(line) for line in lines]


def _counts(record: Changeset) -> Counter[str]:
    """Count the members in each state, and the removed resources."""
    counts = Counter(member.runtime.state.value for member in record.members)
    counts.update(f"removal {removal.state}" for removal in record.removals)
    return counts


def _what(what: model.Happening) -> str:
    """Describe an event in a few words."""
    match what:
        case model.Created(record=record):
            merge = "" if record.source.merge_commit is None else f" for merge {record.source.merge_commit[:_SHORT]}"
            removed = f", {len(record.removals)} to remove" if record.removals else ""
            return f"created{merge}: {len(record.members)} to change{removed}"
        case model.RuntimeUpdated(address=address, runtime=runtime):
            error = "" if runtime.state is not RuntimeState.FAILED or runtime.error is None else f": {runtime.error}"
            return f"{address} {runtime.state}{error}"
        case model.Staged(address=address):
            return f"{address} staged"
        case model.Prepared():
            return "prepared"
        case model.Committed():
            return f"committed: revision {what.state_revision}"
        case model.Drained():
            return f"drained: {what.evidence}"
        case model.Removed(address=address):
            return f"{address} deleted"
        case model.Finalized(result=result):
            numbers = ", ".join(f"{number} {how}" for how, number in sorted(result.counts.items()) if number)
            return f"finalized: {'nothing to change' if result.no_change else numbers or 'done'}"
        case model.RollingBack():
            return f"rolling back: {what.error}"
        case model.Failed():
            left = f"; {len(what.orphaned)} left behind" if what.orphaned else ""
            return f"failed: {what.error}{left}"
        case model.ApprovalRequired(address=address):
            return f"{address} needs an approval"
        case model.ApprovalConsumed(address=address):
            return f"{address} consumed approval {what.approval}"


# -- the run of an execution graph as bars over time -------------------------------------------------------------------

MOST_BARS = 60
_COLUMNS = 40
# In milliseconds. A bar that would be printed as 0.00 s is useless, however short the run is.
_SHORTEST_WAIT = 5

# In Mermaid, a colon ends a name, a comma ends a field, and semicolons and number signs have a meaning.
_UNSAFE_IN_GANTT = re.compile(r"[^A-Za-z0-9_ .-]")
_TAGS = {NodeOutcome.DONE: "done, ", NodeOutcome.UNCHANGED: "done, "}


def to_gantt(run: RunRecord) -> str:
    """Return a Mermaid Gantt chart (https://mermaid.js.org/syntax/gantt.html).

    The chart has a section per worker and a bar per node. Failures are `crit`, and barriers are milestones.

    If a node waited for a lock, a bar before it shows the wait and the holder. For a large run, only the longest 60
    nodes are shown, with a note.
    """
    shown = longest(run, MOST_BARS)
    lines = ["gantt", "  dateFormat x", "  axisFormat %M:%S"]
    if len(shown.nodes) < len(run.nodes):
        lines.append(f"  title the {MOST_BARS} longest of {len(run.nodes)} nodes")
    for worker in sorted({node.worker for node in shown.nodes if node.worker is not None}):
        lines.append(f"  section {'barriers' if worker == 0 else f'worker {worker}'}")
        at_work = (node for node in shown.nodes if node.worker == worker)
        for node in sorted(at_work, key=lambda node: (node.started or 0, node.id)):
            name, started = _UNSAFE_IN_GANTT.sub(" ", node.id), node.started or 0
            if worker == 0:
                lines.append(f"  {name} : milestone, {started}, {node.finished}")
                continue
            if node.waited_for and node.ready is not None and node.ready < started:
                holders = _UNSAFE_IN_GANTT.sub(" ", " ".join(node.waited_for))
                lines.append(f"  {name} waits for {holders} : active, {node.ready}, {started}")
            # Mermaid does not draw bars of zero length.
            lines.append(f"  {name} : {_TAGS.get(node.outcome, 'crit, ')}{started}, {max(node.finished, started + 1)}")
    return "\n".join(lines) + "\n"


def run_lines(run: RunRecord, nodes: int) -> list[str]:
    """Return a line for each node in start order, with a bar: dots while it waited, number signs while it ran.

    The result, the preceding node and the awaited locks follow the bar. `nodes` is the number of nodes in the execution
    graph, which can be higher than the number in the record: for a large run, only the longest 60 are shown, and the
    barriers passed by the last write are not recorded. The last line is the critical path, if it has several nodes.
    """
    shown = longest(run, MOST_BARS).nodes
    span = max((node.finished for node in run.nodes), default=0)
    lines = [f"  run: {len(shown)} of {count(nodes, 'node')}, {count(run.workers, 'worker')}, {_seconds(span)}"]
    width = max((len(visible(node.id)) for node in shown), default=0)
    # Nodes that never started come last.
    ordered = sorted(shown, key=lambda node: (node.started is None, node.started or node.finished, node.id))
    for node in ordered:
        bar, said = " " * _COLUMNS, [node.outcome.value]
        if node.started is not None:
            # From the start of the run to its end. A running node has at least one column.
            moments = (node.ready, node.started, node.finished)
            ready, began, end = ((at or 0) * _COLUMNS // max(span, 1) for at in moments)
            began = min(began, _COLUMNS - 1)
            bar = f"{'.' * (began - min(ready, began)):>{began}}{'#' * max(end - began, 1):{_COLUMNS - began}}"
            said = [f"{_seconds(node.duration)} {node.outcome}"]
        said += [] if node.after is None else [f"after {node.after}"]
        waited = 0 if node.started is None or node.ready is None else node.started - node.ready
        if node.started is not None and node.waited_for:
            said.append(f"waited {_seconds(waited)} for {', '.join(node.waited_for)}")
        elif waited >= _SHORTEST_WAIT and waited * _COLUMNS > span:
            said.append(f"waited {_seconds(waited)} for a worker")
        lines.append(f"    {visible(node.id):{width}} |{bar}| {visible(', '.join(said))}")
    if (way := critical_path(run)) and len(way) > 1:
        lines.append(f"    critical path: {visible(' > '.join(way))}")
    return lines


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"
