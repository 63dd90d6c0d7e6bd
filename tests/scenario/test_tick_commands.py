"""Commands about strategies in one process, what a change of them would do, and each decision of the data through a tick."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import clusterctl, main
from gitops.cluster.model.compute import WhatIf
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.targets.port import TARGET_LOCK, AuditRow
from gitops.cluster.targets.signals import StrategyState
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.compute.ticks.targets import Selection
from gitops.compute.ticks.tick import Wipe, wake, wipe
from gitops.compute.ticks.what_if import Reach, replays, with_what_if
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.core.redact import Secret
from gitops.database.language.yaml import parse_yaml, to_plain
from gitops.render.json import envelope
from gitops.render.strategies import tick_lines
from gitops.render.text import to_text
from gitops.repository.wiring.system import SystemClock
from tests.support.cluster import START, Cluster, codes
from tests.support.memory_target import MemoryTarget
from tests.support.strategies import NOW, ago, state
from tests.support.target_world import Fault, TargetWorld, fresh_world
from tests.support.ticks import Ticks, sql

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
    assert main(["strategies", "dry-run", "--filter-clusters", "^serving$", "-vv"]) == 0
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
    only = ["strategies", "dry-run", "--filter-clusters", "^serving$"]
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


def test_a_tick_is_logged_as_lines_of_json(ticks: Ticks, capfd: pytest.CaptureFixture[str]) -> None:
    tick = ["strategies", "apply", "--filter-clusters", "serving", "--log-format", "json"]
    for statements in ([CREATE], []):
        assert main(tick) == 0
        events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        last = events[-1]
        assert (last["type"], [each["sql"] for each in last["data"]["actions"]]) == ("tick_finished", statements)
        nodes = [each["data"]["node"] for each in events if each["type"] == "node_finished"]
        assert ("replica.prod.serving.main" in nodes) is bool(statements)


def test_a_tick_that_failed_is_not_tried_again(ticks: Ticks, capsys: pytest.CaptureFixture[str]) -> None:
    ticks.world.clusters["serving"].single = True
    assert main(["strategies", "apply", "--filter-clusters", "serving"]) == 1
    (record,) = ticks.changesets()
    assert "single_replica_only replica.prod.serving.main" in capsys.readouterr().out
    assert main(["changeset", "retry", record.key]) == 1
    assert "gitops strategies apply" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "url", "code", "message"),
    [
        (
            ["--filter-clusters", "a("],
            "postgresql://prod",
            2,
            "the compute cluster filter 'a(' is not a regular expression: missing )",
        ),
        (
            ["--filter-clusters", "srving"],
            "postgresql://prod",
            2,
            "the filter 'srving' matches no compute cluster with applied strategies; known: other, serving",
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
    monkeypatch.setattr(sys, "argv", ["mz-clusterctl", "dry-run", "--filter-clusters", "serving"])
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


SERVING: dict[str, Any] = {"target": "prod", "target_size": {"target_size": "50cc"}}


class Watched(Cluster):
    """A cluster with the target `prod`, on which is the compute cluster `serving` with a hydrated replica `main` (25cc)."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder, memory=True)
        self.world = TargetWorld(now=self.clock.now())
        self.world.add_cluster("serving")
        self.world.add_replica("serving", "main", "25cc", hydrated=True)
        self.opened: list[str] = []
        self.refuses: Exception | None = None

    def declare(self, *, url: str = "MZ_URL", **strategies: Any) -> None:
        targets = {"prod": {"kind": "materialize", "url": {"env": url}}}
        self.options["compute"] = {"targets": targets, "strategies": strategies}
        self.save()

    def workspace(self, *given: Any, **named: Any) -> Any:
        return replace(super().workspace(*given, **named), open_target=self.open)

    def open(self, target: Any) -> MemoryTarget:
        self.opened.append(target.url_env)
        if self.refuses is not None:
            raise self.refuses
        return MemoryTarget(self.world)

    def ask(self, reach: Reach = Reach.DECLARED) -> PlanOutcome:
        """The plan of the folder, with what it would do."""
        return with_what_if(self.workspace(), self.plan(), reach)

    def busy(self, days: int) -> None:
        """Statements ran for an hour of each day before now."""
        for day in range(days):
            began = self.clock.now() - timedelta(days=day, hours=3)
            self.world.activity("serving", began, began + timedelta(hours=1))


@pytest.fixture
def watched(tmp_path):
    made = Watched(tmp_path)
    made.converge()
    return made


def chosen(name: str) -> Selection:
    return Selection(re.compile(name))


def only(outcome: PlanOutcome) -> WhatIf:
    [found] = outcome.what_if
    return found


def test_a_plan_that_changes_no_strategies_asks_no_target(watched):
    assert watched.ask().what_if == ()
    assert watched.opened == []


def test_what_new_strategies_would_do_now_is_part_of_the_plan_and_not_of_its_digest(watched):
    watched.declare(serving=SERVING)
    outcome = watched.ask()
    found = only(outcome)
    assert [action.sql for action in found.actions] == [create_replica("serving", "r_50cc", "50cc")]
    assert found.actions[0].reasons == ("target_size: no replica has size 50cc",)
    assert outcome.plan == watched.plan().plan
    assert "CREATE CLUSTER REPLICA" in to_text(outcome)
    assert envelope(outcome)["what_if"][0]["actions"][0]["sql"] == found.actions[0].sql


def test_applied_strategies_are_compared_with_changed_ones_on_the_last_days(watched):
    watched.declare(serving=SERVING)
    assert watched.apply().converged
    watched.busy(9)
    watched.declare(serving={**SERVING, "idle_suspend": {"idle_after_s": 1800}})
    found = only(watched.ask())
    assert (found.days, found.said) == (7, "")
    assert found.before is not None
    assert found.after is not None
    assert 7 * 24 * 0.5 - 1 < found.before.credits < 7 * 24 * 0.5 + 1
    # An hour of each day, the idle time after it, and that until it is seen.
    assert 7 * 1.5 * 0.5 < found.after.credits < 7 * 2 * 0.5
    assert found.after.replica_hours < found.before.replica_hours
    assert "credits from" in to_text(replace(watched.plan(), what_if=(found,)))


def test_without_anything_recorded_there_is_no_comparison(watched):
    watched.declare(serving=SERVING)
    assert only(watched.ask()).before is None


def test_a_size_that_an_apply_would_refuse_is_named(watched):
    watched.declare(serving={"target": "prod", "target_size": {"target_size": "51cc"}})
    outcome = watched.ask()
    (found,) = outcome.what_if
    assert found.unlisted == ("51cc",)
    line = "    an apply refuses these strategies: target prod has no size 51cc (replica_size_invalid)"
    assert line in to_text(outcome).splitlines()
    assert envelope(outcome)["what_if"][0]["unlisted_sizes"] == ["51cc"]


def test_strategies_that_go_decide_nothing_any_more(watched):
    watched.declare(serving=SERVING)
    watched.apply()
    watched.declare()
    assert (only(watched.ask()).actions, only(watched.ask()).said) == ((), "")


def test_a_request_reaches_only_targets_of_applied_strategies(watched):
    watched.declare(serving=SERVING)
    new = only(watched.ask(Reach.APPLIED))
    assert new.said.startswith("no strategies are applied on target prod yet")
    assert "run gitops plan in a clone" in new.said
    assert watched.opened == []
    watched.apply()
    watched.opened.clear()
    watched.declare(url="OTHER_SECRET", serving={**SERVING, "target_size": {"target_size": "100cc"}})
    assert only(watched.ask(Reach.APPLIED)).said.startswith("target prod differs from its applied declaration")
    assert watched.opened == []
    watched.declare(serving={**SERVING, "target_size": {"target_size": "100cc"}})
    assert only(watched.ask(Reach.NONE)).said.startswith("a change request from a fork cannot access a target")
    assert watched.opened == []
    assert only(watched.ask(Reach.APPLIED)).actions
    assert watched.opened == ["MZ_URL"]


def test_a_target_that_only_has_the_name_of_an_applied_one_is_another_target(watched):
    watched.declare(serving=SERVING)
    watched.apply()
    watched.opened.clear()
    watched.declare(url="OTHER_SECRET", other={**SERVING, "cluster": "serving"})
    new, gone = watched.ask(Reach.APPLIED).what_if
    assert (new.key, gone.key) == ("other", "serving")
    assert new.said.startswith("target prod differs from its applied declaration")
    assert (gone.said, watched.opened) == ("", ["MZ_URL"])


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda c: c.world.stop(), "target_unreachable"),
        (lambda c: c.world.deny("SELECT", "mz_catalog.mz_clusters"), "target_denied"),
        (lambda c: c.world.hide("mz_internal.mz_hydration_statuses", "hydrated"), "signal_unavailable"),
        (lambda c: c.world.fail_next(Fault.CANCELLED, after=2), "target_unreachable"),
        (lambda c: c.world.drop_cluster("serving"), "compute_cluster_missing"),
        (lambda c: setattr(c, "refuses", UsageError(Code.TARGET_URL_MISSING, "host.internal")), "target_url_missing"),
        (lambda c: setattr(c, "refuses", UsageError(Code.MATERIALIZE_UNAVAILABLE, "x")), "materialize_unavailable"),
    ],
)
def test_a_target_that_does_not_answer_is_one_line_and_the_plan_is_as_without_it(watched, spoil, code):
    watched.declare(serving=SERVING)
    spoil(watched)
    outcome = watched.ask()
    found = only(outcome)
    assert (found.code, found.actions, found.before) == (code, (), None)
    assert "host.internal" not in found.said
    assert outcome.lands
    without = watched.plan()
    assert (outcome.plan, outcome.diagnostics) == (without.plan, without.diagnostics)
    assert f"({code})" in to_text(outcome)


def test_audit_rows_that_cannot_be_read_leave_the_decision(watched):
    watched.declare(serving=SERVING)
    watched.busy(2)
    watched.world.fail_next(Fault.ERROR, after=9)
    found = only(watched.ask())
    assert watched.world.log[-1] == "select actions"
    assert found.actions
    assert found.before is None


def test_the_recorded_days_are_played_with_the_applied_and_the_declared_strategies(watched):
    watched.declare(serving=SERVING)
    watched.apply()
    watched.busy(3)
    for day, replica in ((2, "old"), (1, "main")):
        sql, at = create_replica("serving", replica, "25cc"), watched.clock.now() - timedelta(days=day)
        watched.world.insert_audit(AuditRow(replica, "u1", sql, {"reasons": []}, True), at)
    watched.declare(serving={**SERVING, "target_size": {"target_size": "100cc"}}, other={**SERVING})
    workspace = watched.workspace()
    found = replays(workspace, watched.open, chosen("serving"), last=timedelta(days=2, hours=1))
    assert codes(found) == []
    [each] = found.replayed
    assert dict(each.replay.scenario.replicas) == {}
    assert each.before.usage.credits < each.after.usage.credits
    assert dict(each.after.steps[-1].replicas) == {"r_100cc": "100cc"}
    every = replays(workspace, watched.open, Selection(), last=timedelta(days=1))
    assert [each.key for each in every.replayed] == ["serving"]
    assert codes(every) == ["compute_cluster_missing"]
    assert codes(replays(workspace, watched.open, chosen("nothing"), last=timedelta(days=1))) == [
        "compute_cluster_missing"
    ]
    watched.world.stop()
    assert codes(replays(workspace, watched.open, chosen("serving"), last=timedelta(days=1))) == ["target_unreachable"]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """A folder whose ledger is on disk, and whose target is the twin; a tick of yesterday made `main` in place of `a`."""
    made = Ticks(tmp_path, fresh_world(serving={"a": "25cc*"}), memory=False)
    made.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "replica_name": "main"}}})
    monkeypatch.setattr("gitops.repository.wiring.stores.open_target", lambda *_, **__: MemoryTarget(made.world))
    monkeypatch.setenv("PROD_URL", "postgresql://prod")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    made.world.now = SystemClock().now() - timedelta(days=1)
    assert main(["strategies", "apply"]) == 0
    made.world.hydrate("serving", "main")
    made.world.now += timedelta(minutes=20)
    assert main(["strategies", "apply"]) == 0
    made.cluster.options["compute"] = {
        "targets": {"prod": {"kind": "materialize", "url": {"env": "PROD_URL"}}},
        "strategies": {"serving": {"target": "prod", "target_size": {"target_size": "100cc"}}},
    }
    made.cluster.save()
    return made


def test_the_command_says_what_is_recorded_and_what_is_assumed_and_compares(recorded, capsys, tmp_path):
    capsys.readouterr()
    assert (
        main(["strategies", "simulate", "--from-audit", "serving", "--last", "2d", "--svg", str(tmp_path / "p.svg")])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("serving on target prod since ")
    assert lines[1:3] == [
        "  recorded: statements about replicas that were carried out: 2",
        "  recorded: a replica of size 50cc hydrates in 1200 s",
    ]
    # The size of what was dropped is in the audit row.
    assert not any("the size of" in line for line in lines)
    assert "0d 00:00  + r_100cc (100cc)  target_size: no replica has size 100cc" in lines
    assert "applied -> declared" in lines
    [line] = [each for each in lines[lines.index("applied -> declared") :] if each.startswith("credits")]
    before, after = (float(part) for part in line.removeprefix("credits").split(" -> "))
    assert 24 < before < 25
    assert 48 < after < 49
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert main(["strategies", "simulate", "--from-audit", "--last", "2d", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["replays"]
    assert (found["compute"], found["target"], len(found["recorded"])) == ("serving", "prod", 2)
    assert found["declared"]["usage"]["credits"] > found["applied"]["credits"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--from-audit", "other"], 1),
        (["--from-audit", "--against", "x.yaml"], 2),
        (["--scenario", "x.yaml", "--last", "2d"], 2),
    ],
)
def test_what_does_not_fit_is_refused(recorded, capsys, arguments, code):
    assert main(["strategies", "simulate", *arguments]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_target_that_is_down_has_its_exit_code(recorded):
    recorded.world.stop()
    assert main(["strategies", "simulate", "--from-audit"]) == 3


CASES: dict[str, dict[str, Any]] = {
    f"c{number}": case
    for number, case in enumerate(
        to_plain(parse_yaml((Path(__file__).parents[1] / "data" / "strategies" / "decisions.yaml").read_bytes()))
    )
}


@dataclass
class Lived:
    """What the ticks left: replicas of each compute cluster, memories before and after, statements, and audit rows."""

    replicas: Mapping[str, Mapping[str, str]]
    before: Mapping[str, Mapping[StrategyType, StrategyState]]
    after: Mapping[str, Mapping[StrategyType, StrategyState]]
    sent: list[str]
    audited: list[tuple[str | None, str, list[str]]]
    again: list[str]


@pytest.fixture(scope="module", params=["twin", "server"])
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """A tick over the compute clusters of all cases, and another one right after it."""
    world: Any = TargetWorld()
    if request.param == "server":
        world = request.getfixturevalue("stand_in_server")
        world.reset()
    ticks = Ticks(tmp_path_factory.mktemp("ticks"), world)
    ticks.cluster.clock.jump(NOW - START)
    ticks.apply_strategies({name: case["rules"] for name, case in CASES.items()})
    owners = {name: _prepare(world, name, case) for name, case in CASES.items()}
    before = {name: _states(name, case) for name, case in CASES.items()}
    with ticks.connect() as target:
        target.create_tables()
        for name, states in before.items():
            target.replace_states(owners[name], states.values(), at=ago(1))
    outcome = ticks.tick()
    assert outcome.ok, codes(outcome)
    with ticks.connect() as target:
        memories = target.states()
    sent = ticks.sent.copy()
    return Lived(
        {name: world.replicas(name) for name in CASES},
        before,
        {name: {each.strategy: each for each in memories.get(owners[name], ())} for name in CASES},
        sent,
        [(row.cluster_id, row.action_sql, list(row.decision_ctx["reasons"])) for row in ticks.audited if row.executed],
        sql(ticks.tick()),
    )


def _prepare(world: Any, name: str, case: Mapping[str, Any]) -> str:
    owner: str = world.add_cluster(name)
    replicas = {_named(replica, name): size for replica, size in case.get("replicas", {}).items()}
    for replica, size in replicas.items():
        world.add_replica(name, replica, size.rstrip("*"))
    for replica, (total, out_of_memory) in case.get("crashes", {}).items():
        for number in range(total):
            reason = "oom-killed" if number < out_of_memory else "error"
            world.crash(name, _named(replica, name), reason, ago(60 + number))
    for replica in (each for each, size in replicas.items() if size.endswith("*")):
        world.hydrate(name, replica)
    if (age := case.get("activity")) is not None:
        world.activity(name, ago(age), ago(age))
    return owner


def _states(name: str, case: Mapping[str, Any]) -> dict[StrategyType, StrategyState]:
    given = case.get("state", {kind: {} for kind in case["rules"]})
    return {StrategyType(kind): replace(state(kind, form), cluster_name=name) for kind, form in given.items()}


def _named(replica: str, cluster: str) -> str:
    """The replica of a case on its compute cluster: `c_` begins the names that strategies make from that of the cluster."""
    return f"{cluster}{replica[1:]}" if replica.startswith("c_") else replica


def _statements(name: str, actions: Iterable[str]) -> list[str]:
    words = [action.split() for action in actions]
    return [
        drop_replica(name, _named(replica, name))
        if op == "drop"
        else create_replica(name, _named(replica, name), *size)
        for op, replica, *size in words
    ]


@pytest.mark.parametrize("name", CASES, ids=[f"{case.get('scenario', '')}-{case['name']}" for case in CASES.values()])
def test_a_decision_is_carried_out(lived: Lived, name: str) -> None:
    case = CASES[name]
    wanted = _statements(name, case["then"])
    assert [line for line in lived.sent if f'"{name}".' in line] == wanted
    audited = [(line, reasons) for _, line, reasons in lived.audited if f'"{name}".' in line]
    assert [line for line, _ in audited] == wanted
    assert all(reasons for _, reasons in audited)
    if wanted:
        said = " ".join(reason for _, reasons in audited for reason in reasons)
        assert [text for text in case.get("because", ()) if text not in said] == []
    left = {_named(replica, name): size.rstrip("*") for replica, size in case.get("replicas", {}).items()}
    for op, replica, *size in map(str.split, case["then"]):
        if op == "drop":
            del left[_named(replica, name)]
        else:
            left[_named(replica, name)] = size[0]
    assert lived.replicas[name] == left


@pytest.mark.parametrize("name", CASES, ids=[f"{case.get('scenario', '')}-{case['name']}" for case in CASES.values()])
def test_a_decision_is_remembered(lived: Lived, name: str) -> None:
    case, after = CASES[name], lived.after[name]
    assert set(after) == set(map(StrategyType, case["rules"]))
    for kind, replica in case.get("pending", {}).items():
        pending = after[StrategyType(kind)].pending
        assert (None if pending is None else pending.name) == replica
    decided = [each for each in after.values() if each.last_decision == NOW]
    assert bool(decided) is bool(case["then"])
    assert not decided or "applied" in {each.last_outcome for each in decided}
    if case.get("scenario") == 10:
        assert after == lived.before[name], "in a cooldown the memory stays as it is"


def test_decisions_that_were_carried_out_ask_for_nothing_more(lived: Lived) -> None:
    assert lived.again == []
    assert len(lived.sent) == sum(len(case["then"]) for case in CASES.values())
