"""Small files, small functions. The lists of exceptions may only shrink."""

from __future__ import annotations

import ast

from tests.support.code_texts import modules
from tests.support.pages import ROOT

_FILE_LINES = 800
_FUNCTION_LINES = 60

_LONG_FILES: set[str] = set()
_LONG_FUNCTIONS: set[str] = set()


def test_files_are_short():
    files = {name: (ROOT / "gitops" / name).read_text(encoding="utf-8").count("\n") for name, _ in modules()}
    assert {name for name, lines in files.items() if lines > _FILE_LINES} == _LONG_FILES


def test_functions_are_short():
    long = {
        f"{name}:{node.name}"
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > _FUNCTION_LINES
    }
    assert long == _LONG_FUNCTIONS


def test_a_module_says_what_it_is_for():
    assert {name for name, tree in modules() if not ast.get_docstring(tree)} == set()
