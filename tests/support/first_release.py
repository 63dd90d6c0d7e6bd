"""What the first release wrote, unpacked for a test; `tests/data/first-release/make.py` says what happened in it.

life         a branch with every sort of entry and of signed branch; the deletes of drafts and mail wait, drafts is approved
interrupted  a branch whose run was killed between the delete of a graph and its entry
folder       a ledger folder: one document was used, the delete of older has one that waits
"""

from __future__ import annotations

import tarfile
from datetime import timedelta
from pathlib import Path

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.layout import graph_root
from gitops.cluster.session.workspace import Stores
from gitops.database.graph import LanceEngine
from tests.support.audited import CLUSTER, START, Life
from tests.support.clock import FixedClock
from tests.support.git_fixture import run
from tests.support.ids import SequentialIds

DATA = Path(__file__).resolve().parents[1] / "data" / "first-release"
BRANCHES = ("life", "interrupted")
LATER = timedelta(hours=1)


class OldLife(Life):
    """The cluster of a bundle in the hands of this release, an hour later: repository, keys and graphs are those of then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lance = LanceEngine(self.clock, self.ids)

    def stores(self, rule: ClusterRule) -> Stores:
        root = f"{self.home}/data/{CLUSTER}"
        return Stores(self.ledger(rule), self.lance, lambda graph: f"{root}/{graph_root(graph)}")


def unpack(name: str, folder: Path) -> Path:
    """Unpack graphs and keys, or a ledger folder, into `folder`; a bundle becomes the bare repository `life.git` there."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    if name not in BRANCHES:
        return folder / "folder"
    for key in (folder / "keys").iterdir():
        key.rename(folder / key.name)
    run("git", "clone", "-q", "--mirror", str(DATA / f"{name}.bundle"), str(folder / "life.git"), home=folder)
    run("git", f"--git-dir={folder}/life.git", "remote", "remove", "origin", home=folder)
    return folder / "life.git"


def old_life(name: str, folder: Path) -> OldLife:
    """The cluster of a bundle; see `OldLife`."""
    unpack(name, folder)
    return OldLife(folder, clock=FixedClock(START + LATER, timedelta(seconds=1)), ids=SequentialIds(10_000))
