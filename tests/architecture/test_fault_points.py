"""Every fault point of the tree is in the registry, every name of the registry is a place in the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.support.code_texts import modules
from tests.support.fault_points import FAULT_POINTS
from tests.support.pages import ROOT, read_page

_ROW = r"\b[CSRD]\d\b"
_REACHING = {"reach", "_fault_before", "_fault_after"}


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


@cache
def _of_the_tree() -> frozenset[str]:
    return frozenset(pattern for name, tree in modules() if name != "core/faults.py" for pattern in _patterns(tree))


def test_the_points_of_the_tree_are_those_of_the_registry():
    named = {pattern: [name for name in FAULT_POINTS if re.fullmatch(pattern, name)] for pattern in _of_the_tree()}
    assert [pattern for pattern, names in named.items() if not names] == []
    assert set(FAULT_POINTS) - {name for names in named.values() for name in names} == set()


def test_a_name_is_an_area_and_a_moment_and_is_explained():
    form = re.compile(r"[a-z_]+(\.[a-z_]+)*\.((before|after)_[a-z_]+|staged)")
    assert [name for name, meaning in FAULT_POINTS.items() if not form.fullmatch(name) or not meaning] == []


def test_the_page_of_recovery_has_every_row_of_the_sweep():
    rows = re.findall(_ROW, (ROOT / "gitops/cluster/plan/recovery_rules.py").read_text(encoding="utf-8"))
    assert re.findall(rf"^\| ({_ROW}) \|", read_page("recovery-cases.md"), re.MULTILINE) == sorted(
        set(rows), key=lambda row: ("CSRD".index(row[0]), row)
    )
