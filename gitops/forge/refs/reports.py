"""What a forge of documents says about commits and deployments, and its issues; nothing but a status decides anything.

refs/gitops/statuses/<2 hex>            <commit>/<context>.json
refs/gitops/checks/<2 hex>              <commit>/<name>.json with the summary beside it as .md
refs/gitops/deployments/<environment>   deployment.json: the newest one; the ones before are in the history of the ref
refs/gitops/issues/<marker>             issues/<n>.json with the text beside it as .md, and a last comment as .remark.md
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gitops.core.canonical import digest
from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.forge.dialect import full_id
from gitops.forge.port import Annotation, CheckStatus, CommitCheck, Deployment
from gitops.forge.refs.documents import CHECK, DEPLOYMENT, ISSUE, STATUS, DatedDeployment, RecordedIssue
from gitops.forge.refs.records import EMPTY, DocumentFolder, changed_files, read_required, slug
from gitops.forge.text import MAX_TEXT, cut, cut_markdown, text_bytes
from gitops.git.port import Person

__all__ = ["Amend", "DocumentReports"]

Amend = Callable[[DocumentFolder], Mapping[str, bytes]]
"""The files of a folder to those that change: path to content."""

MAX_ANNOTATIONS = 1000
"""Annotations of a check that are kept."""

MAX_NOTE = 640
"""Characters of a message."""

_DEPLOYMENT = "deployment.json"
_ISSUE_NAME = re.compile(r"([0-9]{4,9})\.json")


class DocumentReports(ABC):
    """Statuses, checks, deployments and issues, over refs that a subclass keeps."""

    def __init__(self, bot: Person, clock: Clock) -> None:
        """`bot` writes comments and issues, and knows its own by its name."""
        self._bot = bot
        self._clock = clock

    @abstractmethod
    def _folder(self, ref: str) -> DocumentFolder | None:
        """The files behind a ref, None for a ref that does not exist."""

    @abstractmethod
    def _folders(self, prefix: str) -> Mapping[str, DocumentFolder]:
        """The files behind each ref below a prefix."""

    @abstractmethod
    def _amend(self, ref: str, what: str, change: Amend, missing: GitopsError | None = None) -> DocumentFolder:
        """Change files behind a ref without losing another writer's change; returns the files as `change` saw them.

        Raises `missing`, if it is given, for a ref that does not exist; any other starts without files.
        """

    @property
    def identity(self) -> str:
        """The author of the bot's comments and issues."""
        return f"{self._bot.name} <{self._bot.email}>"

    def _now(self) -> str:
        return timestamp(self._clock.now())

    # Statuses and checks

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context. Raises IntegrityError `request_invalid`."""
        return _read_statuses(self._folder(_shard("statuses", commit)) or EMPTY, commit)

    def statuses_of(self, commits: Iterable[str]) -> Mapping[str, tuple[CheckStatus, ...]]:
        """Statuses of many commits, as `statuses` gives those of each, from one listing."""
        shards = self._folders("refs/gitops/statuses")
        return {commit: _read_statuses(shards.get(_shard("statuses", commit), EMPTY), commit) for commit in commits}

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before. The commit itself need not be here."""
        ref, what = _shard("statuses", status.commit), f"statuses: {status.commit[:12]}"
        files = {f"{status.commit}/{_file_name(status.context)}.json": STATUS.write(status)}
        self._amend(ref, what, lambda folder: changed_files(folder, files))

    def checks(self, commit: str) -> tuple[CommitCheck, ...]:
        """Checks of a commit with their annotations, by name. Raises IntegrityError `request_invalid`."""
        folder = self._folder(_shard("checks", commit)) or EMPTY
        checks = []
        for stem in (f"{commit}/{name[:-5]}" for name in folder.names(commit) if name.endswith(".json")):
            check = CHECK.read(read_required(folder, f"{stem}.json"))
            checks.append(replace(check, summary=read_required(folder, f"{stem}.md").decode(errors="replace")))
        return tuple(sorted(checks, key=lambda check: check.name))

    def set_check(self, check: CommitCheck) -> None:
        """Write the check of a commit with this name, or replace it; what is too long is cut. The commit need not be here."""
        ref, what = _shard("checks", check.commit), f"checks: {check.commit[:12]}"
        stem = f"{check.commit}/{_file_name(check.name)}"
        kept = tuple(
            Annotation(
                path=_line(found.path) or "?",
                line=max(found.line, 1),
                message=cut(found.message.encode(errors="replace").decode(), MAX_NOTE),
                severity=found.severity,
                title=_line(found.title),
                end_line=None if found.end_line is None else max(found.end_line, 1),
            )
            for found in check.annotations[:MAX_ANNOTATIONS]
        )
        files = {
            f"{stem}.json": CHECK.write(replace(check, summary="", annotations=kept)),
            f"{stem}.md": text_bytes(cut_markdown(check.summary, MAX_TEXT)),
        }
        self._amend(ref, what, lambda folder: changed_files(folder, files))

    # Deployments

    def deployment(self, environment: str) -> Deployment | None:
        """The newest deployment to an environment. Raises IntegrityError `request_invalid`."""
        return _read_deployment(self._folder(_deployment_ref(environment)) or EMPTY)

    def record_deployment(self, deployment: Deployment) -> None:
        """Record the state of a deployment; earlier ones stay in the history of the ref, and an unchanged one keeps its time."""
        new, at = deployment, self._now()
        dated = DatedDeployment(new.commit, new.environment, new.state, new.description, new.url, at)
        files = {_DEPLOYMENT: DEPLOYMENT.write(dated)}
        what = f"deployment: {new.commit[:12]} {new.state.value}"
        self._amend(
            _deployment_ref(new.environment), what, lambda folder: {} if _read_deployment(folder) == new else files
        )

    # Issues

    def issues(self, marker: str) -> tuple[RecordedIssue, ...]:
        """The bot's issues with this marker, oldest first. Raises IntegrityError `request_invalid`."""
        return _read_issues(self._folder(self._issues_ref(marker)) or EMPTY)

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Write the bot's one open issue with this marker, or update it; returns what `git show` prints it by.

        Raises UsageError `comment_too_large`.
        """
        ref, issue = self._issues_ref(marker), RecordedIssue(marker, self.identity, title, body, self._now())

        def placed(folder: DocumentFolder) -> RecordedIssue:
            """The issue in place of the open one, else as the next one."""
            known = _read_issues(folder)
            if known and known[-1].open:
                return replace(issue, opened_at=known[-1].opened_at, path=known[-1].path)
            last = int(known[-1].path.removeprefix("issues/").removesuffix(".md")) if known else 0
            return replace(issue, path=f"issues/{last + 1:04}.md")

        before = self._amend(ref, "issue", lambda folder: _issue_files(folder, placed(folder)))
        return f"{ref}:{placed(before).path}"

    def close_issue(self, marker: str, comment: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment.

        Raises UsageError `comment_too_large`.
        """

        def closed(folder: DocumentFolder) -> Mapping[str, bytes]:
            known = _read_issues(folder)
            if not known or not known[-1].open:
                return {}
            return _issue_files(folder, replace(known[-1], open=False, last_comment=comment))

        self._amend(self._issues_ref(marker), "issue: closed", closed)

    def _issues_ref(self, marker: str) -> str:
        return f"refs/gitops/issues/{digest(f'{self.identity}{chr(10)}{marker}'.encode(errors='replace'))[:20]}"


def _shard(kind: str, commit: str) -> str:
    """The ref for the documents of a commit. Raises UsageError `usage_error` for anything but a full id."""
    return f"refs/gitops/{kind}/{full_id(commit)[:2]}"


def _file_name(text: str) -> str:
    """A file name for a text: texts that differ only in punctuation have different names."""
    return f"{slug(text)}-{digest(text.encode(errors='replace'))[:12]}"


def _line(text: str) -> str:
    """A name from outside, on one line: an odd one must not keep a check from being written."""
    return cut("".join(c if c.isprintable() else "?" for c in text).strip(), MAX_NOTE)


def _deployment_ref(environment: str) -> str:
    return f"refs/gitops/deployments/{_file_name(environment)}"


def _read_statuses(folder: DocumentFolder, commit: str) -> tuple[CheckStatus, ...]:
    statuses = [STATUS.read(read_required(folder, f"{commit}/{name}")) for name in folder.names(commit)]
    if any(status.commit != commit for status in statuses):
        raise IntegrityError(Code.REQUEST_INVALID, f"a status in the folder of commit {commit} names another commit")
    return tuple(sorted(statuses, key=lambda status: status.context))


def _read_deployment(folder: DocumentFolder) -> Deployment | None:
    data = folder.read(_DEPLOYMENT)
    found = None if data is None else DEPLOYMENT.read(data)
    return found and Deployment(found.commit, found.environment, found.state, found.description, found.url)


def _read_issues(folder: DocumentFolder) -> tuple[RecordedIssue, ...]:
    issues = []
    for name in sorted(filter(_ISSUE_NAME.fullmatch, folder.names("issues")), key=lambda name: int(name[:-5])):
        stem = f"issues/{name[:-5]}"
        issue = ISSUE.read(read_required(folder, f"{stem}.json"))
        body = read_required(folder, f"{stem}.md").decode(errors="replace")
        comment = folder.read(f"{stem}.remark.md")
        last_comment = None if comment is None else comment.decode(errors="replace")
        issues.append(replace(issue, body=body, last_comment=last_comment, path=f"{stem}.md"))
    return tuple(issues)


def _issue_files(folder: DocumentFolder, issue: RecordedIssue) -> Mapping[str, bytes]:
    stem = issue.path.removesuffix(".md")
    document = replace(issue, body="", last_comment=None, path="")
    files = {f"{stem}.json": ISSUE.write(document), f"{stem}.md": text_bytes(issue.body)}
    if issue.last_comment is not None:
        files[f"{stem}.remark.md"] = text_bytes(issue.last_comment)
    return changed_files(folder, files)
