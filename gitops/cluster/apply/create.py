"""The changeset of a run: which one it is, what it will change, and its announcement before the first side effect.

The key of a changeset follows from the merge that it brings in, so that a run that is repeated finds the changeset that it has
made. After one that failed, the next attempt has a key of its own; what is left of a merge that landed, and a run without a
merge, are repairs, whose key follows from what the ledger holds and from the plan.
"""

from __future__ import annotations

from gitops.cluster.apply.run import Run
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.changeset import ChangesetBase, ChangesetKind, ChangesetState, Created
from gitops.cluster.model.ledger import changeset_key
from gitops.cluster.plan.changeset import ChangesetIdentity, approvals_required, first_record
from gitops.cluster.plan.open_changesets import facts_of
from gitops.cluster.session.workspace import ChangesetFacts
from gitops.core.errors import GitopsError

__all__ = ["announce"]


def announce(run: Run, part: str) -> bool:
    """Create the changeset of a run and write its intents; False if that failed, which is reported then.

    A run that is not atomic announces no more than its intents: without any, the changeset is recorded with the result.
    """
    current = run.session
    try:
        if not run.journal.recorded and any(c.disposition is Disposition.APPLIED for c in run.plan.changes):
            _create(run, part)
        if run.intents or (run.atomic and run.journal.drafts):
            run.announce()
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True


def _create(run: Run, part: str) -> None:
    current, facts = run.session, facts_of(run.session)
    state = current.state
    record = first_record(
        _identify(run, facts, part),
        run.plan,
        run.graph,
        source=facts.source,
        base=ChangesetBase(state.revision, current.view.cas, state.applied_digest, state.config_digest),
        covers=facts.covers,
        at=current.workspace.stamp(),
        atomic=run.atomic,
    )
    run.journal.add(Created(record), *approvals_required(run.plan))


def _identify(run: Run, facts: ChangesetFacts, part: str) -> ChangesetIdentity:
    """The identity of a changeset that does not exist yet. Raises GitopsError."""
    current = run.session
    ledger, governance = current.opened.ledger, current.workspace.governance
    cluster = governance.target.cluster if governance is not None else current.desired.name or "cluster"
    repair = f"{current.view.head or current.view.cas} {run.plan.digest}"
    kind, attempt, retry_of = facts.kind, facts.attempt, facts.retry_of
    subject = facts.source.merge_commit
    if subject is None:
        kind, subject = ChangesetKind.RECONCILE, repair
    while True:
        key = changeset_key(cluster, kind, subject, attempt=attempt, part=part)
        known = ledger.changeset(key)
        if known is None:
            return ChangesetIdentity(key, cluster, kind, attempt, part, retry_of)
        if known.state is not ChangesetState.FAILED and kind is not ChangesetKind.RECONCILE:
            kind, subject, attempt, retry_of = ChangesetKind.RECONCILE, repair, 1, None
            continue
        attempt += 1
        if kind is not ChangesetKind.RECONCILE:
            kind, retry_of = ChangesetKind.RETRY, key
