"""Commands for a bare repository's issues, in which the bot reports problems that don't belong to a change request."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gitops.cli.finding import own_repository
from gitops.cli.shared import OK, say, show_form
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.forge.port import RequestState
from gitops.render.characters import visible
from gitops.repository.cluster import drift_ref

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ClusterRule
    from gitops.cluster.model.outcome import StatusOutcome
    from gitops.forge.port import Issue
    from gitops.repository.wiring.local import LocalRepository


def issue_list(options: argparse.Namespace) -> int:
    """`gitops issue list`."""
    found = [issue for issue in _issues(options) if issue.open or options.all]
    if options.json:
        show_form({"ok": True, "issues": list(map(_form, found)), "problems": []})
        return OK
    for issue in found:
        say(visible(f"{issue.number:>4}  {_state(issue):<6}  {issue.opened_at}  {issue.title}"))
    if not found:
        say("no issues" if options.all else "no issue is open; to list the closed ones too: gitops issue list --all")
    return OK


def issue_show(options: argparse.Namespace) -> int:
    """`gitops issue show N`. Raises GitopsError `issue_not_found`."""
    issue = next((each for each in _issues(options) if each.number == options.number), None)
    if issue is None:
        raise GitopsError(Code.ISSUE_NOT_FOUND, f"issue {options.number} does not exist")
    if options.json:
        show_form({"ok": True, "issue": {**_form(issue), "body": issue.body}, "problems": []})
        return OK
    say(visible(f"issue {issue.number}: {issue.title}"))
    say(visible(f"  {_state(issue)}, opened at {issue.opened_at} by {issue.account}\n\n{issue.body}", keep="\n"))
    if issue.last_comment is not None:
        say(visible(f"\n--- closed\n{issue.last_comment}", keep="\n"))
    return OK


def with_reported_drift(local: LocalRepository, rule: ClusterRule, outcome: StatusOutcome) -> StatusOutcome:
    """Return a cluster's status. It is not in sync while one of the bot's issues or requests about its drift is open."""
    problems, report = Diagnostics(), drift_ref(rule.name)
    try:
        found = [issue for issue in local.forge().all_issues() if issue.open]
        # The report's branch remains after its request is closed. Usually there is no such branch, so no request needs
        # to be found.
        asked = (
            () if local.head_of(report) is None else local.forge().requests(state=RequestState.OPEN, target=rule.ref)
        )
    except GitopsError as error:
        problems.add(error.code, error.path, error.detail, severity=Severity.WARNING)
        return replace(outcome, diagnostics=(*outcome.diagnostics, *problems))
    for request in asked:
        if request.source == report:
            detail = f"request {request.number} is open: {request.title}: gitops request show {request.number}"
            problems.add(Code.DRIFT_REPORTED, rule.name, detail)
    if not found and not problems:
        return outcome
    from gitops.render.comment import drift_marker

    for issue in found:
        if issue.marker == drift_marker(rule.name):
            detail = f"issue {issue.number} is open: {issue.title}: gitops issue show {issue.number}"
            problems.add(Code.DRIFT_REPORTED, rule.name, detail)
    if not problems:
        return outcome
    return replace(
        outcome,
        in_sync=None if outcome.in_sync is None else False,
        diagnostics=(*outcome.diagnostics, *problems),
    )


def _issues(options: argparse.Namespace) -> tuple[Issue, ...]:
    """Return the issues by number. Raises UsageError if the repository's issues are on a forge."""
    return own_repository(options, "issues").forge().all_issues()


def _state(issue: Issue) -> str:
    return "open" if issue.open else "closed"


def _form(issue: Issue) -> dict[str, Any]:
    form = {"number": issue.number, "state": _state(issue), "title": issue.title}
    return {**form, "author": issue.account, "opened_at": issue.opened_at, "last_comment": issue.last_comment}
