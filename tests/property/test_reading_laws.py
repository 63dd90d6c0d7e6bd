"""An actor learns nothing of a branch on which it has neither `read` nor `export`, whatever it asks the query server.

Two graphs differ only on branches that the actor may not know. Each request of a random sequence is answered by both, byte for
byte alike. One bit is allowed (`docs/policies.md`): whether a change that the actor may make fits what is on such a branch. From
there on the graphs may differ in more, so the sequence ends.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    TARGET_SCOPED,
    BranchScope,
    Bundle,
    PolicyAction,
    Rule,
)
from gitops.cluster.policy.decide import AccessRequest, decide
from gitops.cluster.policy.verbs import PREVIEWED, TELLS, VERBS
from gitops.database import graph
from gitops.database.graph import LoadMode, WriteContext
from gitops.serving.generation import PolicyCover
from gitops.serving.http.app import ROUTES, HttpApp
from gitops.serving.http.work import HttpContext, HttpLimits
from tests.support.effort import cases
from tests.support.ids import SequentialIds
from tests.support.query_graphs import CLOCK, create, put, road, town
from tests.support.query_server import QUERIES, BundleEngine, Source, generation, served, tokens

BRANCHES = ("main", "open", "vault")
KEYS = ("a", "b", "new", "other", "gone-0", "gone-1", "secret-0", "secret-1")
ROWS = [town("a", size=1, name="Ash"), town("b", size=2), road("a", "b", miles=1)]
STORED = QUERIES + b"query grow($by: I32) { update Town set { size: $by } where size > 10 }\n"


class RequestIds:
    """Ids that depend on the number of the request and not on what earlier ones used."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, number: int) -> None:
        self._ids = SequentialIds(1_000_000 * (number + 1))

    def ulid(self) -> str:
        return self._ids.ulid()

    def ulids(self, count: int) -> list[str]:
        return self._ids.ulids(count)


def make_world(root: str, variants: tuple[int, ...]) -> None:
    """Branches that differ by their variants in rows of today, and `main` in rows that were gone when the others were made."""
    create(root)
    put(root, [town(f"gone-{variants[0]}", name=f"past-{variants[0]}"), *ROWS[:2]])
    put(root, ROWS[:2], start=2_000, mode=LoadMode.OVERWRITE)
    put(root, ROWS[2:], start=3_000)
    for number, name in enumerate(BRANCHES[1:]):
        context = WriteContext(CLOCK, SequentialIds(4_000 + 100 * number), "setup")
        graph.create_branch(root, name, context, graph.ReadTarget("main"))
    for number, (branch, variant) in enumerate(zip(BRANCHES, variants, strict=True)):
        lines = "\n".join(
            json.dumps(each)
            for each in (
                town(f"secret-{variant}", size=20 + variant),
                town("a", size=30 + variant, name=f"now-{variant}"),
            )
        )
        wanted = graph.LoadRequest(root, io.BytesIO(lines.encode()), LoadMode.MERGE, branch)
        graph.load_records(wanted, WriteContext(CLOCK, SequentialIds(5_000 + 100 * number), "setup"))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[int, ...], Path]:
    found = {}
    for variants in product((0, 1), repeat=len(BRANCHES)):
        found[variants] = tmp_path_factory.mktemp("world") / "towns.omni"
        make_world(str(found[variants]), variants)
    return found


def commits_of(world: Path) -> list[str]:
    """The ids of all commits: they are alike in all worlds, and the actor may have heard of them."""
    found = {each.txn_id for name in BRANCHES for each in graph.read_log(str(world), name, 100)}
    return sorted(found)


# Requests

_NAMES = (*BRANCHES, "made")
_DULL = {"health", "openapi", "docs", "reload", "listGraphs", "applySchema", "getBlob"}
_DULL |= {"protectedResource", "mcpProtectedResource"}
# These worlds have no change requests; `tests/integration/serving/test_preview_routes.py` has the law of these routes.
_DULL |= {f"preview_{name}" for name in PREVIEWED}
_VERBS = sorted([*(VERBS.keys() - _DULL), *("pollChanges", "readFeed", "mergeBranches", "createBranch", "read") * 2])

_FEEDS = {
    "pollChanges": "changes",
    "captureChangeBaseline": "changes",
    "readFeed": "feed",
    "readFeedBaseline": "feed",
}


@dataclass(frozen=True)
class Asked:
    """A request; `changes` is the branch that it may change. `@N` in its path or body is the Nth known commit."""

    method: str
    path: str
    body: Any = None
    changes: str | None = None

    def send(self, commits: list[str]) -> dict[str, Any]:
        def known(text: str) -> str:
            return re.sub(r"@(\d+)", lambda found: commits[int(found[1]) % len(commits)], text)

        headers = {"Authorization": "Bearer t-eve", "Accept": "application/json, text/event-stream"}
        form: dict[str, Any] = {"method": self.method, "url": f"/graphs/towns/{known(self.path)}", "headers": headers}
        if isinstance(self.body, str):
            headers["Content-Type"] = "application/x-ndjson"
            form["content"] = self.body
        elif self.body is not None:
            headers["Content-Type"] = "application/json"
            form["content"] = known(json.dumps(self.body))
        return form


_STATEMENTS = (
    'insert Town { key: "KEY", size: 5 }',
    'insert Road { from: "KEY", to: "OTHER" }',
    'update Town set { size: 7 } where key = "KEY"',
    "update Town set { size: 7 } where size > LEAST",
    'delete Town where key = "KEY"',
    'insert Twon { key: "KEY" }',
)


def _mutation(chance: random.Random) -> str:
    text = f"query q() {{ {chance.choice(_STATEMENTS)} }}"
    text = text.replace("KEY", chance.choice(KEYS)).replace("OTHER", chance.choice(KEYS))
    return text.replace("LEAST", str(chance.choice((19, 20, 30))))


def make_request(chance: random.Random) -> Asked:
    """One request of any verb."""
    branch, other, key = chance.choice(_NAMES), chance.choice(_NAMES), chance.choice(KEYS)
    commit = f"@{chance.randrange(30)}"
    condition = {"branch": branch} if chance.random() < 0.5 else {"snapshot": commit}
    possible = [town(key, size=3), road(key, "a"), town("new"), {"type": "Nothing", "data": {}}]
    records = "\n".join(json.dumps(each) for each in chance.sample(possible, chance.randrange(3)))
    mode = chance.choice(("merge", "append", "overwrite"))
    origin = {"from": other} if chance.random() < 0.5 else {}
    match chance.choice(_VERBS):
        case "query" | "read" as verb:
            member = "query" if verb == "query" else "query_source"
            text = (
                "query q() { match { $t: Town  $t road $u } return { $t.key, $t.size, $u.key } order { $t.key asc } }"
            )
            return Asked("POST", verb, {member: text, **condition})
        case "mutate" | "change" as verb:
            conflict = {} if chance.random() < 0.5 else {"conflict": "strict"}
            return Asked("POST", verb, {"query": _mutation(chance), "branch": branch, **conflict}, branch)
        case "graph_openapi":
            return Asked("GET", "openapi.json")
        case "list_queries":
            return Asked("GET", "queries")
        case "read_stored_query":
            where = "&".join(f"{name}={value}" for name, value in condition.items())
            return Asked("GET", f"queries/town?key={key}&{where}")
        case "invoke_query":
            stored = chance.choice((("town", {"key": key}), ("drop_town", {"key": key}), ("grow", {"by": 9})))
            return Asked("POST", f"queries/{stored[0]}", {"params": stored[1], "branch": branch}, branch)
        case "mcp":
            name, given = chance.choice((("towns", {}), ("town", {"key": key}), ("grow", {"by": 9})))
            call = {"name": name, "arguments": given}
            message = chance.choice((("tools/list", {}), ("tools/call", call)))
            form = {"jsonrpc": "2.0", "id": 1, "method": message[0], "params": message[1]}
            return Asked("POST", "mcp", form, "main" if name == "grow" else None)
        case "getSchema":
            return Asked("GET", "schema")
        case "listBranches":
            return Asked("GET", "branches")
        case "createBranch":
            return Asked("POST", "branches", {"name": branch, **origin}, branch)
        case "deleteBranch":
            return Asked("DELETE", f"branches/{branch}", None, branch)
        case "mergeBranches":
            body = {"source": other, "target": branch, "delete_branch": chance.random() < 0.5}
            return Asked("POST", "branches/merge", body, branch)
        case "listCommits":
            return Asked("GET", f"commits?branch={branch}")
        case "getCommit":
            return Asked("GET", f"commits/{commit}")
        case "getCommitChanges":
            return Asked("GET", f"commits/{commit}/changes")
        case "readFeedCommit":
            return Asked("GET", f"feed/commits/{commit}")
        case "load" | "ingest" as verb:
            return Asked("POST", verb, {"data": records, "branch": branch, "mode": mode, **origin}, branch)
        case "loadNdjson":
            asked = "".join(f"&{name}={value}" for name, value in origin.items())
            return Asked("POST", f"load/ndjson?branch={branch}&mode={mode}{asked}", records, branch)
        case "export":
            return Asked("POST", "export", {"branch": branch})
        case "captureChangeBaseline" | "readFeedBaseline" as verb:
            return Asked("POST", f"{_FEEDS[verb]}/baseline", {"branch": branch})
        case "pollChanges" | "readFeed" as verb:
            start = chance.choice(("now", "beginning", f"after:{commit}"))
            return Asked("GET", f"{_FEEDS[verb]}?branch={branch}&start={start}")
        case _:
            return Asked("GET", f"snapshot?branch={branch}")


_SCOPES = (None, *BranchScope)


def make_bundle(chance: random.Random) -> Bundle:
    """What one actor may do, and which branches are protected."""
    rules = [Rule("call", "all", (PolicyAction.INVOKE_QUERY,))]
    for number in range(chance.randint(2, 5)):
        of = chance.choice((BRANCH_SCOPED, TARGET_SCOPED))
        actions = tuple(sorted(chance.sample(sorted(of), chance.randint(1, 2))))
        branch, target = (chance.choice(_SCOPES), None) if of is BRANCH_SCOPED else (None, chance.choice(_SCOPES))
        rules.append(Rule(f"r{number}", "all", actions, branch, target))
    return Bundle({"all": ("eve",)}, frozenset(chance.sample(BRANCHES, chance.randint(1, 2))), tuple(rules))


@dataclass
class World:
    """A server over a copy of a graph, asked without a network."""

    client: httpx.AsyncClient
    app: HttpApp
    ids: RequestIds

    @classmethod
    def of(cls, made: Path, place: Path, bundle: Bundle) -> World:
        shutil.copytree(made, place)
        ids = RequestIds()
        source = Source(generation(served(str(place), queries=STORED, engine=BundleEngine(bundle))))
        known = tokens(eve="t-eve")
        context = HttpContext(
            source, PolicyCover.POLICY_ENABLED, lambda: known, CLOCK, ids, lambda _record: None, HttpLimits(threads=1)
        )
        app = HttpApp(context, ROUTES)
        return cls(httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server"), app, ids)

    async def ask(self, number: int, given: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self.ids.begin(number)
        answer = await self.client.request(**given)
        return answer.status_code, dict(answer.headers), answer.content


def knows(bundle: Bundle, branch: str) -> bool:
    return any(decide(bundle, AccessRequest("eve", action, branch)).allowed for action in TELLS)


def carried_out(answer: tuple[int, dict[str, str], bytes]) -> tuple[bool, bool]:
    """Whether a change was carried out, and whether the answer says nothing else."""
    status, _, body = answer
    form = json.loads(body)
    if "jsonrpc" in form:
        result = form["result"]
        status, form = 409 if result["isError"] else 200, result["structuredContent"]
    if status == 200:
        return True, all(form.get(name) is None for name in ("affected_nodes", "affected_edges", "outcome", "commit"))
    return False, status == 409 and form.keys() == {"error", "code"} and "are told why" in form["error"]


async def follow(worlds: tuple[World, World], bundle: Bundle, asked: list[Asked], commits: list[str]) -> None:
    for number, each in enumerate(asked):
        given = each.send(commits)
        first, second = [await world.ask(number, given) for world in worlds]
        if first != second:
            outcomes = carried_out(first), carried_out(second)
            assert each.changes is not None, (given, first, second)
            assert not knows(bundle, each.changes), (given, first, second)
            assert outcomes in (((True, True), (False, True)), ((False, True), (True, True))), (given, first, second)
            return


@pytest.mark.parametrize("seed", range(cases(240)))
def test_an_actor_learns_nothing_of_a_branch_that_it_may_not_know(
    worlds: Mapping[tuple[int, ...], Path], seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test
    bundle = make_bundle(chance)
    asked = [make_request(chance) for _ in range(24)]
    variants = tuple(int(not knows(bundle, branch)) for branch in BRANCHES)
    commits = commits_of(worlds[0, 0, 0])

    async def run() -> None:
        with TemporaryDirectory() as folder:
            pair = [
                World.of(worlds[each], Path(folder) / str(number) / "towns.omni", bundle)
                for number, each in enumerate(((0, 0, 0), variants))
            ]
            try:
                await follow((pair[0], pair[1]), bundle, asked, commits)
            finally:
                for world in pair:
                    world.app.close()

    asyncio.run(run())


def test_the_table_has_every_operation() -> None:
    assert VERBS.keys() == {each.operation for each in ROUTES}
