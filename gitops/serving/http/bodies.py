"""Models for request and response bodies.

Unknown members are refused, and values are never coerced. An absent member means the same as null. Response models
describe responses to clients, and tests compare them with the bodies that are sent.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.database.language.suggest import choices, did_you_mean
from gitops.serving.answers import ApiCode, bad_request

_SHOWN: Final = 10
_NAME_SHOWN: Final = 80
_HINT_SHOWN: Final = 400


class Model(BaseModel):
    """Base class for all body models."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Model)


def read_json(kind: type[M], data: bytes) -> M | None:
    """Parse a body with this form. Returns None for an empty body or `null`.

    Raises ProblemError 400 with the problem and its location.
    """
    if not data:
        return None
    try:
        value = parse(data)
        return None if value is None else kind.model_validate(value)
    except MalformedError as error:
        raise bad_request(f"the body is {error}") from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [_problem(kind, each) for each in found[:_SHOWN]]
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        raise bad_request("; ".join((*problems, *more)) + _hint(kind, value)) from None


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "int_type": "a whole number",
    "list_type": "an array",
    "model_type": "an object",
    "string_type": "a string",
}


def _problem(kind: type[Model], error: Any) -> str:
    """Describe one problem of a body, with its member."""
    where = ".".join(map(str, error["loc"]))[:_NAME_SHOWN]
    member = f"member '{where}'" if where else "the body"
    if error["type"] == "extra_forbidden":
        return f"{member} is unknown{choices(where, _members(kind))}"
    if error["type"] == "missing":
        return f"{member} is missing"
    expected = _EXPECTED.get(error["type"]) or str(error["msg"]).removeprefix("Input should be ")
    return f"{member}: expected {expected}"


def _members(kind: type[Model]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


def _hint(kind: type[Model], value: Any) -> str:
    """Suggest what to send instead, if members look like query parameters."""
    known = {*_members(kind), "query_source", "query_name"}
    params = value.get("params") or {} if "params" in known and isinstance(value, dict) else None
    if not isinstance(params, dict):
        return ""
    others = {name: each for name, each in value.items() if name not in known and not did_you_mean(name, known)}
    body = {name: each for name, each in value.items() if name not in others} | {"params": params | others}
    text = json.dumps(body, ensure_ascii=False)
    return f"; parameters of the query go into params: {text}" if others and len(text) <= _HINT_SHOWN else ""


class HealthAnswer(Model):
    """Confirms that the server responds. `internal_schema_version` is its graph storage format's version."""

    status: str = Field(examples=["ok"])
    version: str
    internal_schema_version: int


class ProtectedResourceAnswer(Model):
    """The identity providers accepted at a server address, in the form of RFC 9728."""

    resource: str = Field(examples=["https://brain.example/graphs/knowledge/mcp"])
    authorization_servers: list[str] = Field(examples=[["https://login.example"]])
    bearer_methods_supported: list[str] = Field(examples=[["header"]])


class ServedGraphForm(Model):
    """A graph and its address on this server."""

    graph_id: str
    uri: str


class GraphsAnswer(Model):
    """The served graphs by id."""

    graphs: list[ServedGraphForm]


class ReloadAnswer(Model):
    """The result of an attempt to serve the newest revision."""

    result: Literal["exchanged", "unchanged"]
    served_revision: str
    offered_revision: str | None
    codes: list[str]


class QueryBody(Model):
    """A read: a text with one query, or with several queries and the `name` of the one to run.

    Reads the head of a branch, or a snapshot.
    """

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = Field(default=None, description="The id of a commit that the graph keeps, on any branch.")


class ReadBody(Model):
    """A read in the old format."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None


Conflict = Literal["last_wins", "strict"]
CONFLICT: Final = Field(
    default=None,
    description="What becomes of an update or delete if the branch moves while the request waits for its turn: it runs on "
    "what is there then (`last_wins`), or is refused (`strict`). By default as the server is set up for the graph.",
)


class MutateBody(Model):
    """A mutation. `query` can also be called `query_source`, and `name` can also be called `query_name`."""

    query: str = Field(validation_alias=AliasChoices("query", "query_source"))
    name: str | None = Field(default=None, validation_alias=AliasChoices("name", "query_name"))
    params: dict[str, Any] | None = None
    branch: str | None = None
    conflict: Conflict | None = CONFLICT


class InvokeBody(Model):
    """Input for a stored query."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = Field(default=None, description="The id of a commit; only for reads.")
    expect_mutation: bool | None = Field(
        default=None, description="Refuse the call unless the stored query is of this kind."
    )
    conflict: Conflict | None = CONFLICT


class TargetForm(Model):
    """The target of a read: the head of a branch, or a snapshot."""

    branch: str | None
    snapshot: str | None


class ReadAnswer(Model):
    """The rows that a read returned. `columns` are in the order of the query."""

    query_name: str
    target: TargetForm
    row_count: int
    columns: list[str] = Field(default_factory=list)
    rows: list[dict[str, Any]]


class QueryAnswer(ReadAnswer):
    """The rows that a read returned, and their commit."""

    graph_commit_id: str


class CommitForm(Model):
    """A graph version. `created_at` is in microseconds since 1970."""

    graph_commit_id: str
    graph_branch: str
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int


class ChangeAnswer(Model):
    """The entities that a mutation affected, and the published commit, or null if nothing changed.

    All three are null for an actor with neither `read` nor `export` on the branch.
    """

    branch: str
    query_name: str
    affected_nodes: int | None
    affected_edges: int | None
    actor_id: str | None
    commit: CommitForm | None


class ParameterForm(Model):
    """A parameter of a stored query."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class StoredQueryForm(Model):
    """A stored query."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: list[ParameterForm]


class QueriesAnswer(Model):
    """The stored queries by name."""

    queries: list[StoredQueryForm]


class KeyConflictForm(Model):
    """The entity that already exists."""

    entity_kind: Literal["node", "edge"]
    type_name: str
    entity_id: str


class ReadSetConflictForm(Model):
    """What others have changed since the read, such as `graph_head:main`. Strict requests also get the commits."""

    member: str
    expected: str | None = None
    actual: str | None = None


class PreconditionForm(Model):
    """The revision or commit that the request expects, and the actual one, or null if it is unknown."""

    expected: str
    actual: str | None = None


class BlobRangeForm(Model):
    """The requested range, from `start` up to but not including `end`, and the blob's length."""

    start: int
    end: int
    length: int


class ResourceLimitForm(Model):
    """An exceeded limit: the `reason` for a query, or a `resource` with its limit and the value in the request."""

    reason: str | None = None
    resource: str | None = None
    limit: int | None = None
    actual: int | None = None


class BatchLimitForm(Model):
    """The maximum size of a load in bytes."""

    limit: int


class FeedGapForm(Model):
    """The oldest known commit whose changes are no longer readable, and the cursor that the client sent."""

    cursor: str | None
    first_unreadable_commit_id: str


class DiffRefusalForm(Model):
    """The reason why a commit has no row changes: it has no parent, or it changes the schema of this type's rows."""

    reason: Literal["parentless_commit", "schema_boundary"]
    graph_commit_id: str
    type_name: str | None


class ReasonForm(Model):
    """A problem's code, as listed on the page of codes."""

    reason: str


class MergeConflictForm(Model):
    """A row on which two branches conflict."""

    entity_kind: Literal["node", "edge"]
    type_name: str
    entity_id: str | None
    property: str | None
    kind: str
    message: str


class LoadProblemForm(Model):
    """A problem with a record in a load, identified by its line."""

    line: int | None
    code: str
    message: str


class ReloadRefusedForm(Model):
    """The reason why the newest revision is not served."""

    result: Literal["waiting", "refused"]
    served_revision: str
    offered_revision: str | None
    codes: list[str]


class ProblemBody(Model):
    """The envelope for all problems. A problem is identified by its status, code and additional member.

    Members can be added in the future, but codes cannot.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", frozen=True)

    error: str
    code: ApiCode | None = None
    key_conflict: KeyConflictForm | None = None
    read_set_conflict: ReadSetConflictForm | None = None
    merge_conflicts: list[MergeConflictForm] | None = None
    precondition_failure: PreconditionForm | None = None
    blob_range: BlobRangeForm | None = None
    resource_limit: ResourceLimitForm | None = None
    graph_batch_request_bytes: BatchLimitForm | None = None
    change_feed_gap: FeedGapForm | None = None
    change_diff_refusal: DiffRefusalForm | None = None
    storage_failure: ReasonForm | None = None
    embedding_failure: ReasonForm | None = None
    problems: list[LoadProblemForm] | None = None
    total_problems: int | None = None
    reload: ReloadRefusedForm | None = None
    stuck_queries: int | None = None


# Bodies of routes for branches, commits, schema and data.


class CommitsAnswer(Model):
    """Commits, newest first."""

    commits: list[CommitForm]


class ChangeForm(Model):
    """A row that differs.

    `fields` are the properties that changed; `before` or `after` is null if the row was added or removed.
    """

    graph_commit_id: str
    entity_kind: Literal["node", "edge"]
    type_name: str
    entity_id: str
    kind: Literal["added", "removed", "changed"]
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class FeedCommitAnswer(Model):
    """A commit's changes relative to its first parent.

    `page_token` is the start of the next page, or null after the last one.
    """

    commit: CommitForm
    changes: list[ChangeForm]
    page_token: str | None


class FeedAnswer(Model):
    """A branch's changes, in the order of `commits`.

    `page_token` is the start of the next page, or null if there is nothing more for now. `cursor` is for a reader that
    continues later, and is null in the middle of a commit.
    """

    graph_branch: str
    head_commit_id: str
    commits: list[CommitForm]
    changes: list[ChangeForm]
    cursor: str | None
    page_token: str | None


# The change feed in the format of the reference server.

Entity = Literal["node", "edge"]
Operation = Literal["insert", "update", "delete"]


class EntityTypeForm(Model):
    """A type. Its `id` stays the same when it is renamed, but not when it is dropped and declared again."""

    id: str
    name: str


class EndpointsForm(Model):
    """The ids of the two nodes that an edge connects."""

    origin: str = Field(alias="from")
    to: str


class ImageForm(Model):
    """An entity before or after a change. Only an edge has `endpoints`."""

    properties: dict[str, Any]
    endpoints: EndpointsForm | None = None


class EntityChangeForm(Model):
    """An entity that changed. An insert has only `after`, a delete only `before`, and an update both."""

    kind: Entity
    type: EntityTypeForm
    id: str
    op: Operation
    before: ImageForm | None = None
    after: ImageForm | None = None


class CauseForm(Model):
    """The commit that made changes, and its branch. `authored_at` is in microseconds since 1970."""

    graph_commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    authored_branch: str
    actor_id: str | None
    authored_at: int


class CommitChangesAnswer(Model):
    """A commit's changes relative to its first parent, nodes before edges.

    Without `next_page_token`, they are complete.
    """

    cause: CauseForm
    changes: list[EntityChangeForm]
    next_page_token: str | None = None


class BlockForm(Model):
    """One commit's changes."""

    cause: CauseForm
    changes: list[EntityChangeForm]


class ChangesAnswer(Model):
    """A branch's changes, commit by commit.

    A page that ends inside a commit has a `next_page_token`. Any other page has the `cursor` to store, and whether the
    reader has `caught_up` with the branch.
    """

    blocks: list[BlockForm]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class BaselineBody(Model):
    """The branch, by default `main`, and which changes the cursor is for.

    `kind` and `type` also select the records.
    """

    branch: str | None = None
    kind: list[Entity] | None = None
    type: list[str] | None = None
    op: list[Operation] | None = None


class BaselineForm(Model):
    """The records' commit, and the cursor for later changes."""

    snapshot_commit_id: str
    resume_cursor: str


class BaselineRecord(Model):
    """The last line of a baseline. An interrupted baseline lacks it."""

    baseline: BaselineForm


class DatasetForm(Model):
    """A type with its dataset's version."""

    entity_kind: Literal["node", "edge"]
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class SnapshotAnswer(Model):
    """The head of a branch."""

    graph_branch: str
    graph_manifest_version: int
    graph_commit_id: str
    internal_schema_version: int
    datasets: list[DatasetForm]


class SchemaAnswer(Model):
    """The served schema's text."""

    schema_source: str


class SchemaApplyBody(Model):
    """A schema that a client wants to apply."""

    schema_source: str
    allow_data_loss: bool | None = None


class BranchesAnswer(Model):
    """The names of the branches, sorted."""

    branches: list[str]


class BranchCreateBody(Model):
    """The branch to create from the head of `from`, which is `main` by default."""

    name: str
    origin: str | None = Field(default=None, alias="from")


class BranchAnswer(Model):
    """A graph branch, and the actor who changed it."""

    uri: str
    name: str
    actor_id: str | None


class BranchCreatedAnswer(BranchAnswer):
    """A branch that was created from another branch's head."""

    origin: str = Field(alias="from")


class BranchMergeBody(Model):
    """The branch to merge into a target branch, by default `main`, and whether to delete it afterwards."""

    source: str
    target: str | None = None
    delete_branch: bool | None = None


class BranchMergedAnswer(Model):
    """The result of a merge. The last two members exist only if the request was to delete the source.

    `outcome` and `commit` are null for an actor with neither `read` nor `export` on the target.
    """

    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged"] | None
    actor_id: str | None
    commit: CommitForm | None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None


class LoadBody(Model):
    """Records as JSON lines for a branch, by default `main`. With `from`, a missing branch is created."""

    data: str
    branch: str | None = None
    origin: str | None = Field(default=None, alias="from")
    mode: Literal["merge", "append", "overwrite"] | None = None


class LoadedForm(Model):
    """The number of loaded entities of a type."""

    name: str
    entities_loaded: int


class LoadAnswer(Model):
    """The result of a load.

    `commit` is the published commit, or null if there were no records or the actor must not see it.
    """

    uri: str
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Literal["merge", "append", "overwrite"]
    nodes: list[LoadedForm]
    edges: list[LoadedForm]
    total_entities: int
    commit: CommitForm | None
    actor_id: str | None


class ExportBody(Model):
    """The branch to export, by default `main`, and the types, by default all."""

    branch: str | None = None
    type_names: list[str] | None = None
