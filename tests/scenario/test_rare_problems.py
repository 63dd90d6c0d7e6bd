"""Problems that take a defect, a missing package or a missing key to come up, through the verbs that a person uses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.model.address import Kind, graph_address, schema_address
from gitops.cluster.model.change import Change, Disposition
from gitops.cluster.model.kinds import KINDS, GraphKind, Ruling, Situation
from gitops.cluster.model.ledger import AppliedResource
from tests.support.cluster import WIDER, Cluster, codes, found, lance_engine, rulings, statuses
from tests.support.pages import ROOT

# Imports that fail as if the package were not installed.
_WITHOUT_ENGINE = (
    "import sys\n"
    "sys.modules.update(dict.fromkeys(('lance', 'lance.dataset', 'pyarrow', 'numpy')))\n"
    "from gitops.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


class CarelessGraphs(GraphKind):
    """Rules of a release with a defect: a delete is gated, and carried out all the same."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        return Disposition.APPLIED, None


def test_a_gated_change_that_slips_through_the_rules_is_stopped_before_anything_moves(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path)
    cluster.graphs["legacy"] = {}
    cluster.save()
    cluster.converge()
    del cluster.graphs["legacy"]
    cluster.write("people.gq", (tmp_path / "people.gq").read_text() + "\n")
    cluster.save()
    before, roots = cluster.state_bytes, cluster.twin.read(cluster.uri("legacy"))
    monkeypatch.setattr("gitops.cluster.model.kinds.KINDS", {**KINDS, Kind.GRAPH: CarelessGraphs()})
    monkeypatch.setattr(Situation, "is_shut", lambda *_: False)
    outcome = apply(cluster.workspace("sam"))
    assert not outcome.ok
    assert found(outcome, "apply_approval_invariant_violation").path == "graph.legacy"
    assert (outcome.applied_count, outcome.state_written, outcome.converged) == (0, False, False)
    assert (cluster.state_bytes, cluster.twin.read(cluster.uri("legacy"))) == (before, roots)
    assert cluster.sidecars == []
    assert not cluster.locked


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Cluster:
    cluster = Cluster(tmp_path_factory.mktemp("served"), engine=lance_engine())
    cluster.converge()
    (cluster.folder / "people.jsonl").write_text('{"type": "Person", "data": {"handle": "ada"}}\n')
    return cluster


def _without_engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_ENGINE, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("command", [["show"], ["show", "--type", "Person"], ["load"]])
def test_commands_on_data_say_that_the_engine_is_not_installed(served, command):
    verb, *options = command
    file = [str(served.folder / "people.jsonl")] if verb == "load" else []
    done = _without_engine("graph", verb, "knowledge", *file, *options, "--config", str(served.folder))
    assert done.returncode == 1
    assert re.findall(r"^ERROR (\w+):", done.stderr) == ["engine_unavailable"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["validate", "plan", "status", "refresh"])
def test_verbs_that_touch_no_table_do_without_the_engine(served, verb):
    done = _without_engine(verb, "--config", str(served.folder), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["diagnostics"] == []


def test_an_apply_without_the_engine_creates_nothing_and_names_the_packages(tmp_path):
    cluster = Cluster(tmp_path)
    assert _without_engine("import", "--config", str(tmp_path)).returncode == 0
    done = _without_engine("apply", "--config", str(tmp_path), "--json")
    (error,) = [d for d in json.loads(done.stdout)["diagnostics"] if d["severity"] == "error"]
    assert (done.returncode, error["code"], error["path"]) == (1, "graph_create_failed", "graph.knowledge")
    assert "pylance" in error["message"]
    assert cluster.files("graphs") == []


def test_an_unlock_reports_the_ledger_and_who_lost_the_lock(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    cluster.hold_lock("01JZ0000000000000000000CCC")
    seen = cluster.unlock("01JZ0000000000000000000CCC").observations
    assert (seen.held.held, seen.held.info.operation, seen.held.info.pid) == (False, "apply", 4711)
    assert (seen.state_found, seen.state_revision) == (True, cluster.state.revision)


@pytest.mark.parametrize("damage", [b"{", b'{"version": 2}'])
def test_a_lock_comes_off_whatever_is_wrong_with_the_ledger(damage, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.plant("__cluster/state.json", damage)
    cluster.hold_lock("01JZ0000000000000000000CCC")
    outcome = cluster.unlock("01JZ0000000000000000000CCC")
    assert (codes(outcome), outcome.lock_removed, outcome.observations.state_found) == ([], True, True)


def test_approving_a_delete_reads_its_graph_and_changes_none(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.graphs["legacy"] = {}
    cluster.save()
    cluster.converge()
    del cluster.graphs["legacy"]
    cluster.write("knowledge.pg", WIDER)
    cluster.save()
    cluster.twin.calls.clear()
    outcome = cluster.approve("graph.legacy")
    assert (outcome.ok, codes(outcome)) == (True, [])
    assert set(cluster.twin.calls) <= {"read", "preview"}
    assert outcome.approval.seen.rows == 0
    assert outcome.approval.bound_before_digest == cluster.state.resources["graph.legacy"].digest
    assert cluster.apply().converged


def test_a_blob_that_can_be_read_again_is_no_error_any_more(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    (blob,) = cluster.files("__cluster/resources/query")
    content = cluster.stored(blob)
    cluster.plant(blob, b"\xff")
    assert codes(cluster.refresh()) == ["catalog_payload_read_error"]
    assert statuses(cluster.state)["query.knowledge.find_person"] == "error:payload_read_error"
    cluster.plant(blob, content)
    assert statuses(cluster.refresh().state)["query.knowledge.find_person"] == "applied"


@pytest.mark.parametrize("name", ["../../../../etc", "a/b", "", "a.b", "é"])
def test_a_recorded_graph_whose_name_could_be_a_path_is_never_touched(name, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    strange = {graph_address(name): AppliedResource("a" * 64), schema_address(name): AppliedResource("b" * 64)}
    cluster.put_state(replace(cluster.state, resources={**cluster.state.resources, **strange}))
    assert codes(cluster.approve(f"graph.{name}")) == ["approval_not_required"]
    outcome = cluster.apply("sam")
    assert rulings(outcome.changes) == dict.fromkeys(strange, "delete deferred:apply_unsupported_kind")
    assert (outcome.ok, outcome.converged) == (True, False)
    assert strange.items() <= cluster.state.resources.items()
