"""The mount of previewed change requests: who learns of them, and what is opened when. The repository is imitated."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.database import graph
from gitops.repository.served_previews import PreviewOffer
from gitops.review.previews import order as orders
from gitops.review.previews.record import Counts, PreviewRecord, PreviewVerdict
from gitops.serving.generation import Generation, PolicyCover, PreviewSource
from gitops.serving.http import preview_routes
from gitops.serving.http.app import ROUTES, HttpApp
from gitops.serving.http.preview_routes import LOOK_S, MOST_OPEN
from gitops.serving.http.work import HttpContext, HttpLimits
from gitops.serving.previews import OpenedPreview
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.query_server import BundleEngine, Source, generation, served, tokens, town_graph

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HEAD = "a" * 40
WHO = {"ada": "may read and is listed", "ben": "may read", "eve": "is listed", "mal": "neither"}
READS = (PolicyAction.READ, PolicyAction.INVOKE_QUERY)
LIVE = Bundle({"staff": ("ada", "ben")}, rules=(Rule("reading", "staff", READS),))
WIDER = Bundle({"all": tuple(WHO)}, rules=(Rule("everything", "all", (*READS, PolicyAction.CHANGE)),))
TOWNS = "/-/requests/{}/graphs/towns/queries/towns"


@dataclass
class Requests:
    """The previewed requests of an imitated repository. `records` has the state of each: open, closed, or forged."""

    live: str
    copy: str
    records: dict[int, str] = field(default_factory=dict)
    served: bool = True
    broken: GitopsError | None = None
    opened: list[tuple[int, bool]] = field(default_factory=list)
    looks: int = 0
    base: str = "b" * 40
    until: datetime = NOW + timedelta(hours=1)
    before_open: Callable[[], object] = lambda: None

    def look(self) -> PreviewOffer:
        self.looks += 1
        if isinstance(self.broken, RemoteError):
            raise self.broken
        listed = frozenset({"ada", "eve"}) if self.served else frozenset()
        commits = {number: f"{number}-{state}" for number, state in self.records.items()} if self.served else {}
        return PreviewOffer(listed, writes=True, base=self.base, records=commits)

    def record(self, number: int, commit: str) -> PreviewRecord:
        state = commit.partition("-")[2]
        if state == "forged":
            raise IntegrityError(Code.PREVIEW_RECORD_REFUSED, "the record is not signed by a ledger signer")
        made = PreviewRecord(
            "k" * 64, "towns", number, HEAD, None, "2026-01-31T12:00:00Z", PreviewVerdict.GOOD, Counts.EXACT, ()
        )
        return replace(made, closed_at="2026-01-31T12:00:00Z" if state == "closed" else None)

    def open(
        self, record: PreviewRecord, commit: str, live: Generation, *, writes: bool, lost: str | None
    ) -> OpenedPreview:
        number = record.request or 0
        self.opened.append((number, lost is not None))
        self.before_open()
        if self.broken is not None:
            raise self.broken
        if lost is not None:
            graph.clone_graph(self.live, self.copy)
        made = generation(served(self.copy, engine=BundleEngine(WIDER)))
        return OpenedPreview(replace(made, preview=PreviewSource(number, HEAD, writes=writes)), self.until, self.copy)


@dataclass
class Mount:
    """A server with these requests, asked without a network."""

    requests: Requests
    app: HttpApp
    clock: FixedClock
    log: list[Any]

    async def ask(self, who: str | None, path: str, method: str = "GET", **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://server") as client:
            headers = {} if who is None else {"Authorization": f"Bearer t-{who}"}
            return await client.request(method, path, headers={**headers, "X-Request-Id": "one"}, **more)

    def all(self, *asked: tuple[str | None, str, str, dict[str, Any]]) -> list[httpx.Response]:
        """The answers to these requests, in order."""

        async def run() -> list[httpx.Response]:
            return [await self.ask(who, path, method, **more) for who, method, path, more in asked]

        return asyncio.run(run())


@contextmanager
def mounted(folder: Path, *, state: PolicyCover = PolicyCover.POLICY_ENABLED, **given: Any) -> Iterator[Mount]:
    folder.mkdir(exist_ok=True)
    live, copy = town_graph(folder), str(folder / "copy.omni")
    graph.clone_graph(live, copy)
    requests, clock, log = Requests(live, copy, **given), FixedClock(NOW), list[Any]()
    known = tokens(**{who: f"t-{who}" for who in WHO})
    engine = None if state is PolicyCover.OPEN else BundleEngine(LIVE)
    source = Source(generation(served(live, engine=engine)))
    context = HttpContext(source, state, lambda: known, clock, SequentialIds(1), log.append, HttpLimits(threads=1))
    app = HttpApp(replace(context, previews=requests), ROUTES)
    try:
        yield Mount(requests, app, clock, log)
    finally:
        app.close()


def said(answer: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    return answer.status_code, dict(answer.headers), answer.content


def every_request() -> list[tuple[str, str, dict[str, Any]]]:
    """Each route of a request's graph, with a body where it takes one."""
    body = {"query": {"query": "query q() { match { $t: Town } return { $t.key } }"}, "mcp": {"id": 1}}
    found = []
    for route in preview_routes.ROUTES:
        path = route.path.replace("{graph_id}", "towns").replace("{name}", "towns").replace("{request}", "7")
        name = route.path.rpartition("/")[2]
        takes = route.body is not None or route.body_type is not None
        found.append((route.method, path, {"json": body.get(name, {})} if takes else {}))
    return found


def test_no_state_of_a_request_is_told_to_those_who_may_not_use_it(tmp_path: Path) -> None:
    """The reading law of the new routes: worlds that differ in a request answer a stranger byte for byte alike."""
    worlds: list[dict[str, Any]] = [{"records": {7: state}} for state in ("open", "closed", "forged")]
    worlds += [{}, {"records": {7: "open"}, "served": False}]
    answers: dict[tuple[str | None, int], set[Any]] = {}
    for number, world in enumerate(worlds):
        with mounted(tmp_path / str(number), **world) as mount:
            asked = [(who, *each) for who, each in product((*WHO, None), every_request())]
            for at, answer in enumerate(mount.all(*asked)):
                answers.setdefault((asked[at][0], at), set()).add(repr(said(answer)))
    strangers = {place: found for place, found in answers.items() if place[0] != "ada"}
    assert {place for place, found in strangers.items() if len(found) > 1} == set()
    # The one who may use it is told whether it is open or closed. A forged record is none.
    assert sum(len(found) == 3 for (who, _), found in answers.items() if who == "ada") > 5


def test_a_server_without_tokens_serves_no_request(tmp_path: Path) -> None:
    with mounted(tmp_path, state=PolicyCover.OPEN, records={7: "open"}) as mount:
        answers = mount.all(*((None, *each) for each in every_request()))
        # A body that is malformed is refused before anything else is looked at.
        assert {each.status_code for each in answers} == {400, 404}
        assert not mount.requests.looks


def test_the_policy_of_the_request_is_decided_on_top_of_the_live_one(tmp_path: Path) -> None:
    with mounted(tmp_path, records={7: "open"}) as mount:
        add = {"json": {"params": {"key": "z", "size": 1}}}
        path = "/graphs/towns/queries/add_town"
        answers = mount.all(
            ("ada", "POST", path, add),
            ("ada", "POST", f"/-/requests/7{path}", add),
            ("eve", "POST", f"/-/requests/7{path}", add),
            ("ada", "GET", TOWNS.format(7), {}),
            ("ada", "GET", "/graphs/towns/queries/towns", {}),
        )
        assert [each.status_code for each in answers] == [403, 200, 404, 200, 200]
        assert [each.json()["row_count"] for each in answers[3:]] == [4, 3]


def test_a_copy_that_is_full_takes_no_more_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for what the copy stores itself; the live graph and reads of the copy go on."""
    with mounted(tmp_path, records={7: "open"}) as mount:
        path = "/-/requests/7/graphs/towns/queries/add_town"
        add = [("ada", "POST", path, {"json": {"params": {"key": key, "size": 1}}}) for key in "yz"]
        assert mount.all(add[0])[0].status_code == 200
        monkeypatch.setattr(orders, "COPY_BYTES", graph.scratch_size(mount.requests.copy).bytes)
        refused, read = mount.all(add[1], ("ada", "GET", TOWNS.format(7), {}))
        assert (refused.status_code, refused.json()["change_request"]["reason"]) == (403, "preview_limit")
        assert "the copy of request 7 is full" in refused.text
        assert (read.status_code, read.json()["row_count"]) == (200, 4)


def test_many_clients_open_a_request_once_and_the_live_graph_answers_meanwhile(tmp_path: Path) -> None:
    begun, held = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        held.wait(30)

    with mounted(tmp_path, records={7: "open"}) as mount:
        mount.requests.before_open = hold

        async def run() -> list[int]:
            waiting = [asyncio.ensure_future(mount.ask("ada", TOWNS.format(7))) for _ in range(16)]
            assert await asyncio.to_thread(begun.wait, 30)
            # There is one thread for graphs, which nobody occupies.
            assert (await mount.ask("ada", "/graphs/towns/queries/towns")).status_code == 200
            held.set()
            return [each.status_code for each in await asyncio.gather(*waiting)]

        assert asyncio.run(run()) == [200] * 16
        assert mount.requests.opened == [(7, False)]
        assert mount.requests.looks == 1


def test_the_request_that_was_not_used_for_the_longest_time_makes_room(tmp_path: Path) -> None:
    with mounted(tmp_path, records=dict.fromkeys(range(1, MOST_OPEN + 2), "open")) as mount:

        async def run() -> None:
            for number in (*range(1, MOST_OPEN + 1), 1, MOST_OPEN + 1, 1, 2):
                assert (await mount.ask("ada", TOWNS.format(number))).status_code == 200

        asyncio.run(run())
        assert [number for number, _ in mount.requests.opened] == [*range(1, MOST_OPEN + 2), 2]


def test_a_request_that_cannot_be_opened_is_not_tried_by_each_client(tmp_path: Path) -> None:
    with mounted(tmp_path, records={7: "open"}) as mount:
        mount.requests.broken = GitopsError(Code.PREVIEW_NOT_SERVED, "request 7: its plan has errors")

        async def run() -> None:
            for _ in range(3):
                answer = await mount.ask("ada", TOWNS.format(7))
                assert (answer.status_code, answer.json()["change_request"]) == (
                    409,
                    {"reason": "preview_not_served"},
                )
            assert len(mount.requests.opened) == 1
            mount.requests.broken = None
            mount.clock.advance(timedelta(seconds=LOOK_S + 1))
            assert (await mount.ask("ada", TOWNS.format(7))).status_code == 200
            mount.requests.broken = RemoteError(Code.GIT_REMOTE_UNAVAILABLE, "no answer")
            mount.clock.advance(timedelta(seconds=LOOK_S + 1))
            assert (await mount.ask("ada", TOWNS.format(7))).status_code == 503

        asyncio.run(run())


@pytest.mark.parametrize("what", ["nothing", "expired", "another head", "target branch"])
def test_what_a_request_depends_on_opens_it_again(tmp_path: Path, what: str) -> None:
    with mounted(tmp_path, records={7: "open"}) as mount:

        async def run() -> None:
            for _ in range(2):
                assert (await mount.ask("ada", TOWNS.format(7))).status_code == 200
            mount.clock.advance(timedelta(hours=2) if what == "expired" else timedelta(seconds=LOOK_S + 1))
            mount.requests.until += timedelta(hours=4)
            mount.requests.records[7] = "open again" if what == "another head" else "open"
            mount.requests.base = "c" * 40 if what == "target branch" else mount.requests.base
            assert (await mount.ask("ada", TOWNS.format(7))).status_code == 200

        asyncio.run(run())
        assert len(mount.requests.opened) == (1 if what == "nothing" else 2)


def test_a_copy_without_its_files_is_made_again_and_asked(tmp_path: Path) -> None:
    with mounted(tmp_path, records={7: "open"}) as mount:
        copy = mount.requests.copy
        size = {"json": {"query": "query q() { match { $t: Town { size: 2 } } return { $t.name } }"}}
        path = "/-/requests/7/graphs/towns/query"

        async def run() -> list[int]:
            first = await mount.ask("ada", TOWNS.format(7))
            await asyncio.to_thread(shutil.rmtree, copy)
            return [first.status_code, *[(await mount.ask("ada", path, "POST", **size)).status_code for _ in "12"]]

        assert asyncio.run(run()) == [200, 200, 200]
        assert mount.requests.opened == [(7, False), (7, True)]
