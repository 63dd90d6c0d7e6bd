"""Drift and ticks of the bot: seen without writing, reported once per cluster; a schedule carries out what strategies decide."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gitops.bot.dispatch import run_verb
from gitops.core.faults import NoFaults
from gitops.doctor.examine import examine
from gitops.doctor.findings import Health
from gitops.forge.events import Event, ManualEvent, PushEvent, TickEvent, TimerEvent
from gitops.forge.port import RequestState
from gitops.forge.refs.records import RecordedIssue
from gitops.render.comment import drift_marker
from gitops.repository.cluster import drift_ref
from gitops.repository.results import LogLine, RunResult
from gitops.repository.wiring.stores import graph_engine
from tests.support.bot_stage import Stage, said, take_lock, verdict
from tests.support.loop import CLUSTER, CLUSTER_YAML, LEDGER, MAIN, Done, Loop, email
from tests.support.materialize.server_world import ServerWorld
from tests.support.memory_target import MemoryTarget
from tests.support.prefork import PROGRAM
from tests.support.target_world import TargetWorld

pytestmark = pytest.mark.e2e

LIVE = b"node Note {\n    title: String @key\n    text: String?\n    rank: I32?\n}\n"
OTHER = b"node Note {\n    title: String @key\n    text: String?\n    rank: I32?\n    mark: String?\n}\n"


def _look(stage: Stage) -> list[LogLine]:
    return list(run_verb(stage.bot(), "drift", ManualEvent()))


def _migrate(loop: Loop, source: bytes = LIVE) -> None:
    """Somebody changes a graph behind the back of the ledger."""
    prepared = graph_engine(NoFaults()).prepare_migration(str(loop.graph("notes")), source, actor="somebody")
    prepared.publish()


def _issues(stage: Stage) -> tuple[RecordedIssue, ...]:
    book = stage.loop.book
    return book.recorded_issues(drift_marker(CLUSTER), book.me())


def _schema(loop: Loop, commit: str) -> bytes | None:
    return loop.store.read(loop.store.commit(commit).tree, "cluster/notes.pg")


def test_nothing_differs_and_nothing_is_written(stage: Stage) -> None:
    refs = dict(stage.loop.store.refs("refs"))
    assert said(_look(stage)) == "drift of brain: none"
    found = dict(stage.loop.store.refs("refs"))
    assert found == refs


def test_another_schema_is_proposed_once_and_the_proposal_adopts_it(stage: Stage) -> None:
    _migrate(stage.loop)
    ledger = stage.loop.tip(LEDGER)
    notes = _look(stage)
    assert verdict(notes) is RunResult.WAITS
    assert "request 1 adopts it" in said(notes)
    request = stage.loop.request(1)
    assert (request.source, request.target) == (drift_ref(CLUSTER), MAIN)
    assert _schema(stage.loop, request.head) == LIVE
    assert stage.loop.status(request.head, "plan").startswith("success: 1 change")
    _look(stage)
    assert [r.number for r in stage.loop.book.requests()] == [1]
    assert stage.loop.request(1).head == request.head
    assert _issues(stage) == ()
    assert stage.loop.tip(LEDGER) == ledger
    # More drift moves the same proposal on.
    _migrate(stage.loop, OTHER)
    _look(stage)
    assert _schema(stage.loop, stage.loop.request(1).head) == OTHER
    # The way out that it offers: merge it.
    before = stage.loop.tip()
    assert verdict(stage.pushed(before, stage.land(1))) is RunResult.DONE
    assert said(_look(stage)) == "drift of brain: none"


def test_the_other_way_out_makes_it_what_is_declared(stage: Stage) -> None:
    _migrate(stage.loop)
    _look(stage)
    done = stage.loop.program("bot", *_gitops("refresh"), at=stage.loop.server)
    assert "revision" in done.text
    applied = stage.loop.program("bot", *_gitops("apply"), at=stage.loop.server, check=False)
    # Dropping a property loses data, which a migration does not do by itself: it says so and changes nothing.
    assert applied.code in (0, 1)
    assert (applied.code == 0) == ("drift of brain: none" in said(_look(stage)))


def test_a_proposal_whose_drift_has_gone_is_withdrawn(stage: Stage) -> None:
    graph = stage.loop.graph("notes")
    shutil.copytree(graph, stage.loop.folder / "before")
    _migrate(stage.loop)
    _look(stage)
    shutil.rmtree(graph)
    shutil.move(stage.loop.folder / "before", graph)
    notes = _look(stage)
    assert verdict(notes) is RunResult.DONE
    assert "request 1 is closed" in said(notes)
    assert stage.loop.request(1).state is RequestState.CLOSED
    assert said(_look(stage)) == "drift of brain: none"
    # It comes back as another proposal.
    _migrate(stage.loop)
    assert "request 2 adopts it" in said(_look(stage))


def test_a_proposal_that_cannot_be_withdrawn_stays(stage: Stage) -> None:
    graph = stage.loop.graph("notes")
    shutil.copytree(graph, stage.loop.folder / "before")
    _migrate(stage.loop)
    _look(stage)
    shutil.rmtree(graph)
    shutil.move(stage.loop.folder / "before", graph)
    stage.broken.add("withdraw")
    notes = _look(stage)
    assert verdict(notes) is RunResult.DONE
    assert "the change request of brain stays open: forge_refused" in said(notes)
    stage.broken.clear()
    assert "request 1 is closed" in said(_look(stage))


def test_a_graph_that_is_gone_is_an_issue_until_it_is_back(stage: Stage) -> None:
    shutil.move(stage.loop.graph("legacy"), stage.loop.folder / "away")
    notes = _look(stage)
    assert verdict(notes) is RunResult.WAITS
    assert "graph.legacy" in said(notes)
    _look(stage)
    (issue,) = _issues(stage)
    assert issue.open
    assert "Restore the folder of each graph" in issue.body
    assert "gitops approve graph.legacy --cluster brain" in issue.body
    assert "### Return to the declared state" not in issue.body
    assert stage.loop.book.requests(state=RequestState.OPEN) == ()
    shutil.move(stage.loop.folder / "away", stage.loop.graph("legacy"))
    assert said(_look(stage)) == "drift of brain: none"
    assert [i.open for i in _issues(stage)] == [False]


def test_what_cannot_be_looked_at_is_no_drift_and_no_peace(stage: Stage) -> None:
    manifests = stage.loop.graph("legacy") / "manifests"
    for file in sorted(manifests.rglob("*.json")):
        file.write_bytes(b"{")
    notes = _look(stage)
    assert verdict(notes) is RunResult.PROBLEMS
    assert "not everything could be read" in said(notes)
    assert _issues(stage) == ()


def test_a_forge_that_takes_no_proposal_gets_an_issue(stage: Stage) -> None:
    _migrate(stage.loop)
    stage.broken.add("propose")
    notes = _look(stage)
    assert "cannot be proposed" in said(notes)
    (issue,) = _issues(stage)
    assert issue.open
    stage.broken.clear()
    _look(stage)
    assert [i.open for i in _issues(stage)] == [False]


def _gitops(verb: str) -> tuple[str, ...]:
    return (*PROGRAM, verb, "--cluster", CLUSTER)


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
def ticking(known: Loop) -> Stage:
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


def test_a_schedule_carries_out_what_a_run_by_hand_only_says(ticking: Stage, world: TargetWorld) -> None:
    head = ticking.loop.tip(LEDGER)
    lines = _ticked(ticking, world, ManualEvent())
    assert f"tick of brain: {CREATE}: target_size: no replica has size 50cc" in said(lines)
    assert "1 statement would be carried out" in said(lines)
    assert (world.replicas("serving"), ticking.loop.tip(LEDGER)) == ({}, head)

    lines = _ticked(ticking, world, TimerEvent())
    assert verdict(lines) is RunResult.DONE
    assert "[done]" in said(lines)
    assert world.replicas("serving") == {"main": "50cc"}
    assert ticking.changesets()[0].kind.value == "tick"

    # A person says that it shall be done.
    world.clusters["serving"].replicas.clear()
    _ticked(ticking, world, ManualEvent((("mode", "dry-run"),)))
    assert world.replicas("serving") == {}
    _ticked(ticking, world, ManualEvent((("mode", "apply"),)))
    assert world.replicas("serving") == {"main": "50cc"}
    head = ticking.loop.tip(LEDGER)
    assert "nothing to do for 1 compute cluster" in said(_ticked(ticking, world, TickEvent(), "brain"))
    assert ticking.loop.tip(LEDGER) == head


def test_a_schedule_leaves_a_busy_ledger_alone_and_is_no_failure(ticking: Stage, world: TargetWorld) -> None:
    take_lock(ticking.loop)
    lines = _ticked(ticking, world, TimerEvent())
    assert "already_running" in said(lines)
    assert verdict(lines) is RunResult.DONE
    assert verdict(_ticked(ticking, world, ManualEvent((("mode", "apply"),)))) is RunResult.PROBLEMS
    assert world.replicas("serving") == {}


def test_what_keeps_a_tick_from_working_is_said(ticking: Stage, world: TargetWorld) -> None:
    lines = _ticked(ticking, world, PushEvent("refs/heads/main", ticking.loop.tip(), ticking.loop.tip(), None))
    assert "does not handle a PushEvent" in said(lines)
    assert _ticked(ticking, world, TimerEvent(), "another") == []
    # Nor does a machine that does not know the target.
    findings = examine(ticking.local, {}, forge="local", cluster=None, probe=False)
    found = {each.check: each for each in findings if each.check in ("targets.url", "jobs.ticks")}
    assert {each.health for each in found.values()} == {Health.UNKNOWN}
    assert "MZ_URL" in found["targets.url"].detail
    world.stop()
    lines = _ticked(ticking, world, TimerEvent())
    assert "target_unreachable" in said(lines)
    assert verdict(lines) is RunResult.PROBLEMS


@pytest.mark.slow
def test_a_timer_of_a_server_ticks_on_a_real_target(ticking: Stage, stand_in: ServerWorld) -> None:
    """Everything as on a server: the program, the URL in its environment, and the driver."""
    stand_in.add_cluster("serving")
    loop = ticking.loop

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
    assert "nothing to do for 1 compute cluster" in run("--mode", "apply").text
    (row,) = stand_in.audit_rows
    assert (row.action_sql, row.executed) == (CREATE, True)


SECTION = """\
compute:
  targets: {prod: {kind: materialize, url: {env: MZ_URL}}}
  strategies: {serving: {target: prod, target_size: {target_size: 50cc}}}
"""
CREATE_50CC = """CREATE CLUSTER REPLICA "serving"."r_50cc" (SIZE '50cc');"""


@pytest.mark.slow
def test_a_merged_strategy_is_carried_out_and_audited(loop: Loop, stand_in: ServerWorld) -> None:
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", "old", "25cc", hydrated=True)
    files = {"cluster/cluster.yaml": (CLUSTER_YAML + SECTION).encode()}
    loop.move(MAIN, loop.commit("alice", files, message="Declare a strategy\n"))
    url, server = stand_in.url(), ("--repo", str(loop.server))
    clone = loop.clone("carol")
    (clone / "cluster/.env").write_text(f"MZ_URL='{url}'\n")
    assert CREATE_50CC in loop.gitops("carol", "strategies", "dry-run").text
    (clone / "cluster/cluster.yaml").write_text("not what was merged")
    assert CREATE_50CC in loop.gitops("carol", "strategies", "dry-run").text
    refused = loop.gitops("carol", "strategies", "apply", check=False)
    assert (refused.code, stand_in.replicas("serving")) == (1, {"old": "25cc"})
    assert "ledger_not_writable" in refused.text
    done = loop.gitops("bot", "strategies", "apply", *server, "--cluster", "brain", "--postgres-url", url)
    assert CREATE_50CC in done.text
    assert stand_in.replicas("serving") == {"old": "25cc", "r_50cc": "50cc"}
    assert [row.executed for row in stand_in.audit_rows] == [True]
    loop.program("carol", "git", "fetch", "-q")
    loop.gitops("carol", "audit")
    assert "target_size: no replica has size 50cc" in loop.gitops("carol", "changeset", "show", "--latest").text
