"""Desired, recorded and observed items compared: every combination has one row of the table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.hosts.compare import ROWS, ItemCourse, ObservedItem, Sight, course_of, differing, facts_of
from gitops.cluster.model.host import Item, ItemType


def file(mode: str, content: str = "1" * 64, **more: Any) -> Item:
    attributes = {"owner": "root", "group": "root", "mode": mode, "check": None, "create_only": False}
    attributes |= {"on_remove": "delete", "content": {"sha256": content, "size": 1}}
    return Item(host="web1", type=ItemType.FILE, id="/etc/x", attributes=attributes, **more)


def seen(mode: str, content: str = "1" * 64) -> ObservedItem:
    found = {"owner": "root", "group": "root", "mode": mode, "content": {"sha256": content, "size": 1}, "inode": 7}
    return ObservedItem(Sight.PRESENT, found)


A, B, C = "0600", "0640", "0644"
ABSENT = ObservedItem(Sight.ABSENT)
GONE = Item(host="web1", type=ItemType.PACKAGE, id="x", attributes={"state": "absent", "version": None, "hold": False})
SERVICE = Item(
    host="web1", type=ItemType.SERVICE, id="x.service", attributes={"enabled": True, "state": "running", "triggers": []}
)

CASES: list[tuple[Item | None, Item | None, ObservedItem, ItemCourse]] = [
    (file(A), None, ABSENT, ItemCourse.CREATE),
    (SERVICE, None, ObservedItem(Sight.PRESENT, {"enabled": True, "state": "stopped"}), ItemCourse.CREATE),
    (GONE, None, ObservedItem(Sight.PRESENT, {"state": "present", "version": None, "hold": False}), ItemCourse.CREATE),
    (file(A), None, seen(A), ItemCourse.ADOPT),
    (file(A), None, seen(B), ItemCourse.UNMANAGED),
    (file(A, adopt="overwrite"), None, seen(B), ItemCourse.OVERWRITE),
    (file(A), file(A), seen(A), ItemCourse.NOTHING),
    (file(A), file(A), seen(B), ItemCourse.RESTORE),
    (file(A), file(A), ABSENT, ItemCourse.RECREATE),
    (file(A), file(B), seen(B), ItemCourse.UPDATE),
    (file(A), file(B), seen(A), ItemCourse.RECORD),
    (file(A), file(B), ABSENT, ItemCourse.CREATE),
    (file(A), file(B), seen(C), ItemCourse.BOTH),
    (None, file(A), ABSENT, ItemCourse.FORGET),
    (None, file(A), seen(A), ItemCourse.DELETE),
    (None, file(A), seen(B), ItemCourse.MODIFIED),
    (file(A, ignore=("mode",)), file(A, ignore=("mode",)), seen(B), ItemCourse.NOTHING),
    (file(A), file(A), ObservedItem(Sight.UNREADABLE), ItemCourse.UNREADABLE),
    (file(A), file(A), ObservedItem(Sight.OFFLINE), ItemCourse.UNREACHABLE),
    (file(A), None, ObservedItem(Sight.OTHER_TYPE), ItemCourse.WRONG_TYPE),
    (None, None, ABSENT, ItemCourse.NOTHING),
]


@pytest.mark.parametrize(("desired", "recorded", "observed", "course"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_the_table(desired: Item | None, recorded: Item | None, observed: ObservedItem, course: ItemCourse) -> None:
    assert course_of(desired, recorded, observed) is course


def test_every_row_has_a_case() -> None:
    assert {course for *_, course in CASES} == set(ItemCourse) == set(ROWS)


# Law L8

items = st.none() | st.builds(
    file,
    st.sampled_from([A, B, C]),
    adopt=st.sampled_from(["refuse", "overwrite"]),
    ignore=st.sampled_from([(), ("mode",)]),
)
observations = st.builds(seen, st.sampled_from([A, B, C])) | st.builds(ObservedItem, st.sampled_from(Sight))


@given(items, items, observations)
def test_law_every_combination_has_exactly_one_row(
    desired: Item | None, recorded: Item | None, observed: ObservedItem
) -> None:
    facts = facts_of(desired, recorded, observed)
    (course,) = [each for each, fits in ROWS.items() if fits(facts)]
    assert (course is ItemCourse.DELETE) <= (desired is None)
    if course is ItemCourse.NOTHING and desired is not None:
        assert differing(desired, observed) == ()


def test_what_drifted_is_named() -> None:
    assert differing(file(A), seen(B, "2" * 64)) == ("content", "mode")
    assert differing(file(A), ABSENT) == ("content", "group", "mode", "owner")
