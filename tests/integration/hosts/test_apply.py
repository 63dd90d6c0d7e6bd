"""`gitops apply` on real machines with systemd, as a person runs it in a cluster folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.cli.main import main
from tests.support.pages import ROOT

pytestmark = pytest.mark.timeout(900)

ITEMS = """version: 1
defaults: {owner: app, group: app}
resources:
  - package: tool
    version: "1.0"
  - group: app
  - user: app
    group: app
    home: /srv/app
  - directory: /srv/app
    mode: "0750"
  - file: /srv/app/greeting
    content: hello
  - env: /srv/app/app.env
    set: {WORDS: one}
  - symlink: /srv/app/current
    to: /srv/app/greeting
  - unit: app.service
    sections:
      Service:
        User: app
        EnvironmentFile: /srv/app/app.env
        ExecStart: /bin/sh -c 'exec sleep 100000'
      Install: {WantedBy: multi-user.target}
  - service: app.service
    settle_s: 0
    triggers: [host.web1.file./srv/app/greeting]
  - ready: app
    checks: [{service: app.service}, {exec: [test, -e, /srv/app/greeting]}]
    interval_ms: 100
"""


class Folder:
    """A cluster folder that declares one machine."""

    def __init__(self, path: Path, machine, login, capsys):
        self.path, self.machine, self._login, self._capsys = path, machine, login, capsys
        (path / "hosts").mkdir()
        (path / "hosts" / "known_hosts").write_text(f"{machine.key.replace(machine.name, 'web1')}\n")
        host = {"address": machine.address, "port": machine.port, "user": "deploy", "become": "root"}
        keys = ", ".join(f"{key}: {value}" for key, value in host.items())
        (path / "cluster.yaml").write_text(
            "version: 1\nmetadata: {name: brain}\nhosts:\n"
            f"  web1: {{transport: ssh, {keys}, resources: [hosts/base.yaml]}}\n"
        )

    def declare(self, items):
        (self.path / "hosts" / "base.yaml").write_text(items)

    def run(self, *words):
        code = main(list(words))
        out, err = self._capsys.readouterr()
        return code, out + err

    def start(self, items):
        """Start a ledger, and approve the way to the machine."""
        self.declare(items)
        assert self.run("import")[0] == 0
        (digest,) = re.findall("--plan ([0-9a-f]{64})", self.run("plan")[1])
        assert self.run("approve", "host.web1", "--as", "bob", "--plan", digest)[0] == 0

    def apply(self):
        """The exit status, and the changes by what they are about, with their dispositions."""
        code = main(["apply", "--json"])
        out, _ = self._capsys.readouterr()
        form = json.loads(out)
        return code, {each["resource"].removeprefix("host.web1."): each["disposition"] for each in form["changes"]}

    def program(self):
        """An apply in a process, as a person starts it."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "GITOPS_SSH_IDENTITY": self._login.identity}
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-m", "gitops", "apply"], cwd=self.path, env=environ, stdout=quiet, stderr=quiet
        )


@pytest.fixture
def folder(tmp_path, systemd, login, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITOPS_SSH_IDENTITY", login.identity)
    yield Folder(tmp_path, systemd, login, capsys)
    systemd.sh("""systemctl disable --now app.service 2>/dev/null || :
        rm -rf /var/lib/cluster-gitops/brain /etc/systemd/system/app.service /srv/app
        systemctl daemon-reload; userdel app 2>/dev/null || :; groupdel app 2>/dev/null || :""")


@pytest.fixture
def packages(systemd):
    systemd.sh("""mkdir -p /srv/repo; cd /srv/repo; rm -rf /tmp/p; mkdir -p /tmp/p/DEBIAN
        printf 'Package: tool\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: t\\nDescription: t\\n' > /tmp/p/DEBIAN/control
        dpkg-deb --root-owner-group -b /tmp/p . >/dev/null
        dpkg-deb -f tool_1.0_all.deb > Packages
        printf 'Filename: ./tool_1.0_all.deb\\nSize: %s\\nSHA256: %s\\n\\n' "$(stat -c %s tool_1.0_all.deb)" \
            "$(sha256sum < tool_1.0_all.deb | cut -c -64)" >> Packages
        echo 'deb [trusted=yes] file:/srv/repo ./' > /etc/apt/sources.list""")


APPLIED = "applied"


def invocation(machine):
    return machine.sh("systemctl show --value -p InvocationID app.service").strip()


def test_a_machine_from_its_first_apply_to_its_last_item(folder, systemd, packages):
    folder.start(ITEMS)
    code, changes = folder.apply()
    assert (code, set(changes.values()), len(changes)) == (0, {APPLIED}, 11)
    assert systemd.sh("cat /srv/app/current; id -gn app; systemctl is-active app; dpkg-query -W tool").split() == [
        "helloapp",
        "active",
        "tool",
        "1.0",
    ]
    first = invocation(systemd)
    assert folder.apply() == (0, {})
    assert folder.run("status")[1].startswith("State: revision 2, 11 resources\n  in sync: yes\n")

    systemd.sh("echo by hand > /srv/app/greeting")
    assert "drift: content" in folder.run("apply", "--dry-run")[1]
    code, changes = folder.apply()
    assert (code, sorted(changes)) == (0, ["file./srv/app/greeting", "ready.app", "service.app.service"])
    assert systemd.sh("cat /srv/app/greeting") == "hello"
    assert invocation(systemd) == first, "the service was started with this very content"

    folder.declare(ITEMS.replace("WORDS: one", "WORDS: two"))
    code, changes = folder.apply()
    assert (code, sorted(changes)) == (0, ["env./srv/app/app.env", "ready.app", "service.app.service"])
    assert invocation(systemd) != first

    folder.declare(ITEMS[: ITEMS.index("  - symlink")])
    code, changes = folder.apply()
    assert code == 0
    assert sorted(changes)[-4:] == ["ready.app", "service.app.service", "symlink./srv/app/current", "unit.app.service"]
    assert systemd.sh("ls -A /srv/app; systemctl show --value -p LoadState app.service").split() == [
        "app.env",
        "greeting",
        "not-found",
    ]
    assert folder.apply() == (0, {})


SLOW = """  - file: /srv/app/last
    content: LAST
    check: [/bin/sh, -c, "touch /run/reached; while [ ! -e /run/go ]; do sleep 0.1; done; test -e $0", "{}"]
"""


def test_an_apply_that_is_killed_is_continued_by_the_next(folder, systemd, packages):
    """It is killed while a program of the host runs, after a file and before the restart that the file asks for."""
    folder.start(ITEMS + SLOW)
    systemd.sh("touch /run/go")
    assert folder.apply()[0] == 0
    first = invocation(systemd)
    systemd.sh("rm /run/go /run/reached")
    changed = (ITEMS + SLOW).replace("LAST", "other").replace("hello", "changed")
    folder.declare(
        changed.replace("    settle_s: 0\n", "    settle_s: 0\n    depends_on: [host.web1.file./srv/app/last]\n")
    )
    with folder.program() as apply:
        systemd.sh("while [ ! -e /run/reached ]; do sleep 0.05; done")
        apply.send_signal(signal.SIGKILL)
    assert invocation(systemd) == first
    systemd.sh("touch /run/go")
    code, text = folder.run("apply")
    if "state_lock_held" in text:
        (lock,) = re.findall("force-unlock ([0-9A-Z]{26})", text)
        assert folder.run("force-unlock", lock)[0] == 0
        code, text = folder.run("apply")
    assert code == 0, text
    assert systemd.sh("cat /srv/app/greeting /srv/app/last") == "changedother"
    assert invocation(systemd) != first
    assert folder.apply() == (0, {})
    assert systemd.sh("find / -xdev -name '.gitops-*'") == ""


GUARDED = """version: 1
resources:
  - file: /etc/sudoers.d/zz-fine
    content: "# nothing\\n"
    mode: "0440"
    check: [/usr/sbin/visudo, -cf, "{}"]
"""


def test_a_change_that_could_lock_the_program_out_is_confirmed(folder, systemd):
    """The timer that would take the change back is gone once a new connection has worked."""
    folder.start(GUARDED)
    assert folder.apply() == (0, {"host.web1": APPLIED, "file./etc/sudoers.d/zz-fine": APPLIED})
    assert systemd.sh("ls /var/lib/cluster-gitops/brain/earlier | wc -l").strip() == "1", "the change was guarded"
    assert systemd.sh("systemctl list-units --all --plain --no-legend 'gitops-confirm*'") == ""
    folder.declare("version: 1\nresources: []\n")
    assert folder.apply() == (0, {"file./etc/sudoers.d/zz-fine": APPLIED})
    assert systemd.sh("ls /etc/sudoers.d").split() == ["README", "gitops"]


def test_a_ledger_that_starts_again_takes_the_host_over(folder, systemd):
    """Its numbers start at 1, and what the machine has is only recorded."""
    items = "version: 1\nresources:\n  - directory: /srv/app\n"
    folder.start(items)
    for number in range(3):
        assert folder.apply()[0] == 0
        folder.declare(f"{items}    mode: '075{number}'\n")
    shutil.rmtree(folder.path / "__cluster")
    folder.start(f"{items}    mode: '0751'\n  - file: /srv/app/new\n    content: new\n")
    code, changes = folder.apply()
    assert (code, set(changes.values()), len(changes)) == (0, {APPLIED}, 3)
    assert systemd.sh("cat /srv/app/new") == "new"
