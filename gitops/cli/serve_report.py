"""The reports of `gitops serve`: under which name, from which of its processes, and to where."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from gitops.core.diagnostics import Diagnostics
from gitops.repository.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.cluster.ledger.served import ServingReports
    from gitops.serving.process import BootInputs
    from gitops.serving.report import StatusBoard

__all__ = ["board_of", "reporting"]

_CHANCE = 6


def board_of(options: argparse.Namespace) -> StatusBoard:
    """Where the processes leave what they serve. The name of the server is chosen here, before there are several of them."""
    from gitops.serving.report import StatusBoard, replica_name

    options.replica = options.replica or replica_name(os.uname().nodename, RandomIds().ulid()[-_CHANCE:])
    return StatusBoard(options.workers)


def reporting(
    options: argparse.Namespace, inputs: BootInputs, board: StatusBoard, number: int, log: logging.Logger
) -> AbstractContextManager[None]:
    """Report what the server serves while the block lasts, in the first of its processes."""
    from gitops.cluster.model.served import Follows
    from gitops.serving.report import ReplicaFacts, Reporter

    if options.no_report or number:
        return nullcontext()
    follows = Follows.ASKED if options.watch is None else Follows.WATCH

    def reports() -> ServingReports | None:
        stores = inputs.open_stores(Diagnostics())
        return None if stores is None else stores.reports

    facts = ReplicaFacts(options.replica, options.cluster, Follows.NEVER if options.revision is not None else follows)
    return Reporter(board, facts, reports, SystemClock(), log).running()
