"""`gitops graph` from the command line: data in, questions, changes, branches, feeds, stored queries, and the way back."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.graph.progress import pace
from gitops.cli.main import main
from gitops.database.graph import LanceEngine, checkpoints
from gitops.database.graph.history import optimize
from gitops.database.graph.results import StepProgress
from gitops.database.graph.write import intake
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.loop import FILES, MAIN, Loop
from tests.support.query_graphs import NOW, put

pytestmark = pytest.mark.e2e

SCHEMA = """\
node Station {
  code: String @key
  lines: [String]?
  name: String? @index
  opened: Date?
  platforms: I32?
  vec: Vector(4)? @embed(name)
}

edge Link: Station -> Station {
  minutes: I32?
}
"""
QUERIES = """\
query by_name($name: String) {
  match {
    $s: Station { name: $name }
  }
  return { $s.code as code, $s.platforms as platforms, $s.opened as opened }
  order { $s.code }
}

query reach($from: String) {
  match {
    $s: Station { code: $from }
    $s link{1,2} $t
  }
  return { $t.code as code }
  order { $t.code }
}

query like($text: String) {
  match { $s: Station }
  return { $s.code as code }
  order { nearest($s.vec, $text) }
  limit 1
}

query rename($code: String, $name: String?) {
  update Station set { name: $name } where code = $code
}

query close($code: String) {
  delete Station where code = $code
}
"""
CLUSTER = """\
version: 1
metadata:
  name: rail
graphs:
  rail:
    schema: rail.pg
    queries: [rail.gq]
"""
RECORDS = """\
{"type": "Station", "data": {"code": "A", "name": "Alder", "platforms": 4, "opened": "1901-05-01", "lines": ["r", "g"]}}
{"type": "Station", "data": {"code": "B", "name": "Birch", "platforms": 2}}
{"type": "Station", "data": {"code": "C", "name": "Cedar", "platforms": 2, "lines": []}}
{"edge": "Link", "from": "A", "to": "B", "data": {"id": "l1", "minutes": 5}}
{"edge": "Link", "from": "B", "to": "C", "data": {"id": "l2"}}
"""

Run = Callable[..., "Answer"]


class Answer:
    """What one command said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture(scope="session")
def rail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with one loaded graph, built once and never changed."""
    folder = tmp_path_factory.mktemp("rail")
    (folder / "rail.pg").write_text(SCHEMA)
    (folder / "rail.gq").write_text(QUERIES)
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "rail.ndjson").write_text(RECORDS)
    for verb in ("import", "apply"):
        assert main(["--as", "ann", verb, "--config", str(folder)]) == 0
    load = ["graph", "load", "rail", str(folder / "rail.ndjson"), "--config", str(folder), "--embeddings", "hash"]
    assert main(load) == 0
    return folder


@pytest.fixture
def run(rail: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `gitops graph VERB rail ...` on a copy of the cluster."""
    folder = tmp_path / "rail"
    shutil.copytree(rail, folder)
    capsys.readouterr()

    def command(verb: str, *arguments: str) -> Answer:
        code = main(["--as", "ann", "graph", *verb.split(), "rail", *arguments, "--config", str(folder)])
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return command


def test_a_load_reports_its_progress_as_events(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "more.ndjson"
    file.write_text("".join(RECORDS.splitlines(keepends=True)[:1]))
    answer = run("load", str(file), "--log-format", "json", "--json")
    assert answer.json["ok"]
    size, events = file.stat().st_size, [json.loads(line) for line in answer.err.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["v"] for event in events} == {1}
    assert [(event["type"], event["data"].get("step")) for event in events] == [
        ("load_started", None),
        ("load_progress", "reading"),
        ("load_progress", "checking"),
        ("load_progress", "publishing"),
        ("load_finished", None),
    ]
    assert events[0]["data"] == {"mode": "merge", "branch": "main", "bytes": size}
    read = {"rows": 1, "done": size, "total": size, "unit": "bytes"}
    assert {name: events[1]["data"][name] for name in read} == read
    assert events[-1]["data"].pop("duration_ms") > 0
    assert events[-1]["data"] == {
        "status": "done",
        **{k: answer.json[k] for k in ("manifest_version", "rows", "commit")},
    }


def test_a_load_that_fails_ends_with_an_event(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "more.ndjson"
    file.write_text("{}\n")
    answer = run("load", str(file), "--log-format", "json")
    assert answer.code == 1
    last = json.loads(answer.err.splitlines()[-1])
    assert (last["type"], last["data"]["status"]) == ("load_finished", "failed")


def test_rate_and_time_left_count_from_the_start_of_a_step() -> None:
    before = StepProgress("reading", 100_000, 2**20, 5 * 2**20, "bytes")
    found = pace(before, StepProgress("reading", 600_000, 2 * 2**20, 5 * 2**20, "bytes"), 2.0)
    assert (found.rows_per_second, found.seconds_left) == (250_000, 6)
    assert found.line() == "reading: 600,000 rows, 2.0 MiB of 5.0, 250,000 rows/s, 6 s left"
    piped = StepProgress("reading", 10, 100, None, "bytes")
    assert pace(piped, piped, 0.0).line() == "reading: 10 rows, 0.0 MiB"
    assert pace(before, StepProgress("indexing", 7, 1, 3, "indexes", "Person.name"), 0.0).line() == (
        "indexing: 7 rows, 1 of 3 indexes, Person.name"
    )


def test_a_stored_query_is_a_table_a_document_or_lines(run: Run) -> None:
    asked = ("by_name", "--param", "name=Alder")
    assert run("query", *asked).out.splitlines() == [
        "code  platforms  opened",
        "----  ---------  ----------",
        "A             4  1901-05-01",
        "1 row, manifest version 2",
    ]
    row = {"code": "A", "platforms": 4, "opened": "1901-05-01"}
    assert run("query", *asked, "--json").json == {
        "ok": True,
        "manifest_version": 2,
        "row_count": 1,
        "columns": ["code", "platforms", "opened"],
        "rows": [row],
        "problems": [],
    }
    assert [json.loads(line) for line in run("query", *asked, "--format", "ndjson").out.splitlines()] == [row]


def test_a_query_of_ones_own_comes_from_a_file_or_the_command_line(run: Run, tmp_path: Path) -> None:
    text = "query far() { match { $s: Station $s.platforms > 2 } return { $s } }"
    assert run("query", "--text", text, "--json").json["rows"] == [{"s": "A"}]
    file = tmp_path / "mine.gq"
    file.write_text(text + QUERIES)
    assert run("query", "far", "--file", str(file), "--json").json["rows"] == [{"s": "A"}]
    several = run("query", "--file", str(file))
    assert (several.code, "declares 6 queries" in several.err) == (2, True)


def test_options_may_stand_before_the_name(run: Run) -> None:
    assert run("query", "--param", "name=Alder", "--json", "by_name").json["row_count"] == 1


def test_a_plan_says_what_it_did(run: Run) -> None:
    answer = run("query", "reach", "--param", "from=A", "--explain")
    assert answer.out.splitlines()[2:] == ["B", "C", "2 rows, manifest version 2"]
    assert "expand" in answer.err
    assert "node:Station" in answer.err
    form = run("query", "reach", "--param", "from=A", "--explain", "--json").json
    assert [each["operator"] for each in form["explanation"]] == ["scan", "expand"]


@pytest.mark.parametrize("strategy", ["index", "csr", "scan"])
def test_every_way_to_hop_gives_the_same(run: Run, strategy: str) -> None:
    form = run("query", "reach", "--param", "from=A", "--strategy", strategy, "--json").json
    assert form["rows"] == [{"code": "B"}, {"code": "C"}]


def test_a_text_is_near_to_itself(run: Run) -> None:
    assert run("query", "like", "--param", "text=Birch", "--embeddings", "hash", "--json").json["rows"] == [
        {"code": "B"}
    ]
    nobody = run("query", "like", "--param", "text=Birch")
    assert (nobody.code, "query_unsupported" in nobody.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("by_nam", "--param", "name=x"), ["query_unknown", "did you mean", "by_name"]),
        (("by_name",), ["query_params_invalid", "parameter 'name' not provided"]),
        (
            ("by_name", "--param", "nam=x"),
            ["usage_error", "has no parameter 'nam'; did you mean `name`? parameters: name: String"],
        ),
        (("by_name", "--param", "name"), ["usage_error", "NAME=VALUE"]),
        (
            ("--text", "query q() { match { $s: Statio } return { $s } }"),
            ["query_typecheck_error[T1] --text:1:25: type error: unknown node type `Statio`"],
        ),
        (("--text", "query q( {"), ["query_parse_error --text:1:10: "]),
        (
            ("by_name", "--param", "name=x", "--at", "9"),
            ["graph_version_unknown", "main of", "has no version 9; its newest is 2", "gitops graph log"],
        ),
        (
            ("by_name", "--param", "name=x", "--branch", "man"),
            ["graph_branch_missing", "no branch 'man'; did you mean `main`? known: main"],
        ),
        (("by_name", "--param", "name=x", "--at", "yesterday"), ["usage_error"]),
        (("rename", "--param", "code=A"), ["query_unsupported", "mutation"]),
        ((), ["usage_error", "--file or --text"]),
    ],
)
def test_what_cannot_be_asked_is_told(run: Run, arguments: tuple[str, ...], said: list[str]) -> None:
    answer = run("query", *arguments)
    assert (answer.code, answer.out) == (2 if "usage_error" in said else 1, "")
    assert [each for each in said if each not in answer.err] == []


def test_a_graph_that_is_not_declared_is_reported_as_that(rail: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["query", "rial", "by_name"], ["log", "rial"], ["export", "rial"]):
        assert main(["graph", *verb, "--config", str(rail)]) == 1
        err = capsys.readouterr().err
        assert "graph_unknown" in err
        assert "cluster.yaml does not declare a graph 'rial'; did you mean `rail`? known: rail" in err
        assert "apply" not in err


def test_parameters_may_come_as_json(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "params.json"
    file.write_text('{"name": "Birch"}')
    assert run("query", "by_name", "--params", str(file), "--json").json["rows"][0]["code"] == "B"
    file.write_text("[")
    assert "is not JSON" in run("query", "by_name", "--params", str(file)).err


def test_a_mutation_is_one_version_or_none(run: Run) -> None:
    changed = run("mutate", "rename", "--param", "code=B", "--param", "name=Beech", "--json").json
    head = run("log", "--limit", "1", "--json").json["commits"][0]
    assert changed == {
        "ok": True,
        "affectedNodes": 1,
        "affectedEdges": 0,
        "manifest_version": 3,
        "changed": True,
        "commit": head["commit"],
        "problems": [],
    }
    nothing = run("mutate", "rename", "--param", "code=Z")
    assert nothing.out == "graph mutate: 0 nodes and 0 edges of rail, nothing to publish\n"
    stale = run("mutate", "close", "--param", "code=B", "--expect-head", "2")
    assert (stale.code, "head_moved" in stale.err) == (1, True)
    closed = run("mutate", "close", "--param", "code=B")
    assert closed.out == "graph mutate: 1 node and 2 edges of rail, manifest version 4\n"
    assert run("query", "by_name", "--param", "name=Beech", "--at", "3", "--json").json["row_count"] == 1
    assert run("query", "by_name", "--param", "name=Beech", "--json").json["row_count"] == 0
    shown = [run("show", "--at", when, "--json").json["manifest_version"] for when in ("3", "2999-01-01T00:00:00Z")]
    assert shown == [3, 4]


def test_a_branch_is_a_place_to_try_things(run: Run) -> None:
    assert "created dev at version 2 of main" in run("branch create", "dev").out
    assert run("mutate", "rename", "--param", "code=B", "--param", "name=Beech", "--branch", "dev").code == 0
    assert [each["name"] for each in run("branch list", "--json").json["branches"]] == ["main", "dev"]
    assert run("diff", "main", "dev").out == '~ node:Station B name: "Birch" -> "Beech"\n'
    assert run("diff", "main", "dev", "--summary", "--json").json["tables"] == {
        "node:Station": {"added": 0, "removed": 0, "changed": 1}
    }
    merged = run("branch merge", "dev", "--json").json
    assert (merged["status"], merged["conflicts"]) == ("fast_forward", [])
    assert run("branch merge", "dev").out == "graph branch: main already contains dev\n"
    run("branch create", "next")
    run("mutate", "rename", "--param", "code=B", "--param", "name=Birch", "--branch", "next")
    forward = "graph branch: merged next into main, version 4: main now has exactly the rows of next\n"
    assert run("branch merge", "next").out == forward
    assert run("branch delete", "dev").code == 0
    assert "graph_branch_missing" in run("branch delete", "dev").err
    operations = [each["operation"] for each in run("log", "--json").json["commits"]]
    assert operations == ["merge", "merge", "load", "create"]


def test_branches_that_contradict_each_other_do_not_merge(run: Run) -> None:
    run("branch create", "dev")
    run("mutate", "rename", "--param", "code=B", "--param", "name=Beech", "--branch", "dev")
    run("mutate", "rename", "--param", "code=B", "--param", "name=Bay")
    before = run("snapshot", "--json").json
    refused = run("branch merge", "dev")
    assert (refused.code, "DivergentUpdate" in refused.out, "nothing was merged" in refused.out) == (1, True, True)
    assert run("branch merge", "dev", "--json").json["ok"] is False
    assert run("snapshot", "--json").json == before


def test_what_is_exported_can_be_loaded(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "all.ndjson"
    assert run("export", "--output", str(file)).out.startswith("graph export: 5 records")
    assert run("export").out == file.read_text()
    run("mutate", "close", "--param", "code=B")
    assert run("load", str(file), "--mode", "overwrite").code == 0
    assert run("export").out == file.read_text()
    assert run("diff", "main@2", "main", "--summary", "--json").json["tables"] == {}
    assert [json.loads(line)["edge"] for line in run("export", "--type", "Link").out.splitlines()] == ["Link"] * 2


def test_records_can_go_to_a_new_branch(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "more.ndjson"
    file.write_text('{"type": "Station", "data": {"code": "D"}}\n')
    missing = run("load", str(file), "--branch", "next")
    assert (missing.code, "graph_branch_missing" in missing.err) == (1, True)
    assert run("load", str(file), "--branch", "next", "--from", "main").code == 0
    assert run("load", str(file), "--branch", "next", "--from", "main").code == 0
    assert run("snapshot", "--branch", "next", "--json").json["tables"]["node:Station"]["rows"] == 4
    assert run("snapshot", "--json").json["tables"]["node:Station"]["rows"] == 3


def test_bad_records_are_told_by_line_and_change_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_text('{"type": "Station", "data": {"code": "D"}}\n{"type": "Station", "data": {"code": 7}}\n{"type"\n')
    before = run("snapshot", "--json").json
    answer = run("load", str(file), "--json")
    assert answer.code == 1
    assert {each["path"] for each in answer.json["problems"]} == {"records[2]", "records[3]"}
    assert run("snapshot", "--json").json == before


def test_a_graph_is_kept_in_order(run: Run) -> None:
    for name in ("x", "y", "z"):
        run("mutate", "rename", "--param", "code=A", "--param", f"name={name}")
    assert run("optimize", "--json").json["ok"]
    dry = run("gc", "--keep", "1", "--older-than", "0m", "--dry-run", "--json").json
    assert (dry["dry_run"], dry["manifests"] > 0) == (True, True)
    assert run("gc", "--keep", "1", "--older-than", "0m", "--json").json["manifests"] == dry["manifests"]
    gone = run("query", "by_name", "--param", "name=x", "--at", "3")
    assert (gone.code, "graph_version_gone" in gone.err) == (1, True)
    checked = run("verify", "--deep", "--json").json
    assert (checked["ok"], [each for each in checked["findings"] if each["problem"]]) == (True, [])
    assert run("gc", "--older-than", "soon").code == 2
    assert run("gc", "--keep", "0").code == 2


def test_dropped_data_goes_for_good_only_when_told(run: Run, tmp_path: Path) -> None:
    schema = tmp_path / "rail" / "rail.pg"
    schema.write_text(SCHEMA.replace("  platforms: I32?\n", ""))
    (tmp_path / "rail" / "rail.gq").write_text("query codes() { match { $s: Station } return { $s.code } }\n")
    apply = ["--as", "ann", "apply", "--config", str(tmp_path / "rail")]
    assert main(apply) == 0
    refused = run("purge")
    assert (refused.code, "--allow-data-loss" in refused.err) == (2, True)
    planned = run("purge", "--dry-run", "--json").json
    assert (planned["dry_run"], planned["properties"]) == (True, {"node:Station": ["platforms"]})
    done = run("purge", "--allow-data-loss", "--json").json
    assert (done["properties"], done["manifest_version"]) == (planned["properties"], planned["manifest_version"] + 1)
    assert run("verify", "--deep", "--json").json["ok"]
    assert main(apply) == 0


def test_damage_is_found(run: Run, tmp_path: Path) -> None:
    (table,) = (tmp_path / "rail" / "graphs" / "rail.omni" / "edges").iterdir()
    shutil.rmtree(table)
    answer = run("verify")
    assert (answer.code, "table_unreadable" in answer.out) == (1, True)


def test_a_schema_can_be_tried_beside_the_graph(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "next.pg"
    file.write_text(SCHEMA.replace("  opened: Date?\n", "  closed: Date?\n"))
    before = run("snapshot", "--json").json
    form = run("preview", str(file), "--json").json
    kinds = [step["kind"] for step in form["steps"]]
    assert (form["ok"], kinds) == (True, ["add_property", "drop_property"])
    assert run("snapshot", "--json").json == before
    file.write_text(SCHEMA.replace("platforms: I32?", "platforms: Blob?"))
    refused = run("preview", str(file))
    assert (refused.code, "OG-MF-106" in refused.out) == (1, True)


RunDocs = Callable[..., tuple[int, str, str]]
DOCS = b"node Doc { key: String @key  body: Blob?  note: String? }"
BYTES = bytes(range(256))


def doc(key: str, **data: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"key": key, **data}}


@pytest.fixture
def root(tmp_path: Path) -> str:
    made = str(tmp_path / "docs.omni")
    LanceEngine(FixedClock(NOW), SequentialIds()).prepare_create(made, DOCS, actor=None).publish()
    put(
        made,
        [doc("a", body="base64:" + base64.b64encode(BYTES).decode()), doc("b", note='say "hi", Bo'), doc("c", note="")],
    )
    return made


@pytest.fixture
def docs(root: str, capfdbinary: pytest.CaptureFixture[bytes]) -> RunDocs:
    """Runs `gitops graph VERB docs ...`."""

    def command(verb: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["graph", *verb.split(), "docs", *arguments, "--root", root])
        out, err = capfdbinary.readouterr()
        return code, out.decode("latin-1"), err.decode()

    return command


def test_a_feed_goes_on_from_its_baseline(docs: RunDocs, root: str, tmp_path: Path) -> None:
    file = tmp_path / "all.ndjson"
    base = json.loads(docs("changes baseline", "--output", str(file), "--json")[1])
    assert (base["records"], len(file.read_text().splitlines())) == (3, 3)
    put(root, [doc("b", note="new"), doc("d")], start=7_000)
    page = json.loads(docs("changes poll", "--cursor", base["cursor"], "--limit", "1", "--json")[1])
    assert ([each["id"] for each in page["changes"]], page["complete"]) == (["b"], False)
    last = docs("changes poll", "--cursor", page["cursor"])[1].splitlines()
    assert last[0].split()[1:4] == ["+", "node:Doc", "d"]
    assert last[1] == "1 change"
    assert last[2].startswith("cursor ")
    code, _, err = docs("changes poll", "--cursor", "x")
    assert (code, "the cursor is damaged" in err) == (2, True)


def test_a_blob_is_read_whole_or_in_part(docs: RunDocs, tmp_path: Path) -> None:
    cell = ("Doc", "a", "body")
    assert docs("blob get", *cell)[1].encode("latin-1") == BYTES
    assert docs("blob get", *cell, "--range", "254-")[1].encode("latin-1") == b"\xfe\xff"
    docs("blob get", *cell, "--range", "0-1", "--output", str(tmp_path / "part"))
    assert (tmp_path / "part").read_bytes() == b"\x00\x01"
    assert json.loads(docs("blob stat", *cell, "--json")[1])["size"] == 256
    for arguments, refusal, text in (
        (("Doc", "b", "body"), 2, "has no blob"),
        (("Doc", "a", "note"), 1, "no Blob property 'note'"),
        (("Dco", "a", "body"), 1, "no type 'Dco'"),
        ((*cell, "--range", "256-"), 2, "none in this range"),
        ((*cell, "--range", "x"), 2, "use FIRST-LAST"),
    ):
        code, out, err = docs("blob get", *arguments)
        assert (code, out, text in err) == (refusal, "", True), err


def test_a_merged_branch_is_deleted_if_that_is_wanted(docs: RunDocs, root: str) -> None:
    docs("branch create", "dev")
    merged = json.loads(docs("branch merge", "dev", "--json")[1])
    assert "branch_deleted" not in merged
    said = docs("branch merge", "dev", "--delete-branch")
    assert said[:2] == (0, "graph branch: main already contains dev\ngraph branch: deleted dev\n")
    docs("branch create", "dev")
    code, out, _ = docs("branch merge", "main", "--into", "dev", "--delete-branch", "--json")
    kept = json.loads(out)
    assert (code, kept["branch_deleted"]) == (0, False)
    assert "branch main is the graph itself" in kept["branch_delete_error"]


def test_rows_go_to_other_programs(docs: RunDocs) -> None:
    text = "query q() { match { $d: Doc } return { $d.key as key, $d.note as note } order { $d.key asc } }"
    assert docs("query", "--text", text, "--format", "csv")[1] == 'key,note\na,\nb,"say ""hi"", Bo"\nc,""\n'
    assert docs("query", "--text", text, "--format", "kv")[1] == (
        'key: a\nnote: -\n\nkey: b\nnote: say "hi", Bo\n\nkey: c\nnote: ""\n'
    )


PEOPLE = "node Person {\n  handle: String @key\n  born: I32?\n}\n"
STORED = """\
query find($h: String, $least: I32?) {
  match {
    $p: Person { handle: $h }
  }
  return { $p.handle, $p.born as year, $p }
}

query rename($h: String, $born: I32?) {
  update Person set { born: $born } where handle = $h
}
"""
LISTED = """\
graph empty: 0 stored queries
graph people: 2 stored queries
  find($h: String, $least: I32?): read
    returns p.handle: String, year: I32?, p: Node
    reads node Person
  rename($h: String, $born: I32?): mutation
    reads node Person
    writes node Person
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cluster"
    made.mkdir()
    queries = "      find: {file: q.gq}\n      rename: {file: q.gq}\n"
    graphs = f"  people:\n    schema: person.pg\n    queries:\n{queries}  empty:\n    schema: person.pg\n"
    (made / "cluster.yaml").write_text(f"version: 1\ngraphs:\n{graphs}")
    (made / "person.pg").write_text(PEOPLE)
    (made / "q.gq").write_text(STORED)
    return made


def shown(folder: Path, *words: str, code: int = 0) -> None:
    assert main([*words, "--config", str(folder)]) == code


def test_a_folder_lists_what_it_declares(folder, capsys):
    shown(folder, "graph", "queries")
    assert capsys.readouterr().out == LISTED
    shown(folder, "graph", "queries", "empty", "-q")
    assert capsys.readouterr().out == "graph empty: 0 stored queries\n"


def test_a_program_gets_a_document(folder, capsys):
    shown(folder, "graph", "queries", "people", "--json")
    form = json.loads(capsys.readouterr().out)
    assert (form["ok"], form["applied"], form["problems"]) == (True, False, [])
    find, rename = form["queries"]
    assert (find["graph"], find["name"], find["kind"]) == ("people", "find", "read")
    assert find["parameters"] == [{"name": "h", "type": "String"}, {"name": "least", "type": "I32?"}]
    assert [column["name"] for column in find["result"]] == ["handle", "year", "p"]
    assert (rename["kind"], rename["writes"]) == ("mutation", [{"kind": "node", "type_name": "Person"}])


def test_what_is_applied_is_listed_until_something_else_is_applied(folder, capsys):
    shown(folder, "graph", "queries", "--applied", code=1)
    assert "cluster_state_missing" in capsys.readouterr().out
    shown(folder, "import", "-q")
    shown(folder, "apply", "-q")
    declared = (folder / "cluster.yaml").read_text()
    (folder / "cluster.yaml").write_text(declared.replace("      rename: {file: q.gq}\n", ""))
    shown(folder, "graph", "queries", "--applied")
    assert capsys.readouterr().out == LISTED
    shown(folder, "graph", "queries", "people")
    assert "1 stored query\n" in capsys.readouterr().out


def test_a_problem_is_reported_and_an_unknown_graph_is_refused(folder, capsys):
    shown(folder, "graph", "queries", "peple", code=1)
    assert "did you mean `people`?" in capsys.readouterr().err
    (folder / "q.gq").write_text(STORED.replace("$p: Person", "$p: Persan"))
    shown(folder, "graph", "queries", code=1)
    assert "query_typecheck_error" in capsys.readouterr().out


def test_an_unknown_query_names_the_command_that_lists_them(folder, capsys):
    shown(folder, "import", "-q")
    shown(folder, "apply", "-q")
    shown(folder, "graph", "query", "people", "fnd", code=1)
    printed = capsys.readouterr().err
    assert "did you mean `find`?" in printed
    assert f"fix: list the queries with their parameters: gitops graph queries --config {folder} people;" in printed


def test_a_clone_lists_its_branch_a_request_and_the_applied_revision(loop: Loop) -> None:
    more = (
        FILES["cluster/notes.gq"]
        + b"query texts() {\n    match {\n        $n: Note\n    }\n    return { $n.text }\n}\n"
    )
    yaml = FILES["cluster/cluster.yaml"].replace(
        b"        file: notes.gq\n", b"        file: notes.gq\n      texts:\n        file: notes.gq\n"
    )
    files = {"cluster/notes.gq": more, "cluster/cluster.yaml": yaml}
    loop.move("refs/heads/texts", loop.commit("alice", files))
    for options in ((), ("--applied",)):
        text = loop.gitops("alice", "graph", "queries", "notes", *options).text
        assert "titles(): read" in text
        assert "texts()" not in text
    assert (
        "texts(): read\n    returns n.text: String?" in loop.gitops("alice", "graph", "queries", "--request", "1").text
    )
    both = loop.gitops("alice", "graph", "queries", "--request", "1", "--applied", check=False)
    assert (both.code, "omit one of them" in both.text) == (2, True)
    assert loop.tip(MAIN)


def test_a_graph_is_found_where_the_server_keeps_it(loop: Loop) -> None:
    assert "Note" in loop.gitops("alice", "graph", "show", "notes", "--config", "cluster").text
    # Rows that are gone are missing there, not in the clone.
    shutil.rmtree(loop.graph("notes"))
    missing = loop.gitops("alice", "graph", "show", "notes", "--config", "cluster", check=False)
    assert missing.code == 1
    assert f"{loop.graph('notes')} contains no graph" in missing.text


def test_rows_on_another_machine_are_named_with_the_way_there(web: Loop) -> None:
    refused = web.gitops("alice", "graph", "show", "notes", "--config", "cluster", check=False)
    assert refused.code == 1
    assert "the rows of cluster brain are on the machine of http://" in refused.text
    assert "add --root ROOT/brain/graphs/notes.omni" in refused.text


def many_stations(tmp_path: Path, count: int = 1_200) -> Path:
    """Enough records for indexes."""
    lines = ({"type": "Station", "data": {"code": f"s{n}", "name": f"n{n}", "platforms": n % 9}} for n in range(count))
    file = tmp_path / "many.ndjson"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def test_a_load_builds_indexes_after_its_rows_are_published(run: Run, tmp_path: Path) -> None:
    file = str(many_stations(tmp_path))
    plain = run("load", file, "--no-index", "--json").json
    assert "optimized" not in plain
    answer = run("load", file, "--json", "--log-format", "json")
    done = answer.json
    assert (done["manifest_version"], done["optimized"]["manifest_version"]) == (
        plain["manifest_version"] + 1,
        plain["manifest_version"] + 2,
    )
    assert "built id_idx (BTREE)" in done["optimized"]["tables"]["node:Station"]
    events = [json.loads(line) for line in answer.err.splitlines()]
    steps = [event["data"].get("detail") for event in events if event["data"].get("step") == "indexing"]
    assert steps[0].startswith("node:Station, 1,2")
    assert "optimized" in events[-1]["data"]
    assert run("load", file).out.splitlines()[0].startswith("graph load: 1,200 records into rail")


def test_an_interrupt_of_the_indexes_keeps_the_rows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run("log", "--json").json["commits"][0]["manifest_version"]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimize, "_build_index", stop)
    answer = run("load", str(many_stations(tmp_path)))
    text = f"interrupted: version {before + 1} has the rows; to build their indexes: gitops graph optimize rail"
    assert (answer.code, answer.err.splitlines()[0]) == (130, text)
    assert run("log", "--json").json["commits"][0]["manifest_version"] == before + 1
    monkeypatch.undo()
    assert "id_idx" in run("optimize").out


def test_an_interrupted_load_is_continued(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = many_stations(tmp_path)
    monkeypatch.setattr(intake, "_PIECE_BYTES", 20_000)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 20_000)
    none = run("load", str(file), "--resume")
    assert none.code == 1
    assert none.err.startswith(f"ERROR load_not_staged {file}: no interrupted load of {file} with --branch main")
    whole = file.read_bytes()
    file.write_bytes(whole + b"\n{}")
    failed = run("load", str(file))
    records = int(failed.err.split()[0].replace(",", ""))
    assert failed.err == f"{records:,} records are staged; to continue: gitops graph load rail {file} --resume\n"
    assert 0 < records < 1_200
    file.write_bytes(b" " + whole)
    assert run("load", str(file), "--resume").err.startswith(f"ERROR load_file_changed {file}: ")
    file.write_bytes(whole)
    answer = run("load", str(file), "--resume", "--json", "--log-format", "json")
    assert answer.json["rows"] == {"node:Station": 1_200}
    first = next(json.loads(line)["data"] for line in answer.err.splitlines() if '"reading"' in line)
    assert first["rows"] == records
    assert run("load", "-", "--resume").code == 2


def test_workers_load_what_one_process_would(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "more.ndjson"
    file.write_text(
        '{"type": "Station", "data": {"code": "D"}}\n\n{"edge": "Link", "from": "D", "to": "nowhere", "data": {}}\n'
    )
    engine = ("--engine", "local", "--workers", "1")
    refused = run("load", str(file), *engine)
    assert (refused.code, refused.out) == (1, run("load", str(file)).out)
    assert f"{file}:3" in refused.out
    assert run("load", str(file), *engine, "--resume").err.startswith("ERROR load_not_staged")
    file.write_text(
        '{"type": "Station", "data": {"code": "D"}}\n{"edge": "Link", "from": "D", "to": "A", "data": {}}\n'
    )
    answer = run("load", str(tmp_path / "*.ndjson"), *engine, "--json", "--log-format", "json")
    assert answer.json["rows"] == {"node:Station": 1, "edge:Link": 1}
    events = [json.loads(line) for line in answer.err.splitlines()]
    assert (events[0]["type"], events[-1]["data"]["status"]) == ("load_started", "done")
    assert run("verify", "--deep").code == 0
    for arguments in (("--workers", "2"), (*engine, "--embeddings", "hash")):
        assert run("load", str(file), *arguments).code == 2
    assert run("load", "-", *engine).code == 2
    assert run("optimize", *engine).code == 0
