"""The port to machines. Without an implementation, changes of hosts are planned but never applied.

An implementation connects only in these two operations, and never while a plan compares records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gitops.cluster.hosts.compare import ObservedItem
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action
from gitops.cluster.model.host import Connection, Item
from gitops.cluster.model.plan import ExecNode, NodeResult
from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """One node on a host: a change of an item, or a step between changes (`FENCE`, `RELOAD`, `PACKAGES`).

    `item` is the declared item, for a delete the recorded one, and None for a step between changes; `before` is the recorded
    item. `members` are the items that a step between changes is for, such as the packages of one call of the package
    manager. `content` returns bytes by their digest. `confirm` is what the change could break between this program and the
    host, which must then be confirmed over a new connection; None if nothing. `fence` is the ledger's sequence number of
    this run.
    """

    node: ExecNode
    connection: Connection
    action: Action
    item: Item | None = None
    before: Item | None = None
    members: Sequence[Item] = ()
    content: Callable[[str], bytes]
    confirm: str | None = None
    fence: int = 0


class HostPort(Protocol):
    """Reads and changes machines. Both operations can run at the same time for different hosts and items."""

    def probe(self, connection: Connection, items: Sequence[Item]) -> Mapping[Address, ObservedItem]:
        """Return what the host has in place of these items, in one round trip.

        An item that cannot be read is UNREADABLE in the result. Raises GitopsError if the host cannot be reached.
        """

    def act(self, step: HostStep) -> NodeResult:
        """Carry out one step. Failures are outcomes with diagnostics; an unknown effect is INDETERMINATE."""
