"""Machines behind a repository with hooks: approvals, secrets, an atomic merge, one machine after the other, and an audit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.loop import CLUSTER_YAML, CONFIG, FILES, LEDGER, MAIN, SIGNERS, TRUSTED, Loop
from tests.support.machines import Machine
from tests.support.prefork import PROGRAM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECRET = "hunter2-is-the-value"
RULES = "hosts:\n  secrets:\n    token: {env: SERVE_TOKEN, hosts: [web1, web2]}\n"
SERVER = b"""\
use IO::Socket::INET;
my $all = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 8080, Listen => 5, ReuseAddr => 1) or die;
while (my $one = $all->accept) {
    while (<$one>) { last if /^\\r?$/ }
    print $one "HTTP/1.0 200 OK\\r\\n\\r\\nanswer 1, token of " . length($ENV{TOKEN}) . "\\n";
    close $one;
}
"""
ITEMS = b"""\
version: 1
defaults: {owner: serve, group: serve}
resources:
  - group: serve
  - user: serve
    group: serve
  - directory: /srv/serve
  - file: /srv/serve/server.pl
    source: hosts/server.pl
  - env: /srv/serve/env
    secrets: {TOKEN: token}
  - unit: serve.service
    sections:
      Service: {User: serve, EnvironmentFile: /srv/serve/env, ExecStart: /usr/bin/perl /srv/serve/server.pl}
      Install: {WantedBy: multi-user.target}
  - service: serve.service
    settle_s: 0
    triggers: [host.NAME.file./srv/serve/server.pl]
  - ready: serve
    checks: [{http: http://127.0.0.1:8080/healthz, contains: "answer"}]
    timeout_s: 5
    interval_ms: 100
"""


@pytest.fixture(scope="module")
def pair(machines) -> tuple[Machine, Machine]:
    return machines.start("pair1", systemd=True), machines.start("pair2", systemd=True)


@pytest.fixture
def loop(tmp_path: Path, pair: tuple[Machine, Machine]) -> Loop:
    """A repository whose first merge declares two machines, besides the graphs."""
    made = Loop.empty(tmp_path / "loop")
    hosts, known = "", ""
    for name, machine in zip(("web1", "web2"), pair, strict=True):
        way = f"address: {machine.address}, user: deploy, become: root, resources: [hosts/{name}.yaml]"
        hosts += f"  {name}: {{transport: ssh, {way}}}\n"
        known += f"{machine.key.replace(machine.name, name)}\n"
    files = {
        **FILES,
        "gitops.yaml": (CONFIG + RULES).encode(),
        SIGNERS: made.signers(*TRUSTED),
        "cluster/cluster.yaml": f"{CLUSTER_YAML}hosts:\n{hosts}".encode(),
        "cluster/hosts/known_hosts": known.encode(),
        "cluster/hosts/server.pl": SERVER,
        **{f"cluster/hosts/{name}.yaml": ITEMS.replace(b"NAME", name.encode()) for name in ("web1", "web2")},
    }
    made.gitops("bot", "hook", "install", "--server", "--repo", str(made.server), at=tmp_path)
    first = made.commit("alice", files, message="Start\n", away=True)
    made.push("alice", f"{first}:{MAIN}")
    return made


def answer(machine: Machine) -> str:
    script = (
        "use IO::Socket::INET; $s = IO::Socket::INET->new('127.0.0.1:8080') or exit;"
        'print $s "GET / HTTP/1.0\\r\\n\\r\\n"; print <$s>'
    )
    return machine.run("perl", "-e", script).stdout.decode().rpartition("\r\n")[2].strip()


def test_two_machines_are_changed_one_after_the_other(loop: Loop, pair: tuple[Machine, Machine], login) -> None:
    one, two = pair
    environ = ["env", f"GITOPS_SSH_IDENTITY={login.identity}", f"SERVE_TOKEN={SECRET}"]
    said = []

    def push(files: dict[str, bytes], message: str) -> str:
        commit = loop.commit("alice", files, message=f"{message}\n", away=True)
        place = loop.clone("alice") / ".git" / "objects" / "info" / "alternates"
        place.write_text(f"{loop.workshop}/objects\n")
        said.append(loop.program("alice", *environ, "git", "push", "origin", f"{commit}:{MAIN}", check=False).text)
        return said[-1]

    # The first connection to each machine has to be approved; nothing was done there before.
    assert one.sh("ls /var/lib/cluster-gitops 2>/dev/null || :") == ""
    said += [loop.confirmed("bob", "approve", host).text for host in ("host.web1", "host.web2")]
    applied = loop.program("bot", *environ, *PROGRAM, "bot", "apply", at=loop.server).text
    said.append(applied)
    assert [answer(each) for each in pair] == [f"answer 1, token of {len(SECRET)}"] * 2, applied

    # A version that does not become ready stops at the first machine. The graph of the same merge is applied.
    broken = {
        "cluster/hosts/server.pl": SERVER.replace(b"answer 1", b"broken"),
        "cluster/notes.pg": FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    seen: Bool?"),
    }
    text = push(broken, "Break it")
    assert "host_not_ready host.web1.ready.serve" in text
    assert answer(one).startswith("broken")
    assert answer(two).startswith("answer 1"), "the second machine waits until the first one is ready"
    log = loop.gitops("bob", "log", "--limit", "5", at=loop.server).text
    assert "update schema.notes" in log

    text = push({"cluster/hosts/server.pl": SERVER.replace(b"answer 1", b"answer 2")}, "Repair it")
    assert [answer(each) for each in pair] == [f"answer 2, token of {len(SECRET)}"] * 2, text

    # A merge without hosts leaves them alone, and what was changed by hand is restored.
    two.sh("rm /srv/serve/env")
    text = push({"cluster/README.md": b"Changed.\n"}, "Words")
    assert two.sh("cat /srv/serve/env") == f'TOKEN="{SECRET}"\n', text
    loop.program("bob", "git", "fetch", "-q")
    said.append(loop.gitops("bob", "status").text)
    assert "in sync: yes" in said[-1]
    audit = loop.gitops("bob", "audit").text
    assert audit.startswith("audit good"), audit

    # The value is nowhere but on the machines.
    stored = subprocess.run(
        ["git", "-C", str(loop.server), "log", "-p", "--all", "--full-history", LEDGER], capture_output=True, check=True
    ).stdout.decode(errors="replace")
    assert SECRET not in stored
    assert not [text for text in said if SECRET in text]
