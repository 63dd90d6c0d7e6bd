"""Forms that define how values are stored as JSON. A form reads a JSON value and writes it back.

1. Types are exact: `true` is not 1, `1.0` is not 1, null is not absent.
2. An object has exactly the declared members. A member is required unless it is declared `optional`.
3. A refusal has the path of the wrong value: `applied_revision.resources[graph.brain].digest`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import MAX_DIGITS, MalformedError, quoted

K = TypeVar("K", bound=str)
T = TypeVar("T")
E = TypeVar("E", bound=Enum)

MAX_LINE = 4096
# Line breaks, control characters, direction overrides and lone surrogates. Each could change how a line reads.
_NOT_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
# Lengths of SHA-1 and SHA-256 ids, which are git's object formats.
_OBJECT_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_NAMES = {bool: "a boolean", int: "an integer", float: "a number", str: "a text", list: "a list", dict: "an object"}
_REQUIRED: Any = object()


def is_object_id(text: str) -> bool:
    """Return True if `text` is a full git object id: lower-case hex digits in one of the lengths that git uses."""
    return _OBJECT_ID.match(text) is not None


def is_line(text: str) -> bool:
    """Return True if `text` is one non-empty line that is safe to show, log and put into a commit message unchanged.

    It has no control characters, line breaks, direction overrides or surrounding blanks, and at most MAX_LINE characters.
    """
    return 0 < len(text) <= MAX_LINE and _NOT_A_LINE.search(text) is None and text == text.strip()


def is_digest(text: str) -> bool:
    """Return True if `text` is a digest: 64 lower-case hex digits."""
    return _HEX64.match(text) is not None


# -- forms of single values --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """Storage format for values of one type. `read` accepts a JSON value or raises MalformedError; `write` reverses it."""

    read: Callable[[Any], T]
    write: Callable[[T], Any] = lambda value: value


def _mismatch(expected: str, value: Any) -> MalformedError:
    return MalformedError(f"expected {expected}, found {'null' if value is None else _NAMES[type(value)]}")


def _exactly(kind: type[T], expected: str) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if type(value) is not kind:
            raise _mismatch(expected, value)
        return value

    return read


_text = _exactly(str, "a text")
_object: Callable[[Any], dict[str, Any]] = _exactly(dict, "an object")


def text_form(accepts: Callable[[str], bool], expected: str) -> Form[str]:
    """Form of a string for which `accepts` returns True. `expected` completes the error message "expected …"."""

    def read(value: Any) -> str:
        text = _text(value)
        if not accepts(text):
            raise MalformedError(f"expected {expected}")
        return text

    return Form(read)


def integer(minimum: int = 0, maximum: int = 10**MAX_DIGITS) -> Form[int]:
    """Form of an integer between `minimum` and `maximum`. Booleans and floats are refused."""

    def read(value: Any) -> int:
        if type(value) is not int:
            raise _mismatch("an integer", value)
        if not minimum <= value <= maximum:
            bound = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            raise MalformedError(f"expected an integer of {bound}")
        return value

    return Form(read)


def enum(kind: type[E]) -> Form[E]:
    """Form of an enum member, stored as its value."""

    def read(value: Any) -> E:
        text = _text(value)
        try:
            return kind(text)
        except ValueError:
            raise MalformedError(f"unknown value {quoted(text)}") from None

    return Form(read, lambda member: member.value)


def one_of(*choices: str) -> Form[str]:
    """Form of a string from a fixed set."""

    def read(value: Any) -> str:
        text = _text(value)
        if text not in choices:
            raise MalformedError(f"unknown value {quoted(text)}")
        return text

    return Form(read)


TEXT = Form(_text)
LINE = text_form(is_line, "one line without control characters")
LINE_OR_EMPTY = text_form(lambda text: not text or is_line(text), "one line without control characters, or no text")
DIGEST = text_form(is_digest, "64 lower-case hex digits")
OBJECT_ID = text_form(is_object_id, "the full id of a git object")
ULID = text_form(is_ulid, "a ULID")
TIME = text_form(lambda text: text.endswith("Z") and parse_timestamp(text) is not None, "an RFC 3339 time in UTC")
BOOLEAN = Form(_exactly(bool, "true or false"))
JSON: Form[Any] = Form(lambda value: value)
"""Any JSON value."""
OBJECT: Form[Mapping[str, Any]] = Form(_object, dict)
"""An object with any content."""


# -- forms of several values -------------------------------------------------------------------------------------------


def nullable(form: Form[T]) -> Form[T | None]:
    """Form of an optional value. None is stored as null."""
    read, write = form.read, form.write
    return Form(lambda value: None if value is None else read(value), lambda v: None if v is None else write(v))


def list_of(form: Form[T]) -> Form[tuple[T, ...]]:
    """Form of a list whose items have `form`."""
    read_item, write_item = form.read, form.write

    def read(value: Any) -> tuple[T, ...]:
        if type(value) is not list:
            raise _mismatch("a list", value)
        index = 0
        items = []
        try:
            for index, item in enumerate(value):  # noqa: B007 - needed where an item is refused
                items.append(read_item(item))
        except MalformedError as problem:
            raise problem.inside(f"[{index}]") from None
        return tuple(items)

    return Form(read, lambda items: [write_item(item) for item in items])


def map_of(
    form: Form[T], *, key: Callable[[str], K], shortcut: Callable[[Any], T | None] = lambda _: None
) -> Form[Mapping[K, T]]:
    """Form of an object whose values have `form`, written in code point order. `key` converts each member name to a key.

    `shortcut` reads the most common values of maps with thousands of entries. It is faster than `form` with the same result,
    and returns None for every other value.
    """
    read_value, write_value = form.read, form.write

    def read(value: Any) -> Mapping[K, T]:
        members = _object(value)
        name = ""
        found = {}
        try:
            for name, item in members.items():
                found[key(name)] = shortcut(item) or read_value(item)
        except MalformedError as problem:
            raise problem.inside(f"[{name}]") from None
        return MappingProxyType(found)

    return Form(read, lambda values: {key: write_value(values[key]) for key in sorted(values)})


@dataclass(frozen=True, slots=True)
class FormMember:
    """A record member whose name differs from its attribute's, or that can be absent."""

    form: Form[Any]
    attribute: str | None = ""
    """The attribute's name, if it differs from the member's; None for a constant."""
    default: Any = _REQUIRED
    """Value of an absent member."""
    written: bool = True
    """Whether a member with the default value is written rather than omitted."""


def optional(form: Form[Any], default: Any = None, *, attribute: str = "", written: bool = True) -> FormMember:
    """Return a member that can be absent. The default is written out unless `written` is False."""
    return FormMember(form, attribute, default, written)


def constant(value: Any) -> FormMember:
    """Return a member that always has this value and no attribute."""

    def read(found: Any) -> Any:
        if type(found) is not type(value) or found != value:
            raise _mismatch(repr(value), found)

    return FormMember(Form(read, lambda _: value), attribute=None)


Members = Mapping[str, "Form[Any] | FormMember | Members"]
"""Maps names to forms. A nested mapping is an object whose members are attributes of the same record."""


def record(kind: Callable[..., T], members: Members, *, check: Callable[[T], None] | None = None) -> Form[T]:
    """Form of an object with exactly `members`. They are keyword arguments of `kind`, and attributes of its result.

    `check` receives the value, and raises MalformedError for errors that involve several members.
    """
    fields = _Fields(members)

    def read(value: Any) -> T:
        built = kind(**fields.read(value))
        if check is not None:
            check(built)
        return built

    return Form(read, fields.write)


def variants(tag: str, kinds: Mapping[str, tuple[type[Any], Members]]) -> Form[Any]:
    """Form of an object whose member `tag` selects one of `kinds` for the other members. The type decides when writing."""
    forms = {name: record(kind, members) for name, (kind, members) in kinds.items()}
    names = {kind: name for name, (kind, _) in kinds.items()}

    def read(value: Any) -> Any:
        members = dict(_object(value))
        if tag not in members:
            raise MalformedError(f"field {tag} is missing")
        try:
            name = one_of(*forms).read(members.pop(tag))
        except MalformedError as problem:
            raise problem.inside(tag) from None
        return forms[name].read(members)

    def write(value: Any) -> dict[str, Any]:
        name = names[type(value)]
        return {tag: name, **forms[name].write(value)}

    return Form(read, write)


class _Fields:
    """The members of one object, read into the arguments of a record and written from its attributes."""

    def __init__(self, members: Members) -> None:
        self._names = tuple(members)
        self._inner = {name: _Fields(member) for name, member in members.items() if isinstance(member, Mapping)}
        plain = {
            name: member if isinstance(member, FormMember) else FormMember(member)
            for name, member in members.items()
            if not isinstance(member, Mapping)
        }
        optional_members = {name: member for name, member in plain.items() if member.default is not _REQUIRED}
        self._required = frozenset(members) - optional_members.keys()
        # None for members without an attribute. A nested object has its members in the record itself.
        attributes = {name: name if member.attribute == "" else member.attribute for name, member in plain.items()}
        self._defaults = {attributes[name] or name: member.default for name, member in optional_members.items()}
        self._readers = tuple((name, attributes[name], member.form.read) for name, member in plain.items())
        # The value of an attribute that is omitted, if any.
        self._writers: tuple[tuple[str, str | None, Callable[[Any], Any], Any], ...] = tuple(
            (name, None, self._inner[name].write, _REQUIRED)
            if (member := plain.get(name)) is None
            else (name, attributes[name], member.form.write, _REQUIRED if member.written else member.default)
            for name in members
        )

    def read(self, value: Any) -> dict[str, Any]:
        """Return the attributes that an object contains."""
        members = _object(value)
        if members.keys() != self._required:
            for name in members:
                if name not in self._names:
                    raise MalformedError(f"unknown field {quoted(name)}")
            for name in self._names:
                if name not in members and name in self._required:
                    raise MalformedError(f"field {name} is missing")
        arguments = self._defaults.copy()
        name = ""
        try:
            for name, attribute, read in self._readers:
                if name in members:
                    found = read(members[name])
                    if attribute is not None:
                        arguments[attribute] = found
            for name, inner in self._inner.items():
                arguments |= inner.read(members[name])
        except MalformedError as problem:
            raise problem.inside(name) from None
        return arguments

    def write(self, value: Any) -> dict[str, Any]:
        """Return the object with its members in the declared order."""
        form: dict[str, Any] = {}
        for name, attribute, write, unwritten in self._writers:
            found = value if attribute is None else getattr(value, attribute)
            if unwritten is _REQUIRED or found != unwritten:
                form[name] = write(found)
        return form
