"""Decisions about approvals that were given: taking one back, agreeing to what was done in an emergency."""

from __future__ import annotations

import argparse
import os

from gitops.approving.decide import Office
from gitops.approving.decide import countersign as run_countersign
from gitops.approving.decide import revoke as run_revoke
from gitops.cli.options import choice_of
from gitops.cli.output import show
from gitops.core.faults import NoFaults
from gitops.wiring.project import LocalProject
from gitops.wiring.system import RandomIds, SystemClock


def revoke(options: argparse.Namespace) -> int:
    """`gitops revoke`."""
    return show(run_revoke(_office(options), options.approval, options.reason), as_json=options.json)


def countersign(options: argparse.Namespace) -> int:
    """`gitops countersign`."""
    return show(run_countersign(_office(options), options.approval, options.reason), as_json=options.json)


def _office(options: argparse.Namespace) -> Office:
    """Where the options mean to decide. Raises UsageError `signing_key_missing`, `actor_required`."""
    local = LocalProject(choice_of(options))
    rule = local.rule(options.cluster, options.config)
    return Office(
        ledger=local.ledger(rule),
        target=local.project.target(rule),
        by=local.endorsement(rule),
        clock=SystemClock(),
        ids=RandomIds(),
        faults=NoFaults(),
        pid=os.getpid(),
    )
