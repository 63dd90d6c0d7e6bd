"""What an operator does after a run died that was to land whole, and what must be true before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import BLOCKING, Changeset, ChangesetState
from gitops.core.errors import GitopsError
from gitops.database.graph import read, read_log
from tests.fault.atomic_matrix import EXTRA, ROWS, STORIES, land, unlock
from tests.fault.matrix import OLD
from tests.fault.matrix_recovery import require_as_declared
from tests.fault.matrix_stores import OTHER, PEOPLE, WHOLE, Scene


class Ending(StrEnum):
    """What became of the changeset that a dead run was at."""

    UNBEGUN = "not begun"
    RESUMED = "resumed"
    FORWARD = "rolled forward"
    BACK = "taken back"
    DONE = "was done"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True)
class Found:
    """A ledger at one moment: the digests that are applied, its changesets, and whether what cannot be taken back is done."""

    applied: Mapping[Address, str]
    records: Mapping[str, Changeset]
    schema: str

    @property
    def open(self) -> tuple[Changeset, ...]:
        """The changesets that have not ended."""
        return tuple(record for record in self.records.values() if not record.ended)


def look(scene: Scene) -> Found:
    """The scene now."""
    ledger = scene.stores.ledger
    view = ledger.view()
    assert view.state is not None
    records = {key: ledger.changeset(key) for key in ledger.changeset_keys()}
    live = scene.stores.engine.read(scene.stores.graph_uri("knowledge")).schema_source.decode()
    return Found(view.state.digests(), {key: each for key, each in records.items() if each is not None}, live)


def require_whole_or_nothing(start: Found, found: Found) -> None:
    """Each changeset that is new has moved all of its addresses, or none: neither readers nor records see anything between."""
    expected, touched = dict(start.applied), set[Address]()
    # The oldest first: a later one may take out what it brought in.
    for key, record in reversed(found.records.items()):
        before = start.records.get(key)
        if before is not None and before.state not in BLOCKING:
            continue
        touched |= record.addresses
        if record.state not in BLOCKING and record.state is not ChangesetState.FAILED:
            expected |= {each.address: each.after for each in record.members if each.after is not None}
            for removal in record.removals:
                expected.pop(removal.address, None)
    wrong = {n for n in touched if found.applied.get(n) != expected.get(n)}
    assert not wrong, {n: (start.applied.get(n), found.applied.get(n), expected.get(n)) for n in wrong}


def recover(scene: Scene, story: str, dead: Found) -> tuple[Ending, str]:
    """Run again what died, then an apply; says what became of the changeset, and which of the two brought it to its end."""
    unlock(scene)
    by = "apply"
    if story == "bot":
        assert STORIES["bot"](scene, None).ok
        by = "bot"
    elif story == "give-up":
        _give_up_again(scene, dead)
    elif story == "withdrawn":
        scene.edit(OTHER)
    outcome = land(scene)
    assert outcome.ok, [d.message for d in outcome.diagnostics]
    assert outcome.converged
    now = look(scene)
    if story == "withdrawn":
        _require_explained(scene, dead)
    if not dead.open:
        return (Ending.DONE if dead.applied == now.applied else Ending.UNBEGUN), by
    (record,) = dead.open
    ended = now.records[record.key]
    if ended.state is ChangesetState.FAILED:
        return Ending.BACK, by
    forward = record.state not in BLOCKING or dead.schema == WHOLE["knowledge.pg"]
    return (Ending.FORWARD if forward else Ending.RESUMED), by


def _require_explained(scene: Scene, dead: Found) -> None:
    """Rows that are back have a record: of the dead run, or of the recovery that found them."""
    state = scene.stores.ledger.view().state
    assert state is not None
    recovered = ["graph_restore" in record.values() for record in state.recovery_records.values()]
    assert any(recovered) == (_restored(scene) and "restore.wide" not in dead.applied)


def _restored(scene: Scene) -> bool:
    """Whether rows of graph `wide` came back; that is done once at most."""
    made = [version.operation for version in read_log(scene.stores.graph_uri("wide"))].count("restore")
    assert made <= 1
    return made == 1


def _give_up_again(scene: Scene, dead: Found) -> None:
    (record,) = dead.open
    if record.state is not ChangesetState.ROLLING_BACK:
        assert STORIES["give-up"](scene, None).ok
        return
    try:
        STORIES["give-up"](scene, None)
    except GitopsError as refused:
        assert refused.code == "changeset_state_invalid"  # noqa: PT017 - what is decided is decided
    else:
        raise AssertionError("given up twice")


def require_landed(scene: Scene) -> None:
    """Everything is as declared, nothing is open or left behind, and every record is what its events give."""
    state, desired = require_as_declared(scene), scene.desired
    ledger = scene.stores.ledger
    assert ledger.intents().intents == ()
    _require_records(scene)
    scene.require_sound_ledger()
    assert scene.debris() == []
    graphs = {address.name for address in desired.resources if address.kind == "graph"}
    assert scene.graphs() == graphs
    _require_graphs(scene, graphs)
    used = {a.approval_id for a in ledger.approvals().documents if a.consumed_at}
    assert used == set(state.approval_records)
    assert len(used) == (OLD not in desired.resources) + _restored(scene)


def _require_records(scene: Scene) -> None:
    ledger = scene.stores.ledger
    index = ledger.changesets().index
    assert (index.active, index.open) == (None, ())
    events = ledger.events()
    assert [each.seq for each in events] == list(range(1, index.seq + 1))
    for key in ledger.changeset_keys():
        record = ledger.changeset(key)
        assert record is not None
        assert record.state in (ChangesetState.FINALIZED, ChangesetState.FAILED)
        assert record.orphaned == ()
        assert replay(ledger.events(key=key)) == record


def _require_graphs(scene: Scene, graphs: set[str]) -> None:
    stores = scene.stores
    for graph in graphs:
        assert (
            stores.engine.read(stores.graph_uri(graph)).schema_source
            == scene.desired.resources[f"schema.{graph}"].content
        )
    people = read.read_rows(stores.graph_uri("knowledge"), "Person", 10)
    assert [{name: row[name] for name in PEOPLE[0]} for row in people] == PEOPLE
    for graph in ROWS:
        kind = "Human" if b"Human" in scene.desired.resources[f"schema.{graph}"].content else "Person"
        loaded = [version.operation for version in read_log(stores.graph_uri(graph))].count("load")
        more = [EXTRA] if loaded > 1 and not _restored(scene) else []
        rows = [row["handle"] for row in read.read_rows(stores.graph_uri(graph), kind, 10)]
        assert sorted(rows) == sorted([graph, *more])
    # A migration is carried out once, and once more after each time that it was taken back.
    made = [version.operation for version in read_log(stores.graph_uri("wide"))].count("migrate")
    assert made % 2 == (scene.desired.resources["schema.wide"].content == WHOLE["wide.pg"].encode())
    ended = [stores.ledger.changeset(key) for key in stores.ledger.changeset_keys()]
    failed = sum(each is not None and each.state is ChangesetState.FAILED for each in ended)
    assert made <= 2 * failed + 1
