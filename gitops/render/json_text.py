"""Prints JSON values. This module does not import the verbs' results, so that printing rows does not wait for them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gitops.render.characters import visible_json

_MAX_DEPTH = 64
_TOO_DEEP = "[nested too deeply to show]"


def to_text(form: Mapping[str, Any] | list[Any]) -> str:
    """Return pretty-printed JSON with one final newline. Characters that would affect a terminal are JSON escapes."""
    return visible_json(json.dumps(plain(form), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def to_line(value: Any) -> str:
    """Return compact JSON on one line, for example for a plan step."""
    return visible_json(json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value` as plain JSON: maps become dicts, and tuples become lists.

    Free-form parts of a ledger are foreign data. A note replaces everything below 64 levels, and a number that JSON
    cannot express becomes a string, so that printing an outcome never fails.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth >= _MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return {str(k): plain(v, depth + 1) for k, v in value.items()}
    return [plain(v, depth + 1) for v in value]
