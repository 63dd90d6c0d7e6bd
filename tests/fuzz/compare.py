"""One input, three questions: do both parsers agree, does formatting keep the meaning, and does nothing fall over?"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from gitops.database.language.format import format_queries, format_schema
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ProblemCollector
from gitops.database.language.schema.types import Catalog
from gitops.database.language.text import LanguageError, Stage
from tests.support.grammars import trees
from tests.support.grammars.oracle import beyond_limits, parse

_DATA = Path(__file__).resolve().parents[1] / "data" / "languages"
GRAMMAR_RULES = frozenset({"S-01", "S-02", "S-23"})
"""Rules of schema text that the grammar holds; every other one speaks of what a well-formed text means."""


def difference(language: str, data: bytes) -> str | None:
    """What is wrong with the answers to this input, or None. Whatever is raised but a diagnostic passes through."""
    own = _schema(data) if language == "pg" else _queries(data)
    if own is not None:
        _require_stable(language, data)
    if beyond_limits(data):
        return None
    tree = parse(language, data)
    if (own is None) != (tree is None):
        return f"the parser {_verdict(own)}, the second grammar {_verdict(tree)}"
    if own is None or tree is None:
        return None
    if language == "pg":
        other = trees.schema_of_grammar(tree)
        same = _agree(trees.comparable_cards(own), trees.comparable_cards(other))
    else:
        other = trees.queries_of_grammar(tree)
        same = own == other
    return None if same else f"read differently:\n  parser  {own}\n  grammar {other}"


def _verdict(result: Any) -> str:
    return "refuses" if result is None else "accepts"


def _schema(data: bytes) -> Any:
    """The neutral form of a schema that matches the grammar, else None. Compiles it as well, for what that may raise."""
    rules = set()
    try:
        compile_schema(data)
    except LanguageError as error:
        rules = {problem.rule for problem in error.problems}
    document, problems = None, ProblemCollector()
    with suppress(LanguageError):
        document = parse_schema(data, problems)
    if problems.incomplete:
        document = None
    assert (document is None) == bool(rules & GRAMMAR_RULES), f"reported as {rules}"
    return None if document is None else trees.schema_of_parser(document)


def _queries(data: bytes) -> Any:
    """The neutral form of a query text that matches the grammar, else None. Checks it as well, for what that may raise."""
    stages: set[Stage] = set()
    try:
        queries = parse_queries(data)
    except LanguageError as error:
        stages = {problem.stage for problem in error.problems}
    if stages:
        assert stages == {Stage.PARSE}
        return None
    for query in queries:
        try:
            check_query(query, _catalog())
        except LanguageError as error:
            stages |= {problem.stage for problem in error.problems}
    assert stages <= {Stage.TYPE}
    return trees.queries_of_parser(queries)


@cache
def _catalog() -> Catalog:
    return compile_schema((_DATA / "query" / "rail.pg").read_bytes()).catalog


def _require_stable(language: str, data: bytes) -> None:
    """The formatter takes what the parser takes, and changes nothing the second time; it checks the meaning itself."""
    layout = format_schema if language == "pg" else format_queries
    once = layout(data)
    assert layout(once) == once, f"formatted twice: {once!r}"


def _agree(own: Any, other: Any) -> bool:
    """Equal, where a refused type or cardinality of the parser (a problem of its own, and no syntax) equals anything."""
    if own in (other, "None"):
        return True
    if not isinstance(own, tuple) or not isinstance(other, tuple):
        return False
    return len(own) == len(other) and all(map(_agree, own, other))
