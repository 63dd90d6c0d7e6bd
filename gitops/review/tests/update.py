"""Rewrites the expected results of failed tests in a test file, by the places of the values in its text.

Only the values of `rows`, `ordered`, `bag`, `count`, `affected` and `error` change. Everything else keeps its bytes. An
expectation with matchers or with comments inside stays as it is, because a rewrite would lose them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.database.language.yaml import (
    ScalarType,
    YamlList,
    YamlMap,
    YamlNode,
    YamlScalar,
    parse_yaml,
    spans,
    to_plain,
)
from gitops.review.tests.bind import BoundTest, has_matchers
from gitops.review.tests.format import ExpectForm
from gitops.review.tests.verdicts import QueryTestResult, QueryTestVerdict

_WIDTH = 110
_PLAIN = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_ ./@+-]*|\d{4}-\d{2}-\d{2})\Z", re.ASCII)
_UNCHANGED = frozenset({ExpectForm.CONTAINS})


@dataclass(frozen=True, slots=True)
class UpdatedFile:
    """A test file before and after an update. `skipped` lists failed tests that were not changed, each with the reason."""

    path: str
    before: bytes
    after: bytes
    updated: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def update_file(path: str, data: bytes, failed: Sequence[tuple[BoundTest, QueryTestResult]]) -> UpdatedFile:
    """Return a test file in which failed tests expect their actual results. `data` is valid and has these tests."""
    text, places = data.decode(), spans(data.decode())
    edits, updated, skipped = [], [], []
    for test, result in failed:
        reason, edit = _edit(text, places, test, result)
        if edit is None:
            skipped.append((test.id, reason))
        else:
            edits.append(edit)
            updated.append(test.id)
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    return UpdatedFile(path, data, text.encode(), tuple(updated), tuple(skipped))


def _edit(
    text: str, places: Mapping[tuple[int, int], tuple[int, int]], test: BoundTest, result: QueryTestResult
) -> tuple[str, tuple[int, int, str] | None]:
    expect = test.test.expect
    if result.verdict is not QueryTestVerdict.FAILED:
        return "it could not be judged", None
    if expect.form in _UNCHANGED:
        return "contains is never rewritten", None
    if has_matchers(expect):
        return "it has matchers", None
    value = _value(expect.form, result)
    if value is None:
        return "the run ended in another way; correct the expectation by hand", None
    span = places.get((expect.value.line, expect.value.column))
    if span is None:
        return "its place was not found", None
    if _has_comment(text, span, places, expect.value):
        return "it has comments", None
    block = isinstance(expect.value, YamlList | YamlMap) and text[span[0]] not in "[{"
    line = text.splitlines()[expect.value.line - 1]
    indent = len(line) - len(line.lstrip(" -"))
    return "", (*span, _block(value, expect.value.column - 1) if block else _flow(value, indent))


def _value(form: ExpectForm, result: QueryTestResult) -> Any:
    """Return the new value, or None if the result does not fit the form."""
    actual = result.actual
    if form is ExpectForm.ERROR:
        return actual if isinstance(actual, str) else None
    if form is ExpectForm.AFFECTED:
        return actual if isinstance(actual, dict) else None
    if not isinstance(actual, list):
        return None
    return len(actual) if form is ExpectForm.COUNT else actual


def _has_comment(
    text: str, span: tuple[int, int], places: Mapping[tuple[int, int], tuple[int, int]], node: YamlNode
) -> bool:
    """Return whether there is a `#` in a value's text outside of its scalars."""
    inside = bytearray(text[span[0] : span[1]].encode("utf-32-le")[::4])
    for each in _scalars(node):
        start, end = places.get((each.line, each.column), (span[0], span[0]))
        inside[max(0, start - span[0]) : end - span[0]] = b" " * (min(end, span[1]) - max(start, span[0]))
    return b"#" in inside


def _scalars(node: YamlNode) -> list[YamlScalar]:
    waiting, found = [node], list[YamlScalar]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, YamlScalar):
            found.append(each)
        elif isinstance(each, YamlList):
            waiting += each.items
        else:
            waiting += [part for entry in each.entries for part in entry]
    return found


def _block(value: Any, indent: int) -> str:
    """Write a value where a block collection starts at a column."""
    if not isinstance(value, list) or not value:
        return _inline(value)
    return f"\n{' ' * indent}".join(f"- {_inline(each)}" for each in value)


def _flow(value: Any, indent: int) -> str:
    """Write a value in flow style, one row a line if it would be too long."""
    whole = _inline(value)
    if len(whole) <= _WIDTH or not isinstance(value, list):
        return whole
    pad = " " * (indent + 2)
    return "[\n" + "".join(f"{pad}{_inline(each)},\n" for each in value) + f"{' ' * indent}]"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline(name)}: {_inline(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str) and not (_PLAIN.match(value) and _reads_back(value)):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in text)
    return value if isinstance(value, str) else json.dumps(value)


def _reads_back(text: str) -> bool:
    node = parse_yaml(text.encode())
    return isinstance(node, YamlScalar) and node.type is ScalarType.TEXT and to_plain(node) == text
