"""`gitops serve --read-replica` beside the server that takes the changes, both as programs on one bucket."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cluster import Cluster
from tests.support.loop import CLUSTER_YAML, CONFIG, FILES, Loop
from tests.support.prefork import PROGRAM
from tests.support.s3 import Asked, S3Place
from tests.support.served_command import Served, environment, serve, serving

pytestmark = pytest.mark.e2e

SCHEMA = "node Person { handle: String @key  age: I32? }\nedge Knows: Person -> Person\n"
QUERIES = """query people() { match { $p: Person } return { $p.handle, $p.age } order { $p.handle asc } }
query known($h: String) { match { $p: Person { handle: $h } $p knows $q } return { $q.handle } order { $q.handle asc } }
query grow($h: String, $a: I32) { update Person set { age: $a } where handle = $h }
"""
GRANTED = """version: 1
groups:
  readers: [ada, eve]
  writers: [ada]
rules:
  - id: stored-queries
    allow: { actors: { group: readers }, actions: [invoke_query] }
  - id: reading
    allow: { actors: { group: readers }, actions: [read], branch_scope: any }
  - id: changing
    allow: { actors: { group: writers }, actions: [change], branch_scope: any }
"""
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada", "eve": "t-eve"}'}
WRITER = "https://brain.example"
WAIT_S = 60


def asks(actor: str = "ada") -> dict[str, str]:
    return {"Authorization": f"Bearer t-{actor}"}


def ask(server: Served, name: str, actor: str = "ada", **params: Any) -> httpx.Response:
    body = {"params": params}
    return server.client.post(f"/graphs/knowledge/queries/{name}", json=body, headers=asks(actor))


def awaited(look: Callable[[], Any]) -> Any:
    """What a look finds, once it finds anything."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
    raise AssertionError("what was awaited did not happen")


def data_files(log: list[Asked]) -> int:
    return sum(each.kind == "GET" and ".lance/" in each.path for each in log)


@pytest.fixture
def library(s3: S3Place, tmp_path: Path) -> S3Place:
    """A cluster with one graph and a policy, applied and loaded, in a bucket."""
    folder = tmp_path / "folder"
    folder.mkdir()
    cluster = Cluster(folder)
    cluster.options["storage"] = s3.root
    cluster.graphs = {"knowledge": {"people": "all.gq", "known": "all.gq", "grow": "all.gq"}}
    cluster.write("knowledge.pg", SCHEMA)
    cluster.write("all.gq", QUERIES)
    cluster.write("base.policy.yaml", GRANTED)
    cluster.save()
    rows = [{"type": "Person", "data": {"handle": name, "age": 1}} for name in ("ann", "ben")]
    cluster.write("rows.jsonl", "\n".join(map(json.dumps, [*rows, {"edge": "Knows", "from": "ann", "to": "ben"}])))
    load = ("graph", "load", "knowledge", str(cluster.folder / "rows.jsonl"))
    for verb in (("import",), ("apply",), load):
        command = [*PROGRAM, *verb, "--config", str(cluster.folder)]
        subprocess.run(command, env=environment(**s3.environ), check=True, capture_output=True)
    return s3


@pytest.fixture
def writer(library: S3Place) -> Iterator[Served]:
    with serving("--cluster", library.root, "--no-report", environ={**TOKENS, **library.environ}) as server:
        yield server


def replica(place: S3Place, folder: Path, *more: str) -> Any:
    options = ("--cluster", place.root, "--read-replica", str(folder), *more)
    return serving(*options, environ={**TOKENS, **place.environ})


def test_a_replica_answers_like_the_writer_follows_it_and_refuses_changes(
    library: S3Place, writer: Served, tmp_path: Path
) -> None:
    with replica(library, tmp_path / "cache", "--max-staleness", "1s", "--writer", WRITER) as server:

        def caught_up() -> httpx.Response | None:
            found, wanted = ask(server, "people"), ask(writer, "people").json()
            return found if found.json() == wanted and "Omnigraph-Replica-Stale" not in found.headers else None

        first = awaited(caught_up)
        assert first.json()["rows"] == [{"p.handle": "ann", "p.age": 1}, {"p.handle": "ben", "p.age": 1}]
        assert ask(server, "known", h="ann").json() == ask(writer, "known", h="ann").json()
        for age in (30, 31):
            assert ask(writer, "grow", h="ann", a=age).status_code == 200
            assert awaited(caught_up).json()["rows"][0]["p.age"] == age
        version = int(first.headers["Omnigraph-Replica-Version"]) + 2
        awaited(lambda: ask(server, "people").headers["Omnigraph-Replica-Version"] == str(version) or None)
        library.server.log.clear()
        refused = ask(server, "grow", h="ann", a=99)
        assert (refused.status_code, refused.json()["read_replica"]["writer"]) == (403, WRITER)
        assert refused.json()["read_replica"]["reason"] == "replica_read_only"
        # The policies decide first, as on every server.
        assert "read_replica" not in ask(server, "grow", actor="eve", h="ann", a=99).json()
        assert ask(server, "people", actor="eve").status_code == 200
        assert server.client.get("/graphs/knowledge/queries").status_code == 401
        rows = server.client.post(
            "/graphs/knowledge/load/ndjson?mode=append",
            content=b"{}",
            headers={**asks(), "Content-Type": "application/x-ndjson"},
        )
        assert rows.status_code in (403, 404)
        assert {each.kind for each in library.server.log} <= {"GET", "LIST", "HEAD"}
        assert server.stop() == 0


def test_a_replica_survives_an_outage_up_to_its_bound_and_starts_from_its_copy(
    library: S3Place, tmp_path: Path
) -> None:
    admin = ("--max-staleness", "1s", "--max-outage", "6s", "--workers", "2", "--admin-bind", "127.0.0.1:0")
    with replica(library, tmp_path / "cache", *admin) as server:
        before = ask(server, "people").json()
        assert before["row_count"] == 2
        library.server.fault = lambda _: 503
        stale = awaited(
            lambda: found if "Omnigraph-Replica-Stale" in (found := ask(server, "people")).headers else None
        )
        assert stale.json() == before
        refused = awaited(lambda: found if (found := ask(server, "people")).status_code == 503 else None)
        assert refused.json()["replica_stale"]["reason"] == "replica_too_stale"
        library.server.forget()
        assert awaited(lambda: found if (found := ask(server, "people")).status_code == 200 else None).json() == before
        assert server.stop() == 0
    # Without the bucket, it serves what it has; with it, no file of a table is read again.
    library.server.fault = lambda _: 503
    with replica(library, tmp_path / "cache") as server:
        assert ask(server, "people").json() == before
        library.server.forget()
        assert server.stop() == 0
    with replica(library, tmp_path / "cache", "--max-staleness", "1s") as server:
        assert ask(server, "people").json() == before
        assert data_files(library.server.log) == 0
        assert {each.kind for each in library.server.log} <= {"GET", "LIST"}


def test_what_a_replica_cannot_copy_is_said_before_it_serves(library: S3Place, tmp_path: Path) -> None:
    def refused(*options: str, environ: Mapping[str, str] = library.environ) -> tuple[int, str]:
        done = serve(*options, "--bind", "127.0.0.1:0", **TOKENS, **environ)
        return done.returncode, done.stdout + done.stderr

    cache = ("--read-replica", str(tmp_path / "cache"))
    code, said = refused("--cluster", library.root, "--cache-size", "1GiB")
    assert (code, "--cache-size requires --read-replica" in said) == (2, True)
    code, said = refused("--cluster", str(tmp_path / "folder"), "--read-replica", str(tmp_path / "folder/rows.jsonl"))
    assert (code, "storage_failed" in said) == (1, True)
    local = tmp_path / "local/__cluster"
    local.mkdir(parents=True)
    code, said = refused("--cluster", str(local.parent), *cache)
    assert (code, "copies a bucket" in said) == (2, True)
    code, said = refused("--cluster", library.root, *cache, "--check")
    assert (code, "knowledge" in said) == (0, True)
    code, said = refused("--cluster", f"{library.root}/other", *cache)
    assert (code, "the copy of another cluster" in said) == (2, True)
    library.server.fault = lambda _: 503
    code, said = refused("--cluster", library.root, "--read-replica", str(tmp_path / "empty"))
    assert (code, "storage_failed" in said) == (1, True)


@pytest.mark.slow
def test_a_replica_of_a_branch_ledger_copies_its_graphs_only(loop: Loop, s3: S3Place, tmp_path: Path) -> None:
    two = CONFIG.replace("ledger:", "  - {name: other, path: other, branch: main}\nledger:", 1)
    text = CLUSTER_YAML.replace("graphs:", f"storage: s3://{s3.bucket}/other\ngraphs:", 1)
    folder = {path.replace("cluster/", "other/"): data for path, data in FILES.items() if path.startswith("cluster/")}
    change = {**folder, "other/cluster.yaml": text.encode(), "gitops.yaml": two.encode()}
    loop.program("bot", "git", "config", "gitops.storage", f"s3://{s3.bucket}", at=loop.server)
    loop.move("refs/heads/topic", loop.commit("alice", change))
    loop.merge("carol", 1)
    s3.server.log.clear()
    at = ("--repo", str(loop.server), "--cluster", "other", "--read-replica", str(tmp_path / "cache"))
    with serving(*at, environ={**loop.environment("bot"), **s3.environ, **TOKENS}) as server:
        found = server.client.get("/graphs/notes/snapshot", headers=asks())
        assert (found.status_code, found.headers["Omnigraph-Replica-Version"]) == (200, "1")
        assert server.stop() == 0
    assert {each.kind for each in s3.server.log} == {"GET", "LIST"}
    assert not any("__cluster" in each.path for each in s3.server.log)
