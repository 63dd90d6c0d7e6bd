"""Expressions of workflows and actions, as far as ours use them; whatever else is a failure of the test that meets it.

    literals      null, true, false, numbers, 'text' with '' for a quote
    operators     ! == != < <= > >= && || ( )
    names         context.name.name; of an `Open` context a missing name is null, of any other it is a mistake
    functions     always, success, failure, cancelled, startsWith, contains, format, join

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/expressions
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ExpressionError", "Open", "evaluate", "interpolate", "is_true"]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[!<>().,*\[\]]))"
)
_PLACE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_LITERALS = {"null": None, "true": True, "false": False}
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class ExpressionError(Exception):
    """What is not known here."""


class Open(dict[str, Any]):
    """A context of which any name may be asked: the payload of an event, the variables and secrets of a repository."""


def interpolate(text: str, contexts: Mapping[str, Any]) -> str:
    """A text with its `${{ }}` evaluated."""
    return _PLACE.sub(lambda found: _text(evaluate(found[1], contexts)), text)


def evaluate(source: str, contexts: Mapping[str, Any]) -> Any:
    """The value of one expression."""
    found = _PLACE.fullmatch(source.strip())
    reader = _Reader(found[1] if found else source, contexts)
    value = reader.either()
    if reader.peek() is not None:
        raise ExpressionError(f"{source!r}: {reader.peek()!r} is too many")
    return value


def is_true(value: Any) -> bool:
    """What counts as true."""
    return value not in (None, False, 0, "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        raise ExpressionError(f"{type(value).__name__} is no text")
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Reader:
    """One expression, read and evaluated at once."""

    def __init__(self, source: str, contexts: Mapping[str, Any]) -> None:
        self._contexts = contexts
        self._tokens: list[tuple[str, str]] = []
        at, source = 0, source.strip()
        while at < len(source):
            found = _TOKEN.match(source, at)
            if found is None:
                raise ExpressionError(f"{source!r} at {at}")
            self._tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            at = found.end()
        self._tokens.reverse()

    def peek(self) -> str | None:
        return self._tokens[-1][1] if self._tokens else None

    def _take(self, expected: str | None = None) -> tuple[str, str]:
        if not self._tokens or (expected is not None and self._tokens[-1][1] != expected):
            raise ExpressionError(f"{expected or 'more'} is missing before {self.peek()!r}")
        return self._tokens.pop()

    def either(self) -> Any:
        left = self._both()
        while self.peek() == "||":
            self._take()
            right = self._both()
            left = left if is_true(left) else right
        return left

    def _both(self) -> Any:
        left = self._compared()
        while self.peek() == "&&":
            self._take()
            right = self._compared()
            left = right if is_true(left) else left
        return left

    def _compared(self) -> Any:
        left = self._negated()
        while self.peek() in ("==", "!=", *_COMPARE):
            sign = self._take()[1]
            right = self._negated()
            equality = sign in ("==", "!=")
            left = _same(left, right) is (sign == "==") if equality else _COMPARE[sign](_number(left), _number(right))
        return left

    def _negated(self) -> Any:
        if self.peek() == "!":
            self._take()
            return not is_true(self._negated())
        return self._value()

    def _value(self) -> Any:
        kind, text = self._take()
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if text == "(":
            value = self.either()
            self._take(")")
            return value
        if kind != "name":
            raise ExpressionError(f"{text!r} is no value")
        if text in _LITERALS:
            return _LITERALS[text]
        if self.peek() == "(":
            return self._call(text)
        value = _property(self._contexts, text)
        while self.peek() == ".":
            self._take()
            value = _property(value, self._take()[1])
        return value

    def _call(self, name: str) -> Any:
        self._take("(")
        given: list[Any] = []
        while self.peek() != ")":
            given.append(self.either())
            if self.peek() != ")":
                self._take(",")
        self._take(")")
        if name in ("always", "success", "failure", "cancelled"):
            return self._contexts["status"][name]
        if name not in _FUNCTIONS:
            raise ExpressionError(f"there is no function {name}")
        return _FUNCTIONS[name](*given)


def _property(value: Any, name: str) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ExpressionError(f"{value!r} has no {name}")
    if name in value:
        found = value[name]
        return Open(found) if isinstance(value, Open) and isinstance(found, dict) else found
    if isinstance(value, Open):
        return None
    raise ExpressionError(f"there is no {name}; known: {', '.join(sorted(value))}")


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if type(left) is type(right):
        return bool(left == right)
    return _number(left) == _number(right)


def _number(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value or 0)
        except ValueError:
            return float("nan")
    return float("nan") if isinstance(value, dict | list) else float(value or 0)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "startsWith": lambda text, start: _text(text).lower().startswith(_text(start).lower()),
    "contains": lambda text, part: _text(part).lower() in _text(text).lower(),
    "format": lambda text, *given: text.format(*map(_text, given)),
    "join": lambda parts, between=",": between.join(map(_text, parts)),
}
