"""The name the author may have meant."""

from __future__ import annotations

from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.language.suggest import MAX_CANDIDATES, MAX_NAME, Suggestion, did_you_mean

NAMES = st.text(alphabet="abcde_", min_size=1, max_size=8)
MANY = [
    f"{head}_{tail}"
    for head in ("signal", "pattern", "element", "company")
    for tail in ("slug", "name", "state", "kind")
]


@given(NAMES, st.lists(NAMES, max_size=4, unique=True))
def test_of_a_few_names_the_nearest_is_meant(name, known):
    near = [] if name in known else get_close_matches(name, sorted(known), n=1)
    assert did_you_mean(name, known) == (f"did you mean `{near[0]}`?" if near else None)


@pytest.mark.parametrize("meant", MANY)
def test_of_many_names_the_one_with_a_slip_is_meant(meant):
    middle = len(meant) // 2
    swapped = f"{meant[: middle - 1]}{meant[middle]}{meant[middle - 1]}{meant[middle + 1 :]}"
    for slip in (meant[:middle] + meant[middle + 1 :], meant[:-1], swapped, f"{meant}s", meant.upper()[:1] + meant[1:]):
        if slip == meant:
            continue
        found = did_you_mean(slip, MANY)
        assert isinstance(found, Suggestion)
        assert (found.wrong, found.name) == (slip, meant)


def test_what_is_known_or_long_or_one_of_very_many_is_not_looked_for():
    assert did_you_mean("name", ["name", "names"]) is None
    assert did_you_mean("n" * (MAX_NAME + 1), ["n" * MAX_NAME]) is None
    assert did_you_mean("n" * MAX_NAME, ["n" * (MAX_NAME + 1)]) is None
    assert did_you_mean("nam", ["name", *map(str, range(MAX_CANDIDATES))]) is None
