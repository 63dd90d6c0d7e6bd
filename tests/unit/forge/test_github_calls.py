"""What is read from GitHub, and written there."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.github import GitHubDialect, GitHubForge
from gitops.forge.port import (
    APPLIED,
    LABELS,
    UNPROTECTED,
    Account,
    Annotation,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    MergedRequests,
    Reaction,
    RequestState,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.text import MAX_TEXT
from gitops.forge.web import WebAnswer, WebRequest, answer_object
from tests.support.clock import FixedClock
from tests.support.forges import records
from tests.support.forges.github_forms import FULL_NAME
from tests.support.forges.records import Activity, Status
from tests.support.github_canned import (
    AT,
    BOT,
    FORMS,
    HEAD,
    MARKER,
    MERGE,
    OTHER,
    ROOT,
    RULES,
    VIEWER,
    Unjudged,
    bodies,
    calls,
    comment,
    forge_with,
    given_permission,
    lost,
    more,
    no,
    ok,
    pull,
    review,
    unjudged,
)
from tests.support.github_contract import CheckedSender, contract
from tests.support.pages import read_page


def test_whose_token_it_is_is_asked_once() -> None:
    forge, sender = forge_with({})
    assert forge.me() == forge.me() == Account("41898282", BOT, bot=True)
    assert len(sender.sent) == 1


@pytest.mark.parametrize(
    ("body", "code", "retryable"),
    [
        ({"data": None, "errors": [{"type": "RATE_LIMITED", "message": "slow\ndown"}]}, "forge_unavailable", True),
        ({"data": None, "errors": [{"type": "FORBIDDEN", "message": "no"}]}, "forge_refused", False),
        ({"data": None, "errors": [{"message": "no type"}]}, "forge_refused", False),
        ({"data": {"viewer": {"login": "x", "databaseId": None}}}, "forge_refused", False),
        ({"data": None}, "forge_unavailable", False),
    ],
)
def test_a_token_of_nobody_is_told(body: object, code: str, retryable: bool) -> None:
    forge, _ = forge_with({"POST /graphql": ok(body)})
    with pytest.raises(RemoteError) as failed:
        forge.me()
    assert (failed.value.code, failed.value.retryable) == (code, retryable)
    assert "\n" not in failed.value.detail


def test_requests_come_from_all_pages_by_number() -> None:
    path = f"{ROOT}/pulls"
    forge, sender = forge_with({f"GET {path}": [ok([pull(3), pull(1)], link=more(path, 2)), ok([pull(2)])]})
    assert [r.number for r in forge.requests()] == [1, 2, 3]
    first, second = sender.sent
    assert dict(first.query) == {"state": "all", "sort": "created", "direction": "asc", "per_page": "100"}
    assert second.query == (("page", "2"),)


def test_a_request_as_it_is() -> None:
    forge, _ = forge_with({f"GET {ROOT}/pulls/1": ok(pull(full=True, labels=["gitops"]))})
    request = forge.request(1)
    assert (request.number, request.title, request.state) == (1, "Add authors", RequestState.OPEN)
    assert (request.source, request.target, request.head) == ("refs/heads/topic", "refs/heads/main", HEAD)
    assert (request.author, request.pushers) == (Account("1", "mira"), ("github:1",))
    assert (request.head_ref, request.fork, request.merged_as) == ("refs/pull/1/head", False, None)
    assert (request.opened_at, request.labels) == (AT, ("gitops",))
    assert request.url == "https://github.com/octo/brain/pull/1"


def test_a_fork_is_one_by_its_repository_also_when_that_is_gone() -> None:
    # The description says that a list always has the repository, and GitHub gives null for one that was deleted.
    forge, _ = unjudged([pull(1, repository="mira/brain"), pull(2, repository=""), pull(3)])
    assert [r.fork for r in forge.requests()] == [True, True, False]


def test_states_and_targets_of_requests() -> None:
    merged = pull(2, state="closed", merged_at=AT, merged_as=MERGE, target="next/one")
    rows = [pull(1, state="closed", merged_as=OTHER), merged]
    forge, sender = forge_with({f"GET {ROOT}/pulls": ok(rows)})
    found = forge.requests(state=RequestState.MERGED, target="refs/heads/next/one")
    assert [(r.number, r.state, r.merged_as) for r in found] == [(2, RequestState.MERGED, MERGE)]
    assert [(r.number, r.merged_as) for r in forge.requests(state=RequestState.CLOSED)] == [(1, None)]
    assert dict(sender.sent[0].query) | {"state": "closed", "base": "next/one"} == dict(sender.sent[0].query)


def test_a_title_is_one_line_and_an_author_may_be_gone() -> None:
    form = pull(full=True) | {"title": "a\nb\u202ec" + "d" * 400}
    forge, _ = forge_with({f"GET {ROOT}/pulls/1": ok(form)})
    assert forge.request(1).title == ("a b c" + "d" * 400)[:256]
    # GitHub describes the author of a request as always there, so this answer is read without its judge.
    request = unjudged(form | {"user": None})[0].request(1)
    assert (request.author, request.pushers) == (None, ())


@pytest.mark.parametrize("call", ["request", "files", "reviews", "comments"])
def test_what_is_not_there(call: str) -> None:
    paths = ("pulls/7", "pulls/7/files", "pulls/7/reviews", "issues/7/comments")
    forge, _ = forge_with({f"GET {ROOT}/{path}": no(404) for path in paths})
    with pytest.raises(GitopsError) as missing:
        getattr(forge, call)(7)
    assert missing.value.code == "request_not_found"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 0),
        ("number", True),
        ("number", 10**19),
        ("title", 7),
        ("head", None),
        ("head", {"sha": "abc", "ref": "x", "repo": None}),
        ("labels", {}),
        ("created_at", "yesterday"),
        ("state", None),
    ],
)
def test_an_answer_of_another_form_is_told(name: str, value: object) -> None:
    forge, _ = unjudged(pull(full=True) | {name: value})
    with pytest.raises(RemoteError, match=name) as failed:
        forge.request(1)
    assert (failed.value.code, failed.value.retryable) == ("forge_unavailable", False)


def test_what_commits_brought_in() -> None:
    merged = pull(4, state="closed", merged_at=AT, merged_as=MERGE)
    handlers = {
        f"GET {ROOT}/commits/{MERGE}/pulls": ok([merged, pull(5)]),
        f"GET {ROOT}/commits/{HEAD}/pulls": ok([merged]),
        f"GET {ROOT}/commits/{OTHER}/pulls": no(422, "No commit found"),
        f"GET {ROOT}/pulls": ok([]),
        f"GET {ROOT}/activity": ok([]),
    }
    forge, _ = forge_with(handlers)
    assert [r.number for r in forge.merged_by((HEAD, MERGE, OTHER)).found] == [4]
    assert forge.merged_by(()) == MergedRequests()


def _moved(after: str, kind: str) -> Any:
    return FORMS.activity(Activity(7, "refs/heads/main", HEAD, after, "mira", kind, AT, FULL_NAME))


def test_a_merge_that_the_index_does_not_know_yet_is_found_among_the_requests_that_ended_last() -> None:
    merged = pull(4, state="closed", merged_at=AT, merged_as=MERGE)
    other = pull(5, state="closed", merged_at=AT, merged_as=OTHER)
    handlers = {f"GET {ROOT}/commits/{MERGE}/pulls": ok([]), f"GET {ROOT}/pulls": ok([other, pull(6), merged])}
    forge, sender = forge_with({**handlers, f"GET {ROOT}/activity": ok([_moved(MERGE, "pr_merge")])})
    assert [r.number for r in forge.merged_by((MERGE,)).found] == [4]
    assert (dict(sender.sent[1].query)["sort"], sender.waited) == ("updated", [])


@pytest.mark.parametrize("kind", ["pr_merge", "merge_queue_merge"])
def test_a_merge_of_an_unknown_request_is_asked_for_again(kind: str) -> None:
    merged = pull(4, state="closed", merged_at=AT, merged_as=MERGE)
    handlers = {f"GET {ROOT}/pulls": ok([]), f"GET {ROOT}/activity": ok([_moved(MERGE, kind)])}
    late = {f"GET {ROOT}/commits/{MERGE}/pulls": [ok([]), ok([]), ok([merged])]}
    forge, sender = forge_with({**handlers, **late})
    assert [r.number for r in forge.merged_by((MERGE,)).found] == [4]
    assert sender.waited == [2, 4]

    forge, sender = forge_with({**handlers, f"GET {ROOT}/commits/{MERGE}/pulls": ok([])})
    with pytest.raises(RemoteError) as failed:
        forge.merged_by((MERGE,))
    assert (failed.value.code, failed.value.retryable) == ("pushers_pending", True)
    assert 30 <= sum(sender.waited) <= 60


def test_a_push_without_a_request_is_not_waited_for() -> None:
    handlers = {f"GET {ROOT}/commits/{MERGE}/pulls": ok([]), f"GET {ROOT}/pulls": ok([])}
    forge, sender = forge_with({**handlers, f"GET {ROOT}/activity": ok([_moved(MERGE, "push")])})
    assert (forge.merged_by((MERGE,)), sender.waited) == (MergedRequests(), [])


def test_rules_that_the_token_may_not_see_do_not_hide_the_older_protection() -> None:
    path = f"{ROOT}/branches/main/protection"
    older = no(404, "Branch not protected")
    forge, _ = forge_with({f"GET {ROOT}/rules/branches/main": no(403, "Resource not accessible"), f"GET {path}": older})
    assert forge.branch_rules("main") == UNPROTECTED


def _file(name: str, **values: str) -> Any:
    return contract().example("GET", "/repos/{owner}/{repo}/pulls/{pull_number}/files")[0] | {
        "filename": name,
        **values,
    }


def test_files_with_their_old_names() -> None:
    path = f"{ROOT}/pulls/1/files"
    rows = [_file("z"), _file("b", previous_filename="a", status="renamed")]
    forge, _ = forge_with({f"GET {path}": [ok(rows, link=more(path, 2)), ok([_file("c/ü")])]})
    assert forge.files(1) == ("a", "b", "c/ü", "z")


def test_more_files_than_github_lists_are_no_answer() -> None:
    path = f"{ROOT}/pulls/1/files"
    pages = [ok([_file(f"{page}/{n}") for n in range(100)], link=more(path, page + 2)) for page in range(29)]
    forge, _ = forge_with({f"GET {path}": [*pages, ok([_file(f"29/{n}") for n in range(100)])]})
    with pytest.raises(RemoteError) as refused:
        forge.files(1)
    assert refused.value.code == "forge_limit"


def test_reviews_in_their_order_without_those_that_are_not_given() -> None:
    gone = review(3, "ada", "APPROVED") | {"user": None}
    unknown = review(4, "ada", "APPROVED") | {"commit_id": None}
    states = ("APPROVED", "CHANGES_REQUESTED", "DISMISSED", "SOMETHING_NEW")
    rows = [review(10 + n, "mira", state) for n, state in enumerate(states)]
    pending = review(2, "ada", "PENDING")
    del pending["submitted_at"]
    forge, _ = forge_with({f"GET {ROOT}/pulls/1/reviews": ok([pending, gone, unknown, *rows])})
    found = [(r.id, r.state, r.commit) for r in forge.reviews(1)]
    assert found == [
        ("4", ReviewState.APPROVED, ""),
        ("10", ReviewState.APPROVED, HEAD),
        ("11", ReviewState.CHANGES_REQUESTED, HEAD),
        ("12", ReviewState.DISMISSED, HEAD),
        ("13", ReviewState.COMMENTED, HEAD),
    ]


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("APPROVED", ReviewDecision.APPROVED),
        ("CHANGES_REQUESTED", ReviewDecision.CHANGES_REQUESTED),
        ("REVIEW_REQUIRED", ReviewDecision.REQUIRED),
        (None, ReviewDecision.UNKNOWN),
    ],
)
def test_the_verdict_of_the_rules(said: str | None, verdict: ReviewDecision) -> None:
    answer = ok({"data": {"repository": {"pullRequest": {"reviewDecision": said}}}})
    forge, sender = forge_with({"POST /graphql": answer})
    assert forge.review_decision(7) is verdict
    assert sender.sent[0].body["variables"] == {"owner": "octo", "name": "brain", "number": 7}


def test_no_verdict_on_what_is_not_there() -> None:
    error = {"type": "NOT_FOUND", "message": "Could not resolve to a PullRequest with the number of 7."}
    forge, _ = forge_with({"POST /graphql": ok({"data": {"repository": {"pullRequest": None}}, "errors": [error]})})
    with pytest.raises(GitopsError) as missing:
        forge.review_decision(7)
    assert missing.value.code == "request_not_found"


def test_a_verdict_that_is_refused_is_no_verdict() -> None:
    forge, _ = forge_with({"POST /graphql": ok({"data": None, "errors": [{"type": "FORBIDDEN", "message": "no"}]})})
    with pytest.raises(RemoteError) as refused:
        forge.review_decision(7)
    assert refused.value.code == "forge_refused"


def test_a_marker_counts_in_the_first_line_of_the_bots_own_comments() -> None:
    path = f"{ROOT}/issues/1/comments"
    rows = [
        comment(1, "mira", f"{MARKER}\nplanted"),
        comment(2, BOT, f"see below\n{MARKER}"),
        comment(3, BOT, f"{MARKER}\r\nthe plan"),
        comment(4, BOT, f" {MARKER}\nindented"),
        comment(5, "mira", "hello") | {"user": None},
    ]
    forge, _ = forge_with({f"GET {path}": [ok(rows[:2], link=more(path, 2)), ok(rows[2:])]})
    found = forge.comments(1)
    assert [(c.id, c.author, c.marker) for c in found] == [
        ("1", "mira", None),
        ("2", BOT, None),
        ("3", BOT, MARKER),
        ("4", BOT, None),
        ("5", "ghost", None),
    ]
    assert (found[0].body, found[0].at) == (f"{MARKER}\nplanted", AT)


def _combined(*statuses: Status) -> Any:
    form = contract().example("GET", "/repos/{owner}/{repo}/commits/{ref}/status")
    rows = [FORMS.status(status) for status in statuses]
    simple = form["statuses"][0]
    return form | {"statuses": [{key: row.get(key, simple[key]) for key in simple} for row in rows]}


@pytest.mark.parametrize("status", [404, 422])
def test_a_commit_that_is_not_there_has_no_status(status: int) -> None:
    forge, _ = forge_with({f"GET {ROOT}/commits/{HEAD}/status": no(status)})
    assert forge.statuses(HEAD) == ()


def test_a_next_page_elsewhere_is_not_followed() -> None:
    answer = ok([pull()], link='<https://evil.example/repos/octo/brain/pulls?page=2>; rel="next"')
    forge, sender = forge_with({f"GET {ROOT}/pulls": answer})
    with pytest.raises(RemoteError) as refused:
        forge.requests()
    assert (refused.value.code, calls(sender)) == ("forge_refused", ["GET /pulls"])


def test_a_list_without_an_end_is_given_up() -> None:
    path = f"{ROOT}/pulls"
    forge, sender = forge_with({f"GET {path}": ok([pull()], link=more(path, 2))})
    with pytest.raises(RemoteError) as refused:
        forge.requests()
    assert (refused.value.code, len(sender.sent)) == ("forge_limit", 100)


@pytest.mark.parametrize("project", ["", "octo", "octo/", "octo/brain/x", "../x", "octo/..", "octo/a b", "octo/a%2fb"])
def test_a_project_is_owner_and_name(project: str) -> None:
    with pytest.raises(GitopsError) as refused:
        GitHubForge(CheckedSender({}), project, None)  # type: ignore[arg-type]
    assert refused.value.code == "usage_error"


def test_where_the_interfaces_of_enterprise_are() -> None:
    forge, sender = unjudged(VIEWER.body, "https://git.example/api")
    forge.me()
    with pytest.raises(RemoteError):
        forge.request(1)
    assert [request.path for request in sender.sent] == ["/graphql", "/v3/repos/octo/brain/pulls/1"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(HEAD) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "login", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
_READS: dict[str, tuple[Callable[[], Any], Callable[[GitHubForge], object]]] = {
    "request": (lambda: pull(full=True), lambda forge: forge.request(1)),
    "requests": (pull, lambda forge: forge.requests()),
    "files": (lambda: _file("a"), lambda forge: forge.files(1)),
    "reviews": (lambda: review(1, "ada", "APPROVED"), lambda forge: forge.reviews(1)),
    "statuses": (lambda: _combined(Status(1, HEAD, "x", "success", "", BOT, AT)), lambda forge: forge.statuses(HEAD)),
    "permission": (lambda: given_permission("write", "write"), lambda forge: forge.permission(Account("2", "ada"))),
    "rules": (lambda: RULES[2], lambda forge: forge.branch_rules("main")),
}


@given(st.sampled_from(sorted(_READS)), st.booleans(), st.data())
def test_law_an_answer_is_read_or_told_to_be_of_another_form(name: str, in_a_list: bool, data: st.DataObject) -> None:
    """Whatever stands in any place of an answer, the only failure is `forge_unavailable`."""
    make, read = _READS[name]
    form = json.loads(json.dumps(make()))
    holders = [form, *(value for value in form.values() if isinstance(value, dict))]
    for _ in range(data.draw(st.integers(1, 3))):
        holder = data.draw(st.sampled_from(holders))
        holder[data.draw(st.sampled_from(sorted(holder)) | st.sampled_from(["user", "repo", "sha"]))] = data.draw(_JSON)
    forge, _ = unjudged([form] if in_a_list else form)
    try:
        read(forge)
    except RemoteError as error:
        assert error.code == "forge_unavailable"  # noqa: PT017 - the other way out of the law


def test_where_graphql_is_not_offered_rest_says_whose_token_it_is() -> None:
    user = {"id": 7, "login": "mira", "type": "User"}
    sender = Unjudged(ok(user), answers=iter([no(404)]))
    forge = GitHubForge(_Refusing(sender), FULL_NAME, FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))
    assert forge.me() == forge.me() == Account("7", "mira")
    assert [f"{request.method} {request.path}" for request in sender.sent] == ["POST /graphql", "GET /user"]


def test_a_token_of_a_job_that_neither_knows_is_refused_with_the_words_of_graphql() -> None:
    sender = Unjudged(no(403, "Resource not accessible by integration"), answers=iter([no(404, "no GraphQL here")]))
    with pytest.raises(RemoteError, match="no GraphQL here"):
        GitHubForge(_Refusing(sender), FULL_NAME, FixedClock(datetime(2026, 7, 2, tzinfo=UTC))).me()


def test_a_server_that_numbers_neither_repositories_nor_statuses_nor_issues_is_read() -> None:
    """Some servers with the API of GitHub give every repository, every status and every issue the number 0."""
    row = pull(1)
    for side in ("base", "head"):
        row[side]["repo"] |= {"id": 0}
    fork = pull(2)
    for side, name in (("base", FULL_NAME), ("head", "mira/brain")):
        fork[side]["repo"] |= {"id": 0, "full_name": name}
    forge, _ = unjudged([row, fork])
    assert [request.fork for request in forge.requests()] == [False, True]
    status = {"id": 0, "context": "gitops/plan/brain", "state": "success", "description": "", "updated_at": AT}
    forge, _ = unjudged({"statuses": [status]})
    assert [each.context for each in forge.statuses(HEAD)] == ["gitops/plan/brain"]
    user = {"id": 7, "login": "mira", "type": "User"}
    rows = [{"id": 0, "number": n, "state": "open", "title": f"Drift {n}", "body": "", "user": user} for n in (4, 5)]
    found = [GitHubDialect(FULL_NAME, "https://api.github.com").read_issue(answer_object(row)) for row in rows]
    assert [(issue.number, issue.account) for issue in found if issue is not None] == [(4, "7"), (5, "7")]


@dataclass
class _Refusing:
    """A sender that raises what a client raises for a status."""

    inner: Unjudged
    base: str = "https://api.github.com"

    def wait(self, seconds: float) -> None:
        """Nothing."""

    def send(self, request: WebRequest) -> WebAnswer:
        answer = self.inner.send(request)
        if answer.status >= 400:
            raise RemoteError("forge_refused", str(answer.body["message"]), status=answer.status)
        return answer


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
        "merge_order": lambda: api.merge_order("main"),
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
        "style_label": lambda: api.style_label("a b/c", LABELS[APPLIED]),
        "secrets": api.secrets,
        "environment": lambda: api.environment("gitops"),
        "environment_branches": lambda: api.environment_branches("gitops"),
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
        "fit_title",
        "list_ended_numbers",
    }
    return {name: make() for name, make in made.items()}


def _operations() -> set[str]:
    requests = _samples(GitHubDialect(FULL_NAME, "https://api.github.com")).values()
    rest = [request for request in requests if request.path != "/graphql"]
    return {contract().request(r.method, r.path, r.query, r.body).name for r in rest} | {"POST /graphql"}


def test_everything_that_is_asked_is_in_the_description_and_on_the_page_with_its_permission() -> None:
    section = read_page("forge-github.md")
    listed = re.findall(r"^\| `((?:GET|POST|PATCH|PUT|DELETE) [^`]+)` \| [^|]+ \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(_operations())
