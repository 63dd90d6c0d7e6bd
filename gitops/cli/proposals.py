"""What `promote` and `revert` have in common: a proposal becomes a commit on a new branch, with its plan and change request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gitops.cli.requests import foreign_forge, request_form, status_form, status_lines
from gitops.cluster.plan.plan import plan
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, UsageError
from gitops.forge.people import open_request
from gitops.git.port import ZERO, RefUpdate
from gitops.render.text import to_text
from gitops.repository.proposal import Proposal, proposed_commit
from gitops.repository.wiring.repository import diff_text

if TYPE_CHECKING:
    from gitops.repository.wiring.project import LocalProject

_HEADS = "refs/heads/"


def file_lines(local: LocalProject, found: Proposal) -> list[str]:
    """The files that a proposal changes, as git counts their lines."""
    return diff_text(local.repository.git_dir, found.old, found.new, stat=True).splitlines()


def propose(
    local: LocalProject, found: Proposal, branch: str, *, undoes: bool = False
) -> tuple[list[str], dict[str, Any]]:
    """Make the branch with its commit, plan it, and open its change request where it is in refs; the lines, and their form.

    Raises UsageError `usage_error`, ConflictError `git_ref_conflict` for a branch that is not free.
    """
    store, ref = local.repository, f"{_HEADS}{branch}"
    old = store.resolve(ref)
    if branch.startswith("gitops/") or ref == found.ref:
        raise UsageError(Code.USAGE_ERROR, f"branch {branch} cannot be proposed", fix="choose a name: --branch NAME")
    if old is not None and (not store.is_ancestor(old, found.base) or store.symbolic_target("HEAD") == ref):
        fix = f"propose it: gitops request open {branch}; or choose another name: --branch NAME"
        raise ConflictError(
            Code.GIT_REF_CONFLICT, f"branch {branch} already exists here, with other commits", path=ref, fix=fix
        )
    commit = proposed_commit(local.project, found, local.person(), local.signing_key())
    position = local.project.position(found.rule)
    workspace = local.project.workspace(found.rule, commit, position, target=found.base, ref=found.ref, actor=None)
    lines = to_text(plan(replace(workspace, undoes=undoes))).splitlines()
    store.update_refs([RefUpdate(ref, old or ZERO, commit)])
    form = {"branch": branch, "commit": commit}
    if foreign_forge(local) is not None:
        push = f"git push origin {branch}"
        return [*lines, f"branch {branch}: made; push it, and open its change request: {push}"], {
            **form,
            "request": None,
        }
    forge = local.forge()
    request = open_request(store, local.pushed_to(), forge, branch, found.ref, local.person())
    statuses = forge.statuses(request.head)
    lines.append(f"request {request.number}: open for {branch}, head {request.head[:12]}")
    shown = {**request_form(request), "statuses": [status_form(each) for each in statuses]}
    return [*lines, *status_lines(statuses, 2)], {**form, "request": shown}
