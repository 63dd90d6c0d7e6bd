"""Commands on the change requests of a repository."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.cli.shared import OK, open_project, say, say_lines, say_report, show_form
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.forge.merge import MergeMethod, merge_request
from gitops.forge.people import close_request, comment_on, open_request
from gitops.forge.port import ChangeRequest, CheckState, CheckStatus, CommitCheck, RequestState
from gitops.render.characters import visible
from gitops.wiring.forge import LOCAL
from gitops.wiring.repository import diff_text

if TYPE_CHECKING:
    from gitops.forge.port import ForgeReader
    from gitops.wiring.project import LocalProject

_APPLIES = "gitops/apply/"


def request_list(options: argparse.Namespace) -> int:
    """`gitops request list`."""
    forge = open_project(options).forge()
    requests = forge.requests()
    statuses = forge.statuses_of({commit for request in requests for commit in _commits(request)})
    if options.json:
        forms = [(request_form(r), [s for commit in _commits(r) for s in statuses[commit]]) for r in requests]
        show_form([{**form, "statuses": [status_form(s) for s in known]} for form, known in forms])
        return OK
    for request in requests:
        head, source = request.head[:12], _branch(request.source)
        say(visible(f"{request.number:>4}  {request.state:<7} {head}  {source}  {request.title}"))
        say_lines(_outcome_lines(request, statuses))
    if not requests:
        say("no change requests")
    return OK


def request_show(options: argparse.Namespace) -> int:
    """`gitops request show N`."""
    forge = open_project(options).forge()
    request = forge.request(options.number)
    comments = forge.comments(request.number)
    commits = _commits(request)
    statuses = [s for commit in commits for s in forge.statuses(commit)]
    checks = [c for commit in commits for c in forge.checks(commit)]
    if options.json:
        form = request_form(request)
        form["statuses"] = [status_form(s) for s in statuses]
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


def request_open(options: argparse.Namespace) -> int:
    """`gitops request open [BRANCH]`."""
    local = _own(options)
    store, target = local.repository, local.project.default_ref
    branch = options.branch or (None if store.work_tree is None else store.symbolic_target("HEAD"))
    if branch is None:
        fix = "name the branch: gitops request open BRANCH"
        raise UsageError(Code.USAGE_ERROR, "no branch is checked out here", fix=fix)
    forge = local.forge()
    request = open_request(store, local.pushed_to(), forge, _branch(branch), target, local.person())
    return _show_act(options, forge, request, f"open for {_branch(request.source)}, head {request.head[:12]}")


def request_close(options: argparse.Namespace) -> int:
    """`gitops request close N`."""
    local = _own(options)
    forge = local.forge()
    request = close_request(local.pushed_to(), forge, options.number)
    kept = f"its branch {_branch(request.source)} is deleted on the server, its commits stay at {request.head_ref}"
    return _show_act(options, forge, request, f"closed; {kept}")


def request_comment(options: argparse.Namespace) -> int:
    """`gitops request comment N TEXT`."""
    local = _own(options)
    forge, clock = local.forge(), local.project.tools.clock
    comment_on(local.repository, local.pushed_to(), forge, options.number, options.text, local.person(), clock)
    if options.json:
        show_form({"ok": True, "request": options.number, "diagnostics": []})
    else:
        say_report(f"request {options.number}: comment added", options)
    return OK


def request_diff(options: argparse.Namespace) -> int:
    """`gitops request diff N`: from where the request left its target; for a merged one, what its merge changed."""
    local = open_project(options)
    forge = local.forge()
    text = diff_text(local.repository.git_dir, forge.base(options.number), forge.request(options.number).head)
    if options.json:
        show_form({"ok": True, "request": options.number, "diff": text, "diagnostics": []})
    else:
        say(visible(text, keep="\n\t"))
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
    # The hooks of a server have applied the merge by now.
    statuses = local.forge().statuses(commit)
    if options.json:
        form = {"ok": True, "request": options.number, "commit": commit, "diagnostics": []}
        show_form({**form, "statuses": [status_form(s) for s in statuses]})
        return OK
    lines = [f"request {options.number}: merged as {commit}", *status_lines(statuses, 2)]
    if any(each.state is not CheckState.SUCCESS for each in statuses):
        lines.append(f"  what it waits for: gitops request show {options.number}")
    if not statuses:
        lines.append("  nothing is applied yet: no hook answered; the next `gitops bot sweep` applies it")
    say_report("\n".join(lines), options)
    return OK


def foreign_forge(local: LocalProject) -> str | None:
    """The kind of forge that has the change requests of a project, None if they are in refs of its repository."""
    kind = local.project.config().forge.kind
    return None if kind in (None, LOCAL) else kind


def _own(options: argparse.Namespace) -> LocalProject:
    """The project, whose requests are in refs of its repository. Raises UsageError `usage_error` if they are on a forge."""
    local = open_project(options)
    kind = foreign_forge(local)
    if kind is not None:
        fix = f"use the pages of {kind} or its own program"
        raise UsageError(Code.USAGE_ERROR, f"the change requests of this repository are on {kind}", fix=fix)
    return local


def _show_act(options: argparse.Namespace, forge: ForgeReader, request: ChangeRequest, what: str) -> int:
    """Print what became of a request, with the statuses of its head."""
    statuses = forge.statuses(request.head)
    if options.json:
        form = {**request_form(request), "statuses": [status_form(s) for s in statuses]}
        show_form({"ok": True, "request": form, "diagnostics": []})
        return OK
    say_report("\n".join([visible(f"request {request.number}: {what}"), *status_lines(statuses, 2)]), options)
    return OK


def _outcome_lines(request: ChangeRequest, statuses: Mapping[str, Sequence[CheckStatus]]) -> list[str]:
    """What a person has to know of a request: the plans of an open one, and what became of a merged one."""
    if request.merged_as is None:
        return status_lines(statuses[request.head], 14) if request.state is RequestState.OPEN else []
    applied = [each for each in statuses[request.merged_as] if each.context.startswith(_APPLIES)]
    lines = [f"{' ' * 14}merged as {request.merged_as[:12]}", *status_lines(applied, 14)]
    return lines if applied else [*lines, f"{' ' * 14}nothing is applied yet"]


def _commits(request: ChangeRequest) -> list[str]:
    """The commits whose statuses are those of a request."""
    return [request.head] if request.merged_as is None else [request.head, request.merged_as]


def status_lines(statuses: Sequence[CheckStatus], indent: int) -> list[str]:
    """A line for each status."""
    return [visible(f"{' ' * indent}{each.state:<8} {each.context}: {each.description}") for each in statuses]


def status_form(status: CheckStatus) -> dict[str, Any]:
    """A status in JSON."""
    return {
        "commit": status.commit,
        "context": status.context,
        "state": status.state.value,
        "description": status.description,
        "at": status.at,
    }


def _branch(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def request_form(request: ChangeRequest) -> dict[str, Any]:
    """A change request in JSON, without its statuses."""
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
