"""The `hosts` section of `cluster.yaml`: the machines, how they are reached, and the files that list their items.

Its structure is read with the file. The load checks it on the same declaration in its JSON form, as for `compute`, and
then reads the resource files: see `gitops.cluster.config.host_items`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from gitops.cluster.config.host_forms import LINE, TAG, is_address, is_user
from gitops.cluster.config.rule_forms import (
    CHOSEN_KEY,
    Form,
    Place,
    choice,
    keyed,
    listed,
    mapping,
    optional,
    place_in,
    text,
    whole,
)
from gitops.cluster.model.address import is_name
from gitops.cluster.model.host import Connection, Transport
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlNode, shown

MAX_HOSTS = 100
_HIGHEST_PORT = 65535
_NUMBER = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredHost:
    """One entry of `hosts`. `resources` are paths of files in the folder."""

    transport: str
    address: str = ""
    port: int = 22
    user: str = ""
    become: str | None = None
    jump: str | None = None
    sessions: int = 8
    resources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    vars: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def connection(self, name: str, keys: tuple[str, ...] = ()) -> Connection:
        """Return how the host is reached, with its lines of `hosts/known_hosts`."""
        return Connection(
            name=name,
            transport=Transport(self.transport),
            address=self.address,
            port=self.port,
            user=self.user,
            become=self.become,
            jump=self.jump,
            sessions=self.sessions,
            keys=keys,
        )


_HOST = mapping(
    DeclaredHost,
    {
        "transport": choice(*Transport),
        "address": LINE,
        "port": whole(-_NUMBER, _NUMBER),
        "user": LINE,
        "become": optional(LINE),
        "jump": optional(LINE),
        "sessions": whole(1, 64),
        "resources": listed(text(str.strip, "expected the path of a file in this folder")),
        "tags": listed(TAG),
        "vars": keyed(text(is_name, "use letters, digits, _ and -, starting with a letter or _"), LINE),
    },
)
HOSTS_FORM: Form[Mapping[str, DeclaredHost]] = keyed(text(bool, "a host has a name"), _HOST)
"""The form of the section."""


def read_hosts(value: object) -> Mapping[str, DeclaredHost]:
    """Read the section from plain values, which come from YAML or from its JSON form.

    Raises Refused with places below the section.
    """
    return HOSTS_FORM(value)


def hosts_form(declared: Mapping[str, DeclaredHost]) -> dict[str, Any]:
    """Return the JSON form that the configuration digest covers. `read_hosts` converts it back."""
    return {
        name: {
            "transport": each.transport,
            "address": each.address,
            "port": each.port,
            "user": each.user,
            "become": each.become,
            "jump": each.jump,
            "sessions": each.sessions,
            "resources": list(each.resources),
            "tags": sorted(set(each.tags)),
            "vars": dict(sorted(each.vars.items())),
        }
        for name, each in sorted(declared.items())
    }


def check_hosts(
    declared: Mapping[str, DeclaredHost], section: Callable[[], YamlNode], found: Diagnostics
) -> frozenset[str]:
    """Report contradictions with their places in `cluster.yaml`. `section` is called only if there is a problem.

    Returns the names of the hosts whose items can be read.
    """
    wrong: set[str] = set()
    for code, place, message in _problems(declared):
        path, source = place_in("hosts", section(), place, message)
        found.add(code, path, message, source=source)
        wrong.add(str(place[0]) if place else "")
    return frozenset(declared) - wrong


def _problems(declared: Mapping[str, DeclaredHost]) -> Iterator[tuple[Code, Place, str]]:
    if len(declared) > MAX_HOSTS:
        yield Code.HOST_LIMIT_EXCEEDED, (), f"{len(declared)} hosts are declared, and {MAX_HOSTS} are allowed"
    first: dict[tuple[str, int], str] = {}
    for name, each in sorted(declared.items()):
        if not is_name(name):
            message = f"'{shown(name)}' is not a name: use letters, digits, _ and -, starting with a letter or _"
            yield Code.INVALID_RESOURCE_ID, (name, CHOSEN_KEY), message
        if each.become is not None and not is_user(each.become):
            yield Code.HOST_ADDRESS_INVALID, (name, "become"), f"'{shown(each.become)}' is not the name of a user"
        if each.transport == Transport.LOCAL:
            for key in ("address", "user", "jump"):
                if getattr(each, key):
                    yield Code.HOST_ADDRESS_INVALID, (name, key), "a local host is not connected to; delete this key"
            continue
        yield from _unreachable(name, each)
        other = first.setdefault((each.address.casefold(), each.port), name)
        if other != name and each.address:
            message = f"the host {other} already has the address {shown(each.address)} and the port {each.port}"
            yield Code.HOST_DUPLICATE, (name, "address"), message
        if each.jump is not None:
            yield from _jumps(name, each.jump, declared)


def _unreachable(name: str, each: DeclaredHost) -> Iterator[tuple[Code, Place, str]]:
    if not is_address(each.address):
        start = f"'{shown(each.address)}' is not" if each.address else "an ssh host needs"
        yield Code.HOST_ADDRESS_INVALID, (name, "address"), f"{start} a DNS name or an IP address"
    if not 1 <= each.port <= _HIGHEST_PORT:
        yield Code.HOST_ADDRESS_INVALID, (name, "port"), f"{each.port} is not a port from 1 to {_HIGHEST_PORT}"
    if not is_user(each.user):
        start = f"'{shown(each.user)}' is not" if each.user else "an ssh host needs"
        yield Code.HOST_ADDRESS_INVALID, (name, "user"), f"{start} the name of a user"


def _jumps(name: str, jump: str, declared: Mapping[str, DeclaredHost]) -> Iterator[tuple[Code, Place, str]]:
    if jump not in declared or declared[jump].transport == Transport.LOCAL:
        near = did_you_mean(jump, sorted(declared))
        why = "is not declared" if jump not in declared else "is local"
        yield Code.HOST_UNKNOWN, (name, "jump"), f"the host '{shown(jump)}' {why}{f'; {near}' if near else ''}"
        return
    way = [name]
    at: str | None = jump
    while at is not None and at in declared and at not in way:
        way.append(at)
        at = declared[at].jump
    if at == name:
        over = ", ".join(way[1:]) or "itself"
        yield Code.HOST_JUMP_CYCLE, (name, "jump"), f"the way from {name} leads back to {name}, over {over}"
