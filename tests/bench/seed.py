"""`python -m tests.bench.seed FOLDER`: write a ledger in which everything that the folder declares is applied.

It records digests only and makes no graph, so it is for measuring plans, never for applying.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from gitops.repository.wiring.system import SystemClock


def seed(folder: Path) -> None:
    """Record every declared resource of a folder as applied."""
    desired = load_desired(FolderTree(str(folder), confined=False)).desired
    if desired is None:
        raise SystemExit(f"{folder} does not load")
    ledger = FolderLedger(LocalStore(folder), clock=SystemClock(), faults=NoFaults())
    state = LedgerState(
        revision=1,
        config_digest=desired.config_digest,
        resources={text: AppliedResource(r.digest) for text, r in desired.resources.items()},
        statuses={text: StatusRecord(Status.APPLIED) for text in desired.resources},
    )
    ledger.commit(ledger.view(), LedgerWrite(state))


if __name__ == "__main__":
    seed(Path(sys.argv[1]))
