"""Commands for a repository's change requests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cli.cluster import folder_of, status_of
from gitops.cli.finding import foreign_forge, own_repository, repository_of
from gitops.cli.shared import FAILED, OK, open_repository, say, say_lines, say_report, show, show_form
from gitops.cluster.changesets.stream import ChangesetAnswer
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.changesets import WatchedChangeset, WatchRules, answer_now, find_changesets, watch_changeset
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.forge.merge import MergeMethod, check_head, merge_request
from gitops.forge.people import close_request, comment_on, open_request
from gitops.forge.port import ChangeRequest, CheckState, CheckStatus, RequestState
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.render.changesets import item_lines
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines, status_line, to_text
from gitops.repository.changes import brings_nothing, waiting_changes
from gitops.repository.kept_plans import kept_plan
from gitops.repository.proposals import (
    Proposal,
    earlier_folder,
    entry_of_merge,
    promotion,
    proposed_commit,
    reversal,
    way_back,
)
from gitops.repository.repository import Candidate
from gitops.repository.wiring.git import open_commit_tree, open_git
from gitops.repository.wiring.repository import diff_text

if TYPE_CHECKING:
    from gitops.cluster.changesets.stream import StreamItem
    from gitops.cluster.config.gitops_yaml import ClusterRule
    from gitops.cluster.session.workspace import Workspace
    from gitops.forge.port import ForgeReader
    from gitops.repository.wiring.local import LocalRepository

_APPLIES, _PLANS = "gitops/apply/", "gitops/plan/"


def request_list(options: argparse.Namespace) -> int:
    """`gitops request list`."""
    forge = own_repository(options).forge()
    requests = forge.requests()
    statuses = forge.statuses_of({commit for request in requests for commit in _commits(request)})
    if options.json:
        forms = [(request_form(r), [s for commit in _commits(r) for s in statuses[commit]]) for r in requests]
        listed = [{**form, "statuses": [status_form(s) for s in known]} for form, known in forms]
        show_form({"ok": True, "requests": listed, "problems": []})
        return OK
    for request in requests:
        head, source = request.head[:12], _branch(request.source)
        say(visible(f"{request.number:>4}  {request.state:<7} {head}  {source}  {request.title}"))
        # Show the plans of an open request, and the result of a merged one.
        if request.merged_as is not None:
            applied = [each for each in statuses[request.merged_as] if each.context.startswith(_APPLIES)]
            lines = status_lines(applied, 14) or [f"{' ' * 14}nothing is applied yet"]
            say_lines([f"{' ' * 14}merged as {request.merged_as[:12]}", *lines])
        elif request.state is RequestState.OPEN:
            say_lines(status_lines(statuses[request.head], 14))
    if not requests:
        say("no change requests")
    return OK


def request_show(options: argparse.Namespace) -> int:
    """`gitops request show N`."""
    forge = own_repository(options).forge()
    request = forge.request(options.number)
    comments = forge.comments(request.number)
    commits = _commits(request)
    statuses = [s for commit in commits for s in forge.statuses(commit)]
    checks = [c for commit in commits for c in forge.checks(commit)]
    if options.json:
        form = request_form(request)
        form["statuses"] = [status_form(s) for s in statuses]
        form["checks"] = []
        for check in checks:
            notes = [
                {"path": note.path, "line": note.line, "severity": note.severity.value, "message": note.message}
                for note in check.annotations
            ]
            facts = {"commit": check.commit, "name": check.name, "state": check.state.value, "title": check.title}
            form["checks"].append({**facts, "notes": notes})
        form["comments"] = [{"author": c.author, "at": c.at, "body": c.body} for c in comments]
        show_form({"ok": True, **form, "problems": []})
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
    local = own_repository(options)
    store, target = local.git, local.default_ref
    branch = options.branch or (None if store.work_tree is None else store.symbolic_target("HEAD"))
    if branch is None:
        fix = "name the branch: gitops request open BRANCH"
        raise UsageError(Code.USAGE_ERROR, "no branch is checked out here", fix=fix)
    forge = local.forge()
    request = open_request(store, local.pushed_to(), forge, _branch(branch), target, local.git.person())
    return _show_act(options, forge, request, f"open for {_branch(request.source)}, head {request.head[:12]}")


def request_close(options: argparse.Namespace) -> int:
    """`gitops request close N`."""
    local = own_repository(options)
    forge = local.forge()
    request = close_request(local.pushed_to(), forge, options.number)
    kept = f"its branch {_branch(request.source)} was deleted on the server; its commits remain at {request.head_ref}"
    return _show_act(options, forge, request, f"closed; {kept}")


def request_comment(options: argparse.Namespace) -> int:
    """`gitops request comment N TEXT`."""
    local = own_repository(options)
    forge, clock = local.forge(), local.clock
    comment_on(local.git, local.pushed_to(), forge, options.number, options.text, local.git.person(), clock)
    if options.json:
        show_form({"ok": True, "request": options.number, "problems": []})
    else:
        say_report(f"request {options.number}: comment added", options)
    return OK


def request_diff(options: argparse.Namespace) -> int:
    """`gitops request diff N`: the diff since the request's fork point. For a merged request, the diff of its merge."""
    local = own_repository(options)
    forge = local.forge()
    text = diff_text(local.git.git_dir, forge.base(options.number), forge.request(options.number).head)
    if options.json:
        show_form({"ok": True, "request": options.number, "diff": text, "problems": []})
    else:
        say(visible(text, keep="\n\t"))
    return OK


def request_merge(options: argparse.Namespace) -> int:
    """`gitops request merge N`. Exits 0 if the merge is applied, 3 if the apply is still pending."""
    local = own_repository(options)
    request, remote = local.forge().request(options.number), local.pushed_to()
    check_head(remote, request, options.head)
    failing = _failing_checks(local, request)
    if failing and not options.force:
        raise _not_merged(local, request, failing)
    if failing:
        _force(local, request, failing)
    # Merge exactly the head whose checks were read.
    commit = merge_request(
        local.git,
        remote,
        request,
        MergeMethod(options.method),
        local.clock,
        merger=local.git.person(),
        expected_head=options.head,
    )
    shown = not (options.json or options.quiet)
    if shown:
        say(f"request {options.number}: merged as {commit}", flush=True)
    found = {rule.name: _outcome(options, local, rule, commit) for rule in _clusters(local, request.target)}
    statuses = local.forge().statuses(commit)
    code = max(found.values(), key=_WORST.index, default=_Outcome.APPLIED)
    if options.json:
        form = {"ok": code is _Outcome.APPLIED, "request": options.number, "commit": commit, "outcome": code.value}
        clusters = [{"cluster": name, "outcome": each.value} for name, each in found.items()]
        form |= {
            "clusters": clusters,
            "in_spite_of": list(failing.values()),
            "statuses": [status_form(s) for s in statuses],
        }
        show_form({**form, "problems": []})
    elif shown or code is not _Outcome.APPLIED:
        say_lines(f"  merged despite {line}" for line in failing.values())
        say_lines([*status_lines(statuses, 2), *_next_steps(local, request, commit, found)])
    return _EXIT[code]


class _Outcome(StrEnum):
    """Outcome of a merge in one cluster."""

    APPLIED = "applied"
    WAITS = "waits"
    FAILED = "failed"


_WORST = (_Outcome.APPLIED, _Outcome.WAITS, _Outcome.FAILED)
_EXIT = {_Outcome.APPLIED: OK, _Outcome.WAITS: 3, _Outcome.FAILED: FAILED}


def _clusters(local: LocalRepository, target: str) -> list[ClusterRule]:
    """Return the clusters that follow a branch (full ref name)."""
    return [rule for rule in local.clusters() if rule.ref == target]


def _failing_checks(local: LocalRepository, request: ChangeRequest) -> dict[str, str]:
    """Return the unsuccessful checks of a request's head by context. There is one check per cluster, for its plan.

    Every cluster of the target has a check, even if the request does not touch it. Checks of an earlier head don't
    count.
    """
    found = {each.context: each for each in local.forge().statuses(request.head) if each.context.startswith(_PLANS)}
    missing = {f"{_PLANS}{rule.name}" for rule in _clusters(local, request.target)} - found.keys()
    bad = {name: f"{s.state} {name}: {s.description}" for name, s in found.items() if s.state is not CheckState.SUCCESS}
    return bad | {name: f"missing {name}: no run has planned head {request.head[:12]} yet" for name in sorted(missing)}


def _not_merged(local: LocalRepository, request: ChangeRequest, failing: Mapping[str, str]) -> GitopsError:
    """Explain why a request is not merged, with the next commands."""
    fix, number = f"show the plan: gitops request show {request.number}", request.number
    for context, line in failing.items():
        cluster = context.removeprefix(_PLANS)
        kept = kept_plan(local, cluster, number)
        if line.endswith(f": {Code.REQUEST_CONFLICT}"):
            # Not even an approver can merge that.
            detail = f"request {number} is not merged: it conflicts with {request.target.removeprefix('refs/heads/')}"
            return GitopsError(Code.REQUEST_CONFLICT, detail, path=context, fix=f"{fix}; {request.rebase}")
        if line.startswith("missing "):
            fix = "wait for the server hook; if it was interrupted, run on the server: gitops bot sweep"
        elif kept is not None and kept.head == request.head:
            commands = [f"gitops approve {each} --request {number} --cluster {cluster}" for each in kept.missing]
            fix += "".join(f"; ask an approver who is not an author to run: {command}" for command in commands)
    fix += f"; then merge again, or, as an approver, despite it: gitops request merge {number} --force"
    detail = f"request {number} is not merged: {'; '.join(failing.values())}"
    return GitopsError(Code.REQUEST_CHECKS_FAILED, detail, path=next(iter(failing)), fix=fix)


def _force(local: LocalRepository, request: ChangeRequest, failing: Mapping[str, str]) -> None:
    """Record on a request that a person merges it despite failing checks. Raises GitopsError `request_force_refused`.

    The server records the author of the comment. It accepts any merge from people with push rights, so this only
    prevents mistakes.
    """
    person = local.git.person()
    for rule in _clusters(local, request.target):
        trust = local.position(rule).trust
        names = frozenset() if trust is None else trust.known_as({person.email})
        known = () if trust is None else {name for signer in trust.signers for name in signer.principals}
        if trust is None or not any(name.casefold() in names and trust.may_approve(name) for name in known):
            detail, path = f"{person.email} is not an approver of {rule.name}", f"{_PLANS}{rule.name}"
            fix = f"ask an approver who is listed in gitops.yaml to run: gitops request merge {request.number} --force"
            raise GitopsError(Code.REQUEST_FORCE_REFUSED, detail, path=path, fix=fix)
    text = "\n".join(["Merging with `--force`, in spite of:", "", *(f"- {line}" for line in failing.values())])
    clock = local.clock
    comment_on(local.git, local.pushed_to(), local.forge(), request.number, text, person, clock)


def _outcome(options: argparse.Namespace, local: LocalRepository, rule: ClusterRule, commit: str) -> _Outcome:
    """Return the outcome of a merge in a cluster. If another run holds the lock, watch the changeset of the merge."""
    from gitops.cli.changeset import usual_pacing

    ledger, wanted, rules = local.ledger(rule), WatchedChangeset(commit=commit), WatchRules(timeout=options.timeout)

    def emit(item: StreamItem) -> None:
        if not (options.json or options.quiet):
            say_lines(f"  {line}" for line in item_lines(item))

    def answered(merge: str) -> bool:
        return _applied(local, rule, commit) is not None or brings_nothing(local, rule, merge)

    if answered(commit):
        found = answer_now(wanted, find_changesets(ledger, wanted, lambda _: True), rules)
    elif ledger.observe_lock().held:
        found, _ = watch_changeset(ledger, rule.name, wanted, rules, usual_pacing(), emit, answered)
    else:
        found = ChangesetAnswer.WAITING
    status = _applied(local, rule, commit)
    if status is None and found in (ChangesetAnswer.DONE, ChangesetAnswer.NO_CHANGE):
        return _Outcome.APPLIED
    if status is not None and status.state is CheckState.SUCCESS:
        return _Outcome.APPLIED
    if found is ChangesetAnswer.FAILED:
        return _Outcome.FAILED
    return _Outcome.WAITS if found is ChangesetAnswer.WAITING or waiting_changes(local, rule) else _Outcome.FAILED


def _applied(local: LocalRepository, rule: ClusterRule, commit: str) -> CheckStatus | None:
    """Return the status of a merge's apply, or None if it has none yet."""
    return next((s for s in local.forge().statuses(commit) if s.context == f"{_APPLIES}{rule.name}"), None)


def _next_steps(
    local: LocalRepository, request: ChangeRequest, commit: str, found: Mapping[str, _Outcome]
) -> Iterator[str]:
    """Yield the commands to run next after a merge that was not applied."""
    for rule in _clusters(local, request.target):
        outcome = found.get(rule.name, _Outcome.APPLIED)
        if outcome is _Outcome.FAILED:
            yield f"  see why: gitops request show {request.number}"
        elif outcome is _Outcome.WAITS and (waiting := waiting_changes(local, rule)):
            yield from (f"  approve: gitops approve {each} --cluster {rule.name}" for each in waiting)
        elif outcome is _Outcome.WAITS and local.ledger(rule).observe_lock().held:
            yield f"  another run is in progress; to wait: gitops changeset watch --commit {commit} --cluster {rule.name}"
        elif outcome is _Outcome.WAITS:
            yield f"  nothing is applied to {rule.name}, because no hook responded; the next `gitops bot sweep` applies it"


def _show_act(options: argparse.Namespace, forge: ForgeReader, request: ChangeRequest, what: str) -> int:
    """Print the result of an action on a request, with the statuses of its head."""
    statuses = forge.statuses(request.head)
    if options.json:
        form = {**request_form(request), "statuses": [status_form(s) for s in statuses]}
        show_form({"ok": True, "request": form, "problems": []})
        return OK
    say_report("\n".join([visible(f"request {request.number}: {what}"), *status_lines(statuses, 2)]), options)
    return OK


def _commits(request: ChangeRequest) -> list[str]:
    """Return the commits whose statuses count for a request."""
    return [request.head] if request.merged_as is None else [request.head, request.merged_as]


def status_lines(statuses: Sequence[CheckStatus], indent: int) -> list[str]:
    """Return a line for each status."""
    return [visible(f"{' ' * indent}{each.state:<8} {each.context}: {each.description}") for each in statuses]


def status_form(status: CheckStatus) -> dict[str, Any]:
    """Return a status as JSON."""
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
    """Return a change request as JSON, without its statuses."""
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


# `gitops promote`, `gitops revert` and `gitops down --to`.
#
# A proposal becomes a commit on a new branch, with its plan and change request.

_HEADS = "refs/heads/"


def file_lines(local: LocalRepository, found: Proposal) -> list[str]:
    """Return the files that a proposal changes, with line counts from git."""
    return diff_text(local.git.git_dir, found.old, found.new, stat=True).splitlines()


def propose(
    local: LocalRepository, found: Proposal, branch: str, *, undoes: bool = False
) -> tuple[list[str], dict[str, Any]]:
    """Create the branch with its commit and plan it. If the repository keeps requests in refs, also open a change request.

    Return lines and JSON.

    Raises UsageError `usage_error`, and ConflictError `git_ref_conflict` if the branch exists.
    """
    store, ref = local.git, f"{_HEADS}{branch}"
    old = store.resolve(ref)
    if branch.startswith("gitops/") or ref == found.ref:
        raise UsageError(Code.USAGE_ERROR, f"branch {branch} cannot be proposed", fix="choose a name: --branch NAME")
    if old is not None and (not store.is_ancestor(old, found.base) or store.symbolic_target("HEAD") == ref):
        fix = f"propose it: gitops request open {branch}; or choose another name: --branch NAME"
        raise ConflictError(
            Code.GIT_REF_CONFLICT, f"branch {branch} already exists here, with other commits", path=ref, fix=fix
        )
    if foreign_forge(local) is None:
        there = local.pushed_to().refs(ref).get(ref)
        if there not in (None, old) and (store.resolve(there) is None or not store.is_ancestor(there, found.base)):
            fix = "see its change request: gitops request list; or choose another name: --branch NAME"
            detail = f"branch {branch} already exists on the server, with other commits"
            raise ConflictError(Code.GIT_REF_CONFLICT, detail, path=ref, fix=fix)
    commit = proposed_commit(local, found, local.git.person(), local.git.signing_key())
    position = local.position(found.rule)
    made = Candidate(commit, base=found.base, ref=found.ref, undoes=undoes)
    workspace = local.with_plans(local.at(found.rule, position, made)).workspace(None)
    lines = to_text(plan(workspace)).splitlines()
    store.update_refs([RefUpdate(ref, old or ZERO, commit)])
    form = {"branch": branch, "commit": commit}
    if foreign_forge(local) is not None:
        push = f"git push origin {branch}"
        return [*lines, f"branch {branch}: created; push it, then open its change request: {push}"], {
            **form,
            "request": None,
        }
    forge = local.forge()
    request = open_request(store, local.pushed_to(), forge, branch, found.ref, local.git.person())
    statuses = forge.statuses(request.head)
    lines.append(f"request {request.number}: open for {branch}, head {request.head[:12]}")
    shown = {**request_form(request), "statuses": [status_form(each) for each in statuses]}
    return [*lines, *status_lines(statuses, 2)], {**form, "request": shown}


# -- `gitops promote`: propose the applied state of one cluster for another cluster ------------------------------------

_SHOWN = 10


def promote(options: argparse.Namespace) -> int:
    """`gitops promote FROM TO`: create a commit on a new branch with a change request.

    `--dry-run` only shows the changes.
    """
    local = open_repository(options)
    source, target = local.rule(options.source), local.rule(options.target)
    found = promotion(local, source, local.position(source), target)
    problems, seen = Diagnostics(), status_of(local, source)
    if seen.in_sync is not True or seen.drifted:
        # Pending or drifted state has not been shown to work.
        detail = f"only the applied revision is promoted, not later merges; {status_line(source.name, seen)}"
        fix = f"gitops status --cluster {source.name}"
        problems.add(Code.PROMOTION_INCOMPLETE, source.name, detail, severity=Severity.WARNING, fix=fix)
    form: dict[str, Any] = {"applied": found.applied, "stays": list(found.stays)}
    form["files"] = list(local.git.changed_paths(found.old, found.new))
    applied = f"what {source.name} has applied of commit {found.applied[:12]}"
    summary = applied if form["files"] else f"nothing differs from {applied}"
    lines = [f"promote {source.name} to {found.rule.name}: {summary}", *file_lines(local, found)]
    shown = [*found.stays[:_SHOWN], *([f"and {len(found.stays) - _SHOWN} more"] if len(found.stays) > _SHOWN else [])]
    lines += [f" not declared, so they are kept: {', '.join(shown)}"] if shown else []
    if form["files"] and not options.dry_run:
        branch = options.branch or f"promote-{source.name}-to-{found.rule.name}"
        more, parts = propose(local, found, branch)
        lines, form = lines + more, {**form, **parts}
    if options.json:
        show_form({"ok": True, **form, "problems": problems.to_json()})
    else:
        say_report("\n".join(map(visible, lines)), options)
        say_lines(diagnostic_lines(problems, verbose=options.verbose))
    return OK


# -- `gitops revert`, and `gitops down --to`: the way back, as a change request and as a plan --------------------------


def revert(options: argparse.Namespace) -> int:
    """`gitops revert ENTRY`: create a commit on a new branch with a change request.

    `--dry-run` only shows the changes.
    """
    if (options.entry is None) == (options.request is None):
        fix = "gitops revert 7 reverts entry 7, and gitops revert --request 2 reverts the merge of request 2"
        raise UsageError(Code.USAGE_ERROR, "specify either an entry or a change request", fix=fix)
    local = open_repository(options)
    rule = local.rule(options.cluster, options.config)
    wanted = options.entry or _entry_of_request(local, rule, options.request)
    # A dry run doesn't need an author.
    unknown = Person("gitops", "gitops@localhost") if options.dry_run else None
    person = local.git.person_or_none() or unknown or local.git.person()
    found, entry = reversal(local, rule, wanted, person)
    files = list(local.git.changed_paths(found.old, found.new))
    form: dict[str, Any] = {"entry": entry.number, "changeset": entry.changeset, "files": files}
    number = len(entry.moved)
    summary = (
        f"{number} change{'' if number == 1 else 's'} rolled back"
        if files
        else "nothing that it applied is left to revert"
    )
    lines = [f"revert entry {entry.number} of {rule.name}: {summary}", *file_lines(local, found)]
    # The entry has the row counts, so the graphs are not needed.
    before = {c.resource.name: c.seen for c in entry.changes if c.resource in entry.moved and c.seen is not None}
    for graph, seen in before.items() if files else ():
        lines.append(f" before it, graph {graph} was at version {seen.version}, with {seen.held}")
    form["before"] = [{"graph": graph, "version": seen.version, "rows": seen.rows} for graph, seen in before.items()]
    if files and not options.dry_run:
        more, parts = propose(local, found, options.branch or f"revert-{rule.name}-{entry.number}", undoes=True)
        lines, form = lines + more, {**form, **parts}
    if options.json:
        show_form({"ok": True, **form, "problems": []})
    else:
        say_report("\n".join(map(visible, lines)), options)
    return OK


def _entry_of_request(local: LocalRepository, rule: ClusterRule, number: int) -> str:
    """Return the entry that applied the merge of a request. Raises GitopsError `request_not_found`, `revert_refused`.

    In a clone, the merge is looked up in the ledger, because querying the forge might require a token.
    """
    if foreign_forge(local) is not None:
        ledger = local.ledger(rule)
        records = filter(None, map(ledger.changeset, ledger.changeset_keys()))
        merge = next((each.source.merge_commit for each in records if each.source.pull_request == number), None)
        if merge is None:
            detail = f"the ledger of {rule.name} records no merge of request {number}"
            fix = "find the entry that has its changes: gitops log; then: gitops revert ENTRY"
            raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name, fix=fix)
        return entry_of_merge(local, rule, merge, f"the merge of request {number}")
    request = local.forge().request(number)
    if request.merged_as is None:
        detail = f"request {number} is {request.state} and was not merged, so nothing of it is applied"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name, fix=f"gitops request show {number}")
    return entry_of_merge(local, rule, request.merged_as, f"the merge of request {number}")


def down_to(options: argparse.Namespace) -> int:
    """`gitops down --to ENTRY|COMMIT`: print the revert plan. Changes no refs, ledger or graphs."""
    if options.request is not None:
        raise UsageError(Code.USAGE_ERROR, "--to selects an applied or committed state; omit --request")
    local = repository_of(options)
    if local is None:
        outcome = plan(_folder_at(options))
    else:
        rule = local.rule(options.cluster, options.config)
        found = way_back(local, rule, earlier_folder(local, rule, options.new))
        position = local.position(rule)
        back = Candidate(found.base, tree=found.new, ref=found.ref, undoes=True)
        outcome = plan(local.with_plans(local.at(rule, position, back)).workspace(None))
    if not options.show_graph or outcome.plan is None:
        return show(outcome, options)
    from gitops.render.graph import to_json, to_text

    graph = outcome.plan.undo_graph
    if options.json:
        from gitops.render.json import envelope

        drawing = to_json(graph, outcome.plan.digest, direction="down")
        show_form(envelope(outcome, more={"execution_graph": drawing}))
    else:
        show(outcome, options)
        say(f"\n{to_text(graph, quiet=outcome.plan.republished)}")
    return OK if outcome.ok else FAILED


def _folder_at(options: argparse.Namespace) -> Workspace:
    """Return the cluster folder at a commit of its repository, with the ledger in the current folder.

    Raises UsageError `not_a_repository`, `usage_error`.
    """
    workspace = folder_of(options, None)
    repository = open_git(workspace.config_dir)
    commit, folder = repository.resolve(options.new), Path(workspace.config_dir).resolve()
    path = folder.relative_to(Path(repository.work_tree or folder).resolve()).as_posix()
    tree = None if commit is None else repository.subtree(repository.commit(commit).tree, path)
    if tree is None:
        detail = f"{options.new[:80]} is not the full id of a commit with folder {path}"
        fix = "a ledger in a folder keeps no entries; find the commit: git rev-parse NAME"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    return replace(workspace, tree=open_commit_tree(repository, tree, path), undoes=True)
