"""Runs that land whole or not at all, each of which dies at every fault point that it reaches, in a process of its own.

python -m tests.fault.atomic_matrix RUN     one run as another process: see `tests.fault.matrix`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from gitops.bot.dispatch import run_verb
from gitops.cli.shared import bot_of
from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import BLOCKING, Changeset, ChangesetState
from gitops.cluster.model.outcome import ApplyOutcome, VerbOutcome
from gitops.cluster.session.changesets import Steering
from gitops.cluster.session.status import force_unlock
from gitops.cluster.session.workspace import next_attempt
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph import read, read_log
from gitops.forge.events import ManualEvent
from gitops.repository.results import RunResult, combined_result
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.fault.matrix import OLD, Run, Starts, die, locked_by, perform, require_as_declared, succeed
from tests.fault.matrix_stores import ATOMIC_SCENES, MADE, OTHER, PARTS, PEOPLE, RESTORING, WHOLE, BranchScene, Scene
from tests.support.faults import DoAt, FailAt, fail, visits


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
    wide = scene.desired.resources["schema.wide"].content == WHOLE["wide.pg"].encode()
    (row,) = (row for row in read.read_rows(stores.graph_uri("wide"), "Person", 10) if row["handle"] == "wide")
    assert row.get("born") == (1900 if wide else None)
    # A migration is carried out once, and once more after each time that it was taken back.
    made = [version.operation for version in read_log(stores.graph_uri("wide"))].count("migrate")
    assert made % 2 == wide
    ended = [stores.ledger.changeset(key) for key in stores.ledger.changeset_keys()]
    failed = sum(each is not None and each.state is ChangesetState.FAILED for each in ended)
    assert made <= 2 * failed + 1


PROGRAM = "tests.fault.atomic_matrix"
TABLE = "atomic-matrix"
"""The property by which a run tells the table what became of its deaths."""
COMMIT = "changeset.commit.before_write"
STAGED, DELETE = "cluster_apply.after_schema_apply", "cluster_apply.before_graph_delete"
EXTRA = "extra"
ROWS = {name: [{"type": "Person", "data": {"handle": name}}] for name in ("wide", "slim", "more")}


def land(scene: Scene, faults: Faults | None = None) -> ApplyOutcome:
    """An apply that lands whole or not at all."""
    return apply(replace(scene.workspace(faults), atomic=True))


def unlock(scene: Scene) -> None:
    """What an operator does who knows that the holder of the lock is dead."""
    lock = locked_by(scene)
    assert not lock or force_unlock(scene.workspace(), lock).lock_removed


def active(scene: Scene) -> Changeset:
    """The changeset that is open."""
    (record,) = scene.stores.ledger.changesets().open
    return record


class Both:
    """Faults, one after the other."""

    def __init__(self, *faults: Faults) -> None:
        self._faults = faults

    def reach(self, point: str) -> None:
        """Let each have its say."""
        for each in self._faults:
            each.reach(point)


def _fail(scene: Scene, faults: Faults | None) -> VerbOutcome:
    """An apply whose migration that cannot be taken back fails, so that everything staged is taken back."""
    point = "cluster_apply.before_schema_apply"
    outcome = land(scene, Both(faults or NoFaults(), DoAt(point, partial(fail, point), 3)))
    (record,) = outcome.changesets
    assert not outcome.ok
    assert (record.state, record.orphaned) == ("failed", ())
    return replace(outcome, diagnostics=())


def _give_up(scene: Scene, faults: Faults | None) -> VerbOutcome:
    workspace = scene.workspace(faults)
    ledger = workspace.open_stores(scene.desired.storage).ledger
    key = active(scene).key
    assert Steering(ledger, SystemClock(), RandomIds(), "ada").fail(key, "given up").state == "rolling_back"
    return VerbOutcome(config_dir=workspace.config_dir)


def _retry(scene: Scene, faults: Faults | None) -> VerbOutcome:
    (key, *_) = scene.stores.ledger.changeset_keys()
    failed = scene.stores.ledger.changeset(key)
    assert failed is not None
    return apply(replace(scene.workspace(faults), atomic=True, changeset=next_attempt(failed, "bot")))


def _bot(scene: Scene, faults: Faults | None) -> VerbOutcome:
    """The job of the bot after a merge, which applies as `gitops.yaml` says."""
    assert isinstance(scene, BranchScene)
    local = scene.bots_project(faults)
    bot = bot_of(local, local.forge(), "local", local.git.person())
    lines = list(run_verb(bot, "apply", ManualEvent()))
    assert combined_result(line.result for line in lines) is RunResult.DONE, [line.text for line in lines]
    return VerbOutcome(config_dir="")


STORIES: Mapping[str, Callable[[Scene, Faults | None], VerbOutcome]] = {
    "whole": land,
    "parts": land,
    "resume": land,
    "forward": land,
    "finish": land,
    "other": land,
    "take-back": _fail,
    "give-up": _give_up,
    "retry": _retry,
    "bot": _bot,
    "restore": land,
    "withdrawn": lambda scene, faults: apply(scene.workspace(faults)),
}
"""`resume` comes after a death among what is staged, `forward` after one behind the pivot, `finish` after a delete that was
refused behind the commit, `other` where something else is declared after a death. `take-back` is a run that fails. `restore`
brings rows back, and so does `withdrawn`, which lands what it can and whose restore is declared no longer when it has died."""


_WHOLLY = ("whole", "take-back", "other")
_MILESTONES = ("cluster_apply.", "changeset.")


def moments(story: str, reached: list[str]) -> list[tuple[str, int]]:
    """The visits at which a run dies: each point once in each phase, which begins at a milestone.

    A run that goes through the same phases as another one dies once at each point: in the last part of several, else where the
    point is reached first.
    """
    found = visits(reached)
    if story not in _WHOLLY:
        return list(dict(found if story == "parts" else reversed(found)).items())
    phase, seen, chosen = "", set(), []
    for point, visit in found:
        phase = point if point.startswith(_MILESTONES) else phase
        if (phase, point) not in seen:
            seen.add((phase, point))
            chosen.append((point, visit))
    return chosen


class AtomicStarts(Starts):
    """What each run finds."""

    def _ground(self) -> Scene:
        return self._once("ground", self._import, _make)

    def _whole(self) -> Scene:
        return self._once("whole", self._ground, lambda scene: _declare(scene, WHOLE))

    _take_back = _bot = _whole

    def _parts(self) -> Scene:
        return self._once("parts", self._ground, lambda scene: _declare(scene, PARTS))

    def _resume(self) -> Scene:
        return self._once("resume", self._whole, lambda scene: _die(scene, STAGED))

    _give_up = _resume

    def _forward(self) -> Scene:
        return self._once("forward", self._whole, lambda scene: _die(scene, COMMIT))

    def _other(self) -> Scene:
        return self._once("other", self._resume, lambda scene: scene.edit(OTHER))

    def _finish(self) -> Scene:
        return self._once("finish", self._whole, _leave_unfinished)

    def _restore(self) -> Scene:
        return self._once("restore", self._ground, _bring_back)

    _withdrawn = _restore

    def _retry(self) -> Scene:
        return self._once("retry", self._whole, lambda scene: _fail(scene, None))


def _make(scene: Scene) -> None:
    succeed(import_cluster(scene.workspace()))
    scene.fill_after_import()
    scene.edit(MADE)
    succeed(apply(scene.workspace()))
    for graph, records in ROWS.items():
        scene.load(graph, records)
    # Who approves from a clone knows of the rows in a bucket what the ledger recorded.
    succeed(refresh(scene.workspace()))


def _bring_back(scene: Scene) -> None:
    """Graph `wide` gets a row more than it had in version 2, and its rows of then are to come back."""
    scene.load("wide", [{"type": "Person", "data": {"handle": EXTRA}}])
    succeed(refresh(scene.workspace()))
    scene.edit(RESTORING)
    succeed(scene.approve("restore.wide"))


def _declare(scene: Scene, files: Mapping[str, str]) -> None:
    scene.edit(files)
    succeed(scene.approve(OLD))


def _die(scene: Scene, point: str) -> None:
    die(scene, "whole", point, program=PROGRAM)
    unlock(scene)


def _leave_unfinished(scene: Scene) -> None:
    outcome = land(scene, FailAt(DELETE))
    (record,) = outcome.changesets
    assert not outcome.ok
    assert (record.state, record.needs_attention) == ("drained", True)


if __name__ == "__main__":
    perform(Run(**json.loads(sys.argv[1])), ATOMIC_SCENES, STORIES)
