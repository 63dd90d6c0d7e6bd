"""What takes files away or puts them together: gc, optimize and purge; none takes what a reader needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import NoFaults
from gitops.database.graph import layout
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history import optimize
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches, make_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.lines import read_branches, read_floor, write_floor
from gitops.database.graph.migrate import purge_dropped
from gitops.database.graph.results import GcResult, MergeStatus
from gitops.database.graph.search import TEXT_INDEX
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import StagedVersion, hold_lease, read_leases
from gitops.database.graph.tables import TableWriter, dataset_versions, open_table
from tests.support.histories import SCHEMA, History, person, read_rows, version_numbers
from tests.support.s3 import S3Place

SHARP = Retention(2, timedelta(0), timedelta(0))


@pytest.fixture
def present(tmp_path: Path) -> History:
    """A graph whose clock tells the time of the disk, which is what versions of tables carry."""
    file = tmp_path / "now"
    file.touch()
    now = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return History(str(tmp_path / "g.omni"), now=now)


def collect(history: History, retention: Retention = SHARP, *, dry: bool = False) -> GcResult:
    return collect_garbage(history.uri, history.work(), retention, dry_run=dry)


def people_versions(history: History) -> list[int]:
    snapshot = history.at()
    path = snapshot.manifest.tables["node:Person"].path
    return [number for number, _ in dataset_versions(snapshot.folder, path)]


def test_old_versions_go_and_the_others_read_as_before(history: History) -> None:
    for age in range(5):
        history.people("main", a=age)
    create_branch(history.uri, "dev", history.work(), ReadTarget(version=2))
    history.people("dev", b=1)
    kept = {name: history.image(name) for name in ("main", "dev")}
    dry = collect(history, dry=True)
    assert history.ages(version=2) == {"a": 0}
    result = collect(history)
    assert (result.manifests, result.table_versions) == (dry.manifests, dry.table_versions)
    assert (result.manifests, result.bytes > 0) == (3, True)
    assert {name: history.image(name) for name in kept} == kept
    assert version_numbers(history.uri) == (2, 5, 6)
    again = collect(history)
    assert (again.manifests, again.table_versions, again.bytes) == (0, {}, 0)
    assert verify_graph(history.uri, deep=True).findings == ()


def test_a_dry_run_leaves_every_file(present: History) -> None:
    create_branch(present.uri, "dev", present.work())
    folder = present.at().folder
    line = read_branches(folder.store).branches["dev"].id
    write_floor(folder.store, line, 1)
    delete_branch(present.uri, "dev", present.work())
    present.clock.advance(timedelta(days=1))
    before = {file.path for file in folder.files("")}
    assert f"branches/{line}" in collect(present, dry=True).paths
    assert {file.path for file in folder.files("")} == before
    collect(present)
    assert read_floor(folder.store, line) == 0
    assert not any(line in file.path for file in folder.files(""))


def test_versions_that_are_new_or_young_stay(local: History) -> None:
    for age in range(4):
        local.people("main", a=age)
    assert collect(local, Retention(5, timedelta(0), timedelta(0))).manifests == 0
    assert collect(local, Retention(1, timedelta(days=1), timedelta(0))).manifests == 0
    local.clock.advance(timedelta(days=2))
    local.people("main", a=9)
    assert collect(local, Retention(1, timedelta(days=1), timedelta(0))).manifests == 4
    assert version_numbers(local.uri) == (5, 6)


def test_what_a_writer_has_staged_stays_for_the_grace_period(present: History) -> None:
    for age in range(4):
        present.people("main", a=age)
    staged = present.stage("main", {"node:Person": [person("s", 5)]})
    assert collect(present, Retention(1, timedelta(0), timedelta(hours=1))).manifests == 4
    staged.publish()
    assert present.ages() == {"a": 3, "s": 5}
    assert verify_graph(present.uri, deep=True).ok


def test_a_dead_writers_work_goes_after_it(local: History) -> None:
    local.people("main", a=1)
    local.stage("main", {"node:Person": [person("s", 5)]}).abort()
    local.people("main", a=2)
    before = len(people_versions(local))
    result = collect(local, Retention(9, timedelta(0), timedelta(0)))
    assert len(people_versions(local)) == before - len(*result.table_versions.values())
    assert (local.ages(), local.ages(version=2)) == ({"a": 2}, {"a": 1})


def test_a_reader_with_a_lease_reads_on(history: History) -> None:
    for age in range(5):
        history.people("main", a=age)
    old = history.at(version=2)
    with hold_lease(old, history.work()) as renew:
        collect(history)
        renew()
        assert read_rows(old, "node:Person") == [person("a", 0)]
        assert history.ages(version=2) == {"a": 0}
        assert [lease.version.n for lease in read_leases(old.store)] == [2]
    collect(history)
    with pytest.raises(GitopsError) as failure:
        history.ages(version=2)
    assert failure.value.code == "graph_version_gone"
    assert read_leases(old.store) == ()


def test_a_lease_that_comes_too_late_is_refused(local: History) -> None:
    for age in range(5):
        local.people("main", a=age)
    old = local.at(version=2)
    collect(local)
    with pytest.raises(GitopsError) as failure, hold_lease(old, local.work()):
        pass
    assert failure.value.code == "graph_version_gone"


def test_a_lease_that_expired_holds_nothing_and_says_so(local: History) -> None:
    for age in range(5):
        local.people("main", a=age)
    with hold_lease(local.at(version=2), local.work(), timedelta(minutes=1)) as renew:
        local.clock.advance(timedelta(hours=1))
        collect(local)
        with pytest.raises(GitopsError) as failure:
            renew()
    assert failure.value.code == "graph_version_gone"


def test_a_writer_that_slept_through_it_all_does_not_publish_into_the_past(local: History) -> None:
    local.people("main", a=1)
    sleeper = local.stage("main", {"node:Person": [person("s", 5)]})
    for age in range(5):
        local.people("main", a=age)
    with hold_lease(sleeper._base, local.work()):  # it may hold its version, and is late all the same
        collect(local)
    with pytest.raises(ConflictError):
        sleeper.publish()
    assert local.ages() == {"a": 4}
    collect(local)
    assert verify_graph(local.uri, deep=True).findings == ()


def test_what_a_branch_had_alone_goes_with_it(history: History) -> None:
    history.people("main", a=1)
    create_branch(history.uri, "dev", history.work())
    history.people("dev", **{f"x{n}": n for n in range(50)})
    history.people("main", a=2)
    delete_branch(history.uri, "dev", history.work())
    assert collect(history).bytes > 0
    assert history.ages() == {"a": 2}
    assert history.at().folder.children(layout.BRANCHES) == ()
    assert verify_graph(history.uri, deep=True).findings == ()


def test_the_base_of_a_merge_to_come_stays(local: History) -> None:
    local.people("main", a=1, b=1)
    create_branch(local.uri, "dev", local.work())
    local.people("dev", b=2)
    for age in range(2, 6):
        local.people("main", a=age)
    local.people("main", b=1)
    collect(local, Retention(1, timedelta(0), timedelta(0)))
    assert merge_branch(local.uri, "dev", "main", local.work()).status is MergeStatus.MERGED
    assert local.ages() == {"a": 5, "b": 2}
    local.people("main", b=1)
    local.people("dev", c=3)
    for age in range(3):
        local.people("dev", d=age)
    collect(local, Retention(1, timedelta(0), timedelta(0)))
    assert merge_branch(local.uri, "dev", "main", local.work()).status is MergeStatus.MERGED
    assert local.ages() == {"a": 5, "b": 1, "c": 3, "d": 2}


def test_dropped_types_and_their_schemas_go_when_nobody_reads_them(history: History) -> None:
    engine = LanceEngine(history.clock, history.ids)
    old = history.at().manifest
    engine.prepare_migration(history.uri, SCHEMA.replace(b"edge Knows: Person -> Person\n", b""), actor=None).publish()
    for age in range(3):
        history.people("main", a=age)
    path = old.tables["edge:Knows"].path
    collect(history)
    assert list(history.at().folder.files(path)), "what a migration dropped stays for a time, whatever is asked for"
    assert history.at(version=1).manifest == old
    history.clock.advance(timedelta(days=8))
    history.people("main", a=2)
    result = collect(history)
    assert {path, layout.source_key(old.schema_source), layout.ir_key(old.schema_ir)} <= set(result.paths)
    assert not list(history.at().folder.files(path))
    assert verify_graph(history.uri, deep=True).findings == ()
    assert history.ages() == {"a": 2}


def test_unfinished_files_and_branches_of_dead_processes_go(local: History) -> None:
    temporary = Path(local.uri) / "schema" / ".tmp-1-abc"
    temporary.write_bytes(b"half")
    staging = Path(local.uri).parent / ".g.omni.0123456789abcdef.staging"
    staging.mkdir()
    make_branch(open_snapshot(local.uri), "__preview_dead", local.work())
    collect(local)
    assert not temporary.exists()
    assert not staging.exists()
    assert [line.name for line in read_branches(open_snapshot(local.uri).store).lines()] == ["main"]


def test_nothing_is_removed_while_a_manifest_does_not_read(local: History) -> None:
    for age in range(5):
        local.people("main", a=age)
    path = Path(local.uri) / layout.manifest_key(5)
    data = path.read_bytes()
    path.write_bytes(b"{")
    before = people_versions(local)
    with pytest.raises(GitopsError) as failure:
        collect(local, Retention(4, timedelta(0), timedelta(0)))
    assert failure.value.code == "graph_unreadable"
    path.write_bytes(data)
    assert people_versions(local) == before


class Between:
    """Does something once at a point."""

    def __init__(self, point: str, deed) -> None:
        self._point, self._deed = point, deed

    def reach(self, point: str) -> None:
        if point == self._point and self._deed is not None:
            deed, self._deed = self._deed, None
            deed()


@pytest.mark.parametrize(
    "point",
    ["engine.gc.before_floors", "engine.gc.after_floors", "engine.gc.before_manifest", "engine.gc.after_manifest"],
)
@pytest.mark.parametrize("deed", ["write", "branch", "merge", "migrate", "gc"])
def test_who_works_in_the_middle_of_a_run_keeps_what_it_made(present: History, point: str, deed: str) -> None:
    for age in range(5):
        present.people("main", a=age)
    create_branch(present.uri, "dev", present.work())
    present.people("dev", b=1)
    other = History(present.uri, b"", start=70_000)
    other.clock = present.clock

    def work() -> None:
        if deed == "write":
            other.people("main", w=1)
        elif deed == "branch":
            create_branch(present.uri, "new", other.work(), ReadTarget(version=6))
            other.people("new", w=1)
        elif deed == "merge":
            merge_branch(present.uri, "dev", "main", other.work())
        elif deed == "migrate":
            delete_branch(present.uri, "dev", other.work())
            LanceEngine(other.clock, other.ids).prepare_migration(
                present.uri, SCHEMA + b"node X {}\n", actor=None
            ).publish()
        else:
            collect(other, Retention(1, timedelta(0), timedelta(0)))

    retention = Retention(2, timedelta(0), timedelta(hours=1))
    collect_garbage(present.uri, present.work(Between(point, work)), retention)
    report = verify_graph(present.uri, deep=True)
    assert report.ok, report.to_json()
    images = {branch.name: present.ages(branch.name) for branch in list_branches(present.uri)}
    assert images["main"] == {"a": 4} | ({"w": 1} if deed == "write" else {"b": 1} if deed == "merge" else {})
    assert images.get("dev", {"a": 4, "b": 1}) == {"a": 4, "b": 1}
    assert images.get("new", {"a": 4, "w": 1}) == {"a": 4, "w": 1}
    present.clock.advance(timedelta(days=30))
    collect_garbage(present.uri, present.work(NoFaults()), SHARP)
    assert verify_graph(present.uri, deep=True).findings == ()


OPTIMIZE_SCHEMA = b"""node Doc { name: String @key  title: String? @index  size: I64? @index
    kind: enum(x, y)? @index  tags: [String]?
    vec: Vector(4)? @index  @index(tags) }
edge Cites: Doc -> Doc
"""
EAGER = OptimizeOptions(fragments=1, scalar_rows=1, text_rows=1, vector_rows=8, stale_rows=0, stale_share=0.0)


def document(number: int) -> dict[str, object]:
    return {
        "id": f"d{number:02}",
        "name": f"d{number:02}",
        "title": f"red stone {number}",
        "size": number,
        "kind": "xy"[number % 2],
        "tags": ["t", str(number)],
        "vec": [float(number), 0.0, 1.0, -1.0],
    }


def fill(history: History) -> History:
    for start in range(0, 12, 4):
        history.put("main", {"node:Doc": [document(n) for n in range(start, start + 4)]})
    history.put("main", {"edge:Cites": [{"id": "e", "src": "d00", "dst": "d01"}]})
    return history


@pytest.fixture
def history_of_optimize(tmp_path: Path) -> History:
    return fill(History(str(tmp_path / "g.omni"), OPTIMIZE_SCHEMA))


def indexes(history: History, key: str, branch: str = "main") -> dict[str, int]:
    snapshot = history.at(branch)
    dataset = open_table(snapshot.folder, snapshot.manifest.tables[key])
    return {index.name: index.num_rows_indexed for index in dataset.describe_indices()}


def test_every_declared_index_is_built_and_the_rows_stay(history_of_optimize: History) -> None:
    before, versions = history_of_optimize.image(), history_of_optimize.at().manifest.n
    result = optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER)
    assert history_of_optimize.image() == before
    assert indexes(history_of_optimize, "node:Doc") == dict.fromkeys(
        [
            "id_idx",
            "kind_idx",
            "name_idx",
            "size_idx",
            "tags_idx",
            "title_idx",
            "title_ngram",
            "title_text",
            "vec_vector",
        ],
        12,
    )
    assert indexes(history_of_optimize, "edge:Cites") == dict.fromkeys(["id_idx", "src_idx", "dst_idx"], 1)
    assert sorted(result.tables) == ["edge:Cites", "node:Doc"]
    assert result.tables["node:Doc"][0] == "compacted"
    assert result.manifest_version == history_of_optimize.at().manifest.n == versions + 2
    assert history_of_optimize.at().manifest.operation == "optimize"
    assert verify_graph(history_of_optimize.uri, deep=True).ok


@pytest.mark.parametrize(
    ("ids", "later", "kinds"),
    [
        ([f"f{n:03}" for n in range(40)], [f"f{n:03}" for n in range(40, 60)], ["ZONEMAP", "ZONEMAP"]),
        ([f"f{n:03}" for n in range(40)], [f"f{n * 7 % 20 * 2:03}x" for n in range(20)], ["ZONEMAP", "BTREE"]),
        ([f"f{n * 7 % 40:03}" for n in range(40)], [], ["BTREE"]),
    ],
    ids=["count up", "no longer count up", "scattered"],
)
def test_ids_of_edges_that_count_up_have_a_zone_map(
    history_of_optimize: History, ids: list[str], later: list[str], kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimize, "_ZONE", 4)
    found, every = [], {"e"}
    for batch in (ids, later) if later else (ids,):
        every |= set(batch)
        history_of_optimize.put("main", {"edge:Cites": [{"id": each, "src": "d00", "dst": "d01"} for each in batch]})
        steps = optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER).tables["edge:Cites"]
        found += [step.removeprefix("built id_idx (")[:-1] for step in steps if "id_idx" in step]
        snapshot = history_of_optimize.at()
        dataset = open_table(snapshot.folder, snapshot.manifest.tables["edge:Cites"])
        for each in every:
            assert dataset.count_rows(f"id = '{each}'") == 1
    assert found == kinds


@pytest.mark.parametrize(("far", "kind"), [(1.0, "IVF_SQ"), (1e9, "IVF_FLAT")])
def test_vectors_are_indexed_as_bytes_unless_that_loses_the_nearest(
    history_of_optimize: History, far: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimize, "_partitions", lambda _: 1)
    # A partition must have more rows than it is asked for.
    documents = [*map(document, range(100, 700)), document(60) | {"vec": [far, far, far, far]}]
    history_of_optimize.put("main", {"node:Doc": documents})
    steps = optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER).tables["node:Doc"]
    assert f"built vec_vector ({kind})" in steps
    snapshot = history_of_optimize.at()
    described = open_table(snapshot.folder, snapshot.manifest.tables["node:Doc"]).describe_indices()
    assert [index.index_type for index in described if index.name == "vec_vector"] == [kind]


def test_a_second_run_has_nothing_to_do(history_of_optimize: History) -> None:
    optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER)
    head = history_of_optimize.at().manifest
    assert optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER).tables == {}
    assert history_of_optimize.at().manifest == head


def test_an_index_of_words_with_other_settings_is_built_again(history_of_optimize: History) -> None:
    optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER)
    rebuild_words(history_of_optimize, TEXT_INDEX | {"stem": False, "remove_stop_words": False, "ascii_folding": False})
    assert optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER).tables["node:Doc"] == (
        "built title_text (INVERTED)",
    )
    snapshot = history_of_optimize.at()
    dataset = open_table(snapshot.folder, snapshot.manifest.tables["node:Doc"])
    (words,) = (index for index in dataset.describe_indices() if index.name == "title_text")
    assert words.details["stem"]
    assert words.num_rows_indexed == 12
    assert optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER).tables == {}


def rebuild_words(history: History, settings: dict[str, Any]) -> None:
    """Publish a version whose index of words has these settings, as another release would."""
    snapshot = history.at()
    writer = TableWriter(snapshot.folder, snapshot.manifest.tables["node:Doc"])
    writer.change(
        lambda dataset: dataset.create_scalar_index("title", "INVERTED", name="title_text", replace=True, **settings)
    )
    tables = {**snapshot.manifest.tables, "node:Doc": writer.finish(recount=False)}
    StagedVersion(snapshot, "optimize", history.work(), tables=tables).publish()


def test_small_tables_are_left_alone(history_of_optimize: History) -> None:
    head = history_of_optimize.at().manifest
    assert optimize_tables(history_of_optimize.uri, history_of_optimize.work()).to_json() == {
        "manifest_version": head.n,
        "tables": {},
    }


def test_rows_that_came_later_are_indexed_by_the_next_run(history_of_optimize: History) -> None:
    optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER)
    history_of_optimize.put("main", {"node:Doc": [document(20)]})
    assert (
        optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER).tables["node:Doc"][-1]
        == "refreshed indexes"
    )
    assert set(indexes(history_of_optimize, "node:Doc").values()) == {13}


def test_one_branch_is_optimized_and_the_others_are_not_touched(history_of_optimize: History) -> None:
    create_branch(history_of_optimize.uri, "dev", history_of_optimize.work())
    head, before = history_of_optimize.at().manifest, history_of_optimize.image()
    optimize_tables(history_of_optimize.uri, history_of_optimize.work(), EAGER, "dev")
    assert (history_of_optimize.at().manifest, history_of_optimize.image(), history_of_optimize.image("dev")) == (
        head,
        before,
        before,
    )
    assert (indexes(history_of_optimize, "node:Doc"), len(indexes(history_of_optimize, "node:Doc", "dev"))) == ({}, 9)


def test_only_the_types_that_are_named(history_of_optimize: History) -> None:
    chosen = OptimizeOptions(fragments=1, scalar_rows=1, types=("edge:Cites",))
    assert set(optimize_tables(history_of_optimize.uri, history_of_optimize.work(), chosen).tables) == {"edge:Cites"}


def test_on_an_object_store_too(s3: S3Place) -> None:
    history = fill(History(f"{s3.root}/graphs/g.omni", OPTIMIZE_SCHEMA))
    before = history.image()
    optimize_tables(history.uri, history.work(), EAGER)
    assert history.image() == before
    assert len(indexes(history, "node:Doc")) == 9


class Rival:
    """Publishes a row each time that an optimized table is about to be."""

    def __init__(self, history: History, times: int) -> None:
        self.history, self.left = history, times

    def reach(self, point: str) -> None:
        if point == "engine.optimize.staged" and self.left:
            self.left -= 1
            History(self.history.uri, b"", start=9_000 * (self.left + 1)).put(
                "main", {"node:Doc": [document(30 + self.left)]}
            )


def test_what_another_writer_publishes_meanwhile_is_kept(history_of_optimize: History) -> None:
    optimize_tables(history_of_optimize.uri, history_of_optimize.work(Rival(history_of_optimize, 1)), EAGER)
    assert [row["id"] for row in history_of_optimize.rows("node:Doc")][-1] == "d30"
    assert len(indexes(history_of_optimize, "node:Doc")) == 9


def test_writers_that_are_always_faster_win(history_of_optimize: History) -> None:
    with pytest.raises(ConflictError):
        optimize_tables(history_of_optimize.uri, history_of_optimize.work(Rival(history_of_optimize, 9)), EAGER)
    assert len(history_of_optimize.rows("node:Doc")) == 15
    assert verify_graph(history_of_optimize.uri, deep=True).ok


PURGE_SCHEMA = b"""node Person { name: String @key  age: I32?  secret: String?  photo: Blob? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
LATER = b"""node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age")  photo: Blob? }
edge Knows: Human -> Human { since: I32? }
"""
SECRET = "a secret that must be gone"


@pytest.fixture(params=["local", "s3"])
def history_of_purge(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return fill_of_purge(History(str(tmp_path / "g.omni"), PURGE_SCHEMA))
    s3: S3Place = request.getfixturevalue("s3")
    return fill_of_purge(History(f"{s3.root}/graphs/g.omni", PURGE_SCHEMA))


@pytest.fixture
def local_of_purge(tmp_path: Path) -> History:
    return fill_of_purge(History(str(tmp_path / "g.omni"), PURGE_SCHEMA))


def fill_of_purge(history: History) -> History:
    people = [
        {"id": name, "name": name, "age": age, "secret": SECRET, "photo": photo}
        for name, age, photo in (("a", 1, b"one"), ("b", None, None), ("c", 3, b"three"))
    ]
    rows: dict[str, list[dict[str, Any]]] = {"node:Person": people, "node:Town": [{"id": SECRET, "name": SECRET}]}
    history.put("main", {**rows, "edge:Knows": [{"id": "k", "src": "a", "dst": "b", "since": 4}]})
    return history


def migrate(history: History, schema: bytes) -> None:
    LanceEngine(history.clock, history.ids).prepare_migration(history.uri, schema, actor=None).publish()


def stored(history: History) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(history.uri).rglob("*")) if path.is_file())


def test_dropped_types_and_properties_go_and_the_rest_stays(history_of_purge: History) -> None:
    migrate(history_of_purge, LATER)
    dropped = history_of_purge.at().manifest.n
    result = purge_dropped(history_of_purge.uri, history_of_purge.work())
    assert (result.types, dict(result.properties)) == (("node:Town",), {"node:Human": ("secret",)})
    assert result.manifest_version == dropped + 1
    people = [{name: row[name] for name in ("id", "years")} for row in history_of_purge.rows("node:Human")]
    assert people == [{"id": "a", "years": 1}, {"id": "b", "years": None}, {"id": "c", "years": 3}]
    assert history_of_purge.rows("edge:Knows", version=2)[0]["since"] == 4
    for key in ("node:Person", "node:Town"):
        with pytest.raises(GitopsError) as failure:
            history_of_purge.rows(key, version=2)
        assert failure.value.code == "graph_version_gone"
    assert verify_graph(history_of_purge.uri, deep=True).findings == ()
    if not history_of_purge.uri.startswith("s3:"):
        assert SECRET.encode() not in stored(history_of_purge)
    assert collect_garbage(history_of_purge.uri, history_of_purge.work(), Retention()).paths == ()


def test_blobs_beside_a_purged_property_stay(local_of_purge: History) -> None:
    from gitops.database.graph import read

    migrate(local_of_purge, LATER)
    purge_dropped(local_of_purge.uri, local_of_purge.work())
    assert [row["photo"] for row in read.read_rows(local_of_purge.uri, "Human", 5)] == [
        "base64:b25l",
        None,
        "base64:dGhyZWU=",
    ]


def test_a_dry_run_names_the_same_and_touches_nothing(local_of_purge: History) -> None:
    migrate(local_of_purge, LATER)
    before, version = stored(local_of_purge), local_of_purge.at().manifest.n
    planned = purge_dropped(local_of_purge.uri, local_of_purge.work(), dry_run=True)
    assert (stored(local_of_purge), planned.manifest_version) == (before, version)
    done = purge_dropped(local_of_purge.uri, local_of_purge.work())
    assert (done.types, done.properties) == (planned.types, planned.properties)


def test_a_property_that_was_dropped_and_came_back_loses_only_what_it_was(local_of_purge: History) -> None:
    migrate(local_of_purge, PURGE_SCHEMA.replace(b"age: I32?", b""))
    migrate(local_of_purge, PURGE_SCHEMA)
    local_of_purge.put("main", {"node:Town": [{"id": "x", "name": "x"}]})
    result = purge_dropped(local_of_purge.uri, local_of_purge.work())
    assert (result.types, dict(result.properties)) == ((), {"node:Person": ("age",)})
    assert local_of_purge.ages() == {"a": None, "b": None, "c": None}


def test_a_second_purge_has_nothing_to_do(local_of_purge: History) -> None:
    assert (
        purge_dropped(local_of_purge.uri, local_of_purge.work()).manifest_version == local_of_purge.at().manifest.n == 2
    )
    migrate(local_of_purge, LATER)
    version = purge_dropped(local_of_purge.uri, local_of_purge.work()).manifest_version
    again = purge_dropped(local_of_purge.uri, local_of_purge.work())
    assert (again.manifest_version, again.types, dict(again.properties)) == (version, (), {})


def test_a_graph_with_branches_is_not_purged(local_of_purge: History) -> None:
    migrate(local_of_purge, LATER)
    create_branch(local_of_purge.uri, "dev", local_of_purge.work())
    with pytest.raises(ConflictError) as failure:
        purge_dropped(local_of_purge.uri, local_of_purge.work())
    assert failure.value.code == "graph_has_branches"
    assert SECRET.encode() in stored(local_of_purge)
