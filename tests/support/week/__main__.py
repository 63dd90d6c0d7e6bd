"""Write the pages of a week again, below tests/data/week."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.week.story import DATA, Week, steps
from tests.support.week.team import TEAMS


def main(names: list[str]) -> None:
    """Take the week with the named kinds of team, by default with all."""
    for name in names or list(TEAMS):
        folder = DATA / name
        folder.mkdir(exist_ok=True)
        left = set(folder.glob("*.md"))
        with tempfile.TemporaryDirectory() as place, TEAMS[name](Path(place) / name) as team:
            week = Week(team)
            for number, step in enumerate(steps(), start=1):
                if step.only in (None, name):
                    started, page = time.monotonic(), folder / step.file(number)
                    page.write_text(week.page(step), "utf-8")
                    left.discard(page)
                    sys.stderr.write(f"{name} {step.name}: {time.monotonic() - started:.1f} s\n")
        for page in left:
            page.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
