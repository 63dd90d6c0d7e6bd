"""Whether an entry records the gate of what it lists as applied and whose text says that it needs one: rules 1 to 4.

1. Who gains what is computed again from the policies, bindings, graphs and queries that the ledger records before the entry and
   after it, as in a plan, and held against the classes of gains that the rules in force before the entry gate.
2. A policy that gives such a gain is not applied without a gate.
3. One that only lets actors copy a protected branch to where others read it is a note in an entry before version 4, whose
   release did not gate that.
4. Where the rules gate what is lossy, a strategy that drops a replica before the new one is created is not applied without a
   gate.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.audit.trail import change_of
from gitops.cluster.audit.walk import Walk
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.ledger.layout import blob_key
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Disposition, GateName
from gitops.cluster.model.ledger import RULES_OF_0_2_1, LedgerState
from gitops.cluster.model.resource import Resource
from gitops.cluster.plan.access import AccessSource, access_between
from gitops.cluster.plan.planner import widened_policies
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.git.port import GitReader

__all__ = ["check_policies", "check_strategies"]


def check_policies(walk: Walk, found: VerifiedEntry, state: LedgerState) -> None:
    """Apply rules 1 to 3 to one entry, `state` being the one after it. Raises IntegrityError `ledger_change_unapproved`."""
    applied = [
        each
        for each in found.entry.changes
        if each.resource.kind is Kind.POLICY and each.disposition == Disposition.APPLIED
    ]
    if not applied or not found.before.widening or walk.previous is None:
        return
    before = _source(walk.reader, walk.previous.commit.tree, walk.state)
    access = access_between(before, _source(walk.reader, found.commit.tree, state))
    changes = [change_of(each) for each in applied if each.tier is None]
    for copies in (False, True):
        rows = tuple(row for row in access.rows if row.copies is copies)
        widened = widened_policies(changes, replace(access, rows=rows), found.before.widening)
        for policy, words in widened.items():
            detail = f"{policy} {words}, and the entry records no gate"
            if not copies or found.entry.version >= RULES_OF_0_2_1:
                raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)
            walk.notes.append(f"entry {found.entry.number}: {detail}")


def check_strategies(walk: Walk, found: VerifiedEntry) -> None:
    """Apply rule 4 to one entry. Raises IntegrityError `ledger_change_unapproved`, `strategy_record_invalid`."""
    quorum = found.before.quorum(found.entry.target.environment)
    if GateName.LOSSY not in quorum.numbers:
        return
    applied = {
        each.resource: each.after
        for each in found.entry.changes
        if each.resource.kind is Kind.STRATEGY
        and each.disposition == Disposition.APPLIED
        and each.after is not None
        and each.tier is None
    }
    if not applied:
        return
    from gitops.cluster.model.compute import drops_first

    texts = {name: walk.reader.read(found.commit.tree, blob_key(name, after) or "") for name, after in applied.items()}
    for name in sorted(drops_first(Resource(name, applied[name], data=text) for name, text in texts.items() if text)):
        detail = f"{name} drops a replica before the new one is created, and the entry records no gate"
        raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)


def _source(reader: GitReader, tree: str, state: LedgerState) -> AccessSource:
    """What a ledger records, with the texts of its catalog."""

    def text(address: Address, digest: str) -> bytes | None:
        key = blob_key(address, digest)
        return None if key is None else reader.read(tree, key)

    return AccessSource(state.resources, text, str)
