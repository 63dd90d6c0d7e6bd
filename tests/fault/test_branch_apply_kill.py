"""Kill applies on a branch ledger at any moment: the next one converges, and neither an entry nor an approval is lost."""

from __future__ import annotations

import io
import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops.cluster.model.ledger import EntryKind
from gitops.database.graph import read
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.audited import FILES, GRAPHS, START, WIDER, Life, declared
from tests.support.clock import FixedClock
from tests.support.git_fixture import environment, run
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.prefork import PYTHON

DEADLINE = 60
DEAD = 137
ROW = {"title": "keep me"}
NEW = ("one", "two", "three")
APPLY_TO_THE_POINT = """
import os, sys
from gitops.repository.wiring.local import LocalRepository
from gitops.cluster.apply.apply import apply

class DieAt:
    def reach(self, point):
        if point == sys.argv[2]:
            os._exit(137)

local = LocalRepository(sys.argv[1], faults=DieAt())
apply(local.workspace(local.rule("brain"), "bot"))
"""
POINTS = [
    "cluster_apply.before_graph_create",
    "engine.create.staged",
    "engine.create.before_publish",
    "engine.create.after_publish",
    "cluster_apply.after_graph_create",
    "cluster_apply.before_schema_apply",
    "engine.migrate.staged",
    "engine.migrate.before_publish",
    "engine.migrate.after_publish",
    "cluster_apply.after_schema_apply",
    "cluster_apply.before_graph_delete",
    "cluster_apply.after_graph_delete",
    "cluster_apply.after_payload_phase",
    "cluster_apply.before_state_write",
]


@dataclass(frozen=True)
class Scene:
    """A copy of the cluster that is about to be applied, and the command line on it."""

    home: Path

    @property
    def repository(self) -> Path:
        return self.home / "life.git"

    @property
    def life(self) -> Life:
        return Life(self.home, clock=SystemClock(), ids=RandomIds())

    def graph(self, name: str) -> Path:
        return self.home / "data" / "brain" / "graphs" / f"{name}.omni"

    @property
    def environment(self) -> Mapping[str, str]:
        return environment(self.home, PYTHONPATH=str(ROOT))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [*PYTHON, "-m", "gitops", *arguments, "--repo", str(self.repository), "--cluster", "brain"]
        return subprocess.Popen(command, env=self.environment, cwd=self.home, stdout=subprocess.PIPE)

    def gitops(self, *arguments: str) -> dict[str, object]:
        """Run a command and return the document that it prints."""
        output, _ = self.start(*arguments, "--json").communicate(timeout=DEADLINE)
        document: dict[str, object] = json.loads(output)
        return document

    def die_at(self, point: str) -> int:
        done = subprocess.run(
            [*PYTHON, "-c", APPLY_TO_THE_POINT, str(self.repository), point],
            env=self.environment,
            cwd=self.home,
            check=False,
            timeout=DEADLINE,
        )
        return done.returncode


def configure(scene: Scene, who: str = "bot") -> None:
    """What the operator of the server sets."""
    settings = {
        "user.name": who,
        "user.email": f"{who}@example.org",
        "user.signingKey": str(scene.home / who),
        "gitops.root": str(scene.home / "data"),
    }
    for key, value in settings.items():
        run("git", f"--git-dir={scene.repository}", "config", key, value, home=scene.home)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Two graphs are applied, one has a row; main creates three more, migrates one and deletes one, which ada approved."""
    scene = Scene(tmp_path_factory.mktemp("prepared"))
    life = scene.life
    configure(scene)
    files = {**FILES, "cluster/cluster.yaml": declared("notes", "legacy"), "gitops.yaml": life.config.encode()}
    life.change("dora", {**files, ".gitops/allowed_signers": life.signers("bot", "ada", "ben", "dora")})
    assert scene.gitops("import")["ok"]
    assert scene.gitops("apply")["converged"]
    record = io.BytesIO(json.dumps({"type": "Note", "data": ROW}).encode())
    load_records(LoadRequest(str(scene.graph("notes")), record), WriteContext(FixedClock(START), SequentialIds(900)))
    graphs = GRAPHS["notes"] + "".join(f"  {name}: {{schema: legacy.pg}}\n" for name in NEW)
    life.change("dora", {"cluster/cluster.yaml": f"version: 1\ngraphs:\n{graphs}".encode(), "cluster/notes.pg": WIDER})
    configure(scene, "ada")
    shown = scene.gitops("approve", "graph.legacy")
    assert scene.gitops("approve", "graph.legacy", "--plan", str(shown["plan_digest"]))["ok"]
    configure(scene)
    return scene


@pytest.fixture
def base(prepared: Scene, tmp_path: Path) -> Scene:
    return copied(prepared, tmp_path / "copy")


def copied(scene: Scene, to: Path) -> Scene:
    shutil.copytree(scene.home, to)
    copy = Scene(to)
    configure(copy)
    return copy


def recover(scene: Scene, before: tuple[str, ...]) -> None:
    """What an operator does: take the lock away from the dead process, and apply again. Then look at everything."""
    left = scene.life.chain()
    assert left[: len(before)] == before
    lock = scene.gitops("status")["state_observations"]
    assert isinstance(lock, dict)
    if lock["locked"]:
        refused = scene.gitops("apply")
        assert [d["code"] for d in refused["diagnostics"]] == ["state_lock_held"]  # type: ignore[attr-defined]
        assert lock["lock_id"] in str(refused["diagnostics"])
        assert scene.gitops("force-unlock", lock["lock_id"])["lock_removed"]
    outcome = scene.gitops("apply")
    assert outcome["ok"], outcome["diagnostics"]
    assert outcome["converged"]

    life = scene.life
    chain = life.chain()
    assert chain[: len(left)] == left
    entries = [life.entry(number) for number in range(1, len(chain) + 1)]
    assert [entry.number for entry in entries] == list(range(1, len(chain) + 1))
    assert life.audit(chain[-1]).finding is None
    state = life.state(len(chain))
    graphs = {text.removeprefix("graph.") for text in state.resources if text.startswith("graph.")}
    assert graphs == {"notes", *NEW}
    assert len(state.approval_records) == 1
    assert sum(bool(e.approvals) for e in entries if e.kind is EntryKind.APPLY) <= 1
    rows = read.read_rows(str(scene.graph("notes")), "Note", 10)
    assert [row["title"] for row in rows] == [ROW["title"]]
    assert "text" in rows[0]
    assert {path.stem for path in scene.graph("notes").parent.iterdir() if path.suffix == ".omni"} == graphs
    assert life.git.subtree(life.git.commit(chain[-1]).tree, "__cluster/recoveries") is None
    again = scene.gitops("apply")
    assert (again["converged"], again["state_written"], scene.life.chain()) == (True, False, chain)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_death_at_a_point_is_settled_by_the_next_apply(base: Scene, point: str) -> None:
    before = base.life.chain()
    assert base.die_at(point) == DEAD
    recover(base, before)


@pytest.mark.slow
def test_ten_applies_killed_at_random_moments(prepared: Scene, tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311 - when to kill, not a secret
    before = prepared.life.chain()
    whole = copied(prepared, tmp_path / "whole")
    begin = time.perf_counter()
    assert whole.gitops("apply")["converged"]
    length = time.perf_counter() - begin
    recover(whole, before)
    killed = turn = 0
    while killed < 10:
        turn += 1
        scene = copied(prepared, tmp_path / str(turn))
        process = scene.start("apply")
        try:
            # Starting takes the first part of a run and touches nothing.
            process.wait(timeout=length * chance.uniform(0.25, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        output, _ = process.communicate(timeout=DEADLINE)
        killed += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), output
        recover(scene, before)
        shutil.rmtree(scene.home)
