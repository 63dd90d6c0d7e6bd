"""Die at the n-th visit of a fault point of a verb, in a process of its own.

python -m tests.fault.matrix            write tests/data/fault_matrix.json again: the points of every verb
python -m tests.fault.matrix RUN        one run as another process: a verb that records its points, or dies at one
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import force_unlock, status
from gitops.core.faults import Faults
from gitops.database.graph import read, read_log
from tests.fault.matrix_stores import AFTER, AGAIN, PEOPLE, SCENES, Scene
from tests.support.faults import DieAt
from tests.support.git_fixture import environment
from tests.support.pages import ROOT
from tests.support.prefork import PYTHON, run


class Recovery(StrEnum):
    """What the second run of the verb had to do."""

    VOID = "void"
    ROLLED_FORWARD = "rolled forward"
    REPEATED = "repeated"
    NOTHING = "nothing to do"


@dataclass(frozen=True)
class Seen:
    """A scene at one moment, as far as recovery is concerned."""

    revision: int
    state: LedgerState
    sidecars: int
    approvals: int
    locked: bool
    converged: bool


def look(scene: Scene) -> Seen:
    """The scene now."""
    ledger, found = scene.stores.ledger, status(scene.workspace())
    state = found.state or LedgerState()
    return Seen(
        revision=state.revision,
        state=state,
        sidecars=len(ledger.intents().intents),
        approvals=scene.approvals(),
        locked=found.observations.held.held,
        converged=state.config_digest == scene.desired.config_digest,
    )


def recover(scene: Scene, verb: str, start: Seen) -> Recovery:
    """Take the lock away from the dead process and run the verb again."""
    crashed = look(scene)
    assert crashed.revision in (start.revision, start.revision + 1)
    lock = locked_by(scene)
    if lock and verb != "force-unlock":
        if verb != "approve" or scene.approves_locked:
            refused = VERBS[verb](scene, None)
            assert _codes(refused) == ["state_lock_held"]
            assert lock in refused.diagnostics[0].message
        assert force_unlock(scene.workspace(), lock).lock_removed
    again = VERBS[verb](scene, None)
    _require_expected_answer(verb, again, start, crashed)
    recovered = look(scene)
    assert not recovered.locked
    rolled = len(recovered.state.recovery_records) - len(crashed.state.recovery_records)
    if rolled:
        return Recovery.ROLLED_FORWARD
    if _was_done(verb, start, crashed):
        return Recovery.NOTHING
    return Recovery.VOID if crashed.sidecars else Recovery.REPEATED


def _was_done(verb: str, start: Seen, crashed: Seen) -> bool:
    """Whether the dead process had published what the verb is for."""
    if verb == "approve":
        return crashed.approvals > start.approvals
    if verb == "force-unlock":
        return not crashed.locked
    return crashed.revision > start.revision


def _require_expected_answer(verb: str, again: VerbOutcome, start: Seen, crashed: Seen) -> None:
    if verb in ("import", "force-unlock") and _was_done(verb, start, crashed):
        assert _codes(again) == ["state_already_exists" if verb == "import" else "state_lock_missing"]
    else:
        assert again.ok, _codes(again)


def require_as_declared(scene: Scene) -> LedgerState:
    """The ledger has what the folder declares, no lock is held, and nothing is left to do; returns its state."""
    found = status(scene.workspace())
    assert found.diagnostics == ()
    assert not found.observations.held.held
    assert found.state is not None
    desired = scene.desired
    assert found.state.digests() == desired.digests()
    planned = plan(scene.workspace()).plan
    assert planned is not None
    assert planned.changes == ()
    return found.state


def require_converged(scene: Scene) -> None:
    """Look at everything, twice over: nothing lost, nothing done twice, nothing left behind."""
    assert refresh(scene.workspace()).ok
    outcome = apply(scene.workspace())
    assert outcome.ok, _codes(outcome)
    assert outcome.converged
    settled = apply(scene.workspace())
    assert (settled.ok, settled.converged, settled.state_written, settled.changes) == (True, True, False, ())

    state = require_as_declared(scene)
    assert scene.stores.ledger.intents().intents == ()
    scene.require_sound_ledger()
    assert scene.debris() == []
    _require_graphs(scene)
    _require_permission(scene, state)


def _require_graphs(scene: Scene) -> None:
    """Each graph has its schema and its rows, and was changed as often as it was asked for."""
    stores, changed = scene.stores, "schema.new" in scene.desired.resources
    history = {"knowledge": ["create", "load"], "old": ["create", "load"]}
    if changed:
        history = {"knowledge": ["create", "load", "migrate"], "new": ["create"]}
    assert scene.graphs() == set(history)
    for graph, operations in history.items():
        uri = stores.graph_uri(graph)
        live = stores.engine.read(uri)
        assert live.schema_source == scene.desired.resources[f"schema.{graph}"].content
        made = [version.operation for version in reversed(read_log(uri))]
        assert [operation for operation in made if operation != "fence"] == operations
    people = read.read_rows(stores.graph_uri("knowledge"), "Person", 10)
    assert [{name: row[name] for name in PEOPLE[0]} for row in people] == PEOPLE
    assert ("city" in people[0], "nick" in people[0]) == (changed, not changed)
    (knows,) = read.read_rows(stores.graph_uri("knowledge"), "Knows", 10)
    assert (knows["src"], knows["dst"]) == ("ada", "grace")
    if changed:
        assert read.read_rows(stores.graph_uri("new"), "Note", 10) == []
    else:
        assert [row["title"] for row in read.read_rows(stores.graph_uri("old"), "Note", 10)] == ["to be deleted"]


def _require_permission(scene: Scene, state: LedgerState) -> None:
    """A graph is gone only with an approval, and all that there were are spent in all places."""
    gone = state.observations.get(OLD, {}).get("kind") == "tombstone"
    assert gone == (OLD not in scene.desired.resources)
    if not gone:
        assert state.approval_records == {}
        return
    used = set(state.approval_records)
    assert state.observations[OLD]["approval_id"] in used
    marked = {a.approval_id for a in scene.stores.ledger.approvals().documents if a.consumed_at}
    assert marked == used


def require_no_replay(scene: Scene) -> None:
    """Make the deleted graph again, and ask for the very same delete: the spent approval permits nothing."""
    documents = {a.approval_id: a for a in scene.stores.ledger.approvals().documents}
    (used,) = look(scene).state.approval_records
    scene.edit(AGAIN)
    assert apply(scene.workspace()).converged
    scene.edit(AFTER)
    refused = apply(scene.workspace())
    (change,) = [c for c in refused.changes if c.address == OLD]
    assert (change.disposition, change.reason) == (Disposition.BLOCKED, "approval_required")
    bound = documents[used]
    assert (bound.bound_config_digest, bound.bound_before_digest) == (scene.desired.config_digest, change.before)
    assert scene.stores.engine.exists(scene.stores.graph_uri("old")) == "present"
    assert len(look(scene).state.approval_records) == 1


def _codes(outcome: VerbOutcome) -> list[str]:
    return [d.code for d in outcome.diagnostics]


T = TypeVar("T")
POINTS = ROOT / "tests" / "data" / "fault_matrix.json"
TABLE = "fault-matrix"
"""The property by which a case tells the table what became of it."""
OLD = "graph.old"
DEADLINE_S = 120
_CRASH = "cluster_apply.after_graph_delete"
"""Where the run died that `resume`, `refresh` and `force-unlock` come after: all effects are there, none is recorded."""


@dataclass(frozen=True)
class Run:
    """One verb on the scene in `home`; without a point it lives and prints what it reached."""

    store: str
    home: str
    verb: str
    point: str = ""
    visit: int = 1


def locked_by(scene: Scene) -> str:
    """The id of the lock as `status` shows it, empty when there is none."""
    held = status(scene.workspace()).observations.held
    assert held.held == (held.info is not None)
    return held.info.lock_id if held.info else ""


def _apply(scene: Scene, faults: Faults | None) -> VerbOutcome:
    return apply(scene.workspace(faults))


VERBS: Mapping[str, Callable[[Scene, Faults | None], VerbOutcome]] = {
    "import": lambda scene, faults: import_cluster(scene.workspace(faults)),
    "approve": lambda scene, faults: scene.approve(OLD, faults),
    "apply": _apply,
    "resume": _apply,
    "refresh": lambda scene, faults: refresh(scene.workspace(faults)),
    "force-unlock": lambda scene, faults: force_unlock(scene.workspace(faults), locked_by(scene)),
}
"""`resume` is an apply after an apply that died."""


class Starts:
    """What each verb finds: scenes that are made once and copied for every case."""

    def __init__(self, folder: Path, kind: type[Scene]) -> None:
        """Make them in `folder`."""
        self._folder = folder
        self._kind = kind
        self._store = kind.name
        self._seen: dict[str, Any] = {}

    def seen(self, verb: str, look: Callable[[Scene], T]) -> T:
        """What a look at the start of a verb gives. Looking moves what a clone follows, so it is at a copy of its own."""
        if verb not in self._seen:
            self._seen[verb] = look(self.copy(verb, self._folder / f"{self._store}-{verb}-seen"))
        return self._seen[verb]

    def copy(self, verb: str, to: Path) -> Scene:
        """A scene of its own for one case."""
        start = getattr(self, "_" + verb.replace("-", "_"))()
        return self._copied(start, to)

    def _import(self) -> Scene:
        return self._once("import", None, lambda scene: scene.make_graphs())

    def _approve(self) -> Scene:
        return self._once("approve", self._import, _converge_and_edit)

    def _apply(self) -> Scene:
        return self._once("apply", self._approve, lambda scene: succeed(scene.approve(OLD)))

    def _force_unlock(self) -> Scene:
        return self._once("force-unlock", self._apply, lambda scene: die(scene, "apply", _CRASH))

    def _resume(self) -> Scene:
        return self._once("resume", self._force_unlock, lambda scene: succeed(VERBS["force-unlock"](scene, None)))

    _refresh = _resume

    def _once(self, name: str, before: Callable[[], Scene] | None, act: Callable[[Scene], object]) -> Scene:
        place = self._folder / f"{self._store}-{name}"
        if place.exists():
            return self._kind(place)
        if before is None:
            scene = self._kind(place)
            scene.make()
        else:
            scene = self._copied(before(), place)
        act(scene)
        scene.keep()
        return scene

    def _copied(self, scene: Scene, to: Path) -> Scene:
        shutil.copytree(scene.home, to, symlinks=True)
        copy = type(scene)(to)
        copy.settle_here()
        return copy


def _converge_and_edit(scene: Scene) -> None:
    succeed(VERBS["import"](scene, None))
    scene.fill_after_import()
    succeed(VERBS["apply"](scene, None))
    scene.edit(AFTER)


def succeed(outcome: VerbOutcome) -> None:
    """Let nothing go wrong unseen."""
    assert outcome.ok, [d.message for d in outcome.diagnostics]


def points(scene: Scene, verb: str, program: str = "tests.fault.matrix") -> list[str]:
    """What the verb reaches, in order; `program` is the module that carries it out."""
    done = _child(program, Run(scene.name, str(scene.home), verb))
    assert done.returncode == 0, done.stderr
    reached: list[str] = json.loads(done.stdout)
    return reached


def die(scene: Scene, verb: str, point: str, visit: int = 1, program: str = "tests.fault.matrix") -> None:
    """Let the verb die."""
    done = _child(program, Run(scene.name, str(scene.home), verb, point, visit))
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stdout, done.stderr)


def recorded() -> dict[str, dict[str, list[str]]]:
    """Store to verb to its points, in order, as they were recorded last."""
    content: dict[str, dict[str, list[str]]] = json.loads(POINTS.read_text(encoding="utf-8"))
    return content


def _child(program: str, order: Run) -> subprocess.CompletedProcess[str]:
    command = [*PYTHON, "-m", program, json.dumps(asdict(order))]
    env = _environment(order)
    return run(command, cwd=ROOT, env=env, timeout_s=DEADLINE_S)


def begin(scene: Scene, verb: str) -> subprocess.Popen[bytes]:
    """The verb at work: an interpreter of its own, which may be killed from outside."""
    order = Run(scene.name, str(scene.home), verb)
    command = [sys.executable, "-m", "tests.fault.matrix", json.dumps(asdict(order))]
    return subprocess.Popen(command, cwd=ROOT, env=_environment(order), stdout=subprocess.DEVNULL)


def _environment(order: Run) -> Mapping[str, str]:
    service = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return environment(Path(order.home), PYTHONPATH=str(ROOT), **service)


def perform(
    order: Run, scenes: Mapping[str, type[Scene]], verbs: Mapping[str, Callable[[Scene, Faults | None], VerbOutcome]]
) -> None:
    """Carry out a verb in this process, which prints the points that it reached, or dies."""
    scene = scenes[order.store](Path(order.home))
    faults = DieAt(order.point, order.visit)
    succeed(verbs[order.verb](scene, faults))
    sys.stdout.write(json.dumps(faults.reached))


def _record() -> None:
    from tests.support.prefork import start
    from tests.support.s3 import S3Server

    start()
    found: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder, S3Server() as server:
        os.environ.update(server.environ)
        for store in SCENES:
            starts = Starts(Path(folder), SCENES[store])
            found[store] = {
                verb: points(starts.copy(verb, Path(folder) / f"{store}-{verb}-recorded"), verb) for verb in VERBS
            }
    POINTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    perform(Run(**json.loads(sys.argv[1])), SCENES, VERBS) if sys.argv[1:] else _record()
