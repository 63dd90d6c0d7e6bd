"""The API that GitHub, Gitea and Forgejo share: pull requests, issues, comments, statuses and labels of a repository.

Gitea uses the same paths, bodies and responses as GitHub. The differences are in the two dialects: pages, accounts, the
token's account, and features that only one of them has.

https://docs.github.com/en/rest?apiVersion=2022-11-28 and https://docs.gitea.com/api/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar
from urllib.parse import quote

from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.forge import port
from gitops.forge.actions import REPOSITORY
from gitops.forge.dialect import GONE, HEADS, MAX_BODY, Dialect
from gitops.forge.text import cut
from gitops.forge.web import JsonObject, WebRequest

_NO_COMMIT = frozenset({400, 404, 422})
_GHOST = port.Account("", "ghost")
"""Author of texts by a deleted account.

https://docs.github.com/en/account-and-profile/reference/deleting-your-personal-account
"""
_MAX_PATH = 4096
# Gitea's are the default of its setting `REACTIONS`: https://docs.gitea.com/administration/config-cheat-sheet
_REACTIONS = {port.Reaction.SEEN: "eyes", port.Reaction.DONE: "+1", port.Reaction.REFUSED: "-1"}
# Names that GitHub and Gitea share. Any other submitted review is a comment.
_REVIEWS = {
    "APPROVED": port.ReviewState.APPROVED,
    "CHANGES_REQUESTED": port.ReviewState.CHANGES_REQUESTED,
    "REQUEST_CHANGES": port.ReviewState.CHANGES_REQUESTED,
    "DISMISSED": port.ReviewState.DISMISSED,
}
# Reviews that are not submitted yet, and review requests.
_NOT_GIVEN = frozenset({"PENDING", "REQUEST_REVIEW", ""})
# Roles in a repository, and the coarser values of `permission`, which stand for custom roles.
_ROLES = {
    "admin": port.Permission.ADMIN,
    "maintain": port.Permission.MAINTAIN,
    "write": port.Permission.WRITE,
    "triage": port.Permission.READ,
    "read": port.Permission.READ,
    "none": port.Permission.NONE,
}


class PullsDialect(Dialect):
    """The dialect that repositories on GitHub, Gitea and Forgejo share."""

    forge: ClassVar[str]
    """The forge's name in account identities, `<forge>:<id>`."""
    roles: ClassVar[Mapping[str, port.Permission]] = _ROLES
    requests_path = "/pulls"
    statuses_within = "statuses"
    longest_description: int = 255
    """Maximum number of characters in the description of a status."""

    def __init__(self, project: str, start: str) -> None:
        """`project` is `owner/name`, `start` the path of the API. Raises UsageError `usage_error`."""
        self._project = project
        self._start = start
        self.root = start + repository_path(project)

    # Change requests

    def list_reviews(self, number: int) -> WebRequest:
        """Build the request for the reviews, oldest first."""
        return self._list(f"/pulls/{number}/reviews", quiet=GONE)

    def open_request(self, source: str, target: str, title: str, text: str) -> WebRequest:
        """Build the request to open a change request; 409 or 422 means that one exists or there is nothing to merge."""
        form = {"head": source, "base": target, "title": title, "body": text}
        return self._send("POST", "/pulls", form)

    # Comments and labels

    def list_comments(self, number: int) -> WebRequest:
        """Build the request for comments on a change request or an issue, oldest first."""
        return self._list(f"/issues/{number}/comments", quiet=GONE)

    def add_comment(self, number: int, text: str) -> WebRequest:
        """Build the request to comment on a change request or an issue. Sending it twice would create two comments."""
        return self._send("POST", f"/issues/{number}/comments", {"body": text})

    def change_comment(self, number: int, comment: str, text: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Build the request to replace the text of a comment, which may no longer exist."""
        return self._send("PATCH", f"/issues/comments/{comment}", {"body": text}, quiet=GONE)

    def remove_comment(self, number: int, comment: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Build the request to remove a comment, which may no longer exist."""
        return self._send("DELETE", f"/issues/comments/{comment}", quiet=GONE)

    def react(self, number: int, comment: str, reaction: port.Reaction) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Build the request to react to a comment. Repeating the same reaction changes nothing."""
        return self._send(
            "POST", f"/issues/comments/{comment}/reactions", {"content": _REACTIONS[reaction]}, repeatable=True
        )

    def list_reactions(self, number: int, comment: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Build the request for reactions to a comment. Gitea returns all of them and has no page size here."""
        return self._get(f"/issues/comments/{comment}/reactions", quiet=GONE)

    def labels(self, number: int) -> WebRequest:
        """Build the request for the labels of a change request."""
        return self._list(f"/issues/{number}/labels", quiet=GONE)

    def add_labels(self, number: int, labels: Sequence[str | int]) -> WebRequest:
        """Build the request to add labels to a change request: by name, or on Gitea by number. Others are kept."""
        return self._send("POST", f"/issues/{number}/labels", {"labels": labels}, repeatable=True)

    def remove_label(self, number: int, label: str | int) -> WebRequest:
        """Build the request to remove a label, which may not exist."""
        return self._send("DELETE", f"/issues/{number}/labels/{segment(str(label))}", quiet=GONE)

    # Statuses and permissions

    def list_statuses(self, commit: str) -> WebRequest:
        """Build the request for the newest status of each context of a commit."""
        return self._list(f"/commits/{segment(commit)}/status", quiet=_NO_COMMIT)

    def set_status(self, status: port.CheckStatus) -> WebRequest:
        """Build the request to set a status. In each context the newest one counts, so sending it twice is harmless."""
        form = {
            "state": status.state.value,
            "context": status.context,
            "description": cut(status.description, self.longest_description),
        }
        if status.url:
            form["target_url"] = status.url
        return self._send("POST", f"/statuses/{segment(status.commit)}", form, repeatable=True)

    def get_permission(self, account: port.Account) -> WebRequest:
        """Build the request for an account's permission. On Gitea, this needs the token of a repository administrator."""
        return self._get(f"/collaborators/{segment(account.login)}/permission", quiet=GONE)

    # Answers

    def read_request(self, data: JsonObject, /) -> port.ChangeRequest:
        """Read a change request, from a list or a single response. Its only known pusher is the author."""
        base, head = data.part("base"), data.part("head")
        number, user = data.number("number"), data.optional("user")
        author = None if user is None else self.read_account(user)
        # GitHub's lists contain only the time of the merge.
        merged = data.flag("merged") if data.has("merged") else data.has("merged_at")
        state = port.RequestState.OPEN if data.text("state") == "open" else port.RequestState.CLOSED
        # The fork's repository may have been deleted in the meantime.
        fork = not head.has("repo") or _repository(head.part("repo")) != _repository(base.part("repo"))
        return port.ChangeRequest(
            number=number,
            title=data.line("title", self.longest_title),
            source=self._source(head),
            target=HEADS + base.text("ref"),
            head=head.commit("sha"),
            state=port.RequestState.MERGED if merged else state,
            opened_at=data.moment("created_at"),
            pushers=() if author is None else (f"{self.forge}:{author.id}",),
            merged_as=data.commit_or("merge_commit_sha") if merged else None,
            author=author,
            head_ref=f"refs/pull/{number}/head",
            fork=fork,
            project=head.part("repo").text_or("full_name") if fork and head.has("repo") else "",
            url=data.text_or("html_url"),
            labels=tuple(label.text("name") for label in data.parts("labels")),
        )

    def read_review(self, data: JsonObject, /) -> port.Review | None:
        """Read a review. None if it is not submitted or its account was deleted."""
        user, state = data.optional("user"), data.text_or("state")
        if user is None or state in _NOT_GIVEN:
            return None
        known = (
            port.ReviewState.DISMISSED if data.flag("dismissed") else _REVIEWS.get(state, port.ReviewState.COMMENTED)
        )
        # Comments outside of a review have no commit.
        commit = data.commit("commit_id") if data.text_or("commit_id") else ""
        return port.Review(str(data.number("id")), self.read_account(user), known, commit, data.moment("submitted_at"))

    def read_status(self, data: JsonObject, commit: str, /) -> port.CheckStatus:
        """Read a status of a commit. States that only the forge knows are errors. On Gitea, the field is `status`."""
        said = data.text("status" if data.has("status") else "state")
        state = port.CheckState(said) if said in set(port.CheckState) else port.CheckState.ERROR
        return port.CheckStatus(
            commit,
            data.text("context"),
            state,
            data.line("description", 1024),
            data.moment("updated_at"),
            data.line("target_url", 1024),
        )

    def read_permission(self, data: JsonObject, account: port.Account, now: datetime, /) -> port.Permission:  # noqa: ARG002 - it has no end
        """Return an account's permission. NONE if the response is about a different account, because a login was reused.

        Raises RemoteError `forge_refused` for unknown permission names, because their meaning is unknown.
        https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user
        """
        user = data.optional("user")
        if user is None or self.read_account(user).id != account.id:
            return port.Permission.NONE
        said = [data.text_or("role_name"), data.text_or("permission")]
        known = [self.roles[word] for word in said if word in self.roles]
        if not known:
            words = " and ".join(f"{word[:80]!r}" for word in said if word) or "nothing"
            detail = f"the forge calls the permission of {account.login} {words}, which is not known here, and permits nothing"
            raise RemoteError(Code.FORGE_REFUSED, detail)
        return known[0]

    def read_files(self, data: JsonObject, /) -> tuple[str, ...]:
        """Return the path of a changed file and its previous path."""
        before = data.text_or("previous_filename", most=_MAX_PATH)
        return (data.text("filename", _MAX_PATH), *((before,) if before else ()))

    def read_comment(self, data: JsonObject, /) -> port.Comment:
        """Read a comment. An edit changes `updated_at`, but a reaction does not.

        https://docs.github.com/en/rest/issues/comments and https://docs.gitea.com/api/
        """
        author, body = self._author(data), data.text_or("body", most=MAX_BODY)
        at, identifier = data.moment("created_at"), str(data.number("id"))
        edited = not data.same_moment("created_at", "updated_at")
        return port.Comment(author.login, body, at, None, identifier, author.id, edited)

    def read_reaction(self, data: JsonObject, /) -> tuple[str, port.Reaction | None]:
        """Return the account id and the reaction, or None for a reaction that the bot never uses."""
        content = data.text("content")
        return self._author(data).id, next((each for each, name in _REACTIONS.items() if name == content), None)

    def read_issue(self, data: JsonObject, /) -> port.Issue | None:
        """Read an open issue. None for a change request, because these forges list it as an issue too."""
        if data.has("pull_request") or data.text("state") != "open":
            return None
        title, body = data.line("title", self.longest_title), self.read_text(data)
        return port.Issue(data.number("number"), self._author(data).id, title, body, data.text_or("html_url"))

    # Inside

    def _source(self, head: JsonObject) -> str:
        """Return the branch of a request."""
        return HEADS + head.text("ref")

    def _author(self, data: JsonObject) -> port.Account:
        user = data.optional("user")
        return _GHOST if user is None else self.read_account(user)


def _repository(data: JsonObject) -> tuple[int, str]:
    """Return a repository's identity. Some servers with GitHub's API use the number 0 for all repositories."""
    return data.number("id", least=0), data.text_or("full_name")


def repository_path(project: str) -> str:
    """Return the API path of the repository `owner/name`. Raises UsageError `usage_error`."""
    if not REPOSITORY.fullmatch(project) or any(part.strip(".") == "" for part in project.split("/")):
        raise UsageError(Code.USAGE_ERROR, f"{project[:80]!r} is not the name of a repository: use owner/name")
    return f"/repos/{project}"


def segment(text: str) -> str:
    """Quote a name as one path segment.

    Raises UsageError `usage_error` for a name that would produce a different path.
    """
    if text.strip(".") == "":
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} cannot be a name in a path")
    return quote(text, safe="")
