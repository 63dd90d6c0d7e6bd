"""The table of limits in docs/languages/queries.md, written from the limits: `python -m tests.support.limits_page`."""

from __future__ import annotations

from gitops.database.language.query.codes import QUERY_CODES
from gitops.database.language.query.limits import LIMITS
from tests.support.pages import read_page, write_page

PAGE = "languages/queries.md"
HEAD = "| item | at most | code |\n|---|---|---|\n"


def limits_page() -> str:
    """The page with the table in place of the one that it has."""
    before, _, rest = read_page(PAGE).partition(HEAD)
    lines = (
        f"| {limit.shown or what} | {limit.most} | `{QUERY_CODES[limit.stage]}` |\n" for what, limit in LIMITS.items()
    )
    return before + HEAD + "".join(lines) + rest[f"\n{rest}".index("\n\n") :]


if __name__ == "__main__":
    write_page(PAGE, limits_page())
