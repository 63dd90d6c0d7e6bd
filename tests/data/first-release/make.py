"""Write the ledgers of this folder with the first release, whose source is commit 9a84dd20b026e3d09098bccdea54475caca6bc65.

    git worktree add /tmp/first 9a84dd20b026e3d09098bccdea54475caca6bc65
    cd /tmp/first && PYTHONPATH=. python <this file> <this folder>

It is run once and never again: what it wrote is what the first release wrote. It uses the imports of that release, not of this
one. Keys, times and ids are fixed; only Lance gives its files names by chance.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gitops.core.clock import FixedClock, SequentialIds
from gitops.engine.engine import LanceEngine
from gitops.ledger.layout import graph_root
from gitops.model.approval import GrantSource
from gitops.workflows.context import Stores
from gitops.workflows.decide import countersign, revoke
from gitops.workflows.refresh import import_cluster, refresh
from tests.support import audited
from tests.support.audited import CLUSTER, CONFIG, PEOPLE, WIDER, Life, declared
from tests.support.cluster import Cluster
from tests.support.git_fixture import run
from tests.support.governed import RULES, alone, attested, grant, made, office

GRAPHS = ("notes", "legacy", "extra", "drafts", "reviewed", "archive", "mail")
POLICIES = "policies:\n  base: {file: rules.yaml, applies_to: [graph.notes]}\n"
AT = "cluster_apply.after_graph_delete"


def key(folder: Path, who: str) -> None:
    """A key that follows from a name."""
    secret = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"first release: {who}".encode()).digest())
    path = folder / who
    path.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.chmod(0o600)
    public = secret.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    path.with_suffix(".pub").write_text(f"{public} {who}\n")


class Stored(Life):
    """A `Life` whose graphs are on disk, in `data` beside the repository, as `gitops.root` would have it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.engine = LanceEngine(self.clock, self.ids, self.faults)  # type: ignore[assignment]
        root = f"{self.home}/data/{CLUSTER}"
        tools = replace(
            self.project.tools,
            stores=lambda rule, _: Stores(self.ledger(rule), self.engine, lambda graph: f"{root}/{graph_root(graph)}"),
        )
        self.project = type(self.project)(tools, audited.MAIN)

    def declare(self, *graphs: str, who: str = "mallory") -> None:
        """Main declares these graphs."""
        self.change(who, {"cluster/cluster.yaml": declared(*graphs) + POLICIES.encode()})


def live(life: Stored) -> None:
    """Every sort of entry and of signed branch."""
    first = {**audited.FILES, "gitops.yaml": CONFIG.encode()}
    life.change(
        "mallory",
        {
            **first,
            "cluster/cluster.yaml": declared(*GRAPHS),
            ".gitops/allowed_signers": life.signers("bot", "ada", "ben"),
        },
    )
    assert import_cluster(life.workspace()).ok
    life.apply()
    life.declare(*GRAPHS)
    life.change("mallory", {"cluster/notes.pg": WIDER})
    life.apply()  # a policy and a migration
    life.declare("notes", "extra", "drafts", "reviewed", "archive", "mail")
    life.apply()  # the delete of legacy waits
    life.approve("ada", "graph.legacy")
    life.apply()
    life.change("mallory", {"gitops.yaml": (CONFIG + RULES).encode()})
    life.approve("ada", f"trust.{CLUSTER}")
    life.apply()
    assert refresh(life.workspace()).ok
    life.declare("notes", "drafts", "reviewed", "archive", "mail")
    commit = life.approve("ada", "graph.extra")
    identity = life.approval(commit)[0].approval_id
    assert revoke(office(life, "ada"), identity, "not yet").ok
    life.apply()  # the delete of extra waits: its approval is revoked
    debt = made(alone(life, "ada", "graph.extra"))
    life.apply()
    assert countersign(office(life, "ben"), debt, "seen").ok
    life.declare("notes", "drafts", "archive", "mail")
    made(attested(life, grant(life, "ben", GrantSource.REVIEW), "graph.reviewed"))
    life.apply()
    life.declare("notes", "archive")
    life.apply()  # the deletes of drafts and mail wait
    life.approve("ben", "graph.drafts")  # one has an approval now, which is not used yet


def interrupted(life: Stored) -> None:
    """Announced and done, never recorded."""
    life.begin()
    life.declare("notes")
    life.approve("ada", "graph.legacy")
    life.apply(dying_at=AT)


def folder(place: Path) -> None:
    """A ledger folder: one delete that an approval document permitted, one document that waits."""
    cluster = Cluster(place, engine=LanceEngine(FixedClock(audited.START, timedelta(seconds=1)), SequentialIds(1000)))
    cluster.graphs = {"knowledge": {"find_person": "people.gq"}, "old": {}, "older": {}}
    cluster.save()
    assert cluster.import_().ok
    assert cluster.apply().ok
    cluster.graphs.pop("old")
    cluster.save()
    cluster.apply()
    assert cluster.approve("graph.old").ok
    assert cluster.apply().ok
    cluster.graphs.pop("older")
    cluster.save()
    assert cluster.approve("graph.older").ok


def main(target: Path) -> None:
    """Write everything into `target`."""
    for graph in GRAPHS:
        audited.GRAPHS.setdefault(graph, f"  {graph}: {{schema: legacy.pg}}\n")
    with tempfile.TemporaryDirectory() as scratch:
        for name, write in (("life", live), ("interrupted", interrupted)):
            home = Path(scratch) / name
            home.mkdir()
            for who in PEOPLE:
                key(home, who)
            write(Stored(home))
            pack = (
                "git",
                f"--git-dir={home}/life.git",
                "bundle",
                "create",
                "-q",
                str(target / f"{name}.bundle"),
                "--branches",
            )
            run(*pack, home=home)
            with tarfile.open(target / f"{name}.tar.xz", "w:xz") as archive:
                archive.add(home / "data", "data")
                for who in PEOPLE:
                    archive.add(home / who, f"keys/{who}")
                    archive.add(home / f"{who}.pub", f"keys/{who}.pub")
        place = Path(scratch) / "folder"
        place.mkdir()
        folder(place)
        with tarfile.open(target / "folder.tar.xz", "w:xz") as archive:
            archive.add(place, "folder")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
