"""The port to machines. Without an implementation, changes of hosts are planned but never applied.

Only an apply opens it. An implementation connects only in its two operations, so a plan of a change request, which compares
records, reaches no machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from gitops.cluster.hosts.compare import ObservedItem
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action
from gitops.cluster.model.host import Connection, Item
from gitops.cluster.model.plan import ExecNode, NodeResult
from gitops.cluster.model.trust import HostSecret
from gitops.core.dataclass import dataclass

RECORD = "host"
"""The fact of a fence's result that has the host's record, which has the same form as `SeenHost.record`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """One run on the hosts of a cluster.

    `repository` is the id of its repository, empty for a ledger in a folder. `hosts` are the declared hosts by name, and
    `secrets` those that the rules in force permit.
    """

    repository: str
    cluster: str
    hosts: Mapping[str, Connection]
    secrets: Sequence[HostSecret] = ()


@dataclass(frozen=True, slots=True)
class SeenHost:
    """What a host has: each item that was asked for, and what the ledger records about the machine.

    `record` has the members `os`, `architecture` and `machine`, a digest that tells machines apart.
    """

    items: Mapping[Address, ObservedItem]
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """One node on a host: a change of an item, or a step between changes (`FENCE`, `RELOAD`, `PACKAGES`).

    `item` is the declared item, for a delete the recorded one, and None for a step between changes. `members` are the items
    that a step between changes is for, such as the packages of one call of the package manager. `content` returns bytes by
    their digest. `confirm` is what the change could break between this program and the host, which must then be confirmed
    over a new connection; None if nothing. `fence` is the ledger's sequence number of this run. With `restarts`, a running
    service is restarted if it may have started with earlier files.
    """

    node: ExecNode
    connection: Connection
    action: Action
    item: Item | None = None
    restarts: bool = False
    members: Sequence[Item] = ()
    content: Callable[[str], bytes]
    confirm: str | None = None
    fence: int = 0


class HostPort(Protocol):
    """Reads and changes machines. Both operations can run at the same time for different hosts and items."""

    def probe(self, connection: Connection, items: Sequence[Item]) -> SeenHost:
        """Return what the host has in place of these items, in one round trip.

        An item that cannot be read is UNREADABLE in the result. Raises GitopsError if the host cannot be reached, is not
        supported, or belongs to another cluster.
        """

    def act(self, step: HostStep) -> NodeResult:
        """Carry out one step. Failures are outcomes with diagnostics; an unknown effect is INDETERMINATE."""


OpenHosts: TypeAlias = "Callable[[HostRun], AbstractContextManager[HostPort]]"
"""Returns the port for one run. Its connections end with the context."""
