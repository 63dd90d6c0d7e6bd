"""Machines in memory behind the port to hosts: what an apply decides and records, without processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gitops.cluster.hosts.compare import ObservedItem, Sight
from gitops.cluster.hosts.port import RECORD, HostRun, HostStep, SeenHost
from gitops.cluster.model.address import Address, item_address
from gitops.cluster.model.change import Action
from gitops.cluster.model.host import Connection, Item
from gitops.cluster.model.plan import FENCE, PACKAGES, NodeOutcome, NodeResult
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import RemoteError


class Crash(BaseException):
    """The program ends."""


@dataclass
class MemoryHosts:
    """What each machine has, by item, and who each machine is.

    `fails` are items whose change fails, and `offline` are hosts that do not answer. `probed` are the hosts that were read, and
    `done` the nodes that were carried out, in order. `crashes` is the number of nodes after whose effect the program ends.
    """

    has: dict[Address, ObservedItem] = field(default_factory=dict)
    fails: set[str] = field(default_factory=set)
    offline: set[str] = field(default_factory=set)
    machine: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    crashes: int | None = None
    probed: list[str] = field(default_factory=list)

    @contextmanager
    def open(self, run: HostRun) -> Iterator[MemoryHosts]:
        """What a workspace has as `open_hosts`."""
        assert run.hosts
        yield self

    def put(self, address: str, **attributes: Any) -> None:
        """Change an item by hand; without attributes, remove it."""
        self.has.pop(Address(address), None)
        if attributes:
            self.has[Address(address)] = ObservedItem(Sight.PRESENT, attributes)

    def probe(self, connection: Connection, items: Sequence[Item]) -> SeenHost:
        """See the port."""
        self.probed.append(connection.name)
        if connection.name in self.offline:
            raise RemoteError(Code.HOST_UNREACHABLE, "no answer", path=f"host.{connection.name}", retryable=True)
        found = {item_address(each.host, each.type, each.id) for each in items}
        seen = {each: self.has.get(each, ObservedItem(Sight.ABSENT)) for each in found}
        record = {"os": "debian 12", "architecture": "amd64", "machine": self.machine.get(connection.name, "1")}
        return SeenHost(seen, record)

    def act(self, step: HostStep) -> NodeResult:
        """See the port."""
        name = step.node.id
        if name in self.fails or step.connection.name in self.offline:
            problems = Diagnostics()
            problems.add(Code.HOST_ACTION_FAILED, name, "a program on the host failed: exit 1")
            return NodeResult(name, NodeOutcome.FAILED, tuple(problems))
        self.done.append(name)
        for each in step.members if step.node.kind == PACKAGES else [step.item] if step.item else []:
            address = item_address(each.host, each.type, each.id)
            if step.action is Action.DELETE:
                self.has.pop(address, None)
            else:
                self.has[address] = ObservedItem(Sight.PRESENT, dict(each.compared))
        if self.crashes is not None and len(self.done) > self.crashes:
            raise Crash
        facts: dict[str, object] = {RECORD: self.probe(step.connection, []).record} if step.node.kind == FENCE else {}
        return NodeResult(name, NodeOutcome.DONE, facts=facts)
