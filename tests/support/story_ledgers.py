"""The law of every story: what the product writes, its audit accepts.

Whoever builds a repository for tests says so by `watch`; when the body of a test has passed, `check` audits each ledger that such
a repository holds then. A story that damages a ledger on purpose has the marker `damaged_ledger` with
the reason; one whose ledger is sound after all may not have it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

MARKER = "damaged_ledger"

_watched: dict[Path, None] = {}
_sound: set[tuple[str, str]] = set()
"""Names and heads that were audited: a copy begins with the ledger of what it is a copy of, and most tests do not apply."""


def watch(repository: Path) -> None:
    """Audit the ledgers of this repository when the test is over."""
    _watched[repository] = None


def check(item: pytest.Item, *, passed: bool) -> None:
    """Fail if the test leaves a ledger that its audit does not accept, or says wrongly that it does."""
    places = list(filter(Path.is_dir, _watched))
    _watched.clear()
    if not passed:
        return
    marker, found = item.get_closest_marker(MARKER), [finding for place in places for finding in findings(place)]
    if marker is None and found:
        pytest.fail("the audit does not accept what this story left:\n" + "\n".join(found), pytrace=False)
    if marker is not None and (not found or not marker.kwargs.get("reason")):
        pytest.fail(f"{MARKER} is for a story that leaves a damaged ledger, and says how", pytrace=False)


def findings(place: Path) -> list[str]:
    """What the audits of all ledgers of a repository find."""
    # Only a test that builds a repository needs them.
    from gitops.cluster.audit.verb import audit
    from gitops.cluster.ledger.chain import LEDGERS
    from gitops.core.errors import GitopsError
    from gitops.git.repository import GitRepository
    from gitops.repository.wiring.git import open_commit_tree

    found: list[str] = []
    try:
        reader = GitRepository(place, environ={})
        heads = reader.refs(LEDGERS.rstrip("/")).items()
    except GitopsError as error:
        return [f"{place}: {error.code}: {error.detail}"]
    for name, head in ((ref.removeprefix(LEDGERS), head) for ref, head in heads):
        if (name, head) in _sound:
            continue
        # Wherever the cluster is: the path is only part of the texts of problems.
        report = audit(reader, head, name, lambda of, tree: open_commit_tree(of, tree, "cluster"))
        found += [f"{place}: {name}: entry {f.number}: {f.code}: {f.detail}" for f in report.findings]
        if report.ok:
            _sound.add((name, head))
    return found
