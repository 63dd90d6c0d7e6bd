"""Hosts in a plan: their records, their rules, and their steps in the execution graph.

| node | comes after |
| --- | --- |
| `fence.<host>`: keeps out earlier runs | nothing |
| every other node of the host | the fence (`fence`) |
| `packages.<host>.<n>`: one call of the package manager for packages of one layer | what these packages refer to |
| creation or change of a package | its call (`package_batch`), whose result it checks |
| `reload.<host>`: makes systemd read its units | changes of units (`unit_reload`) |
| services and readiness checks, if units change | the reload (`unit_reload`) |
| the fences of the next batch of hosts | readiness of the hosts before (`rollout`) |
| creation of an item at a path | removal of another item there (`path_handover`) |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from gitops.cluster.config.source import SourceMovedError
from gitops.cluster.ledger.port import BlobCondition
from gitops.cluster.model.address import Address, Kind, of_kind
from gitops.cluster.model.change import Action, Change, Disposition
from gitops.cluster.model.host import Connection, Item, ItemType, Transport
from gitops.cluster.model.host_graph import References, host_locks, host_references
from gitops.cluster.model.host_rules import NO_LOOK, HostDifference, HostInputs, details_of, is_pivot, read_form
from gitops.cluster.model.plan import (
    FENCE,
    HOST_STEPS,
    PACKAGES,
    RELOAD,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    LockMode,
)
from gitops.cluster.model.resource import Dependency, DesiredState
from gitops.cluster.model.trust import HostSecret
from gitops.cluster.plan.layers import serial_order, validate
from gitops.cluster.session.session import Session
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import GitopsError

_NO_SECRETS: frozenset[HostSecret] = frozenset()


def host_inputs(current: Session, changes: Sequence[Change], *, live: bool) -> HostInputs | None:
    """Return the host data that a plan needs, or None if it neither changes a host nor looks at one.

    The record of an unchanged item is its declaration, so only the records of changes are read. `live` is for a run that is
    about to apply. Any other plan doesn't depend on whether this program could change machines.
    """
    changed = {change.address: change for change in changes if change.address.kind is Kind.HOST}
    if not changed and not (live and current.hosts is not None):
        return None
    after = declared_forms(current.desired)
    before = {address: form for address, form in after.items() if address not in changed}
    unread: set[Address] = set()
    for address, change in changed.items():
        if change.before is None:
            continue
        form = recorded_form(current, address, change.before)
        if form is None:
            unread.add(address)
        else:
            before[address] = form
    rules, workspace = current.rules, current.workspace
    return HostInputs(
        before=before,
        after=after,
        unread=frozenset(unread),
        reached=not live or current.hosts is not None,
        gates_units=rules is not None and rules.host_gate_commands,
        rollout=workspace.rollout,
        first=workspace.hosts_first,
    )


def declared_forms(desired: DesiredState) -> dict[Address, Connection | Item]:
    """Return the declared hosts and items, by address."""
    found: dict[Address, Connection | Item] = {}
    for address in of_kind(desired.resources, Kind.HOST):
        found[address] = read_form(desired.resources[address].content or b"", item=address.item is not None)
    return found


def recorded_form(current: Session, address: Address, digest: str) -> Connection | Item | None:
    """Return what the ledger records of a host or item, None if that cannot be read."""
    with suppress(GitopsError, ValueError, SourceMovedError):
        reading = current.opened.ledger.blob(address, digest)
        if reading.condition is BlobCondition.OK and reading.content is not None:
            return read_form(reading.content, item=address.item is not None)
    return None


def check_host_rules(current: Session, problems: Diagnostics) -> None:
    """Report hosts and secrets that the rules in force do not permit."""
    rules = current.rules
    allowed = rules is not None and rules.host_allow_local
    secrets = _NO_SECRETS if rules is None else rules.host_secrets
    hosts_of = {each.name: each.hosts for each in secrets}
    for address, form in declared_forms(current.desired).items():
        if isinstance(form, Connection):
            if form.transport is Transport.LOCAL and not allowed:
                problems.add(Code.HOST_LOCAL_REFUSED, address, "it is the machine that runs the apply")
            continue
        for name in form.secrets:
            if name not in hosts_of:
                problems.add(Code.HOST_SECRET_NOT_ALLOWED, address, f"hosts.secrets has no secret '{name}'")
            elif form.host not in hosts_of[name]:
                message = f"hosts.secrets.{name}.hosts does not list {form.host}"
                problems.add(Code.HOST_SECRET_NOT_ALLOWED, address, message)


def host_differences(changes: Iterable[Change], inputs: HostInputs) -> dict[Address, HostDifference]:
    """Return the differences in each change to a host or item."""
    declared = _declared(inputs)
    return {
        address: HostDifference(
            before=inputs.before.get(address),
            after=inputs.after.get(address),
            unknown=address in inputs.unread,
            forgotten=address.host not in declared,
            gates_units=inputs.gates_units,
            look=inputs.looks.get(address, NO_LOOK),
        )
        for address in of_kind((change.address for change in changes), Kind.HOST)
    }


def described(changes: Iterable[Change], hosts: Mapping[Address, HostDifference]) -> tuple[Change, ...]:
    """Return the changes, with a readable description of each change to a host or item."""
    return tuple(
        change
        if (found := hosts.get(change.address)) is None
        else replace(change, details=(*change.details, *details_of(found)), pivot=is_pivot(found))
        for change in changes
    )


def triggered(changes: Iterable[Change], inputs: HostInputs) -> tuple[Change, ...]:
    """Return the updates of services and readiness checks that do not change, but read or check something that does."""
    active = {change.address for change in changes if change.action is not Action.DELETE}
    found = triggers(active, active, inputs)
    return tuple(replace(repeated(address, inputs), details=(words,)) for address, words in found.items())


def repeated(address: Address, inputs: HostInputs) -> Change:
    """Return the update of an item whose declaration is the recorded one."""
    found = digest(inputs.after[address].data)
    return Change(address, Action.UPDATE, found, found)


def triggers(acting: Collection[Address], changed: Collection[Address], inputs: HostInputs) -> dict[Address, str]:
    """Return the recorded services and readiness checks that are not `acting`, but have to act, with the reasons.

    A service is restarted after a change of its units, of what they read, and of its `triggers`, if the change is `acting`
    on the host. A check runs after any change of what it refers to, even indirectly, because an interrupted run may not have
    come to it.
    """
    links: defaultdict[Address, list[tuple[Address, str]]] = defaultdict(list)
    for (source, target), why in references_of(inputs.after).items():
        links[source].append((target, why.reason))
    found: dict[Address, str] = {}
    for kind, active, reasons in ((ItemType.SERVICE, acting, _READ), (ItemType.READY, changed, None)):
        for address, form in sorted(inputs.after.items()):
            if not isinstance(form, Item) or form.type is not kind or address in acting or address not in inputs.before:
                continue
            if kind is ItemType.SERVICE and form.attributes["on_change"] == "none":
                continue
            causes = _causes(address, links, {*active, *found}, reasons)
            if causes:
                found[address] = f"triggered_by {', '.join(causes)}"
    return found


_READ = frozenset({"systemd_unit", "systemd_environment_file", "systemd_credential", "triggers"})


def _causes(
    start: Address,
    links: Mapping[Address, Sequence[tuple[Address, str]]],
    active: Collection[Address],
    reasons: Collection[str] | None,
) -> list[Address]:
    """Return the active items that an item refers to, sorted, over references with these reasons, or all of them."""
    seen, pending = {start}, [start]
    while pending:
        for target, reason in links.get(pending.pop(), ()):
            if target not in seen and target.item is not None and (reasons is None or reason in reasons):
                seen.add(target)
                pending.append(target)
    return sorted(each for each in seen if each in active and each != start)


def references_of(forms: Mapping[Address, Connection | Item]) -> References:
    """Return what hosts and items of one state refer to."""
    items = {address: form for address, form in forms.items() if isinstance(form, Item)}
    connections = {address: form for address, form in forms.items() if isinstance(form, Connection)}
    return host_references(items, connections)


def held_back(
    changes: Sequence[Change], references: tuple[Iterable[Dependency], Iterable[Dependency]]
) -> frozenset[Address]:
    """Return the changes of hosts and items that wait for a change that is not applied, even through unchanged ones.

    What is created or changed waits for what it refers to, and what is removed for what refers to it. `references` are the
    declared and the recorded ones.
    """
    declared, recorded = references
    found = {change.address: change for change in changes}
    waiting: defaultdict[Address, list[Address]] = defaultdict(list)
    for source, target in declared:
        if source not in found or found[source].action is not Action.DELETE:
            waiting[target].append(source)
    for source, target in recorded:
        if target in found and found[target].action is Action.DELETE:
            waiting[source].append(target)
    pending = [a for a, change in found.items() if change.disposition in (Disposition.BLOCKED, Disposition.DEFERRED)]
    reached = set(pending)
    while pending:
        behind = [each for each in waiting[pending.pop()] if each not in reached]
        reached.update(behind)
        pending += behind
    return frozenset(
        each
        for each in reached
        if each.kind is Kind.HOST and each in found and found[each].disposition is Disposition.APPLIED
    )


# -- steps in the execution graph --------------------------------------------------------------------------------------


def with_host_steps(graph: ExecutionGraph, inputs: HostInputs) -> tuple[ExecutionGraph, tuple[Diagnostic, ...]]:
    """Return a graph with the steps, locks and edges of hosts, and the reasons why it cannot run, such as a cycle.

    The graph comes from `build_graph`. Hosts of which only the record changes get no steps.
    """
    forms, declared = {**inputs.before, **inputs.after}, _declared(inputs)
    by_host: defaultdict[str, list[tuple[ExecNode, Item]]] = defaultdict(list)
    for node in graph.nodes:
        form = forms.get(node.address) if node.changes else None
        records = inputs.looks.get(node.address, NO_LOOK).records
        if isinstance(form, Item) and form.host in declared and not records:
            by_host[form.host].append((node, form))
    if not by_host:
        return graph, ()
    edges = set(graph.edges)
    steps = [step for host, of in sorted(by_host.items()) for step in _steps(host, of, edges)]
    edges |= _handovers([each for of in by_host.values() for each in of])
    edges |= _rollout(by_host, inputs, edges)
    found = ExecutionGraph(_placed(graph.nodes, steps), tuple(sorted(edges)))
    if problems := validate(found):
        return ExecutionGraph(), problems
    sessions = {form.name: form.sessions for form in inputs.after.values() if isinstance(form, Connection)}
    items = {node.id: item for of in by_host.values() for node, item in of}
    order = {name: position for position, name in enumerate(serial_order(found))}
    nodes = (_with_locks(replace(node, position=order[node.id]), items, sessions) for node in found.nodes)
    return replace(found, nodes=tuple(sorted(nodes, key=lambda node: node.position))), ()


def _declared(inputs: HostInputs) -> frozenset[str]:
    return frozenset(form.name for form in inputs.after.values() if isinstance(form, Connection))


def _steps(host: str, of: Sequence[tuple[ExecNode, Item]], edges: set[ExecEdge]) -> list[ExecNode]:
    """Return the steps between the changes of a host. Adds their edges."""
    fence = ExecNode(f"{FENCE}.{host}", FENCE, Action.UPDATE, 0, (LockClaim(f"state:{host}"),))
    steps = [fence]
    installed = [node for node, item in of if item.type is ItemType.PACKAGE and node.action is not Action.DELETE]
    for number, batch in enumerate(_batches(installed, edges), start=1):
        name = f"{PACKAGES}.{host}.{number}"
        steps.append(ExecNode(name, PACKAGES, Action.UPDATE, 0, (LockClaim(f"pkg:{host}"),)))
        members = {node.id for node in batch}
        for edge in [each for each in edges if each.after in members]:
            edges.discard(edge)
            edges.add(ExecEdge(edge.before, name, edge.reason, edge.detail))
        edges |= {ExecEdge(name, node.id, "package_batch", str(number)) for node in batch}
    units = [node for node, item in of if item.type is ItemType.UNIT]
    if units:
        reload = ExecNode(f"{RELOAD}.{host}", RELOAD, Action.UPDATE, 0, (LockClaim(f"systemd:{host}"),))
        steps.append(reload)
        edges |= {ExecEdge(node.id, reload.id, "unit_reload", node.address.name) for node in units}
        started = (
            node
            for node, item in of
            if item.type in (ItemType.SERVICE, ItemType.READY) and node.action is not Action.DELETE
        )
        edges |= {ExecEdge(reload.id, node.id, "unit_reload", host) for node in started}
    behind = [*(node.id for node, _ in of), *(step.id for step in steps[1:])]
    edges |= {ExecEdge(fence.id, name, "fence", host) for name in behind}
    return steps


def _batches(nodes: Sequence[ExecNode], edges: Collection[ExecEdge]) -> Iterator[list[ExecNode]]:
    """Yield packages that do not wait for each other, in the order of their layers."""
    ids = {node.id for node in nodes}
    after: defaultdict[str, set[str]] = defaultdict(set)
    for edge in edges:
        after[edge.before].add(edge.after)
    depth = dict.fromkeys(sorted(ids), 0)
    pending = sorted(ids)
    while pending:
        start = pending.pop()
        seen, front = {start}, [start]
        while front:
            for target in sorted(after[front.pop()] - seen):
                seen.add(target)
                front.append(target)
                if target in ids and depth[target] <= depth[start]:
                    depth[target] = depth[start] + 1
                    pending.append(target)
    for level in sorted(set(depth.values())):
        yield [node for node in nodes if depth[node.id] == level]


def _handovers(nodes: Collection[tuple[ExecNode, Item]]) -> set[ExecEdge]:
    placed = [(node, item.host, item.path) for node, item in nodes if item.path is not None]
    gone = {(host, path): node.id for node, host, path in placed if node.action is Action.DELETE}
    return {
        ExecEdge(gone[host, path], node.id, "path_handover", path)
        for node, host, path in placed
        if node.action is not Action.DELETE and (host, path) in gone
    }


def _rollout(
    by_host: Mapping[str, Sequence[tuple[ExecNode, Item]]], inputs: HostInputs, edges: Iterable[ExecEdge]
) -> set[ExecEdge]:
    """Return the edges by which the fences of the next batch of hosts wait until the batch before is ready.

    A check that asks something of a later host can't be waited for by that host.
    """
    links: defaultdict[str, list[str]] = defaultdict(list)
    for edge in edges:
        links[edge.after].append(edge.before)

    def needs(check: str, host: str) -> bool:
        seen, pending = {check}, [check]
        while pending:
            found = [each for each in links[pending.pop()] if each not in seen]
            seen.update(found)
            pending += found
        return f"{FENCE}.{host}" in seen

    ready: dict[str, list[str]] = {
        host: [node.id for node, item in of if item.type is ItemType.READY and node.action is not Action.DELETE]
        for host, of in by_host.items()
    }
    hosts = sorted(host for host, checks in ready.items() if checks)
    size = inputs.rollout or len(hosts) or 1
    batches = [hosts[start : start + size] for start in range(0, len(hosts), size)]
    return {
        ExecEdge(check, f"{FENCE}.{other}", "rollout", f"batch {number}")
        for number, (batch, following) in enumerate(pairwise(batches), start=1)
        for host in batch
        for check in ready[host]
        for other in following
        if not needs(check, other)
    }


def _placed(nodes: Sequence[ExecNode], steps: Sequence[ExecNode]) -> tuple[ExecNode, ...]:
    """Return all nodes with new positions, the steps before the first node of a host."""
    first = min(node.position for node in nodes if node.kind == Kind.HOST.value)
    ordered = sorted(nodes, key=lambda node: node.position)
    placed = [*(n for n in ordered if n.position < first), *steps, *(n for n in ordered if n.position >= first)]
    return tuple(replace(node, position=position) for position, node in enumerate(placed))


def _with_locks(node: ExecNode, items: Mapping[str, Item], sessions: Mapping[str, int]) -> ExecNode:
    """Return the node with its locks on its host: its own, and one of the host's sessions."""
    item = items.get(node.id)
    if item is None and node.kind not in HOST_STEPS:
        return node
    host = Address(node.id).partition(".")[2].partition(".")[0] if item is None else item.host
    claims = {*node.locks, LockClaim(f"session:{host}/{node.position % sessions[host]}")}
    if item is not None:
        claims.update(host_locks(item))
    elif node.kind != FENCE:
        claims.add(LockClaim(f"state:{host}", LockMode.SHARED))
    return replace(node, locks=tuple(sorted(claims)))
