"""Rows as a table on a terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gitops.render.characters import visible

_GAP = "  "
_NULL = "-"
_CUT = "…"
_LEAST = 6


def to_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, width: int | None = None) -> str:
    """Rows of JSON values under the names of their columns; numbers are aligned to the right, null is a dash.

    `width` is that of the terminal in characters: the widest columns are cut until a line fits, but never below 6 characters.
    With None nothing is cut. A text that looks like another value is quoted as JSON, and no character acts on the terminal.
    """
    names = list(dict.fromkeys(columns))
    found = [[row.get(name) for name in names] for row in rows]
    cells = [[_cell(value) for value in row] for row in found]
    heads = [visible(name) for name in names]
    widths = [max(map(_width, column)) for column in zip(heads, *cells, strict=True)] if names else []
    if width is not None:
        widths = [min(each, max(width, _LEAST)) for each in widths]
        # The widest is cut one by one.
        for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - width):
            widest = max(widths)
            if widest <= _LEAST:
                break
            widths[widths.index(widest)] -= 1
    right = [_is_numeric([row[at] for row in found]) for at in range(len(names))]
    lines = [_line(heads, widths, right), _GAP.join("-" * each for each in widths)]
    lines += [_line(row, widths, right) for row in cells]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return _NULL
    plain = isinstance(value, str) and value not in ("", _NULL) and value == value.strip() and value[0] not in '"[{'
    return visible(value if plain else json.dumps(value, ensure_ascii=False))


def _is_numeric(values: Sequence[Any]) -> bool:
    """Whether the column holds numbers, and nothing else but nulls."""
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        shown = _shortened(cell, width)
        padding = " " * (width - _width(shown))
        parts.append(padding + shown if to_right else shown + padding)
    return _GAP.join(parts).rstrip()


def _shortened(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + _CUT


def _width(text: str) -> int:
    """Columns of a terminal: wide East Asian characters take two, combining ones none. Source: UAX #11."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)
