"""What the pusher reads while hooks apply a merge, and that the work goes on if the pusher hangs up."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.support.loop import CLUSTER_YAML, LEDGER, MAIN, Loop
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e

MORE = CLUSTER_YAML + "".join(f"  g{n}:\n    schema: notes.pg\n" for n in range(3))
ENDED = re.compile(r"remote: gitops: apply \d+:\d\d +(\d+)/6 create ((?:graph|schema)\.g\d), \d+\.\d s")


def pushed(loop: Loop, setting: str | None) -> str:
    """What a push to main prints that adds three graphs."""
    if setting is not None:
        loop.program("bot", "git", "config", "gitops.progress", setting, at=loop.server)
    new = loop.commit("alice", {"cluster/cluster.yaml": MORE.encode()}, away=True)
    return loop.push("alice", f"{new}:{MAIN}").text


def test_a_push_shows_each_change_before_what_came_of_it(loop: Loop) -> None:
    text = pushed(loop, "true")
    assert [number for number, _ in ENDED.findall(text)] == [str(n) for n in range(1, 7)]
    assert {name for _, name in ENDED.findall(text)} == {
        f"{kind}.g{n}" for kind in ("graph", "schema") for n in range(3)
    }
    assert text.index(" 6/6 ") < text.index("apply of brain")


def test_a_server_may_leave_them_out(loop: Loop) -> None:
    text = pushed(loop, "false")
    assert ENDED.search(text) is None
    assert "remote: gitops: apply of brain" in text


def test_an_apply_goes_on_after_the_pusher_has_hung_up(loop: Loop) -> None:
    """The hook runs as git starts it, with nobody at the other end of its output."""
    loop.program("bot", "git", "config", "gitops.progress", "true", at=loop.server)
    before, ledger = loop.tip(), loop.tip(LEDGER)
    new = loop.commit("alice", {"cluster/cluster.yaml": MORE.encode()})
    loop.program("bot", "git", "update-ref", MAIN, new, before, at=loop.server)
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [*PROGRAM, "hook", "run", "post-receive"],
        cwd=loop.server,
        env={**loop.environment("bot"), "GIT_DIR": "."},
        input=f"{before} {new} {MAIN}\n".encode(),
        stdout=writer,
        stderr=writer,
        check=False,
    )
    os.close(writer)
    assert run.returncode == 0
    assert loop.tip(LEDGER) != ledger
    assert all(loop.graph(f"g{n}").exists() for n in range(3))
    assert loop.status(new, "apply").startswith("success")
