"""A project on GitLab with people on it, as `tests/contract/forge_suite.py` moves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gitops.forge.gitlab.forge import GitLabForge
from gitops.forge.port import Account, CommitCheck, DeploymentState, Permission, Reaction, ReviewState
from tests.support.clock import FixedClock
from tests.support.gitlab_server import PROJECT, GitLabServer, Project

MAIN = "refs/heads/main"
_LEVELS = {Permission.READ: 20, Permission.WRITE: 30, Permission.MAINTAIN: 40, Permission.ADMIN: 50}
_EMOJI = {"eyes": Reaction.SEEN, "thumbsup": Reaction.DONE, "thumbsdown": Reaction.REFUSED}
_STATES = {
    "running": DeploymentState.RUNNING,
    "success": DeploymentState.SUCCESS,
    "failed": DeploymentState.FAILURE,
}


def level(role: int, name: str) -> dict[str, object]:
    return {"access_level": role, "access_level_description": name}


def protection(name: str, *pushers: dict[str, object], force: bool = False) -> dict[str, object]:
    """A rule for branches, as GitLab lists it."""
    merge = [level(40, "Maintainers")]
    form = {"id": 100, "name": name, "allow_force_push": force, "merge_access_levels": merge}
    return {**form, "push_access_levels": list(pushers)}


@dataclass
class GitLabWorld:
    """Implements ForgeWorld."""

    permissions: Sequence[Permission] = tuple(_LEVELS)
    project: Project = field(
        default_factory=lambda: Project(
            levels={"mira": 30, "ada": 40},
            branches={"main": "a" * 40, "next": "b" * 40},
            protected=[protection("main", level(40, "Maintainers"))],
            rules={},
        )
    )
    servers: list[GitLabServer] = field(default_factory=list)

    def server(self) -> GitLabServer:
        self.servers.append(GitLabServer(self.project))
        return self.servers[-1]

    def forge(self, server: GitLabServer) -> GitLabForge:
        return GitLabForge(server, PROJECT, FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC)))

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> GitLabForge:
        server = self.server()
        server.before_write = overtaken_by
        return self.forge(server)

    def account(self, login: str) -> Account:
        return Account(str(self.project.user(login)["id"]), login)

    def give(self, login: str, permission: Permission) -> None:
        self.project.levels[login] = _LEVELS[permission]

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        new = self.project.sha()
        self.project.branches[_short(ref)] = new
        self.project.files[new] = tuple(files)
        return new

    def open_request(
        self,
        source: str = "refs/heads/topic",
        *,
        target: str = MAIN,
        title: str = "Add authors",
        author: str = "mira",
        files: Sequence[str] = ("a",),
    ) -> int:
        self.branch(source, files=files)
        return int(self.project.open(_short(source), _short(target), title, author)["iid"])

    def open_fork(self, source: str = "topic") -> int:
        """A request from a fork: no branch of this project holds its head."""
        self.branch(source, files=("a",))
        number = int(self.project.open(source, "main", "Add authors", "mallory", fork=True)["iid"])
        self.project.branches.pop(source)
        return number

    def head(self, number: int) -> str:
        return str(self.project.requests[number]["sha"])

    def push(self, number: int, *, files: Sequence[str]) -> str:
        row = self.project.requests[number]
        row["sha"] = self.branch(f"refs/heads/{row['source_branch']}", files=files)
        self.project.say(number, "ada", "added 1 commit", system=True)
        return str(row["sha"])

    def merge(self, number: int) -> str:
        row = self.project.requests[number]
        row["merge_commit_sha"] = self.branch(f"refs/heads/{row['target_branch']}", files=())
        row["state"] = "merged"
        return str(row["merge_commit_sha"])

    def close(self, number: int) -> None:
        self.project.requests[number]["state"] = "closed"

    def delete_fork(self, number: int) -> bool:
        self.project.requests[number] |= {"state": "closed", "source_project_id": None}
        return True

    def comment_as(self, login: str, number: int, body: str) -> str:
        return str(self.project.say(number, login, body)["id"])

    def review_as(self, login: str, number: int, state: ReviewState) -> None:
        """GitLab keeps one opinion of each person: the last."""
        at = self.project.now()
        approvals = self.project.approvals.setdefault(number, {})
        reviewers = self.project.reviewers.setdefault(number, {})
        approvals.pop(login, None)
        if state is ReviewState.APPROVED:
            approvals[login] = at
            reviewers[login] = ("approved", at)
        else:
            reviewers[login] = ("requested_changes" if state is ReviewState.CHANGES_REQUESTED else "reviewed", at)

    def label(self, number: int, label: str) -> None:
        self.project.requests[number]["labels"].append(label)

    def issue_as(self, login: str, title: str, body: str) -> None:
        self.project.issues.append(self.server().issue(login, title, body))

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        assert any(str(row["id"]) == comment for row in self.project.notes[number])
        return tuple(_EMOJI[row["name"]] for row in self.project.awards if str(row["awardable_id"]) == comment)

    def checks(self, commit: str) -> tuple[CommitCheck, ...]:
        return ()

    def deployments(self, environment: str) -> tuple[tuple[str, DeploymentState], ...]:
        rows = [row for row in self.project.deployments if row["environment"]["name"] == environment]
        return tuple((row["sha"], _STATES[row["status"]]) for row in rows)

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        return tuple((row["title"], row["description"], row["state"] == "opened") for row in self.project.issues)


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")
