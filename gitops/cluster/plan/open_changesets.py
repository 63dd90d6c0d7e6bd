"""What the next apply does with a changeset that an interrupted run left open: read here, carried out by `gitops.cluster.apply`.

| the changeset | what becomes of it |
| --- | --- |
| lands what it can | closed: it recorded nothing, so it failed, and recovery settles the graphs that it touched |
| prepares or is prepared, the same is declared and applied still | resumed: what is done is not done again |
| prepares or is prepared, and something has changed | taken back, unless its pivot is done: then nothing is applied until it is |
| rolls back | taken back, as far as it is not yet |
| committed, drained | finished: what left the cluster is deleted, and what finishes after the commit is carried out |

Graphs are looked at, never guessed. What a changeset did to a graph is gone with the graph: where that does not exist any more,
or is past the point of no return of a delete, nothing is done, and nothing is left to take back or to drop. The intents of an
atomic changeset are those of the graphs that it names: while it is open, no other one touches these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.changesets.lifecycle import unfinished
from gitops.cluster.model.address import Address, Kind, schema_address
from gitops.cluster.model.change import Action, Change, Disposition
from gitops.cluster.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetSource,
    ChangesetState,
    Member,
)
from gitops.cluster.model.ledger import Intent
from gitops.cluster.model.outcome import Course
from gitops.cluster.model.plan import Effect, Plan
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.plan.parts import part_of
from gitops.cluster.plan.probe import seen_facts, was_restored
from gitops.cluster.plan.recovery_rules import Sweep
from gitops.cluster.session.session import Session
from gitops.cluster.session.workspace import ChangesetFacts
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.port import Existence, GraphReading

__all__ = [
    "Interrupted",
    "course_of",
    "facts_of",
    "graphs_of_changesets",
    "live_members",
    "look_at",
    "read_now",
    "to_migrate_back",
    "to_remove",
    "with_used",
]


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A changeset that is open: its intents by node id, and the nodes that are done, with what is seen of their graphs."""

    record: Changeset
    intents: Mapping[str, tuple[Intent, ...]]
    done: Mapping[str, Mapping[str, object]]

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that the interrupted run announced."""
        return tuple(intent.operation_id for intents in self.intents.values() for intent in intents)

    @property
    def used(self) -> tuple[str, ...]:
        """The approvals that its migration has used up. Those of a restore are needed until the commit, which uses them up."""
        pivots = {m.address for m in self.record.members if m.effect is Effect.PIVOT}.intersection(self.done)
        pivots = {name for name in pivots if name.kind is not Kind.RESTORE}
        return tuple(a for name in pivots for intent in self.intents.get(name, ()) for a in intent.approval_ids)

    @property
    def graphs(self) -> frozenset[str]:
        """The ids of the graphs that it names."""
        return frozenset(address.graph for address in self.record.addresses if address.graph is not None)

    def part(self, whole: Plan) -> Plan:
        """The part of a plan that it is about."""
        number, of = (int(each) for each in self.record.part.split("/"))
        graph = next((m.address.graph for m in self.record.members if m.effect is Effect.PIVOT), None)
        return part_of(whole, graph) if number < of and graph is not None else whole

    def fits(self, plan: Plan) -> bool:
        """Whether a plan carries out what the changeset does."""
        record = self.record
        mine = {(m.address, m.before, m.after) for m in record.members}
        mine |= {(r.address, r.digest, None) for r in record.removals}
        return mine == {_form(change) for change in plan.changes if change.disposition is Disposition.APPLIED}

    def require_way_back(self) -> None:
        """Raises ConflictError `cluster_recovery_pending` if its pivot is done: then it is not taken back."""
        record = self.record
        pivots = {m.address for m in record.members if m.effect is Effect.PIVOT}
        if pivots & self.done.keys():
            commit = record.source.merge_commit
            again = "the folder as it was" if commit is None else f"commit {commit}"
            detail = f"changeset {record.key} changed {min(pivots)}, which cannot be taken back, and is not applied as a whole"
            fix = f"apply {again}, which goes on with it: gitops apply"
            raise ConflictError(Code.CLUSTER_RECOVERY_PENDING, detail, path=record.key, fix=fix)


def _form(change: Change) -> tuple[Address, str | None, str | None]:
    return change.address, change.before, change.after


def course_of(current: Session, record: Changeset) -> Course:
    """The row of the table of this module; one to resume is taken back after all where its plan is another one by now."""
    if not record.atomic:
        return Course.CLOSED
    if record.state not in BLOCKING:
        return Course.FINISHED
    if record.state is ChangesetState.ROLLING_BACK or not _is_declared_still(current, record):
        return Course.TAKEN_BACK
    return Course.RESUMED


def _is_declared_still(current: Session, record: Changeset) -> bool:
    """Whether what the changeset was made from is as it was: then a plan gives what it gave."""
    return (
        record.desired_digest == current.desired.config_digest
        and record.base.applied_digest == current.state.applied_digest
        and record.source.merge_commit == facts_of(current).source.merge_commit
    )


def facts_of(current: Session) -> ChangesetFacts:
    """What is known of where the changes of a session come from."""
    workspace = current.workspace
    if workspace.changeset is not None:
        return workspace.changeset
    governance = workspace.governance
    commit = None if governance is None else governance.source.commit
    source = ChangesetSource(merge_commit=commit, actor=workspace.actor)
    return ChangesetFacts(source, covers=() if commit is None else (commit,))


def look_at(current: Session, record: Changeset) -> Interrupted:
    """Find out which graphs are as a changeset wants them. Raises GitopsError for one of which that is not known.

    Of one that is committed the applied state says it.
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
    """What is seen of a graph that is as the changeset wants it, as its node reports it; None where it is not."""
    graph = member.address.name
    reading = read_now(current, graph)
    if reading is None:
        return None
    if member.address.kind is Kind.RESTORE:
        # Where the versions that say it are gone, so long after, it is run again: that changes nothing unless rows were written.
        same = (intent for intent in announced if intent.incarnation == reading.incarnation)
        done = any(was_restored(current.opened, intent) for intent in same)
    else:
        wanted = next((each.staged for each in record.members if each.address == schema_address(graph)), None)
        done = digest(reading.schema_source) == wanted
    if not done:
        return None
    return {**seen_facts(current.opened.graph_uri(graph), reading), "manifest_version": reading.manifest_version}


def read_now(current: Session, graph: str) -> GraphReading | None:
    """A graph as it is now; None where it is gone, or about to be. Raises GitopsError where that is not known."""
    try:
        return current.opened.engine.read(current.opened.graph_uri(graph))
    except GitopsError as error:
        if error.code in (Code.GRAPH_MISSING, Code.GRAPH_DELETED):
            return None
        raise


def with_used(swept: Sweep, resumed: Interrupted, at: str) -> Sweep:
    """The state with the approvals that a pivot of the interrupted run has used up."""
    if not resumed.used:
        return swept
    draft, operation = StateDraft(swept.state), resumed.operations[0]
    draft.use_approvals(resumed.used, {"consumed_at": at, "consumed_by_operation": operation})
    return replace(swept, state=draft.state(), consumed={**swept.consumed, **dict.fromkeys(resumed.used, operation)})


def graphs_of_changesets(opened: Iterable[Changeset]) -> frozenset[str]:
    """The ids of the graphs that belong to an atomic changeset until it has ended, of those that are open."""
    atomic = (record for record in opened if record.atomic)
    left = (a for r in atomic for a in (r.addresses if r.state in BLOCKING else unfinished(r)))
    return frozenset(a.graph for a in left if a.graph is not None)


def live_members(record: Changeset) -> tuple[Member, ...]:
    """The members that were staged in a graph: what takes work to take back."""
    creates = (Kind.GRAPH, Action.CREATE)
    return tuple(
        member
        for member in record.members
        if member.effect is Effect.STAGE
        and ((member.address.kind, member.action) in (creates, (Kind.SCHEMA, Action.UPDATE)))
    )


def to_remove(current: Session, record: Changeset, member: Member, announced: Sequence[Intent]) -> GraphReading | None:
    """A graph that a changeset created and that is empty; None where there is none of it.

    Raises GitopsError `changeset_orphaned` where it has to stay, and as the engine does: `graph_deleted` where a run that took it
    back died while its files were removed.
    """
    graph, stores = member.address.name, current.opened
    uri = stores.graph_uri(graph)
    if stores.engine.exists(uri) is Existence.ABSENT:
        return None
    reading = stores.engine.read(uri)
    schema = next((m.after for m in record.members if m.address == member.address.schema_address), None)
    if reading.fence < min(intent.fence or 0 for intent in announced):
        return None  # It is not the graph of this changeset, whose operations have higher numbers.
    if digest(reading.schema_source) != schema:
        raise _left(member, "its schema was changed since it was created")
    if reading.rows:
        raise _left(member, f"it holds {reading.rows} rows")
    return reading


def to_migrate_back(
    current: Session, member: Member, announced: Sequence[Intent], version: object = None
) -> GraphReading | None:
    """A graph that has the schema from before a migration, or the new one and nothing that was written since.

    None where it is gone. `version` is the one that the migration gave it, if that is known. Raises GitopsError
    `changeset_orphaned` where it has to keep its schema, and as the engine does.
    """
    reading = read_now(current, member.address.name)
    live = None if reading is None else digest(reading.schema_source)
    if reading is None or live == member.before:
        return reading
    if live != member.staged:
        raise _left(member, "its live schema is neither the applied nor the new one")
    if not _untouched(reading, announced, version):
        raise _left(member, "the graph was written to after its migration")
    return reading


def _untouched(reading: GraphReading, announced: Sequence[Intent], version: object) -> bool:
    """Whether nothing was published after the migration, so that what it added is empty."""
    if version is not None:
        return reading.manifest_version == version
    # A migration is one version. Fences of a recovery that was itself interrupted come on top, and look like writes.
    observed = (i.observed_manifest_version for i in announced if i.observed_manifest_version is not None)
    return any(reading.manifest_version == number + 1 for number in observed)


def _left(member: Member, why: str) -> GitopsError:
    return GitopsError(Code.CHANGESET_ORPHANED, why, path=member.address)
