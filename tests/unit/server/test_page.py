"""docs/serve.md has the numbers of the code."""

from __future__ import annotations

from datetime import timedelta

from gitops.cli import serve
from gitops.server import deliveries, http, queue
from gitops.server.http import ListenAddress
from gitops.server.service import RetryPolicy, ServerSettings
from tests.support.pages import read_page


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    page = " ".join(read_page("serve.md").split())
    address, retry = ListenAddress("h", 1), RetryPolicy()
    told = (
        f"A connection lasts {address.connection_s:.0f} seconds at most",
        f"there are {address.max_connections} at once",
        f"request has {http._HEAD_BYTES // 1024} KiB",
        f"a body above {ServerSettings(address, {}, ()).max_body_bytes // 2**20} MiB",
        f"random secret of {serve._SHORTEST} characters or more",
        f"after {retry.first.seconds}, 20, 40 … seconds, at most {retry.longest.seconds // 60} minutes",
    )
    assert [words for words in told if words not in page] == []
    assert (retry.attempts, "eight times in all" in page) == (8, True)
    assert (deliveries._TOLERANCE, "more than five minutes from now" in page) == (timedelta(minutes=5), True)
    assert (queue._REMEMBERED, "for two weeks" in page) == (timedelta(weeks=2), True)
    assert (ServerSettings(address, {}, ()).grace, "has a minute (`--grace`)" in page) == (timedelta(minutes=1), True)
