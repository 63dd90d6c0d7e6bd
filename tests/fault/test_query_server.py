"""What a query server does while its bucket is away, its graph is tampered with, and its revisions come fast."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import httpx
import pytest

from gitops.cluster.model.served import RevisionIdentity
from gitops.serving.generation import Generation
from tests.support.query_graphs import create, put, town
from tests.support.query_server import Running, generation, running, served, town_graph
from tests.support.s3 import S3Place

QUERY = "query town($key: String) { match { $t: Town { key: $key } } return { $t.RETURNED } }"
READ = "/graphs/towns/queries/town"


def read(server: Running, key: str = "a") -> tuple[int, object]:
    answer = server.ask("POST", READ, json={"params": {"key": key}})
    return answer.status_code, answer.json().get("rows")


@pytest.mark.slow
def test_a_bucket_that_stops_answering_is_503_until_it_answers_again(s3: S3Place, monkeypatch) -> None:
    for name, value in {**s3.environ, "GITOPS_STORAGE_RETRY": "0"}.items():
        monkeypatch.setenv(name, value)
    root = create(f"{s3.root}/graphs/towns.omni")
    put(root, [town("a", size=1)])
    with running(generation(served(root))) as server:
        s3.server.fault = lambda _asked: 503
        away = server.ask("POST", READ, json={"params": {"key": "a"}})
        assert (away.status_code, away.json()["storage_failure"]) == (503, {"reason": "storage_failed"})
        assert away.headers["retry-after"] == "5"
        assert s3.bucket not in away.text
        assert server.ask("GET", "/healthz").status_code == 200
        s3.server.fault = lambda asked: 503 if ".lance" in asked.path else None
        assert server.ask("POST", READ, json={"params": {"key": "a"}}).status_code == 503
        s3.server.fault = lambda _asked: None
        assert read(server) == (200, [{"t.key": "a", "t.size": 1, "t.name": None}])


def test_a_manifest_that_was_tampered_with_is_an_error_and_never_another_answer(tmp_path: Path) -> None:
    root = Path(town_graph(tmp_path))
    newest = min((root / "manifests").iterdir())
    good = newest.read_bytes()
    form = json.loads(good)
    other_number = json.dumps(form | {"n": form["n"] + 1}).encode()
    form["tables"]["node:Town"] |= {"version": 1, "rows": 0}
    other_content = json.dumps(form).encode()
    with running(generation(served(str(root)))) as server:
        expected = read(server)
        assert expected[0] == 200
        for bad in (b"", good[:-10], other_number, other_content, b"[]"):
            newest.write_bytes(bad)
            assert read(server)[0] == 500
        newest.write_bytes(good)
        assert read(server) == expected


def identity_of(root: Path) -> str:
    return str(json.loads((root / "graph.json").read_bytes())["graph_id"])


def test_another_graph_and_an_older_copy_at_the_root_are_errors_and_never_another_answer(tmp_path: Path) -> None:
    root, other = Path(town_graph(tmp_path)), Path(town_graph(tmp_path, "other"))
    identity = other / "graph.json"
    identity.write_text(identity.read_text("utf-8").replace(identity_of(root), "01HF7YAT0000000000000000ZZ"), "utf-8")
    shutil.copytree(root, tmp_path / "copy")
    put(str(root), [town("a", size=8)], start=9_000)
    with running(generation(served(str(root)))) as server:
        for found, why in ((tmp_path / "copy", "is 3, but version 4 was served"), (other, "is at the root, but")):
            root.rename(tmp_path / "away")
            found.rename(root)
            assert read(server)[0] == 500
            assert server.ask("GET", "/graphs/towns/snapshot").status_code == 500
            defect = next(each["error"] for each in reversed(server.log) if each["event"] == "defect")
            assert why in defect
            root.rename(found)
            (tmp_path / "away").rename(root)
            assert read(server) == (200, [{"t.key": "a", "t.size": 8, "t.name": None}])


def test_data_that_is_gone_is_an_error_and_never_fewer_rows(tmp_path: Path) -> None:
    root = Path(town_graph(tmp_path))
    with running(generation(served(str(root)))) as server:
        files = [file for file in root.glob("nodes/*.lance/data/*.lance") if file.is_file()]
        assert files
        kept = {file: file.read_bytes() for file in files}
        for file in files:
            file.unlink()
        assert read(server)[0] == 500
        for file, data in kept.items():
            file.write_bytes(data[: len(data) // 2])
        assert read(server)[0] == 500
        for file, data in kept.items():
            file.write_bytes(data)
        assert read(server) == (200, [{"t.key": "a", "t.size": 1, "t.name": "Ash"}])


def test_header_and_rows_are_of_one_revision_however_fast_revisions_come(tmp_path: Path) -> None:
    root = town_graph(tmp_path)
    made: dict[str, Generation] = {}
    for digest, returned in (("aa" * 32, "key"), ("bb" * 32, "size")):
        text = QUERY.replace("RETURNED", returned).encode()
        graph = generation(served(root, queries=text))
        made[digest] = Generation(RevisionIdentity(digest, 7, None), graph.graphs, None, {}, False)
    expected = {"aa" * 32: {"t.key": "a"}, "bb" * 32: {"t.size": 1}}
    with running(made["aa" * 32]) as server:
        answered = threading.Semaphore(0)
        wrong: list[object] = []
        seen: set[str] = set()

        def ask() -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
                for _ in range(60):
                    answer = client.post(READ, json={"params": {"key": "a"}})
                    revision = answer.headers["omnigraph-applied-revision"].removeprefix("sha256:")
                    seen.add(revision)
                    if answer.json().get("rows") != [expected[revision]]:
                        wrong.append((revision, answer.text))
                    answered.release()

        readers = [threading.Thread(target=ask) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(180):
            assert answered.acquire(timeout=60)
            server.source.generation = made[("aa", "bb")[number % 2] * 32]
        for reader in readers:
            reader.join(60)
    assert (wrong, seen) == ([], set(expected))
