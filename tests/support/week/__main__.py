"""Write the pages of a week again, below tests/data/week."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.week.story import DATA, Week, steps
from tests.support.week.teams import TEAMS


def main(names: list[str]) -> None:
    """Take the week with the named kinds of team, by default with all."""
    for name in names or list(TEAMS):
        folder = DATA / name
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.md"):
            old.unlink()
        with tempfile.TemporaryDirectory() as place, TEAMS[name](Path(place) / name) as team:
            week = Week(team)
            for number, step in enumerate(steps(), start=1):
                if step.only in (None, name):
                    started = time.monotonic()
                    (folder / step.file(number)).write_text(week.page(step), "utf-8")
                    sys.stderr.write(f"{name} {step.name}: {time.monotonic() - started:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
