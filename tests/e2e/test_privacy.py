"""What a change request can learn about rows: the cases of tests/data/privacy.yaml, tried, and listed in the security model."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.language.query import check_query, parse_queries
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.e2e.conftest import ON_FORGES, Built
from tests.support.bot_stage import ALICE, WRITERS, Stage, said
from tests.support.cases import read_yaml
from tests.support.loop import CLUSTER_YAML, MAIN, email
from tests.support.pages import ROOT
from tests.support.previews import Bench

pytestmark = pytest.mark.e2e

CASES = read_yaml(ROOT / "tests/data/privacy.yaml")
CRAFTED = [case for case in CASES if "files" in case]
SECRETS = ("the-key", "the-text")
SCHEMA = b"node Note {\n    title: String @key\n    text: String?\n}\nedge Next: Note -> Note @card(1..1)\n"
QUERIES = CLUSTER_YAML.replace("      titles:\n", "      drop_last: {file: notes.gq}\n      titles:\n", 1)


@pytest.fixture
def bench(built: Built, tmp_path: Any) -> Bench:
    """A graph of three notes in a ring, whose keys and texts are secret except for the key of the last."""
    loop = built(f"{ON_FORGES}preview: {{enabled: true, scratch: previews}}\n").copied(tmp_path / "private")
    loop.move(MAIN, loop.commit("alice", {"cluster/notes.pg": SCHEMA}))
    keys = ("n0-the-key", "n1-the-key", "last")
    records: list[Mapping[str, Any]] = [
        {"type": "Note", "data": {"title": key, "text": f"the-text of {key}"}} for key in keys
    ]
    records += [{"edge": "Next", "from": key, "to": keys[number - 1]} for number, key in enumerate(keys)]
    context = graph.WriteContext(SystemClock(), RandomIds())
    lines = "".join(json.dumps(each) + "\n" for each in records).encode()
    graph.load_records(graph.LoadRequest(str(loop.graph("notes")), io.BytesIO(lines)), context)
    return Bench(Stage(loop, people={**WRITERS, email("alice"): WRITERS[ALICE]}))


@pytest.mark.parametrize("case", CRAFTED, ids=lambda case: case["way"])
def test_a_crafted_request_shows_no_value(bench: Bench, case: Mapping[str, Any]) -> None:
    stage, loop = bench.stage, bench.stage.loop
    files = {path: text.replace("{CLUSTER}", QUERIES).encode() for path, text in case["files"].items()}
    head = stage.propose("alice", "crafted", files, loop.tip())
    lines = said(bench.run())
    comment = loop.comment(1)
    assert case["finds"] in comment, (comment, lines)
    if "raises" in case:
        # The message of the database does quote a row that the request does not name.
        assert case["raises"] in _message(str(loop.graph("notes")), case["files"]["cluster/notes.gq"])
    outputs = {"lines": lines, "comment": comment, "status": loop.status(head, "preview")}
    for ref in (f"refs/gitops/{kind}/brain/1" for kind in ("previews", "plans")):
        tree = loop.store.commit(loop.tip(ref)).tree
        for path in loop.store.changed_paths(None, tree):
            outputs[f"{ref}:{path}"] = (loop.store.read(tree, path) or b"").decode()
    assert len(outputs) > 5
    found = {name for name, text in outputs.items() if any(secret in text for secret in SECRETS)}
    assert found == set()


def _message(uri: str, text: str) -> str:
    """What the database says about the mutation of these queries."""
    snapshot, (*_, mutation) = graph.open_snapshot(uri), parse_queries(text.encode())
    checked = check_query(mutation, snapshot.schema().catalog)
    with pytest.raises(GitopsError) as caught:
        graph.Mutator(SystemClock(), RandomIds()).run(uri, checked, {}, graph.MutationOptions(now=SystemClock().now()))
    return caught.value.detail


def test_each_case_names_a_test_that_exists_and_is_in_the_security_model() -> None:
    page = (ROOT / "docs/security-model.md").read_text("utf-8")
    for case in CASES:
        path, _, name = case["test"].partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions, case["test"]
        assert f"| {case['way']} | {case['attempt']} | {case['learns']} |" in page
