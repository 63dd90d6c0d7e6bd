"""The imitation of GitHub is held to GitHub's own description."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from graphql import validate_schema

from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.events import CommentEvent, PushEvent, QueueEvent, RequestAction, RequestEvent, ReviewEvent
from gitops.forge.github import check_signature, decode, decode_file
from gitops.forge.port import CheckState, CheckStatus, Permission, RequestState
from gitops.forge.web import WebAnswer, WebRequest
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.git.repository import GitRepository
from tests.support.forge_world import MAIN
from tests.support.forges import landing
from tests.support.forges.github_forms import delivery
from tests.support.forges.people import BOT, TOKEN, OverHttp, on_github, open_forge, over_http
from tests.support.forges.records import Happening
from tests.support.forges.world import RefusedError, World
from tests.support.git_fixture import bare, commit, environment, opened
from tests.support.github_contract import DATA, CheckedSender, check_request, check_response, contract, schema

SECRET = b"webhook-secret"
AT = "2026-07-02T10:00:00Z"
QUEUE = {"merge_method": "MERGE", "max_entries_to_build": 5}
CHECKS = {"required_status_checks": [{"context": "gitops/plan/brain"}], "strict_required_status_checks_policy": False}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[OverHttp]:
    made = on_github(tmp_path, prompt=False)
    world = made.world
    world.lend("mira", "mira")
    world.lend("job", "github-actions[bot]", "actions", contents="read")
    world.join("github-actions[bot]", "write", kind="Bot")
    world.join("github-merge-queue[bot]", "write", kind="Bot")
    with over_http(made) as running:
        yield running


def _clone(hub: OverHttp, path: Path, token: str) -> tuple[GitRepository, ProgramRemote]:
    url = hub.server.git_url.replace("//", f"//x-access-token:{token}@", 1)
    repository = opened(bare(path))
    remote = ProgramRemote(repository.git_dir, url, environ=environment(path.parent))
    remote.fetch(["refs/heads/main"])
    return repository, remote


def _last(world: World, name: str) -> Happening:
    return [h for h in world.happenings if h.name == name][-1]


def test_rules_hold_for_real_pushes(hub: OverHttp, tmp_path: Path) -> None:
    main = hub.world.tip(MAIN) or ""
    repository, remote = _clone(hub, tmp_path / "mira" / "clone.git", "mira")
    new = commit(repository, {"a": b"1"}, main, message="new\n")
    other = commit(repository, {"b": b"1"}, main, message="other\n")
    remote.push([RefUpdate("refs/heads/ledger/x", ZERO, new)])
    hub.world.protect("ledger", "ledger/**", {"update": None, "deletion": None}, BOT)
    for old, to in ((new, other), (new, ZERO)):
        with pytest.raises(GitopsError) as caught:
            remote.push([RefUpdate("refs/heads/ledger/x", old, to)])
        assert "GH013" in caught.value.detail
    assert hub.world.tip("refs/heads/ledger/x") == new

    copy, by_bot = _clone(hub, tmp_path / "bot" / "clone.git", TOKEN)
    by_bot.fetch(["refs/heads/ledger/x"])
    by_bot.push([RefUpdate("refs/heads/ledger/x", new, commit(copy, {"c": b"1"}, new, message="entry\n"))])
    assert hub.world.tip("refs/heads/ledger/x") != new


def test_a_token_that_reads_does_not_push(hub: OverHttp, tmp_path: Path) -> None:
    repository, remote = _clone(hub, tmp_path / "job" / "clone.git", "job")
    new = commit(repository, {"a": b"1"}, hub.world.tip(MAIN) or "", message="new\n")
    with pytest.raises(GitopsError):
        remote.push([RefUpdate("refs/heads/topic", ZERO, new)])
    assert hub.world.tip("refs/heads/topic") is None


def test_a_request_follows_its_branch(hub: OverHttp, tmp_path: Path) -> None:
    number = hub.open_request()
    before = hub.head(number)
    repository, remote = _clone(hub, tmp_path / "mira" / "clone.git", "mira")
    remote.fetch(["refs/heads/topic", f"refs/pull/{number}/head"])
    new = commit(repository, {"more": b"1"}, before, message="more\n")
    with pytest.raises(GitopsError):
        remote.push([RefUpdate(f"refs/pull/{number}/head", before, new)])
    remote.push([RefUpdate("refs/heads/topic", before, new)])
    assert hub.world.tip(f"refs/pull/{number}/head") == hub.head(number) == new
    event = _last(hub.world, "pull_request")
    assert (event.payload["action"], event.payload["before"], event.payload["after"]) == ("synchronize", before, new)
    remote.push([RefUpdate("refs/heads/topic", new, ZERO)])
    assert hub.bot().request(number).state is RequestState.CLOSED


def test_a_request_from_a_fork_is_here_by_its_own_ref(hub: OverHttp) -> None:
    world = hub.world
    fork = world.fork("mallory")
    store = opened(fork)
    head = commit(store, {"x": b"1"}, world.tip(MAIN) or "", message="From a fork\n")
    world.push_to_fork("mallory", "mallory/brain", "topic", head)
    number = world.open_pull("mallory", "topic", repository="mallory/brain").number
    request = hub.bot().request(number)
    assert (request.fork, request.head, request.head_ref) == (True, head, f"refs/pull/{number}/head")
    assert world.tip(request.head_ref) == head
    assert world.tip("refs/heads/topic") is None
    assert _last(world, "pull_request").cause.fork


@pytest.mark.parametrize(("method", "parents"), [("merge", 2), ("squash", 1), ("rebase", 1)])
def test_three_ways_to_merge(hub: OverHttp, method: str, parents: int) -> None:
    number = hub.open_request()
    new = landing.merge(hub.world, number, landing.Order("ada", method))
    assert len(hub.world.store.commit(new).parents) == parents
    request = hub.bot().request(number)
    assert (request.state, request.merged_as, hub.world.tip(MAIN)) == (RequestState.MERGED, new, new)
    assert [r.number for r in hub.bot().merged_by((new,)).found] == [number]
    names = [(h.name, h.payload.get("action")) for h in hub.world.happenings[-2:]]
    assert names == [("pull_request", "closed"), ("push", None)]
    with pytest.raises(RefusedError, match="not mergeable"):
        landing.merge(hub.world, number, landing.Order("ada", method))


def test_what_starts_no_workflow(hub: OverHttp) -> None:
    world = hub.world
    assert not _last(world, "push").cause.quiet
    landing.merge(world, hub.open_request(), landing.Order("ada", "squash", title="Quick [skip ci]"))
    assert _last(world, "push").cause.quiet
    number = hub.open_request("refs/heads/other")
    world.comment("ada", number, "hello")
    assert not _last(world, "issue_comment").cause.quiet
    world.comment("github-actions[bot]", number, "hello")
    assert _last(world, "issue_comment").cause.quiet
    hub.push(number, files=("b",))
    assert not _last(world, "pull_request").cause.quiet


def test_a_request_that_conflicts_starts_no_workflow(hub: OverHttp) -> None:
    number = hub.open_request(files=("a",))
    hub.branch(MAIN, files=("a",))
    hub.push(number, files=("c",))
    assert _last(hub.world, "pull_request").cause.quiet
    with pytest.raises(RefusedError, match="conflict"):
        landing.merge(hub.world, number, landing.Order("ada"))


def test_required_checks_and_heads_guard_the_button(hub: OverHttp) -> None:
    hub.world.protect("checks", "main", {"required_status_checks": CHECKS})
    number = hub.open_request()
    head = hub.head(number)
    with pytest.raises(RefusedError, match="Required status check"):
        landing.merge(hub.world, number, landing.Order("ada"))
    hub.bot().set_status(CheckStatus(head, "gitops/plan/brain", CheckState.SUCCESS, "ok", AT))
    with pytest.raises(RefusedError, match="modified"):
        landing.merge(hub.world, number, landing.Order("ada", sha="1" * 40))
    landing.merge(hub.world, number, landing.Order("ada", sha=head))


def test_the_queue_builds_groups_and_lands_what_is_good(hub: OverHttp) -> None:
    world = hub.world
    world.protect("queue", "main", {"merge_queue": QUEUE, "required_status_checks": CHECKS})
    one, two = hub.open_request("refs/heads/one", files=("a",)), hub.open_request("refs/heads/two", files=("b",))
    first, second = landing.enqueue(world, one, "ada"), landing.enqueue(world, two, "ada")
    assert (first.base, second.base) == (world.tip(MAIN), first.head)
    assert world.tip(second.ref) == second.head
    assert second.ref == f"refs/heads/gh-readonly-queue/main/pr-{two}-{first.head}"
    event = decode_file(*_as_job(_last(world, "merge_group"))).event
    assert event == QueueEvent(second.head, second.base, MAIN)

    hub.bot().set_status(CheckStatus(first.head, "gitops/plan/brain", CheckState.SUCCESS, "ok", AT))
    assert landing.settle_queue(world) == [one]
    assert world.tip(MAIN) == first.head
    assert world.queue == []
    assert hub.bot().request(one).merged_as == first.head
    assert hub.bot().request(two).state is RequestState.OPEN


def _as_job(event: Happening) -> tuple[dict[str, str], bytes]:
    body = delivery(event.name, event.id, event.payload, SECRET).body
    return {
        "GITHUB_EVENT_NAME": event.name,
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_REPOSITORY": "octo/brain",
    }, body


def test_everything_that_happens_is_understood_by_the_bot(hub: OverHttp) -> None:
    world = hub.world
    number = hub.open_request()
    comment = world.comment("ada", number, "/gitops plan")
    world.edit("ada", comment.id, "/gitops retry")
    world.review("ada", number, "APPROVED")
    hub.merge(number)
    seen = []
    for happening in world.happenings:
        told = delivery(happening.name, happening.id, happening.payload, SECRET)
        assert check_signature(told.headers, told.body, SECRET)
        assert not check_signature(told.headers, told.body + b" ", SECRET)
        got = decode(told.headers, told.body)
        assert (got.id, got.repository) == (happening.id, "octo/brain")
        assert decode(told.headers, told.body) == got
        assert decode_file(*_as_job(happening)).event == got.event
        seen.append(got.event)
    requests = [e.action for e in seen if isinstance(e, RequestEvent)]
    assert requests == [RequestAction.OPENED, RequestAction.MERGED]
    assert [e.body for e in seen if isinstance(e, CommentEvent)] == ["/gitops plan"]
    assert [e.number for e in seen if isinstance(e, ReviewEvent)] == [number]
    assert [e.new for e in seen if isinstance(e, PushEvent)][-1] == world.tip(MAIN)


def test_what_an_account_wrote_that_is_gone_is_nobodys(hub: OverHttp) -> None:
    number = hub.open_request()
    hub.world.join("gone", "write")
    hub.world.comment("gone", number, "<!-- m -->\nposing")
    hub.world.review("gone", number, "APPROVED")
    hub.world.leave("gone")
    bot = hub.bot()
    bot.upsert_comment(number, "<!-- m -->", "<!-- m -->\nthe plan")
    assert [c.marker for c in bot.comments(number)] == [None, "<!-- m -->"]
    assert all(review.account.login != "gone" for review in bot.reviews(number))


def test_tokens_do_what_they_are_for(hub: OverHttp) -> None:
    number = hub.open_request()
    job = open_forge(hub.server, "job")
    assert job.me().login == "github-actions[bot]"
    with pytest.raises(RemoteError) as caught:
        job.upsert_comment(number, "<!-- m -->", "<!-- m -->\ntext")
    assert (caught.value.code, caught.value.status) == ("forge_refused", 403)
    with pytest.raises(RemoteError) as caught:
        open_forge(hub.server, "wrong").me()
    assert (caught.value.code, caught.value.status) == ("forge_refused", 401)
    assert hub.bot().permission(hub.account("mira")) is Permission.WRITE


def test_its_habits_are_bad_unless_a_test_says_otherwise(hub: OverHttp) -> None:
    def ask(method: str, path: str, form: object = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "test"}
        url = f"{hub.server.base}/api/v3/repos/octo/brain{path}"
        return requests.request(method, url, json=form, headers=headers, timeout=10)

    numbers = [hub.open_request(f"refs/heads/topic-{number}") for number in range(4)]
    pages = [ask("GET", f"/pulls?state=open&sort=created&direction=desc&per_page=100&page={page}") for page in (1, 2)]
    shown = [[pull["number"] for pull in page.json()] for page in pages]
    assert shown == [numbers[:0:-1], numbers[1::-1]]

    status = {"state": "success", "context": "gitops/plan/brain"}
    head = hub.head(numbers[0])
    assert [ask("POST", f"/statuses/{head}", status).status_code for _ in range(2)] == [422, 201]
    assert ask("POST", f"/issues/{numbers[0]}/labels", {"labels": ["gitops/failed"]}).status_code == 403
    assert ask("GET", "/rules/branches/main").status_code == 403
    merged = hub.merge(numbers[0])
    assert [len(ask("GET", f"/commits/{merged}/pulls").json()) for _ in range(3)] == [0, 0, 1]
    assert ask("POST", f"/issues/{numbers[1]}/comments", {"body": "one"}).status_code == 201
    busy = ask("POST", f"/issues/{numbers[1]}/comments", {"body": "two"})
    assert (busy.status_code, busy.headers["Retry-After"]) == (403, "1")
    assert "secondary rate limit" in busy.json()["message"]


def test_what_breaks_the_contract_is_not_passed_over(tmp_path: Path) -> None:
    def ask() -> None:
        with over_http(on_github(tmp_path, prompt=False)) as hub:
            path = "/api/v3/repos/octo/brain/pulls?perpage=1"
            headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "test"}
            assert requests.get(hub.server.base + path, headers=headers, timeout=10).status_code == 422

    with pytest.raises(AssertionError, match="no query parameter 'perpage'"):
        ask()


REPO = "/repos/octo/hello"
SHA = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
UPDATE = """
mutation($repository: ID!, $name: GitRefname!, $old: GitObjectID!, $new: GitObjectID!) {
  updateRefs(input: {repositoryId: $repository, refUpdates: [{name: $name, beforeOid: $old, afterOid: $new}]}) {
    clientMutationId
  }
}
"""
VERDICT = """
query($owner: String!, $name: String!, $number: Int!) {
  viewer { login databaseId }
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) { reviewDecision author { __typename login } }
  }
}
"""
ASKED = {"query": VERDICT, "variables": {"owner": "octo", "name": "hello", "number": 7}}


def test_every_wanted_operation_is_there_and_no_other():
    wanted = tomllib.loads((DATA / "wanted.toml").read_text(encoding="utf-8"))["operations"].split()
    assert {o.name for o in contract().operations} == {
        f"{m} {p}" for m, p in zip(wanted[::2], wanted[1::2], strict=True)
    }


def test_the_schema_is_whole():
    assert validate_schema(schema()) == []


def test_the_data_says_where_it_comes_from():
    packages = json.loads((DATA / "origin.json").read_bytes())["packages"]
    assert {p["package"]: p["licence"] for p in packages} == dict.fromkeys(
        ("@octokit/openapi", "@octokit/graphql-schema", "@octokit/webhooks-examples"), "MIT"
    )
    assert all(p["version"] for p in packages)


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("GET", f"{REPO}/pulls", [("state", "open"), ("per_page", "100"), ("page", "2")], None),
        ("GET", f"{REPO}/git/ref/heads/a/b", [], None),
        ("GET", f"{REPO}/issues/comments/1", [], None),
        ("DELETE", f"{REPO}/issues/7/labels/needs%20approval", [], None),
        ("POST", f"{REPO}/issues/7/comments", [], {"body": "text"}),
        ("POST", f"{REPO}/statuses/{SHA}", [], {"state": "success", "context": "gitops/plan/brain"}),
        ("POST", f"{REPO}/git/refs", [], {"ref": "refs/gitops/lock", "sha": SHA}),
        ("PUT", f"{REPO}/pulls/7/merge", [], {"sha": SHA, "merge_method": "squash"}),
    ],
)
def test_what_is_described_passes(method, path, query, body):
    check_request(method, path, query, {}, body)


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "reason"),
    [
        ("GET", f"{REPO}/pull/7", [], None, "no operation"),
        ("GET", f"{REPO}/pulls", [("perpage", "100")], None, "no query parameter 'perpage'"),
        ("GET", f"{REPO}/pulls", [("state", "merged")], None, "query state"),
        ("GET", f"{REPO}/pulls/seven", [], None, "path pull_number"),
        ("POST", f"{REPO}/issues/7/comments", [], {"text": "x"}, "body"),
        ("POST", f"{REPO}/issues/7/comments", [], {"body": "x", "marker": "y"}, "marker"),
        ("POST", f"{REPO}/statuses/{SHA}", [], {"state": "ok"}, '"ok" is not one of'),
        ("POST", f"{REPO}/issues/comments/1/reactions", [], {"content": "eye"}, '"eye" is not one of'),
        ("POST", f"{REPO}/check-runs", [], {"head_sha": SHA}, '"name" is a required property'),
        ("GET", f"{REPO}/pulls/7", [], {"body": "x"}, "takes no body"),
        ("POST", "/graphql", [], {"query": "{ viewer { name } }"}, "Cannot query field 'name'"),
        ("POST", "/graphql", [], {"query": UPDATE, "variables": {"repository": "R"}}, "name"),
        ("POST", "/graphql", [], {**ASKED, "variables": {**ASKED["variables"], "more": 1}}, "more"),
        ("POST", "/graphql", [], {**ASKED, "variables": {**ASKED["variables"], "number": "7"}}, "number"),
        ("POST", "/graphql", [], {**ASKED, "cursor": 1}, "cursor"),
    ],
)
def test_what_is_not_described_is_refused_by_name(method, path, query, body, reason):
    with pytest.raises(AssertionError, match=reason):
        check_request(method, path, query, {}, body)


def test_another_form_of_answer_is_refused():
    with pytest.raises(AssertionError, match="text/html"):
        check_request("GET", f"{REPO}/pulls", (), {"Accept": "text/html"}, None)


def test_answers_are_judged_by_status_and_body():
    comment = contract().example("GET", "/repos/{owner}/{repo}/issues/comments/{comment_id}")
    check_response("GET", f"{REPO}/issues/comments/1", 200, comment)
    check_response("GET", f"{REPO}/issues/comments/1", 403, {"message": "Resource not accessible by integration"})
    check_response("DELETE", f"{REPO}/issues/comments/1", 204, None)
    for status, body, reason in (
        (200, {**comment, "id": "1"}, "id"),
        (202, comment, "does not answer 202"),
        (403, {"error": "no"}, "message"),
    ):
        with pytest.raises(AssertionError, match=reason):
            check_response("GET", f"{REPO}/issues/comments/1", status, body)


def test_an_answer_of_graphql_has_what_was_asked_for_and_no_more():
    request = {"reviewDecision": "APPROVED", "author": {"__typename": "User", "login": "mira"}}
    good = {"data": {"viewer": {"login": "bot", "databaseId": 1}, "repository": {"pullRequest": request}}}
    check_response("POST", "/graphql", 200, good, asked=ASKED)
    for wrong in (
        {"viewer": {"login": "bot"}, "repository": None},
        {"viewer": {"login": "bot", "databaseId": 1, "name": "Bot"}, "repository": None},
        {**good["data"], "repository": {"pullRequest": {**request, "reviewDecision": "FINE"}}},
    ):
        with pytest.raises(AssertionError):
            check_response("POST", "/graphql", 200, {"data": wrong}, asked=ASKED)
    check_response("POST", "/graphql", 200, {"data": None, "errors": [{"message": "no"}]}, asked=ASKED)


def test_a_table_of_answers_sends_like_a_transport():
    path = f"{REPO}/pulls/7/reviews"
    sender = CheckedSender({f"GET {path}": [WebAnswer(200, {}, []), WebAnswer(502, {}), WebAnswer(404, {})]})
    assert sender.send(WebRequest("GET", path)).body == []
    with pytest.raises(RemoteError) as caught:
        sender.send(WebRequest("GET", path))
    assert (caught.value.code, caught.value.status) == ("forge_unavailable", 502)
    assert sender.send(WebRequest("GET", path, quiet=frozenset({404}))).status == 404
    assert len(sender.sent) == 3
    with pytest.raises(AssertionError, match="unexpected"):
        sender.send(WebRequest("GET", f"{REPO}/pulls/8/reviews"))
