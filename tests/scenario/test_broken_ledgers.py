"""Damaged ledgers: every folder of tests/data/broken-ledgers, laid over a converged cluster, and what each verb says of it.

A case is `expected.json` and the files below `ledger/`. It first removes what `remove` lists, makes `folders` and `links`,
and then writes the files. `status`, `plan` and `refresh` list the exact diagnostics, in order.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gitops.cluster.model.outcome import VerbOutcome
from gitops.render import json as forms
from gitops.render import text
from tests.support.cluster import Cluster

DATA = Path(__file__).parents[1] / "data" / "broken-ledgers"
CASES = sorted(path.parent.name for path in DATA.glob("*/expected.json"))
_KEPT = ("__cluster/recoveries/", "__cluster/approvals/", "__cluster/resources/", "graphs/")


def damaged(name: str, folder: Path) -> tuple[Cluster, dict[str, list[dict[str, str]]]]:
    case = json.loads((DATA / name / "expected.json").read_text(encoding="utf-8"))
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
    for source in sorted(path for path in (DATA / name / "ledger").rglob("*") if path.is_file()):
        cluster.plant(source.relative_to(DATA / name / "ledger").as_posix(), source.read_bytes())
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
    form = json.loads(forms.to_text(forms.envelope(outcome)))
    return all(line.isprintable() for line in lines) and form["ok"] == outcome.ok


@pytest.mark.parametrize("name", CASES)
def test_looking_at_a_damaged_ledger_says_what_is_wrong_and_changes_nothing(name, tmp_path):
    cluster, expected = damaged(name, tmp_path)
    before = traces(tmp_path)
    for verb in ("status", "plan"):
        outcome = getattr(cluster, verb)()
        assert findings(outcome) == expected[verb]
        assert outcome.ok == all(e["severity"] == "warning" for e in expected[verb])
        assert _is_readable(outcome)
    assert traces(tmp_path) == before


@pytest.mark.parametrize("name", CASES)
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


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("older-")])
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
    assert len(CASES) >= 90
