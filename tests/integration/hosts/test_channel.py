"""Scripts on real machines, over OpenSSH and on this machine: what arrives, what is refused, and what never happens."""

import getpass
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from gitops.cluster.model.host import Connection, Transport
from gitops.core.errors import GitopsError
from gitops.hosts.channel import MAX_ANSWER, open_channel
from gitops.hosts.script import Script
from gitops.hosts.ssh_config import SshLogin

pytestmark = pytest.mark.timeout(900)

BYTES = bytes(range(256)) * 40 + b"'\"$(touch /tmp/no)`\n"
ECHO = "section echo\nhead -c $size\nsection end\n"
NAME = Script("section name\nhostname\nsection end\n")
LOCAL = Connection(name="here", transport=Transport.LOCAL)


@contextmanager
def failing(code):
    with pytest.raises(GitopsError) as failure:
        yield failure
    assert failure.value.code == code


@pytest.fixture(params=["ssh", "local"])
def each(request):
    if request.param == "ssh":
        yield request.getfixturevalue("channel")
    else:
        with open_channel(LOCAL, {}, SshLogin()) as opened:
            yield opened


def test_bytes_arrive_unchanged_and_come_back(each):
    answer = each.run(Script(ECHO, {"size": len(BYTES)}, [BYTES]))
    assert answer == {"echo": BYTES}


def test_arguments_and_content_are_in_no_command_line(each):
    secret = "s3cret-in-flight"
    text = "section lines\ncat /proc/[0-9]*/cmdline\nsection end\n"
    script = Script(text, {"word": secret, "size": len(secret)}, [secret.encode()])
    assert secret.encode() not in each.run(script)["lines"]


def test_a_script_becomes_root_and_has_a_clean_environment(machine, opening, login, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "t0ken")
    text = "section who\nid -un\nsection environment\nenv\nsection end\n"
    for become, name in ((None, b"deploy\n"), ("root", b"root\n"), ("asks", b"asks\n")):
        answer = opening.enter_context(open_channel(machine.connection(become=become), {}, login)).run(Script(text))
        assert answer["who"] == name
        assert b"t0ken" not in answer["environment"]


def test_a_password_is_never_asked_for(machine, opening, login):
    channel = opening.enter_context(open_channel(machine.connection(user="asks"), {}, login))
    with failing("host_become_failed") as failure:
        channel.run(Script("section end\n"))
    assert "password" in failure.value.detail


def test_another_key_is_refused_before_the_login(machine, machines, opening, tmp_path):
    other = machines.start("other").key.replace("host.other", "host.web1")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "own")], check=True)
    # Whoever came as far as the login would be refused there.
    login = SshLogin(identity=str(tmp_path / "own"))
    channel = opening.enter_context(open_channel(machine.connection(keys=(other,)), {}, login))
    with failing("host_key_mismatch"):
        channel.run(Script("section end\n"))


def test_a_signed_key_of_a_declared_authority_is_accepted(machine, opening, login, tmp_path):
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / "ca")]
    subprocess.run(words, check=True)
    host = tmp_path / "host.pub"
    host.write_text(machine.key.removeprefix("host.web1 "))
    subprocess.run(["ssh-keygen", "-q", "-s", tmp_path / "ca", "-I", "web1", "-h", "-n", "host.web1", host], check=True)
    signed = (tmp_path / "host-cert.pub").read_text()
    machine.run("sh", "-c", "cat > /run/cert.pub", stdin=signed.encode())
    # It goes to the background once it listens.
    machine.sh(
        f"/usr/sbin/sshd -p 22023 -o ListenAddress={machine.address} -o HostCertificate=/run/cert.pub -o PidFile=none"
    )
    line = f"@cert-authority host.web1 {(tmp_path / 'ca.pub').read_text().strip()}"
    channel = opening.enter_context(open_channel(machine.connection(keys=(line,), port=22023), {}, login))
    assert channel.run(Script("section end\n")) == {}


def test_a_key_that_is_not_authorized_is_refused(machine, opening, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "own")], check=True)
    login = SshLogin(identity=str(tmp_path / "own"))
    with failing("host_login_refused"):
        opening.enter_context(open_channel(machine.connection(), {}, login)).run(Script("section end\n"))


def test_nothing_listens(machine, opening, login):
    with failing("host_unreachable"):
        opening.enter_context(open_channel(machine.connection(port=1), {}, login)).run(Script("section end\n"))


def test_a_host_behind_another_one(machine, machines, opening, login):
    hosts = {"gate": machines.start("gate").connection()}
    channel = opening.enter_context(open_channel(machine.connection(jump="gate"), hosts, login))
    assert channel.run(NAME) == {"name": b"web1\n"}


RELAY = """
import os, select, socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for each in select.select([0, link], [], [])[0]:
        data = os.read(each if each == 0 else link.fileno(), 65536)
        if not data:
            sys.exit()
        link.sendall(data) if each == 0 else os.write(1, data)
"""


def test_a_host_behind_a_session_manager(machine, opening, login, tmp_path):
    program = tmp_path / "a relay's 100%.py"
    program.write_text(RELAY)
    login = SshLogin(identity=login.identity, proxy=[sys.executable, str(program), "%h", "%p"])
    channel = opening.enter_context(open_channel(machine.connection(), {}, login))
    assert channel.run(NAME) == {"name": b"web1\n"}


def test_an_answer_that_breaks_off_says_nothing(each):
    with failing("host_connection_lost"):
        each.run(Script("section facts\necho nothing is there\nexit 0\n"))


def test_the_host_ends_a_script_that_takes_too_long(each):
    with failing("host_timed_out"):
        each.run(Script("sleep 30\nsection end\n", timeout_s=1))


def test_an_answer_is_never_cut(each):
    with failing("host_output_too_large"):
        each.run(Script(f"section zeros\nhead -c {MAX_ANSWER} /dev/zero\nsection end\n"))


def test_the_connection_is_made_again_after_it_was_lost(machine, opening, login):
    channel = opening.enter_context(open_channel(machine.connection(), {}, login))
    assert channel.run(NAME) == {"name": b"web1\n"}
    with failing("host_connection_lost"):
        channel.run(Script("pkill -9 -f '^sshd: deploy'\nsleep 20\nsection end\n"))
    assert channel.run(NAME) == {"name": b"web1\n"}


def test_programs_see_the_file_of_the_host_only(machine, login, tmp_path, monkeypatch, opening):
    """A configuration of the user that would redirect the host changes nothing."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host *\n  Port 1\n  ProxyCommand false\n")
    monkeypatch.setenv("HOME", str(home))
    channel = opening.enter_context(open_channel(machine.connection(), {}, login))
    assert channel.run(Script("section end\n")) == {}


def test_here_no_sudo_is_needed_to_stay_who_one_is():
    connection = Connection(name="here", transport=Transport.LOCAL, become=getpass.getuser())
    with open_channel(connection, {}, SshLogin()) as channel:
        assert channel.run(Script("section id\nid -u\nsection end\n")) == {"id": b"%d\n" % os.geteuid()}


def test_without_the_ssh_program(machine, opening, login, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with failing("ssh_unavailable"):
        opening.enter_context(open_channel(machine.connection(), {}, login)).run(NAME)
