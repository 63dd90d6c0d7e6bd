"""What an approval is about: the graph and the rows that its approver saw, and not a name that another graph has now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gitops.apply.apply import apply
from gitops.core.errors import GitopsError
from gitops.wiring.stores import graph_engine
from gitops.core.faults import NoFaults
from tests.support.loop import APPROVALS, CLUSTER_YAML, DELETE_LEGACY, LEDGER, MAIN, Loop, codes

pytestmark = pytest.mark.e2e


def _given(loop: Loop, who: str, address: str = "graph.legacy") -> list[str]:
    outcome = loop.sign_approval(who, address)
    assert outcome.approval is not None, outcome.diagnostics
    return loop.arrived(APPROVALS + outcome.approval.approval_id)


def _load(loop: Loop, rows: int, graph: str = "legacy") -> None:
    """Load rows into a graph, as its users do."""
    records = loop.home("alice") / "rows.jsonl"
    records.write_text("".join(json.dumps({"type": "Old", "data": {"k": f"k{n}"}}) + "\n" for n in range(rows)))
    done = loop.program("alice", "gitops", "graph", "load", graph, str(records), "--root", str(loop.graph(graph)))
    assert done.code == 0, done
