"""The dialect of Gitea: an instance with one private repository, each request and answer checked against its description.

The description is that of a release, cut down (`tests/data/forge/gitea`). What it does not say is taken from the release's
behaviour: pages are never larger than `page_size`, comments and labels come on one page, some empty lists are null, labels may
have more than the 50 characters of the pages for people, times have an offset, and requests cannot be listed once the fork of one
is deleted. The same tests run on a real instance (`real_gitea.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category
from urllib.parse import unquote
from zlib import crc32

from gitops.forge.gitea import GiteaForge
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.forges.records import Comment, Issue, Pull, Reaction, Status
from tests.support.forges.world import HEADS, RefusedError, World, ticking
from tests.support.github_contract import Contract
from tests.support.pages import ROOT

PROJECT = "team/library"
_REVIEWS = {"CHANGES_REQUESTED": "REQUEST_CHANGES", "COMMENTED": "COMMENT"}
_TITLE = 255
_NO = {"message": "no", "url": "https://gitea.example.org/api/swagger"}

Form = dict[str, Any]


@cache
def contract() -> Contract:
    """The description, read once for each process."""
    return Contract(json.loads((ROOT / "tests/data/forge/gitea/openapi.json").read_bytes()))


class Gitea(World):
    """The instance. `rules_of` are protections by branch.

    `admin`: whether the bot's token is that of an administrator. `organization`: whether one owns the repository.
    """

    project = PROJECT
    base = "https://gitea.example.org/api/v1"
    public = False
    adapter: Any = GiteaForge
    scheme, api = "token", "/api/v1"

    def __init__(self, git_dir: Path) -> None:
        self.page_size = 30
        self.admin = False
        self.organization = False
        self.rules_of: dict[str, Form] = {}
        self.lists_deleted_forks = False
        """Whether requests can be listed once the fork of one is deleted: https://github.com/go-gitea/gitea/pull/34685."""
        super().__init__(git_dir, ticking().now)
        self.habits.be_prompt()

    def say(self, *, base: str, web: str) -> None:
        """The payloads are the event files of jobs."""
        self.base, self.forms, self.payloads = base, self, _Events(self)

    def stamp(self) -> str:
        """With an offset, as instances say it."""
        return self._now().astimezone(timezone(timedelta(hours=2))).isoformat(timespec="seconds")

    # Forms

    def user(self, login: str) -> Form | None:
        """Nobody once the account is gone."""
        found = self.accounts.get(login)
        return found and {"id": found.id, "login": login, "full_name": "", "is_admin": False}

    def pull_form(self, pull: Pull) -> Form:
        """A request; the branch of one may be gone: it is named by the ref of the head then, and by the label."""
        repository = {"id": 1, "full_name": PROJECT, "private": True}
        source = repository
        if pull.repository != PROJECT:
            source = {"id": 2, "full_name": pull.repository, "private": True} if pull.repository else None
        here = source is not None and (source is not repository or self.tip(HEADS + pull.source) is not None)
        form = self._thread(pull, "pulls") | {
            "base": {"label": pull.target, "ref": pull.target, "sha": pull.base, "repo_id": 1, "repo": repository},
            "head": {
                "label": pull.source,
                "ref": pull.source if here else self.head_ref(pull.number),
                "sha": pull.head,
                "repo_id": source["id"] if source else -1,
                "repo": source,
            },
            "merged": pull.merged_at is not None,
            "merged_at": pull.merged_at,
            "labels": self._labels_of(pull),
            "assignees": None,
        }
        return form | {"merge_commit_sha": pull.merged_as}

    def _thread(self, issue: Issue, place: str) -> Form:
        return {
            "id": issue.id,
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "state": issue.state,
            "user": self.user(issue.author),
            "created_at": issue.created_at,
            "html_url": f"https://gitea.example.org/{PROJECT}/{place}/{issue.number}",
        }

    def issue_form(self, issue: Issue) -> Form:
        """An issue, or a request as the list of issues shows it: without its branches."""
        merged = (
            {"merged": issue.merged_at is not None, "merged_at": issue.merged_at} if isinstance(issue, Pull) else None
        )
        return self._thread(issue, "issues") | {"pull_request": merged}

    def comment_form(self, number: int, comment: Comment) -> Form:
        return {
            "id": comment.id,
            "body": comment.body,
            "user": self.user(comment.author),
            "created_at": comment.created_at,
            "updated_at": comment.updated_at,
            "html_url": f"https://gitea.example.org/{PROJECT}/issues/{number}#comment",
            "assets": [],
        }

    def _reaction(self, reaction: Reaction) -> Form:
        return {"content": reaction.content, "user": self.user(reaction.account), "created_at": self.stamp()}

    def _status(self, status: Status) -> Form:
        times = {"created_at": status.at, "updated_at": status.at}
        said = {"status": status.state, "context": status.context, "description": status.description}
        return {"id": status.id, "target_url": status.target_url or "", **said, **times}

    def _label(self, name: str) -> Form:
        return {"id": crc32(name.encode()), "name": name, "color": self.labels.get(name, "00aabb")}

    def _labels_of(self, issue: Issue) -> list[Form]:
        return [self._label(name) for name in issue.labels]

    # What the bot asks

    def check(self, request: WebRequest) -> None:
        """Hold a request against the description. Raises AssertionError."""
        contract().request(request.method, request.path, request.query, request.body)

    def answer(self, request: WebRequest, login: str) -> WebAnswer:
        """The answer to a request, both checked."""
        self.check(request)
        answer = self._answer(request, login)
        contract().response(request.method, request.path, answer.status, answer.body)
        return answer

    def _answer(self, request: WebRequest, login: str) -> WebAnswer:
        operation = contract().find(request.method, request.path)
        handler = HANDLERS[f"{request.method} {operation.template.replace('/repos/{owner}/{repo}', '')}"]
        found = operation.pattern.fullmatch(request.path)
        at = {} if found is None else {k: unquote(v) for k, v in found.groupdict().items()}
        try:
            status, value = handler(self, login, at, dict(request.query) | (request.body or {}))
        except RefusedError as no:
            status, value = no.status, None
        if status >= 400:
            return WebAnswer(status, {}, _NO)
        if isinstance(value, list) and not request.path.endswith("/comments"):
            value, headers = self._page(request, value)
            lost = any(row.get("head", {}).get("repo", {}) is None for row in value or ())
            if lost and not self.lists_deleted_forks:
                return WebAnswer(500, {}, _NO)
            return WebAnswer(status, headers, value)
        total = {"x-total-count": str(value["total_count"])} if isinstance(value, dict) and "statuses" in value else {}
        return WebAnswer(status, total, json.loads(json.dumps(value)))

    def _page(self, request: WebRequest, rows: list[Any]) -> tuple[list[Any] | None, dict[str, str]]:
        query = dict(request.query)
        size = min(int(query.get("limit", "30")), self.page_size)
        start = (int(query.get("page", "1")) - 1) * size
        return json.loads(json.dumps(rows[start : start + size])), {"x-total-count": str(len(rows))}


class _Events:
    """Event files of jobs and bodies of webhooks."""

    def __init__(self, gitea: Gitea) -> None:
        self._gitea = gitea

    def pull_request(self, action: str, pull: Pull, by: str, **_: object) -> Form:
        action = "synchronized" if action == "synchronize" else action
        return self._form(by, action=action, number=pull.number, pull_request=self._gitea.pull_form(pull))

    def comment(self, action: str, pull: Pull, comment: Comment, by: str) -> Form:
        issue = {"number": pull.number, "pull_request": {"merged": pull.merged_at is not None}}
        said = self._gitea.comment_form(pull.number, comment)
        return self._form(by, action=action, issue=issue, is_pull=True, comment=said)

    def review(self, action: str, pull: Pull, review: object, by: str) -> Form:
        return self._form(by, action="reviewed", pull_request=self._gitea.pull_form(pull))

    def push(self, ref: str, old: str, new: str, by: str, head: object) -> Form:
        return self._form(by, ref=ref, before=old, after=new, pusher=self._gitea.user(by))

    def _form(self, by: str, **values: object) -> Form:
        return {**values, "repository": {"full_name": PROJECT}, "sender": self._gitea.user(by)}


Answer = tuple[int, Any]
Handler = Callable[[Gitea, str, dict[str, str], dict[str, Any]], Answer]
"""What an operation does: for whom, with which parameters of its path, and with which query or body."""


def _kept_title(title: str) -> str:
    """A title as it is kept: at most 255 columns wide, by a guess that counts most of what is beyond Latin-1 twice.

    https://github.com/go-gitea/gitea/blob/v1.26.0/modules/util/truncate.go
    """
    widths = [1 if ord(sign) < 256 or category(sign)[0] in "MZ" or category(sign) == "Cf" else 2 for sign in title]
    widths = [2 if sign == "\u3000" else width for sign, width in zip(title, widths, strict=True)]
    if len(title.encode()) <= _TITLE:
        return title
    kept = 0
    while kept < len(title) and sum(widths[: kept + 1]) + 3 <= _TITLE:
        kept += 1
    # A few characters more may fit in the place of the ellipsis.
    rest = title[max(0, min(kept, len(title) - 1)) :]
    if len(rest) <= 3 and len(rest.encode()) <= 12 and sum(widths) <= _TITLE:
        return title
    return title[:kept] + "…"


def _list_pulls(gitea: Gitea, _login: str, _at: dict[str, str], given: Form) -> Answer:
    """The oldest first; `base_branch` is looked at, the source is not."""
    branch = given.get("base_branch")
    rows = [p for p in gitea.pulls() if given["state"] in ("all", p.state) and branch in (None, p.target)]
    return 200, [gitea.pull_form(p) for p in rows]


def _open_pull(gitea: Gitea, login: str, _at: dict[str, str], given: Form) -> Answer:
    if gitea.tip(HEADS + given["head"]) is None:
        return 404, None
    for pull in gitea.open_pulls():
        if (pull.repository, pull.source, pull.target) == (PROJECT, given["head"], given["base"]):
            return 409, None
    pull = gitea.open_pull(login, given["head"], target=given["base"], title=_kept_title(given["title"]))
    pull.body = given.get("body", "")
    return 201, gitea.pull_form(pull)


def _edit(gitea: Gitea, login: str, at: dict[str, str], given: Form) -> Answer:
    issue = gitea.issue(int(at["index"]))
    issue.title, issue.body = _kept_title(given.get("title", issue.title)), given.get("body", issue.body)
    if given.get("state", issue.state) != issue.state:
        if isinstance(issue, Pull):
            gitea.close(issue.number, login)
        else:
            issue.state = given["state"]
    return 201, gitea.pull_form(issue) if isinstance(issue, Pull) else gitea.issue_form(issue)


def _reviews(gitea: Gitea, _login: str, at: dict[str, str], _given: Form) -> Answer:
    """All of them; a verdict dismisses the earlier verdict of the same person."""
    reviews = gitea.pull(int(at["index"])).reviews
    newest = {review.author: review.id for review in reviews if review.state != "COMMENTED"}
    forms = [
        {
            "id": review.id,
            "user": gitea.user(review.author),
            "state": _REVIEWS.get(review.state, "APPROVED" if review.state == "DISMISSED" else review.state),
            "commit_id": review.commit,
            "submitted_at": review.at,
            "dismissed": review.state == "DISMISSED"
            or (review.state != "COMMENTED" and newest[review.author] != review.id),
            "stale": False,
            "official": True,
        }
        for review in reviews
    ]
    return 200, forms


def _pull_of(gitea: Gitea, _login: str, at: dict[str, str], _given: Form) -> Answer:
    found = [p for p in gitea.pulls() if p.merged_as == at["sha"]]
    return (200, gitea.pull_form(found[0])) if found else (404, None)


def _combined(gitea: Gitea, _login: str, at: dict[str, str], given: Form) -> Answer:
    sha = at["ref"]
    if gitea.store.resolve(sha) is None:
        return 404, None
    newest = {s.context: gitea._status(s) for s in gitea.statuses if s.sha == sha}
    rows, _ = gitea._page(WebRequest("GET", "", tuple(given.items())), list(reversed(newest.values())))
    # An empty slice that was never made is null.
    return 200, {"sha": sha, "state": "success", "statuses": rows or None, "total_count": len(newest)}


def _set_status(gitea: Gitea, login: str, at: dict[str, str], given: Form) -> Answer:
    """For a commit that is not there, the instance fails."""
    if gitea.store.resolve(at["sha"]) is None:
        return 500, None
    said = (at["sha"], given["context"], given["state"], given["description"])
    gitea.statuses.append(Status(gitea.next_id(), *said, login, gitea.stamp(), given.get("target_url")))
    return 201, gitea._status(gitea.statuses[-1])


def _comments(gitea: Gitea, _login: str, at: dict[str, str], _given: Form) -> Answer:
    """All on one page. Of an issue that is not there, the instance fails to list them."""
    if int(at["index"]) not in gitea.issues:
        return 500, None
    issue = gitea.issue(int(at["index"]))
    return 200, [gitea.comment_form(issue.number, comment) for comment in issue.comments]


def _comment(gitea: Gitea, login: str, at: dict[str, str], given: Form) -> Answer:
    number = int(at["index"])
    return 201, gitea.comment_form(number, gitea.comment(login, number, given["body"]))


def _change_comment(gitea: Gitea, login: str, at: dict[str, str], given: Form) -> Answer:
    """Edit a comment, or remove it without a body: whoever wrote it may, and all who may write."""
    issue, comment = gitea.find_comment(int(at["id"]))
    if comment.author != login and not gitea.accounts[login].at_least("write"):
        return 403, None
    if not given:
        gitea.erase(login, comment.id)
        return 204, None
    return 200, gitea.comment_form(issue.number, gitea.edit(login, comment.id, given["body"]))


def _reactions(gitea: Gitea, _login: str, at: dict[str, str], _given: Form) -> Answer:
    """On one page; null if there was never one."""
    _, comment = gitea.find_comment(int(at["id"]))
    return 200, [gitea._reaction(r) for r in comment.reactions] or None


def _react(gitea: Gitea, login: str, at: dict[str, str], given: Form) -> Answer:
    _, comment = gitea.find_comment(int(at["id"]))
    for reaction in comment.reactions:
        if (reaction.account, reaction.content) == (login, given["content"]):
            return 200, gitea._reaction(reaction)
    comment.reactions.append(Reaction(gitea.next_id(), login, given["content"]))
    return 201, gitea._reaction(comment.reactions[-1])


def _labels(gitea: Gitea, _login: str, at: dict[str, str], given: Form) -> Answer:
    """Labels of a request, after some were added by their numbers, or one was removed."""
    pull = gitea.pull(int(at["index"]))
    names = {gitea._label(name)["id"]: name for name in sorted(gitea.labels)}
    pull.labels += [names[n] for n in given.get("labels", ()) if names[n] not in pull.labels]
    if "id" in at:
        if int(at["id"]) not in names:
            return 422, None
        pull.labels.remove(names[int(at["id"])])
        return 204, None
    return 200, gitea._labels_of(pull)


def _make_label(gitea: Gitea, _login: str, _at: dict[str, str], given: Form) -> Answer:
    """A name has at most 50 characters in the web interface; the API takes longer ones too, and makes two of the same name."""
    assert given["name"] not in gitea.labels, "there are two labels of one name now"
    gitea.know_labels([given["name"]], given["color"].removeprefix("#"))
    return 201, gitea._label(given["name"])


def _change_label(gitea: Gitea, _login: str, at: dict[str, str], given: Form) -> Answer:
    names = {gitea._label(name)["id"]: name for name in gitea.labels}
    gitea.labels[names[int(at["id"])]] = given["color"].removeprefix("#")
    return 200, gitea._label(names[int(at["id"])])


def _permission(gitea: Gitea, login: str, at: dict[str, str], _given: Form) -> Answer:
    if not gitea.admin and login != at["collaborator"]:
        return 403, None
    account = gitea.accounts.get(at["collaborator"])
    if account is None:
        return 404, None
    return 200, {"permission": account.permission, "role_name": account.permission, "user": gitea.user(account.login)}


def _assignees(gitea: Gitea, _login: str, _at: dict[str, str], _given: Form) -> Answer:
    """Accounts with write access, and the owner. In an organization also those that may read requests, and no owner."""
    least = ("read", "write", "admin") if gitea.organization else ("write", "admin")
    found = [gitea.user(account.login) for account in gitea.accounts.values() if account.permission in least]
    owner = {"id": 9_000, "login": PROJECT.partition("/")[0], "full_name": "", "is_admin": False}
    return 200, found if gitea.organization else [*found, owner]


def _rules(gitea: Gitea, _login: str, _at: dict[str, str], _given: Form) -> Answer:
    return (200, [rule | {"rule_name": name} for name, rule in gitea.rules_of.items()]) if gitea.admin else (403, None)


def _secrets(gitea: Gitea, _login: str, _at: dict[str, str], _given: Form) -> Answer:
    rows = [{"name": name, "description": "", "created_at": gitea.stamp()} for name in gitea.secrets]
    return (200, rows) if gitea.admin else (403, None)


def _branch(gitea: Gitea, _login: str, at: dict[str, str], _given: Form) -> Answer:
    name = at["branch"]
    if gitea.tip(HEADS + name) is None:
        return 404, None
    rule = gitea.rules_of.get(name)
    form: Form = {"name": name, "protected": rule is not None, "effective_branch_protection_name": ""}
    if rule is not None:
        form["effective_branch_protection_name"] = name if gitea.admin else ""
        form |= {key: rule[key] for key in ("enable_status_check", "status_check_contexts")}
    return 200, form


def _issues(gitea: Gitea, _login: str, _at: dict[str, str], given: Form) -> Answer:
    """The newest first; requests are among them if one asks for those."""
    found = [
        issue
        for issue in reversed(gitea.issues.values())
        if isinstance(issue, Pull) == (given["type"] == "pulls")
        and issue.state == given["state"]
        and given.get("created_by") in (None, issue.author)
    ]
    return 200, [gitea.issue_form(issue) for issue in found]


HANDLERS: Mapping[str, Handler] = {
    "GET /user": lambda gitea, login, _at, _given: (200, gitea.user(login)),
    "GET /pulls": _list_pulls,
    "POST /pulls": _open_pull,
    "GET /pulls/{index}": lambda gitea, _login, at, _given: (200, gitea.pull_form(gitea.pull(int(at["index"])))),
    "PATCH /pulls/{index}": _edit,
    "GET /pulls/{index}/files": lambda gitea, _login, at, _given: (
        200,
        [{"filename": name, "status": "added"} for name in gitea.files(gitea.pull(int(at["index"])))],
    ),
    "GET /pulls/{index}/reviews": _reviews,
    "GET /commits/{sha}/pull": _pull_of,
    "GET /commits/{ref}/status": _combined,
    "POST /statuses/{sha}": _set_status,
    "GET /issues": _issues,
    "POST /issues": lambda gitea, login, _at, given: (
        201,
        gitea.issue_form(gitea.open_issue(login, _kept_title(given["title"]), given["body"])),
    ),
    "PATCH /issues/{index}": _edit,
    "GET /issues/{index}/comments": _comments,
    "POST /issues/{index}/comments": _comment,
    "PATCH /issues/comments/{id}": _change_comment,
    "DELETE /issues/comments/{id}": _change_comment,
    "GET /issues/comments/{id}/reactions": _reactions,
    "POST /issues/comments/{id}/reactions": _react,
    "GET /issues/{index}/labels": _labels,
    "POST /issues/{index}/labels": _labels,
    "DELETE /issues/{index}/labels/{id}": _labels,
    "GET /labels": lambda gitea, _login, _at, _given: (200, [gitea._label(name) for name in sorted(gitea.labels)]),
    "POST /labels": _make_label,
    "PATCH /labels/{id}": _change_label,
    "GET /collaborators/{collaborator}/permission": _permission,
    "GET /branches/{branch}": _branch,
    "GET /branch_protections": _rules,
    "GET /assignees": _assignees,
    "GET /actions/secrets": _secrets,
}
