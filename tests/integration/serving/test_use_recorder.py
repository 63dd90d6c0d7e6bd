"""The recorder of a server's calls: bounded, by a clock that jumps, over a storage that fails, and killed between writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gitops.cluster.ledger.use import UseListing, UseRecords, UseSource, read_use_object, write_use_object
from gitops.cluster.model.use import MOST_KEYS, USE_NAMESPACE, ClientNames, UseRules, UseState, UseWindow
from gitops.core.faults import Faults
from gitops.git import signatures
from gitops.git.signatures import verify_detached
from gitops.serving.use import RecordKey, SteadyClock, UseRecorder
from tests.support.clock import FixedClock
from tests.support.faults import Death, EndAt
from tests.support.ids import SequentialIds
from tests.support.memory_store import BrokenStore
from tests.support.recorded_use import a_record, count, record_key, signing
from tests.support.serving import Log, logger

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SHAPE = {"slug": "ada", "limit": 3}


@dataclass
class Server:
    """A server whose recorder works in this thread, on a storage that others share with it."""

    key: RecordKey | None
    rules: UseRules | None
    store: BrokenStore = field(default_factory=BrokenStore)
    clock: FixedClock = field(default_factory=lambda: FixedClock(NOON))
    log: Log = field(default_factory=Log)
    notes: list[str] = field(default_factory=list)
    faults: Faults | None = None
    ids: SequentialIds = field(default_factory=SequentialIds)

    def __post_init__(self) -> None:
        self.graph: Any = SimpleNamespace(graph_id="people", seen=SimpleNamespace(incarnation="born"))
        self.recorder = UseRecorder(
            lambda: self.generation,
            "web",
            lambda: UseRecords(lambda: self.store, verify_detached),
            self.key,
            self.clock,
            self.ids,
            logger(self.log.write),
            self.notes.append,
            self.faults,
        )

    @property
    def generation(self) -> Any:
        return SimpleNamespace(use=self.rules, graphs={"people": self.graph}, revision=SimpleNamespace(digest="a" * 64))

    def call(self, client: str = "billing", times: int = 1, query: str = "find", **params: object) -> None:
        for _ in range(times):
            self.recorder.count(self.generation, self.graph, query, params, client)

    def minutes(self, number: int = 1) -> None:
        """Let the recorder look once a minute."""
        for _ in range(number):
            self.clock.advance(MINUTE)
            self.recorder.look()

    def again(self, **more: Any) -> Server:
        """Another process on the same storage and clock."""
        fields = {"store": self.store, "clock": self.clock, "ids": self.ids, "faults": None}
        return Server(self.key, self.rules, **{**fields, **more})

    def read(self, days: int = 7, at: datetime | None = None) -> UseListing:
        source = UseSource(self.rules or RULES, "people", "born")
        window = UseWindow(at or self.clock.now(), days)
        return UseRecords(lambda: self.store, verify_detached).read([source], window)["people"]

    def calls(self, **more: Any) -> dict[str, int]:
        """The recorded calls by client."""
        found: dict[str, int] = {}
        for each in self.read(**more).use.calls:
            found[each.client] = found.get(each.client, 0) + each.calls
        return found

    @property
    def days(self) -> list[str]:
        return [name.partition(".")[0] for name in self.store.names("__cluster/use")]


RULES = UseRules("repo", "brain", ClientNames.NAMED, ())


@pytest.fixture
def server(tmp_path: Path) -> Server:
    path, public = record_key(tmp_path)
    blob = public.partition(" ")[2]
    return Server(RecordKey(blob, signing(path)), replace(RULES, keys=(blob,)))


def test_a_record_has_names_and_types_of_parameters_and_never_a_value(server: Server) -> None:
    server.call(**SHAPE)
    server.call(slug=None)
    server.minutes()
    (name,) = server.store.names("__cluster/use")
    data = server.store.read(f"__cluster/use/{name}") or b""
    assert b"ada" not in data
    record = read_use_object(data, server.rules.keys, verify_detached)
    assert [each.parameters for each in record.counts] == [("limit: number", "slug: text"), ("slug: null",)]


def test_a_million_shapes_stay_bounded_and_no_call_is_missing_from_the_sum(server: Server) -> None:
    """Scenario 72. Once there are more keys than are counted, the record says so."""
    generation = server.generation
    for number in range(1_000_000):
        server.recorder.count(generation, server.graph, "find", {f"p{number}": 1}, "crawler")
    server.call("billing", times=2000)
    server.minutes()
    (name,) = server.store.names("__cluster/use")
    data = server.store.read(f"__cluster/use/{name}") or b""
    assert len(data) < 400 * MOST_KEYS
    record = read_use_object(data, server.rules.keys, verify_detached)
    assert len(record.counts) <= MOST_KEYS
    assert record.calls >= 1_002_000
    assert 0 < record.floor <= 1_002_000 / MOST_KEYS
    (billing,) = [each for each in record.counts if each.client == "billing"]
    assert billing.calls - billing.error <= 2000 <= billing.calls
    use = server.read().use
    assert use.floor == record.floor


def test_processes_write_objects_of_their_own_and_a_day_without_calls_has_one_too(server: Server) -> None:
    other = server.again()
    server.call(times=2)
    for each in (server, other, server):
        each.minutes()
    assert (server.calls(), len(server.days)) == ({"billing": 2}, 2)
    other.call(times=3)
    other.minutes()
    assert (server.calls(), len(server.days)) == ({"billing": 5}, 2)


def test_a_new_day_begins_an_object_and_old_ones_are_removed(server: Server) -> None:
    for _ in range(95 * 4):
        server.call()
        server.clock.advance(6 * HOUR)
        server.recorder.look()
    assert len(server.days) == 91
    assert server.days[0] == (server.clock.now() - 90 * DAY).date().isoformat()
    assert server.calls(days=60)["billing"] == 4 * 60 + server.clock.now().hour // 6 + 1


def test_a_clock_that_jumps_and_returns_loses_counts_and_doubles_none(server: Server) -> None:
    """Scenario 73: for less than an hour, a jump does not exist."""
    for years in (40, -40, 40):
        server.call(times=2)
        server.clock.jump(years * 365 * DAY)
        server.minutes(30)
        server.call(times=3)
        server.clock.jump(-years * 365 * DAY)
        server.minutes(30)
    assert server.calls() == {"billing": 15}
    assert set(server.days) == {"2026-03-10"}


def test_a_day_in_the_future_counts_and_is_dated_again_by_a_server_whose_clock_is_right(server: Server) -> None:
    """Scenario 73: a clock that stays wrong for longer writes a day that would never be old enough to be removed."""
    right = server.again(clock=FixedClock(NOON))
    server.clock.jump(40 * 365 * DAY)
    server.minutes(70)
    server.call(times=3)
    server.minutes()
    assert any(day > "2060" for day in server.days)
    assert right.calls() == {"billing": 3}
    right.minutes(70)
    assert set(right.days) == {"2026-03-10"}
    assert right.calls() == {"billing": 3}


def test_a_server_that_started_with_a_wrong_clock_removes_nothing_once_it_is_corrected(server: Server) -> None:
    server.call()
    server.minutes()
    wrong = server.again(clock=FixedClock(NOON + 200 * DAY))
    wrong.minutes(30)
    wrong.clock.jump(-200 * DAY)
    wrong.minutes(59)
    assert server.calls() == {"billing": 1}


def test_an_interrupted_redating_counts_its_calls_once(server: Server) -> None:
    source = UseSource(server.rules, "people", "born")
    future = a_record(source, NOON + 400 * DAY, count("billing", 7))
    records = UseRecords(lambda: server.store, verify_detached)
    records.write(future, server.key.sign)
    records.write(future.dated("2026-03-10"), server.key.sign)
    assert server.calls() == {"billing": 7}
    server.minutes(70)
    assert set(server.days) == {"2026-03-10"}
    assert server.calls() == {"billing": 7}


@pytest.mark.parametrize("operation", ["write", "read"])
@pytest.mark.parametrize("too_late", [False, True])
def test_a_storage_that_fails_costs_no_call_and_no_count(server: Server, operation: str, *, too_late: bool) -> None:
    server.call()
    server.minutes()
    server.store.broken, server.store.too_late = {(operation, "__cluster/use")}, too_late
    server.clock.advance(DAY)
    server.call(times=2)
    server.minutes(3)
    server.store.broken = set()
    assert server.notes[-3:] == ["failed"] * 3
    assert len([line for line in server.log.lines if "the disk is on fire" in line]) == 1
    server.call()
    server.minutes()
    assert server.calls() == {"billing": 4}
    assert server.log.lines[-1] == "calls are recorded again"
    # The storage is not asked for anything while a call is answered.
    server.store.broken = {(each, "") for each in ("read", "write", "create", "replace", "delete")}
    server.call()


@pytest.mark.parametrize(("point", "kept"), [("use_record.before_write", 1), ("use_record.after_write", 3)])
def test_a_process_that_dies_around_a_write_loses_at_most_a_minute(server: Server, point: str, kept: int) -> None:
    dying = server.again(faults=EndAt(point, visit=2))
    dying.call()
    dying.minutes()
    dying.call(times=2)
    with pytest.raises(Death):
        dying.minutes()
    successor = server.again()
    successor.call(times=4)
    successor.minutes()
    assert successor.calls() == {"billing": kept + 4}


def test_a_record_that_somebody_removes_is_missed(server: Server) -> None:
    other, keeper = server.again(), server.again()
    other.call("crm")
    other.minutes()
    keeper.minutes()
    assert server.read(days=1).use.gap == "recorded only since 2026-03-10"
    for name in server.store.names("__cluster/use"):
        if b"crm" in (server.store.read(f"__cluster/use/{name}") or b""):
            server.store.delete(f"__cluster/use/{name}")
    assert server.read(days=1).use.gap == "1 of its records is missing"


def test_a_process_misses_its_own_record_of_the_day_before(server: Server) -> None:
    server.call()
    server.minutes()
    (name,) = server.store.names("__cluster/use")
    server.store.delete(f"__cluster/use/{name}")
    server.clock.advance(DAY)
    server.minutes()
    assert server.read(days=1).use.gap == "1 of its records is missing"


def test_a_graph_that_is_created_again_has_a_record_of_its_own(server: Server) -> None:
    server.call(times=5)
    server.minutes()
    server.graph.seen.incarnation = "born again"
    server.call("crm")
    server.minutes()
    source = UseSource(server.rules, "people", "born again")
    use = UseRecords(lambda: server.store, verify_detached).read([source], UseWindow(NOON, 1))["people"].use
    assert [(each.client, each.calls) for each in use.calls] == [("crm", 1)]
    assert use.gap == "recorded only since 2026-03-10"
    assert server.calls() == {"billing": 5}


FORGED = {
    "another key": "its key is not in serve.record_keys",
    "another purpose": "the signature was made for another purpose",
    "another count": "the signature does not match the content",
    "no JSON": "not JSON",
    "another cluster": "it is about cluster other of repository repo",
    "another repository": "it is about cluster brain of repository other",
    "another day": "it was written as 2026-03-10.people.",
    "another segment": "it was written as 2026-03-10.people.",
    "another graph": "it was written as 2026-03-10.cities.",
}


@pytest.mark.parametrize("case", FORGED)
def test_an_object_that_was_made_for_something_else_is_refused(server: Server, tmp_path: Path, case: str) -> None:
    """Scenario 71: whatever an account with access to the storage writes or copies, it counts nothing and leaves a gap."""
    assert server.key is not None
    assert server.rules is not None
    source = UseSource(server.rules, "people", "born")
    record = a_record(source, NOON, count("billing", 3))
    sign, other = server.key.sign, record_key(tmp_path, b"v" * 32)[0]
    if case in ("another key", "another purpose"):
        key, namespace = (other, USE_NAMESPACE) if case == "another key" else (tmp_path / "record-u", "git")
        sign = partial(signatures.sign, key=str(key), namespace=namespace)
    changed = {"another cluster": {"cluster": "other"}, "another repository": {"repository": "other"}}
    changed["another graph"] = {"graph": "cities"}
    data = write_use_object(replace(record, **changed.get(case, {})), sign)
    data = {"another count": data.replace(b'"calls": 3', b'"calls": 1'), "no JSON": b"{"}.get(case, data)
    day = "2026-03-09" if case == "another day" else record.day
    segment = server.ids.ulid() if case == "another segment" else record.segment
    server.store.write(f"__cluster/use/{day}.people.{segment}.json", data)
    listing = server.read()
    assert (listing.use.calls, listing.use.untrusted) == ((), 1)
    (refused,) = listing.refused
    assert FORGED[case] in refused.detail


def test_without_a_listed_key_or_without_the_rule_nothing_is_written(server: Server) -> None:
    said = []
    for changed in ({"key": None}, {"rules": replace(RULES, keys=("other",))}, {"rules": None}):
        each = server.again()
        each = Server(
            changed.get("key", each.key), changed.get("rules", each.rules), store=each.store, clock=each.clock
        )
        each.call()
        each.minutes(2)
        said.append(each.log.lines)
    assert server.days == []
    assert said == [
        ["WARNING calls are not recorded: the rules in force record calls; start the server with --record-key FILE"],
        [
            "WARNING calls are not recorded: serve.record_keys of the rules in force does not list the key of --record-key"
        ],
        ["WARNING calls are not recorded: serve.record of the rules in force is off"],
    ]
    assert server.read().use.state is UseState.NOT_RECORDED


def test_hidden_clients_are_compared_but_not_named(server: Server) -> None:
    hidden = server.again()
    hidden.rules = replace(server.rules, clients=ClientNames.HASHED)
    hidden.call("billing")
    hidden.call("billing")
    hidden.minutes()
    ((client, calls),) = hidden.calls().items()
    assert (client.startswith("client-"), "billing" in client, calls) == (True, False, 2)


def test_calls_are_counted_while_another_thread_writes(server: Server) -> None:
    stopped = threading.Event()

    def write() -> None:
        while not stopped.is_set():
            server.recorder.look()

    writing = threading.Thread(target=write)
    writing.start()
    server.call(times=20_000)
    stopped.set()
    writing.join()
    server.recorder.look()
    assert server.calls() == {"billing": 20_000}


def test_a_steady_clock_follows_a_correction_at_once_and_a_jump_after_an_hour() -> None:
    clock = FixedClock(NOON)
    steady = SteadyClock(clock)
    clock.jump(timedelta(seconds=20))
    assert steady.now() == NOON + timedelta(seconds=20)
    clock.jump(-2 * DAY)
    assert (steady.now(), steady.settled) == (NOON + timedelta(seconds=20), False)
    clock.advance(59 * MINUTE)
    assert steady.now().date() == NOON.date()
    clock.advance(2 * MINUTE)
    assert (steady.now(), steady.settled) == (clock.now(), True)
