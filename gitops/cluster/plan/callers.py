"""Which recorded clients a plan's changes break: the callers of queries that it breaks or removes, and actors that lose access.

1. A removed query breaks all of its callers, and a deleted graph the callers of all its queries.
2. A changed contract breaks the callers whose parameters no longer fit, or who read a column that is dropped or gets
   another type. A call reads every column of its query.
3. A migration breaks the callers of the queries of its graph that change with it. If such a plan needs an approval, it is
   asked for once, at the schema, because changed queries wait for the schema. Removed ones don't wait.
4. A policy breaks the actors that called a query and can no longer run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gitops.cluster.model.access import RUN, AccessDiff, AccessRow
from gitops.cluster.model.address import Address, Kind, policy_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import BreakKind, ContractBreak, SchemaImpact
from gitops.cluster.model.use import (
    CallerRules,
    Callers,
    QueryCalls,
    RecordedUse,
    UseState,
    callers_in,
    hashed_client,
    why_asked,
)


class BrokenCalls(NamedTuple):
    """Calls that a change breaks in a graph: calls to one query, or to all queries if `query` is empty.

    With `breaks`, only calls that rely on one of these parts of the contract. With `row`, only calls of its actors.
    """

    graph: str
    query: str = ""
    breaks: tuple[ContractBreak, ...] = ()
    row: AccessRow | None = None

    def has(self, call: QueryCalls, use: RecordedUse) -> bool:
        """Return whether a recorded call is one of these."""
        if self.query not in ("", call.query):
            return False
        if self.row is not None and not _lost_by(call.client, self.row, use):
            return False
        return not self.breaks or any(_relies(call, each) for each in self.breaks)


def broken_calls(
    changes: Sequence[Change],
    breaks: Iterable[ContractBreak],
    impacts: Iterable[SchemaImpact],
    access: AccessDiff | None,
) -> dict[Address, tuple[BrokenCalls, ...]]:
    """Return the calls that each change breaks. Changes that break none are left out."""
    found: dict[Address, list[BrokenCalls]] = {}
    by_query: dict[Address, list[ContractBreak]] = {}
    for each in breaks:
        by_query.setdefault(each.query, []).append(each)
    for query, parts in by_query.items():
        found[query] = [BrokenCalls(query.graph or "", query.name, tuple(parts))]
    deleted = [c.address for c in changes if c.address.kind is Kind.GRAPH and c.action is Action.DELETE]
    found |= {graph: [BrokenCalls(graph.name)] for graph in deleted}
    results = {impact.schema: impact.results for impact in impacts}
    for change in changes:
        schema = change.address
        if schema.kind is not Kind.SCHEMA or change.action is not Action.UPDATE:
            continue
        calls = [each for query in by_query if query.graph == schema.name for each in found[query]]
        known = {query.name for query in by_query if query.graph == schema.name}
        lost = (r for r in results.get(schema, ()) if r.query.name not in known and not set(r.before) <= set(r.after))
        calls += [BrokenCalls(schema.name, each.query.name) for each in lost]
        if calls:
            found[schema] = calls
    policies = [change.address for change in changes if change.address.kind is Kind.POLICY]
    for row in lost_queries(access):
        named = None if row.policy is None else policy_address(row.policy)
        for policy in [named] if named in policies else policies[:1]:
            if policy is not None:
                graph = Address(row.scope).name
                found.setdefault(policy, []).extend(BrokenCalls(graph, query, row=row) for query in row.queries)
    return {address: tuple(calls) for address, calls in found.items()}


def callers_of(
    broken: Mapping[Address, Sequence[BrokenCalls]], use: Mapping[str, RecordedUse], rules: CallerRules
) -> dict[Address, Callers]:
    """Return the clients behind broken calls, by change, from the recorded use of each graph."""
    found = {}
    for address, parts in broken.items():
        (graph, *more) = dict.fromkeys(each.graph for each in parts)
        known = use.get(graph, RecordedUse(UseState.NOT_RECORDED, rules.days))
        calls = [call for call in known.calls if any(each.has(call, known) for each in parts if each.graph == graph)]
        found[address] = callers_in(known, calls, rules)
        for other in more:
            # A policy can be bound to several graphs.
            known = use.get(other, RecordedUse(UseState.NOT_RECORDED, rules.days))
            calls = [
                call for call in known.calls if any(each.has(call, known) for each in parts if each.graph == other)
            ]
            found[address] = found[address].with_those(callers_in(known, calls, rules))
    return found


def asked_for(changes: Iterable[Change], callers: Mapping[Address, Callers], rules: CallerRules) -> dict[Address, str]:
    """Return the changes that the gate for broken clients is about, each with the reason."""
    updates = {change.address for change in changes if change.action is Action.UPDATE}
    found = {address: why_asked(each, rules.may_break) for address, each in callers.items()}
    return {
        address: reason
        for address, reason in found.items()
        if reason and not (address.kind is Kind.QUERY and {address, address.schema_address} <= updates)
    }


def lost_queries(access: AccessDiff | None) -> list[AccessRow]:
    """Return the rows about stored queries of a graph that actors can no longer run."""
    return [] if access is None else [row for row in access.rows if not row.gain and row.action == RUN and row.queries]


def _lost_by(client: str, row: AccessRow, use: RecordedUse) -> bool:
    """Return whether a client is one of a row's actors. If that includes tokens without a group, any client may be."""
    members = row.actors.members
    hashed = {hashed_client(each, use.hashed_for) for each in members} if use.hashed_for else set[str]()
    return row.actors.others or client in members or client in hashed


def _relies(call: QueryCalls, broken: ContractBreak) -> bool:
    """Return whether a call relies on a part of its query's contract."""
    given = dict(each.rpartition(": ")[::2] for each in call.parameters)
    name = broken.subject.removeprefix("$")
    if broken.kind is BreakKind.PARAMETER_DROPPED:
        return name in given
    if broken.kind is BreakKind.PARAMETER_CHANGED:
        # A call that leaves a parameter out, or passes null, breaks if the parameter becomes required.
        return name in given or not broken.after.endswith("?")
    return True
