"""The feed of a branch: pages that together are everything that changed, and a gap where that is no longer known."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError, UsageError
from gitops.database.graph.history.branches import create_branch, delete_branch
from gitops.database.graph.history.diff import FeedLimits, feed_position, parse_position, read_feed
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.results import FeedPage, FeedPosition
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.histories import LATE, History, knows, person, town


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(str(tmp_path / "g.omni"))
    made.put("main", {"node:Person": [person("a", 1), person("b", 2)], "node:Town": [town("x")]})
    made.put("main", {"node:Person": [person("a", 5)], "edge:Knows": [knows("k", "a", "b")]}, {"node:Town": ["x"]})
    return made


def pages(history: History, start: FeedPosition, types: tuple[str, ...] = (), size: int = 1000) -> list[FeedPage]:
    found = [read_feed(history.uri, start, types, FeedLimits(changes=size))]
    while not found[-1].complete:
        token = found[-1].position.token
        found.append(read_feed(history.uri, parse_position(token), types, FeedLimits(changes=size)))
    return found


def changes(found: list[FeedPage]) -> list[tuple[str, str, str, str]]:
    return [(commit, each.table, each.kind, each.id) for page in found for commit, each in page.changes]


def test_the_feed_has_each_version_in_turn(history: History) -> None:
    first, second = (history.at(version=n).manifest.txn_id for n in (2, 3))
    assert changes(pages(history, feed_position(history.uri, "main", "beginning"))) == [
        (first, "node:Person", "added", "a"),
        (first, "node:Person", "added", "b"),
        (first, "node:Town", "added", "x"),
        (second, "edge:Knows", "added", "k"),
        (second, "node:Person", "changed", "a"),
        (second, "node:Town", "removed", "x"),
    ]
    assert changes(pages(history, feed_position(history.uri, "main", f"after:{first}")))[0][0] == second
    now = feed_position(history.uri, "main")
    assert pages(history, now)[0].changes == ()
    history.people("main", c=3)
    assert [each[2:] for each in changes(pages(history, now))] == [("added", "c")]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_small_pages_give_what_a_large_one_gives(history: History, size: int) -> None:
    start = feed_position(history.uri, "main", "beginning")
    found = pages(history, start, size=size)
    assert max(len(page.changes) for page in found) == size
    assert changes(found) == changes(pages(history, start))
    assert all(page.to_json()["cursor"] == page.position.token for page in found)


def test_a_page_is_bounded_in_bytes_and_has_one_change_at_least(history: History) -> None:
    start = feed_position(history.uri, "main", "beginning")
    assert len(read_feed(history.uri, start, (), FeedLimits(nbytes=1)).changes) == 1


def test_types_are_chosen_by_name_or_table(history: History) -> None:
    start = feed_position(history.uri, "main", "beginning")
    assert [each[1:] for each in changes(pages(history, start, ("Knows",)))] == [("edge:Knows", "added", "k")]
    assert {each[1] for each in changes(pages(history, start, ("node:Town",)))} == {"node:Town"}
    with pytest.raises(GitopsError, match="no type 'Twon'"):
        read_feed(history.uri, start, ("Twon",))


def test_a_merge_is_one_version_of_the_feed_and_a_branch_goes_on_from_its_fork(history: History) -> None:
    now = feed_position(history.uri, "main")
    create_branch(history.uri, "dev", history.work())
    forked = feed_position(history.uri, "dev", f"after:{now.commit}")
    history.people("dev", d=4)
    history.people("dev", e=5)
    history.people("main", f=6)
    merged = merge_branch(history.uri, "dev", "main", history.work())
    found = [each for each in changes(pages(history, now)) if each[0] == merged.commit]
    assert [each[3] for each in found] == ["d", "e"]
    assert [each[3] for each in changes(pages(history, forked))] == ["d", "e"]
    with pytest.raises(GitopsError, match="it is on branch dev"):
        feed_position(history.uri, "main", f"after:{history.at('dev').manifest.txn_id}")


def test_a_version_that_is_gone_leaves_a_gap(history: History) -> None:
    start = feed_position(history.uri, "main", "beginning")
    late = WriteContext(FixedClock(LATE + timedelta(days=30)), history.ids)
    collect_garbage(history.uri, late, Retention(1, timedelta(0)))
    for stale in (lambda: read_feed(history.uri, start), lambda: feed_position(history.uri, "main", "beginning")):
        with pytest.raises(GitopsError) as gap:
            stale()
        assert gap.value.code == "graph_version_gone"


def test_a_branch_that_was_made_again_is_another_one(history: History) -> None:
    create_branch(history.uri, "dev", history.work())
    position = feed_position(history.uri, "dev")
    delete_branch(history.uri, "dev", history.work())
    create_branch(history.uri, "dev", history.work())
    with pytest.raises(GitopsError) as gap:
        read_feed(history.uri, position)
    assert gap.value.code == "graph_version_gone"


def test_a_token_is_read_back_or_refused(history: History) -> None:
    position = feed_position(history.uri, "main")
    within: Any = FeedPosition(position.graph_id, "main", 1, position.commit, ("node:Person", "é"))
    for each in (position, within):
        assert parse_position(each.token) == each
    for text in ("", "x", "é", position.token[:-3], within.token[4:], "bnVsbA", "WzFd", "e30"):
        with pytest.raises(UsageError, match="the cursor is damaged"):
            parse_position(text)
    with pytest.raises(UsageError, match="is not a start"):
        feed_position(history.uri, "main", "yesterday")
