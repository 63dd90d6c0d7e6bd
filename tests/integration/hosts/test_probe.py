"""What a probe says about a real machine, and how that compares with declared items."""

import hashlib
import hmac

import pytest

from gitops.cluster.hosts.compare import Sight, differing
from gitops.cluster.model.host import env_file
from gitops.core.errors import GitopsError
from gitops.hosts.channel import open_channel
from gitops.hosts.facts import Missing, keyed_digest, pads, read_facts
from gitops.hosts.observation import observe
from gitops.hosts.probe import HostOwner, probe, probe_script
from tests.support.host_items import item

pytestmark = pytest.mark.timeout(900)
OWNER = HostOwner("01HF7YAT00", "brain")
ODD = '/srv/probe/it\'s a "file" $(id) *'
VARIABLES = {"PORT": "80", "NAME": 'a "b" $c'}


@pytest.fixture(scope="module")
def prepared(machine):
    machine.run("sh", "-c", "mkdir -p /srv/probe; cat > /srv/probe/plain; chmod 640 /srv/probe/plain", stdin=b"text\n")
    machine.run("sh", "-c", "cat > /srv/probe/env", stdin=env_file({**VARIABLES, "TOKEN": "s3cret"}))
    machine.run("sh", "-c", 'cat > "$1"', "sh", ODD, stdin=b"odd")
    machine.sh(
        "cd /srv/probe; ln -s nowhere link; mkfifo pipe; mkdir dir; chown deploy:asks dir;"
        "truncate -s 100M large; touch /srv/probe/mounted; mount --bind /srv/probe/plain /srv/probe/mounted;"
        "groupadd -f -r ops; useradd -r -g ops -G deploy,asks -d /srv -s /bin/sh -c 'an operator' oper;"
        "install -d -m 700 /srv/probe/closed; touch /srv/probe/closed/file"
    )
    return machine


def seen(channel, *items):
    return [observe(each, facts) for facts in [probe(channel, items, OWNER)] for each in items]


def differences(channel, *items):
    return {
        f"{each.type} {each.id}": differing(each, found) if found.sight is Sight.PRESENT else found.sight
        for each, found in zip(items, seen(channel, *items), strict=True)
    }


AS_DECLARED = [
    item("file", "/srv/probe/plain", content=b"text\n", mode="640"),
    item("file", "/srv/probe/plain", content=b"text\n", mode="0640", owner="0", group="0"),
    item("file", ODD, content=b"odd"),
    item("env", "/srv/probe/env", set=VARIABLES, secrets={"TOKEN": "token"}, mode="0644"),
    item("symlink", "/srv/probe/link", to="nowhere"),
    item("directory", "/srv/probe/dir", owner="deploy", group="asks"),
    item("group", "ops"),
    item("user", "oper", group="ops", groups=["deploy"], home="/srv", shell="/bin/sh", comment="an operator"),  # noqa: S604
    item("user", "oper", groups=["asks", "deploy"], groups_exclusive=True, home="/srv", shell="/bin/sh",  # noqa: S604
         comment="an operator"),
    item("package", "sudo"),
    item("package", "nginx", state="absent"),
]  # fmt: skip
OTHERWISE = [
    (item("file", "/srv/probe/plain", content=b"other"), ("content", "mode")),
    (item("file", "/srv/probe/large", content=b"small"), ("content",)),
    (item("file", "/srv/probe/dir", content=b""), Sight.OTHER_TYPE),
    (item("file", "/srv/probe/pipe", content=b""), Sight.OTHER_TYPE),
    (item("directory", "/srv/probe/link"), Sight.OTHER_TYPE),
    (item("file", "/srv/probe/new", content=b""), Sight.ABSENT),
    (item("file", "/srv/probe/no/such/parent", content=b""), Sight.ABSENT),
    (item("file", "/srv/probe/plain/below", content=b""), Sight.UNREADABLE),
    (item("env", "/srv/probe/env", set={**VARIABLES, "PORT": "81"}, secrets={"TOKEN": "t"}), ("mode", "set")),
    (item("env", "/srv/probe/env", set=VARIABLES, mode="0644"), ("set",)),
    (item("symlink", "/srv/probe/link", to="somewhere"), ("to",)),
    (item("user", "oper", uid=7000, groups=["root"]), ("comment", "groups", "home", "shell", "uid")),
    (item("user", "oper", groups=["asks"], groups_exclusive=True, ignore=("home", "shell", "comment")), ("groups",)),
    (item("user", "nosuch"), Sight.ABSENT),
    (item("package", "nginx"), Sight.ABSENT),
    (item("package", "sudo", version="1.0", hold=True), ("hold", "version")),
    (item("package", "sudo", state="absent"), ("state",)),
    (item("service", "ssh.service"), Sight.UNREADABLE),
]


def test_items_as_declared_differ_in_nothing(prepared, channel):
    assert differences(channel, *AS_DECLARED) == {f"{each.type} {each.id}": () for each in AS_DECLARED}


@pytest.mark.parametrize(("each", "expected"), OTHERWISE, ids=lambda value: getattr(value, "id", ""))
def test_what_differs_is_named(prepared, channel, each, expected):
    (found,) = differences(channel, each).values()
    assert found == expected


def test_facts_are_the_same_twice_and_nothing_is_left_behind(prepared, channel):
    """Law L7, apart from the clock and the free space, which others change."""
    items = [*AS_DECLARED, *(each for each, _ in OTHERWISE), item("file", "/srv/probe/mounted", content=b"")]
    script, units = probe_script(items, OWNER)
    unstable = ("host", "audit")
    before = prepared.sh("ls -A /run /tmp /var/lib/cluster-gitops 2>/dev/null || :")
    one, two = ({k: v for k, v in channel.run(script).items() if k not in unstable} for _ in range(2))
    assert one == two
    assert prepared.sh("ls -A /run /tmp /var/lib/cluster-gitops 2>/dev/null || :") == before
    assert read_facts(channel.run(script), units).paths["/srv/probe/mounted"].mounted


def test_a_machine_says_what_it_is(prepared, channel):
    facts = probe(channel, [], OWNER)
    assert facts.is_supported
    assert (facts.system["VERSION_CODENAME"], facts.systemd, facts.missing_tools) == ("bookworm", False, ())
    assert facts.machine == hashlib.sha256(prepared.sh("cat /etc/machine-id").encode()).hexdigest()


def test_a_path_that_the_user_cannot_see_is_unreadable(prepared, opening, login):
    below = item("file", "/srv/probe/closed/file", content=b"")
    channel = opening.enter_context(open_channel(prepared.connection(become=None), {}, login))
    assert seen(channel, below)[0].sight is Sight.UNREADABLE
    assert probe(channel, [below], OWNER).paths["/srv/probe/closed/file"] is Missing.UNREADABLE


def test_the_host_computes_the_keyed_digest_of_a_secret(prepared, channel):
    key = bytes(range(32))
    state = "/var/lib/cluster-gitops/keyed"
    prepared.run("mkdir", "-p", state)
    for name, pad in zip(("inner", "outer"), pads(key), strict=True):
        prepared.run("sh", "-c", f"cat > {state}/key.{name}", stdin=pad)
    env = item("env", "/srv/probe/env", secrets={"TOKEN": "token"})
    facts = probe(channel, [env], HostOwner("01HF7YAT00", "keyed"))
    content = env_file({**VARIABLES, "TOKEN": "s3cret"})
    assert facts.paths[env.id].keyed == keyed_digest(key, content)
    assert facts.paths[env.id].sha256 is None
    assert facts.machine == keyed_digest(key, prepared.run("cat", "/etc/machine-id").stdout)
    prepared.run("rm", "-r", state)


def test_the_keyed_digest_is_hmac_over_hexadecimal_digits():
    key, data = b"k" * 32, b"data"
    inner, outer = pads(key)
    assert (
        hmac.new(key, data, "sha256").digest() == hashlib.sha256(outer + hashlib.sha256(inner + data).digest()).digest()
    )
    assert (
        keyed_digest(key, data) == hashlib.sha256(outer + hashlib.sha256(inner + data).hexdigest().encode()).hexdigest()
    )


def test_what_is_no_debian_is_reported(prepared, machines, opening, login):
    odd = machines.start("odd")
    channel = opening.enter_context(open_channel(odd.connection(), {}, login))
    odd.sh("rm /etc/machine-id /etc/os-release /usr/lib/os-release")
    facts = probe(channel, [], OWNER)
    assert not facts.is_supported
    odd.sh("chmod -x /usr/bin/awk /bin/date")
    with pytest.raises(GitopsError) as failure:
        probe(channel, [], OWNER)
    assert failure.value.code == "host_answer_invalid"


def test_services_of_a_running_system(systemd, systemd_channel):
    systemd.run("sh", "-c", "cat > /etc/systemd/system/fails.service", stdin=b"[Service]\nExecStart=/bin/false\n")
    systemd.sh("systemctl daemon-reload; systemctl start fails || :; systemctl mask -q ssh.socket")
    items = [
        item("service", "ssh.service"),
        item("service", "fails.service"),
        item("service", "fails.service", enabled=False, state="stopped"),
        item("service", "nosuch.service"),
        item("service", "ssh.socket", enabled="masked", state="any"),
    ]
    found = [
        differing(each, one) if one.attributes else one.sight
        for each, one in zip(items, seen(systemd_channel, *items), strict=True)
    ]
    assert found == [(), ("state",), (), Sight.ABSENT, ()]
