"""`docs/language-rules.md`, made from the registry of language rules: `python -m tests.support.rules_page`."""

from __future__ import annotations

from gitops.database.language.rules import RULES, RuleStage
from tests.support.pages import cell, write_page

PAGE = "language-rules.md"
_HEAD = """\
# Rules of the languages

What the compilers of schemas (`.pg`) and stored queries (`.gq`) refuse, and what a migration does not do. Every problem comes
with its file, line and column. Of a schema all problems are reported in one run, of each query the first. The labels are
the codes of `gitops lint`. Grammar failures of query text have none.

This page is made from the registry in `gitops/database/language/rules.py` by `make docs`.
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
    return "\n".join([f"## {title}", "", "| rule | found | refuses |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    write_page(PAGE, rules_page())
