"""Attacks on data: an approval of one graph, or of few rows, that would delete another graph, or many rows."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import refresh
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph import LoadRequest, WriteContext, load_records
from gitops.doctor.attack.copy import Attack, AttackSucceeded, ClusterCopy, require
from gitops.doctor.attack.rules import CLUSTER, DELETE_LEGACY, STRANGER
from gitops.git.port import ZERO
from gitops.repository.wiring.system import RandomIds, SystemClock

_LOCKS = "refs/gitops/locks", "refs/heads/gitops/locks"
_FEW = 5


@dataclass(frozen=True)
class _At:
    """Does something at one fault point of a run, as if it happened in another process."""

    point: str
    act: Callable[[], None]

    def reach(self, point: str) -> None:
        """Act at the point."""
        if point == self.point:
            self.act()


def _load(copy: ClusterCopy, rows: int) -> None:
    """Load rows into the graph, as its users do."""
    lines = (json.dumps({"type": "Contact", "data": {"name": f"n{n}"}}) for n in range(rows))
    records = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    load_records(LoadRequest(str(copy.graph("legacy")), records), WriteContext(SystemClock(), RandomIds()))


def _declare(copy: ClusterCopy, cluster: bytes) -> None:
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): cluster}))


def _left_over(copy: ClusterCopy) -> str:
    """Everybody approves twice, so that half of the approvals are left when the graph is deleted and created again."""
    copy.approve_all()
    copy.approve_all()
    copy.apply()
    require(not copy.has_graph("legacy"), "the first, honest delete did not work")
    _declare(copy, CLUSTER)
    copy.apply()
    require(copy.has_graph("legacy"), "the graph was not created again")
    _declare(copy, DELETE_LEGACY)
    return copy.expect_no_effect()


def _loaded_after(copy: ClusterCopy) -> str:
    """Approved while the graph was empty; then its users load rows."""
    copy.approve_all()
    _load(copy, _FEW)
    return copy.expect_no_effect()


def _restored(copy: ClusterCopy) -> str:
    """A run dies after the delete, the operator restores a backup, and the next run finds the same approval."""
    _load(copy, _FEW)
    backup = shutil.copytree(copy.graph("legacy"), copy.folder / "backup")
    copy.approve_all()

    def die() -> None:
        raise GitopsError(Code.INJECTED_FAILPOINT, "the process ends")

    apply(replace(copy.workspace(), faults=_At("cluster_apply.after_graph_delete", die)))
    require(not copy.has_graph("legacy"), "the run did not get as far as the delete")
    shutil.copytree(backup, copy.graph("legacy"))
    codes = dict.fromkeys(copy.apply()[1] + copy.apply()[1])
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the restored graph was deleted by the same approval")
    return ", ".join(codes)


def _slow(copy: ClusterCopy) -> str:
    """A run is suspended before the delete; others break its lock and keep the graph. Then it goes on."""
    copy.approve_all()

    def break_lock() -> None:
        for ref in [ref for folder in _LOCKS for ref in copy.store().refs(folder)]:
            copy.move_ref(ref, ZERO)
        _declare(copy, CLUSTER)
        copy.apply()

    outcome = apply(replace(copy.workspace(), faults=_At("cluster_apply.before_graph_delete", break_lock)))
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("a run without its lock deleted the graph")
    if outcome.ok:
        raise AttackSucceeded("a run without its lock says that it deleted the graph")
    return ", ".join(dict.fromkeys(d.code for d in outcome.diagnostics))


def _vanished(copy: ClusterCopy) -> str:
    """The files of a graph are removed, and a refresh runs: then neither creating it again nor its delete needs an approval."""
    shutil.rmtree(copy.graph("legacy"))
    reported = [each.code for each in refresh(copy.workspace()).diagnostics]
    copy.apply()
    if copy.has_graph("legacy"):
        raise AttackSucceeded("an empty graph was created in its place")
    _declare(copy, DELETE_LEGACY)
    outcome, codes = copy.apply()
    if outcome is not None and outcome.converged:
        raise AttackSucceeded("the loss was forgotten without an approval")
    return ", ".join(dict.fromkeys((*reported, *codes)))


def _emptied(copy: ClusterCopy) -> str:
    """The graph stays, and other types replace all of its types."""
    _load(copy, _FEW)
    other = b"node Other {\n    name: String @key\n}\n"
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("legacy.pg"): other}))
    return copy.expect_no_effect()


_RULE = "docs/trust.md: which data an approval covers"
DATA_ATTACKS = (
    Attack("left-over-approval", "use an approval that was not needed", _RULE, _left_over),
    Attack("loaded-after-approval", "load rows after the approval", _RULE, _loaded_after),
    Attack("restored-backup", "restore a backup after a crash", _RULE, _restored),
    Attack("slow-run", "go on after the lock was broken", _RULE, _slow),
    Attack("vanished-graph", "remove the files of a graph", _RULE, _vanished, "applied"),
    Attack("emptied-graph", "drop the types of a graph", _RULE, _emptied, "applied"),
)
