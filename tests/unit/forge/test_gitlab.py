"""What GitLab and Gitea send, and what is read from GitLab."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import inspect
import json
import re
import tarfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.actions import MAX_EVENT
from gitops.forge.events import CommentEvent, Delivery, Event, IgnoredEvent, TimerEvent
from gitops.forge.gitea import check_signature as check_gitea_signature
from gitops.forge.gitea import decode as decode_gitea
from gitops.forge.gitea import decode_file as decode_gitea_file
from gitops.forge.gitlab.events import MAX_BODY, check_signature, decode, decode_file
from gitops.forge.gitlab.forge import GitLabDialect, branch_rules, files_of, review_decision, reviews, rows
from gitops.forge.port import (
    APPLIED,
    LABELS,
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
from tests.support.forges.gitea import contract
from tests.support.gitlab_contract import DATA, check_request, check_shape, operations
from tests.support.pages import ROOT

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
        "find_labels": calls.find_labels("gitops/"),
        "make_label": calls.make_label("a", LABELS[APPLIED]),
        "variables": calls.variables(),
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
        "merge_train": calls.merge_train("release/2026"),
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
    without_request = {"next_page", "escape", "fit_title", "list_reviews", "list_ended_numbers"}
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


_WEBHOOKS = json.loads((DATA / "webhooks.json").read_text(encoding="utf-8"))["cases"]
_JOBS = json.loads((DATA / "jobs.json").read_text(encoding="utf-8"))["cases"]
_PUSH = next(case for case in _WEBHOOKS if case["name"] == "a push")
_KEY = b"a key of thirty-two bytes length"
_TOKEN = b"whsec_" + base64.b64encode(_KEY)
_BODY = b'{"object_kind": "push"}'


def plain(event: Event) -> dict[str, object]:
    """An event as the cases write it."""
    return json.loads(json.dumps({"type": type(event).__name__, **asdict(event)}))


def whole(body: dict[str, object]) -> bytes:
    """The bytes of a case's body; a long text is written as what it repeats."""
    note = body.get("object_attributes", {})
    if isinstance(note.get("note"), dict):
        text, count = note["note"]["repeat"]
        body = {**body, "object_attributes": {**note, "note": text * count}}
    return json.dumps(body).encode()


def refused(headers: dict[str, str], body: bytes) -> str:
    with pytest.raises(GitopsError) as caught:
        decode(headers, body)
    assert caught.value.code == "event_invalid"
    return caught.value.detail


@pytest.mark.parametrize("case", _WEBHOOKS, ids=lambda case: case["name"])
def test_a_webhook(case):
    delivery = decode(case["headers"], whole(case["body"]))
    assert plain(delivery.event) == case["event"]
    assert (delivery.id, delivery.repository) == (case["id"], case["repository"])


@pytest.mark.parametrize("case", _JOBS, ids=lambda case: case["name"])
def test_a_job(case):
    body = b"" if case["payload"] is None else json.dumps(case["payload"]).encode()
    delivery = decode_file(case["environ"], body)
    assert plain(delivery.event) == case["event"]
    assert (delivery.id, delivery.repository) == (case["id"], case["repository"])


def test_the_webhook_of_another_project_is_nothing_to_a_job():
    (case,) = (c for c in _JOBS if c["event"]["type"] == "CommentEvent")
    body = json.dumps(case["payload"]).encode()
    delivery = decode_file(case["environ"] | {"CI_PROJECT_PATH": "group/sub/other"}, body)
    assert (delivery.repository, type(delivery.event)) == ("group/sub/other", IgnoredEvent)


def test_a_delivery_without_any_id_is_known_by_its_body():
    body = whole(_PUSH["body"])
    assert decode({}, body).id == decode({}, body).id == hashlib.sha256(body).hexdigest()
    assert decode({}, body + b" ").id != decode({}, body).id


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b"{}",
        b'{"object_kind": 7}',
        b'{"object_kind": "push"}',
        b'{"object_kind": "merge_request", "project": {"path_with_namespace": "a/b"}}',
        b"[" * 200_000,
        b'{"object_kind": "push", "project": [], "ref": "refs/heads/main"}',
        b" " * (MAX_BODY + 1),
    ],
    ids=lambda body: body[:40].decode("latin-1") or "nothing",
)
def test_what_is_no_webhook(body):
    refused({}, body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ref", "main"),
        ("ref", "refs/merge-requests/1/head"),
        ("before", "95790bf"),
        ("after", None),
        ("after", "g" * 40),
        ("user_id", -1),
        ("user_id", True),
        ("user_id", 10**30),
        ("project", None),
    ],
)
def test_a_push_of_another_form(field, value):
    assert field in refused({}, json.dumps({**_PUSH["body"], field: value}).encode())


@pytest.mark.parametrize("name", ["idempotency-key", "webhook-id", "x-gitlab-event-uuid"])
@pytest.mark.parametrize("value", ["a\nb", "x" * 201, "\x00"])
def test_an_id_is_a_short_line(name, value):
    assert name in refused({name: value}, whole(_PUSH["body"]))


def test_a_comment_that_is_no_unicode():
    case = next(case for case in _WEBHOOKS if case["name"] == "a comment on a merge request")
    body = json.dumps(case["body"]).replace("/gitops plan", "\\ud800 plan").encode()
    refused({}, body)


@pytest.mark.parametrize("value", ["", "yesterday", "2026-07-02 25:00:00 UTC", "2026-13-02T10:00:00Z", 0])
def test_a_comment_at_no_time(value):
    case = next(case for case in _WEBHOOKS if case["name"] == "a comment on a merge request")
    note = {**case["body"]["object_attributes"], "created_at": value}
    assert "created_at" in refused({}, json.dumps({**case["body"], "object_attributes": note}).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CI_PIPELINE_SOURCE", ""),
        ("CI_PIPELINE_ID", "0"),
        ("CI_PIPELINE_ID", "1" * 19),
        ("CI_JOB_ID", "٣"),
        ("CI_PROJECT_PATH", "a\nb"),
        ("CI_PROJECT_PATH", "\udcff"),
        ("CI_COMMIT_SHA", "main"),
        ("CI_MERGE_REQUEST_IID", "-7"),
        ("CI_MERGE_REQUEST_PROJECT_PATH", ""),
        ("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "HEAD"),
    ],
)
def test_variables_of_another_form(name, value):
    with pytest.raises(GitopsError) as caught:
        decode_file({**_JOBS[0]["environ"], name: value}, b"")
    assert caught.value.code == "event_invalid"
    assert name in caught.value.detail


@pytest.mark.parametrize("missing", ["CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"])
def test_a_train_needs_to_know_what_it_is_built_on(missing):
    train = next(case for case in _JOBS if case["name"] == "a merge train")
    with pytest.raises(GitopsError, match=missing):
        decode_file({**train["environ"], missing: ""}, b"")


def test_a_trigger_with_something_else_than_a_webhook():
    trigger = next(case for case in _JOBS if case["name"] == "by a webhook")
    with pytest.raises(GitopsError) as caught:
        decode_file(trigger["environ"], b"not JSON")
    assert caught.value.code == "event_invalid"


def test_a_token_is_compared_whole():
    assert check_signature({"x-gitlab-token": "sesame"}, _BODY, b"sesame")
    assert check_signature({"x-gitlab-token": "sésame"}, _BODY, "sésame".encode())
    for sent in ("", "Sesame", "sesam", "sesame ", "\ud800"):
        assert not check_signature({"x-gitlab-token": sent}, _BODY, b"sesame")
    assert not check_signature({}, _BODY, b"sesame")
    assert not check_signature({}, _BODY, b"")
    assert not check_signature({"x-gitlab-token": ""}, _BODY, b"")


def signed(body: bytes = _BODY, key: bytes = _KEY, name: str = "msg_1", moment: str = "1783000000") -> dict[str, str]:
    """The headers of a signed delivery, by the letter of Standard Webhooks."""
    text = f"{name}.{moment}.".encode() + body
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return {"webhook-id": name, "webhook-timestamp": moment, "webhook-signature": f"v1,{signature}"}


def test_the_example_of_the_specification():
    """The published test vector of the Standard Webhooks libraries."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert check_signature(headers, b'{"test": 2432232314}', b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


def test_a_signature_covers_id_time_and_body():
    good = signed()
    assert check_signature(good, _BODY, _TOKEN)
    assert not check_signature(good, _BODY + b" ", _TOKEN)
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        assert not check_signature({**good, name: good[name] + "0"}, _BODY, _TOKEN)
        assert not check_signature({key: value for key, value in good.items() if key != name}, _BODY, _TOKEN)
    assert not check_signature(signed(key=b"another"), _BODY, _TOKEN)


def test_one_of_several_signatures_is_enough_while_keys_change():
    good = signed()
    other = signed(key=b"the key of tomorrow")["webhook-signature"]
    both = {**good, "webhook-signature": f"{other} {good['webhook-signature']}"}
    assert check_signature(both, _BODY, _TOKEN)
    assert not check_signature({**good, "webhook-signature": f"{other} v2,xyz"}, _BODY, _TOKEN)


def test_a_signing_token_is_never_a_password():
    """Whoever saw one delivery with a token could repeat it: where there are signatures, they alone count."""
    headers = {"x-gitlab-token": _TOKEN.decode()}
    assert not check_signature(headers, _BODY, _TOKEN)
    assert not check_signature({**headers, "webhook-signature": "v1,"}, _BODY, _TOKEN)


@pytest.mark.parametrize("secret", [b"whsec_", b"whsec_!!!", b"whsec_a"])
def test_a_signing_token_that_is_none_admits_nobody(secret):
    assert not check_signature(signed(key=b""), _BODY, secret)


CASES = sorted((ROOT / "tests/data/forge/gitea/events").glob("*.json"))
SECRET = b"s3cret"


def case(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def headers(event: str, kind: str = "gitea") -> dict[str, str]:
    return {f"x-{kind}-event": event, f"x-{kind}-delivery": "f6266f16-1bf3", "content-type": "application/json"}


def form_of(delivery: Delivery) -> dict[str, Any]:
    """The event by its name and fields; why one is ignored is for people."""
    event = delivery.event
    fields = {} if isinstance(event, IgnoredEvent) else dataclasses.asdict(event)
    found: dict[str, Any] = json.loads(json.dumps({type(event).__name__: fields}))
    return found


def sign(body: bytes) -> str:
    return hmac.new(SECRET, body, hashlib.sha256).hexdigest()


def refused_by_gitea(headers: dict[str, str], body: bytes) -> str:
    with pytest.raises(GitopsError) as caught:
        decode_gitea(headers, body)
    assert caught.value.code == "event_invalid"
    return caught.value.detail


def code_of(event: str, body: bytes) -> str:
    """The code that a body is refused with, or nothing."""
    try:
        decode_gitea(headers(event), body)
    except GitopsError as error:
        return error.code
    return ""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_webhooks_and_event_files_say_the_same(path: Path) -> None:
    """A webhook of either forge and the file of a job are the same event, but for ids."""
    found = case(path)
    body = json.dumps(found["body"]).encode()
    for kind in ("gitea", "forgejo"):
        delivery = decode_gitea(headers(found["event"], kind), body)
        assert (delivery.id, delivery.repository) == ("f6266f16-1bf3", "team/library")
        assert form_of(delivery) == found["expected"]
    environ = {"GITHUB_EVENT_NAME": found["event"], "GITHUB_RUN_ID": "12", "GITHUB_REPOSITORY": "team/library"}
    delivery = decode_gitea_file(environ, body)
    assert (delivery.id, delivery.repository) == ("12-1", "team/library")
    assert form_of(delivery) == found["expected"]
    assert isinstance(decode_gitea_file(environ | {"GITHUB_REPOSITORY": "team/other"}, body).event, IgnoredEvent)


def test_what_a_real_gitea_sent_is_decoded_as_it_is() -> None:
    """19 deliveries of a Gitea 1.25 with their headers and bytes, of which each has both of its two signatures."""
    with tarfile.open(ROOT / "tests/data/forge/gitea/deliveries.tar.xz") as archive:
        sent = {name: json.loads(archive.extractfile(name).read()) for name in archive.getnames()}
    said = {}
    for name, each in sent.items():
        found = {key.lower(): value for key, value in each["headers"].items()}
        delivery = decode_gitea(found, each["body"].encode())
        assert (delivery.id, delivery.repository) == (found["x-gitea-delivery"], "alice/serve")
        assert found["x-gitea-signature"] == found["x-hub-signature-256"].removeprefix("sha256=")
        ((kind, fields),) = form_of(delivery).items()
        said[name.removesuffix(".json")] = (kind, fields.get("number"), fields.get("action"))
    request, comment, ignored = "RequestEvent", "CommentEvent", ("IgnoredEvent", None, None)
    assert said == {
        "pull_request-opened": (request, 1, "opened"),
        "pull_request-opened-fork": (request, 8, "opened"),
        "pull_request-reopened": (request, 10, "opened"),
        "pull_request-edited": (request, 10, "updated"),
        "pull_request_sync-synchronized": (request, 1, "updated"),
        "pull_request-closed": (request, 10, "closed"),
        "pull_request-closed-fork": (request, 8, "closed"),
        "pull_request-closed-merged": (request, 1, "merged"),
        "pull_request_comment-created": (comment, 1, None),
        "pull_request_comment-created-fork": (comment, 8, None),
        "pull_request_comment-created-merged": (comment, 18, None),
        "pull_request_review_approved-reviewed": ("ReviewEvent", 25, None),
        "push": ("PushEvent", None, None),
        **dict.fromkeys((name for name in said if re.search("edited-|_comment-edited|deleted|label", name)), ignored),
    }
    assert len(said) == 19


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_cases_hold_to_the_description(path: Path) -> None:
    """What webhooks carry are the objects of the description."""
    prefix = "/repos/team/library"
    places = {"pull_request": f"{prefix}/pulls/7", "comment": f"{prefix}/issues/comments/91"}
    for name, value in case(path)["body"].items():
        if name in places and value is not None:
            method = "GET" if name == "pull_request" else "PATCH"
            contract().response(method, places[name], 200, value)
        if name in ("sender", "pusher"):
            contract().response("GET", "/user", 200, value)


def test_a_timer_may_write_nothing() -> None:
    environ = {"GITHUB_EVENT_NAME": "schedule", "GITHUB_REPOSITORY": "team/library"}
    assert decode_gitea_file(environ, b"").event == TimerEvent()


def test_a_long_comment_is_cut() -> None:
    found = case(next(path for path in CASES if path.stem == "issue_comment.created"))["body"]
    found["comment"]["body"] = "/gitops plan\n" + "x" * 100_000
    event = decode_gitea(headers("issue_comment"), json.dumps(found).encode()).event
    assert isinstance(event, CommentEvent)
    assert event.body == ("/gitops plan\n" + "x" * 100_000)[:65_536]


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ("push", b""),
        ("push", b"[]"),
        ("push", b"{" * 100_000),
        ("push", b'{"ref": "refs/heads/main"}'),
        ("push", json.dumps({"ref": "main", "before": "0" * 40, "after": "a" * 40}).encode()),
        ("push", json.dumps({"ref": "refs/heads/main", "before": "0" * 40, "after": "A" * 40}).encode()),
        ("push", json.dumps({"ref": "refs/heads/a b", "before": "0" * 40, "after": "a" * 40}).encode()),
        ("pull_request", b'{"action": "opened", "pull_request": {"number": true, "head": {"sha": "x"}}}'),
        ("pull_request", b'{"action": 3, "pull_request": {"number": 1}}'),
        ("push", b'{"repository": {"full_name": "../../etc"}}'),
        ("workflow_dispatch", json.dumps({"inputs": {f"i{n}": "x" for n in range(51)}}).encode()),
        ("workflow_dispatch", json.dumps({"inputs": {"i": "x" * 1025}}).encode()),
        ("workflow_dispatch", json.dumps({"inputs": ["x"]}).encode()),
        (
            "issue_comment",
            b'{"action":"created","is_pull":true,"issue":{"number":7},"comment":{"id":1,"user":{"id":0}}}',
        ),
    ],
)
def test_bodies_that_nobody_sends(event: str, body: bytes) -> None:
    refused_by_gitea(headers(event), body)


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-gitea-event": ""},
        {"x-gitea-event": "Push"},
        {"x-gitea-event": "push\nx"},
        {"x-gitea-delivery": ""},
        {"x-gitea-delivery": "../x"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
)
def test_headers_that_nobody_sends(wrong: dict[str, str]) -> None:
    refused_by_gitea({**headers("push"), **wrong}, b"{}")


def test_a_body_has_a_largest_size() -> None:
    assert "bytes" in refused_by_gitea(headers("push"), b" " * (MAX_EVENT + 1))


@given(
    st.dictionaries(
        st.sampled_from(("action", "pull_request", "issue", "comment", "ref", "repository")),
        st.from_type(type(None))
        | st.integers()
        | st.text(max_size=5)
        | st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    )
)
def test_any_object_is_read_or_refused_with_the_code(body: dict[str, Any]) -> None:
    for path in CASES:
        assert code_of(case(path)["event"], json.dumps(body).encode()) in ("", "event_invalid")


@pytest.mark.parametrize("name", ["x-gitea-signature", "x-forgejo-signature", "x-hub-signature-256"])
def test_a_signature_is_that_of_the_raw_bytes(name: str) -> None:
    body = b'{"a": 1}'
    good = ("sha256=" if "hub" in name else "") + sign(body)
    assert check_gitea_signature({name: good}, body, SECRET)
    assert not check_gitea_signature({name: good}, b'{"a":1}', SECRET)
    assert not check_gitea_signature({name: good}, body, b"other")
    assert not check_gitea_signature({name: good.upper()}, body, SECRET)
    assert not check_gitea_signature({name: ""}, body, SECRET)
    assert not check_gitea_signature({name: good[:-1]}, body, SECRET)


def test_without_a_signature_or_a_secret_nothing_is_good() -> None:
    empty = hmac.new(b"", b"x", hashlib.sha256).hexdigest()
    assert not check_gitea_signature({}, b"x", SECRET)
    assert not check_gitea_signature({"x-gitea-signature": empty}, b"x", b"")


def test_every_signature_counts() -> None:
    body = b"x"
    both = {"x-gitea-signature": sign(body), "x-hub-signature-256": "sha256=" + sign(body)}
    assert check_gitea_signature(both, body, SECRET)
    assert not check_gitea_signature({**both, "x-hub-signature-256": "sha256=" + "0" * 64}, body, SECRET)
    assert not check_gitea_signature({**both, "x-hub-signature-256": sign(body)}, body, SECRET)
    assert not check_gitea_signature({**both, "x-gitea-signature": "é" * 64}, body, SECRET)
