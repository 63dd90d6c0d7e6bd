"""Key files through the life of a graph: which version they answer for, what is left to the executor, and whom they trust."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.core.codes import Code
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode
from gitops.database.graph.query import key_writer
from gitops.database.graph.query.cached_files import CachedFiles
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import check_query, parse_queries
from tests.support.ids import SequentialIds
from tests.support.key_files import ByKey
from tests.support.pages import ROOT
from tests.support.query_graphs import CLOCK, NOW, TOWNS, create, put, town

ONE = 'query q() { match { $t: Town { key: "a" } } return { $t.size, $t.name } }'


@pytest.fixture
def towns(tmp_path: Path) -> ByKey:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town("a", size=1, name="one"), town("b", size=2)])
    return ByKey(root, tmp_path / "cache" / "gitops")


def mutate(root: str, text: str, ids: int, branch: str = "main") -> None:
    snapshot = open_snapshot(root, ReadTarget(branch))
    checked = check_query(parse_queries(text.encode())[0], snapshot.schema().catalog)
    Mutator(CLOCK, SequentialIds(ids)).run(root, checked, None, MutationOptions(now=NOW, branch=branch))


def test_the_second_query_of_a_version_makes_a_file(towns: ByKey) -> None:
    assert towns.fast(ONE) is None
    towns.note(ONE)
    assert towns.fast(ONE) is None
    towns.note(ONE)
    assert towns.fast(ONE) == towns.slow(ONE) == '[2, ["t.size", "t.name"], [{"t.size": 1, "t.name": "one"}]]'
    assert [path.stat().st_mode & 0o777 for path in (*towns.files, *towns.files[0].parents[:2])] == [
        0o600,
        0o700,
        0o700,
    ]


OTHERS = (
    "match { $t: Town { size: 1 } } return { $t.name }",
    'match { $t: Town { key: "a", size: 1 } } return { $t.name }',
    'match { $t: Town  $t.key != "a" } return { $t.name }',
    'match { $t: Town  $t.key contains "a" } return { $t.name }',
    'match { $t: Town { key: "a" }  $u: Town } return { $t.name }',
    'match { $t: Town { key: "a" }  $t road $u } return { $t.name }',
    'match { $t: Town { key: "a" }  not { $t road $u } } return { $t.name }',
    'match { $t: Town { key: "a" } } return { count($t) }',
    'match { $t: Town { key: "a" } } return { $t.name } order { $t.name }',
    'match { $t: Town { key: "a" } } return { $t.name } limit 0',
    'match { $t: Town { key: "a" } } return { $t.name, now() as n }',
    "match { $t: Town } return { $t.name }",
)


def test_other_queries_are_left_to_the_executor(towns: ByKey) -> None:
    towns.written(ONE)
    before = [path.read_bytes() for path in towns.files]
    for body in OTHERS:
        text = f"query q() {{ {body} }}"
        for _ in range(2):
            towns.note(text)
        assert towns.slow(text).startswith("["), body
        assert towns.fast(text) is None, body
    assert [path.read_bytes() for path in towns.files] == before


def test_a_change_is_seen_at_once_and_old_versions_as_they_were(towns: ByKey) -> None:
    first = towns.written(ONE)
    old = ReadTarget(version=2)
    mutate(towns.root, 'query m() { update Town set { size: 9 } where key = "a" }', 5_000)
    assert towns.fast(ONE) is None
    assert towns.fast(ONE, target=old) == first == towns.slow(ONE, target=old)
    assert '"t.size": 9' in towns.written(ONE)
    assert towns.fast(ONE, target=old) is None, "there is one file, for the newest version that was read"
    for _ in range(3):
        towns.note(ONE, target=old)
    assert towns.fast(ONE) == towns.slow(ONE), "an old version does not take the place of a newer one"
    mutate(towns.root, 'query m() { delete Town where key = "a" }', 6_000)
    assert towns.written(ONE).endswith("[]]")
    assert len(towns.files) == 1
    assert b"one" not in towns.files[0].read_bytes(), "values of the version before are gone"


def test_a_branch_has_a_file_of_its_own(towns: ByKey) -> None:
    main = towns.written(ONE)
    create_branch(towns.root, "b", WriteContext(CLOCK, SequentialIds(7_000)))
    mutate(towns.root, 'query m() { update Town set { size: 9 } where key = "a" }', 8_000, "b")
    assert '"t.size": 9' in towns.written(ONE, target=ReadTarget("b"))
    assert towns.fast(ONE) == main == towns.slow(ONE)


def test_optimize_and_a_load_are_new_versions(towns: ByKey) -> None:
    towns.written(ONE)
    put(towns.root, [town("c"), town("a", size=3)], start=9_000)
    assert towns.fast(ONE) is None
    assert '"t.size": 3' in towns.written(ONE)
    optimize_tables(towns.root, WriteContext(CLOCK, SequentialIds(9_500)), OptimizeOptions(fragments=1, scalar_rows=1))
    assert towns.fast(ONE) is None
    towns.written(ONE)


def test_a_restored_copy_of_the_graph_has_other_versions_under_the_same_numbers(towns: ByKey, tmp_path: Path) -> None:
    shutil.copytree(towns.root, tmp_path / "backup")
    put(towns.root, [town("a", size=5)], start=9_000)
    assert "[3, " in (lost := towns.written(ONE))
    shutil.rmtree(towns.root)
    shutil.copytree(tmp_path / "backup", towns.root)
    put(towns.root, [town("a", size=6)], start=9_000)
    assert towns.fast(ONE) is None
    assert lost != towns.written(ONE)


def test_a_property_that_is_declared_again_and_a_type_that_was_dropped(towns: ByKey) -> None:
    towns.written(ONE)
    for source in (TOWNS.replace(b"size: I32?", b""), TOWNS):
        LanceEngine(CLOCK, SequentialIds(900_000)).prepare_migration(towns.root, source, actor=None).publish()
    assert '"t.size": null' in towns.written(ONE)
    hard = TOWNS.replace(b"name: String?", b"")
    kept = open_snapshot(towns.root).manifest.n
    engine = LanceEngine(CLOCK, SequentialIds(910_000))
    engine.prepare_migration(towns.root, hard, actor=None, allow_data_loss=True).publish()
    old = ReadTarget(version=kept)
    assert (towns.fast(ONE, target=old), towns.slow(ONE, target=old)) == (None, Code.GRAPH_VERSION_GONE)


def test_a_table_that_is_too_large_has_no_file_and_is_not_read_again(
    towns: ByKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_writer, "MAX_BYTES", 20)
    for _ in range(2):
        towns.note(ONE)
    monkeypatch.setattr(key_writer, "_made", None)
    towns.note(ONE)
    assert towns.fast(ONE) is None
    assert towns.files[0].stat().st_size < 1000


def test_what_others_own_or_may_write_is_not_read(
    towns: ByKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = towns.written(ONE)
    path = towns.files[0]
    for place in (path, path.parent):
        for mode in (0o720, 0o702):
            place.chmod(mode)
            assert towns.fast(ONE) is None
        place.chmod(0o700)
        assert towns.fast(ONE) == found
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert towns.fast(ONE) is None
    monkeypatch.undo()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert towns.fast(ONE) is None


def test_a_table_that_only_the_driver_can_reach_is_left_to_it(towns: ByKey, tmp_path: Path) -> None:
    found = towns.written(ONE)
    nodes = Path(towns.root) / "nodes"
    nodes.rename(tmp_path / "elsewhere")
    nodes.symlink_to(tmp_path / "elsewhere")
    assert (towns.fast(ONE), towns.slow(ONE)) == (None, found)
    towns.note(ONE)


def test_a_damaged_file_is_replaced(towns: ByKey) -> None:
    found = towns.written(ONE)
    path = towns.files[0]
    for place in (30, -1):
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        assert towns.fast(ONE) is None
        assert towns.written(ONE) == found


def test_a_file_under_another_name_is_no_file(towns: ByKey) -> None:
    towns.written(ONE)
    (path,) = towns.files
    put(towns.root, [town("a", size=2)], start=9_000, mode=LoadMode.OVERWRITE)
    create_branch(towns.root, "b", WriteContext(CLOCK, SequentialIds(7_000)), ReadTarget(version=2))
    towns.written(ONE, target=ReadTarget("b"))
    (other,) = (each for each in towns.files if each != path)
    other.replace(path)
    assert towns.fast(ONE, target=ReadTarget(version=2)) is None


def test_the_folder_stays_within_its_limit(tmp_path: Path) -> None:
    files = CachedFiles(tmp_path / "keys", 30)
    for age, name in enumerate("abc"):
        files.write(name, 10, lambda file: file.write(bytes(10)) and None)
        os.utime(tmp_path / "keys" / name, ns=(age, age))
    files.mark_used("a")
    files.write("d", 10, lambda file: file.write(bytes(10)) and None)
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["a", "c", "d"]


def test_a_command_answers_without_the_driver(towns: ByKey, tmp_path: Path) -> None:
    cache = towns.options.cache_dir
    code = """
import sys
from gitops.cli.main import main
assert not main(sys.argv[1:])
print(sorted({"lance", "pyarrow", "numpy"} & set(sys.modules)))
"""
    arguments = ["graph", "query", "g", "--root", towns.root, "--text", ONE, "--format", "csv"]
    environ = {
        "GITOPS_CACHE_DIR": str(cache),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    towns.note(ONE)
    rows = ["t.size,t.name", "1,one"]
    assert [run() for _ in range(2)] == [[*rows, str(["lance", "numpy", "pyarrow"])], [*rows, "[]"]]
