"""Attacks on what an approval is about: other rows, and a graph that was restored."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace

from gitops.apply.apply import apply
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, ClusterCopy, require
from gitops.graph import LoadRequest, WriteContext, load_records
from gitops.wiring.system import RandomIds, SystemClock

_ROWS = 3
_DELETED = "cluster_apply.after_graph_delete"


class _Stop:
    """Ends a run after the graph is deleted, before the ledger records it."""

    def reach(self, point: str) -> None:
        if point == _DELETED:
            raise GitopsError(Code.INJECTED_FAILPOINT, point)


def _loaded_after(copy: ClusterCopy) -> str:
    """The approvers saw an empty graph."""
    copy.approve_all()
    lines = (json.dumps({"type": "Contact", "data": {"name": str(n)}}) for n in range(_ROWS))
    records = io.BytesIO("\n".join(lines).encode())
    load_records(LoadRequest(str(copy.graph("legacy")), records), WriteContext(SystemClock(), RandomIds()))
    return copy.expect_no_effect()


def _restored(copy: ClusterCopy) -> str:
    """The run that deleted the graph dies before it can record that; then the graph is restored."""
    backup = shutil.copytree(copy.graph("legacy"), copy.folder / "backup")
    copy.approve_all()
    apply(replace(copy.workspace(), faults=_Stop()))
    require(not copy.has_graph("legacy"), "the graph was not deleted")
    shutil.copytree(backup, copy.graph("legacy"))
    return copy.expect_no_effect()


_PAGE = "docs/approvals.md: data"
DATA_ATTACKS = (
    Attack("loaded-after-approval", "load rows after the approval", _PAGE, _loaded_after),
    Attack("restored-backup", "restore a deleted graph, and use its approvals again", _PAGE, _restored),
)
