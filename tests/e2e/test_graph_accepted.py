"""`gitops graph` with bad data, arguments, files and outputs, limits, files of columns: a code and a way out."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gitops.cli.main import main
from gitops.database.graph.bulk import BulkTask
from gitops.database.graph.history.branches import list_branches
from gitops.database.graph.snapshot import open_snapshot
from tests.support.histories import History, read_rows
from tests.support.http_service import HttpService, Reply, Request, as_json
from tests.support.mutations import WrittenGraph

pytestmark = pytest.mark.e2e

SCHEMA = """
node P { k: String @key  n: I32? @range(n, 0..9)  at: Date?  text: String?  vec: Vector(2)? @embed(text) }
edge E: P -> P { w: F64? }
"""
GOOD = b'{"type":"P","data":{"k":"new"}}\n'
HUNDRED_MB = 100 * 2**20

Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    made = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    made.load([{"type": "P", "data": {"k": k, "n": 1}} for k in "ab"] + [{"edge": "E", "from": "a", "to": "b"}])
    return made


@pytest.fixture
def run(graph: WrittenGraph, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `gitops graph VERB` with `--json`: the exit code and the document."""

    def command(verb: str, *arguments: str) -> tuple[int, Any]:
        code = main(["graph", verb, "g", *arguments, "--root", graph.uri, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return command


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"P","data":{"k":"x","n":"1"}}', "P.n expects I32?"),
        (b'{"type":"P","data":{"k":7}}', "P.k expects String"),
        (b'{"type":"P","data":{"k":"x","at":"2026-02-30"}}', "invalid Date literal"),
        (b'{"type":"Nope","data":{}}', "unknown node type 'Nope'"),
        (b'{"edge":"Nope","from":"a","to":"b"}', "unknown edge type 'Nope'"),
        (b'{"edge":"E","from":"a","to":"gone"}', "dst 'gone' not found in P"),
        (GOOD.strip(), "@unique violation on P.k: value new"),
        (b'{"type":"P","data":{"k":"x","n":10}}', "@range violation on P.n"),
        (b'{"type":"P","data":{"k":"\xff"}}', "record 2: the line is not UTF-8 at byte 25"),
        (b'{"type":"P","data":{"k":"x"', "invalid JSON at record 2"),
        (b'{"type":"P","data":{"k":"x","k":"y"}}', "appears twice"),
    ],
)
def test_bad_data_is_told_by_line_and_code_and_changes_nothing(
    graph: WrittenGraph, run: Run, tmp_path: Path, line: bytes, said: str
) -> None:
    file, before = tmp_path / "bad.ndjson", (graph.lines(), graph.version)
    file.write_bytes(GOOD + b"\n" + line)
    exit_code, told = run("load", str(file))
    assert (exit_code, told["ok"]) == (1, False)
    [problem] = told["problems"]
    assert (problem["code"], problem["source"]["line"]) == ("graph_data_invalid", 3)
    assert said in problem["message"]
    assert (graph.lines(), graph.version) == before


def test_a_key_that_exists_has_a_code_of_its_own_when_it_is_appended(
    graph: WrittenGraph, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "twice.ndjson").write_bytes(GOOD + b'{"type":"P","data":{"k":"a"}}\n')
    exit_code, told = run("load", str(tmp_path / "twice.ndjson"), "--mode", "append")
    assert (exit_code, [problem["code"] for problem in told["problems"]]) == (1, ["key_conflict"])
    assert told["problems"][0]["source"]["line"] == 2
    assert len(graph.rows("P")) == 2


def test_records_that_are_refused_make_no_branch(graph: WrittenGraph, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.ndjson").write_bytes(GOOD + b"{}")
    assert run("load", str(tmp_path / "bad.ndjson"), "--branch", "dev", "--from", "main")[0] == 1
    assert [branch.name for branch in list_branches(graph.uri)] == ["main"]
    (tmp_path / "good.ndjson").write_bytes(GOOD)
    assert run("load", str(tmp_path / "good.ndjson"), "--branch", "dev", "--from", "main")[0] == 0
    assert (len(graph.rows("P")), len(graph.rows("P", "dev"))) == (2, 3)


def test_a_line_of_a_hundred_megabytes_is_refused(graph: WrittenGraph, run: Run, tmp_path: Path) -> None:
    file, before = tmp_path / "long.ndjson", (graph.lines(), graph.version)
    with file.open("wb") as stream:
        stream.write(GOOD + b'{"type":"P","data":{"k":"')
        stream.truncate(HUNDRED_MB)
    exit_code, told = run("load", str(file))
    [problem] = told["problems"]
    assert (exit_code, problem["code"], problem["source"]["line"]) == (1, "graph_data_invalid", 2)
    assert "longer than 33554432 bytes" in problem["message"]
    assert (graph.lines(), graph.version) == before


@pytest.mark.parametrize(
    ("option", "code"), [(("--timeout", "0.000001"), "query_timeout"), (("--memory", "1"), "query_memory_exceeded")]
)
def test_a_query_stays_within_its_limits(graph: WrittenGraph, run: Run, option: tuple[str, str], code: str) -> None:
    graph.load([{"type": "P", "data": {"k": f"k{at}"}} for at in range(300)])
    text = "query q() { match { $a: P  $b: P  $c: P } return { count($a) } }"
    exit_code, told = run("query", "--text", text, *option)
    assert (exit_code, [problem["code"] for problem in told["problems"]]) == (1, [code])
    assert told["problems"][0]["fix"]


def _counting(request: Request) -> Reply:
    """A service whose vectors tell the length and the first letter of the text."""
    vectors = [[float(len(text)), float(ord(text[0]))] for text in request.body["input"]]
    return as_json({"data": [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]})


def test_vectors_come_from_a_service_when_records_and_questions_are_texts(
    graph: WrittenGraph, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITOPS_EMBEDDINGS_KEY", "planted-4711")
    rows = [{"type": "P", "data": {"k": text, "text": text}} for text in ("aaaa", "b", "zz")]
    (tmp_path / "texts.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    near = "query q($t: String) { match { $p: P } return { $p.k } order { nearest($p.vec, $t) } limit 2 }"
    insert = 'query i() { insert P { k: "made", text: "made" } }'
    with HttpService(_counting) as service:
        who = ("--embeddings", f"small@{service.base}")
        assert run("load", str(tmp_path / "texts.ndjson"), *who)[0] == 0
        assert run("mutate", "--text", insert, *who)[0] == 0
        exit_code, told = run("query", "--text", near, "--param", "t=bbb", *who)
    assert (exit_code, told["rows"]) == (0, [{"p.k": "aaaa"}, {"p.k": "b"}])
    assert {request.body["model"] for request in service.requests} == {"small"}
    vectors = {row["data"]["k"]: row["data"].get("vec") for row in graph.rows("P")}
    assert vectors == {"a": None, "b": [1.0, 98.0], "aaaa": [4.0, 97.0], "zz": [2.0, 122.0], "made": [4.0, 109.0]}
    assert b"planted-4711" not in b"".join(path.read_bytes() for path in Path(graph.uri).rglob("*") if path.is_file())


UNIQUE = "node P { k: String @key  code: String? @unique }"
ALL = "query q() { match { $p: P } return { $p.k } }"
ONE = "query q($k: String) { match { $p: P { k: $k } } return { $p.k } }"


@pytest.fixture
def written(tmp_path: Path) -> WrittenGraph:
    made = WrittenGraph(tmp_path / "g.omni").create(UNIQUE)
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
        (
            ["export", "--output", "/dev/full"],
            "storage_failed /dev/full: cannot write /dev/full: No space left on device",
        ),
    ],
)
def test_what_will_not_do_is_refused_in_words(
    written: WrittenGraph, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, err = answer(written, *arguments), capsys.readouterr().err
    wrong_usage = err.startswith(("usage:", "gitops ", "ERROR usage_error"))
    assert code == (2 if wrong_usage else 1), err
    assert said in err
    assert "hunter2" not in err
    assert err.replace("\n", "").isprintable()


@pytest.mark.parametrize("option", ["--file", "--params"])
def test_an_input_that_is_too_long_is_not_cut(
    written: WrittenGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "long").write_text(f"{{}}{' ' * 2**20}" if option == "--params" else f"{ALL}\n{'/' * 2**20}")
    source = [] if option == "--file" else ["--text", ALL]
    assert answer(written, "query", *source, option, str(tmp_path / "long")) == 2
    assert "more than 1048576 bytes" in capsys.readouterr().err


def test_what_records_say_does_not_act_on_a_terminal(
    written: WrittenGraph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"type": "P", "data": {"k": k, "code": "\x1b[2J\u202e"}} for k in "xy"]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert answer(written, "load", "-") == 1
    out = capsys.readouterr().out
    assert "@unique violation on P.code" in out
    assert out.replace("\n", "").isprintable()


def test_an_export_goes_through_pipes_and_links_and_replaces_neither(written: WrittenGraph, tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert answer(written, "export", "--output", str(pipe)) == 0
    reader.join()
    assert answer(written, "export", "--output", str(link)) == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert file.read_text() == read[0] == '{"type":"P","data":{"id":"a","k":"a"}}\n'


@pytest.mark.parametrize("arguments", [["export"], ["query", "--text", ALL, "--json"], ["log"]])
def test_an_output_that_is_full_fails_the_command(written: WrittenGraph, arguments: list[str]) -> None:
    verb, *rest = arguments
    command = [sys.executable, "-m", "gitops", "graph", verb, "g", *rest, "--root", written.uri]
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
    written: WrittenGraph, capsys: pytest.CaptureFixture[str], arguments: list[str], damage: bytes
) -> None:
    for file in Path(written.uri).glob("nodes/*/data/*"):
        file.write_bytes(damage)
    assert answer(written, *arguments) == 1
    told = capsys.readouterr()
    assert told.err.startswith("ERROR ") or "problem" in told.out
    assert ".rs:" not in told.err + told.out


STATION_SCHEMA = b"""node Station { code: String @key  opened: Date?  vec: Vector(2)? }
edge Link: Station -> Station { minutes: I32? }
"""
Load = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return History(str(tmp_path / "rail.omni"), STATION_SCHEMA).uri


@pytest.fixture
def load(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Load:
    def run(*options: str, **tables: dict[str, Any]) -> tuple[int, str, str]:
        files = []
        for name, columns in tables.items():
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
            files += ["--parquet", f"{name}={tmp_path / name}.parquet"]
        code = main(["--as", "ann", "graph", "load", "rail", *files, *options, "--root", root])
        out, err = capsys.readouterr()
        return code, out, err

    return run


STATIONS = {"code": ["a", "b", "c"], "opened": [date(1901, 5, 1), None, None], "vec": [[1.0, 2.0], None, None]}
LINKS = {"from": ["a", "b"], "to": ["b", "c"], "minutes": pa.array([5, None], pa.int64())}


def test_files_become_rows_of_one_version(load: Load, root: str) -> None:
    code, out, _ = load("--json", Link=LINKS, Station=STATIONS)
    assert (code, json.loads(out)["rows"]) == (0, {"edge:Link": 2, "node:Station": 3})
    snapshot = open_snapshot(root)
    assert (snapshot.manifest.n, snapshot.manifest.actor) == (2, "ann")
    assert [row["id"] for row in read_rows(snapshot, "node:Station")] == ["a", "b", "c"]
    assert {(row["src"], row["dst"], row["minutes"]) for row in read_rows(snapshot, "edge:Link")} == {
        ("a", "b", 5),
        ("b", "c", None),
    }


def test_a_row_that_does_not_fit_is_named_and_nothing_stays(load: Load, root: str) -> None:
    code, out, _ = load(Station={"code": ["a", None, "c"]})
    assert code == 1
    assert "Station.parquet, record 2: Station.code is required" in out
    code, out, _ = load("--json", Station=STATIONS, Link={"from": ["a"], "to": ["z"]})
    (problem,) = json.loads(out)["problems"]
    assert (code, problem["path"]) == (1, "parts[1].rows[1]")
    assert "dst 'z' not found in Station" in problem["message"]
    assert open_snapshot(root).manifest.n == 1
    assert list(Path(root).glob("*/*.lance/data/*.lance")) == []
    assert list(Path(root).glob("leases/*.json")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either a file of records or --parquet TYPE=FILE"),
        (["x.jsonl", "--parquet", "Station=x.parquet"], "give either a file of records or --parquet"),
        (["--parquet", "Station"], "use TYPE=FILE"),
        (["--parquet", "Nothing=x.parquet"], "the graph has no type 'Nothing'"),
        (["--parquet", "Station=missing.parquet"], "cannot read missing.parquet as Parquet"),
        (["--parquet", "Station=x.parquet", "--embeddings", "hash"], "omit --embeddings"),
    ],
)
def test_what_cannot_be_meant_is_refused(load: Load, root: str, options: list[str], message: str) -> None:
    code, out, err = load(*options)
    assert code == 2
    assert "usage_error" in out + err
    assert message in out + err
    assert open_snapshot(root).manifest.n == 1


def test_a_task_has_no_secrets() -> None:
    assert set(BulkTask.__slots__) == {"bulk", "uri", "graph_id", "branch", "version", "schema_ir", "key", "path"}
