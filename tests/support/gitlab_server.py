"""GitLab as a sender: a project with people in memory, that answers as GitLab's documentation says.

Every request and every answer is held against `tests/support/gitlab_contract.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlencode

from gitops.core.clock import timestamp
from gitops.core.errors import RemoteError
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.gitlab_contract import check_answer, check_request

PROJECT = "group/sub/library"
NUMBER = 15
FORK = 99
_QUICK_ACTION = re.compile(r"^/(merge|approve|close|label|assign)\b", re.MULTILINE)
_RUNNING = {"pending", "running"}
_FINISHED = {"success", "failed", "canceled"}
Row = dict[str, Any]


def gone(what: str = "404 Not found") -> tuple[int, Any]:
    return 404, {"message": what}


@dataclass
class Project:
    """What GitLab keeps of one project. `level` is a role by user; those who have none are strangers."""

    users: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    requests: dict[int, Row] = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[int, list[Row]] = field(default_factory=dict)
    approvals: dict[int, dict[str, str]] = field(default_factory=dict)
    reviewers: dict[int, dict[str, tuple[str, str]]] = field(default_factory=dict)
    statuses: list[Row] = field(default_factory=list)
    pipelines: list[Row] = field(default_factory=list)
    awards: list[Row] = field(default_factory=list)
    deployments: list[Row] = field(default_factory=list)
    issues: list[Row] = field(default_factory=list)
    issue_notes: list[tuple[int, str]] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)
    protected: list[Row] = field(default_factory=list)
    settings: Row = field(default_factory=dict)
    rules: Row | None = None
    actions: list[str] = field(default_factory=list)
    count: int = 0

    def next(self) -> int:
        self.count += 1
        return self.count

    def now(self) -> str:
        moment = datetime(2026, 7, 2, 10, 0, tzinfo=UTC) + timedelta(seconds=self.next())
        return timestamp(moment).replace("Z", ".250Z")

    def build(self, sha: str, ref: str) -> None:
        """Start a pipeline of a commit, by the name that it has here."""
        number = len(self.pipelines) + 1
        form = {"id": 3000 + number, "iid": number, "project_id": NUMBER, "source": "merge_request_event"}
        self.pipelines.append({**form, "sha": sha, "ref": ref, "status": "running"})

    def sha(self) -> str:
        return hashlib.sha1(str(self.next()).encode(), usedforsecurity=False).hexdigest()

    def user(self, login: str) -> Row:
        number = self.users.setdefault(login, 100 + len(self.users))
        return {"id": number, "username": login, "name": login.title(), "state": "active", "avatar_url": None}

    def say(self, number: int, login: str, text: str, *, system: bool = False) -> Row:
        """A comment; quick actions in it are carried out, which is to say noted."""
        self.actions += [] if system else _QUICK_ACTION.findall(text)
        now = self.now()
        row = {
            "id": self.next(),
            "body": text,
            "author": self.user(login),
            "created_at": now,
            "updated_at": now,
            "system": system,
            "noteable_id": 1000 + number,
            "noteable_type": "MergeRequest",
        }
        self.notes.setdefault(number, []).append(row)
        return row

    def open(self, source: str, target: str, title: str, author: str, *, fork: bool = False) -> Row:
        number = len(self.requests) + 1
        head = self.branches[source]
        self.requests[number] = {
            "id": 1000 + number,
            "iid": number,
            "project_id": NUMBER,
            "title": title,
            "description": "",
            "state": "opened",
            "created_at": self.now(),
            "source_branch": source,
            "target_branch": target,
            "source_project_id": FORK if fork else NUMBER,
            "target_project_id": NUMBER,
            "author": self.user(author),
            "labels": [],
            "sha": head,
            "merge_commit_sha": None,
            "squash_commit_sha": None,
            "detailed_merge_status": "mergeable",
            "web_url": f"https://gitlab.example.com/{PROJECT}/-/merge_requests/{number}",
        }
        return self.requests[number]


@dataclass
class GitLabServer:
    """One user's way to the project; `before_write` runs once, before the first request that is not a GET."""

    project: Project
    login: str = "gitops"
    before_write: Callable[[], object] | None = None
    lose: list[str] = field(default_factory=list)
    """Methods whose next answers are lost after they were carried out."""
    keyset: bool = False
    answers: dict[str, WebAnswer] = field(default_factory=dict)
    """Answers for `METHOD path`, in place of what the server would say."""
    sent: list[WebRequest] = field(default_factory=list)
    base: str = "https://gitlab.example.com/api/v4"

    def send(self, request: WebRequest) -> WebAnswer:
        answer = self.reply(request)
        if request.method in self.lose:
            self.lose.remove(request.method)
            raise RemoteError("forge_unavailable", "the connection broke", retryable=True)
        if 200 <= answer.status < 300 or answer.status in request.quiet:
            return answer
        busy = answer.status >= 500 or answer.status == 429
        code = "forge_unavailable" if busy else "forge_refused"
        raise RemoteError(code, f"answers with status {answer.status}", status=answer.status, retryable=busy)

    def reply(self, request: WebRequest) -> WebAnswer:
        """What GitLab answers, both ways checked."""
        check_request(request)
        self.sent.append(request)
        if request.method != "GET" and self.before_write is not None:
            rival, self.before_write = self.before_write, None
            rival()
        answer = self.answers.get(f"{request.method} {request.path}")
        if answer is None:
            answer = self._answer(request)
            check_answer(request, answer)
        return answer

    def _answer(self, request: WebRequest) -> WebAnswer:
        path, query, body = request.path, dict(request.query), request.body or {}
        if path == "/user":
            return WebAnswer(200, {}, {**self.project.user(self.login), "bot": True})
        root = "/projects/group%2Fsub%2Flibrary"
        assert path.startswith(root), path
        parts = tuple(unquote(part) for part in path.removeprefix(root).strip("/").split("/") if part)
        status, found = self._routes(request.method, parts, query, body)
        if isinstance(found, list) and request.method == "GET":
            return self._page(request, query, found)
        return WebAnswer(status, {}, found)

    def _page(self, request: WebRequest, query: dict[str, str], rows: list[Row]) -> WebAnswer:
        size, page = int(query.get("per_page", "20")), int(query.get("page", "1"))
        assert size <= 100
        more = len(rows) > page * size
        headers = {"x-next-page": str(page + 1) if more else ""}
        if self.keyset:
            # Told apart by the name that it gives the parameter: here it is only in the link.
            link = f"{self.base}{request.path}?{urlencode({**query, 'page': page + 1})}"
            headers = {"link": f'<{link}>; rel="next"'} if more else {}
        return WebAnswer(200, headers, rows[(page - 1) * size : page * size])

    def _routes(self, method: str, parts: Sequence[str], query: dict[str, str], body: Row) -> tuple[int, Any]:
        match (method, *parts):
            case ("GET",):
                form = {"id": NUMBER, "path_with_namespace": PROJECT, "default_branch": "main"}
                return 200, {**form, **self.project.settings}
            case ("GET", "merge_requests"):
                return 200, self._merge_requests(query)
            case ("POST", "merge_requests"):
                return self._open(body)
            case (_, "merge_requests", number, *rest):
                if int(number) not in self.project.requests:
                    return gone()
                return self._request(method, int(number), rest, body)
            case ("GET", "repository", "commits", sha, what):
                return self._commit(sha, what)
            case ("POST", "statuses", sha):
                return self._status(sha, body)
            case ("GET", "pipelines"):
                return 200, [row for row in self.project.pipelines[::-1] if row["sha"] == query["sha"]]
            case ("GET", "members", "all", user):
                return self._member(int(user))
            case ("GET", "protected_branches"):
                return 200, self.project.protected
            case (_, "deployments", *rest):
                return self._deployments(method, rest, query, body)
            case (_, "issues", *rest):
                return self._issues(method, rest, query, body)
        raise AssertionError((method, parts))

    def _merge_requests(self, query: dict[str, str]) -> list[Row]:
        """GitLab lists the newest first unless it is told otherwise."""
        rows = [
            row
            for row in self.project.requests.values()
            if query.get("state", "all") in ("all", row["state"])
            and all(query.get(name, row[name]) == row[name] for name in ("source_branch", "target_branch"))
        ]
        return rows if query.get("sort") == "asc" else rows[::-1]

    def _open(self, body: Row) -> tuple[int, Any]:
        source, target = body["source_branch"], body["target_branch"]
        for row in self._merge_requests({"state": "opened", "source_branch": source, "target_branch": target}):
            if row["source_project_id"] == NUMBER:
                return 409, {"message": ["Another open merge request already exists for this source branch"]}
        row = self.project.open(source, target, body["title"], self.login)
        row["description"] = body["description"]
        return 201, row

    def _request(self, method: str, number: int, rest: Sequence[str], body: Row) -> tuple[int, Any]:
        project, row = self.project, self.project.requests[number]
        match (method, *rest):
            case ("GET",):
                return 200, {**row, "changes_count": str(len(project.files.get(row["sha"], ())))}
            case ("PUT",):
                labels = set(row["labels"]) | set(filter(None, body.get("add_labels", "").split(",")))
                row["labels"] = sorted(labels - set(body.get("remove_labels", "").split(",")))
                row.update({name: body[name] for name in ("title", "description") if name in body})
                if body.get("state_event") == "close" and row["state"] == "opened":
                    row["state"] = "closed"
                return 200, row
            case ("GET", "diffs"):
                paths = project.files.get(row["sha"], ())
                return 200, [{"old_path": path, "new_path": path, "diff": ""} for path in paths]
            case ("GET", "approvals"):
                given = project.approvals.get(number, {})
                rows = [{"user": project.user(login), "approved_at": at} for login, at in given.items()]
                return (200, {"approved_by": rows, **project.rules}) if project.rules is not None else gone()
            case ("GET", "reviewers"):
                said = project.reviewers.get(number, {}).items()
                return 200, [{"user": project.user(n), "state": s, "created_at": at} for n, (s, at) in said]
            case ("GET", "notes"):
                return 200, project.notes.get(number, [])
            case ("POST", "notes"):
                return 201, project.say(number, self.login, body["body"])
            case (_, "notes", note, *further):
                return self._note(method, number, int(note), further, body)
        raise AssertionError((method, rest))

    def _note(self, method: str, number: int, note: int, rest: Sequence[str], body: Row) -> tuple[int, Any]:
        notes = self.project.notes.get(number, [])
        row = next((row for row in notes if row["id"] == note), None)
        if row is None:
            return gone()
        if rest == ["award_emoji"] and method == "GET":
            return 200, [award for award in self.project.awards if award["awardable_id"] == note]
        if rest == ["award_emoji"]:
            award = {"name": body["name"], "user": self.project.user(self.login), "awardable_id": note}
            if any(all(known[name] == award[name] for name in award) for known in self.project.awards):
                return gone("404 Award Emoji Name has already been taken Not Found")
            self.project.awards.append({"id": self.project.next(), "awardable_type": "Note", **award})
            row["updated_at"] = self.project.now()
            return 201, self.project.awards[-1]
        if row["author"]["username"] != self.login:
            return 403, {"message": "403 Forbidden"}
        if method == "DELETE":
            notes.remove(row)
            return 204, None
        self.project.actions += _QUICK_ACTION.findall(body["body"])
        row["body"], row["updated_at"] = body["body"], self.project.now()
        return 200, row

    def _commit(self, sha: str, what: str) -> tuple[int, Any]:
        project = self.project
        if what == "merge_requests":
            names = ("sha", "merge_commit_sha", "squash_commit_sha")
            return 200, [row for row in project.requests.values() if sha in [row[name] for name in names]]
        newest = {(row["name"], row["ref"]): row for row in project.statuses if row["sha"] == sha}
        return 200, sorted(newest.values(), key=lambda row: -int(row["id"]))

    def _status(self, sha: str, body: Row) -> tuple[int, Any]:
        """As GitLab's service for external statuses: what runs or waits is moved on, what has ended gets a successor."""
        project = self.project
        ref = body.get("ref") or next((name for name, head in project.branches.items() if head == sha), None)
        if ref is None:
            return gone("404 References for commit Not Found")
        for row in project.statuses:
            if (row["sha"], row["name"], row["ref"]) == (sha, body["name"], ref) and row["status"] in _RUNNING:
                if body["state"] == "pending":
                    return 400, {"message": f"Cannot transition status via :enqueue from :{row['status']}"}
                row.update(status=body["state"], description=body["description"], finished_at=project.now())
                return 201, row
        project.statuses.append(
            {
                "id": project.next(),
                "sha": sha,
                "ref": ref,
                "status": body["state"],
                "name": body["name"],
                "description": body["description"],
                "created_at": project.now(),
                "started_at": None,
                "finished_at": project.now() if body["state"] in _FINISHED else None,
                "author": project.user(self.login),
            }
        )
        return 201, project.statuses[-1]

    def _member(self, number: int) -> tuple[int, Any]:
        login = next((name for name, known in self.project.users.items() if known == number), "")
        if login not in self.project.levels:
            return gone()
        return 200, {**self.project.user(login), "access_level": self.project.levels[login], "expires_at": None}

    def _deployments(self, method: str, rest: Sequence[str], query: dict[str, str], body: Row) -> tuple[int, Any]:
        rows = self.project.deployments
        if method == "GET":
            found = [row for row in rows if row["environment"]["name"] == query["environment"]]
            return 200, found[::-1] if query.get("sort") == "desc" else found
        if method == "PUT":
            row = next(row for row in rows if row["id"] == int(rest[0]))
            if row["status"] in _FINISHED:
                return 400, {"message": "Status cannot transition"}
            row["status"] = body["status"]
            return 200, row
        environment = {"id": 9, "name": body["environment"]}
        form = {"id": self.project.next(), "iid": len(rows) + 1, "user": self.project.user(self.login)}
        rows.append(
            {**form, "sha": body["sha"], "ref": body["ref"], "status": body["status"], "environment": environment}
        )
        return 201, rows[-1]

    def _issues(self, method: str, rest: Sequence[str], query: dict[str, str], body: Row) -> tuple[int, Any]:
        rows = self.project.issues
        if method == "GET":
            return 200, [
                row for row in rows if row["state"] == query["state"] and str(row["author"]["id"]) == query["author_id"]
            ]
        if not rest:
            rows.append(self.issue(self.login, body["title"], body["description"]))
            return 201, rows[-1]
        row = rows[int(rest[0]) - 1]
        if rest[1:] == ["notes"]:
            self.project.issue_notes.append((row["iid"], body["body"]))
            note = self.project.say(0, self.login, body["body"])
            return 201, note
        row.update({name: body[name] for name in ("title", "description") if name in body})
        if body.get("state_event") == "close":
            row["state"] = "closed"
        return 200, row

    def issue(self, login: str, title: str, text: str) -> Row:
        number = len(self.project.issues) + 1
        return {
            "id": 5000 + number,
            "iid": number,
            "title": title,
            "description": text,
            "state": "opened",
            "author": self.project.user(login),
            "web_url": f"https://gitlab.example.com/{PROJECT}/-/issues/{number}",
        }
