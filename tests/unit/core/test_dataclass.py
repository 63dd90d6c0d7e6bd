"""Values whose methods are written late: whatever is done with one gives what `dataclasses.dataclass` gives."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, field
from threading import Barrier, Thread
from types import FunctionType, MappingProxyType
from typing import ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core import dataclass as late

T = TypeVar("T")
OPTIONS = [
    {},
    {"frozen": True},
    {"frozen": True, "order": True},
    {"frozen": True, "kw_only": True},
]
OF_VALUES = ("__init__", "__match_args__", "__setattr__")
OF_COMPARISONS = ("__eq__", "__hash__", "__lt__", "__repr__")


def declared(decorator, options):
    """A class, one that has its fields, and one that only derives from it, with a decorator."""

    @decorator(slots=True, **options)
    class Point:
        """A value."""

        x: int
        y: int | None = None
        names: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
        seen: bool = field(default=False, init=False)
        kind: ClassVar[str] = "point"

        def __post_init__(self) -> None:
            if self.x == 9:
                raise ValueError("nine")

        @property
        def total(self) -> int:
            """A member that is not a field."""
            return self.x + (self.y or 0)

    @decorator(slots=True, **options)
    class Named(Point, Generic[T]):
        """A value of another kind."""

        y: int = 4
        name: T | str = "origin"

    class Plain(Point):
        """A class of its own, without a decorator."""

        def __init__(self, x: int) -> None:
            super().__init__(x=x)

    return Point, Named, Plain


def answers(options, action):
    """What an action gives for the classes of either decorator; what is refused is the kind and text of the error."""
    found = []
    for decorator in (late.dataclass, dataclasses.dataclass):
        try:
            found.append(action(*declared(decorator, options)))
        except (TypeError, ValueError, AttributeError) as error:
            found.append((type(error), str(error)))
    return found


def looks(each):
    """All that can be seen of a value."""
    return repr(each), dataclasses.astuple(each), each.total, each.kind, hasattr(each, "__dict__")


@pytest.mark.parametrize("options", OPTIONS)
@given(
    values=st.lists(st.integers(0, 9), max_size=4),
    names=st.dictionaries(st.sampled_from(["x", "y", "names", "name", "z"]), st.integers(0, 9)),
)
def test_it_is_made_of_the_same_arguments(options, values, names):
    own, other = answers(options, lambda *classes: [looks(each(*values, **names)) for each in classes[:2]])
    assert own == other


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "action",
    [
        lambda point, named, _: (point(x=1) == point(x=1), point(x=1) == named(x=1), point(x=1) != point(x=2)),
        lambda point, *_: hash(point(x=1)) == hash(point(x=1, names={"a": 1})),
        lambda point, *_: min(point(x=2), point(x=1, y=0)).x,
        lambda point, *_: looks(dataclasses.replace(point(x=1, y=2), x=3)),
        lambda point, *_: setattr(point(x=1), "x", 2),
        lambda point, *_: delattr(point(x=1), "x"),
        lambda _, named, __: [each.name for each in dataclasses.fields(named)],
        lambda *classes: [(each.__match_args__, each.__slots__) for each in classes[:2] if each(x=1)],
        lambda *classes: [str(inspect.signature(each)) for each in classes],
        lambda *classes: [(each.__name__, each.__doc__, dataclasses.is_dataclass(each)) for each in classes],
        lambda _, __, plain: (looks(plain(1)), plain(1).x),
        lambda *classes: [looks(copy.copy(each(x=1))) for each in classes[:2]],
        lambda *classes: [looks(copy.deepcopy(each(x=1, y=2))) for each in classes[:2]],
        lambda point, *_: point(x=9),
        lambda point, *_: point.y.__get__(point(x=1)),
    ],
)
def test_it_behaves_like_one(options, action):
    own, other = answers(options, action)
    assert own == other


@late.dataclass(frozen=True, slots=True)
class Kept:
    """A value of this module, so that a pickle can name its class."""

    x: int


def test_a_pickle_gives_a_whole_value_before_any_other_is_made():
    data = pickle.dumps(Kept(1))
    first = pickle.loads(data)  # noqa: S301 - its own bytes
    assert (first, hash(first), repr(first)) == (Kept(1), hash(Kept(1)), "Kept(x=1)")


def written(each):
    """The methods of a class that are functions by now."""
    return {name for name in (*OF_VALUES, *OF_COMPARISONS) if isinstance(vars(each).get(name), FunctionType | tuple)}


def test_nothing_is_written_for_first_values_and_comparisons_for_a_class_that_compares_none():
    point, named, _ = declared(late.dataclass, {"frozen": True, "order": True})
    value = dataclasses.replace(point(1), x=2)
    assert (value.x, written(point), written(named)) == (2, set(), set())
    many = [point(number, y=number) for number in range(100, 300)]
    assert written(point) == set(OF_VALUES)
    assert many == [point(number, y=number) for number in range(100, 300)]
    assert written(point) == {*OF_VALUES, *OF_COMPARISONS}
    assert (named(x=1).x, written(named)) == (1, set(OF_VALUES))


def unusual(decorator):
    """Classes whose fields are not all that `__init__` depends on, or whose fields say more than a default."""

    @decorator(slots=True)
    class Scaled:
        x: int
        scale: InitVar[int] = 2
        _: KW_ONLY
        name: str = "scaled"

        def __post_init__(self, scale: int) -> None:
            self.x *= scale

    @decorator(slots=True)
    class Logged:
        x: int
        y: int = field(default=1, kw_only=True)

        def __setattr__(self, name: str, value: object) -> None:
            object.__setattr__(self, name, (name, value))

    @decorator(slots=True, frozen=True)
    class Unset:
        x: int = field(init=False)
        y: list[int] = field(default_factory=list)

    return Scaled, Logged, Unset


@pytest.mark.parametrize("arguments", [((), {}), ((1,), {}), ((1, 3), {}), ((1,), {"y": 3}), ((1, 3, "a"), {})])
@pytest.mark.parametrize("which", range(3))
def test_unusual_fields_have_their_meaning(which, arguments):
    found = []
    for decorator in (late.dataclass, dataclasses.dataclass):
        each = unusual(decorator)[which]
        try:
            value = each(*arguments[0], **arguments[1])
            found.append([getattr(value, name, None) for name in ("x", "y", "name")])
        except (TypeError, AttributeError) as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]


def test_a_default_that_could_be_shared_is_refused():
    @late.dataclass(slots=True)
    class Shared:
        x: list[int] = []  # noqa: RUF012 - the mistake

    with pytest.raises(ValueError, match="mutable default"):
        Shared()


def test_a_class_without_a_comparison_compares_and_hashes_as_any_object():
    for decorator in (late.dataclass, dataclasses.dataclass):
        point, named, _ = declared(decorator, {"frozen": True, "eq": False, "repr": False})
        value = named(x=1)
        assert (value == named(x=1), {value: 1}[value], repr(value)) == (False, 1, object.__repr__(value))
        assert point(x=2) != value


def test_the_first_values_of_many_threads_are_whole():
    for _ in range(20):
        _, named, _ = declared(late.dataclass, {"frozen": True})
        start, found = Barrier(4), []

        def make(each=named, start=start, found=found):
            start.wait()
            found.append(each(1))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {repr(each) for each in found} == {repr(named(1))}
        assert len(set(found)) == 1
