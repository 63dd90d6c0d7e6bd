"""The commands on one cluster, in a cluster folder or on a branch ledger."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gitops.cli.options import actor_of, choice_of
from gitops.cli.output import FAILED, OK, complain, say, show, show_form
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.model.address import Address

if TYPE_CHECKING:
    from gitops.wiring.project import LocalProject


def validate(options: argparse.Namespace) -> int:
    """`gitops validate`."""
    from gitops.cluster.validate import validate as run

    return show(run(_with_compile_cache(_folder(options, None), options)), as_json=options.json)


def plan(options: argparse.Namespace) -> int:
    """`gitops plan`."""
    from gitops.plan.plan import plan as run

    outcome = run(_with_compile_cache(planning_workspace(options), options))
    graph_format = options.graph_format or ("text" if options.show_graph else None)
    if graph_format is None or outcome.plan is None:
        return show(outcome, as_json=options.json)
    from gitops.plan.graph_json import to_json
    from gitops.render.graph import to_mermaid, to_text

    graph = outcome.plan.graph
    if graph_format == "json":
        show_form(to_json(graph))
    else:
        say(to_mermaid(graph) if graph_format == "mermaid" else to_text(graph))
    return OK if outcome.ok else FAILED


def planning_workspace(options: argparse.Namespace) -> Workspace:
    """The workspace to plan: the folder with its uncommitted changes, unless the options select a commit."""
    project = _project(options)
    if project is None:
        return _folder(options, None)
    if options.config is not None and options.cluster is None and options.request is None:
        return project.working_folder(options.config)
    return project.workspace(project.rule(options.cluster, options.config), None, options.request)


def apply(options: argparse.Namespace) -> int:
    """`gitops apply`."""
    from gitops.apply.apply import apply as run

    return show(run(_writing_workspace(options)), as_json=options.json)


def approve(options: argparse.Namespace) -> int:
    """`gitops approve`."""
    if options.break_glass != (options.reason is not None):
        raise UsageError(Code.USAGE_ERROR, "--break-glass and --reason must be used together")
    actor, emergency = actor_of(options), options.reason
    project = _project(options)
    if project is not None:
        from gitops.approving.approve import sign_approval

        if not actor:
            actor = project.person().email
        rule = project.rule(options.cluster, options.config)
        workspace, by = project.workspace(rule, actor, options.request), project.approval_publisher(rule)
        return show(sign_approval(workspace, Address(options.resource), by, emergency=emergency), as_json=options.json)
    if emergency is not None:
        raise UsageError(Code.USAGE_ERROR, "an emergency approval needs a ledger branch, which records its debt")
    if not actor:
        complain("approve needs the name of the approver: pass --as ACTOR, or set git config gitops.actor")
        return FAILED
    from gitops.approving.approve import approve as run

    return show(run(_folder(options, actor), Address(options.resource)), as_json=options.json)


def status(options: argparse.Namespace) -> int:
    """`gitops status`."""
    from gitops.cluster.status import status as run

    return show(run(_reading_workspace(options)), as_json=options.json)


def ready(options: argparse.Namespace) -> int:
    """`gitops ready`."""
    from gitops.cluster.ready import ready as run

    return show(run(_reading_workspace(options)), as_json=options.json)


def refresh(options: argparse.Namespace) -> int:
    """`gitops refresh`."""
    from gitops.apply.refresh import refresh as run

    return show(run(_writing_workspace(options)), as_json=options.json)


def import_(options: argparse.Namespace) -> int:
    """`gitops import`."""
    from gitops.apply.refresh import import_cluster

    return show(import_cluster(_writing_workspace(options)), as_json=options.json)


def force_unlock(options: argparse.Namespace) -> int:
    """`gitops force-unlock`."""
    from gitops.cluster.status import force_unlock as run

    return show(run(_reading_workspace(options), options.lock_id), as_json=options.json)


def _reading_workspace(options: argparse.Namespace) -> Workspace:
    """The workspace on a branch ledger if one governs the cluster, else on the folder."""
    project = _project(options)
    if project is None:
        return _folder(options, None)
    return project.workspace(project.rule(options.cluster, options.config), None)


def _writing_workspace(options: argparse.Namespace) -> Workspace:
    """The same with the actor that a ledger entry needs. Raises UsageError `actor_required`."""
    actor, project = actor_of(options), _project(options)
    if project is None:
        return _folder(options, actor)
    project.person()
    return project.workspace(project.rule(options.cluster, options.config), actor)


def _project(options: argparse.Namespace) -> LocalProject | None:
    """The project that governs the cluster: selected by an option, or by the `gitops.yaml` of the repository around it."""
    selected = options.repo or options.cluster or options.remote or getattr(options, "request", None)
    if not selected and not _has_gitops_yaml(options.config or "."):
        return None
    from gitops.wiring.project import LocalProject

    project = LocalProject(choice_of(options))
    return project if selected or project.uses_branch_ledger() else None


def _has_gitops_yaml(folder: str) -> bool:
    """Whether a folder is in a work tree that has a `gitops.yaml`; its content is read from git afterwards."""
    current = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    while not os.path.lexists(os.path.join(current, ".git")):  # noqa: PTH118
        parent = os.path.dirname(current)  # noqa: PTH120
        if parent == current:
            return False
        current = parent
    return os.path.lexists(os.path.join(current, "gitops.yaml"))  # noqa: PTH118


def _with_compile_cache(workspace: Workspace, options: argparse.Namespace) -> Workspace:
    from gitops.wiring.stores import with_compile_cache

    return with_compile_cache(workspace, cached=not options.no_cache)


def _folder(options: argparse.Namespace, actor: str | None) -> Workspace:
    from gitops.wiring.stores import folder_workspace

    in_ci = os.environ.get("CI", "").lower() in ("1", "true")
    return folder_workspace(
        options.config or ".",
        actor=actor,
        workers=getattr(options, "parallel", 1),
        ephemeral=in_ci and not getattr(options, "keep_data_here", False),
    )
