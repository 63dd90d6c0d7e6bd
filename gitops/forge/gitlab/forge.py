"""The bot on GitLab: what it writes. What it reads is in `gitlab_reader`.

Rules:

1. A comment or an issue is the bot's own if its author is the bot's account and its first line the marker. Nothing else is
   ever changed or removed.
2. What makes something new is sent once. If its answer is lost, or somebody else may have been as fast, one looks again: the
   oldest stays and gets the text, the others go.
3. No text of the bot can hold a quick action, which GitLab would carry out with the bot's rights.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.gitlab import answers
from gitops.forge.gitlab.answers import DeploymentRow, Issue, Note
from gitops.forge.gitlab.reader import GitLabReader, full_id
from gitops.forge.gitlab.requests import deployment_status, emoji, inert
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import ChangeRequest, CheckReport, CheckStatus, Deployment, Reaction, RequestState
from gitops.forge.refs.records import MAX_COMMENT, not_found
from gitops.forge.text import carries, cut, with_marker
from gitops.forge.web import WebAnswer, WebRequest

__all__ = ["GitLabForge"]

_BRANCHES = "refs/heads/"
_TITLE = 255
_DESCRIPTION = 1 << 20
_BAD_REQUEST = 400
_NOT_FOUND = 404
_CONFLICT = 409


class GitLabForge(GitLabReader):
    """Implements Forge over GitLab's REST API; safe for one thread at a time."""

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place.

        Raises UsageError `comment_too_large`, GitopsError `request_not_found`.
        """
        text = inert(_bounded(with_marker(marker, body)))
        if self._keep_one(number, marker, text):
            return
        lost = self._once(self._calls.add_note(number, text))
        if not self._keep_one(number, marker, text) and lost is not None:
            raise lost

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before; one call, unless GitLab minds.

        Raises UsageError `usage_error` for anything but a full id, RemoteError `forge_refused`.
        """
        full_id(status.commit)
        answer = self._sender.send(self._calls.set_status(status))
        if answer.status == _NOT_FOUND:
            ref = self._ref_of(status.commit)
            if ref is not None:
                answer = self._sender.send(self._calls.set_status(status, ref))
        if answer.status == _BAD_REQUEST and any(
            (known.context, known.state) == (status.context, status.state) for known in self.statuses(status.commit)
        ):
            return
        if answer.status in {_BAD_REQUEST, _NOT_FOUND}:
            raise _refused(f"the status {status.context} of {status.commit}", answer)

    def report_check(self, report: CheckReport) -> None:
        """Nothing: GitLab has no checks with notes. The status and the comment say it all."""

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by an emoji; the same one twice is one. Raises UsageError `usage_error` for no id of a comment."""
        if not (comment.isascii() and comment.isdecimal()):
            raise UsageError(Code.USAGE_ERROR, f"{comment[:80]!r} is no comment of request {number}")
        self._sender.send(self._calls.add_award(number, comment, emoji(reaction)))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Put labels on a request and take labels off, in one call; others stay. What is in both lists ends on.

        Raises GitopsError `request_not_found`, UsageError `usage_error` for a comma, which separates labels here.
        """
        lists = {"add_labels": list(add), "remove_labels": [name for name in remove if name not in set(add)]}
        for name in (*lists["add_labels"], *lists["remove_labels"]):
            if "," in name or not name.strip():
                raise UsageError(Code.USAGE_ERROR, f"{name[:80]!r} cannot be a label on GitLab")
        form = {field: ",".join(names) for field, names in lists.items() if names}
        if form and self._sender.send(self._calls.update_merge_request(number, form)).status == _NOT_FOUND:
            raise not_found(number)

    def record_deployment(self, deployment: Deployment) -> None:
        """Record where a deployment of a commit to an environment stands, in one record that is brought forward.

        One that has ended can go nowhere on GitLab: what is deployed again is a new one. GitLab wants to know a branch: it
        gets the project's default branch.
        """
        newest, wanted = self._newest_deployment(deployment), deployment_status(deployment.state)
        if newest is not None and newest.status == wanted:
            return
        if newest is not None and not newest.finished:
            self._sender.send(self._calls.update_deployment(newest.number, deployment.state))
            return
        branch = self._settings().text("default_branch")
        lost = self._once(
            self._calls.add_deployment(deployment.environment, deployment.commit, branch, deployment.state)
        )
        if lost is not None:
            newest = self._newest_deployment(deployment)
            if newest is None or newest.status != wanted:
                raise lost

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open merge request of branch `source` into `target` (full ref names), opened or updated."""
        found, name = self._proposed(source, target), cut(title, _TITLE)
        if found is None:
            call = self._calls.open_merge_request(_branch(source), _branch(target), name, body)
            lost, answer = None, None
            try:
                answer = self._sender.send(call)
            except RemoteError as error:
                lost = _only_lost(error)
            if answer is not None and answer.status != _CONFLICT:
                return answers.change_request(answer_object(answer.body, "the merge request"))
            found = self._proposed(source, target)
            if found is None:
                raise lost or RemoteError(Code.FORGE_UNAVAILABLE, "GitLab has this merge request and does not show it")
        form, known = {"title": name, "description": inert(body)}, found.text_or("description", most=_DESCRIPTION)
        if (found.text("title"), _plain(known)) == (name, _plain(form["description"])):
            return answers.change_request(found)
        answer = self._sender.send(self._calls.update_merge_request(found.number("iid"), form))
        return answers.change_request(answer_object(answer.body, "the merge request"))

    def withdraw(self, number: int, remark: str) -> None:
        """Close an open merge request, with a last comment. Raises GitopsError `request_not_found`.

        Closed first: if anything is lost and this is done again, there is no second comment.
        """
        text = inert(_bounded(remark))
        if self.request(number).state is RequestState.OPEN:
            self._sender.send(self._calls.update_merge_request(number, {"state_event": "close"}))
            self._once(self._calls.add_note(number, text))

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Write the bot's one open issue with this marker, or update it; returns its address for people."""
        text, name = inert(_bounded(with_marker(marker, body))), cut(title, _TITLE)
        url = self._keep_one_issue(marker, name, text)
        if url is not None:
            return url
        lost = self._once(self._calls.add_issue(name, text))
        url = self._keep_one_issue(marker, name, text)
        if url is None and lost is not None:
            raise lost
        return url or ""

    def close_issue(self, marker: str, remark: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment.

        Closed first: if anything is lost and this is done again, there is no second comment.
        """
        for issue in self._own_issues(marker):
            self._sender.send(self._calls.update_issue(issue.number, {"state_event": "close"}))
            if remark:
                self._once(self._calls.add_issue_note(issue.number, remark))

    def _ref_of(self, commit: str) -> str | None:
        """A ref of this project that holds a commit which no branch of it does.

        That of its merge request for the head of a fork's; for what a merge train builds, the one that its own pipeline is of.
        """
        numbers = [row.number("iid") for row in self._rows(self._calls.merge_requests_of(commit))]
        if numbers:
            return f"refs/merge-requests/{max(numbers)}/head"
        answer = self._sender.send(self._calls.pipelines_of(commit))
        return next((row.text("ref") for row in answers.rows(answer.body, "pipelines")), None)

    def _keep_one(self, number: int, marker: str, text: str) -> bool:
        """Give the oldest of the bot's comments with this marker the text and remove the others; False if there is none."""
        kept = False
        for note in self._own_notes(number, marker):
            if kept:
                self._sender.send(self._calls.delete_note(number, note.id))
            elif _plain(note.text) == _plain(text):
                kept = True
            else:
                # It may have been removed meanwhile: then the next one stays.
                kept = self._sender.send(self._calls.update_note(number, note.id, text)).status != _NOT_FOUND
        return kept

    def _own_notes(self, number: int, marker: str) -> list[Note]:
        own = self.me().id
        found = [n for n in self._notes(number) if n.author.id == own and carries(n.text, marker)]
        return sorted(found, key=lambda note: int(note.id))

    def _keep_one_issue(self, marker: str, title: str, text: str) -> str | None:
        """The same for issues; its address, or None."""
        url: str | None = None
        for issue in self._own_issues(marker):
            if url is not None:
                self._sender.send(self._calls.update_issue(issue.number, {"state_event": "close"}))
                continue
            if (issue.title, _plain(issue.text)) != (title, _plain(text)):
                form = {"title": title, "description": text}
                if self._sender.send(self._calls.update_issue(issue.number, form)).status == _NOT_FOUND:
                    continue
            url = issue.url
        return url

    def _own_issues(self, marker: str) -> list[Issue]:
        own = self.me().id
        found = [answers.issue(row) for row in self._rows(self._calls.issues(own))]
        return sorted((i for i in found if i.author.id == own and carries(i.text, marker)), key=lambda i: i.number)

    def _newest_deployment(self, deployment: Deployment) -> DeploymentRow | None:
        """The bot's newest deployment of the commit to the environment, among the newest there are."""
        answer = self._sender.send(self._calls.deployments(deployment.environment))
        found = [answers.deployment(row) for row in answers.rows(answer.body, "deployments")]
        own = [row for row in found if (row.commit, row.account) == (deployment.commit, self.me().id)]
        return max(own, key=lambda row: row.number, default=None)

    def _proposed(self, source: str, target: str) -> JsonObject | None:
        """The open merge request between two branches of this project; one of a fork's branch of that name is another."""
        found = self._rows(self._calls.merge_requests_between(_branch(source), _branch(target)))
        return next((row for row in found if not answers.change_request(row).fork), None)

    def _once(self, request: WebRequest) -> RemoteError | None:
        """Send what may only be sent once; the error if its answer was lost, so that it may have happened."""
        try:
            self._sender.send(request)
        except RemoteError as error:
            return _only_lost(error)
        return None


def _only_lost(error: RemoteError) -> RemoteError:
    """The error, if the request may have been done all the same; else it is raised."""
    if not error.retryable:
        raise error
    return error


def _refused(what: str, answer: WebAnswer) -> GitopsError:
    said = answer.body.get("message") if isinstance(answer.body, dict) else None
    return RemoteError(Code.FORGE_REFUSED, f"GitLab refuses {what}: {str(said)[:200]!r}", status=answer.status)


def _bounded(text: str) -> str:
    """A text as long as every forge takes it; GitLab would take more."""
    if len(text) > MAX_COMMENT:
        raise UsageError(Code.COMMENT_TOO_LARGE, f"the text has {len(text)} characters; at most {MAX_COMMENT} are kept")
    return text


def _plain(text: str) -> str:
    """A text as it is compared: GitLab may change ends of lines."""
    return text.replace("\r\n", "\n").rstrip()


def _branch(ref: str) -> str:
    if not ref.startswith(_BRANCHES):
        raise UsageError(Code.USAGE_ERROR, f"{ref[:80]!r} is not the full name of a branch")
    return ref.removeprefix(_BRANCHES)
