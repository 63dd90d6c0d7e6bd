"""docs/serve.md has the numbers of the code."""

from __future__ import annotations

from datetime import timedelta

from gitops.cli.serve import command as serve
from gitops.server import deliveries, listen, queue
from gitops.server.listen import Where
from gitops.server.service import Arrangement
from gitops.server.workers import Patience
from tests.support.pages import read_page


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    page = " ".join(read_page("serve.md").split())
    where, patience = Where("h", 1), Patience()
    told = (
        f"A connection lasts {where.lasts_s:.0f} seconds at most",
        f"there are {where.most} at once",
        f"request has {listen._HEAD_BYTES // 1024} KiB",
        f"a body above {Arrangement(where, {}, ()).most_bytes // 2**20} MiB",
        f"random secret of {serve._SHORTEST} characters or more",
        f"after {patience.first.seconds}, 20, 40 … seconds, at most {patience.longest.seconds // 60} minutes",
    )
    assert [words for words in told if words not in page] == []
    assert (patience.attempts, "eight times in all" in page) == (8, True)
    assert (deliveries._TOLERANCE, "more than five minutes from now" in page) == (timedelta(minutes=5), True)
    assert (queue._REMEMBERED, "for two weeks" in page) == (timedelta(weeks=2), True)
    assert (Arrangement(where, {}, ()).grace, "has a minute (`--grace`)" in page) == (timedelta(minutes=1), True)
