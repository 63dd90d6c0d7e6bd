"""Named tuples that are cheap to define and to create. The two languages define nearly ninety of them.

For type checkers, a `Record` is a `typing.NamedTuple`, and it is used in the same way. `typing` compiles every field's
annotation and a constructor for every class, which took nearly half of the languages' import time. Here, annotations
are plain names.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

__all__ = ["Record", "make"]

make = tuple.__new__
"""Create a record from its class and a tuple of all fields in order: `make(Span, (start, end))`.

This takes half the time of calling the class, but does not check the number of fields. Use it only for records that are
created for nearly every token.
"""

if TYPE_CHECKING:
    from typing import NamedTuple as Record
    from typing import Self
else:

    class _Definition(type):
        """A metaclass that reads fields and defaults from the class body."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            namespace["__slots__"] = ()
            fields = tuple(namespace.get("__annotations__", ()))
            if fields:
                namespace["_fields"] = namespace["__match_args__"] = fields
                namespace["_field_defaults"] = {field: namespace[field] for field in fields if field in namespace}
                namespace.update((field, property(itemgetter(place))) for place, field in enumerate(fields))
            return super().__new__(cls, name, bases, namespace)

    class Record(tuple, metaclass=_Definition):
        """Base of all records. Subclasses of a record inherit its fields, and can add methods."""

        __slots__ = ()

        def __new__(cls, *values: Any, **named: Any) -> Self:
            """Create a record from positional or keyword fields. Raises TypeError for missing or extra fields."""
            if named or len(values) != len(cls._fields):
                values = cls._filled(values, named)
            return make(cls, values)

        @classmethod
        def _filled(cls, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
            missing = cls._fields[len(values) :]
            if named:
                known = cls._field_defaults | named
                filled = (*values, *(known[field] for field in missing if field in known))
            else:
                filled = values + tuple(cls._field_defaults.values())[-len(missing) :]
            if len(filled) != len(cls._fields) or not named.keys() <= set(missing):
                raise TypeError(f"{cls.__name__} has the fields {cls._fields}; given were {len(values)} and {[*named]}")
            return filled

        def _replace(self, **changes: Any) -> Self:
            """Return a copy of the record with new values in some fields."""
            return type(self)(**(self._asdict() | changes))

        def _asdict(self) -> dict[str, Any]:
            """Return the fields as a dictionary."""
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            """Return the record as a constructor call."""
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            """Return the arguments for copying and pickling."""
            return tuple(self)
