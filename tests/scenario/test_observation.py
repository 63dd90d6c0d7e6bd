"""Import, refresh, status and force-unlock: what is recorded of reality, also of broken folders and damaged ledgers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.approving.approve import approve
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import LOCK, STATE, intent_key
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import force_unlock, status
from gitops.cluster.session.validate import validate
from gitops.cluster.session.workspace import Workspace
from gitops.core.canonical import digest
from gitops.core.diagnostics import Severity
from gitops.core.errors import RemoteError
from gitops.render import json as forms
from gitops.render import text
from gitops.render.json import envelope
from gitops.render.json_text import to_text
from gitops.repository.wiring.stores import folder_workspace
from tests.support.cluster import (
    GRAPH,
    POLICY,
    QUERY,
    QUERY_ADDRESS,
    SCHEMA,
    SCHEMA_ADDRESS,
    WIDER,
    Cluster,
    codes,
    found,
    rulings,
    statuses,
)
from tests.support.faults import DoAt

BLOB = f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq"
LOCK_ID = "01JZ0000000000000000000CCC"


# Import.


def test_import_of_nothing_records_that_the_graphs_are_missing(cluster):
    outcome = cluster.import_()
    assert outcome.ok
    assert statuses(outcome.state) == dict.fromkeys([GRAPH, SCHEMA_ADDRESS], "drifted:graph_missing")
    seen = outcome.state.observations[GRAPH]
    assert (seen["exists"], seen["schema_digest"], seen["schema_matches_desired"]) == (False, None, False)
    assert seen["error"]
    assert cluster.state.config_digest is None


def test_import_of_a_live_graph_records_it_once(cluster):
    cluster.make_graph("knowledge")
    outcome = cluster.import_()
    assert outcome.ok
    assert cluster.state.revision == 1
    assert statuses(outcome.state) == dict.fromkeys([GRAPH, SCHEMA_ADDRESS], "applied")
    assert outcome.state.observations[GRAPH] == {
        "kind": "graph",
        "address": GRAPH,
        "graph_uri": cluster.uri("knowledge"),
        "incarnation": "00000000000000000000000001",
        "rows": 0,
        "observed_at": "2026-06-11T08:00:00Z",
        "exists": True,
        "manifest_version": 1,
        "schema_digest": digest(SCHEMA.encode()),
        "desired_schema_digest": digest(SCHEMA.encode()),
        "schema_matches_desired": True,
        "error": None,
    }
    before = cluster.state_bytes
    assert codes(cluster.import_()) == ["state_already_exists"]
    assert cluster.state_bytes == before
    assert not cluster.locked


def test_import_of_a_cluster_that_is_as_declared_records_its_config_digest(cluster):
    cluster.graphs, cluster.policies = {"knowledge": {}}, {}
    cluster.save()
    cluster.make_graph("knowledge")
    assert cluster.import_().ok
    assert cluster.state.config_digest == cluster.desired().config_digest


def test_import_writes_nothing_if_a_graph_does_not_open(cluster):
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    outcome = cluster.import_()
    assert codes(outcome) == ["graph_observation_error"]
    assert cluster.state_bytes is None
    form = envelope(outcome)
    assert form["resource_digests"] == {}
    # What was seen is shown, and nothing of it is recorded.
    assert form["resource_statuses"]["graph.knowledge"]["status"] == "error"
    assert form["observations"]["graph.knowledge"]["exists"] is True


def test_a_lost_ledger_is_made_again_from_what_is_there(cluster):
    cluster.converge()
    blobs = cluster.files("__cluster/resources")
    resources = cluster.state.resources
    cluster.plant(STATE, None)
    assert cluster.import_().ok
    assert cluster.apply().converged
    assert cluster.state.resources == resources
    assert cluster.files("__cluster/resources") == blobs


# Refresh.


def test_a_second_import_shows_the_ledger_and_not_what_is_declared(cluster):
    cluster.converge()
    recorded = cluster.state.digests()
    cluster.write("knowledge.pg", WIDER)
    outcome = cluster.import_()
    assert codes(outcome) == ["state_already_exists"]
    form = envelope(outcome)
    assert form["resource_digests"] == recorded
    assert set(form["resource_statuses"]) == set(statuses(cluster.state))


def test_refresh_needs_a_ledger(cluster):
    outcome = cluster.refresh()
    assert codes(outcome) == ["state_missing"]
    assert envelope(outcome)["resource_digests"] == {}
    assert cluster.files() == []


def test_refresh_moves_the_revision_and_keeps_bindings_and_applied_config(cluster):
    cluster.converge()
    before, state = cluster.state_bytes, cluster.state
    cluster.clock.advance(timedelta(minutes=5))
    outcome = cluster.refresh()
    assert outcome.ok
    assert cluster.state.revision == state.revision + 1
    assert outcome.observations.state_cas == "sha256:" + digest(cluster.state_bytes or b"")
    assert cluster.state_bytes != before
    assert cluster.state.resources == state.resources
    assert cluster.state.config_digest == state.config_digest
    assert cluster.state.observations[GRAPH]["observed_at"] == "2026-06-11T08:05:00Z"
    assert not cluster.locked
    assert cluster.plan().plan.changes == ()


def test_a_root_that_is_gone_stays_recorded_and_is_made_again_empty_with_an_approval(cluster):
    cluster.converge()
    incarnation = cluster.state.observations[GRAPH]["incarnation"]
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    outcome = cluster.refresh()
    assert codes(outcome) == ["graph_vanished"]
    assert statuses(cluster.state)[GRAPH] == "drifted:graph_vanished"
    assert set(cluster.state.resources) == {"policy.base", QUERY_ADDRESS, GRAPH, SCHEMA_ADDRESS}
    planned = cluster.plan().plan.changes
    assert rulings(planned) == dict.fromkeys([GRAPH, SCHEMA_ADDRESS], "create blocked:approval_required")
    assert next(change for change in planned if change.address == GRAPH).details == (
        f"lost: 0 rows in version 1 of graph {incarnation}, when it was last recorded",
        "to keep it instead, restore its folder from a backup, then, on the machine with the graphs, run: gitops refresh",
    )
    cluster.apply()
    assert cluster.twin.dump() == {}
    assert cluster.approve(GRAPH).ok
    assert cluster.apply().converged
    assert cluster.live("knowledge") == SCHEMA


def test_a_schema_changed_from_outside_drifts_and_is_brought_back(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", WIDER)
    outcome = cluster.refresh()
    assert outcome.ok
    assert statuses(cluster.state) == {
        GRAPH: "drifted:schema_mismatch",
        SCHEMA_ADDRESS: "drifted:schema_mismatch",
        "policy.base": "applied",
        QUERY_ADDRESS: "applied",
    }
    step = cluster.plan().plan.change(SCHEMA_ADDRESS).migration.steps[0]
    assert (step["kind"], step["property_name"], step["mode"]) == ("drop_property", "city", "soft")
    assert cluster.apply().converged
    assert cluster.live("knowledge") == SCHEMA


@pytest.mark.parametrize("damage", ["partial", "unseen"])
def test_a_root_that_does_not_open_keeps_its_digests_and_fails_the_refresh(cluster, damage):
    cluster.converge()
    resources = cluster.state.resources
    uri = cluster.uri("knowledge")
    if damage == "partial":
        cluster.twin.leave_partial_root(uri)
    else:
        cluster.twin.lose_sight_of(uri)
    outcome = cluster.refresh()
    assert found(outcome, "graph_observation_error").path == "graph.knowledge"
    assert not outcome.ok
    assert cluster.state.resources == resources
    assert statuses(cluster.state)[GRAPH] == "error:graph_observation_error"
    seen = cluster.state.observations[GRAPH]
    assert (seen["exists"], seen["schema_digest"], seen["schema_matches_desired"]) == (True, None, None)
    assert seen["error"]
    told = cluster.status()
    assert told.drifted == (GRAPH, SCHEMA_ADDRESS)
    assert [(d.code, d.path, d.severity) for d in told.diagnostics] == [("graph_observation_error", GRAPH, "warning")]


# Catalog.


def test_a_deleted_blob_is_found_and_healed(cluster):
    cluster.converge()
    cluster.plant(BLOB, None)
    before = cluster.state_bytes
    assert codes(cluster.status()) == ["catalog_payload_missing"]
    assert cluster.state_bytes == before
    outcome = cluster.refresh()
    assert outcome.ok
    assert statuses(cluster.state)[QUERY_ADDRESS] == "drifted:payload_missing"
    assert QUERY_ADDRESS not in cluster.state.resources
    assert rulings(cluster.plan().plan.changes) == {GRAPH: "update derived", QUERY_ADDRESS: "create applied"}
    assert cluster.apply().converged
    assert codes(cluster.status()) == []
    assert cluster.stored(BLOB) == QUERY.encode()


def test_a_corrupt_blob_is_found_and_healed(cluster):
    cluster.converge()
    cluster.plant(BLOB, b"corrupt")
    assert codes(cluster.status()) == ["catalog_payload_mismatch"]
    outcome = cluster.refresh()
    assert outcome.ok
    assert statuses(cluster.state)[QUERY_ADDRESS] == "drifted:payload_mismatch"
    assert cluster.apply().converged
    assert cluster.stored(BLOB) == QUERY.encode()


def test_a_folder_in_the_place_of_a_blob_is_a_missing_blob(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    (tmp_path / BLOB).unlink()
    (tmp_path / BLOB).mkdir()
    assert codes(cluster.status()) == ["catalog_payload_missing"]
    assert cluster.refresh().ok
    assert QUERY_ADDRESS not in cluster.state.resources


def test_a_blob_that_cannot_be_read_keeps_its_digest_and_fails(cluster):
    cluster.converge()
    cluster.plant(BLOB, b"\xff\xfe corrupt")
    resources = cluster.state.resources
    status = cluster.status()
    assert codes(status) == ["catalog_payload_read_error"]
    assert not status.ok
    outcome = cluster.refresh()
    assert not outcome.ok
    assert cluster.state.resources == resources
    assert statuses(cluster.state)[QUERY_ADDRESS] == "error:payload_read_error"


# Status.


def test_status_without_a_ledger_is_ok(cluster):
    outcome = cluster.status()
    assert outcome.ok
    assert codes(outcome) == ["state_missing"]
    assert (outcome.observations.state_found, outcome.observations.state_revision) == (False, 0)
    assert cluster.files() == []


@pytest.mark.parametrize(
    ("document", "code"), [(b"{", "invalid_state_json"), (b'{"version": 2}', "unsupported_state_version")]
)
@pytest.mark.parametrize("verb", ["status", "plan", "apply", "refresh", "import_"])
def test_a_ledger_that_cannot_be_read_fails_every_verb(cluster, document, code, verb):
    cluster.plant(STATE, document)
    outcome = getattr(cluster, verb)()
    assert code in codes(outcome)
    assert not outcome.ok
    assert outcome.observations.state_found
    assert cluster.stored(STATE) == document
    assert not cluster.locked


def test_status_reports_a_lock_and_pending_recoveries_and_touches_nothing(cluster):
    cluster.converge()
    cluster.hold_lock(LOCK_ID)
    cluster.plant(intent_key("01JZ0000000000000000000DDD"), b"{")
    files = {key: cluster.stored(key) for key in cluster.files()}
    cluster.twin.calls.clear()
    outcome = cluster.status()
    assert outcome.ok
    assert codes(outcome) == ["cluster_recovery_pending"]
    seen = outcome.observations
    assert (seen.held.info.lock_id, seen.held.info.operation, seen.held.info.pid) == (LOCK_ID, "apply", 4711)
    assert (seen.held.info.created_at, seen.lock_age_seconds) == ("2026-06-11T07:59:00Z", 60)
    assert {key: cluster.stored(key) for key in cluster.files()} == files
    assert cluster.twin.calls == {}


def test_status_reads_no_source_but_the_configuration(cluster):
    cluster.converge()
    for name in ("knowledge.pg", "people.gq", "base.policy.yaml"):
        (cluster.folder / name).unlink()
    outcome = cluster.status()
    assert outcome.ok
    assert set(outcome.state.resources) == {GRAPH, "policy.base", QUERY_ADDRESS, SCHEMA_ADDRESS}


def test_status_of_a_broken_configuration_reads_no_ledger(cluster):
    cluster.converge()
    cluster.write("cluster.yaml", "version: [")
    outcome = cluster.status()
    assert not outcome.ok
    assert outcome.state is None


def test_status_repeats_what_was_recorded(cluster):
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    cluster.refresh()
    outcome = cluster.status()
    assert (outcome.ok, codes(outcome)) == (True, ["graph_vanished"])
    assert statuses(outcome.state)[GRAPH] == "drifted:graph_vanished"


# Force-unlock.


def test_force_unlock_removes_exactly_the_lock_it_names(cluster):
    cluster.put_state(LedgerState())
    lock = cluster.hold_lock(LOCK_ID)
    for wrong in (LOCK_ID.lower(), LOCK_ID[:-1], "", "01JZ0000000000000000000CCD"):
        outcome = cluster.unlock(wrong)
        assert codes(outcome) == ["state_lock_id_mismatch"]
        assert outcome.observations.held.info.lock_id == LOCK_ID
        assert not outcome.lock_removed
        assert cluster.stored(LOCK) == lock
    outcome = cluster.unlock(LOCK_ID)
    assert outcome.ok
    assert outcome.lock_removed
    assert not cluster.locked
    assert cluster.plan().ok


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (None, "state_lock_missing"),
        (b"{", "invalid_state_lock"),
        (
            json.dumps(
                {"version": 1, "lock_id": LOCK_ID, "operation": "a", "created_at": "x", "pid": 1, "ttl": 2}
            ).encode(),
            "invalid_state_lock",
        ),
        (
            json.dumps({"version": 2, "lock_id": LOCK_ID, "operation": "a", "created_at": "x", "pid": 1}).encode(),
            "unsupported_state_lock_version",
        ),
    ],
)
def test_force_unlock_leaves_alone_what_it_does_not_understand(cluster, document, code):
    cluster.plant(LOCK, document)
    outcome = cluster.unlock(LOCK_ID)
    assert codes(outcome) == [code]
    assert not outcome.lock_removed
    assert not outcome.observations.held.held
    assert cluster.stored(LOCK) == document


@pytest.mark.parametrize("verb", ["validate", "plan", "refresh", "unlock"])
def test_a_foreign_backend_ends_every_verb_before_the_lock(cluster, verb):
    cluster.options["state"] = {"backend": "s3://bucket"}
    cluster.save()
    lock = cluster.hold_lock(LOCK_ID)
    outcome = cluster.unlock(LOCK_ID) if verb == "unlock" else getattr(cluster, verb)()
    assert codes(outcome) == ["unsupported_state_backend"]
    assert cluster.stored(LOCK) == lock
    assert cluster.files() == [LOCK]


def test_a_lock_taken_over_by_another_is_not_released(cluster):
    cluster.put_state(LedgerState())
    theirs = []

    assert cluster.apply(faults=DoAt("cluster_apply.before_state_write", lambda: theirs.append(cluster.hold_lock()))).ok
    assert [cluster.stored(LOCK)] == theirs


def test_what_was_done_is_told_even_if_the_lock_cannot_be_given_back(cluster, monkeypatch):
    cluster.put_state(LedgerState())

    def release(ledger: object, lock_id: str) -> None:
        raise RemoteError("state_unlock_error", "the disk went away", path=LOCK)

    monkeypatch.setattr(FolderLedger, "release", release)
    outcome = cluster.apply()
    assert outcome.ok
    assert outcome.converged
    problem = found(outcome, "state_unlock_error")
    assert (problem.severity, problem.path) == ("warning", LOCK)
    assert f"force-unlock {outcome.observations.acquired_lock_id}" in problem.message


def test_verification_covers_policies_too(cluster):
    cluster.converge()
    cluster.plant(f"__cluster/resources/policy/base/{digest(POLICY.encode())}.yaml", None)
    assert found(cluster.status(), "catalog_payload_missing").path == "policy.base"
    cluster.refresh()
    assert rulings(cluster.plan().plan.changes) == {"policy.base": "create applied"}


# What other programs write.


def test_records_of_any_form_and_the_highest_revision_are_kept(cluster):
    """Another program may record an approval as it likes, and may have counted as far as it can."""
    cluster.converge()
    document = json.loads(cluster.state_bytes)
    document |= {"approval_records": {"a": "used", "b": 7, "c": None, "d": [1]}, "state_revision": 2**64 - 1}
    cluster.plant(STATE, json.dumps(document).encode())
    assert cluster.status().ok
    assert codes(cluster.refresh()) == []
    kept = json.loads(cluster.state_bytes)
    assert kept["approval_records"] == document["approval_records"]
    assert kept["state_revision"] == 2**64 - 1


@pytest.mark.parametrize("verb", ["plan", "apply", "refresh", "import_"])
def test_a_refused_folder_still_says_where_its_ledger_is(cluster, verb):
    cluster.converge()
    known = cluster.plan().observations
    cluster.write("knowledge.pg", "node {")
    refused = getattr(cluster, verb)()
    assert not refused.ok
    assert (refused.observations.state_path, refused.observations.lock_path) == (known.state_path, known.lock_path)
    assert known.state_path


def test_a_plan_of_a_refused_folder_still_says_what_is_declared(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", "node {")
    form = envelope(cluster.plan())
    declared = {"graph.knowledge", "policy.base", "query.knowledge.find_person", "schema.knowledge"}
    assert (form["ok"], set(form["resource_digests"])) == (False, declared)


def test_the_name_of_a_graph_fits_its_folder(cluster):
    names = ("g" * 224, "h" * 225)
    document = {"version": 1, "graphs": {name: {"schema": "knowledge.pg"} for name in names}}
    cluster.write("cluster.yaml", json.dumps(document))
    problem = found(cluster.validate(), "invalid_resource_id")
    assert ("at most 224" in problem.message, problem.fix) == (True, "use a shorter name")


def test_a_lost_graph_heals_when_its_files_come_back_and_is_not_made_again_without_approval(cluster):
    cluster.converge()
    uri = cluster.uri("knowledge")
    bring_back, recorded = cluster.twin.back_up(uri), cluster.state.digests()
    cluster.twin.delete_tree(uri)
    assert "backup" in (found(cluster.refresh(), "graph_vanished").fix or "")
    planned = cluster.plan()
    (gate,) = planned.plan.approvals_required
    assert (gate.resource, gate.satisfied, planned.lands) == ("graph.knowledge", False, False)
    assert gate.reason == "the graph vanished: to create it again is to give up its data"
    assert not cluster.apply().converged
    assert cluster.twin.dump() == {}
    bring_back()
    assert codes(cluster.refresh()) == []
    assert cluster.state.digests() == recorded
    assert cluster.plan().plan.changes == ()
    assert cluster.plan().lands


DATA = Path(__file__).parents[1] / "data" / "broken"
LOADING: dict[str, Callable[[Workspace], VerbOutcome]] = {
    "plan": plan,
    "apply": apply,
    "refresh": refresh,
    "import": import_cluster,
    "approve": lambda workspace: approve(workspace, Address("graph.catalogue")),
}


def _is_broken(name: str) -> bool:
    expected = json.loads((DATA / name / "expected.json").read_text(encoding="utf-8"))
    return any(e["severity"] == "error" for e in expected)


CASES = sorted(path.parent.name for path in DATA.glob("*/expected.json") if _is_broken(path.parent.name))


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("name", CASES)
def test_a_broken_folder_ends_every_verb_before_it_touches_anything(name, tmp_path):
    folder = tmp_path / "cluster"
    shutil.copytree(DATA / name, folder)
    before = _names(folder)
    said = validate(folder_workspace(str(folder), actor="sam"))
    for verb in LOADING.values():
        outcome = verb(folder_workspace(str(folder), actor="sam"))
        assert not outcome.ok
        assert outcome.diagnostics == said.diagnostics
    assert _names(folder) == before
    assert _names(tmp_path) == sorted(["cluster", *(f"cluster/{name}" for name in before)])


@pytest.mark.parametrize("name", CASES)
def test_status_and_unlock_look_at_the_header_alone(name, tmp_path):
    folder = tmp_path / "cluster"
    shutil.copytree(DATA / name, folder)
    said = validate(folder_workspace(str(folder), actor=None)).diagnostics
    for outcome in (
        status(folder_workspace(str(folder), actor=None)),
        force_unlock(folder_workspace(str(folder), actor=None), LOCK_ID),
    ):
        errors = [d for d in outcome.diagnostics if d.severity is Severity.ERROR and d.code != "state_lock_missing"]
        assert errors == list(said)[: len(errors)]
        assert all(d.source is not None and d.source.file == "cluster.yaml" for d in errors)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"metadata": {"name": " "}}, "empty_metadata_name"),
        ({"state": {"backend": "elsewhere"}}, "unsupported_state_backend"),
        ({"version": 2}, "unsupported_cluster_config_version"),
    ],
)
def test_status_shows_lock_and_recoveries_under_a_wrong_header(options, code, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    cluster.hold_lock(LOCK_ID)
    cluster.plant("__cluster/recoveries/01A.json", b"{")
    cluster.write("cluster.yaml", json.dumps({"version": 1, **options}))
    outcome = cluster.status()
    assert codes(outcome) == ["cluster_recovery_pending", code]
    assert outcome.observations.held.info.lock_id == LOCK_ID
    assert outcome.state is None


def test_status_cannot_look_anywhere_without_a_usable_storage_root(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    cluster.hold_lock(LOCK_ID)
    cluster.write("cluster.yaml", json.dumps({"version": 1, "storage": "ftp://host/x"}))
    outcome = cluster.status()
    assert codes(outcome) == ["invalid_storage_root"]
    assert not outcome.observations.held.held


LEDGERS = Path(__file__).parents[1] / "data" / "broken-ledgers"
DAMAGED = sorted(path.parent.name for path in LEDGERS.glob("*/expected.json"))
_KEPT = ("__cluster/recoveries/", "__cluster/approvals/", "__cluster/resources/", "graphs/")


def damaged(name: str, folder: Path) -> tuple[Cluster, dict[str, list[dict[str, str]]]]:
    case = json.loads((LEDGERS / name / "expected.json").read_text(encoding="utf-8"))
    cluster = Cluster(folder)
    cluster.converge()
    for key in case.pop("remove", []):
        place = folder / key
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    for key in case.pop("folders", []):
        (folder / key).mkdir(parents=True)
    for key, target in case.pop("links", {}).items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).symlink_to(target)
    for source in sorted(path for path in (LEDGERS / name / "ledger").rglob("*") if path.is_file()):
        cluster.plant(source.relative_to(LEDGERS / name / "ledger").as_posix(), source.read_bytes())
    return cluster, case


def traces(folder: Path) -> dict[str, object]:
    """Every name below a folder with its content, links as what they say."""
    found: dict[str, object] = {}
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(base) / name
            key = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[key] = ("link", str(path.readlink()))
            else:
                found[key] = None if path.is_dir() else path.read_bytes()
    return found


def findings(outcome: VerbOutcome) -> list[dict[str, str]]:
    return [{"code": d.code, "severity": d.severity.value, "path": d.path} for d in outcome.diagnostics]


def _is_readable(outcome: VerbOutcome) -> bool:
    """Whether both forms of an outcome are what terminals and programs take."""
    lines = text.to_text(outcome).splitlines()
    form = json.loads(to_text(forms.envelope(outcome)))
    return all(line.isprintable() for line in lines) and form["ok"] == outcome.ok


@pytest.mark.parametrize("name", DAMAGED)
def test_looking_at_a_damaged_ledger_says_what_is_wrong_and_changes_nothing(name, tmp_path):
    cluster, expected = damaged(name, tmp_path)
    before = traces(tmp_path)
    for verb in ("status", "plan"):
        outcome = getattr(cluster, verb)()
        assert findings(outcome) == expected[verb]
        assert outcome.ok == all(e["severity"] == "warning" for e in expected[verb])
        assert _is_readable(outcome)
    assert traces(tmp_path) == before


@pytest.mark.parametrize("name", DAMAGED)
def test_refreshing_a_damaged_ledger_says_what_is_wrong_and_repairs_nothing_by_removal(name, tmp_path):
    cluster, expected = damaged(name, tmp_path)
    before = traces(tmp_path)
    outcome = cluster.refresh()
    assert findings(outcome) == expected["refresh"]
    assert _is_readable(outcome)
    after = traces(tmp_path)
    broken = {e["path"] for e in expected["refresh"]}
    settled = {key for key in before if key.startswith("__cluster/recoveries/") and key not in broken}
    gone = {key for key in before if key not in after}
    assert gone <= settled
    assert all(after[key] == before[key] for key in before if key.startswith(_KEPT) and key not in gone)
    if any(e["code"].startswith(("state_", "invalid_state", "unsupported_state")) for e in expected["refresh"]):
        assert after == before


@pytest.mark.parametrize("name", [name for name in DAMAGED if name.startswith("older-")])
def test_an_older_document_is_brought_up_to_date_by_one_apply(name, tmp_path):
    cluster, _ = damaged(name, tmp_path)
    first = cluster.apply()
    assert first.ok
    assert first.converged
    assert cluster.state.resources["policy.base"].applies_to == ("graph.knowledge",)
    assert cluster.sidecars == []
    again = cluster.apply()
    assert (again.changes, again.state_written) == ((), False)


def test_there_are_enough_damaged_ledgers():
    assert len(DAMAGED) >= 90
