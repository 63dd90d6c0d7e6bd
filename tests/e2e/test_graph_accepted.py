"""What the engine is accepted by, from the command line: bad data, limits, vectors from a service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.database.graph.history.branches import list_branches
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
        (b'{"type":"P","data":{"k":"x","k":"y"}}', "given twice"),
    ],
)
def test_bad_data_is_told_by_line_and_code_and_changes_nothing(
    graph: WrittenGraph, run: Run, tmp_path: Path, line: bytes, said: str
) -> None:
    file, before = tmp_path / "bad.ndjson", (graph.lines(), graph.version)
    file.write_bytes(GOOD + b"\n" + line)
    exit_code, told = run("load", str(file))
    assert (exit_code, told["ok"]) == (1, False)
    [problem] = told["diagnostics"]
    assert (problem["code"], problem["source"]["line"]) == ("graph_data_invalid", 3)
    assert said in problem["message"]
    assert (graph.lines(), graph.version) == before


def test_a_key_that_exists_has_a_code_of_its_own_when_it_is_appended(
    graph: WrittenGraph, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "twice.ndjson").write_bytes(GOOD + b'{"type":"P","data":{"k":"a"}}\n')
    exit_code, told = run("load", str(tmp_path / "twice.ndjson"), "--mode", "append")
    assert (exit_code, [problem["code"] for problem in told["diagnostics"]]) == (1, ["key_conflict"])
    assert told["diagnostics"][0]["source"]["line"] == 2
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
    [problem] = told["diagnostics"]
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
    assert (exit_code, [problem["code"] for problem in told["diagnostics"]]) == (1, [code])
    assert told["diagnostics"][0]["fix"]


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
