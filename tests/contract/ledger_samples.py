"""Values that the contract of a ledger store is told with, and what a test needs to tell it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from gitops.cluster.ledger.port import LedgerStore, LedgerView, LedgerWrite
from gitops.cluster.model.address import Address, policy_address, query_address
from gitops.cluster.model.approval import Approval, ClusterTarget
from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import (
    AppliedResource,
    EntryKind,
    Intent,
    IntentKind,
    LedgerEntry,
    LedgerState,
    LockInfo,
    SourceRevision,
    Status,
    StatusRecord,
)
from gitops.core.canonical import digest
from gitops.core.clock import encode_ulid
from gitops.core.errors import GitopsError

T = TypeVar("T")
MakeStore = Callable[[], LedgerStore]

DOCUMENTS = Path(__file__).parents[1] / "data" / "documents"
QUERY = query_address("catalogue", "by_handle")
POLICY = policy_address("readers")
CONTENT = b"query by_handle() { match { $a: Author } return { $a } }\n"


class Files(Protocol):
    """The raw files of a ledger."""

    def plant(self, key: str, data: bytes | None) -> None: ...

    def stored(self, key: str) -> bytes | None: ...


def ulid(number: int) -> str:
    return encode_ulid(1_700_000_000_000, number)


def state(revision: int, **resources: str) -> LedgerState:
    """A state whose config digest follows from its revision, so that a torn reading would show."""
    return LedgerState(
        revision=revision,
        config_digest=digest(str(revision).encode()),
        resources={Address(f"graph.{name}"): AppliedResource(text) for name, text in resources.items()},
        statuses={Address(f"graph.{name}"): StatusRecord(Status.APPLIED) for name in resources},
    )


def entry(kind: EntryKind, revision: int) -> LedgerEntry:
    return LedgerEntry(
        number=1,
        kind=kind,
        operation=ulid(900 + revision),
        at=f"2026-07-02T09:{revision % 60:02}:00Z",
        actor="mira",
        target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
        previous=None,
        source=SourceRevision("2" * 40, "3" * 40),
        changeset=None,
        plan_digest="4" * 64,
        config_digest=digest(str(revision).encode()),
        state_revision=revision,
        policy_digest="5" * 64,
        trust_digest="6" * 64,
    )


def write(after: LedgerState, *, retire: Sequence[str] = (), consumed: Sequence[Approval] = ()) -> LedgerWrite:
    kind = EntryKind.IMPORT if after.revision == 1 else EntryKind.APPLY
    return LedgerWrite(after, entry(kind, after.revision), tuple(retire), tuple(consumed))


def lock(number: int, operation: str = "apply") -> LockInfo:
    return LockInfo(ulid(number), operation, "2026-07-02T09:00:00Z", 4242)


def intent(number: int, kind: IntentKind = IntentKind.SCHEMA_APPLY) -> Intent:
    return Intent(
        operation_id=ulid(number),
        started_at="2026-07-02T09:00:00Z",
        actor=None,
        kind=kind,
        graph_id="catalogue",
        graph_uri="/srv/graphs/catalogue.omni",
        observed_manifest_version=7,
        expected_manifest_version=None,
        desired_schema_digest="8" * 64,
        state_cas_base=None,
        approval_id=None,
    )


def approval(number: int) -> Approval:
    return Approval(
        approval_id=ulid(number),
        resource=Address("graph.staging"),
        operation=Action.DELETE,
        reason="irreversible",
        bound_config_digest="1" * 64,
        bound_before_digest="2" * 64,
        bound_after_digest=None,
        approved_by="ada",
        created_at="2026-07-02T08:00:00Z",
    )


def begun(store: LedgerStore, *intents: Intent) -> LedgerView:
    """An imported ledger in which a run has armed `intents`; the view to commit against."""
    view = store.commit(store.view(), write(state(1)))
    view = store.begin(view, intents, entry(EntryKind.INTENT, 1))
    for each in intents:
        store.arm(each)
    return view


def together(work: Sequence[Callable[[], T]]) -> list[T | GitopsError]:
    """Start all of `work` at once, each in its thread; results in order, an expected failure as its exception."""
    gate = threading.Barrier(len(work))
    results: dict[int, T | GitopsError] = {}

    def run(index: int) -> None:
        gate.wait()
        try:
            results[index] = work[index]()
        except GitopsError as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[index] for index in range(len(work))]


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(GitopsError) as caught:
        action()
    return caught.value.code
