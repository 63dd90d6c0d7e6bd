"""`gitops strategies dry-run | apply | wipe-state | wake`, in one process, with the twin in place of the target."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import clusterctl, main
from gitops.cluster.targets.port import TARGET_LOCK
from gitops.compute.ticks.tick import Wipe, wake, wipe
from gitops.core.errors import UsageError
from gitops.core.redact import Secret
from gitops.render.strategies import tick_lines
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import fresh_world
from tests.support.ticks import Ticks, codes, sql

MAIN = {"target_size": {"target_size": "50cc", "replica_name": "main"}}
CREATE = """CREATE CLUSTER REPLICA "serving"."main" (SIZE '50cc')"""


@pytest.fixture
def ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """A folder whose ledger is on disk, and whose target is the twin at any URL but those that end in `nowhere`."""
    made = Ticks(tmp_path, fresh_world(serving={"a": "25cc*"}, other={"a": "25cc*"}), memory=False)
    made.apply_strategies({"serving": MAIN, "other": MAIN})

    def open_target(_place: str, url: Secret, *, application_name: str, **_rest: Any) -> MemoryTarget:
        made.urls.append((url.name, url.reveal()))
        made.world.reachable = not url.reveal().endswith("nowhere")
        return MemoryTarget(made.world, application_name=application_name)

    monkeypatch.setattr("gitops.repository.wiring.stores.open_target", open_target)
    monkeypatch.setenv("PROD_URL", "postgresql://prod")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


def test_a_dry_run_prints_statements_with_reasons(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "dry-run", "--cluster", "^serving$", "-vv"]) == 0
    assert capsys.readouterr().out == (
        f"{CREATE};\n-- prod/serving: target_size: no replica has size 50cc\n"
        "-- 1 compute cluster looked at, 1 statement would be carried out\n"
    )
    assert ticks.world.tables() == set()
    assert main(["strategies", "dry-run", "--filter-clusters", "serving", "--json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert [(each["sql"], each["op"]) for each in form["actions"]] == [(CREATE, "create")]
    assert ticks.urls == [("PROD_URL", "postgresql://prod")] * 2


def test_a_dry_run_draws_its_graph(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    only = ["strategies", "dry-run", "--cluster", "^serving$"]
    edge = "decision.serving.target_size -> replica.prod.serving.main [replica_decision: no replica has size 50cc]"
    assert main([*only, "--show-graph"]) == 0
    assert f"would be carried out\n\nExecution graph: 2 nodes, 1 edge, 2 layers, 0 cycles\n\nEdges:\n  {edge}\n" in (
        capsys.readouterr().out
    )
    assert main([*only, "--show-graph", "--json"]) == 0
    within = json.loads(capsys.readouterr().out)["execution_graph"]
    assert main([*only, "--graph-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == within
    assert [each["id"] for each in within["nodes"]] == ["decision.serving.target_size", "replica.prod.serving.main"]
    assert main([*only, "--graph-format", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")


def test_a_terminal_gets_a_table(ticks: Ticks) -> None:
    lines = tick_lines(ticks.preview(clusters="^serving$"), table=True)
    assert lines[0].split() == ["COMPUTE", "CLUSTER", "STATEMENT", "REASON"]
    assert lines[1] == f"prod/serving     {CREATE}  target_size: no replica has size 50cc"


def test_an_apply_acts_and_says_in_which_changeset(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "apply"]) == 0
    said = capsys.readouterr().out
    assert f"{CREATE};\n-- prod/serving: target_size: no replica has size 50cc [done]\n" in said
    (record,) = ticks.changesets()
    assert said.endswith(f"-- 2 compute clusters looked at, 2 of 2 statements carried out: changeset {record.key}\n")
    assert main(["strategies", "apply"]) == 0
    assert capsys.readouterr().out == "-- 2 compute clusters looked at, no statements carried out\n"
    assert main(["changeset", "show", record.key]) == 0
    why = "    target_size: no replica has size 50cc\n"
    assert f"create replica.prod.serving.main (stage): canonical\n{why}" in capsys.readouterr().out


def test_a_tick_that_failed_is_not_tried_again(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    ticks.world.clusters["serving"].single = True
    assert main(["strategies", "apply", "--cluster", "serving"]) == 1
    (record,) = ticks.changesets()
    assert "single_replica_only replica.prod.serving.main" in capsys.readouterr().out
    assert main(["changeset", "retry", record.key]) == 1
    assert "gitops strategies apply" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "url", "code", "message"),
    [
        (
            ["--cluster", "a("],
            "postgresql://prod",
            2,
            "the filter of compute clusters 'a(' is not a regular expression: missing )",
        ),
        ([], "", 2, "target_url_missing"),
        ([], "postgresql://nowhere", 3, "target_unreachable"),
        (["--target", "prod"], "postgresql://prod", 0, "would be carried out"),
        (["--target", "none"], "postgresql://prod", 2, "no applied strategy is on a target none; known: prod"),
    ],
)
def test_exit_codes(
    ticks: Ticks,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    url: str,
    code: int,
    message: str,
) -> None:
    assert ticks.urls == []
    monkeypatch.setenv("PROD_URL", url)
    assert main(["strategies", "dry-run", *words]) == code
    said = capsys.readouterr()
    assert message in said.out + said.err


def test_an_invalid_folder_is_wrong_usage(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    ticks.cluster.write("cluster.yaml", "version: 1\nnonsense: 2\n")
    assert main(["strategies", "dry-run"]) == 2
    assert "invalid_cluster_yaml" in capsys.readouterr().out


def test_where_the_url_comes_from(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROD_URL")
    ticks.cluster.write(".env", "# here\nexport PROD_URL='postgresql://file'\n")
    assert main(["strategies", "dry-run"]) == 0
    ticks.cluster.write(".env", 'PROD_URL=postgresql://file\nDATABASE_URL="postgresql://other"\n')
    assert main(["strategies", "dry-run"]) == 0
    monkeypatch.setenv("DATABASE_URL", "postgresql://shell")
    assert main(["strategies", "dry-run"]) == 0
    assert main(["strategies", "dry-run", "--postgres-url", "postgresql://given"]) == 0
    assert [url.removeprefix("postgresql://") for _, url in ticks.urls] == ["file", "other", "shell", "given"]


def test_one_url_is_not_that_of_two_targets(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    ticks.apply_strategies({"serving": MAIN, "other": MAIN}, on={"other": "second"})
    assert main(["strategies", "dry-run", "--postgres-url", "postgresql://one"]) == 2
    assert "target_unnamed" in capsys.readouterr().err
    words = ["strategies", "dry-run", "--postgres-url", "postgresql://one", "--target", "prod"]
    assert main(words) == 0
    assert "1 compute cluster looked at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A=1\nA=2\n", ".env:2 sets A again"),
        ("A=secret value\n", ".env:1 is not NAME=VALUE"),
        ("A=$(secret)\nB='x\n", ".env:2 is not NAME=VALUE"),
        ("= secret", ".env:1 is not NAME=VALUE"),
    ],
)
def test_a_file_of_variables_that_is_not_valid(
    ticks: Ticks, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    ticks.cluster.write(".env", text)
    assert main(["strategies", "dry-run"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "secret" not in error


def test_the_program_of_the_design_note_is_the_same(
    ticks: Ticks, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["mz-clusterctl", "dry-run", "--cluster", "serving"])
    with pytest.raises(SystemExit) as end:
        clusterctl()
    assert end.value.code == 0
    assert CREATE in capsys.readouterr().out
    assert not ticks.audited


def test_a_suspended_compute_cluster_is_woken(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    ticks.apply_strategies({"serving": {**MAIN, "idle_suspend": {"idle_after_s": 300, "cooldown_s": 600}}})
    ticks.tick()
    ticks.pass_time(minutes=20)
    ticks.tick()
    assert ticks.world.replicas("serving") == {}
    assert not ticks.tick().actions
    workspace, how = ticks.cluster.workspace("ada"), ticks.how()
    assert wake(workspace, how, "serving").done == {"prod": 1}
    assert sql(ticks.tick()) == [CREATE]
    with pytest.raises(UsageError, match="no applied strategy suspends a compute cluster servin; did you mean"):
        wake(workspace, how, "servin")
    assert main(["strategies", "wake", "serving"]) == 0
    assert capsys.readouterr().out == "prod: 1 compute cluster woken\n"


def test_a_memory_is_wiped(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    ticks.tick()
    gone = ticks.world.add_cluster("gone")
    ticks.world.insert_state(gone, 1, {"strategy_type": "burst"}, None)
    ticks.world.drop_cluster("gone")
    workspace = ticks.cluster.workspace("ada")
    assert wipe(workspace, ticks.how(clusters="serving"), Wipe.CHOSEN).done == {"prod": 1}
    assert wipe(workspace, ticks.how(), Wipe.ORPHANS).done == {"prod": 1}
    assert [row[0] for row in ticks.world.state_rows or ()] == ["u2"]
    assert main(["strategies", "wipe-state", "--recreate"]) == 0
    assert capsys.readouterr().out == "prod: 1 row deleted\n"
    assert ticks.world.state_rows == []
    with MemoryTarget(ticks.world) as other:
        assert other.try_lock(TARGET_LOCK)
        assert codes(wipe(workspace, ticks.how(), Wipe.CHOSEN)) == ["already_running"]
