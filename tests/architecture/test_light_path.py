"""Verbs that only read start without the heavy drivers, whatever they find."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from gitops.git.port import ZERO, RefUpdate
from tests.support.cluster import RETYPED, WIDER, Cluster, lance_engine
from tests.support.git_fixture import bare, commit, opened
from tests.support.pages import ROOT

HEAVY = (
    "lance", "pyarrow", "numpy", "requests", "jinja2", "pydantic", "pygit2", "cryptography", "obstore", "psycopg", "rich",
)  # fmt: skip
# A plan without changes imports more than a hundred classes, makes values of 39, and many of three.
MOST_CLASSES = 20
PROBE = """
import dataclasses, json, sys
written, standard = [], dataclasses.dataclass
dataclasses.dataclass = lambda *given, **options: written.append(None) or standard(*given, **options)
from gitops.cli.main import main
codes = []
for command in json.loads(sys.argv[1]):
    try:
        codes.append(main(command))
    except SystemExit as end:
        codes.append(end.code)
names = [name.split(".") for name in sys.modules]
loaded = sorted({".".join(name[:n]) for name in names for n in (1, 2, 3) if n == 1 or name[0] == "gitops"})
sys.stderr.write(json.dumps({"codes": codes, "loaded": loaded, "written": len(written)}))
"""


def loaded_by(*arguments: str, stdin: str = "") -> set[str]:
    """Top-level modules, and wings and rooms of the program, that a successful run of the command has loaded."""
    return set(report_on(arguments, stdin=stdin)["loaded"])


def report_on(*commands: Sequence[str], stdin: str = "") -> dict[str, Any]:
    """What successful runs of these commands in one process have loaded, and for how many dataclasses methods were written."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(commands)],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    report: dict[str, Any] = json.loads(run.stderr)
    assert not any(report["codes"]), run.stdout
    return report


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """A cluster without a ledger, a converged one, and converged ones with an edited schema."""
    found = {}
    for name, schema in (("new", None), ("converged", None), ("widened", WIDER), ("retyped", RETYPED)):
        cluster = Cluster(tmp_path_factory.mktemp(name), engine=lance_engine())
        if name != "new":
            cluster.converge()
        if schema is not None:
            cluster.write("knowledge.pg", schema)
        found[name] = str(cluster.folder)
    return found


@pytest.mark.parametrize("flags", [["--version"], ["--help"], ["plan", "--help"]])
def test_nothing_heavy_for_no_work_at_all(flags):
    assert loaded_by(*flags).isdisjoint(HEAVY)


@pytest.mark.parametrize("folder", ["new", "converged", "widened", "retyped"])
def test_nothing_heavy_for_reading(folders, folder):
    """One process runs all of them: what the first loads is still loaded behind the last."""
    verbs = ("validate", "plan", "status")
    commands = [(verb, "--config", folders[folder], *form) for verb in verbs for form in ((), ("--json",))]
    assert set(report_on(*commands)["loaded"]).isdisjoint(HEAVY)


def test_nothing_heavy_for_a_look_at_schemas_and_queries(folders):
    commands = [("lint", "--config", folders["new"], "--format", form) for form in ("text", "json", "sarif")]
    assert set(report_on(*commands)["loaded"]).isdisjoint(HEAVY)


def test_methods_are_written_for_classes_of_many_values(folders):
    assert report_on(("plan", "--config", folders["converged"]))["written"] < MOST_CLASSES


def test_all_dataclasses_are_written_late():
    eager = re.compile(r"^from dataclasses import (?:.*\W)?dataclass\b|@dataclasses\.dataclass", re.MULTILINE)
    assert [path for path in sorted((ROOT / "gitops").rglob("*.py")) if eager.search(path.read_text("utf-8"))] == []


def test_nothing_of_the_control_plane_for_rows(folders):
    arguments = ("query", "knowledge", "find_person", "--param", "h=ada", "--config", folders["converged"])
    found = {".".join(name.split(".")[1:3]) for name in loaded_by("graph", *arguments) if name.startswith("gitops.")}
    assert "database.graph" in found
    assert {name.partition(".")[0] for name in found}.isdisjoint({"bot", "forge"})
    assert found.isdisjoint(
        {f"cluster.{room}" for room in ("apply", "approvals", "approving", "audit", "plan", "session")}
    )


def test_no_ledger_is_opened_to_check_a_folder(folders):
    """The changesets are read by the ledgers alone."""
    assert "gitops.cluster.changesets" not in loaded_by("validate", "--config", folders["new"])
    assert "gitops.cluster.changesets" in loaded_by("status", "--config", folders["new"])


def test_nothing_heavy_for_the_way_back(folders):
    assert loaded_by("down", "knowledge", "--config", folders["widened"]).isdisjoint(HEAVY)


def test_nothing_heavy_for_the_graph_of_a_plan(folders):
    assert loaded_by("plan", "--config", folders["new"], "--graph-format", "mermaid").isdisjoint(HEAVY)


def test_nothing_heavy_for_an_apply_that_has_nothing_to_do(folders):
    assert loaded_by("apply", "--config", folders["converged"]).isdisjoint(HEAVY)
    assert loaded_by("refresh", "--config", folders["converged"]).isdisjoint(HEAVY)


def test_a_bucket_needs_its_client_and_nothing_else(s3, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.options["storage"] = s3.root
    cluster.save()
    assert loaded_by("import", "--config", str(tmp_path)) & set(HEAVY) == {"obstore"}
    for verb in ("plan", "status"):
        assert loaded_by(verb, "--config", str(tmp_path)) & set(HEAVY) == {"obstore"}
    assert loaded_by("validate", "--config", str(tmp_path)).isdisjoint(HEAVY)


@pytest.mark.parametrize("branch", ["topic", "production"])
def test_nothing_heavy_but_libgit2_for_a_push_that_keeps_the_rules(tmp_path, monkeypatch, branch):
    """Every push to a server waits for this hook; rules and cryptography are for pushes of what they are about."""
    server = bare(tmp_path / "server.git")
    store = opened(server)
    config = b"version: 1\nclusters:\n  - {name: brain, path: cluster, branch: production}\n"
    head = commit(store, {"gitops.yaml": config, "cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"})
    entry = commit(store, {"trust/gitops.yaml": config})
    refs = {"refs/heads/main": head, "refs/heads/gitops/ledger/brain": entry}
    store.update_refs([RefUpdate(ref, ZERO, commit_id) for ref, commit_id in refs.items()])
    monkeypatch.setenv("GIT_DIR", str(server))
    pushed = f"{ZERO} {head} refs/heads/{branch}\n"
    loaded = loaded_by("hook", "run", "pre-receive", stdin=pushed)
    assert loaded & set(HEAVY) == {"pygit2"}
