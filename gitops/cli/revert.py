"""`gitops revert`, and `gitops down --to`: the way back to what was applied before, as a change request and as a plan."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cli.cluster import folder_of, project_of
from gitops.cli.proposals import file_lines, propose
from gitops.cli.shared import FAILED, OK, open_project, say, say_report, show, show_form
from gitops.cluster.plan.plan import plan
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.render.characters import visible
from gitops.repository.revert import earlier_folder, reversal, way_back
from gitops.repository.wiring.local import LocalRepository, open_commit_tree

if TYPE_CHECKING:
    from gitops.cluster.model.outcome import PlanOutcome
    from gitops.cluster.session.workspace import Workspace


def revert(options: argparse.Namespace) -> int:
    """`gitops revert ENTRY`: a commit on a new branch, and its change request; `--dry-run` shows only what would change."""
    local = open_project(options)
    rule = local.rule(options.cluster)
    found, entry = reversal(local.project, rule, options.entry, local.person())
    files = list(local.repository.changed_paths(found.old, found.new))
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
    outcome = _plan_to(options)
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


def _plan_to(options: argparse.Namespace) -> PlanOutcome:
    if options.request is not None:
        raise UsageError(Code.USAGE_ERROR, "--to goes back to what was applied or committed; leave --request out")
    local = project_of(options)
    if local is None:
        return plan(_folder_at(options))
    rule = local.rule(options.cluster, options.config)
    found = way_back(local.project, rule, earlier_folder(local.project, rule, options.new))
    position = local.project.position(rule)
    workspace = local.project.workspace(rule, found.base, position, tree=found.new, ref=found.ref, actor=None)
    return plan(replace(workspace, undoes=True))


def _folder_at(options: argparse.Namespace) -> Workspace:
    """The cluster folder as it is at a commit of the repository around it, with the ledger of the folder.

    Raises UsageError `not_a_repository`, `usage_error`.
    """
    workspace = folder_of(options, None)
    repository = LocalRepository(workspace.config_dir).repository
    commit, folder = repository.resolve(options.new), Path(workspace.config_dir).resolve()
    path = folder.relative_to(Path(repository.work_tree or folder).resolve()).as_posix()
    tree = None if commit is None else repository.subtree(repository.commit(commit).tree, path)
    if tree is None:
        detail = f"{options.new[:80]} is not the whole id of a commit with folder {path}"
        fix = "a ledger in a folder keeps no entries; find the commit: git rev-parse NAME"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    return replace(workspace, tree=open_commit_tree(repository, tree, path), undoes=True)
