"""Laws of recorded use: the sketch keeps its bounds over every order of calls and merges, and readings over every split."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from gitops.cluster.model.use import (
    Callers,
    CallSketch,
    ClientCalls,
    ClientNames,
    UseCount,
    UseReading,
    UseRecord,
    UseState,
    UseWindow,
    callers_moved,
    why_asked,
)

KEYS = st.sampled_from([(each,) for each in "abcdefghij"])
STREAMS = st.lists(st.tuples(KEYS, st.integers(1, 9)), max_size=60)
CAPACITY = st.integers(1, 6)
AT = "2026-03-10T12:00:00Z"


def sketch(stream: list[tuple[tuple[str], int]], capacity: int) -> CallSketch[tuple[str]]:
    made: CallSketch[tuple[str]] = CallSketch(capacity)
    for key, calls in stream:
        made.add(key, calls, AT)
    return made


def merged(one: CallSketch[tuple[str]], other: CallSketch[tuple[str]], capacity: int) -> CallSketch[tuple[str]]:
    made: CallSketch[tuple[str]] = CallSketch(capacity)
    for each in (one, other):
        made.merge(each.items(), each.floor)
    return made


def real(stream: list[tuple[tuple[str], int]]) -> Counter[tuple[str]]:
    found: Counter[tuple[str]] = Counter()
    for key, calls in stream:
        found[key] += calls
    return found


def assert_bounds(found: CallSketch[tuple[str]], calls: Counter[tuple[str]], capacity: int) -> None:
    held = dict(found.items())
    assert len(held) <= capacity
    assert found.floor * capacity <= calls.total()
    for key, tally in held.items():
        assert tally.calls - tally.error <= calls[key] <= tally.calls
        assert tally.error <= found.floor
    assert all(calls[key] <= found.floor for key in calls.keys() - held.keys())


@given(STREAMS, CAPACITY)
def test_a_sketch_keeps_its_bounds_and_is_exact_while_it_has_room(
    stream: list[tuple[tuple[str], int]], capacity: int
) -> None:
    found, calls = sketch(stream, capacity), real(stream)
    assert_bounds(found, calls, capacity)
    assert found.calls == calls.total()
    if len(calls) <= capacity:
        assert found.floor == 0


FULL = [(("b",), 3), (("a",), 1)]


@given(STREAMS, STREAMS, STREAMS, CAPACITY)
@example(FULL, FULL, [], 1)
def test_merging_keeps_the_bounds_and_has_no_order(
    one: list[tuple[tuple[str], int]],
    other: list[tuple[tuple[str], int]],
    third: list[tuple[tuple[str], int]],
    capacity: int,
) -> None:
    left, right = sketch(one, capacity), sketch(other, capacity)
    found, mirrored = merged(left, right, capacity), merged(right, left, capacity)
    assert (list(found.items()), found.floor) == (list(mirrored.items()), mirrored.floor)
    assert_bounds(found, real(one) + real(other), capacity)
    # A merged sketch counts and merges on.
    for key, calls in third:
        found.add(key, calls, AT)
    assert_bounds(found, real(one) + real(other) + real(third), capacity)
    assert_bounds(merged(found, left, capacity), real(one) + real(one) + real(other) + real(third), capacity)


RECORDS = st.lists(
    st.lists(st.tuples(st.sampled_from(["billing", "crm", "bot"]), st.integers(1, 50)), max_size=4), max_size=5
)


@given(RECORDS, st.randoms(use_true_random=False))
def test_a_reading_has_no_order_and_adds_up_what_processes_counted(
    records: list[list[tuple[str, int]]], random: object
) -> None:
    made = [
        UseRecord("r", "c", "g", "i", "s", f"{n:026}", "2026-03-10", ClientNames.NAMED, 0, (), tuple(
            UseCount("a" * 64, "q", (f"p{at}: text",), client, calls, 0, AT) for at, (client, calls) in enumerate(counts)
        ))
        for n, counts in enumerate(records)
    ]  # fmt: skip
    shuffled = list(made)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    window = UseWindow(datetime(2026, 3, 10, 12, tzinfo=UTC), 1)
    readings = []
    for order in (made, shuffled, made + made):
        reading = UseReading(window)
        for each in order:
            reading.add(each)
        readings.append(reading.use(AT, "i"))
    assert readings[0] == readings[1] == readings[2]
    found: Counter[str] = Counter()
    for each in readings[0].calls:
        found[each.client] += each.calls
    assert found == real([(client, calls) for counts in records for client, calls in counts])  # type: ignore[arg-type]
    assert (readings[0].state is UseState.COUNTED) == bool(records)


CLIENTS = st.lists(
    st.builds(ClientCalls, st.sampled_from(["a", "b", "c"]), st.integers(1, 5000), st.just(AT)),
    max_size=3,
    unique_by=lambda each: each.client,
).map(tuple)
CALLERS = st.builds(
    Callers,
    st.sampled_from(UseState),
    CLIENTS,
    st.just(7),
    st.just(AT),
    st.sampled_from(["", "not recorded since 2026-03-01"]),
    st.integers(0, 1),
    st.integers(0, 1),
)


@given(CALLERS, st.frozensets(st.sampled_from(["a", "b", "c"])), st.sampled_from(["a", "b", "c"]))
def test_nothing_unknown_opens_the_gate_and_listing_a_client_only_opens_it(
    callers: Callers, listed: frozenset[str], more: str
) -> None:
    asked = why_asked(callers, listed)
    if not callers.complete:
        assert asked
    if not asked:
        assert {each.client for each in callers.clients} <= listed
        assert not why_asked(callers, listed | {more})


@given(CALLERS, CALLERS)
def test_an_approval_covers_what_it_saw_and_no_client_that_it_did_not_see(one: Callers, other: Callers) -> None:
    assert not callers_moved(one, one, lambda seen: seen)
    if one.state is UseState.COUNTED is other.state and not callers_moved(one, other, lambda seen: seen + 1000):
        calls = {each.client: each.calls for each in one.clients}
        assert all(each.calls <= calls[each.client] + 1000 for each in other.clients)
