"""Forms for the declarations of hosts: their keys in `cluster.yaml`, and the attributes of items in resource files.

`FORMS` has the reader of each attribute form in `gitops.cluster.model.host`, and `ATTRIBUTE_CODES` the code that reports a
value which the reader refuses.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from posixpath import normpath
from types import MappingProxyType
from typing import Any

from gitops.cluster.config.rule_forms import (
    Form,
    KnownForm,
    Refused,
    Row,
    choice,
    derived,
    keyed,
    listed,
    members,
    schema_of,
    text,
    truth,
    whole,
)
from gitops.cluster.model.address import is_name
from gitops.cluster.model.host import CHECK_ATTRIBUTES, CHECK_KINDS, REQUIRED, Attribute, AttributeForm
from gitops.core.codes import Code
from gitops.core.documents.forms import is_line

MAX_PATH_BYTES = 1024
MAX_CONTENT_BYTES = 1 << 20
_MAX_TEXT = 1 << 20
_MAX_WORDS = 256

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z", re.ASCII)
_ACCOUNT = re.compile(r"(?:[a-z_][a-z0-9_-]{0,31}|0|[1-9][0-9]{0,9})\Z", re.ASCII)
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}\Z", re.ASCII)
# https://www.debian.org/doc/debian-policy/ch-controlfields.html#version
_VERSION = re.compile(r"(?:[0-9]+:)?[0-9][A-Za-z0-9.+~-]{0,127}\Z", re.ASCII)
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z", re.ASCII)
_MODE = re.compile(r"[0-7]{3,4}\Z", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_UNIT_WORD = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}\Z", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}\Z", re.ASCII)
_HIGHEST_PORT = 65535


def is_address(value: str) -> bool:
    """Return True for a DNS name or an IP address, which a program never takes for an option."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        labels = value.removesuffix(".").split(".")
        return len(value) <= 253 and all(map(_LABEL.match, labels))  # noqa: PLR2004 - RFC 1035, 2.3.4
    return "%" not in value


def is_user(value: str) -> bool:
    """Return True if `value` is the name of a user or group."""
    return _USER.match(value) is not None


def is_package(value: str) -> bool:
    """Return True if `value` is the name of a Debian package."""
    return _PACKAGE.match(value) is not None


def path_problem(path: str) -> str | None:
    """Return why `path` cannot be the path of an item on a host, or None if it can."""
    if not path.startswith("/"):
        return "must begin with /"
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        return f"has more than {MAX_PATH_BYTES} bytes"
    if any(unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in path):
        return "contains control or format characters"
    if unicodedata.normalize("NFC", path) != path:
        return "is not in the Unicode normal form NFC"
    if normpath(path) != path or path.startswith("//"):
        return f"is not in its shortest form; write {normpath('/' + path.lstrip('/'))}"
    return None


def _path(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a path in quotes")  # noqa: TRY004 - `derived` turns ValueErrors into problems
    if problem := path_problem(value):
        raise ValueError(problem)
    return value


def _target(value: object) -> str:
    if not isinstance(value, str) or not is_line(value) or len(value.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise ValueError("expected a path on one line")
    return value


def _mode(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError('must be in quotes, such as "0644", because YAML has two ways to read the number')  # noqa: TRY004
    if _MODE.match(value) is None:
        raise ValueError('is not a mode of 3 or 4 octal digits, such as "0644"')
    return value.rjust(4, "0")


def _account(value: object) -> str:
    # An id is as good as a name, and YAML makes it a number.
    given = str(value) if type(value) is int else value
    if not isinstance(given, str) or _ACCOUNT.match(given) is None:
        raise ValueError("is not the name or the id of an account")
    return given


def _version(value: object) -> str:
    if value in ("latest", "newest", "*"):
        raise ValueError("is not a version; leave the key out to take any version")
    if not isinstance(value, str):
        raise ValueError('must be a version in quotes, such as "1.24.0-2"')  # noqa: TRY004
    if _VERSION.match(value) is None:
        raise ValueError('is not a version in dpkg\'s spelling, such as "1.24.0-2"')
    return value


def _base64(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected base64")  # noqa: TRY004
    try:
        base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None
    return "".join(value.split())


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(value) > _MAX_WORDS:
        raise ValueError("expected a list with the program and its arguments")
    for word in value:
        if not isinstance(word, str) or "\0" in word or len(word) > _MAX_TEXT:
            raise ValueError("each word must be text in quotes, without NUL")
    if not value[0]:
        raise ValueError("the program is missing")
    return tuple(value)


def _plain(value: str) -> bool:
    return "\0" not in value and len(value) <= _MAX_TEXT


def _enabled(attribute: Attribute) -> Form[Any]:
    words = choice(*(each for each in attribute.values if each not in ("true", "false")))

    def read(value: object) -> Any:
        return value if isinstance(value, bool) else words(value)

    return KnownForm(read, attribute.values, shape=lambda: {"anyOf": [{"type": "boolean"}, schema_of(words)]})


def _sections(value: object) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Read the sections of a unit. A value is text, a number or a boolean, or a list of these for a repeated key."""
    if not isinstance(value, dict) or not value:
        raise Refused(((), "expected a mapping of sections such as Service"))
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for section, keys in value.items():
        if _UNIT_WORD.match(section) is None or not isinstance(keys, dict):
            raise Refused(((section,), "expected a section of keys, such as Service: {ExecStart: /usr/bin/true}"))
        found[section] = {}
        for key, stated in keys.items():
            lines = stated if isinstance(stated, list) else [stated]
            if _UNIT_WORD.match(key) is None or not all(map(_is_unit_value, lines)):
                raise Refused(((section, key), "expected a key of systemd with text on one line, or a list of these"))
            found[section][key] = tuple(map(_unit_value, lines))
    return found


def _is_unit_value(value: object) -> bool:
    if isinstance(value, bool | int):
        return True
    return isinstance(value, str) and (not value or is_line(value)) and not value.endswith("\\")


def _unit_value(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _checks(value: object) -> tuple[Mapping[str, Any], ...]:
    """Read the checks of a `ready` item. Each has exactly one of the kinds."""
    if not isinstance(value, list) or not value:
        raise Refused(((), "expected a list with at least one check"))
    found = []
    for number, each in enumerate(value):
        kinds = [kind for kind in CHECK_KINDS if isinstance(each, dict) and kind in each]
        if len(kinds) != 1:
            raise Refused(((number,), f"a check has exactly one of {', '.join(CHECK_KINDS)}"))
        try:
            read = _CHECK(each)
        except Refused as refused:
            raise Refused(*(((number, *place), message) for place, message in refused.problems)) from None
        kept = {kinds[0], *(_HTTP_ONLY if kinds == ["http"] else ())}
        if extra := sorted(each.keys() - kept):
            raise Refused(((number, extra[0]), "this key only belongs to a check with http"))
        found.append({name: read.get(name, CHECK_ATTRIBUTES[name].default) for name in sorted(kept)})
    return tuple(found)


_HTTP_ONLY = ("status", "contains", "ca")


def _tcp(value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not is_address(host.removeprefix("[").removesuffix("]")) or not _is_port(port):
        raise ValueError("expected HOST:PORT, such as 127.0.0.1:8080")
    return f"{host}:{port}"


def _is_port(text: str) -> bool:
    return _PORT.match(text) is not None and int(text) <= _HIGHEST_PORT


LINE: Form[str] = text(lambda value: not value or is_line(value), "expected text on one line")
TAG: Form[str] = text(is_name, "a tag has letters, digits, _ and -, and starts with a letter or _")
_NAME = text(is_name, "use letters, digits, _ and -, starting with a letter or _")
_VARIABLE = text(_KEY.match, "is not a variable name of letters, digits and _")
_ONE_LINE = text(
    lambda value: _plain(value) and "\n" not in value and "\r" not in value, "expected text without line breaks or NUL"
)

FORMS: Mapping[AttributeForm, Callable[[Attribute], Form[Any]]] = MappingProxyType(
    {
        AttributeForm.LINE: lambda _: LINE,
        AttributeForm.TEXT: lambda _: text(_plain, "expected text without NUL"),
        AttributeForm.BASE64: lambda _: derived(_base64),
        AttributeForm.TRUTH: lambda _: truth,
        AttributeForm.CHOICE: lambda each: choice(*each.values),
        AttributeForm.ENABLED: _enabled,
        AttributeForm.NUMBER: lambda each: whole(each.least, each.most),
        AttributeForm.SECONDS: lambda each: whole(each.least, each.most),
        AttributeForm.MODE: lambda _: derived(_mode),
        AttributeForm.PATH: lambda _: derived(_path),
        AttributeForm.TARGET: lambda _: derived(_target),
        AttributeForm.SOURCE: lambda _: text(str.strip, "expected the path of a file in this folder"),
        AttributeForm.ACCOUNT: lambda _: derived(_account, lambda: {"type": ["string", "integer"]}),
        AttributeForm.SECRET: lambda _: _NAME,
        AttributeForm.VERSION: lambda _: derived(_version),
        AttributeForm.LINES: lambda _: listed(LINE),
        AttributeForm.ACCOUNTS: lambda _: listed(text(is_user, "is not the name of a group")),
        AttributeForm.ADDRESSES: lambda _: listed(LINE),
        AttributeForm.ARGV: lambda _: derived(
            _argv, lambda: {"type": "array", "items": {"type": "string"}, "minItems": 1}
        ),
        AttributeForm.PAIRS: lambda _: keyed(_VARIABLE, _ONE_LINE),
        AttributeForm.SECRETS: lambda _: keyed(_VARIABLE, _NAME),
        AttributeForm.SECTIONS: lambda _: KnownForm(
            _sections, shape=lambda: {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object"}}
        ),
        AttributeForm.CHECKS: lambda _: KnownForm(
            _checks, shape=lambda: {"type": "array", "items": schema_of(_CHECK), "minItems": 1}
        ),
    }
)
"""The form of the values of an attribute."""

ATTRIBUTE_CODES: Mapping[AttributeForm, Code] = MappingProxyType(
    {
        AttributeForm.MODE: Code.HOST_MODE_INVALID,
        AttributeForm.PATH: Code.HOST_PATH_INVALID,
        AttributeForm.TARGET: Code.HOST_PATH_INVALID,
        AttributeForm.VERSION: Code.HOST_VERSION_INVALID,
        AttributeForm.PAIRS: Code.HOST_ENV_INVALID,
        AttributeForm.SECRETS: Code.HOST_ENV_INVALID,
        AttributeForm.SECTIONS: Code.HOST_UNIT_INVALID,
    }
)
"""The codes of values that are refused, where it isn't `host_value_invalid`."""


def row_of(attribute: Attribute) -> Row:
    """Return the row of an attribute: its form, description and default."""
    return Row(
        FORMS[attribute.form](attribute),
        attribute.words,
        unset=attribute.unset,
        default=None if attribute.default is REQUIRED else attribute.default,
    )


_CHECK: Form[dict[str, Any]] = members({name: row_of(each) for name, each in CHECK_ATTRIBUTES.items()})
