"""Records of calls in tests: a loop whose rules ask for them, the key of its servers, and records of any day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from gitops.cluster.ledger.use import UseListing, UseRecords, UseSource, use_rules
from gitops.cluster.model.use import (
    USE_NAMESPACE,
    ClientNames,
    KnownSegment,
    UseCount,
    UseRecord,
    UseRules,
    UseWindow,
)
from gitops.cluster.session.workspace import Stores
from gitops.core.clock import timestamp
from gitops.database.storage.local import LocalStore
from gitops.git.signatures import sign, verify_detached
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.loop import CLUSTER, CONFIG, Loop
from tests.support.pen import new_key

TITLES = "titles"
REVISION = "a" * 64


def now() -> datetime:
    """The time of the machine, by which programs that a test starts write and read records."""
    return SystemClock().now()


def record_key(folder: Path, seed: bytes = b"u" * 32) -> tuple[Path, str]:
    """A server's key in a folder, and its public half as gitops.yaml lists it."""
    path = folder / f"record-{seed[:1].decode()}"
    if not path.exists():
        new_key(path, "server", seed)
    return path, " ".join(path.with_suffix(".pub").read_text("utf-8").split()[:2])


def rules(key: str, *, gate: bool = False, more: str = "", preview: str = "window: 7d", record: str = "") -> str:
    """The text of gitops.yaml with these rules."""
    gated = "  gates: [lossy, breaks_clients]\n" if gate else ""
    return f'{CONFIG}{gated}{more}serve: {{record: counts, record_keys: ["{key}"]{record}}}\npreview: {{{preview}}}\n'


def root_of(loop: Loop) -> Path:
    """Where the graphs of a loop are, and the records beside them."""
    return loop.folder / "data" / CLUSTER


def signing(key: Path) -> Callable[[bytes], str]:
    """Signs records with a key."""
    return partial(sign, key=str(key), namespace=USE_NAMESPACE)


def source_of(loop: Loop, graph: str = "notes") -> UseSource:
    """What records of a graph of a loop are about."""
    local = loop.local()
    return source_in(local.stores(local.rule(), None, CLUSTER), graph)


def source_in(stores: Stores, graph: str = "notes") -> UseSource:
    """What records of a graph of these stores are about."""
    view = stores.ledger.view()
    found = use_rules(view)
    assert view.state is not None
    assert found is not None
    incarnation = view.state.observations[f"graph.{graph}"]["incarnation"]  # type: ignore[index]
    return UseSource(found, graph, str(incarnation))


def count(client: str, calls: int, query: str = TITLES, parameters: Sequence[str] = (), last: str = "") -> UseCount:
    """One count of a record."""
    return UseCount(REVISION, query, tuple(parameters), client, calls, 0, last or timestamp(now()))


def a_record(
    source: UseSource,
    day: datetime,
    *counts: UseCount,
    segment: str | None = None,
    knows: Sequence[KnownSegment] = (),
    floor: int = 0,
    clients: ClientNames = ClientNames.NAMED,
    rules: UseRules | None = None,
) -> UseRecord:
    """A record of a graph on a day."""
    at = rules or source.rules
    return UseRecord(
        at.repository,
        at.cluster,
        source.graph,
        source.incarnation,
        "web-1.0",
        segment or RandomIds().ulid(),
        day.date().isoformat(),
        clients,
        floor,
        tuple(knows),
        tuple(sorted(counts)),
    )


def records_at(root: Path) -> UseRecords:
    """The records below a storage root."""
    return UseRecords(lambda: LocalStore(root), verify_detached)


def write_days(loop: Loop, key: Path, *counts: UseCount, days: int = 8, graph: str = "notes") -> list[Path]:
    """A record for today and each of the days before, with the same counts; returns the objects."""
    source, today = source_of(loop, graph), now()
    for back in range(days):
        records_at(root_of(loop)).write(a_record(source, today - timedelta(days=back), *counts), signing(key))
    return sorted((root_of(loop) / "__cluster/use").iterdir())


def read_use(loop: Loop, days: int = 7, graph: str = "notes") -> UseListing:
    """What a plan reads about a graph."""
    return records_at(root_of(loop)).read([source_of(loop, graph)], UseWindow(now(), days))[graph]
