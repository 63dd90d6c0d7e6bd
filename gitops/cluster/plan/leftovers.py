"""Decides how the next apply handles a changeset that an interrupted run left open. `gitops.cluster.apply` then does it.

| the changeset | result |
| --- | --- |
| is best-effort | closed: it recorded nothing, so it failed, and recovery settles the graphs that it touched |
| prepares or is prepared, and declaration and applied state are unchanged | resumed: completed work is not repeated |
| prepares or is prepared, and something has changed | rolled back; if its pivot is done, nothing is applied until it is settled |
| the same, but it was created beside one that is resumed | waits, because its own turn comes after that one |
| rolls back | the rest is rolled back |
| committed, drained | finished: removed resources are deleted, and the steps after the commit are carried out |

`step_of` is the only place that decides the remaining work on a graph: an apply performs it, and a plan and a dry run
show it. The state of graphs is checked, never guessed. The effects of a changeset on a graph disappear with the graph:
if it no longer exists, or its delete has passed the point of no return, there is nothing to do, roll back or drop. The
intents of an atomic changeset are the intents of its graphs, because no other changeset touches these while it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from types import MappingProxyType
from typing import NamedTuple

from gitops.cluster.approvals.decisions import recorded_revocations
from gitops.cluster.changesets.lifecycle import unfinished
from gitops.cluster.ledger.port import ChangesetListing
from gitops.cluster.model.address import Address, Kind, schema_address
from gitops.cluster.model.change import Action, Disposition, Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetSource,
    ChangesetState,
    Member,
    Orphan,
)
from gitops.cluster.model.ledger import Intent
from gitops.cluster.model.outcome import Course, OpenChangeset
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.classes import part_of, split_hosts
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.plan.probe import GraphProbe, probe_operation, seen_facts, was_restored
from gitops.cluster.plan.recovery_rules import Sweep, sweep
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import RECORD_LIVE, Session
from gitops.cluster.session.workspace import ChangesetFacts
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.port import DeleteOrder, Existence, GraphReading


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An open changeset: its intents by node id, and its completed nodes with observations of their graphs."""

    record: Changeset
    intents: Mapping[str, tuple[Intent, ...]]
    done: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that the interrupted run announced."""
        return tuple(intent.operation_id for intents in self.intents.values() for intent in intents)

    @property
    def used(self) -> tuple[str, ...]:
        """The approvals that its migration consumed.

        Approvals of a restore are needed until the commit consumes them.
        """
        pivots = {m.address for m in self.record.members if m.effect is Effect.PIVOT}.intersection(self.done)
        pivots = {name for name in pivots if name.kind is not Kind.RESTORE}
        return tuple(a for name in pivots for intent in self.intents.get(name, ()) for a in intent.approval_ids)

    @property
    def graphs(self) -> frozenset[str]:
        """The ids of the graphs in the changeset."""
        return frozenset(address.graph for address in self.record.addresses if address.graph is not None)

    def part(self, whole: Plan) -> Plan:
        """Return the part of a plan that the changeset covers. Hosts are never part of an atomic one."""
        whole = split_hosts(whole)[0]
        number, of = (int(each) for each in self.record.part.split("/"))
        graph = next((m.address.graph for m in self.record.members if m.effect is Effect.PIVOT), None)
        return part_of(whole, graph) if number < of and graph is not None else whole

    def fits(self, plan: Plan) -> bool:
        """Return True if a plan makes the same changes as the changeset."""
        record = self.record
        mine = {(m.address, m.before, m.after) for m in record.members}
        mine |= {(r.address, r.digest, None) for r in record.removals}
        carried_out = (change for change in plan.changes if change.disposition is Disposition.APPLIED)
        return mine == {(change.address, change.before, change.after) for change in carried_out}

    def require_way_back(self) -> None:
        """Raise ConflictError `cluster_recovery_pending` if its pivot is done, so that it can no longer be rolled back."""
        record = self.record
        pivots = {m.address for m in record.members if m.effect is Effect.PIVOT}
        if pivots & self.done.keys():
            commit = record.source.merge_commit
            again = "the folder as it was" if commit is None else f"commit {commit}"
            detail = f"changeset {record.key} changed {min(pivots)}, which cannot be rolled back, and is not applied completely"
            fix = f"apply {again}, which continues it: gitops apply"
            raise ConflictError(Code.CLUSTER_RECOVERY_PENDING, detail, path=record.key, fix=fix)


_GOING = frozenset({ChangesetState.PREPARING, ChangesetState.PREPARED})


def course_of(current: Session, record: Changeset) -> Course:
    """Return the next apply's action for this changeset if it is the only open one.

    A changeset to resume is rolled back after all if its plan is now different.
    """
    if not record.atomic:
        return Course.CLOSED
    if record.state not in BLOCKING:
        return Course.FINISHED
    if record.state is ChangesetState.ROLLING_BACK or not _is_declared_still(current, record):
        return Course.TAKEN_BACK
    return Course.RESUMED


def courses_of(current: Session, opened: Sequence[Changeset]) -> tuple[tuple[Changeset, Course], ...]:
    """Return the next apply's action for each open changeset, from the table in this module."""
    found = [(record, course_of(current, record)) for record in opened]
    resumed = {record.key for record, course in found if course is Course.RESUMED}
    return tuple(
        (record, Course.WAITS if record.state in _GOING and resumed.intersection(record.beside) else course)
        for record, course in found
    )


def _is_declared_still(current: Session, record: Changeset) -> bool:
    """Return True if the inputs of the changeset are unchanged, so that a plan gives the same result."""
    return (
        record.desired_digest == current.desired.config_digest
        and record.base.applied_digest == current.state.applied_digest
        and record.source.merge_commit == facts_of(current).source.merge_commit
    )


def facts_of(current: Session) -> ChangesetFacts:
    """Return the known facts about the origin of a session's changes."""
    workspace = current.workspace
    if workspace.changeset is not None:
        return workspace.changeset
    governance = workspace.governance
    commit = None if governance is None else governance.source.commit
    source = ChangesetSource(merge_commit=commit, actor=workspace.actor)
    return ChangesetFacts(source, covers=() if commit is None else (commit,))


def look_at(current: Session, record: Changeset) -> Interrupted:
    """Determine which graphs match a changeset. Raises GitopsError if that is impossible for one of them.

    For a committed changeset, the applied state decides.
    """
    intents: dict[str, tuple[Intent, ...]] = {}
    for intent in current.opened.ledger.intents().intents:
        name = intent.address
        if name in record.addresses:
            intents[name] = (*intents.get(name, ()), intent)
    done: dict[str, Mapping[str, object]] = {}
    pivots = [m for m in record.members if m.effect is Effect.PIVOT]
    for member in (*live_members(record), *pivots) if record.state in BLOCKING else ():
        announced = intents.get(member.address, ())
        seen = _done(current, record, member, announced) if announced else None
        if seen is not None:
            done[member.address] = seen
    return Interrupted(record, intents, done)


def _done(
    current: Session, record: Changeset, member: Member, announced: Sequence[Intent]
) -> Mapping[str, object] | None:
    """Return the facts about a graph for its node if it matches the changeset, or None otherwise."""
    graph = member.address.name
    reading = read_now(current, graph)
    if reading is None:
        return None
    if member.address.kind is Kind.RESTORE:
        # After a long time, the versions that would show it may be gone. Then it runs again, which has no effect unless
        # rows were written.
        same = (intent for intent in announced if intent.incarnation == reading.incarnation)
        done = any(was_restored(current.opened, intent) for intent in same)
    else:
        wanted = next((each.staged for each in record.members if each.address == schema_address(graph)), None)
        done = digest(reading.schema_source) == wanted
    if not done:
        return None
    return {**seen_facts(current.opened.graph_uri(graph), reading), "manifest_version": reading.manifest_version}


def read_now(current: Session, graph: str) -> GraphReading | None:
    """Return a graph's current state, or None if it is missing or being deleted. Raises GitopsError if it cannot be read."""
    try:
        return current.opened.engine.read(current.opened.graph_uri(graph))
    except GitopsError as error:
        if error.code in (Code.GRAPH_MISSING, Code.GRAPH_DELETED):
            return None
        raise


def with_used(swept: Sweep, resumed: Interrupted, at: str) -> Sweep:
    """Return the state with the approvals that the interrupted run's pivot consumed."""
    if not resumed.used:
        return swept
    draft, operation = StateDraft(swept.state), resumed.operations[0]
    draft.use_approvals(resumed.used, {"consumed_at": at, "consumed_by_operation": operation})
    return replace(swept, state=draft.state(), consumed={**swept.consumed, **dict.fromkeys(resumed.used, operation)})


def graphs_of_changesets(opened: Iterable[Changeset]) -> frozenset[str]:
    """Return the ids of the graphs that belong to an open atomic changeset."""
    atomic = (record for record in opened if record.atomic)
    left = (a for r in atomic for a in (r.addresses if r.state in BLOCKING else unfinished(r)))
    return frozenset(a.graph for a in left if a.graph is not None)


def live_members(record: Changeset) -> tuple[Member, ...]:
    """Return the members that were staged in a graph, which a rollback must therefore handle."""
    creates = (Kind.GRAPH, Action.CREATE)
    return tuple(
        member
        for member in record.members
        if member.effect is Effect.STAGE
        and ((member.address.kind, member.action) in (creates, (Kind.SCHEMA, Action.UPDATE)))
    )


# -- The steps that are left: the rollback of staged changes, or the steps after a commit ------------------------------


class DeleteGraph(NamedTuple):
    """Delete a graph. Without an order, delete only the files that remain of it, if any.

    `there` means that the graph still counts as existing.
    """

    order: DeleteOrder | None
    there: bool = True


class MigrateGraph(NamedTuple):
    """Migrate a graph to the schema `text`.

    Without a text, the graph already has the schema, and is only fenced off from the announcing run.
    """

    reading: GraphReading
    text: bytes | None


Step = DeleteGraph | MigrateGraph
"""The work left for one graph. It uses the graph's fence, and raises it to that of the run that does the work."""


def steps_left(record: Changeset) -> tuple[Address, ...]:
    """Return, in order, the remaining work of a changeset that does not continue: rollback, or the steps after its commit."""
    return tuple(m.address for m in live_members(record)) if record.state in BLOCKING else unfinished(record)


def step_of(current: Session, found: Interrupted, address: Address, version: object = None) -> Step | None:
    """Return the remaining work for one address of a changeset, given its graph's current state, or None if it is done.

    Before the commit, a node without an intent was never started. `version` is the version that its migration gave the
    graph, if known. Raises GitopsError if the graph must not be changed, and the errors of the engine.
    """
    record, announced = found.record, found.intents.get(address, ())
    member = next((each for each in record.members if each.address == address), None)
    if record.state not in BLOCKING:
        return _deletion(current, address, announced) if member is None else _contraction(current, member)
    if member is None or not announced:
        return None
    return (
        _removal(current, record, member, announced)
        if address.kind is Kind.GRAPH
        else _migration_back(current, member, announced, version)
    )


def _removal(current: Session, record: Changeset, member: Member, announced: Sequence[Intent]) -> DeleteGraph:
    """Delete a graph that a changeset created, while it is empty. Otherwise it must be kept (`changeset_orphaned`)."""
    stores, uri = current.opened, current.opened.graph_uri(member.address.name)
    if stores.engine.exists(uri) is Existence.ABSENT:
        return DeleteGraph(None, there=False)  # A run may have crashed while creating the graph.
    try:
        reading = stores.engine.read(uri)
    except GitopsError as error:
        if error.code != Code.GRAPH_DELETED:
            raise
        return DeleteGraph(None)  # A run that rolled it back crashed after the point of no return.
    schema = next((m.after for m in record.members if m.address == member.address.schema_address), None)
    if reading.fence < min(intent.fence or 0 for intent in announced):
        return DeleteGraph(
            None, there=False
        )  # It is not the graph of this changeset, because that has higher operation numbers.
    if digest(reading.schema_source) != schema:
        raise _left(member, "its schema was changed since it was created")
    if reading.rows:
        raise _left(member, f"it holds {reading.rows} rows")
    return DeleteGraph(DeleteOrder(reading.incarnation, 0, reading.fence))


def _migration_back(
    current: Session, member: Member, announced: Sequence[Intent], version: object
) -> MigrateGraph | None:
    """Roll back a migration if nothing was written after it. Otherwise it is kept (`changeset_orphaned`).

    None without a graph.
    """
    reading = read_now(current, member.address.name)
    if reading is None:
        return None
    live = digest(reading.schema_source)
    if live == member.before:
        return MigrateGraph(reading, None)
    if live != member.staged:
        raise _left(member, "its live schema is neither the applied nor the new one")
    if not _untouched(reading, announced, version):
        raise _left(member, "the graph was written to after its migration")
    stores = current.opened
    return MigrateGraph(reading, stores.engine.schema_text(stores.graph_uri(member.address.name), member.before or ""))


def _untouched(reading: GraphReading, announced: Sequence[Intent], version: object) -> bool:
    """Return True if nothing was published after the migration, so that its additions are empty."""
    if version is not None:
        return reading.manifest_version == version
    # A migration is one version. The fences of an interrupted recovery come on top of it, and look like writes.
    observed = (i.observed_manifest_version for i in announced if i.observed_manifest_version is not None)
    return any(reading.manifest_version == number + 1 for number in observed)


def _left(member: Member, why: str) -> GitopsError:
    return GitopsError(Code.CHANGESET_ORPHANED, why, path=member.address)


# -- Remaining work of a committed changeset: deleting data and schema drops. Checks whether it is permitted, read-only --
#
# A drop starts from the schema that the commit left in the graph. If a person has changed that schema since then,
# nothing is dropped, because data that was not planned would be lost. Once a refresh has recorded the live schema, the
# drop is void, and the next plan leads from there to the declared schema, with separate gates.


_NOT_PERMITTED = frozenset(
    {
        Code.APPROVAL_REVOKED,
        Code.GRAPH_DELETE_INCOMPLETE,
        Code.GRAPH_GROWN,
        Code.GRAPH_REPLACED,
        Code.GRAPH_RESTORED,
        Code.GRAPH_ROWS_REPLACED,
    }
)
"""Codes for why the approvals of a delete do not permit it, or no longer do."""


def _deletion(current: Session, graph: Address, intents: Sequence[Intent]) -> DeleteGraph | None:
    """Delete the data of a graph that was removed from the cluster, within the limits of its approvals.

    Raises GitopsError if that is not permitted.
    """
    if graph.kind is not Kind.GRAPH:
        return None
    stores = current.opened
    uri = stores.graph_uri(graph.name)
    with out_of_cluster(uri):
        if stores.engine.exists(uri) is Existence.ABSENT:
            return DeleteGraph(
                None
            )  # A run may have crashed after the root became free but before the files were removed.
        intent = next((each for each in intents if each.incarnation is not None and each.max_rows is not None), None)
        if intent is None or intent.incarnation is None or intent.max_rows is None:
            detail = f"{uri} is still there, and what permits to delete it is not announced"
            raise GitopsError(Code.GRAPH_DELETE_INCOMPLETE, detail, path=graph)
        used, revoked = current.state.decided, {name for name, _ in recorded_revocations(current.state)}
        for approval in intent.approval_ids:
            if approval not in used or approval in revoked:
                detail = f"approval {approval} no longer permits its deletion"
                raise GitopsError(Code.APPROVAL_REVOKED, detail, path=graph)
    version = intent.observed_manifest_version
    return DeleteGraph(
        DeleteOrder(intent.incarnation, intent.max_rows, intent.fence or 0, intent.approval_ids, version)
    )


@contextmanager
def out_of_cluster(uri: str) -> Iterator[None]:
    """Delete a graph that was removed from the cluster.

    No plan can request another approval, so a refusal contains a remedy.
    """
    try:
        yield
    except GitopsError as error:
        if error.code not in _NOT_PERMITTED:
            raise
        fix = f"keep a copy of its data, remove {uri}, then apply again: gitops apply"
        raise GitopsError(error.code, error.detail, path=error.path, fix=fix) from error


def _contraction(current: Session, member: Member) -> MigrateGraph | None:
    """Return the step that drops data from a graph that its new schema lacks.

    None if nothing is left to drop, or the drop is void.

    Raises GitopsError `schema_apply_failed` if the graph has a different schema from the one that the commit left, or
    if that text is not available.
    """
    graph, wanted = member.address.name, member.after or ""
    reading = read_now(current, graph)
    live = None if reading is None else digest(reading.schema_source)
    if reading is None or live == wanted:
        return None
    if live not in (member.before, member.expanded) and (differs := _difference(current, member)):
        recorded = current.state.resources.get(member.address)
        if recorded is not None and recorded.digest == live:
            return None
        again = "" if member.address in current.desired.resources else "declare its graph again, then "
        fix = f"{again}{RECORD_LIVE}"
        detail = f"its live schema is not the one that the commit left: {differs}"
        raise GitopsError(Code.SCHEMA_APPLY_FAILED, detail, path=member.address, fix=fix)
    declared = current.desired.resources.get(member.address)
    text = declared.content if declared is not None and declared.digest == wanted else None
    text = current.workspace.accepted_schema(graph, wanted) if text is None else text
    if text is None:
        detail = f"it needs the schema with the digest {wanted}, which is no longer declared and is not in git"
        fix = "declare that schema again until it is applied: gitops apply"
        raise GitopsError(Code.SCHEMA_APPLY_FAILED, detail, path=member.address, fix=fix)
    return MigrateGraph(reading, text)


def _difference(current: Session, member: Member) -> str:
    """Describe a live schema's differences from the one that the commit left; empty if only the text differs."""
    from gitops.cluster.plan.impact import step_subjects

    engine, uri = current.opened.engine, current.opened.graph_uri(member.address.name)
    left = member.expanded or member.before or ""
    try:
        steps = engine.preview(uri, engine.schema_text(uri, left)).steps
    except GitopsError as error:
        return f"the two cannot be compared, {error.detail}"
    if not steps:
        return ""
    subjects = step_subjects(steps)
    sorts = {
        "it has": {each for found in subjects for each in found.before - found.after},
        "it lacks": {each for found in subjects for each in found.after - found.before},
        "it changes": {each for found in subjects for each in found.before & found.after},
    }
    names = {
        verb: sorted(".".join(filter(None, (each.type_name, each.property_name))) for each in found)
        for verb, found in sorts.items()
    }
    words = [f"{verb} {', '.join(each)}" for verb, each in names.items() if each]
    return "; ".join(words) or "it has other interfaces"


# -- Predicts how the next apply settles an interrupted run before it applies anything: the decisions of `apply`, read-only ---
#
# 1. Open changesets are settled, each by its row in this module's table.
# 2. The other interrupted operations are settled by the recovery rules.
# 3. It plans from the resulting state. A changeset to resume is rolled back after all if its plan is now different.


_COURSES = {
    Course.CLOSED: "it recorded no change, and the next apply records that it failed",
    Course.RESUMED: "the next apply continues it",
    Course.TAKEN_BACK: "the next apply rolls it back, then applies the declared resources",
    Course.FINISHED: "it is committed, and the next apply finishes it",
    Course.WAITS: "it continues after the one that the next apply continues",
}


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Prediction of the work that the next apply settles and then plans. Without a plan, its problems end the apply.

    `changesets` are the ones that it settles first, and `resumed` is the one among them that it continues. `moving` are
    the ids of graphs that will be different when it plans. `swept` is the state from which it plans, and `planning` are
    the problems of planning.
    """

    changesets: tuple[OpenChangeset, ...]
    problems: tuple[Diagnostic, ...]
    plan: Plan | None = None
    accepted: AcceptedApprovals | None = None
    moving: frozenset[str] = frozenset()
    resumed: Interrupted | None = None
    swept: Sweep | None = None
    planning: tuple[Diagnostic, ...] = ()


@dataclass(slots=True)
class _Settled:
    """State after changesets are settled: the resulting texts of graphs, None for missing ones.

    `kept` are the ids of graphs that still belong to a changeset, `resumed` is the one that continues, and `beside` are
    those that were created beside it.
    """

    changesets: list[OpenChangeset] = field(default_factory=list)
    problems: Diagnostics = field(default_factory=Diagnostics)
    texts: dict[str, bytes | None] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    resumed: Interrupted | None = None
    beside: list[Changeset] = field(default_factory=list)


def foresee(
    current: Session,
    listing: ChangesetListing,
    intents: Sequence[Intent],
    make_plan: Callable[[Session, Sweep], tuple[Plan, AcceptedApprovals]],
) -> Foreseen | None:
    """Predict how the next apply handles unfinished work. `make_plan` plans from a session after a sweep.

    Returns None if graphs cannot be read from here.
    """
    if not current.opened.data_at_hand:
        return None
    settled, held = _Settled(), graphs_of_changesets(listing.open)
    others = [each for each in intents if each.graph_id not in held]
    try:
        if listing.problem is not None:
            raise ConflictError(Code.CHANGESET_INVALID, listing.problem, path="changesets")
        for record, course in courses_of(current, listing.open):
            _settle(current, record, course, settled)
        swept, then = _recover(current, settled, others), _session_then(current, settled)
        plan, accepted = make_plan(then, swept)
        if settled.resumed is not None and not settled.resumed.fits(settled.resumed.part(plan)):
            for record in (settled.resumed.record, *settled.beside):
                _end(current, look_at(current, record), settled)
            settled.resumed, settled.beside = None, []
            swept, then = _recover(current, settled, others), _session_then(current, settled)
            plan, accepted = make_plan(then, swept)
    except GitopsError as error:
        settled.problems.add_error(error)
        return Foreseen(tuple(settled.changesets), tuple(settled.problems))
    settled.problems.extend(each for each in swept.diagnostics if each.severity is Severity.ERROR)
    resumed, moving = settled.resumed, set(settled.texts)
    if resumed is not None:
        settled.changesets.append(OpenChangeset(resumed.record.key, Course.RESUMED))
        settled.changesets += [OpenChangeset(record.key, Course.WAITS) for record in settled.beside]
        moving |= {member.address.name for member in resumed.record.members if member.address in resumed.done}
    ends = tuple(settled.changesets), tuple(settled.problems)
    return Foreseen(*ends, plan, accepted, frozenset(moving), resumed, swept, tuple(then.problems))


def warn_of_changesets(foreseen: Foreseen, problems: Diagnostics) -> None:
    """Warn about each changeset that the next apply settles first: what it does, and what it leaves behind."""
    for each in foreseen.changesets:
        course = _COURSES[each.course]
        if each.unfinished:
            course = f"it is committed, and the next apply cannot finish it, because of {', '.join(each.unfinished)}"
        left = "".join(f"; {orphan.address} stays: {orphan.reason}" for orphan in each.orphaned)
        problems.add(Code.CLUSTER_RECOVERY_PENDING, each.key, f"its run was interrupted; {course}{left}")


def _settle(current: Session, record: Changeset, course: Course, settled: _Settled) -> None:
    """Predict the result for one changeset. Raises GitopsError if the apply would end there."""
    match course:
        case Course.CLOSED:
            settled.changesets.append(OpenChangeset(record.key, Course.CLOSED))
        case Course.RESUMED:
            settled.resumed = look_at(current, record)
        case Course.WAITS:
            settled.beside.append(record)
        case _:
            _end(current, look_at(current, record), settled)


def _end(current: Session, found: Interrupted, settled: _Settled) -> None:
    """Predict the results of the remaining steps, and which ones will fail.

    Raises GitopsError if a rollback is impossible.
    """
    record, engine, stuck = found.record, current.opened.engine, list[Orphan]()
    back = record.state in BLOCKING
    if back:
        found.require_way_back()
    for address in steps_left(record):
        uri = current.opened.graph_uri(address.name)
        try:
            match step_of(current, found, address):
                case DeleteGraph(order, there):
                    if order is not None and not back:
                        with out_of_cluster(uri):
                            engine.check_delete(uri, order)
                    if there:
                        settled.texts[address.name] = None
                case MigrateGraph(reading, bytes() as text):
                    if not back:
                        engine.check_migration(uri, text, incarnation=reading.incarnation)
                    settled.texts[address.name] = text
        except GitopsError as error:
            stuck.append(Orphan(address, error.detail))
            if not back:
                detail = f"changeset {record.key} cannot be finished: {error.detail}"
                settled.problems.add(error.code, address, detail, fix=error.fix)
                settled.kept.add(address.name)
    if back:
        settled.changesets.append(OpenChangeset(record.key, Course.TAKEN_BACK, tuple(stuck)))
    else:
        left = tuple(each.address for each in stuck)
        settled.changesets.append(OpenChangeset(record.key, Course.FINISHED, unfinished=left))


def _recover(current: Session, settled: _Settled, intents: Sequence[Intent]) -> Sweep:
    """Predict the recovery of operations that don't belong to a changeset."""
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
        # Recovery checks a graph after giving it a new version for each of its intents.
        number = found.reading.manifest_version + sum(each.graph_id == intent.graph_id for each in intents)
        return replace(found, reading=replace(found.reading, manifest_version=number))

    return probe


def _session_then(current: Session, settled: _Settled) -> Session:
    """Return a session in which migrations start from the schemas that the graphs will have then.

    It has separate problems.
    """
    workspace, texts = current.workspace, settled.texts

    def accepted_schema(graph: str, wanted: str) -> bytes | None:
        text = texts.get(graph)
        return text if text is not None and digest(text) == wanted else workspace.accepted_schema(graph, wanted)

    return replace(current, workspace=replace(workspace, accepted_schema=accepted_schema), problems=Diagnostics())
