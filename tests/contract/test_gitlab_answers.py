"""The bot on GitLab where the contract of all forges says nothing: pages, lost answers, refusals, forks, races."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError, RemoteError
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
)
from gitops.forge.web import WebAnswer
from tests.support.forge_world import MAIN
from tests.support.forges.gitlab import level, protection
from tests.support.forges.people import InProcess, Sender, on_gitlab
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
    assert (hidden.code, hidden.detail) == ("forge_unavailable", "GitLab has this merge request and does not show it")
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
