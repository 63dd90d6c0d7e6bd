"""The installed command on a cluster folder: text and JSON of every verb, exit codes, identity, locks, and whole examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from gitops.cluster.model.address import Kind
from tests.support.cluster import WIDER, Cluster, lance_engine
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, run

pytestmark = pytest.mark.e2e

LOCK_ID = "01JZ0000000000000000000CCC"
OBSERVED = {
    "state_path",
    "lock_path",
    "state_found",
    "applied_config_digest",
    "state_revision",
    "state_cas",
    "resource_count",
    "locked",
    "lock_id",
    "lock_operation",
    "lock_created_at",
    "lock_pid",
    "lock_age_seconds",
    "lock_acquired",
    "acquired_lock_id",
}
ENVELOPES = {
    "validate": "ok config_dir config_file resource_digests resources dependencies problems diagnostics",
    "plan": (
        "ok config_dir desired_revision plan_digest resource_digests dependencies state_observations changes access blast_radius "
        "approvals_required lands obstacles diffs execution_graph problems diagnostics"
    ),
    "apply": (
        "ok config_dir actor desired_revision state_observations changes applied_count deferred_count converged "
        "state_written resource_statuses problems diagnostics"
    ),
    "approve": "ok config_dir plan_digest changes approval_id resource operation approved_by problems diagnostics",
    "status": (
        "ok config_dir state_observations in_sync waiting drifted last_apply resource_digests resource_statuses observations "
        "problems diagnostics"
    ),
    "refresh": "ok operation config_dir state_observations resource_digests resource_statuses observations problems diagnostics",
    "import": "ok operation config_dir state_observations resource_digests resource_statuses observations problems diagnostics",
    "force-unlock": "ok config_dir state_observations lock_removed problems diagnostics",
}
OPTIONAL = {
    "plan": {"plan_digest", "access", "lands", "obstacles", "diffs", "execution_graph"},
    "apply": {"actor"},
    "status": {"in_sync", "last_apply"},
    "approve": {"plan_digest", "changes", "approval_id", "resource", "operation", "approved_by"},
}


class Command:
    """The command in a home of its own, where git knows of no operator."""

    def __init__(self, home: Path) -> None:
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")}
        self.environ = {
            **keep,
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(home.parent),
        }
        self.cwd = home

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Standard output; asserts the exit code, and that nothing but a message ever goes to standard error."""
        return self.run(*arguments, code=code).stdout

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = run([*PROGRAM, *arguments], cwd=self.cwd, env={**self.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def seen(self, *at: str) -> tuple[str, str]:
        """The option that names the plan of now."""
        return "--plan", self.json("plan", *at)["plan_digest"]

    def json(self, *arguments: str, code: int = 0) -> dict:
        """The one JSON document on standard output, its fields in the order of the contract."""
        form = json.loads(self(*arguments, "--json", code=code))
        verb = next(a for a in arguments if a in ENVELOPES)
        optional = OPTIONAL.get(verb, set())
        wanted = ENVELOPES[verb].split()
        assert list(form) == [name for name in wanted if name in form]
        assert set(wanted) - set(form) <= optional
        assert set(form.get("state_observations", {})) <= OBSERVED
        assert form["ok"] is (code == 0)
        assert form["diagnostics"] == form["problems"]
        assert list(dict.fromkeys(d["severity"] for d in form["problems"])).count("error") == (code != 0)
        return form


@pytest.fixture
def gitops(tmp_path) -> Command:
    home = tmp_path / "home"
    home.mkdir()
    return Command(home)


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    (tmp_path / "cluster").mkdir()
    return Cluster(tmp_path / "cluster", engine=lance_engine())


@pytest.fixture
def folder(cluster) -> str:
    return str(cluster.folder)


def first(text: str) -> str:
    return text.splitlines()[0]


def codes(form: dict) -> list[str]:
    return [d["code"] for d in form["problems"]]


def test_a_life_in_text(gitops, cluster, folder):
    at = ("--config", folder)
    assert first(gitops("validate", *at)) == "cluster config valid: 4 resources, 4 dependencies"
    assert gitops("plan", *at).splitlines()[:2] == [
        "Plan: +4 ~0 −0 · 1 problem blocks the apply",
        "  Create graph.knowledge",
    ]
    assert first(gitops("status", *at)) == "State: no ledger yet"
    assert first(gitops("apply", *at, code=1)) == "Apply failed"
    assert first(gitops("import", *at)) == "Import: revision 1, 0 resources"
    applied = gitops("apply", *at, "--as", "sam").splitlines()
    assert applied[0] == "Apply: 4 applied"
    assert applied[1] == "  Create graph.knowledge [Applied]"
    assert applied[5] == "  state: revision 2, converged: true, written: true"
    assert gitops("plan", *at).splitlines() == ["Plan: no changes"]
    assert first(gitops("status", *at)) == "State: revision 2, 4 resources"
    assert "  lock: not held" in gitops("status", *at).splitlines()
    assert first(gitops("refresh", *at)) == "Refresh: revision 3, 4 resources"
    cluster.write("knowledge.pg", WIDER)
    cluster.policies["base"] = ["cluster", "knowledge"]
    cluster.save()
    planned = gitops("plan", *at).splitlines()
    assert "  Update policy.base [bindings]" in planned
    assert any(line.startswith("      add property `Person.") for line in planned)
    assert "  Update policy.base [bindings] [Applied]" in gitops("apply", *at).splitlines()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    blocked = gitops("apply", *at).splitlines()
    assert "  Delete graph.knowledge [Blocked: approval_required]" in blocked
    assert any(line.startswith("WARN  apply_dependency_blocked graph.knowledge: ") for line in blocked)
    approved = first(gitops("--as", "sam", "approve", "graph.knowledge", *at, *gitops.seen(*at)))
    assert approved.startswith("Approved: delete graph.knowledge, by sam (approval ")
    assert first(gitops("apply", *at)) == "Apply: 4 applied"
    assert first(gitops("status", *at)).endswith(", 0 resources")


def test_a_plan_has_its_diff_and_its_graph_below_it(gitops, cluster, folder):
    at = ("plan", "--config", folder)
    cluster.converge()
    assert gitops(*at, "--detailed-exitcode") == gitops(*at)
    cluster.write("knowledge.pg", WIDER)
    plain = gitops(*at)
    assert "{" not in plain
    shown = gitops(*at, "--diff", "--show-graph", "--detailed-exitcode", code=2)
    assert shown.startswith(plain)
    added = [line for line in shown.splitlines() if line.startswith("    +")]
    assert [line.split() for line in added if "city" in line] == [["+", "city:", "String?"]]
    assert "\nExecution graph: 1 node, 0 edges, 1 layer, 0 cycles" in shown
    form = gitops.json(*at, "--diff", "--show-graph")
    assert [each["resources"] for each in form["diffs"]] == [["schema.knowledge"]]
    assert [node["id"] for node in form["execution_graph"]["nodes"]] == ["schema.knowledge"]
    alone = json.loads(gitops(*at, "--graph-format", "json"))
    assert alone == form["execution_graph"]
    assert (alone["plan_digest"], alone["direction"]) == (form["plan_digest"], "up")
    whole = [node["id"] for node in gitops.json(*at, "--atomic")["execution_graph"]["nodes"]]
    assert whole[:2] == ["schema.knowledge", "barrier.prepared"]
    assert f"\nExecution graph: {len(whole)} nodes" in gitops(*at, "--atomic")
    assert gitops(*at, "--graph-format", "mermaid").startswith("flowchart LR")
    cluster.write("knowledge.pg", "node {")
    gitops(*at, "--detailed-exitcode", code=1)


def test_the_graph_of_a_plan_folds_queries_that_are_only_published_again(gitops, cluster, folder):
    one = "query q{0}() {{\n  match {{ $p: Person }}\n  return {{ $p.handle }}\n}}\n"
    cluster.write("many.gq", "".join(map(one.format, range(3))))
    cluster.graphs["knowledge"] = {f"q{n}": "many.gq" for n in range(3)}
    cluster.save()
    cluster.converge()
    cluster.write("many.gq", "".join(map(one.format, range(4))))
    cluster.graphs["knowledge"]["q3"] = "many.gq"
    cluster.save()
    shown = gitops("plan", "--config", folder, "--show-graph")
    assert shown.rstrip().endswith(
        "Execution graph: 4 nodes, 0 edges, 1 layer, 0 cycles\n\n"
        "Layer 1:\n  re-publish 3 queries of knowledge\n  create query.knowledge.q3"
    )


def test_colours_are_for_terminals(gitops, cluster, folder):
    at = ("plan", "--config", folder)
    assert "\x1b" not in gitops(*at)
    assert "\x1b[32m  Create graph.knowledge\x1b[0m" in _on_terminal(gitops, *at)
    assert "\x1b" not in _on_terminal(gitops, *at, "--no-color")
    gitops.environ["NO_COLOR"] = "1"
    assert "\x1b" not in _on_terminal(gitops, *at)
    assert gitops(*at, "--quiet") == ""


def _on_terminal(gitops, *arguments: str) -> str:
    """What the command prints on a terminal."""
    mine, its = os.openpty()
    run = subprocess.Popen([*PROGRAM, *arguments], env={**gitops.environ, "PYTHONPATH": str(ROOT)}, stdout=its)
    os.close(its)
    printed = b""
    with suppress(OSError):  # the end of a terminal
        while part := os.read(mine, 65536):
            printed += part
    os.close(mine)
    assert run.wait() == 0
    return printed.decode()


def test_a_life_in_json(gitops, cluster, folder):
    at = ("--config", folder)
    desired = cluster.desired()
    validated = gitops.json("validate", *at)
    assert validated["resource_digests"] == desired.digests()
    assert [(r["address"], r["kind"]) for r in validated["resources"]] == [
        (t, t.partition(".")[0]) for t in sorted(desired.resources)
    ]
    assert [r.get("path") for r in validated["resources"]] == [None, "base.policy.yaml", "people.gq", "knowledge.pg"]
    assert validated["dependencies"][0] == {"from": "policy.base", "to": "graph.knowledge"}
    planned = gitops.json("plan", *at)
    assert planned["desired_revision"] == {"config_digest": desired.config_digest}
    assert planned["state_observations"]["lock_acquired"] is True
    assert planned["state_observations"]["locked"] is False
    assert planned["changes"][0] == {
        "resource": "graph.knowledge",
        "operation": "create",
        "after_digest": desired.resources["graph.knowledge"].digest,
        "disposition": "applied",
        "class": "stage",
        "class_reason": "nothing refers to a new graph, and it is removed again while it is empty",
    }
    assert planned["blast_radius"][0] == {
        "resource": "graph.knowledge",
        "affected": ["policy.base", "query.knowledge.find_person", "schema.knowledge"],
    }
    assert codes(gitops.json("apply", *at, code=1)) == ["state_missing"]
    imported = gitops.json("import", *at)
    assert (imported["operation"], imported["state_observations"]["state_revision"]) == ("import", 1)
    applied = gitops.json("apply", *at, "--as", "sam")
    assert (applied["actor"], applied["applied_count"], applied["deferred_count"]) == ("sam", 4, 0)
    assert (applied["converged"], applied["state_written"]) == (True, True)
    assert {s["status"] for s in applied["resource_statuses"].values()} == {"applied"}
    again = gitops.json("apply", *at)
    assert "actor" not in again
    assert (again["changes"], again["state_written"]) == ([], False)
    refreshed = gitops.json("refresh", *at)
    assert refreshed["operation"] == "refresh"
    assert refreshed["observations"]["graph.knowledge"]["manifest_version"] == 1
    seen = gitops.json("status", *at)
    assert seen["resource_digests"] == desired.digests()
    assert seen["state_observations"]["applied_config_digest"] == desired.config_digest
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    (gate,) = gitops.json("plan", *at)["approvals_required"]
    assert (gate["resource"], gate["satisfied"]) == ("graph.knowledge", False)
    approved = gitops.json("approve", "graph.knowledge", *at, "--as", "sam", *gitops.seen(*at))
    assert (approved["resource"], approved["operation"], approved["approved_by"]) == (
        "graph.knowledge",
        "delete",
        "sam",
    )
    refused = gitops.json("approve", "schema.knowledge", *at, "--as", "sam", code=1)
    assert (codes(refused), "approval_id" in refused) == (["approval_not_required"], False)
    assert gitops.json("plan", *at)["approvals_required"][0]["satisfied"] is True
    assert gitops.json("apply", *at)["converged"] is True


@pytest.mark.parametrize("verb", ["validate", "plan", "apply", "status", "refresh", "import"])
def test_every_verb_prints_one_document_on_failure_too(gitops, tmp_path, verb):
    at = (verb, "--config", str(tmp_path / "nowhere"))
    form = json.loads(gitops(*at, "--json", code=1))
    assert list(form) == ["ok", "problems", "diagnostics"]
    assert (form["ok"], form["diagnostics"]) == (False, form["problems"])
    assert codes(form) == ["config_dir_not_found"]
    refused = gitops.run(*at, code=1)
    assert (refused.stdout, first(refused.stderr).startswith("ERROR config_dir_not_found ")) == ("", True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["rule"],
        ["plan", "--confirm"],
        ["approve"],
        ["force-unlock"],
        ["apply", "--parallel", "0"],
        ["plan", "--conf", "."],
    ],
)
def test_a_command_line_that_cannot_be_read_exits_2(gitops, arguments):
    assert gitops.run(*arguments, code=2).returncode == 2


def test_the_current_folder_is_the_default(gitops, cluster):
    gitops.cwd = cluster.folder
    assert gitops.json("validate")["ok"]


def test_an_operator_file_of_another_tool_means_nothing(gitops, cluster):
    """Other programs on the same folders read such a file; whatever it says, nothing here depends on it."""
    gitops.cwd = cluster.folder
    before = gitops.json("plan")
    for content in ("cli: [not, what, anybody, expects", "cli:\n  actor: mallory\ngraph: elsewhere\n"):
        cluster.write("omnigraph.yaml", content)
        assert gitops.json("plan")["changes"] == before["changes"]
        assert gitops.json("status")["ok"]
    assert gitops.json("import")["ok"]
    assert "actor" not in gitops.json("apply")


def test_approve_needs_to_know_who_approves(gitops, cluster, folder):
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    refused = gitops.run("approve", "graph.knowledge", "--config", folder, code=2)
    assert (refused.stdout, "--as" in refused.stderr) == ("", True)
    refused = gitops.run("approve", "graph.knowledge", "--config", folder, "--json", code=2)
    assert ("actor_required" in refused.stdout, refused.stderr) == (True, "")
    assert cluster.files("__cluster/approvals") == []
    subprocess.run(["git", "config", "--global", "gitops.actor", "kim"], env=gitops.environ, check=True)
    named = ("approve", "graph.knowledge", "--config", folder, *gitops.seen("--config", folder))
    assert gitops.json(*named)["approved_by"] == "kim"
    assert gitops.json("--as", "sam", *named)["approved_by"] == "sam"


def test_approve_without_a_terminal_signs_only_what_is_named(gitops, cluster, folder):
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    shown = gitops("--as", "sam", "approve", "graph.knowledge", "--config", folder, code=2)
    assert first(shown) == "Approve: delete graph.knowledge"
    assert "approval_not_confirmed" in shown
    named = gitops.seen("--config", folder)[1]
    assert f"gitops approve graph.knowledge --config {folder} --plan {named}" in shown
    refused = gitops.json("--as", "sam", "approve", "graph.knowledge", "--config", folder, "--plan", "0" * 64, code=1)
    assert codes(refused) == ["approval_plan_changed"]
    assert refused["changes"][0]["resource"] == "graph.knowledge"
    assert cluster.files("__cluster/approvals") == []


def test_a_held_lock_and_the_way_out(gitops, cluster, folder):
    cluster.converge()
    cluster.hold_lock(LOCK_ID)
    for verb in ("plan", "apply", "refresh"):
        form = gitops.json(verb, "--config", folder, code=0 if verb == "plan" else 1)
        assert codes(form) == ["state_lock_held"]
        assert (form["state_observations"]["locked"], form["state_observations"]["lock_id"]) == (True, LOCK_ID)
        assert form["state_observations"]["lock_acquired"] is False
    assert f"force-unlock {LOCK_ID} --config {folder}" in gitops("apply", "--config", folder, code=1)
    assert f"  lock: held (id={LOCK_ID}, operation=apply, pid=4711" in gitops("status", "--config", folder)
    wrong = gitops.json("force-unlock", LOCK_ID[:-1] + "X", "--config", folder, code=1)
    assert (codes(wrong), wrong["lock_removed"]) == (["state_lock_id_mismatch"], False)
    assert first(gitops("force-unlock", "X", "--config", folder, code=1)) == "Force-unlock failed"
    right = gitops.json("force-unlock", LOCK_ID, "--config", folder)
    assert (right["lock_removed"], right["state_observations"]["lock_id"]) == (True, LOCK_ID)
    assert codes(gitops.json("force-unlock", LOCK_ID, "--config", folder, code=1)) == ["state_lock_missing"]
    assert gitops.json("plan", "--config", folder)["ok"]


def test_force_unlock_in_text(gitops, cluster, folder):
    cluster.hold_lock(LOCK_ID)
    assert first(gitops("force-unlock", LOCK_ID, "--config", folder)).startswith("Lock removed (")


def test_a_checkout_of_a_ci_job_is_no_place_for_data(gitops, cluster, folder):
    gitops("import", "--config", folder)
    gitops.environ["CI"] = "true"
    assert codes(gitops.json("apply", "--config", folder, code=1)) == ["ephemeral_graph_root"]
    assert not (cluster.folder / "graphs").exists()
    assert gitops.json("apply", "--config", folder, "--keep-data-here")["converged"]


def test_a_storage_root_takes_everything(gitops, cluster, folder):
    cluster.options["storage"] = "../store"
    cluster.save()
    gitops("import", "--config", folder)
    form = gitops.json("apply", "--config", folder)
    store = cluster.folder.parent / "store"
    assert form["converged"]
    assert form["state_observations"]["state_path"] == str(store / "__cluster/state.json")
    assert sorted(p.name for p in store.iterdir()) == ["__cluster", "graphs"]
    assert not {"__cluster", "graphs"} & {p.name for p in cluster.folder.iterdir()}


@pytest.mark.parametrize("name", ["industry-intel", "pharma-intel"])
def test_a_public_example_from_nothing_to_clean(gitops, tmp_path, name):
    source = ROOT.parent / "shared/examples" / name
    if not source.is_dir():
        pytest.skip("the public example clusters are not beside this checkout")
    folder = tmp_path / name
    shutil.copytree(source, folder)
    at = ("--config", str(folder))
    validated = gitops.json("validate", *at)
    warned = [d["code"] for d in validated["diagnostics"]]
    assert warned == ["policy_kind_deprecated"] * (name == "industry-intel")
    gitops("import", *at)
    applied = gitops.json("apply", *at)
    assert applied["converged"]
    assert applied["applied_count"] == len(validated["resources"])
    assert gitops.json("apply", *at)["state_written"] is False
    seen = gitops.json("status", *at)
    assert seen["diagnostics"] == []
    assert seen["resource_digests"] == validated["resource_digests"]
    assert {Kind(r["kind"]) for r in validated["resources"]} >= {Kind.GRAPH, Kind.SCHEMA, Kind.QUERY}
    assert [d["code"] for d in gitops.json("refresh", *at)["diagnostics"]] == warned
    assert gitops.json("plan", *at)["changes"] == []
