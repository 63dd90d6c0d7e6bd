"""Commands on a cluster whose folder declares hosts, on a machine that cannot change them."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.session.validate import validate
from tests.support.cluster import Cluster, codes, rulings
from tests.support.declared_hosts import KEY


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    (made.folder / "hosts").mkdir()
    web = {"transport": "ssh", "address": "10.0.0.1", "user": "deploy", "resources": ["hosts/base.yaml"]}
    made.options["hosts"] = {"web1": web}
    made.write("hosts/known_hosts", f"host.web1 {KEY}\n")
    made.write("hosts/base.yaml", "version: 1\nresources: [{package: curl}]\n")
    made.save()
    return made


def test_hosts_are_planned_and_blocked_while_everything_else_is_applied(cluster: Cluster) -> None:
    assert cluster.import_().ok
    planned = rulings(cluster.plan().plan.changes)
    assert planned[Address("host.web1")] == "create blocked:approval_required"
    assert planned[Address("host.web1.package.curl")] == "create blocked:host_provider_missing"
    outcome = cluster.apply()
    assert not outcome.ok
    assert "host_provider_missing" in codes(outcome)
    assert "graph.knowledge" in cluster.state.resources
    assert [address for address in cluster.state.resources if address.startswith("host.")] == []


def test_a_plan_reports_what_the_rules_do_not_permit(cluster: Cluster) -> None:
    """A folder without a repository has no rules, so nothing is permitted. Validating needs no rules."""
    assert cluster.import_().ok
    cluster.options["hosts"]["here"] = {"transport": "local"}
    cluster.write("hosts/base.yaml", "version: 1\nresources: [{file: /etc/token, secret: token}]\n")
    cluster.save()
    assert validate(cluster.workspace()).ok
    assert codes(cluster.plan()) == ["host_local_refused", "host_secret_not_allowed"]
    assert not cluster.apply().ok
    assert "graph.knowledge" not in cluster.state.resources


def test_no_command_opens_a_connection(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a change request declares reaches no machine and starts no program."""

    def refuse(*given: object, **more: object) -> None:
        raise AssertionError(f"a connection or a program: {given}")

    assert cluster.import_().ok
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert validate(cluster.workspace()).ok
    assert cluster.plan().plan is not None
    assert "host_provider_missing" in codes(cluster.apply())
