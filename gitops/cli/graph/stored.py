"""`gitops graph queries`: the stored queries of a cluster."""

from __future__ import annotations

import argparse

from gitops.cli.cluster import planning_workspace, to_read
from gitops.cli.shared import FAILED, OK, say_coloured, show_form
from gitops.cluster.session.queries import applied_queries, declared_queries
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.render.graph_data import queries_form, queries_text


def queries(options: argparse.Namespace) -> int:
    """`gitops graph queries [GRAPH]`: those that `gitops plan` with the same options plans, or those that are applied."""
    if options.applied and options.request is not None:
        raise UsageError(Code.USAGE_ERROR, "--applied and --request name two revisions; leave one out")
    if options.applied:
        (workspace,) = to_read(options)
        outcome = applied_queries(workspace, options.graph)
    else:
        outcome = declared_queries(planning_workspace(options), options.graph)
    if options.json:
        show_form(queries_form(outcome))
    else:
        say_coloured(queries_text(outcome, verbose=options.verbose), options)
    return OK if outcome.ok else FAILED
