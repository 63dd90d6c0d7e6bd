"""The JSON form of a value is one form, on the command line and over HTTP."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gitops.database.graph.values import cell_to_json
from gitops.database.language.schema import PropType, Scalar


@pytest.mark.parametrize(
    ("cell", "kind", "form"),
    [
        (2**63 - 1, PropType(Scalar.I64), 2**63 - 1),
        (2**64 - 1, PropType(Scalar.U64), 2**64 - 1),
        (-1, PropType(Scalar.DATE), "1969-12-31"),
        (1, PropType(Scalar.DATETIME), "1970-01-01T00:00:00.001Z"),
        (math.nan, PropType(Scalar.F64), "NaN"),
        (math.inf, PropType(Scalar.F32), "Infinity"),
        (-math.inf, PropType(Scalar.F64), "-Infinity"),
        ([0.1, math.nan, -math.inf], PropType(Scalar.VECTOR, dimension=3), [0.1, None, None]),
        ([0.1, math.nan], PropType(Scalar.F64, is_list=True), [0.1, "NaN"]),
        (b"\x00\xff", PropType(Scalar.BLOB), "base64:AP8="),
        (None, PropType(Scalar.BOOL), None),
    ],
)
def test_a_value_has_one_json_form(cell: Any, kind: PropType, form: Any) -> None:
    assert cell_to_json(cell, kind) == form
