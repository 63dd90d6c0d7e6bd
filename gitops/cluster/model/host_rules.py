"""The rules for changes of hosts and items: what needs approval, when a change takes effect, and how it is described.

They compare two normal forms, the recorded one and the declared one. Nothing here asks a machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Reason
from gitops.cluster.model.host import Connection, Item, ItemType, read_connection, read_item
from gitops.core.dataclass import dataclass

_REACHED_BY = ("transport", "address", "port", "user", "become", "jump", "keys")
_VERSION_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_SHOWN = 80


class Look(NamedTuple):
    """What an apply found in place of an item, and what follows: `words` describe it.

    `blocked` is why the item is not changed. With `records`, only the ledger changes, because the host already has, or no
    longer has, the item. `adopts` means that the host already has an item that no apply made, and `drifts` that it
    was changed there after it was applied.
    """

    blocked: Reason | None = None
    records: bool = False
    adopts: bool = False
    drifts: bool = False
    words: str = ""


NO_LOOK = Look()


class HostDifference(NamedTuple):
    """A change of a host or item: its recorded form, None if there is none, and its declared form.

    `unknown` means that there is a recorded form that cannot be read. `forgotten` means that the host itself is no longer
    declared, so nothing is changed there. `gates_units` is the rule `hosts.gate_commands`. `look` is what an apply found.
    """

    before: Connection | Item | None = None
    after: Connection | Item | None = None
    unknown: bool = False
    forgotten: bool = False
    gates_units: bool = False
    look: Look = NO_LOOK

    @property
    def item(self) -> Item | None:
        """The declared item, or else the recorded one; None for a host."""
        found = self.after or self.before
        return found if isinstance(found, Item) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInputs:
    """The hosts and items of a plan, by address: their recorded forms (`before`) and their declared ones (`after`).

    `unread` have a recorded form that cannot be read. `reached` is False for an apply that cannot change machines.
    `gates_units` is the rule `hosts.gate_commands`, and `rollout` the number of hosts that are changed at the same time.
    With `first`, they are changed before the graphs. `looks` are what an apply found on the machines; a plan of a change
    request has none.
    """

    before: Mapping[Address, Connection | Item]
    after: Mapping[Address, Connection | Item]
    unread: frozenset[Address] = frozenset()
    reached: bool = False
    gates_units: bool = False
    rollout: int = 1
    first: bool = False
    looks: Mapping[Address, Look] = field(default_factory=lambda: MappingProxyType({}))


def read_form(content: bytes, *, item: bool) -> Connection | Item:
    """Return the item or the host with this normal form. Raises ValueError for other bytes."""
    try:
        return read_item(content) if item else read_connection(content)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the form of {'an item' if item else 'a host'}: {error}") from error


def gate_reason(change: HostDifference) -> str | None:
    """Return why the change needs approval, or None if it needs none."""
    if change.forgotten:
        return None
    if change.unknown:
        return "what the ledger records about it cannot be read, so it is not known what the change does"
    before, after = change.before, change.after
    if isinstance(before, Connection) or isinstance(after, Connection):
        return _connection_reason(before, after)
    if isinstance(before, Item) and after is None:
        return _delete_reason(before)
    if not isinstance(after, Item) or before == after:
        return None
    if after.type is ItemType.UNIT and change.gates_units:
        return "a unit runs programs on the machine"
    return _update_reason(before if isinstance(before, Item) else None, after)


def _connection_reason(before: object, after: object) -> str | None:
    if not isinstance(after, Connection):
        return None
    if not isinstance(before, Connection):
        return "the bot connects to this machine for the first time, and runs programs there"
    changed = [name for name in _REACHED_BY if getattr(before, name) != getattr(after, name)]
    return f"it changes how the machine is reached: {', '.join(changed)}" if changed else None


def _delete_reason(before: Item) -> str | None:
    kept = before.attributes.get("on_remove")
    if before.type is ItemType.PACKAGE and before.attributes["state"] == "present":
        return "removing a package can remove its data" if before.attributes["purge"] else "a package is removed"
    if before.type in (ItemType.USER, ItemType.GROUP) and kept == "delete":
        return "an account is deleted, and its files lose their owner"
    if before.type is ItemType.DIRECTORY and kept == "tree":
        return "everything in the directory is deleted"
    return None


def _update_reason(before: Item | None, after: Item) -> str | None:
    had: Mapping[str, Any] = {} if before is None else before.attributes
    has = after.attributes
    if after.type is ItemType.PACKAGE:
        if has["state"] == "absent":
            if had.get("state") == "absent" and had.get("purge") == has["purge"]:
                return None
            return "removing a package can remove its data" if has["purge"] else "a package is removed"
        old, new = had.get("version"), has["version"]
        if old is not None and new is not None and compare_versions(new, old) < 0:
            return f"it goes back from version {old} to {new}"
    for name in ("uid", "gid"):
        if name in had and had[name] != has[name] and has[name] is not None:
            was = "another one" if had[name] is None else str(had[name])
            return f"the {name} changes from {was} to {has[name]}, and files keep the old one"
    return None


def compare_versions(one: str, other: str) -> int:
    """Compare two versions as dpkg does: negative if `one` is older, 0 if both are equal, positive if it is newer.

    Source: Debian policy manual, section 5.6.12.
    """
    (epoch, upstream, revision), (epoch2, upstream2, revision2) = map(_version, (one, other))
    return epoch - epoch2 or _compare(upstream, upstream2) or _compare(revision, revision2)


def _version(text: str) -> tuple[int, str, str]:
    epoch, colon, rest = text.partition(":")
    if not colon:
        epoch, rest = "0", text
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch), upstream if dash else rest, revision if dash else ""


def _compare(one: str, other: str) -> int:
    for (word, digits), (word2, digits2) in zip_longest(
        _VERSION_PARTS.findall(one), _VERSION_PARTS.findall(other), fillvalue=("", "")
    ):
        # A tilde sorts before the end, and letters sort before everything else.
        for letter, letter2 in zip_longest(word, word2, fillvalue=""):
            if letter != letter2:
                return _rank(letter) - _rank(letter2)
        difference = int(digits or 0) - int(digits2 or 0)
        if difference:
            return difference
    return 0


def _rank(letter: str) -> int:
    if letter == "~":
        return -1
    if not letter:
        return 0
    return ord(letter) if letter.isalpha() else ord(letter) + 256


def is_pivot(change: HostDifference) -> bool:
    """Return True if a failed run could not roll the change back, because the package had a different version before."""
    before, after = change.before, change.after
    if not (isinstance(before, Item) and isinstance(after, Item)) or after.type is not ItemType.PACKAGE:
        return False
    return bool(before.attributes["version"] != after.attributes["version"])


def details_of(change: HostDifference) -> tuple[str, ...]:
    """Describe a change in lines for people: each attribute with its old and its new value.

    Contents are described by their size, and secrets by their names only.
    """
    if change.look.words:
        return (change.look.words, *details_of(change._replace(look=NO_LOOK)))
    if change.forgotten:
        return ("the host is no longer declared, so it keeps what it has",)
    if change.after is None or change.before is None:
        found = change.after or change.before
        return () if not isinstance(found, Connection) else tuple(_connection_lines(found))
    return tuple(_differences(_flat(change.before), _flat(change.after)))


def _connection_lines(found: Connection) -> Iterator[str]:
    if found.address:
        yield f"reached at {found.user}@{found.address}:{found.port}"
    else:
        yield "the machine that runs the apply"
    yield from (f"key {' '.join(key.split()[-2:])[:_SHOWN]}" for key in found.keys)


def _flat(found: Connection | Item) -> dict[str, Any]:
    if isinstance(found, Connection):
        return {name: value for name, value in found.form.items() if name != "name"}
    form = {**found.attributes, "depends_on": list(found.depends_on), "ignore": list(found.ignore)}
    form.pop("uses", None)
    return {**form, "timeout_s": found.timeout_s, "adopt": found.adopt}


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict) and name in ("set", "secrets"):
            yield from (f"{name}.{line}" for line in _differences(old, new))
        else:
            yield f"{name}: {_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case {"sha256": str(digest), "size": int(size)}:
            return f"{size} bytes ({digest[:12]})"
        case {"secret": str(name)}:
            return f"the secret {name}"
        case list():
            text = f"[{', '.join(map(_shown, value))}]"
        case dict():
            text = f"{{{', '.join(f'{name}: {_shown(each)}' for name, each in sorted(value.items()))}}}"
        case _:
            text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
