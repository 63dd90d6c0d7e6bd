"""A copy of a graph that is made in the order of docs/engine.md is a replica, whatever the source does meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.lines import read_branches
from gitops.database.graph.results import VerifyFindingCode
from gitops.database.graph.snapshot import ReadTarget
from tests.support.histories import History, knows

EAGER = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)
BUSY = (0, 1, 3, 6, 10, 15, 21, 28)
"""The steps of a copy at which the source makes a version; more of them, and there would be ever more to copy."""

Image = dict[str, list[dict[str, object]]]


def copied(source: Path, target: Path) -> Iterator[None]:
    """Copy file by file in the order of the page; between any two of them others may act."""
    aside = {
        name: name.read_bytes() for name in (source / "branches/index.json", *source.glob("floors/*")) if name.is_file()
    }
    manifests = [*source.glob("manifests/*.json"), *source.glob("branches/*/manifests/*.json")]
    yield
    for folder in ("nodes", "edges", "schema"):
        for file in sorted((source / folder).rglob("*")):
            if file.is_file():
                yield from _copied(file, target / file.relative_to(source))
    for file in sorted(manifests):
        yield from _copied(file, target / file.relative_to(source))
    for file, data in aside.items():
        _write(target / file.relative_to(source), data)
        yield
    yield from _copied(source / "graph.json", target / "graph.json")


def _copied(file: Path, target: Path) -> Iterator[None]:
    if not target.exists() or target.stat().st_size != file.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target.with_name(f".{target.name}"))
        target.with_name(f".{target.name}").rename(target)
        yield


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


class Busy:
    """A source that makes another version, of another kind, whenever it is asked to, and remembers all of them."""

    def __init__(self, place: Path) -> None:
        self.history = History(str(place))
        self.images: dict[tuple[str, int], Image] = {}
        self._turn = 0
        self.history.people("main", ann=1)
        self.note("main")

    def note(self, branch: str) -> None:
        self.images[branch, self.history.at(branch).manifest.n] = self.history.image(branch)

    def act(self) -> None:
        self._turn += 1
        turn, branch = self._turn, "trial" if self._turn > 6 and self._turn % 2 else "main"
        if turn == 5:
            create_branch(self.history.uri, "trial", self.history.work(), ReadTarget())
            branch = "trial"
        elif turn % 7 == 0:
            optimize_tables(self.history.uri, self.history.work(), options=EAGER, branch=branch)
        elif turn % 3 == 0:
            self.history.put(branch, {"edge:Knows": [knows(f"k{turn}", "ann", "ann")]})
        else:
            self.history.people(branch, **{f"p{turn}": turn, "ann": turn})
        self.note(branch)


def check(replica: Path, source: Busy) -> None:
    """What the replica shows of a branch is what the source showed at that version."""
    seen = History(str(replica), b"")
    for branch in ("main", *read_branches(seen.at().store).branches):
        assert seen.image(branch) == source.images[branch, seen.at(branch).manifest.n]


def test_a_copy_in_order_opens_at_a_whole_version_whatever_the_source_does(tmp_path: Path) -> None:
    source, replica = Busy(tmp_path / "g.omni"), tmp_path / "replica.omni"
    for step, _ in enumerate(copied(tmp_path / "g.omni", replica)):
        if step in BUSY:
            source.act()
        if not (replica / "graph.json").exists():
            with pytest.raises(GitopsError):
                History(str(replica), b"").at()
    check(replica, source)
    first = History(str(replica), b"").at().manifest.n
    for _ in range(3):
        for step, _ in enumerate(copied(tmp_path / "g.omni", replica)):
            if step in BUSY:
                source.act()
                check(replica, source)
        check(replica, source)
    assert History(str(replica), b"").at().manifest.n > first
    assert set(read_branches(History(str(replica), b"").at().store).branches) == {"trial"}
    report = verify_graph(str(replica), deep=True)
    assert [each for each in report.findings if each.code is not VerifyFindingCode.UNREFERENCED] == []


def test_a_copy_that_takes_tables_first_and_lists_versions_after_is_none(tmp_path: Path) -> None:
    source = Busy(tmp_path / "g.omni")
    replica = tmp_path / "replica.omni"
    for folder in ("nodes", "edges", "schema"):
        shutil.copytree(tmp_path / "g.omni" / folder, replica / folder)
    source.act()
    shutil.copytree(tmp_path / "g.omni/manifests", replica / "manifests")
    shutil.copy(tmp_path / "g.omni/graph.json", replica)
    with pytest.raises(GitopsError):
        History(str(replica), b"").image()
