"""Hosts: the machines that a cluster folder declares, how they are reached, and the items that they must have.

An item is a package, an account, a path, a unit, a service or a readiness check on one host. Its normal form is JSON with
all attributes, in which defaults are filled in, content is represented by its digest, and secrets by their names. The form
is what the ledger keeps, so an item can be removed after its declaration is gone.

One table (`ATTRIBUTES`) has the attributes of every type. The parser, the normal form, the comparison with a machine, the
JSON schema, completion and the reference page read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from gitops.core.canonical import canonical, digest
from gitops.core.dataclass import dataclass

UNIT_FOLDER = "/etc/systemd/system"
"""The folder of the unit files that this program writes."""


class Transport(StrEnum):
    """How a host is reached: by the `ssh` program, or as the machine on which the program runs."""

    SSH = "ssh"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to connect to a host, and the host keys that it must prove to have.

    `become` is the user that runs the scripts, None for the user who connects. `jump` is the name of the declared host
    through which the connection goes. `sessions` is the maximum number of sessions at once. `keys` are the lines of the host
    in `hosts/known_hosts`, in order. `address` and `user` are empty for a local host.
    """

    name: str
    transport: Transport = Transport.SSH
    address: str = ""
    port: int = 22
    user: str = ""
    become: str | None = None
    jump: str | None = None
    sessions: int = 8
    keys: tuple[str, ...] = ()

    @property
    def form(self) -> dict[str, Any]:
        """The JSON form. The digest of `host.<name>` covers it."""
        return {
            "name": self.name,
            "transport": self.transport.value,
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "become": self.become,
            "jump": self.jump,
            "sessions": self.sessions,
            "keys": list(self.keys),
        }

    @property
    def data(self) -> bytes:
        """The canonical bytes of the form."""
        return canonical(self.form)


def read_connection(content: bytes) -> Connection:
    """Return the connection with this `content`. Raises ValueError, KeyError or TypeError for other bytes."""
    form = json.loads(content)
    return Connection(**{**form, "transport": Transport(form["transport"]), "keys": tuple(form["keys"])})


class ItemType(StrEnum):
    """The types of items, in the order in which a plan displays them."""

    words: str

    PACKAGE = "package", "A Debian package, by its name."
    GROUP = "group", "A group, by its name."
    USER = "user", "A user, by its name. Passwords are not managed."
    DIRECTORY = "directory", "A directory, by its path."
    FILE = "file", "A file, by its path."
    ENV = "env", "A file of environment variables, by its path."
    SYMLINK = "symlink", "A symbolic link, by its path."
    UNIT = "unit", "A unit of systemd: `NAME.service`, or a drop-in as `NAME.service/NAME.conf`."
    SERVICE = "service", "A unit that is enabled and started, by its name."
    READY = "ready", "Checks that must succeed after a change, by a name that you choose."

    def __new__(cls, name: str, words: str = "") -> Self:
        """Return a type by its name in resource files."""
        made = str.__new__(cls, name)
        made._value_, made.words = name, words
        return made


PATH_TYPES = frozenset({ItemType.DIRECTORY, ItemType.FILE, ItemType.ENV, ItemType.SYMLINK})
"""The types whose id is a path on the host."""


class AttributeForm(StrEnum):
    """The forms of values. `gitops/cluster/config/host_forms.py` has the reader of each."""

    LINE = "one line of text"
    TEXT = "text"
    BASE64 = "base64"
    TRUTH = "true or false"
    CHOICE = "one of the values"
    ENABLED = "true, false or one of the values"
    NUMBER = "whole number"
    SECONDS = "seconds"
    MODE = "octal digits in quotes"
    PATH = "absolute path"
    TARGET = "path"
    SOURCE = "file of the folder"
    ACCOUNT = "name or id"
    SECRET = "name of a secret"  # noqa: S105 - a form, not a password
    VERSION = "version of a package"
    LINES = "list of lines"
    ACCOUNTS = "list of names"
    ADDRESSES = "list of addresses"
    ARGV = "list of words"
    PAIRS = "mapping of names to text"
    SECRETS = "mapping of names to names of secrets"
    SECTIONS = "mapping of sections to keys"
    CHECKS = "list of checks"


class Use(StrEnum):
    """How an attribute is used.

    COMPARED attributes are compared with the machine. STEERS attributes say how an item is changed or removed. The content
    of a file or unit is made from SOURCE attributes, which are not part of the normal form.
    """

    COMPARED = "compared"
    STEERS = "steers"
    SOURCE = "source"


REQUIRED: Any = object()
"""The default of an attribute that must be declared."""


class Attribute(NamedTuple):
    """One attribute: its form, its description, its default in the normal form, and how it is used.

    `values` are the permitted words of a CHOICE or ENABLED attribute; `least` and `most` are the limits of a number.
    `unset` describes the default where it is not only a value.
    """

    form: AttributeForm
    words: str
    default: Any = None
    use: Use = Use.COMPARED
    values: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    unset: str = ""


F, U = AttributeForm, Use
_ID_LIMIT = 2**32 - 2
_OWNER = Attribute(F.ACCOUNT, "The user who owns it.", "root")
_GROUP = Attribute(F.ACCOUNT, "The group that owns it.", "root")


def _mode(default: str | None, unset: str = "") -> Attribute:
    return Attribute(F.MODE, 'Its permissions, such as `"0640"`.', default, unset=unset)


def _on_remove(default: str, *values: str) -> Attribute:
    words = "What happens to it once it is no longer declared."
    return Attribute(F.CHOICE, words, default, U.STEERS, (default, *values))


_CONTENT = Attribute(F.TEXT, "Its content as text.", use=U.SOURCE)
_SOURCE = Attribute(F.SOURCE, "A file of this folder with its content.", use=U.SOURCE)
_CHECKED = MappingProxyType(
    {
        "service": Attribute(F.LINE, "A unit that must be active."),
        "http": Attribute(F.LINE, "A URL that must answer."),
        "status": Attribute(F.NUMBER, "The HTTP status that the URL must answer.", 200, least=100, most=599),
        "contains": Attribute(F.LINE, "Text that the answer must contain."),
        "ca": Attribute(
            F.SOURCE, "Not implemented: a file of this folder with the certificates to trust for this URL."
        ),
        "tcp": Attribute(F.LINE, "`HOST:PORT` that must accept a connection."),
        "exec": Attribute(F.ARGV, "A command that must succeed on the host."),
    }
)
CHECK_ATTRIBUTES: Mapping[str, Attribute] = _CHECKED
"""The attributes of one check of a `ready` item, which has exactly one of `service`, `http`, `tcp` and `exec`."""
CHECK_KINDS = ("service", "http", "tcp", "exec")

ATTRIBUTES: Mapping[ItemType, Mapping[str, Attribute]] = MappingProxyType(
    {
        ItemType.PACKAGE: {
            "version": Attribute(F.VERSION, "The exact version to install, in dpkg's spelling.", unset="any version"),
            "state": Attribute(F.CHOICE, "Whether it must be installed.", "present", values=("present", "absent")),
            "purge": Attribute(F.TRUTH, "Whether removing it also removes its configuration.", False, U.STEERS),
            "hold": Attribute(F.TRUTH, "Whether upgrades of the machine leave its version alone.", False),
            "provides": Attribute(F.LINES, "Programs that it brings, for the order of other items.", (), U.STEERS),
            "refresh": Attribute(F.TRUTH, "Whether the package lists are fetched first.", False, U.STEERS),
        },
        ItemType.GROUP: {
            "gid": Attribute(F.NUMBER, "Its id, from 100.", most=_ID_LIMIT, unset="the next free id"),
            "system": Attribute(F.TRUTH, "Whether a new id is from the range for system groups.", True, U.STEERS),
            "on_remove": _on_remove("keep", "delete"),
        },
        ItemType.USER: {
            "uid": Attribute(F.NUMBER, "Its id, from 100.", most=_ID_LIMIT, unset="the next free id"),
            "group": Attribute(F.ACCOUNT, "Its primary group.", unset="a group with its name"),
            "groups": Attribute(F.ACCOUNTS, "Further groups.", ()),
            "groups_exclusive": Attribute(F.TRUTH, "Whether it leaves all groups that are not listed.", False),
            "home": Attribute(F.PATH, "Its home directory.", "/nonexistent"),
            "create_home": Attribute(F.TRUTH, "Whether a new user's home directory is created.", False, U.STEERS),
            "shell": Attribute(F.PATH, "Its login shell.", "/usr/sbin/nologin"),
            "comment": Attribute(F.LINE, "Its description.", ""),
            "system": Attribute(F.TRUTH, "Whether a new id is from the range for system users.", True, U.STEERS),
            "on_remove": _on_remove("keep", "delete"),
        },
        ItemType.DIRECTORY: {
            "owner": _OWNER,
            "group": _GROUP,
            "mode": _mode("0755"),
            "on_remove": _on_remove("empty", "keep", "tree"),
        },
        ItemType.FILE: {
            "source": _SOURCE,
            "content": _CONTENT,
            "content_base64": Attribute(F.BASE64, "Its content in base64.", use=U.SOURCE),
            "secret": Attribute(F.SECRET, "A secret of `hosts.secrets` that is its content.", use=U.SOURCE),
            "substitute": Attribute(F.TRUTH, "Whether `${{ … }}` in its content is replaced.", False, U.SOURCE),
            "owner": _OWNER,
            "group": _GROUP,
            "mode": _mode(None, '`"0644"`, or `"0600"` for a secret'),
            "check": Attribute(F.ARGV, "A command that checks the new file, which replaces `{}`.", use=U.STEERS),
            "create_only": Attribute(F.TRUTH, "Whether an existing file keeps its content.", False, U.STEERS),
            "on_remove": _on_remove("delete", "keep"),
        },
        ItemType.ENV: {
            "set": Attribute(F.PAIRS, "Variables and their values.", MappingProxyType({})),
            "secrets": Attribute(F.SECRETS, "Variables and the secrets that are their values.", MappingProxyType({})),
            "owner": _OWNER,
            "group": _GROUP,
            "mode": _mode("0600"),
            "on_remove": _on_remove("delete", "keep"),
        },
        ItemType.SYMLINK: {
            "to": Attribute(F.TARGET, "The path that it leads to, which need not exist.", REQUIRED),
            "on_remove": _on_remove("delete", "keep"),
        },
        ItemType.UNIT: {
            "source": _SOURCE,
            "content": _CONTENT,
            "sections": Attribute(F.SECTIONS, "Its sections with their keys.", use=U.SOURCE),
            "substitute": Attribute(F.TRUTH, "Whether `${{ … }}` in its content is replaced.", False, U.SOURCE),
        },
        ItemType.SERVICE: {
            "enabled": Attribute(
                F.ENABLED, "Whether it starts with the machine.", True, values=("true", "false", "masked", "any")
            ),
            "state": Attribute(
                F.CHOICE, "Whether it must run.", "running", values=("running", "stopped", "any")
            ),
            "on_change": Attribute(
                F.CHOICE,
                "What happens after a change of its unit or of what it reads.",
                "restart",
                U.STEERS,
                ("restart", "reload", "none"),
            ),
            "triggers": Attribute(F.ADDRESSES, "Further items whose change restarts it.", (), U.STEERS),
            "settle_s": Attribute(
                F.SECONDS, "How many seconds it must stay active after a start.", 2, U.STEERS, least=0, most=600
            ),
        },
        ItemType.READY: {
            "checks": Attribute(F.CHECKS, "What must succeed.", REQUIRED, U.STEERS),
            "from": Attribute(
                F.CHOICE, "Where HTTP and TCP checks run. `runner` is not implemented.", "host", U.STEERS, ("host", "runner")
            ),
            "interval_ms": Attribute(
                F.NUMBER, "How many milliseconds pass between two tries.", 500, U.STEERS, least=100, most=60_000
            ),
            "passes": Attribute(
                F.NUMBER, "How many times in a row the checks must succeed.", 2, U.STEERS, least=1, most=100
            ),
        },
    }
)  # fmt: skip
"""The attributes of each type, apart from those that all types have."""

_TIMEOUTS = {ItemType.PACKAGE: 600, ItemType.SERVICE: 90}
COMMON: Mapping[str, Attribute] = MappingProxyType(
    {
        "depends_on": Attribute(F.ADDRESSES, "Resources that are applied before it.", (), U.STEERS),
        "timeout_s": Attribute(
            F.SECONDS,
            "How many seconds one change of it may take.",
            use=U.STEERS,
            least=1,
            most=3600,
            unset="600 for a package, 90 for a service, else 60",
        ),
        "adopt": Attribute(
            F.CHOICE,
            "What happens to something different that the machine already has.",
            "refuse",
            U.STEERS,
            ("refuse", "overwrite"),
        ),
        "ignore": Attribute(F.LINES, "Attributes whose drift is accepted.", (), U.STEERS),
    }
)
"""The attributes that all types have."""


STATE_FOLDER = "/var/lib/cluster-gitops"
"""The folder on a host in which the program keeps what it needs from one run to the next."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIRST_FREE_ID = 100
# Debian's base-passwd gives these names ids below 100.
_SYSTEM_ACCOUNTS = _set(
    "root daemon bin sys adm tty disk lp mail news uucp man proxy kmem dialout fax voice cdrom floppy tape sudo audio dip "
    "www-data backup operator list irc src shadow utmp video sasl plugdev staff games sync users"
)
_SYSTEM_ROOTS = _set(
    "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /tmp /usr /var /usr/bin /usr/lib /usr/local "
    "/usr/sbin /usr/share /var/cache /var/lib /var/log /var/spool /var/tmp /etc/apt /etc/systemd /etc/systemd/system "
    "/var/lib/apt /var/lib/dpkg /var/lib/systemd /usr/local/bin /usr/local/lib /usr/local/sbin /etc/ssh /etc/pam.d"
)


def is_system_account(name: str, number: int | None) -> bool:
    """Return True if an account belongs to the system, by its name or its id."""
    return name in _SYSTEM_ACCOUNTS or (number is not None and number < _FIRST_FREE_ID)


def is_protected(path: str) -> bool:
    """Return True if a directory is part of the system, so that nothing may remove everything below it."""
    return path in _SYSTEM_ROOTS or path.count("/") < 2  # noqa: PLR2004 - a directory of the root


def default_timeout_s(kind: ItemType) -> int:
    """Return the number of seconds that one change of an item may take, if the item does not say."""
    return _TIMEOUTS.get(kind, 60)


class Content(NamedTuple):
    """The content of a file or unit: its digest and its number of bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One declared item, in normal form.

    `attributes` has all attributes of its type except those of use SOURCE, as JSON values, with defaults filled in. A file
    and a unit have the attribute `content`: `{"sha256": …, "size": …}`, or `{"secret": NAME}`. A unit also has `uses`, the
    accounts and paths that its content names, because the order of a later removal depends on them.
    """

    host: str
    type: ItemType
    id: str
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    depends_on: tuple[str, ...] = ()
    timeout_s: int = 60
    adopt: str = "refuse"
    ignore: tuple[str, ...] = ()

    @property
    def form(self) -> dict[str, Any]:
        """The normal form as JSON."""
        return {
            "host": self.host,
            "type": self.type.value,
            "id": self.id,
            "attributes": dict(self.attributes),
            "depends_on": list(self.depends_on),
            "timeout_s": self.timeout_s,
            "adopt": self.adopt,
            "ignore": list(self.ignore),
        }

    @property
    def data(self) -> bytes:
        """The canonical bytes of the normal form. The ledger stores them, and the item's digest covers them."""
        return canonical(self.form)

    @property
    def digest(self) -> str:
        """The digest of the normal form."""
        return digest(self.data)

    @property
    def content(self) -> Content | None:
        """The content of a file or unit, or of an env file without secrets; None if it has a secret or no content."""
        if self.type is ItemType.ENV:
            if self.attributes["secrets"]:
                return None
            data = env_file(self.attributes["set"])
            return Content(digest(data), len(data))
        stated = self.attributes.get("content")
        return Content(stated["sha256"], stated["size"]) if stated and "sha256" in stated else None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the secrets that it contains, sorted."""
        stated = self.attributes.get("content") or {}
        found = {stated["secret"]} if "secret" in stated else set()
        return tuple(sorted(found | set(self.attributes.get("secrets", {}).values())))

    @property
    def path(self) -> str | None:
        """Path on the host for unit files and for types that are paths. None for other types."""
        if self.type in PATH_TYPES:
            return self.id
        return unit_path(self.id) if self.type is ItemType.UNIT else None

    @property
    def compared(self) -> dict[str, Any]:
        """The attributes that are compared with the machine, without those whose drift is ignored."""
        table = ATTRIBUTES[self.type]
        return {
            name: value
            for name, value in self.attributes.items()
            if name not in self.ignore and (name == "content" or (name in table and table[name].use is Use.COMPARED))
        }


def read_item(data: bytes) -> Item:
    """Return the item whose normal form these bytes are. Raises ValueError, KeyError or TypeError for other bytes."""
    form = json.loads(data)
    return Item(
        host=form["host"],
        type=ItemType(form["type"]),
        id=form["id"],
        attributes=MappingProxyType(form["attributes"]),
        depends_on=tuple(form["depends_on"]),
        timeout_s=form["timeout_s"],
        adopt=form["adopt"],
        ignore=tuple(form["ignore"]),
    )


def unit_path(unit: str) -> str:
    """Return the path of a unit `NAME.suffix`, or of a drop-in `NAME.suffix/NAME.conf`."""
    name, slash, drop_in = unit.partition("/")
    return f"{UNIT_FOLDER}/{name}.d/{drop_in}" if slash else f"{UNIT_FOLDER}/{name}"


def env_file(values: Mapping[str, str]) -> bytes:
    """Return an environment file with these variables, sorted, and quoted so that systemd and sh read the same values."""
    return "".join(f'{name}="{_quoted(values[name])}"\n' for name in sorted(values)).encode()


def _quoted(value: str) -> str:
    return "".join(f"\\{each}" if each in '\\"$`' else each for each in value)
