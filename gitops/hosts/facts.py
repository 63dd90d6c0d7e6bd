"""What a host says about itself and about the items that it was asked for, read strictly from the sections of a probe.

A section that cannot be read makes its own answers unknown and says so, because a wrong answer would be worse than none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from gitops.core.dataclass import dataclass

T = TypeVar("T")


class PathType(StrEnum):
    """The type of what is at a path, as `find -printf %y` names it."""

    FILE = "f"
    DIRECTORY = "d"
    SYMLINK = "l"
    FIFO = "p"
    SOCKET = "s"
    BLOCK = "b"
    CHARACTER = "c"


class Missing(StrEnum):
    """Why nothing was found at a path: it is absent, a parent cannot be searched, or a parent is not a directory."""

    ABSENT = "absent"
    UNREADABLE = "unreadable"
    BLOCKED = "blocked"


class PathFact(NamedTuple):
    """What is at a path. `mode` has 12 bits. `size` is in bytes. `link` is where a symbolic link leads to.

    `sha256` is the digest of a file that was asked for and isn't too large. `keyed` is the keyed digest of a file with a
    secret, once the host has a key.
    """

    type: PathType
    mode: int
    uid: int
    gid: int
    user: str
    group: str
    size: int
    link: str = ""
    sha256: str | None = None
    keyed: str | None = None
    mounted: bool = False

    @property
    def before(self) -> str:
        """What an action expects to find at the path: see `gitops.hosts.scripts`."""
        content = self.link if self.type is PathType.SYMLINK else self.keyed or self.sha256 or ""
        return f"{self.type.value} {self.mode:o} {self.uid} {self.gid} {content}"


class PackageFact(NamedTuple):
    """An installed package. `configured` is False if its installation was interrupted."""

    version: str
    held: bool
    configured: bool


class UserFact(NamedTuple):
    """A user: its id, its primary group, all its groups, and the other fields of its entry."""

    uid: int
    gid: int
    group: str
    groups: frozenset[str]
    comment: str
    home: str
    shell: str


class UnitFact(NamedTuple):
    """A unit of systemd, by the properties of `systemctl show`. `ends` means that it is inactive after it has run its program."""

    load: str
    active: str
    sub: str
    file: str
    needs_reload: bool
    invocation: str
    result: str
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The answers of a host. A section that could not be read is named in `unread` with the reason.

    `system` has the keys of os-release. `clock` is in seconds since 1970, `free_kib` the free space for the state folder.
    `machine` is the digest of the machine id, with the host's key once it has one. `missing_tools` are programs that the
    actions need. `owner` and `fence` are the files of the state folder, empty before its first use. `markers` are the
    markers of services, by unit, as their last start left them, and `current` as a start now would leave them. `unfinished`
    are intents without a result. `key` is the key of the host's digests, if the probe asked for it.
    """

    system: Mapping[str, str]
    kernel: str
    architecture: str
    machine: str
    boot: str
    clock: int
    free_kib: int
    systemd: bool
    missing_tools: tuple[str, ...] = ()
    paths: Mapping[str, PathFact | Missing] = field(default_factory=lambda: MappingProxyType({}))
    visible: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    packages: Mapping[str, PackageFact] = field(default_factory=lambda: MappingProxyType({}))
    broken: tuple[str, ...] = ()
    users: Mapping[str, UserFact] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    units: Mapping[str, UnitFact] = field(default_factory=lambda: MappingProxyType({}))
    key: bytes = field(default=b"", repr=False)
    owner: str = ""
    fence: str = ""
    markers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    current: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unfinished: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_supported(self) -> bool:
        """True for Debian and its relatives."""
        return "debian" in (self.system.get("ID", ""), *self.system.get("ID_LIKE", "").split())


def keyed_digest(key: bytes, data: bytes) -> str:
    """Return the keyed digest of `data`, which a host computes with `cat` and `sha256sum`.

    It is HMAC with SHA-256 (RFC 2104), but the inner digest is in hexadecimal digits. `key` has at most 64 bytes.
    """
    inner, outer = pads(key)
    return hashlib.sha256(outer + hashlib.sha256(inner + data).hexdigest().encode()).hexdigest()


def pads(key: bytes) -> tuple[bytes, bytes]:
    """Return the inner and the outer pad of a key, 64 bytes each."""
    block = key.ljust(64, b"\0")
    return bytes(each ^ 0x36 for each in block), bytes(each ^ 0x5C for each in block)


def read_facts(sections: Mapping[str, bytes], units: Sequence[str]) -> HostFacts:
    """Return the facts in the sections of a probe. `units` are the units that it asked for, in order.

    Raises ValueError or KeyError if the host doesn't say what it is.
    """
    unread: dict[str, str] = {}

    def part(name: str, read: Callable[[bytes], T], otherwise: T) -> T:
        try:
            return read(sections[name])
        except (ValueError, KeyError) as error:
            unread[name] = str(error) or "no answer"
            return otherwise

    machine, boot, clock, free, systemd, architecture, kernel = _text(sections["host"]).split("\n")[:7]
    return HostFacts(
        system=_read_release(_text(sections["system"])),
        kernel=kernel,
        architecture=architecture,
        machine=machine,
        boot=boot,
        clock=int(clock),
        free_kib=int(free),
        systemd=systemd == "running",
        missing_tools=tuple(_text(sections["tools"]).split()),
        paths=part("paths", lambda data: _read_paths(data, sections), {}),
        visible=part("visible", lambda data: {path: value for value, path in _rows(data, 2)}, {}),
        packages=part("packages", _read_packages, {}),
        broken=part("audit", lambda data: tuple(_text(data).split()), ()),
        users=part("users", _read_users, {}),
        groups=part("groups", _read_groups, {}),
        units=part("units", lambda data: _read_units(data, units), {}),
        key=sections.get("key", b""),
        owner=_text(sections["owner"]).strip(),
        fence=_text(sections["fence"]).strip(),
        markers=part("markers", lambda data: dict(_rows(data, 2)), {}),
        current=part("current", lambda data: dict(_rows(data, 2)), {}),
        unfinished=part("intents", lambda data: tuple(_text(data).split()), ()),
        unread=unread,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def _rows(data: bytes, width: int) -> Iterator[list[str]]:
    """Yield the rows of a table whose fields end with NUL. Raises ValueError if the last row isn't complete."""
    words = _text(data).split("\0")
    if words.pop() != "" or len(words) % width:
        raise ValueError("the answer is not complete")
    for at in range(0, len(words), width):
        yield words[at : at + width]


def _read_release(text: str) -> dict[str, str]:
    """Return the keys of os-release. Source: os-release(5)."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key: value.strip("\"'") for key, _, value in pairs}


def _read_paths(data: bytes, sections: Mapping[str, bytes]) -> dict[str, PathFact | Missing]:
    digests = {path: value for value, path in (_digest_row(row) for (row,) in _rows(sections["digests"], 1))}
    keyed = {path: value for value, path in _rows(sections["keyed"], 2)}
    mounted = {_unescaped(line.split(" ")[4]) for line in _text(sections["mounts"]).splitlines()}
    found: dict[str, PathFact | Missing] = {}
    for kind, mode, uid, gid, user, group, size, link, path in _rows(data, 9):
        found[path] = PathFact(
            PathType(kind),
            int(mode, 8),
            int(uid),
            int(gid),
            user,
            group,
            int(size),
            link,
            digests.get(path),
            keyed.get(path),
            path in mounted,
        )
    return found | {path: Missing(reason) for reason, path in _rows(sections["missing"], 2)}


def _digest_row(row: str) -> tuple[str, str]:
    value, gap, path = row[:64], row[64:66], row[66:]
    if gap != "  ":
        raise ValueError("not the answer of sha256sum")
    return value, path


def _unescaped(path: str) -> str:
    """Return a path of /proc/self/mountinfo, in which blanks are octal numbers. Source: proc(5)."""
    head, *parts = path.split("\\")
    return head + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts)


def _read_packages(data: bytes) -> dict[str, PackageFact]:
    found = {}
    for line in _text(data).splitlines():
        name, status, version = line.split("\t")
        # The letters are the wanted action, the state and an error. Source: dpkg-query(1)
        if status[1] not in "nc":
            found[name] = PackageFact(version, held=status[0] == "h", configured=status[1:].strip() == "i")
    return found


def _read_users(data: bytes) -> dict[str, UserFact]:
    found = {}
    for entry, group, groups in _rows(data, 3):
        name, _, uid, gid, comment, home, shell = entry.split(":")
        found[name] = UserFact(int(uid), int(gid), group, frozenset(groups.split()), comment, home, shell)
    return found


def _read_groups(data: bytes) -> dict[str, int]:
    return {line.split(":")[0]: int(line.split(":")[2]) for line in _text(data).splitlines()}


def _read_units(data: bytes, names: Sequence[str]) -> dict[str, UnitFact]:
    blocks = [block for block in _text(data).strip("\n").split("\n\n") if block]
    if len(blocks) != len(names):
        raise ValueError(f"{len(blocks)} answers for {len(names)} units")
    found = {}
    for name, block in zip(names, blocks, strict=True):
        stated = dict(line.split("=", 1) for line in block.splitlines())
        found[name] = UnitFact(
            stated["LoadState"],
            stated["ActiveState"],
            stated["SubState"],
            stated.get("UnitFileState", ""),
            stated["NeedDaemonReload"] == "yes",
            stated.get("InvocationID", ""),
            stated.get("Result", ""),
            stated.get("Type") == "oneshot" and stated.get("RemainAfterExit") == "no",
        )
    return found
