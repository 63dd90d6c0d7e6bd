"""docs/engine.md and docs/engine-format.md say what the code does: documents are read, numbers are the constants, tests exist."""

from __future__ import annotations

import ast
import importlib
import re
from datetime import timedelta
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gitops.core.canonical import document
from gitops.core.documents.json_bytes import parse
from gitops.core.errors import IntegrityError
from gitops.database.graph import checkpoints, layout, lines, manifest, staged
from gitops.database.graph.history import verify
from gitops.database.graph.lines import read_branches, read_floor
from gitops.database.graph.manifest import OPERATIONS, read_identity, read_manifest
from gitops.database.graph.query import plan
from gitops.database.graph.query.options import Strategy
from gitops.database.graph.tables import arrow_field
from gitops.database.language.schema import PropType, Scalar
from tests.support.memory_store import MemoryStore
from tests.support.pages import ROOT, read_page

PAGE = read_page("engine-format.md") + read_page("engine.md")
_FORMATS = "| document | format written | formats read |"
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TIMES = {"min": timedelta(minutes=1), "d": timedelta(days=1)}


def _examples() -> dict[str, dict[str, Any]]:
    """The documents of the page by their keys."""
    fences = [token for token in MarkdownIt().parse(PAGE) if token.type == "fence"]
    named = [(token.info.split(), token.content) for token in fences if token.info.startswith("json ")]
    return {key: parse(content.encode()) for (_, key), content in named}


def _rows(header: str) -> list[list[str]]:
    """The cells of the table under this header line."""
    lines = PAGE.splitlines()
    found = []
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


EXAMPLES = _examples()


def _read(key: str, form: dict[str, Any]) -> object:
    """What the reader of this document makes of it."""
    store = MemoryStore()
    store.create(key, document(form))
    if key == layout.IDENTITY:
        return read_identity(store)
    if key == layout.BRANCH_INDEX:
        return read_branches(store)
    folder, _, name = key.rpartition("/")
    if folder == layout.FLOORS:
        return read_floor(store, name.removesuffix(".json"))
    if folder == layout.LEASES:
        return staged.read_leases(store)
    if folder == layout.LOADS:
        return list(checkpoints.read_loads(store))
    number = layout.manifest_number(name)
    assert number is not None
    return read_manifest(store, number, folder.split("/")[1])


@pytest.mark.parametrize("key", EXAMPLES)
def test_a_document_of_the_page_is_read_by_its_reader(key):
    form = EXAMPLES[key]
    assert _read(key, form)
    newest = max(
        int(each) for name, _, formats in _rows(_FORMATS) for each in formats.split(", ") if _kind(key) in name
    )
    with pytest.raises(IntegrityError) as failure:
        _read(key, form | {"format": newest + 1})
    assert f"the document has format {newest + 1}; this release reads format " in failure.value.detail
    assert failure.value.detail.endswith(str(newest))


def _kind(key: str) -> str:
    if key in (layout.IDENTITY, layout.BRANCH_INDEX):
        return key
    return {"floors": "floor", "leases": "lease", "loads": "load"}.get(key.partition("/")[0], "manifest")


def test_a_document_of_every_kind_is_on_the_page():
    kinds = sorted(name.strip("`") for name, *_ in _rows(_FORMATS))
    assert sorted(_kind(key) for key in EXAMPLES) == kinds
    documents = {
        layout.IDENTITY: manifest.IDENTITY,
        layout.BRANCH_INDEX: lines.BRANCHES,
        "floor": lines.FLOOR,
        "lease": staged.LEASE,
        "load": checkpoints.STAGED_LOAD,
        "manifest": manifest.MANIFEST,
    }
    read = {name: list(map(str, document.versions)) for name, document in documents.items()}
    assert {name.strip("`"): formats.split(", ") for name, _, formats in _rows(_FORMATS)} == read
    assert {name.strip("`"): written for name, written, _ in _rows(_FORMATS)} == {
        n: max(known) for n, known in read.items()
    }


def test_every_member_of_a_manifest_is_explained():
    form = next(form for key, form in EXAMPLES.items() if _kind(key) == "manifest")
    explained = " ".join(cell for row in _rows("| member | meaning |") for cell in row)
    inner = {*form, *form["schema"], *form["parent"], *form["dropped"][0], *form["tables"]["node:Person"]}
    missing = {name for name in inner - {"format"} if f"`{name}`" not in explained}
    assert missing == set()
    assert all(f"`{operation}`" in explained for operation in OPERATIONS)


def test_every_file_of_a_root_is_on_the_page():
    docstring = (
        ast.get_docstring(ast.parse((ROOT / "gitops/database/graph/layout.py").read_text(encoding="utf-8"))) or ""
    )
    listed = re.findall(r"^ {4}(\S+/|\S+\.(?:json|pg|arrow))(?= )", docstring, re.MULTILINE)
    assert len(listed) == 13
    on_page = re.findall(r"^ {4}(\S+)(?= )", PAGE, re.MULTILINE)
    assert [name for name in listed if not any(_alike(name, each) for each in on_page)] == []


def _alike(one: str, other: str) -> bool:
    return re.sub(r"<[^>]*>|\*", "?", one) == re.sub(r"<[^>]*>|\*", "?", other).replace("?.json", "?.json")


def test_columns_are_of_the_types_of_the_page():
    told = {}
    for left, arrow, _, right, other in _rows("| type | Arrow | | type | Arrow |"):
        told |= {left: arrow, right: other}
    for scalar in set(Scalar) - {Scalar.VECTOR, Scalar.BLOB}:
        names = [name for name in told if f"`{scalar.value}`" in name]
        assert [told[name].split("`")[1] for name in names] == [str(arrow_field("x", PropType(scalar)).type)]


@pytest.mark.parametrize(("value", "constant"), [row[1:] for row in _rows("| limit | value | constant |")])
def test_a_limit_of_the_page_is_the_constant(value, constant):
    module, _, name = constant.strip("`").rpartition(".")
    number, _, unit = value.partition(" ")
    expected = int(number) * _TIMES[unit] if unit in _TIMES else int(number) * _UNITS[unit]
    assert getattr(importlib.import_module(module), name) == expected


def test_every_operator_strategy_and_finding_is_on_the_page():
    page = PAGE
    operators = {name for name in vars(plan) if name.endswith("Op")}
    assert {row[0].strip("`") for row in _rows("| operator | does |")} == operators
    assert {row[0].strip("`") for row in _rows("| strategy | reads | cost |")} == set(Strategy) - {Strategy.AUTO}
    assert [code for code in verify.VerifyFindingCode if f"`{code.value}`" not in page] == []


def test_numbers_of_the_prose_are_those_of_the_code():
    from gitops.database.graph import search
    from gitops.database.graph.history.gc import Retention
    from gitops.database.graph.history.optimize import OptimizeOptions
    from gitops.database.graph.query import expand, searching

    options, page = OptimizeOptions(), " ".join(PAGE.split())
    told = [
        (options.fragments, "beyond 20 small fragments"),
        (options.deleted_share, "a fifth of deleted rows"),
        ((options.scalar_rows, options.text_rows, options.vector_rows), "from 1,000 rows"),
        (Retention().grace, "the grace period of one hour"),
        (plan._BETTER, "less than a twentieth of the first one's nodes"),
        ((search._K1, search._B), "with k1 = 1.2 and b = 0.75"),
        (searching._FUSION_K, "1 / (60 + rank)"),
        ((search._PROBES, search._REFINE), "100 probes, 20-fold refined"),
        ((expand._FEW, expand._SMALL, expand._MOST_EDGES), "below 5,000"),
        ((expand._DEEP, expand._ROUND, expand._ASKED), "4,000 µs for each step and 20 µs for each edge"),
    ]
    expected = [
        20,
        0.2,
        (1_000, 1_000, 100_000),
        timedelta(hours=1),
        20,
        (1.2, 0.75),
        60,
        (100, 20),
        (5_000, 100_000, 20_000_000),
        (8, 4_000, 20),
    ]
    assert [value for value, _ in told] == expected
    assert [words for _, words in told if words not in page] == []


def test_the_tests_that_the_page_names_exist():
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))
    assert len(named) > 40
    missing = []
    for path, name in sorted(named):
        file = ROOT / path
        tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
        if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_the_code_of_the_page_compiles_and_its_names_exist():
    fences = [token.content for token in MarkdownIt().parse(PAGE) if token.type == "fence" and token.info == "python"]
    for fence in fences:
        for node in ast.walk(ast.parse(fence)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names)
