"""The forge contract over our own forges and over GitHub, and what our own say when nobody configured them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.core.diagnostics import Severity
from gitops.forge.port import Annotation, BranchRules, CheckState, CommitCheck, Permission
from tests.contract.forge_suite import MARKER, ForgeContract, body
from tests.support.clock import FixedClock
from tests.support.forge_world import BOT, MAIN, ForgeWorld, LocalWorld, MemoryWorld
from tests.support.forges.people import on_github, over_http
from tests.support.git_fixture import run
from tests.support.memory_forge import MemoryForge


class TestMemory(ForgeContract):
    @pytest.fixture
    def world(self) -> ForgeWorld:
        return MemoryWorld()


class TestLocal(ForgeContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> ForgeWorld:
        return LocalWorld(path=tmp_path / "far.git")


class TestGitHub(ForgeContract):
    """Over HTTP, with the habits of the service."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[ForgeWorld]:
        with over_http(on_github(tmp_path, prompt=False)) as world:
            world.world.habits.creates_labels = world.world.habits.shows_rules = True
            yield world


def test_nobody_may_anything_where_the_operator_names_nobody() -> None:
    forge = MemoryForge(BOT, FixedClock(MemoryWorld().clock.now()))
    assert not forge.features.permissions
    assert forge.permission(forge.me()) is Permission.NONE
    assert not forge.features.branch_rules
    assert forge.branch_rules("main") == BranchRules()


def test_an_issue_is_printed_by_its_address(tmp_path: Path) -> None:
    world = LocalWorld(path=tmp_path / "far.git")
    forge = world.forge()
    forge.upsert_issue(MARKER, "Drift", body("one"))
    forge.close_issue(MARKER, "gone")
    address = forge.upsert_issue(MARKER, "Drift again", body("two"))
    shown = run("git", f"--git-dir={world.path}", "show", address, home=tmp_path)
    assert shown == body("two").strip()
    assert [(i.path, i.last_comment) for i in forge.recorded_issues(MARKER, forge.me())] == [
        ("issues/0001.md", "gone"),
        ("issues/0002.md", None),
    ]


def test_files_of_a_request_that_is_in(tmp_path: Path) -> None:
    world = LocalWorld(path=tmp_path / "far.git")
    number = world.open_request(files=("x", "y/z"))
    world.branch("refs/heads/aside", files=("elsewhere",))
    world.merge(world.open_request("refs/heads/aside", files=("elsewhere",)))
    assert world.bot().files(number) == ("x", "y/z")
    world.merge(number)
    assert world.bot().files(number) == ("x", "y/z")


def test_the_text_of_a_proposal_is_kept_beside_it(tmp_path: Path) -> None:
    world = LocalWorld(path=tmp_path / "far.git")
    world.branch("refs/heads/drift", files=("a",))
    forge = world.forge()
    request = forge.propose("refs/heads/drift", MAIN, "Adopt", "both ways out\n")
    repository = world.repository
    ref = f"refs/gitops/requests/{request.number}/meta"
    tree = repository.commit(repository.refs(ref)[ref]).tree
    assert repository.read(tree, "request.md") == b"both ways out\n"
    before = repository.refs("refs")
    assert forge.propose("refs/heads/drift", MAIN, "Adopt", "both ways out\n") == request
    assert repository.refs("refs") == before


def test_a_check_is_kept_whatever_it_says(tmp_path: Path) -> None:
    world = LocalWorld(path=tmp_path / "far.git")
    head = world.head(world.open_request())
    odd = Annotation("a\nb\u202e\ud800", 0, "x\ud800" * 1000, Severity.WARNING, " ", 0)
    many = tuple(Annotation("a", line, "note", Severity.ERROR) for line in range(1, 1200))
    summary = "```\n" + "line\n" * 20_000 + "```\n"
    world.bot().set_check(CommitCheck(head, "gitops/x", CheckState.FAILURE, "many", summary, (odd, *many)))
    (check,) = world.checks(head)
    assert (check.annotations[0].path, check.annotations[0].line) == ("a?b??", 1)
    assert len(check.annotations[0].message) == 640
    assert len(check.annotations) == 1000
    assert len(check.summary) <= 65_536
    assert check.summary.count("```") == 2
