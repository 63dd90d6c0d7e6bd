"""The forge contract over GitLab, and what only GitLab does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from gitops.core.errors import GitopsError
from gitops.core.redact import Secret
from gitops.forge.client import WebClient, forge_service
from gitops.forge.gitlab.forge import GitLabForge
from gitops.forge.port import CheckState, CheckStatus, Forge, RequestState, ReviewState
from gitops.forge.web import WebRequest
from tests.contract.forge_suite import AT, MARKER, ForgeContract, body
from tests.support.clock import FixedClock
from tests.support.forge_world import ForgeWorld
from tests.support.forges.gitlab import PROJECT
from tests.support.forges.people import InProcess, on_gitlab
from tests.support.http_service import HttpService, Reply, Request


class TestGitLab(ForgeContract):
    """GitLab keeps no history of reviews and no commit with them: two tests say what it keeps instead."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> ForgeWorld:
        return on_gitlab(tmp_path)

    def test_reviews_in_their_order(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        for login, state in (
            ("ada", ReviewState.CHANGES_REQUESTED),
            ("mira", ReviewState.COMMENTED),
            ("ada", ReviewState.APPROVED),
        ):
            world.review_as(login, number, state)
        found = bot.reviews(number)
        assert [(r.account, r.state, r.commit) for r in found] == [
            (world.account("mira"), ReviewState.COMMENTED, ""),
            (world.account("ada"), ReviewState.APPROVED, ""),
        ]

    def test_35_reviews_all_come(self, world: ForgeWorld, bot: Forge) -> None:
        number = world.open_request()
        for count in range(35):
            world.review_as(f"person{count}", number, ReviewState.APPROVED)
        assert [r.account.login for r in bot.reviews(number)] == [f"person{count}" for count in range(35)]


@contextmanager
def over_http(world: InProcess, *, drop: list[str] | None = None) -> Iterator[GitLabForge]:
    """The bot with the real transport, and GitLab behind a real socket. `drop` are methods whose next answers get lost."""
    server, lost = world.sender(), drop or []

    def answer(request: Request) -> Reply:
        assert request.headers["Authorization"] == "Bearer glpat-planted"
        parts = urlsplit(request.path)
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        found = server.reply(WebRequest(request.method, parts.path.removeprefix("/v1"), query, request.body))
        if request.method in lost:
            lost.remove(request.method)
            return Reply(body=None)
        data = b"" if found.body is None else json.dumps(found.body).encode()
        return Reply(found.status, data, tuple(found.headers.items()))

    with HttpService(answer) as service:
        form = forge_service(
            service.base, {"Authorization": Secret("GITOPS_TOKEN", "glpat-planted").prefixed("Bearer ")}
        )
        clock = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))
        yield GitLabForge(WebClient(form, lambda _: None, clock), PROJECT, clock)


def test_a_plan_over_the_wire(tmp_path: Path) -> None:
    world = on_gitlab(tmp_path)
    world.open_many(120)
    with over_http(world, drop=["POST", "GET"]) as forge:
        requests = forge.requests(state=RequestState.OPEN, target="refs/heads/main")
        assert [request.number for request in requests] == list(range(1, 121))
        head = requests[0].head
        forge.set_status(CheckStatus(head, "gitops/plan/library", CheckState.SUCCESS, "3 changes", AT))
        assert [(s.context, s.state) for s in forge.statuses(head)] == [("gitops/plan/library", CheckState.SUCCESS)]
        forge.upsert_comment(1, MARKER, body("the plan"))
        forge.upsert_comment(1, MARKER, body("the new plan"))
        assert [(c.author, c.body) for c in forge.comments(1)] == [("gitops", body("the new plan"))]
        with pytest.raises(GitopsError) as caught:
            forge.request(999)
        assert caught.value.code == "request_not_found"


def test_a_lost_answer_over_the_wire_leaves_one_comment(tmp_path: Path) -> None:
    world = on_gitlab(tmp_path)
    number = world.open_request()
    with over_http(world, drop=["POST"]) as forge:
        forge.upsert_comment(number, MARKER, body("the plan"))
        forge.upsert_comment(number, MARKER, body("the plan"))
    assert [comment.body for comment in world.world.pull(number).comments] == [body("the plan")]
