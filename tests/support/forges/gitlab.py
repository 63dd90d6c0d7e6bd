"""The dialect of GitLab: one private project in a group of a group.

Every request and answer is held against `tests/support/gitlab_contract.py`. Quick actions in texts are noted.
Notes of the system stand among those of people. Requests and issues are counted apart. One opinion is kept of each person. A
status that waits cannot wait again, and a commit that no branch holds gets a status only by the ref of its request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gitops.core.clock import timestamp
from gitops.forge.gitlab.forge import GitLabForge
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.forges.records import Comment, Deployment, Issue, Pull, Reaction, Review, Status
from tests.support.forges.world import HEADS, RefusedError, World, ticking
from tests.support.gitlab_contract import check_answer, check_request

PROJECT = "group/sub/library"
NUMBER = 15
FORK = 99
_QUICK_ACTION = re.compile(r"^/(merge|approve|close|label|assign)\b", re.MULTILINE)
_RUNNING = {"pending", "running"}
_FINISHED = {"success", "failed", "canceled"}
_LEVELS = {"read": 20, "triage": 20, "write": 30, "maintain": 40, "admin": 50}
_OPINIONS = {"APPROVED": "approved", "CHANGES_REQUESTED": "requested_changes", "COMMENTED": "reviewed"}
_GONE = (404, {"message": "404 Not found"})
Row = dict[str, Any]


def level(role: int, name: str) -> dict[str, object]:
    return {"access_level": role, "access_level_description": name}


def protection(name: str, *pushers: dict[str, object], force: bool = False) -> dict[str, object]:
    """A rule for branches, as GitLab lists it."""
    merge = [level(40, "Maintainers")]
    form = {"id": 100, "name": name, "allow_force_push": force, "merge_access_levels": merge}
    return {**form, "push_access_levels": list(pushers)}


class GitLab(World):
    """The project. `actions` are the quick actions that were carried out; `approval_rules` is None in editions
    without them, and so is `train`, the requests that ride on the merge train, the first in front.
    """

    project = PROJECT
    pulls_at = "refs/merge-requests"
    base = "https://gitlab.example.com/api/v4"
    public = False
    adapter: Any = GitLabForge
    scheme, api = "Bearer", "/api/v4"

    def __init__(self, git_dir: Path) -> None:
        self.pipelines: list[Row] = []
        self.protected: list[Row] = []
        self.settings: Row = {}
        self.approval_rules: Row | None = {}
        self.actions: list[str] = []
        self.train: list[int] | None = None
        self.keyset = False
        super().__init__(git_dir, ticking().now)
        self.habits.be_prompt()

    def say(self, *, base: str, web: str) -> None:
        """Webhooks tell of comments alone here: jobs have variables in place of an event file."""
        self.base, self.forms, self.payloads = base, self, _Events(self)

    def stamp(self) -> str:
        return timestamp(self._now()).replace("Z", ".250Z")

    def next_number(self, kind: type[Issue]) -> int:
        """Issues are counted apart; here they have the numbers below zero."""
        found = len([issue for issue in self.issues.values() if type(issue) is kind])
        return found + 1 if kind is Pull else -(found + 1)

    def comment(self, by: str, number: int, body: str) -> Comment:
        self.actions += _QUICK_ACTION.findall(body)
        return super().comment(by, number, body)

    def edit(self, by: str, comment_id: int, body: str) -> Comment:
        self.actions += _QUICK_ACTION.findall(body)
        return super().edit(by, comment_id, body)

    def _new_head(self, pull: Pull, head: str, by: str) -> None:
        super()._new_head(pull, head, by)
        note = Comment(self.next_id(), by, "added 1 commit", self.stamp(), self.stamp(), system=True)
        pull.comments.append(note)

    def build(self, sha: str, ref: str) -> None:
        """Start a pipeline of a commit, by the name that it has here."""
        number = len(self.pipelines) + 1
        form = {"id": 3000 + number, "iid": number, "project_id": NUMBER, "source": "merge_request_event"}
        self.pipelines.append({**form, "sha": sha, "ref": ref, "status": "running"})

    # Forms

    def user(self, login: str) -> Row:
        """Whoever left is shown as one and the same ghost."""
        found = self.accounts.get(login)
        if found is None:
            return {"id": 900_000, "username": "ghost", "name": "Ghost User", "state": "active", "avatar_url": None}
        return {"id": found.id, "username": login, "name": login.title(), "state": "active", "avatar_url": None}

    def pull_form(self, pull: Pull) -> Row:
        source: int | None = NUMBER if pull.repository == PROJECT else FORK
        state = "merged" if pull.merged_at else {"open": "opened"}.get(pull.state, pull.state)
        return self._thread(pull, "merge_requests") | {
            "project_id": NUMBER,
            "state": state,
            "source_branch": pull.source,
            "target_branch": pull.target,
            "source_project_id": source if pull.repository else None,
            "target_project_id": NUMBER,
            "labels": sorted(pull.labels),
            "sha": pull.head,
            "merge_commit_sha": pull.merged_as,
            "squash_commit_sha": None,
            "detailed_merge_status": "mergeable",
        }

    def issue_form(self, issue: Issue) -> Row:
        return self._thread(issue, "issues") | {"state": {"open": "opened"}.get(issue.state, issue.state)}

    def _thread(self, issue: Issue, place: str) -> Row:
        return {
            "id": issue.id,
            "iid": abs(issue.number),
            "title": issue.title,
            "description": issue.body,
            "created_at": issue.created_at,
            "author": self.user(issue.author),
            "web_url": f"https://gitlab.example.com/{PROJECT}/-/{place}/{abs(issue.number)}",
        }

    def note_form(self, issue: Issue, comment: Comment) -> Row:
        kind = "MergeRequest" if isinstance(issue, Pull) else "Issue"
        said = {"id": comment.id, "body": comment.body, "author": self.user(comment.author), "system": comment.system}
        at = {"created_at": comment.created_at, "updated_at": comment.updated_at}
        return {**said, **at, "noteable_id": issue.id, "noteable_type": kind}

    def _train_form(self, place: int, pull: Pull) -> Row:
        request = {"id": pull.id, "iid": pull.number, "project_id": NUMBER}
        return {"id": place, "merge_request": request, "status": "fresh", "target_branch": pull.target}

    def _award(self, note: Comment, reaction: Reaction) -> Row:
        given = {"id": reaction.id, "name": reaction.content, "user": self.user(reaction.account)}
        return {**given, "awardable_id": note.id, "awardable_type": "Note"}

    def _status_form(self, status: Status) -> Row:
        said = {"id": status.id, "sha": status.sha, "ref": status.ref, "status": status.state, "name": status.context}
        times = {"created_at": status.at, "started_at": None, "finished_at": status.ended_at}
        said |= {"target_url": status.target_url, "description": status.description}
        return {**said, **times, "author": self.user(status.creator)}

    def _deployment_form(self, each: Deployment) -> Row:
        form = {"id": each.id, "iid": each.id, "user": self.user(each.creator), "sha": each.sha, "ref": each.ref}
        return {**form, "status": each.statuses[-1]["state"], "environment": {"id": 9, "name": each.environment}}

    # What the bot asks

    def check(self, request: WebRequest) -> None:
        """Hold a request against the documentation. Raises AssertionError."""
        check_request(request)

    def answer(self, request: WebRequest, login: str) -> WebAnswer:
        """What GitLab answers, both ways checked."""
        self.check(request)
        answer = self._answer(request, login)
        check_answer(request, answer)
        return answer

    def _answer(self, request: WebRequest, login: str) -> WebAnswer:
        parts = request.path.strip("/").split("/")
        if parts == ["user"]:
            return WebAnswer(200, {}, self.user(login))
        if parts[:2] != ["projects", PROJECT.replace("/", "%2F")]:
            return WebAnswer(404, {}, {"message": "404 Project Not Found"})
        query = dict(request.query)
        try:
            status, body = self._routes(request.method, parts[2:], login, query | (request.body or {}))
        except RefusedError as no:
            status, body = no.status, {"message": no.message}
        return self._page(request, query, body) if isinstance(body, list) else WebAnswer(status, {}, body)

    def _page(self, request: WebRequest, query: dict[str, str], rows: list[Any]) -> WebAnswer:
        size, page = int(query.get("per_page", "20")), int(query.get("page", "1"))
        assert size <= 100
        more = len(rows) > page * size
        headers = {"x-next-page": str(page + 1) if more else ""}
        if self.keyset:
            # Told apart by the name that it gives the parameter: here it is only in the link.
            link = f"{self.base}{request.path}?{urlencode({**query, 'page': page + 1})}"
            headers = {"link": f'<{link}>; rel="next"'} if more else {}
        shown = rows[(page - 1) * size : page * size]
        return WebAnswer(200, headers, [row() if callable(row) else row for row in shown])

    def _routes(self, method: str, parts: Sequence[str], login: str, given: Row) -> tuple[int, Any]:
        match (method, *parts):
            case ("GET",):
                form = {"id": NUMBER, "path_with_namespace": PROJECT, "default_branch": "main"}
                return 200, {**form, **self.settings}
            case ("GET", "merge_requests"):
                return 200, self._listed(given)
            case ("POST", "merge_requests"):
                return self._open(login, given)
            case (_, "merge_requests", number, *rest):
                return self._request(method, self.pull(int(number)), rest, login, given)
            case ("GET", "repository", "commits", sha, "merge_requests"):
                return 200, [self.pull_form(p) for p in self.pulls() if sha in (p.head, p.merged_as)]
            case ("GET", "repository", "commits", sha, "statuses"):
                newest = {(s.context, s.ref): self._status_form(s) for s in self.statuses if s.sha == sha}
                return 200, sorted(newest.values(), key=lambda row: -int(row["id"]))
            case ("POST", "statuses", sha):
                return self._status(sha, login, given)
            case ("GET", "pipelines"):
                return 200, [row for row in self.pipelines[::-1] if row["sha"] == given["sha"]]
            case ("GET", "members", "all", user):
                account = next((a for a in self.accounts.values() if a.id == int(user)), None)
                if account is None or account.permission == "none":
                    return _GONE
                role = _LEVELS[account.permission]
                return 200, {**self.user(account.login), "access_level": role, "expires_at": None}
            case ("GET", "labels"):
                return 200, [self._label(name) for name in sorted(self.labels) if given["search"] in name]
            case ("POST", "labels"):
                if given["name"] in self.labels:
                    return 409, {"message": "Label already exists"}
                self.know_labels([given["name"]], given["color"].removeprefix("#"))
                return 201, self._label(given["name"])
            case ("GET", "variables"):
                shown = {"value": "hidden", "variable_type": "env_var", "masked": True, "environment_scope": "*"}
                return 200, [{"key": key, "protected": not free, **shown} for key, free in self.secrets.items()]
            case ("GET", "merge_trains", branch):
                if self.train is None:
                    return _GONE
                riding = [self.pull(number) for number in self.train]
                return 200, [self._train_form(place, p) for place, p in enumerate(riding, 1) if p.target == branch]
            case ("GET", "protected_branches"):
                return 200, self.protected
            case (_, "deployments", *rest):
                return self._deploy(method, rest, login, given)
            case (_, "issues", *rest):
                return self._issues(method, rest, login, given)
        raise AssertionError((method, parts))

    def _label(self, name: str) -> Row:
        return {"id": sum(name.encode()), "name": name, "color": f"#{self.labels[name]}", "description": None}

    def _listed(self, given: Row) -> list[Row]:
        """GitLab lists the newest first unless it is told otherwise."""
        rows = [
            row
            for row in map(self.pull_form, self.pulls())
            if given.get("state", "all") in ("all", row["state"])
            and all(given.get(name, row[name]) == row[name] for name in ("source_branch", "target_branch"))
        ]
        return rows if given.get("sort") == "asc" else rows[::-1]

    def _open(self, login: str, given: Row) -> tuple[int, Any]:
        source, target = given["source_branch"], given["target_branch"]
        for pull in self.open_pulls():
            if (pull.repository, pull.source, pull.target) == (PROJECT, source, target):
                return 409, {"message": ["Another open merge request already exists for this source branch"]}
        pull = self.open_pull(login, source, target=target, title=given["title"])
        pull.body = given["description"]
        return 201, self.pull_form(pull)

    def _request(self, method: str, pull: Pull, rest: Sequence[str], login: str, given: Row) -> tuple[int, Any]:
        match (method, *rest):
            case ("GET",):
                return 200, {**self.pull_form(pull), "changes_count": str(len(self.files(pull)))}
            case ("PUT",):
                labels = set(pull.labels) | set(filter(None, given.get("add_labels", "").split(",")))
                self.know_labels(labels, "6699cc")
                pull.labels = sorted(labels - set(given.get("remove_labels", "").split(",")))
                self._change(pull, login, given)
                return 200, self.pull_form(pull)
            case ("GET", "diffs"):
                return 200, [{"old_path": path, "new_path": path, "diff": ""} for path in self.files(pull)]
            case ("GET", "approvals"):
                if self.approval_rules is None:
                    return _GONE
                given_by = [r for r in self._opinions(pull) if r.state == "APPROVED"]
                rows = [{"user": self.user(r.author), "approved_at": r.at} for r in given_by]
                return 200, {"approved_by": rows, **self.approval_rules}
            case ("GET", "reviewers"):
                said = [(self.user(r.author), _OPINIONS[r.state], r.at) for r in self._opinions(pull)]
                return 200, [{"user": user, "state": state, "created_at": at} for user, state, at in said]
            case ("GET", "notes"):
                return 200, [partial(self.note_form, pull, comment) for comment in pull.comments]
            case ("POST", "notes"):
                return 201, self.note_form(pull, self.comment(login, pull.number, given["body"]))
            case (_, "notes", note, *further):
                found = next((each for each in pull.comments if each.id == int(note)), None)
                return _GONE if found is None else self._on_note(method, pull, found, further, login, given)
        raise AssertionError((method, rest))

    def _opinions(self, pull: Pull) -> list[Review]:
        """The last of each person."""
        return list({review.author: review for review in pull.reviews}.values())

    def _change(self, issue: Issue, login: str, given: Row) -> None:
        issue.title, issue.body = given.get("title", issue.title), given.get("description", issue.body)
        if given.get("state_event") == "close" and issue.state == "open":
            if isinstance(issue, Pull):
                self.close(issue.number, login)
            issue.state = "closed"

    def _on_note(
        self, method: str, pull: Pull, note: Comment, rest: Sequence[str], login: str, given: Row
    ) -> tuple[int, Any]:
        if rest == ["award_emoji"] and method == "GET":
            return 200, [self._award(note, reaction) for reaction in note.reactions]
        if rest == ["award_emoji"]:
            if (login, given["name"]) in [(r.account, r.content) for r in note.reactions]:
                return 404, {"message": "404 Award Emoji Name has already been taken Not Found"}
            note.reactions.append(Reaction(self.next_id(), login, given["name"]))
            note.updated_at = self.stamp()
            return 201, self._award(note, note.reactions[-1])
        if note.author != login:
            return 403, {"message": "403 Forbidden"}
        if method == "DELETE":
            self.erase(login, note.id)
            return 204, None
        return 200, self.note_form(pull, self.edit(login, note.id, given["body"]))

    def _status(self, sha: str, login: str, given: Row) -> tuple[int, Any]:
        """As GitLab's service for external statuses: what runs or waits is moved on, what has ended gets a successor."""
        heads = self.store.refs(HEADS.rstrip("/")).items()
        ref = given.get("ref") or next((name.removeprefix(HEADS) for name, at in heads if at == sha), None)
        if ref is None:
            return 404, {"message": "404 References for commit Not Found"}
        for known in self.statuses:
            if (known.sha, known.context, known.ref) == (sha, given["name"], ref) and known.state in _RUNNING:
                if given["state"] == "pending":
                    return 400, {"message": f"Cannot transition status via :enqueue from :{known.state}"}
                known.state, known.description, known.ended_at = given["state"], given["description"], self.stamp()
                known.target_url = given.get("target_url")
                return 201, self._status_form(known)
        said = (sha, given["name"], given["state"], given["description"], login, self.stamp())
        ended = self.stamp() if given["state"] in _FINISHED else None
        self.statuses.append(Status(self.next_id(), *said, given.get("target_url"), ref, ended))
        return 201, self._status_form(self.statuses[-1])

    def _deploy(self, method: str, rest: Sequence[str], login: str, given: Row) -> tuple[int, Any]:
        """A deployment that has ended is brought no further."""
        if method == "GET":
            found = [d for d in self.deployments.values() if d.environment == given["environment"]]
            return 200, [self._deployment_form(d) for d in (found[::-1] if given.get("sort") == "desc" else found)]
        if method == "PUT":
            each = self.deployments[int(rest[0])]
            if each.statuses[-1]["state"] in _FINISHED:
                return 400, {"message": "Status cannot transition"}
        else:
            named = (given["sha"], given["ref"], "deploy", given["environment"], "", login, self.stamp())
            each = Deployment(self.next_id(), *named)
            self.deployments[each.id] = each
        each.statuses.append({"state": given["status"]})
        return 200 if method == "PUT" else 201, self._deployment_form(each)

    def _issues(self, method: str, rest: Sequence[str], login: str, given: Row) -> tuple[int, Any]:
        if method == "GET":
            rows = [self.issue_form(i) for i in self.issues.values() if not isinstance(i, Pull)]
            wanted = (given["state"], given["author_id"])
            return 200, [row for row in rows if (row["state"], str(row["author"]["id"])) == wanted]
        if not rest:
            return 201, self.issue_form(self.open_issue(login, given["title"], given["description"]))
        issue = self.issue(-int(rest[0]))
        if rest[1:] == ["notes"]:
            return 201, self.note_form(issue, self.comment(login, issue.number, given["body"]))
        self._change(issue, login, given)
        return 200, self.issue_form(issue)


class _Events:
    """Bodies of webhooks."""

    def __init__(self, gitlab: GitLab) -> None:
        self._gitlab = gitlab

    def comment(self, action: str, pull: Pull, comment: Comment, by: str) -> Row:
        user = self._gitlab.user(comment.author)
        kept = {"id": comment.id, "note": comment.body, "created_at": comment.created_at, "author_id": user["id"]}
        return {
            "object_kind": "note",
            "user": self._gitlab.user(by),
            "project": {"path_with_namespace": PROJECT},
            "object_attributes": {
                **kept,
                "noteable_type": "MergeRequest",
                "system": comment.system,
                "action": {"created": "create", "edited": "update"}.get(action, action),
            },
            "merge_request": {"iid": pull.number},
        }

    def __getattr__(self, name: str) -> Any:
        """Of everything else, pipelines tell."""
        return lambda *_, **__: {}
