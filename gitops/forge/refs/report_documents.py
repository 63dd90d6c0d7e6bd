"""Check, deployment, issue and reactions, version 1: what a forge of our own keeps of what the bot tells people.

Longer texts lie beside their document as Markdown. Nothing is decided by any of these; they are shown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gitops.documents.strict import Node
from gitops.forge.refs.request_document import read_document, write_document

__all__ = [
    "CheckDocument",
    "CheckNote",
    "DeploymentDocument",
    "IssueDocument",
    "ReactionDocument",
    "read_check",
    "read_deployment",
    "read_issue",
    "read_reactions",
    "write_check",
    "write_deployment",
    "write_issue",
    "write_reactions",
]

_CHECK_STATES = ("pending", "success", "failure", "error")
_DEPLOYMENT_STATES = ("running", "success", "failure")
_ISSUE_STATES = ("open", "closed")
_SEVERITIES = ("error", "warning")
_REACTIONS = ("seen", "done", "refused")


@dataclass(frozen=True, slots=True)
class CheckNote:
    """A note on lines of a file; `message` may have several lines."""

    path: str
    line: int
    end_line: int | None
    severity: str
    title: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """A check of a commit; its summary lies beside it."""

    commit: str
    name: str
    state: str
    title: str
    notes: tuple[CheckNote, ...]


@dataclass(frozen=True, slots=True)
class DeploymentDocument:
    """Where the newest deployment to an environment stands."""

    commit: str
    environment: str
    state: str
    description: str
    url: str
    at: str


@dataclass(frozen=True, slots=True)
class IssueDocument:
    """An issue of the bot; its text lies beside it."""

    marker: str
    author: str
    title: str
    state: str
    opened_at: str


@dataclass(frozen=True, slots=True)
class ReactionDocument:
    """The bot's answers to one comment, in the order in which they were given."""

    comment: str
    reactions: tuple[str, ...]


def read_check(data: bytes) -> CheckDocument:
    """Read a check. Raises IntegrityError `request_invalid`."""
    return read_document(data, _check)


def write_check(document: CheckDocument) -> bytes:
    """The bytes of a check. Raises IntegrityError `request_invalid` when they could not be read back."""
    return write_document(document, asdict(document), _check)


def read_deployment(data: bytes) -> DeploymentDocument:
    """Read a deployment. Raises IntegrityError `request_invalid`."""
    return read_document(data, _deployment)


def write_deployment(document: DeploymentDocument) -> bytes:
    """The bytes of a deployment. Raises IntegrityError `request_invalid` when they could not be read back."""
    return write_document(document, asdict(document), _deployment)


def read_issue(data: bytes) -> IssueDocument:
    """Read an issue. Raises IntegrityError `request_invalid`."""
    return read_document(data, _issue)


def write_issue(document: IssueDocument) -> bytes:
    """The bytes of an issue. Raises IntegrityError `request_invalid` when they could not be read back."""
    return write_document(document, asdict(document), _issue)


def read_reactions(data: bytes) -> ReactionDocument:
    """Read the reactions to a comment. Raises IntegrityError `request_invalid`."""
    return read_document(data, _reactions)


def write_reactions(document: ReactionDocument) -> bytes:
    """The bytes of the reactions to a comment. Raises IntegrityError `request_invalid` when they could not be read back."""
    return write_document(document, asdict(document), _reactions)


def _check(root: Node) -> CheckDocument:
    fields = root.fields(("version", "commit", "name", "state", "title", "notes"))
    return CheckDocument(
        commit=fields["commit"].object_id(),
        name=fields["name"].line(),
        state=_choice(fields["state"], _CHECK_STATES),
        title=fields["title"].line(),
        notes=tuple(_note(item) for item in fields["notes"].items()),
    )


def _note(node: Node) -> CheckNote:
    fields = node.fields(("path", "line", "end_line", "severity", "title", "message"))
    return CheckNote(
        path=fields["path"].line(),
        line=fields["line"].integer(1),
        end_line=fields["end_line"].nullable(lambda end: end.integer(1)),
        severity=_choice(fields["severity"], _SEVERITIES),
        title=_line_or_nothing(fields["title"]),
        message=fields["message"].text(),
    )


def _deployment(root: Node) -> DeploymentDocument:
    fields = root.fields(("version", "commit", "environment", "state", "description", "url", "at"))
    return DeploymentDocument(
        commit=fields["commit"].object_id(),
        environment=fields["environment"].line(),
        state=_choice(fields["state"], _DEPLOYMENT_STATES),
        description=_line_or_nothing(fields["description"]),
        url=_line_or_nothing(fields["url"]),
        at=fields["at"].moment(),
    )


def _issue(root: Node) -> IssueDocument:
    fields = root.fields(("version", "marker", "author", "title", "state", "opened_at"))
    return IssueDocument(
        marker=fields["marker"].line(),
        author=fields["author"].line(),
        title=fields["title"].line(),
        state=_choice(fields["state"], _ISSUE_STATES),
        opened_at=fields["opened_at"].moment(),
    )


def _reactions(root: Node) -> ReactionDocument:
    fields = root.fields(("version", "comment", "reactions"))
    reactions = tuple(_choice(item, _REACTIONS) for item in fields["reactions"].items())
    return ReactionDocument(fields["comment"].line(), reactions)


def _line_or_nothing(node: Node) -> str:
    return node.line() if node.text() else ""


def _choice(node: Node, choices: tuple[str, ...]) -> str:
    return choices[node.one_of(choices.index)]
