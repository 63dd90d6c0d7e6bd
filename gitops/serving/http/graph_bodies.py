"""The forms of bodies of routes on branches, commits, schema and data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gitops.serving.http.bodies import Model

__all__ = [
    "BranchAnswer",
    "BranchCreateBody",
    "BranchCreatedAnswer",
    "BranchMergeBody",
    "BranchMergedAnswer",
    "BranchesAnswer",
    "ChangeForm",
    "CommitChangesAnswer",
    "CommitForm",
    "CommitsAnswer",
    "ExportBody",
    "FeedAnswer",
    "LoadAnswer",
    "LoadBody",
    "SchemaAnswer",
    "SchemaApplyBody",
    "SnapshotAnswer",
]


class CommitForm(Model):
    """A version of a graph; `created_at` is in microseconds since 1970."""

    graph_commit_id: str
    graph_branch: str
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int


class CommitsAnswer(Model):
    """Commits, newest first."""

    commits: list[CommitForm]


class ChangeForm(Model):
    """A row that differs. `fields` are the properties that changed; of a row that came or went one side is null."""

    graph_commit_id: str
    entity_kind: Literal["node", "edge"]
    type_name: str
    entity_id: str
    kind: Literal["added", "removed", "changed"]
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class CommitChangesAnswer(Model):
    """What a commit changed of its first parent; `page_token` is where the next page goes on, null after the last one."""

    commit: CommitForm
    changes: list[ChangeForm]
    page_token: str | None


class FeedAnswer(Model):
    """Changes of a branch, in the order of `commits`.

    `page_token` is where the next page goes on, null when there is nothing more for now. `cursor` is to be kept by a reader that
    comes back later; it is null in the middle of a commit.
    """

    graph_branch: str
    head_commit_id: str
    commits: list[CommitForm]
    changes: list[ChangeForm]
    cursor: str | None
    page_token: str | None


class DatasetForm(Model):
    """A type with its dataset at one version."""

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
    """The text of the schema that is served."""

    schema_source: str


class SchemaApplyBody(Model):
    """A schema that a client would like to have."""

    schema_source: str
    allow_data_loss: bool | None = None


class BranchesAnswer(Model):
    """The names of the branches, in order."""

    branches: list[str]


class BranchCreateBody(Model):
    """A branch to make, from the head of `from`, by default `main`."""

    name: str
    origin: str | None = Field(default=None, alias="from")


class BranchAnswer(Model):
    """A branch of a graph, and who changed it."""

    uri: str
    name: str
    actor_id: str | None


class BranchCreatedAnswer(BranchAnswer):
    """A branch that was made from the head of another one."""

    origin: str = Field(alias="from")


class BranchMergeBody(Model):
    """A branch to merge into another one, by default `main`, and whether to delete it afterwards."""

    source: str
    target: str | None = None
    delete_branch: bool | None = None


class BranchMergedAnswer(Model):
    """What became of a merge. The last two are there where the source was to be deleted."""

    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged"]
    actor_id: str | None
    commit: CommitForm | None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None


class LoadBody(Model):
    """Records as lines of JSON, for a branch, by default `main`; with `from` it is made where it is missing."""

    data: str
    branch: str | None = None
    origin: str | None = Field(default=None, alias="from")
    mode: Literal["merge", "append", "overwrite"] | None = None


class LoadedForm(Model):
    """How many entities of a type were loaded."""

    name: str
    entities_loaded: int


class LoadAnswer(Model):
    """What a load did. `commit` is what it published, null if there was no record."""

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
    """Which branch, by default `main`, and which types, by default all."""

    branch: str | None = None
    type_names: list[str] | None = None
