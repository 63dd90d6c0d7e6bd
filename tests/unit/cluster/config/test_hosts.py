"""What a folder declares about hosts: what is refused at which place, normal forms, digests and references."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.difference import Differences
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address, Kind, host_address, item_address
from gitops.cluster.model.host import Item, ItemType, env_file, read_connection, read_item
from gitops.core.canonical import digest
from tests.support.cases import read_yaml
from tests.support.declared_hosts import HOSTS, KEY, KNOWN, host_files, load_hosts_of
from tests.support.pages import ROOT

CASES: dict[str, dict[str, Any]] = read_yaml(ROOT / "tests" / "data" / "hosts" / "declared.yaml")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_refused_is_said_at_its_place(case: dict[str, Any]) -> None:
    items = case.get("items", "").replace("LONG", "x" * 2048)
    files = host_files(items, case.get("hosts", HOSTS), case.get("known", KNOWN), case.get("file"))
    found = load_hosts_of({**files, "big": b"x" * (1 << 20) + b"x"}).diagnostics
    said = [f"{each.code} {each.source} {each.message}" for each in found]
    assert len(said) == len(case["found"]), said
    for line, expected in zip(said, case["found"], strict=True):
        assert line.startswith(expected)


CODES = [
    "host_account_reserved",
    "host_address_invalid",
    "host_check_invalid",
    "host_check_target",
    "host_check_unsupported",
    "host_content_ambiguous",
    "host_duplicate",
    "host_env_invalid",
    "host_file_missing",
    "host_file_too_large",
    "host_jump_cycle",
    "host_key_missing",
    "host_mode_invalid",
    "host_path_conflict",
    "host_path_invalid",
    "host_path_protected",
    "host_resource_type",
    "host_self_lockout",
    "host_substitute_unknown",
    "host_unit_invalid",
    "host_unknown",
    "host_unknown_key",
    "host_value_invalid",
    "host_version_invalid",
]


def test_every_code_of_a_declaration_has_a_case() -> None:
    found = {said.partition(" ")[0] for case in CASES.values() for said in case["found"]}
    assert sorted(code for code in found if code.startswith("host_")) == CODES


def test_a_folder_has_limits() -> None:
    many = "".join(f"  h{n}: {{transport: local}}\n" for n in range(101))
    items = "".join(f"  - package: p{n}\n" for n in range(501))
    for files in (host_files(hosts=many), host_files(items)):
        assert load_hosts_of(files).diagnostics.codes() == ("host_limit_exceeded", "host_limit_exceeded")[:1]


FULL = """\
  - package: curl
  - group: gitops
  - user: gitops
    group: gitops
    home: /srv/gitops
  - directory: /srv/gitops
    owner: gitops
    group: gitops
  - file: /etc/motd
    content: "${{ host.name }} has ${{vars.workers}} workers at ${{ host.address }}\\n"
    substitute: true
  - env: /srv/gitops/serve.env
    owner: gitops
    set: {B: 'say "$HOME"', A: x}
  - symlink: /srv/current
    to: /srv/gitops
  - unit: gitops.service
    sections:
      Unit: {After: network.target}
      Service: {User: gitops, EnvironmentFile: /srv/gitops/serve.env, ExecStart: /usr/bin/curl -s, Restart: true}
  - unit: gitops.timer
    content: |
      # daily
      [Timer]
      OnCalendar=daily
  - service: gitops.service
    triggers: [host.web1.file./etc/motd]
  - service: gitops.timer
  - ready: gitops
    checks: [{service: gitops.service}, {http: "http://127.0.0.1:8080/healthz", contains: ok}]
"""


def items_of(text: str) -> dict[Address, Item]:
    loaded = load_hosts_of(host_files(text))
    assert loaded.diagnostics.codes() == ()
    return {a: read_item(r.content or b"") for a, r in loaded.resources.items() if a.item is not None}


def test_an_item_in_normal_form_has_all_attributes_and_what_it_writes() -> None:
    loaded = load_hosts_of(host_files(FULL))
    motd = loaded.resources[Address("host.web1.file./etc/motd")]
    text = b"web1 has 2 workers at 10.0.0.1\n"
    assert motd.contents == {digest(text): text}
    item = read_item(motd.content or b"")
    assert (item.digest, item.data) == (motd.digest, motd.content)
    assert dict(item.attributes) == {
        "owner": "root",
        "group": "root",
        "mode": "0644",
        "check": None,
        "create_only": False,
        "on_remove": "delete",
        "content": {"sha256": digest(text), "size": len(text)},
    }
    assert (item.timeout_s, item.adopt, item.path, item.secrets) == (60, "refuse", "/etc/motd", ())
    unit = read_item(loaded.resources[Address("host.web1.unit.gitops.service")].content or b"")
    assert (unit.path, unit.attributes["uses"]) == (
        "/etc/systemd/system/gitops.service",
        {
            "account_user": ["gitops"],
            "systemd_environment_file": ["/srv/gitops/serve.env"],
            "systemd_exec_path": ["/usr/bin/curl"],
        },
    )
    (content,) = loaded.resources[Address("host.web1.unit.gitops.service")].contents.values()
    assert content.decode().endswith("ExecStart=/usr/bin/curl -s\nRestart=yes\n")


def test_a_secret_is_a_name_and_its_file_is_private() -> None:
    found = items_of("  - file: /etc/token\n    secret: token\n  - env: /etc/env\n    secrets: {A: token, B: other}\n")
    token, env = found[Address("host.web1.file./etc/token")], found[Address("host.web1.env./etc/env")]
    assert (token.attributes["content"], token.attributes["mode"], token.secrets) == (
        {"secret": "token"},
        "0600",
        ("token",),
    )
    assert (env.secrets, env.content, token.content) == (("other", "token"), None, None)


def test_an_environment_file_is_sorted_and_quoted() -> None:
    assert env_file({"B": 'a "$`\\', "A": ""}) == b'A=""\nB="a \\"\\$\\`\\\\"\n'


# Law L6

orders = st.permutations(
    ["owner: a", "group: b", 'mode: "0640"', "content: x", "on_remove: keep", "ignore: [mode, owner]"]
)


@given(orders)
def test_law_the_order_of_keys_does_not_matter(lines: list[str]) -> None:
    text = "  - file: /etc/x\n" + "".join(f"    {line}\n" for line in lines)
    (item,) = items_of(text).values()
    (other,) = items_of("  - file: /etc/x\n" + "".join(f"    {line}\n" for line in sorted(lines))).values()
    assert item.digest == other.digest
    assert read_item(item.data).data == item.data


def test_a_host_is_its_connection_and_its_keys() -> None:
    first = load_hosts_of(host_files(known=f"# a comment\nhost.web1   {KEY} root@web1\nhost.web2 KEY\n"))
    host = first.resources[host_address("web1")]
    connection = read_connection(host.content or b"")
    assert (connection.address, connection.become, connection.keys) == ("10.0.0.1", "root", (f"host.web1 {KEY}",))
    same = load_hosts_of(host_files(hosts=HOSTS.replace("tags: [web]", "tags: [web, eu]")))
    assert same.resources[host_address("web1")].digest == host.digest
    other = load_hosts_of(host_files(known=KNOWN + f"@cert-authority host.web1 {KEY}\n"))
    assert other.resources[host_address("web1")].digest != host.digest


# Scenario 7


def test_a_folder_without_hosts_keeps_its_digest() -> None:
    desired = load_hosts_of({"cluster.yaml": b"version: 1\n"}).desired
    assert desired is not None
    assert desired.config_digest == "b08ffeabb57167736903fcf0745d24ff905911ee1c130eda61b255a911c11df9"
    empty = load_hosts_of({"cluster.yaml": b"version: 1\nhosts: {}\n"}).desired
    assert empty is not None
    assert empty.config_digest != desired.config_digest


# Scenario 8

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(names, st.sampled_from(ItemType), ids)
def test_law_an_address_gives_its_host_type_and_id(host: str, kind: ItemType, id_: str) -> None:
    address = item_address(host, kind, id_)
    assert (address.kind, address.host, address.item) == (Kind.HOST, host, (kind, id_))
    assert (address.name, address.graph, address.compute) == (f"{kind}.{id_}", None, None)


@pytest.mark.parametrize(
    ("text", "kind", "host", "item"),
    [
        ("host.a.file./x.y/z", Kind.HOST, "a", (ItemType.FILE, "/x.y/z")),
        ("host.a", Kind.HOST, "a", None),
        ("host.a.", Kind.UNKNOWN, None, None),
        ("host.a.file", Kind.UNKNOWN, None, None),
        ("host.a.file.", Kind.UNKNOWN, None, None),
        ("host.a.command.x", Kind.UNKNOWN, None, None),
        ("host.", Kind.UNKNOWN, None, None),
        ("hosts.a", Kind.UNKNOWN, None, None),
    ],
)
def test_an_address_of_another_form_is_of_no_known_kind(text: str, kind: Kind, host: str | None, item: Any) -> None:
    address = Address(text)
    assert (address.kind, address.host, address.item) == (kind, host, item)


def test_items_are_narrowed_to_hosts_and_tags() -> None:
    both = "  web1: {transport: ssh, address: 10.0.0.1, user: deploy, tags: [web], resources: [hosts/base.yaml]}\n"
    both += both.replace("web1", "db1").replace("10.0.0.1", "10.0.0.2").replace("[web]", "[db]")
    file = (
        'version: 1\nvars:\n  web: {n: "1"}\n  db: {n: "2"}\nresources:\n'
        '  - package: curl\n    on: [db1]\n  - package: nginx\n    on: ["tag:web"]\n'
        "  - file: /etc/n\n    content: ${{ vars.n }}\n    substitute: true\n"
    )
    loaded = load_hosts_of(host_files(hosts=both, known="host.web1 KEY\nhost.db1 KEY\n", file=file))
    assert list(loaded.resources) == [
        "host.db1",
        "host.db1.file./etc/n",
        "host.db1.package.curl",
        "host.web1",
        "host.web1.file./etc/n",
        "host.web1.package.nginx",
    ]
    assert [b"".join(r.contents.values()) for r in loaded.resources.values() if r.contents] == [b"2", b"1"]


def test_what_a_file_of_a_host_changes_has_an_author() -> None:
    files = {**host_files("  - file: /etc/x\n    source: motd\n  - package: curl\n"), "motd": b"a\n"}
    old, new = MemoryTree(files), MemoryTree({**files, "motd": b"b\n"})
    assert Differences().addresses(old, new, ["motd"]) == {"host.web1.file./etc/x"}
    moved = MemoryTree({**files, "cluster.yaml": files["cluster.yaml"].replace(b"10.0.0.1", b"10.0.0.9")})
    assert Differences().addresses(old, moved, ["cluster.yaml"]) == {"host.web1"}
    narrowed = MemoryTree({**files, "hosts/base.yaml": files["hosts/base.yaml"] + b"    on: [web2]\n"})
    assert Differences().addresses(old, narrowed, ["hosts/base.yaml"]) == {"host.web1.package.curl"}


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_law_any_resource_file_gives_problems_on_one_line_and_never_an_exception(data: bytes) -> None:
    found = load_hosts_of({**host_files(), "hosts/base.yaml": data})
    assert all("\n" not in each.message for each in found.diagnostics)
