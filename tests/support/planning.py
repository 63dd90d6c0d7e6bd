"""Builders for planning in memory: resources, states and changes in few words; digests are letters repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gitops.cluster.model.address import Address, Kind, graph_address, schema_address
from gitops.cluster.model.change import Action, Change, Seen
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.resource import Dependency, DesiredState, Resource
from gitops.cluster.plan.draft import StateDraft

SEEN = Seen("01HF7YAT0000000000000000G1", 12, 3)
"""A graph with rows, as approvers and plans see it where nothing else is said."""
DATA = Path(__file__).parents[1] / "data/planning"


def rows(name: str) -> list[list[str]]:
    """The rows of a table of cases."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def hexed(letter: str) -> str:
    """A digest made of one hex digit, or the digest itself."""
    return letter * 64 if len(letter) == 1 else letter


def change(text: str, action: str, before: str = "a", after: str = "b") -> Change:
    """A change with the digests that its action has."""
    kind, address = Action(action), Address(text)
    deleted = kind is Action.DELETE and address.kind in (Kind.GRAPH, Kind.SCHEMA)
    return Change(
        address,
        kind,
        None if kind is Action.CREATE else hexed(before),
        None if kind is Action.DELETE else hexed(after),
        seen=SEEN if deleted else None,
    )


def state(digests: Mapping[str, str], bindings: Mapping[str, Iterable[str]] | None = None) -> LedgerState:
    """A ledger; composites of graphs are computed from the rest, whatever digest they are given."""
    bound = {text: tuple(refs) for text, refs in (bindings or {}).items()}
    entries = {Address(text): AppliedResource(hexed(d), bound.get(text)) for text, d in digests.items()}
    draft = StateDraft(LedgerState(revision=1, resources=entries))
    for address in entries:
        if address.kind is Kind.GRAPH:
            draft.renew(address.name)
    return draft.state()


def desired(
    digests: Mapping[str, str], bindings: Mapping[str, Iterable[str]] | None = None, config_digest: str = "c"
) -> DesiredState:
    """A folder's content; edges follow from the addresses and bindings."""
    recorded = state(digests, bindings)
    resources, edges = {}, set()
    for address in sorted(recorded.resources):
        entry = recorded.resources[address]
        content = None if address.kind is Kind.GRAPH else f"content of {entry.digest}".encode()
        resources[address] = Resource(address, entry.digest, f"{address}.txt", content, entry.applies_to)
        if address.kind in (Kind.SCHEMA, Kind.QUERY):
            edges.add(Dependency(address, graph_address(address.graph or "")))
        if address.kind is Kind.QUERY:
            edges.add(Dependency(address, schema_address(address.graph or "")))
        edges |= {Dependency(address, Address(ref)) for ref in entry.applies_to or () if ref.startswith("graph.")}
    return DesiredState(hexed(config_digest), resources, tuple(sorted(edges)), {})
