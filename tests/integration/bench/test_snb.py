"""The social network of the benchmark is the same each time, and systems of different kinds read the same from it."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.bench import snb
from tests.bench.snb_data import Network
from tests.bench.snb_systems import SYSTEMS, asked, measured
from tests.support.materialize.postgres import PostgresServer

PEOPLE = 40


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(PEOPLE)


def test_the_same_network_is_made_again(network: Network) -> None:
    assert Network(PEOPLE).rows == network.rows
    assert Network(PEOPLE + 1).rows["Knows"] != network.rows["Knows"]


def test_threads_begin_with_a_post_and_run_forwards_in_time(network: Network) -> None:
    made = {row[0]: row[2] for row in network.rows["Message"]}
    posts = {row[0] for row in network.rows["Message"] if row[1]}
    parents, roots = dict(network.rows["ReplyOf"]), dict(network.rows["RootPost"])
    assert parents.keys() == made.keys() - posts
    assert all(made[parent] < made[reply] and roots[parent] == roots[reply] for reply, parent in parents.items())
    assert {nr for nr, root in roots.items() if nr == root} == posts
    assert all(made[message] <= at for _, message, at in network.rows["Likes"])


def test_few_know_many() -> None:
    network = Network(1_000)
    degrees = Counter(end for row in network.rows["Knows"] for end in row[:2])
    assert len({frozenset(row[:2]) for row in network.rows["Knows"]}) == len(network.rows["Knows"])
    # The specification wants 19 at this size; pairs that are drawn twice are missing.
    assert 14 < sum(degrees.values()) / 1_000 < 20
    assert max(degrees.values()) > 60


def test_two_systems_read_the_same(network: Network, tmp_path: Path) -> None:
    found: dict[str, dict[str, Any]] = {}
    with PostgresServer() as server:
        for name in SYSTEMS:
            if name in ("gitops", "PostgreSQL") or find_spec(name.casefold()):
                (tmp_path / name).mkdir()
                (tmp_path / name / "server").symlink_to(server.folder)
                found[name] = measured(name, tmp_path / name, network, 1)["queries"]
    snb.require_equal(found)
    assert all(any(each["rows"]) for each in found["gitops"].values())
    assert {len(each["rows"]) for each in found["gitops"].values()} == {len(sets) for sets in asked(network).values()}
    found["PostgreSQL"]["is3"]["rows"][0].pop()
    with pytest.raises(RuntimeError, match="is3: PostgreSQL and gitops answer differently"):
        snb.require_equal(found)
