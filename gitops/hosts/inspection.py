"""Checks of a host that was read: whether it can be managed, and how far it is as declared."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gitops.cluster.hosts.compare import ObservedItem, Sight, differing
from gitops.cluster.model.host import Item, ItemType
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.hosts.facts import HostFacts, PathFact
from gitops.hosts.observation import observe

# Words that YAML reads as themselves.
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null)\Z)[a-z/][A-Za-z0-9_./-]*\Z")
_SKEW_S = 300
_FREE_KIB = 64 << 10
# The Debian packages that bring programs outside of coreutils and the shell.
_PACKAGES = {
    "awk": "mawk",
    "dpkg": "dpkg",
    "dpkg-query": "dpkg",
    "find": "findutils",
    "xargs": "findutils",
    "flock": "util-linux",
    "setpriv": "util-linux",
    "getent": "libc-bin",
    "systemctl": "systemd",
    "systemd-run": "systemd",
    **dict.fromkeys(("groupadd", "groupdel", "groupmod", "useradd", "userdel", "usermod"), "passwd"),
}


@dataclass(frozen=True, slots=True)
class SeenItem:
    """An item with what the host has in its place, and the names of the attributes that differ."""

    item: Item
    observed: ObservedItem
    differs: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What became of the comparison, in words."""
        if self.observed.sight is not Sight.PRESENT:
            detail = f": {self.observed.detail}" if self.observed.detail else ""
            return f"{self.observed.sight.value.replace('_', ' ')}{detail}"
        return f"different: {', '.join(self.differs)}" if self.differs else "as declared"


def compare_items(items: Sequence[Item], facts: HostFacts) -> list[SeenItem]:
    """Return these items, in order, with what the host has."""
    found = [(each, observe(each, facts)) for each in items]
    return [SeenItem(each, seen, differing(each, seen) if seen.sight is Sight.PRESENT else ()) for each, seen in found]


def check_host(facts: HostFacts, host: str, now: int, problems: Diagnostics) -> None:
    """Report what keeps a host from being managed. `now` is in seconds since 1970."""
    place = f"host.{host}"
    if not facts.is_supported:
        name = facts.system.get("PRETTY_NAME", "an unknown system")
        problems.add(Code.HOST_UNSUPPORTED, place, f"the host runs {name}; only Debian and its relatives are supported")
    elif not facts.systemd:
        detail = "systemd is not running on the host, so it can have no services"
        problems.add(Code.HOST_UNSUPPORTED, place, detail, severity=Severity.WARNING)
    for tool in facts.missing_tools:
        package = _PACKAGES.get(tool, "coreutils")
        detail = f"{tool} is missing; it is in the package {package}"
        problems.add(Code.HOST_TOOL_MISSING, place, detail, fix=f"on the host: apt-get install {package}")
    if facts.broken:
        problems.add(Code.HOST_PACKAGES_BROKEN, place, f"dpkg --audit names {', '.join(facts.broken)}")
    if facts.free_kib < _FREE_KIB:
        problems.add(Code.HOST_DISK_FULL, place, f"the state folder's file system has {facts.free_kib >> 10} MiB free")
    ahead = facts.clock - now
    if abs(ahead) >= _SKEW_S:
        way = "ahead" if ahead > 0 else "behind"
        problems.add(Code.HOST_CLOCK_SKEW, place, f"the clock is {abs(ahead)} seconds {way}")


def facts_form(facts: HostFacts) -> dict[str, Any]:
    """Return the JSON form of what a host says about itself."""
    system: Mapping[str, str] = facts.system
    return {
        "system": system.get("PRETTY_NAME", ""),
        "os": system.get("ID", ""),
        "version": system.get("VERSION_ID", ""),
        "kernel": facts.kernel,
        "architecture": facts.architecture,
        "systemd": facts.systemd,
        "boot": facts.boot,
        "clock": facts.clock,
        "free_mib": facts.free_kib >> 10,
        "missing_tools": list(facts.missing_tools),
        "run": facts.fence,
    }


def described(item: Item, facts: HostFacts, text: str | None) -> dict[str, Any] | None:
    """Return an item as a resource file declares it with what the host has, None if it isn't there.

    `item` is of this type with the defaults of all attributes; only others are listed. `text` is the content of a file.
    """
    seen = observe(item, facts)
    if seen.sight is not Sight.PRESENT:
        return None
    found: dict[str, Any] = {item.type.value: item.id}
    found |= {
        name: value for name, value in _declarable(item, facts, seen).items() if item.attributes.get(name) != value
    }
    if text is not None:
        found["content"] = text
    return found


def _declarable(item: Item, facts: HostFacts, seen: ObservedItem) -> dict[str, Any]:
    if item.type is ItemType.USER:
        user = facts.users[item.id]
        further = sorted(user.groups - {user.group})
        return {**seen.attributes, "uid": user.uid, "group": user.group, "groups": further}
    if item.type is ItemType.GROUP:
        return {"gid": facts.groups[item.id]}
    if item.type is ItemType.PACKAGE:
        return {**seen.attributes, "version": facts.packages[item.id].version}
    return {name: value for name, value in seen.attributes.items() if name not in ("content", "keyed", "result")}


def is_private(item: Item, facts: HostFacts) -> bool:
    """Return True if not everybody on the host can read the file of an item."""
    found = facts.paths.get(item.path or "")
    return not isinstance(found, PathFact) or not found.mode & 0o004


def resource_file(resources: Sequence[Mapping[str, Any]]) -> str:
    """Return a resource file with these items."""
    lines = ["version: 1", "resources:"]
    for each in resources:
        for number, (name, value) in enumerate(each.items()):
            text = json.dumps(value, ensure_ascii=False)
            plain = isinstance(value, str) and _PLAIN.match(value) is not None
            lines.append(f"  {'  ' if number else '- '}{name}: {value if plain else text}")
    return "\n".join(lines)
