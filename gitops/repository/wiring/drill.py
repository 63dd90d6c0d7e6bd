"""Runs a restore drill of a workspace into a folder on this machine."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial

from gitops.cluster.model.outcome import DrillOutcome
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.repository.wiring.serving import stores_at
from gitops.repository.wiring.stores import graph_uri, storage_root
from gitops.review.drill import DrillPlan, drill
from gitops.review.tests.bind import BoundAudit


def run_drill(workspace: Workspace, *, source: str | None = None, into: str | None = None) -> DrillOutcome:
    """Restore the cluster and record how that went.

    `source` is the storage root of a backup, by default the cluster's own storage. `into` is an absent or empty folder,
    which is kept; without it, the restored files are removed. Raises UsageError for another folder, and the errors of
    `open_store`.
    """
    # The engine is loaded only for commands that need it.
    from gitops.database.graph import QueryOptions, copy_graph, open_snapshot
    from gitops.review.tests.worker import judge_read

    def audit(uri: str, bound: BoundAudit) -> str | None:
        try:
            found = judge_read(open_snapshot(uri), dict(bound.job), QueryOptions(now=workspace.clock.now()))
        except GitopsError as error:
            return f"{error.code}: {error.detail}"
        return None if found["verdict"] == "passed" else str(found["message"])

    root = None if source is None else storage_root(source, os.curdir)
    copy_of = None if root is None else partial(graph_uri, root)
    copy = partial(copy_graph, now=workspace.clock.now)
    if into is None:
        with tempfile.TemporaryDirectory(prefix="gitops-drill-") as folder:
            return drill(workspace, DrillPlan(stores_at(folder), copy, audit, root, copy_of))
    folder = os.path.abspath(into)  # noqa: PTH100 - links stay as they are
    if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):  # noqa: PTH112, PTH208
        detail = f"{into} is not an empty folder"
        raise UsageError(Code.USAGE_ERROR, detail, fix="name a new folder: gitops drill --into DIR")
    return replace(drill(workspace, DrillPlan(stores_at(folder), copy, audit, root, copy_of)), kept=folder)
