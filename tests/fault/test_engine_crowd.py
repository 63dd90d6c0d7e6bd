"""Two and four processes write to one graph, while others read, compact and free: nothing is lost, nothing is there twice."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadMode
from gitops.database.graph.read import export_records
from gitops.database.graph.snapshot import open_snapshot
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.fault.engine_child import LONGEST_S
from tests.fault.engine_crowd import EACH, FIRST_FREE, SCHEMA, START, Member, load, require_coherent, values
from tests.support.s3 import S3Place


def test_two_writers_with_a_reader_and_a_keeper(tmp_path: Path) -> None:
    run_rounds(str(tmp_path / "g.omni"), writers=2, rounds=2)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("writers", [2, 4])
def test_fifty_rounds_of_writers(tmp_path: Path, writers: int) -> None:
    run_rounds(str(tmp_path / "g.omni"), writers, rounds=50)


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize(("writers", "rounds"), [(2, 3), (4, 2)])
def test_some_rounds_of_writers_to_an_object_store(s3: S3Place, writers: int, rounds: int) -> None:
    run_rounds(f"{s3.root}/graphs/g.omni", writers, rounds)


def run_rounds(uri: str, writers: int, rounds: int) -> None:
    """Let the crowd at it, and look at everything after each round."""
    LanceEngine(SystemClock(), RandomIds()).prepare_create(uri, SCHEMA, actor=None).publish()
    load(uri, START, LoadMode.MERGE)
    done: dict[str, list[Any]] = {kind: [] for kind in EACH}
    freed = 0
    with crowd(uri, writers) as members:
        for number in range(1, rounds + 1):
            began = SystemClock().now()
            for member in members:
                member.begin(number, began)
            answers = [(member.role, member.answer()) for member in members]
            for role, answer in answers:
                if role == "writer":
                    for kind, told in answer.items():
                        done[kind] += told
            freed += sum(answer.get("freed", 0) for _, answer in answers)
            require_all(uri, done, writers, number)
    assert freed
    assert verify_graph(uri, deep=True).ok


@contextlib.contextmanager
def crowd(uri: str, writers: int) -> Iterator[Sequence[Member]]:
    """The processes; none is left at the end."""
    members: list[Member] = []
    try:
        for seed, role in enumerate(["writer"] * writers + ["keeper", "reader"], 1):
            members.append(Member(role, uri, seed))
        yield members
    finally:
        for member in members:
            member.stop()


def require_all(uri: str, done: dict[str, list[Any]], writers: int, rounds: int) -> None:
    """What the writers were told is there, all of it and once."""
    snapshot = open_snapshot(uri)
    require_coherent(snapshot)
    counted = values(snapshot)
    # No increment is lost, and none is counted twice.
    assert sorted(done["add"]) == list(range(FIRST_FREE + 1, FIRST_FREE + 1 + rounds * writers * EACH["add"]))
    assert sorted(done["add_told"]) == list(range(1, 1 + rounds * writers * EACH["add_told"]))
    assert counted == {"free": max(done["add"]), "told": max(done["add_told"])}
    rows = [json.loads(line) for line in export_records(snapshot)]
    nodes = [(row["type"], row["data"]) for row in rows if "type" in row]
    # Of those who wanted the same code or key exactly one has it, and knows it.
    for kind, name, member in (("code", "Item", "code"), ("slot", "Slot", "k")):
        wanted = sorted(f"{number}-{turn}" for number in range(1, rounds + 1) for turn in range(EACH[kind]))
        assert sorted(done[kind]) == wanted
        assert sorted(data[member] for label, data in nodes if label == name and member in data) == wanted
    loaded = sorted(n for pair in done["append"] for n in pair)
    assert sorted(data["n"] for label, data in nodes if label == "Item" and "code" not in data) == loaded
    assert [data["k"] for label, data in nodes if label == "Tally"] == ["x", "y"]
    assert {data["value"] for label, data in nodes if label == "Tally"} <= set(done["tally"])
    assert max(Counter((label, data["id"]) for label, data in nodes).values()) == 1
