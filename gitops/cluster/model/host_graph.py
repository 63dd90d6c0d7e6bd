"""The order and the locks of items, derived from their normal forms. Pure functions: the same items give the same result.

An item *refers to* another resource if that must be there first. A reference determines the order of creation, and of
removal in reverse: see `gitops.cluster.plan.graph`.

| reason | an item refers to | because of |
| --- | --- | --- |
| `host_first` | its host | every item |
| `jump` | the host through which its host is reached | `jump` |
| `explicit_dependency` | any resource | `depends_on` |
| `parent_directory` | the nearest declared directory or link above its path | its path |
| `owner_account`, `group_account` | a user, a group | `owner`, `group`, `groups` |
| `symlink_target_path` | the nearest directory at or above the target of a link | `to` |
| `account_user`, `account_group` | a user, a group | `User=`, `Group=` and `SupplementaryGroups=` of a unit |
| `systemd_environment_file`, `systemd_environment_path`, `systemd_read_write_path`, `systemd_exec_path`, `systemd_credential` | the nearest item at or above a path | paths in a unit |
| `systemd_unit` | a unit or drop-in | the name of a service |
| `systemd_timer_service` | the unit that a timer, socket or path starts | its name, `Unit=`, `Service=` |
| `package_provides` | a package | programs that no path item provides, services without a unit |
| `package_source` | files of apt that say where packages come from | every package |
| `triggers` | any item | `triggers` of a service |
| `check_path` | a path or package | the program of `check` and of `exec` |
| `readiness_systemd`, `readiness_http` | a service; all services of the asked host | checks |

The nodes of a host hold these locks, which never conflict with those of another host:

| key | mode | held by |
| --- | --- | --- |
| `state:<host>` | shared | all nodes; the fence holds it exclusively |
| `session:<host>/<n>` | exclusive | every node: the n-th of the host's sessions |
| `pkg:<host>` | exclusive | packages |
| `accounts:<host>` | exclusive | users and groups |
| `systemd:<host>` | exclusive | units, services, reloads |
| `unit:<host>/<unit>` | exclusive | a unit with its drop-ins and its service |
| `path:<host>:<path>` | exclusive, shared on each directory above | paths |
"""  # noqa: E501 - the table

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from posixpath import dirname
from types import MappingProxyType
from typing import Any, NamedTuple

from gitops.cluster.model.address import Address, host_address, item_address
from gitops.cluster.model.host import PATH_TYPES, STATE_FOLDER, Connection, Item, ItemType
from gitops.cluster.model.plan import LockClaim, LockMode
from gitops.cluster.model.resource import Dependency

_APT_SOURCES = tuple(
    f"/etc/apt/{name}"
    for name in (
        "sources.list",
        "sources.list.d",
        "keyrings",
        "trusted.gpg.d",
        "preferences",
        "preferences.d",
        "auth.conf.d",
    )
)
_STARTERS = (".timer", ".socket", ".path")
_UNIT_PATHS = (
    "systemd_environment_file",
    "systemd_environment_path",
    "systemd_read_write_path",
    "systemd_credential",
)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Why(NamedTuple):
    """Why an item refers to a resource: the label of the edge, and its detail."""

    reason: str
    detail: str = ""


References = Mapping[Dependency, Why]


def host_references(
    items: Mapping[Address, Item], connections: Mapping[Address, Connection] = MappingProxyType({})
) -> dict[Dependency, Why]:
    """Return the references of each item and host, each with the first matching reason in this module's table.

    `items` and `connections` are those of one state: declared, or recorded.
    """
    index = {host: _Host(of) for host, of in _by_host(items).items()}
    addresses = {each.address: each.name for each in connections.values() if each.address}
    found: dict[Dependency, Why] = {}
    for address in sorted(items):
        for target, why in _references(items[address], index, addresses):
            if target != address:
                found.setdefault(Dependency(address, target), why)
    for address, each in sorted(connections.items()):
        if each.jump is not None:
            found[Dependency(address, host_address(each.jump))] = Why("jump", each.jump)
    return found


def _by_host(items: Mapping[Address, Item]) -> Mapping[str, list[Item]]:
    found: defaultdict[str, list[Item]] = defaultdict(list)
    for address in sorted(items):
        found[items[address].host].append(items[address])
    return found


class _Host:
    """The items of one host by what others refer to."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = tuple(items)
        self.paths = {each.path: each for each in self.items if each.path is not None}
        self.known = {(each.type, each.id): each for each in self.items}

    def of_type(self, *types: ItemType) -> Iterator[Item]:
        return (each for each in self.items if each.type in types)

    def above(self, path: str, *types: ItemType) -> Item | None:
        """Return the nearest item of these types above a path."""
        while path != "/":
            path = dirname(path)
            found = self.paths.get(path)
            if found is not None and found.type in types:
                return found
        return None

    def at_or_above(self, path: str) -> Item | None:
        """Return the nearest item at a path or above it."""
        return self.paths.get(path) or self.above(path, *PATH_TYPES)

    def unit_files(self, unit: str) -> Iterator[Item]:
        """Yield the file of a unit and its drop-ins."""
        return (each for each in self.of_type(ItemType.UNIT) if each.id.partition("/")[0] == unit)

    def provider(self, program: str) -> Item | None:
        """Return the package that brings a program or unit."""
        names = {program, program.rpartition("/")[2]}
        packages = self.of_type(ItemType.PACKAGE)
        return next((each for each in packages if not names.isdisjoint(each.attributes["provides"])), None)


def _at(item: Item) -> Address:
    return item_address(item.host, item.type, item.id)


def _references(item: Item, index: Mapping[str, _Host], addresses: Mapping[str, str]) -> Iterator[tuple[Address, Why]]:
    host = index[item.host]
    for target in item.depends_on:
        yield Address(target), Why("explicit_dependency", target)
    yield host_address(item.host), Why("host_first", item.host)
    if item.path is not None:
        parent = host.above(item.path, ItemType.DIRECTORY, ItemType.SYMLINK)
        if parent is not None:
            yield _at(parent), Why("parent_directory", parent.id)
    yield from _accounts(item, host)
    match item.type:
        case ItemType.SYMLINK:
            yield from _link(item, host)
        case ItemType.UNIT:
            yield from _unit(item, host)
        case ItemType.SERVICE:
            yield from _service(item, host)
        case ItemType.READY:
            yield from _ready(item, host, index, addresses)
        case ItemType.PACKAGE:
            yield from _sources(item, host)
        case ItemType.FILE if item.attributes["check"]:
            yield from _program(item.attributes["check"][0], host, "check_path")


def _accounts(item: Item, host: _Host) -> Iterator[tuple[Address, Why]]:
    named: list[tuple[ItemType, str, str]] = []
    if item.path is not None and "owner" in item.attributes:
        named.append((ItemType.USER, item.attributes["owner"], "owner_account"))
        named.append((ItemType.GROUP, item.attributes["group"], "group_account"))
    if item.type is ItemType.USER:
        groups = [*filter(None, [item.attributes["group"]]), *item.attributes["groups"]]
        named += [(ItemType.GROUP, each, "group_account") for each in groups]
        home = host.at_or_above(item.attributes["home"])
        # A home that belongs to the user comes after it, and any other one before it.
        if home is not None and home.attributes.get("owner") != item.id:
            yield _at(home), Why("parent_directory", home.id)
    if item.type is ItemType.UNIT:
        uses = item.attributes.get("uses", {})
        named += [(ItemType.USER, each, "account_user") for each in uses.get("account_user", ())]
        named += [(ItemType.GROUP, each, "account_group") for each in uses.get("account_group", ())]
    for kind, name, reason in named:
        target = host.known.get((kind, name))
        if target is None and kind is ItemType.GROUP:
            # The group that a user gets with its name.
            target = host.known.get((ItemType.USER, name))
        if target is not None:
            yield _at(target), Why(reason, name)


def _link(item: Item, host: _Host) -> Iterator[tuple[Address, Why]]:
    to = item.attributes["to"]
    found = host.at_or_above(to) if to.startswith("/") else None
    while found is not None and found.type is not ItemType.DIRECTORY:
        found = host.above(found.id, ItemType.DIRECTORY)
    if found is not None:
        yield _at(found), Why("symlink_target_path", found.id)


def _unit(item: Item, host: _Host) -> Iterator[tuple[Address, Why]]:
    uses = item.attributes.get("uses", {})
    for reason in _UNIT_PATHS:
        for path in uses.get(reason, ()):
            found = host.at_or_above(path)
            if found is not None:
                yield _at(found), Why(reason, path)
    for program in uses.get("systemd_exec_path", ()):
        yield from _program(program, host, "systemd_exec_path")


def _program(program: str, host: _Host, reason: str) -> Iterator[tuple[Address, Why]]:
    """Yield the item that brings a program."""
    found = host.at_or_above(program) if program.startswith("/") else None
    if found is not None:
        yield _at(found), Why(reason, program)
    elif (package := host.provider(program)) is not None:
        yield _at(package), Why("package_provides", program)


def _service(item: Item, host: _Host) -> Iterator[tuple[Address, Why]]:
    units = list(host.unit_files(item.id))
    for unit in units:
        yield _at(unit), Why("systemd_unit", unit.id)
    if not any("/" not in unit.id for unit in units):
        stem = item.id.rpartition(".")[0]
        package = host.provider(item.id) or host.known.get((ItemType.PACKAGE, stem))
        if package is not None:
            yield _at(package), Why("package_provides", item.id)
    if item.id.endswith(_STARTERS):
        stem = item.id.rpartition(".")[0]
        started = {f"{stem}.service"}
        for unit in units:
            started.update(unit.attributes.get("uses", {}).get("systemd_unit", ()))
        for name in sorted(started):
            for unit in host.unit_files(name):
                yield _at(unit), Why("systemd_timer_service", name)
    for target in item.attributes["triggers"]:
        yield Address(target), Why("triggers", target)


def _ready(
    item: Item, host: _Host, index: Mapping[str, _Host], addresses: Mapping[str, str]
) -> Iterator[tuple[Address, Why]]:
    for check in item.attributes["checks"]:
        if "service" in check:
            service = host.known.get((ItemType.SERVICE, check["service"]))
            if service is not None:
                yield _at(service), Why("readiness_systemd", service.id)
        elif "exec" in check:
            yield from _program(check["exec"][0], host, "check_path")
        else:
            asked = check_target(check)
            other = host if asked is None or asked in _LOOPBACK else index.get(addresses.get(asked, item.host), host)
            for service in other.of_type(ItemType.SERVICE):
                yield _at(service), Why("readiness_http", check.get("http") or check["tcp"])


def check_target(check: Mapping[str, Any]) -> str | None:
    """Return the name or address that a check connects to; empty if it is none, and None for other checks."""
    if "tcp" in check:
        return str(check["tcp"].rpartition(":")[0].removeprefix("[").removesuffix("]"))
    if "http" not in check:
        return None
    scheme, separator, rest = check["http"].partition("://")
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    if scheme not in ("http", "https") or not separator or "@" in authority:
        return ""
    if authority.startswith("["):
        return str(authority[1:].partition("]")[0])
    return str(authority.partition(":")[0])


def _sources(item: Item, host: _Host) -> Iterator[tuple[Address, Why]]:
    address = _at(item)
    for path, other in sorted(host.paths.items()):
        says = any(path == each or path.startswith(f"{each}/") for each in _APT_SOURCES)
        if says and other.type in PATH_TYPES and address not in other.depends_on:
            yield _at(other), Why("package_source", path)


def host_locks(item: Item) -> tuple[LockClaim, ...]:
    """Return the locks of an item's node, sorted, without its session."""
    host = item.host
    found = {LockClaim(f"state:{host}", LockMode.SHARED)}
    if item.type is ItemType.PACKAGE:
        found.add(LockClaim(f"pkg:{host}"))
    if item.type in (ItemType.USER, ItemType.GROUP):
        found.add(LockClaim(f"accounts:{host}"))
    if item.type in (ItemType.UNIT, ItemType.SERVICE):
        found |= {LockClaim(f"systemd:{host}"), LockClaim(f"unit:{host}/{item.id.partition('/')[0]}")}
    if (path := item.path) is not None:
        found.add(LockClaim(f"path:{host}:{path}"))
        while path != "/":
            path = dirname(path)
            found.add(LockClaim(f"path:{host}:{path}", LockMode.SHARED))
    return tuple(sorted(found))


def locks_out(item: Item, connection: Connection) -> bool:
    """Return True if the program itself needs this path to reach the host or to keep its state there."""
    path, user = item.path, connection.user
    if path is None:
        return False
    home = "/root" if user == "root" else f"/home/{user}"
    own = {"/etc/sudoers", f"/etc/sudoers.d/{user}", f"{home}/.ssh", f"{home}/.ssh/authorized_keys"} if user else set()
    return path in own or path == STATE_FOLDER or path.startswith(f"{STATE_FOLDER}/")


_GUARDED = (
    ("/etc/ssh", "the SSH server"),
    ("/etc/pam.d", "logins"),
    ("/etc/security", "logins"),
    ("/etc/sudoers.d", "sudo"),
    ("/etc/nftables.conf", "the firewall"),
    ("/etc/nftables", "the firewall"),
    ("/etc/iptables", "the firewall"),
    ("/etc/ufw", "the firewall"),
    ("/etc/network", "the network"),
    ("/etc/netplan", "the network"),
    ("/etc/systemd/network", "the network"),
    ("/etc/systemd/networkd.conf", "the network"),
    ("/etc/hosts.allow", "logins"),
    ("/etc/hosts.deny", "logins"),
)
_GUARDED_UNITS = {
    "ssh": "the SSH server",
    "sshd": "the SSH server",
    "nftables": "the firewall",
    "netfilter-persistent": "the firewall",
    "ufw": "the firewall",
    "firewalld": "the firewall",
    "networking": "the network",
    "systemd-networkd": "the network",
    "NetworkManager": "the network",
}


def confirms(item: Item, connection: Connection) -> str | None:
    """Return what a change of the item could break between this program and the host, or None.

    Such a change must be confirmed over a new connection; otherwise the host takes it back.
    """
    path = item.path
    if path is not None:
        for below, what in _GUARDED:
            if path == below or path.startswith(f"{below}/"):
                return what
    if item.type in (ItemType.UNIT, ItemType.SERVICE):
        return _GUARDED_UNITS.get(item.id.partition("/")[0].rpartition(".")[0])
    if item.type in (ItemType.USER, ItemType.GROUP) and item.id == connection.user:
        return "the account that connects"
    return None
