"""Compares what a host has with an item, in the spelling of the item's normal form.

An attribute that the host satisfies has the declared value, so that `owner: "0"` and `owner: root` are equal where they mean
the same user, and so do groups that a user has in addition. Any other attribute has the value on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.cluster.hosts.compare import ObservedItem, Sight
from gitops.cluster.model.host import Item, ItemType, env_file
from gitops.core.canonical import digest
from gitops.hosts.facts import HostFacts, Missing, PathFact, PathType

_TYPES = {ItemType.DIRECTORY: PathType.DIRECTORY, ItemType.SYMLINK: PathType.SYMLINK}
_TYPE_WORDS = {
    PathType.FILE: "file",
    PathType.DIRECTORY: "directory",
    PathType.SYMLINK: "symbolic link",
    PathType.FIFO: "named pipe",
    PathType.SOCKET: "socket",
    PathType.BLOCK: "block device",
    PathType.CHARACTER: "character device",
}
# The section of a probe that answers for a type.
_SECTIONS = {
    ItemType.PACKAGE: "packages",
    ItemType.GROUP: "groups",
    ItemType.USER: "users",
    ItemType.SERVICE: "units",
}
# Units that nothing can enable or disable by themselves.
_NEITHER = ("static", "indirect", "generated", "alias", "transient")
_ABSENT = ObservedItem(Sight.ABSENT)


def observe(item: Item, facts: HostFacts) -> ObservedItem:
    """Return what the host has in place of an item that the probe asked for."""
    section = _SECTIONS.get(item.type, "paths")
    if item.type is ItemType.READY:
        return ObservedItem(Sight.PRESENT)
    if section in facts.unread:
        return ObservedItem(Sight.UNREADABLE, detail=f"the host's answer about {section}: {facts.unread[section]}")
    match item.type:
        case ItemType.PACKAGE:
            return _package(item, facts)
        case ItemType.GROUP:
            return _group(item, facts)
        case ItemType.USER:
            return _user(item, facts)
        case ItemType.SERVICE:
            return _service(item, facts)
    return _path(item, facts)


def _package(item: Item, facts: HostFacts) -> ObservedItem:
    stated, found = item.attributes, facts.packages.get(item.id)
    if found is None:
        # A package that must be absent is as declared.
        present = stated["state"] == "absent"
        return ObservedItem(Sight.PRESENT, {**item.compared, "state": "absent"}) if present else _ABSENT
    if not found.configured:
        return ObservedItem(Sight.PRESENT, {"state": "half-installed", "version": found.version, "hold": found.held})
    version = None if stated["version"] is None else found.version
    return ObservedItem(Sight.PRESENT, {"state": "present", "version": version, "hold": found.held})


def _group(item: Item, facts: HostFacts) -> ObservedItem:
    gid = facts.groups.get(item.id)
    if gid is None:
        return _ABSENT
    return ObservedItem(Sight.PRESENT, {"gid": None if item.attributes["gid"] is None else gid})


def _user(item: Item, facts: HostFacts) -> ObservedItem:
    found, stated = facts.users.get(item.id), item.attributes
    if found is None:
        return _ABSENT
    wanted = frozenset(stated["groups"])
    further = found.groups - {found.group}
    primary = stated["group"]
    fits = wanted == further - {primary} if stated["groups_exclusive"] else wanted <= found.groups
    return ObservedItem(
        Sight.PRESENT,
        {
            "uid": None if stated["uid"] is None else found.uid,
            "group": _named(primary, found.group, found.gid),
            "groups": stated["groups"] if fits else sorted(further),
            "groups_exclusive": stated["groups_exclusive"],
            "home": found.home,
            "shell": found.shell,
            "comment": found.comment,
        },
    )


def _named(stated: str | None, name: str, number: int) -> str | None:
    return stated if stated in (None, name, str(number)) else name


def _service(item: Item, facts: HostFacts) -> ObservedItem:
    if not facts.systemd:
        return ObservedItem(Sight.UNREADABLE, detail="systemd is not running on the host")
    found, stated = facts.units[item.id], item.attributes
    if found.load == "not-found":
        return _ABSENT
    enabled: Any = "masked" if "masked" in (found.file, found.load) else found.file == "enabled"
    if found.file in _NEITHER and stated["enabled"] != "masked":
        enabled = stated["enabled"]
    marker = facts.markers.get(item.id)
    # Without a marker, an interrupted run may have written files that the service has not read.
    outdated = marker != facts.current.get(item.id) if marker is not None else bool(facts.fence)
    ended_well = found.ends and marker is not None and (found.active, found.result) == ("inactive", "success")
    running = "running" if ended_well or found.active in ("active", "reloading", "activating") else "stopped"
    if running == "running" and outdated and stated["on_change"] != "none":
        running = "running with earlier files"
    observed: dict[str, Any] = {
        "enabled": "any" if stated["enabled"] == "any" else enabled,
        "state": "any" if stated["state"] == "any" else running,
    }
    if found.active == "failed":
        observed["result"] = found.result
    return ObservedItem(Sight.PRESENT, observed)


def _path(item: Item, facts: HostFacts) -> ObservedItem:
    found = facts.paths.get(item.path or "")
    if found is Missing.ABSENT:
        return _ABSENT
    if not isinstance(found, PathFact):
        why = "a parent is not a directory" if found is Missing.BLOCKED else "a parent directory cannot be searched"
        return ObservedItem(Sight.UNREADABLE, detail=why if found else "the host did not answer about this path")
    if found.type is not _TYPES.get(item.type, PathType.FILE):
        return ObservedItem(Sight.OTHER_TYPE, detail=f"the host has a {_TYPE_WORDS[found.type]} there")
    if item.type is ItemType.SYMLINK:
        return ObservedItem(Sight.PRESENT, {"to": found.link})
    stated = item.attributes
    observed: dict[str, Any] = {
        "owner": _named(stated.get("owner"), found.user, found.uid),
        "group": _named(stated.get("group"), found.group, found.gid),
        "mode": _mode(stated.get("mode"), found.mode),
    }
    if item.type is ItemType.ENV:
        observed |= _variables(item, facts)
    elif item.type is not ItemType.DIRECTORY:
        observed["content"] = _content(item, found)
    if found.keyed is not None:
        observed["keyed"] = found.keyed
    return ObservedItem(Sight.PRESENT, observed)


def _mode(stated: str | None, mode: int) -> str:
    return stated if stated is not None and int(stated, 8) == mode else f"{mode:04o}"


def _content(item: Item, found: PathFact) -> Mapping[str, Any]:
    stated: Mapping[str, Any] = item.attributes["content"]
    if "secret" in stated or item.attributes.get("create_only"):
        return stated
    return {"sha256": found.sha256 or "", "size": found.size}


def _variables(item: Item, facts: HostFacts) -> dict[str, Any]:
    """Compare the lines that have no secret by their digest, so that values of other variables stay on the host."""
    seen = facts.visible.get(item.id, "")
    stated = item.attributes
    same = seen == digest(env_file(stated["set"]))
    return {"set": stated["set"] if same else {"sha256": seen}, "secrets": stated["secrets"]}
