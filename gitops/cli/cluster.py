"""`plan` and other commands for one cluster. Opens their workspaces, in a cluster folder or on a branch ledger."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cli.finding import cluster_folder, folders_of_tests, repository_of, selecting_words
from gitops.cli.shared import (
    FAILED,
    OK,
    RULES,
    actor_of,
    checkout,
    in_ci,
    say,
    say_report,
    show,
    show_document,
    show_form,
)
from gitops.cluster.session.workspace import Workspace, next_attempt
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError, UsageError

_CHANGES = 2
_WITHOUT_EFFECTS = {
    "timeout": "limits how long a change may take, but a dry run applies none",
    "on_failure": "is about prepared changes, but a dry run prepares none",
    "run": "records how long changes took, but a dry run applies none",
    "gantt": "draws how long changes took, but a dry run applies none",
    "wait_serving": "waits for servers to serve the applied revision, but a dry run applies nothing",
}
_NOT_SERVED = {Code.SERVING_NOT_REACHED: 3, Code.SERVING_REFUSED: 4}
"""Exit codes of an apply that succeeded but whose result the servers don't serve."""

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ClusterRule
    from gitops.cluster.model.changeset import Changeset
    from gitops.cluster.model.others import OtherRequests
    from gitops.cluster.model.outcome import (
        ApplyOutcome,
        DrillOutcome,
        PlanOutcome,
        StatusOutcome,
        ValidateOutcome,
        VerbOutcome,
    )
    from gitops.cluster.model.plan import Observer
    from gitops.core.cancel import Cancellation
    from gitops.repository.wiring.local import LocalRepository

# -- what the table of commands passes to a verb -----------------------------------------------------------------------


def to_read(options: argparse.Namespace) -> tuple[Workspace]:
    """Return the workspace on the cluster's branch ledger, or on the folder if it has none."""
    local = repository_of(options)
    if local is None:
        return (folder_of(options, None),)
    return (local.workspace(local.rule(options.cluster, options.config), None, in_place=True),)


def to_write(options: argparse.Namespace) -> tuple[Workspace]:
    """Return the same workspace as `to_read`, with the actor that ledger entries require.

    Raises UsageError `actor_required`.
    """
    actor, local = actor_of(options), repository_of(options)
    if local is None:
        return (folder_of(options, actor),)
    local.git.person()
    return (local.workspace(local.rule(options.cluster, options.config), actor, in_place=True),)


def to_unlock(options: argparse.Namespace) -> tuple[Workspace, str]:
    """Return the workspace and the lock id."""
    return *to_read(options), options.lock_id


# -- commands ----------------------------------------------------------------------------------------------------------


def validate(options: argparse.Namespace) -> ValidateOutcome:
    """`gitops validate`: check a cluster folder, and `gitops.yaml` in the repository around it."""
    from gitops.cluster.config.checkout import check_rules
    from gitops.cluster.config.folder import FolderTree
    from gitops.cluster.session.validate import validate as run

    outcome = run(_with_compile_cache(folder_of(options, None), options))
    root = checkout(outcome.config_dir)
    if root is None or not getattr(options, "first", True):
        return outcome
    file = os.path.relpath(os.path.join(root, "gitops.yaml"), outcome.config_dir)  # noqa: PTH118
    rules = check_rules(FolderTree(root, confined=True), file=file)
    cases = () if any(each.severity is Severity.ERROR for each in rules) else _cases_outside(outcome.config_dir)
    return replace(outcome, diagnostics=(*rules, *outcome.diagnostics, *cases))


def _cases_outside(folder: str) -> tuple[Diagnostic, ...]:
    """Decide the policy cases in the test folders of `gitops.yaml` in the checkout, and return their problems."""
    root = checkout(folder)
    # Without test folders, nothing of this is imported.
    if root is None or b"paths" not in Path(root, RULES).read_bytes():
        return ()
    from gitops.review.tests.select import problems_of_cases

    return tuple(problems_of_cases(folders_of_tests(folder)))


def _committed_cases(workspace: Workspace, options: argparse.Namespace) -> tuple[Diagnostic, ...]:
    """Decide the policy cases in the test folders of a planned commit or change request, as the bot does."""
    local = repository_of(options)
    tests = None if local is None else local.config().tests
    if local is None or tests is None or not tests.paths:
        return ()
    from gitops.cluster.config.source import normalize
    from gitops.review.tests.select import QueryTestFolders, problems_of_cases

    rule = local.rule(options.cluster, options.config)
    if options.request is not None:
        root = local.merged_tree(local.request(rule, options.request))
    else:
        root = local.git.commit(local.head_of(rule.ref) or "").tree
    place = normalize(workspace.config_dir, confined=False)
    whole = local.open_tree(local.git, root, ".")
    found = problems_of_cases(QueryTestFolders(workspace.tree, whole, tests.paths, place))
    return tuple(each if tests.required else replace(each, severity=Severity.WARNING) for each in found)


def drill(options: argparse.Namespace) -> DrillOutcome:
    """`gitops drill`: restore a cluster into a scratch folder, and record how that went."""
    from gitops.repository.wiring.drill import run_drill

    (workspace,) = to_write(options)
    return run_drill(workspace, source=options.source, into=options.into)


def plan(options: argparse.Namespace) -> int:
    """`gitops plan`. With `--detailed-exitcode`, exit code 2 means that there are changes to apply."""
    from gitops.cluster.plan.plan import plan as run

    workspace, committed = _planned(options)
    workspace = replace(workspace, atomic=options.atomic or workspace.atomic)
    outcome = run(_with_compile_cache(workspace, options), texts=options.diff)
    of_files = not committed or repository_of(options) is None
    cases = _cases_outside(outcome.config_dir) if of_files else _committed_cases(workspace, options)
    outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *cases, *_files_left_out(options)))
    if options.request is not None:
        outcome = replace(outcome, others=_other_requests(options))
    if committed:
        outcome = replace(outcome, selected=tuple(selecting_words(options)))
    if outcome.strategies is not None:
        from gitops.compute.ticks.what_if import Reach, with_what_if

        # Other people write a change request, so it must not choose the hosts that this machine connects to.
        outcome = with_what_if(workspace, outcome, Reach.DECLARED if options.request is None else Reach.APPLIED)
    code = _show_plan(outcome, options)
    waiting = outcome.plan is not None and bool(outcome.plan.changes)
    return _CHANGES if code == OK and waiting and options.detailed_exitcode else code


def _show_plan(outcome: PlanOutcome, options: argparse.Namespace) -> int:
    """Print a plan, with its execution graph if requested; a graph as JSON or Mermaid is printed alone.

    If the plan is applied atomically, the graph is that of an atomic run.
    """
    form, plan = options.graph_format, outcome.plan
    drawn = form or options.show_graph or options.atomic
    if plan is None or not (drawn or options.diff):
        return show(outcome, options)
    from gitops.cluster.plan.classes import atomic_graph
    from gitops.render.graph import to_json, to_mermaid, to_text

    graph = atomic_graph(plan.graph) if outcome.atomic else plan.graph
    if form == "mermaid":
        say(to_mermaid(graph, quiet=plan.republished))
    elif form == "json":
        show_document(to_json(graph, plan.digest))
    elif options.json:
        from gitops.render.change_rows import diff_form
        from gitops.render.json import envelope

        diffs = {"diffs": [diff_form(each) for each in outcome.texts]} if options.diff else {}
        drawing = {"execution_graph": to_json(graph, plan.digest)} if drawn else {}
        show_form(envelope(outcome, more=diffs | drawing))
    else:
        show(outcome, options)
        if drawn:
            say(f"\n{to_text(graph, quiet=plan.republished)}")
    return OK if outcome.ok else FAILED


def status(options: argparse.Namespace) -> VerbOutcome | int:
    """`gitops status`: one cluster in detail, or all clusters in a repository with one line each."""
    from gitops.cluster.session.status import status as run

    local = repository_of(options)
    if local is None:
        return run(_with_compile_cache(folder_of(options, None), options), serving=options.serving)
    local.list_once()
    chosen = options.cluster is not None or options.config is not None
    rules = (local.rule(options.cluster, options.config),) if chosen else local.clusters() or (local.rule(),)
    found = {f"{rule.environment}/{rule.name}": status_of(local, rule, serving=options.serving) for rule in rules}
    if len(found) == 1:
        return next(iter(found.values()))
    if options.json:
        from gitops.render.json import envelope

        clusters = [{"cluster": place, **envelope(each)} for place, each in found.items()]
        show_form({"ok": all(each.ok for each in found.values()), "clusters": clusters, "problems": []})
    else:
        from gitops.render.text import status_line

        lines = "\n".join(status_line(place, each) for place, each in found.items())
        say_report(lines, options, ok=all(each.ok for each in found.values()))
    return OK if all(each.ok for each in found.values()) else FAILED


def status_of(local: LocalRepository, rule: ClusterRule, *, serving: bool = False) -> StatusOutcome:
    """Return a cluster's status. `serving` is as in `status`.

    An unreadable ledger is a problem of this cluster only.
    """
    from gitops.cli.issues import with_reported_drift
    from gitops.cluster.model.outcome import StatusOutcome
    from gitops.cluster.session.status import status as run

    try:
        return with_reported_drift(local, rule, run(local.workspace(rule, None, in_place=True), serving=serving))
    except GitopsError as error:
        problems = Diagnostics()
        problems.add_error(error)
        return StatusOutcome(config_dir=rule.path, diagnostics=tuple(problems))


def apply(options: argparse.Namespace, again: Changeset | None = None) -> int:
    """`gitops apply`.

    On a ledger branch, an approved location change of the cluster comes first; if it fails, the run ends. `again` is a
    failed changeset to retry.
    """
    from gitops.cli.progress import heeding_signals, watching

    if options.on_failure and not options.atomic:
        detail = "--on-failure needs --atomic, because it decides what happens to prepared changes"
        raise UsageError(Code.USAGE_ERROR, detail, fix="gitops apply --atomic --on-failure " + options.on_failure)
    dry_run = again is None and options.dry_run
    for option, why in _WITHOUT_EFFECTS.items() if dry_run else ():
        if getattr(options, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(Code.USAGE_ERROR, f"--{name} {why}", fix=f"leave --{name} out: gitops apply --dry-run")

    with heeding_signals() as cancel:
        with watching(options) as on_event:
            outcome = _applied(options, on_event, cancel, again, dry_run=dry_run)
        code = show(outcome, options)
        return next((_NOT_SERVED[each.code] for each in outcome.diagnostics if each.code in _NOT_SERVED), code)


def _applied(
    options: argparse.Namespace,
    on_event: Observer | None,
    cancel: Cancellation,
    again: Changeset | None,
    *,
    dry_run: bool,
) -> ApplyOutcome:
    if dry_run:
        from gitops.cluster.apply.dry_run import dry_run as run
    else:
        from gitops.cluster.apply.apply import apply as run

    actor, local = actor_of(options), repository_of(options)

    def prepared(workspace: Workspace) -> Workspace:
        watched = replace(as_chosen(workspace, options), on_event=on_event, cancel=cancel)
        return watched if again is None else replace(watched, atomic=again.atomic, changeset=next_attempt(again, actor))

    def carried_out(workspace: Workspace) -> ApplyOutcome:
        outcome = run(workspace)
        if options.wait_serving is None:
            return outcome
        from gitops.cluster.apply.serving import await_served

        return await_served(workspace, outcome, options.wait_serving)

    if local is None:
        return carried_out(prepared(folder_of(options, actor)))
    from gitops.repository.apply import governed_apply, move_cluster

    if not dry_run:
        local.git.person()
    rule = local.rule(options.cluster, options.config)
    position, config = local.position(rule), local.config()
    moved = move_cluster(local, rule, position, config, lambda: local.workspace(rule, actor), dry_run=dry_run)
    return governed_apply(moved, lambda here: carried_out(prepared(local.workspace(here, actor, in_place=True))))


def as_chosen(workspace: Workspace, options: argparse.Namespace) -> Workspace:
    """Return the workspace with run options from the command line. Other options come from `gitops.yaml`."""
    return replace(
        workspace,
        workers=options.parallel or workspace.workers,
        time_limit=options.timeout or workspace.time_limit,
        fail_fast=options.fail_fast or (workspace.fail_fast and not options.keep_going),
        keep_going=options.keep_going,
        atomic=options.atomic,
        keeps_staged=options.on_failure == "keep" if options.on_failure else workspace.keeps_staged,
    )


def import_cluster(options: argparse.Namespace) -> VerbOutcome:
    """`gitops import`. Raises UsageError `usage_error` if `--adopt` is used with a folder."""
    from gitops.cluster.apply.refresh import import_cluster as run

    actor, local = actor_of(options), repository_of(options)
    if local is None:
        if options.adopt:
            detail = "--adopt is for ledger branches: the ledger of a folder is in its storage"
            raise UsageError(Code.USAGE_ERROR, detail, fix="leave out --adopt: gitops import")
        return run(folder_of(options, actor))
    local.git.person()
    local.adopting = options.adopt
    workspace = local.workspace(local.rule(options.cluster, options.config), actor, in_place=True)
    return run(workspace, adopt=options.adopt)


def planning_workspace(options: argparse.Namespace) -> Workspace:
    """Return the workspace to plan: the folder with its uncommitted changes, unless the options select a commit."""
    return _planned(options)[0]


def _planned(options: argparse.Namespace) -> tuple[Workspace, bool]:
    """Return the workspace to plan, and whether `approve` with the same options would refer to the same plan.

    A change request is planned in the same way as the bot will apply it.
    """
    local = repository_of(options)
    if local is None:
        return folder_of(options, None), True
    local.list_once()
    if options.config is not None and options.cluster is None and options.request is None:
        return local.working_folder(options.config), False
    workspace = local.workspace(local.rule(options.cluster, options.config), None, options.request)
    atomic = options.request is not None and local.config().apply.atomicity == "atomic"
    return replace(workspace, atomic=atomic), True


def _other_requests(options: argparse.Namespace) -> OtherRequests | None:
    """Return what the bot's report on the newest head of a request says about other requests, if it does."""
    from gitops.repository.kept_plans import kept_others, kept_plan

    local = repository_of(options)
    if local is None:
        return None
    rule = local.rule(options.cluster, options.config)
    kept = kept_plan(local, rule.name, options.request)
    if kept is None or kept.head != local.request(rule, options.request).head:
        return None
    return kept_others(local, rule.name, options.request)


def _files_left_out(options: argparse.Namespace) -> tuple[Diagnostic, ...]:
    """Return a warning if the target branch is planned, and the files of the work tree differ from it."""
    local = repository_of(options)
    if local is None or local.git.work_tree is None or options.request is not None or options.config is not None:
        return ()
    rule = local.rule(options.cluster)
    head = local.head_of(rule.ref)
    if head is None or not local.git.has_changes(local.git.commit(head).tree, rule.path):
        return ()
    folder = os.path.relpath(os.path.join(local.git.work_tree, rule.path))  # noqa: PTH118
    detail = f"this is the plan of branch {rule.branch} at {head[:12]}, and your files differ from it"
    found = Diagnostics()
    found.add(Code.PLAN_NOT_OF_FILES, rule.path, f"{detail}; to plan them: gitops plan --config {folder}", fix="")
    return tuple(found)


def folder_of(options: argparse.Namespace, actor: str | None) -> Workspace:
    """Return the workspace of a cluster folder whose ledger is in the folder."""
    from gitops.repository.wiring.stores import folder_workspace

    return folder_workspace(
        cluster_folder(options),
        actor=actor,
        ephemeral=in_ci() and not getattr(options, "keep_data_here", False),
    )


def _with_compile_cache(workspace: Workspace, options: argparse.Namespace) -> Workspace:
    from gitops.repository.wiring.stores import with_compile_cache

    return workspace if options.no_cache else with_compile_cache(workspace)
