"""Commands on a cluster whose folder declares hosts, on a machine that cannot change them."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.drift import drift
from gitops.cluster.apply.dry_run import dry_run
from gitops.cluster.hosts.compare import ObservedItem, Sight
from gitops.cluster.model.address import Address
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.validate import validate
from tests.support.cluster import Cluster, codes, rulings
from tests.support.declared_hosts import KEY
from tests.support.host_memory import Crash, MemoryHosts


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
    assert planned[Address("host.web1.package.curl")] == "create blocked:dependency_not_applied"
    cluster.approve("host.web1")
    planned = rulings(cluster.plan().plan.changes)
    assert planned[Address("host.web1.package.curl")] == "create applied", (
        "what a plan says does not depend on this machine"
    )
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
    assert not cluster.apply().converged


# An apply, with machines in memory


MOTD = "host.web1.file./etc/motd"


class Machines:
    """A cluster with two machines in memory. The way to them is approved."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.hosts = cluster, MemoryHosts()
        web = cluster.options["hosts"]["web1"]
        cluster.options["hosts"]["web2"] = {**web, "address": "10.0.0.2"}
        cluster.write("hosts/known_hosts", f"host.web1 {KEY}\nhost.web2 {KEY}\n")
        self.declare("  - file: /etc/motd\n    content: hello\n  - file: /etc/other\n    content: x\n")
        assert cluster.import_().ok
        self.approve()

    def approve(self) -> None:
        for host in ("host.web1", "host.web2"):
            assert self.cluster.approve(host).ok

    def declare(self, items: str) -> None:
        self.cluster.write("hosts/base.yaml", f"version: 1\nresources:\n{items}")
        self.cluster.save()

    def apply(self, **how: Any) -> ApplyOutcome:
        self.hosts.done.clear()
        return apply(replace(self.cluster.workspace(), open_hosts=self.hosts.open, **how))

    def dry_run(self) -> ApplyOutcome:
        return dry_run(replace(self.cluster.workspace(), open_hosts=self.hosts.open))


@pytest.fixture
def machines(cluster: Cluster) -> Machines:
    return Machines(cluster)


def test_a_host_is_not_read_before_its_connection_is_approved(cluster: Cluster) -> None:
    hosts = MemoryHosts()
    assert cluster.import_().ok
    assert not apply(replace(cluster.workspace(), open_hosts=hosts.open)).converged
    assert hosts.probed == []
    assert cluster.approve("host.web1").ok
    assert apply(replace(cluster.workspace(), open_hosts=hosts.open)).converged
    assert set(hosts.probed) == {"web1"}


def test_a_host_that_is_no_longer_declared_is_forgotten_without_contact(machines: Machines) -> None:
    """Scenario 55."""
    assert machines.apply().converged
    seen = dict(machines.hosts.has)
    del machines.cluster.options["hosts"]["web2"]
    machines.cluster.write("hosts/known_hosts", f"host.web1 {KEY}\n")
    machines.cluster.save()
    machines.hosts.probed.clear()
    assert machines.apply().converged
    assert (machines.hosts.has, machines.hosts.done, set(machines.hosts.probed)) == (seen, [], {"web1"})
    assert not any(address.host == "web2" for address in machines.cluster.state.resources)


def test_what_is_kept_on_removal_is_only_forgotten(machines: Machines) -> None:
    items = "  - file: /etc/motd\n    content: hello\n    on_remove: keep\n"
    machines.declare(items + "  - file: /etc/other\n    content: x\n")
    machines.approve()
    assert machines.apply().converged
    machines.hosts.put(MOTD, mode="0600")
    machines.declare("  - file: /etc/other\n    content: x\n")
    assert machines.apply().converged
    assert machines.hosts.done == []
    assert machines.hosts.has[Address(MOTD)].attributes == {"mode": "0600"}


def test_a_second_apply_does_nothing(machines: Machines) -> None:
    """Scenario 11."""
    first = machines.apply()
    assert (first.ok, first.converged) == (True, True)
    written = machines.cluster.state_bytes
    assert machines.cluster.state.observations[Address("host.web1")]["machine"] == "1"
    again = machines.apply()
    assert (again.changes, again.converged, machines.hosts.done) == ((), True, [])
    assert machines.cluster.state_bytes == written
    assert machines.cluster.plan().plan.changes == ()


def test_drift_is_restored_and_recorded(machines: Machines) -> None:
    """Scenario 14."""
    machines.apply()
    before = machines.cluster.state.revision
    machines.cluster.clock.advance(timedelta(hours=1))
    machines.hosts.put(MOTD, mode="0777", owner="root", group="root", content="other")
    machines.hosts.put("host.web2.file./etc/other")
    assert machines.cluster.plan().plan.changes == (), "a plan only reads records"
    found = drift(replace(machines.cluster.workspace(), open_hosts=machines.hosts.open)).items
    assert [(each.address, each.kind, each.detail) for each in found] == [
        (MOTD, "host", "drift: content, mode"),
        ("host.web2.file./etc/other", "host", "drift: it is gone"),
    ]
    (one, other) = machines.dry_run().changes
    assert (one.address, one.details) == (MOTD, ("drift: content, mode",))
    assert (other.address, other.details) == ("host.web2.file./etc/other", ("drift: it is gone",))
    assert machines.hosts.has[Address(MOTD)].attributes["mode"] == "0777"
    outcome = machines.apply()
    assert (outcome.ok, outcome.converged) == (True, True)
    assert machines.hosts.done == ["fence.web1", "fence.web2", MOTD, "host.web2.file./etc/other"]
    assert machines.cluster.state.revision == before + 1
    assert machines.apply().changes == ()


def test_what_the_host_already_has_is_only_recorded(machines: Machines) -> None:
    """Scenario 12, and a run that was killed before it wrote the ledger."""
    machines.apply()
    seen = dict(machines.hosts.has)
    cluster = machines.cluster
    kept = {address: found for address, found in cluster.state.resources.items() if address.host is None}
    cluster.put_state(replace(cluster.state, resources=kept, config_digest=None))
    machines.approve()
    outcome = machines.apply()
    assert (outcome.converged, machines.hosts.done, machines.hosts.has) == (True, [], seen)
    (change,) = (each for each in outcome.changes if each.address == MOTD)
    assert change.details == ("the host already has it, so only the record changes",)


BLOCKED = {
    "host_unmanaged": ("file", {"mode": "0600", "owner": "root", "group": "root", "content": "ours"}),
    "host_wrong_type": ("other", {}),
    "host_unreadable": ("unreadable", {}),
}


@pytest.mark.parametrize("code", BLOCKED)
def test_what_would_be_lost_is_left_alone(machines: Machines, code: str) -> None:
    """Scenarios 13 and 40. Everything else is applied."""
    kind, attributes = BLOCKED[code]
    sights = {"file": Sight.PRESENT, "other": Sight.OTHER_TYPE, "unreadable": Sight.UNREADABLE}
    seen = ObservedItem(sights[kind], attributes, "why")
    machines.hosts.has[Address(MOTD)] = seen
    outcome = machines.apply()
    assert (outcome.ok, outcome.converged) == (False, False)
    assert [each.code for each in outcome.diagnostics if each.path == MOTD] == [code]
    assert machines.hosts.has[Address(MOTD)] == seen
    assert "host.web2.file./etc/motd" in machines.hosts.done
    assert Address(MOTD) not in machines.cluster.state.resources
    assert machines.cluster.state.statuses[Address(MOTD)].conditions == (code,)


def test_overwriting_has_to_be_declared(machines: Machines) -> None:
    machines.hosts.put(MOTD, mode="0600")
    machines.declare("  - file: /etc/motd\n    content: hello\n    adopt: overwrite\n")
    machines.approve()
    assert machines.apply().converged
    assert machines.hosts.has[Address(MOTD)].attributes["mode"] == "0644"


def test_a_modified_item_is_not_deleted(machines: Machines) -> None:
    """Scenario 15. Once it is gone, its record is forgotten."""
    machines.apply()
    machines.hosts.put(MOTD, mode="0600")
    machines.declare("  - file: /etc/other\n    content: x\n")
    outcome = machines.apply()
    assert [each.code for each in outcome.diagnostics if each.path == MOTD] == ["host_modified"]
    assert machines.hosts.has[Address(MOTD)].attributes == {"mode": "0600"}
    assert Address("host.web2.file./etc/motd") not in machines.hosts.has
    machines.hosts.put(MOTD)
    assert machines.apply().converged
    assert machines.hosts.done == []


def test_one_host_that_is_offline_leaves_the_others_alone(machines: Machines) -> None:
    """Scenario 50. Without changes, it is only a warning."""
    machines.hosts.offline = {"web1"}
    outcome = machines.apply()
    assert not outcome.ok
    errors = [each for each in outcome.diagnostics if each.severity == "error"]
    assert [(each.code, each.path) for each in errors] == [("host_unreachable", "host.web1")]
    assert "host.web2.file./etc/motd" in machines.hosts.done
    assert "graph.knowledge" in machines.cluster.state.resources
    again = machines.apply()
    assert (again.ok, machines.hosts.done) == (False, [])
    machines.hosts.offline = set()
    assert machines.apply().converged
    machines.hosts.offline = {"web1"}
    quiet = machines.apply()
    assert (quiet.ok, codes(quiet)) == (True, ["host_unreachable"])


def test_another_machine_is_not_changed(machines: Machines) -> None:
    """Scenario 49. Declaring its new keys, which needs an approval, accepts it."""
    machines.apply()
    machines.hosts.machine["web1"] = "2"
    machines.hosts.put(MOTD)
    outcome = machines.apply()
    assert [each.code for each in outcome.diagnostics if each.severity == "error"] == ["host_identity_changed"]
    assert machines.hosts.done == []
    machines.cluster.options["hosts"]["web1"]["sessions"] = 4
    machines.cluster.save()
    assert not machines.apply().converged, "this change of the host needs no approval, so it accepts nothing"
    other = KEY[:-1] + "K"
    machines.cluster.write("hosts/known_hosts", f"host.web1 {other}\nhost.web2 {KEY}\n")
    machines.cluster.save()
    assert machines.cluster.approve("host.web1").ok
    machines.hosts.offline = {"web1"}
    machines.apply()
    assert Address("host.web1") in machines.cluster.state.resources
    machines.hosts.offline = set()
    assert machines.apply().converged, "the approval counts, although the machine was off when it was used"
    assert machines.cluster.state.observations[Address("host.web1")]["machine"] == "2"


def test_a_failure_stops_its_host_and_nothing_else(machines: Machines) -> None:
    """Scenario 51. Atomic or not: graphs and other hosts are applied, and nothing is rolled back."""
    machines.hosts.fails = {MOTD}
    for atomic in (True, False):
        outcome = machines.apply(atomic=atomic)
        assert not outcome.ok
        assert [each.path for each in outcome.diagnostics if each.code == "host_action_failed"] == [MOTD]
        state = machines.cluster.state
        assert {"graph.knowledge", "host.web1", "host.web2.file./etc/motd"} <= state.resources.keys()
        assert Address(MOTD) not in state.resources
        assert state.statuses[Address(MOTD)].conditions == ("host_change_failed",)
    machines.hosts.fails = set()
    assert machines.apply(atomic=True).converged
    assert machines.cluster.state.statuses[Address(MOTD)].status == "applied"


@pytest.mark.parametrize("first", [False, True])
def test_hosts_are_a_part_of_an_atomic_apply(machines: Machines, *, first: bool) -> None:
    outcome = machines.apply(atomic=True, hosts_first=first)
    assert (outcome.ok, outcome.converged) == (True, True)
    graphs, hosts = sorted(outcome.changesets, key=lambda each: not each.atomic)
    assert (graphs.part, hosts.part) == (("2/2", "1/2") if first else ("1/2", "2/2"))
    assert all(each.address.host for each in hosts.members)
    assert not any(each.address.host for each in graphs.members)
    assert machines.apply(atomic=True).changes == ()


def test_a_check_that_did_not_succeed_runs_again(machines: Machines) -> None:
    """Its record is that of its declaration, so only its status says that it failed."""
    items = (
        "  - file: /etc/motd\n    content: hello\n  - service: a.service\n    triggers: [host.web1.file./etc/motd]\n"
    )
    ready = "  - ready: up\n    checks: [{service: a.service}]\n    on: [web1]\n"
    machines.declare(items + ready)
    machines.approve()
    assert machines.apply().converged
    machines.hosts.fails = {"host.web1.ready.up"}
    machines.declare(items.replace("hello", "again") + ready)
    assert not machines.apply().ok
    assert not machines.apply().converged
    machines.hosts.fails = set()
    outcome = machines.apply()
    assert ([each.address for each in outcome.changes], outcome.converged) == (["host.web1.ready.up"], True)
    assert machines.apply().changes == ()


def test_law_a_run_that_crashes_after_any_node_is_continued(machines: Machines) -> None:
    """Law L3: the next apply leaves what an undisturbed one would, on the machines and in the ledger."""
    items = "  - directory: /a\n  - file: /a/b\n    content: {0}\n  - service: x.service\n    triggers: [host.web1.file./a/b]\n"
    ready = "  - ready: up\n    checks: [{{service: x.service}}]\n"
    both = (items + ready).replace("    triggers: [host.web1.file./a/b]\n", "")
    texts = [both.format("one"), both.format("two") + "  - symlink: /c\n    to: /a\n"]
    machines.declare(texts[0])
    machines.approve()
    assert machines.apply().converged
    left: dict[int, Any] = {}
    for turn in range(40):
        machines.declare(texts[(turn + 1) % 2])
        machines.hosts.crashes = turn // 2
        crashed = True
        try:
            assert machines.apply(atomic=turn % 4 < 2).converged
            crashed = False
        except Crash:
            machines.hosts.crashes = None
            assert machines.apply(atomic=turn % 4 < 2).converged
        now = (dict(machines.hosts.has), {a: r.digest for a, r in machines.cluster.state.resources.items()})
        assert left.setdefault(turn % 2, now) == now
        assert machines.apply().changes == ()
        if not crashed and turn % 2:
            return
    raise AssertionError("an apply has more nodes than expected")
