"""`gitops promote`: a change request that brings what is applied in one cluster to another one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gitops.bot.promote import Promotion, promotion, promotion_commit
from gitops.cli.cluster import status_of
from gitops.cli.requests import foreign_forge, request_form, status_form, status_lines
from gitops.cli.shared import OK, open_project, say_lines, say_report, show_form
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, UsageError
from gitops.forge.people import open_request
from gitops.git.port import ZERO, RefUpdate
from gitops.plan.plan import plan
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines, status_line, to_text
from gitops.wiring.repository import diff_text

if TYPE_CHECKING:
    from gitops.config.gitops_yaml import ClusterRule
    from gitops.wiring.project import LocalProject

_HEADS = "refs/heads/"
_SHOWN = 10


def promote(options: argparse.Namespace) -> int:
    """`gitops promote FROM TO`: a commit on a new branch, and its change request; `--dry-run` shows only what would change."""
    local = open_project(options)
    source, target = local.rule(options.source), local.rule(options.target)
    found = promotion(local.project, source, local.project.position(source), target)
    problems = _waiting(local, source)
    form: dict[str, Any] = {"applied": found.applied, "stays": list(found.stays)}
    form["files"] = list(local.repository.changed_paths(found.old, found.new))
    applied = f"what {source.name} has applied of commit {found.applied[:12]}"
    summary = applied if form["files"] else f"nothing differs from {applied}"
    lines = [f"promote {source.name} to {found.rule.name}: {summary}", *_stat(local, found)]
    if form["files"] and not options.dry_run:
        branch = options.branch or f"promote-{source.name}-to-{found.rule.name}"
        more, parts = _propose(local, found, branch, source)
        lines, form = lines + more, {**form, **parts}
    if options.json:
        show_form({"ok": True, **form, "diagnostics": problems.to_json()})
    else:
        say_report("\n".join(map(visible, lines)), options)
        say_lines(diagnostic_lines(problems, verbose=options.verbose))
    return OK


def _waiting(local: LocalProject, source: ClusterRule) -> Diagnostics:
    """A warning if the cluster has something else than its newest commit: what waits or differs is not known to be good."""
    problems, seen = Diagnostics(), status_of(local, source)
    if seen.in_sync is not True or seen.drifted:
        detail = f"what is applied is promoted, not what is merged; {status_line(source.name, seen)}"
        fix = f"gitops status --cluster {source.name}"
        problems.add(Code.PROMOTION_INCOMPLETE, source.name, detail, severity=Severity.WARNING, fix=fix)
    return problems


def _stat(local: LocalProject, found: Promotion) -> list[str]:
    """The files that change, as git counts their lines, and those that stay although the first cluster has no such file."""
    lines = diff_text(local.repository.git_dir, found.old, found.new, stat=True).splitlines()
    shown = [*found.stays[:_SHOWN], *([f"and {len(found.stays) - _SHOWN} more"] if len(found.stays) > _SHOWN else [])]
    return [*lines, f" not declared, so they stay: {', '.join(shown)}"] if shown else lines


def _propose(
    local: LocalProject, found: Promotion, branch: str, source: ClusterRule
) -> tuple[list[str], dict[str, Any]]:
    """Make the branch with its commit, plan it, and open its change request where it is in refs; the lines, and their form."""
    store, ref = local.repository, f"{_HEADS}{branch}"
    old = store.resolve(ref)
    if branch.startswith("gitops/") or ref == found.ref:
        raise UsageError(Code.USAGE_ERROR, f"branch {branch} cannot be proposed", fix="choose a name: --branch NAME")
    if old is not None and (not store.is_ancestor(old, found.base) or store.symbolic_target("HEAD") == ref):
        fix = f"propose it: gitops request open {branch}; or choose another name: --branch NAME"
        raise ConflictError(
            Code.GIT_REF_CONFLICT, f"branch {branch} is here already, with work of its own", path=ref, fix=fix
        )
    commit = promotion_commit(local.project, found, source.name, local.person(), local.signing_key())
    position = local.project.position(found.rule)
    workspace = local.project.workspace(found.rule, commit, position, target=found.base, ref=found.ref, actor=None)
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
    request = open_request(store, local.pushed_to(), forge, branch, found.ref, local.person())
    statuses = forge.statuses(request.head)
    lines.append(f"request {request.number}: open for {branch}, head {request.head[:12]}")
    shown = {**request_form(request), "statuses": [status_form(each) for each in statuses]}
    return [*lines, *status_lines(statuses, 2)], {**form, "request": shown}
