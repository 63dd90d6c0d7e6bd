"""Kill writers at any moment: a graph shows its last or its next version, and the next writer succeeds."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops.database.graph import read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.port import Existence
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
HERE = Path(__file__).parents[2]
SCHEMAS = (
    b"node Counter { name: String @key  value: I64 }\nnode Event { n: I64 @key }\nedge Of: Event -> Counter\n",
    b"node Counter { name: String @key  value: I64  note: String? }\nnode Event { n: I64 @key }\nedge Of: Event -> Counter\n",
    (
        b"// a comment\nnode Counter { name: String @key  value: I64 }\nnode Event { n: I64 @key }\n"
        b"edge Of: Event -> Counter\nnode Extra {}\n"
    ),
)


class DyingAt:
    """Kills this process the n-th time that a point is reached."""

    def __init__(self, point: str) -> None:
        self._point = point

    def reach(self, point: str) -> None:
        if point == self._point:
            signal.raise_signal(signal.SIGKILL)


def engine(seed: int = 1, point: str = "") -> LanceEngine:
    return LanceEngine(CLOCK, SequentialIds(seed), DyingAt(point))


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


@pytest.mark.slow
def test_twenty_killed_writers_never_break_a_graph(tmp_path: Path) -> None:
    uri, scratch = str(tmp_path / "k.omni"), str(tmp_path / "scratch.omni")
    engine().prepare_create(uri, SCHEMAS[0], actor=None).publish()
    chance = random.Random(11)  # noqa: S311 - when to kill, not a secret
    for turn in range(1, 21):
        before = open_snapshot(uri).manifest.n, counted(uri)
        process = child("write_forever", repr(uri), repr(scratch), str(turn))
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        told = [json.loads(line) for line in rest.splitlines() if line.endswith(b"}")]
        version, value = (told[-1]["version"], told[-1]["value"]) if told else before
        assert open_snapshot(uri).manifest.n in (version, version + 1)
        assert counted(uri) in (value, value + 1)
        assert engine().read(uri).schema_source in SCHEMAS
        if engine().exists(scratch) is Existence.PRESENT:
            assert engine().read(scratch).manifest_version == 1
            assert read.read_rows(scratch, "Event", 1) == []
        value = counted(uri) + 1
        load_records(LoadRequest(uri, transaction(value)), WriteContext(CLOCK, SequentialIds(turn * 1_000 + 500)))
        engine(turn * 1_000).prepare_migration(uri, SCHEMAS[turn % 3], actor=None).publish()
        assert counted(uri) == value
    engine().delete_tree(scratch)
    engine().prepare_create(scratch, SCHEMAS[0], actor=None).publish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.omni", "scratch.omni"]


def die_creating(uri: str, point: str) -> None:
    engine(100, point).prepare_create(uri, SCHEMAS[0], actor=None).publish()


def die_migrating(uri: str, point: str) -> None:
    engine(100, point).prepare_migration(uri, SCHEMAS[1], actor=None).publish()


def die_loading(uri: str, point: str) -> None:
    load_records(LoadRequest(uri, transaction(1)), WriteContext(CLOCK, SequentialIds(100), faults=DyingAt(point)))


POINTS = [
    ("engine.create.staged", die_creating, None),
    ("engine.create.before_publish", die_creating, None),
    ("engine.create.after_publish", die_creating, 1),
    ("engine.migrate.staged", die_migrating, 1),
    ("engine.migrate.before_publish", die_migrating, 1),
    ("engine.migrate.after_publish", die_migrating, 2),
    ("engine.load.staged", die_loading, 1),
    ("engine.load.before_publish", die_loading, 1),
    ("engine.load.after_publish", die_loading, 2),
]


@pytest.mark.parametrize(("point", "deed", "seen"), POINTS, ids=[point for point, _, _ in POINTS])
def test_death_at_a_point_leaves_the_version_before_or_after(
    tmp_path: Path, point: str, deed: Callable[[str, str], None], seen: int | None
) -> None:
    uri = str(tmp_path / "g.omni")
    if deed is not die_creating:
        engine().prepare_create(uri, SCHEMAS[0], actor=None).publish()
    process = child(deed.__name__, repr(uri), repr(point))
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    if seen is None:
        assert engine().exists(uri) is Existence.ABSENT
        engine().prepare_create(uri, SCHEMAS[0], actor=None).publish()
        assert [path.name for path in tmp_path.iterdir()] == ["g.omni"]
    else:
        assert engine().read(uri).manifest_version == seen
        assert counted(uri) == (1 if point == "engine.load.after_publish" else 0)
    value = counted(uri) + 1
    load_records(LoadRequest(uri, transaction(value)), WriteContext(CLOCK, SequentialIds(500)))
    engine(900).prepare_migration(uri, SCHEMAS[1], actor=None).publish()
    assert counted(uri) == value
