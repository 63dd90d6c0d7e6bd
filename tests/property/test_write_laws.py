"""Laws of writing a graph: loads, mutations, and histories.

Laws of writing: the engine does what the reference does, and whatever is refused leaves the graph as it was.

The reference works on dictionaries. Ids of edges and of nodes without key are made anew by each, so rows are compared without
them where no record gives them.

Any sequence of writes, branches, merges, gc and optimize leaves every version what a plain model says it is.

The model keeps whole images in a graph of commits, and finds merge bases by walking it: it shares nothing with the engine.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.database.graph import checkpoints, load, tables
from gitops.database.graph.checkpoints import LoadSource
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.diff import diff_versions
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.results import MergeStatus
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write import committed, intake, keys, memory
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.schema import compile_schema
from tests import reference
from tests.reference.cells import to_json
from tests.support.effort import cases
from tests.support.faults import Death, EndAt
from tests.support.histories import History
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, NOW, WrittenGraph
from tests.support.resumed import physical

SOURCE = """
node P {
  k: String @key
  n: I32?  x: F64?  t: String? @unique  day: Date?  tags: [String]?
  e: enum(x, y)?
  @range(n, 0..3)
}
node Q { a: I32  b: String  w: I32?  @key(a, b)  @unique(w, b) }
node Free { n: I32 }
edge E: P -> P @card(0..2) { w: I32?  @unique(dst, w) }
edge F: P -> Q
edge G: Q -> P { s: String? }
"""
SCHEMA = compile_schema(SOURCE.encode())
KEYS = st.sampled_from(["a", "b", "c", "'", "é"])
TEXTS = st.none() | st.sampled_from(["a", "b", "'", "\\", "é", ""])
SMALL = st.none() | st.integers(-1, 4)
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 0.1, 2.5, 1e300, 3.0])
DAYS = st.none() | st.sampled_from(["1970-01-01", "1969-12-31", "0001-01-01"])
TAGS = st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=2)
SIGNS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def compact_q(a: int, b: str) -> str:
    return json.dumps([str(a), b], separators=(",", ":"), ensure_ascii=False)


Q_IDS = st.builds(compact_q, st.integers(0, 1), KEYS)
Statement = tuple[str, str, dict[str, Any]]


@st.composite
def statements(draw: st.DrawFn, at: int, *, deletes: bool) -> Statement:
    """A statement with parameters of its own: text, signature and values."""
    values: dict[str, Any] = {}
    signature: list[str] = []

    def param(kind: str, value: Any) -> str:
        name = f"p{at}_{len(values)}"
        values[name] = value
        signature.append(f"${name}: {kind}")
        return f"${name}"

    tests = {
        "P": [
            lambda: f"k {draw(SIGNS)} {param('String', draw(KEYS))}",
            lambda: f"n {draw(SIGNS)} {param('F64?', draw(FLOATS))}",
            lambda: f"x {draw(SIGNS)} {param('I32?', draw(SMALL))}",
            lambda: f"t {draw(SIGNS)} {param('String?', draw(TEXTS))}",
            lambda: f"day {draw(SIGNS)} {param('Date?', draw(DAYS))}",
            lambda: f"tags {draw(SIGNS)} {param('[String]?', draw(TAGS))}",
            lambda: f"e {draw(SIGNS)} {param('String?', draw(TEXTS))}",
        ],
        "Q": [
            lambda: f"a {draw(SIGNS)} {param('I32', draw(st.integers(0, 1)))}",
            lambda: f"w {draw(SIGNS)} {param('I32?', draw(SMALL))}",
        ],
        "Free": [lambda: f"n {draw(SIGNS)} {param('I32?', draw(SMALL))}"],
        "E": [
            lambda: f"from {draw(SIGNS)} {param('String', draw(KEYS))}",
            lambda: f"to {draw(SIGNS)} {param('String', draw(KEYS))}",
            lambda: f"w {draw(SIGNS)} {param('I32?', draw(SMALL))}",
        ],
        "F": [lambda: f"to {draw(SIGNS)} {param('String', draw(Q_IDS))}"],
        "G": [lambda: f"s {draw(SIGNS)} {param('String?', draw(TEXTS))}"],
    }
    setters = {
        "n": lambda: param("I32?", draw(SMALL)),
        "x": lambda: param("F64?", draw(FLOATS)),
        "t": lambda: param("String?", draw(TEXTS)),
        "day": lambda: param("Date?", draw(DAYS)),
        "tags": lambda: param("[String]?", draw(TAGS)),
        "e": lambda: draw(st.sampled_from(['"x"', '"y"'])),
    }
    if deletes:
        owner = draw(st.sampled_from(sorted(tests)))
        text = " ".join(("delete", owner, "where", draw(st.sampled_from(tests[owner]))()))
        return text, ", ".join(signature), values
    chosen = draw(st.lists(st.sampled_from(sorted(setters)), unique=True, max_size=4))
    sets = ", ".join(f"{name}: {setters[name]()}" for name in chosen)
    kind = draw(st.sampled_from(["P", "P", "Q", "Free", "E", "E", "F", "G", "update", "update Q"]))
    if kind == "P":
        text = f"insert P {{ k: {param('String', draw(KEYS))}, {sets} }}"
    elif kind == "Q":
        a, b = param("I32", draw(st.integers(0, 1))), param("String", draw(KEYS))
        text = f"insert Q {{ a: {a}, b: {b}, w: {param('I32?', draw(SMALL))} }}"
    elif kind == "Free":
        text = f"insert Free {{ n: {param('I32?', draw(SMALL))} }}"
    elif kind == "E":
        ends = f"from: {param('String', draw(KEYS))}, to: {param('String', draw(KEYS))}"
        text = f"insert E {{ {ends}, w: {param('I32?', draw(SMALL))} }}"
    elif kind == "F":
        text = f"insert F {{ from: {param('String', draw(KEYS))}, to: {param('String', draw(Q_IDS))} }}"
    elif kind == "G":
        text = f"insert G {{ from: {param('String', draw(Q_IDS))}, to: {param('String', draw(KEYS))} }}"
    elif kind == "update" and chosen:
        text = " ".join(("update P set {", sets, "} where", draw(st.sampled_from(tests["P"]))()))
    else:
        value = param("I32?", draw(SMALL))
        text = " ".join(("update Q set { w:", value, "} where", draw(st.sampled_from(tests["Q"]))()))
    return text, ", ".join(signature), values


@st.composite
def mutations(draw: st.DrawFn) -> Statement:
    deletes = draw(st.integers(0, 3)) == 0
    parts = [draw(statements(at, deletes=deletes)) for at in range(draw(st.integers(1, 4)))]
    signature = ", ".join(part[1] for part in parts if part[1])
    return "  ".join(part[0] for part in parts), signature, {k: v for part in parts for k, v in part[2].items()}


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    node = st.builds(
        lambda k, n, x, t: {"type": "P", "data": {"k": k, "n": n, "x": x, "t": t}},
        KEYS,
        st.none() | st.integers(0, 3),
        FLOATS,
        TEXTS,
    )
    pair = st.builds(
        lambda a, b, w: {"type": "Q", "data": {"a": a, "b": b, "w": w}},
        st.integers(0, 1),
        KEYS,
        st.none() | st.integers(0, 2),
    )
    free = st.builds(
        lambda i, n: {"type": "Free", "data": {"id": i, "n": n}}, st.sampled_from("abc"), st.integers(0, 2)
    )
    edge = st.builds(
        lambda i, s, d, w: {"edge": "e", "from": s, "to": d, "data": {"id": i, "w": w}},
        st.sampled_from("123456789"),
        KEYS,
        KEYS,
        st.none() | st.integers(0, 9),
    )
    other = st.builds(
        lambda i, s, d: {"edge": "F", "from": s, "to": d, "data": {"id": i}}, st.sampled_from("12"), KEYS, Q_IDS
    )
    return draw(st.lists(node | node | pair | free | edge | edge | other, min_size=1, max_size=14))


def settled(graph: reference.Graph, step: int) -> reference.Graph:
    """The graph with the ids that the reference made renamed, since it begins anew with each mutation."""
    for side in (graph.nodes, graph.edges):
        for rows in side.values():
            for key in [key for key in rows if key.startswith("new-")]:
                rows[f"{step}:{key}"] = rows.pop(key)
    return graph


def held(graph: reference.Graph, *, ids: bool) -> dict[str, Counter[str]]:
    """The rows of the reference, as texts."""
    found: dict[str, Counter[str]] = {}
    for name, declared in SCHEMA.catalog.nodes.items():
        keep = ids or declared.key is not None
        found[name] = Counter(
            json.dumps([key if keep else None, {p: to_json(row[p], kind) for p, kind in declared.properties.items()}])
            for key, row in graph.nodes[name].items()
        )
    for name, edge in SCHEMA.catalog.edges.items():
        found[name] = Counter(
            json.dumps(
                [
                    key if ids else None,
                    one.src,
                    one.dst,
                    {p: to_json(one.row[p], kind) for p, kind in edge.properties.items()},
                ]
            )
            for key, one in graph.edges[name].items()
        )
    return found


def stored(graph: WrittenGraph, *, ids: bool) -> dict[str, Counter[str]]:
    """The rows of the engine, as the same texts."""
    found: dict[str, Counter[str]] = {}
    for name, declared in (*SCHEMA.catalog.nodes.items(), *SCHEMA.catalog.edges.items()):
        keep = ids or getattr(declared, "key", None) is not None
        ends = ("src", "dst") if name in SCHEMA.catalog.edges else ()
        found[name] = Counter(
            json.dumps(
                [row["id"] if keep else None, *(row[end] for end in ends), {p: row[p] for p in declared.properties}]
            )
            for row in graph.shown(name)
        )
    return found


@contextlib.contextmanager
def fresh() -> Iterator[WrittenGraph]:
    with tempfile.TemporaryDirectory() as folder:
        yield WrittenGraph(Path(folder) / "g.omni").create(SOURCE)


@contextlib.contextmanager
def remembered(how: str) -> Iterator[None]:
    """How a process finds the rows that it changes: by reading, or by indexes, of which little is kept."""
    with pytest.MonkeyPatch.context() as patch:
        if how != "nothing":
            patch.setattr(memory, "_SEARCHES", 1)
        if how == "little":
            patch.setattr(memory, "_FEW_ROWS", 1)
            patch.setattr(memory, "_MAX_FRESH", 2)
            patch.setattr(memory, "_MAX_FILES", 0)
            patch.setattr(tables, "_TIDY_FRAGMENTS", 1)
        yield


@settings(max_examples=cases(20))
@given(st.lists(mutations() | records(), min_size=1, max_size=10), st.sampled_from(["nothing", "much", "little"]))
def test_writes_do_what_the_reference_does(sequence: list[Statement | list[dict[str, Any]]], how: str) -> None:
    """§4: equal counts and equal rows after each, or both refuse, and then nothing has changed and nothing is published."""
    with fresh() as graph, remembered(how):
        model = reference.empty(SCHEMA.catalog)
        for step, write in enumerate(sequence):
            version = graph.version
            if isinstance(write, list):
                # Another process writes, too.
                with contextlib.suppress(reference.Refused):
                    model = reference.load(SCHEMA, model, map(json.dumps, write), reference.Mode.MERGE)
                    graph.load(write)
                    assert graph.version == version + 1
                continue
            text, signature, params = write
            query = graph.query(text, signature)
            try:
                outcome = reference.mutate(SCHEMA, model, query, params)
            except reference.Refused:
                with pytest.raises(GitopsError) as refusal:
                    graph.mutate(text, params, signature)
                assert refusal.value.code in ("mutation_invalid", "mutation_mixed")
                assert graph.version == version
            else:
                result = graph.mutate(text, params, signature)
                assert (result.affected_nodes, result.affected_edges) == (outcome.nodes, outcome.edges)
                assert graph.version == version + bool(outcome.nodes or outcome.edges)
                model = settled(outcome.graph, step)
        assert stored(graph, ids=False) == held(model, ids=False)
        assert {name: rows.total() for name, rows in held(model, ids=False).items()} == graph.counts()


@settings(max_examples=cases(20))
@given(
    st.lists(st.lists(mutations(), min_size=1, max_size=6), min_size=1, max_size=5),
    st.sampled_from(["nothing", "much"]),
)
def test_mutations_that_wait_together_do_what_the_reference_does(crowds: list[list[Statement]], how: str) -> None:
    """One after the other, in the order in which they came, whatever of them is one version."""
    with fresh() as graph, remembered(how):
        model = reference.empty(SCHEMA.catalog)
        mutator = Mutator(CLOCK, graph.ids, memory=graph.memory)
        for step, crowd in enumerate(crowds):
            waiting = []
            for text, signature, params in crowd:
                query = graph.query(text, signature)
                with contextlib.suppress(GitopsError):
                    waiting.append((query, params, mutator.enqueue(graph.uri, query, params, MutationOptions(NOW))))
            version = graph.version
            for number, (query, params, finish) in enumerate(waiting):
                try:
                    outcome = reference.mutate(SCHEMA, model, query, params)
                except reference.Refused:
                    with pytest.raises(GitopsError) as refusal:
                        finish()
                    assert refusal.value.code == "mutation_invalid"
                else:
                    result = finish()
                    assert (result.affected_nodes, result.affected_edges) == (outcome.nodes, outcome.edges)
                    assert version <= result.manifest_version
                    version = result.manifest_version
                    model = settled(outcome.graph, 100 * step + number)
        assert stored(graph, ids=False) == held(model, ids=False)
        assert {name: rows.total() for name, rows in held(model, ids=False).items()} == graph.counts()


STEPS = st.tuples(
    st.sampled_from(["insert", "update", "update", "update those", "delete", "load", "join"]),
    st.sampled_from("abcd"),
    st.integers(0, 3),
    st.sampled_from(["main", "main", "side"]),
)


@settings(max_examples=cases(12))
@given(st.lists(STEPS, min_size=8, max_size=25), st.sampled_from(["much", "little"]))
def test_a_process_finds_every_row_and_no_other(steps: list[tuple[str, str, int, str]], how: str) -> None:
    """Whatever others wrote meanwhile, on either branch of a table, and wherever its rows have moved."""
    with fresh() as graph, remembered(how):
        graph.load([{"type": "P", "data": {"k": "a", "n": 0}}])
        work = WriteContext(CLOCK, SequentialIds(700_000))
        create_branch(graph.uri, "side", work)
        images = {branch: {"a": 0} for branch in ("main", "side")}
        for deed, key, n, branch in steps:
            image, params, found = images[branch], {"k": key, "n": n}, 1
            if deed == "load":
                graph.load([{"type": "P", "data": {"k": key, "n": n}}], branch=branch)
                image[key] = n
                continue
            if deed == "join":
                optimize_tables(graph.uri, work, OptimizeOptions(fragments=0), branch=branch)
                continue
            if deed == "insert":
                text = "insert P { k: $k, n: $n }"
                image[key] = n
            elif deed == "update":
                text, found = "update P set { n: $n } where k = $k", int(key in image)
                image |= {key: n} if found else {}
            elif deed == "delete":
                text, found = "delete P where k = $k", int(key in image)
                image.pop(key, None)
            else:
                text = "update P set { n: 3 } where n = $n"
                found = sum(value == n for value in image.values())
                image |= {each: 3 for each, value in image.items() if value == n}
            wanted = {name: value for name, value in params.items() if f"${name}" in text}
            signature = ", ".join({"k": "$k: String", "n": "$n: I32"}[name] for name in wanted)
            assert graph.mutate(text, wanted, signature, branch=branch).affected_nodes == found
        for branch, image in images.items():
            assert {row["data"]["k"]: row["data"]["n"] for row in graph.rows("P", branch)} == image


SIZES = st.sampled_from(["small", "spilled", "scanned", "colliding"])


@contextlib.contextmanager
def limits(size: str) -> Iterator[None]:
    """The paths of large loads, at small sizes: keys on disk, columns that are read whole, many data files.

    Of colliding keys, half have one hash.
    """
    with pytest.MonkeyPatch.context() as patch:
        if size != "small":
            patch.setattr(intake, "KEY_BYTES", 100)
            patch.setattr(load, "KEY_BYTES", 100)
            patch.setattr(intake, "_PIECE_BYTES", 300)
            patch.setattr(intake, "_LEAST_BYTES", 1)
            patch.setattr(intake, "GROUP_BYTES", 100)
            patch.setattr(intake, "FILE_BYTES", 1)
        if size == "colliding":
            whole = keys.hash_texts
            patch.setattr(keys, "hash_texts", lambda *given: whole(*given) & np.uint64(1 << 63))
        if size in ("scanned", "colliding"):
            for module in (load, committed):
                patch.setattr(module, "MAX_PROBES", 0)
        yield


@settings(max_examples=cases(20))
@given(st.lists(st.tuples(records(), st.sampled_from(list(LoadMode)), SIZES), min_size=1, max_size=5))
def test_loads_do_what_the_reference_does(sequence: list[tuple[list[dict[str, Any]], LoadMode, str]]) -> None:
    """§5: equal rows after each load in each mode, whatever its size, or both refuse."""
    with fresh() as graph:
        model = reference.empty(SCHEMA.catalog)
        for rows, mode, size in sequence:
            version = graph.version
            try:
                outcome = reference.load(SCHEMA, model, map(json.dumps, rows), reference.Mode(mode.value))
            except reference.Refused:
                with limits(size), pytest.raises(GitopsError) as refusal:
                    graph.load(rows, mode)
                assert refusal.value.code == "graph_data_invalid"
                assert graph.version == version
            else:
                with limits(size):
                    graph.load(rows, mode)
                model = outcome
                assert graph.version == version + 1
        assert stored(graph, ids=True) == held(model, ids=True)
        assert {name: rows.total() for name, rows in held(model, ids=True).items()} == graph.counts()


WRONG = st.sampled_from(
    [
        {"type": "P", "data": {"k": "a", "n": 9}},
        {"type": "P", "data": {"k": "b", "x": "1"}},
        {"type": "Q", "data": {"a": 0}},
        {"type": "Free", "data": {"n": 1, "m": 1}},
        {"edge": "E", "from": "a"},
        {"type": "Z"},
    ]
)
WAYS = ("by columns", "spilled", "colliding", "continued")


def told(uri: str, lines: bytes, mode: LoadMode, way: str) -> object:
    """What comes of a load: its problems in order, or all rows in the order in which they are stored."""
    source = LoadSource("records", len(lines), 0)
    context, version = WriteContext(CLOCK, SequentialIds(70_000)), open_snapshot(uri).manifest.n
    with limits(way if way in ("spilled", "colliding") else "small"), pytest.MonkeyPatch.context() as patch:
        if way in ("by columns", "continued"):
            patch.setattr(intake, "_LEAST_BYTES", 1)
        if way == "continued":
            patch.setattr(intake, "_PIECE_BYTES", 150)
            patch.setattr(checkpoints, "CHECKPOINT_BYTES", 1)
            ends = EndAt("engine.load.after_checkpoint", visit=2)
            with contextlib.suppress(LoadError, Death):
                load_records(LoadRequest(uri, io.BytesIO(lines), mode, source=source), replace(context, faults=ends))
        resume = bool(list(checkpoints.read_loads(open_snapshot(uri).store)))
        request = LoadRequest(uri, io.BytesIO(lines), mode, source=source, resume=resume)
        try:
            if open_snapshot(uri).manifest.n == version:
                load_records(request, context)
        except LoadError as error:
            return [(each.code, each.path, each.message, each.source, each.fix) for each in error.problems], error.total
        return physical(uri)


@settings(max_examples=cases(60))
@given(
    records(),
    records(),
    st.lists(st.tuples(st.integers(0, 13), WRONG | st.none()), max_size=2),
    st.sampled_from(list(LoadMode)),
    st.sampled_from(WAYS),
)
def test_the_way_of_reading_changes_neither_problems_nor_the_order_of_rows(
    before: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    odd: list[tuple[int, dict[str, Any] | None]],
    mode: LoadMode,
    way: str,
) -> None:
    """Also of committed rows, with blank lines, and if the load is interrupted and continued."""
    lines = [json.dumps(row).encode() for row in rows]
    for at, wrong in odd:
        lines.insert(at, b"" if wrong is None else json.dumps(wrong).encode())
    with fresh() as graph:
        graph.load([{"type": "P", "data": {"k": "old", "t": "a"}}])
        with contextlib.suppress(LoadError):
            graph.load(before)
        shutil.copytree(graph.uri, f"{graph.uri}.copy")
        found = told(f"{graph.uri}.copy", b"\n".join(lines), mode, way)
        assert found == told(graph.uri, b"\n".join(lines), mode, "line by line")


Image = dict[str, int]
BRANCHES = ["main", "dev", "exp"]
NAMES = "abcd"


@dataclass(eq=False)
class Commit:
    """A version of the model."""

    image: Image
    parents: list[Commit] = field(default_factory=list)

    def ancestors(self) -> set[Commit]:
        """Itself and all it comes from."""
        found, waiting = set(), [self]
        while waiting:
            commit = waiting.pop()
            if commit not in found:
                found.add(commit)
                waiting += commit.parents
        return found


def bases(one: Commit, other: Commit) -> list[Commit]:
    """The common ancestors that are ancestors of no other one."""
    common = one.ancestors() & other.ancestors()
    return [each for each in common if not any(each in rest.ancestors() for rest in common - {each})]


def merged(base: Image, ours: Image, theirs: Image) -> Image | None:
    """Three-way by key; None on a conflict."""
    image = {}
    for name in base.keys() | ours.keys() | theirs.keys():
        old, mine, coming = base.get(name), ours.get(name), theirs.get(name)
        if mine != coming and old not in (mine, coming):
            return None
        value = coming if mine == old else mine
        if value is not None:
            image[name] = value
    return image


class Model:
    """The branches and what their versions hold."""

    def __init__(self) -> None:
        self.heads = {"main": Commit({})}

    def merge(self, source: str, into: str) -> MergeStatus | None:
        """What a merge must come to; None where bases are many, and the engine may be more careful than this model."""
        ours, theirs = self.heads[into], self.heads[source]
        if theirs in ours.ancestors():
            return MergeStatus.UP_TO_DATE
        found = bases(ours, theirs)
        if len(found) != 1:
            return None
        image = merged(found[0].image, ours.image, theirs.image)
        if image is None:
            return MergeStatus.CONFLICT
        self.heads[into] = Commit(image, [ours, theirs])
        return MergeStatus.FAST_FORWARD if found[0] is ours else MergeStatus.MERGED


STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(BRANCHES), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("take"), st.sampled_from(BRANCHES), st.sampled_from(NAMES)),
    st.tuples(st.just("create"), st.sampled_from(BRANCHES[1:]), st.sampled_from(BRANCHES)),
    st.tuples(st.just("delete"), st.sampled_from(BRANCHES[1:])),
    st.tuples(st.just("merge"), st.sampled_from(BRANCHES), st.sampled_from(BRANCHES)),
    st.tuples(st.just("gc"), st.integers(1, 3)),
    st.tuples(st.just("optimize"), st.sampled_from(BRANCHES)),
)


class Both:
    """The engine and the model, step by step."""

    def __init__(self, history: History) -> None:
        self.history, self.model = history, Model()
        self.seen: dict[str, Commit] = {history.at().manifest.txn_id: self.model.heads["main"]}

    def do(self, step: tuple[Any, ...]) -> None:
        kind, *rest = step
        if all(name in self.model.heads for name in rest if name in BRANCHES) or kind == "create":
            getattr(self, kind)(*rest)
        self.agree()

    def agree(self) -> None:
        assert [branch.name for branch in list_branches(self.history.uri)] == [
            "main",
            *sorted(self.model.heads.keys() - {"main"}),
        ]
        for name, head in self.model.heads.items():
            assert self.history.ages(name) == head.image

    def note(self, branch: str) -> None:
        self.seen[self.history.at(branch).manifest.txn_id] = self.model.heads[branch]

    def put(self, branch: str, name: str, age: int) -> None:
        self.history.people(branch, **{name: age})
        head = self.model.heads[branch]
        self.model.heads[branch] = Commit(head.image | {name: age}, [head])
        self.note(branch)

    def take(self, branch: str, name: str) -> None:
        self.history.put(branch, {}, {"node:Person": [name]})
        head = self.model.heads[branch]
        self.model.heads[branch] = Commit({k: v for k, v in head.image.items() if k != name}, [head])
        self.note(branch)

    def create(self, name: str, origin: str) -> None:
        heads = self.model.heads
        if name not in heads and origin in heads:
            create_branch(self.history.uri, name, self.history.work(), ReadTarget(origin))
            heads[name] = Commit(heads[origin].image, [heads[origin]])

    def delete(self, name: str) -> None:
        delete_branch(self.history.uri, name, self.history.work())
        del self.model.heads[name]

    def merge(self, source: str, into: str) -> None:
        if source == into:
            return
        before = self.history.ages(into)
        result = merge_branch(self.history.uri, source, into, self.history.work())
        heads = self.model.heads
        ours, theirs = heads[into], heads[source]
        expected = self.model.merge(source, into)
        if expected is None:
            if result.status is MergeStatus.MERGED:
                heads[into] = Commit(self.history.ages(into), [ours, theirs])
        elif result.status is MergeStatus.UP_TO_DATE:
            # Nothing has happened on the source since the base: the engine makes no version, which changes no image.
            assert heads[into].image == ours.image
            heads[into] = ours
        else:
            assert result.status is expected
        assert result.status is not MergeStatus.CONFLICT or (self.history.ages(into) == before and result.conflicts)

    def gc(self, keep: int) -> None:
        collect_garbage(self.history.uri, self.history.work(), Retention(keep, timedelta(0), timedelta(0)))

    def optimize(self, branch: str) -> None:
        head = self.model.heads[branch]
        options = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, stale_rows=0, stale_share=0.0)
        if optimize_tables(self.history.uri, self.history.work(), options, branch).tables:
            self.model.heads[branch] = Commit(head.image, [head])


@pytest.mark.slow
@settings(max_examples=cases(30), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=4, max_size=18))
def test_every_version_is_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    both = Both(History(str(tmp_path_factory.mktemp("h") / "g.omni")))
    for step in steps:
        both.do(step)
    for commit, known in both.seen.items():
        try:
            assert both.history.ages(commit=commit) == known.image
        except GitopsError as gone:
            assert gone.code == "graph_version_gone"  # noqa: PT017 - whether it is gone depends on the run
    for name, head in both.model.heads.items():
        rows = dict(both.model.heads["main"].image)
        for change in diff_versions(both.history.uri, ReadTarget(), ReadTarget(name)):
            rows.pop(change.id, None)
            if change.after is not None:
                rows[change.id] = change.after["age"]
        assert rows == head.image
    assert verify_graph(both.history.uri, deep=True).ok
