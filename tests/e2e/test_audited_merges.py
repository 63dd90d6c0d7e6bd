"""What the bot writes, the audit accepts: over every way to merge, place of the gated commit, and time of the approval."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from gitops.forge.merge import MergeMethod
from tests.support.loop import CONFIG, DELETE_LEGACY, MAIN, Loop
from tests.support.loop_data import load

pytestmark = pytest.mark.e2e

_OTHERS = ({"README.md": b"Other words.\n"}, {"cluster/README.md": b"Better words.\n"})
_EMPTIED = {"cluster/legacy.pg": b"node Other {\n    name: String @key\n}\n"}
_WITHOUT_TEXT = {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: the rules gate what loses data, and the graph has some."""
    loop = Loop.build(tmp_path_factory.mktemp("gates") / "loop", f"{CONFIG}  gates: [lossy]\n")
    load(loop, 3)
    return loop


@pytest.mark.parametrize(
    ("method", "place", "moved", "approved"),
    [
        # Only a rebase makes a commit of its own of each; the others differ by little.
        pytest.param(
            *case,
            marks=()
            if case[1:3] == (1, True) or (case[0] is MergeMethod.REBASE and case[3] != "never")
            else pytest.mark.slow,
        )
        for case in itertools.product(MergeMethod, range(3), (False, True), ("before", "after", "never"))
    ],
)
def test_the_audit_accepts_what_a_merge_writes(
    built: Loop, tmp_path: Path, method: MergeMethod, place: int, moved: bool, approved: str
) -> None:
    """A request of three commits, of which one deletes, empties or migrates a graph; main may have moved meanwhile."""
    loop = built.copied(tmp_path / "loop")
    address, change = ("schema.legacy", _EMPTIED) if place == 1 else ("graph.legacy", DELETE_LEGACY)
    edits: list[Mapping[str, bytes | None]] = [*_OTHERS]
    edits.insert(place, _WITHOUT_TEXT if approved == "never" else change)
    head = loop.tip()
    for edit in edits:
        head = loop.commit("alice", edit, head)
    loop.move("refs/heads/retire", head)
    if moved:
        loop.move(MAIN, loop.commit("carol", {"elsewhere.md": b"Something else.\n"}))
    if approved == "before":
        assert loop.sign_approval("bob", address, request=1).ok
        loop.arrived(loop.approvals()[0])
    loop.merge("carol", 1, method)
    if approved == "after":
        assert loop.sign_approval("bob", address).ok
        loop.arrived(loop.approvals()[0])
    assert loop.status(loop.tip(), "apply").startswith("success")
    assert loop.gitops("bob", "audit").text.startswith("audit good")
