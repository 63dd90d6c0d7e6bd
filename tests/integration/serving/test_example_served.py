"""The example cluster as its applications see it: who may run which of its stored queries."""

from __future__ import annotations

import pytest

from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.read import read_bundle
from gitops.database.language.schema import compile_schema
from tests.support.pages import ROOT
from tests.support.query_cases import Ground
from tests.support.query_engine import World
from tests.support.query_server import generation, running, served, tokens

EXAMPLE = ROOT / "examples" / "company-brain"
ACTORS = {name: f"t-{name}" for name in ("act-reader", "act-editor", "act-operator")}
CITED = [
    {"other.slug": "disk-full", "other.name": "When a disk is full"},
    {"other.slug": "night-of-the-full-disk", "other.name": "The night of the full disk"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    bundle, _ = read_bundle((EXAMPLE / "policies" / "knowledge.policy.yaml").read_bytes(), "knowledge.policy.yaml")
    assert bundle is not None
    lines = tuple((EXAMPLE / "seed.jsonl").read_text("utf-8").splitlines())
    schema = (EXAMPLE / "knowledge" / "schema.pg").read_bytes()
    root = World(tmp_path_factory.mktemp("example")).make(Ground(schema, compile_schema(schema), lines))
    queries = b"".join(file.read_bytes() for file in sorted((EXAMPLE / "knowledge" / "queries").glob("*.gq")))
    graph = served(root, "knowledge", queries=queries, engine=CedarEngine(bundle, "knowledge"))
    with running(generation(graph), tokens(**ACTORS)) as found:
        yield found


@pytest.mark.parametrize(
    ("actor", "reads", "changes"), [("act-reader", 200, 403), ("act-editor", 200, 200), ("act-operator", 404, 404)]
)
def test_the_policy_of_the_example_decides(server, actor, reads, changes):
    def invoke(query, params):
        headers = {"Authorization": f"Bearer {ACTORS[actor]}"}
        return server.ask("POST", f"/graphs/knowledge/queries/{query}", headers=headers, json={"params": params})

    read = invoke("cited_by", {"slug": "why-columns"})
    assert (read.status_code, read.json().get("rows")) == (reads, CITED if reads == 200 else None)
    assert invoke("promote", {"person": "ada", "level": 9}).status_code == changes
