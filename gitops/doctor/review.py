"""Checks of previews (the place of their copies, their credentials), restore drills, tests and published reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, PreviewRule
from gitops.core.clock import parse_timestamp
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.doctor.jobs import BotJob, texts_of
from gitops.forge.web import WebRequest, WebSender
from gitops.init.files import scratch_of
from gitops.render.words import count

_DAYS = {True: 8, False: 35}
"""How old the last drill may be in days, by whether its job runs every week. The rest is for a run that failed."""
_FOR_MEMBERS = frozenset({302, 303, 307, 401, 403})
"""How pages answer that ask for a login first."""
_CREDENTIALS = re.compile(r"secrets\s*\.\s*(\w*AWS_ACCESS_KEY_ID)|vars\s*\.\s*(\w*AWS_ROLE_ARN)")


def scratch_finding(
    rule: PreviewRule, cluster: str, storage: str | None, admit: Callable[[str, str], object]
) -> DoctorFinding | None:
    """Check that the copies of a cluster's previews have a place, next to its graphs and outside of each of them.

    `storage` is the root of the cluster's graphs, None if this machine has none. `admit` takes the declared place and that
    root, and raises GitopsError if the bot would refuse the place. None if previews are off.
    """
    check = "preview.scratch"
    if not rule.enabled:
        return None
    wanted = f"{CONFIG_FILE}, preview: scratch: {scratch_of(storage)}"
    if rule.scratch is None:
        return error(check, "previews are on, but their copies have no place, so each one fails", wanted, cluster)
    if storage is None:
        detail = "no storage for graphs is configured on this machine, so the place of the copies cannot be checked"
        return unknown(check, detail, "where previews run: gitops doctor", cluster)
    try:
        admit(rule.scratch, storage)
    except GitopsError as problem:
        return error(check, f"{problem.code}: {problem.detail}", wanted, cluster)
    return good(check, f"copies are in {rule.scratch}", cluster)


def credential_findings(kind: str, jobs: Sequence[BotJob], rule: PreviewRule) -> Iterator[DoctorFinding]:
    """Check that the jobs that preview have other storage credentials than those that apply.

    Only the names of environments and variables can be compared, not what the credentials allow.
    """
    check, applies = "preview.credentials", {_access(job) for job in jobs if job.verb == "apply"}
    previews = {job.place: job for job in jobs if job.verb == "preview"}
    if not rule.enabled:
        return
    if not previews and kind in ("github", "gitlab"):
        detail = "previews are on, but no job runs them"
        fix = "gitops init --upgrade --previews, and propose what it writes"
        yield warning("jobs.previews", detail, fix if jobs else f"{fix.replace(', and', f' --forge {kind}, and')}")
    elif not previews:
        yield unknown(check, "a server previews and applies, with credentials that can write to live graphs")
    for place, job in previews.items():
        if _access(job) in applies:
            detail = (
                "queries and migrations of change requests run with the storage credentials of the job that applies"
            )
            yield warning(check, detail, _SEPARATE[kind], place)
        else:
            yield good(check, "it has other storage credentials than the job that applies", place)


_SEPARATE = {
    "github": "environment: gitops-read, with a role that can only read graphs (docs/init.md#jobs-that-only-read)",
    "gitlab": "environment: {name: gitops-read, action: access}, with variables in its scope (docs/init.md#jobs-that-only-read)",
    "gitea": "env: AWS_ACCESS_KEY_ID: ${{ secrets.READ_AWS_ACCESS_KEY_ID }} (docs/init.md#jobs-that-only-read)",
}


def _access(job: BotJob) -> tuple[Any, ...]:
    """Return what decides about a job's storage credentials: its environment, and the names of its secrets and roles."""
    given = job.form.get("environment")
    environment = given.get("name") if isinstance(given, dict) else given
    return environment, *sorted({found[0] for text in texts_of(job.form) for found in _CREDENTIALS.finditer(text)})


def drill_finding(
    cluster: str, jobs: Sequence[BotJob], last: Mapping[str, Any] | None, now: datetime
) -> DoctorFinding | None:
    """Check that a restore drill of a cluster has passed lately. None if no job runs drills.

    `last` is the last one that passed, as the ledger recorded it.
    """
    check, drills = "drill.recent", [job for job in jobs if job.verb == "drill"]
    if not drills:
        return None
    days = _DAYS[any(_runs_weekly(job.triggers.get("schedule")) for job in drills)]
    fix = f"where the storage is, with the key of the ledger: gitops drill --cluster {cluster}"
    at = None if last is None else parse_timestamp(str(last["at"]))
    if at is None:
        return warning(check, "a job runs restore drills, but none has passed yet", fix, cluster)
    age = (now - at).days
    if at < now - timedelta(days=days):
        return warning(check, f"the last restore drill that passed was {count(age, 'day')} ago", fix, cluster)
    return good(check, f"a restore drill passed {count(age, 'day')} ago", cluster)


def _runs_weekly(schedule: Any) -> bool:
    """Return whether a schedule runs at least once a week: it limits neither the day of the month nor the month."""
    crons = (
        [str(each.get("cron")).split() for each in schedule if isinstance(each, dict)]
        if isinstance(schedule, list)
        else []
    )
    return any(cron[2:4] == ["*", "*"] for cron in crons)


def presence_findings(cluster: str, files: int, missing: Sequence[str], *, demanded: bool) -> Iterator[DoctorFinding]:
    """Check that a cluster has tests if the rules demand that they pass. `missing` are test folders that do not exist.

    `demanded` means that `gitops.yaml` sets `tests.required` itself, because its default does not ask for tests to exist.
    `files` is the number of test files.
    """
    check = "tests.present"
    for folder in missing:
        detail = f"the test folder {folder} does not exist, so nothing in it is tested"
        yield warning("tests.paths", detail, f"{CONFIG_FILE}, tests: paths: correct or remove {folder}", cluster)
    if files:
        yield good(check, f"{count(files, 'test file')} found", cluster)
    elif demanded:
        fix = "write NAME.test.yaml next to its queries (docs/testing.md), or remove tests.required"
        yield warning(check, "tests.required is set, but there is no test, so every plan passes", fix, cluster)


def report_finding(address: str, cluster: str, open_pages: Callable[[str], WebSender]) -> DoctorFinding | None:
    """Check that the published report of a cluster can be read. None if no address is declared."""
    check = "report.url"
    if not address:
        return None
    try:
        open_pages(address).send(WebRequest("GET", "report.json"))
    except RemoteError as problem:
        if problem.status in _FOR_MEMBERS:
            return good(check, f"{address} answers only to members", cluster)
        fix = f"publish the pages there: gitops report --output DIR; or correct report.url in {CONFIG_FILE}"
        return warning(check, f"links in comments lead nowhere: {problem.detail}", fix, cluster)
    return good(check, f"{address} answers", cluster)
