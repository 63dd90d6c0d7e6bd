"""Routes for queries: inline or stored, reads or mutations.

To an actor who must not invoke it, a stored query seems not to exist. An actor who may invoke it also needs permission
for the query's read or change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import MAIN
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph.results import MutationResult
from gitops.database.language.query import CheckedQuery, QueryEffect
from gitops.database.language.suggest import choices
from gitops.serving.answers import (
    JSON,
    ApiCode,
    ApiProblem,
    BodyAnswer,
    ProblemError,
    bad_request,
    json_answer,
    not_found,
)
from gitops.serving.http.bodies import (
    ChangeAnswer,
    InvokeBody,
    MutateBody,
    QueriesAnswer,
    QueryAnswer,
    QueryBody,
    ReadAnswer,
    ReadBody,
)
from gitops.serving.http.call import Call, canonical_branch
from gitops.serving.http.route import Parameter, Route, query_pairs
from gitops.serving.queries import (
    InlineQuery,
    MutationRequest,
    describe_query,
    queue_change,
    read_texts,
    run_bound,
    run_change,
    run_read,
)

if TYPE_CHECKING:
    from gitops.database.graph import Snapshot
    from gitops.serving.generation import ServedGraph, StoredQuery

_FORBIDDEN = 403
_CONDITION = "omnigraph-if-graph-commit"


@dataclass(frozen=True, slots=True)
class _Target:
    """The head of a branch, or a snapshot, which is already `opened` if its branch had to be determined."""

    branch: str
    snapshot: str | None
    opened: Snapshot | None = None

    def open(self, served: ServedGraph) -> Snapshot:
        """Return the version. Raises the errors of `ServedGraph.open`."""
        if self.opened is not None:
            return self.opened
        return served.open(graph.ReadTarget(self.branch, commit=self.snapshot))


async def run_query(call: Call) -> BodyAnswer:
    """Run a read given in the request."""
    body: QueryBody = call.body
    target = await _permitted_target(call, body.branch, body.snapshot)
    return await _read(call, InlineQuery(body.query, body.name), body.params, target)


async def run_former_read(call: Call) -> BodyAnswer:
    """Run a read in the former request format. The graph itself rejects a mutation."""
    body: ReadBody = call.body
    target = await _permitted_target(call, body.branch, body.snapshot)
    return await _read(call, InlineQuery(body.query_source, body.query_name), body.params, target, former=True)


async def run_mutation(call: Call) -> BodyAnswer:
    """Run a mutation given in the request."""
    _refuse_condition(call)
    return await _mutate(call, None)


async def run_mutation_if(call: Call) -> BodyAnswer:
    """Run a mutation given in the request, if the branch is at the expected commit."""
    return await _mutate(call, _condition(call))


async def list_queries(call: Call) -> BodyAnswer:
    """Return the stored queries or, if rules list queries, only those that the actor may invoke."""
    call.require(PolicyAction.READ, branch=MAIN)
    return await call.work(lambda: json_answer({"queries": [describe_query(each) for each in listed_queries(call)]}))


def listed_queries(call: Call) -> Sequence[StoredQuery]:
    """Return the stored queries to show to an actor who may list them.

    If rules list queries, these are the ones that the actor may invoke.
    """
    engine, queries = call.graph.engine, tuple(call.graph.queries.values())
    if engine is None or not any(rule.queries for rule in engine.bundle.rules):
        return queries
    return [each for each in queries if call.may(PolicyAction.INVOKE_QUERY, query=each.name)]


async def describe_graph(call: Call) -> BodyAnswer:
    """Return the graph's OpenAPI document, with the stored queries that the actor may see."""
    call.require(PolicyAction.READ, branch=MAIN)
    document, graph_id, preview = call.shared.document, call.graph.graph_id, call.generation.preview
    return BodyAnswer(200, await call.work(lambda: document.of_graph(graph_id, listed_queries(call), preview)))


async def invoke_query(call: Call) -> BodyAnswer:
    """Run a stored query."""
    _refuse_condition(call)
    return await run_stored(call, call.values["name"], call.body or InvokeBody())


async def run_stored(call: Call, name: str, body: InvokeBody) -> BodyAnswer:
    """Return the response of a stored query. Raises ProblemError, GitopsError."""
    stored = await _permitted_query(call, name, body)
    if stored.checked.kind is QueryEffect.MUTATION:
        answer = await _change(call, stored.checked, body, None)
    else:
        target = await _permitted_target(call, body.branch, body.snapshot)
        answer = await _read(call, stored.checked, body.params, target)
    call.used(name, body.params)
    return answer


async def read_stored(call: Call) -> BodyAnswer:
    """Run a stored read query with its parameters in the URL. They take precedence over `branch` and `snapshot`."""
    stored = await _permitted_query(call, call.values["name"], InvokeBody())
    query = stored.checked
    if query.kind is QueryEffect.MUTATION:
        message = f"stored query '{stored.name}' changes the graph: send it with POST"
        raise ProblemError(ApiProblem(405, ApiCode.METHOD_NOT_ALLOWED, message, headers={"Allow": "POST"}))
    texts: dict[str, list[str]] = {}
    for name, value in query_pairs(call.scope["query_string"]):
        texts.setdefault(name, []).append(value)
    target = {name: texts.pop(name) for name in ("branch", "snapshot") if name in texts and name not in query.params}
    if any(len(given) > 1 for given in target.values()):
        raise bad_request("give a branch or a snapshot, and only once")
    (branch,), (snapshot,) = target.get("branch", [None]), target.get("snapshot", [None])
    found = await _permitted_target(call, branch, snapshot)
    params = read_texts(query, texts)
    answer = await _read(call, query, params, found)
    call.used(stored.name, params)
    return answer


async def invoke_query_if(call: Call) -> BodyAnswer:
    """Run a stored mutation, if the branch is at the expected commit."""
    body = call.body or InvokeBody()
    stored = await _permitted_query(call, call.values["name"], body)
    expected = _condition(call)
    if stored.checked.kind is not QueryEffect.MUTATION:
        raise bad_request(f"stored query '{stored.name}' only reads; use the route without if-graph-commit")
    answer = await _change(call, stored.checked, body, expected)
    call.used(stored.name, body.params)
    return answer


class NoSuchQueryError(ProblemError):
    """Raised if a stored query does not exist, or if the actor must not invoke it."""


async def _permitted_query(call: Call, name: str, body: InvokeBody) -> StoredQuery:
    """Return a stored query by name. Raises NoSuchQueryError if it does not exist or the actor must not invoke it."""
    stored, denial = call.graph.queries.get(name), ""
    try:
        call.require(PolicyAction.INVOKE_QUERY, query=name)
    except ProblemError as error:
        if error.problem.status != _FORBIDDEN:
            raise
        stored, denial = None, error.problem.message
    if stored is None:
        raise NoSuchQueryError(not_found(await call.work(lambda: _no_such_query(call, name, denial))).problem)
    call.stored_query = name
    mutation = stored.checked.kind is QueryEffect.MUTATION
    if body.expect_mutation not in (None, mutation):
        raise bad_request(f"stored query '{name}' is a {stored.checked.kind}, and expect_mutation says otherwise")
    if mutation and body.snapshot is not None:
        raise bad_request(f"stored query '{name}' is a mutation: a snapshot cannot be changed, leave it out")
    return stored


def _no_such_query(call: Call, name: str, denial: str) -> str:
    """Return the message for a stored query that is not run.

    Only actors who may list queries learn that it exists. For all others, missing and forbidden queries look the same.
    """
    if not call.may(PolicyAction.READ, branch=MAIN):
        return "stored query not found"
    listed = [each.name for each in listed_queries(call)]
    if name in listed:
        return denial
    return f"graph '{call.graph.graph_id}' has no stored query '{name[:80]}'{choices(name, listed)}"


async def _permitted_target(call: Call, branch: str | None, snapshot: str | None) -> _Target:
    """Return the target of a read. A snapshot requires the permission to read its branch.

    Raises ProblemError 400, 403, 404.
    """
    if branch is not None and snapshot is not None:
        raise bad_request("give a branch or a snapshot, not both")
    target = _Target(canonical_branch(branch), snapshot)
    if snapshot is not None and call.graph.engine is not None and call.actor is not None:
        try:
            opened = await call.work(lambda: target.open(call.graph))
        except GitopsError:
            # An actor who must not read `main` must not learn which commits exist.
            call.require(PolicyAction.READ, branch=MAIN)
            raise
        target = _Target(opened.branch, snapshot, opened)
    call.require(PolicyAction.READ, branch=target.branch)
    return target


async def _read(
    call: Call,
    query: InlineQuery | CheckedQuery,
    params: Mapping[str, Any] | None,
    target: _Target,
    *,
    former: bool = False,
) -> BodyAnswer:
    _refuse_condition(call)
    served, limits = call.graph, call.context.limits
    options = graph.QueryOptions(
        now=call.context.clock.now(),
        timeout_s=limits.query_s,
        memory_bytes=limits.query_bytes,
    )

    def read() -> BodyAnswer:
        snapshot = target.open(served)
        checked = call.shared.texts.compile(served, snapshot, query) if isinstance(query, InlineQuery) else query
        if checked.kind is QueryEffect.MUTATION and not former:
            raise bad_request(f"query '{checked.name}' is a mutation; send it to POST /mutate")
        found = run_read(served, snapshot, checked, params, options)
        return read_answer(target.branch, target.snapshot, snapshot, found, former=former)

    if target.snapshot is None and not isinstance(query, InlineQuery):
        # This takes less time than to hand the read over to a thread.
        bound = run_bound(served, target.branch, query, params, options.now)
        if bound is not None:
            return read_answer(target.branch, None, *bound)
    return await call.read(read)


def read_answer(
    branch: str, wanted: str | None, snapshot: Snapshot, found: dict[str, Any], *, former: bool = False
) -> BodyAnswer:
    """Return the response to a read, which was from a branch or from the snapshot with the `wanted` commit id."""
    where = {"branch": branch if wanted is None else None, "snapshot": wanted}
    head = {} if former else {"graph_commit_id": snapshot.manifest.txn_id}
    return json_answer({"query_name": found.pop("query_name"), "target": where, **found, **head})


async def _mutate(call: Call, expected: str | None) -> BodyAnswer:
    body: MutateBody = call.body
    return await _change(call, InlineQuery(body.query, body.name), body, expected)


async def _change(
    call: Call, query: InlineQuery | CheckedQuery, body: MutateBody | InvokeBody, expected: str | None
) -> BodyAnswer:
    served = call.graph
    name = canonical_branch(body.branch)
    call.require(PolicyAction.CHANGE, branch=name)
    begun = None
    if (body.conflict == "strict") if body.conflict else (served.graph_id in call.context.limits.strict):
        begun = await call.work(lambda: served.open(graph.ReadTarget(name)).manifest)

    def wait() -> tuple[MutationRequest, Callable[[], MutationResult]]:
        checked = query
        if isinstance(checked, InlineQuery):
            checked = call.shared.texts.compile(served, served.open(graph.ReadTarget(name)), checked)
        wanted = MutationRequest(name, checked, body.params, expected, begun)
        return wanted, queue_change(served, wanted, call.writing)

    def change(waiting: tuple[MutationRequest, Callable[[], MutationResult]]) -> BodyAnswer:
        receipt = run_change(served, waiting[0], call.writing, waiting[1])
        return json_answer(call.receipt(name, receipt, "affected_nodes", "affected_edges", "commit"))

    return await call.change_after(name, call.body_bytes, wait, change, reads=isinstance(query, InlineQuery))


def _condition(call: Call) -> str:
    """Return the commit that a change expects. Raises ProblemError 400 unless it is given exactly once."""
    found = call.header(_CONDITION)
    if found is None:
        raise bad_request(
            "the header Omnigraph-If-Graph-Commit is missing: it names the commit that the branch must be at"
        )
    return found


def _refuse_condition(call: Call) -> None:
    """Raise ProblemError 400 for a condition, because this route does not support conditions."""
    if call.headers(_CONDITION):
        raise bad_request("this route heeds no Omnigraph-If-Graph-Commit; use the route that ends in /if-graph-commit")


_IF = (Parameter("Omnigraph-If-Graph-Commit", "The id of the commit that the branch must be at.", required=True),)
# Changes count towards an actor's limit.
_COUNTED = (429,)
_BASE = "/graphs/{graph_id}"
_SNAPSHOT = Parameter("snapshot", "The id of a commit that the graph keeps, instead of a branch.")
_PARAMS = Parameter(
    "params",
    "The parameters of the stored query, each by its name; a list has its name once for each item.",
    schema={"type": "object", "additionalProperties": {"type": "string"}},
)

ROUTES = (
    Route("POST", f"{_BASE}/query", "query", "Read with a query", run_query, QueryAnswer, QueryBody),
    Route(
        "POST", f"{_BASE}/read", "read", "Read with a query", run_former_read, ReadAnswer, ReadBody, successor="query"
    ),
    Route(
        "POST",
        f"{_BASE}/mutate",
        "mutate",
        "Change the graph",
        run_mutation,
        ChangeAnswer,
        MutateBody,
        problems=_COUNTED,
    ),
    Route(
        "POST",
        f"{_BASE}/mutate/if-graph-commit",
        "mutate_if_graph_commit",
        "Change the graph if a branch is at a commit",
        run_mutation_if,
        ChangeAnswer,
        MutateBody,
        headers=_IF,
        problems=_COUNTED,
    ),
    Route(
        "POST",
        f"{_BASE}/change",
        "change",
        "Change the graph",
        run_mutation,
        ChangeAnswer,
        MutateBody,
        successor="mutate",
        problems=_COUNTED,
    ),
    Route(
        "GET",
        f"{_BASE}/openapi.json",
        "graph_openapi",
        "What can be asked of the graph, with an operation for each stored query",
        describe_graph,
        JSON,
        cached=True,
    ),
    Route("GET", f"{_BASE}/queries", "list_queries", "The stored queries", list_queries, QueriesAnswer, cached=True),
    Route(
        "GET",
        f"{_BASE}/queries/{{name}}",
        "read_stored_query",
        "Run a stored query that only reads, with its parameters in the query string",
        read_stored,
        QueryAnswer,
        query=(_PARAMS, Parameter("branch", "The branch, by default `main`."), _SNAPSHOT),
        free_query=True,
        problems=(405,),
    ),
    Route(
        "POST",
        f"{_BASE}/queries/{{name}}",
        "invoke_query",
        "Run a stored query",
        invoke_query,
        (QueryAnswer, ChangeAnswer),
        InvokeBody,
        body_optional=True,
        problems=_COUNTED,
    ),
    Route(
        "POST",
        f"{_BASE}/queries/{{name}}/if-graph-commit",
        "invoke_query_if_graph_commit",
        "Run a stored mutation if a branch is at a commit",
        invoke_query_if,
        ChangeAnswer,
        InvokeBody,
        body_optional=True,
        headers=_IF,
        problems=_COUNTED,
    ),
)
