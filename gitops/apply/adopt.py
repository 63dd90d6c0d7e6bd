"""What an import finds of an earlier ledger. To import over it forgets what it recorded, so people have to approve that.

1. An anchor beside the graphs names a ledger: its first and its newest entry, and the rules in force.
2. Else this clone saw an entry, or a signed approval or decision names one.
3. Else graphs that the folder declares exist: what changed them was recorded elsewhere, or not at all.

An import that finds none of these starts a ledger.
"""

from __future__ import annotations

from gitops.cluster.session import Session
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.port import Existence
from gitops.ledger.readings import restore_commands
from gitops.model.address import Kind
from gitops.model.ledger import FormerLedger

__all__ = ["find_former", "require_fresh"]


def find_former(current: Session) -> FormerLedger | None:
    """What is left of an earlier ledger of the cluster; None for a fresh start. Raises GitopsError if that is not known."""
    stores = current.opened
    former = stores.ledger.former()
    if former is not None:
        return former
    graphs = [resource.address.name for resource in current.desired.of_kind(Kind.GRAPH)]
    there = [name for name in graphs if stores.engine.exists(stores.graph_uri(name)) is not Existence.ABSENT]
    return FormerLedger(None, None, f"graphs without a ledger: {', '.join(there)}") if there else None


def require_fresh(current: Session) -> None:
    """Refuse an import over an earlier ledger. Raises GitopsError `ledger_adopt_required`, and as `find_former`."""
    governance = current.workspace.governance
    former = None if governance is None else find_former(current)
    if governance is None or former is None:
        return
    cluster, remedy = governance.target.cluster, "gitops import --adopt"
    if former.head is not None:
        remedy = restore_commands(cluster, former.head)
    detail = f"there is no ledger branch, but there was a ledger: {former.found}; {remedy}"
    raise GitopsError(Code.LEDGER_ADOPT_REQUIRED, detail, path=f"gitops/ledger/{cluster}")
