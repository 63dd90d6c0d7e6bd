"""Commands on the change requests of a repository."""

from __future__ import annotations

import argparse
from typing import Any

from gitops.cli.shared import OK, open_project, say, show_form
from gitops.forge.merge import MergeMethod, merge_request
from gitops.forge.port import ChangeRequest, CommitCheck
from gitops.render.characters import visible


def request_list(options: argparse.Namespace) -> int:
    """`gitops request list`."""
    requests = open_project(options).forge().requests()
    if options.json:
        show_form([_request_form(r) for r in requests])
        return OK
    for request in requests:
        head, source = request.head[:12], _branch(request.source)
        say(visible(f"{request.number:>4}  {request.state:<7} {head}  {source}  {request.title}"))
    if not requests:
        say("no change requests")
    return OK


def request_show(options: argparse.Namespace) -> int:
    """`gitops request show N`."""
    forge = open_project(options).forge()
    request = forge.request(options.number)
    comments = forge.comments(request.number)
    commits = [request.head] if request.merged_as is None else [request.head, request.merged_as]
    statuses = [s for commit in commits for s in forge.statuses(commit)]
    checks = [c for commit in commits for c in forge.checks(commit)]
    if options.json:
        form = _request_form(request)
        form["statuses"] = [
            {"commit": s.commit, "context": s.context, "state": s.state.value, "description": s.description, "at": s.at}
            for s in statuses
        ]
        form["checks"] = [
            {"commit": c.commit, "name": c.name, "state": c.state.value, "title": c.title, "notes": _notes(c)}
            for c in checks
        ]
        form["comments"] = [{"author": c.author, "at": c.at, "body": c.body} for c in comments]
        show_form(form)
        return OK
    say(visible(f"request {request.number}: {request.title}"))
    say(visible(f"  {request.state}, {_branch(request.source)} -> {_branch(request.target)}, head {request.head[:12]}"))
    for status in statuses:
        say(visible(f"  {status.state:<8} {status.commit[:12]} {status.context}: {status.description}"))
    if request.labels:
        say(visible(f"  labels: {', '.join(request.labels)}"))
    for check in checks:
        say(visible(f"  {check.state:<8} {check.commit[:12]} {check.name}: {check.title}"))
        for note in check.annotations:
            say(visible(f"    {note.path}:{note.line}: {note.severity}: {note.message}"))
    for comment in comments:
        say("")
        say(visible(f"--- {comment.author}, {comment.at}"))
        say(visible(comment.body, keep="\n"))
    return OK


def request_merge(options: argparse.Namespace) -> int:
    """`gitops request merge N`."""
    local = open_project(options)
    commit = merge_request(
        local.repository,
        local.pushed_to(),
        local.forge().request(options.number),
        MergeMethod(options.method),
        local.project.tools.clock,
        merger=local.person(),
        expected_head=options.head,
    )
    if options.json:
        show_form({"ok": True, "request": options.number, "commit": commit, "diagnostics": []})
    else:
        say(f"request {options.number}: merged as {commit}")
    return OK


def _branch(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _request_form(request: ChangeRequest) -> dict[str, Any]:
    return {
        "number": request.number,
        "title": request.title,
        "source": request.source,
        "target": request.target,
        "head": request.head,
        "state": request.state.value,
        "opened_at": request.opened_at,
        "pushers": list(request.pushers),
        "merged_as": request.merged_as,
        "author": None if request.author is None else request.author.id,
        "labels": list(request.labels),
    }


def _notes(check: CommitCheck) -> list[dict[str, Any]]:
    return [
        {"path": note.path, "line": note.line, "severity": note.severity.value, "message": note.message}
        for note in check.annotations
    ]
