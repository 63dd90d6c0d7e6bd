"""The name the author may have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_NAME = 64
MAX_CANDIDATES = 200


def did_you_mean(name: str, candidates: Collection[str]) -> str | None:
    """A fix text with the known name nearest to `name`, or None when nothing is near.

    Long names and long lists are not searched: the search is quadratic and its answer only explains.
    """
    if len(name) > MAX_NAME or len(candidates) > MAX_CANDIDATES:
        return None
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(each for each in candidates if len(each) <= MAX_NAME), n=1)
    return f"did you mean `{near[0]}`?" if near else None
