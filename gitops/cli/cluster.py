"""The verbs of the control plane, on a cluster folder or on a branch ledger."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gitops.cli.output import complain, say, show, show_form
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.model.address import Address
from gitops.model.outcome import PlanOutcome
from gitops.wiring.identity import actor_of

if TYPE_CHECKING:
    from gitops.wiring.project import LocalProject


def validate(options: argparse.Namespace) -> int:
    """`gitops validate`."""
    from gitops.cluster.validate import validate as run

    return show(run(_advised(_folder(options, None), options)), as_json=options.json)


def plan(options: argparse.Namespace) -> int:
    """`gitops plan`."""
    from gitops.plan.plan import plan as run

    outcome = run(_advised(planning_workspace(options), options))
    graph_format = options.graph_format or ("text" if options.show_graph else None)
    if graph_format is not None and outcome.plan is not None:
        return _show_graph(outcome, graph_format)
    return show(outcome, as_json=options.json)


def planning_workspace(options: argparse.Namespace) -> Workspace:
    """What a verb looks at before a commit: the folder as it lies in the work tree, unless a commit is asked for."""
    project = _project(options)
    working = None if project is None else project.working_folder(options)
    return working or _workspace(options, None)


def _show_graph(outcome: PlanOutcome, graph_format: str) -> int:
    from gitops.plan.graph_json import to_json
    from gitops.render.graph import to_mermaid, to_text

    if outcome.plan is None:
        raise AssertionError("the caller checks that there is a plan")
    graph = outcome.plan.graph
    if graph_format == "json":
        show_form(to_json(graph))
    else:
        say(to_mermaid(graph) if graph_format == "mermaid" else to_text(graph))
    return 0 if outcome.ok else 1


def apply(options: argparse.Namespace) -> int:
    """`gitops apply`."""
    from gitops.apply.apply import apply as run

    return show(run(_workspace(options, actor_of(options), writes=True)), as_json=options.json)


def approve(options: argparse.Namespace) -> int:
    """`gitops approve`."""
    if options.break_glass != (options.reason is not None):
        raise UsageError(Code.USAGE_ERROR, "--break-glass and --reason belong together")
    actor, emergency = actor_of(options), options.reason
    project = _project(options)
    if project is not None and not actor:
        actor = project.person().email
    if project is not None:
        from gitops.approving.endorse import endorse

        workspace, by = project.workspace(options, actor), project.endorsement(options)
        return show(endorse(workspace, Address(options.resource), by, emergency=emergency), as_json=options.json)
    if emergency is not None:
        raise UsageError(Code.USAGE_ERROR, "acting alone needs a ledger branch, which remembers it")
    if not actor:
        complain("approve needs to know who approves: pass --as ACTOR, or set git config gitops.actor")
        return 1
    from gitops.approving.approve import approve as run

    return show(run(_folder(options, actor), Address(options.resource)), as_json=options.json)


def status(options: argparse.Namespace) -> int:
    """`gitops status`."""
    from gitops.cluster.status import status as run

    return show(run(_workspace(options, None)), as_json=options.json)


def ready(options: argparse.Namespace) -> int:
    """`gitops ready`."""
    from gitops.cluster.ready import ready as run

    return show(run(_workspace(options, None)), as_json=options.json)


def refresh(options: argparse.Namespace) -> int:
    """`gitops refresh`."""
    from gitops.apply.refresh import refresh as run

    return show(run(_workspace(options, actor_of(options), writes=True)), as_json=options.json)


def import_(options: argparse.Namespace) -> int:
    """`gitops import`."""
    from gitops.apply.refresh import import_cluster

    return show(import_cluster(_workspace(options, actor_of(options), writes=True)), as_json=options.json)


def force_unlock(options: argparse.Namespace) -> int:
    """`gitops force-unlock`."""
    from gitops.cluster.unlock import force_unlock as run

    return show(run(_workspace(options, None), options.lock_id), as_json=options.json)


def _workspace(options: argparse.Namespace, actor: str | None, *, writes: bool = False) -> Workspace:
    """The workspace that the options mean: of a branch ledger where one governs the cluster, else of the folder.

    `writes` asks for the git identity that ledger entries need. Raises UsageError `actor_required`.
    """
    project = _project(options)
    if project is not None and writes:
        project.person()
    return _folder(options, actor) if project is None else project.workspace(options, actor)


def _project(options: argparse.Namespace) -> LocalProject | None:
    """The project that governs the cluster: asked for by an option, or by the configuration of the repository around it."""
    asked = options.repo or options.cluster or options.remote or getattr(options, "request", None)
    if not asked and not _governed(options.config or "."):
        return None
    from gitops.wiring.project import LocalProject, choice_of

    project = LocalProject(choice_of(options))
    return project if asked or project.uses_branch_ledger() else None


def _governed(folder: str) -> bool:
    """Whether a folder lies in a work tree that has a `gitops.yaml`; what that says is then read from git."""
    place = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    while not os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
        parent = os.path.dirname(place)  # noqa: PTH120
        if parent == place:
            return False
        place = parent
    return os.path.lexists(os.path.join(place, "gitops.yaml"))  # noqa: PTH118


def _advised(workspace: Workspace, options: argparse.Namespace) -> Workspace:
    """The workspace of a verb that only advises: it may use what earlier runs remember."""
    from gitops.wiring.stores import advised

    return advised(workspace, cached=not options.no_cache)


def _folder(options: argparse.Namespace, actor: str | None) -> Workspace:
    from gitops.wiring.stores import folder_workspace

    in_ci = os.environ.get("CI", "").lower() in ("1", "true")
    return folder_workspace(
        options.config or ".",
        actor=actor,
        workers=getattr(options, "parallel", 1),
        ephemeral=in_ci and not getattr(options, "keep_data_here", False),
    )
