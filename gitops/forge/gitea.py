"""Change requests on Gitea and Forgejo: requests, responses, and features that only these forges have.

Gitea evaluates reviews when it merges and does not report the result before, and its feeds lack the commit ids that would
reveal a missing push. Both are reported as unknown.

https://docs.gitea.com/api/ and https://forgejo.org/docs/latest/user/api-usage/
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.forge import actions
from gitops.forge.dialect import GONE, HEADS
from gitops.forge.events import Delivery, Event, ReviewEvent
from gitops.forge.hosted import HostedForge
from gitops.forge.port import (
    LABELS,
    UNPROTECTED,
    Account,
    BranchRules,
    Comment,
    Features,
    JobSecret,
    LabelStyle,
    Permission,
    RequestState,
)
from gitops.forge.pulls_api import PullsDialect, segment
from gitops.forge.text import cut
from gitops.forge.web import JsonObject, WebAnswer, WebRequest, WebSender, answer_object

_OK = 200
_FORBIDDEN = 403
_NOT_FOUND = 404
_BROKEN = 500
_UNKNOWN_LABEL = 422
# An instance can return fewer entries than this (`MAX_RESPONSE_ITEMS`).
_PAGE = 50
_API = "/api/v1"
_HIDDEN = frozenset({403, 404})
_MAX_LABEL = 50
_GREY = "6e7781"
_LARGEST = 10**18
_WILD = {"**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}
"""Parts of a protection rule's pattern, as regular expressions."""


class GiteaDialect(PullsDialect):
    """Dialect of a repository on Gitea or Forgejo. It has no checks, deployments, review decisions or merge queues."""

    forge = "gitea"
    features = Features(reviews=True, labels=True, reactions=True, issues=True, permissions=True, branch_rules=True)
    roles: ClassVar[Mapping[str, Permission]] = {**PullsDialect.roles, "owner": Permission.ADMIN}
    null_is_empty = True
    page = (("page", "1"), ("limit", str(_PAGE)))

    def __init__(self, project: str, base: str) -> None:
        """`project` is `owner/name`. `base` is `https://HOST`, with an optional path and an optional `/api/v1` at the end.

        Raises UsageError `usage_error`.
        """
        super().__init__(project, "" if base.endswith(_API) else _API)
        self.owner = project.partition("/")[0].casefold()

    def next_page(self, base: str, request: WebRequest, answer: WebAnswer, read: int) -> WebRequest | None:  # noqa: ARG002
        """Build the request for the next page by number, until a page is empty or the forge's total is reached.

        An instance may return shorter pages than requested, so a short page is not necessarily the last one.
        """
        query = dict(request.query)
        rows = answer.body["statuses"] if isinstance(answer.body, dict) else answer.body
        total = answer.headers.get("x-total-count", "")
        if "page" not in query or not rows or (total.isdecimal() and read >= int(total)):
            return None
        return replace(request, query=tuple({**query, "page": str(int(query["page"]) + 1)}.items()))

    def fit_title(self, title: str) -> str:
        """Return a title that Gitea does not cut: it counts characters beyond Latin-1, such as the ellipsis, as two of its 255.

        Some of them count as one, so a title can be shorter than Gitea permits.
        """
        fitting = super().fit_title(title)
        while (excess := sum(1 + (sign > "ÿ") for sign in fitting) - self.longest_title) > 0:
            fitting = cut(title, len(fitting) - max(1, excess // 2))
        return fitting

    # Requests

    def viewer(self) -> WebRequest:
        """Build the request for the token's account."""
        return WebRequest("GET", f"{self._start}/user")

    def list_requests(
        self, state: RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Build the request for change requests. Gitea ignores `source`, and older releases also ignore `target`."""
        del source
        kind = {None: "all", RequestState.OPEN: "open"}.get(state, "closed")
        query = [("state", kind), ("sort", "oldest")]
        if target is not None:
            query.append(("base_branch", target))
        return self._list("/pulls", *query)

    def requests_of(self, commit: str) -> WebRequest:
        """Build the request for the change request that merged a commit into the target branch."""
        return self._get(f"/commits/{segment(commit)}/pull", quiet=GONE)

    def list_ended(self) -> WebRequest:
        """Build the request for closed change requests, last changed first."""
        return self._list("/pulls", ("state", "closed"), ("sort", "recentupdate"))

    def list_ended_numbers(self) -> WebRequest:
        """Build the request for closed change requests as issues. If a fork was deleted, releases of spring 2025 list none.

        https://github.com/go-gitea/gitea/issues/34682
        """
        return self._list("/issues", ("state", "closed"), ("type", "pulls"))

    def list_comments(self, number: int) -> WebRequest:
        """Build the request for all comments on a change request or an issue, which are returned on one page."""
        return self._get(f"/issues/{number}/comments", quiet=GONE)

    def labels(self, number: int) -> WebRequest:
        """Build the request for the labels of a change request, which are returned on one page."""
        return self._get(f"/issues/{number}/labels", quiet=GONE)

    def remove_label(self, number: int, label: str | int) -> WebRequest:
        """Build the request to remove a label, which may not exist (422)."""
        request = super().remove_label(number, label)
        return replace(request, quiet=request.quiet | {_UNKNOWN_LABEL})

    def all_labels(self) -> WebRequest:
        """Build the request for the labels of the repository."""
        return self._list("/labels")

    def make_label(self, name: str) -> WebRequest:
        """Build the request to create a label. Raises UsageError `usage_error` if the name is too long for Gitea."""
        if not 0 < len(name) <= _MAX_LABEL:
            detail = f"{name[:80]!r} cannot be a label: Gitea accepts 1 to {_MAX_LABEL} characters"
            raise UsageError(Code.USAGE_ERROR, detail)
        style = LABELS.get(name, LabelStyle(_GREY, ""))
        return self._send("POST", "/labels", {"name": name, "color": f"#{style.colour}", "description": style.text})

    def style_label(self, identifier: int, style: LabelStyle) -> WebRequest:
        """Build the request to change how a label looks."""
        form = {"color": f"#{style.colour}", "description": style.text}
        return self._send("PATCH", f"/labels/{identifier}", form, quiet=GONE)

    def secrets(self) -> WebRequest:
        """Build the request for the names of the repository's secrets, which its administrators can see."""
        return self._list("/actions/secrets")

    def branch(self, name: str) -> WebRequest:
        """Build the request for a branch, with the part of its rules that every token can see."""
        return self._get(f"/branches/{segment(name)}", quiet=GONE)

    def list_protections(self) -> WebRequest:
        """Build the request for all protection rules, in the order in which they are tried. They come on one page.

        Only tokens of repository administrators can read them.
        """
        return self._get("/branch_protections", quiet=_HIDDEN)

    def list_assignees(self) -> WebRequest:
        """Build the request for the accounts that issues can be assigned to, which come on one page."""
        return self._get("/assignees")

    def list_issues(self, author: Account) -> WebRequest:
        """Build the request for an author's open issues."""
        return self._list("/issues", ("state", "open"), ("type", "issues"), ("created_by", author.login))

    # Answers

    @staticmethod
    def read_account(data: JsonObject, /) -> Account:
        """Read an account. The forge's own accounts have negative numbers: the bot of its jobs, and deleted accounts.

        https://docs.gitea.com/usage/actions/comparison
        """
        # Accounts of people have positive numbers. The second check refuses 0.
        number = data.number("id", least=-_LARGEST) or data.number("id")
        return Account(str(number), data.text("login", 100), number < 0)

    def read_viewer(self, answer: WebAnswer, /) -> Account:
        """Read the token's account. Gitea marks only its own accounts as bots, but this account is always a bot."""
        return replace(super().read_viewer(answer), bot=True)

    def _source(self, head: JsonObject) -> str:
        """Return the branch of a request.

        After the branch is deleted, only its label contains the name. A push to `refs/for` has no branch.
        """
        ref = head.text("ref")
        label = head.text_or("label") if ref.startswith("refs/") else ref
        return HEADS + label if label else ref


class GiteaForge(HostedForge):
    """Forge without checks, deployments, review decisions, merge queues and push lists."""

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is `owner/name`. Raises UsageError `usage_error` for anything else."""
        self._api = GiteaDialect(project, sender.base)
        super().__init__(sender, self._api, clock)

    def permission(self, account: Account) -> Permission:
        """Return an account's current permission. A token without the rights of an administrator cannot tell WRITE from ADMIN.

        It cannot read the permissions of others, but who can be assigned. In a repository of an account, these are the
        accounts with write access, and the owner is one of them. In a repository of an organization, accounts that may
        only read are among them, so RemoteError `forge_refused` is raised.
        """
        try:
            return super().permission(account)
        except RemoteError as error:
            if error.status != _FORBIDDEN:
                raise
            writers = [self._api.read_account(row) for row in self._list(self._api.list_assignees())]
            if self._api.owner not in (writer.login.casefold() for writer in writers):
                detail = "the token cannot read the permissions in a repository of an organization"
                fix = "make the bot's account an administrator of the repository"
                raise RemoteError(Code.FORGE_REFUSED, detail, fix=fix, status=error.status) from error
            return Permission.WRITE if account.id in (writer.id for writer in writers) else Permission.NONE

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on a request, oldest first. Raises GitopsError `request_not_found`.

        For a request that was deleted, Gitea 1.26 fails to list them (500), so a failure is followed by a look at the request.
        """
        try:
            return super().comments(number)
        except RemoteError as error:
            if error.status == _BROKEN:
                self.request(number)
            raise

    def branch_rules(self, branch: str) -> BranchRules:
        """Return the rules for a branch (short name), which does not have to exist, as far as the token can see them.

        https://docs.gitea.com/usage/access-control/protected-branches
        """
        answer = self._sender.send(self._api.list_protections())
        if answer.status != _OK:
            return self._visible_rules(branch)
        rows = [answer_object(row, "a rule") for row in answer.body or ()]
        rule = next((row for row in rows if _matches(row.text("rule_name"), branch)), None)
        if rule is None:
            return replace(UNPROTECTED, queue=False)
        pushing, exempt = rule.flag("enable_push"), rule.text_or("unprotected_file_patterns")
        listed = pushing and rule.flag("enable_push_whitelist")
        names = [*rule.values("push_whitelist_usernames"), *rule.values("push_whitelist_teams")]
        keys = ["deploy keys"] if rule.flag("push_whitelist_deploy_keys") else []
        return replace(
            _protected(rule),
            request_needed=not pushing,
            force_push=rule.flag("enable_force_push"),
            pushers=_sorted_texts([*names, *keys]) if listed else None,
            notes=(f"files that are exempt: {exempt}",) if exempt else (),
        )

    def _visible_rules(self, branch: str) -> BranchRules:
        """Return the part of the rules that every token can see, which only an existing branch has."""
        answer = self._sender.send(self._api.branch(branch))
        note = "this token cannot read the rules of branches: it has to administer the repository"
        if answer.status == _NOT_FOUND:
            return BranchRules(notes=(note,))
        data = answer_object(answer.body, "the branch")
        return replace(_protected(data), notes=(note,)) if data.flag("protected") else replace(UNPROTECTED, queue=False)

    def job_secrets(self) -> tuple[JobSecret, ...]:
        """Return the secrets of the repository. All workflows of all branches get them."""
        rows = self._list(self._api.secrets())
        return tuple(JobSecret(row.text("name"), "the repository", "everyone with write access") for row in rows)

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a change request and remove labels. Creates labels that the repository lacks.

        Raises GitopsError `request_not_found`, UsageError `usage_error` for a name that is too long for Gitea.
        """
        if not add and not remove:
            return
        has = _numbers(self._list(self._api.labels(number), about=number))
        # Remove outdated labels first, because a token that cannot create labels can still remove them.
        for label in dict.fromkeys(remove):
            if label in has and label not in add:
                self._sender.send(self._api.remove_label(number, has[label]))
        missing = [label for label in dict.fromkeys(add) if label not in has]
        if missing:
            there = tuple(self._list(self._api.all_labels()))
            known = _numbers(there)
            colours = {label.text("name"): label.text("color").removeprefix("#") for label in there}
            for label in missing:
                if label not in known:
                    created = self._sender.send(self._api.make_label(label))
                    known[label] = answer_object(created.body, "the label").number("id")
                elif label in LABELS and colours[label] == _GREY:
                    # An earlier release created it.
                    self._sender.send(self._api.style_label(known[label], LABELS[label]))
            self._sender.send(self._api.add_labels(number, [known[label] for label in missing]))

    def _requests_of(self, commit: str) -> Iterator[JsonObject]:
        """Yield the request that merged a commit. For a rebased request, Gitea returns it only for the last commit."""
        answer = self._sender.send(self._api.requests_of(commit))
        if answer.status != _NOT_FOUND:
            yield answer_object(answer.body, "the request")


def _numbers(labels: Iterable[JsonObject]) -> dict[str, int]:
    return {label.text("name"): label.number("id") for label in labels}


def _protected(data: JsonObject) -> BranchRules:
    """Return the rules that a branch and a protection rule both have. A protected branch is never deleted."""
    checks = data.values("status_check_contexts") if data.flag("enable_status_check") else []
    return BranchRules(protected=True, deletion=False, required_checks=_sorted_texts(checks), queue=False)


def _matches(rule: str, branch: str) -> bool:
    """Return whether a rule applies to a branch: by its name in any case, or by a pattern in which `*` stops at slashes."""
    if not re.search(r"[*?\\\[\]{}]", rule):
        return rule.casefold() == branch.casefold()
    pattern, depth = "", 0
    for word in re.findall(r"\*\*|\[[^]]*\]|\\.|.", rule, re.DOTALL):
        depth += (word == "{") - (word == "}")
        if word in _WILD:
            pattern += _WILD[word]
        elif word == "," and depth:
            pattern += "|"
        else:
            pattern += word.replace("[!", "[^", 1) if len(word) > 1 else re.escape(word)
    try:
        return re.fullmatch(pattern, branch, re.DOTALL) is not None
    except re.error:
        return rule == branch


def _sorted_texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(sorted(value for value in values if isinstance(value, str)))


# Decodes webhooks of Gitea and Forgejo, and event files of their jobs, to neutral events. Pure functions of bytes.
#
# The rules are those of `gitops.forge.actions`. Webhooks and jobs use different names for the same event; the body
# determines the meaning. https://docs.gitea.com/usage/repository/webhooks
# https://forgejo.org/docs/latest/user/webhooks/ https://docs.gitea.com/usage/actions/comparison

_HMAC = re.compile(r"[0-9a-f]{64}")
_PREFIXED = "sha256="
_SIGNATURES = ("x-gitea-signature", "x-forgejo-signature")


def check_signature(headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Return True if a webhook has SHA-256 signatures and all of them are the HMAC of the raw body.

    They are `X-Gitea-Signature`, `X-Forgejo-Signature` and `X-Hub-Signature-256`. An empty secret is never valid.
    https://docs.gitea.com/usage/repository/webhooks#authorization-header
    """
    found = [headers[name] for name in _SIGNATURES if name in headers]
    hub = headers.get("x-hub-signature-256")
    if hub is not None:
        found.append(hub.removeprefix(_PREFIXED) if hub.startswith(_PREFIXED) else "")
    expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
    good = [bool(_HMAC.fullmatch(text)) and hmac.compare_digest(text, expected) for text in found]
    return bool(secret) and bool(good) and all(good)


def decode(headers: Mapping[str, str], body: bytes) -> Delivery:
    """Decode a webhook. Its id is the delivery's id, which repeated deliveries share.

    Raises GitopsError `event_invalid`.
    """
    # Forgejo sends Gitea's headers as well as its own.
    kind, delivery = (
        headers.get(f"x-forgejo-{name}") or headers.get(f"x-gitea-{name}", "") for name in ("event", "delivery")
    )
    return actions.decode_webhook(kind, delivery, headers, body, _READERS)


def decode_file(environ: Mapping[str, str], body: bytes) -> Delivery:
    """Decode the event file of a job, given its variables `environ`. Raises GitopsError `event_invalid`."""
    return actions.decode_job(environ, body, _READERS)


def _pull_request(data: JsonObject) -> Event:
    if data.text("action", 100) == "reviewed":
        return _review(data)
    return actions.request_event(data, "ref")


def _comment(data: JsonObject) -> Event:
    """Return a comment. A review that only comments also has the name `pull_request_comment`."""
    if data.has("review"):
        return _review(data)
    # Gitea does not document a limit; a command is at the start.
    body = data.part("comment").text_or("body", most=actions.MAX_EVENT)[: actions.MAX_BODY]
    on_request = data.flag("is_pull") or data.part("issue").has("pull_request")
    return actions.comment_event(data, GiteaDialect.read_account, body, on_request=on_request)


def _review(data: JsonObject) -> Event:
    return ReviewEvent(data.part("pull_request").number("number"))


_READERS: actions.Readers = {
    "pull_request": _pull_request,
    "pull_request_target": _pull_request,
    "pull_request_sync": _pull_request,
    "issue_comment": _comment,
    "pull_request_comment": _comment,
    "pull_request_approved": _review,
    "pull_request_rejected": _review,
    "pull_request_review": _review,
    "pull_request_review_approved": _review,
    "pull_request_review_rejected": _review,
    "pull_request_review_comment": _review,
    "push": partial(actions.push_event, forge="gitea", account=GiteaDialect.read_account, pusher="pusher"),
    **actions.JOB_READERS,
}
