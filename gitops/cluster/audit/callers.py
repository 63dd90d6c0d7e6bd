"""Recomputes the calls that an entry's changes break, from the texts in the ledger and in its sources.

An audit can't read record objects. The entry has the clients that the apply counted, and an approval has those that its
approver saw. So the audit checks that the gate asked for these clients under the rules in force, and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from gitops.cluster.ledger.layout import blob_key
from gitops.cluster.model.access import AccessDiff
from gitops.cluster.model.address import Address, Kind, schema_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import BreakKind, ContractBreak
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.model.use import CallerRules, Callers, UseState
from gitops.cluster.plan.callers import asked_for, broken_calls
from gitops.core.errors import GitopsError
from gitops.git.port import GitReader

SchemaText = Callable[[str, str], bytes | None]
"""Returns the schema text of a graph with a digest, or None if it is not available."""

_NOT_RECORDED = Callers(UseState.NOT_RECORDED)


def asked_for_clients(
    changes: Sequence[Change], breaks: Sequence[ContractBreak], access: AccessDiff | None, rules: TrustRoot
) -> Mapping[Address, str]:
    """Return the changes to which the gate `breaks_clients` applies, given the clients that the entry records for each."""
    recorded = {change.address: change.callers or _NOT_RECORDED for change in changes}
    broken = broken_calls(changes, breaks, (), access)
    callers = {address: recorded[address] for address in broken if address in recorded}
    counted = CallerRules(rules.use_window.days, rules.ignored_clients, rules.least_calls, rules.may_break)
    return asked_for(changes, callers, counted)


def broken_by_changes(
    reader: GitReader,
    trees: tuple[str, str],
    states: tuple[LedgerState, LedgerState],
    changes: Sequence[Change],
    schema: SchemaText,
) -> tuple[ContractBreak, ...]:
    """Return the contracts with query callers that changes break, between two trees of a ledger and their states.

    Texts that are not available break nothing that is known.
    """
    gone = {c.address.name for c in changes if c.address.kind is Kind.GRAPH and c.action is Action.DELETE}
    found = [
        ContractBreak(change.address, BreakKind.REMOVED)
        for change in changes
        if change.address.kind is Kind.QUERY and change.action is Action.DELETE and change.address.graph not in gone
    ]
    updates = [c.address for c in changes if c.action is Action.UPDATE and c.address.kind in (Kind.QUERY, Kind.SCHEMA)]
    graphs = {each.graph or each.name for each in updates}
    for graph in sorted(graphs):
        migrated = schema_address(graph) in updates
        chosen = [
            address
            for address in states[0].resources.keys() & states[1].resources.keys()
            if address.kind is Kind.QUERY and address.graph == graph and (migrated or address in updates)
        ]
        found += _breaks_of_graph(reader, trees, states, graph, sorted(chosen), schema)
    return tuple(found)


def _breaks_of_graph(
    reader: GitReader,
    trees: tuple[str, str],
    states: tuple[LedgerState, LedgerState],
    graph: str,
    queries: Sequence[Address],
    schema: SchemaText,
) -> Iterator[ContractBreak]:
    # Importing the languages is slow, and few rules have this gate.
    from gitops.cluster.plan.impact import contract_breaks
    from gitops.database.language.query import check_query, parse_queries
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError

    catalogs = []
    for state in states:
        recorded = state.resources.get(schema_address(graph))
        text = None if recorded is None else schema(graph, recorded.digest)
        if text is None:
            return
        with suppress(GitopsError, LanguageError):
            catalogs.append(compile_schema(text).catalog)
    if len(catalogs) != len(states):
        return
    for address in queries:
        sides = []
        for tree, state, catalog in zip(trees, states, catalogs, strict=True):
            text = reader.read(tree, blob_key(address, state.resources[address].digest) or "")
            with suppress(GitopsError, LanguageError):
                declared = {each.name.text: each for each in reversed(parse_queries(text or b""))}
                sides += [check_query(declared[address.name], catalog)] if address.name in declared else []
        if len(sides) == len(states):
            yield from contract_breaks(address, sides[0], sides[1])
