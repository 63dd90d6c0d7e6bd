"""The contract of a forge over the forges that have a port of their own, and one that is made by the page about it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent, Event, IgnoredEvent, PushEvent, RequestAction, RequestEvent
from gitops.forge.port import (
    APPLIED,
    LABELS,
    Account,
    Annotation,
    BranchRules,
    CheckState,
    CheckStatus,
    CommitCheck,
    Forge,
    MergeOrder,
    Permission,
    Reaction,
    RequestState,
    ReviewState,
)
from tests.contract.forge_suite import AT, MARKER, ForgeContract, body
from tests.data.forge.prune_gitea import prune
from tests.support.clock import FixedClock
from tests.support.forge_world import BOT, MAIN, ForgeWorld, LocalWorld, MemoryWorld
from tests.support.forges.anvil import anvil_world, page_module
from tests.support.forges.gitea import HANDLERS, contract
from tests.support.forges.people import on_gitea, on_github, on_gitlab, on_real_gitea, over_http
from tests.support.forges.real_gitea import instance
from tests.support.forges.records import QueueEntry
from tests.support.git_fixture import run
from tests.support.memory_forge import MemoryForge
from tests.support.page_edits import edits
from tests.support.pages import ROOT, read_page


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


def test_the_merge_order_is_that_of_the_queue_and_of_approving_reviews(tmp_path: Path) -> None:
    """On GitHub with the reviews, in one call; on GitLab the merge train alone, if there is one."""
    with over_http(on_github(tmp_path / "github", prompt=True)) as github:
        numbers = [github.open_request(f"refs/heads/t{each}", files=(f"f{each}",)) for each in range(3)]
        assert github.bot().merge_order("main") == MergeOrder()
        github.world.protect("reviews", "main", {"pull_request": {"required_approving_review_count": 1}})
        github.world.review("ada", numbers[1], "APPROVED")
        github.world.queue += [QueueEntry(numbers[each], f"q{each}", "0" * 40, "0" * 40) for each in (2, 0)]
        order = github.bot().merge_order("main")
    assert order == MergeOrder((numbers[2], numbers[0]), frozenset({numbers[1]}))
    with over_http(on_gitlab(tmp_path / "gitlab")) as gitlab:
        numbers = [gitlab.open_request(f"refs/heads/t{each}", files=(f"f{each}",)) for each in range(3)]
        assert gitlab.bot().merge_order("main") == MergeOrder()
        gitlab.world.train = [numbers[2], numbers[0]]
        assert gitlab.bot().merge_order("main") == MergeOrder((numbers[2], numbers[0]))


SECRETS = {"GITOPS_SIGNING_KEY": False, "MZ_URL": True}
"""Secrets of jobs, with whether they are kept where jobs of all branches get them."""


@pytest.mark.parametrize(
    ("make", "opened"),
    [
        (partial(on_github, prompt=True), {"MZ_URL"}),
        (on_gitlab, {"MZ_URL"}),
        # There is no other place.
        (on_gitea, {"MZ_URL", "GITOPS_SIGNING_KEY"}),
    ],
)
def test_who_reads_the_secrets_of_jobs(make: Any, opened: set[str], tmp_path: Path) -> None:
    with over_http(make(tmp_path)) as world:
        world.world.secrets, world.world.admin = dict(SECRETS), True
        found = world.reader("mira").job_secrets() or ()
    assert {each.name for each in found if each.open_to} == opened
    assert {each.name for each in found if not each.open_to} <= {"GITOPS_SIGNING_KEY", "all secrets"}


@pytest.mark.parametrize(
    ("patterns", "free"), [(("main",), False), (("main", "release/*"), True), ((), True), (None, None)]
)
def test_an_environment_keeps_its_secrets_for_the_branches_that_it_names(
    patterns: tuple[str, ...] | None, free: bool | None, tmp_path: Path
) -> None:
    with over_http(on_github(tmp_path, prompt=True)) as world:
        world.world.environment_branches = patterns
        found = world.reader("mira").job_secrets() or ()
    assert [bool(each.open_to) for each in found] == ([] if free is None else [free])


def test_protected_variables_are_read_where_developers_push(tmp_path: Path) -> None:
    world = on_gitlab(tmp_path)
    world.world.secrets = dict(SECRETS)
    levels = [{"id": 1, "access_level": 30, "access_level_description": "Developers + Maintainers"}]
    world.world.protected = [
        {
            "id": 1,
            "name": "release/*",
            "push_access_levels": levels,
            "merge_access_levels": [],
            "allow_force_push": False,
        }
    ]
    assert {each.open_to for each in world.bot().job_secrets() or ()} == {
        "everyone with the role Developer, by a push to release/*",
        "everyone who can push a branch",
    }


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


SECRET = b"planted"
HEAD = "a" * 40


class TestAnvil(ForgeContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[ForgeWorld]:
        with anvil_world(tmp_path) as world:
            yield world


def event(kind: str, **values: Any) -> Event:
    body = json.dumps({"repository": "octo/brain", **values}).encode()
    delivery = page_module("events").decode({"x-anvil-event": kind, "x-anvil-delivery": "1"}, body)
    assert (delivery.id, delivery.repository) == ("1", "octo/brain")
    found: Event = delivery.event
    return found


def test_its_webhooks_are_events() -> None:
    assert event("push", ref="refs/heads/main", old=HEAD, new="b" * 40) == PushEvent("refs/heads/main", HEAD, "b" * 40)
    assert event("request", action="pushed", number=3, head=HEAD) == RequestEvent(3, RequestAction.UPDATED, HEAD)
    author = {"id": 5, "name": "mira"}
    said = event("comment", number=3, id=9, author=author, text="/gitops plan", at="2026-07-02T10:00:00Z")
    assert said == CommentEvent(3, "9", Account("5", "mira"), "/gitops plan", "2026-07-02T10:00:00Z")
    assert isinstance(event("request", action="renamed"), IgnoredEvent)
    assert isinstance(event("star"), IgnoredEvent)
    with pytest.raises(GitopsError) as refused:
        event("push", ref="refs/heads/main", old="short", new=HEAD)
    assert refused.value.code == "event_invalid"


def test_its_webhooks_are_signed() -> None:
    check = page_module("events").check_signature
    good = hmac.new(SECRET, b"body", hashlib.sha256).hexdigest()
    assert check({"x-anvil-signature": good}, b"body", SECRET)
    assert not check({"x-anvil-signature": good}, b"other", SECRET)
    assert not check({"x-anvil-signature": "\u00e4"}, b"body", SECRET)
    assert not check({}, b"body", SECRET)
    assert not check({"x-anvil-signature": hmac.new(b"", b"body", hashlib.sha256).hexdigest()}, b"body", b"")


def test_it_is_as_short_as_the_page_promises() -> None:
    added = [
        content for _, path, content in edits(read_page("extending.md"), "A new forge") if path.startswith("gitops/")
    ]
    assert sum(content.count("\n") for content in added) < 300


DATA = ROOT / "tests/data/forge/gitea"


class TestGitea(ForgeContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> ForgeWorld:
        world = on_gitea(tmp_path)
        # Everything that the port promises needs the token of an administrator.
        world.world.admin = True
        return world


@pytest.mark.gitea
class TestRealGitea(ForgeContract):
    """The program of the forge itself, to which each call of the bot is held by its own description."""

    @pytest.fixture
    def world(self) -> Iterator[ForgeWorld]:
        with on_real_gitea(admin=True) as world:
            yield world

    def test_a_stranger_may_nothing(self, world: ForgeWorld, bot: Forge) -> None:
        """Everybody may read a public repository, says the forge to an administrator."""
        assert bot.permission(world.account("mallory")) is Permission.READ


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
    # Its colour is that of an earlier release.
    world.world.labels[APPLIED] = "6e7781"
    bot.set_labels(number, add=(APPLIED,))
    assert world.world.labels[APPLIED] == LABELS[APPLIED].colour
    world.world.admin = True
    assert bot.job_secrets() == ()
    bot.set_status(CheckStatus(head, "gitops/plan/library", CheckState.SUCCESS, "", "2026-07-02T10:00:00Z"))
    bot.statuses(head)
    used = {contract().find(request.method, request.path).name for request in sender.sent}
    assert used == {operation.name for operation in contract().operations}


def test_where_the_description_is_from() -> None:
    origin = json.loads((DATA / "origin.json").read_bytes())
    assert (origin["module"], origin["license"]) == ("code.gitea.io/gitea", "MIT")
    assert len(origin["sha256"]) == 64


@pytest.mark.gitea
def test_the_description_kept_here_is_that_of_the_server() -> None:
    served = instance().description
    if f"v{served['info']['version']}" != json.loads((DATA / "origin.json").read_bytes())["version"]:
        pytest.skip(f"this is Gitea {served['info']['version']}")
    words = (DATA / "wanted.txt").read_text(encoding="utf-8").split()
    assert prune(served, words) == json.loads((DATA / "openapi.json").read_bytes())


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
