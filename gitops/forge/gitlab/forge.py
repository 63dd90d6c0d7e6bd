"""Requests to GitLab, one method each, and the reading of its responses. Pure.

https://docs.gitlab.com/api/rest/ (paths with an encoded project, paging), and the page that each method refers to. A
response in an undocumented form is RemoteError `forge_unavailable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.dialect import GONE, HEADS, Dialect, full_id
from gitops.forge.hosted import HostedForge, no_request
from gitops.forge.port import (
    LABELS,
    UNPROTECTED,
    Account,
    BranchRules,
    ChangeRequest,
    CheckState,
    CheckStatus,
    Comment,
    Deployment,
    DeploymentState,
    Features,
    Issue,
    JobSecret,
    LabelStyle,
    MergeOrder,
    Permission,
    Reaction,
    RequestState,
    Review,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.web import JsonObject, WebAnswer, WebRequest, WebSender, answer_object
from gitops.git.port import ZERO

_PER_PAGE = 100
"""Rows per page, the maximum that GitLab supports: https://docs.gitlab.com/api/rest/#pagination."""

_LONGEST_STATUS = 255
"""Maximum number of characters in the name of a status, and in its description."""

_STATES = {RequestState.OPEN: "opened", RequestState.MERGED: "merged", RequestState.CLOSED: "closed"}
_CHECKS = {
    CheckState.PENDING: "pending",
    CheckState.SUCCESS: "success",
    CheckState.FAILURE: "failed",
    # GitLab has no "error" state. A canceled status blocks a merge like a failed one, and shows that there is no
    # result.
    CheckState.ERROR: "canceled",
}
DEPLOYMENTS = {
    DeploymentState.RUNNING: "running",
    DeploymentState.SUCCESS: "success",
    DeploymentState.FAILURE: "failed",
}
# "locked" is a request while it is being merged; https://docs.gitlab.com/api/merge_requests/
_READ_STATES = {
    "opened": RequestState.OPEN,
    "locked": RequestState.OPEN,
    "merged": RequestState.MERGED,
    "closed": RequestState.CLOSED,
}
_READ_CHECKS = {"success": CheckState.SUCCESS, "failed": CheckState.FAILURE, "canceled": CheckState.ERROR}
# https://docs.gitlab.com/api/project_members/, highest first.
_ROLES = ((50, Permission.ADMIN), (40, Permission.MAINTAIN), (30, Permission.WRITE), (10, Permission.READ))
_MAX_TITLE = 1_024
_MAX_BODY = 2_000_000
_EMOJI = {Reaction.SEEN: "eyes", Reaction.DONE: "thumbsup", Reaction.REFUSED: "thumbsdown"}
UNSEEN = frozenset({401, 403, 404})
"""Statuses of GitLab's responses about settings that the token cannot see."""
# https://docs.gitlab.com/user/reserved_names/
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_QUICK_ACTION = re.compile(r"^([ \t]*)/(?!gitops\b)(?=\w+(?:\s|$))", re.MULTILINE)


class GitLabDialect(Dialect):
    """Dialect of a project on GitLab. It has no checks, because a pipeline shows only commit statuses."""

    features = Features(
        reviews=True,
        review_decisions=True,
        deployments=True,
        labels=True,
        reactions=True,
        issues=True,
        permissions=True,
        branch_rules=True,
        queue=True,
    )
    requests_path = "/merge_requests"
    page = (("per_page", str(_PER_PAGE)),)
    change_method = "PUT"
    text_field = "description"
    closing: ClassVar[Mapping[str, str]] = {"state_event": "close"}

    def __init__(self, project: str) -> None:
        """`project` is a path (`group/sub/name`) or a number.

        Raises UsageError `usage_error` for anything else, because without a name the paths would refer to all projects.
        """
        parts = project.split("/")
        named = len(parts) > 1 and all(_SEGMENT.fullmatch(part) and part.strip(".") for part in parts)
        if not (named or _NUMBER.fullmatch(project)):
            raise UsageError(Code.USAGE_ERROR, f"{project[:80]!r} is not a project on GitLab: use group/name")
        # https://docs.gitlab.com/api/rest/#namespaced-paths
        self.root = f"/projects/{quote(project, safe='')}"

    def next_page(self, base: str, request: WebRequest, answer: WebAnswer, read: int) -> WebRequest | None:
        """Build the request for the next page, from its number (`x-next-page`) or, without one, from the link.

        Raises RemoteError `forge_unavailable` if `x-next-page` is not a number. https://docs.gitlab.com/api/rest/#pagination
        """
        counted = answer.headers.get("x-next-page", "").strip()
        if not counted:
            return super().next_page(base, request, answer, read)
        if not (counted.isascii() and counted.isdecimal()):
            raise RemoteError(Code.FORGE_UNAVAILABLE, "GitLab's answer has an x-next-page that is not a number")
        return replace(request, query=(*((n, v) for n, v in request.query if n != "page"), ("page", counted)))

    # Requests

    def viewer(self) -> WebRequest:
        """Build the request for the token's account: https://docs.gitlab.com/api/users/."""
        return WebRequest("GET", "/user")

    def settings(self) -> WebRequest:
        """Build the request for the project: https://docs.gitlab.com/api/projects/."""
        return self._get("")

    def list_requests(
        self, state: RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Build the request for merge requests, including those from forks: https://docs.gitlab.com/api/merge_requests/.

        They are sorted oldest first, so that a new one, opened while the list is read, does not shift the pages.
        """
        query = [("scope", "all"), ("state", "all" if state is None else _STATES[state])]
        if target is not None:
            query.append(("target_branch", target))
        if source is not None:
            query.append(("source_branch", source))
        return self._list("/merge_requests", *query, ("order_by", "created_at"), ("sort", "asc"), quiet=GONE)

    def requests_of(self, commit: str) -> WebRequest:
        """Build the request for the merge requests that a commit belongs to: https://docs.gitlab.com/api/commits/."""
        return self._list(f"/repository/commits/{full_id(commit)}/merge_requests", quiet=GONE)

    def list_ended(self) -> WebRequest:
        """Build the request for merged merge requests, last changed first: https://docs.gitlab.com/api/merge_requests/."""
        query = (("scope", "all"), ("state", "merged"), ("order_by", "updated_at"), ("sort", "desc"))
        return self._list("/merge_requests", *query, quiet=GONE)

    def open_request(self, source: str, target: str, title: str, text: str) -> WebRequest:
        """Build the request to open a merge request; 409 if it exists: https://docs.gitlab.com/api/merge_requests/."""
        form = {"source_branch": source, "target_branch": target, "title": title, "description": text}
        return self._send("POST", "/merge_requests", form)

    def set_labels(self, number: int, add: Sequence[str], remove: Sequence[str]) -> WebRequest:
        """Build the request to add and remove labels of a merge request: https://docs.gitlab.com/api/merge_requests/."""
        lists = {"add_labels": ",".join(add), "remove_labels": ",".join(remove)}
        form = {name: names for name, names in lists.items() if names}
        return self._send("PUT", f"/merge_requests/{number}", form, quiet=GONE)

    def find_labels(self, text: str) -> WebRequest:
        """Build the request for the labels that contain a text: https://docs.gitlab.com/api/labels/."""
        return self._list("/labels", ("search", text), quiet=GONE)

    def make_label(self, name: str, style: LabelStyle) -> WebRequest:
        """Build the request to create a label; 409 means that it exists."""
        form = {"name": name, "color": f"#{style.colour}", "description": style.text}
        return self._send("POST", "/labels", form, quiet=frozenset({_CONFLICT}), repeatable=True)

    def list_files(self, number: int) -> WebRequest:
        """Build the request for the changed files of a merge request: https://docs.gitlab.com/api/merge_requests/."""
        return self._list(f"/merge_requests/{number}/diffs", quiet=GONE)

    def approvals(self, number: int) -> WebRequest:
        """Build the request for approvals: https://docs.gitlab.com/api/merge_request_approvals/.

        404 if an edition has none.
        """
        return self._get(f"/merge_requests/{number}/approvals", quiet=GONE)

    def reviewers(self, number: int) -> WebRequest:
        """Build the request for the reviewers and their reviews: https://docs.gitlab.com/api/merge_requests/."""
        return self._get(f"/merge_requests/{number}/reviewers", quiet=GONE)

    def list_comments(self, number: int) -> WebRequest:
        """Build the request for comments, oldest first: https://docs.gitlab.com/api/notes/."""
        return self._list(f"/merge_requests/{number}/notes", ("order_by", "created_at"), ("sort", "asc"), quiet=GONE)

    def add_comment(self, number: int, text: str) -> WebRequest:
        """Build the request to add a comment."""
        return self._send("POST", f"/merge_requests/{number}/notes", {"body": text})

    def change_comment(self, number: int, comment: str, text: str) -> WebRequest:
        """Build the request to replace the text of a comment."""
        path = f"/merge_requests/{number}/notes/{quote(comment, safe='')}"
        return self._send("PUT", path, {"body": text}, quiet=GONE)

    def remove_comment(self, number: int, comment: str) -> WebRequest:
        """Build the request to remove a comment."""
        return self._send("DELETE", f"/merge_requests/{number}/notes/{quote(comment, safe='')}", quiet=GONE)

    def react(self, number: int, comment: str, reaction: Reaction) -> WebRequest:
        """Build the request to react to a comment. It returns 404 if the reaction exists, so repeating it is harmless.

        https://docs.gitlab.com/api/emoji_reactions/#add-reactions-to-comments
        """
        path = f"/merge_requests/{number}/notes/{quote(comment, safe='')}/award_emoji"
        return self._send("POST", path, {"name": _EMOJI[reaction]}, quiet=GONE, repeatable=True)

    def list_reactions(self, number: int, comment: str) -> WebRequest:
        """Build the request for reactions: https://docs.gitlab.com/api/emoji_reactions/#list-all-emoji-reactions-for-a-comment."""
        return self._list(f"/merge_requests/{number}/notes/{quote(comment, safe='')}/award_emoji", quiet=GONE)

    def list_statuses(self, commit: str) -> WebRequest:
        """Build the request for the newest statuses of a commit: https://docs.gitlab.com/api/commits/."""
        return self._list(f"/repository/commits/{full_id(commit)}/statuses", quiet=GONE)

    def set_status(self, status: CheckStatus, ref: str | None = None) -> WebRequest:
        """Build the request to set a status: https://docs.gitlab.com/api/commits/.

        The newest status of a name counts, so sending it twice does no harm. 400 if the state cannot follow the previous
        one, for example pending after pending; 404 if no branch contains the commit and no `ref` is given.
        """
        form = {
            "state": _CHECKS[status.state],
            "name": status.context[:_LONGEST_STATUS],
            "description": status.description[:_LONGEST_STATUS],
        }
        if status.url:
            form["target_url"] = status.url
        if ref is not None:
            form["ref"] = ref
        path, refused = f"/statuses/{full_id(status.commit)}", frozenset({400, 404})
        return self._send("POST", path, form, quiet=refused, repeatable=True)

    def pipelines_of(self, commit: str) -> WebRequest:
        """Build the request for the newest pipelines of a commit: https://docs.gitlab.com/api/pipelines/."""
        return self._list("/pipelines", ("sha", commit), ("order_by", "id"), ("sort", "desc"), quiet=GONE)

    def get_permission(self, account: Account) -> WebRequest | None:
        """Build the request for a member, including members of parent groups: https://docs.gitlab.com/api/project_members/.

        Account ids are numbers.
        """
        if not (account.id.isascii() and account.id.isdecimal()):
            return None
        return self._get(f"/members/all/{account.id}", quiet=GONE)

    def protected_branches(self) -> WebRequest:
        """Build the request for all protected branches; 401, 403 and 404 mean that the token cannot see them.

        https://docs.gitlab.com/api/protected_branches/
        """
        return self._list("/protected_branches")

    def merge_train(self, branch: str) -> WebRequest:
        """Build the request for the merge train of a branch; 401, 403 and 404 mean that the project has none.

        https://docs.gitlab.com/api/merge_trains/#list-merge-requests-in-a-merge-train
        """
        return self._list(f"/merge_trains/{quote(branch, safe='')}", ("scope", "active"), ("sort", "asc"), quiet=UNSEEN)

    def variables(self) -> WebRequest:
        """Build the request for the variables of jobs: https://docs.gitlab.com/api/project_level_variables/."""
        return self._list("/variables")

    def deployments(self, environment: str) -> WebRequest:
        """Build the request for the newest deployments to an environment: https://docs.gitlab.com/api/deployments/."""
        return self._list(
            "/deployments", ("environment", environment), ("order_by", "id"), ("sort", "desc"), quiet=GONE
        )

    def add_deployment(self, environment: str, commit: str, branch: str, state: DeploymentState) -> WebRequest:
        """Build the request to record a deployment: https://docs.gitlab.com/api/deployments/#create-a-deployment."""
        form = {"environment": environment, "sha": commit, "ref": branch, "tag": False, "status": DEPLOYMENTS[state]}
        return self._send("POST", "/deployments", form)

    def update_deployment(self, number: int, state: DeploymentState) -> WebRequest:
        """Build the request to change a deployment's status: https://docs.gitlab.com/api/deployments/#update-a-deployment."""
        return self._send("PUT", f"/deployments/{number}", {"status": DEPLOYMENTS[state]})

    def list_issues(self, author: Account) -> WebRequest:
        """Build the request for an author's open issues, oldest first: https://docs.gitlab.com/api/issues/."""
        query = (("scope", "all"), ("state", "opened"), ("author_id", quote(author.id, safe="")))
        return self._list("/issues", *query, ("order_by", "created_at"), ("sort", "asc"), quiet=GONE)

    def comment_on_issue(self, number: int, text: str) -> WebRequest:
        """Build the request to comment on an issue: https://docs.gitlab.com/api/notes/."""
        return self._send("POST", f"/issues/{number}/notes", {"body": text})

    # Answers

    @staticmethod
    def read_account(data: JsonObject, /) -> Account:
        """Read a user: https://docs.gitlab.com/api/users/.

        Only the response about the token's own user says whether it is a bot.
        """
        return Account(str(data.number("id")), data.text("username"), data.flag("bot"))

    def read_request(self, data: JsonObject, /) -> ChangeRequest:
        """Read a merge request: https://docs.gitlab.com/api/merge_requests/.

        Its head has a ref in the target project, even if its branch is in a fork. GitLab does not report who pushed, so the
        author is used instead.
        """
        number = data.number("iid")
        state = _READ_STATES.get(data.text("state"))
        if state is None:
            detail = f"GitLab gives merge request {number} a state that is not documented"
            raise RemoteError(Code.FORGE_UNAVAILABLE, detail)
        author, merged_as = self.read_account(data.part("author")), None
        if state is RequestState.MERGED:
            # The merge commit; otherwise the squashed commit; otherwise, after a fast-forward, the head.
            named = map(data.commit_or, ("merge_commit_sha", "squash_commit_sha", "sha"))
            merged_as = next(filter(None, named), None)
        # The branch's project is null after a fork is deleted.
        fork = not data.has("source_project_id") or data.number("source_project_id") != data.number("target_project_id")
        return ChangeRequest(
            number=number,
            title=data.line("title", _MAX_TITLE),
            source=HEADS + data.text("source_branch"),
            target=HEADS + data.text("target_branch"),
            # A merge request has no head if it has no commits, or while GitLab still prepares it.
            head=data.commit_or("sha") or ZERO,
            state=state,
            opened_at=data.moment("created_at"),
            pushers=(f"gitlab:{author.id}",),
            merged_as=merged_as,
            author=author,
            head_ref=f"refs/merge-requests/{number}/head",
            fork=fork,
            url=data.text_or("web_url"),
            labels=tuple(sorted(name for name in data.values("labels") if isinstance(name, str))),
        )

    def read_text(self, data: JsonObject, /) -> str:
        """Return the text of a merge request or an issue."""
        return data.text_or("description", most=_MAX_BODY)

    def read_files(self, data: JsonObject, /) -> tuple[str, ...]:
        """Return the path of a changed file and its previous path."""
        return data.text("old_path", 4_096), data.text("new_path", 4_096)

    def read_comment(self, data: JsonObject, /) -> Comment | None:
        """Read a comment. None for a line that GitLab itself wrote: https://docs.gitlab.com/api/notes/.

        Like an edit, a reaction changes `updated_at`, even a reaction of the bot. So a comment that was answered counts as
        edited from then on.
        """
        if data.flag("system"):
            return None
        author = self.read_account(data.part("author"))
        body, at = data.text("body", _MAX_BODY), data.moment("created_at")
        edited = not data.same_moment("created_at", "updated_at")
        return Comment(author.login, body, at, None, str(data.number("id")), author.id, edited)

    def read_reaction(self, data: JsonObject, /) -> tuple[str, Reaction | None]:
        """Return the account id and the reaction, or None for a reaction that the bot never uses."""
        account, name = self.read_account(data.part("user")).id, data.text("name")
        return account, next((each for each, emoji in _EMOJI.items() if emoji == name), None)

    def read_status(self, data: JsonObject, commit: str, /) -> CheckStatus:
        """Read a status, including those of GitLab CI jobs: https://docs.gitlab.com/api/commits/.

        States such as running, manual and skipped count as pending, because they decide nothing.
        """
        state = _READ_CHECKS.get(data.text("status"), CheckState.PENDING)
        at = next((data.moment(time) for time in ("finished_at", "started_at", "created_at") if data.has(time)), "")
        return CheckStatus(
            commit, data.text("name"), state, data.text_or("description"), at, data.line("target_url", 1024)
        )

    def read_permission(self, data: JsonObject, account: Account, now: datetime, /) -> Permission:
        """Return the permission of a member: https://docs.gitlab.com/api/project_members/.

        Returns NONE for a row that belongs to another account, is not active, or has expired.
        """
        if str(data.number("id")) != account.id:
            return Permission.NONE
        if any(data.text_or(field, "active") != "active" for field in ("state", "membership_state")):
            return Permission.NONE
        if data.has("expires_at") and data.text("expires_at")[:10] <= now.astimezone(UTC).date().isoformat():
            return Permission.NONE
        level = data.number("access_level", least=0)
        return next((role for least, role in _ROLES if level >= least), Permission.NONE)

    def read_issue(self, data: JsonObject, /) -> Issue:
        """Read an issue: https://docs.gitlab.com/api/issues/."""
        author, text = self.read_account(data.part("author")), self.read_text(data)
        return Issue(data.number("iid"), author.id, data.text("title"), text, data.text_or("web_url"))

    def escape(self, text: str) -> str:
        """Disarm GitLab's quick actions in a text, because a line such as `/merge` would run with the bot's rights.

        A backslash before the slash is invisible outside of code. Our own commands are unchanged, so that people can copy
        them. Source: https://docs.gitlab.com/user/project/quick_actions/
        """
        return _QUICK_ACTION.sub(r"\1\\/", text)


# Merge requests on GitLab, either gitlab.com or self-managed: the parts that differ from other hosted forges.
#
# The address of the API is `https://HOST/api/v4`. The bot's texts must never contain a quick action, because GitLab
# would run it with the bot's rights: see `GitLabDialect.escape`.

ANY_CHECK = "*"
"""In `BranchRules.required_checks`: every status of a head must be successful, whatever its name."""

_REVIEWS = {"requested_changes": ReviewState.CHANGES_REQUESTED, "reviewed": ReviewState.COMMENTED}
_FINISHED = frozenset({"success", "failed", "canceled"})
_NO_ACCESS = 0
_DIGITS = 10
_OK = 200
_BAD_REQUEST = 400
_NOT_FOUND = 404
_CONFLICT = 409
_DEVELOPER = 30
"""The level of the role Developer: https://docs.gitlab.com/api/access_requests/#valid-access-levels."""
_OWN_LABELS = "gitops/"
"""What the names of the bot's labels have in common."""


class GitLabForge(HostedForge):
    """Forge with every feature except checks and push lists.

    On GitLab, a push of many branches is one event without commits, and events cover the whole project:
    https://docs.gitlab.com/administration/settings/push_event_activities_limit/
    """

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is a path (`group/sub/name`) or a number. Raises UsageError `usage_error` for anything else."""
        self._api = GitLabDialect(project)
        super().__init__(sender, self._api, clock)
        self._project: JsonObject | None = None

    def me(self) -> Account:
        """Return the token's account, requested once. A project access token has a separate bot account.

        Raises RemoteError `forge_unavailable`, GitopsError `forge_refused` for a token without an account, such as
        CI_JOB_TOKEN.
        """
        try:
            return super().me()
        except RemoteError as error:
            if error.status not in {401, 403}:
                raise
            # See https://docs.gitlab.com/ci/jobs/ci_job_token/ for the permissions of a job token.
            detail = (
                "GitLab does not say whose token this is. CI_JOB_TOKEN can neither comment nor set a status: give the "
                "job a project access token with the scope api as GITOPS_TOKEN"
            )
            raise GitopsError(Code.FORGE_REFUSED, detail) from error

    def files(self, number: int) -> tuple[str, ...]:
        """Return the sorted paths that a merge request changes, including old names of moved files.

        Raises RemoteError `forge_limit` if GitLab would list only some of them, and, retryable, `forge_unavailable` while it
        is still preparing the list.
        """
        expected = files_of(self._get_request(number))
        found = list(self._list(self._api.list_files(number)))
        if expected is not None and len(found) < expected:
            listed = f"{len(found)} of the {expected} files of merge request {number}"
            detail = f"GitLab lists {listed}: it still prepares them"
            raise RemoteError(Code.FORGE_UNAVAILABLE, detail, retryable=True)
        return self._paths(found)

    def reviews(self, number: int) -> tuple[Review, ...]:
        """Return the last comment of each reviewer, then the approvals, then the objections. GitLab records no commit."""
        return reviews(*self._opinions(self.request(number).number))

    def review_decision(self, number: int) -> ReviewDecision:
        """Return what GitLab's approval rules decide. UNKNOWN for editions and projects without such rules."""
        request = self._get_request(number)
        return review_decision(request, *self._opinions(number))

    def merge_order(self, branch: str) -> MergeOrder:
        """Return the merge train of a branch (short name). GitLab lists no decisions about reviews."""
        train = self._list(self._api.merge_train(branch))
        return MergeOrder(tuple(row.part("merge_request").number("iid") for row in train))

    def branch_rules(self, branch: str) -> BranchRules:
        """Return the rules for a branch (short name). Unknown for tokens below the Maintainer role.

        `required_checks` is `*` if every status of a head must have succeeded, because GitLab does not single any out.
        """
        try:
            protections = list(self._list(self._api.protected_branches()))
        except RemoteError as error:
            if error.status not in UNSEEN:
                raise
            return BranchRules(notes=("the token cannot see protected branches, which requires the Maintainer role",))
        # null means that this edition supports push rules, but the project has none.
        return branch_rules(branch, protections, self._settings())

    def job_secrets(self) -> tuple[JobSecret, ...]:
        """Return the project's variables. Values are in the response too, and are not used."""
        rows = list(self._list(self._api.variables()))
        protections = self._list(self._api.protected_branches())
        pushable = [row.line("name", 200) for row in protections if _developers_push(row)]
        where = f"everyone with the role Developer, by a push to {pushable[0]}" if pushable else ""
        place = "the variables of the project"
        return tuple(
            JobSecret(row.text("key"), place, where if row.flag("protected") else "everyone who can push a branch")
            for row in rows
        )

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the previous one. Takes one request unless GitLab refuses it.

        Raises UsageError `usage_error` for anything but a full id, RemoteError `forge_refused`.
        """
        answer = self._sender.send(self._api.set_status(status))
        if answer.status == _NOT_FOUND:
            ref = self._ref_of(status.commit)
            if ref is not None:
                answer = self._sender.send(self._api.set_status(status, ref))
        if answer.status == _BAD_REQUEST and any(
            (known.context, known.state) == (status.context, status.state) for known in self.statuses(status.commit)
        ):
            return
        if answer.status in {_BAD_REQUEST, _NOT_FOUND}:
            message = answer.body.get("message") if isinstance(answer.body, dict) else None
            detail = f"GitLab refuses the status {status.context} of {status.commit}: {str(message)[:200]!r}"
            raise RemoteError(Code.FORGE_REFUSED, detail, status=answer.status)

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a merge request and remove labels, in one request. A label in both lists is added.

        Other labels are unchanged. Labels of the bot that the project lacks are created in their colours first. Raises
        GitopsError `request_not_found`, UsageError `usage_error` for a comma, which separates labels here.
        """
        for name in (*add, *remove):
            if "," in name or not name.strip():
                raise UsageError(Code.USAGE_ERROR, f"{name[:80]!r} cannot be a label on GitLab")
        off = [name for name in remove if name not in add]
        if own := [name for name in add if name in LABELS]:
            # It works without colours too: GitLab creates the labels that are left.
            with suppress(RemoteError):
                there = {label.text("name") for label in self._list(self._api.find_labels(_OWN_LABELS))}
                for name in own:
                    if name not in there:
                        self._sender.send(self._api.make_label(name, LABELS[name]))
        if (add or off) and self._sender.send(self._api.set_labels(number, add, off)).status == _NOT_FOUND:
            raise no_request(number)

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """Open or update the single open request of branch `source` into `target` (full ref names), and return it.

        Raises the errors of all forges, and RemoteError `forge_unavailable` if GitLab has a request that it does not
        list.
        """
        try:
            return super().propose(source, target, title, body)
        except RemoteError as error:
            if error.status != _CONFLICT:
                raise
            raise RemoteError(Code.FORGE_UNAVAILABLE, "GitLab has this merge request but does not show it") from error

    def record_deployment(self, deployment: Deployment) -> None:
        """Create or update the one record that holds the state of this deployment of a commit to an environment.

        GitLab cannot change a deployment that has ended, so a new one is created. GitLab requires a branch and gets the
        project's default branch.
        """
        wanted = DEPLOYMENTS[deployment.state]

        def newest() -> tuple[int, str] | None:
            answer = self._sender.send(self._api.deployments(deployment.environment))
            return newest_deployment(rows(answer.body, "deployments"), deployment.commit, self.me().id)

        def created() -> tuple[int, str] | None:
            found = newest()
            return found if found is not None and found[1] == wanted else None

        number, status = newest() or (0, "")
        if status == wanted:
            return
        if number and status not in _FINISHED:
            self._sender.send(self._api.update_deployment(number, deployment.state))
            return
        branch = self._settings().text("default_branch")
        request = self._api.add_deployment(deployment.environment, deployment.commit, branch, deployment.state)
        self._create(request, created, lambda _: (0, wanted))

    def _settings(self) -> JsonObject:
        """Return the project, requested only once."""
        if self._project is None:
            self._project = answer_object(self._sender.send(self._api.settings()).body, "the project")
        return self._project

    def _opinions(self, number: int) -> tuple[JsonObject | None, list[JsonObject]]:
        """Return approvals, if the edition supports them, and reviewers."""
        answer = self._sender.send(self._api.approvals(number))
        approvals = answer_object(answer.body, "the approvals") if answer.status == _OK else None
        return approvals, list(self._list(self._api.reviewers(number)))

    def _ref_of(self, commit: str) -> str | None:
        """Return a ref of this project that contains a commit which is on none of its branches.

        For the head of a fork, it is the ref of the merge request; for a commit of a merge train, it is the ref of its
        pipeline.
        """
        numbers = [row.number("iid") for row in self._list(self._api.requests_of(commit))]
        if numbers:
            return f"refs/merge-requests/{max(numbers)}/head"
        answer = self._sender.send(self._api.pipelines_of(commit))
        return next((row.text("ref") for row in rows(answer.body, "pipelines")), None)


def rows(body: Any, what: str) -> tuple[JsonObject, ...]:
    """Return the objects of a single-page list."""
    if not isinstance(body, list):
        raise RemoteError(Code.FORGE_UNAVAILABLE, f"GitLab answers for {what} with something that is not a list")
    return tuple(answer_object(item, f"{what}[{index}]") for index, item in enumerate(body))


def files_of(data: JsonObject) -> int | None:
    """Return how many files a merge request changes; None while GitLab does not report it.

    Raises GitopsError `forge_limit` for `1000+`, because GitLab lists no more:
    https://docs.gitlab.com/administration/diff_limits/
    """
    count = data.text_or("changes_count")
    if not count:
        return None
    if count.endswith("+"):
        detail = f"GitLab lists only the first {count[:-1][:20]} files of this merge request"
        raise RemoteError(Code.FORGE_LIMIT, detail)
    return int(count) if count.isascii() and count.isdecimal() and len(count) < _DIGITS else None


def reviews(approvals: JsonObject | None, reviewers: Sequence[JsonObject]) -> tuple[Review, ...]:
    """Return the reviewers' comments, then the approvals by time, then the objections.

    GitLab does not report the approved commit, so `commit` is empty and such a review never belongs to a given commit. It
    does not report the time of an objection either, so `at` is empty there, and an objection comes after any approval of the
    same person. Sources: https://docs.gitlab.com/api/merge_request_approvals/ and
    https://docs.gitlab.com/api/merge_requests/.
    """
    approved: list[Review] = []
    for row in () if approvals is None else approvals.parts("approved_by"):
        who = GitLabDialect.read_account(row.part("user"))
        at = row.moment("approved_at") if row.has("approved_at") else ""
        approved.append(Review(f"approval-{who.id}", who, ReviewState.APPROVED, "", at))
    by_state: dict[ReviewState, list[Review]] = {ReviewState.COMMENTED: [], ReviewState.CHANGES_REQUESTED: []}
    for row in reviewers:
        state, who = _REVIEWS.get(row.text_or("state")), GitLabDialect.read_account(row.part("user"))
        if state is not None:
            by_state[state].append(Review(f"review-{who.id}", who, state, "", ""))
    in_time = sorted(approved, key=lambda review: review.at)
    return (*by_state[ReviewState.COMMENTED], *in_time, *by_state[ReviewState.CHANGES_REQUESTED])


def review_decision(
    request: JsonObject, approvals: JsonObject | None, reviewers: Sequence[JsonObject]
) -> ReviewDecision:
    """Return what GitLab's rules decide: the stricter of its two results.

    `detailed_merge_status` contains only the first reason that prevents a merge, and the approvals cover only the rules of
    editions that have them. Without `approvals_required`, or if it is 0, there are no rules. Source:
    https://docs.gitlab.com/api/merge_requests/
    """
    status = request.text_or("detailed_merge_status")
    if status == "requested_changes" or any(row.text_or("state") == "requested_changes" for row in reviewers):
        return ReviewDecision.CHANGES_REQUESTED
    if status == "not_approved":
        return ReviewDecision.REQUIRED
    if (
        approvals is None
        or not approvals.has("approvals_required")
        or not approvals.number("approvals_required", least=0)
    ):
        return ReviewDecision.UNKNOWN
    if not approvals.has("approvals_left") or approvals.number("approvals_left", least=0):
        return ReviewDecision.REQUIRED
    return ReviewDecision.APPROVED


def _developers_push(row: JsonObject) -> bool:
    """Return whether a protection lets everyone push who can push branches without a protection."""
    levels = (
        level.number("access_level", least=0) for level in row.parts("push_access_levels") if level.has("access_level")
    )
    return any(level == _DEVELOPER for level in levels)


def branch_rules(branch: str, protections: Sequence[JsonObject], project: JsonObject) -> BranchRules:
    """Return the rules for a branch. If several protections match, the most permissive one is in force.

    `pushers` are `gitlab:<number>` for people, `group:<number>`, `deploy-key:<number>`, and roles by their names. Sources:
    https://docs.gitlab.com/user/project/repository/branches/protected/ and https://docs.gitlab.com/api/protected_branches/.
    """
    # `*` in the name of a protection matches any text.
    patterns = (".*".join(map(re.escape, row.text("name").split("*"))) for row in protections)
    matching = [
        row for row, pattern in zip(protections, patterns, strict=True) if re.fullmatch(pattern, branch, re.DOTALL)
    ]
    checks = (ANY_CHECK,) if project.flag("only_allow_merge_if_pipeline_succeeds") else ()
    queue = project.flag("merge_trains_enabled") if project.has("merge_trains_enabled") else None
    if not matching:
        return replace(UNPROTECTED, required_checks=checks, queue=queue)
    pushers = tuple(sorted({name for row in matching for name in _pushers(row)}))
    return BranchRules(
        protected=True,
        request_needed=not pushers,
        force_push=any(row.flag("allow_force_push") for row in matching),
        deletion=False,
        required_checks=checks,
        pushers=pushers,
        queue=queue,
        notes=("an account that may remove the protection can delete the branch on GitLab's pages",),
    )


def _pushers(row: JsonObject) -> Iterable[str]:
    for level in row.parts("push_access_levels"):
        if level.has("user_id"):
            yield f"gitlab:{level.number('user_id')}"
        elif level.has("group_id"):
            yield f"group:{level.number('group_id')}"
        elif level.has("deploy_key_id"):
            yield f"deploy-key:{level.number('deploy_key_id')}"
        elif level.number("access_level", least=0) != _NO_ACCESS:
            yield level.line("access_level_description", 200) or f"role {level.number('access_level', least=0)}"


def newest_deployment(deployments: Iterable[JsonObject], commit: str, account: str) -> tuple[int, str] | None:
    """Return number and status of an account's newest deployment of a commit: https://docs.gitlab.com/api/deployments/."""
    own = [
        (row.number("id"), row.text("status"))
        for row in deployments
        if row.commit("sha") == commit
        and row.has("user")
        and GitLabDialect.read_account(row.part("user")).id == account
    ]
    return max(own, default=None)
