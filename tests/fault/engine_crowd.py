"""Processes that write to one graph at once, and others that read and keep house beside them.

python -m tests.fault.engine_crowd ROLE ADDRESS SEED     one of them

A round begins when each process is told so, and ends when each has said what it did. What lies there when a round begins is
nobody's work in progress: so `collect_garbage` is free to take it for old, whatever the time is.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.read import export_records
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext, hold_lease
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import check_query, parse_queries
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.fault.engine_campaign import digest
from tests.fault.engine_child import say
from tests.support.clock import FixedClock
from tests.support.pages import ROOT

SCHEMA = b"""node Counter { name: String @key  value: I64 }
node Event { n: I64 @key }
edge Of: Event -> Counter
node Item { n: I64 @key  code: String? @unique }
edge Next: Item -> Item
node Slot { k: String @key  by: I64 }
node Tally { k: String @key  value: I64 }
"""
FIRST_FREE = 1_000_000
"""The counters are told apart by their values: `told` counts from 0, `free` from here."""
START = [
    {"type": "Counter", "data": {"name": name, "value": value}} for name, value in (("free", FIRST_FREE), ("told", 0))
]
EACH = {"add": 3, "add_told": 2, "code": 2, "slot": 2, "append": 1, "tally": 1}
"""What a writer does in one round, in an order of its own."""

_QUERIES = {
    "add": "query q($old: I64, $new: I64) { update Counter set { value: $new } where value = $old }",
    "add_told": (
        'query q($new: I64, $id: String) { update Counter set { value: $new } where name = "told" '
        'insert Event { n: $new } insert Of { from: $id, to: "told" } }'
    ),
    "code": "query q($n: I64, $code: String) { insert Item { n: $n, code: $code } }",
}


@dataclass(frozen=True)
class Round:
    """`began` is when everybody was idle."""

    number: int
    began: str


class Member:
    """A process of the crowd, as its parent has it."""

    def __init__(self, role: str, uri: str, seed: int) -> None:
        """Start it."""
        command = [sys.executable, "-m", "tests.fault.engine_crowd", role, uri, str(seed)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.role = role

    def begin(self, number: int, began: datetime) -> None:
        """Let a round begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": number, "began": began.isoformat()}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it did in the round."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the {self.role} failed"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Let it end."""
        self._process.communicate()


class Writer:
    """Counts, claims names that are unique, and loads."""

    def __init__(self, uri: str, seed: int) -> None:
        self._uri = uri
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311 - a test's order
        self._number = seed * 100_000

    def round(self, which: Round) -> dict[str, Any]:
        """Do everything once, in some order; says how often each thing was done, and with which names and numbers."""
        order = [(kind, turn) for kind, often in EACH.items() for turn in range(often)]
        self._chance.shuffle(order)
        done: dict[str, list[Any]] = {kind: [] for kind in EACH}
        deeds: Mapping[str, Callable[[str], Any]] = {
            "add": self._add,
            "add_told": self._add_told,
            "code": self._code,
            "slot": self._slot,
            "append": self._append,
            "tally": self._tally,
        }
        for kind, turn in order:
            told = deeds[kind](f"{which.number}-{turn}")
            if told is not None:
                done[kind].append(told)
        return done

    def _add(self, _name: str) -> int:
        """Read, add one, and write if the value is still what was read; until that succeeds."""
        while True:
            old = values(open_snapshot(self._uri))["free"]
            if self._mutate("add", {"old": old, "new": old + 1}).affected_nodes:
                return old + 1

    def _add_told(self, _name: str) -> int:
        """Read, add one, and write if the graph is still what was read; until that succeeds."""
        while True:
            snapshot = open_snapshot(self._uri)
            new = values(snapshot)["told"] + 1
            try:
                self._mutate("add_told", {"new": new, "id": str(new)}, snapshot.manifest.n)
            except ConflictError as error:
                if error.code != "head_moved":
                    raise
            else:
                return new

    def _code(self, name: str) -> str | None:
        """Another writer wants the same code."""
        return (
            name
            if self._wins("mutation_invalid", lambda: self._mutate("code", {"n": self._next(), "code": name}))
            else None
        )

    def _slot(self, name: str) -> str | None:
        """Another writer wants the same key."""
        record = {"type": "Slot", "data": {"k": name, "by": self._seed}}
        return name if self._wins("graph_data_invalid", lambda: self._load([record], LoadMode.APPEND)) else None

    def _append(self, _name: str) -> list[int]:
        numbers = [self._next(), self._next()]
        records: list[Any] = [{"type": "Item", "data": {"n": n}} for n in numbers]
        records.append({"edge": "Next", "from": str(numbers[0]), "to": str(numbers[1]), "data": {}})
        self._load(records, LoadMode.APPEND)
        return numbers

    def _tally(self, _name: str) -> int:
        number = self._next()
        self._load([{"type": "Tally", "data": {"k": k, "value": number}} for k in ("x", "y")], LoadMode.MERGE)
        return number

    def _wins(self, loses: str, deed: Callable[[], object]) -> bool:
        try:
            deed()
        except GitopsError as error:
            if error.code != loses:
                raise
            return False
        return True

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _mutate(self, name: str, params: dict[str, Any], head: int | None = None) -> MutationResult:
        query = check_query(parse_queries(_QUERIES[name].encode())[0], open_snapshot(self._uri).schema().catalog)
        options = MutationOptions(SystemClock().now(), actor=str(self._seed), expected_head=head)
        return Mutator(SystemClock(), RandomIds()).run(self._uri, query, params, options)

    def _load(self, records: list[Any], mode: LoadMode) -> None:
        load(self._uri, records, mode)


class Keeper:
    """Compacts, indexes and frees."""

    def __init__(self, uri: str, seed: int) -> None:
        self._uri = uri
        self._eager = OptimizeOptions(fragments=2, deleted_share=0.1, scalar_rows=5, text_rows=5, stale_rows=5)

    def round(self, which: Round) -> dict[str, Any]:
        """Both, twice; says how many versions of the graph and of tables it freed."""
        none = timedelta(0)
        clock = FixedClock(datetime.fromisoformat(which.began))
        freed = 0
        tables = 0
        for _ in range(2):
            done = collect_garbage(self._uri, WriteContext(clock, RandomIds(), "keeper"), Retention(2, none, none))
            freed += done.manifests
            try:
                tables += len(
                    optimize_tables(self._uri, WriteContext(SystemClock(), RandomIds(), "keeper"), self._eager).tables
                )
            except ConflictError:
                # Writers were faster three times; the next round comes.
                continue
        return {"freed": freed, "optimized": tables}


class Reader:
    """Looks at versions, and again when others have gone on."""

    def __init__(self, uri: str, seed: int) -> None:
        self._uri = uri
        self._pinned: list[tuple[Any, Snapshot, str]] = []

    def round(self, _which: Round) -> dict[str, Any]:
        """Says how many versions it looked at. Each is coherent, and stays what it was until the round after the next."""
        for _ in range(4):
            snapshot = open_snapshot(self._uri)
            lease = hold_lease(snapshot, WriteContext(SystemClock(), RandomIds(), "reader"), timedelta(days=1))
            lease.__enter__()
            require_coherent(snapshot)
            self._pinned.append((lease, snapshot, digest(snapshot)))
        for _, snapshot, seen in self._pinned:
            assert digest(snapshot) == seen, f"version {snapshot.manifest.n} is not what it was"
        for lease, _, _ in self._pinned[:-8]:
            lease.__exit__(None, None, None)
        self._pinned = self._pinned[-8:]
        return {"read": 4}


def require_coherent(snapshot: Snapshot) -> None:
    """What one transaction writes to several tables is there in all of them or in none."""
    told = values(snapshot)["told"]
    rows = [json.loads(line) for line in export_records(snapshot, ["Event", "Of", "Item", "Next", "Tally"])]
    assert sorted(row["data"]["n"] for row in rows if row.get("type") == "Event") == list(range(1, told + 1))
    assert sorted(int(row["from"]) for row in rows if row.get("edge") == "Of") == list(range(1, told + 1))
    loaded = {row["data"]["n"] for row in rows if row.get("type") == "Item" and "code" not in row["data"]}
    ends = [int(row[end]) for row in rows if row.get("edge") == "Next" for end in ("from", "to")]
    assert sorted(ends) == sorted(loaded)
    assert len({row["data"]["value"] for row in rows if row.get("type") == "Tally"}) <= 1


def values(snapshot: Snapshot) -> dict[str, int]:
    """The counters."""
    rows = [json.loads(line)["data"] for line in export_records(snapshot, ["Counter"])]
    return {row["name"]: row["value"] for row in rows}


def load(uri: str, records: list[Any], mode: LoadMode) -> None:
    """Load records."""
    stream = io.BytesIO("\n".join(map(json.dumps, records)).encode())
    load_records(LoadRequest(uri, stream, mode), WriteContext(SystemClock(), RandomIds()))


ROLES: Mapping[str, Callable[[str, int], Any]] = {"writer": Writer, "keeper": Keeper, "reader": Reader}


def run(role: str, uri: str, seed: str) -> None:
    """What a process of the crowd does."""
    member = ROLES[role](uri, int(seed))
    for line in sys.stdin:
        say(json.dumps(member.round(Round(**json.loads(line)))))


if __name__ == "__main__":
    run(*sys.argv[1:])
