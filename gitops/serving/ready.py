"""`gitops ready`: whether the applied revision can be served, by the checks of a boot, and what a server would serve of it.

Of `cluster.yaml` only the place of the ledger is read. What is declared and not applied never shows.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.model.outcome import ReadyOutcome, StateObservations
from gitops.cluster.model.outcome import ServedGraph as ReadyGraph
from gitops.cluster.session.observations import observe, read_at_once
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.clock import Clock
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.serving.boot import BootRules, boot
from gitops.serving.generation import Generation
from gitops.serving.revision import AppliedRevision, verify_revision
from gitops.serving.texts import Compiled

__all__ = ["ready", "ready_outcome", "see_revision"]


def ready(workspace: Workspace) -> ReadyOutcome:
    """Check the applied revision as a server does before it starts. Writes nothing."""
    header, found = load_header(workspace.tree)
    seen, generation = StateObservations(), None
    try:
        if header is not None:
            stores = workspace.open_stores(header.storage)
            seen, revision = see_revision(stores, workspace.clock, found)
            if revision is not None:
                generation = boot(revision, stores, BootRules(), found, compile_policy=None, compiled=Compiled())
    except GitopsError as error:
        found.add_error(error)
    return ready_outcome(workspace.config_dir, seen, generation, found)


def see_revision(stores: Stores, clock: Clock, found: Diagnostics) -> tuple[StateObservations, AppliedRevision | None]:
    """What is seen of lock and ledger, and the verified revision; what is wrong with it is added to `found`.

    Raises RemoteError where the ledger does not answer.
    """
    held, listing, view = read_at_once(stores.ledger)
    revision = verify_revision(stores.ledger, listing, view, found)
    return observe(stores.ledger, view, held, clock.now()), revision


def ready_outcome(
    place: str, seen: StateObservations, generation: Generation | None, found: Diagnostics
) -> ReadyOutcome:
    """What a server serves of a generation, or why it does not start; `place` is shown as it was given.

    Why a graph is quarantined is a warning: the others are served.
    """
    graphs = () if generation is None or found.has_errors else tuple(generation.graphs.values())
    quarantined = () if generation is None else [each for of in generation.quarantined.values() for each in of]
    problems = [replace(each, severity=Severity.WARNING) for each in quarantined]
    return ReadyOutcome(
        config_dir=place,
        observations=seen,
        graphs=tuple(
            ReadyGraph(each.graph_id, each.uri, each.schema_digest, tuple(each.queries), each.policy) for each in graphs
        ),
        cluster_policy=None if generation is None or found.has_errors else generation.policy,
        diagnostics=(*found, *problems),
    )
