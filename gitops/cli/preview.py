"""`gitops preview`: try the changes of a folder or a change request on copies of the live graphs."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from gitops.cli.cluster import planning_workspace
from gitops.cli.finding import repository_of
from gitops.cli.graph.data import write_context
from gitops.cli.shared import FAILED, OK, say_report, show, show_form
from gitops.cluster.config.gitops_yaml import BotConfig, PreviewRule, RowRule
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.render.previews import preview_form, preview_text
from gitops.repository.wiring.previews import live_version, open_ask
from gitops.review.previews.choose import ChosenGraph, Wanted, choose_graphs, preview_key
from gitops.review.previews.order import AllowedRows
from gitops.review.previews.record import (
    Counts,
    DataCheck,
    GraphPreview,
    MigrationRun,
    PreviewRecord,
    PreviewVerdict,
    StepRows,
    in_coarse_counts,
    verdict,
)
from gitops.review.previews.run import ShownResult, Tried, scratch_roots, try_graphs


def preview(options: argparse.Namespace) -> int:
    """`gitops preview`. Exits 1 if a finding of `preview.block` exists, or if a part could not run."""
    workspace = planning_workspace(options)
    outcome = plan(workspace)
    if outcome.plan is None:
        return show(outcome, options)
    config = _config(options)
    rules = PreviewRule() if config is None else config.preview
    graphs = _chosen(workspace, outcome, Wanted(options.graph, options.query, rows=_rows(rules)))
    if not graphs and (options.graph or options.query):
        detail = (
            "the plan changes no schema and no query of it" if options.query is None else "the plan has no such query"
        )
        raise GitopsError(
            Code.GRAPH_UNKNOWN, f"nothing to preview: {detail}", path=options.graph or options.query or ""
        )
    with _scratch(options, rules, graphs) as place:
        if options.in_place:
            tried = Tried(tuple(_in_place(options, each) for each in graphs), ())
        else:
            budget = rules.budget.total_seconds()
            with open_ask(budget, os.environ) as ask:
                tried = try_graphs(graphs, place, ask, workspace.clock, budget)
        if rules.counts == "coarse":
            tried = replace(tried, graphs=tuple(map(in_coarse_counts, tried.graphs)))
        record = PreviewRecord(
            key=preview_key(graphs),
            cluster=outcome.config_dir if config is None else _cluster(options),
            request=options.request,
            head=None if workspace.governance is None else workspace.governance.source.commit,
            plan_digest=outcome.plan.digest,
            at=timestamp(workspace.clock.now()),
            verdict=verdict(tried.graphs, rules.block),
            counts=Counts(rules.counts),
            graphs=tried.graphs,
        )
        _show(record, tried.shown, rules, options, place)
    return OK if record.verdict in (PreviewVerdict.GOOD, PreviewVerdict.FINDINGS) else FAILED


def _cluster(options: argparse.Namespace) -> str:
    local = repository_of(options)
    return "" if local is None else local.rule(options.cluster, options.config).name


def _config(options: argparse.Namespace) -> BotConfig | None:
    local = repository_of(options)
    return None if local is None else local.config()


def _rows(rules: PreviewRule) -> Mapping[str, Mapping[str, AllowedRows]]:
    """Return the rows that may be shown, from the rules of the target branch."""

    def allowed(each: RowRule) -> AllowedRows:
        return AllowedRows(each.columns, each.limit)

    return {name: {query: allowed(each) for query, each in of.items()} for name, of in rules.rows.items()}


def _chosen(workspace: Workspace, outcome: PlanOutcome, wanted: Wanted) -> tuple[ChosenGraph, ...]:
    """Return what to try. The folder is read again, because a plan does not keep its texts."""
    found: list[ChosenGraph] = []

    def body(current: Session) -> PlanOutcome:
        if current.ready and outcome.plan is not None:
            found.extend(choose_graphs(current, outcome.plan, live_version, wanted))
        return outcome

    reading(workspace, "preview", StateNeed.OPTIONAL, body)
    return tuple(found)


@contextmanager
def _scratch(options: argparse.Namespace, rules: PreviewRule, graphs: tuple[ChosenGraph, ...]) -> Iterator[str]:
    """Return the folder of the copies. It is removed afterwards unless `--keep` is given."""
    if not any(each.uri.startswith("s3:") for each in graphs):
        folder = tempfile.mkdtemp(prefix="gitops-preview-")
        with ExitStack() as stack:
            if not options.keep:
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder
        return
    if rules.scratch is None or not rules.scratch.startswith("s3://"):
        raise GitopsError(
            Code.PREVIEW_UNAVAILABLE,
            "the graphs are in a bucket, and preview.scratch does not set where to put copies in it",
            path="preview.scratch",
            fix="write preview.scratch: s3://BUCKET/PREFIX to gitops.yaml on the target branch",
        )
    context = write_context(options)
    place = f"{rules.scratch.rstrip('/')}/local/{context.ids.ulid().lower()}"
    engine = graph.LanceEngine(context.clock, context.ids)
    with ExitStack() as stack:
        if not options.keep:
            stack.callback(engine.delete_tree, place)
        yield place


def _in_place(options: argparse.Namespace, chosen: ChosenGraph) -> GraphPreview:
    """Migrate a hidden branch of the live graph, which needs write access. Queries are not run."""
    from gitops.review.previews.trial import checks_of

    version = 0 if chosen.live is None else chosen.live.version
    if chosen.schema is None:
        return GraphPreview(chosen.graph, version)
    context = write_context(options)
    begun = context.clock.monotonic()
    try:
        report = graph.preview_migration(chosen.uri, chosen.schema.encode(), context)
    except GitopsError as error:
        return GraphPreview(chosen.graph, version, code=error.code.value)
    steps = tuple(StepRows(each.step.kind, None if each.count is None else each.count.rows) for each in report.steps)
    checks: tuple[DataCheck, ...] = checks_of(
        [each.step for each in report.steps], [each.count for each in report.steps]
    )
    ms = round((context.clock.monotonic() - begun) * 1000)
    migration = MigrationRun(ms, None, None, steps) if report.supported else None
    return GraphPreview(chosen.graph, report.manifest_version, migration, checks)


def _show(
    record: PreviewRecord, shown: tuple[ShownResult, ...], rules: PreviewRule, options: argparse.Namespace, place: str
) -> None:
    kept = {}
    for each in record.graphs if options.keep and not options.in_place else ():
        before, after = scratch_roots(place, each.graph)
        kept[each.graph] = {"before": before, "after": before if each.migration is None else after}
    if options.json:
        show_form(preview_form(record, rules.block, **({"kept": kept} if kept else {})))
        return
    text = preview_text(record, shown, block=rules.block, verbose=options.verbose)
    for name, roots in kept.items():
        text += f"  kept: gitops graph query {name} QUERY --root {roots['after']}\n"
    say_report(text.rstrip("\n"), options, ok=record.verdict is PreviewVerdict.GOOD)
