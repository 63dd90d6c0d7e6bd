"""`gitops graph queries`: from a folder, from a clone, of a change request, and of the applied revision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.cli.main import main
from tests.support.loop import FILES, MAIN, Loop

pytestmark = pytest.mark.e2e

SCHEMA = "node Person {\n  handle: String @key\n  born: I32?\n}\n"
QUERIES = """\
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
    (made / "person.pg").write_text(SCHEMA)
    (made / "q.gq").write_text(QUERIES)
    return made


def run(folder: Path, *words: str, code: int = 0) -> None:
    assert main([*words, "--config", str(folder)]) == code


def test_a_folder_lists_what_it_declares(folder, capsys):
    run(folder, "graph", "queries")
    assert capsys.readouterr().out == LISTED
    run(folder, "graph", "queries", "empty", "-q")
    assert capsys.readouterr().out == "graph empty: 0 stored queries\n"


def test_a_program_gets_a_document(folder, capsys):
    run(folder, "graph", "queries", "people", "--json")
    form = json.loads(capsys.readouterr().out)
    assert (form["ok"], form["applied"], form["diagnostics"]) == (True, False, [])
    find, rename = form["queries"]
    assert (find["graph"], find["name"], find["kind"]) == ("people", "find", "read")
    assert find["parameters"] == [{"name": "h", "type": "String"}, {"name": "least", "type": "I32?"}]
    assert [column["name"] for column in find["result"]] == ["handle", "year", "p"]
    assert (rename["kind"], rename["writes"]) == ("mutation", [{"kind": "node", "type_name": "Person"}])


def test_what_is_applied_is_listed_until_something_else_is_applied(folder, capsys):
    run(folder, "graph", "queries", "--applied", code=1)
    assert "cluster_state_missing" in capsys.readouterr().out
    run(folder, "import", "-q")
    run(folder, "apply", "-q")
    declared = (folder / "cluster.yaml").read_text()
    (folder / "cluster.yaml").write_text(declared.replace("      rename: {file: q.gq}\n", ""))
    run(folder, "graph", "queries", "--applied")
    assert capsys.readouterr().out == LISTED
    run(folder, "graph", "queries", "people")
    assert "1 stored query\n" in capsys.readouterr().out


def test_a_problem_is_reported_and_an_unknown_graph_is_refused(folder, capsys):
    run(folder, "graph", "queries", "peple", code=1)
    assert "did you mean `people`?" in capsys.readouterr().err
    (folder / "q.gq").write_text(QUERIES.replace("$p: Person", "$p: Persan"))
    run(folder, "graph", "queries", code=1)
    assert "query_typecheck_error" in capsys.readouterr().out


def test_an_unknown_query_names_the_command_that_lists_them(folder, capsys):
    run(folder, "import", "-q")
    run(folder, "apply", "-q")
    run(folder, "graph", "query", "people", "fnd", code=1)
    printed = capsys.readouterr().err
    assert "did you mean `find`?" in printed
    assert "fix: list the queries with their parameters: gitops graph queries people;" in printed


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
    assert (both.code, "leave one out" in both.text) == (1, True)
    assert loop.tip(MAIN)
