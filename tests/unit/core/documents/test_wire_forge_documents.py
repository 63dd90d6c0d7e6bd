"""Documents of our own forges against their golden files, and against a table of what their readers refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.documents.codec import Document
from gitops.core.errors import IntegrityError
from gitops.forge.port import (
    Account,
    Annotation,
    ChangeRequest,
    CheckState,
    CommitCheck,
    DeploymentState,
    Reaction,
    RequestState,
)
from gitops.forge.refs import records as report
from tests.support.pages import ROOT

DOCUMENTS = ROOT / "tests" / "data" / "documents" / "forge"
AT = "2026-07-02T10:00:00Z"
HEAD = "a" * 40

FIRST = ChangeRequest(
    number=7,
    title="Add authors",
    source="refs/heads/topic",
    target="refs/heads/main",
    head=HEAD,
    state=RequestState.MERGED,
    opened_at=AT,
    pushers=("mira", "ada"),
    merged_as="b" * 40,
)
SECOND = replace(
    FIRST,
    number=8,
    state=RequestState.OPEN,
    pushers=("ada",),
    merged_as=None,
    author=Account("mira", "mira"),
    labels=("gitops/blocked", "urgent"),
)
FOUND = Annotation("library/a.pg", 3, "two\nlines", Severity.ERROR)
ISSUE = report.RecordedIssue("<!-- gitops:drift library -->", "gitops <bot@example.org>", "Drift", "", AT)
VALUES: dict[str, tuple[Any, Document[Any]]] = {
    "request_1.json": (FIRST, report.REQUEST),
    "request_2.json": (SECOND, report.REQUEST),
    "check_1.json": (
        CommitCheck(HEAD, "gitops/library", CheckState.FAILURE, "1 problem", "", (FOUND,)),
        report.CHECK,
    ),
    "deployment_1.json": (
        report.DatedDeployment(HEAD, "production", DeploymentState.SUCCESS, "library", "", AT),
        report.DEPLOYMENT,
    ),
    "issue_1.json": (ISSUE, report.ISSUE),
    "reactions_1.json": (report.ReactionDocument("0001-mira", (Reaction.SEEN, Reaction.DONE)), report.REACTIONS),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_was_ever_written_is_read_and_written_alike(name: str) -> None:
    value, document = VALUES[name]
    data = (DOCUMENTS / name).read_bytes()
    assert document.read(data) == value
    assert document.write(value) == data


REFUSED: list[tuple[str, str, Any]] = [
    ("request_1.json", "author", "mira"),
    ("request_1.json", "labels", []),
    ("request_1.json", "version", 3),
    ("request_1.json", "version", True),
    ("request_1.json", "version", 1.0),
    ("request_1.json", "version", 2),
    ("request_2.json", "version", 1),
    ("request_2.json", "labels", ["urgent", "gitops/blocked"]),
    ("request_2.json", "labels", ["urgent", "urgent"]),
    ("request_2.json", "labels", ["a\nb"]),
    ("request_2.json", "author", ""),
    ("check_1.json", "state", "good"),
    ("check_1.json", "notes", [{"path": "a"}]),
    ("check_1.json", "version", 2),
    ("deployment_1.json", "environment", "a\u202eb"),
    ("deployment_1.json", "commit", "a" * 39),
    ("issue_1.json", "state", "merged"),
    ("issue_1.json", "marker", ""),
    ("reactions_1.json", "reactions", ["heart"]),
]


@pytest.mark.parametrize(("name", "field", "value"), REFUSED, ids=lambda part: str(part)[:20])
def test_refused(name: str, field: str, value: Any) -> None:
    document = json.loads((DOCUMENTS / name).read_bytes())
    document[field] = value
    with pytest.raises(IntegrityError) as caught:
        VALUES[name][1].read(json.dumps(document).encode())
    assert caught.value.code == "request_invalid"
