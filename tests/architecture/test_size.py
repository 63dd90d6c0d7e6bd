"""Small files, small functions. The lists of exceptions may only shrink."""

from __future__ import annotations

import ast

import pytest

from tests.support.pages import ROOT

_FILE_LINES = 400
_FUNCTION_LINES = 60

_LONG_FILES: set[str] = set()
_LONG_FUNCTIONS: set[str] = set()

_FILES = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "gitops").rglob("*.py"))}


def _functions():
    for name, path in _FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.name}", node


def test_files_are_short():
    long = {name for name, path in _FILES.items() if len(path.read_text(encoding="utf-8").splitlines()) > _FILE_LINES}
    assert long == _LONG_FILES


def test_functions_are_short():
    long = {name for name, node in _functions() if (node.end_lineno or 0) - node.lineno + 1 > _FUNCTION_LINES}
    assert long == _LONG_FUNCTIONS


@pytest.mark.parametrize("name", sorted(_FILES))
def test_a_module_says_what_it_is_for(name):
    content = _FILES[name].read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(content))
