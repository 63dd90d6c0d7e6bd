"""Turns the facts of a report into its files.

1. The same facts give the same bytes. Nothing here depends on a clock: ages and the time of writing are not shown.
2. A page of an entry, and a full page of the timeline, depend only on entries, so they never change.
3. A page has at most 200 KB. A longer one shows the first items of each list and the command that shows the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from gitops.cluster.changesets.runs import critical_path
from gitops.cluster.model.address import CLUSTER_SCOPE, Address
from gitops.cluster.model.outcome import StatusOutcome
from gitops.cluster.policy.bundle import GRAPH_ACTIONS, SERVER_ACTIONS, Bundle, Rule
from gitops.core.dataclass import dataclass
from gitops.render.audit import audit_text
from gitops.render.characters import visible
from gitops.render.environment import in_address, page_file, render_page
from gitops.render.previews import PreviewView, preview_view
from gitops.render.site.diagram import Box, draw_layers, draw_run
from gitops.render.site.facts import (
    IN_FEED,
    NEWEST,
    PER_PAGE,
    EntryFacts,
    GraphFacts,
    PolicyFacts,
    RequestFacts,
    SiteFacts,
)
from gitops.render.site.plan_page import plan_page
from gitops.render.text import drill_line, lock_line, rule_line
from gitops.render.words import count

INDEX = "index.html"
LIMIT = 200_000
"""Maximum number of bytes of a page."""

MOST_TYPES = 60
"""Number of node types from which a schema diagram shows only their number."""

# How many items of each list a page shows. A page that is too long is rendered again with the next number.
_ITEMS = (1_500, 600, 250, 100, 40, 15, 5, 0)
_STYLE, _SCRIPT = "site.css", "filter.js"
_NAMES, _MOST_SUMMARY = 6, 3


@dataclass(frozen=True, slots=True)
class Page:
    """A file of a report: its path and its bytes. `cut` is True if it does not show everything."""

    path: str
    data: bytes
    cut: bool = False


def policy(*, filter: bool = False) -> str:  # noqa: A002 - the name of the option
    """Return the content security policy of all pages. With `filter`, it also permits the one script."""
    script = "script-src 'self'; " if filter else ""
    return f"default-src 'none'; {script}style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


def paths(site: SiteFacts) -> tuple[str, ...]:
    """Return the paths of all files, including those of entries that are not due."""
    fixed = (INDEX, _STYLE, "policies.html", "audit.html", "feed.atom", *((_SCRIPT,) if site.filter else ()))
    entries = (entry_path(number) for number in range(1, site.count + 1))
    timeline = (timeline_path(number) for number in range(1, _pages_of(site.count) + 1))
    requests = (request_path(each.number) for each in site.requests)
    graphs = (graph_path(each.name) for each in site.graphs)
    return tuple(sorted((*fixed, *entries, *timeline, *requests, *graphs)))


def entry_path(number: int) -> str:
    """Return the path of an entry's page."""
    return f"entries/e{number}.html"


def timeline_path(number: int) -> str:
    """Return the path of a page of the timeline, from 1."""
    return f"entries/{number}.html"


def request_path(number: int) -> str:
    """Return the path of a change request's page."""
    return f"requests/{number}.html"


def graph_path(name: str) -> str:
    """Return the path of a graph's page."""
    return f"graphs/{in_address(name)}.html"


def page_of_entry(number: int) -> int:
    """Return the number of the timeline's page that lists an entry."""
    return (number - 1) // PER_PAGE + 1


def _pages_of(entries: int) -> int:
    return page_of_entry(entries) if entries else 0


def pages(site: SiteFacts) -> Iterator[Page]:
    """Yield the files, except for the pages of entries and requests that are not due."""
    render = _Renderer(site)
    yield Page(_STYLE, page_file(_STYLE))
    if site.filter:
        yield Page(_SCRIPT, page_file(_SCRIPT))
    for number in site.due:
        yield _entry_page(render, site.entries[number])
    last = _pages_of(site.count)
    for number in range(page_of_entry(site.due.start) if site.due else max(1, last), last + 1):
        first, end = (number - 1) * PER_PAGE + 1, min(number * PER_PAGE, site.count)
        rows = [_row(site.entries[each]) for each in range(first, end + 1)]
        values = {"number": number, "first": first, "last": end, "entries": rows}
        command = f"gitops log --cluster {site.cluster}"
        yield render(timeline_path(number), "timeline.html.j2", values, command)
    yield from (_request_page(render, request) for request in site.requests if request.due)
    for graph in site.graphs:
        yield _graph_page(render, graph)
    yield _policies_page(render)
    yield _audit_page(render)
    yield _index_page(render)
    yield _feed(render)


class _Renderer:
    """Renders the pages of one report."""

    def __init__(self, site: SiteFacts) -> None:
        self.site = site
        self._shared = {"cluster": site.cluster, "filter": site.filter, "policy": policy(filter=site.filter)}

    def __call__(
        self, path: str, template: str, values: Mapping[str, Any], command: str = "", *, moves: bool = False
    ) -> Page:
        """Render a page that fits the limit. `command` shows what it leaves out; `moves` pages name the newest entry."""
        known = {**self._shared, "root": "../" * path.count("/"), "limit_kb": LIMIT // 1000, "command": command}
        known |= {"page_head": str(self.site.count) if moves and self.site.count else ""}
        data, lists = b"", _Lists(0)
        for most in _ITEMS:
            lists = _Lists(most)
            shown = {**known, **values, "top": lists.top, "was_cut": lists.was_cut, "anchor": lists.anchor}
            data = render_page(template, shown).encode()
            if len(data) <= LIMIT:
                break
        return Page(path, data, lists.cut)


class _Lists:
    """Limits the lists of a page, knows whether one was longer, and gives every item a separate id."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._anchors = Counter[str]()
        self.cut = False

    def anchor(self, kind: str, name: str) -> str:
        """Return an id such as `change-schema.knowledge`. A hostile document can name a resource twice."""
        found = f"{kind}-{in_address(name)}"
        self._anchors[found] += 1
        return found if self._anchors[found] == 1 else f"{found}~{self._anchors[found]}"

    def top(self, values: Iterable[Any]) -> list[Any]:
        """Return the first items of a list."""
        found = list(islice(iter(values), self._most + 1))
        self.cut |= len(found) > self._most
        return found[: self._most]

    def was_cut(self) -> bool:
        """Return True if a list was longer. The end of the page asks this."""
        return self.cut


# -- entries -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TimelineRow:
    """A row of the timeline, or an entry of the feed."""

    number: int
    commit: str
    record: Any
    verdict: str
    summary: str
    at: str


def _row(each: EntryFacts) -> _TimelineRow:
    entry = each.record.entry
    at = "1970-01-01T00:00:00Z" if entry is None else entry.at
    return _TimelineRow(each.number, each.commit, each.record, each.verdict, _summary(each), at)


def _summary(each: EntryFacts) -> str:
    """Return the first changes of an entry and the number of the others."""
    entry = each.record.entry
    if entry is None:
        return "this commit has no readable entry"
    names = [f"{change.operation} {change.resource}" for change in entry.changes[:_MOST_SUMMARY]]
    more = len(entry.changes) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "") or "no change"


def _entry_page(render: _Renderer, each: EntryFacts) -> Page:
    record, run = each.record, each.run
    approvers: dict[str, list[str]] = {}
    for given in record.approvals:
        approvers.setdefault(given.use.resource, []).append(f"{given.use.principal} ({given.result})")
    values: dict[str, Any] = {
        "number": each.number,
        "page": page_of_entry(each.number),
        "commit": each.commit,
        "record": record,
        "entry": record.entry,
        "verdict": each.verdict,
        "request": each.request,
        "approvers": lambda resource: ", ".join(approvers.get(resource, ())),
        "keys": lambda commit: each.keys.get(commit, "not known"),
        "rule_lines": [rule_line(change) for change in record.rules],
        "run": run,
        "run_problem": each.run_problem,
    }
    if run is not None:
        way = critical_path(run)
        span = max((node.finished for node in run.nodes), default=0)
        line = f"{count(len(run.nodes), 'node')} on {count(run.workers, 'worker')} in {span / 1000:.2f} s"
        line += f"; critical path: {' > '.join(way)}" if way else ""
        ordered = sorted(run.nodes, key=lambda node: (node.started is None, node.started or node.finished, node.id))
        values |= {"run_line": line, "critical": way, "run_nodes": ordered}
        values["run_picture"] = draw_run(run, f"Run of entry {each.number}")
    command = f"git show {each.commit}:entry.json"
    return render(entry_path(each.number), "entry.html.j2", values, command)


# -- change requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    """A change request as its page and the first page show it."""

    number: int
    state: str
    title: str
    head: str
    base: str
    digest: str
    counts: str
    waits: str
    ref: str
    kept: str
    lines: Sequence[str]


def _request(each: RequestFacts) -> _Request:
    waits = [f"{count(each.errors, 'error')}"] if each.errors else []
    if each.missing:
        more = len(each.missing) - _NAMES
        names = ", ".join(each.missing[:_NAMES]) + (f" and {more} more" if more > 0 else "")
        waits.append(f"{'approval' if len(each.missing) == 1 else 'approvals'} of {names}")
    counts = "no plan" if not each.head else "no changes" if not each.count else count(each.count, "change")
    return _Request(
        each.number,
        each.state,
        each.title,
        each.head,
        each.base,
        each.digest,
        counts,
        ", ".join(waits),
        each.ref,
        each.kept,
        each.text.splitlines(),
    )


def _request_page(render: _Renderer, each: RequestFacts) -> Page:
    plan = plan_page(each.form)
    boxes = [Box(node.id, node.id if node.is_step else f"{node.action} {node.id}") for node in plan.nodes]
    drawing = draw_layers(boxes, plan.edges, f"Execution graph of request {each.number}")
    nodes = {node.id: node for node in plan.nodes}
    rows = [
        {
            "layer": layer,
            "id": name,
            "action": "" if nodes[name].is_step else nodes[name].action,
            "effect": nodes[name].effect,
            "after": nodes[name].after,
        }
        for layer, names in enumerate(drawing.layers, 1)
        for name in names
    ]
    preview = PreviewView(each.no_preview) if each.no_preview else None
    values = {
        "request": _request(each),
        "plan": plan,
        "picture": drawing.svg,
        "plan_nodes": rows,
        "tests": each.tests,
        "preview": preview if each.preview is None else preview_view(each.preview),
        "previewed_at": "" if each.preview is None else each.preview.at,
    }
    command = f"git show {each.kept}:plan.md"
    return render(request_path(each.number), "request.html.j2", values, command)


# -- graphs ------------------------------------------------------------------------------------------------------------


def _graph_page(render: _Renderer, each: GraphFacts) -> Page:
    catalog = None if each.schema is None else each.schema.catalog
    nodes = [] if catalog is None else sorted(catalog.nodes.values(), key=lambda node: node.name)
    edges = [] if catalog is None else sorted(catalog.edges.values(), key=lambda edge: edge.name)
    boxes = [Box(node.name, node.name) for node in nodes]
    links = [(edge.source, edge.target) for edge in edges]
    drawing = draw_layers(boxes, links, f"Node types of {each.name} and the edges between them", most=MOST_TYPES)
    queries = [
        {
            "name": query.name,
            "kind": query.kind.value,
            "params": ", ".join(f"{name}: {kind}" for name, kind in query.params.items()),
            "columns": ", ".join(column.name for column in query.columns),
            "uses": ", ".join(sorted(f"{owner}.{name}" if name else owner for owner, name in query.uses)),
        }
        for query in each.queries
    ]
    values = {
        "graph": {"name": each.name, "problems": each.problems, "figures": _figures(each)},
        "types": [(node.name, _properties(node.properties), ", ".join(node.key or ())) for node in nodes],
        "edges": [(edge.name, edge.source, edge.target, _properties(edge.properties)) for edge in edges],
        "picture": drawing.svg,
        "queries": queries,
    }
    command = f"gitops graph queries {each.name} --cluster {render.site.cluster}"
    return render(graph_path(each.name), "graph.html.j2", values, command, moves=True)


def _properties(properties: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in properties.items())


def _figures(each: GraphFacts) -> Mapping[str, Any] | None:
    figures = each.figures
    if figures is None:
        return None
    tables = [(key.partition(":")[2], key.partition(":")[0], rows) for key, rows in sorted(figures.rows.items())]
    size = "" if figures.size is None else f", {figures.size:,} bytes"
    total = f"{count(sum(figures.rows.values()), 'row')}{size}"
    return {"version": figures.version, "total": total, "tables": tables, "versions": figures.versions}


# -- access ------------------------------------------------------------------------------------------------------------


def _policies_page(render: _Renderer) -> Page:
    site = render.site
    bundles = {each.name: each.bundle for each in site.policies}
    scopes = [_scope(name, bound, bundles.get(bound)) for name, bound in site.scopes.items()]
    readable = [_policy_form(each, each.bundle) for each in site.policies if each.bundle is not None]
    values = {"scopes": scopes, "policies": readable}
    command = f"git show {site.head}:__cluster/resources/policy"
    return render("policies.html", "policies.html.j2", values, command, moves=True)


def _scope(scope: str, bound: str, bundle: Bundle | None) -> Mapping[str, Any]:
    """Return the matrix of a scope: a row per group, a column per action, and in each cell the rules that permit it."""
    on_graph = scope != CLUSTER_SCOPE
    actions = sorted(GRAPH_ACTIONS if on_graph else SERVER_ACTIONS)
    rows = []
    for group in () if bundle is None else bundle.groups:
        own = [rule for rule in bundle.rules if rule.group == group] if bundle is not None else []
        rows.append((group, [[_rule(rule) for rule in own if action in rule.actions] for action in actions]))
    return {
        "name": scope,
        "on_graph": on_graph,
        "policy": bound,
        "readable": bundle is not None,
        "protected": () if bundle is None else sorted(bundle.protected_branches),
        "heads": ["Group", *(action.value for action in actions)],
        "rows": rows,
    }


def _policy_form(each: PolicyFacts, bundle: Bundle) -> Mapping[str, Any]:
    return {
        "name": each.name,
        "digest": each.digest,
        "groups": list(bundle.groups.items()),
        "rules": [_rule(rule) for rule in bundle.rules],
    }


def _rule(rule: Rule) -> Mapping[str, Any]:
    scope, target = rule.branch_scope, rule.target_branch_scope
    where = [f"{scope} branches"] if scope is not None else []
    where += [f"onto {target} branches"] if target is not None else []
    return {
        "id": rule.id,
        "line": rule.line,
        "group": rule.group,
        "actions": rule.actions,
        "where": ", ".join(where),
        "queries": rule.queries,
    }


# -- audit, first page, feed -------------------------------------------------------------------------------------------


def _audit_page(render: _Renderer) -> Page:
    site = render.site
    newest = site.entries.get(site.count)
    at = "" if newest is None or newest.record.entry is None else newest.record.entry.at
    values = {"report": site.audit, "line": _audit_line(site), "extent": site.extent, "at": at}
    return render("audit.html", "audit.html.j2", values, f"gitops audit --cluster {site.cluster}", moves=True)


def _audit_line(site: SiteFacts) -> str:
    """Return the first line of the audit, without the name of the cluster."""
    return audit_text(site.audit).partition("\n")[0].partition(f"{visible(site.cluster)}: ")[2]


def _index_page(render: _Renderer) -> Page:
    site, status = render.site, render.site.status
    pages_of = range(_pages_of(site.count), 0, -1)
    values = {
        "environment": site.environment,
        "state": _state(status),
        "audit_line": f"{'good' if site.audit.ok else 'failed'}: {_audit_line(site)}",
        "problems": status.diagnostics,
        "waiting": [(name, record.message or "") for name, record in status.waiting.items()],
        "debts": () if status.state is None else status.state.debts,
        "requests": [_request(each) for each in sorted(site.requests, key=lambda each: -each.number)],
        "newest": [_row(site.entries[each]) for each in range(site.count, max(0, site.count - NEWEST), -1)],
        "timeline": [(page, (page - 1) * PER_PAGE + 1, min(page * PER_PAGE, site.count)) for page in pages_of],
        "graphs": [each.name for each in site.graphs],
    }
    return render(INDEX, "index.html.j2", values, f"gitops status --cluster {site.cluster}", moves=True)


def _state(status: StatusOutcome) -> list[tuple[str, str, str]]:
    """Return the lines about the state: name, value, and a word for the style sheet."""
    seen, state = status.observations, status.state
    sync = {True: ("converged", "good"), False: ("not converged", "bad"), None: ("not known", "warn")}[status.in_sync]
    drifted = ", ".join(status.drifted[:_NAMES])
    drifted += f" and {len(status.drifted) - _NAMES} more" if len(status.drifted) > _NAMES else ""
    found = [
        ("Revision", f"{seen.state_revision}, {count(seen.resource_count, 'resource')}", ""),
        ("Folder", *sync),
        ("Drift", drifted or "none when it was last recorded", "bad" if drifted else ""),
        ("Open debts", str(0 if state is None else len(state.debts)), "bad" if state and state.debts else ""),
        ("Lock", lock_line(replace(seen, lock_age_seconds=None)).partition(": ")[2], "warn" if seen.held.held else ""),
    ]
    kinds = Counter(Address(name).kind.value for name in ({} if state is None else state.resources))
    if kinds:
        found.insert(1, ("Resources", ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())), ""))
    drill, entry = status.last_drill, status.entry
    found.append(("Last restore drill that passed", "none" if drill is None else drill_line(drill), ""))
    if entry is not None:
        found.append(("Last entry", f"{entry.number}, {entry.kind} at {entry.at}", ""))
    return found


def _feed(render: _Renderer) -> Page:
    site = render.site
    rows = [_row(site.entries[each]) for each in range(site.count, max(0, site.count - IN_FEED), -1)]
    updated = rows[0].at if rows else "1970-01-01T00:00:00Z"
    values = {"cluster": site.cluster, "first": site.first, "updated": updated, "entries": rows, "base": site.base}
    return Page("feed.atom", render_page("feed.atom.j2", values).encode())
