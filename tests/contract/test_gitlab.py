"""The forge contract over GitLab, and what only GitLab does."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.forge.port import CheckState, CheckStatus, Forge, RequestState, ReviewState
from tests.contract.forge_suite import AT, MARKER, ForgeContract, body
from tests.support.forge_world import ForgeWorld
from tests.support.forges.people import on_gitlab, over_http


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


def test_a_plan_over_the_wire(tmp_path: Path) -> None:
    world = on_gitlab(tmp_path)
    world.open_many(120)
    with over_http(world) as wired:
        for method in ("GET", "POST"):
            wired.server.fault_next(f"^{method} ", lost=True)
        forge = wired.bot()
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
