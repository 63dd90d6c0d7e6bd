"""The judge of requests to GitHub judges: what is described passes, and everything beside it is refused by name."""

from __future__ import annotations

import json
import tomllib

import pytest
from graphql import validate_schema

from gitops.core.errors import RemoteError
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.github_contract import DATA, CheckedSender, check_request, check_response, contract, schema

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
