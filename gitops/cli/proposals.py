"""`gitops promote`, `gitops revert` and `gitops down --to`.

A proposal becomes a commit on a new branch, with its plan and change request.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cli.cluster import folder_of, repository_of, status_of
from gitops.cli.requests import foreign_forge, request_form, status_form, status_lines
from gitops.cli.shared import FAILED, OK, open_repository, say, say_lines, say_report, show, show_form
from gitops.cluster.plan.plan import plan
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, UsageError
from gitops.forge.people import open_request
from gitops.git.port import ZERO, RefUpdate
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines, status_line, to_text
from gitops.repository.proposals import Proposal, earlier_folder, promotion, proposed_commit, reversal, way_back
from gitops.repository.repository import Candidate
from gitops.repository.wiring.git import open_commit_tree, open_git
from gitops.repository.wiring.repository import diff_text

if TYPE_CHECKING:
    from gitops.cluster.session.workspace import Workspace
    from gitops.repository.wiring.local import LocalRepository

_HEADS = "refs/heads/"


def file_lines(local: LocalRepository, found: Proposal) -> list[str]:
    """The files that a proposal changes, as git counts their lines."""
    return diff_text(local.git.git_dir, found.old, found.new, stat=True).splitlines()


def propose(
    local: LocalRepository, found: Proposal, branch: str, *, undoes: bool = False
) -> tuple[list[str], dict[str, Any]]:
    """Make the branch with its commit, plan it, and open its change request where it is in refs; the lines, and their form.

    Raises UsageError `usage_error`, ConflictError `git_ref_conflict` for a branch that is not free.
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
    commit = proposed_commit(local, found, local.git.person(), local.git.signing_key())
    position = local.position(found.rule)
    made = Candidate(commit, base=found.base, ref=found.ref, undoes=undoes)
    workspace = local.with_plans(local.at(found.rule, position, made)).workspace(None)
    lines = to_text(plan(workspace)).splitlines()
    store.update_refs([RefUpdate(ref, old or ZERO, commit)])
    form = {"branch": branch, "commit": commit}
    if foreign_forge(local) is not None:
        push = f"git push origin {branch}"
        return [*lines, f"branch {branch}: made; push it, and open its change request: {push}"], {
            **form,
            "request": None,
        }
    forge = local.forge()
    request = open_request(store, local.pushed_to(), forge, branch, found.ref, local.git.person())
    statuses = forge.statuses(request.head)
    lines.append(f"request {request.number}: open for {branch}, head {request.head[:12]}")
    shown = {**request_form(request), "statuses": [status_form(each) for each in statuses]}
    return [*lines, *status_lines(statuses, 2)], {**form, "request": shown}


# -- `gitops promote`: what is applied in one cluster, for another one -------------------------------------------------

_SHOWN = 10


def promote(options: argparse.Namespace) -> int:
    """`gitops promote FROM TO`: a commit on a new branch, and its change request; `--dry-run` shows only what would change."""
    local = open_repository(options)
    source, target = local.rule(options.source), local.rule(options.target)
    found = promotion(local, source, local.position(source), target)
    problems, seen = Diagnostics(), status_of(local, source)
    if seen.in_sync is not True or seen.drifted:
        # What waits or differs is not known to be good.
        detail = f"what is applied is promoted, not what is merged; {status_line(source.name, seen)}"
        fix = f"gitops status --cluster {source.name}"
        problems.add(Code.PROMOTION_INCOMPLETE, source.name, detail, severity=Severity.WARNING, fix=fix)
    form: dict[str, Any] = {"applied": found.applied, "stays": list(found.stays)}
    form["files"] = list(local.git.changed_paths(found.old, found.new))
    applied = f"what {source.name} has applied of commit {found.applied[:12]}"
    summary = applied if form["files"] else f"nothing differs from {applied}"
    lines = [f"promote {source.name} to {found.rule.name}: {summary}", *file_lines(local, found)]
    shown = [*found.stays[:_SHOWN], *([f"and {len(found.stays) - _SHOWN} more"] if len(found.stays) > _SHOWN else [])]
    lines += [f" not declared, so they stay: {', '.join(shown)}"] if shown else []
    if form["files"] and not options.dry_run:
        branch = options.branch or f"promote-{source.name}-to-{found.rule.name}"
        more, parts = propose(local, found, branch)
        lines, form = lines + more, {**form, **parts}
    if options.json:
        show_form({"ok": True, **form, "diagnostics": problems.to_json()})
    else:
        say_report("\n".join(map(visible, lines)), options)
        say_lines(diagnostic_lines(problems, verbose=options.verbose))
    return OK


# -- `gitops revert`, and `gitops down --to`: the way back, as a change request and as a plan --------------------------


def revert(options: argparse.Namespace) -> int:
    """`gitops revert ENTRY`: a commit on a new branch, and its change request; `--dry-run` shows only what would change."""
    local = open_repository(options)
    rule = local.rule(options.cluster)
    found, entry = reversal(local, rule, options.entry, local.git.person())
    files = list(local.git.changed_paths(found.old, found.new))
    form: dict[str, Any] = {"entry": entry.number, "changeset": entry.changeset, "files": files}
    number = len(entry.moved)
    summary = (
        f"{number} change{'' if number == 1 else 's'} taken back"
        if files
        else "nothing of what it applied is left to take back"
    )
    lines = [f"revert entry {entry.number} of {rule.name}: {summary}", *file_lines(local, found)]
    # What the entry saw is known also where the graphs are not.
    before = {c.resource.name: c.seen for c in entry.changes if c.resource in entry.moved and c.seen is not None}
    for graph, seen in before.items() if files else ():
        lines.append(f" before it, graph {graph} was at version {seen.version}, with {seen.held}")
    form["before"] = [{"graph": graph, "version": seen.version, "rows": seen.rows} for graph, seen in before.items()]
    if files and not options.dry_run:
        more, parts = propose(local, found, options.branch or f"revert-{rule.name}-{entry.number}", undoes=True)
        lines, form = lines + more, {**form, **parts}
    if options.json:
        show_form({"ok": True, **form, "diagnostics": []})
    else:
        say_report("\n".join(map(visible, lines)), options)
    return OK


def down_to(options: argparse.Namespace) -> int:
    """`gitops down --to ENTRY|COMMIT`: the plan back; it writes no ref, no ledger and no graph."""
    if options.request is not None:
        raise UsageError(Code.USAGE_ERROR, "--to goes back to what was applied or committed; leave --request out")
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

        document = envelope(outcome)
        problems = {"diagnostics": document.pop("diagnostics")}
        drawing = to_json(graph, outcome.plan.digest, direction="down")
        show_form(document | {"execution_graph": drawing} | problems)
    else:
        show(outcome, options)
        say(f"\n{to_text(graph, quiet=outcome.plan.republished)}")
    return OK if outcome.ok else FAILED


def _folder_at(options: argparse.Namespace) -> Workspace:
    """The cluster folder as it is at a commit of the repository around it, with the ledger of the folder.

    Raises UsageError `not_a_repository`, `usage_error`.
    """
    workspace = folder_of(options, None)
    repository = open_git(workspace.config_dir)
    commit, folder = repository.resolve(options.new), Path(workspace.config_dir).resolve()
    path = folder.relative_to(Path(repository.work_tree or folder).resolve()).as_posix()
    tree = None if commit is None else repository.subtree(repository.commit(commit).tree, path)
    if tree is None:
        detail = f"{options.new[:80]} is not the whole id of a commit with folder {path}"
        fix = "a ledger in a folder keeps no entries; find the commit: git rev-parse NAME"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    return replace(workspace, tree=open_commit_tree(repository, tree, path), undoes=True)
