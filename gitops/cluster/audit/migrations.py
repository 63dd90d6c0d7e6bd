"""Whether an entry records the gate of each migration that it lists as applied: rules 1 to 4.

1. The steps are planned again from the schema texts before and after, as sources declare them. What they do, the rows that the
   entry records and the rules in force before it give the tier, as in a plan (`gitops.cluster.model.kinds`).
2. A migration is not applied below its tier: without a gate where it needs one, or as one that a later plan can undo.
3. A migration that no later plan can undo, and that removes data as well, has the approvals of both gates.
4. A text that no source has, such as one that was found in a graph, is a note: then the recorded tier is believed.

Entries of the first release know no gates of migrations.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.approvals.verify import select_quorum
from gitops.cluster.audit.approvals import asked
from gitops.cluster.audit.trail import change_of
from gitops.cluster.audit.walk import Walk
from gitops.cluster.config.load import declared_schema
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.model.address import Kind
from gitops.cluster.model.change import Action, Disposition, Tier
from gitops.cluster.model.kinds import Gate, rules_of
from gitops.cluster.model.ledger import WITH_ORIGINS, EntryChange
from gitops.cluster.plan.planner import survey
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.graph.port import MigrationPreview

__all__ = ["check_migrations"]


def check_migrations(walk: Walk, found: VerifiedEntry) -> None:
    """Apply the rules to one entry. Raises IntegrityError `ledger_change_unapproved`."""
    if found.entry.version < WITH_ORIGINS:
        return
    for listed in found.entry.changes:
        applied = listed.disposition == Disposition.APPLIED
        if not applied or listed.resource.kind is not Kind.SCHEMA or listed.operation != Action.UPDATE:
            continue
        migration = _migration(walk, listed)
        if migration is None:
            # A source that is not here is a note already.
            if found.entry.source is not None and walk.reader.resolve(found.entry.source.commit) is not None:
                detail = f"the texts of the migration of {listed.resource} are not in the sources"
                walk.notes.append(f"entry {found.entry.number}: {detail}")
            continue
        gate = _gate(found, listed, migration)
        if gate is not None and listed.tier not in (gate.tier, Tier.IRREVERSIBLE):
            has = "none" if listed.tier is None else f"that of a {listed.tier} one"
            detail = f"{gate.reason}: the migration of {listed.resource} is {gate.tier}, and the entry records {has}"
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)
        if gate is not None and not _has_quorum(walk, found, listed, gate):
            detail = f"the migration of {listed.resource} has too few approvals: {asked(found, gate.met)}"
            raise IntegrityError(Code.LEDGER_CHANGE_UNAPPROVED, detail)


def _has_quorum(walk: Walk, found: VerifiedEntry, listed: EntryChange, gate: Gate) -> bool:
    uses = (use for use in found.entry.approvals if use.resource == listed.resource)
    given = [walk.consumed[use.approval_id].verification for use in uses]
    return bool(select_quorum(given, found.before.quorum(found.entry.target.environment).needed(gate.met)))


def _gate(found: VerifiedEntry, listed: EntryChange, migration: MigrationPreview) -> Gate | None:
    change = replace(change_of(listed), migration=migration)
    situation = replace(
        survey([change], (), ()), gates=frozenset(found.before.quorum(found.entry.target.environment).numbers)
    )
    return rules_of(change.address).gate(change, situation)


def _migration(walk: Walk, listed: EntryChange) -> MigrationPreview | None:
    """The steps between the two texts, None where a text is not at hand or cannot be read by this release."""
    texts = [_text(walk, listed.resource.name, digest or "") for digest in (listed.before, listed.after)]
    # The language of schemas is large to import: few entries change a schema.
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError

    try:
        accepted, desired = (compile_schema(text) for text in texts if text is not None)
        return MigrationPreview.between(accepted, desired)
    except (GitopsError, LanguageError, ValueError):
        return None


def _text(walk: Walk, graph: str, digest: str) -> bytes | None:
    """A schema text that a source of this walk, or of the entry before, declares."""
    source = None if walk.previous is None else walk.previous.entry.source
    if digest in walk.schemas or source is None or walk.reader.resolve(source.commit) is None:
        return walk.schemas.get(digest)
    return declared_schema(walk.open_tree(walk.reader, source.tree), graph, digest)
