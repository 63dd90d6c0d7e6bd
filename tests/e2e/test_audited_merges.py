"""What the bot writes, the audit accepts: over every way to merge, place of the gated commit, and time of the approval."""

from __future__ import annotations

import itertools

import pytest

from gitops.forge.merge import MergeMethod
from tests.support.loop import DELETE_LEGACY, MAIN, Loop

pytestmark = pytest.mark.e2e

_OTHERS = ({"README.md": b"Other words.\n"}, {"cluster/README.md": b"Better words.\n"})


@pytest.mark.parametrize(
    ("method", "place", "moved", "before"),
    [
        # Only a rebase makes a commit of its own of each; the others differ by little.
        pytest.param(
            *case, marks=() if case[0] is MergeMethod.REBASE or case[1:] == (1, True, False) else pytest.mark.slow
        )
        for case in itertools.product(MergeMethod, range(3), (False, True), (False, True))
    ],
)
def test_the_audit_accepts_what_a_merge_of_a_gated_change_writes(
    loop: Loop, method: MergeMethod, place: int, moved: bool, before: bool
) -> None:
    """A request of three commits, of which one deletes a graph; carol may have pushed something else meanwhile."""
    edits = [*_OTHERS]
    edits.insert(place, DELETE_LEGACY)
    head = loop.tip()
    for edit in edits:
        head = loop.commit("alice", edit, head)
    loop.move("refs/heads/retire", head)
    if moved:
        loop.move(MAIN, loop.commit("carol", {"elsewhere.md": b"Something else.\n"}))
    if before:
        assert loop.sign_approval("bob", "graph.legacy", request=1).ok
        loop.arrived(loop.approvals()[0])
    loop.merge("carol", 1, method)
    if not before:
        assert loop.graph("legacy").exists()
        assert loop.sign_approval("bob", "graph.legacy").ok
        loop.arrived(loop.approvals()[0])
    assert not loop.graph("legacy").exists()
    assert loop.gitops("bob", "audit").text.startswith("audit good")
