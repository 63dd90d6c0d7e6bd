"""What the doctor says about previews, drills, tests and reports: each gap with a place and a remedy, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.config.gitops_yaml import PreviewRule
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.findings import DoctorFinding, Health
from gitops.doctor.jobs import BotJob, all_jobs
from gitops.doctor.review import (
    credential_findings,
    drill_finding,
    presence_findings,
    report_finding,
    scratch_finding,
)
from gitops.forge.web import WebAnswer, WebRequest, WebSender
from tests.support.actions.scaffolds import made

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ON = PreviewRule(enabled=True, scratch="previews")
STORED = {"storage": "s3://bucket/brain", "previews": True, "drills": True}
FOLDERS = (".github/workflows/", ".gitea/workflows/", ".gitlab")


def jobs(forge: str, *without: str, **given: object) -> list[BotJob]:
    """The jobs that `init` makes, without the files with these names."""
    files = {path: text for path, text in made(forge, **given).items() if path.startswith(FOLDERS)}
    return all_jobs({path: text for path, text in files.items() if not any(name in path for name in without)})


def seen(findings: Iterable[DoctorFinding | None]) -> list[tuple[Health, str]]:
    """The results. A gap always has a place or a remedy to act on."""
    found = [each for each in findings if each is not None]
    assert all(each.fix for each in found if each.health in (Health.WARNING, Health.ERROR))
    return [(each.health, each.check) for each in found]


def refuse(declared: str, storage: str) -> None:
    raise GitopsError(Code.PREVIEW_UNAVAILABLE, f"preview.scratch is where the graphs are: {declared} in {storage}")


@pytest.mark.parametrize(
    ("rule", "storage", "expected", "fix"),
    [
        (PreviewRule(), "/data/brain", None, ""),
        (ON, "/data/brain", Health.GOOD, ""),
        (ON, None, Health.UNKNOWN, "where previews run: gitops doctor"),
        (PreviewRule(enabled=True), "/data/brain", Health.ERROR, "gitops.yaml, preview: scratch: previews"),
        (PreviewRule(enabled=True), "s3://b/p", Health.ERROR, "gitops.yaml, preview: scratch: s3://b/p/previews"),
    ],
)
def test_copies_of_previews_need_a_place(
    rule: PreviewRule, storage: str | None, expected: Health | None, fix: str
) -> None:
    found = scratch_finding(rule, "brain", storage, lambda _declared, _storage: None)
    assert (None if found is None else (found.health, found.fix)) == (None if expected is None else (expected, fix))


def test_a_place_that_the_bot_would_refuse_is_an_error_with_its_reason() -> None:
    found = scratch_finding(ON, "brain", "s3://b/p", refuse)
    assert found is not None
    assert (found.health, found.place, found.fix) == (
        Health.ERROR,
        "brain",
        "gitops.yaml, preview: scratch: s3://b/p/previews",
    )
    assert "preview_unavailable: preview.scratch is where the graphs are: previews in s3://b/p" in found.detail


@pytest.mark.parametrize("forge", ["github", "gitea", "gitlab"])
def test_the_jobs_of_init_preview_with_other_credentials_than_they_apply(forge: str) -> None:
    found = seen(credential_findings(forge, jobs(forge, **STORED), ON))
    assert set(found) == {(Health.GOOD, "preview.credentials")}


@pytest.mark.parametrize(
    ("forge", "reading", "writing"),
    [
        ("github", b"name: gitops-read", b"name: gitops"),
        ("gitea", b"secrets.READ_AWS", b"secrets.AWS"),
        ("gitlab", b"  environment:\n    name: gitops-read\n    action: access\n", b""),
    ],
)
def test_a_preview_with_the_credentials_of_the_apply_is_seen(forge: str, reading: bytes, writing: bytes) -> None:
    files = {path: text for path, text in made(forge, **STORED).items() if path.startswith(FOLDERS)}
    changed = {path: text.replace(reading, writing) for path, text in files.items()}
    assert changed != files
    found = list(credential_findings(forge, all_jobs(changed), ON))
    assert seen(found) == [(Health.WARNING, "preview.credentials")]
    assert "preview" in found[0].place


@pytest.mark.parametrize(
    ("forge", "health"), [("github", Health.WARNING), ("gitlab", Health.WARNING), ("gitea", Health.UNKNOWN)]
)
def test_previews_that_no_job_runs_are_seen(forge: str, health: Health) -> None:
    for known in (jobs(forge), []):
        (found,) = credential_findings(forge, known, ON)
        assert found.health is health
        assert ("--forge" in found.fix) == (health is Health.WARNING and not known)
    assert list(credential_findings(forge, [], PreviewRule())) == []


@pytest.mark.parametrize(
    ("cron", "days", "health"),
    [
        ("23 3 * * 0", 8, Health.GOOD),
        ("23 3 * * 0", 9, Health.WARNING),
        ("23 3 1 * *", 35, Health.GOOD),
        ("23 3 1 * *", 36, Health.WARNING),
        ("23 3 * * 0", None, Health.WARNING),
    ],
)
def test_a_drill_has_to_pass_as_often_as_its_job_runs(cron: str, days: int | None, health: Health) -> None:
    files = {
        path: text.replace(b"23 3 * * 0", cron.encode())
        for path, text in made("github", **STORED).items()
        if path.startswith(FOLDERS)
    }
    last = None if days is None else {"at": timestamp(NOW - timedelta(days=days)), "seconds": 1}
    found = drill_finding("brain", all_jobs(files), last, NOW)
    assert found is not None
    assert (found.health, found.check, found.place) == (health, "drill.recent", "brain")
    assert found.fix.endswith("gitops drill --cluster brain") == (health is Health.WARNING)


def test_without_a_job_for_drills_none_is_missed() -> None:
    assert drill_finding("brain", jobs("github"), None, NOW) is None


def test_tests_that_are_demanded_have_to_exist() -> None:
    assert seen(presence_findings("brain", 0, [], demanded=True)) == [(Health.WARNING, "tests.present")]
    assert seen(presence_findings("brain", 0, [], demanded=False)) == []
    assert seen(presence_findings("brain", 2, ["checks"], demanded=True)) == [
        (Health.WARNING, "tests.paths"),
        (Health.GOOD, "tests.present"),
    ]


class Pages:
    """A published report that answers with a status, or not at all."""

    base = "https://pages.example/brain"

    def __init__(self, status: int | None) -> None:
        self.status = status

    def send(self, request: WebRequest) -> WebAnswer:
        assert (request.method, request.path) == ("GET", "report.json")
        if self.status == 200:
            return WebAnswer(200, {}, {})
        raise RemoteError(Code.QUERY_SERVER_UNAVAILABLE, "it answers with an error", status=self.status)

    def wait(self, seconds: float) -> None:
        raise AssertionError(seconds)


@pytest.mark.parametrize(
    ("status", "health"),
    [(200, Health.GOOD), (302, Health.GOOD), (403, Health.GOOD), (404, Health.WARNING), (None, Health.WARNING)],
)
def test_links_to_a_report_lead_somewhere(status: int | None, health: Health) -> None:
    pages: WebSender = Pages(status)
    assert seen([report_finding("https://pages.example/brain/", "brain", lambda _: pages)]) == [(health, "report.url")]
    assert report_finding("", "brain", lambda _: pages) is None
