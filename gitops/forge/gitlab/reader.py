"""What the bot reads of a project on GitLab, on gitlab.com or self-managed (`https://HOST/api/v4`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge import paging
from gitops.forge.gitlab import answers
from gitops.forge.gitlab.answers import Note
from gitops.forge.gitlab.requests import GitLabCalls, next_page
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckStatus,
    Comment,
    Features,
    Permission,
    Push,
    RequestState,
    Review,
    ReviewVerdict,
)
from gitops.forge.refs.records import not_found
from gitops.forge.web import WebAnswer, WebRequest, WebSender

__all__ = ["GitLabReader", "full_id"]

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_LARGEST_IID = 2**31 - 1
_BRANCHES = "refs/heads/"
_FOUND = 200
_FEATURES = Features(
    reviews=True,
    verdicts=True,
    deployments=True,
    labels=True,
    reactions=True,
    issues=True,
    permissions=True,
    branch_rules=True,
    queue=True,
)


class GitLabReader:
    """Implements ForgeReader; safe for one thread at a time.

    What does not change during a run, the bot's account and the project's settings, is asked for once.
    """

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`sender` speaks to the API with the bot's token; `project` is a path (`group/sub/name`) or a number."""
        self._sender = sender
        self._calls = GitLabCalls(project)
        self._clock = clock
        self._account: Account | None = None
        self._project: JsonObject | None = None

    @property
    def features(self) -> Features:
        """Everything but checks, which GitLab does not have: its commit statuses are all that a pipeline shows."""
        return _FEATURES

    def me(self) -> Account:
        """Whose token this is; a project access token is a bot of its own.

        Raises RemoteError `forge_unavailable`, GitopsError `forge_refused` for a token that is nobody's, as CI_JOB_TOKEN.
        """
        if self._account is None:
            try:
                self._account = answers.account(answer_object(self._sender.send(self._calls.user()).body, "the user"))
            except RemoteError as error:
                if error.status not in {401, 403}:
                    raise
                # See https://docs.gitlab.com/ci/jobs/ci_job_token/ for what a job's token may do.
                detail = (
                    "GitLab does not say whose token this is. CI_JOB_TOKEN can neither comment nor set a status: give the "
                    "job a project access token with the scope api as GITOPS_TOKEN"
                )
                raise GitopsError(Code.FORGE_REFUSED, detail) from error
        return self._account

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Merge requests, by number: all, or those of a state and a target (full ref name)."""
        if target is not None and not target.startswith(_BRANCHES):
            return ()
        branch = None if target is None else target.removeprefix(_BRANCHES)
        found = (answers.change_request(row) for row in self._rows(self._calls.merge_requests(state, branch)))
        chosen = {r.number: r for r in found if state in (None, r.state) and target in (None, r.target)}
        return tuple(chosen[number] for number in sorted(chosen))

    def merged_by(self, commits: Sequence[str]) -> tuple[ChangeRequest, ...]:
        """The merge requests that any of these commits brought in, by number; one call for each commit."""
        found: dict[int, ChangeRequest] = {}
        for commit in dict.fromkeys(commits):
            for row in self._rows(self._calls.merge_requests_of(full_id(commit))):
                request = answers.change_request(row)
                if request.state is RequestState.MERGED:
                    found[request.number] = request
        return tuple(found[number] for number in sorted(found))

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - nothing to ask
        """Unknown: a push of many branches is one event without commits, and events are those of the whole project.

        https://docs.gitlab.com/administration/settings/push_event_activities_limit/
        """
        return iter(())

    def request(self, number: int) -> ChangeRequest:
        """One merge request. Raises GitopsError `request_not_found`."""
        return answers.change_request(self._request_form(number))

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names of moved files included.

        Raises RemoteError `forge_limit` where GitLab would list only some of them, and, retryable, `forge_unavailable` while it
        still prepares the list.
        """
        expected = answers.files_of(self._request_form(number))
        found = self._rows(self._calls.diffs(number))
        if expected is not None and len(found) < expected:
            detail = (
                f"GitLab lists {len(found)} of the {expected} files of merge request {number}: it still prepares them"
            )
            raise RemoteError(Code.FORGE_UNAVAILABLE, detail, retryable=True)
        return answers.changed_paths(found)

    def reviews(self, number: int) -> tuple[Review, ...]:
        """What reviewers said last and the approvals that stand, objections at the end. GitLab keeps no commit with them."""
        return answers.reviews(*self._opinions(self.request(number).number))

    def verdict(self, number: int) -> ReviewVerdict:
        """What GitLab's approval rules say; UNKNOWN for editions and projects without any."""
        request = self._request_form(number)
        return answers.verdict(request, *self._opinions(number))

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first, without the lines that GitLab writes itself. Raises `request_not_found`."""
        found, me = self._notes(number), self.me()
        return tuple(answers.comment(note, me) for note in found)

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context; the newest of each. Raises UsageError `usage_error` for anything but a full id."""
        return answers.statuses(self._rows(self._calls.statuses(full_id(commit))), commit)

    def permission(self, account: Account) -> Permission:
        """What an account may do now, groups above the project included; NONE for strangers."""
        if not (account.id.isascii() and account.id.isdecimal()):
            return Permission.NONE
        answer = self._sender.send(self._calls.member(account.id))
        if answer.status != _FOUND:
            return Permission.NONE
        return answers.permission(answer_object(answer.body, "the member"), account.id, self._clock.now())

    def branch_rules(self, branch: str) -> BranchRules:
        """What is enforced on a branch (short name); unknown for tokens below the Maintainer role.

        `required_checks` is `*` where every status of a head must have succeeded: GitLab does not single any out.
        """
        answer, protections = self._first_and_rows(self._calls.protected_branches())
        if answer.status != _FOUND:
            return BranchRules(notes=("the token may not see protected branches: that takes the Maintainer role",))
        rule = self._sender.send(self._calls.push_rule())
        # null says that the edition has push rules and the project none.
        push_rule = (
            answer_object(rule.body, "the push rule") if rule.status == _FOUND and rule.body is not None else None
        )
        return answers.branch_rules(branch, protections, self._settings(), push_rule)

    def _settings(self) -> JsonObject:
        if self._project is None:
            self._project = answer_object(self._sender.send(self._calls.settings()).body, "the project")
        return self._project

    def _request_form(self, number: int) -> JsonObject:
        answer = self._sender.send(self._calls.merge_request(_known(number)))
        if answer.status != _FOUND:
            raise not_found(number)
        return answer_object(answer.body, "the merge request")

    def _opinions(self, number: int) -> tuple[JsonObject | None, tuple[JsonObject, ...]]:
        """Approvals, where the edition has them, and reviewers."""
        answer = self._sender.send(self._calls.approvals(number))
        approvals = answer_object(answer.body, "the approvals") if answer.status == _FOUND else None
        return approvals, self._rows(self._calls.reviewers(number))

    def _notes(self, number: int) -> tuple[Note, ...]:
        answer, found = self._first_and_rows(self._calls.notes(_known(number)))
        if answer.status != _FOUND:
            raise not_found(number)
        return tuple(note for note in map(answers.note, found) if note is not None)

    def _rows(self, request: WebRequest) -> tuple[JsonObject, ...]:
        """All rows of a list; none where a quiet status says that there is no such list."""
        return self._first_and_rows(request)[1]

    def _first_and_rows(self, request: WebRequest) -> tuple[WebAnswer, tuple[JsonObject, ...]]:
        pages = list(self._pages(request))
        what = request.path.rpartition("/")[2]
        found = [row for page in pages if page.status == _FOUND for row in answers.rows(page.body, what)]
        return pages[0], tuple(found)

    def _pages(self, request: WebRequest) -> Iterator[WebAnswer]:
        """The pages of a list, counted or linked. Raises RemoteError `forge_limit` for more than are read."""
        following: WebRequest | None = request
        for _ in range(paging.MOST_PAGES):
            if following is None:
                return
            answer = self._sender.send(following)
            yield answer
            counted = next_page(following, answer)
            following = counted or paging.next_page(self._sender.base, following, answer)
        if following is not None:
            raise RemoteError(Code.FORGE_LIMIT, f"{request.path} has more than {paging.MOST_PAGES} pages")


def full_id(commit: str) -> str:
    """The full id of a commit, as it is. Raises UsageError `usage_error` for anything else."""
    if not _OBJECT_ID.fullmatch(commit):
        raise UsageError(Code.USAGE_ERROR, f"{commit[:80]!r} is not the full id of a commit")
    return commit


def _known(number: int) -> int:
    """A number that a merge request can have; others are not even asked for."""
    if not 0 < number <= _LARGEST_IID:
        raise not_found(number)
    return number
