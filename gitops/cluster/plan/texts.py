"""The texts behind the changes of a plan, as they are recorded and as they are declared. They only explain.

The recorded text of a query, policy or strategy is in the ledger's catalog; that of a schema is in git or in the live graph. What
cannot be read is left out silently: the verbs that need it report it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from gitops.cluster.model.address import Kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.kinds import KINDS
from gitops.cluster.model.plan import Plan, TextChange
from gitops.cluster.session.session import Session
from gitops.core.errors import GitopsError

_KINDS = [kind for kind, rules in KINDS.items() if rules.has_text]
_MOST = 50
"""Texts that people can take in, and that a bucket far away gives in time."""


def changed_texts(current: Session, plan: Plan) -> tuple[TextChange, ...]:
    """The first fifty texts that a plan changes: schemas, policies, strategies, files of queries; each in address order.

    A file of queries is named by those whose own text changes, or by all if none does.
    """
    found = []
    for changes in _by_text(plan.changes)[:_MOST]:
        before = next((each for each in changes if each.before is not None), None)
        after = next((each for each in changes if each.after is not None), None)
        recorded = None if before is None else _recorded(current, before)
        declared = None if after is None else current.desired.resources[after.address].content
        unread = (before is not None and recorded is None) or (after is not None and declared is None)
        if not unread and recorded != declared:
            own = [each for each in changes if each.address not in plan.republished] or changes
            found.append(TextChange(tuple(each.address for each in own), recorded, declared))
    return tuple(found)


def _by_text(changes: Iterable[Change]) -> list[list[Change]]:
    """Changes of the same text together: a file of queries is the text of each of them."""
    ours = sorted((c for c in changes if c.address.kind in _KINDS), key=lambda c: _KINDS.index(c.address.kind))
    # A query that comes or goes is part of a file that stays, if the other queries of the file change with it.
    stays = [c for c in ours if c.action is Action.UPDATE]
    after = {(c.address.graph, c.after): c.before for c in stays}
    before = {(c.address.graph, c.before): c.after for c in stays}
    found: dict[tuple[object, ...], list[Change]] = {}
    for change in ours:
        owner = change.address.graph or change.address
        old, new = change.before, change.after
        if change.address.kind is Kind.QUERY and old is None:
            old = after.get((change.address.graph, new))
        elif change.address.kind is Kind.QUERY and new is None:
            new = before.get((change.address.graph, old))
        found.setdefault((change.address.kind, owner, old, new), []).append(change)
    return list(found.values())


def _recorded(current: Session, change: Change) -> bytes | None:
    """The text that the ledger records for a resource; None if it cannot be read."""
    address, digest = change.address, change.before or ""
    with suppress(GitopsError):
        if address.kind is not Kind.SCHEMA:
            return current.opened.ledger.blob(address, digest).content
        known = current.workspace.accepted_schema(address.name, digest)
        if known is not None or change.action is Action.DELETE:
            return known
        return current.opened.engine.read(current.opened.graph_uri(address.name)).schema_source
    return None
