"""The change feed and the cells of Blob properties over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.policy.bundle import BranchScope, Bundle, PolicyAction, Rule
from gitops.database.graph import LanceEngine, open_snapshot
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.query_graphs import put, town
from tests.support.query_server import BundleEngine, Running, generation, running, served, tokens, town_graph

AT = "/graphs/towns"
BLOB = f"{AT}/blob?entity=node&type=Doc&id=d&property=body"
LARGE = bytes(range(256)) * 5000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(generation(served(town_graph(tmp_path_factory.mktemp("graphs"))))) as found:
        yield found


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A graph of documents: a small one, a large one, and one without a text."""
    root = str(tmp_path_factory.mktemp("docs") / "docs.omni")
    schema = b"node Doc { key: String @key  body: Blob?  note: String? }"
    LanceEngine(SystemClock(), RandomIds()).prepare_create(root, schema, actor=None).publish()
    texts = {"d": b"0123456789", "large": LARGE, "empty": b""}
    rows = [{"key": key, "body": "base64:" + base64.b64encode(text).decode()} for key, text in texts.items()]
    put(root, [{"type": "Doc", "data": each} for each in (*rows, {"key": "none"})])
    with running(generation(served(root, queries=b"query q() { match { $d: Doc } return { $d.key } }"))) as found:
        yield found


def ask(server: Running, path: str, status: int = 200, **options: Any) -> Any:
    answer = server.ask("GET", path, **options)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_reader_has_what_the_graph_has(server: Running) -> None:
    baseline = server.ask("POST", f"{AT}/changes/baseline", json={"type_names": ["Town"]})
    rows = {json.loads(line)["data"]["id"]: json.loads(line)["data"] for line in baseline.text.splitlines()}
    cursor = baseline.headers["omnigraph-change-cursor"]
    page = ask(server, f"{AT}/changes", params={"cursor": cursor})
    assert (page["changes"], page["page_token"], page["cursor"]) == ([], None, cursor)
    put(server.source.generation.graphs["towns"].uri, [town("a", size=9, name="Ash"), town("n")], start=9_000)
    page = ask(server, f"{AT}/changes", params={"cursor": cursor, "types": "Town", "limit": "1"})
    assert (page["cursor"], len(page["changes"])) == (None, 1)
    seen = page["changes"]
    page = ask(server, f"{AT}/changes", params={"page_token": page["page_token"], "types": "Town"})
    seen += page["changes"]
    assert [(each["entity_id"], each["kind"], each["fields"]) for each in seen] == [
        ("a", "changed", ["size"]),
        ("n", "added", []),
    ]
    rows |= {each["entity_id"]: each["after"] for each in seen}
    again = server.ask("POST", f"{AT}/export", json={"type_names": ["Town"]}).text.splitlines()
    found = [json.loads(line)["data"] for line in again]
    assert found == [{name: cell for name, cell in rows[key].items() if cell is not None} for key in sorted(rows)]
    commit = page["head_commit_id"]
    of_commit = ask(server, f"{AT}/commits/{commit}/changes")
    assert (of_commit["changes"], of_commit["commit"]["graph_commit_id"]) == (seen, commit)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?cursor=x",
        "?start=yesterday",
        "?start=now&cursor=x",
        "?start=now&limit=0",
        "?start=now&limit=1001",
        "?start=now&since=1",
        "?start=now&types=Twon",
        "?start=now&branch=%20",
    ],
)
def test_a_question_that_is_not_understood_is_refused(server: Running, query: str) -> None:
    assert ask(server, f"{AT}/changes{query}", 400)["code"] == "bad_request"


def test_a_gap_is_410_and_an_unknown_branch_404(server: Running) -> None:
    gap = ask(server, f"{AT}/changes?start=after:{'0' * 26}", 410)
    assert (gap["change_feed_gap"], "code" in gap) == ({"reason": "graph_version_gone"}, False)
    ask(server, f"{AT}/changes?start=now&branch=none", 404)
    assert ask(server, f"{AT}/commits/{'0' * 26}/changes", 404)["error"] == f"commit '{'0' * 26}' not found"


def test_what_an_actor_may_not_read_is_as_if_it_did_not_exist(tmp_path: Path) -> None:
    scoped = Rule("reading", "far", (PolicyAction.READ,), branch_scope=BranchScope.UNPROTECTED)
    policy = Bundle(groups={"far": ("fay",)}, protected_branches=frozenset({"main"}), rules=(scoped,))
    graph = served(town_graph(tmp_path), engine=BundleEngine(policy))
    head = open_snapshot(graph.uri).manifest.txn_id
    with running(generation(graph), tokens(fay="t-fay")) as server:
        sent = {"headers": {"Authorization": "Bearer t-fay"}}
        denied = ask(server, f"{AT}/commits/{head}/changes", 404, **sent)
        unknown = ask(server, f"{AT}/commits/{'0' * 26}/changes", 404, **sent)
        assert denied["error"].replace(head, "ID") == unknown["error"].replace("0" * 26, "ID")
        ask(server, f"{AT}/changes?start=now", 403, **sent)
        blob = f"{AT}/blob?entity=node&type=Town&id=a&property=body&snapshot={head}"
        assert ask(server, blob, 404, **sent)["error"] == denied["error"]
        assert server.ask("POST", f"{AT}/changes/baseline", **sent).status_code == 403


def test_a_cell_is_read_whole_and_in_part(docs: Running) -> None:
    whole = docs.ask("GET", BLOB)
    assert (whole.status_code, whole.content, whole.headers["accept-ranges"]) == (200, b"0123456789", "bytes")
    tag = whole.headers["etag"]
    for asked, content, place in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=5-99", b"56789", "bytes 5-9/10"),
    ):
        part = docs.ask("GET", BLOB, headers={"Range": asked, "If-Range": tag})
        assert (part.status_code, part.content, part.headers["content-range"]) == (206, content, place)
    for asked in ("bytes=4-2", "bytes=1-2,4-5", "lines=1-2", "bytes=-"):
        assert docs.ask("GET", BLOB, headers={"Range": asked}).status_code == 200
    assert docs.ask("GET", BLOB, headers={"Range": "bytes=1-2", "If-Range": '"other"'}).status_code == 200
    beyond = docs.ask("GET", BLOB, headers={"Range": "bytes=10-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")
    assert beyond.json()["blob_range"] == {"size": 10}


def test_a_tag_says_whether_the_cell_is_another_one(docs: Running) -> None:
    tag = docs.ask("GET", BLOB).headers["etag"]
    assert docs.ask("GET", BLOB, headers={"If-None-Match": f'"x", W/{tag}'}).status_code == 304
    assert docs.ask("GET", BLOB, headers={"If-Match": tag}).status_code == 200
    moved = docs.ask("GET", BLOB, headers={"If-Match": '"x"'})
    assert (moved.status_code, moved.json()["precondition_failure"]["actual"]) == (412, tag)


def test_the_head_of_a_cell_has_its_size(docs: Running) -> None:
    head = docs.ask("HEAD", BLOB.replace("id=d", "id=large"))
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(LARGE)))


def test_a_large_cell_comes_in_pieces(docs: Running) -> None:
    large = docs.ask("GET", BLOB.replace("id=d", "id=large"))
    assert (large.content, large.headers["content-length"]) == (LARGE, str(len(LARGE)))
    commit = large.headers["omnigraph-snapshot-id"]
    path = BLOB.replace("id=d", "id=large") + f"&snapshot={commit}"
    assert docs.ask("GET", path, headers={"Range": "bytes=256-511"}).content == bytes(range(256))
    assert docs.ask("GET", BLOB.replace("id=d", "id=empty")).content == b""


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("id=d", "id=none"), 404),
        (("id=d", "id=x"), 404),
        (("Doc", "Dco"), 400),
        (("body", "note"), 400),
        (("node", "thing"), 400),
        (("&id=d", ""), 400),
        (("&id=d", "&id=d&branch=main&snapshot=x"), 400),
        (("&id=d", "&id=d&snapshot=x"), 404),
    ],
)
def test_a_cell_that_there_is_not(docs: Running, change: tuple[str, str], status: int) -> None:
    ask(docs, BLOB.replace(*change), status)
