"""What a version of a graph needs is looked for by name, and is what the driver says that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.files import find_missing
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.tables import open_table
from tests.support.histories import History, knows, person

EAGER = OptimizeOptions(fragments=1, scalar_rows=1, text_rows=1, stale_rows=0, stale_share=0.0)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Rows in several fragments, of which some rows, and all rows of one fragment, are deleted."""
    history = History(str(tmp_path / "g.omni"))
    for names in ("abc", "d", "ef"):
        history.put("main", {"node:Person": [person(name) for name in names]})
    history.put("main", {"edge:Knows": [knows("1", "a", "b")]}, {"node:Person": ["b", "d"]})
    history.put("main", {"node:Person": [person("a", 30)]}, {"node:Person": ["f"]})
    return history


def needed(history: History) -> list[Path]:
    """The files of the newest version, as the driver lists them."""
    snapshot, found = history.at(), []
    for entry in snapshot.manifest.tables.values():
        path = Path(history.uri, entry.path)
        found.append(path / f"_versions/{2**64 - 1 - entry.version}.manifest")
        for fragment in open_table(snapshot.folder, entry).get_fragments():
            found += [path / "data" / file.path for file in fragment.metadata.files]
            if fragment.metadata.deletion_file is not None:
                found.append(path / fragment.metadata.deletion_file.path(fragment.fragment_id))
    return found


@pytest.mark.parametrize("optimized", [False, True])
def test_every_file_of_the_newest_version_is_missed_and_no_other(history: History, optimized: bool) -> None:
    if optimized:
        optimize_tables(history.uri, history.work(), EAGER)
    engine = LanceEngine(history.clock, history.ids)
    engine.check_files(history.uri)
    files = needed(history)
    assert len(files) >= 6
    for file in files:
        data = file.read_bytes()
        file.unlink()
        assert [path for _, path in find_missing(history.at())] == [str(file.relative_to(history.uri))]
        with pytest.raises(GitopsError, match=rf"{file.name} of (node|edge) type \w+ is missing below ") as refused:
            engine.check_files(history.uri)
        assert refused.value.code == "graph_unreadable"
        file.write_bytes(data)
    others = [each for each in Path(history.uri).rglob("data/*.lance") if each not in files]
    assert others
    for each in (*others, *Path(history.uri).rglob("_transactions/*")):
        each.unlink()
    engine.check_files(history.uri)


def test_several_missing_files_are_counted(history: History) -> None:
    for file in Path(history.uri).rglob("data/*.lance"):
        file.unlink()
    with pytest.raises(GitopsError, match=r"of edge type Knows and \d more are missing"):
        LanceEngine(history.clock, history.ids).check_files(history.uri)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[40:], lambda data: b"", lambda data: b"\xff" * 40]
)
def test_a_version_of_a_table_that_is_damaged_is_refused(history: History, damage) -> None:
    entry = history.at().manifest.tables["node:Person"]
    file = Path(history.uri, entry.path, f"_versions/{2**64 - 1 - entry.version}.manifest")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(GitopsError, match=r"\.manifest is damaged") as refused:
        LanceEngine(history.clock, history.ids).check_files(history.uri)
    assert refused.value.code == "graph_unreadable"
