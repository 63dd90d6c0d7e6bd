"""`gitops graph` with arguments, files and outputs that will not do: a code and a way out, and never a traceback."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gitops.cli.main import main
from tests.support.mutations import WrittenGraph

pytestmark = pytest.mark.e2e

SCHEMA = "node P { k: String @key  code: String? @unique }"
ALL = "query q() { match { $p: P } return { $p.k } }"
ONE = "query q($k: String) { match { $p: P { k: $k } } return { $p.k } }"


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    made = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    made.load([{"type": "P", "data": {"k": "a"}}])
    return made


def answer(graph: WrittenGraph, *arguments: str) -> int:
    verb, *rest = arguments
    try:
        return main(["graph", verb, "g", *rest, "--root", graph.uri])
    except SystemExit as refused:
        return int(refused.code or 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["query", "--text", ALL, "--timeout", "nan"], "--timeout"),
        (["query", "--text", ALL, "--timeout", "0"], "--timeout"),
        (["query", "--text", ALL, "--memory", "-5"], "--memory"),
        (["query", "--text", ALL, "--at", "9" * 30], "graph_version_unknown"),
        (["query", "--text", ALL, "--at", "0001-01-01T00:00:00+23:59"], "usage_error"),
        (["query", "--text", ALL, "--at", "9999-12-31T23:59:59-23:59"], "usage_error"),
        (["query", "--text", "\udcff"], "query_parse_error"),
        (["query", "--text", ONE, "--param", "k=\udcff"], "query_params_invalid"),
        (["query", "--file", "-", "--params", "-"], "usage_error"),
        (["query", "--file", "a\0b"], "usage_error"),
        (["query", "--text", ALL, "--params", "a\0b"], "usage_error"),
        (["query", "--text", ALL, "--embeddings", "m@https://ann:hunter2@host/v1?token=hunter2"], "embedding_failed"),
        (["show", "--type", "P", "--limit", "-1"], "--limit"),
        (["show", "--type", "P", "--limit", "0"], "--limit"),
        (["log", "--limit", "-5"], "--limit"),
        (["load", "a\0b"], "usage_error"),
        (["export", "--output", ""], "cannot write"),
        (["export", "--output", "/"], "cannot write"),
        (["export", "--output", "a\0b"], "cannot write"),
        (["export", "--output", "/dev/full"], "cannot write"),
    ],
)
def test_what_will_not_do_is_refused_in_words(
    graph: WrittenGraph, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert answer(graph, *arguments) in (1, 2)
    err = capsys.readouterr().err
    assert said in err
    assert "hunter2" not in err
    assert err.replace("\n", "").isprintable()


@pytest.mark.parametrize("option", ["--file", "--params"])
def test_an_input_that_is_too_long_is_not_cut(
    graph: WrittenGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "long").write_text(f"{{}}{' ' * 2**20}" if option == "--params" else f"{ALL}\n{'/' * 2**20}")
    source = [] if option == "--file" else ["--text", ALL]
    assert answer(graph, "query", *source, option, str(tmp_path / "long")) == 1
    assert "more than 1048576 bytes" in capsys.readouterr().err


def test_what_records_say_does_not_act_on_a_terminal(
    graph: WrittenGraph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"type": "P", "data": {"k": k, "code": "\x1b[2J\u202e"}} for k in "xy"]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert answer(graph, "load", "-") == 1
    out = capsys.readouterr().out
    assert "@unique violation on P.code" in out
    assert out.replace("\n", "").isprintable()


def test_an_export_goes_through_pipes_and_links_and_replaces_neither(graph: WrittenGraph, tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert answer(graph, "export", "--output", str(pipe)) == 0
    reader.join()
    assert answer(graph, "export", "--output", str(link)) == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert file.read_text() == read[0] == '{"type":"P","data":{"id":"a","k":"a"}}\n'


@pytest.mark.parametrize("arguments", [["export"], ["query", "--text", ALL, "--json"], ["log"]])
def test_an_output_that_is_full_fails_the_command(graph: WrittenGraph, arguments: list[str]) -> None:
    verb, *rest = arguments
    command = [sys.executable, "-m", "gitops", "graph", verb, "g", *rest, "--root", graph.uri]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    # Who finds out is the last write or the flush at the end, as the buffer goes.
    assert done.returncode == 1
    assert done.stderr.startswith("ERROR storage_failed: ")
    assert "No space left on device" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", [b"", b"junk"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "--type", "P"],
        ["export"],
        ["query", "--text", ALL],
        ["mutate", "--text", 'query d() { delete P where code = "x" }'],
        ["diff", "main@1", "main"],
        ["verify", "--deep"],
    ],
)
def test_a_data_file_that_is_damaged_ends_a_command_in_words(
    graph: WrittenGraph, capsys: pytest.CaptureFixture[str], arguments: list[str], damage: bytes
) -> None:
    for file in Path(graph.uri).glob("nodes/*/data/*"):
        file.write_bytes(damage)
    assert answer(graph, *arguments) == 1
    told = capsys.readouterr()
    assert told.err.startswith("ERROR ") or "problem" in told.out
    assert ".rs:" not in told.err + told.out
