"""Which merge is applied next: the branch and what was tried decide, whatever became of events."""

from __future__ import annotations

import pytest

from gitops.cluster.changesets.queue import WaitingCommit, next_step, whole_line
from gitops.cluster.model.address import Address

LEGACY, FIND, NOTES = (Address(text) for text in ("graph.legacy", "query.notes.find", "schema.notes"))

# A line is written oldest first: a commit in upper case touches the cluster. `ends`: what a merge or a push ends with.
CASES = [
    # one merge after the other, each with its own changeset
    ("A", "", "A", ("A", "A", 0)),
    ("AB", "", "AB", ("A", "A", 1)),
    ("ABC", "A", "ABC", ("B", "AB", 1)),
    ("ABC", "C", "ABC", None),
    # what does not touch the cluster is no step, and nothing that a changeset brings in
    ("xAyB", "", "xAyB", ("A", "A", 1)),
    ("xy", "", "xy", None),
    ("Axy", "A", "Axy", None),
    ("xAy", "x", "xAy", ("A", "A", 0)),
    # the commits of a rebase are one merge, and its last one stands for it
    ("ABCD", "", "CD", ("C", "ABC", 1)),
    ("AbC", "", "bC", ("b", "Ab", 1)),
    # where no end is known, all is one
    ("ABC", "", "", ("C", "ABC", 0)),
    ("ABC", "A", "", ("C", "ABC", 0)),
    # what was tried counts by the newest of it
    ("ABCD", "AC", "ABCD", ("D", "ABCD", 0)),
    ("ABC", "Z", "ABC", ("A", "A", 2)),
]


def step(line: str, tried: str, ends: str, *, coalesce: bool = False, differs=lambda _: frozenset()):
    found = next_step(
        [WaitingCommit(each, each.isupper()) for each in line],
        tried,
        coalesce=coalesce,
        ends_merge=ends.__contains__,
        differs=differs,
    )
    return None if found is None else (found.commit, "".join(found.covers), found.left)


@pytest.mark.parametrize(("line", "tried", "ends", "expected"), CASES)
def test_the_oldest_merge_comes_first(line, tried, ends, expected):
    assert step(line, tried, ends) == expected


@pytest.mark.parametrize(
    ("line", "tried", "expected"),
    [("ABC", "", ("C", "ABC", 0)), ("AxBy", "A", ("y", "ABy", 0)), ("Axy", "A", None), ("AB", "B", None)],
)
def test_with_coalesce_all_that_waits_is_one_step(line, tried, expected):
    assert step(line, tried, line, coalesce=True) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        # A deletes a graph, and C brings it back: the delete is not done on the way.
        ({"A": {LEGACY}, "B": {LEGACY, FIND}, "C": {FIND}}, "C"),
        # A and B are taken back in part: A stands, B comes with C.
        ({"A": {FIND}, "B": {FIND, LEGACY}, "C": {FIND}}, "A"),
        # What B takes back and C wants again stands.
        ({"A": {LEGACY}, "B": set(), "C": {LEGACY}}, "A"),
        # A alone does not load; B repairs it.
        ({"A": None, "B": {FIND}, "C": {FIND, NOTES}}, "B"),
        # The newest does not load: what was merged before it does not wait for its repair.
        ({"A": {FIND}, "B": {FIND, NOTES}, "C": None}, "A"),
        ({"A": None, "B": None, "C": None}, "C"),
    ],
)
def test_what_the_branch_has_taken_back_is_not_done_on_the_way(declared, expected):
    found = step("ABC", "", "ABC", differs=lambda commit: declared[commit])
    assert found is not None
    assert found[0] == expected


def test_a_step_knows_what_was_tried_before_it():
    line = [WaitingCommit(each, touches=True) for each in "ABC"]
    found = next_step(line, "A", coalesce=False, ends_merge=lambda _: True, differs=lambda _: frozenset())
    assert found is not None
    assert (found.commit, found.tried) == ("B", {"A"})


@pytest.mark.parametrize(("line", "expected"), [("AxBy", ("B", ("A", "B"))), ("xy", ("y", ())), ("", ("head", ()))])
def test_without_anything_new_the_newest_merge_is_looked_at_again(line, expected):
    found = whole_line([WaitingCommit(each, each.isupper()) for each in line], line[-1:] or "head")
    assert (found.commit, found.covers) == expected
