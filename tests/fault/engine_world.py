"""A graph that everything is done to, and a plain model of what each deed does to it.

A deed is a value; the same deed on the same rows gives the same rows, in the engine (`perform`) and in the model (`after`). It
is named in the versions that it makes (`marker`), so that what is there tells what was done.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.read import export_records
from gitops.database.graph.results import GcResult
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import check_query, parse_queries
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.clock import FixedClock

SIDE = "side"
COUNTERS = ("c0", "c1", "c2")
# Versions before a drop are kept for seven days.
LATER = timedelta(days=8)
"""So far ahead is the clock of `collect_garbage`: whatever a dead process left is old by then."""

_EDGES = "edge Of: Item -> Counter @card(0..1)\nedge Next: Item -> Item { weight: I64 }\n"
_HEAD = "node Counter { name: String @key  value: I64 }\nnode Item { n: I64 @key  code: String @unique  "
SCHEMAS: Mapping[str, str] = {
    "plain": f"{_HEAD}note: String? }}\n{_EDGES}",
    "add": f"{_HEAD}note: String?  extra: String? }}\nnode Extra {{ k: String @key }}\n{_EDGES}",
    "rename": (
        f'{_HEAD}remark: String? @rename_from("note")  extra: String? }}\nnode Extra {{ k: String @key }}\n{_EDGES}'
    ),
    "drop": f"{_HEAD}remark: String? }}\n{_EDGES}",
    "back": f'{_HEAD}note: String? @rename_from("remark") }}\n{_EDGES}',
    "convert": (
        f'{_HEAD}note: String @backfill("none") }}\n{_EDGES}'.replace("value: I64", "value: String").replace(
            "weight: I64", "weight: String"
        )
    ),
    "rekey": f"{_HEAD}note: String? }}\n{_EDGES}".replace("n: I64 @key  code: String", "n: I64  code: String @key"),
}
_QUERIES = {
    "insert": (
        "query q($n: I64, $id: String, $code: String) "
        '{ insert Item { n: $n, code: $code, note: "new" } insert Of { from: $id, to: "c0" } }'
    ),
    "update": (
        "query q($n: I64, $code: String) "
        '{ update Item set { code: $code } where n = $n update Counter set { value: $n } where name = "c1" }'
    ),
    "delete": "query q($n: I64) { delete Item where n = $n }",
    "fill": 'query q($n: I64) { insert Extra { k: "e" } update Item set { extra: "text" } where n = $n }',
}
_MODES = {"load_merge": LoadMode.MERGE, "load_append": LoadMode.APPEND, "load_overwrite": LoadMode.OVERWRITE}


@dataclass(frozen=True, slots=True)
class Deed:
    """`number` is its own in one graph; `target` is the item that it changes, where it changes one."""

    op: str
    number: int
    branch: str = "main"
    target: int = 0

    @property
    def marker(self) -> str:
        """Who made a version, as its manifest says."""
        return f"deed-{self.number}"


@dataclass(slots=True)
class Rows:
    """What a branch holds: properties of nodes by type and id, and how many edges of each kind there are."""

    nodes: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    edges: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def items(self) -> list[int]:
        """The items, in order."""
        return sorted(int(node_id) for kind, node_id in self.nodes if kind == "Item")


@dataclass(slots=True)
class Model:
    """What a graph holds; `base` is what both branches held when they were the same, `schema` the name of the text."""

    branches: dict[str, Rows]
    schema: str = "plain"
    base: Rows = field(default_factory=Rows)

    def after(self, deed: Deed) -> Model:
        """What it holds when the deed is done."""
        made = deepcopy(self)
        _effect(made, deed)
        return made


def found(uri: str) -> dict[str, Rows]:
    """What the branches of a graph hold."""
    return {info.name: rows_of(open_snapshot(uri, ReadTarget(info.name))) for info in list_branches(uri)}


def rows_of(snapshot: Snapshot) -> Rows:
    """What a version holds, but for the ids of edges."""
    rows = Rows()
    for record in map(json.loads, export_records(snapshot)):
        data = record["data"]
        if "edge" in record:
            data.pop("id")
            rows.edges[record["edge"], record["from"], record["to"], json.dumps(data, sort_keys=True)] += 1
        else:
            rows.nodes[record["type"], data.pop("id")] = data
    return rows


def begin(uri: str) -> Model:
    """Make the graph."""
    source = SCHEMAS["plain"].encode()
    LanceEngine(SystemClock(), RandomIds()).prepare_create(uri, source, actor=None).publish()
    model = Model({"main": Rows()})
    first = Deed("load_overwrite", 1)
    perform(uri, first)
    return model.after(first)


def perform(uri: str, deed: Deed, faults: Faults | None = None) -> object:
    """Do it, and give what the engine gives. Raises as the engine."""
    clock, ids, faults = SystemClock(), RandomIds(), faults or NoFaults()
    work = WriteContext(clock, ids, deed.marker, None, faults)
    if deed.op in _MODES:
        stream = io.BytesIO("\n".join(map(json.dumps, records(deed))).encode())
        request = LoadRequest(uri, stream, _MODES[deed.op], deed.branch)
        return load_records(request, work).manifest_version
    if deed.op in _QUERIES:
        catalog = open_snapshot(uri, ReadTarget(deed.branch)).schema().catalog
        query = check_query(parse_queries(_QUERIES[deed.op].encode())[0], catalog)
        options = MutationOptions(clock.now(), deed.branch, deed.marker)
        return Mutator(clock, ids, faults).run(uri, query, _params(deed), options).manifest_version
    if deed.op in SCHEMAS:
        source = SCHEMAS[deed.op].encode()
        return LanceEngine(clock, ids, faults).prepare_migration(uri, source, actor=deed.marker).publish()
    if deed.op == "branch_create":
        return create_branch(uri, SIDE, work).manifest_version
    if deed.op == "branch_delete":
        delete_branch(uri, SIDE, work)
        return None
    if deed.op in ("merge", "fast_forward"):
        return merge_branch(uri, SIDE, "main", work).manifest_version
    if deed.op == "optimize":
        eager = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1, stale_rows=0)
        return optimize_tables(uri, work, eager).manifest_version
    return collect(uri, deed.marker, faults).manifests


def collect(uri: str, actor: str | None = None, faults: Faults | None = None, keep: int = 1) -> GcResult:
    """Free everything but the newest version of each branch and what is leased, as if it had been long ago."""
    clock = FixedClock(SystemClock().now() + LATER)
    none = timedelta(0)
    work = WriteContext(clock, RandomIds(), actor, None, faults or NoFaults())
    return collect_garbage(uri, work, Retention(keep_versions=keep, older_than=none, grace=none))


def records(deed: Deed) -> list[dict[str, Any]]:
    """What a load brings."""
    first = 10 * deed.number
    fresh = range(first, first + (4 if deed.op == "load_overwrite" else 2))
    counters = COUNTERS if deed.op == "load_overwrite" else (COUNTERS[1],) if deed.op == "load_merge" else ()
    changed = [deed.target] if deed.op == "load_merge" and deed.target else []
    return [
        *({"type": "Counter", "data": {"name": name, "value": deed.number}} for name in counters),
        *({"type": "Item", "data": _item(n, f"code {n} of {deed.number}")} for n in (*changed, *fresh)),
        *({"edge": "Of", "from": str(n), "to": "c0", "data": {}} for n in fresh),
        {"edge": "Next", "from": str(first), "to": str(first + 1), "data": {"weight": deed.number}},
    ]


def _item(n: int, code: str) -> dict[str, Any]:
    return {"n": n, "code": code, "note": "new"}


def _params(deed: Deed) -> dict[str, Any]:
    fresh = 10 * deed.number
    if deed.op == "insert":
        return {"n": fresh, "id": str(fresh), "code": f"code {fresh}"}
    params: dict[str, Any] = {"n": deed.target}
    if deed.op == "update":
        params["code"] = f"code of {deed.number}"
    return params


def _effect(model: Model, deed: Deed) -> None:
    rows = model.branches.get(deed.branch, Rows())
    if deed.op in _MODES:
        _load(rows, deed)
    elif deed.op in _QUERIES:
        _mutate(rows, deed)
    elif deed.op in SCHEMAS:
        _migrate(model, deed.op)
    elif deed.op == "branch_create":
        model.branches[SIDE], model.base = deepcopy(rows), deepcopy(rows)
    elif deed.op == "branch_delete":
        del model.branches[SIDE]
    elif deed.op in ("merge", "fast_forward"):
        _merge(model)


def _load(rows: Rows, deed: Deed) -> None:
    if deed.op == "load_overwrite":
        rows.nodes.clear()
        rows.edges.clear()
    for record in records(deed):
        data = record["data"]
        if "edge" in record:
            rows.edges[record["edge"], record["from"], record["to"], json.dumps(data, sort_keys=True)] += 1
        else:
            rows.nodes[record["type"], str(data.get("name", data.get("n")))] = dict(data)


def _mutate(rows: Rows, deed: Deed) -> None:
    params, own = _params(deed), str(deed.target)
    if deed.op == "insert":
        rows.nodes["Item", params["id"]] = _item(params["n"], params["code"])
        rows.edges["Of", params["id"], "c0", "{}"] += 1
    elif deed.op == "update":
        rows.nodes["Item", own]["code"] = params["code"]
        rows.nodes["Counter", "c1"]["value"] = params["n"]
    elif deed.op == "fill":
        rows.nodes["Extra", "e"] = {"k": "e"}
        rows.nodes["Item", own]["extra"] = "text"
    else:
        del rows.nodes["Item", own]
        for edge in [
            edge for edge in rows.edges if (edge[0] == "Next" and own in edge[1:3]) or edge[:2] == ("Of", own)
        ]:
            del rows.edges[edge]


def _migrate(model: Model, schema: str) -> None:
    rows = model.branches["main"]
    if "convert" in (schema, model.schema):
        _retype(rows, str if schema == "convert" else int)
    if "rekey" in (schema, model.schema):
        _rename_ids(rows, "code" if schema == "rekey" else "n")
    if schema in ("plain", "drop", "back"):
        rows.nodes = {key: data for key, data in rows.nodes.items() if key[0] != "Extra"}
        for data in rows.nodes.values():
            data.pop("extra", None)
    old, new = ("note", "remark") if schema == "rename" else ("remark", "note")
    for data in rows.nodes.values() if schema in ("rename", "back") else ():
        if old in data:
            data[new] = data.pop(old)
    model.schema = schema


def _retype(rows: Rows, kind: type[int | str]) -> None:
    for (label, _), data in rows.nodes.items():
        if label == "Counter":
            data["value"] = kind(data["value"])
        elif kind is str:
            data["note"] = data.get("note") or "none"
    edges = rows.edges.items()
    rows.edges = Counter(
        {
            (edge, source, target, _weighing(text, kind) if edge == "Next" else text): number
            for (edge, source, target, text), number in edges
        }
    )


def _weighing(text: str, kind: type[int | str]) -> str:
    return json.dumps({"weight": kind(json.loads(text)["weight"])})


def _rename_ids(rows: Rows, member: str) -> None:
    names = {node_id: str(data[member]) for (label, node_id), data in rows.nodes.items() if label == "Item"}
    rows.nodes = {
        (label, names[node_id] if label == "Item" else node_id): data for (label, node_id), data in rows.nodes.items()
    }
    rows.edges = Counter(
        {
            (edge, names[source], names.get(target, target), text): number
            for (edge, source, target, text), number in rows.edges.items()
        }
    )


def _merge(model: Model) -> None:
    ours, theirs, base = model.branches["main"], model.branches[SIDE], model.base
    for key in base.nodes.keys() | theirs.nodes.keys():
        if theirs.nodes.get(key) == base.nodes.get(key):
            continue
        if key in theirs.nodes:
            ours.nodes[key] = deepcopy(theirs.nodes[key])
        else:
            del ours.nodes[key]
    ours.edges.update(theirs.edges - base.edges)
    ours.edges -= base.edges - theirs.edges
