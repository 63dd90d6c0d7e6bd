"""Ticks of a cluster whose ledger is a branch, by the program: on the server, and as a person looks from a clone."""

from __future__ import annotations

import pytest

from tests.support.loop import CLUSTER_YAML, MAIN, Loop
from tests.support.materialize.server_world import ServerWorld

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SECTION = """\
compute:
  targets: {prod: {kind: materialize, url: {env: MZ_URL}}}
  strategies: {serving: {target: prod, target_size: {target_size: 50cc}}}
"""
CREATE = """CREATE CLUSTER REPLICA "serving"."r_50cc" (SIZE '50cc');"""


def test_a_merged_strategy_is_carried_out_and_audited(loop: Loop, stand_in: ServerWorld) -> None:
    stand_in.add_cluster("serving")
    stand_in.add_replica("serving", "old", "25cc", hydrated=True)
    files = {"cluster/cluster.yaml": (CLUSTER_YAML + SECTION).encode()}
    loop.move(MAIN, loop.commit("alice", files, message="Declare a strategy\n"))
    url, server = stand_in.url(), ("--repo", str(loop.server))
    clone = loop.clone("carol")
    (clone / "cluster/.env").write_text(f"MZ_URL='{url}'\n")
    assert CREATE in loop.gitops("carol", "strategies", "dry-run").text
    (clone / "cluster/cluster.yaml").write_text("not what was merged")
    assert CREATE in loop.gitops("carol", "strategies", "dry-run").text
    refused = loop.gitops("carol", "strategies", "apply", check=False)
    assert (refused.code, stand_in.replicas("serving")) == (1, {"old": "25cc"})
    assert "ledger_not_writable" in refused.text
    done = loop.gitops("bot", "strategies", "apply", *server, "--of", "brain", "--postgres-url", url)
    assert CREATE in done.text
    assert stand_in.replicas("serving") == {"old": "25cc", "r_50cc": "50cc"}
    assert [row.executed for row in stand_in.audit_rows] == [True]
    loop.program("carol", "git", "fetch", "-q")
    loop.gitops("carol", "audit")
    assert "target_size: no replica has size 50cc" in loop.gitops("carol", "changeset", "show", "--latest").text
