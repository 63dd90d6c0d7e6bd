"""Following a branch, reading blobs and deleting merged branches from the command line."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.database.graph import LanceEngine
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.query_graphs import NOW, put

pytestmark = pytest.mark.e2e

Run = Callable[..., tuple[int, str, str]]
SCHEMA = b"node Doc { key: String @key  body: Blob?  note: String? }"
BYTES = bytes(range(256))


def doc(key: str, **data: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"key": key, **data}}


@pytest.fixture
def root(tmp_path: Path) -> str:
    made = str(tmp_path / "docs.omni")
    LanceEngine(FixedClock(NOW), SequentialIds()).prepare_create(made, SCHEMA, actor=None).publish()
    put(
        made,
        [doc("a", body="base64:" + base64.b64encode(BYTES).decode()), doc("b", note='say "hi", Bo'), doc("c", note="")],
    )
    return made


@pytest.fixture
def run(root: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `gitops graph VERB docs ...`."""

    def command(verb: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["graph", *verb.split(), "docs", *arguments, "--root", root])
        out, err = capfdbinary.readouterr()
        return code, out.decode("latin-1"), err.decode()

    return command


def test_a_feed_goes_on_from_its_baseline(run: Run, root: str, tmp_path: Path) -> None:
    file = tmp_path / "all.ndjson"
    base = json.loads(run("changes baseline", "--output", str(file), "--json")[1])
    assert (base["records"], len(file.read_text().splitlines())) == (3, 3)
    put(root, [doc("b", note="new"), doc("d")], start=7_000)
    page = json.loads(run("changes poll", "--cursor", base["cursor"], "--limit", "1", "--json")[1])
    assert ([each["id"] for each in page["changes"]], page["complete"]) == (["b"], False)
    last = run("changes poll", "--cursor", page["cursor"])[1].splitlines()
    assert last[0].split()[1:4] == ["+", "node:Doc", "d"]
    assert last[1] == "1 change(s)"
    assert last[2].startswith("cursor ")
    code, _, err = run("changes poll", "--cursor", "x")
    assert (code, "the cursor is damaged" in err) == (1, True)


def test_a_blob_is_read_whole_or_in_part(run: Run, tmp_path: Path) -> None:
    cell = ("Doc", "a", "body")
    assert run("blob get", *cell)[1].encode("latin-1") == BYTES
    assert run("blob get", *cell, "--range", "254-")[1].encode("latin-1") == b"\xfe\xff"
    run("blob get", *cell, "--range", "0-1", "--output", str(tmp_path / "part"))
    assert (tmp_path / "part").read_bytes() == b"\x00\x01"
    assert json.loads(run("blob stat", *cell, "--json")[1])["size"] == 256
    for arguments, text in (
        (("Doc", "b", "body"), "has no blob"),
        (("Doc", "a", "note"), "no Blob property 'note'"),
        (("Dco", "a", "body"), "no type 'Dco'"),
        ((*cell, "--range", "256-"), "none in this range"),
        ((*cell, "--range", "x"), "use FIRST-LAST"),
    ):
        code, out, err = run("blob get", *arguments)
        assert (code, out, text in err) == (1, "", True), err


def test_a_merged_branch_is_deleted_if_that_is_wanted(run: Run, root: str) -> None:
    run("branch create", "dev")
    merged = json.loads(run("branch merge", "dev", "--json")[1])
    assert "branch_deleted" not in merged
    said = run("branch merge", "dev", "--delete-branch")
    assert said[:2] == (0, "graph branch: main already contains dev\ngraph branch: deleted dev\n")
    run("branch create", "dev")
    code, out, _ = run("branch merge", "main", "--into", "dev", "--delete-branch", "--json")
    kept = json.loads(out)
    assert (code, kept["branch_deleted"]) == (0, False)
    assert "branch main is the graph itself" in kept["branch_delete_error"]


def test_rows_go_to_other_programs(run: Run) -> None:
    text = "query q() { match { $d: Doc } return { $d.key as key, $d.note as note } order { $d.key asc } }"
    assert run("query", "--text", text, "--format", "csv")[1] == 'key,note\na,\nb,"say ""hi"", Bo"\nc,""\n'
    assert run("query", "--text", text, "--format", "kv")[1] == (
        'key: a\nnote: -\n\nkey: b\nnote: say "hi", Bo\n\nkey: c\nnote: ""\n'
    )
