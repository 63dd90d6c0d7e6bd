"""The table of permissions in docs/http-api.md, written from the table of verbs: `python -m tests.support.verbs_page`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gitops.cluster.policy.bundle import READS
from gitops.cluster.policy.verbs import VERBS, Need
from gitops.serving.http.app import ROUTES
from tests.support.pages import read_page, write_page

PAGE = "http-api.md"
HEAD = "| request | permissions |\n|---|---|\n"


def verbs_page() -> str:
    """The page with the table in place of the one that it has."""
    before, _, rest = read_page(PAGE).partition(HEAD)
    return before + HEAD + "".join(_lines()) + rest[rest.index("\n\n") + 1 :]


def _lines() -> Iterator[str]:
    grouped = defaultdict[tuple[Need, ...], list[str]](list)
    for route in ROUTES:
        if route.operation.startswith("preview_"):
            # They need the same as the route of the live graph, as the page says.
            continue
        path = route.path.removeprefix("/graphs/{graph_id}/").replace("{", "").replace("}", "")
        grouped[VERBS[route.operation]].append(f"`{route.method} {path}`")
    for needs, paths in grouped.items():
        yield f"| {', '.join(paths)} | {'; '.join(map(_need, needs)) or 'none'} |\n"


def _need(need: Need) -> str:
    copied = f" and `{READS[need.action]}` on the branch that is copied" if need.action in READS else ""
    return f"{f'{need.when}, ' if need.when else ''}`{need.action}` on {need.on}{copied}"


if __name__ == "__main__":
    write_page(PAGE, verbs_page())
