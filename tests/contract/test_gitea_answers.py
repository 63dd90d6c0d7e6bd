"""Gitea beyond the contract of all forges: what it answers in odd cases, and how often it is asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.forge.gitea import GiteaDialect, GiteaForge
from gitops.forge.port import (
    Account,
    CheckState,
    CheckStatus,
    Permission,
    Reaction,
    RequestState,
    ReviewState,
)
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.clock import FixedClock
from tests.support.forge_world import MAIN
from tests.support.forges.gitea import PROJECT
from tests.support.forges.people import InProcess, Sender, on_gitea

MARKER = "<!-- gitops:plan library -->"
AT = "2026-07-02T10:00:00Z"


@pytest.fixture
def world(tmp_path: Path) -> InProcess:
    return on_gitea(tmp_path)


@pytest.fixture
def sender(world: InProcess) -> Sender:
    return world.sender()


@pytest.fixture
def bot(world: InProcess, sender: Sender) -> GiteaForge:
    return world.forge(sender)


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(GitopsError) as caught:
        act()
    return caught.value.code


# Requests


def test_the_request_of_a_fork(world: InProcess, bot: GiteaForge) -> None:
    number = world.open_fork()
    assert (bot.request(number).fork, bot.request(number).head_ref) == (True, f"refs/pull/{number}/head")
    world.delete_fork(number)
    assert bot.request(number).fork


def test_a_request_whose_branch_is_gone(world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = world.open_request()
    world.world.drop("refs/heads/topic", "mira")
    assert bot.request(number).source == "refs/heads/topic"
    form = world.world.pull_form(world.world.pull(number))
    form["head"]["label"] = ""
    sender.answers[f"GET /repos/{PROJECT}/pulls/{number}"] = WebAnswer(200, {}, form)
    assert bot.request(number).source == f"refs/pull/{number}/head"


def test_a_request_of_somebody_who_was_deleted(world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = world.open_request()
    world.world.leave("mira")
    assert (bot.request(number).author, bot.request(number).pushers) == (None, ())
    form = world.world.pull_form(world.world.pull(number)) | {"user": {"id": -1, "login": "Ghost"}}
    sender.answers[f"GET /repos/{PROJECT}/pulls/{number}"] = WebAnswer(200, {}, form)
    assert bot.request(number).author == Account("-1", "Ghost", bot=True)


def test_both_names_of_a_moved_file(world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = world.open_request(files=())
    moved = [{"filename": "b", "previous_filename": "z", "status": "renamed"}]
    sender.answers[f"GET /repos/{PROJECT}/pulls/{number}/files"] = WebAnswer(200, {"x-total-count": "1"}, moved)
    assert bot.files(number) == ("b", "z")


def test_pushers_are_named_with_their_forge(world: InProcess, bot: GiteaForge) -> None:
    request = bot.request(world.open_request(author="ada"))
    assert request.pushers == (f"gitea:{world.account('ada').id}",)


def test_lists_are_read_to_the_end_however_short_the_pages_are(world: InProcess, bot: GiteaForge) -> None:
    world.world.page_size = 7
    numbers = world.open_many(30)
    assert [request.number for request in bot.requests(state=RequestState.OPEN)] == numbers


def test_a_list_without_an_end_is_refused(world: InProcess, bot: GiteaForge) -> None:
    world.world.page_size = 1
    number = world.open_request(files=[f"f{count}" for count in range(101)])
    assert code_of(lambda: bot.files(number)) == "forge_limit"


def test_the_description_of_older_releases_knows_no_target(world: InProcess, bot: GiteaForge) -> None:
    """Where the forge does not look at the target, the answer is still right."""
    world.open_request("refs/heads/one", target="refs/heads/next")
    number = world.open_request("refs/heads/two")
    whole = world.forge(Deaf(world.sender()))
    assert [request.number for request in whole.requests(target=MAIN)] == [number]


class Deaf:
    """Takes the name of the target out of every request."""

    def __init__(self, sender: Sender) -> None:
        self.base = sender.base
        self._sender = sender

    def send(self, request: WebRequest) -> WebAnswer:
        query = tuple(pair for pair in request.query if pair[0] != "base_branch")
        return self._sender.send(WebRequest(request.method, request.path, query, request.body, quiet=request.quiet))


# Reviews


def test_reviews_that_are_none(world: InProcess, bot: GiteaForge) -> None:
    number = world.open_request()
    for state in (ReviewState.COMMENTED, ReviewState.APPROVED, ReviewState.COMMENTED):
        world.review_as("ada", number, state)
    pending, dismissed, deleted = world.world.pull(number).reviews
    pending.state, dismissed.state, deleted.author = "PENDING", "DISMISSED", "somebody who left"
    assert [(r.id, r.state) for r in bot.reviews(number)] == [(str(dismissed.id), ReviewState.DISMISSED)]


def test_reviews_are_in_the_order_of_their_times(world: InProcess, bot: GiteaForge) -> None:
    number = world.open_request(author="mallory")
    for login in ("ada", "mira"):
        world.review_as(login, number, ReviewState.APPROVED)
    world.world.pull(number).reviews.reverse()
    assert [r.account.login for r in bot.reviews(number)] == ["ada", "mira"]


# Comments


def test_a_plan_costs_six_calls(world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = world.open_request()
    request = bot.requests(state=RequestState.OPEN)[0]
    bot.files(number)
    bot.upsert_comment(number, MARKER, f"{MARKER}\nplan")
    bot.set_status(CheckStatus(request.head, "gitops/plan/library", CheckState.SUCCESS, "ok", AT))
    assert len(sender.sent) == 6


def test_a_reaction_is_to_a_comment(bot: GiteaForge) -> None:
    for comment in ("", "../1", "1/x", "\u0661"):
        assert code_of(lambda c=comment: bot.react(1, c, Reaction.SEEN)) == "usage_error"  # type: ignore[misc]


# Statuses


def test_statuses_in_words_that_we_do_not_have(world: InProcess, bot: GiteaForge) -> None:
    head = world.head(world.open_request())
    for state in ("warning", "skipped"):
        bot.set_status(CheckStatus(head, state, CheckState.PENDING, "x" * 300, AT))
        world.world.statuses[-1].state = state
    assert [(s.state, len(s.description)) for s in bot.statuses(head)] == [(CheckState.ERROR, 255)] * 2


def test_statuses_of_a_commit_that_is_not_there(bot: GiteaForge) -> None:
    assert bot.statuses("f" * 40) == ()


# People and rules


def test_a_login_that_is_somebody_elses_now(world: InProcess, bot: GiteaForge) -> None:
    world.give("ada", Permission.ADMIN)
    assert bot.permission(world.account("ada")) is Permission.ADMIN
    assert bot.permission(Account("99999", "ada")) is Permission.NONE
    assert bot.permission(Account("99999", "nobody")) is Permission.NONE


def test_a_token_that_may_not_ask_is_told_of(world: InProcess, bot: GiteaForge) -> None:
    world.world.admin = False
    assert code_of(lambda: bot.permission(world.account("ada"))) == "forge_refused"


def test_rules_as_an_administrator_sees_them(world: InProcess, bot: GiteaForge) -> None:
    rules = bot.branch_rules("main")
    assert (rules.request_needed, rules.queue) == (False, False)
    assert (rules.required_checks, rules.pushers) == (("gitops/plan/library",), ("ada",))
    world.world.rules_of["main"] |= {
        "enable_push": False,
        "unprotected_file_patterns": "docs/**",
        "enable_status_check": False,
    }
    rules = bot.branch_rules("main")
    assert (rules.request_needed, rules.pushers) == (True, None)
    assert (rules.required_checks, rules.notes) == ((), ("files that are exempt: docs/**",))


def test_rules_as_others_see_them(world: InProcess, bot: GiteaForge) -> None:
    world.world.admin = False
    rules = bot.branch_rules("main")
    assert (rules.protected, rules.deletion, rules.force_push, rules.request_needed) == (True, False, None, None)
    assert rules.required_checks == ("gitops/plan/library",)
    assert rules.notes


def test_a_branch_that_is_not_there(bot: GiteaForge) -> None:
    assert bot.branch_rules("nowhere").protected is None


# Labels, proposals, issues


def test_labels_that_are_right_cost_one_call(world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = world.open_request()
    bot.set_labels(number, add=("gitops",))
    assert world.world.labels == {"gitops"}
    before = len(sender.sent)
    bot.set_labels(number, add=("gitops",), remove=("other",))
    assert len(sender.sent) == before + 1


def test_labels_have_a_longest_name(world: InProcess, bot: GiteaForge) -> None:
    number = world.open_request()
    for name in ("", "x" * 51):
        assert code_of(lambda n=name: bot.set_labels(number, add=(n,))) == "usage_error"  # type: ignore[misc]


def test_a_proposal_of_a_branch_that_is_not_there(bot: GiteaForge) -> None:
    assert code_of(lambda: bot.propose("refs/heads/nowhere", MAIN, "title", "text")) == "forge_refused"


def test_a_closed_issue_ends_with_the_remark(world: InProcess, bot: GiteaForge) -> None:
    bot.upsert_issue(MARKER, "Drift", f"{MARKER}\ntext")
    bot.close_issue(MARKER, "gone")
    (issue,) = world.world.issues.values()
    assert [comment.body for comment in issue.comments] == ["gone"]


# Addresses and answers


@pytest.mark.parametrize("project", ["", "library", "a/b/c", "../x", "a/..", "a/b?x", "a b/c", "/a"])
def test_projects_that_are_none(world: InProcess, sender: Sender, project: str) -> None:
    assert code_of(lambda: GiteaForge(sender, project, FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))) == "usage_error"


def test_names_cannot_lead_elsewhere() -> None:
    api = GiteaDialect(PROJECT, "https://gitea.example.org")
    assert api.branch("a/b?c#d").path == f"/api/v1/repos/{PROJECT}/branches/a%2Fb%3Fc%23d"
    assert GiteaDialect(PROJECT, "https://gitea.example.org/api/v1").viewer().path == "/user"
    for name in ("", ".", ".."):
        assert code_of(lambda n=name: api.get_permission(Account("1", n))) == "usage_error"  # type: ignore[misc]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"number": 1},
        {
            "number": 1,
            "state": "open",
            "base": {"ref": "main", "repo": {"id": 1}},
            "head": {"ref": "x", "sha": "short"},
        },
    ],
)
def test_answers_in_another_form(world: InProcess, value: Any) -> None:
    class Odd:
        base = "https://gitea.example.org/api/v1"

        def send(self, request: WebRequest) -> WebAnswer:
            del request
            return WebAnswer(200, {}, value)

    forge = world.forge(Odd())
    for act in (lambda: forge.request(1), forge.me, lambda: forge.comments(1)):
        assert code_of(act) == "forge_unavailable"
