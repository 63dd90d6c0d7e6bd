"""Ticks of the bot: a schedule carries out what the applied strategies decide, and a run by hand only says it."""

from __future__ import annotations

import subprocess

import pytest

from gitops.bot.dispatch import run_verb
from gitops.doctor.examine import examine
from gitops.doctor.findings import Health
from gitops.forge.events import Event, ManualEvent, PushEvent, TickEvent, TimerEvent
from gitops.repository.results import LogLine, RunResult
from tests.support.bot_stage import Stage, said, take_lock, verdict
from tests.support.loop import LEDGER, Done, Loop, email
from tests.support.materialize.server_world import ServerWorld
from tests.support.memory_target import MemoryTarget
from tests.support.prefork import PROGRAM
from tests.support.target_world import TargetWorld

pytestmark = pytest.mark.e2e

COMPUTE = """
compute:
  targets:
    prod: {kind: materialize, url: {env: MZ_URL}}
  strategies:
    serving:
      target: prod
      target_size: {target_size: 50cc, replica_name: main}
"""
CREATE = 'CREATE CLUSTER REPLICA "serving"."main" (SIZE \'50cc\')'


@pytest.fixture
def world() -> TargetWorld:
    found = TargetWorld()
    found.add_cluster("serving")
    return found


@pytest.fixture
def stage(known: Loop) -> Stage:
    """A cluster whose strategies are applied."""
    stage = Stage(known)
    declared = (known.file(known.tip(), "cluster/cluster.yaml") or b"") + COMPUTE.encode()
    stage.propose("alice", "strategies", {"cluster/cluster.yaml": declared})
    before = known.tip()
    assert verdict(stage.pushed(before, stage.land(1), email("carol"))) is RunResult.DONE
    return stage


def _ticked(stage: Stage, world: TargetWorld, event: Event, cluster: str | None = None) -> list[LogLine]:
    bot = stage.bot()
    bot.repository.open_target = lambda _: MemoryTarget(world)
    return list(run_verb(bot, "tick", event, cluster))


def test_a_schedule_carries_out_what_a_run_by_hand_only_says(stage: Stage, world: TargetWorld) -> None:
    head = stage.loop.tip(LEDGER)
    lines = _ticked(stage, world, ManualEvent())
    assert f"tick of brain: {CREATE}: target_size: no replica has size 50cc" in said(lines)
    assert "1 statement(s) would be carried out" in said(lines)
    assert (world.replicas("serving"), stage.loop.tip(LEDGER)) == ({}, head)

    lines = _ticked(stage, world, TimerEvent())
    assert verdict(lines) is RunResult.DONE
    assert "[done]" in said(lines)
    assert world.replicas("serving") == {"main": "50cc"}
    assert stage.changesets()[0].kind.value == "tick"

    # A person says that it shall be done.
    world.clusters["serving"].replicas.clear()
    _ticked(stage, world, ManualEvent((("mode", "dry-run"),)))
    assert world.replicas("serving") == {}
    _ticked(stage, world, ManualEvent((("mode", "apply"),)))
    assert world.replicas("serving") == {"main": "50cc"}
    head = stage.loop.tip(LEDGER)
    assert "1 compute cluster(s) need nothing" in said(_ticked(stage, world, TickEvent(), "brain"))
    assert stage.loop.tip(LEDGER) == head


def test_a_schedule_leaves_a_busy_ledger_alone_and_is_no_failure(stage: Stage, world: TargetWorld) -> None:
    take_lock(stage.loop)
    lines = _ticked(stage, world, TimerEvent())
    assert "already_running" in said(lines)
    assert verdict(lines) is RunResult.DONE
    assert verdict(_ticked(stage, world, ManualEvent((("mode", "apply"),)))) is RunResult.PROBLEMS
    assert world.replicas("serving") == {}


def test_what_keeps_a_tick_from_working_is_said(stage: Stage, world: TargetWorld) -> None:
    lines = _ticked(stage, world, PushEvent("refs/heads/main", stage.loop.tip(), stage.loop.tip(), None))
    assert "does not handle a PushEvent" in said(lines)
    assert _ticked(stage, world, TimerEvent(), "another") == []
    # Nor does a machine that does not know the target.
    findings = examine(stage.local, {}, forge="local", cluster=None, probe=False)
    found = {each.check: each for each in findings if each.check in ("targets.url", "jobs.ticks")}
    assert {each.health for each in found.values()} == {Health.UNKNOWN}
    assert "MZ_URL" in found["targets.url"].detail
    world.stop()
    lines = _ticked(stage, world, TimerEvent())
    assert "target_unreachable" in said(lines)
    assert verdict(lines) is RunResult.PROBLEMS


@pytest.mark.slow
def test_a_timer_of_a_server_ticks_on_a_real_target(stage: Stage, stand_in: ServerWorld) -> None:
    """Everything as on a server: the program, the URL in its environment, and the driver."""
    stand_in.add_cluster("serving")
    loop = stage.loop

    def run(*arguments: str) -> Done:
        command = [*PROGRAM, "bot", "tick", *arguments, "--repo", str(loop.server)]
        environ = {**loop.environment("bot"), "MZ_URL": stand_in.url()}
        done = subprocess.run(command, cwd=loop.server, env=environ, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout + done.stderr)

    told = run()
    assert (told.code, stand_in.replicas("serving")) == (0, {}), told.text
    assert f"{CREATE}: target_size: no replica has size 50cc" in told.text
    done = run("--scheduled")
    assert done.code == 0, done.text
    assert stand_in.replicas("serving") == {"main": "50cc"}
    assert "1 compute cluster(s) need nothing" in run("--mode", "apply").text
    (row,) = stand_in.audit_rows
    assert (row.action_sql, row.executed) == (CREATE, True)
