"""`make quick` has tests for each room, and names tests that are there."""

from __future__ import annotations

from tests.support.pages import ROOT
from tests.support.quick import room_tests, table

_ROOMS = {path.parent.relative_to(ROOT / "gitops").as_posix() for path in (ROOT / "gitops").glob("*/**/__init__.py")}


def test_each_room_has_tests() -> None:
    assert {room for room in _ROOMS if not room_tests(room)} == set()


def test_the_table_names_rooms_and_tests_that_are_there() -> None:
    assert table().keys() <= _ROOMS
    assert [path for paths in table().values() for path in paths if not (ROOT / path).exists()] == []
