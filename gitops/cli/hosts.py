"""`gitops hosts`: reads declared machines without changing them. The cluster folder declares the connections.

A key comes from the file that `GITOPS_SSH_IDENTITY` names, otherwise from the SSH agent.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from gitops.cli.finding import cluster_folder
from gitops.cli.shared import FAILED, OK, say_lines, say_report, show_form, shown_folder
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines
from gitops.render.words import count
from gitops.repository.wiring.hosts import ssh_login

if TYPE_CHECKING:
    from gitops.cluster.model.host import Connection, Item
    from gitops.hosts.facts import HostFacts
    from gitops.hosts.inspection import SeenItem

_WITH_CONTENT = ("file", "unit")
_AT_ONCE = 16
_LABEL = 14


class _DeclaredHosts(NamedTuple):
    """The hosts of a folder with their items, by name, and the name of the cluster."""

    cluster: str
    hosts: Mapping[str, Connection]
    items: Mapping[str, list[Item]]
    problems: Diagnostics


def check(options: argparse.Namespace) -> int:
    """`gitops hosts check`. Exits 1 if a host cannot be managed."""
    from gitops.hosts.inspection import check_host, facts_form
    from gitops.repository.wiring.system import SystemClock

    declared = _declared(options)
    problems = Diagnostics(declared.problems)
    forms: list[dict[str, Any]] = []
    lines: list[str] = []
    for name, facts, found in _read_all(declared, options.host, items=False):
        if facts is None:
            lines.append(f"{name}: failed")
        else:
            check_host(facts, name, int(SystemClock().now().timestamp()), found)
            system = facts.system.get("PRETTY_NAME", "unknown system")
            lines.append(f"{name}: {'failed' if found.has_errors else 'ok'}, {system}, {facts.free_kib >> 10} MiB free")
        forms.append({"name": name, "ok": not found.has_errors, "facts": None if facts is None else facts_form(facts)})
        problems.extend(found)
    return _show(options, lines, {"hosts": forms}, problems)


def facts(options: argparse.Namespace) -> int:
    """`gitops hosts facts`. Exits 1 if a host cannot be read."""
    from gitops.hosts.inspection import compare_items, facts_form

    declared = _declared(options)
    problems = Diagnostics(declared.problems)
    forms: list[dict[str, Any]] = []
    lines: list[str] = []
    for name, read, found in _read_all(declared, options.host, items=True):
        problems.extend(found)
        if read is None:
            continue
        seen = compare_items(declared.items[name], read)
        form = facts_form(read)
        lines += [name, *(f"  {key.replace('_', ' '):<{_LABEL}}{_words(value)}" for key, value in form.items())]
        lines += [f"  {'items':<{_LABEL}}{count(len(seen), 'item')}", *_item_lines(seen)]
        forms.append({"name": name, "facts": form, "items": [_item_form(each) for each in seen]})
    return _show(options, lines, {"hosts": forms}, problems)


def describe(options: argparse.Namespace) -> int:
    """`gitops hosts describe`: print items of a host as a resource file. Exits 1 if one is not there."""
    from gitops.hosts.channel import open_channel
    from gitops.hosts.inspection import described, is_private, resource_file
    from gitops.hosts.probe import HostOwner, probe, read_text

    if not options.item:
        detail = "name an item, such as file./etc/motd, user.deploy or package.nginx"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"gitops hosts describe {options.host} ITEM")
    declared = _declared(options)
    name = _named(declared, options.host)
    items = [_default_item(name, each) for each in options.item]
    problems = Diagnostics()
    found: list[dict[str, Any]] = []
    with open_channel(declared.hosts[name], declared.hosts, ssh_login(os.environ)) as channel:
        facts = probe(channel, items, HostOwner("", declared.cluster))
        for each in items:
            file = each.type in _WITH_CONTENT and not is_private(each, facts)
            form = described(each, facts, read_text(channel, each.path or "") if file else None)
            if form is None:
                place = f"host.{name}.{each.type}.{each.id}"
                problems.add(Code.HOST_ITEM_MISSING, place, "the host does not have it, or has something else there")
            else:
                found.append(form)
    if options.json:
        show_form({"ok": not problems.has_errors, "problems": problems.to_json(), "resources": found})
    else:
        say_lines([*resource_file(found).split("\n"), *diagnostic_lines(problems, verbose=True)])
    return FAILED if problems.has_errors else OK


def trust(options: argparse.Namespace) -> int:
    """`gitops hosts trust`: print the line for `hosts/known_hosts` if the host has a key with this fingerprint."""
    from gitops.hosts.channel import scan_keys
    from gitops.hosts.ssh_config import fingerprint

    declared = _declared(options)
    connection = declared.hosts[_named(declared, options.host)]
    keys = scan_keys(connection)
    found = {fingerprint(key): key for key in keys}
    key = found.get(options.fingerprint)
    if key is None:
        detail = f"none of the host's keys has the fingerprint {options.fingerprint}; it has {', '.join(sorted(found))}"
        raise GitopsError(Code.HOST_KEY_MISMATCH, detail, path=f"host.{connection.name}")
    line = f"host.{connection.name} {key}"
    if options.json:
        show_form({"ok": True, "problems": [], "host": connection.name, "line": line})
    else:
        say_lines([line])
    return OK


def _declared(options: argparse.Namespace) -> _DeclaredHosts:
    """Load the hosts of the folder. Raises UsageError if it has none, and reports problems of the folder."""
    from gitops.cluster.config.folder import FolderTree
    from gitops.cluster.config.load import load_desired
    from gitops.cluster.model.address import Kind, of_kind
    from gitops.cluster.model.host import read_connection, read_item

    folder = cluster_folder(options)
    loaded = load_desired(FolderTree(folder, confined=False))
    hosts: dict[str, Connection] = {}
    items: dict[str, list[Item]] = {}
    for address in of_kind(loaded.resources, Kind.HOST):
        content = loaded.resources[address].content or b""
        if address.item is None:
            connection = read_connection(content)
            hosts[connection.name] = connection
        else:
            item = read_item(content)
            items.setdefault(item.host, []).append(item)
    if not hosts:
        detail = "cluster.yaml declares no hosts"
        raise UsageError(Code.HOST_UNKNOWN, detail, path=shown_folder(options, folder), fix="")
    cluster = loaded.header.name if loaded.header is not None else ""
    return _DeclaredHosts(cluster or "", hosts, {name: items.get(name, []) for name in hosts}, loaded.diagnostics)


def _default_item(host: str, text: str) -> Item:
    """Return the item `TYPE.ID` with the defaults of its type. Raises UsageError."""
    from gitops.cluster.model.address import Address
    from gitops.cluster.model.host import ATTRIBUTES, REQUIRED, Item, Use

    found = Address(f"host.{host}.{text}").item
    if found is None or found[0].value == "ready":
        detail = f"'{text}' is not TYPE.ID, such as file./etc/motd or package.nginx"
        raise UsageError(Code.USAGE_ERROR, detail, fix="")
    rows = ATTRIBUTES[found[0]].items()
    stated: dict[str, Any] = {
        name: None if row.default is REQUIRED else list(row.default) if isinstance(row.default, tuple) else row.default
        for name, row in rows
        if row.use is not Use.SOURCE
    }
    if found[0].value in _WITH_CONTENT:
        stated["content"] = {"sha256": "", "size": 0}
    if found[0].value == "file":
        stated["mode"] = "0644"
    return Item(host=host, type=found[0], id=found[1], attributes=stated)


def _named(declared: _DeclaredHosts, name: str) -> str:
    if name not in declared.hosts:
        detail = f"the host '{name}' is not declared; the hosts are {', '.join(sorted(declared.hosts))}"
        raise UsageError(Code.HOST_UNKNOWN, detail, fix="")
    return name


def _read_all(
    declared: _DeclaredHosts, name: str | None, *, items: bool
) -> Iterator[tuple[str, HostFacts | None, Diagnostics]]:
    """Read the named host or all of them, several at once, and yield their facts or their problems, by name."""
    names = sorted(declared.hosts) if name is None else [_named(declared, name)]
    login = ssh_login(os.environ)

    def read(each: str) -> tuple[str, HostFacts | None, Diagnostics]:
        from gitops.hosts.channel import open_channel
        from gitops.hosts.probe import HostOwner, probe

        found = Diagnostics()
        try:
            with open_channel(declared.hosts[each], declared.hosts, login) as channel:
                return (
                    each,
                    probe(channel, declared.items[each] if items else (), HostOwner("", declared.cluster)),
                    found,
                )
        except GitopsError as error:
            found.add_error(error)
            return each, None, found

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(read, names)


def _show(options: argparse.Namespace, lines: list[str], form: Mapping[str, Any], problems: Diagnostics) -> int:
    ok = not problems.has_errors
    if options.json:
        show_form({"ok": ok, "problems": problems.to_json(), **form})
    else:
        folder = shown_folder(options, cluster_folder(options))
        shown = [*map(visible, lines), *diagnostic_lines(problems, folder=folder, verbose=True)]
        say_report("\n".join(shown), options, ok=ok and not lines)
    return OK if ok else FAILED


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value) or "none"


def _item_lines(seen: list[SeenItem]) -> Iterator[str]:
    for each in seen:
        yield f"    {each.item.type}.{each.item.id}: {each.words}"


def _item_form(each: SeenItem) -> dict[str, Any]:
    address = f"host.{each.item.host}.{each.item.type}.{each.item.id}"
    return {
        "address": address,
        "seen": each.observed.sight.value,
        "differs": list(each.differs),
        "detail": each.observed.detail,
    }
