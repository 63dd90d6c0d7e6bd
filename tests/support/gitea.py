"""A Gitea in memory: answers the bot's requests as an instance does, each request and answer checked against its description.

The description is that of a release, cut down (`tests/data/forge/gitea`). What it does not say is taken from the release's
behaviour: pages are never larger than `page_size`, some lists name no total, and comments come on one page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote

from gitops.forge.port import Permission
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.github_contract import Contract
from tests.support.pages import ROOT

PROJECT = "team/library"
BASE = "https://gitea.example.org/api/v1"
_PREFIX = f"/repos/{PROJECT}"
_NO_TOTAL = ("/labels",)
_WORDS = {
    Permission.NONE: "none",
    Permission.READ: "read",
    Permission.WRITE: "write",
    Permission.ADMIN: "admin",
}

Form = dict[str, Any]


@cache
def contract() -> Contract:
    """The description, read once for each process."""
    return Contract(json.loads((ROOT / "tests/data/forge/gitea/openapi.json").read_bytes()))


@dataclass
class Gitea:
    """The instance with one private repository."""

    page_size: int = 30
    users: dict[str, Form] = field(default_factory=dict)
    permissions: dict[str, Permission] = field(default_factory=dict)
    pulls: dict[int, Form] = field(default_factory=dict)
    issues: dict[int, Form] = field(default_factory=dict)
    files: dict[int, list[Form]] = field(default_factory=dict)
    reviews: dict[int, list[Form]] = field(default_factory=dict)
    comments: dict[int, list[Form]] = field(default_factory=dict)
    reactions: dict[int, list[str]] = field(default_factory=dict)
    labels: dict[int, Form] = field(default_factory=dict)
    statuses: dict[str, list[Form]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    rules: dict[str, Form] = field(default_factory=dict)
    admin: bool = True
    lists_deleted_forks: bool = False
    """Whether requests can be listed once the fork of one is deleted: https://github.com/go-gitea/gitea/pull/34685."""

    count: int = 0

    def user(self, login: str) -> Form:
        """An account, made when it is first named."""
        if login not in self.users:
            self.users[login] = {"id": 100 + len(self.users), "login": login, "full_name": "", "is_admin": False}
        return self.users[login]

    def next(self) -> int:
        """A number that was not given before."""
        self.count += 1
        return self.count

    def now(self) -> str:
        """A time later than all before, as instances say it: with an offset."""
        self.count += 1
        return f"2026-07-02T{12 + self.count // 3600:02}:{self.count // 60 % 60:02}:{self.count % 60:02}+02:00"

    # What people do

    def open_pull(self, login: str, form: Mapping[str, Any], files: Sequence[str]) -> Form:
        """A request from a branch of this repository."""
        number = self.next()
        repository = {"id": 1, "full_name": PROJECT, "private": True}
        pull: Form = {
            "id": 1000 + number,
            "number": number,
            "state": "open",
            "title": form["title"],
            "body": form.get("body", ""),
            "user": self.user(login),
            "base": {"label": form["base"], "ref": form["base"], "sha": "b" * 40, "repo_id": 1, "repo": repository},
            "head": {
                "label": form["head"],
                "ref": form["head"],
                "sha": self.branches[form["head"]],
                "repo_id": 1,
                "repo": repository,
            },
            "created_at": self.now(),
            "merged": False,
            "merged_at": None,
            "merge_commit_sha": None,
            "labels": [],
            "assignees": None,
            "html_url": f"https://gitea.example.org/{PROJECT}/pulls/{number}",
        }
        self.pulls[number] = {key: value for key, value in pull.items() if key != "merge_commit_sha"}
        self.files[number] = [{"filename": name, "status": "added"} for name in files]
        return self.pulls[number]

    def comment(self, login: str, number: int, body: str) -> Form:
        """A comment on a request or an issue."""
        now = self.now()
        comment: Form = {
            "id": self.next(),
            "body": body,
            "user": self.user(login),
            "created_at": now,
            "updated_at": now,
            "html_url": f"https://gitea.example.org/{PROJECT}/issues/{number}#comment",
            "assets": [],
        }
        self.comments.setdefault(number, []).append(comment)
        return comment

    def issue(self, login: str, title: str, body: str) -> Form:
        """An issue."""
        number = self.next()
        self.issues[number] = {
            "id": 2000 + number,
            "number": number,
            "title": title,
            "body": body,
            "state": "open",
            "user": self.user(login),
            "created_at": self.now(),
            "pull_request": None,
            "html_url": f"https://gitea.example.org/{PROJECT}/issues/{number}",
        }
        return self.issues[number]

    def label(self, name: str) -> Form:
        """A label of the repository, made when it is first named."""
        for label in self.labels.values():
            if label["name"] == name:
                return label
        number = self.next()
        self.labels[number] = {"id": number, "name": name, "color": "00aabb"}
        return self.labels[number]

    def delete_fork(self, number: int) -> None:
        """The fork of a request is deleted, which closes the request; its head stays at the ref of the request."""
        pull = self.pulls[number]
        pull["state"] = "closed"
        pull["head"] |= {"ref": f"refs/pull/{number}/head", "repo_id": -1, "repo": None}

    # What the bot asks

    def answer(self, request: WebRequest) -> WebAnswer:
        """The answer to a request, both checked."""
        contract().request(request.method, request.path, request.query, request.body)
        answer = self._answer(request)
        contract().response(request.method, request.path, answer.status, answer.body)
        return answer

    def _answer(self, request: WebRequest) -> WebAnswer:
        operation = contract().find(request.method, request.path)
        handler = HANDLERS[f"{request.method} {operation.template.replace('/repos/{owner}/{repo}', '')}"]
        found = operation.pattern.fullmatch(request.path)
        arguments = {} if found is None else {k: unquote(v) for k, v in found.groupdict().items()}
        arguments.pop("owner", None)
        arguments.pop("repo", None)
        status, value = handler(self, request, arguments)
        if status >= 400:
            return WebAnswer(status, {}, {"message": "no", "url": "https://gitea.example.org/api/swagger"})
        if isinstance(value, list) and not request.path.endswith("/comments"):
            value, headers = self._page(request, value)
            lost = any(row.get("head", {}).get("repo", {}) is None for row in value or ())
            if lost and not self.lists_deleted_forks:
                return WebAnswer(500, {}, {"message": "", "url": "https://gitea.example.org/api/swagger"})
            return WebAnswer(status, headers, value)
        return WebAnswer(status, {}, json.loads(json.dumps(value)))

    def _page(self, request: WebRequest, rows: list[Any]) -> tuple[list[Any] | None, dict[str, str]]:
        query = dict(request.query)
        size = min(int(query.get("limit", "30")), self.page_size)
        start = (int(query.get("page", "1")) - 1) * size
        headers = {} if request.path.endswith(_NO_TOTAL) else {"x-total-count": str(len(rows))}
        # An empty slice that was never made is null.
        return json.loads(json.dumps(rows[start : start + size])) or None, headers

    def by_comment(self, number: int) -> Form | None:
        """A comment by its number."""
        return next((c for all_of in self.comments.values() for c in all_of if c["id"] == number), None)


Answer = tuple[int, Any]
Handler = Callable[[Gitea, WebRequest, dict[str, str]], Answer]


def _list_pulls(gitea: Gitea, request: WebRequest, _: dict[str, str]) -> Answer:
    query = dict(request.query)
    wanted = {"open": ("open",), "closed": ("closed",), "all": ("open", "closed")}[query["state"]]
    branch = query.get("base_branch")
    rows = [p for _, p in sorted(gitea.pulls.items()) if p["state"] in wanted and branch in (None, p["base"]["ref"])]
    return 200, rows


def _open_pull(gitea: Gitea, request: WebRequest, _: dict[str, str]) -> Answer:
    body = request.body
    for pull in gitea.pulls.values():
        if pull["state"] == "open" and (pull["head"]["ref"], pull["base"]["ref"]) == (body["head"], body["base"]):
            return 409, None
    if body["head"] not in gitea.branches:
        return 404, None
    return 201, gitea.open_pull("gitops", body, ())


def _one(rows: str) -> Handler:
    def handler(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
        found = getattr(gitea, rows).get(int(at["index"]))
        return (404, None) if found is None else (200, found)

    return handler


def _of_pull(rows: str) -> Handler:
    def handler(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
        number = int(at["index"])
        return (200, getattr(gitea, rows).get(number, [])) if number in gitea.pulls else (404, None)

    return handler


def _edit(rows: str) -> Handler:
    def handler(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
        found = getattr(gitea, rows).get(int(at["index"]))
        if found is None:
            return 404, None
        found.update(request.body)
        return 201, found

    return handler


def _pull_of(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    found = [p for p in gitea.pulls.values() if p["merged"] and p["merge_commit_sha"] == at["sha"]]
    return (200, found[0]) if found else (404, None)


def _combined(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
    newest = {status["context"]: status for status in gitea.statuses.get(at["ref"], [])}
    if at["ref"] not in gitea.branches.values():
        return 404, None
    rows, _ = gitea._page(request, list(reversed(newest.values())))
    return 200, {"sha": at["ref"], "state": "success", "statuses": rows, "total_count": len(newest)}


def _set_status(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
    body, now = request.body, gitea.now()
    status = {
        "id": gitea.next(),
        "status": body["state"],
        "context": body["context"],
        "description": body["description"],
        "created_at": now,
        "updated_at": now,
    }
    gitea.statuses.setdefault(at["sha"], []).append(status)
    return 201, status


def _list_comments(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    number = int(at["index"])
    known = number in gitea.pulls or number in gitea.issues
    return (200, gitea.comments.get(number, [])) if known else (404, None)


def _add_comment(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
    number = int(at["index"])
    if number not in gitea.pulls and number not in gitea.issues:
        return 404, None
    return 201, gitea.comment("gitops", number, request.body["body"])


def _edit_comment(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
    comment = gitea.by_comment(int(at["id"]))
    if comment is None:
        return 404, None
    if comment["user"]["login"] != "gitops":
        return 403, None
    comment["body"], comment["updated_at"] = request.body["body"], gitea.now()
    return 200, comment


def _remove_comment(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    comment = gitea.by_comment(int(at["id"]))
    if comment is None or comment["user"]["login"] != "gitops":
        return 404 if comment is None else 403, None
    for rows in gitea.comments.values():
        rows[:] = [row for row in rows if row is not comment]
    return 204, None


def _react(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
    number, content = int(at["id"]), request.body["content"]
    if gitea.by_comment(number) is None:
        return 404, None
    given = gitea.reactions.setdefault(number, [])
    again = content in given
    if not again:
        given.append(content)
    reaction = {"content": content, "user": gitea.user("gitops"), "created_at": gitea.now()}
    return 200 if again else 201, reaction


def _reactions(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    number = int(at["id"])
    if gitea.by_comment(number) is None:
        return 404, None
    given = gitea.reactions.get(number)
    by, when = gitea.user("gitops"), gitea.now()
    return 200, given and [{"content": content, "user": by, "created_at": when} for content in given]


def _issue_labels(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    pull = gitea.pulls.get(int(at["index"]))
    return (404, None) if pull is None else (200, pull["labels"])


def _add_labels(gitea: Gitea, request: WebRequest, at: dict[str, str]) -> Answer:
    pull = gitea.pulls[int(at["index"])]
    for number in request.body["labels"]:
        if gitea.labels[number] not in pull["labels"]:
            pull["labels"].append(gitea.labels[number])
    return 200, pull["labels"]


def _remove_label(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    pull = gitea.pulls[int(at["index"])]
    pull["labels"] = [label for label in pull["labels"] if label["id"] != int(at["id"])]
    return 204, None


def _permission(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    login = at["collaborator"]
    if not gitea.admin:
        return 403, None
    if login not in gitea.users:
        return 404, None
    word = _WORDS[gitea.permissions.get(login, Permission.NONE)]
    return 200, {"permission": word, "role_name": word, "user": gitea.user(login)}


def _branch(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    name = at["branch"]
    if name not in gitea.branches:
        return 404, None
    rule = gitea.rules.get(name)
    form: Form = {"name": name, "protected": rule is not None, "effective_branch_protection_name": ""}
    if rule is not None:
        form["effective_branch_protection_name"] = name if gitea.admin else ""
        form |= {key: rule[key] for key in ("enable_status_check", "status_check_contexts")}
    return 200, form


def _rule(gitea: Gitea, _: WebRequest, at: dict[str, str]) -> Answer:
    rule = gitea.rules.get(at["name"]) if gitea.admin else None
    return (404, None) if rule is None else (200, rule)


def _list_issues(gitea: Gitea, request: WebRequest, _: dict[str, str]) -> Answer:
    query = dict(request.query)
    if query["type"] == "pulls":
        return 200, [_as_issue(p) for _, p in sorted(gitea.pulls.items(), reverse=True) if p["state"] == query["state"]]
    rows = [
        issue
        for _, issue in sorted(gitea.issues.items(), reverse=True)
        if issue["state"] == query["state"] and issue["user"]["login"] == query["created_by"]
    ]
    return 200, rows


def _as_issue(pull: Form) -> Form:
    """A request as the list of issues shows it: without its branches."""
    shared = ("id", "number", "title", "body", "state", "user", "created_at", "html_url")
    return {key: pull[key] for key in shared} | {
        "pull_request": {"merged": pull["merged"], "merged_at": pull["merged_at"]}
    }


def _open_issue(gitea: Gitea, request: WebRequest, _: dict[str, str]) -> Answer:
    return 201, gitea.issue("gitops", request.body["title"], request.body["body"])


HANDLERS: Mapping[str, Handler] = {
    "GET /user": lambda gitea, _request, _at: (200, gitea.user("gitops")),
    "GET /pulls": _list_pulls,
    "POST /pulls": _open_pull,
    "GET /pulls/{index}": _one("pulls"),
    "PATCH /pulls/{index}": _edit("pulls"),
    "GET /pulls/{index}/files": _of_pull("files"),
    "GET /pulls/{index}/reviews": _of_pull("reviews"),
    "GET /commits/{sha}/pull": _pull_of,
    "GET /commits/{ref}/status": _combined,
    "POST /statuses/{sha}": _set_status,
    "GET /issues": _list_issues,
    "POST /issues": _open_issue,
    "PATCH /issues/{index}": _edit("issues"),
    "GET /issues/{index}/comments": _list_comments,
    "POST /issues/{index}/comments": _add_comment,
    "PATCH /issues/comments/{id}": _edit_comment,
    "DELETE /issues/comments/{id}": _remove_comment,
    "GET /issues/comments/{id}/reactions": _reactions,
    "POST /issues/comments/{id}/reactions": _react,
    "GET /issues/{index}/labels": _issue_labels,
    "POST /issues/{index}/labels": _add_labels,
    "DELETE /issues/{index}/labels/{id}": _remove_label,
    "GET /labels": lambda gitea, _request, _at: (200, list(gitea.labels.values())),
    "POST /labels": lambda gitea, request, _at: (201, gitea.label(request.body["name"])),
    "GET /collaborators/{collaborator}/permission": _permission,
    "GET /branches/{branch}": _branch,
    "GET /branch_protections/{name}": _rule,
}
