"""What a process remembers of a graph saves it lists of versions, and never shows another version than a list does."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch
from gitops.database.graph.history.gc import collect_garbage
from gitops.database.graph.port import DeleteOrder
from gitops.database.graph.query import ReadCache
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import hold_lease
from gitops.database.storage.local import LocalStore
from tests.integration.database.graph.test_gc import SHARP
from tests.support.histories import History


class Reader:
    """A process that opens one graph again and again."""

    def __init__(self, history: History) -> None:
        self.history, self.cache = history, ReadCache()

    def opened(self, branch: str = "main", **which: str) -> Snapshot:
        """What is opened from memory, which is what a process opens that remembers nothing."""
        found = open_snapshot(self.history.uri, ReadTarget(branch, **which), self.cache)
        afresh = open_snapshot(self.history.uri, ReadTarget(branch, **which))
        assert (found.manifest, found.line) == (afresh.manifest, afresh.line)
        return found


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


@pytest.fixture
def reader(history: History) -> Reader:
    history.people("main", ann=1)
    found = Reader(history)
    found.opened()
    return found


def grow(history: History, versions: int) -> None:
    """Publish so many versions of `main` that change no row."""
    for _ in range(versions):
        base = history.at()
        history._staged(base, {}).publish()


@pytest.mark.parametrize("versions", [1, 60])
def test_a_read_costs_the_same_however_many_versions_are_kept(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, versions: int
) -> None:
    grow(reader.history, versions)
    commit = reader.opened().manifest.txn_id
    reader.opened(commit=commit)
    grow(reader.history, 1)
    calls: list[str] = []
    for name in ("read", "names"):
        called = getattr(LocalStore, name)

        def counted(store: LocalStore, key: str, name: str = name, called: object = called) -> object:
            calls.append(name)
            return called(store, key)  # type: ignore[operator]

        monkeypatch.setattr(LocalStore, name, counted)
    open_snapshot(reader.history.uri, ReadTarget(), reader.cache)
    after_a_write, calls[:] = tuple(calls), ()
    open_snapshot(reader.history.uri, ReadTarget(), reader.cache)
    again, calls[:] = tuple(calls), ()
    open_snapshot(reader.history.uri, ReadTarget(commit=commit), reader.cache)
    # The identity, the head and what would follow it, and the floor; a write adds one head more.
    assert (after_a_write, again) == (("read",) * 6, ("read",) * 4)
    assert tuple(calls) == ("read",) * 3


@pytest.mark.parametrize("versions", [1, 2, 20])
def test_what_others_publish_is_seen(reader: Reader, versions: int) -> None:
    before = reader.opened().manifest.n
    grow(reader.history, versions)
    assert reader.opened().manifest.n == before + versions


def test_a_version_whose_successor_was_removed_is_not_taken_for_the_head(reader: Reader) -> None:
    history = reader.history
    with hold_lease(reader.opened(), history.work()):
        grow(history, 6)
        known = reader.opened().manifest.n - 6
        collect_garbage(history.uri, history.work(), SHARP)
        with pytest.raises(GitopsError, match="no longer kept"):
            history.at(version=known + 1)
        stale = Reader(history)
        stale.cache.remember(("head", history.at().identity.graph_id, history.at().store.location, "main"), known)
        assert stale.opened().manifest.n == known + 6


def test_a_branch_that_is_made_again_under_its_name_is_another_line(reader: Reader) -> None:
    history = reader.history
    create_branch(history.uri, "draft", history.work())
    history.people("draft", bob=2)
    commit = reader.opened("draft").manifest.txn_id
    reader.opened("draft", commit=commit)
    delete_branch(history.uri, "draft", history.work())
    with pytest.raises(GitopsError, match="has no branch"):
        open_snapshot(history.uri, ReadTarget("draft"), reader.cache)
    create_branch(history.uri, "draft", history.work())
    assert reader.opened("draft").manifest.n == reader.opened().manifest.n + 1
    with pytest.raises(GitopsError, match="no version with the commit id"):
        open_snapshot(history.uri, ReadTarget(commit=commit), reader.cache)


def test_a_commit_is_found_on_the_branches_that_there_are_now(reader: Reader) -> None:
    history, commit = reader.history, reader.opened().manifest.txn_id
    create_branch(history.uri, "draft", history.work())
    assert reader.opened("draft", commit=commit).branch == "draft"
    delete_branch(history.uri, "draft", history.work())
    assert reader.opened(commit=commit).branch == "main"


def test_a_graph_that_is_deleted_or_made_again_is_not_remembered(reader: Reader) -> None:
    history, before = reader.history, reader.opened()
    text, engine = before.schema_source(), LanceEngine(history.clock, history.ids)
    engine.delete(history.uri, DeleteOrder(before.identity.graph_id, 9, 1, ()))
    with pytest.raises(GitopsError, match="contains no graph"):
        open_snapshot(history.uri, ReadTarget(), reader.cache)
    engine.prepare_create(history.uri, text, actor=None).publish()
    assert reader.opened().manifest.n == 1


def test_an_earlier_copy_of_the_graph_shows_the_versions_of_the_copy(reader: Reader) -> None:
    history, known = reader.history, reader.opened()
    grow(history, 3)
    commit = reader.opened().manifest.txn_id
    reader.opened(commit=commit)
    for n in range(known.manifest.n + 1, known.manifest.n + 4):
        next(Path(history.uri, "manifests").glob(f"*{10**20 - 1 - n}.json")).unlink()
    assert reader.opened().manifest.n == known.manifest.n
    grow(history, 1)
    assert reader.opened().manifest.n == known.manifest.n + 1
    with pytest.raises(GitopsError, match="no version with the commit id"):
        open_snapshot(history.uri, ReadTarget(commit=commit), reader.cache)
