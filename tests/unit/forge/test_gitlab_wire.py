"""GitLab's documented answers as nouns, its requests, and the tables behind verdicts, roles and rules."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime

import pytest

from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.gitlab.forge import GitLabDialect, branch_rules, files_of, review_decision, reviews, rows
from gitops.forge.port import (
    Account,
    CheckState,
    CheckStatus,
    DeploymentState,
    Permission,
    Reaction,
    RequestState,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.web import WebAnswer, answer_object
from gitops.git.port import ZERO
from tests.support.gitlab_contract import DATA, check_request, check_shape, operations

_EXAMPLES = json.loads((DATA / "answers.json").read_text(encoding="utf-8"))["examples"]
_BY_SHAPE = {example["shape"]: example["value"] for example in _EXAMPLES}
API = GitLabDialect("a/b")
_NOW = datetime(2026, 7, 2, tzinfo=UTC)


def forms(shape: str):
    return rows(_BY_SHAPE[shape], shape)


def merge_request(**changed):
    return answer_object({**_BY_SHAPE["merge_request"], **changed})


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example["shape"])
def test_documented_examples_have_the_shape_that_the_twin_is_held_to(example):
    assert example["page"].startswith("https://docs.gitlab.com/api/")
    check_shape(example["shape"], example["value"])


def test_a_merge_request():
    request = API.read_request(merge_request())
    assert (request.number, request.title, request.state) == (1, "test1", RequestState.MERGED)
    assert (request.source, request.target) == ("refs/heads/test1", "refs/heads/main")
    assert (request.head, request.merged_as) == ("8" * 40, "8" * 40)
    assert (request.head_ref, request.fork) == ("refs/merge-requests/1/head", True)
    assert (request.author, request.pushers) == (Account("1", "admin"), ("gitlab:1",))
    assert (request.opened_at, request.labels) == ("2026-04-29T08:46:00Z", ("Community contribution", "Manage"))
    assert request.url == "https://gitlab.example.com/my-group/my-project/merge_requests/1"


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("opened", RequestState.OPEN),
        ("locked", RequestState.OPEN),
        ("merged", RequestState.MERGED),
        ("closed", RequestState.CLOSED),
    ],
)
def test_states(said, state):
    assert API.read_request(merge_request(state=said)).state is state


def test_what_brought_a_request_in():
    def merged_as(**changed):
        return API.read_request(merge_request(**changed)).merged_as

    merge, squash = {"merge_commit_sha": "1" * 40}, {"squash_commit_sha": "2" * 40}
    assert merged_as(**merge, **squash) == "1" * 40
    assert merged_as(**squash) == "2" * 40
    assert merged_as() == "8" * 40
    assert merged_as(state="opened", **merge) is None


def test_a_fork_is_another_project_or_none():
    def fork(**changed):
        return API.read_request(merge_request(**changed)).fork

    assert not fork(source_project_id=3)
    assert fork(source_project_id=2)
    assert fork(source_project_id=None)


def test_a_request_without_commits_has_no_head():
    assert API.read_request(merge_request(state="opened", sha=None)).head == ZERO


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("iid", 0),
        ("iid", "1"),
        ("state", "levitating"),
        ("sha", "8888"),
        ("created_at", "yesterday"),
        ("author", None),
        ("author", {"id": 1}),
        ("title", ["x"]),
        ("target_branch", None),
        ("target_branch", "x" * 5000),
        ("target_project_id", None),
    ],
)
def test_an_answer_of_another_form(field, value):
    with pytest.raises(RemoteError) as caught:
        API.read_request(merge_request(**{field: value}))
    assert caught.value.code == "forge_unavailable"


@pytest.mark.parametrize("value", [None, {}, "x", [1], [[]]])
def test_a_list_of_another_form(value):
    with pytest.raises(RemoteError) as caught:
        rows(value, "notes")
    assert caught.value.code == "forge_unavailable"


def test_files_have_their_old_names_as_well():
    assert [API.read_files(row) for row in forms("[diff]")] == [("README", "README.md")]


@pytest.mark.parametrize(("count", "expected"), [("1", 1), ("0", 0), (None, None), ("", None), ("many", None)])
def test_how_many_files(count, expected):
    assert files_of(merge_request(changes_count=count)) == expected


def test_more_files_than_gitlab_lists():
    with pytest.raises(GitopsError) as caught:
        files_of(merge_request(changes_count="1000+"))
    assert caught.value.code == "forge_limit"


def test_reviews_are_opinions_that_stand():
    approvals = answer_object(_BY_SHAPE["approvals"])
    found = reviews(approvals, forms("[reviewer]"))
    assert [(r.account.login, r.state, r.commit, r.at) for r in found] == [
        ("ada", ReviewState.COMMENTED, "", ""),
        ("root", ReviewState.APPROVED, "", "2026-06-09T00:00:00Z"),
        ("mira", ReviewState.CHANGES_REQUESTED, "", ""),
    ]
    assert reviews(None, ()) == ()


def test_who_approved_and_then_asks_for_changes_objects():
    who = {"id": 1, "username": "root"}
    for state, expected in (
        ("requested_changes", [ReviewState.APPROVED, ReviewState.CHANGES_REQUESTED]),
        ("reviewed", [ReviewState.COMMENTED, ReviewState.APPROVED]),
        ("unreviewed", [ReviewState.APPROVED]),
    ):
        row = answer_object({"user": who, "state": state, "created_at": "2020-07-01T00:00:00Z"})
        found = reviews(answer_object(_BY_SHAPE["approvals"]), [row])
        assert [review.state for review in found] == expected


_RULES = {"approvals_required": 1, "approvals_left": 0}


@pytest.mark.parametrize(
    ("status", "approvals", "reviewer", "expected"),
    [
        ("mergeable", _RULES, None, ReviewDecision.APPROVED),
        ("ci_must_pass", _RULES, None, ReviewDecision.APPROVED),
        ("not_approved", _RULES, None, ReviewDecision.REQUIRED),
        ("mergeable", {**_RULES, "approvals_left": 1}, None, ReviewDecision.REQUIRED),
        ("mergeable", {"approvals_required": 1}, None, ReviewDecision.REQUIRED),
        ("requested_changes", _RULES, None, ReviewDecision.CHANGES_REQUESTED),
        ("ci_must_pass", _RULES, "requested_changes", ReviewDecision.CHANGES_REQUESTED),
        ("mergeable", _RULES, "reviewed", ReviewDecision.APPROVED),
        ("mergeable", {"approvals_required": 0, "approvals_left": 0}, None, ReviewDecision.UNKNOWN),
        ("mergeable", {"approved": True}, None, ReviewDecision.UNKNOWN),
        ("mergeable", None, None, ReviewDecision.UNKNOWN),
        (None, None, None, ReviewDecision.UNKNOWN),
        (None, None, "requested_changes", ReviewDecision.CHANGES_REQUESTED),
    ],
)
def test_the_verdict(status, approvals, reviewer, expected):
    reviewers = [] if reviewer is None else [answer_object({"state": reviewer})]
    form = None if approvals is None else answer_object(approvals)
    assert review_decision(merge_request(detailed_merge_status=status), form, reviewers) is expected


@pytest.mark.parametrize("approvals", [{"approvals_required": -1}, {"approvals_required": "none"}])
def test_a_verdict_is_not_guessed(approvals):
    with pytest.raises(RemoteError):
        review_decision(merge_request(), answer_object(approvals), ())


def test_lines_that_gitlab_writes_are_no_comments():
    (row,) = _BY_SHAPE["[note]"]
    assert API.read_comment(answer_object({**row, "system": True})) is None
    note = API.read_comment(answer_object(row))
    assert note is not None
    assert (note.id, note.account, note.author, note.body, note.at) == (
        "301",
        "1",
        "pipin",
        "Comment for MR",
        "2026-10-02T08:57:14Z",
    )


def test_statuses_of_jobs_and_of_the_bot():
    found = [API.read_status(row, "1" * 40) for row in forms("[status]")]
    assert [(s.context, s.state, s.description, s.at) for s in found] == [
        ("bundler:audit", CheckState.PENDING, "", "2026-01-19T08:40:25Z"),
        ("gitops/plan/library", CheckState.SUCCESS, "3 changes", "2026-01-19T09:05:50Z"),
    ]


@pytest.mark.parametrize("said", ["created", "running", "manual", "skipped", "scheduled", "of a later release"])
def test_whatever_is_no_verdict_is_pending(said):
    row = {**_BY_SHAPE["[status]"][0], "status": said}
    assert API.read_status(answer_object(row), "1" * 40).state is CheckState.PENDING


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"access_level": 0}, Permission.NONE),
        ({"access_level": 5}, Permission.NONE),
        ({"access_level": 10}, Permission.READ),
        ({"access_level": 15}, Permission.READ),
        ({"access_level": 20}, Permission.READ),
        ({"access_level": 30}, Permission.WRITE),
        ({"access_level": 40}, Permission.MAINTAIN),
        ({"access_level": 50}, Permission.ADMIN),
        ({"state": "blocked"}, Permission.NONE),
        ({"membership_state": "awaiting"}, Permission.NONE),
        ({"id": 2}, Permission.NONE),
        ({"expires_at": "2026-07-02"}, Permission.NONE),
        ({"expires_at": "2026-07-03"}, Permission.WRITE),
        ({"expires_at": None}, Permission.WRITE),
    ],
)
def test_roles(changed, expected):
    assert (
        API.read_permission(answer_object({**_BY_SHAPE["member"], **changed}), Account("1", "root"), _NOW) is expected
    )


def test_rules_of_a_branch():
    rows, project = forms("[protected_branch]"), answer_object(_BY_SHAPE["project"])
    rules = branch_rules("main", rows, project)
    assert (rules.protected, rules.request_needed, rules.force_push, rules.deletion) == (True, False, False, False)
    assert (rules.required_checks, rules.queue) == (("*",), True)
    assert rules.pushers == ("Maintainers", "deploy-key:1")


def test_patterns_protect_branches_too():
    rows, project = forms("[protected_branch]"), answer_object(_BY_SHAPE["project"])
    for name, expected in (
        ("release/1.0", True),
        ("release/1/0", True),
        ("release", False),
        ("xrelease/1", False),
        ("main2", False),
        ("topic", False),
    ):
        rules = branch_rules(name, rows, project)
        assert (rules.protected, rules.force_push) == (expected, not expected)


def test_the_most_permissive_rule_is_in_force():
    level = {"access_level": 0, "access_level_description": "No one"}
    closed = {"name": "gitops/ledger/*", "push_access_levels": [level], "allow_force_push": False}
    project = answer_object({"only_allow_merge_if_pipeline_succeeds": False})
    rules = branch_rules("gitops/ledger/library", [answer_object(closed)], project)
    assert (rules.request_needed, rules.pushers, rules.required_checks, rules.queue) == (True, (), (), None)
    people = [{"access_level": 40, "user_id": 7, "group_id": None}, {"access_level": None, "group_id": 8}]
    opened = {"name": "gitops/*", "push_access_levels": people, "allow_force_push": True}
    both = [answer_object(closed), answer_object(opened)]
    rules = branch_rules("gitops/ledger/library", both, project)
    assert (rules.request_needed, rules.force_push, rules.pushers) == (False, True, ("gitlab:7", "group:8"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/merge", "\\/merge"),
        ("a\n/close\nb", "a\n\\/close\nb"),
        ("  /approve  x", "  \\/approve  x"),
        ("\t/label ~bug", "\t\\/label ~bug"),
        ("a\r\n/close\r\n", "a\r\n\\/close\r\n"),
        ("/gitops approve graph.library", "/gitops approve graph.library"),
        ("/gitopsx", "\\/gitopsx"),
        ("/srv/data is a path", "/srv/data is a path"),
        ("see a/b, /merge", "see a/b, /merge"),
        ("/ alone", "/ alone"),
        ("", ""),
    ],
)
def test_no_line_is_a_quick_action(text, expected):
    assert API.escape(text) == expected
    assert API.escape(expected) == expected


def test_a_project_is_one_segment_of_a_path():
    assert GitLabDialect("group/sub/name").settings().path == "/projects/group%2Fsub%2Fname"
    assert GitLabDialect("42").get_request(7).path == "/projects/42/merge_requests/7"
    assert GitLabDialect("a/b").change_comment(7, "../../x", "t").path.endswith("/notes/..%2F..%2Fx")


@pytest.mark.parametrize(
    "name", ["", "/", "a", "a/", "/a/b", "a//b", "a/../b", "a/.", "a/b?c", "a/b#c", "a b/c", "0", "1/", "٣"]
)
def test_what_is_no_project(name):
    with pytest.raises(GitopsError) as caught:
        GitLabDialect(name)
    assert caught.value.code == "usage_error"


def test_every_request_is_documented_and_every_documented_one_is_made():
    calls, one, commit = GitLabDialect("a/b"), 1, "1" * 40
    made = {
        "viewer": calls.viewer(),
        "settings": calls.settings(),
        "list_requests": calls.list_requests(RequestState.OPEN, "main", "topic"),
        "requests_of": calls.requests_of(commit),
        "list_ended": calls.list_ended(),
        "get_request": calls.get_request(one),
        "open_request": calls.open_request("a", "b", "t", "x"),
        "change_request": calls.change_request(one, "t", "x"),
        "close_request": calls.close_request(one),
        "set_labels": calls.set_labels(one, ["a"], ["b"]),
        "list_files": calls.list_files(one),
        "approvals": calls.approvals(one),
        "reviewers": calls.reviewers(one),
        "list_comments": calls.list_comments(one),
        "add_comment": calls.add_comment(one, "x"),
        "change_comment": calls.change_comment(one, "2", "x"),
        "remove_comment": calls.remove_comment(one, "2"),
        "react": calls.react(one, "2", Reaction.SEEN),
        "list_reactions": calls.list_reactions(one, "2"),
        "list_statuses": calls.list_statuses(commit),
        "set_status": calls.set_status(CheckStatus(commit, "c", CheckState.ERROR, "x" * 999, "")),
        "pipelines_of": calls.pipelines_of(commit),
        "get_permission": calls.get_permission(Account("7", "mira")),
        "protected_branches": calls.protected_branches(),
        "deployments": calls.deployments("production"),
        "add_deployment": calls.add_deployment("production", commit, "main", DeploymentState.RUNNING),
        "update_deployment": calls.update_deployment(one, DeploymentState.FAILURE),
        "list_issues": calls.list_issues(Account("7", "mira")),
        "open_issue": calls.open_issue("t", "x"),
        "change_issue": calls.change_issue(one, "t", "x"),
        "close_issue": calls.close_issue(one),
        "comment_on_issue": calls.comment_on_issue(one, "x"),
    }
    methods = {name for name, _ in inspect.getmembers(GitLabDialect, inspect.isfunction)}
    without_request = {"next_page", "escape", "list_reviews", "list_ended_numbers"}
    assert set(made) == {name for name in methods if not name.startswith(("_", "read_"))} - without_request
    assert {check_request(request).call for request in made.values()} == {o.call for o in operations()}


def test_only_what_replaces_may_be_sent_twice():
    calls = GitLabDialect("a/b")
    once = [
        calls.add_comment(1, "x"),
        calls.open_issue("t", "x"),
        calls.comment_on_issue(1, "x"),
        calls.open_request("a", "b", "t", "x"),
    ]
    assert not any(call.repeatable for call in once)
    assert calls.change_comment(1, "2", "x").repeatable
    assert calls.remove_comment(1, "2").repeatable


@pytest.mark.parametrize("counted", ["two", "-1", "1.5", "٣"])
def test_a_page_is_a_number(counted):
    calls = GitLabDialect("a/b")
    with pytest.raises(RemoteError) as caught:
        calls.next_page("https://x", calls.list_comments(1), WebAnswer(200, {"x-next-page": counted}), 100)
    assert caught.value.code == "forge_unavailable"
