"""`docs/codes.md`, made from the registry of codes: `python -m tests.support.codes_page`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops.core import _codes_bot, _codes_cluster, _codes_forge, _codes_graph
from gitops.core.codes import REGISTRY, Code, CodeEntry
from tests.support.pages import cell, write_page

PAGE = "codes.md"
_HEAD = """\
# Codes

Every problem that `gitops` reports carries one of these codes, in text as `ERROR code path: message` and in JSON as `code`.
The meaning of a code never changes, and a code is never reused. The severity is the usual one: a command may report a
code with the other severity if the situation means something else to it. Warnings never change the exit code.

*Meaning* is the same for every problem with the code, *cause* is its usual cause; the message of a problem contains
the details. The place of a problem, if it has one, is shown as `file:line:column`, and in JSON as `source`.

This page is made from the registry in `gitops/core/codes.py` by `make docs`.
"""


def codes_page() -> str:
    """The whole page."""
    sections = (
        ("Cluster folder, plan and ledger", _codes_cluster.TABLE),
        ("Repository, approvals and audit", _codes_bot.TABLE),
        ("Graphs and queries", _codes_graph.TABLE),
        ("Forges", _codes_forge.TABLE),
    )
    parts = [_HEAD, *(_section(title, _names(table), REGISTRY) for title, table in sections)]
    return "\n".join(parts)


def _names(table: str) -> list[str]:
    return sorted(line.partition("|")[0].strip() for line in table.splitlines() if line.strip() and line[0] != " ")


def _section(title: str, names: Iterable[str], registry: Mapping[Code, CodeEntry]) -> str:
    rows = [_row(registry[Code(name)]) for name in names]
    return "\n".join(
        [f"## {title}", "", "| code | severity | meaning | cause | what to do |", "|---|---|---|---|---|", *rows, ""]
    )


def _row(entry: CodeEntry) -> str:
    return f"| `{entry.code}` | {entry.severity} | {cell(entry.summary)} | {cell(entry.cause)} | {cell(entry.fix)} |"


if __name__ == "__main__":
    write_page(PAGE, codes_page())
