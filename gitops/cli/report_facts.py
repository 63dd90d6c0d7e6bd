"""Reads the facts of `gitops report` from a clone, without the network and without writing anything.

1. Entries up to the one of an earlier report were verified then, and their pages exist. The chain of commit ids proves that they
   are the same, so only the newer entries are read and verified.
2. Stored plans and requests come from refs of this clone. Both can be missing, and anyone with push rights can replace them.
3. Graphs are opened only if that is requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gitops.cluster.approvals.rule_changes import fingerprint
from gitops.cluster.audit.report import AuditFinding, AuditReport, LogRecord
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import check_succession
from gitops.cluster.ledger.records import ChangesetRecords, read_run
from gitops.cluster.model.address import CLUSTER_SCOPE, Kind, graph_address, of_kind, policy_address
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import RunRecord
from gitops.core.canonical import canonical_digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.documents.json_bytes import parse
from gitops.core.errors import GitopsError
from gitops.forge.port import RequestState
from gitops.git.port import GitReader
from gitops.render.site.facts import (
    IN_FEED,
    PER_PAGE,
    EntryFacts,
    FailedTestFacts,
    GraphFacts,
    GraphFigures,
    PolicyFacts,
    RequestFacts,
    TestsFacts,
    VersionFacts,
)
from gitops.render.site.pages import entry_path, page_of_entry, request_path, timeline_path
from gitops.repository.kept_plans import PLAN_RECORD, PLANS, RECORD, PlanRecord, PlanTests
from gitops.repository.kept_previews import kept_preview
from gitops.repository.report_folder import ReportFolder

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ClusterRule
    from gitops.cluster.session.workspace import Workspace
    from gitops.forge.port import ChangeRequest, ForgeReader
    from gitops.repository.cluster import LedgerPosition
    from gitops.repository.wiring.local import LocalRepository
    from gitops.review.previews.record import PreviewRecord

_MOST_PLAN = 64 * 1024 * 1024
_MOST_VERSIONS = 50
_GOOD = "good"


# -- entries -----------------------------------------------------------------------------------------------------------


def due_entries(folder: ReportFolder, chain: Sequence[str], cluster: str, form: str) -> range:
    """Return the numbers of the entries whose pages the folder does not have yet: all of them if it has another report."""
    known, count = folder.record, len(chain)
    if known is None or (known.cluster, known.form) != (cluster, form) or not 0 < known.entries <= count:
        return range(1, count + 1)
    pages = [entry_path(number) for number in range(1, known.entries + 1)]
    pages += [timeline_path(number) for number in range(1, page_of_entry(known.entries) + 1)]
    if chain[known.entries - 1] != known.head or not folder.has(pages):
        return range(1, count + 1)
    return range(known.entries + 1, count + 1)


def read_entries(reader: GitReader, chain: Sequence[str], due: range) -> dict[int, EntryFacts]:
    """Return the entries that the pages need: those that are due, and the newest ones."""
    count = len(chain)
    newest = min(count - IN_FEED, (page_of_entry(count) - 1) * PER_PAGE, due.start - 1 if due else count)
    if due:
        newest = min(newest, (page_of_entry(due.start) - 1) * PER_PAGE)
    lowest = max(0, newest) + 1
    found: dict[int, EntryFacts] = {}
    number, later = count, None
    for record in read_trail(reader, chain[-1], texts=False) if chain else ():
        if later is not None:
            found[number + 1] = _entry(reader, later, number + 1, record)
        if number < lowest:
            return found
        number, later = number - 1, record
    if later is not None:
        found[1] = _entry(reader, later, 1, None)
    return found


def _entry(reader: GitReader, record: LogRecord, number: int, earlier: LogRecord | None) -> EntryFacts:
    keys: dict[str, str] = {}
    for given in record.approvals:
        with suppress(GitopsError, ValueError):
            if key := reader.signature(given.use.commit).key:
                keys[given.use.commit] = fingerprint(key)
    request, run, problem = _changeset(reader, record, earlier)
    return EntryFacts(
        number=number,
        commit=record.commit,
        record=record,
        verdict=_verdict(record, number, earlier),
        keys=keys,
        request=request,
        run=run,
        run_problem=problem,
    )


def _verdict(record: LogRecord, number: int, earlier: LogRecord | None) -> str:
    """Return `good`, or the code of the first problem of an entry."""
    entry, before = record.entry, None if earlier is None else earlier.entry
    if record.signature != _GOOD or entry is None:
        return record.signature if record.signature != _GOOD else Code.LEDGER_ENTRY_INVALID.value
    if entry.number != number:
        return Code.LEDGER_CHAIN_BROKEN.value
    try:
        if before is not None:
            check_succession(before, entry, record.commit)
    except GitopsError as error:
        return error.code.value
    results = [each.result for each in record.approvals] + [each.result for each in record.settlements]
    return next((str(result) for result in results if result != _GOOD), _GOOD)


def _changeset(
    reader: GitReader, record: LogRecord, earlier: LogRecord | None
) -> tuple[int | None, RunRecord | None, str]:
    """Return the change request of an entry's changeset, the run that the entry records, and why that cannot be read."""
    key = None if record.entry is None else record.entry.changeset
    if key is None:
        return None, None, ""
    request, run, problem = None, None, ""
    try:
        tree = reader.commit(record.commit).tree
        known = ChangesetRecords(partial(reader.read, tree)).record(key)
        request = None if known is None else known.source.pull_request
        path = layout.run_key(key)
        data = reader.read(tree, path)
        before = None if earlier is None or data is None else reader.read(reader.commit(earlier.commit).tree, path)
        run = None if data is None or before is not None else read_run(data)
    except (GitopsError, ValueError) as error:
        problem = error.detail if isinstance(error, GitopsError) else str(error)
    return request, run, problem


def chain_audit(
    cluster: str, chain: Sequence[str], entries: Mapping[int, EntryFacts], due: range, known: Mapping[str, str]
) -> AuditReport:
    """Return the result of the checks of all entries. `known` are the problems of the entries that are not due."""
    problems = {number: code for text, code in known.items() if (number := _number(text)) and number < due.start}
    problems |= {number: entries[number].verdict for number in due if entries[number].verdict != _GOOD}
    findings = []
    for number, text in sorted(problems.items()):
        code = Code(text) if text in REGISTRY else Code.LEDGER_ENTRY_INVALID
        findings.append(AuditFinding(chain[number - 1], number, code, REGISTRY[code].summary))
    return AuditReport(cluster, chain[-1] if chain else "", len(chain), len(chain) - len(findings), tuple(findings))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0  # noqa: PLR2004


# -- change requests ---------------------------------------------------------------------------------------------------


def read_requests(
    local: LocalRepository, rule: ClusterRule, folder: ReportFolder, *, all_due: bool
) -> list[RequestFacts]:
    """Return the requests with a stored plan, by number. Plans whose page the folder has already are not read."""
    reader, prefix = local.git, f"{PLANS}/{rule.name}/"
    refs = {number: ref for ref in reader.refs(prefix.rstrip("/")) if (number := _number(ref.removeprefix(prefix)))}
    known = {} if folder.record is None or all_due else folder.record.requests
    tip, position = local.head_of(rule.ref), local.position(rule)
    forge = local.fetched_forge()
    found = []
    for number in sorted(refs):
        with suppress(GitopsError):
            ref = refs[number]
            kept = reader.refs(ref)[ref]
            plan = _record_of(reader, kept, rule.name, number)
            state, title = _standing(reader, forge, number, plan, tip)
            preview, no_preview = _preview(local, position, rule.name, number, "" if plan is None else plan.head)
            request = RequestFacts(
                number=number,
                ref=ref,
                kept=kept,
                state=state,
                title=title,
                head="" if plan is None else plan.head,
                base="" if plan is None else plan.base,
                digest=(plan and plan.plan_digest) or "",
                count=0 if plan is None else plan.count,
                errors=0 if plan is None else plan.errors,
                missing=() if plan is None else plan.missing,
                tests=None if plan is None or plan.tests is None else _tests(plan.tests),
                preview=preview,
                no_preview=no_preview,
                due=False,
            )
            path = request_path(number)
            if known.get(path) != request_key(request) or not folder.has([path]):
                form, text = _plan(reader, kept)
                request = replace(request, form=form, text=text, due=True)
            found.append(request)
    return found


def request_key(request: RequestFacts) -> str:
    """Return a digest of everything that determines the page of a request."""
    preview = None if request.preview is None else [request.preview.key, request.preview.at]
    about = {"preview": preview, "no_preview": request.no_preview}
    return canonical_digest({"kept": request.kept, "state": request.state, "title": request.title, **about})


def _tests(tests: PlanTests) -> TestsFacts:
    total = tests.passed + tests.failed + tests.error + tests.not_run
    failures = [FailedTestFacts(each.code.value, each.file, each.line, each.message) for each in tests.failures]
    return TestsFacts(tests.passed, total, failures)


def _preview(
    local: LocalRepository, position: LedgerPosition, cluster: str, number: int, head: str
) -> tuple[PreviewRecord | None, str]:
    """Return the preview of a request's head, or why there is none. A record counts only as it does in a comment."""
    try:
        found = kept_preview(local, position, cluster, number)
    except GitopsError as error:
        return None, f"not shown: {error.code}"
    if found is None:
        return None, ""
    return (found, "") if found.head == head else (None, "not run for this head")


def _record_of(reader: GitReader, kept: str, cluster: str, number: int) -> PlanRecord | None:
    content = reader.read(reader.commit(kept).tree, RECORD)
    plan = None if content is None else PLAN_RECORD.read(content)
    return plan if plan is not None and (plan.cluster, plan.request) == (cluster, number) else None


def _plan(reader: GitReader, kept: str) -> tuple[Mapping[str, Any], str]:
    tree = reader.commit(kept).tree
    document, text = reader.read(tree, "outcome.json"), reader.read(tree, "plan.md") or b""
    form: Any = {}
    with suppress(ValueError):
        form = {} if document is None else parse(document, limit=_MOST_PLAN)
    return (form if isinstance(form, dict) else {}), text[:_MOST_PLAN].decode("utf-8", "replace")


def _standing(
    reader: GitReader, forge: ForgeReader, number: int, plan: PlanRecord | None, tip: str | None
) -> tuple[str, str]:
    """Return the state and the title of a request, as far as this clone knows them."""
    request: ChangeRequest | None = None
    with suppress(GitopsError):
        request = forge.request(number)
    if request is not None:
        merged = "" if request.merged_as is None else f" as {request.merged_as[:12]}"
        return f"{request.state.value}{merged}", request.title
    with suppress(GitopsError):
        if plan is not None and tip is not None and reader.resolve(plan.head) and reader.is_ancestor(plan.head, tip):
            return RequestState.MERGED.value, ""
    return "not known here", ""


# -- graphs and access -------------------------------------------------------------------------------------------------


def read_graphs(workspace: Workspace, state: LedgerState, *, live: bool) -> Iterator[GraphFacts]:
    """Yield the applied graphs. With `live`, each one is opened for its figures."""
    from gitops.cluster.session.queries import applied_queries
    from gitops.database.language.query import CheckedQuery
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError

    for name in sorted(address.name for address in of_kind(state.resources, Kind.GRAPH)):
        problems, queries, schema, figures = list[str](), tuple[CheckedQuery, ...](), None, None
        schema_address = next((a for a in of_kind(state.resources, Kind.SCHEMA) if a.name == name), None)
        try:
            digest = "" if schema_address is None else state.resources[schema_address].digest
            source = workspace.accepted_schema(name, digest)
            schema = None if source is None else compile_schema(source)
            if schema is None:
                problems.append("its schema text is not in this clone")
            else:
                outcome = applied_queries(workspace, name)
                queries = outcome.graphs.get(name, ())
                problems += [f"{each.code}: {each.message}" for each in outcome.diagnostics]
        except (GitopsError, LanguageError) as error:
            problems.append(str(error))
        if live:
            try:
                figures = _figures(workspace, name)
            except GitopsError as error:
                problems.append(f"its figures cannot be read: {error.code}: {error.detail}")
        yield GraphFacts(name=name, schema=schema, queries=queries, figures=figures, problems=tuple(problems))


def _figures(workspace: Workspace, name: str) -> GraphFigures:
    from gitops.cluster.config.cluster_yaml import load_header
    from gitops.database import graph as database

    header, _ = load_header(workspace.tree)
    uri = workspace.open_stores(None if header is None else header.storage).graph_uri(name)
    found = database.describe_graph(uri)
    versions = [
        VersionFacts(each.n, each.ts, each.operation, each.actor or "", sum(t.rows for t in each.tables.values()))
        for each in database.read_log(uri, limit=_MOST_VERSIONS)
    ]
    rows = {key: int(table["rows"]) for key, table in found.tables.items()}
    return GraphFigures(version=found.manifest_version, rows=rows, size=None, versions=tuple(versions))


def read_policies(
    reader: GitReader, head: str, state: LedgerState
) -> tuple[Mapping[str, str], tuple[PolicyFacts, ...]]:
    """Return the policy of each served scope, and the applied policies."""
    from gitops.cluster.policy.read import read_bundle

    tree = reader.commit(head).tree
    policies, bound = list[PolicyFacts](), dict[str, str]()
    for address in of_kind(state.resources, Kind.POLICY):
        resource, text = state.resources[address], None
        with suppress(GitopsError):
            path = layout.blob_key(address, resource.digest)
            text = None if path is None else reader.read(tree, path)
        bundle = None if text is None else read_bundle(text, policy_address(address.name))[0]
        policies.append(PolicyFacts(address.name, resource.digest, bundle))
        bound |= dict.fromkeys(resource.applies_to or (), address.name)
    graphs = sorted(graph_address(each.name) for each in of_kind(state.resources, Kind.GRAPH))
    scopes = (CLUSTER_SCOPE, *graphs) if graphs else ()
    return {scope: bound.get(scope, "") for scope in scopes}, tuple(policies)
