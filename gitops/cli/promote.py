"""`gitops promote`: a change request that brings what is applied in one cluster to another one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gitops.cli.cluster import status_of
from gitops.cli.proposals import file_lines, propose
from gitops.cli.shared import OK, open_project, say_lines, say_report, show_form
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines, status_line
from gitops.repository.promote import promotion

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ClusterRule
    from gitops.repository.wiring.project import LocalProject

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


def _waiting(local: LocalProject, source: ClusterRule) -> Diagnostics:
    """A warning if the cluster has something else than its newest commit: what waits or differs is not known to be good."""
    problems, seen = Diagnostics(), status_of(local, source)
    if seen.in_sync is not True or seen.drifted:
        detail = f"what is applied is promoted, not what is merged; {status_line(source.name, seen)}"
        fix = f"gitops status --cluster {source.name}"
        problems.add(Code.PROMOTION_INCOMPLETE, source.name, detail, severity=Severity.WARNING, fix=fix)
    return problems
