"""Write the ledger of this folder with release 0.2.1, whose source is commit f1a3bc45.

    git worktree add /tmp/third f1a3bc45
    cd /tmp/third && PYTHONPATH=. python <this file> <this folder>

It is run once and never again: what it wrote is what that release wrote, in entries of version 4. Keys and times are random.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.loop import CONFIG, DELETE_LEGACY, FILES, MAIN, Loop
from tests.support.loop_data import load

RULES = f"{CONFIG}  gates: {{irreversible: 1, lossy: 1}}\n  widening: [control, write]\n"
POLICY = b"""\
version: 1
groups: {staff: [act-ada, act-bob], editors: [act-ada]}
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
BOUND = FILES["cluster/cluster.yaml"] + b"policies: {k: {file: k.yaml, applies_to: [notes]}}\n"


def approved(loop: Loop, address: str, files: dict[str, bytes | None]) -> None:
    """A merged change that waits for an approval, the approval, and the run that it starts."""
    loop.move(MAIN, loop.commit("alice", files))
    given = loop.sign_approval("bob", address)
    assert given.ok, given.diagnostics
    loop.arrived(loop.approvals()[-1])


def main(target: Path) -> None:
    """A policy that widens access, a migration that removes values, one that cannot be undone, and the delete of a graph."""
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop.build(Path(folder) / "loop", RULES)
        approved(loop, "policy.k", {"cluster/cluster.yaml": BOUND, "cluster/k.yaml": POLICY})
        load(loop, 3, "notes", "Note", "title")
        approved(loop, "schema.notes", {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"})
        approved(loop, "schema.notes", {"cluster/notes.pg": b"node Note {\n    title: String @key @index\n}\n"})
        narrower = POLICY.replace(b"[act-ada, act-bob]", b"[act-ada]")
        loop.move(MAIN, loop.commit("alice", {"cluster/k.yaml": narrower}))
        gone = {
            **DELETE_LEGACY,
            "cluster/cluster.yaml": DELETE_LEGACY["cluster/cluster.yaml"] + BOUND.splitlines(keepends=True)[-1],
        }
        approved(loop, "graph.legacy", gone)
        assert not loop.graph("legacy").exists()
        subprocess.run(
            ["git", "-C", str(loop.server), "bundle", "create", "-q", str(target / "ledger.bundle"), "--all"],
            check=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
