"""`docs/language-rules.md`, made from the registry of language rules: `python -m tests.support.rules_page`."""

from __future__ import annotations

from gitops.database.language.rules import RULES, RuleStage
from tests.support.pages import cell, write_page

PAGE = "language-rules.md"
_HEAD = """\
# Rules of the languages

This page lists everything that the schema (`.pg`) and query (`.gq`) compilers reject, and the migrations that aren't
supported. Every problem is reported with its file, line and column. One run reports all problems of a schema, but only the
first problem of each query. The labels are the codes of `gitops lint`. Grammar errors in queries don't have a label.

This page is generated from the registry in `gitops/database/language/rules.py` by `make docs`.
"""
_SECTIONS = {
    "Schemas": (RuleStage.PARSE, RuleStage.CATALOG),
    "Queries": (RuleStage.TYPE, RuleStage.LIMIT),
    "Migrations": (RuleStage.MIGRATION,),
    "Report on a query file": (RuleStage.LINT,),
    "Reserved": (RuleStage.RESERVED,),
}


def rules_page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(title, found) for title, found in _SECTIONS.items())])


def _section(title: str, found: tuple[RuleStage, ...]) -> str:
    rows = [
        f"| `{rule.label}` | {rule.found} | {cell(rule.refuses)} |" for rule in RULES.values() if rule.found in found
    ]
    return "\n".join([f"## {title}", "", "| rule | found by | what is rejected |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    write_page(PAGE, rules_page())
