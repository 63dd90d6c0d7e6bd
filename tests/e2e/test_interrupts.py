"""Real signals to real processes that are in the middle of an apply: what is recorded, and what the next run finds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.database.graph import describe_graph
from gitops.git.port import RefUpdate
from tests.support.bot_stage import QUERY as OTHER
from tests.support.cluster import QUERY, SCHEMA, WIDER, lance_engine
from tests.support.loop import FILES, LEDGER, MAIN, Loop
from tests.support.paused import PausedRun
from tests.support.prefork import PROGRAM, PYTHON

pytestmark = pytest.mark.e2e

AT_WORK = "cluster_apply.before_schema_apply"
# A shell starts what runs in its background with this signal ignored.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gitops.cli import main; main.entry()"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An applied graph whose schema changes, and a query that waits for that."""
    made = tmp_path / "cluster"
    made.mkdir()
    text = "version: 1\ngraphs:\n  g:\n    schema: g.pg\n    queries:\n      find_person:\n        file: q.gq\n"
    (made / "cluster.yaml").write_text(text)
    (made / "g.pg").write_text(SCHEMA)
    (made / "q.gq").write_text(QUERY)
    for verb in ("import", "apply"):
        assert main([verb, "--config", str(made), "-q"]) == 0
    (made / "g.pg").write_text(WIDER)
    (made / "q.gq").write_text(QUERY + "// again\n")
    return made


def paused(folder: Path, point: str, *more: str) -> PausedRun:
    return PausedRun.start(PYTHON, folder.parent / "pause", point, "apply", "--config", str(folder), *more)


def intents(folder: Path) -> list[Path]:
    return list((folder / "__cluster" / "recoveries").glob("*.json"))


def test_the_first_signal_finishes_a_migration_and_records_it(folder):
    run = paused(folder, AT_WORK)
    run.signal(signal.SIGINT)
    assert "starts nothing more, waits for 1 running; interrupt again to stop waiting" in run.asked()
    run.pause.go_on()
    code, out = run.ended()
    assert code == 128 + signal.SIGINT
    assert "Update schema.g [Applied]" in out
    assert "apply_interrupted: the run was interrupted: 1 of 2 changes are not applied" in out
    assert "fix: apply the rest: gitops apply" in out
    assert intents(folder) == []
    assert not (folder / "__cluster" / "lock.json").exists()
    assert main(["apply", "--config", str(folder), "-q"]) == 0
    assert main(["plan", "--config", str(folder), "--detailed-exitcode", "-q"]) == 0


def test_a_second_signal_leaves_the_intent_and_the_next_run_looks_first(folder):
    run = paused(folder, AT_WORK, "--events", str(folder.parent / "events.jsonl"))
    run.signal(signal.SIGTERM)
    run.asked()
    run.signal(signal.SIGTERM)
    code, out = run.ended()
    assert code == 128 + signal.SIGTERM
    assert "node_indeterminate schema.g: the run did not wait for its end" in out
    (intent,) = intents(folder)
    events = [json.loads(line) for line in (folder.parent / "events.jsonl").read_text().splitlines()]
    (lost,) = (e["data"] for e in events if e["type"] == "node_indeterminate")
    assert lost["recovery"] == intent.stem
    assert events[-1]["type"] == "apply_finished"
    assert not (folder / "__cluster" / "lock.json").exists()
    assert main(["apply", "--config", str(folder), "-q"]) == 0
    assert intents(folder) == []
    assert main(["plan", "--config", str(folder), "--detailed-exitcode", "-q"]) == 0


def test_a_signal_before_anything_is_changed_ends_at_once_and_gives_the_lock_back(folder):
    run = paused(folder, "ledger.lock.after_take")
    run.signal(signal.SIGTERM)
    code, out = run.ended()
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert not (folder / "__cluster" / "lock.json").exists()
    assert intents(folder) == []


@pytest.fixture
def people(tmp_path: Path) -> str:
    """The root of a graph without rows."""
    root = str(tmp_path / "people.omni")
    lance_engine().prepare_create(root, SCHEMA.encode(), actor=None).publish()
    return root


def test_a_load_that_is_interrupted_while_it_reads_says_that_nothing_was_loaded(people):
    command = [sys.executable, "-c", START, "graph", "load", "people", "-", "--root", people]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, stdin=subprocess.PIPE, text=True) as program:
        # More than a pipe holds: once the last of it is written, most of it is read.
        for number in range(20_000):
            program.stdin.write(json.dumps({"type": "Person", "data": {"handle": f"p{number}"}}) + "\n")
        program.stdin.flush()
        program.send_signal(signal.SIGINT)
        assert program.wait() == 128 + signal.SIGINT
        assert (program.stdout.read(), program.stderr.read()) == ("", "interrupted: nothing was loaded\n")
    assert describe_graph(people).manifest_version == 1


@pytest.mark.parametrize(
    ("point", "said", "version"),
    [
        ("engine.load.staged", "interrupted: nothing was loaded\n", 1),
        (
            "engine.load.after_publish",
            "interrupted: the load was being published; to see whether the graph has it: gitops graph log people\n",
            2,
        ),
    ],
)
def test_a_load_that_is_interrupted_says_whether_it_may_be_there(people, tmp_path, point, said, version):
    rows = tmp_path / "rows.ndjson"
    rows.write_text(json.dumps({"type": "Person", "data": {"handle": "ada"}}) + "\n")
    run = PausedRun.start(PYTHON, tmp_path / "pause", point, "graph", "load", "people", str(rows), "--root", people)
    run.signal(signal.SIGINT)
    assert run.asked() == said
    assert run.ended() == (128 + signal.SIGINT, "")
    assert describe_graph(people).manifest_version == version


def merged(loop: Loop) -> str:
    """A wider schema of the applied graph, and a query that waits for its migration."""
    schema = FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    mood: String?")
    head = loop.commit("carol", {"cluster/notes.pg": schema, "cluster/notes.gq": OTHER})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), head)])
    return head


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_a_job_of_the_bot_that_is_stopped_is_gone_on_with_by_the_next_one(loop: Loop, tmp_path: Path, signals: int):
    head = merged(loop)
    place = {"at": loop.server, "environ": loop.environment("bot")}
    run = PausedRun.start(PYTHON, tmp_path / "pause", AT_WORK, "bot", "apply", **place)
    run.signal(signal.SIGTERM)
    run.asked()
    if signals > 1:
        run.signal(signal.SIGTERM)
    else:
        run.pause.go_on()
    code, out = run.ended()
    assert code == 128 + signal.SIGTERM, out
    assert not loop.store.refs("refs/gitops/locks")
    # The run takes back what it staged, also what a second signal gave up: nothing is left for the next run to find out.
    assert loop.store.subtree(loop.store.commit(loop.tip(LEDGER)).tree, "__cluster/recoveries") is None
    assert "failure" in loop.status(head, "apply")
    ran = loop.program("bot", *PROGRAM, "bot", "apply", at=loop.server, check=False)
    assert (ran.code, loop.status(head, "apply")[:7]) == (0, "success"), ran.text
    again = loop.program("bot", *PROGRAM, "bot", "apply", at=loop.server, check=False)
    assert (again.code, "0 applied" in again.text) == (0, True), again.text
