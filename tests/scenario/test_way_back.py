"""The plan back to an earlier folder, with a ledger in a folder and in memory, over both engines."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.plan.plan import plan
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.cluster import SCHEMA, START, Cluster, codes, lance_engine
from tests.support.ids import SequentialIds

TWO = f"{SCHEMA}node City {{\n  name: String @key\n}}\n"
INDEXED = "node Person {\n  handle: String @key\n  born: I32? @index\n}\n"


@pytest.fixture(params=["twin", "lance"])
def cluster(request, tmp_path):
    real = request.param == "lance"
    cluster = Cluster(tmp_path, memory=not real, engine=lance_engine() if real else None)
    cluster.write("knowledge.pg", TWO)
    cluster.converge()
    return cluster


def earlier(cluster):
    return MemoryTree({path.name: path.read_bytes() for path in cluster.folder.iterdir() if path.is_file()})


def back_to(cluster, tree):
    return plan(replace(cluster.workspace(), tree=tree, undoes=True))


def load(cluster, kind, key, rows):
    if cluster.engine is cluster.twin:
        cluster.twin.load(cluster.uri("knowledge"), rows)
        return
    load_rows(cluster, [{"type": kind, "data": {key: f"n{n}"}} for n in range(rows)])


def load_rows(cluster, records):
    lines = "".join(json.dumps(record) + "\n" for record in records)
    context = WriteContext(FixedClock(START), SequentialIds(900_000))
    load_records(LoadRequest(cluster.uri("knowledge"), io.BytesIO(lines.encode())), context)


def undone(outcome):
    return {each.resource: (each.undo, [part.version for part in each.parts]) for each in outcome.plan.undoings}


def test_a_dropped_type_is_restorable_while_a_version_has_its_rows(cluster):
    before = earlier(cluster)
    load(cluster, "City", "name", 4)
    cluster.write("knowledge.pg", SCHEMA)
    cluster.converge()
    outcome = back_to(cluster, before)
    assert undone(outcome) == {"schema.knowledge": ("restorable", [2])}
    assert [node.id for node in outcome.plan.undo_graph.nodes] == ["schema.knowledge"]
    assert codes(outcome) == []


def test_a_type_without_rows_simply_comes_back(cluster):
    before = earlier(cluster)
    cluster.write("knowledge.pg", SCHEMA)
    cluster.converge()
    assert undone(back_to(cluster, before)) == {"schema.knowledge": ("complete", [])}


def test_what_cannot_be_undone_is_a_warning_and_no_part_of_the_order(cluster):
    cluster.write("knowledge.pg", SCHEMA.replace("node", "node", 1))
    cluster.converge()
    before = earlier(cluster)
    cluster.write("knowledge.pg", INDEXED)
    cluster.write("people.gq", cluster.folder.joinpath("people.gq").read_text().replace("$p.handle }", "$p.born }"))
    cluster.approve("schema.knowledge")
    cluster.converge()
    outcome = back_to(cluster, before)
    assert "irreversible_change" in codes(outcome)
    assert undone(outcome)["schema.knowledge"][0] == "irreversible"
    assert [node.id for node in outcome.plan.undo_graph.nodes] == ["query.knowledge.find_person"]


def test_an_ordinary_plan_says_nothing_of_going_back(cluster):
    cluster.write("knowledge.pg", SCHEMA)
    assert cluster.plan().plan.undoings == ()
