"""`gitops revoke` and `gitops countersign`: decisions about earlier approvals."""

from __future__ import annotations

import argparse
import os

from gitops.approving.decide import DecisionContext
from gitops.approving.decide import countersign as run_countersign
from gitops.approving.decide import revoke as run_revoke
from gitops.cli.options import choice_of
from gitops.cli.output import show
from gitops.core.faults import NoFaults
from gitops.wiring.project import LocalProject
from gitops.wiring.system import RandomIds, SystemClock


def revoke(options: argparse.Namespace) -> int:
    """`gitops revoke`."""
    return show(run_revoke(_context(options), options.approval, options.reason), as_json=options.json)


def countersign(options: argparse.Namespace) -> int:
    """`gitops countersign`."""
    return show(run_countersign(_context(options), options.approval, options.reason), as_json=options.json)


def _context(options: argparse.Namespace) -> DecisionContext:
    """The ledger and the signer that the options name. Raises UsageError `signing_key_missing`, `actor_required`."""
    local = LocalProject(choice_of(options))
    rule = local.rule(options.cluster, options.config)
    return DecisionContext(
        ledger=local.ledger(rule),
        target=local.project.target(rule),
        publisher=local.approval_publisher(rule),
        clock=SystemClock(),
        ids=RandomIds(),
        faults=NoFaults(),
        pid=os.getpid(),
    )
