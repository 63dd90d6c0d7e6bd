"""Chooses the graphs that a plan's preview tries (those whose schema or queries change), and the queries to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any

from gitops.cluster.model.address import Address, Kind, query_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import Plan
from gitops.cluster.session.session import Session
from gitops.core.canonical import canonical_digest, digest
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.review.previews import order as orders
from gitops.review.previews.order import AllowedRows
from gitops.review.previews.record import FORM_VERSION
from gitops.review.tests.bind import BoundAudit
from gitops.review.tests.select import CollectedTests, QueryTestFolders, collect_tests


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """The newest version of a graph: its number, and its commit, which is unique."""

    version: int
    commit: str


@dataclass(frozen=True, slots=True)
class ChosenQuery:
    """A query to run: its recorded text, its declared text, and the parameters to use."""

    name: str
    recorded: str | None
    declared: str | None
    samples: tuple[Mapping[str, Any], ...] = ()
    rows: AllowedRows | None = None


@dataclass(frozen=True, slots=True)
class ChosenGraph:
    """A graph to preview at a version. `schema` is the new schema text, None if it stays. `audits` run after the change.

    `left_out` queries are more than a preview runs. `code` says why the graph cannot be read.
    """

    graph: str
    uri: str
    live: LiveVersion | None
    schema: str | None
    steps: tuple[Mapping[str, Any], ...]
    queries: tuple[ChosenQuery, ...]
    left_out: int = 0
    code: str | None = None
    audits: tuple[BoundAudit, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The graphs and queries to choose (default: all), and the `rows` that may be shown, by graph and query.

    `folders` are where test files are; without it, only the cluster folder.
    """

    graph: str | None = None
    query: str | None = None
    folders: QueryTestFolders | None = None
    rows: Mapping[str, Mapping[str, AllowedRows]] = field(default_factory=dict)


def choose_graphs(
    current: Session, plan: Plan, live: Callable[[str], LiveVersion], wanted: Wanted
) -> tuple[ChosenGraph, ...]:
    """Return what to try for a plan, by graph. `live` reads the newest version of the graph at a root.

    Graphs that the plan creates or deletes have nothing to compare. Empty if nothing is to be previewed.
    """
    schemas = {c.address.name: c for c in plan.changes if c.address.kind is Kind.SCHEMA and c.action is Action.UPDATE}
    changed: dict[str, dict[str, Change]] = {}
    for change in plan.changes:
        if change.address.kind is Kind.QUERY and change.address not in plan.republished:
            changed.setdefault(change.address.graph or "", {})[change.address.name] = change
    gone = {c.address.name for c in plan.changes if c.address.kind is Kind.GRAPH and c.action is not Action.UPDATE}
    touched: dict[str, list[str]] = {}
    for impact in plan.schema_impact:
        found = (each.query.name for queries in impact.queries for each in queries)
        touched[impact.schema.name] = list(dict.fromkeys((*found, *(each.query.name for each in impact.results))))
    names = [name for name in sorted({*schemas, *changed} - gone) if wanted.graph in (None, name)]
    if not names:
        return ()
    # A test file with an error has neither samples nor audits; the plan reports it.
    tests = collect_tests(wanted.folders or QueryTestFolders(current.workspace.tree), current.desired, ())
    return tuple(
        _graph(current, name, schemas.get(name), (*changed.get(name, {}), *touched.get(name, ())), live, wanted, tests)
        for name in names
    )


def preview_key(graphs: Iterable[ChosenGraph]) -> str:
    """Return the digest of everything that the result of a preview depends on."""
    limits = [orders.QUERY_SECONDS, orders.QUERY_BYTES, orders.COMPARED_ROWS, orders.WRITTEN_BYTES, orders.MOST_SETS]

    def of_text(text: str | None) -> str | None:
        return None if text is None else digest(text.encode())

    parts = [
        {
            "graph": each.graph,
            "commit": None if each.live is None else each.live.commit,
            "schema": of_text(each.schema),
            "queries": [
                [query.name, of_text(query.recorded), of_text(query.declared), list(query.samples)]
                for query in each.queries
            ],
            "left_out": each.left_out,
            **({"audits": [[a.id, a.job] for a in each.audits]} if each.audits else {}),
        }
        for each in graphs
    ]
    return canonical_digest({"form": FORM_VERSION, "limits": limits, "graphs": parts})


def _graph(
    current: Session,
    name: str,
    schema: Change | None,
    queries: Iterable[str],
    live: Callable[[str], LiveVersion],
    wanted: Wanted,
    tests: CollectedTests,
) -> ChosenGraph:
    uri = current.opened.graph_uri(name)
    chosen = [wanted.query] if wanted.query is not None else list(dict.fromkeys(queries))
    known = [each for each in chosen if _known(current, name, each)]
    rows = wanted.rows.get(name, {})
    found = tuple(
        ChosenQuery(
            each,
            _recorded(current, query_address(name, each)),
            _declared(current, query_address(name, each)),
            tuple(sample.params for sample in tests.samples if (sample.graph, sample.query) == (name, each)),
            rows.get(each),
        )
        for each in known[: orders.MOST_QUERIES]
    )
    text = None if schema is None else (current.desired.resources[schema.address].content or b"").decode()
    steps = () if schema is None or schema.migration is None else tuple(schema.migration.steps)
    left_out = max(0, len(known) - orders.MOST_QUERIES)
    audits = tuple(audit for audit in tests.audits if audit.graph == name and wanted.query is None)
    try:
        return ChosenGraph(name, uri, live(uri), text, steps, found, left_out, audits=audits[: orders.MOST_QUERIES])
    except GitopsError as error:
        return ChosenGraph(name, uri, None, text, steps, found, left_out, error.code.value)


def _known(current: Session, graph: str, query: str) -> bool:
    address = query_address(graph, query)
    return address in current.desired.resources or address in current.state.resources


def _declared(current: Session, address: Address) -> str | None:
    resource = current.desired.resources.get(address)
    return None if resource is None else (resource.content or b"").decode()


def _recorded(current: Session, address: Address) -> str | None:
    """Return the applied text of a query, or None if there is none or it cannot be read."""
    recorded = current.state.resources.get(address)
    if recorded is None:
        return None
    with suppress(GitopsError, UnicodeDecodeError):
        content = current.opened.ledger.blob(address, recorded.digest).content
        return None if content is None else content.decode()
    return None
