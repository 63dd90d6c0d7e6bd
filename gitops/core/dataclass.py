"""`dataclasses.dataclass` whose methods are written when a first value needs them, or its first comparison.

The standard decorator compiles up to ten functions for each class. A command imports more than a hundred such classes and makes
values of a fifth of them; the rest was a third of what `gitops validate` took. Values of one class in twenty are ever compared,
hashed or printed. To type checkers, and to code that uses such a class, it is the standard decorator: see
docs/decisions/0054-methods-are-written-late.md.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from inspect import get_annotations
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(*, slots: bool = False, **options: bool) -> Callable[[type], type]:
        """The decorator, with the options of the standard one; a class without slots gets its methods at once."""
        return partial(_with_slots, options) if slots else dataclasses.dataclass(**options)


_OF_VALUES = ("__dataclass_fields__", "__init__")
# What no first value needs, with the options that ask for it.
_OF_COMPARISONS = {
    "__repr__": ("repr",),
    "__eq__": ("eq",),
    "__hash__": ("eq", "frozen"),
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), ("order",)),
}


class _Unwritten:
    """Stands for a member that the standard decorator will write when it is first asked for."""

    __slots__ = ("_name", "_write")

    def __init__(self, name: str, write: Callable[[], type]) -> None:
        self._name = name
        self._write = write

    def __get__(self, value: object | None, owner: type) -> Any:
        written = vars(self._write())[self._name]
        return written if value is None or not callable(written) else written.__get__(value, owner)


def _with_slots(options: dict[str, bool], plain: type) -> type:
    """The class with a slot for each of its fields, and without methods so far."""
    body = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    body |= {"__qualname__": plain.__qualname__, "__getstate__": _state, "__setstate__": _restore}
    fields = [name for name, kind in get_annotations(plain).items() if "ClassVar" not in str(kind)]
    inherited = {slot for base in plain.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    create = partial(type(plain), plain.__name__, plain.__bases__)

    def write(**left_out: bool) -> type:
        # A class for this call alone: where two threads make the first value, each writes the same methods.
        standard = create(dict(body))
        before = dict(vars(standard))
        # The class with slots that this returns is not needed, only that `__init__` is written for one.
        dataclasses.dataclass(slots=True, **options | left_out)(standard)
        # What stands for them goes last: a thread that does not meet it finds everything else.
        for name, value in sorted(vars(standard).items(), key=lambda each: each[0] in _OF_VALUES):
            if name not in fields and (name not in before or before[name] is not value):
                setattr(slotted, name, value)
        return slotted

    late: dict[str, Callable[[], type]] = dict.fromkeys(_OF_VALUES, partial(write, repr=False, eq=False, order=False))
    asked = {"repr": True, "eq": True, **options}
    compared = [name for name, needs in _OF_COMPARISONS.items() if all(asked.get(option) for option in needs)]
    late |= {name: write for name in compared if body.get(name) is None}
    slotted: type = create(
        {name: value for name, value in body.items() if name not in fields}
        | {"__slots__": tuple(name for name in fields if name not in inherited)}
        | {name: _Unwritten(name, action) for name, action in late.items()}
    )
    return slotted


def _state(self: Any) -> list[Any]:
    """The values of the fields, for copies and pickles; a class with slots has no other state."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
