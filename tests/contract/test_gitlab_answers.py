"""Answers of GitLab and Gitea that the imitations give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.gitea import GiteaDialect, GiteaForge
from gitops.forge.gitlab.forge import GitLabForge
from gitops.forge.port import (
    Account,
    CheckState,
    CheckStatus,
    Deployment,
    DeploymentState,
    Permission,
    Reaction,
    RequestState,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.clock import FixedClock
from tests.support.forge_world import MAIN
from tests.support.forges.gitea import PROJECT
from tests.support.forges.gitlab import level, protection
from tests.support.forges.people import InProcess, Sender, on_gitea, on_gitlab
from tests.support.forges.records import Comment

_MARKER = "gitops cluster=library"
_HIDDEN = f"<!-- {_MARKER} -->"
_AT = "2026-07-02T10:00:00Z"
_ROOT = "/projects/group%2Fsub%2Flibrary"


@pytest.fixture
def world(tmp_path: Path) -> InProcess:
    return on_gitlab(tmp_path)


@pytest.fixture
def server(world: InProcess) -> Sender:
    return world.sender()


@pytest.fixture
def forge(world: InProcess, server: Sender) -> GitLabForge:
    return world.forge(server)


def refused(act: Callable[[], object]) -> GitopsError:
    with pytest.raises(GitopsError) as caught:
        act()
    return caught.value


def status(commit: str, state: CheckState, text: str = "") -> CheckStatus:
    return CheckStatus(commit, "gitops/plan/library", state, text, _AT)


def test_a_plan_costs_five_calls(world, server, forge):
    number = world.open_request()
    world.bot().upsert_comment(number, _MARKER, "plan 1")
    forge.me()
    (request,) = forge.requests(state=RequestState.OPEN)
    forge.set_status(status(request.head, CheckState.SUCCESS))
    forge.upsert_comment(number, _MARKER, "plan 2")
    assert [f"{call.method} {call.path.removeprefix(_ROOT)}" for call in server.sent] == [
        "GET /user",
        "GET /merge_requests",
        f"POST /statuses/{request.head}",
        "GET /merge_requests/1/notes",
        f"PUT /merge_requests/1/notes/{forge.comments(number)[0].id}",
    ]


@pytest.mark.parametrize("keyset", [False, True])
def test_lists_are_read_to_the_end(world, keyset):
    world.open_many(250)
    server = world.sender()
    world.world.keyset = keyset
    found = world.forge(server).requests()
    assert [request.number for request in found] == list(range(1, 251))
    assert len(server.sent) == 3


def test_a_list_has_a_bound(world, server, forge):
    number = world.open_request()
    path = f"{_ROOT}/merge_requests/{number}/notes"
    server.answers[f"GET {path}"] = WebAnswer(200, {"x-next-page": "2"}, [])
    assert refused(lambda: forge.comments(number)).code == "forge_limit"
    assert len([call for call in server.sent if call.path == path]) == 100


def test_a_list_as_long_as_the_bound(world, forge):
    number = world.open_request()
    notes = (Comment(count, "mira", str(count), _AT, _AT) for count in range(1, 10_001))
    world.world.pull(number).comments += notes
    assert len(forge.comments(number)) == 10_000
    world.world.comment("mira", number, "one more")
    assert refused(lambda: forge.comments(number)).code == "forge_limit"


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.example.org/api/v4/projects/1/merge_requests?page=2",
        "http://gitlab.example.com/api/v4/projects/1/merge_requests?page=2",
        "https://gitlab.example.com:8443/api/v4/projects/1/merge_requests?page=2",
        "https://gitlab.example.com@evil.example.org/api/v4/x?page=2",
        "https://gitlab.example.com/other/x?page=2",
    ],
)
def test_a_next_page_elsewhere_is_not_followed(world, server, forge, link):
    server.answers[f"GET {_ROOT}/merge_requests"] = WebAnswer(200, {"link": f'<{link}>; rel="next"'}, [])
    assert refused(forge.requests).code == "forge_refused"
    assert len(server.sent) == 1


@pytest.mark.parametrize("code", [401, 403])
def test_the_token_of_a_job_is_nobodys(world, server, forge, code):
    server.answers["GET /user"] = WebAnswer(code, {}, {"message": "insufficient"})
    error = refused(forge.me)
    assert error.code == "forge_refused"
    assert "CI_JOB_TOKEN" in error.detail
    assert "project access token" in error.detail


def test_a_service_that_is_down_is_not_a_wrong_token(server, forge):
    server.answers["GET /user"] = WebAnswer(503, {}, None)
    assert refused(forge.me).code == "forge_unavailable"


@pytest.mark.parametrize("number", [0, -1, 2**31, 10**30])
def test_numbers_that_no_request_has_are_not_asked_for(server, forge, number):
    for read in (forge.request, forge.files, forge.reviews, forge.review_decision, forge.comments):
        with pytest.raises(GitopsError) as caught:
            read(number)
        assert caught.value.code == "request_not_found"
    assert refused(lambda: forge.upsert_comment(number, _MARKER, "x")).code == "request_not_found"
    assert [call for call in server.sent if call.path != "/user"] == []


def test_a_request_of_a_fork(world, forge):
    number = world.open_fork()
    request = forge.request(number)
    assert request.fork
    assert request.head_ref == f"refs/merge-requests/{number}/head"
    assert request.pushers == (f"gitlab:{world.account('mallory').id}",)


def test_the_head_of_a_fork_gets_its_status_by_the_requests_ref(world, server, forge):
    number = world.open_fork()
    head = world.head(number)
    forge.set_status(status(head, CheckState.FAILURE, "no"))
    assert [(s.context, s.state) for s in forge.statuses(head)] == [("gitops/plan/library", CheckState.FAILURE)]
    assert world.world.statuses[0].ref == f"refs/merge-requests/{number}/head"


def test_a_status_of_a_commit_that_is_nowhere(forge):
    error = refused(lambda: forge.set_status(status("f" * 40, CheckState.SUCCESS)))
    assert error.code == "forge_refused"
    assert "References for commit" in error.detail


def test_pending_twice_is_pending(world, server, forge):
    head = world.head(world.open_request())
    forge.set_status(status(head, CheckState.PENDING))
    forge.set_status(status(head, CheckState.PENDING))
    assert [(s.context, s.state) for s in forge.statuses(head)] == [("gitops/plan/library", CheckState.PENDING)]
    forge.set_status(status(head, CheckState.SUCCESS, "x" * 1000))
    assert forge.statuses(head)[0].description == "x" * 255


def test_a_status_that_gitlab_minds_for_another_reason(world, server, forge):
    head = world.head(world.open_request())
    message = {"message": "Cannot transition status"}
    server.answers[f"POST {_ROOT}/statuses/{head}"] = WebAnswer(400, {}, message)
    assert refused(lambda: forge.set_status(status(head, CheckState.SUCCESS))).code == "forge_refused"


def test_the_newest_status_of_a_name_counts(world, server, forge):
    head = world.head(world.open_request())
    form = {"sha": head, "name": "n", "description": None, "created_at": _AT, "started_at": None, "finished_at": None}
    old, new = ({**form, "id": n, "status": s} for n, s in ((7, "success"), (8, "failed")))
    for order in ([old, new], [new, old]):
        server.answers[f"GET {_ROOT}/repository/commits/{head}/statuses"] = WebAnswer(200, {}, order)
        assert [s.state for s in forge.statuses(head)] == [CheckState.FAILURE]


@pytest.mark.parametrize("commit", ["", "main", "../x", "A" * 40, "1" * 39, "1" * 40 + "\n"])
def test_a_status_is_for_a_full_id(forge, commit):
    assert refused(lambda: forge.set_status(status(commit, CheckState.ERROR))).code == "usage_error"
    assert refused(lambda: forge.statuses(commit)).code == "usage_error"
    assert refused(lambda: forge.merged_by([commit])).code == "usage_error"


def test_a_comment_that_did_not_arrive_is_an_error(world, server, forge):
    number = world.open_request()
    server.answers[f"POST {_ROOT}/merge_requests/{number}/notes"] = WebAnswer(502, {}, None)
    assert refused(lambda: forge.upsert_comment(number, _MARKER, "the plan")).code == "forge_unavailable"
    assert forge.comments(number) == ()


def test_a_comment_that_is_forbidden_is_an_error_at_once(world, server, forge):
    number = world.open_request()
    server.answers[f"POST {_ROOT}/merge_requests/{number}/notes"] = WebAnswer(403, {}, None)
    assert refused(lambda: forge.upsert_comment(number, _MARKER, "the plan")).code == "forge_refused"
    assert [call.method for call in server.sent] == ["GET", "GET", "POST"]


def test_no_text_of_the_bot_acts_in_its_name(world, forge):
    number = world.open_request()
    hostile = "fine\n/merge\n/approve\n"
    forge.upsert_comment(number, _MARKER, hostile)
    forge.upsert_comment(number, _MARKER, hostile + "/close\n")
    forge.upsert_issue(_MARKER, "Drift", hostile)
    forge.close_issue(_MARKER, "/close")
    world.branch("refs/heads/drift", files=("a",))
    forge.propose("refs/heads/drift", MAIN, "Adopt", hostile)
    assert world.world.actions == []
    assert all("\n/" not in issue.body for issue in world.world.issues.values())


def test_files_while_gitlab_prepares_them(world, server, forge):
    number = world.open_request(files=("a", "b"))
    server.answers[f"GET {_ROOT}/merge_requests/{number}/diffs"] = WebAnswer(200, {}, [])
    with pytest.raises(RemoteError) as caught:
        forge.files(number)
    assert (caught.value.code, caught.value.retryable) == ("forge_unavailable", True)


def test_250_files_over_three_pages(world, forge):
    paths = tuple(f"graphs/{count:03}.pg" for count in range(250))
    assert forge.files(world.open_request(files=paths)) == paths


def test_an_edition_without_approvals(world, forge):
    number = world.open_request()
    world.world.approval_rules = None
    assert forge.reviews(number) == ()
    assert forge.review_decision(number) is ReviewDecision.UNKNOWN


def test_rules_that_ask_for_approvals(world, forge):
    number = world.open_request()
    world.world.approval_rules = {"approvals_required": 2, "approvals_left": 1}
    assert forge.review_decision(number) is ReviewDecision.REQUIRED
    world.world.approval_rules = {"approvals_required": 2, "approvals_left": 0}
    assert forge.review_decision(number) is ReviewDecision.APPROVED


def test_a_permission_is_asked_for_by_number_alone(world, server, forge):
    world.give("ada", Permission.ADMIN)
    assert forge.permission(replace(world.account("ada"), login="mallory")) is Permission.ADMIN
    for name in ("", "ada", "../../user", "1?x", "٣", "-1"):
        assert forge.permission(Account(name, "ada")) is Permission.NONE
    assert len(server.sent) == 1


@pytest.mark.parametrize("code", [401, 403, 404])
def test_rules_that_the_token_may_not_see(server, forge, code):
    server.answers[f"GET {_ROOT}/protected_branches"] = WebAnswer(code, {}, {"message": "no"})
    rules = forge.branch_rules("main")
    assert (rules.protected, rules.force_push, rules.pushers) == (None, None, None)
    assert "Maintainer" in rules.notes[0]


def test_rules_of_the_ledger_branch(world, forge):
    world.world.protected.append(protection("gitops/*", level(40, "x") | {"user_id": 7}))
    rules = forge.branch_rules("gitops/ledger/library")
    assert (rules.protected, rules.pushers) == (True, ("gitlab:7",))


def test_people_who_left_are_one_ghost_who_may_nothing(world, forge):
    """GitLab moves what they wrote to an account that is there for all of them."""
    numbers = [world.open_request(f"refs/heads/{login}", author=login) for login in ("mira", "ada")]
    for login in ("mira", "ada"):
        world.world.leave(login)
    (ghost,) = {forge.request(number).author for number in numbers}
    assert ghost.login == "ghost"
    assert forge.permission(ghost) is Permission.NONE


def test_labels_with_commas_would_be_two(world, server, forge):
    number = world.open_request()
    for name in ("a,b", "", "  "):
        assert refused(lambda name=name: forge.set_labels(number, add=(name,))).code == "usage_error"
        assert refused(lambda name=name: forge.set_labels(number, remove=(name,))).code == "usage_error"
    forge.set_labels(number)
    assert server.sent == []
    forge.set_labels(number, add=("x",), remove=("x",))
    assert forge.request(number).labels == ("x",)
    assert refused(lambda: forge.set_labels(999, add=("x",))).code == "request_not_found"


def deployed(world: InProcess) -> list[tuple[str, str]]:
    return [(each.statuses[-1]["state"], each.ref) for each in world.world.deployments.values()]


def test_a_deployment_that_failed_is_followed_by_another(world, forge):
    commit = world.merge(world.open_request())
    for state in (DeploymentState.RUNNING, DeploymentState.FAILURE, DeploymentState.RUNNING, DeploymentState.SUCCESS):
        forge.record_deployment(Deployment(commit, "production", state))
    assert deployed(world) == [("failed", "main"), ("success", "main")]


def test_deployments_of_others_are_theirs(world, forge):
    commit = world.merge(world.open_request())
    rival = world.sender("mira")
    world.forge(rival).record_deployment(Deployment(commit, "production", DeploymentState.RUNNING))
    forge.record_deployment(Deployment(commit, "production", DeploymentState.SUCCESS))
    assert deployed(world) == [("running", "main"), ("success", "main")]


def test_a_proposal_that_cannot_be_opened(world, server, forge):
    world.branch("refs/heads/drift", files=("a",))
    server.answers[f"POST {_ROOT}/merge_requests"] = WebAnswer(502, {}, None)
    assert refused(lambda: forge.propose("refs/heads/drift", MAIN, "t", "b")).code == "forge_unavailable"
    server.answers[f"POST {_ROOT}/merge_requests"] = WebAnswer(409, {}, {"message": ["there is one"]})
    hidden = refused(lambda: forge.propose("refs/heads/drift", MAIN, "t", "b"))
    assert (hidden.code, hidden.detail) == ("forge_unavailable", "GitLab has this merge request but does not show it")
    server.answers[f"POST {_ROOT}/merge_requests"] = WebAnswer(400, {}, {"message": ["there is no such branch"]})
    assert refused(lambda: forge.propose("refs/heads/drift", MAIN, "t", "b")).code == "forge_refused"
    assert refused(lambda: forge.propose("drift", MAIN, "t", "b")).code == "usage_error"


def test_an_issue_that_is_removed_meanwhile_is_followed_by_the_next(world, server, forge):
    for text in ("one", "two"):
        world.issue_as("gitops", "Drift", f"{_HIDDEN}\n{text}")
    server.answers[f"PUT {_ROOT}/issues/1"] = WebAnswer(404, {}, None)
    assert forge.upsert_issue(_MARKER, "Drift", "three").endswith("/issues/2")
    assert [text.splitlines()[1] for _, text, _ in world.issues()] == ["one", "three"]


def test_an_issue_is_closed_without_a_word(world, forge):
    forge.upsert_issue(_MARKER, "Drift", "one")
    forge.close_issue(_MARKER, "")
    assert [is_open for _, _, is_open in world.issues()] == [False]
    assert world.world.issue(-1).comments == []


def test_a_lost_remark_is_not_said_twice(world, server, forge):
    forge.upsert_issue(_MARKER, "Drift", "one")
    server.lose = ["POST"]
    forge.close_issue(_MARKER, "no drift any more")
    forge.close_issue(_MARKER, "no drift any more")
    assert [comment.body for comment in world.world.issue(-1).comments] == ["no drift any more"]


def test_an_issue_that_cannot_be_written(server, forge):
    server.answers[f"POST {_ROOT}/issues"] = WebAnswer(503, {}, None)
    assert refused(lambda: forge.upsert_issue(_MARKER, "Drift", "one")).code == "forge_unavailable"


def test_reactions_of_others_are_not_the_bots(world, forge):
    number = world.open_request()
    comment = world.comment_as("mira", number, "/gitops plan")
    forge.react(number, comment, Reaction.REFUSED)
    _, note = world.world.find_comment(int(comment))
    (own,) = note.reactions
    note.reactions += [replace(own, content="rocket"), replace(own, content="thumbsup", account="mira")]
    assert forge.reactions(number, comment) == (Reaction.REFUSED,)
    assert forge.reactions(number, "999") == ()


@pytest.mark.parametrize("comment", ["", "../../x", "1?x", "٣", "-1"])
def test_a_reaction_is_to_a_comment(world, server, forge, comment):
    number = world.open_request()
    assert refused(lambda: forge.react(number, comment, Reaction.SEEN)).code == "usage_error"
    assert server.sent == []


def test_targets_that_are_no_branches(server, forge):
    assert forge.requests(target="refs/tags/v1") == ()
    assert server.sent == []


MARKER = "<!-- gitops:plan library -->"
AT = "2026-07-02T10:00:00Z"


@pytest.fixture
def gitea_world(tmp_path: Path) -> InProcess:
    return on_gitea(tmp_path)


@pytest.fixture
def sender(gitea_world: InProcess) -> Sender:
    return gitea_world.sender()


@pytest.fixture
def bot(gitea_world: InProcess, sender: Sender) -> GiteaForge:
    return gitea_world.forge(sender)


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(GitopsError) as caught:
        act()
    return caught.value.code


# Requests


def test_the_request_of_a_fork(gitea_world: InProcess, bot: GiteaForge) -> None:
    number = gitea_world.open_fork()
    assert (bot.request(number).fork, bot.request(number).head_ref) == (True, f"refs/pull/{number}/head")
    gitea_world.delete_fork(number)
    assert bot.request(number).fork


def test_a_request_whose_branch_is_gone(gitea_world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    gitea_world.world.drop("refs/heads/topic", "mira")
    assert bot.request(number).source == "refs/heads/topic"
    form = gitea_world.world.pull_form(gitea_world.world.pull(number))
    form["head"]["label"] = ""
    sender.answers[f"GET /repos/{PROJECT}/pulls/{number}"] = WebAnswer(200, {}, form)
    assert bot.request(number).source == f"refs/pull/{number}/head"


def test_a_request_of_somebody_who_was_deleted(gitea_world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    gitea_world.world.leave("mira")
    assert (bot.request(number).author, bot.request(number).pushers) == (None, ())
    form = gitea_world.world.pull_form(gitea_world.world.pull(number)) | {"user": {"id": -1, "login": "Ghost"}}
    sender.answers[f"GET /repos/{PROJECT}/pulls/{number}"] = WebAnswer(200, {}, form)
    assert bot.request(number).author == Account("-1", "Ghost", bot=True)


def test_both_names_of_a_moved_file(gitea_world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = gitea_world.open_request(files=())
    moved = [{"filename": "b", "previous_filename": "z", "status": "renamed"}]
    sender.answers[f"GET /repos/{PROJECT}/pulls/{number}/files"] = WebAnswer(200, {"x-total-count": "1"}, moved)
    assert bot.files(number) == ("b", "z")


def test_pushers_are_named_with_their_forge(gitea_world: InProcess, bot: GiteaForge) -> None:
    request = bot.request(gitea_world.open_request(author="ada"))
    assert request.pushers == (f"gitea:{gitea_world.account('ada').id}",)


def test_lists_are_read_to_the_end_however_short_the_pages_are(gitea_world: InProcess, bot: GiteaForge) -> None:
    gitea_world.world.page_size = 7
    numbers = gitea_world.open_many(30)
    assert [request.number for request in bot.requests(state=RequestState.OPEN)] == numbers


def test_a_list_without_an_end_is_refused(gitea_world: InProcess, bot: GiteaForge) -> None:
    gitea_world.world.page_size = 1
    number = gitea_world.open_request(files=[f"f{count}" for count in range(101)])
    assert code_of(lambda: bot.files(number)) == "forge_limit"


def test_the_description_of_older_releases_knows_no_target(gitea_world: InProcess, bot: GiteaForge) -> None:
    """Where the forge does not look at the target, the answer is still right."""
    gitea_world.open_request("refs/heads/one", target="refs/heads/next")
    number = gitea_world.open_request("refs/heads/two")
    whole = gitea_world.forge(Deaf(gitea_world.sender()))
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


def test_reviews_that_are_none(gitea_world: InProcess, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    for state in (ReviewState.COMMENTED, ReviewState.APPROVED, ReviewState.COMMENTED):
        gitea_world.review_as("ada", number, state)
    pending, dismissed, deleted = gitea_world.world.pull(number).reviews
    pending.state, dismissed.state, deleted.author = "PENDING", "DISMISSED", "somebody who left"
    assert [(r.id, r.state) for r in bot.reviews(number)] == [(str(dismissed.id), ReviewState.DISMISSED)]


def test_reviews_are_in_the_order_of_their_times(gitea_world: InProcess, bot: GiteaForge) -> None:
    number = gitea_world.open_request(author="mallory")
    for login in ("ada", "mira"):
        gitea_world.review_as(login, number, ReviewState.APPROVED)
    gitea_world.world.pull(number).reviews.reverse()
    assert [r.account.login for r in bot.reviews(number)] == ["ada", "mira"]


# Comments


def test_a_plan_costs_six_calls(gitea_world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    request = bot.requests(state=RequestState.OPEN)[0]
    bot.files(number)
    bot.upsert_comment(number, MARKER, f"{MARKER}\nplan")
    bot.set_status(CheckStatus(request.head, "gitops/plan/library", CheckState.SUCCESS, "ok", AT))
    assert len(sender.sent) == 6


def test_a_reaction_on_gitea_is_to_a_comment(bot: GiteaForge) -> None:
    for comment in ("", "../1", "1/x", "\u0661"):
        assert code_of(lambda c=comment: bot.react(1, c, Reaction.SEEN)) == "usage_error"  # type: ignore[misc]


# Statuses


def test_a_label_that_is_deleted_meanwhile_is_removed(gitea_world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    gitea_world.label(number, "old")
    sender.rivals.append(lambda: gitea_world.world.labels.pop("old", None))
    bot.set_labels(number, remove=("old",))
    assert [request.method for request in sender.sent] == ["GET", "DELETE"]


def test_statuses_in_words_that_we_do_not_have(gitea_world: InProcess, bot: GiteaForge) -> None:
    head = gitea_world.head(gitea_world.open_request())
    for state in ("warning", "skipped"):
        bot.set_status(CheckStatus(head, state, CheckState.PENDING, "x" * 300, AT))
        gitea_world.world.statuses[-1].state = state
    assert [(s.state, len(s.description)) for s in bot.statuses(head)] == [(CheckState.ERROR, 255)] * 2


def test_statuses_of_a_commit_that_is_not_there(bot: GiteaForge) -> None:
    assert bot.statuses("f" * 40) == ()


# People and rules


def test_a_login_that_is_somebody_elses_now(gitea_world: InProcess, bot: GiteaForge) -> None:
    gitea_world.world.admin = True
    gitea_world.give("ada", Permission.ADMIN)
    assert bot.permission(gitea_world.account("ada")) is Permission.ADMIN
    assert bot.permission(Account("99999", "ada")) is Permission.NONE
    assert bot.permission(Account("99999", "nobody")) is Permission.NONE


def test_who_may_write_is_seen_by_who_may_write(gitea_world: InProcess, bot: GiteaForge) -> None:
    gitea_world.give("ada", Permission.READ)
    assert bot.permission(gitea_world.account("ada")) is Permission.NONE
    gitea_world.give("ada", Permission.ADMIN)
    assert bot.permission(gitea_world.account("ada")) is Permission.WRITE
    assert bot.permission(Account("99999", "ada")) is Permission.NONE


def test_members_of_an_organization_who_only_read_give_no_commands(gitea_world: InProcess, bot: GiteaForge) -> None:
    """They can be assigned, as those can who write: so a token that sees only this list is not enough."""
    gitea_world.world.organization = True
    gitea_world.give("ada", Permission.READ)
    assert code_of(lambda: bot.permission(gitea_world.account("ada"))) == "forge_refused"


RULES = {
    "main": {"main": True, "Main": True, "main2": False, "x/main": False},
    "gitops/**": {"gitops/ledger/brain": True, "gitops": False},
    "gitops/*": {"gitops/ledger": True, "gitops/ledger/brain": False},
    "{release,hotfix}/?": {"release/1": True, "hotfix/2": True, "release/10": False, "feature/1": False},
    "v[!0-9],x": {"va,x": True, "v1,x": False},
    "a.c": {"abc": False},
    "a[": {"a[": True, "ab": False},
}


@pytest.mark.parametrize(
    ("rule", "branch", "applies"), [(r, b, yes) for r, found in RULES.items() for b, yes in found.items()]
)
def test_rules_apply_to_branches_that_are_not_there_yet(
    gitea_world: InProcess, bot: GiteaForge, rule: str, branch: str, applies: bool
) -> None:
    world = gitea_world.world
    world.admin, world.rules_of = True, {rule: world.rules_of["main"]}
    assert bot.branch_rules(branch).protected is applies


def test_rules_as_an_administrator_sees_them(gitea_world: InProcess, bot: GiteaForge) -> None:
    gitea_world.world.admin = True
    rules = bot.branch_rules("main")
    assert (rules.request_needed, rules.queue) == (False, False)
    assert (rules.required_checks, rules.pushers) == (("gitops/plan/library",), ("ada",))
    gitea_world.world.rules_of["main"] |= {
        "enable_push": False,
        "unprotected_file_patterns": "docs/**",
        "enable_status_check": False,
    }
    rules = bot.branch_rules("main")
    assert (rules.request_needed, rules.pushers) == (True, None)
    assert (rules.required_checks, rules.notes) == ((), ("files that are exempt: docs/**",))


def test_rules_as_others_see_them(gitea_world: InProcess, bot: GiteaForge) -> None:
    rules = bot.branch_rules("main")
    assert (rules.protected, rules.deletion, rules.force_push, rules.request_needed) == (True, False, None, None)
    assert rules.required_checks == ("gitops/plan/library",)
    assert rules.notes


def test_a_branch_that_is_not_there(bot: GiteaForge) -> None:
    assert bot.branch_rules("nowhere").protected is None


# Labels, proposals, issues


def test_labels_that_are_right_cost_one_call(gitea_world: InProcess, sender: Sender, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    bot.set_labels(number, add=("gitops",))
    assert gitea_world.world.labels.keys() == {"gitops"}
    before = len(sender.sent)
    bot.set_labels(number, add=("gitops",), remove=("other",))
    assert len(sender.sent) == before + 1


def test_labels_have_a_longest_name(gitea_world: InProcess, bot: GiteaForge) -> None:
    number = gitea_world.open_request()
    for name in ("", "x" * 51):
        assert code_of(lambda n=name: bot.set_labels(number, add=(n,))) == "usage_error"  # type: ignore[misc]


def test_a_proposal_of_a_branch_that_is_not_there(bot: GiteaForge) -> None:
    assert code_of(lambda: bot.propose("refs/heads/nowhere", MAIN, "title", "text")) == "forge_refused"


def test_a_closed_issue_ends_with_the_remark(gitea_world: InProcess, bot: GiteaForge) -> None:
    bot.upsert_issue(MARKER, "Drift", f"{MARKER}\ntext")
    bot.close_issue(MARKER, "gone")
    (issue,) = gitea_world.world.issues.values()
    assert [comment.body for comment in issue.comments] == ["gone"]


# Addresses and answers


@pytest.mark.parametrize("project", ["", "library", "a/b/c", "../x", "a/..", "a/b?x", "a b/c", "/a"])
def test_projects_that_are_none(gitea_world: InProcess, sender: Sender, project: str) -> None:
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
def test_answers_in_another_form(gitea_world: InProcess, value: Any) -> None:
    class Odd:
        base = "https://gitea.example.org/api/v1"

        def send(self, request: WebRequest) -> WebAnswer:
            del request
            return WebAnswer(200, {}, value)

    forge = gitea_world.forge(Odd())
    for act in (lambda: forge.request(1), forge.me, lambda: forge.comments(1)):
        assert code_of(act) == "forge_unavailable"
