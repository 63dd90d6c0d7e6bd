"""Documents of our own forges against their golden files, and against a table of what their readers refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import IntegrityError
from gitops.forge.refs import documents as report
from gitops.forge.refs.documents import RequestDocument, read_request, write_request

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents" / "forge"
AT = "2026-07-02T10:00:00Z"
HEAD = "a" * 40

FIRST = RequestDocument(
    number=7,
    title="Add authors",
    source="refs/heads/topic",
    target="refs/heads/main",
    head=HEAD,
    state="merged",
    opened_at=AT,
    pushers=("mira", "ada"),
    merged_as="b" * 40,
)
VALUES: dict[str, tuple[Any, Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "request_1.json": (FIRST, read_request, write_request),
    "request_2.json": (
        RequestDocument(
            number=8,
            title="Add authors",
            source="refs/heads/topic",
            target="refs/heads/main",
            head=HEAD,
            state="open",
            opened_at=AT,
            pushers=("ada",),
            merged_as=None,
            author="mira",
            labels=("gitops/blocked", "urgent"),
        ),
        read_request,
        write_request,
    ),
    "check_1.json": (
        report.CheckDocument(
            HEAD,
            "gitops/library",
            "failure",
            "1 problem",
            (report.CheckNote("library/a.pg", 3, None, "error", "", "two\nlines"),),
        ),
        report.read_check,
        report.write_check,
    ),
    "deployment_1.json": (
        report.DeploymentDocument(HEAD, "production", "success", "library", "", AT),
        report.read_deployment,
        report.write_deployment,
    ),
    "issue_1.json": (
        report.IssueDocument("<!-- gitops:drift library -->", "gitops <bot@example.org>", "Drift", "open", AT),
        report.read_issue,
        report.write_issue,
    ),
    "reactions_1.json": (
        report.ReactionDocument("0001-mira", ("seen", "done")),
        report.read_reactions,
        report.write_reactions,
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_was_ever_written_is_read_and_written_alike(name: str) -> None:
    value, read, write = VALUES[name]
    data = (DOCUMENTS / name).read_bytes()
    assert read(data) == value
    assert write(value) == data


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
        VALUES[name][1](json.dumps(document).encode())
    assert caught.value.code == "request_invalid"
