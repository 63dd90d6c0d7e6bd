"""Table of the permissions that each request needs. The server enforces it, and the documentation shows it.

1. A verb can request only permissions in this table, and must have requested all unconditional ones before it responds.
   Anything else is a defect, and the request fails.
2. Copying a branch also needs the permissions in `READS` on the copied branch. The access diff uses the same `READS`.
3. A response about the rows of a branch needs `read` or `export` there. A verb that only changes a branch returns only
   whether it succeeded (`TELLS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from gitops.cluster.policy.bundle import PolicyAction
from gitops.core.dataclass import dataclass


class Place(StrEnum):
    """The part of a request that a permission applies to, with its name in the documentation."""

    BRANCH = "the branch"
    COMMIT = "the branch that has the commit"
    INHERITED = "each branch whose older commits it shows"
    MAIN = "`main`"
    NEW = "the new branch"
    SOURCE = "the source"
    TARGET = "the target"
    QUERY = "the query"
    SERVER = "the server"


@dataclass(frozen=True, slots=True)
class Need:
    """A required permission. If `when` is not empty, the permission is required only in that case."""

    action: PolicyAction
    on: Place
    when: str = ""


TELLS = frozenset({PolicyAction.READ, PolicyAction.EXPORT})
"""Actions that let an actor know the content of a branch; any one of them is enough."""

_READ = Need(PolicyAction.READ, Place.BRANCH)
_MAIN = Need(PolicyAction.READ, Place.MAIN)
_COMMIT = Need(PolicyAction.READ, Place.COMMIT)
_EXPORT = Need(PolicyAction.EXPORT, Place.BRANCH)
_CHANGE = Need(PolicyAction.CHANGE, Place.BRANCH)
_INVOKE = Need(PolicyAction.INVOKE_QUERY, Place.QUERY)
_LOAD = (
    Need(PolicyAction.BRANCH_CREATE, Place.BRANCH, "if `from` creates it"),
    _CHANGE,
)
_ASK = (
    Need(PolicyAction.READ, Place.BRANCH, "without `snapshot`"),
    Need(PolicyAction.READ, Place.COMMIT, "with `snapshot`"),
)
_FEED = (_READ, Need(PolicyAction.READ, Place.INHERITED, "if it begins before the branch was created"))
_RUN = (
    _INVOKE,
    Need(PolicyAction.READ, Place.BRANCH, "if the query reads"),
    Need(PolicyAction.CHANGE, Place.BRANCH, "if it changes the graph"),
)

_VERBS: Mapping[str, tuple[Need, ...]] = MappingProxyType(
    {
        "health": (),
        "openapi": (),
        "docs": (),
        "protectedResource": (),
        "mcpProtectedResource": (),
        "reload": (Need(PolicyAction.RELOAD, Place.SERVER),),
        "readReport": (Need(PolicyAction.RELOAD, Place.SERVER),),
        "readReportPage": (Need(PolicyAction.RELOAD, Place.SERVER),),
        "readReportPageIn": (Need(PolicyAction.RELOAD, Place.SERVER),),
        "listGraphs": (Need(PolicyAction.GRAPH_LIST, Place.SERVER),),
        "query": _ASK,
        "read": _ASK,
        "mutate": (_CHANGE,),
        "mutate_if_graph_commit": (_CHANGE,),
        "change": (_CHANGE,),
        "graph_openapi": (_MAIN,),
        "list_queries": (_MAIN,),
        "read_stored_query": (_INVOKE, *_ASK),
        "invoke_query": _RUN,
        "invoke_query_if_graph_commit": (_INVOKE, _CHANGE),
        "getSnapshot": (_READ,),
        "getSchema": (_MAIN,),
        "applySchema": (Need(PolicyAction.SCHEMA_APPLY, Place.MAIN),),
        "listBranches": (_MAIN,),
        "createBranch": (Need(PolicyAction.BRANCH_CREATE, Place.NEW),),
        "deleteBranch": (Need(PolicyAction.BRANCH_DELETE, Place.BRANCH),),
        "mergeBranches": (
            Need(PolicyAction.BRANCH_MERGE, Place.TARGET),
            Need(PolicyAction.BRANCH_DELETE, Place.SOURCE, "with `delete_branch`"),
        ),
        "listCommits": (_READ,),
        "getCommit": (_MAIN, _COMMIT),
        "load": _LOAD,
        "ingest": _LOAD,
        "loadNdjson": _LOAD,
        "export": (_EXPORT,),
        "pollChanges": _FEED,
        "captureChangeBaseline": (_EXPORT,),
        "getCommitChanges": (_COMMIT,),
        "readFeed": _FEED,
        "readFeedBaseline": (_EXPORT,),
        "readFeedCommit": (_COMMIT,),
        "getBlob": _ASK,
        "mcp": (
            Need(PolicyAction.INVOKE_QUERY, Place.QUERY, "to call a tool"),
            Need(PolicyAction.READ, Place.MAIN, "if its query reads"),
            Need(PolicyAction.CHANGE, Place.MAIN, "if it changes the graph"),
        ),
    }
)
PREVIEWED = (
    "query",
    "mutate",
    "mutate_if_graph_commit",
    "graph_openapi",
    "list_queries",
    "read_stored_query",
    "invoke_query",
    "invoke_query_if_graph_commit",
    "getSchema",
    "mcp",
)
"""The operations that a previewed change request offers as well.

There, the request's policy decides on the same permissions, after the live policy has permitted `read` on the live
`main`.
"""
VERBS: Mapping[str, tuple[Need, ...]] = MappingProxyType(
    {**_VERBS, **{f"preview_{name}": _VERBS[name] for name in PREVIEWED}}
)
"""The permissions that each server operation needs, by its name, in the order in which they are requested."""
