"""Kill writers of mutations and loads at any moment, and let several write at once: nothing half, nothing lost, nothing twice."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError
from gitops.database.graph import tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write.memory import WriterMemory
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from tests.fault.test_engine_kill import HERE, say
from tests.support.faults import DieAt
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, NOW, WrittenGraph, no_pause

SCHEMA = """
node Counter { name: String @key  value: I64 }
node Event { n: I64 @key  by: I64  mark: String? @unique }
edge Of: Event -> Counter @card(1..1)
"""
ADD = """
insert Event { n: $n, by: $by, mark: $mark }
insert Of { from: $mark, to: "c" }
update Counter set { value: $n } where name = "c"
"""
SIGNATURE = "$n: I64, $by: I64, $mark: String"


def child(*arguments: str) -> subprocess.Popen[bytes]:
    """Another process that calls a function of this module."""
    code = (
        "import sys; from tests.fault import test_mutation_kill as t; getattr(t, sys.argv[1])(*map(eval, sys.argv[2:]))"
    )
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, cwd=HERE)


def begin(folder: Path) -> WrittenGraph:
    graph = WrittenGraph(folder / "g.omni").create(SCHEMA)
    graph.mutate('insert Counter { name: "c", value: 0 }')
    return graph


def counted(graph: WrittenGraph) -> int:
    """The number of events, after a look at whether all tables agree with each other and with the manifest."""
    (counter,) = graph.rows("Counter")
    numbers = [row["data"]["n"] for row in graph.rows("Event")]
    sources = [row["from"] for row in graph.rows("Of")]
    value = counter["data"]["value"]
    assert sorted(numbers) == list(range(1, value + 1))
    assert sorted(sources, key=int) == [str(n) for n in range(1, value + 1)]
    assert graph.counts() == {"Counter": 1, "Event": value, "Of": value}
    return value


def add(graph: WrittenGraph, n: int, by: int, mutator: Mutator, head: int | None = None) -> int:
    params = {"n": n, "by": by, "mark": str(n)}
    options = MutationOptions(NOW, expected_head=head)
    return mutator.run(graph.uri, graph.query(ADD, SIGNATURE), params, options).manifest_version


def write_forever(uri: str, seed: int) -> None:
    """What the child does: mutations, replacing loads and deletes of what was just added, and says each version."""
    graph, chance = WrittenGraph(uri, seed * 1_000_000), random.Random(seed)  # noqa: S311 - a test's order
    value = counted(graph)
    mutator = Mutator(CLOCK, graph.ids, pause=no_pause)
    tables._TIDY_FRAGMENTS = 2
    say("ready")
    while True:
        deed = chance.randrange(4)
        if deed == 0 and value > 0:
            graph.load([{"type": "Event", "data": {"n": n, "by": seed, "mark": str(n)}} for n in range(1, value + 1)])
        elif deed == 1:
            events = [{"type": "Event", "data": {"n": n, "by": 0, "mark": str(n)}} for n in range(1, value + 1)]
            edges = [{"edge": "Of", "from": str(n), "to": "c"} for n in range(1, value + 1)]
            counter = {"type": "Counter", "data": {"name": "c", "value": value}}
            graph.load([counter, *events, *edges], LoadMode.OVERWRITE)
        else:
            value += 1
            add(graph, value, seed, mutator)
        say(json.dumps({"version": graph.version, "value": value}))


@pytest.mark.slow
def test_killed_writers_never_break_a_graph(tmp_path: Path) -> None:
    graph = begin(tmp_path)
    chance = random.Random(5)  # noqa: S311 - when to kill, not a secret
    for turn in range(1, 21):
        before = graph.version, counted(graph)
        process = child("write_forever", repr(graph.uri), repr(turn))
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        told = [json.loads(line) for line in rest.splitlines() if line.endswith(b"}")]
        version, value = (told[-1]["version"], told[-1]["value"]) if told else before
        assert graph.version in (version, version + 1)
        assert counted(graph) in (value, value + 1)
        add(graph, counted(graph) + 1, 0, Mutator(CLOCK, SequentialIds(turn * 1_000 + 500), pause=no_pause))
    counted(graph)


def die_mutating(uri: str, point: str) -> None:
    graph = WrittenGraph(uri)
    add(graph, 2, 1, Mutator(CLOCK, SequentialIds(9_000), DieAt(point)))


def die_joining(uri: str, point: str) -> None:
    """Die where the small fragments of every table are joined in the same change."""
    tables._TIDY_FRAGMENTS = 0
    die_mutating(uri, point)


def die_deleting(uri: str, point: str) -> None:
    graph = WrittenGraph(uri)
    query = graph.query("delete Event where n = 1")
    Mutator(CLOCK, SequentialIds(9_000), DieAt(point)).run(uri, query, None, MutationOptions(NOW))


def die_overwriting(uri: str, point: str) -> None:
    stream = io.BytesIO(json.dumps({"type": "Event", "data": {"n": 1, "by": 7}}).encode())
    load_records(
        LoadRequest(uri, stream, LoadMode.OVERWRITE), WriteContext(CLOCK, SequentialIds(9_000), faults=DieAt(point))
    )


MOMENTS = ("before_tables", "staged", "before_publish", "after_publish")
DEATHS = [
    ("die_mutating", "engine.mutate"),
    ("die_joining", "engine.mutate"),
    ("die_deleting", "engine.mutate"),
    ("die_overwriting", "engine.load"),
]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("deed", "area"), DEATHS)
def test_death_at_a_point_leaves_the_version_before_or_after(tmp_path: Path, deed: str, area: str, moment: str) -> None:
    graph = begin(tmp_path)
    add(graph, 1, 0, Mutator(CLOCK, graph.ids))
    before, version = graph.lines(), graph.version
    process = child(deed, repr(graph.uri), repr(f"{area}.{moment}"))
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done = moment == "after_publish"
    assert graph.version == version + done
    assert (graph.lines() == before) == (not done)
    # Whatever the dead writer left, the next ones go on.
    graph.mutate('insert Event { n: 50, by: 5 }  insert Of { from: "50", to: "c" }')
    graph.load([{"type": "Event", "data": {"n": 51, "by": 5}}])
    assert graph.version == version + done + 2
    assert {"50", "51"} <= {row["data"]["id"] for row in graph.rows("Event")}
    assert {name: len(graph.rows(name)) for name in graph.counts()} == graph.counts()


CROWD = 12


def write_together(uri: str, start: int) -> None:
    """What the child does: threads that count up a row of their own, and say each number after its version is published."""
    graph, memory, lock = WrittenGraph(uri), WriterMemory(), threading.Lock()
    query = graph.query("update Event set { by: $by } where n = $n", "$n: I64, $by: I64")

    def run(n: int) -> None:
        mutator = Mutator(CLOCK, SequentialIds(start + 10_000 * n), pause=no_pause, memory=memory)
        for by in range(1, 1_000_000):
            result = mutator.run(graph.uri, query, {"n": n, "by": start + by}, MutationOptions(NOW))
            with lock:
                say(json.dumps({"n": n, "by": start + by, "version": result.manifest_version}))

    say("ready")
    threads = [threading.Thread(target=run, args=(n,)) for n in range(CROWD)]
    for thread in threads:
        thread.start()
    threads[0].join()


@pytest.mark.slow
def test_of_a_crowd_that_is_killed_nothing_is_lost_that_was_answered(tmp_path: Path) -> None:
    graph = WrittenGraph(tmp_path / "g.omni").create(SCHEMA)
    graph.load([{"type": "Event", "data": {"n": n, "by": 0}} for n in range(CROWD)])
    chance, grouped = random.Random(9), 0  # noqa: S311 - when to kill, not a secret
    for turn in range(1, 9):
        start = turn * 1_000_000
        process = child("write_together", repr(graph.uri), repr(start))
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        told: list[dict[str, int]] = []
        # At some moment after the first answers.
        for line in process.stdout:
            told.append(json.loads(line))
            if len(told) >= CROWD + chance.randrange(60):
                break
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        told += [json.loads(line) for line in rest.splitlines() if line.endswith(b"}")]
        last = {each["n"]: each["by"] for each in told}
        rows = {row["data"]["n"]: row["data"]["by"] for row in graph.rows("Event")}
        assert len(rows) == CROWD == graph.counts()["Event"]
        # What was published and not answered is one change of each thread at most.
        assert all(rows[n] - by in (0, 1) for n, by in last.items())
        assert graph.version >= max(each["version"] for each in told)
        grouped += len(told) - len({each["version"] for each in told})
        assert verify_graph(graph.uri, deep=True).ok
        graph.mutate("insert Event { n: 50, by: 5 }")
        graph.mutate("delete Event where n = 50")
    assert grouped


def write_some(uri: str, by: int, times: int) -> None:
    """What one of several writers does: count on from what is there, guarded by the head, and insert a key of all."""
    graph = WrittenGraph(uri, by * 1_000_000)
    mutator = Mutator(CLOCK, graph.ids)
    shared = graph.query("insert Event { n: $n, by: $by }", "$n: I64, $by: I64")
    done = 0
    while done < times:
        head = graph.version
        value = graph.rows("Counter")[0]["data"]["value"]
        try:
            add(graph, value + 1, by, mutator, head)
        except ConflictError:
            continue
        done += 1
        mutator.run(uri, shared, {"n": 1_000, "by": by}, MutationOptions(NOW))
    say("done")


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 4])
def test_processes_that_write_at_once_lose_no_update_and_make_no_key_twice(tmp_path: Path, writers: int) -> None:
    graph, times = begin(tmp_path), 6
    running = [child("write_some", repr(graph.uri), repr(n + 1), repr(times)) for n in range(writers)]
    for process in running:
        said, _ = process.communicate()
        assert (process.returncode, said) == (0, b"done\n")
    total = writers * times
    events = [row["data"] for row in graph.rows("Event")]
    assert sorted(event["n"] for event in events) == [*range(1, total + 1), 1_000]
    assert graph.rows("Counter")[0]["data"]["value"] == total
    assert all(sum(event["by"] == n + 1 for event in events if event["n"] != 1_000) == times for n in range(writers))
    assert sorted(int(row["from"]) for row in graph.rows("Of")) == list(range(1, total + 1))
    assert graph.version == 2 + 2 * total
