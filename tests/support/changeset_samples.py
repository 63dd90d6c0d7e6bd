"""Changesets of the cluster `library` by number, and their events, for tests of whatever records or checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetBase,
    ChangesetKind,
    ChangesetResult,
    ChangesetSource,
    Committed,
    Created,
    Drained,
    EventDraft,
    Finalized,
    Happening,
    Member,
    PlanFacts,
    Prepared,
    Removal,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import changeset_key
from gitops.cluster.model.plan import NodeOutcome, RunNode, RunRecord

AT = "2026-07-02T09:00:00Z"
D = "ab" * 32
RESULT = ChangesetResult(2, converged=True, no_change=False, counts={"applied": 1}, duration_ms=5)


def key(number: int) -> str:
    """The key of a changeset of the tests."""
    return first_record(number).key


def commit_id(number: int) -> str:
    """The merge that it brings in."""
    return f"{number:040x}"


def member(name: str) -> Address:
    return Address(f"query.library.{name}")


def first_record(number: int, *names: str, plan: str = D, removes: str = "", part: str = "1/1") -> Changeset:
    """The record that a changeset begins with: a stage member for each name."""
    return Changeset(
        changeset_key("library", "merge", commit_id(number), part=part),
        "library",
        ChangesetKind.MERGE,
        1,
        part,
        AT,
        AT,
        ChangesetSource("main", commit_id(number), None, number, "mira"),
        ChangesetBase(1, "sha256:" + D, D, None),
        D,
        PlanFacts(plan, len(names), 0, 1),
        members=tuple(Member(member(name), Action.UPDATE, Effect.STAGE, D, D) for name in names),
        removals=(Removal(member(removes), D),) if removes else (),
        covers=(commit_id(number),),
    )


def drafts(number: int, *happenings: Happening, part: str = "1/1") -> tuple[EventDraft, ...]:
    return tuple(EventDraft(first_record(number, part=part).key, AT, each) for each in happenings)


def created(number: int, *names: str, **more: str) -> tuple[EventDraft, ...]:
    return drafts(number, Created(first_record(number, *names, **more)), part=more.get("part", "1/1"))


def ready(name: str) -> RuntimeUpdated:
    return RuntimeUpdated(member(name), Runtime(RuntimeState.READY, 1, AT, AT))


PASSING = (Prepared(()), Committed(2, 1, ()), Drained(0, "nothing is served"), Finalized(RESULT))
"""The four boundaries, for a changeset whose members are ready."""


def whole(number: int, *names: str) -> tuple[EventDraft, ...]:
    """All events of a changeset that lands."""
    return (*created(number, *names), *drafts(number, *map(ready, names), *PASSING))


def run_of(*names: str, outcome: NodeOutcome = NodeOutcome.DONE) -> RunRecord:
    """A run by one worker that carried out these members, one after the other."""
    nodes = (RunNode(member(name), 0, n, n + 1, 1, None, (), outcome) for n, name in enumerate(names))
    return RunRecord(1, tuple(nodes))


def with_run(events: Sequence[EventDraft], run: RunRecord) -> tuple[EventDraft, ...]:
    """The events, with the run that ends with the last of them."""
    return (*events[:-1], replace(events[-1], run=run))
