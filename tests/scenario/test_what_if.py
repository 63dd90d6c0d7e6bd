"""What a change of strategies would do: in the plan that changes them, and on the days that a target recorded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.cluster.model.compute import WhatIf
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.targets.port import AuditRow
from gitops.compute.strategies.statements import create_replica
from gitops.compute.ticks.targets import Selection
from gitops.compute.ticks.what_if import Reach, replays, with_what_if
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.render.json import envelope
from gitops.render.text import to_text
from gitops.repository.wiring.system import SystemClock
from tests.support.cluster import Cluster, codes
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import Fault, TargetWorld, fresh_world
from tests.support.ticks import Ticks

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
def cluster(tmp_path):
    made = Watched(tmp_path)
    made.converge()
    return made


def chosen(name: str) -> Selection:
    return Selection(re.compile(name))


def only(outcome: PlanOutcome) -> WhatIf:
    [found] = outcome.what_if
    return found


def test_a_plan_that_changes_no_strategies_asks_no_target(cluster):
    assert cluster.ask().what_if == ()
    assert cluster.opened == []


def test_what_new_strategies_would_do_now_is_part_of_the_plan_and_not_of_its_digest(cluster):
    cluster.declare(serving=SERVING)
    outcome = cluster.ask()
    found = only(outcome)
    assert [action.sql for action in found.actions] == [create_replica("serving", "r_50cc", "50cc")]
    assert found.actions[0].reasons == ("target_size: no replica has size 50cc",)
    assert outcome.plan == cluster.plan().plan
    assert "CREATE CLUSTER REPLICA" in to_text(outcome)
    assert envelope(outcome)["what_if"][0]["actions"][0]["sql"] == found.actions[0].sql


def test_applied_strategies_are_compared_with_changed_ones_on_the_last_days(cluster):
    cluster.declare(serving=SERVING)
    assert cluster.apply().converged
    cluster.busy(9)
    cluster.declare(serving={**SERVING, "idle_suspend": {"idle_after_s": 1800}})
    found = only(cluster.ask())
    assert (found.days, found.said) == (7, "")
    assert found.before is not None
    assert found.after is not None
    assert 7 * 24 * 0.5 - 1 < found.before.credits < 7 * 24 * 0.5 + 1
    # An hour of each day, the idle time after it, and that until it is seen.
    assert 7 * 1.5 * 0.5 < found.after.credits < 7 * 2 * 0.5
    assert found.after.replica_hours < found.before.replica_hours
    assert "credits from" in to_text(replace(cluster.plan(), what_if=(found,)))


def test_without_anything_recorded_there_is_no_comparison(cluster):
    cluster.declare(serving=SERVING)
    assert only(cluster.ask()).before is None


def test_a_size_that_an_apply_would_refuse_is_named(cluster):
    cluster.declare(serving={"target": "prod", "target_size": {"target_size": "51cc"}})
    outcome = cluster.ask()
    (found,) = outcome.what_if
    assert found.unlisted == ("51cc",)
    line = "    an apply refuses these strategies: target prod has no size 51cc (replica_size_invalid)"
    assert line in to_text(outcome).splitlines()
    assert envelope(outcome)["what_if"][0]["unlisted_sizes"] == ["51cc"]


def test_strategies_that_go_decide_nothing_any_more(cluster):
    cluster.declare(serving=SERVING)
    cluster.apply()
    cluster.declare()
    assert (only(cluster.ask()).actions, only(cluster.ask()).said) == ((), "")


def test_a_request_reaches_only_targets_of_applied_strategies(cluster):
    cluster.declare(serving=SERVING)
    new = only(cluster.ask(Reach.APPLIED))
    assert new.said.startswith("no strategies are applied on target prod yet")
    assert "run gitops plan in a clone" in new.said
    assert cluster.opened == []
    cluster.apply()
    cluster.opened.clear()
    cluster.declare(url="OTHER_SECRET", serving={**SERVING, "target_size": {"target_size": "100cc"}})
    assert only(cluster.ask(Reach.APPLIED)).said.startswith("target prod is not applied as it is declared here")
    assert cluster.opened == []
    cluster.declare(serving={**SERVING, "target_size": {"target_size": "100cc"}})
    assert only(cluster.ask(Reach.NONE)).said.startswith("a change request of a fork reaches no target")
    assert cluster.opened == []
    assert only(cluster.ask(Reach.APPLIED)).actions
    assert cluster.opened == ["MZ_URL"]


def test_a_target_that_only_has_the_name_of_an_applied_one_is_another_target(cluster):
    cluster.declare(serving=SERVING)
    cluster.apply()
    cluster.opened.clear()
    cluster.declare(url="OTHER_SECRET", other={**SERVING, "cluster": "serving"})
    new, gone = cluster.ask(Reach.APPLIED).what_if
    assert (new.key, gone.key) == ("other", "serving")
    assert new.said.startswith("target prod is not applied as it is declared here")
    assert (gone.said, cluster.opened) == ("", ["MZ_URL"])


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
def test_a_target_that_does_not_answer_is_one_line_and_the_plan_is_as_without_it(cluster, spoil, code):
    cluster.declare(serving=SERVING)
    spoil(cluster)
    outcome = cluster.ask()
    found = only(outcome)
    assert (found.code, found.actions, found.before) == (code, (), None)
    assert "host.internal" not in found.said
    assert outcome.lands
    without = cluster.plan()
    assert (outcome.plan, outcome.diagnostics) == (without.plan, without.diagnostics)
    assert f"({code})" in to_text(outcome)


def test_audit_rows_that_cannot_be_read_leave_the_decision(cluster):
    cluster.declare(serving=SERVING)
    cluster.busy(2)
    cluster.world.fail_next(Fault.ERROR, after=9)
    found = only(cluster.ask())
    assert cluster.world.log[-1] == "select actions"
    assert found.actions
    assert found.before is None


def test_the_recorded_days_are_played_with_the_applied_and_the_declared_strategies(cluster):
    cluster.declare(serving=SERVING)
    cluster.apply()
    cluster.busy(3)
    for day, replica in ((2, "old"), (1, "main")):
        sql, at = create_replica("serving", replica, "25cc"), cluster.clock.now() - timedelta(days=day)
        cluster.world.insert_audit(AuditRow(replica, "u1", sql, {"reasons": []}, True), at)
    cluster.declare(serving={**SERVING, "target_size": {"target_size": "100cc"}}, other={**SERVING})
    workspace = cluster.workspace()
    found = replays(workspace, cluster.open, chosen("serving"), last=timedelta(days=2, hours=1))
    assert codes(found) == []
    [each] = found.replayed
    assert dict(each.replay.scenario.replicas) == {}
    assert each.before.usage.credits < each.after.usage.credits
    assert dict(each.after.steps[-1].replicas) == {"r_100cc": "100cc"}
    every = replays(workspace, cluster.open, Selection(), last=timedelta(days=1))
    assert [each.key for each in every.replayed] == ["serving"]
    assert codes(every) == ["compute_cluster_missing"]
    assert codes(replays(workspace, cluster.open, chosen("nothing"), last=timedelta(days=1))) == [
        "compute_cluster_missing"
    ]
    cluster.world.stop()
    assert codes(replays(workspace, cluster.open, chosen("serving"), last=timedelta(days=1))) == ["target_unreachable"]


@pytest.fixture
def ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ticks:
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


def test_the_command_says_what_is_recorded_and_what_is_assumed_and_compares(ticks, capsys, tmp_path):
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
def test_what_does_not_fit_is_refused(ticks, capsys, arguments, code):
    assert main(["strategies", "simulate", *arguments]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_target_that_is_down_has_its_exit_code(ticks):
    ticks.world.stop()
    assert main(["strategies", "simulate", "--from-audit"]) == 3
