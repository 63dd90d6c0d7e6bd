"""How the run of a plan ended."""

from __future__ import annotations

from gitops.cluster.apply.settle import Settlement
from gitops.cluster.model.plan import NodeResult
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """The settlement of a run, None where it came to none, and the results of its nodes.

    `settles` says that the settlement counts: the run came as far as its write. `written` says that the state was written,
    `reached` that all of the run was carried out, and `converged` that what is applied then is what is declared.
    """

    settled: Settlement | None
    results: tuple[NodeResult, ...]
    settles: bool = False
    written: bool = False
    reached: bool = False
    converged: bool = False
