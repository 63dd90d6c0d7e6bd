"""`gitops apply` on real machines with systemd, as a person runs it in a cluster folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.cli.main import main

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

    def __init__(self, path: Path, machine, capsys):
        self.path, self.machine, self._capsys = path, machine, capsys
        (path / "hosts").mkdir()
        (path / "hosts" / "known_hosts").write_text(f"{machine.key.replace(machine.name, 'web1')}\n")
        self.declare(ITEMS)

    def declare(self, items, **changes):
        machine = self.machine
        host = {"address": machine.address, "port": machine.port, "user": "deploy", "become": "root"} | changes
        keys = ", ".join(f"{key}: {value}" for key, value in host.items())
        (self.path / "cluster.yaml").write_text(
            "version: 1\nmetadata: {name: brain}\nhosts:\n"
            f"  web1: {{transport: ssh, {keys}, resources: [hosts/base.yaml]}}\n"
        )
        (self.path / "hosts" / "base.yaml").write_text(items)

    def run(self, *words):
        code = main(list(words))
        out, err = self._capsys.readouterr()
        return code, out + err

    def apply(self):
        code = main(["apply", "--json"])
        out, err = self._capsys.readouterr()
        return code, json.loads(out)


@pytest.fixture
def folder(tmp_path, systemd, login, monkeypatch, capsys):
    systemd.sh("""mkdir -p /srv/repo; cd /srv/repo; rm -rf /tmp/p; mkdir -p /tmp/p/DEBIAN
        printf 'Package: tool\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: t\\nDescription: t\\n' > /tmp/p/DEBIAN/control
        dpkg-deb --root-owner-group -b /tmp/p . >/dev/null
        dpkg-deb -f tool_1.0_all.deb > Packages
        printf 'Filename: ./tool_1.0_all.deb\\nSize: %s\\nSHA256: %s\\n\\n' "$(stat -c %s tool_1.0_all.deb)" \
            "$(sha256sum < tool_1.0_all.deb | cut -c -64)" >> Packages
        echo 'deb [trusted=yes] file:/srv/repo ./' > /etc/apt/sources.list""")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITOPS_SSH_IDENTITY", login.identity)
    return Folder(tmp_path, systemd, capsys)


def test_try(folder):
    import time, re

    log = open("/tmp/try.log", "w")

    def run(*words):
        t = time.time()
        code, text = folder.run(*words)
        log.write(f"\n$ {words} -> {code} in {time.time() - t:.2f}\n{text}")
        log.flush()
        return text

    run("import")
    plan = run("plan")
    digest = re.search("--plan ([0-9a-f]+)", plan)[1]
    run("approve", "host.web1", "--as", "bob", "--plan", digest)
    run("apply", "--dry-run")
    run("apply")
    run("apply")
    run("status")
    run("plan")
    folder.machine.sh("echo x > /srv/app/greeting; chmod 600 /srv/app/app.env")
    run("apply", "--dry-run")
    run("apply")
    run("apply")
    folder.declare(ITEMS.replace("hello", "hello again").replace("WORDS: one", "WORDS: two"))
    run("plan")
    run("apply")
    run("apply")
    folder.machine.sh("systemctl stop app.service")
    run("apply")
    folder.declare(ITEMS[: ITEMS.index("  - symlink")])
    run("plan")
    run("apply")
    run("apply")
    log.write(str(json.loads((folder.path / "__cluster/state.json").read_text())["observations"]))
