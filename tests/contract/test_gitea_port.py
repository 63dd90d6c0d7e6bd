"""The forge contract over Gitea, against an instance in memory that keeps to the published description."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.forge.port import CheckState, CheckStatus, Reaction
from tests.contract.forge_suite import MARKER, ForgeContract, body
from tests.support.forge_world import MAIN, ForgeWorld
from tests.support.forges.gitea import HANDLERS, contract
from tests.support.forges.people import on_gitea
from tests.support.pages import ROOT

DATA = ROOT / "tests/data/forge/gitea"


class TestGitea(ForgeContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> ForgeWorld:
        return on_gitea(tmp_path)


def test_every_described_operation_is_wanted_and_answered() -> None:
    """What was cut out of the description is what is listed, and the instance in memory answers all of it."""
    words = (DATA / "wanted.txt").read_text(encoding="utf-8").split()
    wanted = {f"{method} {path}" for method, path in zip(words[::2], words[1::2], strict=True)}
    assert {operation.name for operation in contract().operations} == wanted
    assert {name.replace(" ", " /repos/{owner}/{repo}") for name in HANDLERS if name != "GET /user"} | {
        "GET /user"
    } == wanted


def test_the_bot_uses_every_operation_of_the_description(tmp_path: Path) -> None:
    """No more is described, and so asked of a token, than the adapter sends."""
    world = on_gitea(tmp_path)
    sender = world.sender()
    bot = world.forge(sender)
    number = world.open_request()
    head = bot.request(number).head
    world.branch("refs/heads/drift", files=("a",))
    bot.merged_by((head,))
    bot.files(number)
    bot.reviews(number)
    bot.permission(world.account("ada"))
    bot.branch_rules("main")
    for title in ("one", "two"):
        bot.propose("refs/heads/drift", MAIN, title, "text")
        bot.upsert_comment(number, MARKER, body(title))
        bot.upsert_issue(MARKER, title, body(title))
    comment = world.comment_as("mira", number, "hello")
    bot.react(number, comment, Reaction.SEEN)
    bot.reactions(number, comment)
    world.world.comment("gitops", number, body("left by a race"))
    bot.upsert_comment(number, MARKER, body("three"))
    bot.set_labels(number, add=("a",))
    bot.set_labels(number, remove=("a",))
    bot.set_status(CheckStatus(head, "gitops/plan/library", CheckState.SUCCESS, "", "2026-07-02T10:00:00Z"))
    bot.statuses(head)
    used = {contract().find(request.method, request.path).name for request in sender.sent}
    assert used == {operation.name for operation in contract().operations}


def test_where_the_description_is_from() -> None:
    origin = json.loads((DATA / "origin.json").read_bytes())
    assert (origin["module"], origin["license"]) == ("code.gitea.io/gitea", "MIT")
    assert len(origin["sha256"]) == 64
