"""What an operator does after a verb died, and what must be true at the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import refresh
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import force_unlock, status
from gitops.database.graph import read, read_log
from tests.fault.matrix import OLD, VERBS, locked_by
from tests.fault.matrix_stores import AFTER, AGAIN, PEOPLE, Scene


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
