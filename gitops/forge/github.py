"""GitHub: the dialect, the forge, and its events.

The dialect is pure. It has one method for each kind of request to GitHub, and one for each kind of response.

https://docs.github.com/en/rest?apiVersion=2022-11-28
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import RemoteError
from gitops.forge import actions, port
from gitops.forge.dialect import GONE
from gitops.forge.events import Delivery, Event, QueueEvent, ReviewEvent
from gitops.forge.hosted import HostedForge, no_request
from gitops.forge.pulls_api import PullsDialect, repository_path, segment
from gitops.forge.text import cut, cut_markdown
from gitops.forge.web import JsonObject, WebAnswer, WebRequest, WebSender, answer_object, read_list

MAX_FILES = 3000
"""Maximum number of files that GitHub lists: https://docs.github.com/en/rest/pulls/pulls#list-pull-requests-files."""

# The task of the bot's deployments, which distinguishes them from others.
_TASK = "gitops"

_HEADERS = {
    # GitHub's own description of its responses uses the second form; see the media types of the REST API.
    "Accept": "application/vnd.github+json, application/json",
    "X-GitHub-Api-Version": "2022-11-28",
}
_NO_SUCH_COMMIT = frozenset({404, 422})
_NOT_FOUND = 404
_HIDDEN = frozenset({403, 404})
_LIMITED = frozenset({"RATE_LIMIT", "RATE_LIMITED"})

# Limits: https://docs.github.com/en/rest/checks/runs#create-a-check-run and .../commits/statuses#create-a-commit-status
_MAX_DESCRIPTION = 140
_MAX_SUMMARY = 65_535
_ANNOTATIONS_A_REQUEST = 50
_MAX_ANNOTATIONS = 500
_MAX_MESSAGE = 16_000
_MAX_TITLE = 255
_ENVIRONMENT = "gitops"
"""The environment that the jobs of `gitops init` use."""
_WRITERS = "everyone with write access"
_PATTERN = re.compile(r"[*?\[]")
# The colour of a label that GitHub creates because it was added to an issue.
_UNCOLOURED = "ededed"

_LEVELS = {Severity.ERROR: "failure", Severity.WARNING: "warning"}
_CONCLUSIONS = {
    port.CheckState.SUCCESS: "success",
    port.CheckState.FAILURE: "failure",
    port.CheckState.ERROR: "failure",
}
_DEPLOYMENT_STATES = {
    port.DeploymentState.RUNNING: "in_progress",
    port.DeploymentState.SUCCESS: "success",
    port.DeploymentState.FAILURE: "failure",
}


class GitHubDialect(PullsDialect):
    """Dialect of a repository on GitHub."""

    forge = "github"
    features = port.Features(
        reviews=True,
        review_decisions=True,
        checks=True,
        deployments=True,
        labels=True,
        reactions=True,
        issues=True,
        permissions=True,
        branch_rules=True,
        queue=True,
        pushes=True,
    )
    longest_title = 256
    longest_description = _MAX_DESCRIPTION
    headers = _HEADERS
    page = (("per_page", "100"),)

    def __init__(self, project: str, base: str) -> None:
        """`project` is `owner/name`, `base` the address of the service: `https://api.github.com`, or `https://HOST/api`.

        Below the latter, REST is at `v3/` and GraphQL at `graphql`. Raises UsageError `usage_error`.
        """
        super().__init__(project, "/v3" if base.endswith("/api") else "")

    # The account of the bot, and the decision about reviews

    def viewer(self) -> WebRequest:
        """Build the GraphQL request for the token's account, because tokens of apps and jobs have no REST `user`.

        https://docs.github.com/en/graphql/reference/queries
        """
        return _graphql("query { viewer { login databaseId } }")

    def user(self) -> WebRequest:
        """Build the REST request for the account of a personal token, for hosts without GraphQL.

        https://docs.github.com/en/rest/users/users#get-the-authenticated-user
        """
        return WebRequest("GET", f"{self._start}/user", headers=_HEADERS)

    def review_decision(self, number: int) -> WebRequest:
        """Build the request for what the target branch's rules, including code owners, decide about a change request.

        https://docs.github.com/en/graphql/reference/enums#pullrequestreviewdecision
        """
        owner, _, name = self._project.partition("/")
        document = (
            "query($owner: String!, $name: String!, $number: Int!) "
            "{ repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewDecision } } }"
        )
        return _graphql(document, owner=owner, name=name, number=number)

    def merge_order(self, branch: str) -> WebRequest:
        """Build the request for the newest 100 open requests into a branch, with their places in the merge queue.

        https://docs.github.com/en/graphql/reference/objects#pullrequest
        """
        owner, _, name = self._project.partition("/")
        document = (
            "query($owner: String!, $name: String!, $branch: String!) { repository(owner: $owner, name: $name) "
            "{ pullRequests(baseRefName: $branch, states: [OPEN], first: 100, "
            "orderBy: { field: CREATED_AT, direction: DESC }) "
            "{ nodes { number reviewDecision mergeQueueEntry { position } } } } }"
        )
        return _graphql(document, owner=owner, name=name, branch=branch)

    # Requests

    def list_requests(
        self, state: port.RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Build the request for change requests. GitHub looks for `source` only among the branches of this repository."""
        kind = {None: "all", port.RequestState.OPEN: "open"}.get(state, "closed")
        query = [("state", kind), ("sort", "created"), ("direction", "asc")]
        if target is not None:
            query.append(("base", target))
        if source is not None:
            query.append(("head", f"{self._project.partition('/')[0]}:{source}"))
        return self._list("/pulls", *query)

    def requests_of(self, commit: str) -> WebRequest:
        """Build the request for the change requests that contain or merged a commit."""
        return self._list(f"/commits/{segment(commit)}/pulls", quiet=_NO_SUCH_COMMIT)

    def list_ended(self) -> WebRequest:
        """Build the request for closed change requests, last changed first."""
        return self._list("/pulls", ("state", "closed"), ("sort", "updated"), ("direction", "desc"))

    def activities(self, branch: str, project: str = "") -> WebRequest:
        """Build the request that lists a branch's activity in this repository or a fork, newest first. Takes a full ref name.

        https://docs.github.com/en/rest/repos/repos#list-repository-activities
        """
        path = f"{self._start}{repository_path(project or self._project)}/activity"
        return WebRequest("GET", path, (("ref", branch), *self.page), headers=_HEADERS, quiet=_NO_SUCH_COMMIT)

    def newest_activities(self) -> WebRequest:
        """Build the request for the newest moves of all branches, with the kind of each."""
        return self._list("/activity", quiet=_NO_SUCH_COMMIT)

    # Checks, deployments, issues

    def check(self, check: port.CommitCheck) -> tuple[WebRequest, tuple[Mapping[str, Any], ...]]:
        """Build the request that creates a check, and the outputs to add with `add_to_check`.

        A newer check replaces an older one with the same name. The conclusion is in the first request, so it counts even if
        the others fail.
        """
        found = [_annotation(annotation) for annotation in check.annotations[:_MAX_ANNOTATIONS]]
        summary, left_out = check.summary, len(check.annotations) - len(found)
        if left_out:
            summary = cut_markdown(summary, _MAX_SUMMARY - 100) + f"\n\n{left_out} more annotations are left out here."
        output = {"title": cut(check.title, _MAX_TITLE), "summary": cut_markdown(summary, _MAX_SUMMARY)}
        at_once = _ANNOTATIONS_A_REQUEST
        first, *others = (
            {**output, "annotations": found[start : start + at_once]} for start in range(0, len(found) or 1, at_once)
        )
        form: dict[str, Any] = {"name": check.name, "head_sha": check.commit, "output": first}
        if check.state is port.CheckState.PENDING:
            form |= {"status": "in_progress"}
        else:
            form |= {"status": "completed", "conclusion": _CONCLUSIONS[check.state]}
        return self._send("POST", "/check-runs", form, repeatable=True), tuple(others)

    def add_to_check(self, check: int, output: Mapping[str, Any]) -> WebRequest:
        """Build the request to add annotations to a check. GitHub appends them, so sending it twice duplicates them."""
        return self._send("PATCH", f"/check-runs/{check}", {"output": output}, repeatable=False)

    def deployments(self, deployment: port.Deployment) -> WebRequest:
        """Build the request for the bot's deployments of a commit to an environment, newest first."""
        query = (("sha", deployment.commit), ("environment", deployment.environment), ("task", _TASK))
        return self._list("/deployments", *query)

    def open_deployment(self, deployment: port.Deployment) -> WebRequest:
        """Build the request to create a deployment without merging branches or waiting for checks."""
        form = {
            "ref": deployment.commit,
            "task": _TASK,
            "auto_merge": False,
            "required_contexts": [],
            "environment": deployment.environment,
            "description": cut(deployment.description, _MAX_DESCRIPTION),
        }
        return self._send("POST", "/deployments", form)

    def set_deployment(self, identifier: int, deployment: port.Deployment) -> WebRequest:
        """Build the request to set a deployment's state. Success makes earlier ones in its environment inactive."""
        form: dict[str, Any] = {
            "state": _DEPLOYMENT_STATES[deployment.state],
            "description": cut(deployment.description, _MAX_DESCRIPTION),
            "auto_inactive": True,
        }
        if deployment.url:
            form["log_url"] = deployment.url
        return self._send("POST", f"/deployments/{identifier}/statuses", form, repeatable=True)

    def list_issues(self, author: port.Account) -> WebRequest:
        """Build the request for an author's open issues, oldest first."""
        return self._list("/issues", ("state", "open"), ("creator", author.login), ("direction", "asc"))

    def close_issue(self, number: int) -> WebRequest:
        """Build the request to close an issue as completed."""
        form = {"state": "closed", "state_reason": "completed"}
        return self._send("PATCH", f"/issues/{number}", form, quiet=GONE)

    # Permissions and rules

    def style_label(self, name: str, style: port.LabelStyle) -> WebRequest:
        """Build the request to change how a label looks: https://docs.github.com/en/rest/issues/labels#update-a-label."""
        form = {"color": style.colour, "description": style.text}
        return self._send("PATCH", f"/labels/{segment(name)}", form, quiet=GONE)

    def secrets(self) -> WebRequest:
        """Build the request for the names of secrets: https://docs.github.com/en/rest/actions/secrets."""
        return self._list("/actions/secrets")

    def environment(self, name: str) -> WebRequest:
        """Build the request for an environment: https://docs.github.com/en/rest/deployments/environments."""
        return self._get(f"/environments/{segment(name)}", quiet=GONE)

    def environment_branches(self, name: str) -> WebRequest:
        """Build the request for the patterns of branches and tags whose jobs can use an environment.

        https://docs.github.com/en/rest/deployments/branch-policies
        """
        return self._list(f"/environments/{segment(name)}/deployment-branch-policies")

    def rules(self, branch: str) -> WebRequest:
        """Build the request for all ruleset rules that are in force for a branch."""
        return self._list(f"/rules/branches/{segment(branch)}", quiet=_HIDDEN)

    def protection(self, branch: str) -> WebRequest:
        """Build the request for the older branch protection, which only administrators can read."""
        return self._get(f"/branches/{segment(branch)}/protection", quiet=_HIDDEN)

    # Answers

    @staticmethod
    def read_account(data: JsonObject, /) -> port.Account:
        """Read an account."""
        return port.Account(str(data.number("id")), data.text("login", 100), data.text_or("type") == "Bot")

    def read_viewer(self, answer: WebAnswer, /) -> port.Account:
        """Read the token's account. Raises RemoteError `forge_refused` if GraphQL refuses or the token has no account."""
        data = graphql_data(answer).part("viewer")
        login = data.text("login", 100)
        if not data.has("databaseId"):
            raise RemoteError(Code.FORGE_REFUSED, f"GitHub does not say which account {login} is")
        return port.Account(str(data.number("databaseId")), login, login.endswith("[bot]"))


def graphql_data(answer: WebAnswer) -> JsonObject:
    """Return the data of a response that has no errors.

    Raises RemoteError: `forge_unavailable` for a limit, otherwise `forge_refused`, with status 404 if the object does not
    exist. https://docs.github.com/en/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
    """
    data = answer_object(answer.body, "the answer")
    for error in data.parts("errors"):
        kind, message = error.text_or("type"), error.line("message", 300)
        if kind in _LIMITED:
            raise RemoteError(Code.FORGE_UNAVAILABLE, f"GitHub answers: {message}", retryable=True)
        status = _NOT_FOUND if kind == "NOT_FOUND" else None
        raise RemoteError(Code.FORGE_REFUSED, f"GitHub answers: {message}", status=status)
    return data.part("data")


def _graphql(document: str, **variables: Any) -> WebRequest:
    return WebRequest("POST", "/graphql", body={"query": document, "variables": variables}, headers=_HEADERS)


def _annotation(annotation: port.Annotation) -> dict[str, Any]:
    start = max(1, annotation.line)
    form: dict[str, Any] = {
        "path": annotation.path,
        "start_line": start,
        "end_line": max(start, annotation.end_line or start),
        "annotation_level": _LEVELS[annotation.severity],
        "message": cut(annotation.message, _MAX_MESSAGE) or "-",
    }
    if annotation.title:
        form["title"] = cut(annotation.title, _MAX_TITLE)
    return form


# Change requests on GitHub, either github.com or Enterprise: the parts that differ from other hosted forges.
#
# A plan takes six requests: the token's account, the list of open requests, a status, the list of comments, a comment
# and a check. If an approval opens a gate, the moves of its branch are also requested.
#
# The REST address of Enterprise is `https://HOST/api/v3`, its GraphQL address `https://HOST/api/graphql`: a sender for
# it has the base `https://HOST/api`, which `gitops.forge.client.forge_service` derives from the REST address.

_MOST_PUSHES = 3
_MOST_ACTIVITIES = 100
_MERGES = frozenset({"pr_merge", "merge_queue_merge"})
_INDEX_PAUSES_S = (2.0, 4.0, 8.0, 16.0, 16.0)
_COMMIT_PAUSES_S = (1.0, 3.0, 9.0)
_NO_COMMIT = "No commit found"
_UNPROCESSABLE = 422
_OK = 200
_NOT_PROTECTED = "Branch not protected"
_SWITCHES = ("allow_force_pushes", "allow_deletions")
_DECISIONS = {
    "APPROVED": port.ReviewDecision.APPROVED,
    "CHANGES_REQUESTED": port.ReviewDecision.CHANGES_REQUESTED,
    "REVIEW_REQUIRED": port.ReviewDecision.REQUIRED,
}


class GitHubForge(HostedForge):
    """Forge with every feature."""

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is `owner/name`. Raises UsageError `usage_error` for anything else."""
        self._api = GitHubDialect(project, sender.base)
        super().__init__(sender, self._api, clock)
        # The labels that were read last, so that labels which are already correct need no request.
        self._labels: dict[int, frozenset[str]] = {}

    def me(self) -> port.Account:
        """Return the account of the bot's token.

        Raises the errors of all forges, and GraphQL's refusal if REST also refuses.
        """
        try:
            return super().me()
        except RemoteError as error:
            # A GraphQL response has no error status, so its content decides.
            if error.code != Code.FORGE_REFUSED or error.status is None:
                raise
            with suppress(RemoteError):
                user = self._sender.send(self._api.user())
                self._me = self._api.read_account(answer_object(user.body, "the user"))
                return self._me
            raise

    def pushes(self, branch: str, project: str = "") -> Iterator[port.Push]:
        """Yield up to 300 moves of a branch, newest first. Yields none if the repository does not exist or is not visible."""
        for move in read_list(self._sender, self._api.activities(branch, project), most=_MOST_PUSHES):
            # Merges and all other moves count as pushes by the account that made them.
            actor = move.optional("actor")
            pusher = "" if actor is None else f"github:{self._api.read_account(actor).id}"
            yield port.Push(old=move.commit("before"), new=move.commit("after"), pusher=pusher)

    def merged_by(self, commits: Sequence[str]) -> port.MergedRequests:
        """Return the change requests that any of these commits merged.

        If GitHub lists a commit as a merge but without its request, the query is repeated for 45 seconds. After that,
        RemoteError `pushers_pending` is raised, because the account that merged is not the author.
        """
        for pause in (*_INDEX_PAUSES_S, None):
            found, left = self._find_merged(commits)
            if not left:
                return found
            # The commits that merged requests moved a branch to, as far as the newest page of GitHub's list shows them.
            moves = islice(self._list(self._api.newest_activities()), _MOST_ACTIVITIES)
            merges = {move.commit("after") for move in moves if move.text_or("activity_type") in _MERGES}
            pending = left & merges
            if not pending:
                return found
            if pause is not None:
                self._sender.wait(pause)
        detail = f"GitHub does not say yet which change request commit {min(pending)[:12]} merged"
        raise RemoteError(Code.PUSHERS_PENDING, detail, retryable=True)

    def set_status(self, status: port.CheckStatus) -> None:
        """Set the status of a commit in a context. GitHub can need some seconds to find the new head of a fork."""
        for pause in (*_COMMIT_PAUSES_S, None):
            try:
                return super().set_status(status)
            except RemoteError as error:
                if pause is None or error.status != _UNPROCESSABLE or _NO_COMMIT not in error.detail:
                    raise
            self._sender.wait(pause)
        raise AssertionError("the last attempt returns or raises")

    def files(self, number: int) -> tuple[str, ...]:
        """Return the sorted paths that a change request changes, including old names.

        Raises GitopsError `request_not_found`, RemoteError `forge_limit` if there are more than GitHub lists.
        """
        entries = list(self._list(self._api.list_files(number), about=number))
        if len(entries) >= MAX_FILES:
            detail = f"request {number} changes {MAX_FILES} files or more: GitHub lists no more"
            raise RemoteError(Code.FORGE_LIMIT, detail)
        return self._paths(entries)

    def review_decision(self, number: int) -> port.ReviewDecision:
        """Return what the target branch's rules, including code owners, decide. Raises GitopsError `request_not_found`."""
        try:
            data = graphql_data(self._sender.send(self._api.review_decision(number)))
        except RemoteError as error:
            if error.status == _NOT_FOUND:
                raise no_request(number) from error
            raise
        said = data.part("repository").part("pullRequest").text_or("reviewDecision")
        return _DECISIONS.get(said, port.ReviewDecision.UNKNOWN)

    def merge_order(self, branch: str) -> port.MergeOrder:
        """Return the merge queue of a branch (short name), and the requests whose reviews its rules call approved."""
        data = graphql_data(self._sender.send(self._api.merge_order(branch)))
        places: list[tuple[int, int]] = []
        approved = set()
        for row in data.part("repository").part("pullRequests").parts("nodes"):
            number, entry = row.number("number"), row.optional("mergeQueueEntry")
            if entry is not None:
                places.append((entry.number("position", least=0), number))
            if _DECISIONS.get(row.text_or("reviewDecision")) is port.ReviewDecision.APPROVED:
                approved.add(number)
        return port.MergeOrder(tuple(number for _, number in sorted(places)), frozenset(approved))

    def branch_rules(self, branch: str) -> port.BranchRules:
        """Return the ruleset rules for a branch (short name) and, if the token can read it, its older protection."""
        by_type: dict[str, list[JsonObject]] = {}
        for rule in self._list(self._api.rules(branch)):
            by_type.setdefault(rule.text("type"), []).append(rule)
        return branch_rules(by_type, self._sender.send(self._api.protection(branch)))

    def job_secrets(self) -> tuple[port.JobSecret, ...]:
        """Return the secrets of the repository, and as one the secrets of the environment `gitops`."""
        rows = self._list(self._api.secrets(), within="secrets")
        found = [port.JobSecret(row.text("name"), "the repository", _WRITERS) for row in rows]
        answer = self._sender.send(self._api.environment(_ENVIRONMENT))
        if answer.status != _NOT_FOUND:
            policy = answer_object(answer.body, "the environment").optional("deployment_branch_policy")
            names: list[str] = []
            if policy is None:
                names = ["*"]
            elif policy.flag("custom_branch_policies"):
                listed = self._list(self._api.environment_branches(_ENVIRONMENT), within="branch_policies")
                names = [row.text("name") for row in listed]
            # A person can push a branch or a tag that fits a pattern, whatever protects the target branch.
            open_to = _WRITERS if any(map(_PATTERN.search, names)) else ""
            found.append(port.JobSecret("all secrets", f"the environment {_ENVIRONMENT}", open_to))
        return tuple(found)

    def set_check(self, check: port.CommitCheck) -> None:
        """Write the check of a commit with this name; the newest counts. Only app and job tokens are allowed to do this."""
        first, others = self._api.check(check)
        answer = self._sender.send(first)
        identifier = answer_object(answer.body, "the check").number("id")
        for output in others:
            self._sender.send(self._api.add_to_check(identifier, output))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add and remove labels of a change request. Sends requests only for differences from the last known labels."""
        if number not in self._labels:
            entries = self._list(self._api.labels(number), about=number)
            self._labels[number] = frozenset(label.text("name") for label in entries)
        # GitHub ignores the case of labels.
        has = {label.lower() for label in self._labels[number]}
        missing = [label for label in dict.fromkeys(add) if label.lower() not in has]
        extra = [label for label in dict.fromkeys(remove) if label.lower() in has]
        # After the first of these requests, the labels read before are outdated, even if one of the others fails.
        self._labels.pop(number)
        # Remove outdated labels first, because a token that cannot create labels can still remove them.
        for label in extra:
            self._sender.send(self._api.remove_label(number, label))
        if missing:
            answer = self._sender.send(self._api.add_labels(number, missing))
            if not port.LABELS.keys().isdisjoint(missing):
                self._colour(missing, answer_object({"labels": answer.body}).parts("labels"))
        self._labels[number] = frozenset((has | {m.lower() for m in missing}) - {e.lower() for e in extra})

    def _colour(self, added: Collection[str], labels: Iterable[JsonObject]) -> None:
        """Give added labels of the bot their colours if they have the colour of labels that GitHub created itself."""
        for label in labels:
            name = label.text("name")
            if name in added and name in port.LABELS and label.text("color") == _UNCOLOURED:
                # It works without colours too, and a token that cannot edit labels can still set them.
                with suppress(RemoteError):
                    self._sender.send(self._api.style_label(name, port.LABELS[name]))

    def record_deployment(self, deployment: port.Deployment) -> None:
        """Record the state of a deployment. The bot has a single deployment per commit and environment."""

        def find() -> int | None:
            me = self.me().id
            for found in self._list(self._api.deployments(deployment)):
                creator = found.optional("creator")
                if creator is not None and self._api.read_account(creator).id == me:
                    return found.number("id")
            return None

        def read(answer: WebAnswer) -> int:
            return answer_object(answer.body, "the deployment").number("id")

        identifier = find() or self._create(self._api.open_deployment(deployment), find, read)
        self._sender.send(self._api.set_deployment(identifier, deployment))

    def _read_request(self, found: JsonObject) -> port.ChangeRequest:
        request = self._api.read_request(found)
        self._labels[request.number] = frozenset(request.labels)
        return request


def branch_rules(by_type: Mapping[str, Sequence[JsonObject]], protection: WebAnswer) -> port.BranchRules:
    """Combine the ruleset rules, given by type, with the older protection.

    The older protection is unknown if the token cannot read it.
    https://docs.github.com/en/rest/repos/rules#get-rules-for-a-branch
    https://docs.github.com/en/rest/branches/branch-protection#get-branch-protection
    """
    checks = {
        check.text("context")
        for rule in by_type.get("required_status_checks", ())
        for check in rule.part("parameters").parts("required_status_checks")
    }
    old = _older_rules(protection)
    return port.BranchRules(
        protected=True if by_type else old.protected,
        request_needed=True if "pull_request" in by_type else old.request_needed,
        force_push=False if "non_fast_forward" in by_type else old.force_push,
        deletion=False if "deletion" in by_type else old.deletion,
        required_checks=tuple(sorted(checks.union(old.required_checks or ()))) if checks else old.required_checks,
        # A ruleset that restricts updates lists no accounts. Those who can bypass it can push, and only administrators
        # see them.
        pushers=() if "update" in by_type else old.pushers,
        # The older protection does not support queues.
        queue="merge_queue" in by_type or None,
        notes=old.notes,
    )


def _older_rules(answer: WebAnswer) -> port.BranchRules:
    """Return the rules that the older protection enforces."""
    data = answer_object(answer.body, "the protection") if isinstance(answer.body, dict) else None
    if data is not None and answer.status == _NOT_FOUND and data.text_or("message") == _NOT_PROTECTED:
        return port.UNPROTECTED
    if data is None or answer.status != _OK:
        return port.BranchRules(notes=("branch protection cannot be read with this token; rules of rulesets can",))
    enabled = {name: data.has(name) and data.part(name).flag("enabled") for name in _SWITCHES}
    checks, restricted = data.optional("required_status_checks"), data.optional("restrictions")
    contexts = [] if checks is None else [text for text in checks.values("contexts") if isinstance(text, str)]
    pushers = None
    if restricted is not None:
        users = [user.text("login", 100) for user in restricted.parts("users")]
        groups = [group.text("slug") for kind in ("teams", "apps") for group in restricted.parts(kind)]
        pushers = tuple(sorted([*users, *groups]))
    return port.BranchRules(
        protected=True,
        request_needed=data.has("required_pull_request_reviews"),
        force_push=enabled["allow_force_pushes"],
        deletion=enabled["allow_deletions"],
        required_checks=tuple(sorted(set(contexts))),
        pushers=pushers,
    )


# Decodes webhooks of GitHub, and event files of its jobs, to neutral events. Pure functions of bytes.
#
# The rules are those of `gitops.forge.actions`.
# https://docs.github.com/en/webhooks/webhook-events-and-payloads

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")


def check_signature(headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Return True if `X-Hub-Signature-256` is the HMAC of the raw body. An empty secret is never valid.

    The older `X-Hub-Signature`, which uses SHA-1, is ignored.
    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    found = _SIGNATURE.fullmatch(headers.get("x-hub-signature-256", ""))
    expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return found is not None and bool(secret) and hmac.compare_digest(found[1], expected)


def decode(headers: Mapping[str, str], body: bytes) -> Delivery:
    """Decode a webhook. Its id is the delivery's id, which repeated deliveries share.

    Raises GitopsError `event_invalid`.
    """
    kind, delivery = headers.get("x-github-event", ""), headers.get("x-github-delivery", "")
    return actions.decode_webhook(kind, delivery, headers, body, _READERS)


def decode_file(environ: Mapping[str, str], body: bytes) -> Delivery:
    """Decode the event file of a job, given its variables `environ`. Raises GitopsError `event_invalid`."""
    return actions.decode_job(environ, body, _READERS)


def _issue_comment(data: JsonObject) -> Event:
    body = data.part("comment").text_or("body", most=actions.MAX_BODY)
    return actions.comment_event(
        data, GitHubDialect.read_account, body, on_request=data.part("issue").has("pull_request")
    )


def _review(data: JsonObject) -> Event:
    if data.text("action", 100) not in ("submitted", "edited", "dismissed"):
        return actions.ignored_event("pull_request_review", data)
    return ReviewEvent(data.part("pull_request").number("number"))


def _merge_group(data: JsonObject) -> Event:
    if data.text("action", 100) != "checks_requested":
        return actions.ignored_event("merge_group", data)
    group = data.part("merge_group")
    target = actions.ref_of(group, "base_ref")
    return QueueEvent(head=group.commit("head_sha"), base=group.commit("base_sha"), target=target)


_request_event = partial(actions.request_event, target_field="base")
_READERS: actions.Readers = {
    "pull_request": _request_event,
    "pull_request_target": _request_event,
    "issue_comment": _issue_comment,
    "pull_request_review": _review,
    "push": partial(actions.push_event, forge="github", account=GitHubDialect.read_account, pusher="sender"),
    "merge_group": _merge_group,
    # The event was dispatched through the API, so its payload comes from someone with a write token.
    "repository_dispatch": partial(actions.manual_event, field="client_payload"),
    **actions.JOB_READERS,
}
