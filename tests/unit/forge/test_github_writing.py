"""What is written to GitHub: once, in place, in as few calls as can be, by the official description."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.github import GitHubDialect
from gitops.forge.port import (
    Account,
    Annotation,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    Reaction,
    RequestState,
)
from gitops.forge.text import MAX_TEXT
from gitops.forge.web import WebRequest
from tests.support.forges import records
from tests.support.forges.github_forms import FULL_NAME
from tests.support.github_canned import (
    AT,
    BOT,
    FORMS,
    HEAD,
    MARKER,
    ROOT,
    bodies,
    calls,
    comment,
    forge_with,
    lost,
    no,
    ok,
    pull,
)
from tests.support.github_contract import contract
from tests.support.pages import read_page

COMMENTS = f"{ROOT}/issues/1/comments"
STATUS = CheckStatus(HEAD, "gitops/plan/library", CheckState.SUCCESS, "nothing to do", AT)
BODY = f"{MARKER}\nthe plan"


def _created(number: int = 9, body: str = BODY) -> Any:
    return ok(comment(number, BOT, body), 201)


def _check(state: CheckState = CheckState.SUCCESS, notes: int = 0, summary: str = "s") -> CommitCheck:
    annotations = tuple(Annotation("cluster/a.pg", n, f"note {n}", Severity.ERROR) for n in range(1, notes + 1))
    return CommitCheck(HEAD, "gitops/plan/library", state, "2 changes", summary, annotations)


def _run(output: dict[str, Any] | None = None) -> dict[str, Any]:
    return FORMS.check_run(
        records.CheckRun(7, HEAD, "gitops/plan/library", "gitops", "completed", "success", AT, output or {})
    )


def test_a_plan_takes_six_calls() -> None:
    rows = [pull(1, labels=["gitops", "gitops:blocked"]), pull(2)]
    handlers = {
        f"GET {ROOT}/pulls": ok(rows),
        f"POST {ROOT}/statuses/{HEAD}": ok(_status_form(), 201),
        f"POST {ROOT}/check-runs": ok(_run(), 201),
        f"GET {COMMENTS}": ok([comment(1, "mira", "why?")]),
        f"POST {COMMENTS}": _created(),
    }
    forge, sender = forge_with(handlers)
    (request,) = [r for r in forge.requests(state=RequestState.OPEN) if r.number == 1]
    forge.set_status(STATUS)
    forge.set_check(_check(notes=50))
    forge.upsert_comment(request.number, MARKER, BODY)
    forge.set_labels(request.number, add=["gitops", "GitOps:Blocked"], remove=["gitops:ready"])
    assert calls(sender) == [
        "GET /pulls",
        f"POST /statuses/{HEAD}",
        "POST /check-runs",
        "POST /graphql",
        "GET /issues/1/comments",
        "POST /issues/1/comments",
    ]


def _status_form() -> dict[str, Any]:
    return FORMS.status(records.Status(1, HEAD, STATUS.context, "success", STATUS.description, BOT, AT))


# Comments


def test_the_first_comment_gets_its_marker() -> None:
    forge, sender = forge_with({f"GET {COMMENTS}": ok([]), f"POST {COMMENTS}": _created()})
    forge.upsert_comment(1, MARKER, "the plan")
    assert bodies(sender, "POST") == [{"body": BODY}]


def test_a_marker_may_be_given_without_its_brackets() -> None:
    forge, sender = forge_with({f"GET {COMMENTS}": ok([]), f"POST {COMMENTS}": _created()})
    forge.upsert_comment(1, "gitops cluster=library", "<!-- gitops cluster=library -->\nthe plan")
    assert bodies(sender, "POST") == [{"body": "<!-- gitops cluster=library -->\nthe plan"}]


def test_saying_the_same_again_writes_nothing() -> None:
    forge, sender = forge_with({f"GET {COMMENTS}": ok([comment(1, BOT, BODY.replace("\n", "\r\n") + "\r\n")])})
    forge.upsert_comment(1, MARKER, BODY)
    assert calls(sender) == ["POST /graphql", "GET /issues/1/comments"]


def test_what_a_race_left_is_removed() -> None:
    rows = [comment(1, BOT, f"{MARKER}\nold"), comment(2, "mira", BODY), comment(3, BOT, BODY), comment(4, BOT, BODY)]
    handlers = {
        f"GET {COMMENTS}": ok(rows),
        f"DELETE {ROOT}/issues/comments/3": ok(None, 204),
        f"DELETE {ROOT}/issues/comments/4": no(404),
        f"PATCH {ROOT}/issues/comments/1": ok(comment(1, BOT, BODY)),
    }
    forge, sender = forge_with(handlers)
    forge.upsert_comment(1, MARKER, BODY)
    assert calls(sender)[2:] == [
        "PATCH /issues/comments/1",
        "DELETE /issues/comments/3",
        "DELETE /issues/comments/4",
    ]


def test_a_comment_that_is_refused_is_not_tried_again() -> None:
    forge, sender = forge_with({f"GET {COMMENTS}": ok([]), f"POST {COMMENTS}": no(403, "locked")})
    with pytest.raises(RemoteError) as refused:
        forge.upsert_comment(1, MARKER, BODY)
    assert (refused.value.code, refused.value.status) == ("forge_refused", 403)
    assert len(bodies(sender, "POST")) == 1


def test_a_comment_has_a_largest_size() -> None:
    forge, sender = forge_with({f"GET {COMMENTS}": ok([]), f"POST {COMMENTS}": _created()})
    forge.upsert_comment(1, MARKER, "x" * (MAX_TEXT - len(MARKER) - 1))
    with pytest.raises(GitopsError) as refused:
        forge.upsert_comment(1, MARKER, "x" * (MAX_TEXT - len(MARKER)))
    assert refused.value.code == "comment_too_large"
    assert len(bodies(sender, "POST")) == 1


def test_only_what_may_be_repeated_is_repeated() -> None:
    api = GitHubDialect(FULL_NAME, "https://api.github.com")
    once = {name for name, request in _samples(api).items() if not request.repeatable}
    assert once == {"add_comment", "comment_on_issue", "add_to_check", "open_deployment", "open_issue", "open_request"}


# Statuses, checks, reactions, labels


@pytest.mark.parametrize("state", CheckState)
def test_a_status_is_one_call_with_a_bounded_description(state: CheckState) -> None:
    forge, sender = forge_with({f"POST {ROOT}/statuses/{HEAD}": ok(_status_form(), 201)})
    forge.set_status(CheckStatus(HEAD, "gitops/plan/library", state, "ü" * 200, AT))
    (body,) = bodies(sender, "POST")
    assert body == {"state": state.value, "context": "gitops/plan/library", "description": "ü" * 139 + "…"}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (CheckState.PENDING, ("in_progress", None)),
        (CheckState.SUCCESS, ("completed", "success")),
        (CheckState.FAILURE, ("completed", "failure")),
        (CheckState.ERROR, ("completed", "failure")),
    ],
)
def test_a_check_is_never_neutral(state: CheckState, said: tuple[str, str | None]) -> None:
    forge, sender = forge_with({f"POST {ROOT}/check-runs": ok(_run(), 201)})
    forge.set_check(_check(state))
    (body,) = bodies(sender, "POST")
    assert (body["status"], body.get("conclusion")) == said
    assert (body["head_sha"], body["name"]) == (HEAD, "gitops/plan/library")


def test_many_notes_take_several_calls() -> None:
    handlers = {f"POST {ROOT}/check-runs": ok(_run(), 201), f"PATCH {ROOT}/check-runs/7": ok(_run())}
    forge, sender = forge_with(handlers)
    forge.set_check(_check(CheckState.FAILURE, notes=120))
    (first,), others = bodies(sender, "POST"), bodies(sender, "PATCH")
    assert first["conclusion"] == "failure"
    lines = [[note["start_line"] for note in body["output"]["annotations"]] for body in (first, *others)]
    assert lines == [list(range(1, 51)), list(range(51, 101)), list(range(101, 121))]
    assert all(set(body) == {"output"} for body in others)


def test_more_notes_than_anybody_reads_are_counted() -> None:
    handlers = {f"POST {ROOT}/check-runs": ok(_run(), 201), f"PATCH {ROOT}/check-runs/7": ok(_run())}
    forge, sender = forge_with(handlers)
    forge.set_check(_check(notes=512, summary="```\n" + "x\n" * 50_000))
    written = [body["output"] for body in (*bodies(sender, "POST"), *bodies(sender, "PATCH"))]
    assert sum(len(output["annotations"]) for output in written) == 500
    summary = written[0]["summary"]
    assert len(summary) <= 65_535
    assert summary.endswith("12 more annotations are left out here.")
    assert summary.count("```") == 2


def test_a_note_is_on_lines_that_there_are() -> None:
    notes = (
        Annotation("a.pg", 0, "", Severity.WARNING, "t" * 300),
        Annotation("b.pg", 7, "m" * 20_000, Severity.ERROR, end_line=3),
        Annotation("c.pg", 7, "m", Severity.ERROR, end_line=9),
    )
    forge, sender = forge_with({f"POST {ROOT}/check-runs": ok(_run(), 201)})
    forge.set_check(CommitCheck(HEAD, "n", CheckState.FAILURE, "t", "s", notes))
    found = bodies(sender, "POST")[0]["output"]["annotations"]
    assert [(n["start_line"], n["end_line"], n["annotation_level"]) for n in found] == [
        (1, 1, "warning"),
        (7, 7, "failure"),
        (7, 9, "failure"),
    ]
    assert (found[0]["message"], len(found[0]["title"]), len(found[1]["message"])) == ("-", 255, 16_000)


@pytest.mark.parametrize(("reaction", "content"), [("seen", "eyes"), ("done", "+1"), ("refused", "-1")])
def test_a_reaction(reaction: str, content: str) -> None:
    form = FORMS.reaction(records.Reaction(1, BOT, content))
    forge, sender = forge_with({f"POST {ROOT}/issues/comments/5/reactions": ok(form, 201)})
    forge.react(1, "5", Reaction(reaction))
    assert bodies(sender, "POST") == [{"content": content}]


def test_reactions_of_others_are_not_the_bots() -> None:
    given = [records.Reaction(1, "mira", "+1"), records.Reaction(2, BOT, "heart"), records.Reaction(3, BOT, "-1")]
    forge, _ = forge_with({f"GET {ROOT}/issues/comments/5/reactions": ok([FORMS.reaction(each) for each in given])})
    assert forge.reactions(1, "5") == (Reaction.REFUSED,)


@pytest.mark.parametrize("identifier", ["", "x", "5/reactions", "٣"])
def test_a_comment_is_named_by_its_number(identifier: str) -> None:
    forge, sender = forge_with({})
    with pytest.raises(GitopsError) as refused:
        forge.react(1, identifier, Reaction.SEEN)
    assert (refused.value.code, sender.sent) == ("usage_error", [])


def test_labels_change_only_where_they_differ() -> None:
    handlers = {
        f"GET {ROOT}/issues/1/labels": ok([FORMS.label("bug"), FORMS.label("Old One")]),
        f"POST {ROOT}/issues/1/labels": ok([FORMS.label("bug")]),
        f"DELETE {ROOT}/issues/1/labels/old%20one": ok([FORMS.label("bug")]),
    }
    forge, sender = forge_with(handlers)
    forge.set_labels(1, add=["new", "bug", "new"], remove=["old one", "never"])
    forge.set_labels(1, add=["new"], remove=["old one"])
    assert calls(sender) == ["GET /issues/1/labels", "DELETE /issues/1/labels/old%20one", "POST /issues/1/labels"]
    assert bodies(sender, "POST") == [{"labels": ["new"]}]


def test_labels_are_read_again_after_a_failure() -> None:
    handlers = {
        f"GET {ROOT}/issues/1/labels": [ok([]), ok([FORMS.label("new")])],
        f"POST {ROOT}/issues/1/labels": [lost],
    }
    forge, sender = forge_with(handlers)
    with pytest.raises(RemoteError):
        forge.set_labels(1, add=["new"])
    forge.set_labels(1, add=["new"])
    assert calls(sender) == ["GET /issues/1/labels", "POST /issues/1/labels", "GET /issues/1/labels"]


# Deployments


DEPLOYMENT = Deployment(HEAD, "production", DeploymentState.SUCCESS, "3 changes", "https://ci.example/1")
DEPLOYMENTS = f"{ROOT}/deployments"


def _deployment(number: int, creator: str) -> dict[str, Any]:
    return FORMS.deployment(records.Deployment(number, HEAD, HEAD, "gitops", "production", "", creator, AT))


def _deployment_status() -> dict[str, Any]:
    deployment = records.Deployment(3, HEAD, HEAD, "gitops", "production", "", BOT, AT)
    return FORMS.deployment_status(deployment, 1, BOT, AT, {"state": "success"})


def test_a_deployment_is_opened_and_brought_forward() -> None:
    handlers = {
        f"GET {DEPLOYMENTS}": ok([_deployment(2, "mira")]),
        f"POST {DEPLOYMENTS}": ok(_deployment(3, BOT), 201),
        f"POST {DEPLOYMENTS}/3/statuses": ok(_deployment_status(), 201),
    }
    forge, sender = forge_with(handlers)
    forge.record_deployment(DEPLOYMENT)
    opened, said = bodies(sender, "POST")
    assert (opened["ref"], opened["auto_merge"], opened["required_contexts"]) == (HEAD, False, [])
    assert (opened["environment"], opened["task"]) == ("production", "gitops")
    assert (said["state"], said["log_url"]) == ("success", "https://ci.example/1")


@pytest.mark.parametrize("handler", [lost, no(422, "already")], ids=["lost", "there"])
def test_one_deployment_stays_one(handler: Any) -> None:
    handlers = {
        f"GET {DEPLOYMENTS}": [ok([]), ok([_deployment(3, BOT)]), ok([_deployment(3, BOT)])],
        f"POST {DEPLOYMENTS}": [handler],
        f"POST {DEPLOYMENTS}/3/statuses": ok(_deployment_status(), 201),
    }
    forge, sender = forge_with(handlers)
    forge.record_deployment(DEPLOYMENT)
    forge.record_deployment(DEPLOYMENT)
    assert calls(sender).count("POST /deployments/3/statuses") == 2
    assert calls(sender).count("POST /deployments") == 1


# Everything that can be asked


def _samples(api: GitHubDialect) -> dict[str, WebRequest]:
    """One request of each kind; a method without a sample fails the tests below."""
    made: dict[str, Callable[[], WebRequest]] = {
        "viewer": api.viewer,
        "review_decision": lambda: api.review_decision(1),
        "list_requests": lambda: api.list_requests(RequestState.OPEN, "main", "topic"),
        "get_request": lambda: api.get_request(1),
        "list_files": lambda: api.list_files(1),
        "list_reviews": lambda: api.list_reviews(1),
        "requests_of": lambda: api.requests_of(HEAD),
        "activities": lambda: api.activities("refs/heads/topic"),
        "newest_activities": api.newest_activities,
        "list_ended": api.list_ended,
        "user": api.user,
        "open_request": lambda: api.open_request("a", "b", "t", "x"),
        "change_request": lambda: api.change_request(1, "t", "x"),
        "close_request": lambda: api.close_request(1),
        "list_comments": lambda: api.list_comments(1),
        "add_comment": lambda: api.add_comment(1, "x"),
        "change_comment": lambda: api.change_comment(1, "1", "x"),
        "remove_comment": lambda: api.remove_comment(1, "1"),
        "react": lambda: api.react(1, "1", Reaction.SEEN),
        "list_reactions": lambda: api.list_reactions(1, "1"),
        "list_statuses": lambda: api.list_statuses(HEAD),
        "set_status": lambda: api.set_status(STATUS),
        "check": lambda: api.check(_check())[0],
        "add_to_check": lambda: api.add_to_check(1, {"title": "t", "summary": "s", "annotations": []}),
        "labels": lambda: api.labels(1),
        "add_labels": lambda: api.add_labels(1, ["a"]),
        "remove_label": lambda: api.remove_label(1, "a b/c"),
        "deployments": lambda: api.deployments(DEPLOYMENT),
        "open_deployment": lambda: api.open_deployment(DEPLOYMENT),
        "set_deployment": lambda: api.set_deployment(1, DEPLOYMENT),
        "list_issues": lambda: api.list_issues(Account("1", BOT)),
        "open_issue": lambda: api.open_issue("t", "x"),
        "change_issue": lambda: api.change_issue(1, "t", "x"),
        "close_issue": lambda: api.close_issue(1),
        "comment_on_issue": lambda: api.comment_on_issue(1, "x"),
        "get_permission": lambda: api.get_permission(Account("1", BOT)),
        "rules": lambda: api.rules("release/1"),
        "protection": lambda: api.protection("release/1"),
    }
    methods = {name for name, _ in inspect.getmembers(GitHubDialect, inspect.isfunction) if not name.startswith("_")}
    assert set(made) == {n for n in methods if not n.startswith("read_")} - {
        "next_page",
        "escape",
        "list_ended_numbers",
    }
    return {name: make() for name, make in made.items()}


def _operations() -> set[str]:
    requests = _samples(GitHubDialect(FULL_NAME, "https://api.github.com")).values()
    rest = [request for request in requests if request.path != "/graphql"]
    return {contract().request(r.method, r.path, r.query, r.body).name for r in rest} | {"POST /graphql"}


def test_everything_that_is_asked_is_in_the_description_and_on_the_page_with_its_permission() -> None:
    section = read_page("forges.md").partition("\n## GitHub\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `((?:GET|POST|PATCH|PUT|DELETE) [^`]+)` \| [^|]+ \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(_operations())
