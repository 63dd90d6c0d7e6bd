"""A week in a team, with the bot as hooks and as jobs of GitHub: what its people read, word for word.

The steps are in `tests/data/week/week.yaml`, and what is read in each of them is a page beside it. After a change of a text:
`python -m tests.support.week`, and read the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.week.story import DATA, EXAMPLES, Step, Week, steps
from tests.support.week.team import TEAMS

pytestmark = pytest.mark.e2e


@pytest.fixture(params=sorted(TEAMS))
def week(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Week]:
    """A team at the beginning of its week."""
    if not EXAMPLES.is_dir():
        pytest.skip("the example clusters are not beside the checkout, in ../shared/examples")
    with TEAMS[request.param](tmp_path / request.param) as team:
        yield Week(team)


def _unread(step: Step, page: str) -> list[str]:
    return [text for text in step.reads if text not in page]


@pytest.mark.damaged_ledger(reason="its last entry is forged, on a sound ledger")
def test_a_short_week(week: Week) -> None:
    """A few of the steps. Pages have other numbers then, so only what the list of steps says is looked for."""
    for step in steps():
        if step.short:
            page = week.page(step)
            assert _unread(step, page) == [], page


@pytest.mark.damaged_ledger(reason="its last entry is forged, on a sound ledger")
# 26 steps: on a busy machine they take longer than one test may by default.
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_whole_week(week: Week) -> None:
    for number, step in enumerate(steps(), start=1):
        if step.only in (None, week.team.name):
            page = week.page(step)
            assert page == (DATA / week.team.name / step.file(number)).read_text("utf-8")
            assert _unread(step, page) == []


@pytest.mark.parametrize("name", sorted(TEAMS))
def test_every_page_is_that_of_a_step_and_says_what_is_read_in_it(name: str) -> None:
    taken = {step.file(n): step for n, step in enumerate(steps(), start=1) if step.only in (None, name)}
    pages = {path.name: path.read_text("utf-8") for path in (DATA / name).iterdir()}
    assert pages.keys() == taken.keys()
    assert {file: unread for file, step in taken.items() if (unread := _unread(step, pages[file]))} == {}
