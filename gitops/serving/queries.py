"""A graph's queries: inline or stored, reads or mutations.

The same rule applies to all of them: the parameters must be exactly those that the query declares. This is checked
before anything is read.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import ConflictError, GitopsError
from gitops.database import graph
from gitops.database.graph.results import MutationResult
from gitops.database.language.query import CheckedQuery, QueryEffect, ResultColumn, check_query, parse_queries
from gitops.database.language.query.codes import QUERY_CODES
from gitops.database.language.schema import PropType, Scalar
from gitops.database.language.suggest import choices
from gitops.database.language.text import LanguageError, SourceText
from gitops.serving.answers import ApiCode, ApiProblem, RowsProblemError, bad_request

if TYPE_CHECKING:
    from gitops.database.graph import QueryOptions, Snapshot, WriteContext
    from gitops.serving.generation import ServedGraph, StoredQuery

_KEPT = 512
# A longer text is compiled each time.
_KEPT_BYTES = 16 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class InlineQuery:
    """A text with one or more queries, and the name of the selected query, or None if there is only one."""

    text: str
    name: str | None


class QueryTexts:
    """Compiles query texts and keeps the newest short ones. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, InlineQuery], CheckedQuery] = OrderedDict()

    def compile(self, served: ServedGraph, snapshot: Snapshot, query: InlineQuery) -> CheckedQuery:
        """Return a query, checked against the snapshot's schema.

        Raises ProblemError 400 with the first problem and its location.
        """
        key = (snapshot.manifest.schema_ir, query)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        place = ("catalog", snapshot.identity.graph_id, snapshot.manifest.schema_ir)
        catalog = served.cache.value(place, lambda: snapshot.schema().catalog)
        source = query.text.encode()
        try:
            declared = {each.name.text: each for each in reversed(parse_queries(source))}
            name = query.name or (next(iter(declared)) if len(declared) == 1 else None)
            if name is None:
                raise bad_request(f"the text declares {len(declared)} queries; name the one to run")
            if name not in declared:
                raise bad_request(f"the text declares no query '{name[:80]}'{choices(name, declared)}")
            checked = check_query(declared[name], catalog)
        except LanguageError as error:
            first = error.problems[0]
            line, column = SourceText(source).position(first.span.start)
            fix = f"; {first.fix}" if first.fix else ""
            detail = f"query: line {line}, column {column}: {first.rendered()}{fix}"
            raise GitopsError(QUERY_CODES[first.stage], detail) from None
        if len(query.text) <= _KEPT_BYTES:
            with self._lock:
                self._kept[key] = checked
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return checked


def run_read(
    served: ServedGraph,
    snapshot: Snapshot,
    query: CheckedQuery,
    params: Mapping[str, Any] | None,
    options: QueryOptions,
) -> dict[str, Any]:
    """Return the rows that a read returns at a snapshot.

    Raises ProblemError 400 for an undeclared parameter, and the errors of `graph.run_query`.
    """
    _require_declared(query, params)
    bound = graph.bind_read(snapshot, query, served.cache, options)
    rows = None if bound is None else bound.rows(params, options.now)
    if bound is not None and rows is not None:
        return _result(query, bound.columns, rows)
    found = graph.run_query(snapshot, query, params, options, served.cache)
    return _result(query, list(found.columns), found.rows())


def run_bound(
    served: ServedGraph, branch: str, query: CheckedQuery, params: Mapping[str, Any] | None, now: datetime
) -> tuple[Snapshot, dict[str, Any]] | None:
    """Run a read like `run_read`, but without reading a file. Return a branch's newest version and the rows.

    Returns None if the version or rows must be read, or if there are many rows. Raises the same errors as `run_read`.
    """
    snapshot = served.newest_in_memory(branch)
    bound = None if snapshot is None else graph.bound_read(snapshot, query, served.cache)
    if snapshot is None or bound is None:
        return None
    _require_declared(query, params)
    rows = bound.rows(params, now)
    return None if rows is None else (snapshot, _result(query, bound.columns, rows))


def _result(query: CheckedQuery, names: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"query_name": query.name, "row_count": len(rows), **({"columns": names} if names else {}), "rows": rows}


@dataclass(frozen=True, slots=True)
class MutationRequest:
    """A mutation for a branch, and the commit at which the branch's head must be, if any.

    `begun` is the head at the time when a strict request arrived.
    """

    branch: str
    query: CheckedQuery
    params: Mapping[str, Any] | None
    expected: str | None = None
    begun: graph.Manifest | None = None


def queue_change(served: ServedGraph, change: MutationRequest, context: WriteContext) -> Callable[[], MutationResult]:
    """Queue a mutation for its branch. The returned function runs it with all others that are waiting by then.

    Raises ProblemError 400 for an undeclared parameter, and the errors of `graph.Mutator`.
    """
    _require_declared(change.query, change.params)
    if change.expected is not None and not is_ulid(change.expected):
        raise bad_request(f"'{change.expected[:80]}' is not a commit id, which has 26 characters")
    options = graph.MutationOptions(
        now=context.now(),
        branch=change.branch,
        actor=context.actor,
        expected_commit=change.expected,
        begun=change.begun if change.expected is None else None,
    )
    memory = served.cache.attached("writer", lambda: graph.WriterMemory(served.cache))
    mutator = graph.Mutator(context.clock, context.ids, context.faults, memory=memory)
    return mutator.enqueue(served.uri, change.query, change.params, options)


def run_change(
    served: ServedGraph, change: MutationRequest, context: WriteContext, carry_out: Callable[[], MutationResult]
) -> dict[str, Any]:
    """Run a queued mutation and return its receipt.

    Raises ProblemError 412 if the head is not the expected commit, 409 if data that a strict request changes has changed
    since it arrived, and the errors of `graph.Mutator`.
    """
    query, branch = change.query, change.branch
    try:
        result = carry_out()
    except ConflictError as error:
        if error.code is not Code.HEAD_MOVED:
            raise
        begun = None if change.begun is None else change.begun.txn_id
        expected = {"expected": change.expected or begun}
        commits = expected
        with contextlib.suppress(GitopsError):
            commits = {**expected, "actual": served.open(graph.ReadTarget(branch)).manifest.txn_id}
        if change.expected is not None:
            message = f"branch '{branch}' is at another commit"
            withheld, problem = (
                ApiProblem(412, None, message, {"precondition_failure": form}) for form in (expected, commits)
            )
            raise RowsProblemError(problem, withheld) from None
        message = f"branch '{branch}' moved while this change waited for its turn: read it again, then decide"
        more = {"read_set_conflict": {"member": f"graph_head:{branch}", **commits}}
        raise RowsProblemError(ApiProblem(409, ApiCode.CONFLICT, message, more)) from None
    return {
        "branch": branch,
        "query_name": query.name,
        "affected_nodes": result.affected_nodes,
        "affected_edges": result.affected_edges,
        "actor_id": context.actor,
        "commit": None if result.published is None else commit_form(result.published),
    }


def commit_form(version: graph.Manifest) -> dict[str, Any]:
    """Return a version as a commit. A parent is null if its id is not recorded or it does not exist."""
    made, parent, merged = parse_timestamp(version.ts), version.parent, version.merge_parent
    return {
        "graph_commit_id": version.txn_id,
        "graph_branch": version.branch,
        "graph_manifest_version": version.n,
        "parent_commit_id": None if parent is None else parent.commit,
        "merged_parent_commit_id": None if merged is None else merged.commit,
        "actor_id": version.actor,
        "created_at": 0 if made is None else (made - _EPOCH) // _MICROSECOND,
    }


def describe_query(stored: StoredQuery) -> dict[str, Any]:
    """Return a stored query as shown in the list of queries."""
    query = stored.checked
    texts = {"description": query.description, "instruction": query.instruction}
    return {
        "name": stored.name,
        "tool_name": stored.name,
        **{name: text for name, text in texts.items() if text is not None},
        "mutation": query.kind is QueryEffect.MUTATION,
        "params": [ResultColumn(name, name, kind).to_json() for name, kind in query.params.items()],
    }


def stored_text(listed: Mapping[str, Any]) -> str | None:
    """Return a stored query's description for its callers, or None if its declaration has none."""
    texts = [listed[key] for key in ("description", "instruction") if key in listed]
    return "\n\n".join(texts) or None


# JSON schemas for types of values, in requests and in responses.

_SENT: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    # For many programs, JSON numbers are exact only up to 53 bits.
    "bigint": {"type": "string", "pattern": r"^-?\d+$"},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "blob": {"type": "string"},
}
_NOT_FINITE = {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}
_ANSWERED: Mapping[str, Mapping[str, Any]] = {
    **_SENT,
    "bigint": {"type": "integer", "format": "int64"},
    "float": {"anyOf": [{"type": "number"}, _NOT_FINITE]},
}


def parameters_schema(params: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the schema for a listed stored query's parameters."""
    return {
        "type": "object",
        "properties": {each["name"]: value_schema(each) for each in params},
        "required": [each["name"] for each in params if not each["nullable"]],
        "additionalProperties": False,
    }


def row_schema(query: CheckedQuery) -> Mapping[str, Any]:
    """Return the schema for a row that a read returns."""
    cells = {each.column: value_schema(each.to_json(), _ANSWERED) for each in query.columns}
    return {"type": "object", "properties": cells, "required": [*cells], "additionalProperties": False}


def value_schema(form: Mapping[str, Any], scalars: Mapping[str, Mapping[str, Any]] = _SENT) -> Mapping[str, Any]:
    """Return the schema for a listed parameter or, with the scalars of responses, for a cell."""
    kind = form["kind"]
    if kind == "vector":
        size = form["vector_dim"]
        schema: Mapping[str, Any] = {"type": "array", "items": {"type": "number"}, "minItems": size, "maxItems": size}
    elif kind == "list":
        schema = {"type": "array", "items": scalars[form["item_kind"]]}
    else:
        # A complete node has the properties of its type.
        schema = scalars.get(kind, {"type": "object"})
    return {"anyOf": [schema, {"type": "null"}]} if form["nullable"] else schema


def read_texts(query: CheckedQuery, texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Convert parameter values from strings to JSON values. A list has one string per item.

    Raises ProblemError 400 for an undeclared or repeated parameter.
    """
    _require_declared(query, texts)
    found: dict[str, Any] = {}
    for name, given in texts.items():
        kind = query.params[name]
        values = [_read_text(kind, text) for text in given]
        if kind.is_list or kind.scalar is Scalar.VECTOR:
            found[name] = values
        elif len(values) > 1:
            raise bad_request(f"the parameter '{name}' is given twice")
        else:
            (found[name],) = values
    return found


def _read_text(kind: PropType, text: str) -> Any:
    if kind.scalar not in (Scalar.BOOL, Scalar.F32, Scalar.F64, Scalar.VECTOR):
        return text
    try:
        return parse(text.encode())
    except MalformedError:
        # The conversion refuses it with the parameter's name.
        return text


def _require_declared(query: CheckedQuery, params: Mapping[str, Any] | None) -> None:
    for name in params or ():
        if name not in query.params:
            known = ", ".join(query.params) or "none"
            raise bad_request(f"query '{query.name}' has no parameter '{name[:80]}'; its parameters: {known}")
