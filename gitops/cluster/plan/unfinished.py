"""What is left of a changeset after its commit: data that are deleted, and drops of schemas. What permits it, read-only.

A drop begins at the schema that the commit left in the graph. Where a person has changed that since, nothing is dropped: what
would go is not what was planned. Once a refresh has recorded what is live, the drop is void, and the next plan leads from there
to what is declared, with gates of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gitops.cluster.approvals.revocations import recorded_revocations
from gitops.cluster.model.address import Address
from gitops.cluster.model.changeset import Member
from gitops.cluster.model.ledger import Intent
from gitops.cluster.plan.open_changesets import read_now
from gitops.cluster.session.session import RECORD_LIVE, Session
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.port import DeleteOrder, Existence, GraphReading

if TYPE_CHECKING:
    from gitops.cluster.plan.impact import Subject

__all__ = ["contraction", "delete_order", "out_of_cluster"]

_NOT_PERMITTED = frozenset(
    {
        Code.APPROVAL_REVOKED,
        Code.GRAPH_DELETE_INCOMPLETE,
        Code.GRAPH_GROWN,
        Code.GRAPH_REPLACED,
        Code.GRAPH_RESTORED,
        Code.GRAPH_ROWS_REPLACED,
    }
)
"""Why the approvals of a delete do not permit it, or no longer."""


def delete_order(current: Session, graph: Address, intents: Sequence[Intent]) -> DeleteOrder | None:
    """How the data of a graph that left the cluster are deleted, as its approvals permit; None where they are gone.

    Raises GitopsError where that is not permitted.
    """
    stores = current.opened
    uri = stores.graph_uri(graph.name)
    if stores.engine.exists(uri) is Existence.ABSENT:
        return None
    intent = next((each for each in intents if each.incarnation is not None and each.max_rows is not None), None)
    if intent is None or intent.incarnation is None or intent.max_rows is None:
        detail = f"{uri} is still there, and what permits to delete it is not announced"
        raise GitopsError(Code.GRAPH_DELETE_INCOMPLETE, detail, path=graph)
    used, revoked = current.state.decided, {name for name, _ in recorded_revocations(current.state)}
    for approval in intent.approval_ids:
        if approval not in used or approval in revoked:
            raise GitopsError(Code.APPROVAL_REVOKED, f"approval {approval} no longer permits its deletion", path=graph)
    version = intent.observed_manifest_version
    return DeleteOrder(intent.incarnation, intent.max_rows, intent.fence or 0, intent.approval_ids, version)


@contextmanager
def out_of_cluster(uri: str) -> Iterator[None]:
    """Delete a graph that left the cluster: no plan asks for another approval, so a refusal says what helps instead."""
    try:
        yield
    except GitopsError as error:
        if error.code not in _NOT_PERMITTED:
            raise
        fix = f"keep a copy of what it holds, remove {uri}, then apply again: gitops apply"
        raise GitopsError(error.code, error.detail, path=error.path, fix=fix) from error


def contraction(current: Session, member: Member) -> tuple[GraphReading, bytes] | None:
    """A graph that has more than its new schema, with the text of that; None where it has no more, is gone, or the drop is void.

    Raises GitopsError `schema_apply_failed` where the graph has another schema than the commit left, or that text is not at hand.
    """
    graph, wanted = member.address.name, member.after or ""
    reading = read_now(current, graph)
    live = None if reading is None else digest(reading.schema_source)
    if reading is None or live == wanted:
        return None
    if live not in (member.before, member.expanded) and (differs := _difference(current, member)):
        recorded = current.state.resources.get(member.address)
        if recorded is not None and recorded.digest == live:
            return None
        again = "" if member.address in current.desired.resources else "declare its graph again, then "
        fix = f"{again}{RECORD_LIVE}"
        detail = f"its live schema is not the one that the commit left: {differs}"
        raise GitopsError(Code.SCHEMA_APPLY_FAILED, detail, path=member.address, fix=fix)
    declared = current.desired.resources.get(member.address)
    text = declared.content if declared is not None and declared.digest == wanted else None
    text = current.workspace.accepted_schema(graph, wanted) if text is None else text
    if text is None:
        detail = f"it needs the schema with the digest {wanted}, which is no longer declared and is not in git"
        fix = "declare that schema again until it is applied: gitops apply"
        raise GitopsError(Code.SCHEMA_APPLY_FAILED, detail, path=member.address, fix=fix)
    return reading, text


def _difference(current: Session, member: Member) -> str:
    """What a live schema has and lacks besides the one that the commit left; empty where only the text is another one."""
    from gitops.cluster.plan.impact import step_subjects

    engine, uri = current.opened.engine, current.opened.graph_uri(member.address.name)
    left = member.expanded or member.before or ""
    try:
        steps = engine.preview(uri, engine.schema_text(uri, left)).steps
    except GitopsError as error:
        return f"the two cannot be compared, {error.detail}"
    if not steps:
        return ""
    subjects = step_subjects(steps)
    lists = {
        "it has": {each for found in subjects for each in found.before - found.after},
        "it lacks": {each for found in subjects for each in found.after - found.before},
        "it changes": {each for found in subjects for each in found.before & found.after},
    }
    words = [f"{verb} {', '.join(sorted(map(_named, names)))}" for verb, names in lists.items() if names]
    return "; ".join(words) or "it has other interfaces"


def _named(subject: Subject) -> str:
    return ".".join(filter(None, (subject.type_name, subject.property_name)))
