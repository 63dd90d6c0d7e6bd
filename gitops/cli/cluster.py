"""The workspaces of the commands on one cluster, in a cluster folder or on a branch ledger; `plan` and `approve`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gitops.cli.shared import FAILED, OK, actor_of, complain, open_project, say, show_form
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.model.address import Address

if TYPE_CHECKING:
    from gitops.approving.decide import DecisionContext
    from gitops.model.outcome import VerbOutcome
    from gitops.wiring.project import LocalProject

# -- what the table of commands passes to a verb -----------------------------------------------------------------------


def to_read(options: argparse.Namespace) -> tuple[Workspace]:
    """The workspace on a branch ledger if one governs the cluster, else on the folder."""
    project = _project(options)
    if project is None:
        return (_folder(options, None),)
    return (project.workspace(project.rule(options.cluster, options.config), None),)


def to_write(options: argparse.Namespace) -> tuple[Workspace]:
    """The same with the actor that a ledger entry needs. Raises UsageError `actor_required`."""
    actor, project = actor_of(options), _project(options)
    if project is None:
        return (_folder(options, actor),)
    project.person()
    return (project.workspace(project.rule(options.cluster, options.config), actor),)


def to_validate(options: argparse.Namespace) -> tuple[Workspace]:
    """The folder, with the compile cache."""
    return (_with_compile_cache(_folder(options, None), options),)


def to_unlock(options: argparse.Namespace) -> tuple[Workspace, str]:
    """The workspace, and the id of the lock."""
    return *to_read(options), options.lock_id


def to_decide(options: argparse.Namespace) -> tuple[DecisionContext, str, str]:
    """The ledger and the signer, the approval, and the reason. Raises UsageError `signing_key_missing`, `actor_required`."""
    from gitops.approving.decide import DecisionContext
    from gitops.core.faults import NoFaults
    from gitops.wiring.system import RandomIds, SystemClock

    local = open_project(options)
    rule = local.rule(options.cluster, options.config)
    ledger, target, publisher = local.ledger(rule), local.project.target(rule), local.approval_publisher(rule)
    context = DecisionContext(ledger, target, publisher, SystemClock(), RandomIds(), NoFaults(), os.getpid())
    return context, options.approval, options.reason


# -- commands ----------------------------------------------------------------------------------------------------------


def plan(options: argparse.Namespace) -> VerbOutcome | int:
    """`gitops plan`."""
    from gitops.plan.plan import plan as run

    outcome = run(_with_compile_cache(planning_workspace(options), options))
    graph_format = options.graph_format or ("text" if options.show_graph else None)
    if graph_format is None or outcome.plan is None:
        return outcome
    from gitops.render.graph import to_json, to_mermaid, to_text

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


def approve(options: argparse.Namespace) -> VerbOutcome | int:
    """`gitops approve`."""
    from gitops.approving.approve import approve as record_approval
    from gitops.approving.approve import sign_approval

    if options.break_glass != (options.reason is not None):
        raise UsageError(Code.USAGE_ERROR, "--break-glass and --reason must be used together")
    actor, emergency = actor_of(options), options.reason
    project = _project(options)
    if project is not None:
        if not actor:
            actor = project.person().email
        rule = project.rule(options.cluster, options.config)
        workspace, by = project.workspace(rule, actor, options.request), project.approval_publisher(rule)
        return sign_approval(workspace, Address(options.resource), by, emergency=emergency)
    if emergency is not None:
        raise UsageError(Code.USAGE_ERROR, "an emergency approval needs a ledger branch, which records its debt")
    if not actor:
        complain("approve needs the name of the approver: pass --as ACTOR, or set git config gitops.actor")
        return FAILED
    return record_approval(_folder(options, actor), Address(options.resource))


def _project(options: argparse.Namespace) -> LocalProject | None:
    """The project that governs the cluster: selected by an option, or by the `gitops.yaml` of the repository around it."""
    selected = options.repo or options.cluster or options.remote or getattr(options, "request", None)
    if not selected and not _has_gitops_yaml(options.config or "."):
        return None

    local = open_project(options)
    return local if selected or local.project.config().ledger.store == "branch" else None


def _has_gitops_yaml(folder: str) -> bool:
    """Whether a folder is in a work tree that has a `gitops.yaml`; its content is read from git afterwards."""
    current = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    while not os.path.lexists(os.path.join(current, ".git")):  # noqa: PTH118
        parent = os.path.dirname(current)  # noqa: PTH120
        if parent == current:
            return False
        current = parent
    return os.path.lexists(os.path.join(current, "gitops.yaml"))  # noqa: PTH118


def _folder(options: argparse.Namespace, actor: str | None) -> Workspace:
    from gitops.wiring.stores import folder_workspace

    in_ci = os.environ.get("CI", "").lower() in ("1", "true")
    return folder_workspace(
        options.config or ".",
        actor=actor,
        workers=getattr(options, "parallel", 1),
        ephemeral=in_ci and not getattr(options, "keep_data_here", False),
    )


def _with_compile_cache(workspace: Workspace, options: argparse.Namespace) -> Workspace:
    from gitops.wiring.stores import with_compile_cache

    return workspace if options.no_cache else with_compile_cache(workspace)
