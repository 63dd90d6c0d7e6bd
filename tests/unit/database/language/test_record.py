"""Records are named tuples: whatever is done with one gives what `typing.NamedTuple` gives."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.language.record import Record, make


class Point(Record):
    """A record."""

    x: int
    y: int | None = None
    name: str = "origin"

    @property
    def total(self) -> int:
        """A member that is no field."""
        return self.x + (self.y or 0)


class _Point(NamedTuple):
    """Its like."""

    x: int
    y: int | None = None
    name: str = "origin"


def answers(action):
    """What an action gives for either class, as plain tuples; TypeError and ValueError are one refusal."""
    found = []
    for each in (Point, _Point):
        try:
            found.append(action(each))
        except (TypeError, ValueError):
            found.append("refused")
    return found


VALUES = st.lists(st.integers(0, 9), max_size=4)
NAMES = st.dictionaries(st.sampled_from(["x", "y", "name", "other"]), st.integers(0, 9))


@given(VALUES, NAMES)
def test_it_is_made_of_the_same_arguments(values, names):
    own, other = answers(lambda each: each(*values, **names))
    assert own == other
    if own != "refused":
        assert repr(own) == repr(other).replace("_Point", "Point")
        assert (hash(own), own._asdict(), [*own]) == (hash(other), other._asdict(), [*other])
        assert (own.x, own.y, own.name) == (other.x, other.y, other.name)


@given(NAMES)
def test_it_is_changed_by_the_same_names(changes):
    own, other = answers(lambda each: each(1, 2)._replace(**changes))
    assert own == other
    assert own == "refused" or isinstance(own, Point)


def test_it_says_its_fields_like_one():
    assert (Point._fields, Point._field_defaults) == (_Point._fields, _Point._field_defaults)
    assert Point.__doc__ == "A record."


def test_it_matches_by_place():
    match make(Point, (1, 2, "p")):
        case Point(x, y, name):
            assert (x, y, name) == (1, 2, "p")
        case _:
            pytest.fail("no match")


def test_its_methods_are_kept():
    assert Point(1, 2).total == 3


def test_a_derived_one_has_its_fields():
    class Named(Point):
        def __str__(self) -> str:
            return self.name

    assert (str(Named(1, name="n")), Named(1)) == ("n", Point(1))
    assert not hasattr(Named(1), "__dict__")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301 - its own bytes
def test_it_survives_a_copy(again):
    made = again(Point(1, None, "p"))
    assert (type(made), made) == (Point, Point(1, None, "p"))


@pytest.mark.parametrize("field", ["x", "other"])
def test_it_cannot_be_changed(field):
    with pytest.raises(AttributeError):
        setattr(Point(1), field, 2)
