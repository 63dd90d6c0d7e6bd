"""Kill writers at any moment: a graph shows its last or its next version, and the next writer succeeds.

On an object store a process that dies is one whose requests stop: most deaths there are a service that refuses everything from
one request on, which reaches every moment of a deed; the rest are real processes that are killed.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.port import Existence
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.faults import DieAt
from tests.support.ids import SequentialIds
from tests.support.s3 import Asked, Drop, S3Place

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
HERE = Path(__file__).parents[2]
SCHEMAS = (
    b"node Counter { name: String @key  value: I64 }\nnode Event { n: I64 @key }\nedge Of: Event -> Counter\n",
    (
        b'node Counter { name: String @key  value: U64  note: String? @backfill("none") }\n'
        b"node Event { n: I32 @key }\nedge Of: Event -> Counter @card(1..1)\n"
    ),
    (
        b"// a comment\nnode Counter { name: String @key  value: I32 @range(value, 1..) }\nnode Event { n: I64 @key }\n"
        b"edge Of: Event -> Counter\nnode Extra {}\n"
    ),
)
"""Each leads to each other: by conversions, by rules that rows are checked for, by additions and by drops."""


def engine(seed: int = 1, point: str = "") -> LanceEngine:
    return LanceEngine(CLOCK, SequentialIds(seed), DieAt(point))


def transaction(value: int) -> io.BytesIO:
    """One more event, and the counter that says how many there are."""
    records = [
        {"type": "Counter", "data": {"name": "c", "value": value}},
        {"type": "Event", "data": {"n": value}},
        {"edge": "of", "from": str(value), "to": "c"},
    ]
    return io.BytesIO("\n".join(map(json.dumps, records)).encode())


def counted(uri: str) -> int:
    """The number of events, after a look at whether all tables agree."""
    counter = read.read_rows(uri, "Counter", 10)
    events, edges = read.read_rows(uri, "Event", 10_000), read.read_rows(uri, "Of", 10_000)
    value = counter[0]["value"] if counter else 0
    assert sorted(event["n"] for event in events) == list(range(1, value + 1))
    assert sorted(int(edge["src"]) for edge in edges) == list(range(1, value + 1))
    return value


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def write_forever(uri: str, scratch: str, seed: int) -> None:
    """What the child does: create and delete one graph, load and migrate another, and say each version it made."""
    chance, ids = random.Random(seed), SequentialIds(seed * 1_000_000)  # noqa: S311 - a test's order
    writer, context = LanceEngine(CLOCK, ids), WriteContext(CLOCK, ids)
    value = counted(uri)
    say("ready")
    while True:
        deed = chance.randrange(4)
        if deed == 0:
            writer.delete_tree(scratch)
            writer.prepare_create(scratch, SCHEMAS[0], actor=None).publish()
        elif deed == 1:
            version = writer.prepare_migration(uri, chance.choice(SCHEMAS), actor=None).publish()
            say(json.dumps({"version": version, "value": value}))
        else:
            value += 1
            version = load_records(LoadRequest(uri, transaction(value)), context).manifest_version
            say(json.dumps({"version": version, "value": value}))


def child(*arguments: str) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from tests.fault import test_engine_kill as t; getattr(t, sys.argv[1])(*map(eval, sys.argv[2:]))"
    )
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, cwd=HERE)


def load(uri: str, value: int, start: int) -> int:
    return load_records(
        LoadRequest(uri, transaction(value)), WriteContext(CLOCK, SequentialIds(start))
    ).manifest_version


def deed_create(uri: str, seed: int) -> int:
    return engine(seed).prepare_create(uri, SCHEMAS[0], actor=None).publish()


def deed_migrate(uri: str, seed: int) -> int:
    return engine(seed).prepare_migration(uri, SCHEMAS[1], actor=None).publish()


def deed_load(uri: str, seed: int) -> int:
    return load(uri, 1, seed)


@dataclass(frozen=True)
class FolderPlace:
    """As `S3Place`, on a disk."""

    root: str

    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(p.relative_to(self.root).as_posix() for p in Path(self.root).rglob("*") if p.is_file()))


Place = FolderPlace | S3Place


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """Where the graphs of a test are."""
    if request.param == "s3":
        found: S3Place = request.getfixturevalue("s3")
        return found
    return FolderPlace(str(request.getfixturevalue("tmp_path")))


@pytest.mark.slow
@pytest.mark.parametrize(("place", "turns", "longest"), [("folder", 20, 0.15), ("s3", 6, 1.0)], indirect=["place"])
def test_killed_writers_never_break_a_graph(place: Place, turns: int, longest: float) -> None:
    uri, scratch = f"{place.root}/graphs/k.omni", f"{place.root}/graphs/scratch.omni"
    deed_create(uri, 1)
    chance = random.Random(11)  # noqa: S311 - when to kill, not a secret
    for turn in range(1, turns + 1):
        before = open_snapshot(uri).manifest.n, counted(uri)
        process = child("write_forever", repr(uri), repr(scratch), str(turn))
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, longest))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        told = [json.loads(line) for line in rest.splitlines() if line.endswith(b"}")]
        version, value = (told[-1]["version"], told[-1]["value"]) if told else before
        assert open_snapshot(uri).manifest.n in (version, version + 1)
        assert counted(uri) in (value, value + 1)
        assert engine().read(uri).schema_source in SCHEMAS
        if engine().exists(scratch) is Existence.PRESENT:
            # In a bucket a root may be there by half, and does not open then.
            with contextlib.suppress(*([GitopsError] if isinstance(place, S3Place) else [])):
                assert engine().read(scratch).manifest_version == 1
                assert read.read_rows(scratch, "Event", 1) == []
        value = counted(uri) + 1
        load(uri, value, turn * 1_000 + 500)
        engine(turn * 1_000).prepare_migration(uri, SCHEMAS[turn % 3], actor=None).publish()
        assert counted(uri) == value
    for root in (uri, scratch):
        engine().delete_tree(root)
    # A death during the test of the service leaves its object behind, which means nothing to anybody.
    left = place.keys()
    assert [key for key in left if ".probe-" not in key] == []


def die_creating(uri: str, point: str) -> None:
    engine(100, point).prepare_create(uri, SCHEMAS[0], actor=None).publish()


def die_migrating(uri: str, point: str) -> None:
    engine(100, point).prepare_migration(uri, SCHEMAS[1], actor=None).publish()


def die_loading(uri: str, point: str) -> None:
    load_records(LoadRequest(uri, transaction(1)), WriteContext(CLOCK, SequentialIds(100), faults=DieAt(point)))


POINTS = [
    ("engine.create.staged", die_creating, None),
    ("engine.create.before_publish", die_creating, None),
    ("engine.create.after_publish", die_creating, 1),
    ("engine.migrate.after_tables", die_migrating, 2),
    ("engine.migrate.staged", die_migrating, 2),
    ("engine.migrate.before_publish", die_migrating, 2),
    ("engine.migrate.after_publish", die_migrating, 3),
    ("engine.load.staged", die_loading, 1),
    ("engine.load.before_publish", die_loading, 1),
    ("engine.load.after_publish", die_loading, 2),
]


@pytest.mark.parametrize("place", ["folder", "s3"], indirect=True)
@pytest.mark.parametrize(("point", "deed", "seen"), POINTS, ids=[point for point, _, _ in POINTS])
def test_death_at_a_point_leaves_the_version_before_or_after(
    place: Place, point: str, deed: Callable[[str, str], None], seen: int | None
) -> None:
    uri = f"{place.root}/graphs/g.omni"
    if deed is not die_creating:
        deed_create(uri, 1)
    if deed is die_migrating:
        load(uri, 1, 50)
    process = child(deed.__name__, repr(uri), repr(point))
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    if seen is None:
        assert engine().exists(uri) is Existence.ABSENT
        assert deed_create(uri, 1) == 1
        there = place.keys()
        assert {key.split("/")[1] for key in there} == {"g.omni"}
    else:
        assert engine().read(uri).manifest_version == seen
        assert counted(uri) == (1 if deed is die_migrating or point == "engine.load.after_publish" else 0)
    value = counted(uri) + 1
    load(uri, value, 500)
    engine(900).prepare_migration(uri, SCHEMAS[1], actor=None).publish()
    assert counted(uri) == value
    engine().delete_tree(uri)
    assert place.keys() == ()


# Services that refuse, and rivals

REFUSED = 403


@dataclass
class Cut:
    """Lets `left` writes happen. The next one is the last that the service hears of, or the first that it does not.

    With `lost` nobody dies: only the answer to that write never arrives.
    """

    left: int
    served: bool
    lost: bool = False
    struck: bool = False

    def __call__(self, asked: Asked) -> int | Drop | None:
        if self.struck:
            return None if self.lost else REFUSED
        if asked.method in ("GET", "HEAD"):
            return None
        self.left -= 1
        if self.left >= 0:
            return None
        self.struck = True
        return Drop.REPLY if self.served else REFUSED


DEATHS = {"before a write": Cut(0, served=False), "after a write": Cut(0, served=True)}
CUTS = {**DEATHS, "answer lost": Cut(0, served=True, lost=True)}


def keys_below(s3: S3Place, uri: str) -> list[str]:
    """What lies at a root, relative to it."""
    start = f"{uri.removeprefix(f'{s3.root}/')}/"
    everything = s3.keys()
    return [key.removeprefix(start) for key in everything if key.startswith(start)]


# The last write of a load gives its lease back. One that is not given back runs out.
TIDYING = (deed_load,)


def at_every_write(
    s3: S3Place, cut: Cut, deed: Callable[[str, int], object], *, graph: bool, rows: int = 0, stride: int = 1
) -> Iterator[tuple[str, object]]:
    """Do the deed on graph after graph, and strike one write later each time; gives what is left of each.

    What still writes after it is done may be told as done although that was struck.
    """
    number, left = 0, 0
    while True:
        number += 1
        uri = f"{s3.root}/graphs/g{number}.omni"
        if graph:
            deed_create(uri, 1)
        if rows:
            load(uri, rows, 50)
        s3.server.fault = strike = Cut(left, cut.served, cut.lost)
        told: object = None
        with contextlib.suppress(GitopsError):
            told = deed(uri, 1_000)
        s3.server.fault = lambda _asked: None
        assert told is None or not strike.struck or cut.lost or deed in TIDYING
        yield uri, told
        left += stride
        if not strike.struck:
            assert told is not None
            return


@pytest.fixture
def warm(s3: S3Place) -> S3Place:
    """The service is tested and the driver is loaded: what is struck later are the writes of the deed."""
    deed_create(f"{s3.root}/graphs/warm.omni", 1)
    return s3


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_graph_whose_maker_dies_is_absent_or_whole(warm: S3Place, cut: Cut) -> None:
    seen = []
    for uri, told in at_every_write(warm, cut, deed_create, graph=False):
        there = engine().exists(uri)
        seen.append(there)
        assert told is None or there is Existence.PRESENT
        if there is Existence.ABSENT:
            with pytest.raises(GitopsError) as failure:
                engine().read(uri)
            assert failure.value.code == "graph_missing"
            assert deed_create(uri, 5_000) == 1
            names = {key.partition("/")[0] for key in keys_below(warm, uri)}
            assert names == {"graph.json", open_snapshot(uri).identity.graph_id}
        assert engine().read(uri).manifest_version == 1
        assert counted(uri) == 0
        assert load(uri, 1, 9_000) == 2
        assert counted(uri) == 1
    assert len(seen) > 10
    assert seen[-1] is Existence.PRESENT


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_migration_that_dies_leaves_the_version_before_or_after(warm: S3Place, cut: Cut) -> None:
    for uri, told in at_every_write(warm, cut, deed_migrate, graph=True, rows=1):
        reading = engine().read(uri)
        assert reading.schema_source == SCHEMAS[reading.manifest_version - 2]
        assert told in (None, reading.manifest_version)
        assert counted(uri) == 1
        version = load(uri, 2, 9_000)
        assert version == reading.manifest_version + 1
        assert engine(7_000).prepare_migration(uri, SCHEMAS[2], actor=None).publish() == version + 1
        assert counted(uri) == 2


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_load_that_dies_leaves_all_of_its_rows_or_none(warm: S3Place, cut: Cut) -> None:
    for uri, told in at_every_write(warm, cut, deed_load, graph=True):
        version = engine().read(uri).manifest_version
        assert told in (None, version)
        assert counted(uri) == version - 1
        assert load(uri, version, 9_000) == version + 1
        assert counted(uri) == version


def deed_delete(uri: str, _seed: int) -> int:
    engine().delete_tree(uri)
    return 0


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_deletion_that_dies_leaves_nothing_that_opens(warm: S3Place, cut: Cut) -> None:
    seen = set()
    for uri, _ in at_every_write(warm, cut, deed_delete, graph=True, stride=4):
        there = engine().exists(uri)
        old = {key.partition("/")[0] for key in keys_below(warm, uri)} - {"graph.json"}
        try:
            engine().read(uri)
            outcome = "whole"
            assert counted(uri) == 0
        except GitopsError as error:
            outcome = error.code
        seen.add((there, outcome))
        if there is Existence.PRESENT and outcome != "whole":
            refused = None
            try:
                deed_create(uri, 5_000)
            except GitopsError as error:
                refused = error.code
            # Where the dead process had sent more deletions, they may have emptied the root after its end.
            emptied = not [key for key in keys_below(warm, uri) if key.partition("/")[0] in old]
            assert refused == "graph_exists" or (refused is None and emptied)
        engine().delete_tree(uri)
        assert engine().exists(uri) is Existence.ABSENT
        assert keys_below(warm, uri) == []
        assert deed_create(uri, 5_000) == 1
    whole = {(Existence.PRESENT, "whole")} if cut is CUTS["before a write"] else set()
    partial = {(Existence.PRESENT, "graph_unreadable")} if not cut.lost else set()
    assert seen == {*whole, *partial, (Existence.ABSENT, "graph_missing")}


def rival(uri: str, seed: int) -> None:
    """What a child does: stage and publish when told, and say what came of it."""
    writer = engine(seed)
    staged = None
    for line in sys.stdin:
        try:
            if line == "create\n":
                staged = writer.prepare_create(uri, SCHEMAS[0], actor=None)
            elif line == "comment\n":
                staged = writer.prepare_migration(uri, b"// %d\n" % seed + SCHEMAS[0], actor=None)
            elif line == "migrate\n":
                staged = writer.prepare_migration(uri, SCHEMAS[1], actor=None)
            elif staged is not None:
                say(str(staged.publish()))
                continue
            say("staged")
        except GitopsError as error:
            say(error.code)


class Rivals:
    """Two processes at one root."""

    def __init__(self, uri: str) -> None:
        code = "import sys; from tests.fault.test_engine_kill import rival; rival(sys.argv[1], int(sys.argv[2]))"
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, uri, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for seed in (10_000, 20_000)
        ]

    def tell(self, line: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def answers(self) -> list[str]:
        return [process.stdout.readline().strip() for process in self._processes if process.stdout]

    def stage_in_turn(self, line: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "staged\n"

    def stop(self) -> None:
        for process in self._processes:
            process.communicate()


def test_of_two_processes_exactly_one_publishes_a_version(s3: S3Place) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    rivals = Rivals(uri)
    rivals.stage_in_turn("create")
    rivals.tell("publish")
    assert rivals.answers() == ["graph_conflict", "1"]
    assert counted(uri) == 0
    winners = []
    for version, deed in enumerate(["comment"] * 8 + ["migrate"] * 2, 2):
        rivals.stage_in_turn(deed)
        rivals.tell("publish")
        said = rivals.answers()
        winners.append(said.index(str(version)))
        assert sorted(said) == [str(version), "graph_conflict"]
        reading = engine().read(uri)
        assert reading.manifest_version == version
        assert reading.schema_source == (
            SCHEMAS[1] if deed == "migrate" else b"// %d\n" % (10_000 * (winners[-1] + 1)) + SCHEMAS[0]
        )
        assert counted(uri) == 0
    rivals.stop()
    load(uri, 1, 500)
    assert counted(uri) == 1


def test_racing_creates_leave_one_whole_graph_or_none(s3: S3Place) -> None:
    for turn in range(2):
        uri = f"{s3.root}/graphs/g{turn}.omni"
        rivals = Rivals(uri)
        rivals.tell("create")
        staged = rivals.answers()
        assert set(staged) <= {"staged", "graph_conflict"}
        rivals.tell("publish")
        rivals.stop()
        if engine().exists(uri) is Existence.ABSENT:
            deed_create(uri, 1)
        assert engine().read(uri).manifest_version == 1
        assert load(uri, 1, 500) == 2
        assert counted(uri) == 1


def test_racing_loads_conflict_and_lose_nothing(s3: S3Place) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    deed_create(uri, 1)
    told: list[int] = []

    def run(number: int) -> None:
        for turn in range(4):
            n = 100 * number + turn
            record = json.dumps({"type": "Event", "data": {"n": n}}).encode()
            with contextlib.suppress(GitopsError):
                ids = SequentialIds(10_000 * (number + 1) + 10 * turn)
                load_records(LoadRequest(uri, io.BytesIO(record)), WriteContext(CLOCK, ids))
                told.append(n)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told
    assert sorted(row["n"] for row in read.read_rows(uri, "Event", 99)) == sorted(told)
    assert engine().read(uri).manifest_version == 1 + len(told)
