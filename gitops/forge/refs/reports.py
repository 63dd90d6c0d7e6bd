"""How a bare repository's forge keeps checks, deployments, issues and reactions. Pure; the rules are those of `records`.

    refs/gitops/checks/<2 hex>              <commit>/<name>.json with the summary beside it as .md
    refs/gitops/deployments/<environment>   deployment.json: the newest one; the ones before are in the history of the ref
    refs/gitops/issues/<marker>             issues/<n>.json with the text beside it as .md, and a last comment as .remark.md
    refs/gitops/requests/<n>/meta           reactions/<comment>.json

It is for people only: nothing is decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import Annotation, CommitCheck, Deployment, Reaction
from gitops.forge.refs.documents import (
    CHECK,
    DEPLOYMENT,
    ISSUE,
    REACTIONS,
    DatedDeployment,
    ReactionDocument,
    RecordedIssue,
)
from gitops.forge.refs.records import (
    DocumentFolder,
    changed_files,
    file_name,
    read_required,
    shard_ref,
    text_bytes,
)
from gitops.forge.text import MAX_TEXT, cut, cut_markdown

MAX_ANNOTATIONS = 1000
"""Annotations of a check that are kept."""

MAX_NOTE = 640
"""Characters of a message."""

_CHECKS = "refs/gitops/checks"
_DEPLOYMENTS = "refs/gitops/deployments"
_ISSUES = "refs/gitops/issues"
_DEPLOYMENT = "deployment.json"
_ISSUE_NAME = re.compile(r"([0-9]{4,9})\.json")


# Checks


def check_ref(commit: str) -> str:
    """The ref of the checks of a commit. Raises UsageError `usage_error` for anything but a full id."""
    return shard_ref(_CHECKS, commit)


def read_checks(folder: DocumentFolder, commit: str) -> tuple[CommitCheck, ...]:
    """The checks of a commit, by name. Raises IntegrityError `request_invalid`."""
    stems = [f"{commit}/{name[:-5]}" for name in folder.names(commit) if name.endswith(".json")]
    return tuple(sorted((_check(folder, stem) for stem in stems), key=lambda check: check.name))


def _check(folder: DocumentFolder, stem: str) -> CommitCheck:
    summary = read_required(folder, f"{stem}.md").decode(errors="replace")
    return replace(CHECK.read(read_required(folder, f"{stem}.json")), summary=summary)


def check_files(folder: DocumentFolder, check: CommitCheck) -> Mapping[str, bytes]:
    """The files to write for a check, in place of the one with its name; what is too long is cut."""
    stem = f"{check.commit}/{file_name(check.name)}"
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
    return changed_files(folder, files)


def _line(text: str) -> str:
    """A name from outside, on one line: an odd one must not keep a check from being written."""
    return cut("".join(c if c.isprintable() else "?" for c in text).strip(), MAX_NOTE)


# Deployments


def deployment_ref(environment: str) -> str:
    """The ref of the deployments to an environment."""
    return f"{_DEPLOYMENTS}/{file_name(environment)}"


def read_deployment(folder: DocumentFolder) -> Deployment | None:
    """The newest deployment to an environment. Raises IntegrityError `request_invalid`."""
    data = folder.read(_DEPLOYMENT)
    found = None if data is None else DEPLOYMENT.read(data)
    return found and Deployment(found.commit, found.environment, found.state, found.description, found.url)


def deployment_files(folder: DocumentFolder, new: Deployment, at: str) -> Mapping[str, bytes]:
    """The files to write for a deployment; an unchanged one keeps its time."""
    if read_deployment(folder) == new:
        return {}
    document = DatedDeployment(new.commit, new.environment, new.state, new.description, new.url, at)
    return {_DEPLOYMENT: DEPLOYMENT.write(document)}


# Reactions


def read_reactions(folder: DocumentFolder, comment: str) -> tuple[Reaction, ...]:
    """The bot's answers to a comment. Raises IntegrityError `request_invalid`."""
    data = folder.read(_reactions(comment))
    return () if data is None else REACTIONS.read(data).reactions


def reaction_files(folder: DocumentFolder, comment: str, reaction: Reaction) -> Mapping[str, bytes]:
    """The files to write for a reaction to a comment. Raises GitopsError `request_not_found` if there is no such comment."""
    if folder.read(f"comments/{comment}.json") is None:
        raise GitopsError(Code.REQUEST_NOT_FOUND, f"there is no comment {comment[:80]!r}")
    given = read_reactions(folder, comment)
    if reaction in given:
        return {}
    return {_reactions(comment): REACTIONS.write(ReactionDocument(comment, (*given, reaction)))}


def _reactions(comment: str) -> str:
    return f"reactions/{comment}.json"


# Issues


def issue_ref(marker: str, author: str) -> str:
    """The ref of the issues that `author` knows by a marker."""
    return f"{_ISSUES}/{digest(f'{author}{chr(10)}{marker}'.encode(errors='replace'))[:20]}"


def read_issues(folder: DocumentFolder) -> tuple[RecordedIssue, ...]:
    """All issues behind one ref, oldest first. Raises IntegrityError `request_invalid`."""
    issues = []
    for name in sorted(
        (name for name in folder.names("issues") if _ISSUE_NAME.fullmatch(name)), key=lambda n: int(n[:-5])
    ):
        stem = f"issues/{name[:-5]}"
        body = read_required(folder, f"{stem}.md").decode(errors="replace")
        comment = folder.read(f"{stem}.remark.md")
        issues.append(
            replace(
                ISSUE.read(read_required(folder, f"{stem}.json")),
                body=body,
                last_comment=None if comment is None else comment.decode(errors="replace"),
                path=f"{stem}.md",
            )
        )
    return tuple(issues)


def issue_files(folder: DocumentFolder, issue: RecordedIssue) -> Mapping[str, bytes]:
    """The files to write for an issue: in place of the open one, else as a new one. Raises UsageError `comment_too_large`."""
    known, path = read_issues(folder), issue_path(folder)
    since = next((old.opened_at for old in known if old.path == path), issue.opened_at)
    return _files_of_issue(folder, replace(issue, opened_at=since, path=path))


def issue_path(folder: DocumentFolder) -> str:
    """The text of the open issue, or of the one that would be opened next."""
    known = read_issues(folder)
    if known and known[-1].open:
        return known[-1].path
    last = int(known[-1].path.removeprefix("issues/").removesuffix(".md")) if known else 0
    return f"issues/{last + 1:04}.md"


def closed_issue_files(folder: DocumentFolder, comment: str) -> Mapping[str, bytes]:
    """The files to write for closing the open issue; none if there is none. Raises UsageError `comment_too_large`."""
    known = read_issues(folder)
    if not known or not known[-1].open:
        return {}
    return _files_of_issue(folder, replace(known[-1], open=False, last_comment=comment))


def _files_of_issue(folder: DocumentFolder, issue: RecordedIssue) -> Mapping[str, bytes]:
    stem = issue.path.removesuffix(".md")
    document = replace(issue, body="", last_comment=None, path="")
    files = {f"{stem}.json": ISSUE.write(document), f"{stem}.md": text_bytes(issue.body)}
    if issue.last_comment is not None:
        files[f"{stem}.remark.md"] = text_bytes(issue.last_comment)
    return changed_files(folder, files)
