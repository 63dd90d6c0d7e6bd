"""Commands on a repository: change requests, the audit trail, the auditor."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Any

from gitops.cli.output import FAILED, OK, say, show_form
from gitops.cli.project import LocalProject, choice_of, open_commit_tree
from gitops.forges.merge import MergeMethod, MergeOrder, merge_request
from gitops.ports.forge import ChangeRequest, CheckStatus
from gitops.render.characters import visible


def request_list(options: argparse.Namespace) -> int:
    """`gitops request list`."""
    requests = LocalProject(choice_of(options)).forge().requests()
    if options.json:
        show_form([_request_form(r) for r in requests])
        return OK
    for request in requests:
        say(
            visible(
                f"{request.number:>4}  {request.state:<7} {request.head[:12]}  {_branch(request.source)}  {request.title}"
            )
        )
    if not requests:
        say("no change requests")
    return OK


def request_show(options: argparse.Namespace) -> int:
    """`gitops request show N`."""
    forge = LocalProject(choice_of(options)).forge()
    request = forge.request(options.number)
    comments = forge.comments(request.number)
    commits = [request.head] if request.merged_as is None else [request.head, request.merged_as]
    statuses = [s for commit in commits for s in forge.statuses(commit)]
    if options.json:
        form = _request_form(request)
        form["statuses"] = [_status_form(s) for s in statuses]
        form["comments"] = [{"author": c.author, "at": c.at, "body": c.body} for c in comments]
        show_form(form)
        return OK
    say(visible(f"request {request.number}: {request.title}"))
    say(visible(f"  {request.state}, {_branch(request.source)} -> {_branch(request.target)}, head {request.head[:12]}"))
    for status in statuses:
        say(visible(f"  {status.state:<8} {status.commit[:12]} {status.context}: {status.description}"))
    for comment in comments:
        say("")
        say(visible(f"--- {comment.author}, {comment.at}"))
        say(visible(comment.body, keep="\n"))
    return OK


def request_merge(options: argparse.Namespace) -> int:
    """`gitops request merge N`."""
    local = LocalProject(choice_of(options))
    order = MergeOrder(
        request=local.forge().request(options.number),
        method=MergeMethod(options.method),
        merger=local.person(),
        expected_head=options.head,
    )
    commit = merge_request(local.repository, local.pushed_to(), order, local.project.tools.clock)
    if options.json:
        show_form({"ok": True, "request": options.number, "commit": commit, "diagnostics": []})
    else:
        say(f"request {options.number}: merged as {commit}")
    return OK


def log(options: argparse.Namespace) -> int:
    """`gitops log`."""
    from gitops.render.audit import log_form, log_text
    from gitops.workflows.trail import trail

    local = LocalProject(choice_of(options, offline=True))
    head = local.project.ledger_head(local.rule(options))
    found = trail(local.repository, head)
    records = tuple(islice(found, options.limit) if options.limit > 0 else found)
    if options.json:
        show_form(log_form(records))
    else:
        say(log_text(records))
    return OK if all(record.signature == "good" for record in records) else FAILED


def audit(options: argparse.Namespace) -> int:
    """`gitops audit`."""
    from gitops.render.audit import audit_form, audit_text
    from gitops.workflows.audit import audit as run

    local = LocalProject(choice_of(options, offline=True))
    rule = local.rule(options)
    report = run(
        local.repository,
        local.project.ledger_head(rule),
        rule.name,
        lambda reader, tree: open_commit_tree(reader, tree, rule.path),
    )
    if options.json:
        show_form(audit_form(report))
    else:
        say(audit_text(report))
    return OK if report.ok else FAILED


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
    }


def _status_form(status: CheckStatus) -> dict[str, Any]:
    return {
        "commit": status.commit,
        "context": status.context,
        "state": status.state.value,
        "description": status.description,
        "at": status.at,
    }
