"""The bot and the people of the contract suite on a Gitea in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gitops.core.errors import RemoteError
from gitops.forge.gitea import GiteaForge
from gitops.forge.port import Account, CommitCheck, DeploymentState, Forge, Permission, Reaction, ReviewState
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.clock import FixedClock
from tests.support.forge_world import MAIN, OwnWorld
from tests.support.gitea import BASE, PROJECT, Gitea

_REACTIONS = {"eyes": Reaction.SEEN, "+1": Reaction.DONE, "-1": Reaction.REFUSED}
_REVIEWS = {
    ReviewState.APPROVED: "APPROVED",
    ReviewState.CHANGES_REQUESTED: "REQUEST_CHANGES",
    ReviewState.COMMENTED: "COMMENT",
}


@dataclass
class GiteaSender:
    """Sends to a Gitea in memory. `lost` answers of requests that make something never arrive; rivals act before the first."""

    gitea: Gitea
    rivals: list[Callable[[], object]] = field(default_factory=list)
    lost: int = 0
    base: str = BASE
    sent: list[WebRequest] = field(default_factory=list)

    def send(self, request: WebRequest) -> WebAnswer:
        """As `WebSender.send`."""
        if request.method != "GET" and self.rivals:
            self.rivals.pop(0)()
        self.sent.append(request)
        answer = self.gitea.answer(request)
        if not request.repeatable and self.lost:
            self.lost -= 1
            raise RemoteError("forge_unavailable", "the connection broke", retryable=True)
        if answer.status >= 400 and answer.status not in request.quiet:
            raise RemoteError("forge_refused", f"answers with status {answer.status}", status=answer.status)
        return answer


@dataclass
class GiteaWorld:
    """The people of the contract suite on a Gitea."""

    gitea: Gitea = field(default_factory=Gitea)
    permissions: Sequence[Permission] = (Permission.READ, Permission.WRITE, Permission.ADMIN)
    clock: FixedClock = field(default_factory=lambda: OwnWorld().clock)

    def __post_init__(self) -> None:
        for name in ("main", "next", "other"):
            self.branch(f"refs/heads/{name}", files=())
        self.gitea.rules["main"] = {
            "rule_name": "main",
            "enable_push": True,
            "enable_push_whitelist": True,
            "push_whitelist_usernames": ["ada"],
            "push_whitelist_teams": None,
            "enable_force_push": False,
            "require_signed_commits": False,
            "enable_status_check": True,
            "status_check_contexts": ["gitops/plan/library"],
        }

    def sender(self) -> GiteaSender:
        return GiteaSender(self.gitea)

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Forge:
        sender = GiteaSender(self.gitea, [] if overtaken_by is None else [overtaken_by])
        return GiteaForge(sender, PROJECT, self.clock)

    def account(self, login: str) -> Account:
        return Account(str(self.gitea.user(login)["id"]), login)

    def give(self, login: str, permission: Permission) -> None:
        self.gitea.permissions[login] = permission

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        del files
        commit = f"{self.gitea.next():040x}"
        self.gitea.branches[ref.removeprefix("refs/heads/")] = commit
        return commit

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
        form = {
            "head": source.removeprefix("refs/heads/"),
            "base": target.removeprefix("refs/heads/"),
            "title": title,
            "body": "",
        }
        return int(self.gitea.open_pull(author, form, files)["number"])

    def head(self, number: int) -> str:
        return str(self.gitea.pulls[number]["head"]["sha"])

    def push(self, number: int, *, files: Sequence[str]) -> str:
        head = self.gitea.pulls[number]["head"]
        head["sha"] = self.branch("refs/heads/" + head["ref"], files=files)
        return str(head["sha"])

    def merge(self, number: int) -> str:
        commit = self.branch("refs/heads/" + self.gitea.pulls[number]["base"]["ref"], files=())
        self.gitea.pulls[number] |= {
            "state": "closed",
            "merged": True,
            "merged_at": self.gitea.now(),
            "merge_commit_sha": commit,
        }
        return commit

    def close(self, number: int) -> None:
        self.gitea.pulls[number]["state"] = "closed"

    def delete_fork(self, number: int) -> bool:
        self.gitea.delete_fork(number)
        return True

    def comment_as(self, login: str, number: int, body: str) -> str:
        return str(self.gitea.comment(login, number, body)["id"])

    def review_as(self, login: str, number: int, state: ReviewState) -> None:
        review = {
            "id": self.gitea.next(),
            "user": self.gitea.user(login),
            "state": _REVIEWS[state],
            "commit_id": self.head(number),
            "submitted_at": self.gitea.now(),
            "dismissed": False,
            "stale": False,
            "official": True,
        }
        self.gitea.reviews.setdefault(number, []).append(review)

    def label(self, number: int, label: str) -> None:
        self.gitea.pulls[number]["labels"].append(self.gitea.label(label))

    def issue_as(self, login: str, title: str, body: str) -> None:
        self.gitea.issue(login, title, body)

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        del number
        return tuple(_REACTIONS[content] for content in self.gitea.reactions.get(int(comment), ()))

    def checks(self, commit: str) -> tuple[CommitCheck, ...]:
        raise AssertionError(commit)

    def deployments(self, environment: str) -> tuple[tuple[str, DeploymentState], ...]:
        raise AssertionError(environment)

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        rows = [issue for _, issue in sorted(self.gitea.issues.items())]
        return tuple((issue["title"], issue["body"], issue["state"] == "open") for issue in rows)
