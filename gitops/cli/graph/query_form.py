"""Code that `gitops graph query` and `gitops query` share: parameter values and row formats.

`gitops query` doesn't open a graph or a cluster folder, so it must not import the modules that do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.render.characters import visible, visible_json
from gitops.render.graph_data import csv_lines, key_value_lines

if TYPE_CHECKING:
    from gitops.database.language.schema import PropType

UNREAD_PARAMETERS = 'write an object such as {"name": "value"}; or give each parameter: --param NAME=VALUE'
"""Remedy for parameters that cannot be read."""

_MIB = 2**20


def row_format(options: argparse.Namespace) -> str:
    """Return the row format that `--format` or `--json` selects. Raises UsageError `usage_error` if both are given."""
    if options.json and options.format not in (None, "json"):
        raise UsageError(Code.USAGE_ERROR, "--json and --format cannot be combined", fix="leave one out")
    return options.format or ("json" if options.json else "table")


def print_rows(form: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Print rows if the format consists only of rows. Return False for `table` and `json`."""
    if form == "ndjson":
        for row in rows:
            sys.stdout.write(visible_json(json.dumps(row, ensure_ascii=False)) + "\n")
    elif form == "csv":
        # A program gets the values unchanged; on a terminal, control characters are escaped.
        for line in csv_lines(columns, rows):
            sys.stdout.write(visible(line) + "\n" if sys.stdout.isatty() else line + "\n")
    elif form == "kv":
        sys.stdout.write("".join(line + "\n" for line in key_value_lines(rows)))
    else:
        return False
    return True


def read_parameters(file: str | None) -> Any:
    """Return the JSON value of `--params`, or an empty object without that option.

    Raises UsageError `usage_error` if it is not JSON.
    """
    try:
        return {} if file is None else json.loads(read_small(file))
    except (ValueError, RecursionError) as error:
        raise UsageError(Code.USAGE_ERROR, f"{file} is not JSON: {error}", fix=UNREAD_PARAMETERS) from None


def is_textual(kind: PropType) -> bool:
    """Return True if values of this type are taken literally instead of being parsed as JSON."""
    from gitops.database.language.schema import Scalar

    return kind.scalar in (Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BLOB) and not kind.is_list


def parse_value(text: str, *, textual: bool, nullable: bool) -> Any:
    """Return the string unchanged if the type is textual; otherwise parse it as JSON.

    Invalid JSON is rejected during conversion.
    """
    if textual:
        return None if text == "null" and nullable else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_small(name: str) -> bytes:
    """Return the content of a file, up to the size limit of a query and its parameters."""
    with open_records(name) as stream:
        data = stream.read(_MIB + 1)
    if len(data) > _MIB:
        raise UsageError(Code.USAGE_ERROR, f"{name} has more than {_MIB} bytes")
    return data


def open_records(name: str) -> BinaryIO:
    """Open a file, or standard input for `-`."""
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        detail, fix = f"cannot read {name}: {error.strerror}", "use a file that exists and that you can read"
        raise UsageError(Code.USAGE_ERROR, detail, path=name, fix=fix) from error
    except ValueError:
        raise UsageError(Code.USAGE_ERROR, f"{name!r} is not a file name") from None
