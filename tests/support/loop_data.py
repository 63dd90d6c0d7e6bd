"""A loop and the data of its graphs: rows that users load, and what the operator runs and reads in this process."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import refresh
from gitops.cluster.audit.report import AuditReport
from gitops.cluster.audit.verb import audit
from gitops.cluster.session.workspace import Workspace
from gitops.core.faults import NoFaults
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.repository.repository import Candidate
from gitops.repository.wiring.git import open_commit_tree
from gitops.repository.wiring.stores import graph_engine
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.loop import APPROVALS, CLUSTER, LEDGER, Loop


def given(loop: Loop, who: str, address: str = "graph.legacy") -> list[str]:
    """Approve a change, and do what the hook does; its lines."""
    outcome = loop.sign_approval(who, address)
    assert outcome.approval is not None, outcome.diagnostics
    return loop.arrived(APPROVALS + outcome.approval.approval_id)


def load(
    loop: Loop,
    rows: int,
    graph: str = "legacy",
    kind: str = "Contact",
    key: str = "name",
    *,
    mode: LoadMode = LoadMode.MERGE,
    cells: Mapping[str, object] | None = None,
) -> None:
    """Load rows into a graph, as its users do, all with these further cells."""
    found = ({"type": kind, "data": {key: f"n{n}", **(cells or {})}} for n in range(rows))
    records = "".join(json.dumps(each) + "\n" for each in found)
    context = WriteContext(SystemClock(), RandomIds())
    load_records(LoadRequest(str(loop.graph(graph)), io.BytesIO(records.encode()), mode), context)


def rows(loop: Loop, graph: str = "legacy") -> int:
    """The rows of a graph."""
    return graph_engine(NoFaults()).read(str(loop.graph(graph))).rows


def schema(loop: Loop, graph: str) -> bytes:
    """The schema that a graph accepts."""
    return graph_engine(NoFaults()).read(str(loop.graph(graph))).schema_source


def workspace(loop: Loop) -> Workspace:
    """The cluster at the tip of the target branch."""
    local = loop.local()
    rule = local.config().cluster(CLUSTER)
    return local.at(rule, local.position(rule), Candidate(loop.tip())).workspace("bot@people.example")


def applied_again(loop: Loop) -> set[str]:
    """What a later run of the bot says."""
    return {d.code for d in apply(workspace(loop)).diagnostics}


def refreshed(loop: Loop) -> set[str]:
    """What a refresh says."""
    return {d.code for d in refresh(workspace(loop)).diagnostics}


def audited(loop: Loop, head: str | None = None) -> AuditReport:
    """An audit of the ledger, or of one with another head."""
    rule = loop.local().config().cluster(None)
    opened = lambda reader, tree: open_commit_tree(reader, tree, rule.path)  # noqa: E731
    return audit(loop.store, head or loop.tip(LEDGER), rule.name, opened)
