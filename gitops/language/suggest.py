"""The name the author may have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Self

MAX_NAME = 48
MAX_CANDIDATES = 200
_COMPARED = 4


class Suggestion(str):
    """A fix text that names another name; a program may put `name` in the place of `wrong`.

    It is the text of the fix for everybody who only shows it.
    """

    __slots__ = ("name", "wrong")
    wrong: str
    name: str

    def __new__(cls, wrong: str, name: str) -> Self:
        """The text asks for `name`."""
        made = super().__new__(cls, f"did you mean `{name}`?")
        made.wrong, made.name = wrong, name
        return made


def did_you_mean(name: str, candidates: Collection[str]) -> Suggestion | None:
    """A fix text with the known name nearest to `name`, or None when nothing is near.

    A name that is known is no misspelling: something else is wrong with it. Long names and long lists are not searched, and
    only the few names that share most pairs of letters are compared: the comparison is quadratic, a hostile file asks for
    it very often, and its answer only explains.
    """
    if len(name) > MAX_NAME or len(candidates) > MAX_CANDIDATES or name in candidates:
        return None
    from difflib import get_close_matches
    from heapq import nlargest

    pairs, known = _pairs(name), sorted(each for each in candidates if len(each) <= MAX_NAME)
    if len(known) > _COMPARED:
        known = nlargest(_COMPARED, known, key=lambda each: _shared(pairs, _pairs(each)))
    near = get_close_matches(name, sorted(known), n=1)
    return Suggestion(name, near[0]) if near else None


def _pairs(name: str) -> set[str]:
    """Neighbouring letters of a name, its ends included."""
    ended = f"^{name}$"
    return {ended[at : at + 2] for at in range(len(ended) - 1)}


def _shared(one: set[str], other: set[str]) -> float:
    return len(one & other) / (len(one) + len(other))
