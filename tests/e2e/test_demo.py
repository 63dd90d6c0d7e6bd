"""The demo as a newcomer sees it: five acts of about two screens, and the excerpt of it in the README."""

from __future__ import annotations

import pytest

from tests.support.demo_page import acts, excerpt, played, readme_excerpt

_SCREEN = (80, 25)


@pytest.fixture(scope="module", params=["sha1", "sha256"])
def story(request, tmp_path_factory):
    return played(tmp_path_factory.mktemp("demo") / "sandbox", object_format=request.param)


@pytest.mark.e2e
@pytest.mark.journey
def test_the_demo_has_five_acts_of_about_two_screens(story):
    columns, rows = _SCREEN
    lengths = [sum(max(1, -(-len(line) // columns)) for line in text.splitlines()) for text in acts(story)]
    assert len(lengths) == 5
    assert max(lengths) <= 2 * rows + 5, lengths


@pytest.mark.e2e
@pytest.mark.journey
def test_an_error_in_the_demo_is_announced_as_a_refusal(story):
    """An act says beforehand that a command is refused, or that it finds an attack."""
    lines = story.splitlines()
    for number, line in enumerate(lines):
        if "ERROR" in line or "failure" in line:
            told = "\n".join(lines[max(0, number - 6) : number])
            assert any(word in told for word in ("refuses", "cannot approve", "must fail", "attacker")), line


@pytest.mark.e2e
@pytest.mark.journey
def test_the_readme_shows_what_the_demo_prints(story):
    assert readme_excerpt() == excerpt(story), "run `make docs`"
