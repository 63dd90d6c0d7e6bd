"""Hosts in a plan: gates, what waits, the order of items with its reasons, and their locks. Nothing here asks a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Disposition, GateName, Reason
from gitops.cluster.model.host import Connection, Item, ItemType
from gitops.cluster.model.host_graph import confirms, host_locks
from gitops.cluster.model.host_rules import HostInputs, compare_versions
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.plan import ExecutionGraph, LockMode, Plan, PlanInputs
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.trust import Quorum
from gitops.cluster.plan.hosts import declared_forms, triggered
from gitops.cluster.plan.layers import layers
from gitops.cluster.plan.planner import diff, make_plan
from gitops.core.canonical import digest
from tests.support.declared_hosts import HOSTS, host_files

LIMITS = {"hosts.max_deletes": 20}
SERVER = """\
  - package: curl
  - group: gitops
  - user: gitops
    group: gitops
    home: /srv/gitops
  - directory: /srv/gitops
    owner: gitops
    group: gitops
  - env: /srv/gitops/serve.env
    owner: gitops
    group: gitops
    set: {A: x}
  - unit: gitops.service
    sections:
      Service: {User: gitops, EnvironmentFile: /srv/gitops/serve.env, ExecStart: /srv/gitops/bin/gitops serve}
  - service: gitops.service
  - ready: gitops
    checks: [{service: gitops.service}]
"""


def desired(files: Mapping[str, bytes]) -> DesiredState:
    loaded = load_desired(MemoryTree(dict(files)))
    assert loaded.diagnostics.codes() == ()
    assert loaded.desired is not None
    return loaded.desired


NOTHING = desired({"cluster.yaml": b"version: 1\n"})


def planned(
    before: DesiredState, after: DesiredState, *, reached: bool = True, approved: bool = True, **options: Any
) -> Plan:
    """The plan from one folder, as it was applied, to another one, with all approvals or none."""
    state = LedgerState(resources={a: AppliedResource(d) for a, d in before.digests().items()})
    hosts = HostInputs(before=declared_forms(before), after=declared_forms(after), reached=reached, **options)
    changes = diff(after, state)
    changes = tuple(sorted((*changes, *triggered(changes, hosts)), key=lambda each: each.address))
    numbers = dict.fromkeys(GateName, 1)
    inputs = PlanInputs(
        desired=after, state=state, differences=changes, hosts=hosts, quorum=Quorum(numbers, "production", LIMITS)
    )
    plan = make_plan(inputs)
    if not approved:
        return plan
    given = tuple(
        Approval(
            f"AP{number}",
            c.address,
            c.action,
            "why",
            after.config_digest,
            c.before,
            c.after,
            "sam",
            "2026-06-11T07:00:00Z",
        )
        for number, c in enumerate(plan.changes)
        if c.tier is not None
    )
    return make_plan(replace(inputs, approvals=given))


def edges(graph: ExecutionGraph, after: str) -> dict[str, str]:
    """What a node waits for, with the reasons."""
    return {edge.before: edge.reason for edge in graph.edges if edge.after == after}


def ruling(plan: Plan, address: str) -> tuple[Action, Disposition, Reason | None]:
    change = plan.change(Address(address))
    assert change is not None
    return change.action, change.disposition, change.reason


# Scenario 10: the order


def test_a_new_server_is_made_in_order() -> None:
    plan = planned(NOTHING, desired(host_files(SERVER)))
    assert plan.diagnostics == ()
    found = [[name for name in layer if "web2" not in name] for layer in layers(plan.graph)]
    assert [layer for layer in found if layer] == [
        ["fence.web1", "host.web1"],
        ["host.web1.group.gitops", "packages.web1.1"],
        ["host.web1.package.curl", "host.web1.user.gitops"],
        ["host.web1.directory./srv/gitops"],
        ["host.web1.env./srv/gitops/serve.env"],
        ["host.web1.unit.gitops.service"],
        ["reload.web1"],
        ["host.web1.service.gitops.service"],
        ["host.web1.ready.gitops"],
    ]
    order = sorted(plan.graph.nodes, key=lambda node: node.position)
    place = {node.id: node.position for node in order}
    assert all(place[edge.before] < place[edge.after] for edge in plan.graph.edges)


REASONS = {
    "parent_directory": ("  - directory: /a\n  - file: /a/b/c\n    content: x\n", "directory./a", "file./a/b/c"),
    "owner_account": ("  - user: ada\n  - directory: /a\n    owner: ada\n", "user.ada", "directory./a"),
    "group_account": ("  - group: ada\n  - directory: /a\n    group: ada\n", "group.ada", "directory./a"),
    "symlink_target_path": ("  - directory: /a\n  - symlink: /l\n    to: /a/b\n", "directory./a", "symlink./l"),
    "account_user": (
        "  - user: ada\n  - unit: x.service\n    sections: {Service: {User: ada}}\n",
        "user.ada",
        "unit.x.service",
    ),
    "account_group": (
        "  - group: ada\n  - unit: x.service\n    sections: {Service: {SupplementaryGroups: ada}}\n",
        "group.ada",
        "unit.x.service",
    ),
    "systemd_environment_file": (
        "  - env: /a\n  - unit: x.service\n    sections: {Service: {EnvironmentFile: -/a}}\n",
        "env./a",
        "unit.x.service",
    ),
    "systemd_environment_path": (
        "  - directory: /a\n  - unit: x.service\n    sections: {Service: {Environment: A=/a/b}}\n",
        "directory./a",
        "unit.x.service",
    ),
    "systemd_read_write_path": (
        "  - directory: /a\n  - unit: x.service\n    sections: {Service: {ReadWritePaths: /a/b}}\n",
        "directory./a",
        "unit.x.service",
    ),
    "systemd_exec_path": (
        '  - directory: /a\n  - unit: x.service\n    sections: {Service: {ExecStart: "-/a/b c"}}\n',
        "directory./a",
        "unit.x.service",
    ),
    "systemd_credential": (
        '  - file: /a\n    content: x\n  - unit: x.service\n    sections: {Service: {LoadCredential: "k:/a"}}\n',
        "file./a",
        "unit.x.service",
    ),
    "package_provides": (
        (
            "  - package: nginx\n    provides: [/usr/sbin/nginx]\n"
            "  - unit: x.service\n    sections: {Service: {ExecStart: /usr/sbin/nginx}}\n"
        ),
        "package.nginx",
        "unit.x.service",
    ),
    "systemd_timer_service": (
        (
            "  - unit: x.service\n    sections: {Service: {ExecStart: /bin/true}}\n"
            "  - unit: x.timer\n    sections: {Timer: {OnCalendar: daily}}\n  - service: x.timer\n"
        ),
        "unit.x.service",
        "service.x.timer",
    ),
    "package_source": (
        "  - package: nginx\n  - file: /etc/apt/sources.list.d/a.list\n    content: x\n",
        "file./etc/apt/sources.list.d/a.list",
        "package.nginx",
    ),
    "triggers": (
        "  - file: /a\n    content: x\n  - service: x.service\n    triggers: [host.web1.file./a]\n",
        "file./a",
        "service.x.service",
    ),
    "check_path": (
        '  - package: sudo1\n    provides: [visudo]\n  - file: /a\n    content: x\n    check: [visudo, "{}"]\n',
        "package.sudo1",
        "file./a",
    ),
    "readiness_http": (
        '  - service: x.service\n  - ready: up\n    checks: [{tcp: "127.0.0.1:80"}]\n',
        "service.x.service",
        "ready.up",
    ),
    "explicit_dependency": (
        "  - package: a1\n  - file: /a\n    content: x\n    depends_on: [host.web1.package.a1]\n",
        "package.a1",
        "file./a",
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_an_item_waits_for_another(reason: str) -> None:
    items, before, after = REASONS[reason]
    plan = planned(NOTHING, desired(host_files(items)))
    assert plan.diagnostics == ()
    # The call of the package manager is what waits for what a package needs, and what a package is waits for the call.
    at = "packages.web1.1" if reason == "package_source" else f"host.web1.{after}"
    assert edges(plan.graph, at)[f"host.web1.{before}"] == ("package_provides" if reason == "check_path" else reason)


def test_what_is_removed_goes_in_reverse_order() -> None:
    plan = planned(desired(host_files(SERVER)), desired(host_files("  - package: curl\n")))
    place = {node.id.removeprefix("host.web1."): node.position for node in plan.graph.nodes}
    down = ["ready.gitops", "service.gitops.service", "unit.gitops.service", "env./srv/gitops/serve.env"]
    down += ["directory./srv/gitops", "user.gitops", "group.gitops"]
    assert sorted(down, key=place.__getitem__) == down
    assert edges(plan.graph, "reload.web1")["host.web1.unit.gitops.service"] == "unit_reload"


def test_a_path_is_handed_over() -> None:
    before = desired(host_files("  - file: /a\n    content: x\n"))
    plan = planned(before, desired(host_files("  - symlink: /a\n    to: /b\n")))
    assert edges(plan.graph, "host.web1.symlink./a")["host.web1.file./a"] == "path_handover"


# Scenario 16


def test_two_units_and_an_environment_file_make_one_reload_and_one_restart() -> None:
    units = SERVER + '  - unit: gitops.service/more.conf\n    content: "[Service]\\nNice=1\\n"\n'
    changed = (
        units.replace("A: x", "A: y").replace("Nice=1", "Nice=2").replace("bin/gitops serve", "bin/gitops serve -v")
    )
    plan = planned(desired(host_files(units)), desired(host_files(changed)))
    assert sorted(node.id for node in plan.graph.nodes) == [
        "fence.web1",
        "host.web1.env./srv/gitops/serve.env",
        "host.web1.ready.gitops",
        "host.web1.service.gitops.service",
        "host.web1.unit.gitops.service",
        "host.web1.unit.gitops.service/more.conf",
        "reload.web1",
    ]
    restart = plan.change(Address("host.web1.service.gitops.service"))
    assert restart is not None
    assert restart.details == (
        (
            "triggered_by host.web1.env./srv/gitops/serve.env, host.web1.unit.gitops.service, "
            "host.web1.unit.gitops.service/more.conf"
        ),
    )
    kept = changed.replace("  - service: gitops.service\n", "  - service: gitops.service\n    on_change: none\n")
    before = units.replace("  - service: gitops.service\n", "  - service: gitops.service\n    on_change: none\n")
    assert planned(desired(host_files(before)), desired(host_files(kept))).change(restart.address) is None


# Scenarios 11, 26, 28, 55 and 60


def test_an_applied_folder_has_no_changes() -> None:
    declared = desired(host_files(SERVER))
    assert planned(declared, declared).changes == ()


def gated(before: str, after: str) -> dict[str, str]:
    plan = planned(desired(host_files(before)), desired(host_files(after)), approved=False)
    return {need.resource.removeprefix("host.web1."): need.reason for need in plan.approvals_required}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("  - package: curl\n", "", {"package.curl": "a package is removed"}),
        ("  - package: curl\n", "  - package: curl\n    state: absent\n", {"package.curl": "a package is removed"}),
        ("  - package: curl\n    purge: true\n", "", {"package.curl": "removing a package can remove its data"}),
        (
            '  - package: curl\n    version: "2.0-1"\n',
            '  - package: curl\n    version: "2.0~rc1-1"\n',
            {"package.curl": "it goes back from version 2.0-1 to 2.0~rc1-1"},
        ),
        ('  - package: curl\n    version: "1.9"\n', '  - package: curl\n    version: "1.10"\n', {}),
        (
            "  - user: ada\n    on_remove: delete\n",
            "",
            {"user.ada": "an account is deleted, and its files lose their owner"},
        ),
        ("  - user: ada\n", "", {}),
        (
            "  - user: ada\n    uid: 900\n",
            "  - user: ada\n    uid: 901\n",
            {"user.ada": "the uid changes from 900 to 901, and files keep the old one"},
        ),
        (
            "  - group: ada\n",
            "  - group: ada\n    gid: 901\n",
            {"group.ada": "the gid changes from another one to 901, and files keep the old one"},
        ),
        (
            "  - directory: /a/b\n    on_remove: tree\n",
            "",
            {"directory./a/b": "everything in the directory is deleted"},
        ),
        ("  - directory: /a/b\n", "", {}),
        ("", "  - directory: /a/b\n    on_remove: tree\n", {}),
        ("  - file: /a\n    content: x\n", "  - file: /a\n    content: y\n", {}),
    ],
)
def test_what_needs_an_approval(before: str, after: str, expected: dict[str, str]) -> None:
    assert gated(before, after) == expected


def test_an_unapproved_removal_is_blocked_and_the_others_are_applied() -> None:
    before = desired(host_files("  - package: curl\n  - file: /a\n    content: x\n"))
    after = desired(host_files("  - file: /a\n    content: y\n"))
    plan = planned(before, after, approved=False)
    assert ruling(plan, "host.web1.package.curl")[1:] == (Disposition.BLOCKED, Reason.APPROVAL_REQUIRED)
    assert ruling(plan, "host.web1.file./a")[1:] == (Disposition.APPLIED, None)
    assert ruling(planned(before, after), "host.web1.package.curl")[1:] == (Disposition.APPLIED, None)


def test_the_first_connection_and_another_way_to_a_machine_are_gated() -> None:
    plan = planned(NOTHING, desired(host_files("  - package: curl\n")), approved=False)
    assert [need.resource for need in plan.approvals_required] == ["host.web1", "host.web2"]
    assert ruling(plan, "host.web1.package.curl")[1:] == (Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED)
    assert plan.graph.nodes == ()
    for old, new, what in (
        ("10.0.0.1", "10.0.0.9", "address"),
        ("become: root, ", "", "become"),
        ("web1: {", "web1: {port: 2222, ", "port"),
    ):
        after = desired(host_files(hosts=HOSTS.replace(old, new)))
        (need,) = planned(desired(host_files()), after, approved=False).approvals_required
        assert (need.resource, need.reason) == ("host.web1", f"it changes how the machine is reached: {what}")
    calm = desired(host_files(hosts=HOSTS.replace("web1: {", "web1: {sessions: 4, ")))
    plan = planned(desired(host_files()), calm, approved=False)
    assert (plan.approvals_required, [change.address for change in plan.changes]) == ((), ["host.web1"])


def test_a_host_that_is_no_longer_declared_is_forgotten_without_contact() -> None:
    before = desired(host_files(SERVER))
    after = desired(
        host_files(hosts="  web2: {transport: ssh, address: 10.0.0.2, user: deploy}\n", known="host.web2 KEY\n")
    )
    plan = planned(before, after, reached=False, approved=False)
    assert {change.disposition for change in plan.changes} == {Disposition.APPLIED}
    assert {change.address.host for change in plan.changes} == {"web1"}
    assert plan.approvals_required == ()
    assert [node.id for node in plan.graph.nodes if node.id.startswith(("fence", "reload"))] == []


def test_many_removals_are_gated_together() -> None:
    many = "".join(f"  - file: /a/{n}\n    content: x\n" for n in range(21))
    plan = planned(desired(host_files(many)), desired(host_files()), approved=False)
    assert len(plan.approvals_required) == 21
    assert {need.reason for need in plan.approvals_required} == {
        "the plan removes 21 items from hosts, and hosts.max_deletes is 20"
    }
    fewer = planned(desired(host_files(many)), desired(host_files("  - file: /a/0\n    content: x\n")), approved=False)
    assert fewer.approvals_required == ()


def test_units_are_gated_if_the_rules_say_so() -> None:
    before, after = desired(host_files()), desired(host_files(SERVER))
    (need,) = planned(before, after, approved=False, gates_units=True).approvals_required
    assert (need.resource, need.reason) == ("host.web1.unit.gitops.service", "a unit runs programs on the machine")
    plan = planned(before, after, approved=False, gates_units=True)
    assert ruling(plan, "host.web1.service.gitops.service")[1:] == (Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED)
    assert ruling(plan, "host.web1.env./srv/gitops/serve.env")[1:] == (Disposition.APPLIED, None)


def test_a_record_that_cannot_be_read_is_gated() -> None:
    before, after = (
        desired(host_files("  - file: /a\n    content: x\n")),
        desired(host_files("  - file: /a\n    content: y\n")),
    )
    plan = planned(before, after, approved=False, unread=frozenset({Address("host.web1.file./a")}))
    (need,) = plan.approvals_required
    assert need.reason.startswith("what the ledger records about it cannot be read")


def test_without_a_provider_nothing_is_applied() -> None:
    plan = planned(desired(host_files()), desired(host_files(SERVER)), reached=False)
    assert {change.reason for change in plan.changes} == {Reason.NO_HOST_PROVIDER}
    assert plan.graph.nodes == ()


def test_the_next_host_waits_until_the_one_before_is_ready() -> None:
    two = HOSTS.replace("user: deploy}", "user: deploy, resources: [hosts/base.yaml]}")
    after = desired(host_files(SERVER, hosts=two))
    plan = planned(NOTHING, after)
    assert edges(plan.graph, "fence.web2")["host.web1.ready.gitops"] == "rollout"
    together = planned(NOTHING, after, rollout=2)
    assert [edge for edge in together.graph.edges if edge.reason == "rollout"] == []


def test_a_check_that_asks_the_next_host_is_not_waited_for() -> None:
    two = HOSTS.replace("user: deploy}", "user: deploy, resources: [hosts/base.yaml]}")
    items = SERVER + '  - ready: other\n    checks: [{tcp: "10.0.0.2:80"}]\n    on: [web1]\n'
    plan = planned(NOTHING, desired(host_files(items, hosts=two)))
    assert plan.diagnostics == ()
    found = edges(plan.graph, "fence.web2")
    assert (found["host.web1.ready.gitops"], "host.web1.ready.other" in found) == ("rollout", False)


def test_layers_of_packages_are_calls_of_the_package_manager() -> None:
    items = "  - package: a1\n  - package: b1\n  - package: c1\n    depends_on: [host.web1.package.a1]\n"
    plan = planned(NOTHING, desired(host_files(items)))
    calls = {node.id: edges(plan.graph, node.id) for node in plan.graph.nodes if node.kind == "packages"}
    assert calls["packages.web1.2"] == {
        "fence.web1": "fence",
        "host.web1": "host_first",
        "host.web1.package.a1": "explicit_dependency",
    }
    assert edges(plan.graph, "host.web1.package.b1")["packages.web1.1"] == "package_batch"


# Locks


def locks_of(item: Item) -> dict[str, str]:
    return {claim.key: claim.mode.value for claim in host_locks(item)}


paths = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
hosts = st.sampled_from(["web1", "web2"])


def directory(host: str, path: str) -> Item:
    return Item(host=host, type=ItemType.DIRECTORY, id=path, attributes={"owner": "root", "group": "root"})


@given(hosts, paths, hosts, paths)
def test_law_two_paths_exclude_each_other_if_one_is_above_the_other_on_one_host(
    host: str, path: str, other: str, below: str
) -> None:
    one, two = locks_of(directory(host, path)), locks_of(directory(other, below))
    shared = {key for key in one.keys() & two.keys() if LockMode.EXCLUSIVE.value in (one[key], two[key])}
    related = path == below or below.startswith(f"{path}/") or path.startswith(f"{below}/")
    assert bool(shared) is (host == other and related)
    if host != other:
        assert one.keys().isdisjoint(two)


def test_a_host_has_as_many_nodes_at_once_as_sessions() -> None:
    items = "".join(f"  - file: /a{n}\n    content: x\n" for n in range(12))
    after = desired(host_files(items, hosts=HOSTS.replace("web1: {", "web1: {sessions: 3, ")))
    plan = planned(desired(host_files()), after)
    keys = {claim.key for node in plan.graph.nodes for claim in node.locks if claim.key.startswith("session:web1/")}
    assert keys == {f"session:web1/{n}" for n in range(3)}


# Rules of Debian's versions, and what a change could break


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.9", "1.10"),
        ("2.0~rc1", "2.0"),
        ("1.0-1", "1.0-2"),
        ("9.9", "1:0.1"),
        ("1.0", "1.0a"),
        ("1.0a", "1.0+b"),
        ("1", "1.0"),
    ],
)
def test_versions_are_compared_as_dpkg_does(older: str, newer: str) -> None:
    assert compare_versions(older, newer) < 0 < compare_versions(newer, older)
    assert compare_versions(older, older) == 0


@pytest.mark.parametrize(
    ("kind", "id_", "what"),
    [
        (ItemType.FILE, "/etc/ssh/sshd_config", "the SSH server"),
        (ItemType.FILE, "/etc/sshx", None),
        (ItemType.SERVICE, "nftables.service", "the firewall"),
        (ItemType.UNIT, "ssh.service/more.conf", "the SSH server"),
        (ItemType.USER, "deploy", "the account that connects"),
        (ItemType.USER, "ada", None),
    ],
)
def test_what_could_lock_us_out_is_confirmed(kind: ItemType, id_: str, what: str | None) -> None:
    assert confirms(Item(host="web1", type=kind, id=id_), Connection(name="web1", user="deploy")) == what


def test_no_secret_and_no_content_is_in_a_plan() -> None:
    before = desired(host_files("  - file: /a\n    content: OLD-CONTENT\n"))
    after = desired(host_files("  - file: /a\n    secret: token\n  - env: /e\n    secrets: {A: token}\n"))
    plan = planned(before, after)
    said = json.dumps([change.details for change in plan.changes])
    assert "OLD-CONTENT" not in said
    change = plan.change(Address("host.web1.file./a"))
    assert change is not None
    assert change.details == (
        f"content: 11 bytes ({digest(b'OLD-CONTENT')[:12]}) → the secret token",
        "mode: 0644 → 0600",
    )
