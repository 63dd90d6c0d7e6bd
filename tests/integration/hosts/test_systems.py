"""Accounts, packages, units and services on real machines, as an apply changes them through the port."""

import time
from itertools import count

import pytest

from gitops.cluster.hosts.compare import Sight, differing
from gitops.cluster.hosts.port import HostStep
from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import ExecNode
from gitops.hosts.probe import HostOwner
from gitops.hosts.provider import HostProvider
from tests.support.host_items import item

pytestmark = pytest.mark.timeout(900)
_runs = count(1)


class Applying:
    """A run on one machine: takes it over, and applies items as nodes of a graph would."""

    def __init__(self, machine, login, secrets=None):
        self.connection = machine.connection()
        self.sequence = next(_runs)
        values = secrets or {}
        self.provider = HostProvider(
            {},
            HostOwner("01HF7YAT00", "systems"),
            login,
            lambda name, _: values[name],
            run=f"run{self.sequence}",
            new_key=lambda: bytes(range(32)),
            # Only a host that has locked the program out is waited for.
            wait=time.sleep,
            confirm_s=2,
        )

    def step(self, kind, name, action=Action.UPDATE, contents=None, **more):
        node = ExecNode(name, kind, action, 0)
        held = contents or {}
        return self.provider.act(
            HostStep(
                node=node, connection=self.connection, action=action, fence=self.sequence, content=held.get, **more
            )
        )

    def __enter__(self):
        self.provider.__enter__()
        assert self.step("fence", "fence.web1").outcome == "done"
        return self

    def __exit__(self, *error):
        self.provider.__exit__(*error)

    def seen(self, *items):
        found = self.provider.probe(self.connection, items).items
        return [
            differing(each, one) if one.sight is Sight.PRESENT else one.sight
            for each, one in zip(items, found.values(), strict=True)
        ]

    def apply(self, each, content=b"", action=Action.UPDATE, restarts=False, confirm=None):
        name = f"host.web1.{each.type}.{each.id}"
        contents = {each.attributes["content"]["sha256"]: content} if content else {}
        return self.step("host", name, action, contents, item=each, restarts=restarts, confirm=confirm)

    def install(self, *items):
        return self.step("packages", "packages.web1.1", members=items)


def outcome(result):
    return result.outcome, [each.code for each in result.diagnostics]


@pytest.fixture
def applying(machine, login):
    with Applying(machine, login) as made:
        yield made


@pytest.fixture
def on_systemd(systemd, login):
    with Applying(systemd, login) as made:
        yield made


def test_accounts_are_created_changed_and_removed(applying, machine):
    group = item("group", "team", gid=4100)
    user = item("user", "svc", uid=4101, group="team", groups=["adm", "mail"], home="/srv/svc", comment="a service")
    for one in (group, user):
        assert outcome(applying.apply(one)) == ("done", [])
    assert applying.seen(group, user) == [(), ()]
    machine.sh("usermod -a -G games svc")
    assert applying.seen(user) == [()], "a third group stays"
    changed = item(
        "user",
        "svc",
        uid=4102,
        group="team",
        groups=["adm"],
        groups_exclusive=True,
        home="/srv/svc",
        comment="x, y",
    )
    assert applying.seen(changed) == [("comment", "groups", "uid")]
    assert outcome(applying.apply(changed)) == ("done", [])
    assert applying.seen(changed) == [()]
    assert machine.sh("id -Gn svc") == "team adm\n"
    kept = item("group", "team", on_remove="keep")
    assert outcome(applying.apply(kept, action=Action.DELETE)) == ("unchanged", [])
    for one in (item("user", "svc", on_remove="delete"), item("group", "team", on_remove="delete")):
        assert outcome(applying.apply(one, action=Action.DELETE)) == ("done", [])
        assert applying.seen(one) == [Sight.ABSENT]


def test_a_user_who_runs_something_is_not_removed(applying, machine):
    user = item("user", "busy", on_remove="delete")
    assert outcome(applying.apply(user)) == ("done", [])
    machine.sh(
        "setpriv --reuid=busy --regid=busy --clear-groups sleep 60 >/dev/null 2>&1 </dev/null & echo $! > /run/busy"
    )
    assert outcome(applying.apply(user, action=Action.DELETE)) == ("failed", ["host_user_busy"])
    machine.sh("kill $(cat /run/busy)")


@pytest.fixture
def repository(machine, packages):
    """The machine without any package of its repository."""
    machine.sh(
        "apt-mark unhold tool more >/dev/null 2>&1 || :; dpkg --purge --force-all tool more rival dies >/dev/null 2>&1 || :"
    )
    return machine


@pytest.fixture(scope="module")
def packages(machine):
    """A package repository on the machine, whose packages have one file and one configuration file."""
    machine.sh(r"""
    mkdir -p /srv/repo; cd /srv/repo
    make() {
        rm -rf /tmp/p; mkdir -p /tmp/p/DEBIAN /tmp/p/etc /tmp/p/usr/bin
        printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: t\nDescription: t\n%s' "$1" "$2" "$3" \
            > /tmp/p/DEBIAN/control
        printf '#!/bin/sh\necho %s\n' "$2" > "/tmp/p/usr/bin/$1"; chmod 755 "/tmp/p/usr/bin/$1"
        printf 'version=%s\n' "$2" > "/tmp/p/etc/$1.conf"; printf '/etc/%s.conf\n' "$1" > /tmp/p/DEBIAN/conffiles
        if [ -n "${4-}" ]; then printf '#!/bin/sh\n%s\n' "$4" > /tmp/p/DEBIAN/postinst; chmod 755 /tmp/p/DEBIAN/postinst; fi
        chmod -R u=rwX,go=rX /tmp/p
        dpkg-deb --root-owner-group -b /tmp/p . >/dev/null
        dpkg-deb -f "$1_$2_all.deb" >> Packages
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$1_$2_all.deb" "$(stat -c %s "$1_$2_all.deb")" \
            "$(sha256sum < "$1_$2_all.deb" | cut -c -64)" >> Packages
    }
    make tool 1.0 ''
    make tool 2.0 ''
    make more 1.0 ''
    make rival 1.0 'Conflicts: tool
'
    make dies 1.0 '' 'if [ ! -e /run/dies-ok ]; then touch /run/dies-ok; kill -9 $PPID; fi'
    echo 'deb [trusted=yes] file:/srv/repo ./' > /etc/apt/sources.list
    """)
    return machine


def test_packages_are_installed_with_one_call(applying, repository):
    packages = [
        item("package", "tool", version="1.0", hold=True),
        item("package", "more"),
        item("package", "rival", state="absent"),
    ]
    assert applying.seen(*packages) == [Sight.ABSENT, Sight.ABSENT, ()]
    assert outcome(applying.install(*packages)) == ("done", [])
    assert applying.seen(*packages) == [(), (), ()]
    assert repository.sh("tool") == "1.0\n"


def test_an_upgrade_keeps_an_edited_configuration(applying, repository):
    applying.install(item("package", "tool", version="1.0"))
    repository.sh("echo ours > /etc/tool.conf")
    new = item("package", "tool", version="2.0")
    assert applying.seen(new) == [("version",)]
    assert outcome(applying.install(new)) == ("done", [])
    assert repository.sh("tool; cat /etc/tool.conf") == "2.0\nours\n"


def test_what_is_not_declared_is_not_removed(applying, repository):
    applying.install(item("package", "tool"))
    result = applying.install(item("package", "rival"))
    assert outcome(result) == ("failed", ["host_package_would_remove"])
    assert result.diagnostics[0].message == "the package manager would also remove other packages: tool"
    assert applying.seen(item("package", "tool"), item("package", "rival")) == [(), Sight.ABSENT]
    assert outcome(applying.install(item("package", "unknown-to-all"))) == ("failed", ["host_action_failed"])


def test_a_package_is_removed_and_purged(applying, repository):
    more = item("package", "more", purge=True)
    applying.install(more)
    assert outcome(applying.apply(more, action=Action.DELETE)) == ("done", [])
    assert applying.seen(more) == [Sight.ABSENT]
    assert repository.sh("ls /etc/more.conf 2>/dev/null || :") == ""


def test_an_interrupted_installation_is_completed_by_the_next_run(machine, login, repository):
    """dpkg is killed half-way, by the package's own script."""
    dies = item("package", "dies")
    with Applying(machine, login) as first:
        assert outcome(first.install(dies)) == ("failed", ["host_action_failed"])
        assert first.seen(dies) != [()]
    with Applying(machine, login) as second:
        assert outcome(second.install(dies)) == ("done", [])
        assert second.seen(dies) == [()]


UNIT = b"""[Unit]
Description=test
[Service]
User=nobody
EnvironmentFile=/etc/app.env
ExecStart=/bin/sh -c 'exec sleep 1000'
[Install]
WantedBy=multi-user.target
"""
APP = item("unit", "app.service", content=UNIT)
ENV = item("env", "/etc/app.env", set={"A": "1"}, secrets={"TOKEN": "token"})
SERVICE = item("service", "app.service", settle_s=0)


def starts(machine, unit="app.service"):
    return machine.sh(f"systemctl show --value -p InvocationID -p ActiveState {unit}").split()


def test_a_service_is_restarted_after_what_it_reads_has_changed(systemd, login):
    with Applying(systemd, login, {"token": b"one"}) as run:
        assert run.seen(APP, ENV, SERVICE) == [Sight.ABSENT, Sight.ABSENT, Sight.ABSENT]
        assert outcome(run.apply(ENV)) == ("done", [])
        assert outcome(run.apply(APP, UNIT)) == ("done", [])
        assert outcome(run.step("reload", "reload.web1")) == ("done", [])
        assert outcome(run.apply(SERVICE)) == ("done", [])
        assert run.seen(APP, ENV, SERVICE) == [(), (), ()]
        first = starts(systemd)
        assert outcome(run.apply(SERVICE, restarts=True)) == ("done", [])
        assert starts(systemd) == first, "nothing changed, so nothing is restarted"
        ready = item(
            "ready",
            "app",
            checks=[{"service": "app.service"}, {"exec": ["test", "-e", "/etc/app.env"]}, {"tcp": "127.0.0.1:22"}],
            interval_ms=100,
        )
        assert outcome(run.apply(ready)) == ("done", [])
    with Applying(systemd, login, {"token": b"two"}) as run:
        # The value of the secret is another one. This run ends before the restart.
        assert run.seen(ENV) == [("secrets",)]
        assert outcome(run.apply(ENV)) == ("done", [])
    assert starts(systemd) == first
    with Applying(systemd, login, {"token": b"two"}) as run:
        assert run.seen(SERVICE) == [("state",)], "the marker is not that of the files"
        assert outcome(run.apply(SERVICE, restarts=True)) == ("done", [])
        assert starts(systemd) != first
        assert run.seen(SERVICE) == [()]
        systemd.sh("systemctl restart app.service")
        assert run.seen(SERVICE) == [()], "somebody restarted it"
        systemd.sh("systemctl kill -s KILL app.service; systemctl stop app.service")
        assert run.seen(SERVICE) == [("state",)]
        assert outcome(run.apply(SERVICE, restarts=True)) == ("done", [])
        for one in (SERVICE, APP):
            assert outcome(run.apply(one, action=Action.DELETE)) == ("done", [])
        assert outcome(run.step("reload", "reload.web1")) == ("done", [])
        assert run.seen(APP, SERVICE) == [Sight.ABSENT, Sight.ABSENT]


def test_a_unit_that_fails_says_why(on_systemd):
    for name, text, code in (
        ("fails", b"[Service]\nExecStart=/bin/false\nType=oneshot\n", "host_unit_failed"),
        ("ends", b"[Service]\nExecStart=/bin/sh -c 'exit 3'\nRestart=no\n", "host_unit_failed"),
        ("works", b"[Service]\nExecStart=/bin/true\nType=oneshot\n", None),
    ):
        unit = item("unit", f"{name}.service", content=text)
        assert outcome(on_systemd.apply(unit, text)) == ("done", [])
        on_systemd.step("reload", "reload.web1")
        result = on_systemd.apply(item("service", f"{name}.service", settle_s=1, timeout_s=10))
        assert [each.code for each in result.diagnostics] == ([code] if code else [])
        assert code is None or "exit-code" in result.diagnostics[0].message


def test_a_unit_with_an_error_is_not_written(on_systemd, systemd):
    bad = b"[Service]\nType=simple\nUser=root\n"
    result = on_systemd.apply(item("unit", "bad.service", content=bad), bad)
    assert outcome(result) == ("failed", ["host_check_failed"])
    assert "has no ExecStart=" in result.diagnostics[0].message
    assert systemd.sh("ls /etc/systemd/system/bad.service 2>/dev/null || :") == ""


def test_a_drop_in_makes_its_folder(on_systemd, systemd):
    text = b"[Service]\nNice=5\n"
    assert outcome(on_systemd.apply(item("unit", "ssh.service/10-nice.conf", content=text), text)) == ("done", [])
    assert outcome(on_systemd.step("reload", "reload.web1")) == ("done", [])
    assert systemd.sh("systemctl show --value -p Nice ssh.service") == "5\n"


def test_a_check_that_never_succeeds_is_given_up(on_systemd):
    ready = item("ready", "never", checks=[{"http": "http://127.0.0.1:1/healthz"}], timeout_s=1, interval_ms=100)
    result = on_systemd.apply(ready)
    assert outcome(result) == ("failed", ["host_not_ready"])
    assert "http://127.0.0.1:1/healthz" in result.diagnostics[0].message


def test_packages_survive_the_connection_as_a_unit(on_systemd, systemd):
    """apt runs as a unit of its own, by whose name a person finds it."""
    systemd.sh("""mkdir -p /srv/repo; : > /srv/repo/Packages; echo 'deb [trusted=yes] file:/srv/repo ./' > /etc/apt/sources.list
    cat > /etc/apt/apt.conf.d/99seen <<'END'
APT::Update::Pre-Invoke { "cat /proc/self/cgroup > /run/seen-cgroup"; };
END
""")
    assert outcome(on_systemd.install(item("package", "sudo"))) == ("done", [])
    assert "gitops-run" in systemd.sh("cat /run/seen-cgroup")


def guarded(path, text, **more):
    return item("file", path, content=text, **more), text


def test_a_change_that_lets_this_program_in_stays(on_systemd, systemd):
    good, text = guarded("/etc/sudoers.d/zz-good", b"# nothing\n", mode="0440")
    assert outcome(on_systemd.apply(good, text, confirm="sudo")) == ("done", [])
    assert systemd.sh("systemctl list-units --all --plain --no-legend 'gitops-confirm*'") == ""
    assert on_systemd.seen(good) == [()]


def test_a_rule_that_locks_this_program_out_is_taken_back(on_systemd, systemd):
    bad, text = guarded("/etc/sudoers.d/zz-bad", b"deploy ALL=(ALL:ALL) PASSWD: ALL\n", mode="0440")
    assert outcome(on_systemd.apply(bad, text, confirm="sudo")) == ("failed", ["host_change_reverted"])
    assert on_systemd.seen(bad) == [Sight.ABSENT]


def test_an_ssh_server_that_lets_nobody_in_is_taken_back(systemd, login):
    systemd.sh("echo '# ours' > /etc/ssh/sshd_config.d/a.conf")
    with Applying(systemd, login) as run:
        bad, text = guarded("/etc/ssh/sshd_config.d/a.conf", b"AllowUsers nobody\n")
        # As long as the server is not restarted, the file changes nothing, and the change is confirmed.
        assert outcome(run.apply(bad, text, confirm="the SSH server")) == ("done", [])
        ssh = item("service", "ssh.service", settle_s=0, triggers=["host.web1.file./etc/ssh/sshd_config.d/a.conf"])
        result = run.apply(ssh, restarts=True, confirm="the SSH server")
        assert outcome(result) == ("failed", ["host_change_reverted"])
    assert systemd.sh("cat /etc/ssh/sshd_config.d/a.conf") == "# ours\n"
    with Applying(systemd, login) as run:
        assert run.seen(item("service", "ssh.service"))[0] in ((), ("state",))
