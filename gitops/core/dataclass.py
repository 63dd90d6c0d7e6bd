"""A `dataclasses.dataclass` that generates methods only for classes with many instances, or at the first comparison.

The standard decorator compiles up to ten functions for each class. A command imports more than a hundred such classes,
creates a few instances of a fifth of them, and compares instances of one class in twenty. So the first instances of a class
are created without compiling anything. For type checkers, and for code that uses such a class, it behaves like the standard
decorator: see docs/decisions/0054-what-a-process-compiles.md.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, NamedTuple

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass
else:

    def dataclass(*, slots: bool = False, **options: bool) -> Callable[[type], type]:
        """Return the decorator, with the options of the standard one.

        A class without slots gets its methods immediately.
        """
        return partial(_with_slots, options) if slots else dataclasses.dataclass(**options)


# Methods that every value needs, and those that only a frozen value needs.
_OF_VALUES = ("__dataclass_fields__", "__init__", "__match_args__")
_OF_FROZEN = ("__setattr__", "__delattr__")
# Methods that the first values don't need, with the options that request them.
_OF_COMPARISONS = {
    "__repr__": ("repr",),
    "__eq__": ("eq",),
    "__hash__": ("eq", "frozen"),
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), ("order",)),
}
# Generating a class's methods takes as long as creating about 150 values without them.
_FIRST_VALUES = 64


class _Unwritten:
    """Placeholder for a method that the standard decorator generates on first use."""

    __slots__ = ("_name", "_write")

    def __init__(self, name: str, write: Callable[[], type]) -> None:
        self._name = name
        self._write = write

    def __get__(self, value: object | None, owner: type) -> Any:
        written = vars(self._write())[self._name]
        return written if value is None or not callable(written) else written.__get__(value, owner)


class _Part(NamedTuple):
    """A field, the descriptor that sets its slot, and whether it can be passed by position."""

    name: str
    put: Callable[[object, object], None]
    field: dataclasses.Field[Any]
    ordered: bool


class _FirstValues(_Unwritten):
    """Stands in for `__init__` and creates the first values.

    If the arguments don't fit, the real method is generated.
    """

    __slots__ = ("_find_parts", "_left", "_parts")

    def __init__(self, write: Callable[[], type], find_parts: Callable[[], Sequence[_Part]]) -> None:
        super().__init__("__init__", write)
        self._find_parts = find_parts
        self._parts: Sequence[_Part] | None = None
        self._left = _FIRST_VALUES

    def __get__(self, value: object | None, owner: type) -> Any:
        if value is None or self._left <= 0:
            return super().__get__(value, owner)
        self._left -= 1
        if self._parts is None:
            self._parts = self._find_parts()
        return partial(self._make, self._parts, value)

    def _make(self, parts: Sequence[_Part], value: Any, /, *ordered: object, **named: object) -> None:
        given = dict(zip((part.name for part in parts if part.ordered), ordered, strict=False)) | named
        unused = len(ordered) + len(named)
        for name, put, field, _ in parts:
            if field.init and name in given:
                put(value, given[name])
                unused -= 1
            elif field.default is not dataclasses.MISSING:
                put(value, field.default)
            elif field.default_factory is not dataclasses.MISSING:
                put(value, field.default_factory())
            elif field.init:
                unused = -1
                break
        if unused:
            super().__get__(value, type(value))(*ordered, **named)
        elif hasattr(value, "__post_init__"):
            value.__post_init__()


def _with_slots(options: dict[str, bool], plain: type) -> type:
    """Create the class with a slot for each field, but without the methods."""
    body = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    body |= {"__qualname__": plain.__qualname__, "__getstate__": _state, "__setstate__": _restore}
    fields = [name for name, kind in get_annotations(plain).items() if "ClassVar" not in str(kind)]
    inherited = {slot for base in plain.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    kw_only = options.get("kw_only", False)
    create = partial(type(plain), plain.__name__, plain.__bases__)

    def write(**left_out: bool) -> type:
        # Use a class for this call only. If two threads create the first value, both generate the same methods.
        standard = create(dict(body))
        before = dict(vars(standard))
        # Only the `__init__` of the returned class with slots is needed.
        dataclasses.dataclass(slots=True, **options | left_out)(standard)
        # Remove the placeholders last, so that a thread that finds none of them finds everything else.
        for name, value in sorted(vars(standard).items(), key=lambda each: each[0] in _OF_VALUES):
            if name not in fields and (name not in before or before[name] is not value):
                setattr(slotted, name, value)
        return slotted

    def write_fields() -> type:
        standard: type[Any] = create(dict(body))
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(standard)
        slotted.__dataclass_fields__ = standard.__dataclass_fields__
        return slotted

    for_values = partial(write, repr=False, eq=False, order=False)
    late: dict[str, Callable[[], type]] = dict.fromkeys(_OF_VALUES, for_values)
    late |= dict.fromkeys(_OF_FROZEN if options.get("frozen") else (), for_values)
    asked = {"repr": True, "eq": True, **options}
    compared = [name for name, needs in _OF_COMPARISONS.items() if all(asked.get(option) for option in needs)]
    late |= {name: write for name in compared if body.get(name) is None}
    stand_ins = {name: _Unwritten(name, action) for name, action in late.items()}
    if _are_all(fields, plain, body):
        stand_ins["__init__"] = _FirstValues(for_values, lambda: _parts(slotted, fields, body, kw_only=kw_only))
        stand_ins["__dataclass_fields__"] = _Unwritten("__dataclass_fields__", write_fields)
        stand_ins["__dataclass_params__"] = _Unwritten("__dataclass_params__", for_values)
    slotted: type[Any] = create(
        {name: value for name, value in body.items() if name not in fields}
        | {"__slots__": tuple(name for name in fields if name not in inherited)}
        | stand_ins
    )
    return slotted


def _are_all(fields: Sequence[str], plain: type, body: dict[str, Any]) -> bool:
    """Return True if `__init__` depends only on these fields. The standard decorator reports errors in them."""
    return (
        not any({"__dataclass_fields__", "__setattr__"} & vars(base).keys() for base in plain.__mro__[:-1])
        and not any(word in str(kind) for kind in get_annotations(plain).values() for word in ("InitVar", "KW_ONLY"))
        and not any(isinstance(body.get(name), list | dict | set) for name in fields)
    )


def _parts(slotted: type, fields: Sequence[str], body: dict[str, Any], *, kw_only: bool) -> Sequence[_Part]:
    found = []
    for name in fields:
        declared = body.get(name, dataclasses.MISSING)
        field = declared if isinstance(declared, dataclasses.Field) else dataclasses.field(default=declared)
        by_name = kw_only if field.kw_only is dataclasses.MISSING else field.kw_only
        found.append(_Part(name, getattr(slotted, name).__set__, field, field.init and not by_name))
    return found


def _state(self: Any) -> list[Any]:
    """Return the values of the fields for copies and pickles. A class with slots has no other state."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
