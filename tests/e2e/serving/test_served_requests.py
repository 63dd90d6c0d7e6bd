"""Previewed change requests on a query server: a real one over the repository, asked over HTTP."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from markdown_it import MarkdownIt

from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.forge.events import RequestAction, RequestEvent, TimerEvent
from gitops.repository.kept_previews import keep_preview, kept_preview
from gitops.repository.served_previews import OpenedRepository, PreviewCopies, ServedPreviews
from gitops.repository.wiring.previews import MachinePreviews, StoredScratch
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.e2e.conftest import ON_FORGES, Built
from tests.support.bot_stage import ALICE, BOT, WRITERS, Stage, said
from tests.support.clock import FixedClock
from tests.support.loop import CLUSTER, CLUSTER_YAML, MAIN, SIGNERS, TRUSTED, Loop, email
from tests.support.loop_data import load
from tests.support.page_edits import apply_edit
from tests.support.pages import ROOT, read_page
from tests.support.previews import Bench, stored
from tests.support.served_command import Served, environment, serving

pytestmark = pytest.mark.e2e

RULES = "preview: {enabled: true, scratch: previews}\nserve: {previews: true, previewers: [act-ada, act-ed, act-eve]}\n"
WRITING = RULES.replace("scratch: previews", "scratch: previews, writes: clone")
POLICY = """version: 1
groups:
  readers: [act-ada, act-bob, act-ed]
  editors: [act-ed]
rules:
  - {id: reading, allow: {actors: {group: readers}, actions: [read, invoke_query]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
GUARDED = CLUSTER_YAML + "policies:\n  roles: {file: roles.policy.yaml, applies_to: [notes]}\n"
CHANGED = GUARDED.replace(
    "        file: notes.gq\n", "        file: notes.gq\n      add_note:\n        file: notes.gq\n", 1
)
QUERIES = """query titles() { match { $n: Note } return { $n.title, $n.text } order { $n.title asc } }
query add_note($title: String) { insert Note { title: $title } }
"""
RENAMED: dict[str, bytes | None] = {
    "cluster/notes.pg": b'node Note {\n    title: String @key\n    body: String? @rename_from("text")\n}\n',
    "cluster/notes.gq": QUERIES.replace("text", "body").encode(),
}
TOKENS = {name: f"{name}-token-of-many-characters" for name in ("act-ada", "act-bob", "act-ed", "act-eve")}
TITLES = "/graphs/notes/queries/titles"
AT = "/-/requests/1"


@dataclass
class World:
    """A cluster with two notes under a policy, and its bot."""

    bench: Bench

    @property
    def copies(self) -> Path:
        return self.bench.stage.loop.folder / "data" / CLUSTER / "previews" / CLUSTER

    def previewed(self, files: Mapping[str, bytes | None] = RENAMED) -> str:
        """Request 1, previewed by the bot; its head."""
        head = self.bench.stage.propose("alice", "rename", dict(files))
        self.bench.run()
        return head

    @contextmanager
    def server(self, *more: str, tokens: Mapping[str, str] = TOKENS) -> Iterator[Served]:
        loop = self.bench.stage.loop
        options = ("--repo", str(loop.server), "--cluster", CLUSTER, "--no-report", "--json", *more)
        environ = {**loop.environment("bot"), "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens)}
        with serving(*options, environ=environ) as server:
            yield server


@pytest.fixture
def world(built: Built, tmp_path: Path) -> World:
    return made(built, tmp_path / "world")


def made(built: Built, folder: Path, rules: str = RULES) -> World:
    loop = built(ON_FORGES + rules).copied(folder)
    files = {"cluster/cluster.yaml": CHANGED.encode(), "cluster/roles.policy.yaml": POLICY.encode()}
    loop.move(MAIN, loop.commit("carol", {**files, "cluster/notes.gq": QUERIES.encode()}))
    load(loop, 2, "notes", "Note", "title", cells={"text": "what it says"})
    return World(Bench(Stage(loop, people={**WRITERS, email("alice"): WRITERS[ALICE]})))


def ask(server: Served, path: str, who: str = "act-ada", method: str = "GET", **more: Any) -> httpx.Response:
    # The first use of a request starts a worker.
    return server.client.request(method, path, headers={"Authorization": f"Bearer {TOKENS[who]}"}, timeout=60, **more)


def untold(answer: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs between any two answers."""
    dull = {"date", "x-request-id"}
    return answer.status_code, {k: v for k, v in answer.headers.items() if k not in dull}, answer.content


def test_a_request_that_renames_a_property_answers_beside_the_live_graph(world: World) -> None:
    head = world.previewed()
    live = stored(world.bench.stage.loop.graph("notes"))
    with world.server() as server:
        before, after = ask(server, TITLES), ask(server, AT + TITLES)
        assert before.status_code == after.status_code == 200, after.text
        assert before.json()["rows"][0] == {"n.title": "n0", "n.text": "what it says"}
        assert after.json()["rows"][0] == {"n.title": "n0", "n.body": "what it says"}
        assert (after.headers["gitops-request"], after.headers["gitops-request-head"]) == ("1", head)
        assert after.headers["omnigraph-applied-revision"] == before.headers["omnigraph-applied-revision"]
        assert "gitops-request" not in before.headers
        inline = {"query": "query q() { match { $n: Note } return { $n.body } }"}
        assert ask(server, f"{AT}/graphs/notes/query", method="POST", json=inline).json()["row_count"] == 2
        schema = ask(server, f"{AT}/graphs/notes/schema").json()
        assert "body: String?" in json.dumps(schema)
        document = ask(server, f"{AT}/graphs/notes/openapi.json").json()
        assert document["servers"] == [{"url": "/-/requests/1"}]
        assert "n.body" in document["components"]["schemas"]["titles_rows"]["properties"]["rows"]["items"]["properties"]
        assert not [path for path in document["paths"] if "branches" in path]
        unchanged = ask(server, f"{AT}/graphs/legacy/schema")
        assert (unchanged.status_code, "the graph is at /graphs/legacy" in unchanged.text) == (404, True)
        server.stop()
        log = [json.loads(line) for line in server.log().splitlines()]
    decided = [each for each in log if each.get("event") == "decision" and each.get("change_request") == 1]
    assert {each["scope"] for each in decided} == {"request.graph.notes"}
    assert {(each["head"]) for each in log if each.get("event") == "request" and "change_request" in each} == {head}
    # The bot's copies were used, and the live graph was only read.
    assert len(list(world.copies.glob("1/*/claim.json"))) == 1
    assert stored(world.bench.stage.loop.graph("notes")) == live


def test_strangers_are_told_the_same_about_every_number(world: World) -> None:
    """Neither may a wider policy in the request let somebody in: act-eve may not read the live graph."""
    wider = POLICY.replace("readers: [", "readers: [act-eve, act-bob, ").encode()
    # The request lists one more in its own rules, too.
    rules = (ON_FORGES + RULES.replace("act-eve]", "act-eve, act-bob]")).encode()
    world.previewed({**RENAMED, "cluster/roles.policy.yaml": wider, "gitops.yaml": rules})
    with world.server() as server:
        assert ask(server, AT + TITLES).status_code == 200
        assert ask(server, AT + TITLES, "act-ed").status_code == 200
        nothing = untold(ask(server, "/-/requests/2" + TITLES))
        assert nothing[0] == 404
        for number in ("1", "2", "x", "01", "9" * 30):
            for who in ("act-bob", "act-eve"):
                assert untold(ask(server, f"/-/requests/{number}{TITLES}", who)) == nothing, (number, who)
        assert untold(ask(server, f"{AT}/graphs/other/queries/titles")) == nothing
        post = {"method": "POST", "json": {"query": "query q() { match { $n: Note } return { $n.title } }"}}
        for number in (1, 2):
            assert untold(ask(server, f"/-/requests/{number}/graphs/notes/query", "act-eve", **post)) == nothing
        assert server.client.get(AT + TITLES).status_code == 401


def test_a_closed_request_is_gone_for_those_who_could_use_it(world: World) -> None:
    world.previewed()
    bench = world.bench
    with world.server() as server:
        assert ask(server, AT + TITLES).status_code == 200
    lines = said(bench.run(RequestEvent(1, RequestAction.CLOSED, "0" * 40)))
    assert "the preview of request 1 is closed" in lines
    assert not (world.copies / "1").exists()
    with world.server() as server:
        gone = ask(server, AT + TITLES)
        assert (gone.status_code, gone.json()["change_request"]["reason"]) == (410, "preview_closed")
        assert ask(server, AT + TITLES, "act-bob").status_code == 404
        assert ask(server, AT + TITLES, "act-eve").status_code == 404
    # Nothing made it again.
    assert not (world.copies / "1").exists()
    # Opened again, it is previewed and served again.
    assert "closed" not in said(bench.run())
    with world.server() as server:
        assert ask(server, AT + TITLES).status_code == 200


def test_the_hook_of_a_bare_repository_closes_what_is_merged(world: World) -> None:
    world.previewed()
    lines = world.bench.stage.loop.merge("carol", 1)[1]
    assert [line for line in lines if "the preview of request 1 is closed" in line]
    assert not (world.copies / "1").exists()


def test_a_timer_closes_what_was_closed_without_an_event(world: World) -> None:
    world.previewed()
    world.bench.stage.loop.book.close(1)
    assert "the preview of request 1 is closed" in said(world.bench.run(TimerEvent()))
    assert "closed" not in said(world.bench.run(TimerEvent()))


def test_writes_are_refused_or_stay_on_the_copy(world: World, built: Built, tmp_path: Path) -> None:
    world.previewed()
    add = {"method": "POST", "json": {"params": {"title": "new"}}}
    path = "/graphs/notes/queries/add_note"
    with world.server() as server:
        refused = ask(server, AT + path, "act-ed", **add)
        assert (refused.status_code, refused.json()["change_request"]["reason"]) == (403, "preview_read_only")
        # The request's own policy decides first.
        assert "needs the permission change" in ask(server, AT + path, **add).text
    writing = made(built, tmp_path / "writing", WRITING)
    writing.previewed()
    live = stored(writing.bench.stage.loop.graph("notes"))
    with writing.server() as server:
        assert ask(server, AT + path, "act-ed", **add).json()["affected_nodes"] == 1
        assert ask(server, AT + path, **add).status_code == 403
        rows = ask(server, AT + TITLES).json()["rows"]
        assert [each["n.title"] for each in rows] == ["n0", "n1", "new"]
        assert ask(server, TITLES).json()["row_count"] == 2
    assert stored(writing.bench.stage.loop.graph("notes")) == live
    # The copies that the bot compares stay as they were.
    roots = sorted(each.parent for each in writing.copies.glob("1/*/claim.json"))
    counts = {graph.open_snapshot(str(root / "notes.after.omni")).manifest.n for root in roots}
    assert (len(roots), len(counts)) == (2, 2)


def test_copies_are_found_again_and_made_again_after_they_are_gone(world: World) -> None:
    world.previewed()
    scratch = StoredScratch(str(world.copies.parent), CLUSTER)
    (claim,) = scratch.claims()
    shutil.rmtree(scratch.place(claim))
    # Many clients of several processes at once make one copy.
    with world.server("--workers", "2") as server:
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _: ask(server, AT + TITLES), range(8)))
        assert {each.status_code for each in answers} == {200}
        assert len({each.json()["graph_commit_id"] for each in answers}) == 1
        (made,) = scratch.claims()
        root = Path(scratch.place(made)) / "notes.after.omni"
    first = root.stat().st_ino
    with world.server() as server:
        assert ask(server, AT + TITLES).status_code == 200
        assert ([*scratch.claims()], root.stat().st_ino) == ([made], first)
    # Expired: made again on use.
    scratch.write(replace(made, expires_at="2020-01-01T00:00:00Z"))
    with world.server() as server:
        assert ask(server, AT + TITLES).status_code == 200
        assert root.stat().st_ino != first
        assert scratch.claims()[0].expires_at > "2026"
        # Gone while it is served.
        shutil.rmtree(root)
        assert ask(server, AT + TITLES).status_code == 200
        assert root.is_dir()


def test_agents_try_a_request_with_its_tools(world: World) -> None:
    world.previewed()
    headers = {"Authorization": f"Bearer {TOKENS['act-ada']}", "Accept": "application/json, text/event-stream"}
    with world.server() as server:

        def message(path: str, method: str, **params: object) -> Any:
            form = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = server.client.post(f"{path}/graphs/notes/mcp", headers=headers, json=form, timeout=60)
            return answer.json()["result"]

        assert [each["name"] for each in message(AT, "tools/list")["tools"]] == ["titles"]
        found = message(AT, "tools/call", name="titles", arguments={})
        assert found["structuredContent"]["rows"][0] == {"n.title": "n0", "n.body": "what it says"}
        live = message("", "tools/call", name="titles", arguments={})
        assert live["structuredContent"]["rows"][0] == {"n.title": "n0", "n.text": "what it says"}


def test_a_copy_that_gc_outran_is_made_again(world: World) -> None:
    """The live graph is rewritten and cleaned after the preview, so that the copy names data files that are gone."""
    world.previewed()
    loop, late = world.bench.stage.loop, FixedClock(datetime(2100, 1, 1, tzinfo=UTC))
    load(loop, 3, "notes", "Note", "title", mode=graph.LoadMode.OVERWRITE, cells={"text": "new"})
    context = graph.WriteContext(late, RandomIds())
    assert graph.collect_garbage(
        str(loop.graph("notes")), context, graph.Retention(1, timedelta(days=1))
    ).table_versions
    with world.server() as server:
        found = ask(server, AT + TITLES)
        assert (found.status_code, found.json()["row_count"]) == (200, 3), found.text
        assert found.json()["rows"][0]["n.body"] == "new"


PAGE = [(each.info, each.content) for each in MarkdownIt().parse(read_page("previews.md")) if each.type == "fence"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_answer_as_it_shows(tmp_path: Path) -> None:
    """`docs/previews.md`: its rules, its edit, the two requests and their answers."""
    loop, example = Loop.empty(tmp_path / "loop"), ROOT / "examples" / "company-brain"
    rules = "".join(text for kind, text in PAGE if kind == "yaml")
    files = {f"cluster/{each.relative_to(example)}": each.read_bytes() for each in example.rglob("*") if each.is_file()}
    config = (ON_FORGES + rules).encode()
    loop.move(MAIN, loop.commit("alice", {**files, "gitops.yaml": config, SIGNERS: loop.signers(*TRUSTED)}))
    context = graph.WriteContext(SystemClock(), RandomIds())
    seed = io.BytesIO((example / "seed.jsonl").read_bytes())
    graph.load_records(graph.LoadRequest(str(loop.graph("knowledge")), seed, graph.LoadMode.MERGE), context)
    edited = tmp_path / "edited"
    shutil.copytree(example, edited)
    changed: dict[str, bytes | None] = {}
    for info, text in PAGE:
        kind, _, path = info.partition(" ")
        if kind == "diff":
            apply_edit(edited, kind, path, text)
            changed[f"cluster/{path}"] = (edited / path).read_bytes()
    world = World(Bench(Stage(loop, people={**WRITERS, email("alice"): WRITERS[ALICE]})))
    world.previewed(changed)
    # The comment of the request asks the address in the rules.
    assert '`curl --oauth2-bearer "$TOKEN" https://brain.example/graphs/knowledge/queries`' in loop.comment(1)
    assert "https://brain.example/-/requests/1/graphs/knowledge/queries`" in loop.comment(1)
    compared = 0
    with world.server(tokens={"act-reader": "reader-token"}) as server:
        for (kind, script), (then, shown) in itertools.pairwise(PAGE):
            if kind == "sh" and script.startswith("curl ") and then == "json":
                environ = environment(SERVER=str(server.client.base_url).rstrip("/"), TOKEN="reader-token")
                words = ["sh", "-c", script.replace("/requests/7/", "/requests/1/")]
                done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=120, check=True)
                found, expected = (json.loads(re.sub(r"01[0-9A-Z]{24}", "ID", text)) for text in (done.stdout, shown))
                assert found == expected
                compared += 1
    assert compared == 2


def directly(world: World, bench: MachinePreviews, pause: Callable[[float], object]) -> ServedPreviews:
    """What a server reads, in this process."""
    local = world.bench.stage.loop.local()
    return ServedPreviews(lambda: OpenedRepository(local, local.rule(CLUSTER), bench), pause)


def test_copies_are_made_in_the_turn_of_the_cluster(world: World) -> None:
    world.previewed()
    scratch = StoredScratch(str(world.copies.parent), CLUSTER)
    shutil.rmtree(scratch.place(scratch.claims()[0]))
    bench, paused = world.bench.bot().previews, list[float]()
    assert isinstance(bench, MachinePreviews)
    assert scratch.begin(SystemClock().now())
    previews = directly(world, bench, paused.append)
    commit = previews.look().records[1]
    record = previews.record(1, commit)

    def copies(previews: ServedPreviews, commit: str) -> PreviewCopies:
        def accept(found: PreviewCopies) -> PreviewCopies:
            graph.open_snapshot(found.roots["notes"])
            return found

        return previews.copies(record, commit, accept, writes=False, lost=None)

    with pytest.raises(GitopsError, match="another preview of this cluster is running"):
        copies(previews, commit)
    assert sum(paused) == 20
    with pytest.raises(GitopsError, match="its preview has changed"):
        copies(directly(world, bench, lambda _: scratch.end()), "0" * 40)
    assert scratch.begin(SystemClock().now())
    made = copies(directly(world, bench, lambda _: scratch.end()), commit)
    assert (made.number, made.place) == (1, scratch.place(scratch.claims()[0]))
    # The turn is free again.
    assert scratch.begin(SystemClock().now())


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("node Note {\n    title: String @key\n    text: String\n}\n", "rows break a rule of its schema"),
        ("node Note {\n", "its plan has errors"),
    ],
)
def test_a_request_that_cannot_be_served_is_a_conflict(world: World, schema: str, why: str) -> None:
    world.previewed()
    loop = world.bench.stage.loop
    load(loop, 3, "notes", "Note", "title", mode=graph.LoadMode.OVERWRITE)
    local = loop.local()
    known = kept_preview(local, local.position(local.rule(CLUSTER)), CLUSTER, 1)
    assert known is not None
    queries = QUERIES.replace("title: $title", "title: $title, text: $title").encode()
    head = loop.commit("alice", {"cluster/notes.pg": schema.encode(), "cluster/notes.gq": queries})
    # The bot has previewed this head as well, with what it found.
    keep_preview(local, replace(known, head=head), 1, BOT, str(loop.key("bot")))
    with world.server() as server:
        answer = ask(server, AT + TITLES)
        assert (answer.status_code, answer.json()["change_request"]) == (409, {"reason": "preview_not_served"})
        assert why in answer.text
        assert str(world.copies) not in answer.text
