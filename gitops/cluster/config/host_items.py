"""Turns the resource files of hosts into resources: the items of each host in normal form, with their content.

The steps: `hosts/known_hosts`; each resource file, once; each item of each host. Problems of a file are reported once, and
problems that an item has on one host, such as a conflict with another file, for that host.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from gitops.cluster.config.host_forms import MAX_CONTENT_BYTES
from gitops.cluster.config.host_units import read_unit, unit_problem, unit_text, unit_uses
from gitops.cluster.config.hosts import DeclaredHost, check_hosts
from gitops.cluster.config.item_files import TAG_PREFIX, FileItem, ItemFile, read_item_file
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.config.rule_forms import CHOSEN_KEY, Place, place_in
from gitops.cluster.config.source import SourceError
from gitops.cluster.model.address import Address, host_address, item_address
from gitops.cluster.model.host import ATTRIBUTES, Connection, Item, ItemType, Transport, Use, default_timeout_s
from gitops.cluster.model.host_graph import References, check_target, host_references, locks_out
from gitops.cluster.model.resource import Resource
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import SourceRef
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlNode, shown

KNOWN_HOSTS = "hosts/known_hosts"
MAX_ITEMS = 500
MAX_HOST_BYTES = 64 << 20
_PLACEHOLDER = re.compile(r"\$\{\{\s*([^{}]*?)\s*\}\}")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class LoadedHosts(NamedTuple):
    """The resources of all hosts, and what they refer to."""

    resources: Mapping[Address, Resource]
    references: References


def load_hosts(
    declared: Mapping[str, DeclaredHost],
    section: Callable[[], YamlNode],
    reader: SourceReader,
    known: Collection[Address] = (),
) -> LoadedHosts:
    """Load all hosts and their items. Adds problems to the reader.

    `section` returns the section of `cluster.yaml`, for the places of problems; `known` are the addresses of everything else
    that the folder declares.
    """
    return _HostLoader(declared, section, reader).load(known)


class _HostLoader:
    """One load of all hosts."""

    def __init__(
        self, declared: Mapping[str, DeclaredHost], section: Callable[[], YamlNode], reader: SourceReader
    ) -> None:
        self._declared = declared
        self._section = section
        self._reader = reader
        self._found = reader.found
        self._files: dict[str, ItemFile | None] = {}
        self._tags = {name: frozenset(each.tags) for name, each in declared.items()}
        self._places: dict[Address, tuple[ItemFile, FileItem]] = {}
        self._items: dict[Address, Item] = {}

    def load(self, known: Collection[Address]) -> LoadedHosts:
        usable = check_hosts(self._declared, self._section, self._found)
        keys = self._known_hosts()
        found: dict[Address, Resource] = {}
        connections: dict[Address, Connection] = {}
        for name, host in sorted(self._declared.items()):
            if name not in usable:
                continue
            connection = host.connection(name, keys.get(name, ()))
            if connection.transport is Transport.SSH and not connection.keys:
                self._report_host(
                    Code.HOST_KEY_MISSING, (name, CHOSEN_KEY), f"{KNOWN_HOSTS} has no line that begins with host.{name}"
                )
            address = host_address(name)
            found[address] = Resource(address, digest(connection.data), data=connection.data)
            found |= self._host_items(name, host, connection)
            connections[address] = connection
        references = host_references(self._items, connections)
        self._check_references(references, {*known, *found})
        return LoadedHosts(found, references)

    def _report_host(self, code: Code, place: Place, message: str) -> None:
        path, source = place_in("hosts", self._section(), place, message)
        self._found.add(code, path, message, source=source)

    def _report_item(self, code: Code, address: Address, message: str, key: str = "") -> None:
        file, item = self._places[address]
        self._found.add(code, address, message, source=file.source((*item.place, key or item.type.value)))

    def _known_hosts(self) -> Mapping[str, tuple[str, ...]]:
        """Return the lines of each host in the file of known hosts. Reports invalid lines."""
        if not any(each.transport == Transport.SSH for each in self._declared.values()):
            return {}
        read = self._reader.read(KNOWN_HOSTS)
        if isinstance(read, SourceError):
            if read.code != Code.SOURCE_MISSING:
                self._reader.report(read, KNOWN_HOSTS, SourceRef(KNOWN_HOSTS), otherwise=Code.HOST_FILE_MISSING)
            return {}
        found: dict[str, list[str]] = {}
        for number, raw in enumerate(read.data.decode("utf-8", "replace").split("\n"), start=1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            try:
                name, kept = _known_host(line)
            except ValueError as error:
                place = SourceRef(KNOWN_HOSTS, number, 1)
                self._found.add(Code.HOST_VALUE_INVALID, KNOWN_HOSTS, str(error), source=place)
                continue
            if name not in self._declared:
                near = did_you_mean(name, sorted(self._declared))
                message = f"the host '{shown(name)}' is not declared{f'; {near}' if near else ''}"
                self._found.add(Code.HOST_UNKNOWN, KNOWN_HOSTS, message, source=SourceRef(KNOWN_HOSTS, number, 1))
            found.setdefault(name, []).append(kept)
        return {name: tuple(sorted(set(lines))) for name, lines in found.items()}

    def _host_items(self, name: str, host: DeclaredHost, connection: Connection) -> dict[Address, Resource]:
        """Return the items of one host as resources."""
        found: dict[Address, Resource] = {}
        paths: dict[str, Address] = {}
        size = 0
        for number, written in enumerate(host.resources):
            file = self._file(written, (name, "resources", number))
            for stated in () if file is None else file.items:
                if file is None or not self._is_on(name, stated):
                    continue
                address = item_address(name, stated.type, stated.id)
                if address in found:
                    first = self._places[address]
                    at = first[0].source(first[1].place)
                    self._places[address] = (file, stated)
                    self._report_item(Code.DUPLICATE_RESOURCE_ID, address, f"{address} is already declared at {at}")
                    continue
                self._places[address] = (file, stated)
                made = self._item(name, address, self._vars(name, host, file))
                if made is None:
                    continue
                item, contents = made
                self._check_item(address, item, connection, paths)
                size += sum(len(each) for each in contents.values())
                found[address] = Resource(address, item.digest, data=item.data, contents=contents)
                self._items[address] = item
        if len(found) > MAX_ITEMS or size > MAX_HOST_BYTES:
            had = f"{len(found)} items with {size} bytes of content"
            self._report_host(Code.HOST_LIMIT_EXCEEDED, (name, CHOSEN_KEY), f"the host has {had}")
        return found

    def _file(self, written: str, place: Place) -> ItemFile | None:
        if written not in self._files:
            read = self._reader.read(written)
            if isinstance(read, SourceError):
                path, source = place_in("hosts", self._section(), place, "")
                self._reader.report(read, path, source, otherwise=Code.HOST_FILE_MISSING)
                self._files[written] = None
            else:
                self._files[written] = read_item_file(read, self._tags, self._found)
        return self._files[written]

    def _is_on(self, name: str, stated: FileItem) -> bool:
        tags = {f"{TAG_PREFIX}{tag}" for tag in self._tags[name]}
        return stated.on is None or not {name, *tags}.isdisjoint(stated.on)

    def _vars(self, name: str, host: DeclaredHost, file: ItemFile) -> Mapping[str, str]:
        """Return the placeholders of a host with their values, for the items of one file."""
        known: dict[str, str] = {}
        for tag in sorted(self._tags[name] & file.vars.keys()):
            for key, value in file.vars[tag].items():
                if known.setdefault(key, value) != value and key not in host.vars:
                    message = f"{key} has another value for a further tag of {name}; declare it below vars of {name}"
                    place = ("vars", tag, key)
                    self._found.add(Code.HOST_VALUE_INVALID, file.path, message, source=file.source(place))
        values = {f"vars.{key}": value for key, value in {**known, **host.vars}.items()}
        return {**values, "host.name": name, "host.address": host.address}

    def _item(self, host: str, address: Address, values: Mapping[str, str]) -> tuple[Item, dict[str, bytes]] | None:
        """Return an item in normal form with the bytes of its content by digest; None after a problem with its content."""
        file, stated = self._places[address]
        given, contents = stated.given, dict[str, bytes]()
        table = ATTRIBUTES[stated.type]
        attributes = {
            name: _plain(given.get(name, file.defaults.get(name, each.default)))
            for name, each in table.items()
            if each.use is not Use.SOURCE
        }
        if "content" in table:
            data = self._content(address, values)
            if data is None:
                return None
            attributes["content"] = {"secret": given["secret"]} if isinstance(data, str) else _stored(data, contents)
            if stated.type is ItemType.FILE:
                attributes["mode"] = given.get("mode") or ("0600" if isinstance(data, str) else "0644")
            elif isinstance(data, bytes) and not self._add_uses(address, data, attributes):
                return None
        if stated.type is ItemType.READY and not self._check_targets(address, attributes):
            return None
        item = Item(
            host=host,
            type=stated.type,
            id=stated.id,
            attributes=attributes,
            depends_on=tuple(sorted(set(given.get("depends_on", ())))),
            timeout_s=given.get("timeout_s", default_timeout_s(stated.type)),
            adopt=given.get("adopt", "refuse"),
            ignore=tuple(sorted(set(given.get("ignore", ())))),
        )
        return item, contents

    def _content(self, address: Address, values: Mapping[str, str]) -> bytes | str | None:
        """Return the content of a file or unit, the name of the secret that is its content, or None after a problem."""
        _, stated = self._places[address]
        given = stated.given
        if "secret" in given:
            return str(given["secret"])
        if "source" in given:
            data = self._source(address, "source", given["source"])
        elif "content_base64" in given:
            data = base64.b64decode(given["content_base64"])
        elif "sections" in given:
            data = unit_text(given["sections"]).encode()
        else:
            data = given["content"].encode()
        if data is not None and given.get("substitute"):
            data = self._substituted(address, data, values)
        if data is not None and len(data) > MAX_CONTENT_BYTES:
            message = f"the content has {len(data)} bytes, and {MAX_CONTENT_BYTES} are allowed"
            self._report_item(Code.HOST_FILE_TOO_LARGE, address, message)
            return None
        return data

    def _source(self, address: Address, key: str, path: str) -> bytes | None:
        read = self._reader.read(path)
        if not isinstance(read, SourceError):
            return read.data
        file, stated = self._places[address]
        self._reader.report(read, address, file.source((*stated.place, key)), otherwise=Code.HOST_FILE_MISSING)
        return None

    def _substituted(self, address: Address, data: bytes, values: Mapping[str, str]) -> bytes | None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._report_item(Code.HOST_SUBSTITUTE_UNKNOWN, address, "the content is not UTF-8 text", "substitute")
            return None
        unknown = sorted({name for name in _PLACEHOLDER.findall(text) if name not in values})
        for name in unknown:
            near = did_you_mean(name, sorted(values)) or f"known here: {', '.join(sorted(values))}"
            self._report_item(Code.HOST_SUBSTITUTE_UNKNOWN, address, f"'{shown(name)}' has no value; {near}")
        return None if unknown else _PLACEHOLDER.sub(lambda found: values[found[1]], text).encode()

    def _add_uses(self, address: Address, data: bytes, attributes: dict[str, Any]) -> bool:
        try:
            assignments = read_unit(data.decode())
        except (UnicodeDecodeError, ValueError) as error:
            problem: str | None = "the unit is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        else:
            problem = unit_problem(assignments)
            attributes["uses"] = unit_uses(assignments)
        if problem is not None:
            self._report_item(Code.HOST_UNIT_INVALID, address, problem)
        return problem is None

    def _check_targets(self, address: Address, attributes: dict[str, Any]) -> bool:
        """Return True if the checks of a `ready` item can be carried out, and only ask declared hosts."""
        addresses = {each.address for each in self._declared.values()} | _LOOPBACK
        for number, check in enumerate(attributes["checks"]):
            target = check_target(check)
            unsupported = {
                "https": str(check.get("http", "")).startswith("https:"),
                "ca": check.get("ca") is not None,
                "from: runner": attributes["from"] == "runner",
            }
            if found := [name for name, used in unsupported.items() if used]:
                message = f"checks[{number}] uses {', '.join(found)}"
                self._report_item(Code.HOST_CHECK_UNSUPPORTED, address, message, "checks")
                return False
            if target is not None and target not in addresses:
                message = f"checks[{number}] asks '{shown(target)}', which is not a declared host"
                self._report_item(Code.HOST_CHECK_TARGET, address, message, "checks")
                return False
        return True

    def _check_item(self, address: Address, item: Item, connection: Connection, paths: dict[str, Address]) -> None:
        path = item.path
        if path is not None and paths.setdefault(path, address) != address:
            message = f"{paths[path]} already writes to {path}"
            self._report_item(Code.HOST_PATH_CONFLICT, address, message)
        if locks_out(item, connection):
            self._report_item(Code.HOST_SELF_LOCKOUT, address, "the program itself needs this path to reach the host")

    def _check_references(self, references: References, known: Collection[Address]) -> None:
        """Report references to addresses that the folder does not declare, and items that wait for each other."""
        order: TopologicalSorter[str] = TopologicalSorter()
        for (source, target), why in references.items():
            order.add(source, target)
            if target not in known and source in self._places and why.reason in ("explicit_dependency", "triggers"):
                near = did_you_mean(target, sorted(known)) or "it is not declared"
                key = "depends_on" if why.reason == "explicit_dependency" else why.reason
                self._report_item(Code.MISSING_DEPENDENCY, source, f"'{shown(target)}' does not exist; {near}", key)
        try:
            order.prepare()
        except CycleError as error:
            way = list(dict.fromkeys(error.args[1]))
            first = min(way)
            message = f"each of these waits for the others: {', '.join(sorted(way))}"
            if first in self._places:
                self._report_item(Code.DEPENDENCY_CYCLE, Address(first), message)


def _known_host(line: str) -> tuple[str, str]:
    """Return the host of a line, and the line in its normal form. Raises ValueError."""
    from gitops.cluster.config.trust_root import read_public_key  # slow to import, and only hosts need it here

    words = line.split()
    authority = words[:1] == ["@cert-authority"]
    host, *rest = words[1:] if authority else words
    if not host.startswith("host.") or any(each in host for each in "*?!,|"):
        raise ValueError("a line begins with host.NAME, the name of one declared host")
    key_type, key = read_public_key(rest)
    return host.removeprefix("host."), " ".join(["@cert-authority"] * authority + [host, key_type, key])


def _stored(data: bytes, contents: dict[str, bytes]) -> dict[str, Any]:
    """Return the form of some content, and keep its bytes."""
    contents[digest(data)] = data
    return {"sha256": digest(data), "size": len(data)}


def _plain(value: Any) -> Any:
    """Return a value as JSON. Lists whose order has no meaning are sorted by their readers."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
