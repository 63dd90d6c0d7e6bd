"""What the next apply makes of what an interrupted run left, before it applies anything: the decisions of `apply`, read-only.

1. Changesets that are open are settled, each by its row in `gitops.cluster.plan.open_changesets`.
2. The other interrupted operations are settled by the recovery rules.
3. It plans from the state that this gives. A changeset to go on with whose plan is another one by now is taken back after all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from gitops.cluster.changesets.lifecycle import unfinished
from gitops.cluster.ledger.port import ChangesetListing
from gitops.cluster.model.address import Kind
from gitops.cluster.model.changeset import Changeset, Orphan
from gitops.cluster.model.ledger import Intent
from gitops.cluster.model.outcome import Course, OpenChangeset
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.open_changesets import (
    Interrupted,
    course_of,
    graphs_of_changesets,
    live_members,
    look_at,
    to_migrate_back,
    to_remove,
    with_used,
)
from gitops.cluster.plan.probe import GraphProbe, probe_operation
from gitops.cluster.plan.recovery_rules import Sweep, sweep
from gitops.cluster.plan.unfinished import contraction, delete_order, out_of_cluster
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import Session
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.port import Existence

__all__ = ["Foreseen", "foresee", "warn_of_changesets"]

_COURSES = {
    Course.CLOSED: "it recorded no change, and the next apply records that it failed",
    Course.RESUMED: "the next apply goes on with it",
    Course.TAKEN_BACK: "the next apply takes it back, then applies what is declared",
    Course.FINISHED: "it is committed, and the next apply finishes it",
}


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the next apply settles, and what it plans then; without a plan its problems end it.

    `changesets` are those that it settles first, `resumed` is the one among them that it goes on with. `moving` are the ids of
    graphs that are not now as it finds them when it plans.
    """

    changesets: tuple[OpenChangeset, ...]
    problems: tuple[Diagnostic, ...]
    plan: Plan | None = None
    accepted: AcceptedApprovals | None = None
    moving: frozenset[str] = frozenset()
    resumed: Interrupted | None = None


@dataclass(slots=True)
class _Settled:
    """What is known once changesets are settled: the texts that graphs have then, None of those that are gone.

    `kept` are the ids of graphs that still belong to a changeset, `resumed` is the one that goes on.
    """

    changesets: list[OpenChangeset] = field(default_factory=list)
    problems: Diagnostics = field(default_factory=Diagnostics)
    texts: dict[str, bytes | None] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    resumed: Interrupted | None = None


def foresee(
    current: Session,
    listing: ChangesetListing,
    intents: Sequence[Intent],
    make_plan: Callable[[Session, Sweep], tuple[Plan, AcceptedApprovals]],
) -> Foreseen | None:
    """What the next apply does with what is open; `make_plan` plans from a session after a sweep.

    None where graphs cannot be read from here.
    """
    if not current.opened.data_at_hand:
        return None
    settled, held = _Settled(), graphs_of_changesets(listing.open)
    others = [each for each in intents if each.graph_id not in held]
    try:
        if listing.problem is not None:
            raise ConflictError(Code.CHANGESET_INVALID, listing.problem, path="changesets")
        for record in listing.open:
            _settle(current, record, settled)
        swept = _recover(current, settled, others)
        plan, accepted = make_plan(_session_then(current, settled), swept)
        if settled.resumed is not None and not settled.resumed.fits(settled.resumed.part(plan)):
            _take_back(current, settled.resumed, settled)
            swept = _recover(current, settled, others)
            plan, accepted = make_plan(_session_then(current, settled), swept)
    except GitopsError as error:
        settled.problems.add_error(error)
        return Foreseen(tuple(settled.changesets), tuple(settled.problems))
    settled.problems.extend(each for each in swept.diagnostics if each.severity is Severity.ERROR)
    resumed, moving = settled.resumed, set(settled.texts)
    if resumed is not None:
        settled.changesets.append(OpenChangeset(resumed.record.key, Course.RESUMED))
        moving |= {member.address.name for member in resumed.record.members if member.address in resumed.done}
    return Foreseen(tuple(settled.changesets), tuple(settled.problems), plan, accepted, frozenset(moving), resumed)


def warn_of_changesets(foreseen: Foreseen, problems: Diagnostics) -> None:
    """Add a warning for each changeset that the next apply settles first: what it does with it, and what stays behind."""
    for each in foreseen.changesets:
        course = _COURSES[each.course]
        if each.unfinished:
            course = f"it is committed, and the next apply cannot finish it, because of {', '.join(each.unfinished)}"
        left = "".join(f"; {orphan.address} stays: {orphan.reason}" for orphan in each.orphaned)
        problems.add(Code.CLUSTER_RECOVERY_PENDING, each.key, f"a run of it was interrupted; {course}{left}")


def _settle(current: Session, record: Changeset, settled: _Settled) -> None:
    """Add what becomes of one changeset. Raises GitopsError where the apply ends there."""
    match course_of(current, record):
        case Course.CLOSED:
            settled.changesets.append(OpenChangeset(record.key, Course.CLOSED))
        case Course.FINISHED:
            _finish(current, look_at(current, record), settled)
        case Course.TAKEN_BACK:
            _take_back(current, look_at(current, record), settled)
        case Course.RESUMED:
            settled.resumed = look_at(current, record)


def _take_back(current: Session, found: Interrupted, settled: _Settled) -> None:
    """Raises GitopsError where it cannot be taken back."""
    found.require_way_back()
    record, stores, orphaned = found.record, current.opened, []
    for member in live_members(record):
        announced, graph = found.intents.get(member.address, ()), member.address.name
        if not announced:
            continue
        try:
            if member.address.kind is Kind.GRAPH:
                if to_remove(current, record, member, announced) is not None:
                    settled.texts[graph] = None
            elif (now := to_migrate_back(current, member, announced)) and digest(now.schema_source) != member.before:
                settled.texts[graph] = stores.engine.schema_text(stores.graph_uri(graph), member.before or "")
        except GitopsError as error:
            if error.code == Code.GRAPH_DELETED:
                settled.texts[graph] = None  # The rest of its files is removed.
            else:
                orphaned.append(Orphan(member.address, error.detail))
    settled.resumed = None
    settled.changesets.append(OpenChangeset(record.key, Course.TAKEN_BACK, tuple(orphaned)))


def _finish(current: Session, found: Interrupted, settled: _Settled) -> None:
    """What is left to do after a commit, and what of it cannot be done yet."""
    record, held = found.record, []
    members = {member.address: member for member in record.members}
    for address in unfinished(record):
        try:
            uri = current.opened.graph_uri(address.name)
            if address not in members:
                if address.kind is not Kind.GRAPH:
                    continue
                with out_of_cluster(uri):
                    order = delete_order(current, address, found.intents.get(address, ()))
                    if order is not None:
                        current.opened.engine.check_delete(uri, order)
                settled.texts[address.name] = None
            elif (more := contraction(current, members[address])) is not None:
                reading, text = more
                current.opened.engine.check_migration(uri, text, incarnation=reading.incarnation)
                settled.texts[address.name] = text
        except GitopsError as error:
            detail = f"changeset {record.key} cannot be finished: {error.detail}"
            settled.problems.add(error.code, address, detail, fix=error.fix)
            settled.kept.add(address.name)
            held.append(address)
    settled.changesets.append(OpenChangeset(record.key, Course.FINISHED, unfinished=tuple(held)))


def _recover(current: Session, settled: _Settled, intents: Sequence[Intent]) -> Sweep:
    """What recovery makes of the operations that belong to no changeset."""
    swept = sweep(current.state, intents, _probe(current, intents), at=current.workspace.stamp())
    if settled.resumed is not None:
        swept = with_used(swept, settled.resumed, current.workspace.stamp())
    return replace(swept, pending=swept.pending | settled.kept)


def _probe(current: Session, intents: Sequence[Intent]) -> Callable[[Intent], GraphProbe]:
    stores = current.opened

    def probe(intent: Intent) -> GraphProbe:
        try:
            found = probe_operation(stores, intent)
        except GitopsError:
            return GraphProbe(Existence.UNKNOWN)
        if found.reading is None:
            return found
        # Recovery looks after it gave the graph a new version for each of its intents.
        number = found.reading.manifest_version + sum(each.graph_id == intent.graph_id for each in intents)
        return replace(found, reading=replace(found.reading, manifest_version=number))

    return probe


def _session_then(current: Session, settled: _Settled) -> Session:
    """The session in which migrations start from the schemas that the graphs have then; its problems are its own."""
    workspace, texts = current.workspace, settled.texts

    def accepted_schema(graph: str, wanted: str) -> bytes | None:
        text = texts.get(graph)
        return text if text is not None and digest(text) == wanted else workspace.accepted_schema(graph, wanted)

    return replace(current, workspace=replace(workspace, accepted_schema=accepted_schema), problems=Diagnostics())
