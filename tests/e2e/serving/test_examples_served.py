"""The example clusters, served: every stored query gives over HTTP what it gives on the command line, within their policies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.database.language.query import CheckedQuery, QueryEffect, check_query, parse_queries
from gitops.database.language.schema import compile_schema
from tests.reference import Mode, empty, load
from tests.support.pages import ROOT
from tests.support.query_parameters import parameters
from tests.support.served_command import Served, serving

pytestmark = pytest.mark.e2e

SHARED = ROOT.parent / "shared" / "examples"
ACTORS = ("act-reader", "act-analyst", "act-admin")
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({actor: f"token of {actor}" for actor in ACTORS})}
PICKS = 2


@pytest.fixture
def applied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an example, applied and with its data."""
    name, graph = request.param
    if not SHARED.is_dir():
        pytest.skip("the example clusters are not beside this checkout, in ../shared/examples")
    folder = Path(shutil.copytree(SHARED / name, tmp_path / name))
    for verb in (["import"], ["apply"], ["graph", "load", graph, str(folder / "seed.jsonl")]):
        assert main([*verb, "--config", str(folder), "--quiet"]) == 0
    return folder


def asked(folder: Path) -> Iterator[tuple[CheckedQuery, dict[str, Any]]]:
    """Each stored query, with parameters out of the data."""
    schema = compile_schema((folder / "schema.pg").read_bytes())
    lines = (folder / "seed.jsonl").read_text("utf-8").splitlines()
    data = load(schema, empty(schema.catalog), lines, Mode.APPEND)
    for file in sorted((folder / "queries").glob("*.gq")):
        for declared in parse_queries(file.read_bytes()):
            query = check_query(declared, schema.catalog)
            for pick in range(PICKS):
                yield query, parameters(query, schema, data, pick)


def by_command(folder: Path, graph: str, query: str, params: dict[str, Any], capsys: Any) -> dict[str, Any] | None:
    """What the command line prints; None where it refuses."""
    file = folder / "params.json"
    file.write_text(json.dumps(params), "utf-8")
    capsys.readouterr()
    code = main(["graph", "query", graph, query, "--params", str(file), "--config", str(folder), "--json"])
    form = json.loads(capsys.readouterr().out)
    return form if code == 0 else None


def invoke(server: Served, graph: str, query: str, params: dict[str, Any], actor: str | None = None) -> Any:
    headers = {} if actor is None else {"Authorization": f"Bearer token of {actor}"}
    return server.client.post(f"/graphs/{graph}/queries/{query}", headers=headers, json={"params": params})


def agree(server: Served, folder: Path, graph: str, actor: str | None, capsys: Any) -> None:
    """Every stored read gives what the command line gives; most find something."""
    found = reads = 0
    for query, params in asked(folder):
        if query.kind is not QueryEffect.READ:
            continue
        expected, answer = (
            by_command(folder, graph, query.name, params, capsys),
            invoke(server, graph, query.name, params, actor),
        )
        reads += 1
        if expected is None:
            assert 400 <= answer.status_code < 500, (query.name, params, answer.text)
            continue
        assert answer.status_code == 200, (query.name, params, answer.text)
        assert answer.json()["rows"] == expected["rows"], (query.name, params)
        assert answer.json().get("columns", []) == expected["columns"], query.name
        found += bool(expected["rows"])
    assert found > reads // 2


@pytest.mark.slow
@pytest.mark.parametrize("applied", [("pharma-intel", "pharma")], indirect=True)
def test_a_cluster_without_policies_gives_the_same_rows_to_everybody(applied, capsys):
    with serving("--cluster", str(applied), "--quiet", "--unauthenticated") as server:
        agree(server, applied, "pharma", None, capsys)
    with serving("--cluster", str(applied), "--quiet", environ=TOKENS) as server:
        assert invoke(server, "pharma", "deals_all", {}, "act-reader").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("applied", [("industry-intel", "spike")], indirect=True)
def test_a_cluster_gives_the_same_rows_within_its_policies(applied, capsys):
    with serving("--cluster", str(applied), "--quiet", environ=TOKENS) as server:
        agree(server, applied, "spike", "act-reader", capsys)
        lists = {actor: server.client.get("/graphs", headers=bearer(actor)).status_code for actor in ACTORS}
        assert lists == {"act-reader": 403, "act-analyst": 403, "act-admin": 200}
        for query, params in asked(applied):
            if query.kind is QueryEffect.MUTATION:
                assert invoke(server, "spike", query.name, params, "act-reader").status_code == 403
                assert invoke(server, "spike", query.name, params, "act-admin").status_code == 404
        pattern = {"slug": "pat-served", "name": "Served", "kind": "disruption"}
        times = dict.fromkeys(("createdAt", "updatedAt"), "2026-01-02T03:04:05Z")
        added = invoke(server, "spike", "add_pattern", pattern | times, "act-analyst")
        assert (added.status_code, added.json()["affected_nodes"]) == (200, 1), added.text
        seen = invoke(server, "spike", "get_pattern", {"slug": "pat-served"}, "act-reader").json()
        assert seen["rows"] == by_command(applied, "spike", "get_pattern", {"slug": "pat-served"}, capsys)["rows"] != []


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token of {actor}"}
