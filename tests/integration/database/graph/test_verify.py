"""verify finds every damage that it is asked about, each under its code, and finds nothing in a graph that is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import layout
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.verify import verify_graph
from tests.support.histories import History, knows, lives, person, sealed, town


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(str(tmp_path / "g.omni"))
    rows = {"node:Person": [person("a", 1, "m@x"), person("b", 2)], "node:Town": [town("x")]}
    made.put("main", {**rows, "edge:Lives": [lives("l", "a", "x")], "edge:Knows": [knows("k", "a", "b")]})
    made.people("main", c=3)
    create_branch(made.uri, "dev", made.work())
    made.people("dev", d=4)
    return made


def codes(history: History, *, deep: bool = False) -> list[str]:
    return [finding.code.value for finding in verify_graph(history.uri, deep=deep).findings]


def test_a_whole_graph_has_no_findings(history: History) -> None:
    report = verify_graph(history.uri, deep=True)
    assert report.ok
    assert report.to_json() == {"deep": True, "manifests": 5, "table_versions": 10, "findings": []}


def edit(history: History, n: int, change: Callable[[dict[str, Any]], Any], *, seal: bool = True) -> None:
    path = Path(history.uri) / layout.manifest_key(n)
    form = json.loads(path.read_bytes())
    change(form)
    path.write_text(json.dumps(sealed(form) if seal else form), encoding="utf-8")


def _entry(**changes: Any) -> Callable[[History], None]:
    def damage(history: History) -> None:
        edit(history, 3, lambda form: form["tables"]["node:Person"].update(changes))

    return damage


def _remove_schema(history: History) -> None:
    (Path(history.uri) / layout.ir_key(history.at().manifest.schema_ir)).unlink()


def _edit_schema(history: History) -> None:
    path = Path(history.uri) / layout.source_key(history.at().manifest.schema_source)
    path.write_bytes(path.read_bytes() + b" ")


def _remove_table(history: History) -> None:
    shutil.rmtree(Path(history.uri) / history.at().manifest.tables["edge:Knows"].path)


def _remove_data(history: History) -> None:
    """One file with rows of a table: the driver counts rows without it."""
    next((Path(history.uri) / history.at().manifest.tables["node:Town"].path).glob("data/*")).unlink()


def _remove_branch_versions(history: History) -> None:
    shutil.rmtree(Path(history.uri) / layout.manifests(history.at("dev").line.id))


def _write(key: str, data: bytes) -> Callable[[History], None]:
    def damage(history: History) -> None:
        path = Path(history.uri) / key
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    return damage


DAMAGES: dict[str, tuple[Callable[[History], None], set[str]]] = {
    "a manifest that is cut short": (_write(layout.manifest_key(2), b"{"), {"manifest_unreadable"}),
    "a manifest that was changed": (
        lambda history: edit(history, 2, lambda form: form.update(actor="eve"), seal=False),
        {"manifest_unreadable"},
    ),
    "a manifest that vanished": (
        lambda history: (Path(history.uri) / layout.manifest_key(2)).unlink(),
        {"version_missing"},
    ),
    "the first manifest vanished": (
        lambda history: (Path(history.uri) / layout.manifest_key(1)).unlink(),
        {"version_missing"},
    ),
    "a parent that is another commit": (
        lambda history: edit(history, 3, lambda form: form["parent"].update(commit="0" * 26)),
        {"parent_mismatch"},
    ),
    "a schema that vanished": (_remove_schema, {"schema_damaged"}),
    "a schema of other bytes": (_edit_schema, {"schema_damaged"}),
    "a table too few": (
        lambda history: edit(history, 3, lambda form: form["tables"].pop("edge:Knows")),
        {"tables_mismatch"},
    ),
    "a table that vanished": (_remove_table, {"table_unreadable"}),
    "a file of a table that vanished": (_remove_data, {"table_unreadable"}),
    "a version of a table that is not there": (_entry(version=99), {"table_unreadable"}),
    "another number of rows": (_entry(rows=9), {"rows_mismatch"}),
    "other columns": (_entry(fields={"id": 0}), {"columns_mismatch"}),
    "a branch without versions": (_remove_branch_versions, {"branch_without_version"}),
    "a list of branches that does not read": (
        _write(layout.BRANCH_INDEX, b"{}"),
        {"document_unreadable", "unreferenced"},
    ),
    "a floor that does not read": (_write(layout.floor_key("main"), b"{}"), {"document_unreadable"}),
    "a lease that does not read": (_write(layout.lease_key("0" * 26), b"{}"), {"document_unreadable"}),
    "a schema too many": (_write(layout.source_key("f" * 64), b""), {"unreferenced"}),
    "a table too many": (_write(f"nodes/{'0' * 26}.lance/x", b""), {"unreferenced"}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found_under_its_code(history: History, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(history)
    report = verify_graph(history.uri)
    assert {finding.code.value for finding in report.findings} == expected
    assert report.ok == (expected == {"unreferenced"})


def _unreadable_or_nodes(form: dict[str, Any]) -> None:
    form.clear()


def test_a_graph_whose_newest_version_does_not_read_is_refused(history: History) -> None:
    edit(history, 3, _unreadable_or_nodes)
    with pytest.raises(GitopsError) as failure:
        verify_graph(history.uri)
    assert failure.value.code == "graph_unreadable"


BROKEN: dict[str, tuple[dict[str, list[dict[str, Any]]], list[str]]] = {
    "an end that does not exist": ({"edge:Knows": [knows("bad", "a", "zz")]}, ["OrphanEdge"]),
    "two ends that do not exist": ({"edge:Knows": [knows("bad", "yy", "zz")]}, ["OrphanEdge", "OrphanEdge"]),
    "too many edges": ({"edge:Lives": [lives("bad", "a", "x")]}, ["CardinalityViolation"]),
    "a unique value twice": ({"node:Person": [person("bad", 1, "m@x")]}, ["UniqueViolation", "UniqueViolation"]),
    "a value out of range": ({"node:Person": [person("bad", 151)]}, ["ValueConstraintViolation"]),
    "an id that the key does not make": (
        {"node:Town": [{"id": "bad", "name": "good"}]},
        ["ValueConstraintViolation"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found_by_a_deep_look(history: History, name: str) -> None:
    rows, kinds = BROKEN[name]
    history.put("dev", rows)
    assert codes(history) == []
    found = verify_graph(history.uri, deep=True).findings
    assert [finding.code.value for finding in found] == ["rule_broken"] * len(kinds)
    assert [finding.detail.partition(":")[0] for finding in found] == kinds
    assert all(finding.path.startswith("dev/") for finding in found)


def test_an_id_twice_is_found_by_a_deep_look(history: History) -> None:
    from gitops.database.graph.tables import arrow_table

    base = history.at()
    declared = base.schema().catalog.nodes["Town"]
    table = arrow_table(declared, {"id": ["x"], "name": ["x"]})
    history.put_table("main", "node:Town", lambda dataset: dataset.insert(table))
    assert "rule_broken" in codes(history, deep=True)


def test_bounds_are_compared_exactly_at_the_ends_of_every_kind(tmp_path: Path) -> None:
    schema = b"""node N { k: String @key  u: U64? @range(u, 1..)  v: U64? @range(v, -1..)  i: I64? @range(i, ..5)
      f: F32? @range(f, 0.5..)  w: U32? @range(w, ..7) }"""
    history = History(str(tmp_path / "g.omni"), schema)
    whole = {"id": "a", "k": "a", "u": 2**64 - 1, "v": 2**64 - 1, "i": -(2**63), "f": 3.0e38, "w": 0}
    history.put("main", {"node:N": [whole]})
    assert verify_graph(history.uri, deep=True).ok
    history.put("main", {"node:N": [{"id": "b", "k": "b", "u": 0, "i": 6, "f": 0.25, "w": 2**32 - 1}]})
    found = [finding.detail for finding in verify_graph(history.uri, deep=True).findings]
    assert sorted(text.partition("N.")[2][0] for text in found) == ["f", "i", "u", "w"]
