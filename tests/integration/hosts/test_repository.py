"""The example of two machines, in a repository with hooks: approvals, secrets, atomic merges, a rollout, and an audit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.loop import CLUSTER_YAML, CONFIG, FILES, LEDGER, MAIN, SIGNERS, TRUSTED, Loop
from tests.support.machines import Machine
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECRET = "hunter2-is-the-value"
RULES = "hosts:\n  secrets:\n    token: {env: SERVE_TOKEN, hosts: [web1, web2]}\n"
EXAMPLE = ROOT / "examples" / "two-machines"
WEB = (EXAMPLE / "hosts" / "web.yaml").read_bytes().replace(b"timeout_s: 30", b"timeout_s: 5")
# In place of the query server: it answers where its environment file says, with what it was given.
PROGRAM_ON_HOST = """\
#!/usr/bin/perl
use IO::Socket::INET;
my ($host, $port) = split /:/, $ENV{OMNIGRAPH_BIND};
my $all = IO::Socket::INET->new(LocalAddr => $host, LocalPort => $port, Listen => 5, ReuseAddr => 1) or die;
while (my $one = $all->accept) {
    while (<$one>) { last if /^\\r?$/ }
    print $one "HTTP/1.0 200 OK\\r\\n\\r\\n$ENV{WORDS}, token of " . length($ENV{OMNIGRAPH_SERVER_BEARER_TOKEN}) . "\\n";
    close $one;
}
"""


@pytest.fixture(scope="module")
def pair(machines) -> tuple[Machine, Machine]:
    made = machines.start("pair1", systemd=True), machines.start("pair2", systemd=True)
    for each in made:
        each.sh("mkdir -p /opt/gitops/bin")
        each.run(
            "sh", "-c", "cat > /opt/gitops/bin/gitops; chmod 755 /opt/gitops/bin/gitops", stdin=PROGRAM_ON_HOST.encode()
        )
    return made


@pytest.fixture
def loop(tmp_path: Path, pair: tuple[Machine, Machine]) -> Loop:
    """A repository whose first merge declares two machines, besides the graphs."""
    made = Loop.empty(tmp_path / "loop")
    declared, known = (EXAMPLE / "cluster.yaml").read_text(), ""
    for name, address, machine in zip(("web1", "web2"), ("10.0.0.11", "10.0.0.12"), pair, strict=True):
        declared = declared.replace(address, machine.address)
        known += f"{machine.key.replace(machine.name, name)}\n"
    files = {
        **FILES,
        "gitops.yaml": (CONFIG + RULES).encode(),
        SIGNERS: made.signers(*TRUSTED),
        "cluster/cluster.yaml": (CLUSTER_YAML + declared[declared.index("hosts:") :]).encode(),
        "cluster/hosts/known_hosts": known.encode(),
        "cluster/hosts/web.yaml": web("one"),
    }
    made.gitops("bot", "hook", "install", "--server", "--repo", str(made.server), at=tmp_path)
    first = made.commit("alice", files, message="Start\n", away=True)
    made.push("alice", f"{first}:{MAIN}")
    return made


def web(words: str, port: int = 8080) -> bytes:
    """The resource file of the example, with another variable."""
    return WEB.replace(b"127.0.0.1:8080}", f"127.0.0.1:{port}, WORDS: {words}}}".encode())


def answer(machine: Machine) -> str:
    script = (
        "use IO::Socket::INET; $s = IO::Socket::INET->new('127.0.0.1:8080') or (print('silent'), exit);"
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
    assert [answer(each) for each in pair] == [f"one, token of {len(SECRET)}"] * 2, applied

    # A version that does not become ready stops at the first machine. The graph of the same merge is applied.
    broken = {
        "cluster/hosts/web.yaml": web("two", port=8081),
        "cluster/notes.pg": FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    seen: Bool?"),
    }
    text = push(broken, "Break it")
    assert "host_not_ready host.web1.ready.gitops" in text
    assert answer(one) == "silent"
    assert answer(two).startswith("one"), "the second machine waits until the first one is ready"
    log = loop.gitops("bob", "log", "--limit", "5", at=loop.server).text
    assert "update schema.notes" in log

    text = push({"cluster/hosts/web.yaml": web("two")}, "Repair it")
    assert [answer(each) for each in pair] == [f"two, token of {len(SECRET)}"] * 2, text

    # A merge without hosts leaves them alone, and what was changed by hand is restored.
    two.sh("rm /srv/gitops/serve.env")
    text = push({"cluster/README.md": b"Changed.\n"}, "Words")
    assert f'TOKEN="{SECRET}"\n' in two.sh("cat /srv/gitops/serve.env"), text
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
