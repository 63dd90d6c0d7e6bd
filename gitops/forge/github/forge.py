"""Change requests on GitHub, github.com or Enterprise: what only GitHub has, over what is common to hosted forges.

A plan needs whose token it is, the list of open requests, a status, the list of comments, a comment and a check, six requests in
all; and the moves of its branch where an approval opens a gate.

The REST address of Enterprise is `https://HOST/api/v3`, its GraphQL address `https://HOST/api/graphql`: a sender for it has the
base `https://HOST/api`, which `gitops.forge.client.forge_service` makes of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.forge.github.requests import MAX_FILES, GitHubDialect, graphql_data
from gitops.forge.hosted import HostedForge, no_request
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import (
    UNPROTECTED,
    Account,
    BranchRules,
    ChangeRequest,
    CheckStatus,
    CommitCheck,
    Deployment,
    MergedRequests,
    Push,
    ReviewDecision,
)
from gitops.forge.web import WebAnswer, WebSender, read_list

__all__ = ["GitHubForge"]

_MOST_PUSHES = 3
_MOST_ACTIVITIES = 100
_MERGES = frozenset({"pr_merge", "merge_queue_merge"})
_INDEX_PAUSES_S = (2.0, 4.0, 8.0, 16.0, 16.0)
_COMMIT_PAUSES_S = (1.0, 3.0, 9.0)
_NO_COMMIT = "No commit found"
_UNPROCESSABLE = 422
_OK = 200
_NOT_FOUND = 404
_NOT_PROTECTED = "Branch not protected"
_SWITCHES = ("allow_force_pushes", "allow_deletions")
_DECISIONS = {
    "APPROVED": ReviewDecision.APPROVED,
    "CHANGES_REQUESTED": ReviewDecision.CHANGES_REQUESTED,
    "REVIEW_REQUIRED": ReviewDecision.REQUIRED,
}


class GitHubForge(HostedForge):
    """Implements Forge with every feature."""

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is `owner/name`. Raises UsageError `usage_error` for anything else."""
        self._api = GitHubDialect(project, sender.base)
        super().__init__(sender, self._api, clock)
        # Labels as they were last read, so that labels that are right already cost no request.
        self._labels: dict[int, frozenset[str]] = {}

    def me(self) -> Account:
        """The account of the bot's token. Raises as every forge does; a refusal of GraphQL if REST refuses to say it as well."""
        try:
            return super().me()
        except RemoteError as error:
            # An answer of GraphQL has no status of a failure: it is offered, and what it says counts.
            if error.code != Code.FORGE_REFUSED or error.status is None:
                raise
            with suppress(RemoteError):
                user = self._sender.send(self._api.user())
                self._me = self._api.read_account(answer_object(user.body, "the user"))
                return self._me
            raise

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:
        """The moves of a branch, newest first, at most 300; none of a repository that does not exist or cannot be seen."""
        for move in read_list(self._sender, self._api.activities(branch, project), most=_MOST_PUSHES):
            # A merge, and any other move, is a push by the account that did it.
            actor = move.optional("actor")
            pusher = "" if actor is None else f"github:{self._api.read_account(actor).id}"
            yield Push(old=move.commit("before"), new=move.commit("after"), pusher=pusher)

    def merged_by(self, commits: Sequence[str]) -> MergedRequests:
        """The requests that any of these commits brought in.

        A commit that GitHub lists as a merge, without saying of which request, is asked for again for three quarters of a minute.
        Raises RemoteError `pushers_pending` after that: the account that merged is not the author.
        """
        for pause in (*_INDEX_PAUSES_S, None):
            found, left = self._find_merged(commits)
            pending = left.intersection(self._newest_merges()) if left else left
            if not pending:
                return found
            if pause is not None:
                self._sender.wait(pause)
        detail = f"GitHub does not say yet which change request commit {min(pending)[:12]} merged"
        raise RemoteError(Code.PUSHERS_PENDING, detail, retryable=True)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context; GitHub does not know a new head of a fork for some seconds."""
        for pause in (*_COMMIT_PAUSES_S, None):
            try:
                return super().set_status(status)
            except RemoteError as error:
                if pause is None or error.status != _UNPROCESSABLE or _NO_COMMIT not in error.detail:
                    raise
            self._sender.wait(pause)
        raise AssertionError("the last attempt returns or raises")

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names included.

        Raises GitopsError `request_not_found`, RemoteError `forge_limit` for as many as GitHub does not list.
        """
        entries = list(self._list(self._api.list_files(number), about=number))
        if len(entries) >= MAX_FILES:
            detail = f"request {number} changes {MAX_FILES} files or more: GitHub lists no more"
            raise RemoteError(Code.FORGE_LIMIT, detail)
        return self._paths(entries)

    def review_decision(self, number: int) -> ReviewDecision:
        """What the rules of the target branch decide, code owners included. Raises GitopsError `request_not_found`."""
        try:
            data = graphql_data(self._sender.send(self._api.review_decision(number)))
        except RemoteError as error:
            if error.status == _NOT_FOUND:
                raise no_request(number) from error
            raise
        said = data.part("repository").part("pullRequest").text_or("reviewDecision")
        return _DECISIONS.get(said, ReviewDecision.UNKNOWN)

    def branch_rules(self, branch: str) -> BranchRules:
        """What rulesets enforce on a branch (short name), and its older protection as far as the token may see it."""
        by_type: dict[str, list[JsonObject]] = {}
        for rule in self._list(self._api.rules(branch)):
            by_type.setdefault(rule.text("type"), []).append(rule)
        return branch_rules(by_type, self._sender.send(self._api.protection(branch)))

    def set_check(self, check: CommitCheck) -> None:
        """Write the check of a commit with this name; the newest of a name counts. Only tokens of apps and jobs may."""
        first, others = self._api.check(check)
        answer = self._sender.send(first)
        identifier = answer_object(answer.body, "the check").number("id")
        for output in others:
            self._sender.send(self._api.add_to_check(identifier, output))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels. Only a difference to what was last read costs a request."""
        if number not in self._labels:
            entries = self._list(self._api.labels(number), about=number)
            self._labels[number] = frozenset(label.text("name") for label in entries)
        # GitHub does not distinguish capitals and small letters in labels.
        has = {label.lower() for label in self._labels[number]}
        missing = [label for label in dict.fromkeys(add) if label.lower() not in has]
        extra = [label for label in dict.fromkeys(remove) if label.lower() in has]
        # What was read is out of date from the first of these requests on, also if one of the others fails.
        self._labels.pop(number)
        # First what is wrong now: a token that may not create labels may remove them.
        for label in extra:
            self._sender.send(self._api.remove_label(number, label))
        if missing:
            self._sender.send(self._api.add_labels(number, missing))
        self._labels[number] = frozenset((has | {m.lower() for m in missing}) - {e.lower() for e in extra})

    def record_deployment(self, deployment: Deployment) -> None:
        """Record the state of a deployment, in the bot's one deployment of that commit to that environment."""

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

    def _newest_merges(self) -> frozenset[str]:
        """The commits to which merges of requests moved a branch, as far as the newest page of GitHub's list goes."""
        moves = islice(self._list(self._api.newest_activities()), _MOST_ACTIVITIES)
        return frozenset(move.commit("after") for move in moves if move.text_or("activity_type") in _MERGES)

    def _read_request(self, found: JsonObject) -> ChangeRequest:
        request = self._api.read_request(found)
        self._labels[request.number] = frozenset(request.labels)
        return request


def branch_rules(by_type: Mapping[str, Sequence[JsonObject]], protection: WebAnswer) -> BranchRules:
    """What rulesets, as rules by their type, and the older protection enforce together.

    The older protection is unknown where the token may not read it.
    https://docs.github.com/en/rest/repos/rules#get-rules-for-a-branch
    https://docs.github.com/en/rest/branches/branch-protection#get-branch-protection
    """
    checks = {
        check.text("context")
        for rule in by_type.get("required_status_checks", ())
        for check in rule.part("parameters").parts("required_status_checks")
    }
    old = _older_rules(protection)
    return BranchRules(
        protected=True if by_type else old.protected,
        request_needed=True if "pull_request" in by_type else old.request_needed,
        force_push=False if "non_fast_forward" in by_type else old.force_push,
        deletion=False if "deletion" in by_type else old.deletion,
        required_checks=tuple(sorted(checks.union(old.required_checks or ()))) if checks else old.required_checks,
        # A ruleset that restricts updates names no accounts: those who bypass it push, and only administrators see them.
        pushers=() if "update" in by_type else old.pushers,
        # The older protection has no queue.
        queue="merge_queue" in by_type or None,
        notes=old.notes,
    )


def _older_rules(answer: WebAnswer) -> BranchRules:
    """What the older protection enforces."""
    data = answer_object(answer.body, "the protection") if isinstance(answer.body, dict) else None
    if data is not None and answer.status == _NOT_FOUND and data.text_or("message") == _NOT_PROTECTED:
        return UNPROTECTED
    if data is None or answer.status != _OK:
        return BranchRules(notes=("branch protection cannot be read with this token; rules of rulesets can",))
    enabled = {name: data.has(name) and data.part(name).flag("enabled") for name in _SWITCHES}
    checks, restricted = data.optional("required_status_checks"), data.optional("restrictions")
    contexts = [] if checks is None else [text for text in checks.values("contexts") if isinstance(text, str)]
    pushers = None
    if restricted is not None:
        users = [user.text("login", 100) for user in restricted.parts("users")]
        groups = [group.text("slug") for kind in ("teams", "apps") for group in restricted.parts(kind)]
        pushers = tuple(sorted([*users, *groups]))
    return BranchRules(
        protected=True,
        request_needed=data.has("required_pull_request_reviews"),
        force_push=enabled["allow_force_pushes"],
        deletion=enabled["allow_deletions"],
        required_checks=tuple(sorted(set(contexts))),
        pushers=pushers,
    )
