"""What is left of a changeset after its commit, in a later run: the data of what left the cluster, and drops of schemas.

The applied state has moved, so none of this is taken back. What fails is recorded, reported, and tried again by the next run;
until then nothing else changes these graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gitops.cluster.apply.drain import drain
from gitops.cluster.apply.run import write_events
from gitops.cluster.apply.settle import with_seen
from gitops.cluster.changesets.journal import Journal
from gitops.cluster.changesets.lifecycle import unfinished
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.changeset import (
    ChangesetState,
    Drained,
    Finalized,
    Happening,
    Member,
    Removed,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import Intent
from gitops.cluster.plan.changeset import changeset_result
from gitops.cluster.plan.open_changesets import Interrupted
from gitops.cluster.plan.probe import seen_facts
from gitops.cluster.plan.unfinished import contraction, delete_order, out_of_cluster
from gitops.cluster.session.session import Session
from gitops.core.codes import Code
from gitops.core.errors import GitopsError


def finish(current: Session, found: Interrupted, fence: int) -> None:
    """Finish a committed changeset as far as that is possible now; what is not is reported. Raises GitopsError of the ledger."""
    record, intents = found.record, found.intents
    journal, at = Journal(current.workspace.stamp, record), current.workspace.stamp()
    if record.state is ChangesetState.COMMITTED:
        waits = drain(current, record, destroys=any(a.kind in (Kind.GRAPH, Kind.SCHEMA) for a in unfinished(record)))
        journal.add(Drained(waits.waited_ms, waits.evidence))
    done: list[str] = []
    seen: dict[Address, Mapping[str, object]] = {}
    members = {member.address: member for member in record.members}
    for address in unfinished(journal.record):
        work = partial(_delete, current, address, intents.get(address, ()), fence)
        event: Happening = Removed(address)
        if address in members:
            work = partial(_migrate, current, members[address], fence, seen)
            event = RuntimeUpdated(address, Runtime(RuntimeState.CANONICAL, updated_at=at))
        if _tried(current, journal, address, work):
            journal.add(event)
            done.append(address)
    left = unfinished(journal.record)
    if not left:
        revision, converged = current.state.revision, not record.excluded
        result = changeset_result(journal.record, state_revision=revision, converged=converged, at=at)
        journal.add(Finalized(result))
    retire = settled(current, (intent for name in done for intent in intents.get(name, ())))
    if journal.drafts or retire:
        write_events(current, journal, retire, with_seen(current.state, current.desired, seen, at=at))
    if not left:
        what = f": {', '.join(done)}" if done else ""
        detail = f"an earlier run committed it, and this one settled what was left{what}"
        current.problems.add(Code.CLUSTER_RECOVERY_ROLLED_FORWARD, record.key, detail)


def settled(current: Session, intents: Iterable[Intent]) -> tuple[str, ...]:
    """Of operations that are done, those that need no intent any longer.

    In a folder the state may record that an approval is used while its document does not, after a death between the two. The
    sweep of the next run marks it, and finds the approval by the intent.
    """
    intents = tuple(intents)
    used = {name for intent in intents for name in intent.approval_ids}
    documents = current.opened.ledger.approvals().documents if used else ()
    unmarked = {each.approval_id for each in documents if each.approval_id in used and each.consumed_at is None}
    return tuple(intent.operation_id for intent in intents if not unmarked.intersection(intent.approval_ids))


def _tried(current: Session, journal: Journal, address: Address, work: Callable[[], None]) -> bool:
    """Whether the work could be done; if not, that is reported, and recorded the first time."""
    try:
        work()
    except GitopsError as error:
        detail = f"changeset {journal.record.key} is not finished: {error.detail}"
        current.problems.add(error.code, address, detail, fix=error.fix)
        if not journal.record.needs_attention:
            failed = Runtime(
                RuntimeState.FAILED, updated_at=current.workspace.stamp(), error=f"{error.code}: {error.detail}"
            )
            journal.add(RuntimeUpdated(address, failed))
        return False
    return True


def _delete(current: Session, graph: Address, intents: Sequence[Intent], fence: int) -> None:
    """Delete the data of a graph that left the cluster, as its approvals permit; nothing else has any. Raises GitopsError."""
    if graph.kind is not Kind.GRAPH:
        return
    stores, uri = current.opened, current.opened.graph_uri(graph.name)
    with out_of_cluster(uri):
        order = delete_order(current, graph, intents)
        if order is None:
            # A run may have died when the root was free, and the files were not removed yet.
            stores.engine.finish_delete(uri)
        else:
            stores.engine.delete(uri, replace(order, fence=max(fence, order.fence)))


def _migrate(current: Session, member: Member, fence: int, seen: dict[Address, Mapping[str, object]]) -> None:
    """Drop from a graph what its new schema does not have, and add what is `seen` of it then. Raises GitopsError."""
    if (found := contraction(current, member)) is not None:
        (reading, text), stores = found, current.opened
        uri, actor, fence = stores.graph_uri(member.address.name), current.workspace.actor, max(fence, reading.fence)
        stores.engine.prepare_migration(uri, text, actor=actor, incarnation=reading.incarnation, fence=fence).publish()
    uri = current.opened.graph_uri(member.address.name)
    # The drop is done: a graph that cannot be read now keeps its record until a refresh.
    with suppress(GitopsError):
        seen[member.address] = seen_facts(uri, current.opened.engine.read(uri))
