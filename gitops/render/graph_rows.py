"""Rows of a query in the formats of other programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gitops.render.characters import visible
from gitops.render.graph_data import cell_text

__all__ = ["csv_lines", "key_value_lines"]

_QUOTED = re.compile(r'[",\r\n]')


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The names of the columns, then the rows, without line ends: https://www.rfc-editor.org/rfc/rfc4180.

    Texts are as they are, null is nothing, and any other value is JSON. An empty text is quoted, so that it differs from null.
    """
    names = list(dict.fromkeys(columns))
    yield ",".join(map(_csv_cell, names))
    for row in rows:
        yield ",".join(_csv_cell(row.get(name)) for name in names)


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if not text or _QUOTED.search(text) else text


def key_value_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """`name: value` for each value of a row, as tables show it, with an empty line between rows."""
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from (f"{visible(name)}: {cell_text(value)}" for name, value in row.items())
