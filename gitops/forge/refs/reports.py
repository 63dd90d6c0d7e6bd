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
from dataclasses import dataclass, replace

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.forge.port import Annotation, CheckState, CommitCheck, Deployment, DeploymentState, Reaction
from gitops.forge.refs import documents as wire
from gitops.forge.refs.records import DocumentFolder, file_name, read_required, shard_ref, text_bytes
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


@dataclass(frozen=True, slots=True)
class RecordedIssue:
    """An issue of the bot as it is kept; `last_comment` was written when it was closed. `path` is its file behind its ref."""

    marker: str
    author: str
    title: str
    body: str
    opened_at: str
    open: bool = True
    last_comment: str | None = None
    path: str = ""


# Checks


def check_ref(commit: str) -> str:
    """The ref of the checks of a commit. Raises UsageError `usage_error` for anything but a full id."""
    return shard_ref(_CHECKS, commit)


def read_checks(folder: DocumentFolder, commit: str) -> tuple[CommitCheck, ...]:
    """The checks of a commit, by name. Raises IntegrityError `request_invalid`."""
    stems = [f"{commit}/{name[:-5]}" for name in folder.names(commit) if name.endswith(".json")]
    return tuple(sorted((_check(folder, stem) for stem in stems), key=lambda check: check.name))


def _check(folder: DocumentFolder, stem: str) -> CommitCheck:
    document = wire.read_check(read_required(folder, f"{stem}.json"))
    notes = (
        Annotation(note.path, note.line, note.message, Severity(note.severity), note.title, note.end_line)
        for note in document.notes
    )
    return CommitCheck(
        commit=document.commit,
        name=document.name,
        state=CheckState(document.state),
        title=document.title,
        summary=read_required(folder, f"{stem}.md").decode(errors="replace"),
        annotations=tuple(notes),
    )


def check_files(folder: DocumentFolder, check: CommitCheck) -> Mapping[str, bytes]:
    """The files to write for a check, in place of the one with its name; what is too long is cut."""
    stem = f"{check.commit}/{file_name(check.name)}"
    document = wire.CheckDocument(
        commit=check.commit,
        name=check.name,
        state=check.state.value,
        title=check.title,
        notes=tuple(_annotation_document(annotation) for annotation in check.annotations[:MAX_ANNOTATIONS]),
    )
    files = {
        f"{stem}.json": wire.write_check(document),
        f"{stem}.md": text_bytes(cut_markdown(check.summary, MAX_TEXT)),
    }
    return _changed_files(folder, files)


def _annotation_document(annotation: Annotation) -> wire.CheckNote:
    return wire.CheckNote(
        path=_line(annotation.path) or "?",
        line=max(annotation.line, 1),
        end_line=None if annotation.end_line is None else max(annotation.end_line, 1),
        severity=annotation.severity.value,
        title=_line(annotation.title),
        message=cut(annotation.message.encode(errors="replace").decode(), MAX_NOTE),
    )


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
    if data is None:
        return None
    found = wire.read_deployment(data)
    return Deployment(found.commit, found.environment, DeploymentState(found.state), found.description, found.url)


def deployment_files(folder: DocumentFolder, deployment: Deployment, at: str) -> Mapping[str, bytes]:
    """The files to write for a deployment; an unchanged one keeps its time."""
    if read_deployment(folder) == deployment:
        return {}
    document = wire.DeploymentDocument(
        commit=deployment.commit,
        environment=deployment.environment,
        state=deployment.state.value,
        description=deployment.description,
        url=deployment.url,
        at=at,
    )
    return {_DEPLOYMENT: wire.write_deployment(document)}


# Reactions


def read_reactions(folder: DocumentFolder, comment: str) -> tuple[Reaction, ...]:
    """The bot's answers to a comment. Raises IntegrityError `request_invalid`."""
    data = folder.read(_reactions(comment))
    return () if data is None else tuple(map(Reaction, wire.read_reactions(data).reactions))


def reaction_files(folder: DocumentFolder, comment: str, reaction: Reaction) -> Mapping[str, bytes]:
    """The files to write for a reaction to a comment. Raises GitopsError `request_not_found` if there is no such comment."""
    if folder.read(f"comments/{comment}.json") is None:
        raise GitopsError(Code.REQUEST_NOT_FOUND, f"there is no comment {comment[:80]!r}")
    given = read_reactions(folder, comment)
    if reaction in given:
        return {}
    document = wire.ReactionDocument(comment, tuple(r.value for r in (*given, reaction)))
    return {_reactions(comment): wire.write_reactions(document)}


def _reactions(comment: str) -> str:
    return f"reactions/{comment}.json"


# Issues


def issue_ref(marker: str, author: str) -> str:
    """The ref of the issues that `author` knows by a marker."""
    return f"{_ISSUES}/{digest(f'{author}{chr(10)}{marker}'.encode(errors='replace'))[:20]}"


def read_issues(folder: DocumentFolder) -> tuple[RecordedIssue, ...]:
    """All issues behind one ref, oldest first. Raises IntegrityError `request_invalid`."""
    names = sorted((name for name in folder.names("issues") if _ISSUE_NAME.fullmatch(name)), key=lambda n: int(n[:-5]))
    return tuple(_issue(folder, f"issues/{name[:-5]}") for name in names)


def _issue(folder: DocumentFolder, stem: str) -> RecordedIssue:
    document = wire.read_issue(read_required(folder, f"{stem}.json"))
    comment = folder.read(f"{stem}.remark.md")
    return RecordedIssue(
        marker=document.marker,
        author=document.author,
        title=document.title,
        body=read_required(folder, f"{stem}.md").decode(errors="replace"),
        opened_at=document.opened_at,
        open=document.state == "open",
        last_comment=None if comment is None else comment.decode(errors="replace"),
        path=f"{stem}.md",
    )


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
    state = "open" if issue.open else "closed"
    document = wire.IssueDocument(issue.marker, issue.author, issue.title, state, issue.opened_at)
    files = {f"{stem}.json": wire.write_issue(document), f"{stem}.md": text_bytes(issue.body)}
    if issue.last_comment is not None:
        files[f"{stem}.remark.md"] = text_bytes(issue.last_comment)
    return _changed_files(folder, files)


def _changed_files(folder: DocumentFolder, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files whose content differs from what the folder has."""
    return {path: data for path, data in files.items() if folder.read(path) != data}
