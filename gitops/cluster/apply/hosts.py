"""Changes hosts through their port: opens it for an apply, and carries out the nodes of an execution graph that are about hosts.

Nothing on a host is announced in the ledger before it happens. Each action and its result are recorded on the host, and the
next apply compares the host with its record again, so it continues an interrupted one wherever that ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gitops.cluster.apply.run import Run
from gitops.cluster.hosts.port import HostRun, HostStep
from gitops.cluster.model.address import Address, Kind, host_address, item_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.host import Connection, Item
from gitops.cluster.model.host_graph import confirms
from gitops.cluster.model.host_rules import NO_LOOK, read_form
from gitops.cluster.model.plan import FENCE, HOST_STEPS, PACKAGES, ExecNode, NodeOutcome, NodeResult
from gitops.cluster.plan.hosts import declared_forms, recorded_form
from gitops.cluster.session.session import Session
from gitops.core.errors import BugError


@contextmanager
def reaching_hosts(current: Session) -> Iterator[None]:
    """Let the session read and change its declared hosts during the block. Nothing connects before they are compared."""
    open_hosts, governance = current.workspace.open_hosts, current.workspace.governance
    hosts = (
        {}
        if open_hosts is None
        else {form.name: form for form in declared_forms(current.desired).values() if isinstance(form, Connection)}
    )
    if open_hosts is None or not hosts:
        yield
        return
    target = None if governance is None else governance.target
    run = HostRun(
        repository="" if target is None else target.repository,
        cluster=(current.desired.name or "cluster") if target is None else target.cluster,
        hosts=hosts,
        secrets=() if current.rules is None else tuple(sorted(current.rules.host_secrets)),
    )
    with open_hosts(run) as port:
        current.hosts = port
        try:
            yield
        finally:
            current.hosts = None


def is_on_host(node: ExecNode) -> bool:
    """Return True if a node changes something on a host, or is a step between such changes."""
    return node.kind in HOST_STEPS or (node.kind == Kind.HOST and node.address.item is not None)


def host_count(run: Run) -> int:
    """Return on how many hosts a run acts."""
    return sum(node.kind == FENCE for node in run.graph.nodes)


class HostNodes:
    """Carries out the nodes of one run that are about hosts. Worker threads call it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._session = run.session
        self._nodes = {node.id: node for node in run.graph.nodes}

    def act(self, node: ExecNode, change: Change | None) -> NodeResult:
        """Carry out one node, and keep the form of a changed item for the ledger. Raises GitopsError."""
        desired = self._session.desired.resources
        if change is None:
            host = node.id.removeprefix(f"{node.kind}.")
            host = host.rpartition(".")[0] if node.kind == PACKAGES else host
            return self._on_host(node, host, members=tuple(self._batch(node)))
        address, look = change.address, self._run.plan.looks.get(change.address, NO_LOOK)
        forgotten = host_address(address.host or "") not in desired
        result = NodeResult(node.id, NodeOutcome.DONE)
        if not (look.records or forgotten):
            item = self._item(change)
            result = self._on_host(node, item.host, item=item, restarts=not look.adopts)
        if result.outcome.succeeded and change.action is not Action.DELETE:
            self._session.opened.ledger.put_blob(address, desired[address].content or b"")
        return result

    def _on_host(
        self,
        node: ExecNode,
        host: str,
        *,
        item: Item | None = None,
        members: tuple[Item, ...] = (),
        restarts: bool = False,
    ) -> NodeResult:
        port, connection = self._session.hosts, self._declared(host_address(host))
        if port is None or not isinstance(connection, Connection):
            raise BugError(f"{node.id} is to be applied, and nothing reaches the host")
        contents = {} if item is None else self._contents(item)
        return port.act(
            HostStep(
                node=node,
                connection=connection,
                action=node.action,
                item=item,
                restarts=restarts,
                members=members,
                content=contents.__getitem__,
                confirm=None if item is None else confirms(item, connection),
                fence=self._run.swept.fence,
            )
        )

    def _batch(self, node: ExecNode) -> Iterator[Item]:
        """Return the packages of one call of the package manager: those whose nodes come after it for that reason."""
        for edge in self._run.graph.edges:
            if edge.before == node.id and edge.reason == "package_batch":
                found = self._declared(self._nodes[edge.after].address)
                if isinstance(found, Item):
                    yield found

    def _item(self, change: Change) -> Item:
        """Return the declared item, for a delete the recorded one."""
        found = (
            recorded_form(self._session, change.address, change.before or "")
            if change.action is Action.DELETE
            else self._declared(change.address)
        )
        if not isinstance(found, Item):
            raise BugError(f"{change.address} is to be applied, and its form cannot be read")
        return found

    def _declared(self, address: Address) -> Connection | Item:
        resource = self._session.desired.resources[address]
        return read_form(resource.content or b"", item=address.item is not None)

    def _contents(self, item: Item) -> dict[str, bytes]:
        resource = self._session.desired.resources.get(item_address(item.host, item.type, item.id))
        return {} if resource is None else dict(resource.contents)
