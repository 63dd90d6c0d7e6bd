"""No verb does anything for a broken folder: each says the same as `validate`, and nothing is left behind, not even a lock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.approving.approve import approve
from gitops.cluster.model.address import Address
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import force_unlock, status
from gitops.cluster.session.validate import validate
from gitops.cluster.session.workspace import Workspace
from gitops.core.diagnostics import Severity
from gitops.repository.wiring.stores import folder_workspace
from tests.support.cluster import Cluster, codes

DATA = Path(__file__).parents[1] / "data" / "broken"
LOADING: dict[str, Callable[[Workspace], VerbOutcome]] = {
    "plan": plan,
    "apply": apply,
    "refresh": refresh,
    "import": import_cluster,
    "approve": lambda workspace: approve(workspace, Address("graph.catalogue")),
}
LOCK_ID = "01JZ0000000000000000000CCC"


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
