"""The table of keys in docs/gitops-yaml.md, written from the rows of the rules: `python -m tests.support.keys_page`."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.cluster.config.gitops_yaml import KEY_ROWS
from gitops.cluster.config.keys import LISTS
from gitops.cluster.config.rule_forms import form_of
from tests.support.pages import read_page, write_page

PAGE = "gitops-yaml.md"
HEAD = "| key | default | meaning |\n|---|---|---|\n"
# Keys that users choose, and gates, which docs/approvals.md explains.
_CHOSEN = ("approvals.accounts.", "approvals.gates.", "approvals.environments.")


def table() -> str:
    """The table, a line for each key."""
    return HEAD + "".join(_lines())


def keys_page() -> str:
    """The page with the table in place of the one that it has."""
    page = read_page(PAGE)
    before, _, rest = page.partition(HEAD)
    return before + table() + rest[rest.index("\n\n") + 1 :]


def _lines() -> Iterator[str]:
    for key, row in KEY_ROWS.items():
        if key.startswith(_CHOSEN):
            continue
        shown = key
        for section in sorted(LISTS, reverse=True):
            shown = shown.replace(f"{section}.", f"{section}[].", 1) if key.startswith(f"{section}.") else shown
        has_keys = form_of(row).below and key not in LISTS and not row.unset
        default = row.said_default or ("" if has_keys else "required")
        cells = (f"`{shown}`", default, " ".join(filter(None, (row.said, row.more))))
        yield f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


if __name__ == "__main__":
    write_page(PAGE, keys_page())
