"""Every fault point of the tree is in the registry, every name of the registry is a place in the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from gitops.core.fault_points import FAULT_POINTS
from tests.support.pages import ROOT, read_page

_ROW = r"\b[CSD]\d\b"
_REACHING = {"reach", "_fault_before", "_fault_after"}
_SOURCES = [p for p in sorted((ROOT / "gitops").rglob("*.py")) if p.name != "faults.py"]


def _pattern(name: ast.expr) -> str | None:
    """The names that an argument can stand for, as a regular expression; None when it is a plain variable."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return re.escape(name.value)
    if isinstance(name, ast.JoinedStr):
        return "".join(re.escape(p.value) if isinstance(p, ast.Constant) else "[a-z_.]+" for p in name.values)
    return None


def _patterns(tree: ast.AST) -> Iterator[str]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if called == "around":
            _, area, step = [getattr(a, "value", None) for a in call.args]
            assert isinstance(area, str), ast.unparse(call)
            assert isinstance(step, str), ast.unparse(call)
            yield re.escape(f"{area}.before_{step}")
            yield re.escape(f"{area}.after_{step}")
        elif called in _REACHING and call.args:
            pattern = _pattern(call.args[0])
            if pattern is not None:
                yield pattern


def _trees() -> Iterator[ast.AST]:
    """The syntax of the files that name one of these functions: parsing all of them would take seconds."""
    calls = re.compile("|".join(f"{name}\\(" for name in ("around", *sorted(_REACHING))))
    for path in _SOURCES:
        text = path.read_text(encoding="utf-8")
        if calls.search(text):
            yield ast.parse(text)


_PATTERNS = sorted({pattern for tree in _trees() for pattern in _patterns(tree)})


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_a_point_of_the_tree_is_in_the_registry(pattern):
    assert [name for name in FAULT_POINTS if re.fullmatch(pattern, name)]


@pytest.mark.parametrize("name", FAULT_POINTS)
def test_a_name_of_the_registry_is_a_point_of_the_tree(name):
    assert [pattern for pattern in _PATTERNS if re.fullmatch(pattern, name)]


@pytest.mark.parametrize("name", FAULT_POINTS)
def test_a_name_is_an_area_and_a_moment(name):
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)*\.((before|after)_[a-z_]+|staged)", name)
    assert FAULT_POINTS[name]


def test_the_page_of_recovery_has_every_row_of_the_sweep():
    rows = re.findall(_ROW, (ROOT / "gitops/plan/recovery_rules.py").read_text(encoding="utf-8"))
    assert re.findall(rf"^\| ({_ROW}) \|", read_page("recovery.md"), re.MULTILINE) == sorted(
        set(rows), key=lambda row: ("CSD".index(row[0]), row)
    )
