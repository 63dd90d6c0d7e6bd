"""Storage keys for ledger files and graph roots, relative to the storage root.

Every store uses the same keys, so that a folder can be compared with a branch file by file. A name or digest from a
document is checked here before it becomes part of a key.
"""

from __future__ import annotations

import re

from gitops.cluster.model.address import Address, Kind, is_name
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import is_changeset_key
from gitops.cluster.model.served import is_replica_name
from gitops.core.documents.forms import is_digest

STATE = "__cluster/state.json"
LOCK = "__cluster/lock.json"
RECOVERIES = "__cluster/recoveries"
APPROVALS = "__cluster/approvals"
CHANGESETS = "__cluster/changesets"
EVENTS = "__cluster/events"
SERVING = "__cluster/serving"
USE = "__cluster/use"
INDEX = f"{CHANGESETS}/index.json"
ENDED = f"{CHANGESETS}/ended.jsonl"
ARCHIVE = f"{CHANGESETS}/archive.jsonl"

_RESOURCES = "__cluster/resources"
DOCUMENT_SUFFIX = ".json"
# Wider than a ULID, because documents of other writers must be found whatever their ids are.
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}\Z", re.ASCII)


def intent_key(operation_id: str) -> str:
    """Return a recovery sidecar's key. Raises ValueError for an id that cannot be part of a key."""
    return f"{RECOVERIES}/{_checked(operation_id)}{DOCUMENT_SUFFIX}"


def approval_key(approval_id: str) -> str:
    """Return an approval document's key. Raises ValueError for an id that cannot be part of a key."""
    return f"{APPROVALS}/{_checked(approval_id)}{DOCUMENT_SUFFIX}"


def record_key(changeset: str) -> str:
    """Return the storage key for a changeset's record. Raises ValueError if the argument is not a changeset key."""
    return f"{CHANGESETS}/{_checked_changeset(changeset)}{DOCUMENT_SUFFIX}"


def run_key(changeset: str) -> str:
    """Return the storage key for a changeset's run record. Raises ValueError if the argument is not a changeset key."""
    return f"{CHANGESETS}/{_checked_changeset(changeset)}.run{DOCUMENT_SUFFIX}"


def events_key(changeset: str) -> str:
    """Return the storage key for a changeset's events. Raises ValueError if the argument is not a changeset key."""
    return f"{EVENTS}/{_checked_changeset(changeset)}.jsonl"


def batch_key(digest: str) -> str:
    """Return the key of the file with a large write's events. Raises ValueError if the argument is not a digest."""
    if not is_digest(digest):
        raise ValueError(f"{digest[:64]!r} is not a digest")
    return f"{CHANGESETS}/newest-{digest}.jsonl"


def serving_key(replica: str) -> str:
    """Return the key of a query server's report. Raises ValueError if the argument is not a server name."""
    if not is_replica_name(replica):
        raise ValueError(f"{replica[:64]!r} is not the name of a server")
    return f"{SERVING}/{replica}{DOCUMENT_SUFFIX}"


def use_key(day: str, graph: str, segment: str) -> str:
    """Return the key of a record of a graph's use. Raises ValueError for an invalid graph id or segment."""
    if not is_name(graph):
        raise ValueError(f"{graph[:64]!r} is not a graph id")
    return f"{USE}/{day}.{graph}.{_checked(segment)}{DOCUMENT_SUFFIX}"


def document_id(name: str) -> str | None:
    """Return the id that a file name in the sidecar or approval folder contains, or None for other file names."""
    return name.removesuffix(DOCUMENT_SUFFIX) if name.endswith(DOCUMENT_SUFFIX) else None


def blob_key(address: Address, digest: str) -> str | None:
    """Return the key of a catalog blob, or None if the kind has no blobs, or the name or digest is unsafe."""
    if address.kind is Kind.HOST and is_digest(digest):
        # The id of an item can be any path; its digest covers its address, so that no other resource has the same one.
        return f"{_RESOURCES}/{address.kind}/{digest}{rules_of(address).catalog_suffix}"
    if not is_digest(digest) or not is_name(address.name):
        return None
    suffix = rules_of(address).catalog_suffix
    owner = address.graph or address.compute
    if not suffix or (owner is not None and not is_name(owner)):
        return None
    folder = "" if owner is None else f"{owner}/"
    return f"{_RESOURCES}/{address.kind}/{folder}{address.name}/{digest}{suffix}"


def graph_root(graph: str) -> str:
    """Return a graph's folder. Raises ValueError for an invalid id."""
    if not is_name(graph):
        raise ValueError(f"{graph[:64]!r} is not a graph id")
    return f"graphs/{graph}.omni"


def _checked(identifier: str) -> str:
    if _ID.match(identifier) is None:
        raise ValueError(f"{identifier[:64]!r} is not a document id")
    return identifier


def _checked_changeset(key: str) -> str:
    if not is_changeset_key(key):
        raise ValueError(f"{key[:64]!r} is not the key of a changeset")
    return key
