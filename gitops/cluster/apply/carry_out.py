"""The work of a run: its nodes on the provider, in the order and under the locks of its execution graph."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gitops.cluster.apply.run import Run
from gitops.cluster.apply.runner import run_graph
from gitops.cluster.apply.target_check import check_target
from gitops.cluster.changesets.runs import RunLog
from gitops.cluster.model.node_kind import TARGET
from gitops.cluster.model.plan import ExecNode, NodeOutcome, NodeResult
from gitops.cluster.model.run_event import to_all
from gitops.cluster.session.workspace import CRASHED, ClusterWork


def carry_out(
    run: Run,
    *,
    results: dict[str, NodeResult] | None = None,
    at_barrier: Callable[[ExecNode], NodeResult] | None = None,
    armed: Collection[str] = (),
    sound: NodeOutcome = NodeOutcome.UNCHANGED,
) -> tuple[NodeResult, ...]:
    """Carry out the graph of a run; one result per node, in plan order.

    `results` gets the result of each node when it has ended, `at_barrier` is what `run_graph` does with barriers, `armed` are
    operations whose intents are durable already, and `sound` is how a look at a target ends that finds nothing against the run.
    """
    current, workspace, stores = run.session, run.session.workspace, run.session.opened
    provider = workspace.provider(
        ClusterWork(
            ledger=stores.ledger,
            engine=stores.engine,
            graph_uri=stores.graph_uri,
            resources=current.desired.resources,
            intents=run.intents,
            read_source=workspace.tree.read,
            faults=workspace.faults,
            actor=workspace.actor,
            cancel=workspace.cancel,
            armed=armed,
        )
    )
    changes = {change.address: change for change in run.plan.changes}
    crashed: list[str] = []

    def execute(node: ExecNode) -> NodeResult:
        if node.id in run.done:
            result = NodeResult(node.id, NodeOutcome.UNCHANGED, facts=dict(run.done[node.id]))
        elif node.kind == TARGET:
            result = check_target(current, node, sound=sound)
        else:
            result = provider.apply(node, changes[node.address])
        if result.facts.get(CRASHED):
            crashed.append(node.id)
        if results is not None:
            results[node.id] = result
        return result

    log = RunLog()
    run.journal.run = log.record
    return run_graph(
        run.graph,
        execute,
        clock=workspace.clock,
        workers=workspace.workers or stores.workers,
        fail_fast=workspace.fail_fast or run.atomic,
        on_event=to_all(log, workspace.on_event),
        stop=lambda: bool(crashed),
        cancel=workspace.cancel,
        time_limit=workspace.time_limit,
        at_barrier=at_barrier,
        recoveries={name: intent.operation_id for name, intent in run.intents.items()},
        facts={"plan_digest": run.plan.digest, "direction": "up"},
    )
