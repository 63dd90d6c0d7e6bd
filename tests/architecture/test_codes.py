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

from gitops.core.codes import ENTRY, REGISTRY, Code, table
from tests.support.code_texts import is_text_of, is_text_of_the_program, makers, modules
from tests.support.codes_page import samples
from tests.support.pages import ROOT

# Codes that no test brings up, each with the reason. This list may only shrink.
_UNPROVEN: dict[str, str] = {}

# Where codes are named and described; to be there is not to be raised.
_TABLES = ("core/codes.py", "serving/answers.py")
# Texts that another module hands on as a value, through a port or over HTTP: where they are made. This list may only shrink.
_MADE_ELSEWHERE = {
    "catalog_payload_digest_mismatch": ["cluster/ledger/files.py"],
    "envelope_invalid": ["git/sshsig.py"],
    "graph_create_failed": ["database/graph/root.py"],
    "irreversible_change": ["database/language/schema/migration.py"],
    "query_parse_error": ["database/language/lexer.py"],
    "query_server_busy": ["serving/http/work.py"],
    "query_server_forbidden": ["serving/access.py"],
    "query_server_refused": ["serving/queries.py"],
    "query_server_unauthorized": ["serving/access.py"],
    "query_server_unknown": ["serving/http/queries.py"],
    "query_typecheck_error": ["database/language/query/check.py"],
    "schema_annotation_unknown": ["database/language/schema/compile.py"],
    "schema_apply_failed": ["database/language/schema/migration.py"],
    "schema_catalog_error": ["database/language/schema/compile.py"],
    "schema_parse_error": ["database/language/schema/parser.py"],
    "stored_query_check_failed": ["database/language/query/check.py"],
}
# Codes that the rules of a kind name: where they are reported with a text.
for _code in ("graph_create_skipped", "graph_delete_skipped", "schema_apply_skipped"):
    _MADE_ELSEWHERE[_code] = ["cluster/apply/settle.py"]
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


def _tests() -> Iterator[str]:
    """The text of each test module that may expect something."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.relative_to(ROOT / "tests").as_posix().startswith(_NO_EXPECTATIONS):
            yield path.read_text(encoding="utf-8")


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _expectations(tree: ast.Module) -> Iterator[str]:
    """Whole texts of a module, but for those that are handed to something that makes or refuses."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call) and _called(node) in _FEEDING:
            continue
        elif not isinstance(node, ast.keyword) or node.arg != "refused":
            nodes.extend(ast.iter_child_nodes(node))


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
    for path in _case_files():
        found.update(_values(json.loads(path.read_bytes())))
    for text in _tests():
        # Few modules have a code that was not found yet, and only those are parsed.
        if any(code in text for code in set(REGISTRY) - found):
            found.update(_expectations(ast.parse(text)))
    return found & set(REGISTRY)


def _members(tree: ast.AST) -> Iterator[str]:
    """The codes that a module names as members of the enum."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
            yield node.attr


def _literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Codes that a module spells as text where it makes a problem."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and (_called(node) in _ERRORS or _called(node) == "add"):
            first = node.args[0]
            if isinstance(first, ast.Constant) and first.value in set(REGISTRY):
                yield first


def test_every_code_is_expected_by_a_test():
    assert set(REGISTRY) - _expected_codes() == set(_UNPROVEN)


def test_every_code_is_raised():
    used = {member for name, tree in modules() if name not in _TABLES for member in _members(tree)}
    assert {code.name for code in Code} - used == set()


def test_every_code_has_an_entry():
    assert sorted(name for name, *_ in ENTRY.findall(table())) == sorted(Code)
    assert set(REGISTRY) == set(Code)
    assert all(code.name == code.value.upper() for code in Code)


def test_the_table_has_entries_and_headings_alone():
    left = ENTRY.sub("", table()).splitlines()
    assert [line for line in left if line and not line.startswith("# ")] == []


def test_no_module_spells_a_code_as_text():
    assert [f"{name}:{each.lineno}" for name, tree in modules() for each in _literals(tree)] == []


def test_an_entry_says_what_why_and_what_to_do():
    assert [name for name in REGISTRY if not (name.isascii() and name == name.lower())] == []
    for name, entry in REGISTRY.items():
        texts = (entry.summary, entry.cause) if entry.fix is None else (entry.summary, entry.cause, entry.fix)
        assert all(text and text.isprintable() and not text.endswith((".", " ")) for text in texts), name
        assert len(set(texts)) == len(texts), name


def test_each_example_is_a_text_of_the_program():
    assert {code: each.message for code, each in samples().items() if not is_text_of_the_program(each.message)} == {}


def test_each_example_is_made_where_its_code_is_raised():
    wrong = {code: each.message for code, each in samples().items() if not _is_made(code, each.message)}
    assert wrong == {}


@pytest.mark.parametrize("code", _MADE_ELSEWHERE)
def test_a_text_that_is_handed_on_is_not_made_where_its_code_is_raised(code):
    assert not is_text_of(samples()[Code(code)].message, makers(code))


def _is_made(code: str, text: str) -> bool:
    return is_text_of(text, makers(code, _MADE_ELSEWHERE.get(code, ())))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("schema_file_missing", "a valid approval does not work in the copy"),
        ("mutation_invalid", "Person 'ada' does not exist"),
        ("query_literal_invalid", "'2026-02-30' is not a day"),
        ("graph_replaced", "a different graph is at /srv/graphs/people.omni now"),
    ],
)
def test_a_text_of_another_problem_is_no_example(code, text):
    assert not _is_made(code, text)


@pytest.mark.parametrize(
    "text",
    [
        "a valid approval was refused in the copy",
        "nothing lies at /srv/graphs/knowledge.omni",
        "unknown annotation `@kye`",
        "approval 222222222222: the graph has 1200 rows; the approval covers 1000",
    ],
)
def test_a_text_that_the_program_does_not_write_is_no_example(text):
    assert not is_text_of_the_program(text)


def test_causes_are_not_copied_from_one_code_to_another():
    causes = [entry.cause for entry in REGISTRY.values()]
    assert sorted({cause for cause in causes if causes.count(cause) > 1}) == []
