"""What a person reads while `gitops apply` runs: on a real terminal, in a log, and nothing where nothing is wanted."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from gitops.cli.main import main, parse_options
from gitops.cli.progress import watching
from gitops.cluster.ledger.records import read_run
from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import RunEvent
from gitops.render.changesets import to_gantt
from gitops.repository.wiring.system import SystemClock
from tests.support.prefork import PROGRAM, start

SCHEMA = "node Person {\n  handle: String @key\n}\n"
QUERY = "query q{n}() {{\n  match {{\n    $p: Person\n  }}\n  return {{ $p.handle }}\n}}\n"
# 4 graphs with a schema and 3 queries each.
CHANGES = 20
ENDED = re.compile(r"apply \d+:\d\d +\d+/20 create (graph|schema|query)\.g\d\S*, \d+\.\d s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster of 20 resources whose ledger is started."""
    made = tmp_path / "cluster"
    made.mkdir()
    text = "version: 1\ngraphs:\n"
    for graph in ("g0", "g1", "g2", "g3"):
        names = [f"q{n}" for n in range(3)]
        text += f"  {graph}:\n    schema: person.pg\n    queries:\n"
        text += "".join(f"      {name}:\n        file: {name}.gq\n" for name in names)
    (made / "cluster.yaml").write_text(text)
    (made / "person.pg").write_text(SCHEMA)
    for n in range(3):
        (made / f"q{n}.gq").write_text(QUERY.format(n=n))
    assert main(["import", "--config", str(made), "-q"]) == 0
    return made


def drained(master: int) -> str:
    """What was written to a terminal until its other side is closed."""
    shown = b""
    with os.fdopen(master, "rb", buffering=0) as terminal, suppress(OSError):  # EIO: the other side is closed
        while piece := terminal.read(65536):
            shown += piece
    return shown.decode().replace("\r\n", "\n")


def on_terminal(folder: Path, *options: str, term: str = "xterm") -> tuple[str, str]:
    """Standard output, which is a file, and what the terminal got, of an apply whose standard error is a terminal."""
    start()
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term, "COLUMNS": "100", "LINES": "30"}
    command = [*PROGRAM, "apply", "--config", str(folder), *options]
    with (folder.parent / "output").open("w+b") as output:
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=slave, env=environ)
        os.close(slave)
        shown = drained(master)
        assert run.wait() == 0
        output.seek(0)
        return output.read().decode(), shown


def test_a_terminal_shows_a_view_that_goes_away(folder):
    output, shown = on_terminal(folder)
    assert output.startswith("cluster apply: 20 applied")
    assert re.search(r"apply \d+:\d\d 20 of 20 done, 0 running", shown)
    # The cursor is given back, and the lines of the view are erased.
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0
    assert "\x1b[2K" in shown
    assert ENDED.search(shown) is None


def test_with_verbose_a_line_for_each_change_stays(folder):
    _, shown = on_terminal(folder, "-v", "--parallel", "4", "--no-color")
    assert re.search(r"\x1b\[[0-9;]*3[0-9][;m]", shown) is None
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert len(set(ENDED.findall(plain))) == 3
    assert len(ENDED.findall(plain)) == CHANGES
    assert "20 done of 20" in plain


def test_a_terminal_that_cannot_redraw_gets_lines(folder):
    _, shown = on_terminal(folder, "-v", term="dumb")
    assert "\x1b" not in shown
    assert len(ENDED.findall(shown)) == CHANGES


def test_what_runs_has_lines_of_its_own_and_an_interrupt_gives_the_cursor_back(monkeypatch):
    node = {"action": Action.CREATE, "kind": "graph", "position": 0}
    events = [
        ("apply_started", None, {"nodes": 2, "changes": 2, "limit": 1, "fail_fast": False}),
        ("node_started", "graph.a", {**node, "worker": 1, "locks": (), "waited_ms": 0}),
        ("node_lock_wait", "graph.b\x1b[2J", {**node, "locks": ("graph:a",), "holders": ("graph.a",)}),
    ]
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")

    def interrupted() -> None:
        with watching(parse_options(["apply"])) as on_event:
            for seq, (kind, name, facts) in enumerate(events, start=1):
                on_event(RunEvent(seq, SystemClock().now(), kind, name, facts))
            raise KeyboardInterrupt

    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    shown = drained(master)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.replace("\x1b[2K", "\n")).split("\n")
    assert [re.sub(r"\d:\d\d", "0:00", line.rstrip()) for line in lines if re.search("1 running|create", line)][
        -3:
    ] == [
        f"{'━' * 24} apply 0:00 0 of 2 done, 1 running, 1 waiting",
        "  0:00 create graph.a",
        "  waits create graph.b\\x1b[2J for graph:a, held by graph.a",
    ]
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0


@pytest.mark.parametrize("options", [["--json", "-v"], ["-q", "-v"]])
def test_nothing_is_shown_where_nothing_is_wanted(folder, options):
    output, shown = on_terminal(folder, *options)
    assert shown == ""
    if "--json" in options:
        assert json.loads(output)["applied_count"] == CHANGES
    else:
        assert output == ""


def test_a_log_gets_plain_lines_and_the_report_stays_as_it_is(folder, tmp_path, capsys):
    assert main(["apply", "--config", str(folder), "-v"]) == 0
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert all(ENDED.fullmatch(line) for line in lines[:-1])
    assert len(lines) == CHANGES + 1
    assert [line.split()[2] for line in lines[:-1]] == [f"{n}/20" for n in range(1, 21)]
    assert printed.out.startswith("cluster apply: 20 applied")


def test_events_are_kept_in_a_file_as_they_happen(folder, tmp_path, capsys):
    file = tmp_path / "events.jsonl"
    assert main(["apply", "--config", str(folder), "-q", "--events", str(file)]) == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("apply_started", "apply_finished")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    ended = [e["data"]["node"] for e in events if e["type"] == "node_finished" and e["data"]["kind"] != "barrier"]
    assert len(set(ended)) == CHANGES
    assert capsys.readouterr().err == ""


def test_the_record_of_a_run_is_kept_in_a_file(folder, tmp_path):
    file, chart = tmp_path / "run.json", tmp_path / "run.mmd"
    command = ["apply", "--config", str(folder), "-q", "--parallel", "2", "--run", str(file), "--gantt", str(chart)]
    assert main(command) == 0
    run = read_run(file.read_bytes())
    assert run.workers == 2
    assert len(run.nodes) >= CHANGES
    assert all(node.outcome.succeeded for node in run.nodes)
    assert chart.read_text() == to_gantt(run)


def test_the_ledger_keeps_how_a_run_went_with_its_changeset(folder, tmp_path, capsys):
    file, chart = tmp_path / "run.json", tmp_path / "run.mmd"
    assert main(["apply", "--config", str(folder), "-q", "--run", str(file)]) == 0
    (kept,) = (folder / "__cluster" / "changesets").glob("*.run.json")
    assert kept.read_bytes() == file.read_bytes()
    show = ["changeset", "show", "--latest", "--config", str(folder)]
    capsys.readouterr()
    assert main([*show, "--gantt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"  run: 20 of 20 node\(s\), 1 worker\(s\), \d+\.\d\d s", lines[-21])
    # How long it waited for the one worker is the machine's affair.
    assert re.match(r"    graph\.g0 +\|[#. ]{40}\| \d+\.\d\d s done(, waited \d+\.\d\d s for a worker)?$", lines[-20])
    assert main([*show, "--json", "--gantt", str(chart)]) == 0
    (form,) = json.loads(capsys.readouterr().out)["changesets"]
    assert form["run"] == json.loads(file.read_text())
    assert chart.read_text() == to_gantt(read_run(kept.read_bytes()))
    kept.write_text("{}")
    assert main([*show, "--gantt"]) == 0
    assert "WARN  run_record_invalid chs-" in capsys.readouterr().out
    assert main([*show, "--gantt", str(tmp_path)]) == 0
    kept.write_bytes(file.read_bytes())
    assert main([*show, "--gantt", str(tmp_path)]) == 2


def test_a_file_that_cannot_be_written_is_said_before_anything_is_applied(folder, tmp_path, capsys):
    assert main(["apply", "--config", str(folder), "--events", str(tmp_path)]) == 1
    assert "usage_error" in capsys.readouterr().err
    assert not (folder / "graphs").exists()


def test_a_full_disk_ends_the_file_and_not_the_apply(folder, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("needs the device /dev/full")
    assert main(["apply", "--config", str(folder), "--events", "/dev/full", "--run", "/dev/full"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("cluster apply: 20 applied")
    assert printed.err.count("events are no longer written") == 1
    assert printed.err.count("the record of the run is not written") == 1


def test_a_reader_that_goes_away_does_not_end_the_apply(folder):
    start()
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [*PROGRAM, "apply", "--config", str(folder), "-v"], stdout=subprocess.PIPE, stderr=writer, check=False
    )
    os.close(writer)
    assert run.returncode == 0
    assert run.stdout.startswith(b"cluster apply: 20 applied")


def test_a_dry_run_writes_its_events_and_nothing_else(folder, tmp_path, capsys):
    file, before = tmp_path / "events.jsonl", sorted(folder.rglob("*"))
    command = ["apply", "--dry-run", "--config", str(folder), "--events", str(file)]
    assert main([*command, "--json", "--parallel", "2"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["status"], form["state_written"], form["applied_count"]) == ("dry_run", False, CHANGES)
    assert {node["outcome"] for node in form["nodes"]} == {"dry_run"}
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [e["data"]["node"] for e in events if e["type"] == "node_started"] == [node["id"] for node in form["nodes"]]
    assert main([*command, "-v"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("cluster apply, dry run: 20 would be applied\n   1. create graph.g0")
    assert re.match(r"apply 0:00  1/20 create graph\.g0, dry run\n", printed.err)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("option", "value"), [("--timeout", "1m"), ("--run", "f"), ("--gantt", "f"), ("--on-failure", "keep")]
)
def test_what_a_dry_run_has_no_use_for_is_refused(folder, capsys, option, value):
    assert main(["apply", "--atomic", "--dry-run", "--config", str(folder), option, value]) == 1
    refused = capsys.readouterr().err
    assert f"ERROR usage_error: {option} " in refused
    assert f"fix: leave {option} out: gitops apply --dry-run" in refused
