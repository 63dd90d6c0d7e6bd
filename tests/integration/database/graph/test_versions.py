"""Versions of a graph: found again, restored, followed, remembered, and gone."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database.graph import layout, read
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch
from gitops.database.graph.history.diff import FeedLimits, feed_position, parse_position, read_feed
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.manifest import find_manifest, read_manifest
from gitops.database.graph.port import DeleteOrder, PreparedVersion, RestoreOrder
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.compiled import bind_read
from gitops.database.graph.query.options import QueryOptions
from gitops.database.graph.query.run import run_query
from gitops.database.graph.read import open_blob
from gitops.database.graph.read import read_rows as show_rows
from gitops.database.graph.results import FeedPage, FeedPosition
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext, hold_lease, read_leases
from gitops.database.graph.tables import dataset_versions
from gitops.database.graph.write.memory import WriterMemory
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import check_query, parse_queries
from gitops.database.storage.local import LocalStore
from tests.integration.database.graph.test_gc import SHARP
from tests.support.clock import FixedClock
from tests.support.histories import LATE, History, knows, lives, person, read_rows, town, version_numbers
from tests.support.ids import SequentialIds
from tests.support.memory_store import MemoryStore
from tests.support.pages import ROOT
from tests.support.query_graphs import NOW, ask
from tests.support.s3 import S3Place

READ_SCHEMA = b"""node Person { name: String @key  age: I32?  mail: String? @index }
node Town { name: String @key  plan: Blob? }
edge Lives: Person -> Town { since: I32? }
edge Knows: Person -> Person
"""
FIXTURE = ROOT / "tests" / "data/documents/manifest_1.json"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


def refused(history: History, branch: str = "main", **which: object) -> str:
    with pytest.raises(GitopsError) as failure:
        history.at(branch, **which)
    return failure.value.code


def test_every_version_is_found_by_number_commit_and_time(history: History) -> None:
    seen = {}
    for age in range(4):
        seen[history.people("main", a=age)] = {"a": age}
    create_branch(history.uri, "dev", history.work())
    for age in range(10, 13):
        seen[history.people("dev", a=age)] = {"a": age}
    for version, ages in seen.items():
        manifest = history.at("dev", version=version).manifest
        assert history.ages("dev", version=version) == ages
        assert history.ages("dev", time=manifest.ts) == ages
        assert history.ages("main", commit=manifest.txn_id) == ages
    assert refused(history, "main", version=max(seen)) == "graph_version_unknown"


def test_a_time_between_two_versions_means_the_older_one(history: History) -> None:
    first = history.people("main", a=1)
    history.clock.advance(timedelta(hours=1))
    between = history.clock.now().isoformat()
    history.clock.advance(timedelta(hours=1))
    history.people("main", a=2)
    assert history.at(time=between).manifest.n == first
    assert history.at(time="2999-01-01T00:00:00+02:00").manifest.n == first + 1
    assert refused(history, time="2000-01-01T00:00:00Z") == "graph_version_unknown"
    assert refused(history, time="yesterday") == "usage_error"


@pytest.mark.parametrize("version", [0, -1, 99])
def test_a_version_that_was_never_made(history: History, version: int) -> None:
    assert refused(history, version=version) == "graph_version_unknown"


def test_a_commit_that_is_nowhere(history: History) -> None:
    assert refused(history, commit="0" * 26) == "graph_version_gone"
    with pytest.raises(UsageError):
        history.at(commit="abc")


def test_what_gc_took_is_gone_and_says_so(history: History) -> None:
    for age in range(6):
        history.people("main", a=age)
    first = history.at(version=2).manifest
    collect_garbage(history.uri, history.work(), Retention(2, timedelta(0), timedelta(0)))
    assert refused(history, version=2) == "graph_version_gone"
    assert refused(history, commit=first.txn_id) == "graph_version_gone"
    assert refused(history, time=first.ts) == "graph_version_gone"
    assert version_numbers(history.uri) == (6, 7)
    assert history.ages(version=6) == {"a": 4}


def test_what_a_removed_branch_had_is_gone_for_those_who_came_from_it(history: History) -> None:
    history.people("main", a=1)
    create_branch(history.uri, "dev", history.work())
    version = history.people("dev", b=1)
    create_branch(history.uri, "more", history.work(), origin=history_target("dev"))
    delete_branch(history.uri, "dev", history.work())
    assert history.ages("more") == {"a": 1, "b": 1}
    assert refused(history, "more", version=version) == "graph_version_gone"
    assert history.ages("more", version=2) == {"a": 1}


def history_target(branch: str):
    from gitops.database.graph.snapshot import ReadTarget

    return ReadTarget(branch)


def test_a_manifest_that_vanished_by_itself_is_damage(history: History) -> None:
    history.people("main", a=1)
    history.people("main", a=2)
    (Path(history.uri) / layout.manifest_key(2)).unlink()
    assert refused(history, version=2) == "graph_unreadable"


def test_a_manifest_of_the_first_format_reads_as_ever() -> None:
    data, store = FIXTURE.read_bytes(), MemoryStore()
    store.write(layout.manifest_key(7), data)
    manifest = read_manifest(store, 7)
    form = json.loads(data)
    assert (manifest.line, manifest.branch, manifest.lineage) == ("main", "main", {})
    assert manifest.parent is not None
    assert (manifest.parent.n, manifest.parent.commit) == (6, None)
    assert [entry.purged for entry in manifest.dropped] == [False]
    new = json.loads(manifest.to_bytes())
    for entry in new["tables"].values():
        known = [entry.pop(name) for name in ("members", "changed", "commits", "statistics")]
        assert known == [entry["version"], {}, {}, None]
    assert {key: new[key] for key in form if key not in ("format", "parent", "dropped")} == {
        key: form[key] for key in form if key not in ("format", "parent", "dropped")
    }


def test_a_graph_whose_versions_are_of_the_first_format_goes_on(history: History) -> None:
    history.people("main", a=1)
    history.people("main", a=2)
    for n in (1, 2, 3):
        path = Path(history.uri) / layout.manifest_key(n)
        form = json.loads(path.read_bytes()) | {"format": 1, "parent": n - 1 or None}
        for name in ("branch", "line", "merge_parent", "lineage", "message", "fence", "approvals", "checksum"):
            del form[name]
        for entry in form["tables"].values():
            del entry["members"], entry["changed"], entry["commits"], entry["statistics"]
        path.write_text(json.dumps(form), encoding="utf-8")
    assert (history.ages(), history.ages(version=2)) == ({"a": 2}, {"a": 1})
    history.people("main", a=3)
    create_branch(history.uri, "dev", history.work(), origin=None)
    assert history.ages("dev", version=2) == {"a": 1}
    parent = open_snapshot(history.uri).manifest.parent
    assert parent is not None
    assert parent.commit == history.at(version=3).manifest.txn_id
    assert verify_graph(history.uri, deep=True).findings == ()


def test_a_version_is_never_older_than_its_parent(history: History) -> None:
    history.people("main", a=1)
    history.clock.advance(timedelta(days=-3))
    history.people("main", a=2)
    times = [history.at(version=n).manifest.ts for n in (1, 2, 3)]
    assert times == sorted(times)


START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Type City has two rows in version 2, and five in version 3."""
    place = str(tmp_path / "k.omni")
    LanceEngine(FixedClock(START), SequentialIds()).prepare_create(
        place, b"node City { name: String @key }\n", actor=None
    ).publish()
    _load(place, "ab")
    _load(place, "cde")
    return place


def _load(uri: str, names: str) -> None:
    lines = "".join(json.dumps({"type": "City", "data": {"name": name}}) + "\n" for name in names)
    load_records(
        LoadRequest(uri, io.BytesIO(lines.encode())),
        WriteContext(FixedClock(START), SequentialIds(900_000 + 1000 * ord(names[0]))),
    )


def _names(uri: str, version: int | None = None) -> str:
    return "".join(sorted(row["name"] for row in read.read_rows(uri, "City", 10, version)))


def _restore(uri: str, version: int) -> int:
    engine = LanceEngine(FixedClock(START), SequentialIds(500_000 + 1000 * version))
    return engine.restore(uri, RestoreOrder(version, ("City",)), actor="ann")


def test_a_restore_replaces_what_was_loaded_since_and_can_be_undone(uri: str) -> None:
    assert _restore(uri, 2) == 4
    assert (_names(uri), _names(uri, 3)) == ("ab", "abcde")
    _load(uri, "x")
    assert (_names(uri), _names(uri, 3), _names(uri, 4)) == ("abx", "abcde", "ab")
    assert _restore(uri, 3) == 6
    assert _names(uri) == "abcde"
    assert open_snapshot(uri).manifest.message == "City of version 3"
    assert verify_graph(uri, deep=True).findings == ()


def test_gc_keeps_the_version_before_a_restore_for_a_time(uri: str) -> None:
    _restore(uri, 2)
    short = Retention(keep_versions=1, older_than=timedelta(0), grace=timedelta(0))
    for days, kept in ((1, [4, 3]), (8, [4])):
        context = WriteContext(FixedClock(START + timedelta(days=days)), SequentialIds(700_000 + days))
        collect_garbage(uri, context, short)
        found = [n for n in (4, 3, 2, 1) if find_manifest(open_snapshot(uri).store, n) is not None]
        assert found == kept
    assert _names(uri) == "ab"


def test_whether_it_happened_is_not_known_once_its_version_is_gone(uri: str) -> None:
    engine = LanceEngine(FixedClock(START), SequentialIds(500_000))
    engine.restore(uri, RestoreOrder(2, ("City",)), actor=None, fence=7)
    _load(uri, "x")
    _load(uri, "y")
    assert engine.was_restored(uri, 7, 3)
    context = WriteContext(FixedClock(START + timedelta(days=9)), SequentialIds(700_000))
    collect_garbage(uri, context, Retention(keep_versions=1, older_than=timedelta(0), grace=timedelta(0)))
    with pytest.raises(GitopsError) as unknown:
        engine.was_restored(uri, 7, 3)
    assert unknown.value.code == "graph_version_gone"
    # No version since then could be it.
    assert not engine.was_restored(uri, 8, 3)
    assert not engine.was_restored(uri, 7, 6)


@pytest.fixture
def history_of_feed(tmp_path: Path) -> History:
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


def test_the_feed_has_each_version_in_turn(history_of_feed: History) -> None:
    first, second = (history_of_feed.at(version=n).manifest.txn_id for n in (2, 3))
    assert changes(pages(history_of_feed, feed_position(history_of_feed.uri, "main", "beginning"))) == [
        (first, "node:Person", "added", "a"),
        (first, "node:Person", "added", "b"),
        (first, "node:Town", "added", "x"),
        (second, "edge:Knows", "added", "k"),
        (second, "node:Person", "changed", "a"),
        (second, "node:Town", "removed", "x"),
    ]
    assert changes(pages(history_of_feed, feed_position(history_of_feed.uri, "main", f"after:{first}")))[0][0] == second
    now = feed_position(history_of_feed.uri, "main")
    assert pages(history_of_feed, now)[0].changes == ()
    history_of_feed.people("main", c=3)
    assert [each[2:] for each in changes(pages(history_of_feed, now))] == [("added", "c")]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_small_pages_give_what_a_large_one_gives(history_of_feed: History, size: int) -> None:
    start = feed_position(history_of_feed.uri, "main", "beginning")
    found = pages(history_of_feed, start, size=size)
    assert max(len(page.changes) for page in found) == size
    assert changes(found) == changes(pages(history_of_feed, start))
    assert all(page.to_json()["cursor"] == page.position.token for page in found)


def test_a_page_is_bounded_in_bytes_and_has_one_change_at_least(history_of_feed: History) -> None:
    start = feed_position(history_of_feed.uri, "main", "beginning")
    assert len(read_feed(history_of_feed.uri, start, (), FeedLimits(nbytes=1)).changes) == 1


def test_types_are_chosen_by_name_or_table(history_of_feed: History) -> None:
    start = feed_position(history_of_feed.uri, "main", "beginning")
    assert [each[1:] for each in changes(pages(history_of_feed, start, ("Knows",)))] == [("edge:Knows", "added", "k")]
    assert {each[1] for each in changes(pages(history_of_feed, start, ("node:Town",)))} == {"node:Town"}
    with pytest.raises(GitopsError, match="no type 'Twon'"):
        read_feed(history_of_feed.uri, start, ("Twon",))


def test_a_merge_is_one_version_of_the_feed_and_a_branch_goes_on_from_its_fork(history_of_feed: History) -> None:
    now = feed_position(history_of_feed.uri, "main")
    create_branch(history_of_feed.uri, "dev", history_of_feed.work())
    forked = feed_position(history_of_feed.uri, "dev", f"after:{now.commit}")
    history_of_feed.people("dev", d=4)
    history_of_feed.people("dev", e=5)
    history_of_feed.people("main", f=6)
    merged = merge_branch(history_of_feed.uri, "dev", "main", history_of_feed.work())
    found = [each for each in changes(pages(history_of_feed, now)) if each[0] == merged.commit]
    assert [each[3] for each in found] == ["d", "e"]
    assert [each[3] for each in changes(pages(history_of_feed, forked))] == ["d", "e"]
    with pytest.raises(GitopsError, match="it is on branch dev"):
        feed_position(history_of_feed.uri, "main", f"after:{history_of_feed.at('dev').manifest.txn_id}")


def test_a_version_that_is_gone_leaves_a_gap(history_of_feed: History) -> None:
    start = feed_position(history_of_feed.uri, "main", "beginning")
    late = WriteContext(FixedClock(LATE + timedelta(days=30)), history_of_feed.ids)
    collect_garbage(history_of_feed.uri, late, Retention(1, timedelta(0)))
    for stale in (
        lambda: read_feed(history_of_feed.uri, start),
        lambda: feed_position(history_of_feed.uri, "main", "beginning"),
    ):
        with pytest.raises(GitopsError) as gap:
            stale()
        assert gap.value.code == "graph_version_gone"


def test_a_branch_that_was_made_again_is_another_one(history_of_feed: History) -> None:
    create_branch(history_of_feed.uri, "dev", history_of_feed.work())
    position = feed_position(history_of_feed.uri, "dev")
    delete_branch(history_of_feed.uri, "dev", history_of_feed.work())
    create_branch(history_of_feed.uri, "dev", history_of_feed.work())
    with pytest.raises(GitopsError) as gap:
        read_feed(history_of_feed.uri, position)
    assert gap.value.code == "graph_version_gone"


def test_a_token_is_read_back_or_refused(history_of_feed: History) -> None:
    position = feed_position(history_of_feed.uri, "main")
    within: Any = FeedPosition(position.graph_id, "main", 1, position.commit, ("node:Person", "é"))
    for each in (position, within):
        assert parse_position(each.token) == each
    for text in ("", "x", "é", position.token[:-3], within.token[4:], "bnVsbA", "WzFd", "e30"):
        with pytest.raises(UsageError, match="the cursor is damaged"):
            parse_position(text)
    with pytest.raises(UsageError, match="is not a start"):
        feed_position(history_of_feed.uri, "main", "yesterday")


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
    # A write adds one head to read. Whether there is another one, the names of files tell.
    assert (after_a_write, again) == (("read",), ())
    assert tuple(calls) == ("read",) * 3
    calls.clear()
    open_snapshot(reader.history.uri)
    assert tuple(calls) == ("read",) * 4


@pytest.mark.parametrize("note", [b"", b"x", b"0", b"1", b"5", b"12", b"13", b"14", b"-1", b"9" * 40, None])
def test_a_note_of_the_newest_version_can_be_wrong(
    history: History, monkeypatch: pytest.MonkeyPatch, note: bytes | None
) -> None:
    grow(history, 12)
    place = Path(history.uri, layout.newest_key("main"))
    assert place.read_bytes() == b"13"
    listed: list[str] = []
    names = LocalStore.names
    monkeypatch.setattr(LocalStore, "names", lambda store, key: (listed.append(key), names(store, key))[1])
    assert history.at().manifest.n == 13
    assert listed == []
    place.unlink()
    if note is None:
        place.symlink_to(layout.manifest_key(1).rpartition("/")[2])
    else:
        place.write_bytes(note)
    assert history.at().manifest.n == 13
    grow(history, 1)
    assert (history.at().manifest.n, place.read_bytes()) == (14, b"14")
    with hold_lease(history.at(), history.work()):
        grow(history, 3)
        collect_garbage(history.uri, history.work(), SHARP)
        # Version 14 stays, and 15 is gone.
        place.write_bytes(b"14")
        assert history.at().manifest.n == 17
    create_branch(history.uri, "dev", history.work())
    history.people("dev", a=1)
    assert history.at("dev").manifest.n == 19


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


READS = [
    'query q() { match { $p: Person { name: "ann" } } return { $p.age, $p.mail } }',
    'query q() { match { $p: Person { name: "ann" } $p knows{1,2} $q } return { $q.name, $q.age } }',
    "query q() { match { $p: Person $p lives $t } return { $p.name, $p.age, $t.name } }",
    'query q() { match { $p: Person search($p.mail, "lake") } return { $p.mail } order { bm25($p.mail, "lake") } limit 9 }',
]
BOUND = "query q($n: String) { match { $p: Person { name: $n } $p knows $q } return { $p.age, $q.name, $q.age } }"


def found(history: History, cache: ReadCache | None, folder: Path) -> list[object]:
    """What reads through a cache find, and the tag of a blob."""
    snapshot = open_snapshot(history.uri, ReadTarget(), cache)
    rows: list[object] = [ask(snapshot, text, cache=cache, cache_dir=folder).rows() for text in READS]
    query = check_query(parse_queries(BOUND.encode())[0], snapshot.schema().catalog)
    options = QueryOptions(NOW, cache_dir=None if cache is None else folder)
    rows.append(run_query(snapshot, query, {"n": "ann"}, options, cache).rows())
    bound = None if cache is None else bind_read(snapshot, query, cache, options)
    assert bound is None or bound.rows({"n": "ann"}, NOW) == rows[-1]
    blob = open_blob(snapshot, "node:Town", "rome", "plan")
    assert blob is not None
    return [*rows, blob.tag]


def live(history: History, memory: WriterMemory, age: int, friend: str, resident: str) -> None:
    """Publish the same number of versions of every table, with these rows."""
    history.put("main", {"edge:Knows": [knows("k2", "ann", friend)]})
    history.put("main", {"node:Person": [person("ann", age, f"{resident} lake")]})
    history.put("main", {"edge:Lives": [lives("l1", resident, "rome")]}, {"edge:Knows": ["k1"]})
    history.put("main", {"node:Town": [{**town("rome"), "plan": bytes([age])}]})
    optimize_tables(history.uri, history.work(), OptimizeOptions(fragments=1))
    text = b'query q($a: I32) { update Person set { age: $a } where name = "ben" }'
    update = check_query(parse_queries(text)[0], history.at().schema().catalog)
    mutator = Mutator(history.clock, history.ids, memory=memory)
    mutator.run(history.uri, update, {"a": age}, MutationOptions(now=NOW))


@pytest.mark.parametrize("lost", [0, 3], ids=["as many versions", "fewer versions"])
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_a_graph_that_is_restored_from_a_copy_never_shows_rows_of_the_lost_versions(
    place: str, request: pytest.FixtureRequest, tmp_path: Path, lost: int
) -> None:
    """Neither in a process that wrote them, nor in one that read them, nor from the files of another process."""
    s3: S3Place | None = request.getfixturevalue("s3") if place == "bucket" else None
    history = History(str(tmp_path / "g.omni") if s3 is None else f"{s3.root}/graphs/g.omni", READ_SCHEMA)
    history.put("main", {"node:Person": [person(name, 1) for name in ("ann", "ben", "cat")]})
    history.put("main", {"edge:Knows": [knows("k1", "ann", "ben")], "node:Town": [{**town("rome"), "plan": b"1"}]})
    restore = _copied(history.uri, tmp_path / "copy", s3)
    caches, folder = [ReadCache(), ReadCache()], tmp_path / "cache"
    live(history, WriterMemory(caches[0]), 20, "cat", "ben")
    for n in range(lost):
        history.people("main", cat=n)
    for cache in caches * 8:
        before = found(history, cache, folder)
    restore()
    live(history, WriterMemory(caches[0]), 30, "ben", "cat")
    after = found(history, None, tmp_path / "no cache")
    assert not set(map(str, before)) & set(map(str, after))
    for cache in (*caches, ReadCache()) * 3:
        assert found(history, cache, folder) == after
    assert found(history, None, folder) == after


def _copied(uri: str, folder: Path, s3: S3Place | None) -> Callable[[], object]:
    """Copy a graph. Return what replaces the graph with the copy."""
    if s3 is not None:
        return partial(s3.server.restore, s3.bucket, s3.server.copy(s3.bucket))
    shutil.copytree(uri, folder)
    return lambda: (shutil.rmtree(uri), shutil.copytree(folder, uri))


BASE = b"node Person { name: String @key  age: I32?  mail: String? }\nnode Town { name: String @key }\n"
DROPPED = b"node Person { name: String @key  age: I32? }\nnode Town { name: String @key }\n"


def hard_drop(history: History) -> PreparedVersion:
    engine = LanceEngine(history.clock, history.ids, NoFaults())
    return engine.prepare_migration(history.uri, DROPPED, actor=None, allow_data_loss=True)


def people(history: History, **ages: int) -> None:
    history.put("main", {"node:Person": [{"id": name, "name": name, "age": age} for name, age in ages.items()]})


@pytest.fixture(params=["local", "s3"])
def history_of_readers_and_removal(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return History(str(tmp_path / "g.omni"), BASE)
    s3: S3Place = request.getfixturevalue("s3")
    return History(f"{s3.root}/graphs/g.omni", BASE)


def test_a_version_before_a_hard_drop_says_that_its_rows_are_gone(history_of_readers_and_removal: History) -> None:
    people(history_of_readers_and_removal, a=1)
    old = history_of_readers_and_removal.at()
    hard_drop(history_of_readers_and_removal).publish()
    with pytest.raises(GitopsError, match="dropped permanently") as failure:
        read_rows(old, "node:Person")
    assert failure.value.code == "graph_version_gone"
    with pytest.raises(GitopsError, match="dropped permanently") as failure:
        show_rows(history_of_readers_and_removal.uri, "Person", 9, old.manifest.n)
    assert failure.value.code == "graph_version_gone"
    assert read_rows(old, "node:Town") == []
    assert read_rows(history_of_readers_and_removal.at(), "node:Person") == [{"id": "a", "age": 1, "name": "a"}]


def test_a_table_that_is_lost_is_not_taken_for_a_dropped_one(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), BASE)
    people(history, a=1)
    snapshot = history.at()
    snapshot.folder.remove(snapshot.manifest.tables["node:Person"].path)
    with pytest.raises(GitopsError) as failure:
        read_rows(snapshot, "node:Person")
    assert failure.value.code == "graph_unreadable"
    assert ".rs:" not in failure.value.detail


def test_a_hard_drop_that_was_staged_before_a_branch_was_made_does_not_take_its_tables(
    history_of_readers_and_removal: History,
) -> None:
    people(history_of_readers_and_removal, a=1)
    staged = hard_drop(history_of_readers_and_removal)
    create_branch(history_of_readers_and_removal.uri, "dev", history_of_readers_and_removal.work())
    with pytest.raises(GitopsError, match="dev") as failure:
        staged.publish()
    assert failure.value.code == "graph_has_branches"
    assert [row["id"] for row in read_rows(history_of_readers_and_removal.at("dev"), "node:Person")] == ["a"]
    assert verify_graph(history_of_readers_and_removal.uri, deep=True).ok


def test_who_opened_the_newest_version_reads_on_for_the_grace_period(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), now=datetime(2020, 1, 1, tzinfo=UTC))
    history.people("main", a=1)
    opened = history.at()
    history.people("main", a=2)
    entry = opened.manifest.tables["node:Person"]
    made = dict(dataset_versions(opened.folder, entry.path))
    grace = timedelta(hours=1)
    # The rows that were opened have been there for the whole grace period, and what followed them has not.
    now = WriteContext(FixedClock(made[entry.version] + grace), history.ids)
    assert made[entry.version] < made[entry.version + 1]
    assert collect_garbage(history.uri, now, Retention(1, timedelta(0), grace)).manifests == 2
    assert read_rows(opened, "node:Person") == [person("a", 1)]


def test_a_lease_that_cannot_be_given_back_does_not_undo_what_was_done(s3: S3Place) -> None:
    history = History(f"{s3.root}/graphs/g.omni")
    s3.server.fault = lambda asked: 403 if asked.method == "DELETE" and "/leases/" in asked.path else None
    with hold_lease(history.at(), history.work()):
        pass
    create_branch(history.uri, "dev", history.work())
    with pytest.raises(ZeroDivisionError), hold_lease(history.at(), history.work()):
        raise ZeroDivisionError
    s3.server.fault = lambda _asked: None
    assert len(read_leases(history.at().store)) == 3


def test_gc_does_not_leave_the_graph_over_a_link(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), BASE)
    root, aside = Path(history.uri), tmp_path / "aside"
    (root / "edges").mkdir(exist_ok=True)
    (root / "edges").rename(aside)
    (aside / "mine").mkdir()
    (aside / "mine" / "kept").write_text("mine")
    (root / "edges").symlink_to(aside)
    with pytest.raises(GitopsError, match="not followed") as failure:
        collect_garbage(history.uri, history.work(), Retention(1, timedelta(0), timedelta(0)))
    assert failure.value.code == "storage_failed"
    assert (aside / "mine" / "kept").read_text() == "mine"
