"""The registry of codes against the code that raises them and the tests that expect them.

What counts as an expectation is read from the syntax of the tests, so that it holds however they are spread over workers: a
code as a whole text in a test module or in a case file. A code that a test only feeds in, such as the code of an error that it
makes itself or of an outcome that is to be rendered, proves nothing and does not count.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops.core.codes import REGISTRY
from tests.support.pages import ROOT

# Codes that no test brings up, each with the reason. This list may only shrink.
_UNPROVEN: dict[str, str] = {}

_ERRORS = {"GitopsError", "ConflictError", "RemoteError", "IntegrityError", "UsageError", "SourceError"}
# Helpers and renderings are given diagnostics; the registry's own tests name codes without raising them.
_NO_EXPECTATIONS = (
    "architecture/",
    "support/",
    "bench/",
    "unit/render/",
    "unit/core/",
    "data/render/",
    "data/bot-config/",
)
_FEEDING = {*_ERRORS, "Diagnostic", "add", "IntentListing", "ApprovalListing", "LockObservation"}
_MIN_ADD = 3


def _modules(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT / folder).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(node: ast.AST, *, expected: bool) -> Iterator[str]:
    """Whole texts below a node; with `expected`, not those that are handed to something that makes or refuses."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if expected and isinstance(node, ast.Call) and _called(node) in _FEEDING:
        return
    if expected and isinstance(node, ast.keyword) and node.arg == "refused":
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, expected=expected)


def _values(form: Any) -> Iterator[str]:
    if isinstance(form, str):
        yield form
    elif isinstance(form, dict | list):
        for value in form.values() if isinstance(form, dict) else form:
            yield from _values(value)


def _case_files() -> Iterator[Path]:
    for path in sorted((ROOT / "tests").rglob("*.json")):
        name = path.relative_to(ROOT / "tests").as_posix()
        # What lies in a broken ledger is material for its case, and often no JSON.
        if not name.startswith(_NO_EXPECTATIONS) and "/ledger/" not in name:
            yield path


def _expected_codes() -> set[str]:
    found: set[str] = set()
    for name, tree in _modules("tests"):
        if not name.startswith(_NO_EXPECTATIONS):
            found.update(_texts(tree, expected=True))
    for path in _case_files():
        found.update(_values(json.loads(path.read_bytes())))
    return found & set(REGISTRY)


def _named_codes() -> Iterator[tuple[str, str]]:
    """Where the product makes a problem, and the code that it gives to it as a literal."""
    for name, tree in _modules("gitops"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            makes = _called(node) in _ERRORS or (_called(node) == "add" and len(node.args) >= _MIN_ADD)
            if makes and isinstance(node.args[0].value, str):
                yield f"{name}:{node.lineno}", node.args[0].value


def test_every_code_is_expected_by_a_test():
    assert set(REGISTRY) - _expected_codes() == set(_UNPROVEN)


def test_every_code_is_raised():
    used: set[str] = set()
    for name, tree in _modules("gitops"):
        if not name.startswith("core/_codes_"):
            used.update(_texts(tree, expected=False))
    assert set(REGISTRY) - used == set()


def test_every_code_that_is_raised_is_registered():
    named = list(_named_codes())
    assert len({code for _, code in named}) > len(REGISTRY) // 2
    assert [(place, code) for place, code in named if code not in REGISTRY] == []


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_entry_says_what_why_and_what_to_do(name):
    entry = REGISTRY[name]
    assert name.isascii()
    assert name == name.lower()
    for text in (entry.summary, entry.cause, entry.fix):
        assert text, "an entry has a summary, a cause and a remedy"
        assert text.isprintable()
        assert not text.endswith((".", " "))
    assert len({entry.summary, entry.cause, entry.fix}) == 3


def test_causes_are_not_copied_from_one_code_to_another():
    causes = [entry.cause for entry in REGISTRY.values()]
    assert sorted({cause for cause in causes if causes.count(cause) > 1}) == []
