"""`gitops hosts` on real machines, as a person runs it in a cluster folder."""

import json

import pytest

from gitops.cli.main import main

pytestmark = pytest.mark.timeout(900)

ITEMS = """version: 1
resources:
  - file: /etc/motd
    content: hello
  - file: /etc/hostname
    content: web1
    mode: "0600"
  - package: sudo
  - group: nosuch
"""


@pytest.fixture
def folder(tmp_path, machine, login, monkeypatch):
    """A cluster folder that declares the machine, with its key."""
    machine.sh("printf hello > /etc/motd; chmod 644 /etc/motd")
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts" / "base.yaml").write_text(ITEMS)
    (tmp_path / "hosts" / "known_hosts").write_text(f"{machine.key}\n")
    declare(tmp_path, machine)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITOPS_SSH_IDENTITY", login.identity)
    return tmp_path


def declare(folder, machine, **changes):
    host = {"address": machine.address, "port": machine.port, "user": "deploy", "become": "root"} | changes
    keys = ", ".join(f"{key}: {value}" for key, value in host.items())
    (folder / "cluster.yaml").write_text(
        "version: 1\nmetadata: {name: brain}\nhosts:\n"
        f"  web1: {{transport: ssh, {keys}, resources: [hosts/base.yaml]}}\n"
    )


def run(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_host_is_checked(folder, capsys):
    code, out, err = run(capsys, "hosts", "check")
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith("web1: ok, Debian GNU/Linux 12 (bookworm), ")
    assert [line.split()[:2] for line in rest] == [["WARN", "host_unsupported"]], "this machine has no systemd"


def test_facts_compare_the_items(folder, capsys, machine):
    code, out, _ = run(capsys, "hosts", "facts", "web1")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert lines[-4:] == [
        "file./etc/hostname: different: content, mode",
        "file./etc/motd: as declared",
        "group.nosuch: absent",
        "package.sudo: as declared",
    ]
    code, out, _ = run(capsys, "hosts", "facts", "--json")
    (host,) = json.loads(out)["hosts"]
    assert host["facts"]["os"] == "debian"
    assert {each["address"]: each["differs"] for each in host["items"]}["host.web1.file./etc/hostname"] == [
        "content",
        "mode",
    ]


PROBLEMS = [
    ({"port": 1}, "host_unreachable"),
    ({"user": "asks"}, "host_become_failed"),
    ({"user": "nobody"}, "host_login_refused"),
]


@pytest.mark.parametrize(("changes", "code"), PROBLEMS)
def test_what_is_wrong_with_a_host_is_said(folder, machine, capsys, changes, code):
    declare(folder, machine, **changes)
    status, out, _ = run(capsys, "hosts", "check", "--json")
    form = json.loads(out)
    assert (status, form["ok"], [each["code"] for each in form["problems"]]) == (1, False, [code])
    assert form["problems"][0]["path"] == "host.web1"


def test_the_remedy_for_another_key_works(folder, machine, machines, capsys):
    """The person compares the fingerprint on the machine, and pins the printed line."""
    other = machines.start("rekeyed").key.replace("host.rekeyed", "host.web1")
    (folder / "hosts" / "known_hosts").write_text(f"{other}\n")
    status, out, _ = run(capsys, "hosts", "check")
    assert (status, "gitops hosts trust" in out) == (1, True)
    fingerprint = machine.sh("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    status, out, err = run(capsys, "hosts", "trust", "web1", "--fingerprint", "SHA256:wrong")
    assert (status, "host_key_mismatch" in out + err, fingerprint in out + err) == (1, True, True)
    status, line, _ = run(capsys, "hosts", "trust", "web1", "--fingerprint", fingerprint)
    assert (status, line) == (0, f"{machine.key}\n")
    (folder / "hosts" / "known_hosts").write_text(line)
    assert run(capsys, "hosts", "check")[0] == 0


def test_a_missing_program_names_its_package(folder, machine, capsys):
    machine.sh("mv /usr/bin/flock /usr/bin/flock.away")
    status, out, _ = run(capsys, "hosts", "check")
    machine.sh("mv /usr/bin/flock.away /usr/bin/flock")
    assert status == 1
    assert "flock is missing; it is in the package util-linux" in out
    assert run(capsys, "hosts", "check")[0] == 0


def test_a_folder_without_hosts(tmp_path, monkeypatch, capsys):
    (tmp_path / "cluster.yaml").write_text("version: 1\n")
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "hosts", "check")
    assert (status, "declares no hosts" in out + err) == (2, True)


def test_what_a_host_has_is_described_to_paste(folder, machine, capsys):
    """The printed file, pasted, is as the machine already is. A private file's content stays on the machine."""
    machine.sh("getent group ops >/dev/null || groupadd -r ops; echo s3cret > /etc/private; chmod 600 /etc/private")
    items = ["file./etc/motd", "symlink./etc/mtab", "directory./etc/ssh", "group.ops", "user.deploy", "package.sudo"]
    status, out, _ = run(capsys, "hosts", "describe", "web1", *items)
    assert status == 0
    (folder / "hosts" / "base.yaml").write_text(out)
    status, out, _ = run(capsys, "hosts", "facts", "--json")
    (host,) = json.loads(out)["hosts"]
    assert status == 0
    assert {each["address"].removeprefix("host.web1."): (each["seen"], each["differs"]) for each in host["items"]} == {
        name: ("present", []) for name in items
    }
    status, out, _ = run(capsys, "hosts", "describe", "web1", "file./etc/private", "package.nosuch")
    assert (status, "s3cret" in out, "host_item_missing" in out) == (1, False, True)
    status, out, _ = run(capsys, "hosts", "describe", "web1", "package.nosuch", "--json")
    assert [each["code"] for each in json.loads(out)["problems"]] == ["host_item_missing"]
